//! One core: its runtime's state, its view of the generation, its connections.
//!
//! Everything in here belongs to one thread. What crosses threads is a [`Command`](crate::Command), a counter, or the
//! balancer behind its lock.

mod http2_clients;
mod notes;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use baton_kernel::process::memory;
use baton_tables::{Now, Table};
use slab::Slab;

use crate::buffer::{Buffer, BufferPool};
use crate::clock::Clock;
use crate::deadline::Deadline;
use crate::generation::{Generation, ListenerPlan};
use crate::http2_server::{ConnectionMemory, HeadPool, Http2Server};
use crate::log::LogWriter;
use crate::messages::Messages;
use crate::moving::{InTransit, Mover, ServerArrival, StayReason};
use crate::pipes::Pipes;
use crate::pool::Upstreams;
use crate::server_connection::ServerConnection;
use crate::spare::Spare;
use crate::state::{ByName, Registry};
use crate::stream::RecordPool;
use crate::transport::OutPool;
use crate::view::{FrontendSlot, FrontendView};

use self::http2_clients::Http2Clients;
pub use self::http2_clients::Http2Membership;
pub use self::notes::{Moment, ServerMark, SessionDescription, SessionNotes, SessionPage};

/// Connections of a core that leave for another process together: few, so that no request waits for long until they have been taken apart.
const MOVED_AT_ONCE: usize = 8;
/// Memory of finished requests that a core keeps for the next ones: of as many as it may have in work at a time, of a few clients with many
/// streams. What is not needed is thinned out every second.
const WORK_KEPT_MAX: usize = 4096;
/// Buffers of HTTP/2 connections that a core keeps for the next ones.
const OUTS_KEPT_MAX: usize = 64;
/// Connections that were to leave and are here so long after requests in flight were to leave, too, are named.
const NAMED_AFTER: Duration = Duration::from_millis(200);
/// So many bytes freed at a time are the end of a burst.
const MUCH: usize = 1 << 20;

/// The state of one core.
#[derive(Debug)]
pub struct Core {
    /// Its number, from 0.
    pub number: usize,
    /// What outlives generations.
    pub registry: Arc<Registry>,
    /// Read once per turn.
    pub clock: Rc<Clock>,
    /// Read buffers.
    pub buffers: Rc<BufferPool>,
    /// Memory for encrypted bytes.
    pub records: Rc<RecordPool>,
    /// For splicing.
    pub pipes: Rc<Pipes>,
    /// Idle connections to servers.
    pub upstreams: Rc<Upstreams>,
    /// Where log lines go out.
    pub log: LogWriter,
    /// Whether a soft stop is under way.
    pub draining: Cell<bool>,
    /// Within which time idle connections end in a soft stop.
    spread: Cell<Option<Duration>>,
    /// Where connections go, when another process has taken over.
    mover: RefCell<Option<Mover>>,
    /// Whether requests in flight leave, too: their time to end where they are is over.
    requests_leave: Cell<bool>,
    /// Whether all idle connections to servers had their turn to leave: those that become idle now follow.
    servers_have_left: Cell<bool>,
    frontends: RefCell<HashMap<Arc<str>, Rc<FrontendSlot>>>,
    /// Stick tables, as this core holds them.
    tables: RefCell<ByName<Arc<Table>>>,
    /// The time of tables that was computed last, and for when.
    turn_of_tables: Cell<Option<(Instant, Now)>>,
    connections: RefCell<Slab<Rc<Orders>>>,
    /// Those of clients that speak HTTP/2.
    pub http2_clients: Http2Clients,
    /// Connections that came so far.
    serial: Cell<u32>,
    /// Exchanges that were begun.
    exchanges: Cell<u64>,
    /// Working memory of rules.
    pub scratch: RefCell<Vec<u8>>,
    spare: Spare<Box<Messages>>,
    /// What waits to be sent on connections that have several exchanges, or to be taken by these.
    pub outs: Rc<OutPool>,
    /// Heads of responses that wait for their exchanges.
    heads: Rc<HeadPool>,
    open: Arc<AtomicUsize>,
    random: Cell<u64>,
}

/// What a core tells the task of one client connection.
#[derive(Debug, Default)]
pub struct Orders {
    /// Tells it from a connection that had its place before.
    serial: u32,
    /// It is one of several exchanges of a connection, which does not leave by itself.
    is_stream: bool,
    order: Cell<Order>,
    /// Why it could not move, as far as that is known from its beginning.
    bound: Cell<Option<StayReason>>,
    /// Why it does not move, since it was to, or does not yet.
    stays: Cell<Option<StayReason>>,
    /// The request in flight cannot move: its connection may when it is over.
    is_held: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// What is known of the connection, for operators.
    pub notes: SessionNotes,
}

/// A connection of a core, whether or not it is open still.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionId {
    core: usize,
    key: usize,
    serial: u32,
}

/// An order to a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// Go on.
    #[default]
    Run,
    /// Leave for another process, when it is its turn.
    MoveLater,
    /// Leave for another process as soon as no request is in flight.
    Move,
    /// End as soon as no request is in flight.
    CloseIdle,
    /// End now.
    Abort,
}

/// Why a wait ended without its event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interrupt {
    /// The deadline passed.
    Timeout,
    /// The connection was told to end.
    Abort,
}

impl Core {
    /// A core without a generation.
    pub fn new(
        number: usize,
        registry: Arc<Registry>,
        clock: Rc<Clock>,
        open: Arc<AtomicUsize>,
        bufsize: usize,
    ) -> Core {
        let pipes = Rc::new(Pipes::new(registry.pipes.clone(), registry.sums.clone()));
        let upstreams = Rc::new(Upstreams::new(clock.clone(), number, registry.cores()));
        let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1) ^ u64::from(std::process::id());
        Core {
            number,
            registry,
            log: LogWriter::new(clock.clone()),
            clock,
            buffers: Rc::new(BufferPool::new(bufsize)),
            records: Rc::default(),
            pipes,
            upstreams,
            draining: Cell::new(false),
            spread: Cell::new(None),
            mover: RefCell::default(),
            requests_leave: Cell::new(false),
            servers_have_left: Cell::new(false),
            frontends: RefCell::default(),
            tables: RefCell::default(),
            turn_of_tables: Cell::default(),
            connections: RefCell::default(),
            http2_clients: Http2Clients::default(),
            serial: Cell::new(0),
            exchanges: Cell::new(0),
            scratch: RefCell::default(),
            spare: Spare::new(WORK_KEPT_MAX),
            outs: Rc::new(OutPool::new(OUTS_KEPT_MAX)),
            heads: Rc::new(HeadPool::new(WORK_KEPT_MAX)),
            open,
            random: Cell::new(seed | 1),
        }
    }

    /// The instant of this turn.
    #[inline]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The date and time of this turn.
    pub fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// The time of this turn, in few bytes.
    pub fn moment(&self, at: Instant) -> Moment {
        Moment::at(at, self.registry.started)
    }

    /// The number of one more exchange: unique in the process, and in order on a core.
    pub fn next_number(&self) -> u64 {
        let number = self.exchanges.get();
        self.exchanges.set(number + 1);
        number * self.registry.cores() as u64 + self.number as u64
    }

    /// A number for balancing and spreading; not for secrets (xorshift64*).
    pub fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Works by `generation` from the next request on.
    pub fn apply(&self, generation: &Arc<Generation>) {
        self.log.apply(&generation.model);
        self.pipes.allow(generation.model.pipes_max() as usize);
        self.take_tables();
        let mut frontends = self.frontends.borrow_mut();
        let views = FrontendView::all(&self.log, generation);
        for (name, slot) in frontends.iter() {
            if !views.contains_key(name) {
                slot.remove();
            }
        }
        frontends.retain(|name, _| views.contains_key(name));
        for (name, view) in views {
            match frontends.get(&name) {
                Some(slot) => slot.replace(view),
                None => {
                    frontends.insert(name, Rc::new(FrontendSlot::new(view)));
                }
            }
        }
        drop(frontends);
        self.log.forget_unused();
        self.upstreams.retire(generation);
        let has_other_addresses = generation.added_to.is_none() && generation.removed.is_none();
        if has_other_addresses {
            self.end_http2_of_removed();
        }
    }

    /// Ends idle connections with HTTP/2 that came by addresses, or frontends, which are not in the configuration any more.
    pub fn end_http2_of_removed(&self) {
        let frontends = self.frontends.borrow();
        let is_removed = |listener: &ListenerPlan| {
            let slot = frontends.get(&listener.frontend.proxy.name);
            slot.is_none_or(|slot| {
                !slot.view().plan.proxy.binds.iter().any(|bind| bind.address == listener.bind.address)
            })
        };
        self.http2_clients.end(is_removed);
    }

    /// What it lends to connections to servers that carry several requests.
    pub fn connection_memory(&self) -> ConnectionMemory {
        ConnectionMemory {
            core: self.number,
            clock: self.clock.clone(),
            buffers: self.buffers.clone(),
            outs: self.outs.clone(),
            heads: self.heads.clone(),
        }
    }

    /// Takes up the stick tables of the generation in use: those that stay are held as before.
    fn take_tables(&self) {
        let all = self.registry.tables.all();
        let mut own = self.tables.borrow_mut();
        own.retain(|_, table| all.iter().any(|one| one.is(table)));
        for table in all {
            own.entry(table.name().clone()).or_insert_with(|| table.own());
        }
    }

    /// The stick table of that name.
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.tables.borrow().get(name).cloned()
    }

    /// The time of stick tables, of this turn.
    #[inline]
    pub fn table_now(&self) -> Now {
        let now = self.now();
        match self.turn_of_tables.get() {
            // A request asks several times.
            Some((instant, shown)) if instant == now => shown,
            _ => {
                let shown = self.registry.timeline.at(now);
                self.turn_of_tables.set(Some((now, shown)));
                shown
            }
        }
    }

    /// The frontend of this name in the generation that was applied last.
    pub fn frontend(&self, name: &str) -> Option<Rc<FrontendSlot>> {
        self.frontends.borrow().get(name).cloned()
    }

    /// Frees what was not needed lately. What a burst leaves goes back to the system at once.
    pub fn thin(&self) {
        self.spare.thin();
        self.outs.thin();
        self.heads.thin();
        let freed = self.buffers.thin() + self.records.thin();
        if freed >= MUCH {
            memory::purge();
        } else {
            memory::decay();
        }
    }

    /// Memory for a request that is read into this buffer.
    pub fn messages(&self, input: Buffer) -> Box<Messages> {
        match self.spare.take() {
            Some(mut messages) => {
                messages.input = input;
                messages
            }
            None => Box::new(Messages::new(input)),
        }
    }

    /// Takes the memory back, and returns the bytes of the next request.
    pub fn rest(&self, mut messages: Box<Messages>) -> Option<Buffer> {
        let input = messages.clear(&self.buffers);
        self.spare.give(messages);
        input
    }

    /// Soft stop: idle connections end within `spread`; without it those with HTTP/2 at once, the others at their own timeout.
    pub fn drain(self: &Rc<Self>, spread: Option<Duration>) {
        self.draining.set(true);
        self.spread.set(spread);
        let Some(spread) = spread else { return self.http2_clients.end(|_| true) };
        // By their ids: those that end meanwhile are not held until it is their turn, and whoever has their place then is left alone.
        let mut open = self.ids();
        if self.mover.borrow().is_some() {
            // The others leave for another process.
            open.retain(|id| self.connections.borrow().get(id.key).is_some_and(|orders| orders.stays.get().is_some()));
        }
        let core = self.clone();
        tokio::task::spawn_local(async move {
            let count = open.len().max(1) as u32;
            for connection in open {
                core.order(connection, Order::CloseIdle);
                tokio::time::sleep(spread / count).await;
            }
        });
    }

    /// Ends every connection now.
    pub fn abort(&self) {
        for connection in self.ids() {
            self.order(connection, Order::Abort);
        }
    }

    /// Another process has taken over: connections leave for it as soon as they can.
    pub fn begin_moving(self: &Rc<Self>, mover: Mover) {
        let (core, patience) = (Rc::downgrade(self), mover.patience());
        *self.mover.borrow_mut() = Some(mover.clone());
        let connections = self.connections.borrow();
        let mut all: Vec<Rc<Orders>> =
            connections.iter().filter(|(_, orders)| !orders.is_stream).map(|(_, orders)| orders.clone()).collect();
        drop(connections);
        all.retain(|orders| match orders.bound.get() {
            Some(reason) => {
                self.note_stay(orders, reason);
                false
            }
            None => orders.order.get() != Order::Abort,
        });
        all.iter().for_each(|orders| orders.order.set(Order::MoveLater));
        tokio::task::spawn_local(in_turn(Rc::downgrade(self), all, mover.clone()));
        tokio::task::spawn_local(async move {
            let Some(patience) = patience else { return };
            tokio::time::sleep(patience).await;
            let Some(core) = core.upgrade() else { return };
            core.requests_leave.set(true);
            for some in core.leaving().chunks(MOVED_AT_ONCE) {
                mover.room().await;
                some.iter().filter(|orders| core.moves(orders)).for_each(|orders| orders.give(Order::Move));
                tokio::task::yield_now().await;
                mover.pass_on();
            }
            tokio::time::sleep(NAMED_AFTER).await;
            core.leaving().iter().for_each(|orders| core.note_delay(orders, StayReason::InFlight));
        });
    }

    /// Those that have not left.
    fn leaving(&self) -> Vec<Rc<Orders>> {
        let connections = self.connections.borrow();
        connections
            .iter()
            .filter(|(_, orders)| !orders.is_stream && self.moves(orders))
            .map(|(_, orders)| orders.clone())
            .collect()
    }

    /// Keeps a connection to a server for another request: of this process, or of the one that has taken over if the client leaves for it.
    pub fn keep_server(&self, connection: Box<ServerConnection>, leaves: bool) {
        let mover = self.mover.borrow();
        match mover.as_ref().filter(|mover| leaves && mover.takes_servers()) {
            Some(mover) => mover.send_server(*connection),
            None => self.upstreams.give(connection),
        }
    }

    /// A stream of a connection to a server was given back, by a client that leaves or stays. A connection that is idle by that may go with it.
    pub fn server_rests(&self, server: &Rc<Http2Server>, leaves: bool) {
        let mover = self.mover.borrow();
        let goes = |mover: &&Mover| (leaves || self.servers_have_left.get()) && mover.takes_http2_servers();
        match mover.as_ref().filter(goes) {
            Some(mover) if self.upstreams.release(server) => mover.send_http2_server(server),
            _ => self.upstreams.rests(server),
        }
    }

    /// An idle connection to a server has come from another process. It goes on to the one that has taken over, if there is one.
    pub fn adopt_server(&self, arrival: ServerArrival) {
        let ServerArrival { mut idle, server, config, encryption, backend, counters } = arrival;
        let http2 = idle.http2.take();
        let connection = ServerConnection::arrive(idle, server, (config, encryption), &self.records);
        if connection.is_http2() != http2.is_some() {
            return;
        }
        if let Some(state) = http2 {
            let (patience, memory) = (backend.proxy.timeouts.server, self.connection_memory());
            let server = Http2Server::resume(connection, *state, &backend.figures, patience, memory);
            return match self.mover() {
                Some(mover) => mover.send_http2_server(&server),
                None => self.upstreams.adopt_http2(&server, counters),
            };
        }
        if self.mover.borrow().is_some() {
            self.keep_server(Box::new(connection), true)
        } else {
            self.upstreams.adopt(Box::new(connection), counters)
        }
    }

    /// Where a connection goes that can leave.
    pub fn mover(&self) -> Option<Mover> {
        self.mover.borrow().clone()
    }

    /// Whether this connection leaves for another process once no request is in flight.
    pub fn moves(&self, orders: &Orders) -> bool {
        matches!(orders.order(), Order::Move | Order::MoveLater) && self.mover.borrow().is_some()
    }

    /// Whether it is its turn to leave.
    pub fn is_to_leave(&self, orders: &Orders) -> bool {
        orders.order() == Order::Move && self.mover.borrow().is_some()
    }

    /// Whether a tunnel of this connection leaves for another process with what waits in it.
    #[inline]
    pub fn bytes_move(&self, orders: &Orders) -> bool {
        self.request_moves(orders) && self.mover.borrow().as_ref().is_some_and(Mover::takes_held)
    }

    /// Whether this connection leaves for another process in the middle of a request's head.
    #[inline]
    pub fn head_moves(&self, orders: &Orders) -> bool {
        orders.order() == Order::Move && self.mover.borrow().as_ref().is_some_and(Mover::takes_heads)
    }

    /// Whether a request in flight of this connection leaves for another process in the middle.
    #[inline]
    pub fn request_moves(&self, orders: &Orders) -> bool {
        self.requests_leave.get() && self.moves(orders) && !orders.is_held.get()
    }

    /// Whether this connection, which has several requests in flight, may yet leave between them: a client is told that it takes no more only
    /// after that.
    pub fn may_yet_move(&self, orders: &Orders) -> bool {
        !self.requests_leave.get() && self.moves(orders)
    }

    /// The request in flight of this connection cannot leave. When it is over, the connection may.
    pub fn holds_request(&self, orders: &Orders, reason: StayReason) {
        orders.is_held.set(true);
        self.note_delay(orders, reason);
    }

    /// This connection will not be able to leave.
    pub fn bind(&self, orders: &Orders, reason: StayReason) {
        orders.bound.set(Some(reason));
        if self.mover.borrow().is_some() {
            self.note_stay(orders, reason);
        }
    }

    /// This connection was to leave and stays: it ends as in every soft stop.
    pub fn stays(self: &Rc<Self>, registered: &Registered, reason: StayReason) {
        self.note_stay(&registered.orders, reason);
        if let Some(spread) = self.spread.get().filter(|_| self.draining.get()) {
            let (core, id) = (self.clone(), registered.id());
            let wait = spread.mul_f64((self.random() >> 11) as f64 / (1_u64 << 53) as f64);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(wait).await;
                core.order(id, Order::CloseIdle);
            });
        }
    }

    fn note_stay(&self, orders: &Orders, reason: StayReason) {
        if orders.stays.get() == Some(StayReason::InFlight) {
            orders.stays.set(None);
            self.registry.moves.ended(StayReason::InFlight);
        }
        self.note_delay(orders, reason);
        if matches!(orders.order(), Order::Move | Order::MoveLater) {
            orders.order.set(Order::Run);
        }
    }

    /// It has not left, and may later.
    fn note_delay(&self, orders: &Orders, reason: StayReason) {
        if orders.stays.get().is_none() {
            orders.stays.set(Some(reason));
            self.registry.moves.stays(reason);
        }
    }

    /// Counts a connection that leaves among the open ones, until it has arrived.
    pub fn count_in_transit(&self) -> InTransit {
        InTransit::count(&self.open)
    }

    /// Its connections.
    fn ids(&self) -> Vec<ConnectionId> {
        let id = |(key, orders): (usize, &Rc<Orders>)| ConnectionId { core: self.number, key, serial: orders.serial };
        self.connections.borrow().iter().map(id).collect()
    }

    /// Gives an order to one connection. False: it is gone, or another core's.
    pub fn order(&self, connection: ConnectionId, order: Order) -> bool {
        let ConnectionId { core, key, serial } = connection;
        let orders = self.connections.borrow().get(key).cloned();
        match orders.filter(|orders| core == self.number && orders.serial == serial) {
            Some(orders) => {
                orders.give(order);
                true
            }
            None => false,
        }
    }

    /// Describes its connections from this place on, at most so many.
    pub fn describe(&self, from: usize, most: usize) -> SessionPage {
        let connections = self.connections.borrow();
        let end = connections.capacity();
        let mut page = SessionPage::default();
        let mut key = from;
        while key < end && page.looked_at < most {
            if let Some(orders) = connections.get(key) {
                let id = ConnectionId { core: self.number, key, serial: orders.serial };
                page.sessions.extend(orders.notes.describe(id, self.registry.started));
            }
            page.looked_at += 1;
            key += 1;
        }
        page.next = (key < end).then_some(key);
        page
    }

    /// The connection at this place, if it is the one of this id.
    pub fn describe_one(&self, id: ConnectionId) -> Option<SessionDescription> {
        let orders = self.connections.borrow().get(id.key).cloned();
        orders
            .filter(|orders| id.core == self.number && orders.serial == id.serial)?
            .notes
            .describe(id, self.registry.started)
    }

    /// Ends the sessions that are on this server now. How many.
    pub fn end_sessions_of(&self, server: ServerMark) -> usize {
        let on_it =
            |id: &ConnectionId| self.connections.borrow().get(id.key).is_some_and(|orders| orders.notes.is_on(server));
        let ids: Vec<ConnectionId> = self.ids().into_iter().filter(on_it).collect();
        ids.iter().filter(|id| self.order(**id, Order::Abort)).count()
    }

    /// Registers a client connection for as long as the guard lives.
    pub fn enter(self: &Rc<Self>) -> Registered {
        self.open.fetch_add(1, Ordering::Relaxed);
        let (orders, key) = self.register(false);
        Registered { core: self.clone(), orders, key }
    }

    /// Registers one of several exchanges of a connection, which operators see and end like a connection, for as long as the guard lives.
    pub fn enter_stream(self: &Rc<Self>) -> RegisteredStream {
        let (orders, key) = self.register(true);
        RegisteredStream { core: self.clone(), orders, key }
    }

    fn register(&self, is_stream: bool) -> (Rc<Orders>, usize) {
        let serial = self.serial.get().wrapping_add(1);
        self.serial.set(serial);
        // One that is accepted, or comes from elsewhere, while the others leave goes, too.
        let leaves = !is_stream && self.mover.borrow().is_some();
        let order = Cell::new(if leaves { Order::Move } else { Order::Run });
        let orders = Rc::new(Orders { serial, is_stream, order, ..Orders::default() });
        let key = self.connections.borrow_mut().insert(orders.clone());
        (orders, key)
    }
}

/// A registered client connection.
#[derive(Debug)]
pub struct Registered {
    /// The core.
    pub core: Rc<Core>,
    /// What it is told.
    pub orders: Rc<Orders>,
    key: usize,
}

impl Registered {
    /// By what its core knows it.
    pub fn id(&self) -> ConnectionId {
        ConnectionId { core: self.core.number, key: self.key, serial: self.orders.serial }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.core.connections.borrow_mut().remove(self.key);
        if let Some(reason) = self.orders.stays.get() {
            self.core.registry.moves.ended(reason);
        }
        self.core.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of several exchanges of a connection, registered by itself.
#[derive(Debug)]
pub struct RegisteredStream {
    core: Rc<Core>,
    /// What it is told.
    pub orders: Rc<Orders>,
    key: usize,
}

impl Drop for RegisteredStream {
    fn drop(&mut self) {
        self.core.connections.borrow_mut().remove(self.key);
    }
}

/// Connections leave a few at a time, and are served here until it is their turn: on its way, a connection is served by nobody. Before them
/// leave as many of the idle connections to servers, which they will need.
async fn in_turn(core: Weak<Core>, all: Vec<Rc<Orders>>, mover: Mover) {
    let servers_leave = |part, whole| {
        let Some(core) = core.upgrade() else { return };
        if mover.takes_servers() {
            core.upstreams.take_idle(part, whole).into_iter().for_each(|connection| mover.send_server(*connection));
        }
        if mover.takes_http2_servers() {
            core.upstreams.take_idle_http2(part, whole).iter().for_each(|server| mover.send_http2_server(server));
        }
        core.servers_have_left.set(part == whole);
    };
    if all.is_empty() {
        servers_leave(1, 1);
    }
    let mut left = all.len();
    for some in all.chunks(MOVED_AT_ONCE) {
        mover.room().await;
        servers_leave(some.len(), left);
        left -= some.len();
        some.iter().filter(|orders| orders.order() == Order::MoveLater).for_each(|orders| orders.give(Order::Move));
        tokio::task::yield_now().await;
        mover.pass_on();
    }
}

impl Orders {
    /// Gives an order; a later one may only be stricter.
    pub fn give(&self, order: Order) {
        if self.order.get() != Order::Abort {
            self.order.set(order);
        }
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// The order in force.
    pub fn order(&self) -> Order {
        self.order.get()
    }

    /// Remembers whom to wake; a clone of the waker is made once for a connection's life.
    fn listen(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}

/// Polls `event` until it is ready, the deadline passes or the connection is aborted.
pub async fn until<T>(
    core: &Core,
    orders: &Orders,
    deadline: &mut Deadline,
    mut event: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, Interrupt> {
    std::future::poll_fn(|cx| poll_until(core, orders, deadline, cx, &mut event)).await
}

/// One poll of [`until`].
#[inline]
pub fn poll_until<T>(
    core: &Core,
    orders: &Orders,
    deadline: &mut Deadline,
    cx: &mut Context<'_>,
    event: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<Result<T, Interrupt>> {
    if let Poll::Ready(value) = event(cx) {
        return Poll::Ready(Ok(value));
    }
    if orders.order() == Order::Abort {
        return Poll::Ready(Err(Interrupt::Abort));
    }
    orders.listen(cx);
    if deadline.has_fired() {
        core.clock.refresh();
    }
    deadline.poll_expired(cx, core.now()).map(|()| Err(Interrupt::Timeout))
}

#[cfg(test)]
mod tests {
    use crate::moving::{MoveTerms, ON_WAY_MIN};

    use super::*;

    fn core(number: usize) -> Rc<Core> {
        let registry = Arc::new(Registry::new(2, Instant::now()));
        Rc::new(Core::new(number, registry, Rc::new(Clock::new()), Arc::default(), 1024))
    }

    #[tokio::test(start_paused = true)]
    async fn connections_leave_in_turn_and_are_served_until_then() {
        let core = core(0);
        let open: Vec<_> = (0..3 * MOVED_AT_ONCE).map(|_| core.enter()).collect();
        let (mover, _moved) = Mover::new(MoveTerms::default());
        let leaving = || open.iter().filter(|one| core.is_to_leave(&one.orders)).count();
        let wait = async || tokio::time::sleep(Duration::from_millis(1)).await;
        let check = async || {
            let mut on_way: Vec<_> = (0..ON_WAY_MIN).map(|_| mover.begin_way()).collect();
            core.begin_moving(mover.clone());
            wait().await;
            assert!(open.iter().all(|one| core.moves(&one.orders)) && leaving() == 0, "so many are on their way");
            on_way.pop();
            on_way.push(mover.begin_way());
            wait().await;
            assert_eq!(leaving(), 0, "another one is in its place");
            on_way.clear();
            wait().await;
            assert_eq!(leaving(), open.len(), "none of these has been sent off");
        };
        tokio::task::LocalSet::new().run_until(check()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn cores_take_turns_when_there_is_room() {
        let cores = [core(0), core(1)];
        let open: Vec<_> = cores.iter().map(|core| core.enter()).collect();
        let (mover, _moved) = Mover::new(MoveTerms::default());
        let check = async || {
            let mut on_way: Vec<_> = (0..ON_WAY_MIN).map(|_| mover.begin_way()).collect();
            cores.iter().for_each(|core| core.begin_moving(mover.clone()));
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(!cores[0].is_to_leave(&open[0].orders) && !cores[1].is_to_leave(&open[1].orders));
            // One has room; whoever was woken wakes the next one when nothing of it was sent off.
            on_way.pop();
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(cores[0].is_to_leave(&open[0].orders) && cores[1].is_to_leave(&open[1].orders));
        };
        tokio::task::LocalSet::new().run_until(check()).await;
    }

    #[tokio::test]
    async fn whoever_comes_while_the_others_leave_goes_too() {
        let core = core(0);
        let before = core.enter();
        let (mover, _moved) = Mover::new(MoveTerms::default());
        let check = async || {
            core.begin_moving(mover);
            let (accepted, back) = (core.enter(), core.enter());
            core.stays(&back, StayReason::Full);
            assert!(core.moves(&before.orders) && core.is_to_leave(&accepted.orders));
            assert!(!core.moves(&back.orders), "it was sent back");
            assert_eq!(core.enter_stream().orders.order(), Order::Run, "it leaves with its connection");
        };
        tokio::task::LocalSet::new().run_until(check()).await;
    }

    #[test]
    fn an_order_reaches_the_one_connection_it_is_for() {
        let (core, elsewhere) = (core(0), core(1));
        let (one, other) = (core.enter(), core.enter());
        assert!(!elsewhere.order(one.id(), Order::Abort), "another core's");
        assert!(core.order(one.id(), Order::CloseIdle));
        assert_eq!([one.orders.order(), other.orders.order()], [Order::CloseIdle, Order::Run]);
        let gone = one.id();
        drop(one);
        let next = core.enter();
        assert_eq!(next.id().key, gone.key, "the place is taken again");
        assert!(!core.order(gone, Order::Abort));
        assert_eq!([next.orders.order(), other.orders.order()], [Order::Run; 2]);
        core.abort();
        assert_eq!([next.orders.order(), other.orders.order()], [Order::Abort; 2]);
    }

    #[test]
    fn a_soft_stop_holds_no_connection_that_ends_before_its_turn() {
        const SPREAD: Duration = Duration::from_secs(60);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build_local(tokio::runtime::LocalOptions::default());
        runtime.expect("a runtime").block_on(async {
            let core = core(0);
            let (first, second, third) = (core.enter(), core.enter(), core.enter());
            core.drain(Some(SPREAD));
            tokio::time::sleep(SPREAD / 6).await;
            let orders = [&first, &second, &third].map(|connection| connection.orders.order());
            assert_eq!(orders, [Order::CloseIdle, Order::Run, Order::Run]);
            let ended = Rc::downgrade(&second.orders);
            drop(second);
            assert!(ended.upgrade().is_none());
            let next = core.enter();
            tokio::time::sleep(SPREAD).await;
            assert_eq!([&next, &third].map(|connection| connection.orders.order()), [Order::Run, Order::CloseIdle]);
        });
    }
}
