//! The old process's part: its sockets go out.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::SockRef;

use super::{PADDING, PATIENCE, PER_MESSAGE};
use crate::inherit;

/// A listening socket that is offered to another process.
#[derive(Clone, Copy, Debug)]
pub struct OfferedSocket<'a> {
    /// The socket.
    pub fd: BorrowedFd<'a>,
    /// Name of its network namespace; empty for our own.
    pub namespace: &'a str,
    /// The interface it is bound to, if any; else empty.
    pub interface: &'a str,
}

/// Answers [`QUESTION`](super::QUESTION): sends the sockets to the process on the other side of `stream`. Blocks, for
/// [`PATIENCE`] at each step, and makes the stream blocking.
///
/// `Ok` says that every message was acknowledged, or that the successor closed after the last one: it has the sockets.
/// That it will serve them nobody can know before it says so by a signal.
///
/// # Errors
/// `WouldBlock` or `TimedOut` when the other side is too slow, what the system says when it is gone, `InvalidInput`
/// for a name of more than 255 bytes. Nothing about the sockets has changed then.
pub fn give(stream: &impl AsFd, gifts: &[OfferedSocket<'_>]) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let messages: Vec<_> = gifts.chunks(PER_MESSAGE).map(message).collect::<io::Result<_>>()?;
    let count = i32::try_from(gifts.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    inherit::send_all(stream, &count.to_ne_bytes(), &[])?;
    let last = messages.len().saturating_sub(1);
    for (number, (payload, fds)) in messages.iter().enumerate() {
        inherit::send_all(stream, payload, fds)?;
        match acknowledged(stream) {
            Err(error) if number == last && error.kind() == io::ErrorKind::UnexpectedEof => {}
            other => other?,
        }
    }
    Ok(())
}

fn message<'a>(gifts: &[OfferedSocket<'a>]) -> io::Result<(Vec<u8>, Vec<BorrowedFd<'a>>)> {
    let mut payload = Vec::new();
    for gift in gifts {
        for name in [gift.namespace, gift.interface] {
            payload.push(u8::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?);
            payload.extend_from_slice(name.as_bytes());
        }
        payload.extend_from_slice(&[0; PADDING]);
    }
    Ok((payload, gifts.iter().map(|gift| gift.fd).collect()))
}

fn acknowledged(stream: &impl AsFd) -> io::Result<()> {
    let mut left = size_of::<u32>();
    let mut buffer = [0; size_of::<u32>()];
    while left > 0 {
        match inherit::receive(stream, &mut buffer[..left]) {
            Ok(received) if received.length == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => left -= received.length,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
