//! TLS on a connection: records to bytes and back. The handshake is rustls's, which neither reads nor writes itself ([`Agreeing`]); what comes
//! behind it is a [`Layer`]'s.
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

use baton_records::{Content, Layer, Opened, Violation};
use baton_tls::agreed::TicketKeeper;
use baton_tls::rustls::{self, CommonState};
use baton_tls::{Facts, Refusal};

use crate::stream::agreeing::{Agreeing, HandshakePlaces, HandshakeStep};
use crate::stream::moved::{MovedBytes, MovedTls};
use crate::stream::records::{RecordPool, Records, WRITTEN_MAX};
use crate::stream::wire::Wire;

/// Bytes in front of a record that tell its length (RFC 8446 5.1).
const RECORD_HEADER: usize = 5;
/// No KeyUpdate or alert is longer, in the clear or not; its payload, in bytes.
const CONTROL_MAX: usize = 64;
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
    phase: TlsPhase,
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

/// How far it is.
#[expect(clippy::large_enum_variant, reason = "records are what nearly all of a connection's life is about")]
enum TlsPhase {
    /// Both ends agree on how to go on.
    Agreeing(Box<Agreeing>),
    /// Records; and, towards a server, what keeps the tickets that come behind the handshake, until they are here.
    Agreed(Layer, Option<TicketKeeper>),
    /// Neither.
    Gone,
}

/// What one step with the received bytes led to.
enum TlsStep {
    /// So many bytes are in the reader's room; there may be more in `plain`.
    Data(usize),
    /// Look again.
    Again,
    /// The peer said that it has said all.
    Ended,
    /// Nothing, until more is received.
    More,
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
    pub fn new(agreeing: Agreeing, received: Option<Records>, pool: Rc<RecordPool>) -> Tls {
        let inner = TlsState::new(TlsPhase::Agreeing(Box::new(agreeing)), received, pool);
        Tls { inner: RefCell::new(inner), facts: OnceCell::new() }
    }

    /// [`Stream::note_facts`](super::Stream::note_facts) of a TLS connection.
    pub(super) fn note_facts(&self, facts: impl FnOnce(&CommonState) -> Facts) {
        let mut inner = self.inner.borrow_mut();
        if let TlsPhase::Agreeing(agreeing) = &inner.phase {
            self.facts.get_or_init(|| facts(agreeing.common()));
        }
        inner.go_on();
    }

    /// [`Stream::facts`](super::Stream::facts) of a TLS connection.
    pub(super) fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// [`Stream::poll_readable`](super::Stream::poll_readable) of a TLS connection. The start of a record is nothing to read, and neither is what
    /// TLS says for itself.
    pub(super) fn poll_readable(&self, wire: &Wire, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.borrow_mut();
        loop {
            let is_known = inner.reading != TlsDirection::Open || inner.plain.is_some();
            if is_known || inner.has_record() && !inner.has_record_of(CONTROL_MAX) {
                return Poll::Ready(());
            }
            match inner.take_in(wire, &mut []) {
                Ok(TlsStep::Data(_) | TlsStep::Again) => continue,
                Ok(TlsStep::Ended) | Err(_) => return Poll::Ready(()),
                Ok(TlsStep::More) => {}
            }
            inner.flush_own(wire);
            inner.rest();
            ready!(wire.poll_readable(cx));
            if ready!(inner.poll_receive(wire, cx)).is_err() {
                // The read will say it.
                inner.reading = TlsDirection::Broken;
            }
        }
    }

    /// [`Stream::poll_handshake`](super::Stream::poll_handshake) of a TLS connection.
    pub(super) fn poll_handshake(&self, wire: &Wire, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut inner = self.inner.borrow_mut();
        loop {
            if inner.is_agreed() {
                return inner.poll_last_word(wire, cx).map_err(Broken::Socket);
            }
            match inner.agree() {
                Ok(HandshakeStep::Again) => continue,
                Ok(HandshakeStep::Ended) => return Poll::Ready(Err(Broken::Closed)),
                Ok(HandshakeStep::More) => {}
                Err(error) => {
                    let refusal = Refusal::take(&error);
                    inner.disagree(&error);
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
                Ok(TlsStep::Again) => {}
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
        if inner.promised == 0 && inner.writing == TlsDirection::Open && inner.left() == 0 {
            // The only key may not encrypt more: the peer has got whole records, and is told that this is the end.
            inner.writing = TlsDirection::Ended;
            inner.seal_own(|layer, room| layer.seal_end(room).unwrap_or_default());
        }
        if inner.writing != TlsDirection::Open {
            if inner.writing == TlsDirection::Ended {
                ready!(inner.poll_flush(wire, cx))?;
            }
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if inner.promised == 0 {
            let count = bytes.len().min(WRITTEN_MAX).min(inner.left());
            inner.seal(&bytes[..count])?;
            inner.promised = count;
        }
        loop {
            let sent = ready!(inner.poll_send(wire, cx))?;
            let done = if inner.unsent.is_none() { inner.promised } else { sent.min(inner.promised - 1) };
            // Another process may have had more of them in one piece.
            let done = done.min(bytes.len());
            if done > 0 {
                inner.promised -= done;
                return Poll::Ready(Ok(done));
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
                Ok(TlsStep::Data(_) | TlsStep::Again) => continue,
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
                Ok(TlsStep::Data(_) | TlsStep::Again) => continue,
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
        if inner.seal_own(|layer, room| layer.seal_end(room).unwrap_or_default()) {
            inner.send_now(wire);
        }
    }

    /// Whether [`take`](Self::take) finds something: both ends have agreed, and neither has broken anything.
    pub(super) fn can_move(&self) -> bool {
        let inner = self.inner.borrow();
        matches!(inner.phase, TlsPhase::Agreed(..))
            && inner.reading != TlsDirection::Broken
            && inner.writing != TlsDirection::Broken
    }

    /// All of it, as data. From now on nothing is said or heard here, not even the end.
    pub(super) fn take(&self) -> Option<Box<MovedTls>> {
        let facts = self.facts.get().filter(|_| self.can_move())?.clone();
        let mut inner = self.inner.borrow_mut();
        let TlsPhase::Agreed(layer, _) = std::mem::replace(&mut inner.phase, TlsPhase::Gone) else { return None };
        let [read_ended, write_ended] = [inner.reading, inner.writing].map(|way| way == TlsDirection::Ended);
        (inner.reading, inner.writing) = (TlsDirection::Broken, TlsDirection::Broken);
        let promised = std::mem::take(&mut inner.promised);
        let TlsState { pool, received, plain, unsent, .. } = &mut *inner;
        let [received, plain, unsent] = [received, plain, unsent].map(|place| {
            let Some(records) = place.take() else { return Vec::new() };
            let bytes = records.bytes().to_vec();
            pool.give(records);
            bytes
        });
        let bytes = MovedBytes { received, plain, unsent, promised, read_ended, write_ended };
        MovedTls::new(layer.role(), layer.into_bytes(), bytes, facts).map(Box::new)
    }

    /// What [`take`](Self::take) took goes on here.
    pub(super) fn put_back(&self, moved: &MovedTls) {
        self.inner.borrow_mut().put(moved);
    }

    /// A connection that was served elsewhere until now.
    pub(super) fn resumed(moved: &MovedTls, pool: Rc<RecordPool>) -> Tls {
        let mut inner = TlsState::new(TlsPhase::Gone, None, pool);
        inner.put(moved);
        Tls { inner: RefCell::new(inner), facts: OnceCell::from(moved.facts.clone()) }
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
    fn new(phase: TlsPhase, received: Option<Records>, pool: Rc<RecordPool>) -> TlsState {
        let (reading, writing) = (TlsDirection::Open, TlsDirection::Open);
        TlsState { phase, pool, received, plain: None, unsent: None, promised: 0, busy: false, reading, writing }
    }

    /// Goes on with what was taken elsewhere, or here before.
    fn put(&mut self, moved: &MovedTls) {
        let Some(layer) = Layer::from_bytes(moved.layer()) else {
            (self.reading, self.writing) = (TlsDirection::Broken, TlsDirection::Broken);
            return;
        };
        let MovedBytes { received, plain, unsent, promised, read_ended, write_ended } = &moved.bytes;
        let pool = &self.pool;
        let [received, plain, unsent] = [received, plain, unsent].map(|bytes| pool.filled(bytes));
        (self.received, self.plain, self.unsent) = (received, plain, unsent);
        self.promised = *promised;
        // Tickets that come later are nobody's.
        self.phase = TlsPhase::Agreed(layer, None);
        let way = |ended| if ended { TlsDirection::Ended } else { TlsDirection::Open };
        (self.reading, self.writing) = (way(*read_ended), way(*write_ended));
    }

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
        match &self.phase {
            TlsPhase::Agreeing(agreeing) => agreeing.is_agreed(),
            TlsPhase::Agreed(..) => true,
            TlsPhase::Gone => false,
        }
    }

    /// One step of the handshake.
    fn agree(&mut self) -> Result<HandshakeStep, rustls::Error> {
        let TlsState { phase, pool, received, plain, unsent, .. } = self;
        match phase {
            TlsPhase::Agreeing(agreeing) => agreeing.step(received, &mut HandshakePlaces { pool, plain, unsent }),
            TlsPhase::Agreed(..) => Ok(HandshakeStep::Again),
            TlsPhase::Gone => Ok(HandshakeStep::Ended),
        }
    }

    /// The handshake has failed: what the peer is told about it goes to `unsent`.
    fn disagree(&mut self, error: &rustls::Error) {
        let TlsState { phase, pool, received, plain, unsent, .. } = self;
        if let TlsPhase::Agreeing(agreeing) = phase {
            agreeing.take_alert(received, &mut HandshakePlaces { pool, plain, unsent });
            agreeing.reword(error, unsent);
        }
    }

    /// The handshake is complete: records follow.
    fn go_on(&mut self) {
        match std::mem::replace(&mut self.phase, TlsPhase::Gone) {
            TlsPhase::Agreeing(agreeing) => match agreeing.into_layer() {
                Ok((layer, keeper)) => self.phase = TlsPhase::Agreed(layer, keeper),
                Err(_) => (self.reading, self.writing) = (TlsDirection::Broken, TlsDirection::Broken),
            },
            phase => self.phase = phase,
        }
    }

    /// Sends the end of the handshake. Where an answer is to follow at once it goes with that: towards a server our request,
    /// towards a client whose request is here already our response.
    fn poll_last_word(&mut self, wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_client = matches!(&self.phase, TlsPhase::Agreeing(agreeing) if agreeing.is_client());
        let goes_with_more = is_client || self.plain.is_some() || self.has_record();
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
        match self.open(room) {
            Ok(TlsStep::Ended) => {
                self.reading = TlsDirection::Ended;
                Ok(TlsStep::Ended)
            }
            Ok(step) => Ok(step),
            Err(violation) => {
                if self.writing == TlsDirection::Open {
                    self.seal_own(|layer, room| layer.seal_refusal(violation, room).unwrap_or_default());
                }
                self.refuse(wire);
                Err(io::Error::new(io::ErrorKind::InvalidData, violation))
            }
        }
    }

    /// Opens one record.
    fn open(&mut self, room: &mut [u8]) -> Result<TlsStep, Violation> {
        let TlsState { phase: TlsPhase::Agreed(layer, keeper), pool, received: Some(received), plain, .. } = self
        else {
            return Ok(TlsStep::More);
        };
        let bytes = received.bytes_mut();
        // Without a keeper nobody has asked for tickets.
        let opened = layer.open(bytes, room, &mut |ticket| keeper.as_mut().is_none_or(|keeper| keeper.keep(ticket)))?;
        let Some(Opened { used, content }) = opened else { return Ok(TlsStep::More) };
        let step = match content {
            Content::InRoom(count) => TlsStep::Data(count),
            Content::InPlace(range) => {
                let bytes = &bytes[range];
                let count = bytes.len().min(room.len());
                room[..count].copy_from_slice(&bytes[..count]);
                if count < bytes.len() {
                    plain.get_or_insert_with(|| pool.take()).append(&bytes[count..]);
                }
                TlsStep::Data(count)
            }
            Content::Control => TlsStep::Again,
            Content::End => TlsStep::Ended,
        };
        received.consume(used);
        if matches!(step, TlsStep::Data(_)) {
            // A server sends its tickets before its data.
            keeper.take_if(|keeper| keeper.has_some());
        }
        Ok(step)
    }

    /// Sends the alert that tells the peer what it did, as far as the socket takes it. Nothing is said or heard after it.
    fn refuse(&mut self, wire: &Wire) {
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

    /// How many bytes may be encrypted from now on.
    fn left(&self) -> usize {
        let TlsPhase::Agreed(layer, _) = &self.phase else { return usize::MAX };
        usize::try_from(layer.left()).unwrap_or(usize::MAX)
    }

    /// Appends records of these bytes to what is unsent.
    fn seal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let TlsState { phase: TlsPhase::Agreed(layer, _), pool, unsent, .. } = self else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let unsent = unsent.get_or_insert_with(|| pool.take_for(bytes.len()));
        let count = layer.seal(bytes, unsent.room_for(layer.sealed_len(bytes.len())));
        unsent.filled(count.map_err(io::Error::other)?);
        Ok(())
    }

    /// Appends records without bytes of the writer's, which this makes: whether there are any.
    fn seal_own(&mut self, make: impl FnOnce(&mut Layer, &mut [u8]) -> usize) -> bool {
        let TlsState { phase: TlsPhase::Agreed(layer, _), pool, unsent, .. } = self else { return false };
        let piece = unsent.get_or_insert_with(|| pool.take());
        let count = make(layer, piece.room_for(layer.sealed_len(0)));
        piece.filled(count);
        pool.settle(unsent);
        count > 0
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
        if self.promised > 0 || self.writing == TlsDirection::Broken {
            return;
        }
        if self.writing == TlsDirection::Open && matches!(&self.phase, TlsPhase::Agreed(layer, _) if layer.owes()) {
            self.seal_own(|layer, room| layer.seal_owed(room).unwrap_or_default());
        }
        self.send_now(wire);
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
