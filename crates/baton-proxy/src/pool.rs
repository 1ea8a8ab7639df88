//! Connections to servers, and those of one core that are idle, by server. A connection is lent to one request at a time and never
//! crosses cores.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{Address, Proxy, Server, diff};

use crate::balance::{ServerState, Slot};
use crate::clock::Clock;
use crate::generation::Generation;
use crate::proxy_protocol::Addresses;
use crate::state::CounterBlock;
use crate::stream::Stream;
use crate::supervise;
use crate::upstream::dialer;
use crate::upstream::{Agreed, ServerTlsContext, is_same};

/// How often connections that were closed by their server, or are not needed any more, are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// An established connection to a server.
#[derive(Debug)]
pub struct ServerConnection {
    /// The socket.
    pub stream: Stream,
    /// Whose it is.
    pub server: Arc<ServerState>,
    /// The settings it was opened with.
    pub config: Arc<Server>,
    /// TLS over it.
    pub encryption: Option<Agreed>,
    /// The name that was asked for (SNI): requests for another one go elsewhere.
    pub name: Option<Box<str>>,
    /// The client's addresses that it carries: requests with other ones need another connection. `None`: it carries none.
    pub client: Option<Box<Addresses>>,
    /// Requests it carried before the current one.
    pub requests: u32,
    /// It was authenticated for one client.
    pub private: bool,
    /// Since when it is idle.
    pub idle_since: Instant,
}

impl ServerConnection {
    /// Whether a request for `config` may go over it: a reload may have changed where the server is and how it is spoken to, and
    /// a runtime command whom to trust.
    pub fn fits(&self, config: &Arc<Server>, encryption: Option<&Arc<ServerTlsContext>>) -> bool {
        is_same(self.encryption.as_ref(), encryption)
            && (Arc::ptr_eq(&self.config, config) || !diff::reconnects(&self.config, config))
    }

    /// Whether it was encrypted by files that hold the same still.
    pub fn is_current(&self) -> bool {
        self.encryption.as_ref().is_none_or(Agreed::is_current)
    }

    /// Whether other clients may use it too: it does not carry one client's address.
    pub fn is_shareable(&self) -> bool {
        self.client.is_none()
    }
}

/// What a connection to `server` carries of a client's addresses: in a PROXY header, as its source, or as its destination. `None`:
/// nothing.
pub fn carried(server: &Server, backend: &Proxy, addresses: impl FnOnce() -> Addresses) -> Option<Addresses> {
    let with_port = dialer::source_of(server, backend).and_then(|source| source.use_client);
    let to_destination = server.address.depends_on_client();
    if !server.send_proxy.is_on() && with_port.is_none() && !to_destination {
        return None;
    }
    let Addresses { source, destination } = addresses();
    if server.send_proxy.is_on() {
        return Some(Addresses { source, destination });
    }
    let source = with_port.and_then(|with_port| {
        let port = |source: SocketAddr| if with_port { source.port() } else { 0 };
        source.map(|source| SocketAddr::new(source.ip(), port(source)))
    });
    let place = || server.address.for_client(&|| destination);
    let destination = to_destination.then(place).flatten().and_then(|place| match place {
        Address::Inet(place) => Some(place),
        Address::Unix(_) | Address::Abstract(_) | Address::Fd(_) => None,
    });
    Some(Addresses { source, destination })
}

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
    idle: Vec<ServerConnection>,
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
        self.counters.of(self.core).set_idle(self.idle.len() as u64);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.idle.is_empty() {
            self.counters.of(self.core).set_idle(0);
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

    /// An idle connection for the slot's server on which `name` was asked for: the last used of those that carried a second request already, else (unless
    /// `proven`, for `http-reuse aggressive`) the oldest one.
    pub fn take(&self, slot: &Slot, name: Option<&str>, proven: bool) -> Option<ServerConnection> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.get_mut(&key(slot.server()))?;
        let found = loop {
            let asked = |connection: &ServerConnection| connection.name.as_deref() == name;
            let tried = pool.idle.iter().rposition(|connection| connection.requests > 1 && asked(connection));
            let Some(at) = tried.or_else(|| pool.idle.iter().position(asked).filter(|_| !proven)) else {
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
    pub fn give(self: &Rc<Self>, mut connection: ServerConnection) {
        if connection.server.is_removed() || !connection.is_shareable() {
            return;
        }
        let limit = match connection.config.pool_max_conn {
            0 => return,
            limit @ 1.. => (limit as usize).div_ceil(self.cores),
            _ => usize::MAX,
        };
        connection.idle_since = self.clock.now();
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
            let (config, encryption) = (pool.server.config(), pool.server.encryption());
            pool.idle.retain(|connection| connection.fits(&config, encryption.as_ref()));
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
            let delay = pool.server.config().pool_purge_delay;
            if now.duration_since(pool.purged) >= delay {
                let surplus = pool.unneeded.min(pool.idle.len()).div_ceil(2);
                pool.idle.drain(..surplus);
                pool.unneeded = pool.idle.len();
                pool.peak = pool.server.served() as usize;
                pool.purged = now;
            }
            pool.note();
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

#[cfg(test)]
mod tests {
    use baton_model::{Role, SendProxy, SourceAddress};

    use super::*;

    #[test]
    fn what_connections_carry_of_their_client() {
        let check = |server: &Server, backend: &Proxy, expect: &str| {
            let address = |text: &str| text.parse().ok();
            let client = Addresses { source: address("192.0.2.1:1000"), destination: address("192.0.2.9:80") };
            let show = |address: Option<SocketAddr>| address.map_or("-".to_owned(), |address| address.to_string());
            let found = carried(server, backend, || client)
                .map(|Addresses { source, destination }| format!("{} {}", show(source), show(destination)));
            assert_eq!(found.as_deref().unwrap_or("nothing"), expect);
        };
        let server = |address: &str| Server::new("s", 1, Address::Inet(address.parse().expect("an address")));
        let uses = |with_port| {
            let ip = std::net::Ipv4Addr::UNSPECIFIED.into();
            Some(SourceAddress { ip, ports: (0, 0), use_client: Some(with_port), interface: None })
        };
        let plain = Proxy::new("b", Role::Backend);
        let mut transparent = Proxy::new("b", Role::Backend);
        transparent.source_address = uses(true);
        check(&server("192.0.2.2:80"), &plain, "nothing");
        check(&server("192.0.2.2:80"), &transparent, "192.0.2.1:1000 -");
        check(&server("192.0.2.2:0"), &plain, "- 192.0.2.2:80");
        let mut own = server("192.0.2.2:80");
        own.source_address = uses(false);
        check(&own, &transparent, "192.0.2.1:0 -");
        own.send_proxy = SendProxy::V1;
        check(&own, &plain, "192.0.2.1:1000 192.0.2.9:80");
    }
}
