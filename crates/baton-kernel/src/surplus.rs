//! Sockets of an address whose other sockets go on serving: see [`ListenerGroup::shrink`](crate::ListenerGroup::shrink).
//!
//! The kernel sends them nothing new any more. But connections that reached them before wait in their queues, and
//! handshakes that began with them end with them. The kernel tells of handshakes by address, not by socket; so those that
//! are seen first are remembered by their clients, and only they are waited for.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use crate::Listening;
use crate::half_open;
use crate::retire::accept_queue;

/// Sockets that a group has given up, to accept from until they are empty.
#[derive(Debug)]
pub struct Surplus {
    sockets: Vec<Listening>,
    /// Clients that were in the middle of a handshake when they were looked for first, and still are.
    before: Option<HashSet<SocketAddr>>,
}

impl Surplus {
    /// What [`ListenerGroup::shrink`](crate::ListenerGroup::shrink) gave back.
    pub fn new(sockets: Vec<Listening>) -> Surplus {
        Surplus { sockets, before: None }
    }

    /// The sockets, to accept from.
    pub fn sockets(&self) -> &[Listening] {
        &self.sockets
    }

    /// Whether nothing is left: none of the handshakes that were under way at the first look is any more, and nothing is
    /// in the queues. A handshake can only be told to be over by looking twice; with SYN cookies it leaves no trace, so
    /// linger for a second even if nothing is seen.
    ///
    /// # Errors
    /// When the kernel tells nothing of handshakes; then linger for some seconds instead.
    pub fn is_empty(&mut self) -> io::Result<bool> {
        let Some(first) = self.sockets.first().filter(|socket| socket.local().inet().is_some()) else {
            return Ok(true);
        };
        let now: HashSet<SocketAddr> = half_open::clients(first)?.into_iter().collect();
        let before = match self.before.take() {
            Some(before) => before.intersection(&now).copied().collect(),
            None => now,
        };
        let is_settled = before.is_empty();
        self.before = Some(before);
        // In this order: a handshake that ends in between moves into a queue, which is looked at later.
        for socket in &self.sockets {
            if accept_queue(socket)?.waiting > 0 {
                return Ok(false);
            }
        }
        Ok(is_settled)
    }

    /// Closes the sockets, the last one first, so that the kernel's order of the others stays; also if somebody else in
    /// this process still holds descriptors of them.
    pub fn close(self) {
        for socket in self.sockets.into_iter().rev() {
            // Fails on a socket that does not listen any more, which is what is wanted.
            let _ = socket2::SockRef::from(&socket.as_fd()).shutdown(std::net::Shutdown::Both);
        }
    }
}
