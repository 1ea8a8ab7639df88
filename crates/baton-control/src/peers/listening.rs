//! Connections that peers open: accepted, as many as a section may have at once, and decrypted.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use baton_kernel::watch::{self, SharedSocket};
use baton_proxy::supervise;
use baton_tls::{Acceptor, Hello};
use socket2::{SockRef, Socket};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::Place;
use super::running::Running;
use super::target::Stream;

/// Pause after the system refused a descriptor, or to watch a socket.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a client's first message of TLS, at most.
const CLIENT_HELLO_MAX: usize = 20 * 1024;

/// An address at which a section accepts; dropping it ends that.
#[derive(Debug)]
pub(super) struct Listening {
    place: Place,
    tasks: Vec<AbortHandle>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Listening {
    /// Begins to accept.
    pub fn start(running: &Rc<Running>, place: Place) -> Listening {
        let sockets = (0..place.open.shards.len()).filter_map(|at| SharedSocket::at(&place.open.shards, at));
        let tasks = sockets.map(|socket| {
            let (running, acceptor) = (running.clone(), place.acceptor.clone());
            let task = move || accept(socket.clone(), running.clone(), acceptor.clone());
            tokio::task::spawn_local(supervise::for_ever(task)).abort_handle()
        });
        Listening { tasks: tasks.collect(), place }
    }

    /// Whether it is this address.
    pub fn is(&self, id: baton_proxy::ListenerId) -> bool {
        self.place.open.id == id
    }
}

async fn accept(socket: SharedSocket, running: Rc<Running>, acceptor: Option<Arc<Acceptor>>) {
    let fd = watched(socket).await;
    loop {
        let Ok(room) = running.room.clone().acquire_owned().await else { return };
        let Ok(mut ready) = fd.readable().await else { return };
        match SockRef::from(fd.get_ref()).accept4(nix::libc::SOCK_NONBLOCK | nix::libc::SOCK_CLOEXEC) {
            Ok((socket, _)) => {
                let (running, acceptor) = (running.clone(), acceptor.clone());
                tokio::task::spawn_local(async move {
                    if let Ok(stream) = begin(socket, acceptor).await {
                        running.accepted(stream).await;
                    }
                    drop(room);
                });
            }
            Err(error) => match error.raw_os_error() {
                // A unix socket that was shut down has no error, and stays ready for ever.
                Some(nix::libc::EAGAIN) if ready.ready().is_read_closed() => return,
                Some(nix::libc::EAGAIN) => ready.clear_ready(),
                Some(nix::libc::ECONNABORTED | nix::libc::EINTR | nix::libc::EPROTO) => {}
                // It was shut down: the order to close follows.
                Some(nix::libc::EINVAL) => return,
                _ => tokio::time::sleep(PAUSE).await,
            },
        }
        tokio::task::yield_now().await;
    }
}

/// The socket, watched. Where that fails it is tried until it succeeds: who connects meanwhile waits in its queue.
async fn watched(socket: SharedSocket) -> AsyncFd<SharedSocket> {
    loop {
        if let Ok(listening) = watch::listening(socket.clone()) {
            return listening;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn begin(socket: Socket, acceptor: Option<Arc<Acceptor>>) -> io::Result<Box<dyn Stream>> {
    let is_unix = socket.domain()? == socket2::Domain::UNIX;
    let fd = std::os::fd::OwnedFd::from(socket);
    let stream: Box<dyn Stream> = match is_unix {
        true => Box::new(UnixStream::from_std(fd.into())?),
        false => {
            let stream = TcpStream::from_std(fd.into())?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
    };
    let Some(acceptor) = acceptor else { return Ok(stream) };
    let handshake = decrypted(stream, &acceptor);
    tokio::time::timeout(HANDSHAKE_WITHIN, handshake).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// TLS: the first message is read as a whole, by which the certificate is chosen, and is read once more by what answers it.
async fn decrypted(mut stream: Box<dyn Stream>, acceptor: &Acceptor) -> io::Result<Box<dyn Stream>> {
    let refused = || io::Error::from(io::ErrorKind::InvalidData);
    let mut read = Vec::new();
    let chosen = loop {
        if let Ok(hello) = Hello::read(&read) {
            break acceptor.choose(&hello.unwrap_or_default()).map_err(|_| refused())?;
        }
        if read.len() >= CLIENT_HELLO_MAX {
            return Err(refused());
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let stream = Again { read, at: 0, stream };
    Ok(Box::new(TlsAcceptor::from(chosen.config).accept(stream).await?))
}

/// A stream of which some bytes were read already.
struct Again {
    read: Vec<u8>,
    at: usize,
    stream: Box<dyn Stream>,
}

impl AsyncRead for Again {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Again { read, at, stream } = &mut *self;
        let rest = &read[*at..];
        if rest.is_empty() {
            return Pin::new(stream).poll_read(cx, buf);
        }
        let count = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..count]);
        *at += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Again {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
