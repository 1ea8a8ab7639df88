//! The clients: each connection is opened again when it was cut, so that every product has the same load all the time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, TlsStream};

use super::Failed;
use super::book::{Book, Cut, Kind};
use super::lane::{self, Lane, Numbers, PATIENCE, Wire};
use super::origin::{self, PIECE, PIECE_EVERY, chunk_length, header, read_frame};
use super::products::Fronts;

/// Connections that are opened at the same time.
const OPENING_MAX: usize = 64;
/// How long a client waits before it opens a connection again.
const AGAIN: Duration = Duration::from_millis(200);
/// A client renews its keys after so many exchanges.
const UPDATE_EVERY: u64 = 8;
/// Sessions that come and go last for so many exchanges.
const LIFE_MIN: u64 = 10;
const LIFE_MAX: u64 = 100;
/// What the server of a poll waits for.
const POLL_SECONDS: u64 = 20;

/// How many of each, and how often they have something to say.
#[derive(Clone, Debug)]
pub struct Load {
    pub kept: usize,
    pub websockets: usize,
    pub tunnels: usize,
    pub http2: usize,
    /// Downloads, uploads, event streams and polls: so many of each.
    pub transfers: usize,
    pub request_every: Duration,
    pub message_every: Duration,
    pub transfer_seconds: u64,
    /// Without TLS on either side, and without HTTP/2 then.
    pub plain: bool,
}

impl Load {
    pub fn connections(&self) -> usize {
        self.kept + self.websockets + self.tunnels + self.http2 + 4 * self.transfers
    }
}

/// What all clients share.
pub struct Site {
    pub book: Arc<Book>,
    pub load: Load,
    fronts: Fronts,
    /// TLS 1.2 and 1.3, and HTTP/2 over 1.3.
    tls: [TlsConnector; 2],
    tls_http2: TlsConnector,
    opening: Semaphore,
}

/// How a connection is made.
#[derive(Clone, Copy)]
enum Over {
    Plain,
    /// TLS 1.2 or 1.3, by its place.
    Tls(usize),
}

impl Over {
    /// Half of all is TLS, half of that 1.3.
    fn of(at: usize, load: &Load) -> Over {
        match at % 4 {
            _ if load.plain => Over::Plain,
            0 | 2 => Over::Plain,
            1 => Over::Tls(0),
            _ => Over::Tls(1),
        }
    }

    fn is_tls(self) -> bool {
        matches!(self, Over::Tls(_))
    }
}

/// Half of the connections have servers with TLS, in all combinations with the client's side.
fn has_tls_server(at: usize, load: &Load) -> bool {
    !load.plain && at / 4 % 2 == 1
}

impl Site {
    pub fn new(
        book: Arc<Book>,
        load: Load,
        fronts: Fronts,
        authority: &baton_prove::certificates::Authority,
    ) -> Result<Site, Failed> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.root().clone())?;
        let tls = |version: &'static SupportedProtocolVersion, protocol: &str| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version])?;
            let mut config = config.with_root_certificates(roots.clone()).with_no_client_auth();
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            Ok::<_, rustls::Error>(TlsConnector::from(Arc::new(config)))
        };
        let (both, http2) = ([tls(&TLS12, "http/1.1")?, tls(&TLS13, "http/1.1")?], tls(&TLS13, "h2")?);
        Ok(Site { book, load, fronts, tls: both, tls_http2: http2, opening: Semaphore::new(OPENING_MAX) })
    }

    /// Starts all clients, on the runtime of the caller.
    pub fn start(self: &Arc<Site>) {
        let load = &self.load;
        for at in 0..load.kept {
            tokio::spawn(again(self.clone(), Kind::Kept, at));
        }
        for at in 0..load.websockets {
            tokio::spawn(again(self.clone(), Kind::WebSocket, at));
        }
        for at in 0..load.tunnels {
            tokio::spawn(again(self.clone(), Kind::Tunnel, at));
        }
        for at in 0..load.http2 {
            tokio::spawn(again(self.clone(), Kind::Http2, at));
        }
        for kind in [Kind::Download, Kind::Upload, Kind::Events, Kind::Poll] {
            for at in 0..load.transfers {
                tokio::spawn(again(self.clone(), kind, at));
            }
        }
    }

    async fn open(&self, address: SocketAddr, over: Over) -> io::Result<Lane> {
        let Ok(_one) = self.opening.acquire().await else { return Err(io::Error::other("over")) };
        let open = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Lane::new(match over {
                Over::Plain => Wire::Plain(stream),
                Over::Tls(version) => tls(&self.tls[version], stream).await?,
            }))
        };
        within(open).await
    }

    /// The address of HTTP, and what a target begins with.
    fn web(&self, over: Over, at: usize) -> (SocketAddr, &'static str) {
        (self.fronts.web[usize::from(over.is_tls())], if has_tls_server(at, &self.load) { "/t/" } else { "/" })
    }
}

async fn tls(connector: &TlsConnector, stream: TcpStream) -> io::Result<Wire> {
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    Ok(Wire::Tls(Box::new(TlsStream::Client(connector.connect(name, stream).await?))))
}

async fn within<T>(what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, what).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// How a connection came to its end.
enum Ended {
    /// As people go, who come back.
    ByClient,
    Cut(Cut),
}

/// One connection after the other, for ever.
async fn again(site: Arc<Site>, kind: Kind, at: usize) {
    let mut is_first = true;
    loop {
        let over = Over::of(at, &site.load);
        let opened = match kind {
            Kind::Http2 => http2(&site, at, &mut is_first).await,
            Kind::Tunnel => {
                let address =
                    site.fronts.tunnels[usize::from(over.is_tls())][usize::from(has_tls_server(at, &site.load))];
                one(&site, kind, at, address, &mut is_first).await
            }
            _ => one(&site, kind, at, site.web(over, at).0, &mut is_first).await,
        };
        match opened {
            Ok(Ended::ByClient) => {
                site.book.left(kind);
                continue;
            }
            Ok(Ended::Cut(cut)) => site.book.cut(kind, cut, at),
            Err(error) => site.book.refused(kind, &error, at),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// A connection from its beginning to its end; an error if it did not come to be.
async fn one(site: &Site, kind: Kind, at: usize, address: SocketAddr, is_first: &mut bool) -> io::Result<Ended> {
    let over = Over::of(at, &site.load);
    let mut lane = site.open(address, over).await?;
    let prefix = site.web(over, at).1;
    if kind == Kind::WebSocket {
        upgrade(&mut lane, prefix).await?;
    }
    let life = life(at, *is_first);
    if std::mem::take(is_first) {
        site.book.connected(kind);
        // Not all of them at the same moments.
        let (every, all) = match kind {
            Kind::Kept => (site.load.request_every, site.load.kept),
            Kind::WebSocket => (site.load.message_every, site.load.websockets),
            Kind::Tunnel => (site.load.message_every, site.load.tunnels),
            _ => (Duration::from_secs(1), site.load.transfers),
        };
        tokio::time::sleep(every.mul_f64(at as f64 / all.max(1) as f64)).await;
    }
    let ended = match kind {
        Kind::WebSocket | Kind::Tunnel => {
            return Ok(match messages(site, &mut lane, kind, at, life).await {
                Ok(()) => Ended::ByClient,
                Err(cut) => Ended::Cut(cut),
            });
        }
        Kind::Kept => kept(site, &mut lane, at, prefix).await,
        Kind::Download => downloads(site, &mut lane, at, prefix).await,
        Kind::Upload => uploads(site, &mut lane, at, prefix).await,
        Kind::Events => events(site, &mut lane, prefix).await,
        Kind::Poll => polls(site, &mut lane, prefix).await,
        Kind::Http2 => unreachable!("it has a way of its own"),
    };
    match ended {
        Err(cut) => Ok(Ended::Cut(cut)),
    }
}

/// After how many exchanges a session ends and another one begins; `None`: it is there all the time, as half of them are. The others are of
/// different ages from the start.
fn life(at: usize, is_first: bool) -> Option<u64> {
    let spread = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let whole = LIFE_MIN + spread % (LIFE_MAX - LIFE_MIN);
    let age = if is_first { (spread >> 8) % whole } else { 0 };
    (!(at / 8).is_multiple_of(2)).then_some(whole - age)
}

/// A request without a body.
async fn ask(lane: &mut Lane, target: &str) -> Result<(), Cut> {
    if lane.has_ended().await {
        return Err(Cut::Closed);
    }
    within(lane.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())).await?;
    Ok(())
}

/// The head of a response, and whether the connection ends with it.
async fn head(lane: &mut Lane, patience: Duration) -> Result<(String, bool), Cut> {
    let head = match timeout(patience, lane.until(b"\r\n\r\n")).await {
        Ok(head) => head?,
        Err(_) => return Err(Cut::Broken),
    };
    let head = String::from_utf8_lossy(&head).into_owned();
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(Cut::Broken);
    }
    let closes = header(&head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok((head, closes))
}

async fn body(lane: &mut Lane, head: &str) -> Result<Vec<u8>, Cut> {
    let length = header(head, "content-length").and_then(|value| value.parse().ok()).ok_or(Cut::Broken)?;
    Ok(within(lane.exact(length)).await?)
}

type Never = std::convert::Infallible;

/// Numbered requests, with a pause after each.
async fn kept(site: &Site, lane: &mut Lane, at: usize, prefix: &str) -> Result<Never, Cut> {
    let mut number = 0_u64;
    loop {
        number += 1;
        if number.is_multiple_of(UPDATE_EVERY) && lane.wire.update_keys() {
            site.book.keys_updated(Kind::Kept);
        }
        let name = format!("n/{at}-{number}");
        let began = site.book.begin();
        ask(lane, &format!("{prefix}{name}")).await?;
        let (head, closes) = head(lane, PATIENCE).await?;
        let body = body(lane, &head).await?;
        if body != name.as_bytes() {
            return Err(Cut::Damaged(lane::Damage::Changed));
        }
        site.book.ended(began);
        site.book.exchanged(Kind::Kept, 1, body.len() as u64);
        if closes {
            return Err(Cut::Closed);
        }
        tokio::time::sleep(site.load.request_every).await;
    }
}

async fn upgrade(lane: &mut Lane, prefix: &str) -> io::Result<()> {
    let request = format!(
        "GET {prefix}ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    within(async {
        lane.send(request.as_bytes()).await?;
        let head = lane.until(b"\r\n\r\n").await?;
        if head.starts_with(b"HTTP/1.1 101 ") { Ok(()) } else { Err(io::Error::other("no upgrade")) }
    })
    .await
}

/// One to three numbered messages at a time, each of which comes back, with a pause after them.
async fn messages(site: &Site, lane: &mut Lane, kind: Kind, at: usize, life: Option<u64>) -> Result<(), Cut> {
    let (connection, mut next) = (at as u64, 0_u64);
    for _ in 0..life.unwrap_or(u64::MAX) {
        let numbers = next..next + 1 + next % 3;
        next = numbers.end;
        if (next / UPDATE_EVERY) != (numbers.start / UPDATE_EVERY) && lane.wire.update_keys() {
            site.book.keys_updated(kind);
        }
        let bytes = numbers.clone().flat_map(|number| {
            let message = lane::message(connection, number);
            if kind == Kind::WebSocket { origin::frame(&message, true) } else { message }
        });
        let bytes: Vec<u8> = bytes.collect();
        let began = site.book.begin();
        within(lane.send(&bytes)).await?;
        for number in numbers.clone() {
            let reply = match kind {
                Kind::WebSocket => within(read_frame(lane)).await?,
                _ => within(lane.exact(lane::message(connection, number).len())).await?,
            };
            lane::check_message(&reply, connection, number)?;
        }
        site.book.ended(began);
        site.book.exchanged(kind, numbers.end - numbers.start, bytes.len() as u64);
        tokio::time::sleep(site.load.message_every).await;
    }
    Ok(())
}

/// One download after the other.
async fn downloads(site: &Site, lane: &mut Lane, at: usize, prefix: &str) -> Result<Never, Cut> {
    let name = if (at / 8).is_multiple_of(2) { "download" } else { "chunks" };
    loop {
        ask(lane, &format!("{prefix}{name}/{}", site.load.transfer_seconds)).await?;
        let (head, closes) = head(lane, PATIENCE).await?;
        let mut numbers = Numbers::default();
        match header(&head, "content-length").and_then(|value| value.parse().ok()) {
            Some(length) => receive(site, lane, length, &mut numbers).await?,
            None => {
                while let Some(length) = within(chunk_length(lane)).await? {
                    receive(site, lane, length, &mut numbers).await?;
                    within(lane.exact(2)).await?;
                }
            }
        }
        site.book.exchanged(Kind::Download, 1, 0);
        if closes {
            return Err(Cut::Closed);
        }
    }
}

async fn receive(site: &Site, lane: &mut Lane, length: u64, numbers: &mut Numbers) -> Result<(), Cut> {
    let mut left = length;
    while left > 0 {
        let bytes = within(lane.some(usize::try_from(left).unwrap_or(usize::MAX))).await?;
        left -= bytes.len() as u64;
        numbers.check(&bytes)?;
        site.book.exchanged(Kind::Download, 0, bytes.len() as u64);
    }
    Ok(())
}

/// One upload after the other; the server checks them, and says how many bytes there were.
async fn uploads(site: &Site, lane: &mut Lane, at: usize, prefix: &str) -> Result<Never, Cut> {
    let pieces = (u128::from(site.load.transfer_seconds) * 1000 / PIECE_EVERY.as_millis()).max(1) as u64;
    let in_chunks = !(at / 8).is_multiple_of(2);
    loop {
        if lane.has_ended().await {
            return Err(Cut::Closed);
        }
        let form = match in_chunks {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {}", pieces * PIECE * 8),
        };
        let request = format!("POST {prefix}upload HTTP/1.1\r\nHost: localhost\r\n{form}\r\n\r\n");
        within(lane.send(request.as_bytes())).await?;
        let mut numbers = Numbers::default();
        for _ in 0..pieces {
            let bytes = numbers.write(PIECE);
            let bytes = if in_chunks { origin::chunk(&bytes) } else { bytes };
            within(lane.send(&bytes)).await?;
            site.book.exchanged(Kind::Upload, 0, bytes.len() as u64);
            tokio::time::sleep(PIECE_EVERY).await;
        }
        if in_chunks {
            within(lane.send(b"0\r\n\r\n")).await?;
        }
        let (head, closes) = head(lane, PATIENCE).await?;
        if body(lane, &head).await? != numbers.bytes().to_string().as_bytes() {
            return Err(Cut::Damaged(lane::Damage::Lost));
        }
        site.book.exchanged(Kind::Upload, 1, 0);
        if closes {
            return Err(Cut::Closed);
        }
    }
}

/// Streams of numbered events.
async fn events(site: &Site, lane: &mut Lane, prefix: &str) -> Result<Never, Cut> {
    loop {
        ask(lane, &format!("{prefix}events/{}", site.load.transfer_seconds)).await?;
        let (_, closes) = head(lane, PATIENCE).await?;
        let (mut text, mut next) = (Vec::new(), 0_u64);
        while let Some(length) = within(chunk_length(lane)).await? {
            let bytes = within(lane.exact(length as usize + 2)).await?;
            text.extend_from_slice(&bytes[..length as usize]);
            while let Some(end) = memchr::memmem::find(&text, b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                if event != format!("data: {next}\n\n").as_bytes() {
                    return Err(Cut::Damaged(lane::Damage::Changed));
                }
                next += 1;
                site.book.exchanged(Kind::Events, 0, event.len() as u64);
            }
        }
        site.book.exchanged(Kind::Events, 1, 0);
        if closes {
            return Err(Cut::Closed);
        }
    }
}

/// Requests whose responses begin late.
async fn polls(site: &Site, lane: &mut Lane, prefix: &str) -> Result<Never, Cut> {
    loop {
        ask(lane, &format!("{prefix}poll/{POLL_SECONDS}")).await?;
        let (head, closes) = head(lane, PATIENCE + Duration::from_secs(POLL_SECONDS)).await?;
        let body = body(lane, &head).await?;
        if body != format!("poll/{POLL_SECONDS}").as_bytes() {
            return Err(Cut::Damaged(lane::Damage::Changed));
        }
        site.book.exchanged(Kind::Poll, 1, body.len() as u64);
        if closes {
            return Err(Cut::Closed);
        }
    }
}

/// An HTTP/2 connection with a numbered request at a time.
async fn http2(site: &Site, at: usize, is_first: &mut bool) -> io::Result<Ended> {
    let opened = async {
        let Ok(_one) = site.opening.acquire().await else { return Err(io::Error::other("over")) };
        let stream = TcpStream::connect(site.fronts.web[1]).await?;
        stream.set_nodelay(true)?;
        let wire = tls(&site.tls_http2, stream).await?;
        h2::client::handshake(wire).await.map_err(io::Error::other)
    };
    let (mut send, connection) = within(opened).await?;
    if std::mem::take(is_first) {
        site.book.connected(Kind::Http2);
    }
    let connection = tokio::spawn(connection);
    let prefix = if has_tls_server(at, &site.load) { "/t/" } else { "/" };
    for number in 1_u64.. {
        let name = format!("n/h{at}-{number}");
        let began = site.book.begin();
        send = match timeout(PATIENCE, send.ready()).await {
            Ok(Ok(send)) if !connection.is_finished() => send,
            _ => return Ok(Ended::Cut(Cut::Closed)),
        };
        match timeout(PATIENCE, stream(&mut send, &format!("https://localhost{prefix}{name}"))).await {
            Ok(Ok(body)) if body == name.as_bytes() => {}
            Ok(Ok(_)) => return Ok(Ended::Cut(Cut::Damaged(lane::Damage::Changed))),
            _ => return Ok(Ended::Cut(Cut::Broken)),
        }
        site.book.ended(began);
        site.book.exchanged(Kind::Http2, 1, name.len() as u64);
        tokio::time::sleep(site.load.message_every).await;
    }
    Ok(Ended::ByClient)
}

async fn stream(send: &mut h2::client::SendRequest<Bytes>, target: &str) -> Result<Vec<u8>, Failed> {
    let request = http::Request::get(target).body(())?;
    let (response, _) = send.send_request(request, true)?;
    let response = response.await?;
    if response.status() != 200 {
        return Err("another status".into());
    }
    let (mut body, mut whole) = (response.into_body(), Vec::new());
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}
