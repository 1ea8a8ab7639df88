//! Sockets on the reactor of the current tokio runtime.
//!
//! tokio asks its caller to promise that a watched descriptor stays the same open file. A socket that owns its descriptor
//! and is only lent out by reference keeps that promise; this module is where it is given.

use std::io;
use std::os::fd::OwnedFd;

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

/// Watches a listening socket for connections that wait. Errors and panics as for [`stream`].
pub fn listening(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: as above, `OwnedFd` owns its descriptor and never changes it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(io::Error::from)
}
