//! Passing descriptors to another process over a unix stream socket (`SCM_RIGHTS`, unix(7)).
//!
//! A message is some payload (at least one byte) with up to [`FDS_MAX`] descriptors. On a stream socket the
//! kernel does not merge the payload of two messages with descriptors, but a receiver with a small buffer gets
//! the rest of a payload by further reads, without descriptors: what the payload means, and how long it is, is
//! the caller's protocol. Descriptors that do not fit are never lost silently: that is [`ReceiveError::Truncated`].

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Descriptors in one message, the kernel's limit (`SCM_MAX_FD`). HAProxy sends at most 252.
pub const FDS_MAX: usize = 253;

/// Room for a control message with [`FDS_MAX`] descriptors, and one with credentials beside it.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_MAX), ScmCredentials(1));

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
    let mut control = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut control);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let iov = [IoSlice::new(payload)];
    loop {
        match sendmsg(socket, &iov, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
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
    let mut control = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut control);
    let received = loop {
        let mut iov = [IoSliceMut::new(payload)];
        match recvmsg(socket, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.map_err(|error| ReceiveError::Io(error.into()))?,
        }
    };
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    };
    let fds: Vec<OwnedFd> = control.drain().filter_map(rights).flatten().collect();
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(ReceiveError::Truncated { closed: fds.len() });
    }
    Ok(Received { length: received.bytes, fds })
}

#[cfg(test)]
mod tests;
