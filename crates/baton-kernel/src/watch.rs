//! Sockets on the reactor of the current tokio runtime.
//!
//! tokio asks its caller to promise that a watched descriptor stays the same open file. A socket that owns its descriptor
//! and is only lent out by reference keeps that promise; this module is where it is given.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a connected socket for reading and writing.
///
/// # Errors
/// The reactor's: descriptors or memory ran out.
///
/// # Panics
/// Outside of a tokio runtime with I/O enabled.
pub fn stream(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: `Socket` owns an open descriptor, always gives the same one, and closes it only when it is dropped, which
    // the `AsyncFd` that owns it does after deregistering.
    let watched = unsafe { AsyncFd::register(socket) };
    watched.map_err(io::Error::from)
}

/// One of several listening sockets that are shared: it stays open as long as anybody has it.
#[derive(Clone, Debug)]
pub struct SharedSocket {
    sockets: Arc<[OwnedFd]>,
    index: usize,
}

impl SharedSocket {
    /// The socket at that place; `None` when there are not so many.
    pub fn at(sockets: &Arc<[OwnedFd]>, index: usize) -> Option<SharedSocket> {
        (index < sockets.len()).then(|| SharedSocket { sockets: sockets.clone(), index })
    }
}

impl AsFd for SharedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sockets[self.index].as_fd()
    }
}

impl AsRawFd for SharedSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Watches a listening socket for connections that wait. Takes no descriptor. Panics as [`stream`].
///
/// # Errors
/// The reactor's: memory or the user's share of watches ran out.
pub fn listening(socket: SharedSocket) -> io::Result<AsyncFd<SharedSocket>> {
    // SAFETY: as above; the socket is one of a list that nobody can change, and open as long as the list lives, of which
    // `SharedSocket` is an owner.
    let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
    watched.map_err(io::Error::from)
}
