//! Idle connections of one core, by server. A connection is lent to one request at a time and never crosses cores.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::balance::{ServerState, Slot};
use crate::core::Core;
use crate::generation::Generation;
use crate::state::CounterBlock;
use crate::supervise;
use crate::upstream::ServerConnection;

/// How often connections that were closed by their server, or are not needed any more, are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The idle connections of a core.
#[derive(Debug, Default)]
pub struct Upstreams {
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
    idle: Vec<ServerConnection>,
    /// The fewest that were idle since the last purge: so many were not needed.
    unneeded: usize,
    /// The most requests the server had at once since the last purge: more idle connections than that are of no use.
    peak: usize,
    purged: Instant,
}

impl Upstreams {
    /// An idle connection for the slot's server on which `name` was asked for: the last used of those that carried a second request already, else (unless
    /// `proven`, for `http-reuse aggressive`) the oldest one.
    pub fn take(&self, slot: &Slot, name: Option<&str>, proven: bool) -> Option<ServerConnection> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.get_mut(&key(slot.server()))?;
        let found = loop {
            let asked = |connection: &ServerConnection| connection.name.as_deref() == name;
            let tried = pool.idle.iter().rposition(|connection| connection.requests > 1 && asked(connection));
            let at = tried.or_else(|| pool.idle.iter().position(asked).filter(|_| !proven))?;
            let connection = pool.idle.remove(at);
            self.idle.set(self.idle.get() - 1);
            if connection.fits(slot.config(), slot.encryption()) && !connection.stream.is_stale() {
                break connection;
            }
        };
        pool.unneeded = pool.unneeded.min(pool.idle.len());
        Some(found)
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
            unneeded: 0,
            peak: 0,
            purged: now,
        });
        pool.peak = pool.peak.max(server.served() as usize);
        pool.counters.clone()
    }

    /// Keeps a connection for later, if its server may have one more (`pool-max-conn`, shared out among the cores) and had
    /// that many requests at once lately.
    pub fn give(&self, core: &Rc<Core>, mut connection: ServerConnection) {
        if connection.server.is_removed() || !connection.is_shareable() {
            return;
        }
        let limit = match connection.config.pool_max_conn {
            0 => return,
            limit @ 1.. => (limit as usize).div_ceil(core.registry.cores()),
            _ => usize::MAX,
        };
        connection.idle_since = core.now();
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
        drop(pools);
        self.sweep_later(core);
    }

    /// Closes idle connections of servers that `generation` does not have, or has elsewhere, and those beyond this core's
    /// share of what the process may keep. Nothing is in flight on them.
    pub fn retire(&self, generation: &Generation, cores: usize) {
        let stays = |server: &ServerState| {
            let Some(backend) = server.backend() else { return false };
            let plan = generation.backends.get(backend.name());
            !server.is_removed() && plan.is_some_and(|plan| Arc::ptr_eq(&plan.state, &backend))
        };
        let mut pools = self.pools.borrow_mut();
        pools.retain(|_, pool| stays(&pool.server));
        for pool in pools.values_mut() {
            let (config, encryption) = (pool.server.config(), pool.server.encryption());
            pool.idle.retain(|connection| connection.fits(&config, encryption.as_ref()));
        }
        let share = generation.idle_max as usize / cores.max(1);
        let mut left = share;
        for pool in pools.values_mut() {
            // The oldest first.
            let surplus = pool.idle.len().saturating_sub(left);
            pool.idle.drain(..surplus);
            left -= pool.idle.len();
        }
        self.idle_max.set(share);
        self.idle.set(share - left);
    }

    /// Starts the sweeper, which runs as long as there is something to sweep.
    fn sweep_later(&self, core: &Rc<Core>) {
        if self.sweeping.replace(true) {
            return;
        }
        let core: Weak<Core> = Rc::downgrade(core);
        tokio::task::spawn_local(supervise::for_ever(move || {
            let core = core.clone();
            async move {
                loop {
                    tokio::time::sleep(SWEEP).await;
                    let Some(core) = core.upgrade() else { return };
                    if !core.upstreams.sweep(core.now()) {
                        core.upstreams.sweeping.set(false);
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
            let delay = pool.server.config().pool_purge_delay;
            if now.duration_since(pool.purged) >= delay {
                let surplus = pool.unneeded.min(pool.idle.len()).div_ceil(2);
                pool.idle.drain(..surplus);
                pool.unneeded = pool.idle.len();
                pool.peak = pool.server.served() as usize;
                pool.purged = now;
            }
        }
        self.idle.set(pools.values().map(|pool| pool.idle.len()).sum());
        self.idle.get() > 0
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
