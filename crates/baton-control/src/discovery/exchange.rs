//! A few queries to one name server, and its responses. Each batch has a socket of its own, with a source port of the kernel's choice, that is
//! connected: the kernel drops what another address sends. A response that does not fit into a datagram is asked for again by TCP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use baton_model::{NameServer, SourceAddress};

use baton_dns::message::{self, Outcome};
use baton_dns::{Ask, Heard, Query, QueryKey, Report};
use baton_tls::Target;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;

use super::secure::SecureNameServer;

/// Bytes in front of a message over TCP that say how long it is.
const LENGTH: usize = 2;
/// Ids that are drawn at a time.
const IDS: usize = 64;

/// Ids of queries, which nobody can guess.
#[derive(Default)]
pub(super) struct Ids {
    drawn: Vec<u16>,
}

impl Ids {
    pub(super) fn next(&mut self) -> u16 {
        if self.drawn.is_empty() {
            let mut bytes = [0; 2 * IDS];
            // Since Linux 3.17 it gives as many as this at once, when it gives any. Without them the port alone is hard to guess.
            let _ = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
            self.drawn.extend(bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])));
        }
        self.drawn.pop().unwrap_or_default()
    }
}

/// What belongs to a name server that is asked over TCP.
pub(super) struct Means {
    /// Places for connections, of one that has `maxconn`.
    pub places: Option<Arc<Semaphore>>,
    /// `ssl`.
    pub tls: Option<Arc<SecureNameServer>>,
}

/// Queries that wait for responses.
struct Waiting {
    server: Arc<str>,
    queries: Vec<(QueryKey, Query)>,
    heard: mpsc::Sender<Heard>,
}

impl Waiting {
    async fn report(&self, key: &QueryKey, report: Report) {
        let heard = Heard { key: key.clone(), server: Arc::clone(&self.server), report };
        // Without the change path's thread nobody wants it.
        let _ = self.heard.send(heard).await;
    }

    /// The responses do not come.
    async fn give_up(&mut self) {
        for (key, _) in std::mem::take(&mut self.queries) {
            self.report(&key, Report::NotSent).await;
        }
    }

    /// Takes a message; gives the query whose response has to be asked for by TCP.
    async fn take(&mut self, bytes: &[u8], payload: Option<u16>) -> Option<(QueryKey, Query)> {
        let id = message::id(bytes)?;
        let Some(at) = self.queries.iter().position(|(_, query)| query.id == id) else {
            // It is counted by way of the first that waits.
            if let Some((key, _)) = self.queries.first() {
                self.report(key, Report::Unexpected).await;
            }
            return None;
        };
        if payload.is_some_and(|payload| bytes.len() > usize::from(payload)) {
            let (key, _) = self.queries.swap_remove(at);
            self.report(&key, Report::Response(Outcome::TooBig)).await;
            return None;
        }
        let (key, query) = &self.queries[at];
        match query.read(bytes) {
            Err(_) => {
                self.report(key, Report::Unrelated).await;
                None
            }
            Ok(Outcome::Truncated) if payload.is_some() => {
                let (key, query) = self.queries.swap_remove(at);
                self.report(&key, Report::Truncated).await;
                Some((key, query))
            }
            Ok(outcome) => {
                let (key, _) = self.queries.swap_remove(at);
                self.report(&key, Report::Response(outcome)).await;
                None
            }
        }
    }
}

/// Sends queries, and reports what becomes of each until its time is over.
pub(super) async fn run(ask: Ask, means: Means, heard: mpsc::Sender<Heard>) {
    let Ask { server, payload, until, queries } = ask;
    let mut waiting = Waiting { server: Arc::clone(&server.name), queries, heard };
    let outcome = match server.is_stream {
        true => in_its_place(&mut waiting, &server, means, until).await,
        false => by_udp(&mut waiting, server.address, payload, until).await,
    };
    if outcome.is_err() {
        waiting.give_up().await;
    }
}

/// Asks by TCP as soon as there is room for a connection; without one in time there is no response.
async fn in_its_place(waiting: &mut Waiting, server: &NameServer, means: Means, until: Instant) -> io::Result<()> {
    let Means { places, tls } = means;
    let _place = match &places {
        None => None,
        Some(places) => match timeout_at(until.into(), places.acquire()).await {
            Ok(place) => place.ok(),
            Err(_) => return Ok(()),
        },
    };
    let way = Way { source: server.source.as_ref(), tls: tls.as_deref() };
    by_tcp(waiting, server.address, way, until).await
}

async fn by_udp(waiting: &mut Waiting, address: SocketAddr, payload: u16, until: Instant) -> io::Result<()> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    for (_, query) in &waiting.queries {
        socket.send(&query.write(payload)).await?;
    }
    // One byte more shows that a response is too long.
    let mut buffer = vec![0; usize::from(payload) + 1];
    while !waiting.queries.is_empty() {
        let Ok(read) = timeout_at(until.into(), socket.recv(&mut buffer)).await else { return Ok(()) };
        let length = read?;
        if let Some(again) = waiting.take(&buffer[..length], Some(payload)).await {
            let mut other =
                Waiting { server: Arc::clone(&waiting.server), queries: vec![again], heard: waiting.heard.clone() };
            tokio::spawn(async move {
                if by_tcp(&mut other, address, Way::default(), until).await.is_err() {
                    other.give_up().await;
                }
            });
        }
    }
    Ok(())
}

async fn by_tcp(waiting: &mut Waiting, address: SocketAddr, way: Way<'_>, until: Instant) -> io::Result<()> {
    let exchange = async {
        let mut stream = connect(address, way).await?;
        let mut bytes = Vec::new();
        for (_, query) in &waiting.queries {
            let query = query.write(u16::MAX);
            bytes.extend_from_slice(&u16::try_from(query.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend_from_slice(&query);
        }
        stream.write_all(&bytes).await?;
        let mut buffer = Vec::new();
        while !waiting.queries.is_empty() {
            let mut length = [0; LENGTH];
            stream.read_exact(&mut length).await?;
            buffer.resize(usize::from(u16::from_be_bytes(length)), 0);
            stream.read_exact(&mut buffer).await?;
            waiting.take(&buffer, None).await;
        }
        Ok(())
    };
    timeout_at(until.into(), exchange).await.unwrap_or(Ok(()))
}

/// How a name server is asked over TCP.
#[derive(Clone, Copy, Default)]
struct Way<'a> {
    source: Option<&'a SourceAddress>,
    tls: Option<&'a SecureNameServer>,
}

/// A connection to a name server.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

async fn connect(address: SocketAddr, Way { source, tls }: Way<'_>) -> io::Result<Box<dyn Stream>> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(SourceAddress { ip, ports, interface, .. }) = source {
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(*ip, ports.0))?;
    }
    let stream = socket.connect(address).await?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let Target { config, name, .. } = tls.target()?;
    Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
}
