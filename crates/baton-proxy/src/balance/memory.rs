//! What a backend remembers, as plain data: for another process that goes on with its work.
//!
//! Where the algorithm stands is read under the backend's lock, figures of servers without it. Servers are found by name; what has
//! no counterpart is left out, on both sides. Slots in use and places in queues are not in it, for they belong to connections,
//! which stay with their process; how many there are elsewhere is told by [`ServerState::set_elsewhere`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::inner::Inner;
use super::layout::Layouts;
use super::replacement::InUse;
use super::{BackendState, CheckReport, HealthState, OutageMemory, Outages, ServerState};

/// What a backend remembers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendMemory {
    /// The most that ever waited in its own queue.
    pub waiting_max: u32,
    /// When it had no usable server; `None`: it always had one.
    pub outages: Option<OutageMemory>,
    /// Where its algorithm stands among the active servers.
    pub active: Turns,
    /// Where its algorithm stands among the backups.
    pub backups: Turns,
    /// Its servers.
    pub servers: Vec<ServerMemory>,
}

/// What is remembered of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerMemory {
    /// Its name.
    pub name: Arc<str>,
    /// What checks say.
    pub health: HealthState,
    /// Its agent keeps it down.
    pub is_held: bool,
    /// For how long it has been up or down.
    pub since: Duration,
    /// How often it went down.
    pub downs: u64,
    /// How long it was down before the current outage.
    pub down_time: Duration,
    /// The most slots in use at once.
    pub served_max: u32,
    /// The most ever in its queue.
    pub queued_max: u32,
    /// Slots ever given.
    pub total: u64,
    /// For how long its slow start has been going on; `None`: it is warm.
    pub warming: Option<Duration>,
    /// What the last check found.
    pub check: CheckReport,
    /// What its agent said last.
    pub agent: CheckReport,
}

/// Where an algorithm that takes turns stands. Algorithms without a position have an empty one, and so has one that did not
/// choose yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// The position in its row or table.
    pub position: u64,
    /// The servers in the row, by name.
    pub places: Vec<(Arc<str>, Turn)>,
}

/// A server's place in the row; the numbers mean what the algorithm takes them for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// Weight in the row.
    pub weight: u64,
    /// Whether it never had a turn.
    pub fresh: bool,
    /// Position of the next turn.
    pub due: u64,
    /// Remainder of the division that led there.
    pub rest: u64,
    /// Position of the last turn.
    pub last: u64,
    /// When it was placed.
    pub placed: u64,
}

impl BackendState {
    /// Everything to remember, at `now`.
    pub fn remember(&self, now: Instant) -> BackendMemory {
        let (directory, warming, (active, backups)) = {
            let inner = self.lock();
            let InUse { directory, warming, .. } = inner.in_use();
            let name = |server: usize| Some(Arc::clone(directory.servers.get(server)?.as_ref()?.name()));
            let turns = inner.group.turns(&name);
            (directory, warming, turns)
        };
        let warming: HashMap<usize, Instant> = warming.into_iter().collect();
        let servers = directory.servers.iter().enumerate();
        let servers = servers.filter_map(|(server, state)| Some((server, state.as_ref()?))).map(|(server, state)| {
            let notes = state.notes();
            ServerMemory {
                name: Arc::clone(state.name()),
                health: state.checked_health(),
                is_held: state.is_held(),
                since: now.saturating_duration_since(notes.changed),
                downs: notes.downs,
                down_time: notes.down_time,
                served_max: state.served_max(),
                queued_max: state.queued_max(),
                total: state.total(),
                warming: warming.get(&server).map(|since| now.saturating_duration_since(*since)),
                check: notes.check.as_deref().cloned().unwrap_or_default(),
                agent: notes.agent.as_deref().cloned().unwrap_or_default(),
            }
        });
        let outages = self.outages().remember(now);
        BackendMemory { waiting_max: self.waiting_max(), outages, active, backups, servers: servers.collect() }
    }

    /// Goes on from there: for a state that nobody uses yet. A server that is unknown to the memory stays as it is.
    pub fn recall(&self, memory: BackendMemory, now: Instant) {
        let mut inner = self.lock();
        inner.now = now;
        self.waiting_max.fetch_max(memory.waiting_max, Ordering::Relaxed);
        for kept in memory.servers {
            let Some(index) = inner.find(&kept.name) else { continue };
            let entry = &mut inner.entries[index];
            entry.warm_since = kept.warming.and_then(|warming| now.checked_sub(warming));
            entry.state.recall(kept, now);
            inner.weigh(index);
            inner.plan_warming(index);
        }
        let Inner { group, directory, .. } = &mut *inner;
        group.lay(&Layouts::default());
        if let Some(kept) = &memory.outages {
            *self.outages() = Outages::recall(kept, now);
        }
        group.recall(&memory.active, &memory.backups, &|name| directory.names.find(name.as_bytes()).next());
        self.publish(&inner);
    }

    /// Continues servers of which nothing is remembered but since when their state has not changed.
    pub fn recall_quiet<'a>(&self, names: impl Iterator<Item = &'a str>, since: Duration, now: Instant) {
        let inner = self.lock();
        for index in names.filter_map(|name| inner.find(name)) {
            inner.entries[index].state.notes().changed = now.checked_sub(since).unwrap_or(now);
        }
    }
}

impl ServerState {
    fn recall(&self, kept: ServerMemory, now: Instant) {
        self.store_health(kept.health);
        self.store_hold(kept.is_held);
        self.served_max.fetch_max(kept.served_max, Ordering::Relaxed);
        self.queued_max.fetch_max(kept.queued_max, Ordering::Relaxed);
        self.total.fetch_add(kept.total, Ordering::Relaxed);
        let mut notes = self.notes();
        notes.changed = now.checked_sub(kept.since).unwrap_or(now);
        notes.downs = kept.downs;
        notes.down_time = kept.down_time;
        notes.check = (kept.check != CheckReport::default()).then(|| Box::new(kept.check));
        notes.agent = (kept.agent != CheckReport::default()).then(|| Box::new(kept.agent));
    }
}
