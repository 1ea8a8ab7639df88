//! Idle connections of one core, by server. A connection is lent to one request at a time and never crosses cores.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::balance::{ServerState, Slot};
use crate::core::Core;
use crate::upstream::Connection;

/// How often connections that were closed by their server, or are not needed any more, are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The idle connections of a core.
#[derive(Debug, Default)]
pub struct Upstreams {
    pools: RefCell<HashMap<usize, Pool>>,
    sweeping: Cell<bool>,
}

/// One server's idle connections, the freshest last.
#[derive(Debug)]
struct Pool {
    server: Arc<ServerState>,
    idle: Vec<Connection>,
    /// The fewest that were idle since the last purge: so many were not needed.
    unneeded: usize,
    purged: Instant,
}

impl Upstreams {
    /// An idle connection for the slot's server: the last used of those that carried a second request already, else (unless
    /// `proven`, for `http-reuse aggressive`) the oldest one.
    pub fn take(&self, slot: &Slot, proven: bool) -> Option<Connection> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.get_mut(&key(slot.server()))?;
        let found = loop {
            let tried = pool.idle.iter().rposition(|connection| connection.requests > 1);
            let at = tried.or_else(|| (!proven && !pool.idle.is_empty()).then_some(0))?;
            let connection = pool.idle.remove(at);
            if connection.fits(slot.config()) && !connection.stream.is_stale() {
                break connection;
            }
        };
        pool.unneeded = pool.unneeded.min(pool.idle.len());
        Some(found)
    }

    /// Keeps a connection for later, if its server may have one more (`pool-max-conn`, shared out among the cores).
    pub fn give(&self, core: &Rc<Core>, mut connection: Connection) {
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
        let pool = pools.entry(key(&connection.server)).or_insert_with(|| Pool {
            server: connection.server.clone(),
            idle: Vec::new(),
            unneeded: 0,
            purged: core.now(),
        });
        if pool.idle.len() < limit {
            pool.idle.push(connection);
        }
        drop(pools);
        self.sweep_later(core);
    }

    /// Closes idle connections of servers that are gone or moved. Nothing is in flight on them.
    pub fn retire(&self) {
        let mut pools = self.pools.borrow_mut();
        for pool in pools.values_mut() {
            let (removed, config) = (pool.server.is_removed(), pool.server.config());
            pool.idle.retain(|connection| !removed && connection.fits(&config));
        }
        pools.retain(|_, pool| !pool.idle.is_empty());
    }

    /// Idle connections of a server on this core.
    pub fn idle(&self, server: &Arc<ServerState>) -> usize {
        self.pools.borrow().get(&key(server)).map_or(0, |pool| pool.idle.len())
    }

    /// Closes all.
    pub fn clear(&self) {
        self.pools.borrow_mut().clear();
    }

    /// Starts the sweeper, which runs as long as there is something to sweep.
    fn sweep_later(&self, core: &Rc<Core>) {
        if self.sweeping.replace(true) {
            return;
        }
        let core: Weak<Core> = Rc::downgrade(core);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(core) = core.upgrade() else { return };
                if !core.upstreams.sweep(core.now()) {
                    core.upstreams.sweeping.set(false);
                    return;
                }
            }
        });
    }

    /// Drops closed connections, and half of the unneeded ones where `pool-purge-delay` is over. False: nothing is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut pools = self.pools.borrow_mut();
        for pool in pools.values_mut() {
            pool.idle.retain(|connection| !connection.stream.is_stale());
            let delay = pool.server.config().pool_purge_delay;
            if now.duration_since(pool.purged) >= delay {
                let surplus = pool.unneeded.min(pool.idle.len()).div_ceil(2);
                pool.idle.drain(..surplus);
                pool.unneeded = pool.idle.len();
                pool.purged = now;
            }
        }
        pools.retain(|_, pool| !pool.idle.is_empty());
        !pools.is_empty()
    }
}

/// The server's identity for as long as the pool holds it.
fn key(server: &Arc<ServerState>) -> usize {
    Arc::as_ptr(server) as usize
}
