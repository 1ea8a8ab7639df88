//! A peer of the runtime API, over whatever kind of socket it came.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use baton_model::{Address, Author};
use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::control_socket::Peer;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    fd: AsyncFd<Socket>,
}

impl Connection {
    /// Watches a connected, non-blocking socket.
    pub fn new(socket: Socket) -> io::Result<Connection> {
        Ok(Connection { fd: baton_kernel::watch::stream(socket)? })
    }

    /// Who it is, at the socket of that address.
    pub fn author(&self, socket: &Address) -> Author {
        let is_unix = matches!(socket, Address::Unix(_) | Address::Abstract(_));
        let peer = Peer::of(&self.fd).ok().filter(|_| is_unix);
        Author { uid: peer.map(|peer| peer.uid), pid: peer.and_then(|peer| peer.pid), socket: socket.to_string() }
    }

    /// Reads some bytes; 0 is the end.
    pub async fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        self.fd.async_io(Interest::READABLE, |mut socket| socket.read(room)).await
    }

    /// Writes some of the bytes.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.fd.async_io(Interest::WRITABLE, |mut socket| socket.write(bytes)).await
    }

    /// Tells the peer that nothing more comes.
    pub fn finish(&self) {
        // Fails when the peer is gone, which is what is wanted.
        let _ = self.fd.get_ref().shutdown(Shutdown::Write);
    }

    /// The socket, for somebody who speaks another language on it.
    pub fn into_socket(self) -> Socket {
        self.fd.into_inner()
    }
}
