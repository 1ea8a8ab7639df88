//! Sockets on the reactor of the current tokio runtime.
//!
//! tokio asks its caller to promise that a watched descriptor stays the same open file. A socket that owns its descriptor
//! and is only lent out by reference keeps that promise; this module is where it is given.

use std::cell::{Cell, OnceCell};
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

/// A connected socket that is watched only when somebody has to wait for it: a short connection may end before.
#[derive(Debug)]
pub struct LazyStream {
    /// Dropped, and so deregistered, before the socket that it watches.
    watch: OnceCell<AsyncFd<RawFd>>,
    socket: Socket,
    /// The last write met a full socket. Here, beside the descriptor, the two flags take no room of their own in an idle connection.
    pub full: Cell<bool>,
    /// What was done to find its first bytes without a watch.
    pub first_look: Cell<FirstLook>,
}

/// How far the search for the first bytes of a connection without a watch is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FirstLook {
    /// Not begun.
    #[default]
    Due,
    /// There were none when the connection was accepted; a second look follows.
    Again,
    /// Over: a watch reports whatever comes next.
    Over,
}

impl LazyStream {
    /// A connected, non-blocking socket that nobody watches.
    pub fn new(socket: Socket) -> LazyStream {
        LazyStream { watch: OnceCell::new(), socket, full: Cell::new(false), first_look: Cell::default() }
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Its watch, if it has one.
    #[inline]
    pub fn watched(&self) -> Option<&AsyncFd<RawFd>> {
        self.watch.get()
    }

    /// Its watch, from now on if it had none. What came before is reported, too.
    ///
    /// # Errors
    /// The reactor's: descriptors or memory ran out.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled.
    #[inline]
    pub fn watch(&self) -> io::Result<&AsyncFd<RawFd>> {
        match self.watch.get() {
            Some(watch) => Ok(watch),
            None => self.begin_watch(),
        }
    }

    #[cold]
    fn begin_watch(&self) -> io::Result<&AsyncFd<RawFd>> {
        // SAFETY: the descriptor is that of `socket`, which is never replaced and is closed after the watch is dropped: fields are
        // dropped in the order in which they are declared.
        let watch = unsafe { AsyncFd::register(self.socket.as_raw_fd()) }.map_err(io::Error::from)?;
        Ok(self.watch.get_or_init(|| watch))
    }
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
    // SAFETY: `SharedSocket` always gives the same descriptor, one of a list that cannot change; it is open as long as the list
    // lives, which `SharedSocket` owns a share of, and the `AsyncFd` drops that after deregistering.
    let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
    watched.map_err(io::Error::from)
}
