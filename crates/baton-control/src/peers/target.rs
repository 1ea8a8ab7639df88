//! How a peer is reached.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use baton_kernel::connect;
use baton_model::{Address, PeersSection, Server, ServerTarget};
use baton_proxy::ServerTlsContext;
use baton_proxy::dialer::{self, Dialer};
use baton_rules::Files;
use baton_tls::{Connectors, Target as TlsTarget};
use socket2::{Domain, SockRef};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// How long a connection may take to open: three attempts of the kernel.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);

/// A connection with a peer.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A peer, as it is dialled.
#[derive(Debug)]
pub(super) struct Target {
    /// Its section.
    pub section: Arc<str>,
    /// The peer.
    pub name: Arc<str>,
    /// Where it listens; `None`: its name was not resolved.
    address: Option<Address>,
    dialer: Dialer,
    tls: Option<Arc<ServerTlsContext>>,
}

impl Target {
    /// Another peer of a section. `before` is what was in use under its name.
    pub fn prepare(
        section: &PeersSection,
        server: &Server,
        connectors: Connectors<'_>,
        files: &dyn Files,
        before: Option<&Arc<Target>>,
    ) -> Result<Arc<Target>, String> {
        let before = before.and_then(|before| before.tls.as_deref());
        let tls = ServerTlsContext::prepare(server, connectors, files, before)?;
        let address = match &server.address.target {
            ServerTarget::Fixed(address) => Some(address.clone()),
            ServerTarget::Unresolved { .. } | ServerTarget::ClientDestination(_) => None,
        };
        let dialer = Dialer::new(server, &section.proxy, None);
        Ok(Arc::new(Target { section: section.name.clone(), name: server.name.clone(), address, dialer, tls }))
    }

    /// This process itself, where it listens: the process that takes over does so, too.
    pub fn local(section: &PeersSection) -> Option<Target> {
        let bind = section.proxy.binds.first()?;
        let mut address = bind.address.clone();
        if let Address::Inet(inet) = &mut address
            && inet.ip().is_unspecified()
        {
            let ip: std::net::IpAddr =
                if inet.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
            inet.set_ip(ip);
        }
        Some(Target {
            section: section.name.clone(),
            name: section.local.clone(),
            address: Some(address),
            dialer: Dialer::default(),
            tls: None,
        })
    }

    /// Whether it is this peer.
    pub fn is_for(&self, section: &str, name: &str) -> bool {
        *self.section == *section && *self.name == *name
    }

    /// Where it listens, for operators.
    pub fn place(&self) -> String {
        self.address.as_ref().map_or_else(|| "?".into(), ToString::to_string)
    }

    /// Opens a connection.
    pub async fn dial(&self, random: u64) -> io::Result<Box<dyn Stream>> {
        let opening = async {
            let stream = self.connect(random).await?;
            match &self.tls {
                None => Ok(stream),
                Some(tls) => {
                    let other = io::Error::other;
                    let TlsTarget { config, name, .. } = tls.connector.target(None).map_err(other)?;
                    let stream: Box<dyn Stream> = Box::new(TlsConnector::from(config).connect(name, stream).await?);
                    Ok(stream)
                }
            }
        };
        tokio::time::timeout(CONNECT_WITHIN, opening).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn connect(&self, random: u64) -> io::Result<Box<dyn Stream>> {
        let missing = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let endpoint = dialer::endpoint(self.address.as_ref().ok_or_else(missing)?).ok_or_else(missing)?;
        let started = self.dialer.start(&endpoint, random).map_err(|error| error.source)?;
        established(started.into_fd()).await
    }
}

async fn established(fd: OwnedFd) -> io::Result<Box<dyn Stream>> {
    if SockRef::from(&fd).domain()? == Domain::UNIX {
        return Ok(Box::new(UnixStream::from_std(fd.into())?));
    }
    let stream = TcpStream::from_std(fd.into())?;
    let finished = || match connect::finished(&stream)? {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    };
    stream.async_io(Interest::WRITABLE, finished).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}
