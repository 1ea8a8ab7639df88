//! A connection to a server that speaks HTTP/2: it carries several requests at a time.
//!
//! As with clients ([`http2`](crate::http2)), the protocol is a state machine in a crate of its own, and one task reads and writes the
//! connection. What an exchange is lent is one stream of it, a [`ServerStream`]: the request's head is sent by it, the bodies pass as over any
//! [`Transport`](crate::transport::Transport), and the response's head comes out of it.
//!
//! ```text
//!             ┌─ send ──▶ Connection ──▶ out ──▶ server
//! exchange ──▶│
//!             └─ ServerStream ◀── heads, Http2Stream ◀── Connection ◀── server
//! ```
//!
//! Who may have a stream of which connection is for the [`pool`](crate::pool). A connection that is *retired* gets no new stream and is closed
//! when its last one is gone: because its server announced the end (GOAWAY), because a reload or an operator does not want it any more, or
//! because it is not needed.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use baton_http::{Framing, Limits, Method, ResponseHead, ResponseTo};
use baton_http2::{
    Config, Connection as Protocol, Counts, ErrorCode, Event, NotOpened, RequestPseudo, Role, Violation,
};
use baton_model::ServerProtocol;

use crate::buffer::{Buffer, BufferPool};
use crate::clock::Clock;
use crate::server_connection::{ServerConnection, ServerExit};
use crate::spare::Spare;
use crate::state::{BackendFigures, Counter};
use crate::transport::{ByNumber, Http2Shared, Http2State, Http2Stream, OutPool};

/// Reads of one turn, before other connections get theirs.
const ROUNDS_PER_TURN: usize = 16;
/// Bytes that wait for a server, after which nothing more is read of it: what it makes us answer has no other bound.
const UNSENT_MAX: usize = 256 * 1024;
/// What a core lends to a connection.
#[derive(Clone, Debug)]
pub struct ConnectionMemory {
    /// Which core it is.
    pub core: usize,
    /// Its time.
    pub clock: Rc<Clock>,
    /// For what is read.
    pub buffers: Rc<BufferPool>,
    /// For what waits.
    pub outs: Rc<OutPool>,
    /// For heads of responses that wait for their exchanges.
    pub heads: Rc<HeadPool>,
}

/// Heads of responses that a core keeps for the next ones.
pub type HeadPool = Spare<Box<ReceivedHead>>;

/// A connection to a server that carries several requests.
#[derive(Debug)]
pub struct Http2Server {
    /// The socket, and what it was opened for.
    pub connection: ServerConnection,
    shared: Rc<Http2Shared>,
    memory: ConnectionMemory,
    /// Where it is counted.
    figures: Arc<BackendFigures>,
    /// One client alone may use it.
    is_private: bool,
    /// How long a server may take nothing of what waits for it.
    patience: Option<Duration>,
    streams: RefCell<ByNumber<Rc<InFlight>>>,
    stage: Cell<Stage>,
    lending: Cell<Lending>,
    /// The most streams that are lent, by our own configuration.
    most: usize,
    /// Requests it has carried.
    requests: Cell<u32>,
    /// Where it goes as soon as it has nothing more to say, when another process has taken over.
    exit: OnceCell<ServerExit>,
    /// When something came last.
    heard: Cell<Instant>,
    /// Since when nothing is taken of what waits.
    stuck_since: Cell<Instant>,
    /// Exchanges that wait for the server's first SETTINGS.
    waiting: RefCell<Vec<Waker>>,
}

/// How far the life of a connection is. It only goes forward.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    /// It takes requests.
    Serving,
    /// It takes no new ones, and is closed when those in work have ended.
    Retired,
    /// The protocol cannot go on, or the server takes nothing: it is being closed.
    Failed,
    /// It is another process's.
    Left,
    /// It is gone.
    Closed,
}

/// Who has streams of a connection, also those on which nothing was sent yet.
#[derive(Clone, Copy, Debug)]
enum Lending {
    /// Nobody.
    Idle { since: Instant },
    /// So many exchanges, at least one. `owner`: of this session, where sessions do not share connections that are in use (`http-reuse safe`).
    Lent { streams: usize, owner: Option<usize> },
}

/// A request in work.
#[derive(Debug)]
struct InFlight {
    stream: Http2Stream,
    /// What the heads that come are judged by.
    to: ResponseTo,
    heads: RefCell<Heads>,
    failure: Cell<Option<StreamFailure>>,
}

/// Heads of a response that were not taken yet: nearly always there is one at most.
#[derive(Debug, Default)]
struct Heads {
    next: Option<Box<ReceivedHead>>,
    later: VecDeque<Box<ReceivedHead>>,
}

impl Heads {
    fn push(&mut self, head: Box<ReceivedHead>) {
        match self.next {
            None => self.next = Some(head),
            Some(_) => self.later.push_back(head),
        }
    }

    fn pop(&mut self) -> Option<Box<ReceivedHead>> {
        let later = self.later.pop_front();
        std::mem::replace(&mut self.next, later)
    }
}

/// The head of a response that came: its bytes, and the places of its fields in them.
#[derive(Debug, Default)]
pub struct ReceivedHead {
    bytes: Buffer,
    head: ResponseHead,
}

/// Where a response's head is put.
#[derive(Debug)]
pub struct HeadRoom<'a> {
    /// What the bytes are read into comes from here.
    pub buffers: &'a BufferPool,
    /// The bytes.
    pub received: &'a mut Buffer,
    /// What they say.
    pub response: &'a mut ResponseHead,
}

/// Why no response comes on a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamFailure {
    /// The server certainly has not begun with the request: it said so (GOAWAY, REFUSED_STREAM).
    Unprocessed,
    /// The server reset the stream.
    Reset,
    /// The connection ended.
    Lost,
    /// What came is no response.
    Malformed,
}

/// A request's head, as HTTP/2 sends it.
#[derive(Clone, Copy, Debug)]
pub struct Http2Request<'a, F> {
    /// Instead of a request line.
    pub pseudo: RequestPseudo<'a>,
    /// The fields.
    pub fields: F,
    /// Nothing follows it.
    pub ends: bool,
    /// What the response is judged by.
    pub to: ResponseTo,
}

impl ServerConnection {
    /// Whether HTTP/2 is spoken on it: by `proto`, or because it was agreed on.
    pub fn is_http2(&self) -> bool {
        match self.protocol.or(self.config.proto) {
            Some(protocol) => protocol == ServerProtocol::H2,
            None => self.stream.facts().is_some_and(|facts| facts.alpn.as_deref() == Some(b"h2")),
        }
    }
}

impl Http2Server {
    /// Begins to speak HTTP/2 over a new connection.
    pub fn begin(
        connection: ServerConnection,
        config: &Config,
        figures: &Arc<BackendFigures>,
        terms: (bool, Option<Duration>),
        memory: ConnectionMemory,
    ) -> Rc<Http2Server> {
        let shared = Http2Shared::new(Protocol::new(Role::Client, config.clone()), memory.outs.clone());
        shared.compose(|protocol, out| protocol.open(out));
        figures.counters.add(memory.core, Counter::Http2Connections, 1);
        Http2Server::go_on(connection, shared, figures, terms, memory, None)
    }

    /// Goes on with a connection that was idle in another process, and that any client may use.
    pub fn resume(
        connection: ServerConnection,
        state: Http2State,
        figures: &Arc<BackendFigures>,
        patience: Option<Duration>,
        memory: ConnectionMemory,
    ) -> Rc<Http2Server> {
        let Http2State { protocol, input } = state;
        let shared = Http2Shared::new(protocol, memory.outs.clone());
        let input = (!input.is_empty()).then(|| Buffer::holding(memory.buffers.size(false), &[], &input));
        Http2Server::go_on(connection, shared, figures, (false, patience), memory, input)
    }

    fn go_on(
        connection: ServerConnection,
        shared: Http2Shared,
        figures: &Arc<BackendFigures>,
        (is_private, patience): (bool, Option<Duration>),
        memory: ConnectionMemory,
        input: Option<Buffer>,
    ) -> Rc<Http2Server> {
        let most = shared.look(|protocol| protocol.own_settings().max_concurrent_streams as usize);
        let (requests, idle_since) = (connection.requests, connection.idle_since);
        let now = memory.clock.now();
        figures.http2_open.fetch_add(1, Ordering::Relaxed);
        let server = Rc::new(Http2Server {
            connection,
            shared: Rc::new(shared),
            memory,
            figures: figures.clone(),
            is_private,
            patience,
            streams: RefCell::default(),
            stage: Cell::new(Stage::Serving),
            lending: Cell::new(Lending::Idle { since: idle_since }),
            most,
            requests: Cell::new(requests),
            exit: OnceCell::new(),
            heard: Cell::new(now),
            stuck_since: Cell::new(now),
            waiting: RefCell::default(),
        });
        tokio::task::spawn_local(drive(Driver(server.clone()), input));
        server
    }

    /// A stream for one exchange; nothing is sent by that.
    pub fn lend(self: &Rc<Self>) -> ServerStream {
        self.lending.set(match self.lending.get() {
            Lending::Idle { .. } => Lending::Lent { streams: 1, owner: None },
            Lending::Lent { streams, owner } => Lending::Lent { streams: streams + 1, owner },
        });
        self.requests.set(self.requests.get().saturating_add(1));
        ServerStream { server: self.clone(), at: None }
    }

    /// Requests that it has carried, with those in work.
    pub fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Whether another request may be sent: the connection is to stay, and server and configuration allow one more.
    pub fn has_room(&self) -> bool {
        self.is_usable() && self.lent() < self.most.min(self.shared.look(Protocol::streams_max))
    }

    /// Whether requests may be sent over it, now or when others have ended.
    pub fn is_usable(&self) -> bool {
        let has_requests_left = || {
            let most = self.connection.config.max_reuse;
            most.is_none_or(|most| self.requests.get() <= most)
        };
        self.stage.get() == Stage::Serving && has_requests_left() && self.shared.look(Protocol::may_go_on)
    }

    /// Whether no request is in work.
    pub fn is_idle(&self) -> bool {
        self.idle_since().is_some()
    }

    /// Since when no request is in work, if that is so.
    pub fn idle_since(&self) -> Option<Instant> {
        match self.lending.get() {
            Lending::Idle { since } => Some(since),
            Lending::Lent { .. } => None,
        }
    }

    fn lent(&self) -> usize {
        match self.lending.get() {
            Lending::Idle { .. } => 0,
            Lending::Lent { streams, .. } => streams,
        }
    }

    /// Whether one client alone may use it.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.stage.get() == Stage::Closed
    }

    /// The session that has it for itself.
    pub fn owner(&self) -> Option<usize> {
        match self.lending.get() {
            Lending::Idle { .. } => None,
            Lending::Lent { owner, .. } => owner,
        }
    }

    /// Lets a session have it for itself, as long as one of its requests is in work.
    pub fn set_owner(&self, session: usize) {
        if let Lending::Lent { streams, .. } = self.lending.get() {
            self.lending.set(Lending::Lent { streams, owner: Some(session) });
        }
    }

    /// Takes no new requests: it is closed when those in work have ended.
    pub fn retire(&self) {
        if self.comes_to(Stage::Retired) {
            self.shared.wake();
        }
    }

    /// It leaves by `exit` as soon as it is idle and has nothing more to say, or is closed then. No request may be sent over it any more.
    pub fn leave_by(&self, exit: ServerExit) {
        if self.exit.set(exit).is_ok() {
            self.shared.wake();
        }
    }

    /// Leaves for another process, if it is to and can at this moment. Whether it has left.
    fn leave(&self, input: &Option<Buffer>) -> bool {
        let (Some(exit), Lending::Idle { since }) = (self.exit.get(), self.lending.get()) else { return false };
        if !self.shared.is_flushed() {
            return false;
        }
        let state = || {
            let input = input.as_ref().map(|input| input.to_vec()).unwrap_or_default();
            Some(Box::new(Http2State { protocol: self.shared.look(Clone::clone), input }))
        };
        let has_left =
            self.is_usable() && !self.is_private && self.connection.leave(exit, (self.requests.get(), since), state);
        self.comes_to(if has_left { Stage::Left } else { Stage::Retired });
        has_left
    }

    /// Goes on to that stage of its life. Whether it was not there yet.
    fn comes_to(&self, stage: Stage) -> bool {
        let is_new = self.stage.get() < stage;
        self.stage.set(self.stage.get().max(stage));
        is_new
    }

    /// Whether nothing can be sent over it any more.
    fn is_ending(&self) -> bool {
        self.stage.get() >= Stage::Failed
    }

    /// Once in a while: bounds are renewed, and a server that takes nothing is given up.
    pub fn look_after(&self, now: Instant) {
        self.shared.compose(|protocol, _| protocol.refill());
        let is_stuck = !self.shared.is_flushed();
        if is_stuck && self.patience.is_some_and(|limit| self.stuck_since.get() + limit <= now) {
            self.comes_to(Stage::Failed);
            self.shared.wake();
        }
        if self.is_idle() && !self.is_usable() {
            self.retire();
        }
    }

    /// A request has waited for its response in vain. If nothing at all has come since it was sent, the connection may be broken: it gets no
    /// new ones.
    pub fn has_timed_out(&self, sent: Instant) {
        if self.heard.get() <= sent {
            self.retire();
        }
    }

    /// Writes what waits, and reads. Ready when the connection is over.
    fn poll(&self, cx: &mut Context<'_>, input: &mut Option<Buffer>) -> Poll<()> {
        let stream = &self.connection.stream;
        for _ in 0..ROUNDS_PER_TURN {
            self.shared.is_driven();
            if let Some(input) = input
                && !self.is_ending()
                && self.take_events(input).is_err()
            {
                self.comes_to(Stage::Failed);
                self.end_all(|_| StreamFailure::Lost);
            }
            let is_said = self.stage.get() == Stage::Retired && self.is_idle();
            let is_over = is_said || self.is_ending();
            if is_said {
                self.shared.compose(|protocol, out| protocol.end_drain(out));
            }
            self.count();
            self.shared.drive(cx);
            match self.shared.flush(|bytes| stream.poll_write(cx, bytes)) {
                Err(_) => return Poll::Ready(()),
                Ok(true) => self.stuck_since.set(self.memory.clock.now()),
                Ok(false) => {}
            }
            if is_over {
                // What it was told about it is a courtesy: nothing is waited for.
                return Poll::Ready(());
            }
            if self.leave(input) {
                return Poll::Ready(());
            }
            if self.stage.get() == Stage::Retired && self.is_idle() {
                continue;
            }
            if self.shared.unsent() >= UNSENT_MAX {
                return Poll::Pending;
            }
            if ready!(self.read(cx, input)).is_err() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads some bytes.
    fn read(&self, cx: &mut Context<'_>, input: &mut Option<Buffer>) -> Poll<io::Result<()>> {
        let (stream, buffers) = (&self.connection.stream, &self.memory.buffers);
        let has_input = input.as_ref().is_some_and(|input| !input.is_empty());
        if !has_input {
            // One that has to wait holds no buffer.
            if let Some(input) = input.take() {
                buffers.give(input);
            }
            if self.is_idle() {
                self.shared.compose(|protocol, _| protocol.shrink());
                self.streams.borrow_mut().shrink();
            }
            ready!(stream.poll_readable(cx));
        }
        let input = input.get_or_insert_with(|| buffers.take_large());
        match ready!(stream.poll_read(cx, input.room())) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                input.filled(count);
                self.heard.set(self.memory.clock.now());
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Takes what came.
    fn take_events(&self, input: &mut Buffer) -> Result<(), Violation> {
        loop {
            let received = self.shared.compose(|protocol, out| protocol.receive(input, out))?;
            let consumed = received.consumed;
            let Some(event) = received.event else {
                input.consume(consumed);
                return Ok(());
            };
            self.take_event(event);
            input.consume(consumed);
        }
    }

    fn take_event(&self, event: Event<'_>) {
        let Some(event) = self.shared.pass(event, &self.streams) else { return };
        let at = |stream: u32| self.streams.borrow().get(stream).cloned();
        match event {
            Event::Head { stream, ends } => self.take_head(stream, ends),
            Event::Interim { stream } => self.take_head(stream, false),
            Event::HeadTooLarge { stream, .. } => {
                at(stream).inspect(|at| at.fail(StreamFailure::Malformed));
            }
            Event::Reset { stream, code } => {
                let is_refused = code == ErrorCode::REFUSED_STREAM;
                let failure = if is_refused { StreamFailure::Unprocessed } else { StreamFailure::Reset };
                at(stream).inspect(|at| {
                    at.note(failure);
                    at.stream.receive_reset(code);
                });
            }
            Event::Failed { stream, .. } => {
                at(stream).inspect(|at| at.fail(StreamFailure::Malformed));
            }
            Event::Settings => self.waiting.take().into_iter().for_each(Waker::wake),
            Event::GoAway { last, .. } => {
                self.comes_to(Stage::Retired);
                self.end_some(last.saturating_add(1), |_| StreamFailure::Unprocessed);
            }
            Event::Data { .. } | Event::Trailers { .. } | Event::Window { .. } | Event::Pong { .. } => {}
        }
    }

    /// The head of a response, interim or final.
    fn take_head(&self, stream: u32, ends: bool) {
        let Some(at) = self.streams.borrow().get(stream).cloned() else { return };
        let Some(head) = self.put_together(at.to) else { return at.fail(StreamFailure::Malformed) };
        at.heads.borrow_mut().push(head);
        if ends {
            at.stream.receive_end();
        }
        at.stream.wake();
    }

    /// The head that was decoded last, as a response to such a request; `None`: it is none.
    fn put_together(&self, to: ResponseTo) -> Option<Box<ReceivedHead>> {
        let ConnectionMemory { buffers, heads, .. } = &self.memory;
        let limits = Limits { head_bytes: buffers.size(false), ..Limits::default() };
        let mut received = heads.take().unwrap_or_default();
        let ReceivedHead { bytes, head } = &mut *received;
        let is_response = self.shared.look(|protocol| {
            let decoded = protocol.head();
            let arena = decoded.arena();
            *bytes = buffers.take_for(arena.len());
            let Some(room) = bytes.room().get_mut(..arena.len()) else { return false };
            room.copy_from_slice(arena);
            bytes.filled(arena.len());
            let made = decoded.to_response(bytes, b"", head, to, &limits);
            made.is_ok() && (head.framing != Framing::Tunnel || to.method == Method::Connect)
        });
        if is_response {
            return Some(received);
        }
        self.memory.rests(received);
        None
    }

    /// Ends what is in work.
    fn end_all(&self, why: impl Fn(u32) -> StreamFailure) {
        self.end_some(0, why);
    }

    fn end_some(&self, first: u32, why: impl Fn(u32) -> StreamFailure) {
        let streams: Vec<_> = self.streams.borrow().since(first).cloned().collect();
        streams.iter().for_each(|(id, at)| at.fail(why(*id)));
    }

    /// Adds what happened to the counters of the backend (`h2_*` of `show stat`).
    fn count(&self) {
        let counts = self.shared.compose(|protocol, _| protocol.take_counts());
        if counts == Counts::default() {
            return;
        }
        self.figures.counters.of(self.memory.core).add_http2(counts);
    }
}

impl ConnectionMemory {
    /// Takes the memory of a head back.
    fn rests(&self, mut received: Box<ReceivedHead>) {
        let ReceivedHead { bytes, head } = &mut *received;
        head.clear();
        self.buffers.give(std::mem::take(bytes));
        self.heads.give(received);
    }
}

impl AsRef<Http2Stream> for InFlight {
    fn as_ref(&self) -> &Http2Stream {
        &self.stream
    }
}

impl InFlight {
    fn fail(&self, failure: StreamFailure) {
        self.note(failure);
        match failure {
            StreamFailure::Malformed => self.stream.fail(),
            StreamFailure::Unprocessed | StreamFailure::Reset | StreamFailure::Lost => self.stream.receive_loss(),
        }
    }

    fn note(&self, failure: StreamFailure) {
        if self.failure.get().is_none() {
            self.failure.set(Some(failure));
        }
    }
}

/// The task of a connection, which leaves nothing in work however it ends.
struct Driver(Rc<Http2Server>);

impl Drop for Driver {
    fn drop(&mut self) {
        let server = &self.0;
        server.comes_to(Stage::Closed);
        server.end_all(|_| StreamFailure::Lost);
        server.waiting.take().into_iter().for_each(Waker::wake);
        server.count();
        server.figures.http2_open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn drive(driver: Driver, mut input: Option<Buffer>) {
    let server = &driver.0;
    let mut has_waited = false;
    poll_fn(|cx| {
        // What was woken with it may have requests to send: what carries them acknowledges, too, what has come. Reading first would cost a
        // packet that does nothing else.
        if server.shared.is_flushed() && !std::mem::replace(&mut has_waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        has_waited = false;
        server.poll(cx, &mut input)
    })
    .await;
    if let Some(input) = input {
        server.memory.buffers.give(input);
    }
    if server.stage.get() != Stage::Left {
        server.connection.stream.shutdown_write();
    }
}

/// The stream that a request has begun, for rules and the log: it can be looked at when it has ended, too.
#[derive(Debug)]
pub struct BegunStream(Rc<InFlight>);

impl BegunStream {
    /// The stream.
    pub fn stream(&self) -> &Http2Stream {
        &self.0.stream
    }
}

/// One stream of a connection, for one exchange, which gives it back however it ends.
#[derive(Debug)]
pub struct ServerStream {
    server: Rc<Http2Server>,
    at: Option<Rc<InFlight>>,
}

impl ServerStream {
    /// Whose it is.
    pub fn server(&self) -> &Rc<Http2Server> {
        &self.server
    }

    /// The stream; `None` before something was sent.
    pub fn stream(&self) -> Option<&Http2Stream> {
        self.at.as_ref().map(|at| &at.stream)
    }

    /// The stream, also when it has ended; `None` before something was sent.
    pub fn begun(&self) -> Option<BegunStream> {
        self.at.clone().map(BegunStream)
    }

    /// Sends the head of the request.
    ///
    /// # Errors
    /// The server does not take it: nothing was sent.
    pub fn send<'a, F>(&mut self, request: Http2Request<'a, F>) -> Result<(), NotOpened>
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])>,
    {
        let Http2Request { pseudo, fields, ends, to } = request;
        let server = &self.server;
        if server.is_ending() {
            return Err(NotOpened::Ending);
        }
        let was_flushed = server.shared.is_flushed();
        let id = server.shared.compose(|protocol, out| protocol.send_request(pseudo, fields, ends, out))?;
        if was_flushed {
            server.stuck_since.set(server.memory.clock.now());
        }
        let stream = Http2Stream::of_request(id, server.shared.clone(), ends);
        let at = Rc::new(InFlight { stream, to, heads: RefCell::default(), failure: Cell::default() });
        server.streams.borrow_mut().insert(id, at.clone());
        server.figures.counters.add(server.memory.core, Counter::Http2Streams, 1);
        server.figures.http2_streams.fetch_add(1, Ordering::Relaxed);
        self.at = Some(at);
        Ok(())
    }

    /// The next head of the response: how many bytes it takes. The buffer that it lies in takes the place of the one that was there.
    pub fn poll_head(&self, cx: &Context<'_>, room: HeadRoom<'_>) -> Poll<Result<usize, StreamFailure>> {
        let Some(at) = &self.at else { return Poll::Ready(Err(StreamFailure::Unprocessed)) };
        let Some(mut head) = at.heads.borrow_mut().pop() else {
            return match at.failure.get() {
                Some(failure) => Poll::Ready(Err(failure)),
                None => at.stream.wait(cx),
            };
        };
        let HeadRoom { received, response, .. } = room;
        debug_assert!(received.is_empty());
        std::mem::swap(received, &mut head.bytes);
        std::mem::swap(response, &mut head.head);
        self.server.memory.rests(head);
        Poll::Ready(Ok(received.len()))
    }

    /// Whether the stream has ended with the response's head.
    pub fn is_read(&self) -> bool {
        self.at.as_ref().is_none_or(|at| at.stream.is_read())
    }

    /// Ready when the server's SETTINGS are known: whether it takes WebSockets (RFC 8441), or that it is gone.
    pub fn poll_takes_websockets(&self, cx: &Context<'_>) -> Poll<bool> {
        let server = &self.server;
        if server.is_ending() {
            return Poll::Ready(false);
        }
        match server
            .shared
            .look(|protocol| protocol.has_settings().then(|| protocol.peer_settings().enable_connect_protocol))
        {
            Some(takes) => Poll::Ready(takes),
            None => {
                let mut waiting = server.waiting.borrow_mut();
                if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for ServerStream {
    fn drop(&mut self) {
        let server = &self.server;
        if let Some(at) = &self.at {
            at.stream.release();
            server.streams.borrow_mut().remove(at.stream.id());
            server.figures.http2_streams.fetch_sub(1, Ordering::Relaxed);
        }
        match server.lending.get() {
            Lending::Lent { streams: streams @ 2.., owner } => {
                server.lending.set(Lending::Lent { streams: streams - 1, owner });
            }
            Lending::Lent { .. } | Lending::Idle { .. } => {
                server.lending.set(Lending::Idle { since: server.memory.clock.now() });
                if !server.is_usable() {
                    server.comes_to(Stage::Retired);
                    server.shared.wake();
                }
            }
        }
    }
}
