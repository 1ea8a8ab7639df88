//! A connected stream socket of any family on the core's reactor, with TLS inside where that was agreed on.
//!
//! All methods take `&self`, so that the two directions of a connection can be driven side by side. Who reads and writes
//! does not know whether the bytes are encrypted; a plain connection pays one branch for that.

mod agreeing;
mod moved;
mod records;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use baton_kernel::splice::Pipe;
use baton_rules::SocketChanges;
use baton_tls::Facts;
use baton_tls::rustls::CommonState;
use socket2::Socket;

pub use agreeing::Agreeing;
pub use moved::{MovedBytes, MovedTls};
pub use records::{RecordPool, Records};
pub use tls::{Broken, Tls};
use wire::Wire;

/// A connection.
#[derive(Debug)]
pub struct Stream {
    wire: Wire,
    tls: Option<Box<Tls>>,
}

impl Stream {
    /// Registers a non-blocking socket with the current runtime.
    pub fn new(socket: Socket) -> io::Result<Stream> {
        Ok(Stream { wire: Wire::new(socket)?, tls: None })
    }

    /// A non-blocking socket that was accepted; it is registered with the current runtime when it has to be waited for.
    pub fn accepted(socket: Socket) -> Stream {
        Stream { wire: Wire::unwatched(socket), tls: None }
    }

    /// A non-blocking socket of a connection that was served elsewhere until now.
    pub fn moved(socket: Socket) -> Stream {
        Stream { wire: Wire::moved(socket), tls: None }
    }

    /// A non-blocking socket of a connection that was served elsewhere until now, with its TLS if it has that.
    pub fn resumed(socket: Socket, tls: Option<&MovedTls>, records: &Rc<RecordPool>) -> Stream {
        let mut stream = Stream::moved(socket);
        stream.tls = tls.map(|moved| Box::new(Tls::resumed(moved, records.clone())));
        stream
    }

    /// Whether it can go on elsewhere as it is at this moment.
    pub fn can_move(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.can_move())
    }

    /// TLS as data, for whoever goes on with a second descriptor of the socket; `None` without TLS. It is gone here, where nothing may be read or
    /// written any more, unless it is [put back](Self::put_back). Only where it [can move](Self::can_move).
    pub fn take_tls(&self) -> Option<Box<MovedTls>> {
        self.tls.as_ref()?.take()
    }

    /// It does not go on elsewhere.
    pub fn put_back(&self, tls: Option<&MovedTls>) {
        if let (Some(own), Some(moved)) = (&self.tls, tls) {
            own.put_back(moved);
        }
    }

    /// The socket, for options and addresses.
    pub fn socket(&self) -> &Socket {
        self.wire.socket()
    }

    /// Speaks TLS from now on; [`poll_handshake`](Self::poll_handshake) comes first, and then [`note_facts`](Self::note_facts).
    pub fn secure(&mut self, tls: Tls) {
        self.tls = Some(Box::new(tls));
    }

    /// Keeps what was agreed on in the handshake, which is complete, and goes on with records.
    pub fn note_facts(&self, facts: impl FnOnce(&CommonState) -> Facts) {
        if let Some(tls) = &self.tls {
            tls.note_facts(facts);
        }
    }

    /// What was agreed on; `None` before, and without TLS.
    pub fn facts(&self) -> Option<&Facts> {
        self.tls.as_ref().and_then(|tls| tls.facts())
    }

    /// Whether the bytes are encrypted.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Ready when TLS is agreed on, or with the reason why not, of which the peer was told. What is left to be sent of it goes
    /// with the first bytes that are written, or before the next wait for bytes. At once without TLS.
    pub fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        match &self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => tls.poll_handshake(&self.wire, cx),
        }
    }

    /// Reads into `room`; 0 is the end of the stream.
    pub fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.wire.poll_read(cx, room),
            Some(tls) => tls.poll_read(&self.wire, cx, room),
        }
    }

    /// Ready when a read will find bytes, the end or an error; reads nothing. May be wrong once in a while: the read then
    /// waits.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.tls {
            None => self.wire.poll_readable(cx),
            Some(tls) => tls.poll_readable(&self.wire, cx),
        }
    }

    /// Writes some of `bytes`. What was written is with the system; after [`Poll::Pending`], the next call begins with the
    /// same bytes.
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.wire.poll_write(cx, bytes),
            Some(tls) => tls.poll_write(&self.wire, cx, bytes),
        }
    }

    /// Moves at most `most` bytes into an empty pipe; 0 is the end of the stream. What is encrypted cannot be moved so:
    /// [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub fn poll_splice_in(&self, cx: &mut Context<'_>, pipe: &mut Pipe, most: usize) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.wire.poll_splice_in(cx, pipe, most),
            Some(_) => Poll::Ready(Err(io::ErrorKind::InvalidInput.into())),
        }
    }

    /// Moves some of what a pipe holds. A part does not mean that the socket is full: only the next call can say.
    pub fn poll_splice_out(&self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.wire.poll_splice_out(cx, pipe),
            Some(_) => Poll::Ready(Err(io::ErrorKind::InvalidInput.into())),
        }
    }

    /// Ready when a connection that was started is established, or with the reason why not.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_connected(cx)
    }

    /// Whether the peer closed (or sent something) while the connection was idle. Costs no system call as long as nothing
    /// happened. What belongs to TLS itself, such as a ticket for later, is taken in and no reason.
    pub fn is_stale(&self) -> bool {
        match &self.tls {
            None => self.wire.is_stale(),
            Some(tls) => tls.is_stale(&self.wire),
        }
    }

    /// Looks, without reading, whether the peer has ended its direction or reset the connection. Registers for the next
    /// event when it has not; bytes that wait hide what comes after them.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            None => self.wire.poll_closed(cx),
            Some(tls) => tls.poll_closed(&self.wire, cx),
        }
    }

    /// Where the peer wanted to connect to before Netfilter brought it here; `None` when it was not brought.
    pub fn original_destination(&self) -> Option<SocketAddr> {
        baton_kernel::stream::original_destination(self.wire.socket())
    }

    /// Ends our direction: the peer reads the end of the stream.
    pub fn shutdown_write(&self) {
        if let Some(tls) = &self.tls {
            tls.end(&self.wire);
        }
        self.wire.shutdown_write();
    }

    /// Forgets the connection: the coming close does not reach the peer, or, with a TTL, by a reset that gets as far as that.
    pub fn forget(&self, ttl: Option<u8>) {
        if let Some(tls) = &self.tls {
            tls.give_up();
        }
        self.wire.forget(ttl);
    }

    /// Whether it was forgotten.
    pub fn is_forgotten(&self) -> bool {
        self.wire.is_forgotten()
    }

    /// Changes options of the socket. Without the right to do so they stay as they are, as in HAProxy.
    pub fn change_socket(&self, changes: SocketChanges) {
        let SocketChanges { tos, mark } = changes;
        if let Some(tos) = tos {
            let _ = baton_kernel::stream::set_tos(self.wire.socket(), tos);
        }
        if let Some(mark) = mark {
            let _ = baton_kernel::stream::set_mark(self.wire.socket(), mark);
        }
    }

    /// Makes the coming close a reset.
    pub fn reset_on_close(&self) {
        if let Some(tls) = &self.tls {
            tls.give_up();
        }
        self.wire.reset_on_close();
    }
}

impl Drop for Stream {
    /// The peer of an encrypted connection is told the end before it is closed (RFC 8446 6.1).
    fn drop(&mut self) {
        if let Some(tls) = &self.tls {
            tls.end(&self.wire);
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.wire.socket().as_raw_fd()
    }
}
