//! HTTP/2 makes several exchanges of a connection at a time: each of its streams is one.
//!
//! The protocol is a state machine in a crate of its own. Here is the rest: one task reads and writes the connection, one task for each
//! stream passes the request path, and what they share is in [`Http2Shared`].
//!
//! ```text
//!            ┌─ Connection ──▶ head ──▶ Exchange ──▶ request::serve    (a task for each stream)
//! client ◀──▶│                 body ──▶ Http2Stream ◀───────┘
//!            └─ Connection ◀── out  ◀────── response
//! ```
//!
//! Bounds: streams in work (`tune.h2.max-concurrent-streams`, also of those that the client has reset), what their clients send ahead (their
//! windows, and that of the connection), and what waits for the client.

mod begin;
mod tasks;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use baton_http2::{Connection as Protocol, Counts, ErrorCode, Event, Role, Violation};
use baton_model::BindProtocol;

use crate::buffer::Buffer;
use crate::client::{Client, linger, parts};
use crate::connection::Connection;
use crate::core::{Core, Http2Membership, Interrupt, Order, Orders, RegisteredStream, until};
use crate::deadline::Deadline;
use crate::exchange::{Exchange, Origin};
use crate::facts::Ruled;
use crate::messages::Messages;
use crate::moving::Http2State;
use crate::request;
use crate::respond::Ending;
use crate::session::Session;
use crate::sink;
use crate::state::{Counter, FrontendState, StayReason};
use crate::transport::{ByNumber, Http2Shared, Http2Stream, Transport};

use tasks::Place;
pub use tasks::StreamTasks;

/// The longest that a client may take to read that no more requests are taken, before those that it sends meanwhile are refused.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How often the bounds of frames that carry nothing are renewed.
const REFILL: Duration = Duration::from_secs(1);
/// A connection and its session, shared by the exchanges in work.
#[derive(Debug)]
struct Http2Client {
    core: Rc<Core>,
    connection: Connection,
    session: Session,
    shared: Rc<Http2Shared>,
    streams: RefCell<ByNumber<Rc<InWork>>>,
    tasks: Rc<StreamTasks>,
    /// Nothing more is read, and nothing served: what waits is sent, and the connection closed.
    is_failed: Cell<bool>,
}

/// A stream whose exchange is in work.
#[derive(Debug)]
struct InWork {
    stream: Http2Stream,
    /// Its place among what operators see.
    registered: RegisteredStream,
    /// Where it is counted.
    frontend: Arc<FrontendState>,
}

/// What there is to do for a connection.
enum ClientEvent {
    /// So many bytes came; 0 is the end.
    Read(usize),
    /// Room was made, or an exchange ended: there may be something to go on with.
    Changed,
    /// The client is gone.
    Broken,
}

/// How a connection was when its wait began.
#[derive(Clone, Copy, Debug)]
struct WaitStart {
    is_idle: bool,
    is_held: bool,
    has_ended: bool,
}

/// How the work for a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DriveEnd {
    /// All was said.
    Over,
    /// Not all was.
    Broken,
    /// It has left for another process.
    Left,
}

/// Since when a client is waited for.
#[derive(Clone, Copy, Debug)]
struct WaitTimes {
    /// No exchange is in work.
    idle: Instant,
    /// Nothing of what waits was taken.
    stuck: Instant,
    /// It was told that no more requests are taken.
    draining: Option<Instant>,
    /// The bounds of frames were renewed.
    refilled: Instant,
}

/// Whether HTTP/2 is spoken from the first byte on: by `proto`, or because it was agreed on.
pub fn is_agreed(client: &Client) -> bool {
    match client.connection.listener().bind.options.proto {
        Some(BindProtocol::H2) => true,
        Some(BindProtocol::H1 | BindProtocol::Bytes) => false,
        None => client.connection.tls().is_some_and(|facts| facts.alpn.as_deref() == Some(b"h2")),
    }
}

/// Serves a connection to its end, or until it leaves for another process.
pub async fn serve(tasks: Rc<StreamTasks>, client: Box<Client>) {
    let config = (*client.session.view().http2).clone();
    let core = client.connection.membership.registered.core.clone();
    let shared = Http2Shared::new(Protocol::new(Role::Server, config), core.outs.clone());
    shared.compose(|protocol, out| protocol.open(out));
    let state = client.session.view().plan.state.clone();
    state.counters.add(core.number, Counter::Http2Connections, 1);
    go_on(tasks, client, shared).await;
}

/// Serves a connection that was served elsewhere until now.
pub async fn resume(tasks: Rc<StreamTasks>, mut client: Box<Client>, state: Box<Http2State>) {
    let Http2State { protocol, input } = *state;
    let core = client.connection.membership.registered.core.clone();
    if !input.is_empty() {
        client.keep_input(Buffer::holding(core.buffers.size(false), &[], &input));
    }
    go_on(tasks, client, Http2Shared::new(protocol, core.outs.clone())).await;
}

async fn go_on(tasks: Rc<StreamTasks>, client: Box<Client>, shared: Http2Shared) {
    let Client { mut connection, session, input, mut deadline } = *client;
    connection.is_http2 = true;
    let core = connection.membership.registered.core.clone();
    let shared = Rc::new(shared);
    let (streams, is_failed) = (RefCell::default(), Cell::new(false));
    let client = Rc::new(Http2Client { core: core.clone(), connection, session, shared, streams, tasks, is_failed });
    let mut input = input.map(|input| *input);
    let open = OpenConnection::enter(&client);
    let end = client.drive(&mut input, &mut deadline).await;
    drop(open);
    client.give_up();
    client.count();
    if let Some(input) = input {
        core.buffers.give(input);
    }
    if end == DriveEnd::Over {
        // The last bytes are on their way, and closing with bytes unread would be a reset. Exchanges that were given up may be in work still.
        client.connection.membership.leave();
        if client.streams.borrow().is_empty() {
            client.session.untrack();
        }
        linger(&core, &client.connection, &client.session, &mut deadline).await;
    }
}

/// A connection among those of its core and of its frontend that speak HTTP/2, until it is dropped.
struct OpenConnection {
    frontend: Arc<FrontendState>,
    _membership: Http2Membership,
}

impl OpenConnection {
    fn enter(client: &Http2Client) -> OpenConnection {
        let frontend = client.session.view().plan.state.clone();
        frontend.http2_open.fetch_add(1, Ordering::Relaxed);
        let Connection { membership, .. } = &client.connection;
        let _membership = client.core.http2_clients.enter(&membership.registered.orders, client.connection.listener());
        OpenConnection { frontend, _membership }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.frontend.http2_open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Client {
    /// Reads and writes until nothing more is to be said.
    async fn drive(self: &Rc<Self>, input: &mut Option<Buffer>, deadline: &mut Deadline) -> DriveEnd {
        let (core, orders) = (&self.core, self.connection.orders());
        let now = core.now();
        let mut times = WaitTimes {
            idle: self.session.rested(self.connection.accepted),
            stuck: now,
            draining: None,
            refilled: now,
        };
        let mut has_ended = false;
        loop {
            if !self.is_failed.get() && self.take_events(input, &mut times).is_err() {
                self.fail();
            }
            if self.connection.stream.is_forgotten() {
                return DriveEnd::Broken;
            }
            let is_idle = self.streams.borrow().is_empty();
            self.drain_if_due(&mut times);
            self.count();
            let is_last = self.is_failed.get() || is_idle && (has_ended || self.shared.look(Protocol::is_drained));
            if is_last && self.shared.is_flushed() {
                return DriveEnd::Over;
            }
            deadline.set(self.due(is_idle, &times));
            if self.may_leave(has_ended) && self.leave(input, deadline) {
                return DriveEnd::Left;
            }
            let before = WaitStart { is_idle, is_held: self.is_held(), has_ended };
            let event = until(core, orders, deadline, |cx| self.poll(cx, input, &mut times, before)).await;
            if !is_idle || self.session.requests() > 0 && self.streams.borrow().is_empty() != is_idle {
                times.idle = core.now();
            }
            match event {
                Ok(ClientEvent::Read(0)) => has_ended = true,
                Ok(ClientEvent::Read(_) | ClientEvent::Changed) => {}
                Ok(ClientEvent::Broken) | Err(Interrupt::Abort) => return DriveEnd::Broken,
                Err(Interrupt::Timeout) if !self.shared.is_flushed() => return DriveEnd::Broken,
                // A client that is silent for too long is told so; one that was told before has had its time.
                Err(Interrupt::Timeout) => self.shared.compose(|protocol, out| protocol.end_drain(out)),
            }
        }
    }

    /// When a client that has nothing in work must have sent something, or taken what waits for it. An exchange waits by itself.
    fn due(&self, is_idle: bool, times: &WaitTimes) -> Option<Instant> {
        if !self.shared.is_flushed() {
            return self.session.view().plan.proxy.timeouts.client.map(|limit| times.stuck + limit);
        }
        let drained = times.draining.map(|since| since + DRAIN_MAX);
        let drained = drained.filter(|_| self.shared.look(|protocol| !protocol.is_drain_final()));
        let request = if is_idle { self.session.request_due(self.connection.accepted, times.idle) } else { None };
        drained.into_iter().chain(request).min()
    }

    /// Whether it is to leave for another process, and can: nothing is in work, and nothing waits for the client.
    fn may_leave(&self, has_ended: bool) -> bool {
        self.core.is_to_leave(self.connection.orders())
            && !has_ended
            && !self.is_failed.get()
            && self.streams.borrow().is_empty()
            && self.shared.is_flushed()
            && !self.shared.look(Protocol::is_draining)
    }

    /// Sends it off to the process that has taken over. Whether it has left; otherwise it stays.
    #[cold]
    fn leave(&self, input: &Option<Buffer>, deadline: &Deadline) -> bool {
        let (core, connection, session) = (&self.core, &self.connection, &self.session);
        let sent = match (parts::reason_to_stay(connection, session), core.mover()) {
            (Some(reason), _) => Err(reason),
            (None, None) => Err(StayReason::NoReply),
            (None, Some(mover)) if !mover.takes_http2() => Err(StayReason::Http2),
            (None, Some(mover)) => match parts::departure(core, connection, session, deadline.due()) {
                Ok(mut departure) => {
                    let input = input.as_ref().map(|input| input.to_vec()).unwrap_or_default();
                    let protocol = self.shared.look(Clone::clone);
                    departure.client.http2 = Some(Box::new(Http2State { protocol, input }));
                    mover.send(departure).map_err(|refused| {
                        session.put_state(core, refused.left);
                        connection.stream.put_back(refused.tls.as_deref());
                        StayReason::NoReply
                    })
                }
                Err(_) => Err(StayReason::Descriptors),
            },
        };
        if let Err(reason) = sent {
            core.stays(&connection.membership.registered, reason);
        }
        sent.is_ok()
    }

    /// Tells the client that no more requests are taken, once that is so.
    fn drain_if_due(&self, times: &mut WaitTimes) {
        if times.draining.is_none() && self.is_ending() {
            times.draining = Some(self.core.now());
            self.shared.compose(|protocol, out| protocol.begin_drain(out));
        }
    }

    /// Whether no more requests are to be taken. Where the connection may yet leave for another process they are.
    fn is_ending(&self) -> bool {
        let is_removed = || self.session.slot.is_removed() || self.connection.listener().is_closed();
        match self.connection.orders().order() {
            Order::Run => self.core.draining.get() || is_removed(),
            Order::Move | Order::MoveLater => !self.may_yet_move(),
            Order::CloseIdle | Order::Abort => true,
        }
    }

    fn may_yet_move(&self) -> bool {
        self.core.may_yet_move(self.connection.orders()) && self.core.mover().is_some_and(|mover| mover.takes_http2())
    }

    /// Writes what waits, and reads. Ready when something happened.
    fn poll(
        &self,
        cx: &mut Context<'_>,
        input: &mut Option<Buffer>,
        times: &mut WaitTimes,
        before: WaitStart,
    ) -> Poll<ClientEvent> {
        self.shared.drive(cx);
        let stream = &self.connection.stream;
        match self.shared.flush(|bytes| stream.poll_write(cx, bytes)) {
            Err(_) => return Poll::Ready(ClientEvent::Broken),
            Ok(true) => {
                times.stuck = self.core.now();
                return Poll::Ready(ClientEvent::Changed);
            }
            Ok(false) => {}
        }
        let (is_idle, is_held) = (self.streams.borrow().is_empty(), self.is_held());
        let has_input = input.as_ref().is_some_and(|input| !input.is_empty());
        let order = self.connection.orders().order();
        let is_to_end = order != Order::Abort && times.draining.is_none() && self.is_ending();
        let leaves = order == Order::Move && self.may_leave(before.has_ended);
        let is_over = self.is_failed.get() || stream.is_forgotten();
        if is_to_end || leaves || is_over || (is_idle && !before.is_idle) || (before.is_held && !is_held) {
            return Poll::Ready(ClientEvent::Changed);
        }
        if before.has_ended || is_held {
            return Poll::Pending;
        }
        if is_idle && !has_input {
            // An idle connection holds no buffer.
            if let Some(input) = input.take() {
                self.core.buffers.give(input);
                self.shared.compose(|protocol, _| protocol.shrink());
                self.streams.borrow_mut().shrink();
            }
            ready!(stream.poll_readable(cx));
        }
        let input = input.get_or_insert_with(|| self.core.buffers.take());
        stream.poll_read(cx, input.room()).map(|read| match read {
            Ok(count) => {
                input.filled(count);
                ClientEvent::Read(count)
            }
            Err(_) => ClientEvent::Broken,
        })
    }

    /// Whether so much waits, for the client or in work, that no more is read. As many streams as are allowed are no reason: one more is
    /// refused. But a client that has given streams up does not know that they are in work still, and may be right to begin others.
    fn is_held(&self) -> bool {
        self.shared.is_full() || self.shared.has_given_up() && self.shared.look(Protocol::is_crowded)
    }

    /// Takes what came.
    fn take_events(self: &Rc<Self>, input: &mut Option<Buffer>, times: &mut WaitTimes) -> Result<(), Violation> {
        let Some(input) = input else { return Ok(()) };
        let now = self.core.now();
        if now.saturating_duration_since(times.refilled) >= REFILL {
            times.refilled = now;
            self.shared.compose(|protocol, _| protocol.refill());
        }
        while !input.is_empty() && !self.is_held() && !self.is_failed.get() {
            let received = self.shared.compose(|protocol, out| protocol.receive(input, out))?;
            let has_more = received.event.is_some();
            if let Some(event) = received.event {
                self.take_event(event);
            }
            input.consume(received.consumed);
            if !has_more {
                break;
            }
        }
        Ok(())
    }

    /// Adds what happened to the counters of the frontend (`h2_*` of `show stat`).
    fn count(&self) {
        let counts = self.shared.compose(|protocol, _| protocol.take_counts());
        if counts == Counts::default() {
            return;
        }
        self.session.view().plan.state.counters.of(self.core.number).add_http2(counts);
    }

    fn take_event(self: &Rc<Self>, event: Event<'_>) {
        let Some(event) = self.shared.pass(event, &self.streams) else { return };
        let at = |stream: u32| self.streams.borrow().get(stream).cloned();
        match event {
            Event::Head { stream, ends } => begin::request(self, stream, ends),
            Event::HeadTooLarge { stream, ends } => begin::refused(self, stream, ends),
            Event::Reset { stream, code } => {
                at(stream).inspect(|at| at.stream.receive_reset(code));
            }
            Event::Failed { stream, violation } => match at(stream) {
                Some(at) => at.stream.fail(),
                None => begin::malformed(self, violation),
            },
            Event::Data { .. }
            | Event::Trailers { .. }
            | Event::Window { .. }
            | Event::Settings
            | Event::Interim { .. }
            | Event::Pong { .. }
            | Event::GoAway { .. } => {}
        }
    }

    /// The connection cannot go on: what was said about it is sent, and nothing else.
    fn fail(&self) {
        self.is_failed.set(true);
        self.for_all(Http2Stream::fail);
        self.shared.wake();
    }

    /// A rule does not want the client: as HAProxy does, it is told to calm down, and closed.
    fn reject(&self, stream: &Http2Stream) {
        stream.reset(ErrorCode::ENHANCE_YOUR_CALM);
        self.shared.compose(|protocol, out| protocol.abort(ErrorCode::ENHANCE_YOUR_CALM, "", out));
        self.fail();
    }

    /// Nothing more is read or written: exchanges in work end. What the connection was told, they are told.
    fn give_up(&self) {
        if self.connection.orders().order() == Order::Abort {
            let streams: Vec<_> = self.streams.borrow().values().cloned().collect();
            return streams.iter().for_each(|at| at.orders().give(Order::Abort));
        }
        self.for_all(Http2Stream::receive_loss);
    }

    fn for_all(&self, tell: fn(&Http2Stream)) {
        let streams: Vec<_> = self.streams.borrow().values().cloned().collect();
        streams.iter().for_each(|at| tell(&at.stream));
    }

    /// A request has its task.
    fn begin(self: &Rc<Self>, stream: Http2Stream, messages: Box<Messages>) {
        let (core, id) = (&self.core, stream.id());
        let notes = &self.connection.orders().notes;
        let registered = core.enter_stream();
        registered.orders.notes.is_stream_of(notes);
        let now = core.moment(core.now());
        notes.begins(self.session.requests().saturating_add(1), now);
        let frontend = self.session.view().plan.state.clone();
        frontend.counters.add(core.number, Counter::Http2Streams, 1);
        frontend.http2_streams.fetch_add(1, Ordering::Relaxed);
        let at = Rc::new(InWork { stream, registered, frontend });
        self.streams.borrow_mut().insert(id, at.clone());
        self.tasks.begin((StreamGuard { client: self.clone(), at }, messages));
    }
}

impl AsRef<Http2Stream> for InWork {
    fn as_ref(&self) -> &Http2Stream {
        &self.stream
    }
}

impl InWork {
    fn orders(&self) -> &Orders {
        &self.registered.orders
    }
}

/// A stream among those of its connection, whose exchange gives it back however it ends.
#[derive(Debug)]
struct StreamGuard {
    client: Rc<Http2Client>,
    at: Rc<InWork>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let StreamGuard { client, at } = self;
        at.stream.release();
        at.frontend.http2_streams.fetch_sub(1, Ordering::Relaxed);
        let mut streams = client.streams.borrow_mut();
        streams.remove(at.stream.id());
        if streams.is_empty() {
            client.connection.orders().notes.rests();
        }
        drop(streams);
        client.shared.wake();
    }
}

/// Passes the request path with the request that waits at its task's place.
async fn exchange(place: Rc<Place>) {
    let Some(((guard, messages), mut deadline)) = place.take() else { return };
    let StreamGuard { client, at } = &guard;
    let (core, stream) = (&client.core, &at.stream);
    deadline.set(None);
    let origin = Origin {
        connection: &client.connection,
        session: &client.session,
        client: Transport::Http2(stream),
        orders: at.orders(),
        deadline: &mut deadline,
    };
    let mut exchange = Exchange::of_http(core, origin, messages);
    exchange.take_handed_on();
    // The next one's idle time begins here (configuration manual, 8.4 "Timing events").
    client.session.rests(client.connection.accepted, core.now());
    match request::serve(core, &mut exchange).await {
        Ending::Kept | Ending::Closed { .. } => sink::end(exchange.client, &exchange.messages.response_chunks),
        Ending::Broken if exchange.facts.ruled == Some(Ruled::Denied) => client.reject(stream),
        Ending::Broken | Ending::Left => stream.reset(ErrorCode::CANCEL),
    }
    exchange.end(core);
    if let Some(unused) = core.rest(exchange.messages) {
        core.buffers.give(unused);
    }
    place.rests(deadline);
}
