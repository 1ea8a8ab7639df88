//! Descriptors that are known by their numbers only: the process that started this one passed them on.
//!
//! What this process opened itself is close-on-exec and not found here: its numbers mean nothing to those who write them down.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec};

/// A close-on-exec duplicate of a descriptor that was passed on.
///
/// # Errors
/// `EBADF` when no descriptor of that number was passed on, `EMFILE` at the limit of open files.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 || flags(number)?.contains(FdFlags::CLOEXEC) {
        return Err(Errno::BADF.into());
    }
    // SAFETY: it was open a moment ago, and no value of this process owns a descriptor that was passed on, so that none closes it.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(fcntl_dupfd_cloexec(passed, 3)?)
}

/// The flags of a descriptor.
///
/// # Errors
/// `EBADF` when no descriptor of that number is open.
pub(crate) fn flags(number: RawFd) -> io::Result<FdFlags> {
    // SAFETY: fcntl takes a number and reports EBADF when it is no open descriptor; no memory is involved.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 { Err(io::Error::last_os_error()) } else { Ok(FdFlags::from_bits_retain(flags as u32)) }
}
