//! Where to connect to, and the connection.
//!
//! The one place that knows transports: TCP and unix sockets, and TLS over either.

mod any_server;
mod tls;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream, UnixStream},
};

pub use any_server::AnyServer;
pub use tls::{ClientCertificate, Tls, TlsOptions, TlsVersion, Verify};

/// The port that a `Host` header leaves out.
const HTTPS: u16 = 443;

/// A server to ask: where it is and what it is called.
#[derive(Clone, Debug)]
pub struct ServerEndpoint {
    /// Its address.
    pub target: Target,
    /// The `Host` header's value; `None` means the name that its certificate is checked against, else the target's address.
    pub host: Option<String>,
    /// TLS between the two; `None` means plain text.
    pub tls: Option<Tls>,
}

impl ServerEndpoint {
    /// What goes into the `Host` header.
    pub(crate) fn host(&self) -> String {
        let name = self.tls.as_ref().and_then(Tls::name);
        match (&self.host, name, &self.target) {
            (Some(host), _, _) => host.clone(),
            (None, Some(name), Target::Tcp(address)) if address.port() != HTTPS => format!("{name}:{}", address.port()),
            (None, Some(name), _) => name.to_owned(),
            (None, None, target) => target.host(),
        }
    }

    /// Connects, from `source` if one is given, TLS included.
    pub(crate) async fn connect(&self, source: Option<IpAddr>) -> Result<Stream, NotConnected> {
        let stream = self.target.connect(source).await.map_err(NotConnected::Socket)?;
        match &self.tls {
            None => Ok(stream),
            Some(tls) => tls.handshake(stream, &self.target).await.map_err(NotConnected::Tls),
        }
    }
}

impl From<Target> for ServerEndpoint {
    fn from(target: Target) -> ServerEndpoint {
        ServerEndpoint { target, host: None, tls: None }
    }
}

impl From<SocketAddr> for ServerEndpoint {
    fn from(address: SocketAddr) -> ServerEndpoint {
        Target::from(address).into()
    }
}

impl From<PathBuf> for ServerEndpoint {
    fn from(path: PathBuf) -> ServerEndpoint {
        Target::Unix(path).into()
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NotConnected {
    /// What `connect(2)` and the calls around it said.
    Socket(io::Error),
    /// There was one, and TLS did not come to be.
    Tls(io::Error),
}

/// The address of the server under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix stream socket.
    Unix(PathBuf),
}

impl Target {
    /// Connects, from one of the machine's own addresses if one is given, with Nagle's algorithm off.
    ///
    /// # Errors
    /// What `connect(2)` and the calls around it say; no time limit of its own.
    async fn connect(&self, source: Option<IpAddr>) -> io::Result<Stream> {
        match self {
            Target::Tcp(address) => {
                let stream = match source {
                    None => TcpStream::connect(address).await?,
                    Some(source) => socket_from(source)?.connect(*address).await?,
                };
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

/// A TCP socket bound to `source`, whose port the kernel chooses when it connects: a port is then used towards many servers.
fn socket_from(source: IpAddr) -> io::Result<TcpSocket> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    setsockopt(&socket, IpBindAddressNoPort, &true)?;
    socket.bind(SocketAddr::new(source, 0))?;
    Ok(socket)
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

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<tls::TlsStream>),
}

impl Stream {
    /// Whether TLS took up an earlier session.
    pub(crate) fn resumed(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.resumed())
    }

    /// Whether HTTP/2 was agreed upon (ALPN).
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.is_http2())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, into),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, into),
        }
    }
}

/// What was written is sent without a flush, as long as the stream is also read from.
impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Sockets have nothing to flush.
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
