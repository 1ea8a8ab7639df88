//! Passing descriptors to another process over a unix stream socket (`SCM_RIGHTS`, unix(7)).
//!
//! A message is some payload (at least one byte) with up to [`FDS_MAX`] descriptors. On a stream socket the
//! kernel does not merge the payload of two messages with descriptors, but a receiver with a small buffer gets
//! the rest of a payload by further reads, without descriptors: what the payload means, and how long it is, is
//! the caller's protocol. Descriptors that do not fit are never lost silently: that is [`ReceiveError::Truncated`].

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// Descriptors in one message, the kernel's limit (`SCM_MAX_FD`). HAProxy sends at most 252.
pub const FDS_MAX: usize = 253;

/// Words of eight bytes that hold a control message with [`FDS_MAX`] descriptors and its header, with room for
/// a second header.
const CONTROL_WORDS: usize = (FDS_MAX * size_of::<RawFd>() + 64).div_ceil(8);

/// What one read brought.
#[derive(Debug)]
pub struct Received {
    /// Payload bytes; 0 means that the peer has closed.
    pub length: usize,
    /// Descriptors, close-on-exec, in the order of sending.
    pub fds: Vec<OwnedFd>,
}

/// A read that failed.
#[derive(Debug)]
pub enum ReceiveError {
    /// The system call failed; `WouldBlock` on a non-blocking socket without data.
    Io(io::Error),
    /// Descriptors were lost: more came than fit, or our own limit of open files was reached. Those that
    /// arrived have been closed again, for half of a message is of no use.
    Truncated {
        /// How many arrived and were closed.
        closed: usize,
    },
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Io(error) => write!(f, "{error}"),
            ReceiveError::Truncated { closed } => {
                write!(f, "descriptors were lost on the way ({closed} arrived and were closed); ")?;
                write!(f, "is the limit of open files too low?")
            }
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReceiveError::Io(error) => Some(error),
            ReceiveError::Truncated { .. } => None,
        }
    }
}

impl From<ReceiveError> for io::Error {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Io(error) => error,
            ReceiveError::Truncated { .. } => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        }
    }
}

/// Sends one message. Returns how many payload bytes went; the descriptors went with the first of them, so the
/// rest is to be written without any.
///
/// # Errors
/// `InvalidInput` for an empty payload or more than [`FDS_MAX`] descriptors; what sendmsg(2) says, `WouldBlock`
/// included (then nothing was sent); `ETOOMANYREFS` when too many descriptors are in flight.
pub fn send(socket: &impl AsFd, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if payload.is_empty() || fds.len() > FDS_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let control = if numbers.is_empty() { &rights[..0] } else { &rights[..] };
    let iov = [IoSlice::new(payload)];
    loop {
        match sendmsg::<()>(socket.as_fd().as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Sends a whole payload, blocking or failing with what the socket's mode says; see [`send`].
pub fn send_all(socket: &impl AsFd, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = send(socket, payload, fds)?;
    while sent < payload.len() {
        sent += send(socket, &payload[sent..], &[])?;
    }
    Ok(())
}

/// Receives at most one message into `payload`.
pub fn receive(socket: &impl AsFd, payload: &mut [u8]) -> Result<Received, ReceiveError> {
    let mut control = [MaybeUninit::<u64>::zeroed(); CONTROL_WORDS];
    let mut iov = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
    // SAFETY: msghdr is a C structure of integers and pointers, for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let length = loop {
        // SAFETY: the header points to one iovec over `payload` and to `control`, with their true lengths; both
        // outlive the call, and `control` is aligned for cmsghdr by its words.
        let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if length >= 0 {
            break length as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(ReceiveError::Io(error));
        }
    };
    let fds = take_fds(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(ReceiveError::Truncated { closed: fds.len() });
    }
    Ok(Received { length, fds })
}

/// Owns every descriptor of a message the kernel has just filled in.
fn take_fds(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel filled `msg_control` with whole control messages and set `msg_controllen` to their
    // length; the macros walk within it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so CMSG_FIRSTHDR or CMSG_NXTHDR found a whole header inside the buffer.
        let (level, kind, length) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: as above; this computes the address of the header's data and its offset.
            let (data, offset) = unsafe { (libc::CMSG_DATA(header).cast::<RawFd>(), libc::CMSG_LEN(0) as usize) };
            for at in 0..length.saturating_sub(offset) / size_of::<RawFd>() {
                // SAFETY: `at` stays below the number of descriptors that `cmsg_len` says follow the header;
                // each was made for us by the kernel a moment ago and is owned by nobody else.
                fds.push(unsafe { OwnedFd::from_raw_fd(data.add(at).read_unaligned()) });
            }
        }
        // SAFETY: `header` is a header inside `message`'s buffer, as CMSG_NXTHDR asks.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    fds
}

#[cfg(test)]
mod tests;
