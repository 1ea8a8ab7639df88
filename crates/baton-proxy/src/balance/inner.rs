//! What a backend's lock guards: its servers, the algorithm's state and the queues, and what follows for them from a change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;

use baton_model::{MarkedDown, MarkedUp, Proxy};

use super::edit::{Addition, Edit, Entered, Removal};
use super::entry::{Entry, Settings};
use super::group::{Choice, Group, Question, ServerLoad, WEIGHT_SCALE};
use super::layout::Layouts;
use super::queue::Queue;
use super::replacement::{Directory, Effective, InUse, Replacement, Touched};
use super::server::GONE;
use super::{Affinity, Granted, PickCriteria, WantedServer};

/// Into how many steps a slow start is divided.
const WARM_STEPS: u32 = 20;

/// Under its backend's lock.
pub(super) struct Inner {
    /// What all of it was made of.
    pub(super) proxy: Arc<Proxy>,
    pub(super) settings: Settings,
    /// In the order of the configuration, with the empty places of [`Directory::servers`]; [`ServerState::index`] points here.
    pub(super) entries: Vec<Entry>,
    pub(super) directory: Arc<Directory>,
    pub(super) group: Group,
    pub(super) queue: Queue,
    /// Requests in the queues of servers.
    pub(super) queued: u32,
    /// How often the servers were replaced by those of another configuration.
    pub(super) reloads: u64,
    /// How often a server was weighed.
    pub(super) changes: u64,
    pub(super) tickets: u64,
    /// Since when arrivals in queues are counted, and the last one.
    pub(super) began: Instant,
    pub(super) arrival_ms: i64,
    /// Slots in use and requests queued, of all servers and the backend: HAProxy's `beconn`.
    pub(super) sessions: u32,
    /// The time of the last event: what has no clock of its own uses it.
    pub(super) now: Instant,
    /// When effective weights of servers in slow start have to be computed again, and whose.
    pub(super) warm_at: Option<Instant>,
    pub(super) warming: BTreeSet<usize>,
}

/// Wakers to call when the lock is released.
#[derive(Default)]
pub(super) struct Wakers(pub(super) Vec<Waker>);

impl Inner {
    /// Has servers as what is in force of each says.
    pub(super) fn settle(&mut self, effective: Effective<'_>) {
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            let wanted = effective(&entry.config);
            if entry.settle(wanted) {
                self.weigh(index);
            }
        }
        self.group.lay(&Layouts::default());
    }

    /// What is in use, for building what comes next.
    pub(super) fn in_use(&self) -> InUse {
        let warming = self.warming.iter().filter_map(|server| Some((*server, self.entries[*server].warm_since?)));
        InUse {
            proxy: Some(Arc::clone(&self.proxy)),
            reloads: self.reloads,
            changes: self.changes,
            directory: Arc::clone(&self.directory),
            warming: warming.collect(),
            layouts: self.group.layouts(),
        }
    }

    /// Swaps in what was built for these servers, and takes over what happened meanwhile.
    pub(super) fn swap(&mut self, next: &mut Replacement, wakers: &mut Wakers) {
        for Touched { server, may_be_cut, effective } in &next.touched {
            let entry = &mut next.entries[*server];
            entry.tell(*may_be_cut);
            entry.settle(*effective);
        }
        let orphans = self.orphans(next);
        if self.queued > 0 || !self.warming.is_empty() {
            for (entry, at) in next.entries.iter_mut().zip(&next.old) {
                let Some(before) = at.map(|at| &mut self.entries[at]) else { continue };
                entry.queue = before.queue.take();
                entry.warm_since = before.warm_since;
            }
        }
        let fullconn = next.proxy.fullconn.unwrap_or(self.settings.fullconn);
        self.settings = Settings { fullconn, ..Settings::new(&next.proxy) };
        std::mem::swap(&mut self.proxy, &mut next.proxy);
        std::mem::swap(&mut self.entries, &mut next.entries);
        std::mem::swap(&mut self.directory, &mut next.directory);
        for (server, _) in next.old.iter().enumerate().filter(|(server, at)| **at != Some(*server)) {
            self.entries[server].state.index.store(server, Ordering::Relaxed);
        }
        for (at, _) in next.new.iter().enumerate().filter(|(_, server)| server.is_none()) {
            next.entries[at].state.index.store(GONE, Ordering::Relaxed);
        }
        self.warming = self.warming.iter().filter_map(|at| next.new[*at]).collect();
        next.group.inherit(&self.group, &next.old);
        std::mem::swap(&mut self.group, &mut next.group);
        for touched in &next.touched {
            self.note_full(touched.server);
        }
        let is_as_seen = self.changes == next.seen.changes;
        let all = (0..self.entries.len()).filter(|_| !is_as_seen);
        let touched = next.touched.iter().map(|touched| touched.server);
        let weighed: Vec<usize> = touched.chain(self.warming.iter().copied()).chain(all).collect();
        weighed.into_iter().for_each(|server| self.weigh(server));
        orphans.into_iter().for_each(|queue| self.requeue(queue, wakers));
        self.reloads += 1;
    }

    /// Adds servers that take no part yet, and empties the places of those that leave; whether all of these are unused.
    pub(super) fn edit(&mut self, edit: &mut Edit) -> bool {
        let is_unused = |at: &usize| {
            let Entry { state, queue, .. } = &self.entries[*at];
            queue.len() == 0 && state.occupied() == 0 && !state.is_running()
        };
        if !edit.removed.iter().all(is_unused) {
            return false;
        }
        for at in &edit.removed {
            self.entries[*at].state.index.store(GONE, Ordering::Relaxed);
            self.warming.remove(at);
            self.group.set_weight(*at, 0, 0, 0);
        }
        for (entry, member) in edit.added.drain(..) {
            self.entries.push(entry);
            self.group.append(member);
        }
        std::mem::swap(&mut self.proxy, &mut edit.proxy);
        std::mem::swap(&mut self.directory, &mut edit.directory);
        self.reloads += 1;
        true
    }

    /// Enters a server that is to be added in the directory, as the one behind all others.
    pub(super) fn enter(&mut self, addition: &mut Addition) -> Entered {
        if !Arc::ptr_eq(&self.proxy, &addition.before) {
            return Entered::Replaced;
        }
        if let Some(directory) = Arc::get_mut(&mut self.directory).filter(|it| it.has_room(&addition.entry)) {
            directory.push(&addition.entry);
            return Entered::Done;
        }
        match addition.grown.take() {
            Some((of, grown)) if Arc::ptr_eq(&of, &self.directory) => {
                addition.former = Some(std::mem::replace(&mut self.directory, grown));
                Entered::Done
            }
            Some(_) | None => Entered::NoRoom,
        }
    }

    /// Adds a server that takes no part yet, and that is in the directory. What is returned is to be dropped when the lock is released.
    pub(super) fn add(&mut self, addition: Addition) -> (Arc<Proxy>, Option<Arc<Directory>>) {
        let Addition { proxy, entry, member, former, .. } = addition;
        entry.state.index.store(self.entries.len(), Ordering::Relaxed);
        self.entries.push(entry);
        self.group.append(member);
        self.reloads += 1;
        (std::mem::replace(&mut self.proxy, proxy), former)
    }

    /// Takes a server out that nobody uses; its place stays empty. What is returned with `Done` is to be dropped when the lock is released.
    pub(super) fn remove(&mut self, removal: &mut Removal) -> Entered {
        let place = removal.place;
        let Some(Entry { state, queue, .. }) = self.entries.get(place) else { return Entered::Replaced };
        let is_unused = queue.len() == 0 && state.occupied() == 0 && !state.is_running();
        let empty = self.directory.servers.len().saturating_sub(removal.before.servers.len());
        // A replacement has no empty places.
        if !Arc::ptr_eq(&self.proxy, &removal.before) || !is_unused || empty >= removal.proxy.servers.len() {
            return Entered::Replaced;
        }
        if let Some((of, copy)) = removal.copy.take()
            && Arc::ptr_eq(&of, &self.directory)
        {
            drop(of);
            removal.former = Some(std::mem::replace(&mut self.directory, copy));
        }
        let Some(directory) = Arc::get_mut(&mut self.directory) else { return Entered::NoRoom };
        directory.remove(place);
        self.entries[place].state.index.store(GONE, Ordering::Relaxed);
        self.warming.remove(&place);
        self.group.set_weight(place, 0, 0, 0);
        std::mem::swap(&mut self.proxy, &mut removal.proxy);
        self.reloads += 1;
        Entered::Done
    }

    /// The queues of servers that are removed. Who waits for one that the file now disables must not wait for ever either.
    fn orphans(&mut self, next: &Replacement) -> Vec<Queue> {
        let mut orphans = Vec::new();
        for (at, new) in next.new.iter().enumerate() {
            if self.queued == 0 {
                break;
            }
            let entry = &mut self.entries[at];
            let is_stuck = !entry.state.is_running() && !next.proxy.tcp.persist;
            if entry.queue.len() > 0 && (new.is_none() || is_stuck) {
                orphans.push(entry.queue.take());
                self.note_queue(at);
                self.note_load(at);
            }
        }
        orphans
    }

    /// The server of that name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.directory.names.find(name.as_bytes()).next()
    }

    /// The wanted server, or why it cannot be had.
    pub(super) fn wanted(
        &self,
        wanted: WantedServer<'_>,
        force: bool,
        avoid: Option<usize>,
    ) -> Result<usize, Affinity> {
        let (words, word) = match wanted {
            WantedServer::Cookie(value) => (&self.directory.cookies, value),
            WantedServer::Name(name) => (&self.directory.names, name.as_bytes()),
        };
        let mut known = false;
        for index in words.find(word) {
            known = true;
            if Some(index) != avoid && (force || self.settings.persist || self.entries[index].state.is_running()) {
                return Ok(index);
            }
        }
        Err(if known { Affinity::Down } else { Affinity::Unknown })
    }

    pub(super) fn balance(&mut self, ask: &PickCriteria<'_>) -> Choice {
        let Inner { entries, group, settings, sessions, .. } = self;
        let question = Question {
            key: ask.key,
            random: ask.random,
            avoid: ask.avoid.map(|server| server.index.load(Ordering::Relaxed)),
            load: &|server| entries[server].load(*sessions, settings.fullconn, ask.now),
        };
        group.choose(&question)
    }

    pub(super) fn load(&self, server: usize) -> ServerLoad {
        self.entries[server].load(self.sessions, self.settings.fullconn, self.now)
    }

    /// Whether one who waits could have a slot now.
    pub(super) fn has_room(&self, server: usize) -> bool {
        let entry = &self.entries[server];
        let limit = entry.limit(self.sessions, self.settings.fullconn, self.now);
        entry.state.is_running() && limit.is_none_or(|limit| entry.state.occupied() < limit)
    }

    /// Slots or queue of a server changed.
    pub(super) fn note_load(&mut self, server: usize) {
        let load = self.entries[server].sessions();
        self.group.set_load(server, load);
        self.note_full(server);
    }

    /// What counts for the `maxconn` of a server changed.
    pub(super) fn note_full(&mut self, server: usize) {
        let full = self.entries[server].is_full();
        self.group.set_full(server, full);
    }

    /// The length of a server's queue changed.
    pub(super) fn note_queue(&mut self, server: usize) {
        let entry = &self.entries[server];
        self.queued = self.queued + entry.queue.len() as u32 - entry.count_queue();
    }

    /// The server's effective weight may have changed.
    pub(super) fn weigh(&mut self, server: usize) {
        self.changes += 1;
        let entry = &mut self.entries[server];
        let weight = entry.effective(self.now);
        entry.state.effective.store(weight, Ordering::Relaxed);
        let (usable, load) = (entry.usable_weight(weight), entry.sessions());
        self.group.set_weight(server, usable, entry.state.weight() * WEIGHT_SCALE, load);
    }

    /// A step of all slow starts.
    pub(super) fn warm(&mut self) {
        self.warm_at = None;
        for server in std::mem::take(&mut self.warming) {
            self.weigh(server);
            self.plan_warming(server);
        }
    }

    pub(super) fn plan_warming(&mut self, server: usize) {
        let entry = &self.entries[server];
        if let (Some(_), Some(slowstart)) = (entry.warm_since, entry.config.slowstart) {
            let at = self.now + slowstart / WARM_STEPS;
            self.warm_at = Some(self.warm_at.map_or(at, |planned| planned.min(at)));
            self.warming.insert(server);
        }
    }

    pub(super) fn went_up(&mut self, server: usize) {
        let entry = &mut self.entries[server];
        let slowstart = entry.config.slowstart.filter(|slowstart| !slowstart.is_zero());
        entry.warm_since = slowstart.map(|_| self.now);
        {
            let mut notes = entry.state.notes();
            let down = self.now.saturating_duration_since(notes.changed);
            notes.down_time += down;
            notes.changed = self.now;
        }
        let cut = entry.config.check.on_marked_up == MarkedUp::ShutdownBackupSessions && !entry.config.backup;
        self.plan_warming(server);
        if cut {
            self.entries.iter().filter(|entry| entry.config.backup).for_each(|entry| entry.state.cut_sessions());
        }
    }

    pub(super) fn went_down(&mut self, server: usize, wakers: &mut Wakers) -> u32 {
        let entry = &mut self.entries[server];
        entry.warm_since = None;
        {
            let mut notes = entry.state.notes();
            notes.changed = self.now;
            notes.downs += 1;
        }
        if entry.config.check.on_marked_down == MarkedDown::ShutdownSessions {
            entry.state.cut_sessions();
        }
        if self.settings.persist {
            return 0;
        }
        let queue = entry.queue.take();
        let moved = queue.len() as u32;
        self.note_queue(server);
        self.note_load(server);
        self.ask_again(queue, wakers);
        moved
    }

    /// Those who wait for a server that was removed or disabled.
    pub(super) fn requeue(&mut self, queue: Queue, wakers: &mut Wakers) {
        if self.group.is_hashing() {
            self.ask_again(queue, wakers);
        } else {
            self.queue.append(queue);
        }
    }

    pub(super) fn ask_again(&mut self, mut queue: Queue, wakers: &mut Wakers) {
        while let Some(waiter) = queue.pop() {
            self.sessions = self.sessions.saturating_sub(1);
            wakers.0.extend(waiter.grant(Granted::Again));
        }
    }
}

impl Wakers {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}
