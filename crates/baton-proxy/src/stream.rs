//! A connected stream socket of any family on the core's reactor.
//!
//! All methods take `&self`, so that the two directions of a connection can be driven side by side. A read that does not
//! fill its buffer has emptied the socket, so readiness is cleared at once and the next wait costs no extra `recv`. The calls
//! go to the kernel without the C library in between, whose `recv` and `send` are cancellation points that cost each of
//! them two atomic operations in a process with threads.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use tokio::io::unix::AsyncFd;

/// A connection.
#[derive(Debug)]
pub struct Stream {
    fd: AsyncFd<Socket>,
}

impl Stream {
    /// Registers a non-blocking socket with the current runtime.
    pub fn new(socket: Socket) -> io::Result<Stream> {
        Ok(Stream { fd: baton_kernel::watch::stream(socket)? })
    }

    /// The socket, for options and addresses.
    pub fn socket(&self) -> &Socket {
        self.fd.get_ref()
    }

    /// Reads into `room`; 0 is the end of the stream.
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
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.fd.poll_read_ready(cx).map(|_| ())
    }

    /// Writes some of `bytes`.
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.fd.poll_write_ready(cx))?;
            match send(self.fd.get_ref(), bytes, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    if count > 0 && count < bytes.len() {
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
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let look = std::future::poll_fn(|cx| Poll::Ready(self.look_stale(cx)));
        // Out of the task's budget the reactor would say "nothing happened" of every connection.
        let look = std::pin::pin!(tokio::task::unconstrained(look));
        look.poll(&mut cx) != Poll::Ready(false)
    }

    fn look_stale(&self, cx: &mut Context<'_>) -> bool {
        loop {
            let mut ready = match self.fd.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(ready)) => ready,
            };
            let mut byte = [std::mem::MaybeUninit::uninit()];
            match self.fd.get_ref().peek(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                _ => return true,
            }
        }
    }

    /// Looks, without reading, whether the peer has ended its direction or reset the connection. Registers for the next
    /// event when it has not; bytes that wait hide what comes after them.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            let mut byte = [std::mem::MaybeUninit::uninit()];
            match self.fd.get_ref().peek(&mut byte) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => return Poll::Pending,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
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

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
