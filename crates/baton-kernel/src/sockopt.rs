//! `getsockopt` and `setsockopt` for the options that neither socket2 nor nix wraps.
//!
//! Values are plain integers or bytes, so that nothing here can be misinterpreted by the compiler.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, socklen_t};

/// Sets an integer option.
pub(crate) fn set_int(fd: &impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed, hence open; the pointer and the length describe `value`, which lives
    // across the call and is only read by it.
    let done = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<c_int>() as socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option of any shape into `into` and says how much of it the kernel filled.
pub(crate) fn bytes_of(fd: &impl AsFd, level: c_int, name: c_int, into: &mut [u8]) -> io::Result<usize> {
    let mut length = into.len() as socklen_t;
    // SAFETY: the descriptor is borrowed, hence open; the kernel writes at most `length` bytes, the size of the
    // buffer, and any byte is a valid `u8`.
    let done =
        unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, into.as_mut_ptr().cast(), &raw mut length) };
    if done == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}
