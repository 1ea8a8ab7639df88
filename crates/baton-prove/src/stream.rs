//! Where to connect to, and the connection.
//!
//! The one place that knows transports: TLS becomes one more variant here.

use std::{
    fmt, io,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// The address of the server under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix stream socket.
    Unix(PathBuf),
}

impl Target {
    /// Connects, with Nagle's algorithm off.
    ///
    /// # Errors
    /// What `connect(2)` and the calls around it say; no time limit of its own.
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        match self {
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                // Fails only on a socket that is gone already, which the first write or read tells better.
                let _ = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream))
            }
            Target::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
        }
    }

    /// What goes into the `Host` header when nothing else is asked for.
    pub(crate) fn host(&self) -> String {
        match self {
            Target::Tcp(address) => address.to_string(),
            Target::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Target {
        Target::Tcp(address)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(address) => address.fmt(f),
            Target::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A connection to a [`Target`].
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets have nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
