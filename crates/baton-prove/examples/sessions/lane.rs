//! One connection, plain or TLS, with what was read ahead; and the numbered bytes that go over it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// How long the other side may take for what is due at once.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The longest head of a request or a response.
const HEAD_MAX: usize = 16 * 1024;
/// What is read at once.
const PIECE: usize = 16 * 1024;

/// A stream of bytes.
pub enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    /// New keys for what is sent from here on, and a request that the other side does the same (RFC 8446, 4.6.3). Only TLS 1.3 has it.
    pub fn update_keys(&mut self) -> bool {
        let Wire::Tls(stream) = self else { return false };
        match &mut **stream {
            TlsStream::Client(stream) => stream.get_mut().1.refresh_traffic_keys().is_ok(),
            TlsStream::Server(stream) => stream.get_mut().1.refresh_traffic_keys().is_ok(),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Wire::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Wire::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

/// A connection, and what was read from it and is not used yet.
pub struct Lane {
    pub wire: Wire,
    held: Vec<u8>,
}

impl Lane {
    pub fn new(wire: Wire) -> Lane {
        Lane { wire, held: Vec::new() }
    }

    /// Sends all of it.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes).await?;
        self.wire.flush().await
    }

    /// Reads more; an error where the stream ends.
    async fn more(&mut self) -> io::Result<()> {
        let before = self.held.len();
        self.held.resize(before + PIECE, 0);
        let count = self.wire.read(&mut self.held[before..]).await;
        self.held.truncate(before + *count.as_ref().unwrap_or(&0));
        if count? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.held.split_off(count);
        let taken = std::mem::replace(&mut self.held, rest);
        if self.held.is_empty() {
            // Thousands of idle connections hold no buffer.
            self.held = Vec::new();
        }
        taken
    }

    /// So many bytes, no fewer.
    pub async fn exact(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.held.len() < count {
            self.more().await?;
        }
        Ok(self.take(count))
    }

    /// What there is, at most so much.
    pub async fn some(&mut self, most: usize) -> io::Result<Vec<u8>> {
        if self.held.is_empty() {
            self.more().await?;
        }
        Ok(self.take(self.held.len().min(most)))
    }

    /// Up to an end and with it.
    pub async fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memmem::find(&self.held[searched..], end) {
                return Ok(self.take(searched + at + end.len()));
            }
            if self.held.len() > HEAD_MAX {
                return Err(io::Error::other("a head without an end"));
            }
            searched = self.held.len().saturating_sub(end.len());
            self.more().await?;
        }
    }

    /// Whether the other side has ended it, or said what nobody asked for. It does not wait.
    pub async fn has_ended(&mut self) -> bool {
        let mut byte = [0];
        let wire = &mut self.wire;
        let read = poll_fn(|cx| Poll::Ready(Pin::new(&mut *wire).poll_read(cx, &mut ReadBuf::new(&mut byte))));
        read.await.is_ready() || !self.held.is_empty()
    }
}

/// What is wrong with bytes that are numbered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Damage {
    /// Some are missing.
    Lost,
    /// Some came again, or out of order.
    Doubled,
    /// Some are others than were sent.
    Changed,
}

impl Damage {
    /// A number that came where another one was expected.
    fn of(number: u64, expected: u64) -> Damage {
        // A stretch of a stream that is displaced by some bytes has numbers that were never sent.
        const FAR: u64 = 1 << 32;
        match number {
            _ if number.abs_diff(expected) > FAR => Damage::Changed,
            _ if number > expected => Damage::Lost,
            _ => Damage::Doubled,
        }
    }
}

/// A stream of numbers of eight bytes, the first of which is 0.
#[derive(Debug, Default)]
pub struct Numbers {
    next: u64,
    part: Vec<u8>,
}

impl Numbers {
    /// The next so many.
    pub fn write(&mut self, count: u64) -> Vec<u8> {
        let bytes = (self.next..self.next + count).flat_map(u64::to_be_bytes).collect();
        self.next += count;
        bytes
    }

    /// Bytes that came.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        self.part.extend_from_slice(bytes);
        let mut words = self.part.chunks_exact(8);
        for word in &mut words {
            let number = u64::from_be_bytes(word.try_into().unwrap_or_default());
            if number != self.next {
                return Err(Damage::of(number, self.next));
            }
            self.next += 1;
        }
        self.part = words.remainder().to_vec();
        Ok(())
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.next * 8 + self.part.len() as u64
    }
}

/// The message of this number on this connection: its length, both numbers, and more bytes that depend on them.
pub fn message(connection: u64, number: u64) -> Vec<u8> {
    let more = (number * 37 % 1500) as usize;
    let mut bytes = connection.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((0..more).map(|at| (at as u64 ^ number) as u8));
    bytes
}

/// What came in the place of a message.
pub fn check_message(bytes: &[u8], connection: u64, number: u64) -> Result<(), Damage> {
    if bytes == message(connection, number) {
        return Ok(());
    }
    let word = |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_be_bytes);
    match (word(0), word(8)) {
        (Some(from), Some(other)) if from == connection && other != number => Err(Damage::of(other, number)),
        _ => Err(Damage::Changed),
    }
}
