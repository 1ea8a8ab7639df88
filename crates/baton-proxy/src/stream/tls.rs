//! TLS on a connection: records to bytes and back, by rustls, which neither reads nor writes itself.
//!
//! ```text
//! wire ──▶ received ──▶ (decrypt) ──▶ the reader's room, what does not fit: plain
//! wire ◀── unsent   ◀── (encrypt) ◀── the writer's bytes
//! ```
//!
//! The three pieces of memory between are lent by the core while something is in them.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use baton_tls::rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use baton_tls::rustls::{self, CommonState, ProtocolVersion};
use baton_tls::{Facts, Refusal};

use crate::stream::records::{RecordPool, Records, WRITTEN_MAX};
use crate::stream::step::{Places, TlsConnection, TlsStep, Utterance};
use crate::stream::wire::Wire;

/// Bytes in front of a record that tell its length (RFC 8446 5.1).
const RECORD_HEADER: usize = 5;
/// Reads of bytes that nobody wants any more, before a broken connection is closed.
const DISCARDED_READS: usize = 16;

/// Why there is no handshake.
#[derive(Debug)]
pub enum Broken {
    /// The peer closed before it was complete.
    Closed,
    /// The socket failed.
    Socket(io::Error),
    /// The peer broke the protocol, there is nothing both can agree on, or its certificate was refused. It was told by an alert.
    Protocol(rustls::Error, Option<Refusal>),
}

/// TLS on one connection.
pub struct Tls {
    inner: RefCell<TlsState>,
    facts: OnceCell<Facts>,
}

struct TlsState {
    connection: TlsConnection,
    pool: Rc<RecordPool>,
    /// Encrypted, from the peer.
    received: Option<Records>,
    /// Decrypted, and not read yet.
    plain: Option<Records>,
    /// Encrypted, for the peer.
    unsent: Option<Records>,
    /// Bytes of the writer's that are in `unsent` and of which it was not told yet that they are written.
    promised: usize,
    /// The last read filled its room: the next one gets more.
    busy: bool,
    reading: TlsDirection,
    writing: TlsDirection,
}

/// A direction of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TlsDirection {
    Open,
    /// Its end was said.
    Ended,
    /// Nothing can be said or heard any more.
    Broken,
}

impl Tls {
    /// TLS that begins with what was received already.
    pub fn new(connection: impl Into<TlsConnection>, received: Option<Records>, pool: Rc<RecordPool>) -> Tls {
        let inner = TlsState {
            connection: connection.into(),
            pool,
            received,
            plain: None,
            unsent: None,
            promised: 0,
            busy: false,
            reading: TlsDirection::Open,
            writing: TlsDirection::Open,
        };
        Tls { inner: RefCell::new(inner), facts: OnceCell::new() }
    }

    /// [`Stream::note_facts`](super::Stream::note_facts) of a TLS connection.
    pub(super) fn note_facts(&self, facts: impl FnOnce(&CommonState) -> Facts) {
        self.facts.get_or_init(|| facts(self.inner.borrow().connection.common()));
    }

    /// [`Stream::facts`](super::Stream::facts) of a TLS connection.
    pub(super) fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// Whether a read finds something without asking the socket.
    pub(super) fn has_news(&self) -> bool {
        let inner = self.inner.borrow();
        inner.reading != TlsDirection::Open || inner.plain.is_some() || inner.has_record()
    }

    /// [`Stream::poll_handshake`](super::Stream::poll_handshake) of a TLS connection.
    pub(super) fn poll_handshake(&self, wire: &Wire, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut inner = self.inner.borrow_mut();
        loop {
            if inner.is_agreed() {
                return inner.poll_last_word(wire, cx).map_err(Broken::Socket);
            }
            match inner.step(&mut [], Utterance::Nothing) {
                Ok(TlsStep::Data(_) | TlsStep::Again | TlsStep::Said) => continue,
                Ok(TlsStep::Ended) => return Poll::Ready(Err(Broken::Closed)),
                Ok(TlsStep::More) => {}
                Err(error) => {
                    let refusal = Refusal::take(&error);
                    inner.take_alert();
                    inner.reword(&error);
                    inner.refuse(wire);
                    return Poll::Ready(Err(Broken::Protocol(error, refusal)));
                }
            }
            if inner.is_agreed() {
                continue;
            }
            ready!(inner.poll_flush(wire, cx)).map_err(Broken::Socket)?;
            match ready!(inner.poll_receive(wire, cx)) {
                Ok(0) => return Poll::Ready(Err(Broken::Closed)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Broken::Socket(error))),
            }
        }
    }

    /// [`Stream::poll_read`](super::Stream::poll_read) of a TLS connection.
    #[inline(never)]
    pub(super) fn poll_read(&self, wire: &Wire, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.inner.borrow_mut();
        let mut got = inner.take_plain(room);
        loop {
            // A record that does not fit is left encrypted, for its bytes would be moved once more.
            if got == room.len() || got > 0 && !inner.has_record_of(room.len() - got) {
                inner.rest();
                return Poll::Ready(Ok(got));
            }
            match inner.take_in(wire, &mut room[got..]) {
                Ok(TlsStep::Data(count)) => got += count,
                Ok(TlsStep::Again | TlsStep::Said) => {}
                Ok(TlsStep::Ended) => return Poll::Ready(Ok(got)),
                Err(_) if got > 0 => return Poll::Ready(Ok(got)),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(TlsStep::More) if got > 0 => return Poll::Ready(Ok(got)),
                Ok(TlsStep::More) => {
                    inner.flush_own(wire);
                    ready!(inner.poll_receive(wire, cx))?;
                }
            }
        }
    }

    /// [`Stream::poll_write`](super::Stream::poll_write) of a TLS connection.
    #[inline(never)]
    pub(super) fn poll_write(&self, wire: &Wire, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.inner.borrow_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if inner.writing != TlsDirection::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if inner.promised == 0 {
            let count = bytes.len().min(WRITTEN_MAX);
            inner.say(Utterance::Bytes(&bytes[..count]))?;
            inner.promised = count;
        }
        loop {
            let sent = ready!(inner.poll_send(wire, cx))?;
            let done = if inner.unsent.is_none() { inner.promised } else { sent.min(inner.promised - 1) };
            if done > 0 {
                inner.promised -= done;
                return Poll::Ready(Ok(done.min(bytes.len())));
            }
        }
    }

    /// [`Stream::is_stale`](super::Stream::is_stale) of a TLS connection.
    pub(super) fn is_stale(&self, wire: &Wire) -> bool {
        let mut inner = self.inner.borrow_mut();
        loop {
            if inner.plain.is_some() || inner.reading != TlsDirection::Open {
                return true;
            }
            match inner.take_in(wire, &mut []) {
                Ok(TlsStep::Data(_) | TlsStep::Again | TlsStep::Said) => continue,
                Ok(TlsStep::Ended) | Err(_) => return true,
                Ok(TlsStep::More) => {}
            }
            match inner.receive(|room| wire.try_read(room)) {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    inner.rest();
                    return false;
                }
                Ok(_) | Err(_) => return true,
            }
        }
    }

    /// [`Stream::poll_closed`](super::Stream::poll_closed) of a TLS connection.
    pub(super) fn poll_closed(&self, wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner.borrow_mut();
        loop {
            if inner.plain.is_some() {
                return Poll::Pending;
            }
            match inner.take_in(wire, &mut []) {
                Ok(TlsStep::Data(_) | TlsStep::Again | TlsStep::Said) => continue,
                Ok(TlsStep::Ended) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(TlsStep::More) => {
                    ready!(inner.poll_receive(wire, cx))?;
                }
            }
        }
    }

    /// Sends what waits, as far as the socket takes it, and the end of our direction (close_notify). Once.
    pub(super) fn end(&self, wire: &Wire) {
        let mut inner = self.inner.borrow_mut();
        if inner.writing != TlsDirection::Open {
            return;
        }
        inner.writing = TlsDirection::Ended;
        if inner.connection.common().is_handshaking() || inner.say(Utterance::End).is_err() {
            return;
        }
        inner.send_now(wire);
    }

    /// Whether it holds memory of the core's for what was received, decrypted, and not sent.
    #[cfg(test)]
    pub(super) fn holds(&self) -> [bool; 3] {
        let inner = self.inner.borrow();
        [inner.received.is_some(), inner.plain.is_some(), inner.unsent.is_some()]
    }

    /// Nothing is said any more, not even the end.
    pub(super) fn give_up(&self) {
        self.inner.borrow_mut().writing = TlsDirection::Broken;
    }
}

impl TlsState {
    /// Whether a whole record was received.
    fn has_record(&self) -> bool {
        self.has_record_of(usize::MAX)
    }

    /// Whether a whole record was received that is no longer than `most` besides its header.
    fn has_record_of(&self, most: usize) -> bool {
        let Some(bytes) = self.received.as_ref().map(Records::bytes) else { return false };
        let Some(header) = bytes.first_chunk::<RECORD_HEADER>() else { return false };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        bytes.len() >= RECORD_HEADER + length && length <= most
    }

    /// Whether the handshake is complete and all that belongs to it is in `unsent`.
    fn is_agreed(&self) -> bool {
        !self.connection.common().is_handshaking() && !self.connection.common().wants_write()
    }

    /// Sends the end of the handshake. Where an answer is to follow at once it goes with that: towards a server our request,
    /// towards a client whose request is here already our response.
    fn poll_last_word(&mut self, wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let goes_with_more = match self.connection {
            TlsConnection::Client(_) => true,
            TlsConnection::Server(_) => self.plain.is_some() || self.has_record(),
        };
        if goes_with_more { Poll::Ready(Ok(())) } else { self.poll_flush(wire, cx) }
    }

    /// Bytes that were decrypted before.
    fn take_plain(&mut self, room: &mut [u8]) -> usize {
        let Some(plain) = &mut self.plain else { return 0 };
        let count = plain.bytes().len().min(room.len());
        room[..count].copy_from_slice(&plain.bytes()[..count]);
        plain.consume(count);
        self.pool.settle(&mut self.plain);
        count
    }

    /// One step, by which a connection that is open may end or break.
    fn take_in(&mut self, wire: &Wire, room: &mut [u8]) -> io::Result<TlsStep> {
        match self.reading {
            TlsDirection::Open => {}
            TlsDirection::Ended => return Ok(TlsStep::Ended),
            TlsDirection::Broken => return Err(io::ErrorKind::InvalidData.into()),
        }
        match self.step(room, Utterance::Nothing) {
            Ok(TlsStep::Ended) => {
                self.reading = TlsDirection::Ended;
                Ok(TlsStep::Ended)
            }
            Ok(step) => Ok(step),
            Err(error) => {
                self.refuse(wire);
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    /// Works through what was received, as far as one thing.
    fn step(&mut self, room: &mut [u8], say: Utterance<'_>) -> Result<TlsStep, rustls::Error> {
        let TlsState { connection, pool, received, plain, unsent, .. } = self;
        let bytes = received.as_mut().map(Records::bytes_mut).unwrap_or_default();
        let mut places = Places { pool, room, plain, unsent, say };
        let (discard, step) = match connection {
            TlsConnection::Client(client) => places.settle(client.process_tls_records(bytes)),
            TlsConnection::Server(server) => match server.process_tls_records(bytes) {
                UnbufferedStatus { state: Ok(ConnectionState::ReadEarlyData(mut early)), discard, .. } => {
                    let mut count = 0;
                    let mut used = discard;
                    let mut failed = None;
                    while let Some(record) = early.next_record() {
                        match record {
                            Ok(record) => {
                                count += places.put(record.payload, count);
                                used += record.discard;
                            }
                            Err(error) => failed = Some(error),
                        }
                    }
                    (used, failed.map_or(Ok(TlsStep::Data(count)), Err))
                }
                status => places.settle(status),
            },
        };
        if let Some(records) = received {
            records.consume(discard);
        }
        step
    }

    /// rustls has an alert ready, and gives it out before it looks at what was received once more.
    fn take_alert(&mut self) {
        while self.connection.common().wants_write() {
            if !matches!(self.step(&mut [], Utterance::Nothing), Ok(TlsStep::Again)) {
                break;
            }
        }
    }

    /// A client that shows no certificate where one is wanted is told handshake_failure in TLS 1.2 (RFC 5246 7.4.6); rustls says
    /// certificate_required, which is of TLS 1.3 alone (RFC 8446 6.2).
    fn reword(&mut self, error: &rustls::Error) {
        const FATAL: [u8; 6] = [21, 3, 3, 0, 2, 2];
        const HANDSHAKE_FAILURE: u8 = 40;
        let is_old = self.connection.common().protocol_version() == Some(ProtocolVersion::TLSv1_2);
        let is_wrong = is_old && *error == rustls::Error::NoCertificatesPresented;
        if let Some([before @ .., description @ 116]) = self.unsent.as_mut().map(Records::bytes_mut)
            && is_wrong
            && before.ends_with(&FATAL)
        {
            *description = HANDSHAKE_FAILURE;
        }
    }

    /// Tells the peer by an alert what it did, as far as the socket takes it. Nothing is said or heard after it.
    fn refuse(&mut self, wire: &Wire) {
        self.take_alert();
        self.send_now(wire);
        (self.reading, self.writing) = (TlsDirection::Broken, TlsDirection::Broken);
        // A socket that is closed with bytes unread takes the alert back.
        let scratch = self.received.get_or_insert_with(|| self.pool.take());
        scratch.consume(usize::MAX);
        for _ in 0..DISCARDED_READS {
            if !matches!(wire.try_read(scratch.room()), Ok(count) if count > 0) {
                break;
            }
        }
        for place in [&mut self.received, &mut self.unsent] {
            if let Some(records) = place.take() {
                self.pool.give(records);
            }
        }
    }

    /// Appends records to what is unsent. Bytes that were received before are taken in on the way.
    fn say(&mut self, what: Utterance<'_>) -> io::Result<()> {
        loop {
            match self.step(&mut [], what) {
                Ok(TlsStep::Said) => return Ok(()),
                Ok(TlsStep::Data(_) | TlsStep::Again) => {}
                Ok(TlsStep::Ended) => self.reading = TlsDirection::Ended,
                Ok(TlsStep::More) => return Err(io::ErrorKind::NotConnected.into()),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }

    /// Sends some of what is unsent: how much went.
    fn poll_send(&mut self, wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(unsent) = &mut self.unsent else { return Poll::Ready(Ok(0)) };
        match ready!(wire.poll_write(cx, unsent.bytes())) {
            Ok(count) => {
                unsent.consume(count);
                self.pool.settle(&mut self.unsent);
                Poll::Ready(Ok(count))
            }
            Err(error) => {
                self.writing = TlsDirection::Broken;
                Poll::Ready(Err(error))
            }
        }
    }

    /// Ready when all is sent.
    fn poll_flush(&mut self, wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unsent.is_some() {
            ready!(self.poll_send(wire, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what the socket takes. The rest goes with what is written next.
    fn send_now(&mut self, wire: &Wire) {
        while let Some(unsent) = &mut self.unsent
            && let Ok(count) = wire.try_write(unsent.bytes())
        {
            unsent.consume(count);
            self.pool.settle(&mut self.unsent);
        }
    }

    /// Before a wait for bytes: what TLS itself has to say is sent. What a writer said is the writer's to send on.
    fn flush_own(&mut self, wire: &Wire) {
        if self.promised == 0 && self.writing != TlsDirection::Broken {
            self.send_now(wire);
        }
    }

    /// Reads from the socket: how much.
    fn poll_receive(&mut self, wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut outcome = Poll::Pending;
        let read = self.receive(|room| {
            outcome = wire.poll_read(cx, room);
            match std::mem::replace(&mut outcome, Poll::Ready(Ok(0))) {
                Poll::Ready(read) => read,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.rest();
                Poll::Pending
            }
            read => Poll::Ready(read),
        }
    }

    /// Reads from the socket by `read`. The end of the stream is the end of what the peer says, also when it did not say so:
    /// whether that is too early, the message tells.
    fn receive(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let TlsState { pool, received, busy, .. } = self;
        let piece = received.get_or_insert_with(|| if *busy { pool.take_large() } else { pool.take() });
        if piece.is_full() || *busy && !pool.is_large(piece) {
            if pool.is_large(piece) {
                self.reading = TlsDirection::Broken;
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut larger = pool.take_large();
            larger.append(piece.bytes());
            pool.give(std::mem::replace(piece, larger));
        }
        let room = piece.room();
        let size = room.len();
        let count = read(room)?;
        piece.filled(count);
        *busy = count == size;
        if count == 0 {
            self.reading = TlsDirection::Ended;
        }
        Ok(count)
    }

    /// Nothing is to be done at the moment: what is empty goes back to the core.
    fn rest(&mut self) {
        for place in [&mut self.received, &mut self.plain, &mut self.unsent] {
            self.pool.settle(place);
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tls")
    }
}
