//! The servers: numbered downloads, uploads that are checked, events, late responses, WebSockets and echoes, plain and TLS.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_prove::websocket::accept_key;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::Failed;
use super::book::{Book, Cut, Kind};
use super::lane::{Lane, Numbers, Wire};

/// A piece of a download, of so many numbers, and how often there is one.
pub const PIECE: u64 = 2048;
pub const PIECE_EVERY: Duration = Duration::from_millis(250);
/// How often there is an event.
const EVENT_EVERY: Duration = Duration::from_secs(1);
/// A server renews its keys after so many pieces or messages.
pub const UPDATE_EVERY: u64 = 16;

/// Addresses of the servers: plain, TLS 1.2, TLS 1.3.
#[derive(Clone, Copy)]
pub struct Origins {
    pub http: [SocketAddr; 3],
    pub echo: [SocketAddr; 3],
}

/// Listens, on the runtime of the caller.
pub fn start(book: &Arc<Book>, identity: &baton_prove::certificates::Issued) -> Result<Origins, Failed> {
    let tls = |version: &'static SupportedProtocolVersion| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version])?;
        let config = config.with_no_client_auth().with_single_cert(identity.chain(), identity.key())?;
        Ok::<_, rustls::Error>(TlsAcceptor::from(Arc::new(config)))
    };
    let acceptors = [None, Some(tls(&TLS12)?), Some(tls(&TLS13)?)];
    let mut origins =
        Origins { http: [SocketAddr::from(([127, 0, 0, 1], 0)); 3], echo: [SocketAddr::from(([127, 0, 0, 1], 0)); 3] };
    for (at, acceptor) in acceptors.into_iter().enumerate() {
        origins.http[at] = listen(book, acceptor.clone(), true)?;
        origins.echo[at] = listen(book, acceptor, false)?;
    }
    Ok(origins)
}

fn listen(book: &Arc<Book>, acceptor: Option<TlsAcceptor>, is_http: bool) -> io::Result<SocketAddr> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.listen(4096)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let book = book.clone();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (acceptor, book) = (acceptor.clone(), book.clone());
            // What ends on this side is seen on the client's, where it is counted.
            tokio::spawn(async move {
                let mut lane = accepted(stream, acceptor).await?;
                if is_http { serve(&book, &mut lane).await } else { echo(&mut lane).await }
            });
        }
    });
    Ok(address)
}

async fn accepted(stream: TcpStream, acceptor: Option<TlsAcceptor>) -> io::Result<Lane> {
    stream.set_nodelay(true)?;
    Ok(Lane::new(match acceptor {
        None => Wire::Plain(stream),
        Some(acceptor) => Wire::Tls(Box::new(TlsStream::Server(acceptor.accept(stream).await?))),
    }))
}

/// Sends back what comes.
async fn echo(lane: &mut Lane) -> io::Result<()> {
    for number in 1_u64.. {
        let bytes = lane.some(usize::MAX).await?;
        if number.is_multiple_of(UPDATE_EVERY) {
            lane.wire.update_keys();
        }
        lane.send(&bytes).await?;
    }
    Ok(())
}

/// HTTP/1, one request after the other.
async fn serve(book: &Book, lane: &mut Lane) -> io::Result<()> {
    loop {
        let head = lane.until(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&head);
        let target = head.split(' ').nth(1).unwrap_or_default();
        // The way to servers with TLS has a path of its own.
        let target = target.strip_prefix("/t/").map_or(target, |rest| rest);
        let target = target.trim_start_matches('/');
        let (name, value) = target.split_once('/').unwrap_or((target, ""));
        let seconds = Duration::from_secs(value.parse().unwrap_or(1));
        match name {
            "download" => download(lane, seconds, false).await?,
            "chunks" => download(lane, seconds, true).await?,
            "upload" => upload(book, lane, &head).await?,
            "events" => events(lane, seconds).await?,
            "poll" => {
                tokio::time::sleep(seconds).await;
                reply(lane, target).await?;
            }
            "ws" => {
                let key = header(&head, "sec-websocket-key").unwrap_or_default();
                let accept = accept_key(key.as_bytes());
                let response = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
                );
                lane.send(response.as_bytes()).await?;
                return frames(lane).await;
            }
            _ => reply(lane, target).await?,
        }
    }
}

/// The value of a header.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

async fn reply(lane: &mut Lane, body: &str) -> io::Result<()> {
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    lane.send(response.as_bytes()).await
}

/// Numbers, for so long; by their count, or in chunks.
async fn download(lane: &mut Lane, time: Duration, in_chunks: bool) -> io::Result<()> {
    let pieces = (time.as_millis() / PIECE_EVERY.as_millis()).max(1) as u64;
    let form = match in_chunks {
        true => "Transfer-Encoding: chunked".to_owned(),
        false => format!("Content-Length: {}", pieces * PIECE * 8),
    };
    lane.send(format!("HTTP/1.1 200 OK\r\n{form}\r\n\r\n").as_bytes()).await?;
    let mut numbers = Numbers::default();
    for number in 1..=pieces {
        let bytes = numbers.write(PIECE);
        if in_chunks {
            lane.send(&chunk(&bytes)).await?;
        } else {
            lane.send(&bytes).await?;
        }
        if number.is_multiple_of(UPDATE_EVERY) {
            lane.wire.update_keys();
        }
        tokio::time::sleep(PIECE_EVERY).await;
    }
    if in_chunks { lane.send(b"0\r\n\r\n").await } else { Ok(()) }
}

pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Reads numbers to their end, and replies how many bytes there were.
async fn upload(book: &Book, lane: &mut Lane, head: &str) -> io::Result<()> {
    let mut numbers = Numbers::default();
    let checked = match header(head, "content-length").and_then(|value| value.parse::<u64>().ok()) {
        Some(length) => receive(lane, length, &mut numbers).await?,
        None => receive_chunks(lane, &mut numbers).await?,
    };
    if let Err(damage) = checked {
        book.cut(Kind::Upload, Cut::Damaged(damage), 0);
        return Err(io::Error::other("not what was sent"));
    }
    reply(lane, &numbers.bytes().to_string()).await
}

/// So many bytes of numbers.
pub async fn receive(
    lane: &mut Lane,
    length: u64,
    numbers: &mut Numbers,
) -> io::Result<Result<(), super::lane::Damage>> {
    let mut left = length;
    while left > 0 {
        let bytes = lane.some(usize::try_from(left).unwrap_or(usize::MAX)).await?;
        left -= bytes.len() as u64;
        if let Err(damage) = numbers.check(&bytes) {
            return Ok(Err(damage));
        }
    }
    Ok(Ok(()))
}

/// Chunks of numbers, to the last one.
pub async fn receive_chunks(lane: &mut Lane, numbers: &mut Numbers) -> io::Result<Result<(), super::lane::Damage>> {
    while let Some(length) = chunk_length(lane).await? {
        if let Err(damage) = receive(lane, length, numbers).await? {
            return Ok(Err(damage));
        }
        lane.exact(2).await?;
    }
    Ok(Ok(()))
}

/// The length of the chunk that begins; `None` when the last one has been read.
pub async fn chunk_length(lane: &mut Lane) -> io::Result<Option<u64>> {
    let line = lane.until(b"\r\n").await?;
    let text = String::from_utf8_lossy(&line);
    let length = u64::from_str_radix(text.split(';').next().unwrap_or_default().trim(), 16)
        .map_err(|_| io::Error::other("no length of a chunk"))?;
    if length == 0 {
        lane.until(b"\r\n").await?;
        return Ok(None);
    }
    Ok(Some(length))
}

/// Numbered events, for so long.
async fn events(lane: &mut Lane, time: Duration) -> io::Result<()> {
    lane.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
    let began = Instant::now();
    for number in 0_u64.. {
        lane.send(&chunk(format!("data: {number}\n\n").as_bytes())).await?;
        if began.elapsed() >= time {
            break;
        }
        tokio::time::sleep(EVENT_EVERY).await;
    }
    lane.send(b"0\r\n\r\n").await
}

/// Sends back the payloads of frames (RFC 6455, 5.2), whose masks are zeros here.
async fn frames(lane: &mut Lane) -> io::Result<()> {
    for number in 1_u64.. {
        let payload = read_frame(lane).await?;
        if number.is_multiple_of(UPDATE_EVERY) {
            lane.wire.update_keys();
        }
        lane.send(&frame(&payload, false)).await?;
    }
    Ok(())
}

/// A binary message of less than 64 KiB.
pub fn frame(payload: &[u8], is_masked: bool) -> Vec<u8> {
    let mut frame = vec![0x82, 126 | if is_masked { 0x80 } else { 0 }];
    frame.extend((payload.len() as u16).to_be_bytes());
    if is_masked {
        frame.extend([0; 4]);
    }
    frame.extend_from_slice(payload);
    frame
}

/// The payload of the next message.
pub async fn read_frame(lane: &mut Lane) -> io::Result<Vec<u8>> {
    let head = lane.exact(4).await?;
    if head[0] != 0x82 || head[1] & 0x7f != 126 {
        return Err(io::Error::other("another frame than was sent"));
    }
    let (length, mask) = (usize::from(u16::from_be_bytes([head[2], head[3]])), if head[1] & 0x80 == 0 { 0 } else { 4 });
    let mut payload = lane.exact(mask + length).await?;
    Ok(payload.split_off(mask))
}
