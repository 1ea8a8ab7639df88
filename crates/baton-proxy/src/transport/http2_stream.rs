//! One stream of an HTTP/2 connection as the request path reads and writes it, and what the streams of a connection share.
//!
//! The protocol itself is a state machine without I/O ([`baton_http2::Connection`]). Reading, writing and timeouts of the connection are
//! [`http2`](crate::http2) for clients, and [`http2_server`](crate::http2_server) for servers. What a peer sends ahead of the other side
//! waits in its stream, as much as the stream's window allows: the window opens as the bytes are taken. What is sent to the peer waits in one
//! buffer of the connection. Streams that have more queue up for room in it, and for the connection's window, and take turns.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use baton_http::{Headers, ResponseView};
use baton_http2::{Connection, ErrorCode, Event};

use crate::spare::Spare;
use crate::transport::ByNumber;

/// Bytes that wait for the peer, after which streams are not heard, and clients are not read, until some are gone.
const OUT_MAX: usize = 64 * 1024;
/// A buffer that has grown larger is not kept for others.
const OUT_KEPT_MAX: usize = OUT_MAX + 32 * 1024;

/// So few bytes of a body wait in memory of their own: that is less than the kept buffers have, which were used by others in between.
const SHORT_MAX: usize = 4096;

/// A connection with HTTP/2 without an open stream, as data.
#[derive(Clone, Debug)]
pub struct Http2State {
    /// The state of the protocol: settings, header tables, windows, streams so far.
    pub protocol: Connection,
    /// What was read and is not taken.
    pub input: Vec<u8>,
}

/// Buffers for what waits to be sent, or to be taken, that a core lends to its connections.
pub type OutPool = Spare<Vec<u8>>;

/// What the streams of one connection share.
#[derive(Debug)]
pub struct Http2Shared {
    protocol: RefCell<Connection>,
    out: RefCell<Out>,
    /// Of the task that reads and writes.
    driver: RefCell<Option<Waker>>,
    /// Streams that wait for room or for the connection's window, by the tickets that they drew.
    waiting: RefCell<BTreeMap<u64, Waker>>,
    /// The next ticket.
    next_ticket: Cell<u64>,
    /// Streams that were given up and whose exchanges are in work still.
    given_up: Cell<usize>,
    pool: Rc<OutPool>,
}

/// What waits for the peer: `bytes` from `sent` on.
#[derive(Debug, Default)]
struct Out {
    bytes: Vec<u8>,
    sent: usize,
}

impl Out {
    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

impl Http2Shared {
    /// Of a connection in this state.
    pub fn new(protocol: Connection, pool: Rc<OutPool>) -> Http2Shared {
        Http2Shared {
            protocol: RefCell::new(protocol),
            out: RefCell::default(),
            driver: RefCell::default(),
            waiting: RefCell::default(),
            next_ticket: Cell::default(),
            given_up: Cell::default(),
            pool,
        }
    }

    /// The state of the protocol, and where its bytes go. The driver is woken for them.
    pub fn compose<T>(&self, compose: impl FnOnce(&mut Connection, &mut Vec<u8>) -> T) -> T {
        let mut out = self.out.borrow_mut();
        if out.bytes.capacity() == 0
            && let Some(kept) = self.pool.take()
        {
            out.bytes = kept;
        }
        let before = out.bytes.len();
        let composed = compose(&mut self.protocol.borrow_mut(), &mut out.bytes);
        if out.bytes.len() > before {
            drop(out);
            self.wake();
        }
        composed
    }

    /// Looks at the state of the protocol.
    pub fn look<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        look(&self.protocol.borrow())
    }

    /// Wakes the task that reads and writes.
    pub fn wake(&self) {
        let driver = self.driver.borrow_mut().take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// The task that reads and writes is at work: it need not be woken for what is composed now.
    pub fn is_driven(&self) {
        self.driver.borrow_mut().take();
    }

    /// This task reads and writes, and is woken when there is something to be done.
    pub fn drive(&self, cx: &Context<'_>) {
        *self.driver.borrow_mut() = Some(cx.waker().clone());
    }

    /// Whether so much waits for the peer that no more is said.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Bytes that wait for the peer.
    pub fn unsent(&self) -> usize {
        self.out.borrow().len()
    }

    /// Whether nothing waits for the peer.
    pub fn is_flushed(&self) -> bool {
        self.out.borrow().len() == 0
    }

    /// Writes what waits for the peer by `write`, as far as it is taken. Whether some of it was.
    pub fn flush(&self, mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>) -> io::Result<bool> {
        let mut out = self.out.borrow_mut();
        let before = out.sent;
        while out.len() > 0 {
            match write(&out.bytes[out.sent..]) {
                Poll::Ready(count) => out.sent += count?,
                Poll::Pending => break,
            }
        }
        let has_sent = out.sent > before;
        if out.len() == 0 {
            let Out { mut bytes, .. } = std::mem::take(&mut *out);
            bytes.clear();
            if (1..=OUT_KEPT_MAX).contains(&bytes.capacity()) {
                self.pool.give(bytes);
            }
        } else if out.sent >= OUT_MAX {
            let sent = std::mem::take(&mut out.sent);
            out.bytes.drain(..sent);
        }
        drop(out);
        if has_sent {
            self.pass_on();
        }
        Ok(has_sent)
    }

    /// Passes on what came of the message of one of these `streams`, or about windows, which is the same on either side. What is about something
    /// else comes back.
    pub fn pass<'e, S: AsRef<Http2Stream>>(
        &self,
        event: Event<'e>,
        streams: &RefCell<ByNumber<Rc<S>>>,
    ) -> Option<Event<'e>> {
        let tell = |id: u32, tell: &dyn Fn(&Http2Stream)| {
            if let Some(at) = streams.borrow().get(id) {
                tell(S::as_ref(at));
            }
        };
        match event {
            Event::Data { stream, bytes, ends } => tell(stream, &|at| at.receive(bytes, ends)),
            Event::Trailers { stream } => tell(stream, &|at| {
                let mut trailers = Headers::new();
                self.look(|protocol| protocol.head().to_trailers(&mut trailers));
                at.receive_trailers(trailers);
            }),
            Event::Window { stream: 0 } => self.pass_on(),
            Event::Window { stream } => tell(stream, &Http2Stream::receive_window),
            // The windows of all streams may be larger.
            Event::Settings => {
                streams.borrow().values().for_each(|at| S::as_ref(at).receive_window());
                self.pass_on();
                return Some(event);
            }
            Event::Pong { .. } => {}
            other => return Some(other),
        }
        None
    }

    fn room(&self) -> usize {
        OUT_MAX.saturating_sub(self.out.borrow().len())
    }

    /// Whether streams are in work that were given up.
    pub fn has_given_up(&self) -> bool {
        self.given_up.get() > 0
    }

    /// Wakes the stream that has waited longest, if there is room and window for it: it wakes the next one when it has written.
    pub fn pass_on(&self) {
        if self.is_full() || self.look(Connection::is_window_closed) {
            return;
        }
        let next = self.waiting.borrow_mut().pop_first();
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    /// Queues up; with a ticket that is queued already the place stays.
    fn queue(&self, ticket: &Cell<u64>, cx: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(waker) = waiting.get_mut(&ticket.get()) {
            return waker.clone_from(cx.waker());
        }
        ticket.set(self.next_ticket.get() + 1);
        self.next_ticket.set(ticket.get());
        waiting.insert(ticket.get(), cx.waker().clone());
    }

    /// Leaves the queue.
    fn leave(&self, ticket: &Cell<u64>) {
        let ticket = ticket.take();
        if ticket > 0 {
            self.waiting.borrow_mut().remove(&ticket);
        }
    }
}

/// One stream of a connection: the body of a message that comes in, and of one that goes out.
#[derive(Debug)]
pub struct Http2Stream {
    id: u32,
    shared: Rc<Http2Shared>,
    /// The peer is a server: what came of its response is read to its end, however the stream ended.
    is_of_server: bool,
    /// Bytes that the head takes in its buffer, or the status of a request whose head makes no sense.
    head: Result<usize, u16>,
    /// The request is nothing else.
    ends_with_head: bool,
    received: RefCell<Received>,
    /// The peer, or we, gave it up.
    was_reset: Cell<bool>,
    /// How the peer gave it up, if that was first.
    abort: Cell<Option<PeerAbort>>,
    /// What we send is whole.
    is_ended: Cell<bool>,
    /// Less was sent than could be: the peer has to open a window.
    awaits_window: Cell<bool>,
    /// Its ticket in the queue for room and for the connection's window; 0: none.
    ticket: Cell<u64>,
    /// Of the exchange's task.
    waker: RefCell<Option<Waker>>,
}

/// How the peer ended a stream before its time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerAbort {
    /// It sent RST_STREAM with this code.
    Reset(ErrorCode),
    /// Its connection ended, or it said that it does not process the stream (GOAWAY).
    Lost,
}

/// What came of a body and was not read yet.
#[derive(Debug, Default)]
struct Received {
    bytes: Vec<u8>,
    /// How many of them were read.
    read: usize,
    trailers: Headers,
    has_ended: bool,
}

impl Http2Stream {
    /// The stream of that number, whose request has this head, and nothing else if it `ends`.
    pub fn new(id: u32, shared: Rc<Http2Shared>, head: Result<usize, u16>, ends: bool) -> Http2Stream {
        Http2Stream {
            id,
            shared,
            is_of_server: false,
            head,
            ends_with_head: ends,
            received: RefCell::new(Received { has_ended: ends, ..Received::default() }),
            was_reset: Cell::default(),
            abort: Cell::default(),
            is_ended: Cell::default(),
            awaits_window: Cell::default(),
            ticket: Cell::default(),
            waker: RefCell::default(),
        }
    }

    /// The stream of that number, on which a server was sent a request, which `ends` with its head or does not.
    pub fn of_request(id: u32, shared: Rc<Http2Shared>, ends: bool) -> Http2Stream {
        Http2Stream { is_of_server: true, is_ended: Cell::new(ends), ..Http2Stream::new(id, shared, Ok(0), false) }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Looks at the state of its connection.
    pub fn look_at_connection<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        self.shared.look(look)
    }

    /// How the peer ended it before its time; `None`: it did not.
    pub fn peer_abort(&self) -> Option<PeerAbort> {
        self.abort.get()
    }

    /// Bytes that the head takes in its buffer, or the status of a request whose head makes no sense.
    pub fn head(&self) -> Result<usize, u16> {
        self.head
    }

    /// More of the body came.
    pub fn receive(&self, bytes: &[u8], ends: bool) {
        let mut received = self.received.borrow_mut();
        if received.bytes.capacity() == 0
            && bytes.len() > SHORT_MAX
            && let Some(kept) = self.shared.pool.take()
        {
            received.bytes = kept;
        }
        received.bytes.extend_from_slice(bytes);
        received.has_ended |= ends;
        drop(received);
        self.wake();
    }

    /// Trailers came, which end the body.
    pub fn receive_trailers(&self, trailers: Headers) {
        let mut received = self.received.borrow_mut();
        received.trailers = trailers;
        received.has_ended = true;
        drop(received);
        self.wake();
    }

    /// The peer gave it up.
    pub fn receive_reset(&self, code: ErrorCode) {
        self.give_up(Some(PeerAbort::Reset(code)));
        self.wake();
    }

    /// The peer is gone. A server that has sent its whole response may be.
    pub fn receive_loss(&self) {
        let is_whole = self.is_of_server && self.received.borrow().has_ended;
        self.give_up((!is_whole).then_some(PeerAbort::Lost));
        self.wake();
    }

    /// What came of it, or of its connection, makes no sense: it cannot go on.
    pub fn fail(&self) {
        self.give_up(None);
        self.wake();
    }

    /// The peer has opened the stream's window.
    pub fn receive_window(&self) {
        if self.awaits_window.take() {
            self.wake();
        }
    }

    /// Whether the peer, or we, gave it up.
    pub fn is_given_up(&self) -> bool {
        self.was_reset.get()
    }

    /// Whether the request ended with its head.
    pub fn has_no_body(&self) -> bool {
        self.ends_with_head
    }

    /// Whether the message ended, without trailers, and all of it was read.
    pub fn is_read(&self) -> bool {
        let Received { bytes, trailers, has_ended, .. } = &*self.received.borrow();
        *has_ended && bytes.is_empty() && trailers.is_empty()
    }

    /// Bytes that came and were not read.
    pub fn unread(&self) -> usize {
        let received = self.received.borrow();
        received.bytes.len() - received.read
    }

    /// Ends the message that comes in, at once and without bytes: its head was all.
    pub fn receive_end(&self) {
        self.received.borrow_mut().has_ended = true;
    }

    /// Reads some of the body; 0 is its end.
    pub fn poll_read(&self, cx: &Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.was_reset.get() && !self.is_of_server {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        match self.read(room) {
            Some(read) => Poll::Ready(Ok(read)),
            None if self.was_reset.get() => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => self.wait(cx),
        }
    }

    /// Reads what is there of the body; 0 is its end. `None`: more is to come.
    pub fn read(&self, room: &mut [u8]) -> Option<usize> {
        let mut received = self.received.borrow_mut();
        let unread = &received.bytes[received.read..];
        if unread.is_empty() {
            return received.has_ended.then_some(0);
        }
        let count = unread.len().min(room.len());
        room[..count].copy_from_slice(&unread[..count]);
        received.read += count;
        if received.read == received.bytes.len() {
            received.read = 0;
            let mut bytes = std::mem::take(&mut received.bytes);
            bytes.clear();
            if (SHORT_MAX + 1..=OUT_KEPT_MAX).contains(&bytes.capacity()) {
                self.shared.pool.give(bytes);
            }
        }
        drop(received);
        self.shared.compose(|protocol, out| protocol.consumed(self.id, count, out));
        Some(count)
    }

    /// Ready when the peer gave it up.
    pub fn poll_reset(&self, cx: &Context<'_>) -> Poll<io::Error> {
        if self.was_reset.get() {
            return Poll::Ready(io::ErrorKind::ConnectionReset.into());
        }
        self.wait(cx)
    }

    /// Sends the head of a response, interim or final, with which it `ends` or does not.
    pub fn head_of(&self, status: u16, response: ResponseView<'_>, ends: bool) {
        if self.is_over() {
            return;
        }
        let fields = response.fields().iter().map(|field| (field.name, field.value));
        self.shared.compose(|protocol, out| protocol.send_response(self.id, status, fields, ends, out));
        self.is_ended.set(ends);
    }

    /// Sends an interim response without fields.
    pub fn interim(&self, status: u16) {
        if !self.is_over() {
            let none = std::iter::empty();
            self.shared.compose(|protocol, out| protocol.send_response(self.id, status, none, false, out));
        }
    }

    /// Sends some bytes of the body, as many as windows and the connection's buffer have room for. The message ends with them if
    /// they are its last, and all are taken.
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8], is_last: bool) -> Poll<io::Result<usize>> {
        if self.was_reset.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.is_ended.get() {
            // It has no place for a body.
            return Poll::Ready(Ok(bytes.len()));
        }
        let offered = &bytes[..bytes.len().min(self.shared.room())];
        if offered.is_empty() && !bytes.is_empty() {
            self.shared.queue(&self.ticket, cx);
            return self.wait(cx);
        }
        let ends = is_last && offered.len() == bytes.len();
        let sent = self.shared.compose(|protocol, out| protocol.send_data(self.id, offered, ends, out));
        if sent > 0 {
            self.shared.leave(&self.ticket);
        }
        if sent < offered.len() {
            self.awaits_window.set(true);
            if self.shared.look(|protocol| protocol.is_held_up(self.id)) {
                self.shared.queue(&self.ticket, cx);
            }
        }
        self.shared.pass_on();
        if sent == 0 && !bytes.is_empty() {
            return self.wait(cx);
        }
        self.is_ended.set(ends && sent == bytes.len());
        Poll::Ready(Ok(sent))
    }

    /// The message is whole; `trailers` lie in `buf`.
    pub fn finish(&self, trailers: &Headers, buf: &[u8]) {
        if self.is_over() {
            return;
        }
        let fields = trailers.iter(buf).map(|field| (field.name, field.value));
        self.shared.compose(|protocol, out| protocol.send_trailers(self.id, fields, out));
        self.is_ended.set(true);
    }

    /// Gives the message up that we send, unless it is whole.
    pub fn reset(&self, code: ErrorCode) {
        if !self.is_over() {
            self.shared.compose(|protocol, out| protocol.reset(self.id, code, out));
            self.give_up(None);
        }
    }

    /// The exchange is gone.
    pub fn release(&self) {
        self.shared.leave(&self.ticket);
        if self.was_reset.get() {
            self.shared.given_up.set(self.shared.given_up.get().saturating_sub(1));
        }
        self.shared.compose(|protocol, out| protocol.release(self.id, out));
        // It may have been its turn.
        self.shared.pass_on();
    }

    /// The fields that came after the body.
    pub fn take_trailers(&self) -> Headers {
        std::mem::take(&mut self.received.borrow_mut().trailers)
    }

    fn give_up(&self, abort: Option<PeerAbort>) {
        if !self.was_reset.replace(true) {
            self.abort.set(abort);
            self.shared.given_up.set(self.shared.given_up.get() + 1);
        }
    }

    fn is_over(&self) -> bool {
        self.was_reset.get() || self.is_ended.get()
    }

    /// Wakes the task of the exchange.
    pub fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The task of the exchange waits for what happens to the stream.
    pub fn wait<T>(&self, cx: &Context<'_>) -> Poll<T> {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}
