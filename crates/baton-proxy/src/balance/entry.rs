//! What a backend knows of each server under its lock: configuration, queue, limits and weight.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use baton_model::{EffectiveServer, Proxy, Server};

use super::backend::WEIGHT_MAX;
use super::group::{ServerLoad, WEIGHT_SCALE};
use super::queue::Queue;
use super::server::GONE;
use super::{Admin, BackendState, ServerState};
use crate::upstream::ServerTlsContext;

/// What the proxy's settings say.
pub(super) struct Settings {
    pub(super) persist: bool,
    pub(super) prefer_last: bool,
    pub(super) fullconn: u32,
}

/// A server under its backend's lock.
pub(super) struct Entry {
    pub(super) state: Arc<ServerState>,
    pub(super) config: Arc<Server>,
    /// TLS with it, for traffic or for checks alone.
    pub(super) encryption: Option<Arc<ServerTlsContext>>,
    pub(super) cookie: Option<Arc<str>>,
    pub(super) queue: Queue,
    /// Slow start since.
    pub(super) warm_since: Option<Instant>,
}

impl Settings {
    pub(super) fn new(proxy: &Proxy) -> Settings {
        Settings {
            persist: proxy.tcp.persist,
            prefer_last: proxy.tcp.prefer_last_server,
            fullconn: proxy.fullconn.unwrap_or(0),
        }
    }
}

impl ServerState {
    /// What is said of it with this configuration and what is in force of it; what it inherits stays.
    pub fn admin_with(&self, config: &Server, effective: EffectiveServer) -> Admin {
        let EffectiveServer { admin, .. } = effective;
        // Who is found by DNS leaves that maintenance by a transition of its own.
        let waits = config.looked_up().is_some() && self.admin().unresolved;
        let unresolved = waits || config.address.is_unresolved();
        Admin { unresolved, maintenance: admin.maintenance, drain: admin.drain, ..self.admin() }
    }
}

impl Entry {
    pub(super) fn new(backend: Weak<BackendState>, config: &Arc<Server>, now: Instant) -> Entry {
        Entry {
            state: Arc::new(ServerState::new(backend, Arc::clone(config), now)),
            config: Arc::clone(config),
            encryption: None,
            cookie: None,
            queue: Queue::default(),
            warm_since: None,
        }
    }

    /// A server that stays, with this configuration.
    pub(super) fn of(state: Arc<ServerState>, config: &Arc<Server>) -> Entry {
        Entry {
            state,
            config: Arc::clone(config),
            encryption: None,
            cookie: None,
            queue: Queue::default(),
            warm_since: None,
        }
    }

    /// Has it as what is in force of it says; whether that changes anything.
    pub(super) fn settle(&mut self, effective: EffectiveServer) -> bool {
        let before = (self.state.weight(), self.state.admin());
        let now = self.settled(effective);
        if before != now {
            self.state.weight.store(now.0, Ordering::Relaxed);
            self.state.store_admin(now.1);
        }
        before != now
    }

    /// Its weight and what is said of it, as what is in force of it says.
    pub(super) fn settled(&self, effective: EffectiveServer) -> (u32, Admin) {
        (effective.weight.min(WEIGHT_MAX), self.state.admin_with(&self.config, effective))
    }

    pub(super) fn encrypt(&mut self, encryption: Option<Arc<ServerTlsContext>>) {
        self.state.notes().encryption.clone_from(&encryption);
        self.encryption = encryption;
    }

    pub(super) fn load(&self, sessions: u32, fullconn: u32, now: Instant) -> ServerLoad {
        let served = self.state.served();
        let queued = self.queue.len() as u32;
        let limit = self.limit(sessions, fullconn, now);
        let full = limit.is_some_and(|limit| self.state.occupied() + queued >= limit);
        ServerLoad { served, queued, full, weight: self.state.effective.load(Ordering::Relaxed) }
    }

    /// Slots in use, and requests in its own queue.
    pub(super) fn sessions(&self) -> u32 {
        self.state.served() + self.queue.len() as u32
    }

    /// Whether it has no free slot even with all of its `maxconn`.
    pub(super) fn is_full(&self) -> bool {
        let maxconn = self.config.maxconn;
        maxconn > 0 && self.state.occupied() + self.queue.len() as u32 >= maxconn
    }

    /// How many slots it has now: `maxconn`, or what `minconn`, `fullconn` and slow start make of it. `None`: no limit.
    pub(super) fn limit(&self, sessions: u32, fullconn: u32, now: Instant) -> Option<u32> {
        let maxconn = self.config.maxconn;
        if maxconn == 0 {
            return None;
        }
        let minconn = self.config.minconn;
        let mut limit = maxconn;
        if minconn > 0 && minconn < maxconn && sessions < fullconn {
            let share = u64::from(sessions) * u64::from(maxconn) / u64::from(fullconn);
            limit = minconn.max(share as u32);
        }
        if let (Some(since), Some(slowstart)) = (self.warm_since, self.config.slowstart) {
            let percent =
                (100 * now.saturating_duration_since(since).as_millis() / slowstart.as_millis().max(1)).max(1);
            if percent < 100 {
                limit = (u64::from(limit) * percent as u64 / 100).max(1) as u32;
            }
        }
        Some(limit)
    }

    /// The weight at `now` in [`WEIGHT_SCALE`]ths; ends a slow start that is over.
    pub(super) fn effective(&mut self, now: Instant) -> u32 {
        let full = self.state.weight() * WEIGHT_SCALE;
        let weight = self.warmed(full, self.warm_since, now);
        if weight.is_none() {
            self.warm_since = None;
        }
        weight.unwrap_or(full)
    }

    /// What a slow start makes of a weight; `None`: it is over, or there is none.
    pub(super) fn warmed(&self, full: u32, since: Option<Instant>, now: Instant) -> Option<u32> {
        let (since, slowstart) = (since?, self.config.slowstart?);
        let passed = now.saturating_duration_since(since);
        (passed < slowstart).then(|| share(full, passed, slowstart).max(u32::from(full > 0)))
    }

    /// What the algorithm may use of that weight.
    pub(super) fn usable_weight(&self, weight: u32) -> u32 {
        if self.state.index.load(Ordering::Relaxed) != GONE && self.state.is_usable() { weight } else { 0 }
    }

    /// Publishes the length of its queue, and returns the one before.
    pub(super) fn count_queue(&self) -> u32 {
        let queued = self.queue.len() as u32;
        self.state.queued_max.fetch_max(queued, Ordering::Relaxed);
        self.state.queued.swap(queued, Ordering::Relaxed)
    }
}

/// `whole * part / of`.
fn share(whole: u32, part: Duration, of: Duration) -> u32 {
    (u128::from(whole) * part.as_millis() / of.as_millis().max(1)) as u32
}
