//! Connections to servers that may be used again, those of one core, by server. They never cross cores. One that speaks HTTP/1 is here while
//! it is idle, and lent to one request at a time; one that speaks HTTP/2 is here as long as it lives, and lends out its streams.

mod opening;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{Server, ServerProtocol};

use crate::balance::{ServerState, Slot};
use crate::clock::Clock;
use crate::generation::Generation;
use crate::http2_server::{Http2Server, ServerStream};
use crate::server_connection::ServerConnection;
use crate::server_exchange::ServerExchange;
use crate::state::CounterBlock;
use crate::supervise;

pub use self::opening::{OpeningConnection, OpeningGuard};

/// How often connections that were closed by their server, or are not needed any more, are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The idle connections of a core.
#[derive(Debug)]
pub struct Upstreams {
    clock: Rc<Clock>,
    /// Which of them this is.
    core: usize,
    /// How many cores share what servers may have idle.
    cores: usize,
    pools: RefCell<HashMap<usize, Pool, BuildHasherDefault<AddressHasher>>>,
    sweeping: Cell<bool>,
    /// Idle connections of all pools together.
    idle: Cell<usize>,
    /// The most of them: the core's share of the descriptors that clients and their servers leave.
    idle_max: Cell<usize>,
}

/// What a core keeps for one server: its counters at hand, and idle connections, the freshest last.
#[derive(Debug)]
struct Pool {
    server: Arc<ServerState>,
    counters: Arc<CounterBlock>,
    #[expect(clippy::vec_box, reason = "they come and go as they are")]
    idle: Vec<Box<ServerConnection>>,
    /// Those that speak HTTP/2, in use or not, the oldest first.
    http2: Vec<Rc<Http2Server>>,
    /// Those that are being opened, and will speak HTTP/2 perhaps.
    opening: Vec<Rc<OpeningConnection>>,
    /// Whether the last one that was opened speaks HTTP/2; `None`: there was none.
    speaks_http2: Option<bool>,
    /// Whose pool it is.
    core: usize,
    /// The fewest that were idle since the last purge: so many were not needed.
    unneeded: usize,
    /// The most requests the server had at once since the last purge: more idle connections than that are of no use.
    peak: usize,
    purged: Instant,
}

impl Pool {
    /// Says how many connections are idle, for statistics.
    fn note(&self) {
        self.counters.of(self.core).set_idle(self.idle_count() as u64);
    }

    fn idle_count(&self) -> usize {
        self.idle.len() + self.http2.iter().filter(|connection| is_spare(connection)).count()
    }

    fn take_stream(&self, slot: &Slot, name: Option<&str>, sharing: Sharing) -> Option<ServerStream> {
        let fits = |connection: &&Rc<Http2Server>| {
            !connection.is_private()
                && connection.connection.name.as_deref() == name
                && sharing.allows(connection)
                && connection.has_room()
                && connection.connection.fits(slot.config(), slot.encryption())
        };
        let found = self.http2.iter().find(fits)?;
        let stream = found.lend();
        if let Sharing::Session(session) = sharing {
            found.set_owner(session);
        }
        self.note();
        Some(stream)
    }

    /// Retires the connections with HTTP/2 that are none of those that `stays` wants.
    fn keep_http2(&mut self, mut stays: impl FnMut(&Http2Server) -> bool) {
        self.http2.retain(|connection| {
            let keeps = !connection.is_closed() && stays(connection);
            if !keeps {
                connection.retire();
            }
            keeps
        });
    }

    /// Retires so many of the connections with HTTP/2 that are `meant`, the oldest first.
    fn close_http2(&mut self, mut count: usize, is_meant: impl Fn(&Http2Server) -> bool) {
        self.keep_http2(|connection| {
            let goes = count > 0 && is_meant(connection);
            count -= usize::from(goes);
            !goes
        });
    }
}

/// Whether a connection with HTTP/2 is idle, and any client may use it.
fn is_spare(connection: &Http2Server) -> bool {
    connection.is_idle() && !connection.is_private()
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.idle.is_empty() || !self.http2.is_empty() {
            self.counters.of(self.core).set_idle(0);
        }
        self.keep_http2(|_| false);
    }
}

/// Which connections a request may be sent over, by `http-reuse`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// `safe`: an idle one; with HTTP/2 also one that carries requests of this session alone.
    Session(usize),
    /// `aggressive`, for the first request of a session: one that has carried a second request already.
    Proven,
    /// Any.
    All,
}

impl Sharing {
    fn allows(self, connection: &Http2Server) -> bool {
        match self {
            Sharing::Session(session) => connection.is_idle() || connection.owner() == Some(session),
            Sharing::Proven => connection.requests() > 1,
            Sharing::All => true,
        }
    }
}

impl Upstreams {
    /// None, on one of so many cores.
    pub fn new(clock: Rc<Clock>, core: usize, cores: usize) -> Upstreams {
        Upstreams {
            clock,
            core,
            cores,
            pools: RefCell::default(),
            sweeping: Cell::new(false),
            idle: Cell::new(0),
            idle_max: Cell::new(0),
        }
    }

    /// A connection for the slot's server on which `name` was asked for, and on which this `protocol` is spoken, if one is wanted. With
    /// HTTP/2 a stream of the oldest one that has room, so that those that are not needed become idle; else an idle one: the last used
    /// of those that carried a second request already, or the oldest one.
    pub fn take(
        &self,
        slot: &Slot,
        name: Option<&str>,
        sharing: Sharing,
        protocol: Option<ServerProtocol>,
    ) -> Option<ServerExchange> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.get_mut(&key(slot.server()))?;
        if !pool.http2.is_empty()
            && protocol != Some(ServerProtocol::H1)
            && let Some(stream) = pool.take_stream(slot, name, sharing)
        {
            return Some(ServerExchange::Http2(stream));
        }
        if protocol == Some(ServerProtocol::H2) {
            return None;
        }
        let proven = sharing == Sharing::Proven;
        let found = loop {
            let asked = |connection: &ServerConnection| connection.name.as_deref() == name;
            let tried = pool.idle.iter().rposition(|connection| connection.requests > 1 && asked(connection));
            let Some(at) =
                tried.or_else(|| pool.idle.iter().position(|connection| asked(connection)).filter(|_| !proven))
            else {
                pool.note();
                return None;
            };
            let connection = pool.idle.remove(at);
            self.idle.set(self.idle.get() - 1);
            if connection.fits(slot.config(), slot.encryption()) && !connection.stream.is_stale() {
                break connection;
            }
        };
        pool.unneeded = pool.unneeded.min(pool.idle.len());
        pool.note();
        Some(ServerExchange::Http1(found))
    }

    /// A connection is about to be opened that may speak HTTP/2: those that it will be good for may wait for it, as long as the guard is held.
    pub fn opens(&self, slot: &Slot, name: Option<&str>, session: Option<usize>) -> Option<OpeningGuard> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.get_mut(&key(slot.server()))?;
        if pool.speaks_http2 == Some(false) {
            return None;
        }
        let (opening, guard) = OpeningConnection::begin(name, session);
        pool.opening.retain(|opening| !opening.is_done());
        pool.opening.push(opening);
        Some(guard)
    }

    /// A connection that is being opened and will have a stream for this request, if it speaks HTTP/2; such a one has so many streams.
    pub fn expect(
        &self,
        slot: &Slot,
        name: Option<&str>,
        sharing: Sharing,
        most: usize,
    ) -> Option<Rc<OpeningConnection>> {
        let pools = self.pools.borrow();
        let pool = pools.get(&key(slot.server()))?;
        pool.opening.iter().find(|opening| opening.expect(name, sharing, most)).cloned()
    }

    /// A connection to the server was opened, and speaks HTTP/2 or does not.
    pub fn note_version(&self, server: &Arc<ServerState>, is_http2: bool) {
        if let Some(pool) = self.pools.borrow_mut().get_mut(&key(server)) {
            pool.speaks_http2 = Some(is_http2);
        }
    }

    /// Keeps a new connection that speaks HTTP/2: its streams may be lent from now on.
    pub fn add_http2(self: &Rc<Self>, connection: &Rc<Http2Server>) {
        let mut pools = self.pools.borrow_mut();
        let Some(pool) = pools.get_mut(&key(&connection.connection.server)) else { return connection.retire() };
        pool.http2.push(connection.clone());
        drop(pools);
        self.sweep_later();
    }

    /// A stream was given back. If its connection is idle by that, and one more than may be (`pool-max-conn`, shared out among the cores, and
    /// what the process may keep), it is closed.
    pub fn rests(&self, connection: &Rc<Http2Server>) {
        if !is_spare(connection) {
            return;
        }
        let mut pools = self.pools.borrow_mut();
        let Some(pool) = pools.get_mut(&key(&connection.connection.server)) else { return };
        let limit = self.limit(&connection.connection.config);
        if pool.idle_count() > limit || self.idle.get() >= self.idle_max.get() {
            pool.keep_http2(|other| !std::ptr::eq(other, &**connection));
        }
        pool.note();
    }

    /// Takes out so many of so many idle connections with HTTP/2 of each server, which no request is sent over any more.
    pub fn take_idle_http2(&self, part: usize, whole: usize) -> Vec<Rc<Http2Server>> {
        let mut taken = Vec::new();
        for pool in self.pools.borrow_mut().values_mut() {
            let mut left = (pool.http2.iter().filter(|one| is_spare(one)).count() * part).div_ceil(whole);
            pool.http2.retain(|one| {
                let goes = left > 0 && is_spare(one);
                if goes {
                    left -= 1;
                    taken.push(one.clone());
                }
                !goes
            });
            pool.note();
        }
        taken
    }

    /// Takes out this connection with HTTP/2, if it is idle and here for all: no request is sent over it any more.
    pub fn release(&self, connection: &Rc<Http2Server>) -> bool {
        let mut pools = self.pools.borrow_mut();
        let Some(pool) = pools.get_mut(&key(&connection.connection.server)) else { return false };
        let before = pool.http2.len();
        if is_spare(connection) {
            pool.http2.retain(|one| !Rc::ptr_eq(one, connection));
        }
        pool.note();
        pool.http2.len() < before
    }

    /// Keeps a connection with HTTP/2 that was idle in another process, if its server may have one more.
    pub fn adopt_http2(self: &Rc<Self>, connection: &Rc<Http2Server>, counters: Arc<CounterBlock>) {
        let server = &connection.connection.server;
        self.counters(server, self.clock.now(), || counters);
        self.note_version(server, true);
        self.add_http2(connection);
        self.rests(connection);
    }

    /// This core's share of the idle connections that a server may have. With a `pool-purge-delay` of 0 it may have none (configuration manual, 5.2).
    fn limit(&self, server: &Server) -> usize {
        match server.pool_max_conn {
            _ if server.pool_purge_delay.is_zero() => 0,
            limit @ 0.. => (limit as usize).div_ceil(self.cores),
            _ => usize::MAX,
        }
    }

    /// The counters of a server, looked up by name the first time only.
    pub fn counters(
        &self,
        server: &Arc<ServerState>,
        now: Instant,
        look_up: impl FnOnce() -> Arc<CounterBlock>,
    ) -> Arc<CounterBlock> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.entry(key(server)).or_insert_with(|| Pool {
            server: server.clone(),
            counters: look_up(),
            idle: Vec::new(),
            http2: Vec::new(),
            opening: Vec::new(),
            speaks_http2: None,
            core: self.core,
            unneeded: 0,
            peak: 0,
            purged: now,
        });
        pool.peak = pool.peak.max(server.served() as usize);
        pool.counters.clone()
    }

    /// Keeps a connection for later, if its server may have one more (`pool-max-conn`, shared out among the cores) and had
    /// that many requests at once lately.
    pub fn give(self: &Rc<Self>, connection: Box<ServerConnection>) {
        self.keep(connection, self.clock.now());
    }

    fn keep(self: &Rc<Self>, mut connection: Box<ServerConnection>, since: Instant) {
        if connection.server.is_removed() || !connection.is_shareable() {
            return;
        }
        let limit = self.limit(&connection.config);
        if limit == 0 {
            return;
        }
        connection.idle_since = since;
        let mut pools = self.pools.borrow_mut();
        let Some(pool) = pools.get_mut(&key(&connection.server)) else { return };
        let limit = limit.min(pool.peak);
        // The one that waits longest gives way to another name: names that come once would fill the pool otherwise.
        if limit > 0 && pool.idle.len() >= limit && pool.idle[0].name != connection.name {
            pool.idle.remove(0);
            self.idle.set(self.idle.get() - 1);
        }
        if pool.idle.len() < limit && self.idle.get() < self.idle_max.get() {
            pool.idle.push(connection);
            self.idle.set(self.idle.get() + 1);
        }
        pool.note();
        drop(pools);
        self.sweep_later();
    }

    /// Takes out so many of so many idle connections with HTTP/1 of each server: they are another process's from now on, or are closed.
    #[expect(clippy::vec_box, reason = "they come and go as they are")]
    pub fn take_idle(&self, part: usize, whole: usize) -> Vec<Box<ServerConnection>> {
        let mut taken = Vec::new();
        for pool in self.pools.borrow_mut().values_mut() {
            let count = (pool.idle.len() * part).div_ceil(whole);
            taken.extend(pool.idle.drain(..count));
            pool.note();
        }
        self.idle.set(self.idle.get().saturating_sub(taken.len()));
        taken
    }

    /// Keeps a connection that was idle in another process, if its server may have one more. Its server had as many requests at once there.
    pub fn adopt(self: &Rc<Self>, connection: Box<ServerConnection>, counters: Arc<CounterBlock>) {
        self.counters(&connection.server, self.clock.now(), || counters);
        if let Some(pool) = self.pools.borrow_mut().get_mut(&key(&connection.server)) {
            pool.peak = pool.peak.saturating_add(1);
        }
        let since = connection.idle_since;
        self.keep(connection, since);
    }

    /// Closes idle connections of servers that `generation` does not have, or has elsewhere, and those beyond this core's
    /// share of what the process may keep. Nothing is in flight on them.
    pub fn retire(&self, generation: &Generation) {
        let share = generation.idle_max as usize / self.cores.max(1);
        // A server more is no reason to look at the others.
        if generation.added_to.is_some() && self.idle_max.get() == share {
            return;
        }
        // And none is one that leaves.
        if let Some(server) = generation.removed.as_ref().filter(|_| self.idle_max.get() == share) {
            if let Some(pool) = self.pools.borrow_mut().remove(&key(server)) {
                self.idle.set(self.idle.get() - pool.idle.len());
            }
            return;
        }
        let stays = |server: &ServerState| {
            let Some(backend) = server.backend() else { return false };
            let plan = generation.backends.get(backend.name());
            !server.is_removed() && plan.is_some_and(|plan| Arc::ptr_eq(&plan.state, &backend))
        };
        let mut pools = self.pools.borrow_mut();
        pools.retain(|_, pool| stays(&pool.server));
        for pool in pools.values_mut() {
            let config = pool.server.config();
            // It may be that only its health checks are encrypted.
            let encryption = pool.server.encryption().filter(|_| config.tls.is_some());
            pool.idle.retain(|connection| connection.fits(&config, encryption.as_ref()));
            pool.keep_http2(|connection| connection.connection.fits(&config, encryption.as_ref()));
        }
        let mut left = share;
        for pool in pools.values_mut() {
            // The oldest first.
            let surplus = pool.idle.len().saturating_sub(left);
            pool.idle.drain(..surplus);
            pool.note();
            left -= pool.idle.len();
        }
        self.idle_max.set(share);
        self.idle.set(share - left);
    }

    /// Starts the sweeper, which runs as long as there is something to sweep.
    fn sweep_later(self: &Rc<Self>) {
        if self.sweeping.replace(true) {
            return;
        }
        let pools = Rc::downgrade(self);
        tokio::task::spawn_local(supervise::for_ever(move || {
            let pools = pools.clone();
            async move {
                loop {
                    tokio::time::sleep(SWEEP).await;
                    let Some(pools) = pools.upgrade() else { return };
                    if !pools.sweep(pools.clock.now()) {
                        pools.sweeping.set(false);
                        return;
                    }
                }
            }
        }));
    }

    /// Drops closed connections and those that were made by what is trusted no more, and half of the unneeded ones where
    /// `pool-purge-delay` is over. False: nothing is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut pools = self.pools.borrow_mut();
        for pool in pools.values_mut() {
            pool.idle.retain(|connection| connection.is_current() && !connection.stream.is_stale());
            pool.keep_http2(|connection| connection.is_usable() && connection.connection.is_current());
            let config = pool.server.config();
            let delay = config.pool_purge_delay;
            for connection in &pool.http2 {
                connection.look_after(now);
            }
            if now.duration_since(pool.purged) >= delay {
                let surplus = pool.unneeded.min(pool.idle.len()).div_ceil(2);
                pool.idle.drain(..surplus);
                let is_unneeded =
                    |one: &Http2Server| is_spare(one) && one.idle_since().is_some_and(|since| since + delay <= now);
                let unneeded = pool.http2.iter().filter(|connection| is_unneeded(connection)).count();
                pool.close_http2(unneeded.div_ceil(2), is_unneeded);
                pool.unneeded = pool.idle.len();
                pool.peak = pool.server.served() as usize;
                pool.purged = now;
            }
            // Requests that ended in whatever way may have left more idle than may be.
            pool.close_http2(pool.idle_count().saturating_sub(self.limit(&config)), is_spare);
        }
        let mut surplus = pools.values().map(Pool::idle_count).sum::<usize>().saturating_sub(self.idle_max.get());
        for pool in pools.values_mut() {
            let before = pool.http2.len();
            pool.close_http2(surplus, is_spare);
            surplus -= before - pool.http2.len();
            pool.note();
        }
        self.idle.set(pools.values().map(|pool| pool.idle.len()).sum());
        self.idle.get() > 0 || pools.values().any(|pool| !pool.http2.is_empty())
    }
}

/// Spreads addresses, which need no protection against chosen keys, over a table.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // Allocations are aligned, so the low bits say nothing: Fibonacci hashing brings the others to the top.
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The server's identity for as long as the pool holds it.
fn key(server: &Arc<ServerState>) -> usize {
    Arc::as_ptr(server) as usize
}
