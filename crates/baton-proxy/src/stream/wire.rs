//! The socket itself: bytes as they are on the wire.
//!
//! A read that does not fill its buffer has emptied the socket, so readiness is cleared at once and the next wait costs no
//! extra `recv`. The calls go to the kernel without the C library in between, whose `recv` and `send` are cancellation points
//! that cost each of them two atomic operations in a process with threads.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};

use baton_kernel::splice::{Moved, Pipe};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket with its readiness.
#[derive(Debug)]
pub struct Wire {
    fd: AsyncFd<Socket>,
    /// The last write met a full socket.
    full: Cell<bool>,
}

impl Wire {
    /// Registers a non-blocking socket with the current runtime.
    pub fn new(socket: Socket) -> io::Result<Wire> {
        Ok(Wire { fd: baton_kernel::watch::stream(socket)?, full: Cell::new(false) })
    }

    /// The socket, for options and addresses.
    pub fn socket(&self) -> &Socket {
        self.fd.get_ref()
    }

    /// Reads into `room`; 0 is the end of the stream. In line, like the two below, so that a plain connection pays for no call
    /// more than it would without TLS.
    #[inline(always)]
    pub fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            match recv(self.fd.get_ref(), &mut *room, RecvFlags::empty()) {
                Ok((count, _)) => {
                    if count > 0 && count < room.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Ready when a read will find bytes, the end or an error; reads nothing. May be wrong once in a while: the read then
    /// waits.
    #[inline(always)]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.fd.poll_read_ready(cx).map(|_| ())
    }

    /// Writes some of `bytes`.
    ///
    /// The reactor is asked only after a write that the socket did not take whole: hardly one in a short exchange.
    #[inline(always)]
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if self.full.get() {
                let _ready = ready!(self.fd.poll_write_ready(cx))?;
                self.full.set(false);
            }
            match send(self.fd.get_ref(), bytes, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    if count < bytes.len() {
                        self.note_full(cx);
                    }
                    return Poll::Ready(Ok(count));
                }
                // A SYN that was to carry these bytes went without them: the peer's cookie does not hold any more.
                Err(Errno::AGAIN | Errno::INPROGRESS) => self.note_full(cx),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Moves at most `most` bytes into an empty pipe; 0 is the end of the stream.
    pub fn poll_splice_in(&self, cx: &mut Context<'_>, pipe: &mut Pipe, most: usize) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            match pipe.fill(self.fd.get_ref(), most)? {
                Moved::Bytes(count) => return Poll::Ready(Ok(count)),
                Moved::End => return Poll::Ready(Ok(0)),
                Moved::WouldBlock => ready.clear_ready(),
            }
        }
    }

    /// Moves some of what a pipe holds. A part does not mean that the socket is full: only the next call can say.
    pub fn poll_splice_out(&self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        loop {
            if self.full.get() {
                let _ready = ready!(self.fd.poll_write_ready(cx))?;
                self.full.set(false);
            }
            match pipe.drain(self.fd.get_ref(), usize::MAX, false)? {
                Moved::Bytes(count) => return Poll::Ready(Ok(count)),
                Moved::End => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Moved::WouldBlock => self.note_full(cx),
            }
        }
    }

    /// The socket took less than it was given: the next write waits for room. The reactor notes events on this thread between
    /// two polls, so that what it noted before this write can be forgotten, and what comes after it is not.
    fn note_full(&self, cx: &mut Context<'_>) {
        self.full.set(true);
        if let Poll::Ready(Ok(mut ready)) = self.fd.poll_write_ready(cx) {
            ready.clear_ready();
        }
    }

    /// Ready when a connection that was started is established, or with the reason why not.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ready = ready!(self.fd.poll_write_ready(cx))?;
        Poll::Ready(match self.fd.get_ref().take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(error),
        })
    }

    /// Whether the peer closed (or sent something) while the connection was idle. Costs no system call as long as nothing
    /// happened.
    pub fn is_stale(&self) -> bool {
        let look = self.fd.try_io(Interest::READABLE, |socket| socket.peek(&mut [MaybeUninit::uninit()]));
        !matches!(look, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Looks, without reading, whether the peer has ended its direction or reset the connection. Registers for the next
    /// event when it has not; bytes that wait hide what comes after them.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            let mut byte = [MaybeUninit::uninit()];
            match self.fd.get_ref().peek(&mut byte) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => return Poll::Pending,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Reads what is there, without waiting for more: [`WouldBlock`](io::ErrorKind::WouldBlock) when nothing is, which costs no
    /// system call as long as nothing happened.
    pub fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        self.fd.try_io(Interest::READABLE, |socket| {
            recv(socket, room, RecvFlags::empty()).map(|(count, _)| count).map_err(io::Error::from)
        })
    }

    /// Writes what the socket takes, without waiting for room.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.fd.get_ref(), bytes, SendFlags::NOSIGNAL)?)
    }

    /// Ends our direction: the peer reads the end of the stream.
    pub fn shutdown_write(&self) {
        let _ = self.fd.get_ref().shutdown(Shutdown::Write);
    }

    /// Makes the coming close a reset.
    pub fn reset_on_close(&self) {
        let _ = self.fd.get_ref().set_linger(Some(std::time::Duration::ZERO));
    }
}
