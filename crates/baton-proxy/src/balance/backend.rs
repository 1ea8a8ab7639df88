//! A backend's servers, slots and queues behind one lock.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use baton_model::{MarkedDown, MarkedUp, Proxy};

use super::entry::{Entry, Settings};
use super::group::{Choice, Group, Load, Member, Question};
use super::queue::{Queue, Waiter};
use super::server::GONE;
use super::{Admin, Ask, Found, Granted, HealthState, Outages, Picked, QUEUE_MAX, ServerState, Slot, Waiting, Wanted};

/// What is remembered of a backend over reloads. One lock; figures that others read are atomics.
pub struct BackendState {
    name: Arc<str>,
    inner: Mutex<Inner>,
    /// Requests in all its queues together, in its own one, and the most that were ever in its own one.
    queued: AtomicU32,
    waiting: AtomicU32,
    pub(super) waiting_max: AtomicU32,
    active: AtomicU32,
    backups: AtomicU32,
    /// Locked after `inner` only.
    outages: Mutex<Outages>,
}

/// What a change of a server's state led to; HAProxy's log line and statistics say it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Transition {
    /// Usable active servers left.
    pub active: u32,
    /// Usable backups left.
    pub backups: u32,
    /// Sessions on the server.
    pub sessions: u32,
    /// Requests that left its queue.
    pub requeued: u32,
    /// Requests that still wait for it.
    pub remaining: u32,
}

pub(super) struct Inner {
    /// What all of it was made of.
    proxy: Arc<Proxy>,
    settings: Settings,
    /// In the order of the configuration; [`ServerState::index`] points here.
    pub(super) entries: Vec<Entry>,
    pub(super) group: Group,
    queue: Queue,
    tickets: u64,
    /// Slots in use and requests queued, of all servers and the backend: HAProxy's `beconn`.
    sessions: u32,
    /// The time of the last event: what has no clock of its own uses it.
    pub(super) now: Instant,
    /// When effective weights of servers in slow start have to be computed again.
    warm_at: Option<Instant>,
}

/// Wakers to call when the lock is released.
#[derive(Default)]
struct Wakers(Vec<Waker>);

impl BackendState {
    /// The state of a backend that nobody used yet.
    pub fn new(proxy: &Arc<Proxy>, now: Instant) -> Arc<BackendState> {
        Arc::new_cyclic(|backend| {
            let entries = proxy.servers.iter().map(|server| Entry::new(backend.clone(), server, now)).collect();
            let mut inner = Inner {
                proxy: Arc::clone(proxy),
                settings: Settings::new(proxy),
                entries,
                group: Group::new(&proxy.balance, proxy.tcp.all_backups, Vec::new()),
                queue: Queue::default(),
                tickets: 0,
                sessions: 0,
                now,
                warm_at: None,
            };
            inner.number(proxy);
            inner.group = Group::new(&proxy.balance, proxy.tcp.all_backups, inner.members());
            let state = BackendState {
                name: Arc::clone(&proxy.name),
                inner: Mutex::new(inner),
                queued: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
                waiting_max: AtomicU32::new(0),
                active: AtomicU32::new(0),
                backups: AtomicU32::new(0),
                outages: Mutex::new(Outages::begin(now)),
            };
            state.publish(&state.lock());
            state
        })
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A reload. Servers are matched by name; what did not change keeps its health, counts, positions and places in
    /// queues. A removed server gives no more slots, those in flight live on, and its queue moves to the backend's (or
    /// asks again, for algorithms that hash). Cannot fail.
    pub fn reconfigure(self: &Arc<Self>, proxy: &Arc<Proxy>, now: Instant) {
        let mut wakers = Wakers::default();
        {
            let mut inner = self.lock();
            if Arc::ptr_eq(&inner.proxy, proxy) {
                // The first commit.
                return;
            }
            inner.now = now;
            inner.proxy = Arc::clone(proxy);
            inner.reconfigure(self, proxy, &mut wakers);
            self.hand_out_all(&mut inner, &mut wakers);
            self.publish(&inner);
        }
        wakers.wake();
    }

    /// Sets `fullconn` where the configuration leaves it open: a tenth of the `maxconn` of the frontends that lead here.
    pub fn set_fullconn(&self, fullconn: u32) {
        self.lock().settings.fullconn = fullconn;
    }

    /// Chooses a server for a request, and takes a slot or a place in a queue. One lock; no allocation unless it queues.
    pub fn pick(self: &Arc<Self>, ask: &Ask<'_>) -> Picked {
        let mut inner = self.lock();
        inner.now = ask.now;
        if inner.warm_at.is_some_and(|at| at <= ask.now) {
            inner.warm();
        }
        let mut found = Found::Nothing;
        if let Some(wanted) = ask.wanted {
            let avoid = ask.avoid.map(|server| server.index.load(Ordering::Relaxed));
            match inner.wanted(wanted, ask.force, avoid) {
                Ok(server) => match self.take(&mut inner, server, Found::Kept) {
                    // A queue that is full breaks persistence, as the manual says of `maxqueue`.
                    Picked::Full => found = Found::Full,
                    picked => return picked,
                },
                Err(why) => found = why,
            }
        }
        if let Some(last) = ask.last.filter(|_| inner.settings.prefer_last && ask.avoid.is_none()) {
            let server = last.index.load(Ordering::Relaxed);
            if server < inner.entries.len() && last.is_usable() && !inner.load(server).full {
                return self.take(&mut inner, server, found);
            }
        }
        match inner.balance(ask) {
            Choice::Server(server) => self.take(&mut inner, server, found),
            Choice::Full => self.enqueue(&mut inner, None, found),
            Choice::None => Picked::None,
        }
    }

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<Arc<ServerState>> {
        self.lock().entries.iter().find(|entry| &**entry.state.name() == name).map(|entry| Arc::clone(&entry.state))
    }

    /// The server whose persistence cookie has that value; one that is running first.
    pub fn server_by_cookie(&self, value: &[u8]) -> Option<Arc<ServerState>> {
        let inner = self.lock();
        let mut named = inner.entries.iter().filter(|entry| entry.has_cookie(value)).map(|entry| &entry.state);
        let first = named.clone().next();
        named.find(|server| server.is_running()).or(first).cloned()
    }

    /// All servers in the order of the configuration.
    pub fn servers(&self) -> Vec<Arc<ServerState>> {
        self.lock().entries.iter().map(|entry| Arc::clone(&entry.state)).collect()
    }

    /// Requests in the backend's queue and in its servers' queues (`qcur` of the backend).
    pub fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Requests in the backend's own queue.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The most that ever waited in the backend's own queue.
    pub fn waiting_max(&self) -> u32 {
        self.waiting_max.load(Ordering::Relaxed)
    }

    /// Its outages until `now`.
    pub fn outages_until(&self, now: Instant) -> Outages {
        self.outages().until(now)
    }

    /// The most that queued, and the most slots of servers, are what they are now (`clear counters`). With `all`, what was
    /// counted begins anew too: slots given, and how often and how long servers and the backend were down.
    pub fn clear(&self, all: bool) {
        let inner = self.lock();
        self.waiting_max.store(inner.queue.len() as u32, Ordering::Relaxed);
        for entry in &inner.entries {
            entry.state.clear(all);
        }
        if all {
            self.outages().clear();
        }
    }

    /// Usable active servers (`act`).
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// Usable backups (`bck`).
    pub fn backups(&self) -> u32 {
        self.backups.load(Ordering::Relaxed)
    }

    pub(super) fn set_health(
        self: &Arc<Self>,
        server: &ServerState,
        health: HealthState,
        now: Instant,
    ) -> Option<Transition> {
        self.change(server, now, |server| {
            let before = server.health();
            server.store_health(health);
            before != health
        })
    }

    pub(super) fn set_admin(self: &Arc<Self>, server: &ServerState, admin: Admin, now: Instant) -> Option<Transition> {
        self.change(server, now, |server| {
            let before = server.admin();
            server.store_admin(admin);
            // Who leaves maintenance is up until a check says otherwise, as in HAProxy; a tracked server decides for others.
            let leaves = before.in_maintenance() && !admin.in_maintenance();
            if leaves && server.health() == HealthState::Down && server.notes().config.check.track.is_none() {
                server.store_health(HealthState::Up);
            }
            before != admin
        })
    }

    pub(super) fn set_weight(self: &Arc<Self>, server: &ServerState, weight: u32, now: Instant) {
        self.change(server, now, |server| {
            let before = server.weight.swap(weight.min(WEIGHT_MAX), Ordering::Relaxed);
            before != weight
        });
    }

    /// Other processes hold so many sessions on the server now.
    pub(super) fn set_elsewhere(self: &Arc<Self>, server: &ServerState, sessions: u32) {
        let mut wakers = Wakers::default();
        {
            let mut inner = self.lock();
            server.elsewhere.store(sessions, Ordering::Relaxed);
            let index = server.index.load(Ordering::Relaxed);
            if index != GONE {
                self.hand_out(&mut inner, index, &mut wakers);
            }
        }
        wakers.wake();
    }

    /// Gives a slot back.
    pub(super) fn release(self: &Arc<Self>, server: &Arc<ServerState>) {
        let mut wakers = Wakers::default();
        {
            let mut inner = self.lock();
            server.served.fetch_sub(1, Ordering::Relaxed);
            inner.sessions = inner.sessions.saturating_sub(1);
            let index = server.index.load(Ordering::Relaxed);
            if index != GONE {
                inner.note_load(index);
                self.hand_out(&mut inner, index, &mut wakers);
            }
        }
        wakers.wake();
    }

    /// Leaves a queue: the server's that was joined, or the backend's where it may have moved.
    pub(super) fn leave(&self, server: Option<&Arc<ServerState>>, ticket: u64) {
        let mut inner = self.lock();
        let index = server.map_or(GONE, |server| server.index.load(Ordering::Relaxed));
        let own = inner.entries.get_mut(index).is_some_and(|entry| {
            let left = entry.queue.remove(ticket);
            entry.count_queue();
            left
        });
        if own {
            inner.note_load(index);
        }
        let left = own || inner.queue.remove(ticket);
        if left {
            inner.sessions = inner.sessions.saturating_sub(1);
            self.publish(&inner);
        }
    }

    /// Changes a server's state and does what follows from it.
    fn change(
        self: &Arc<Self>,
        server: &ServerState,
        now: Instant,
        change: impl FnOnce(&ServerState) -> bool,
    ) -> Option<Transition> {
        let mut wakers = Wakers::default();
        let transition = {
            let mut inner = self.lock();
            inner.now = now;
            let index = server.index.load(Ordering::Relaxed);
            if index == GONE {
                return None;
            }
            let running = server.is_running();
            if !change(server) {
                return None;
            }
            let mut transition = Transition::default();
            match (running, server.is_running()) {
                (true, false) => transition.requeued = inner.went_down(index, &mut wakers),
                (false, true) => inner.went_up(index),
                (true, true) | (false, false) => {}
            }
            inner.weigh(index);
            // Backups may have become usable by this, so all are looked at.
            self.hand_out_all(&mut inner, &mut wakers);
            self.publish(&inner);
            transition.sessions = server.served();
            transition.remaining = inner.entries[index].queue.len() as u32;
            (transition.active, transition.backups) = (self.active(), self.backups());
            transition
        };
        wakers.wake();
        Some(transition)
    }

    /// A slot of this server, or a place in its queue.
    fn take(self: &Arc<Self>, inner: &mut Inner, server: usize, found: Found) -> Picked {
        if inner.load(server).full {
            return self.enqueue(inner, Some(server), found);
        }
        inner.sessions += 1;
        Picked::Slot(self.slot(inner, server, found))
    }

    fn enqueue(self: &Arc<Self>, inner: &mut Inner, server: Option<usize>, found: Found) -> Picked {
        let queue = match server {
            Some(server) => &inner.entries[server].queue,
            None => &inner.queue,
        };
        let bound = server.map(|server| inner.entries[server].config.maxqueue as usize).filter(|bound| *bound > 0);
        let position = queue.len();
        if position >= bound.unwrap_or(QUEUE_MAX).min(QUEUE_MAX) {
            return Picked::Full;
        }
        inner.tickets += 1;
        inner.sessions += 1;
        let waiter = Waiter::new(inner.tickets, found);
        let server = match server {
            Some(index) => {
                let entry = &mut inner.entries[index];
                entry.queue.push(Arc::clone(&waiter));
                entry.count_queue();
                let server = Arc::clone(&entry.state);
                inner.note_load(index);
                Some(server)
            }
            None => {
                inner.queue.push(Arc::clone(&waiter));
                None
            }
        };
        self.publish(inner);
        Picked::Queue(Waiting { backend: Arc::clone(self), server, waiter, position, done: false })
    }

    /// Counts a slot as taken.
    fn slot(self: &Arc<Self>, inner: &mut Inner, server: usize, found: Found) -> Slot {
        let entry = &inner.entries[server];
        let served = entry.state.served.fetch_add(1, Ordering::Relaxed) + 1;
        entry.state.served_max.fetch_max(served, Ordering::Relaxed);
        entry.state.total.fetch_add(1, Ordering::Relaxed);
        let slot = Slot {
            backend: Arc::clone(self),
            server: Arc::clone(&entry.state),
            config: Arc::clone(&entry.config),
            found,
            cut: entry.state.cuts.load(Ordering::Acquire),
        };
        inner.note_load(server);
        slot
    }

    /// Hands free slots of a server to those who wait: the oldest of its own queue and of the backend's first.
    fn hand_out(self: &Arc<Self>, inner: &mut Inner, server: usize, wakers: &mut Wakers) {
        let mut changed = false;
        while inner.has_room(server) {
            let own = inner.entries[server].queue.head();
            let common = inner.queue.head().filter(|_| inner.group.takes_part(server));
            let waiter = match (own, common) {
                (None, None) => break,
                (Some(own), Some(common)) if common < own => inner.queue.pop(),
                (Some(_), _) => inner.entries[server].queue.pop(),
                (None, Some(_)) => inner.queue.pop(),
            };
            let Some(waiter) = waiter else { break };
            changed = true;
            inner.entries[server].count_queue();
            let slot = self.slot(inner, server, waiter.found);
            wakers.0.extend(waiter.grant(Granted::Slot(slot)));
        }
        if changed {
            self.publish(inner);
        }
    }

    fn hand_out_all(self: &Arc<Self>, inner: &mut Inner, wakers: &mut Wakers) {
        for server in 0..inner.entries.len() {
            self.hand_out(inner, server, wakers);
        }
    }

    pub(super) fn publish(&self, inner: &Inner) {
        let waiting = inner.queue.len() as u32;
        let servers: usize = inner.entries.iter().map(|entry| entry.queue.len()).sum();
        self.waiting.store(waiting, Ordering::Relaxed);
        self.waiting_max.fetch_max(waiting, Ordering::Relaxed);
        self.queued.store(waiting + servers as u32, Ordering::Relaxed);
        let (active, backups) = inner.group.usable();
        self.active.store(active as u32, Ordering::Relaxed);
        self.backups.store(backups as u32, Ordering::Relaxed);
        self.outages().look(active + backups > 0 || inner.entries.is_empty(), inner.now);
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The largest `weight`.
const WEIGHT_MAX: u32 = 256;

/// Into how many steps a slow start is divided.
const WARM_STEPS: u32 = 20;

impl Inner {
    fn reconfigure(&mut self, backend: &Arc<BackendState>, proxy: &Proxy, wakers: &mut Wakers) {
        let mut before: Vec<Option<Entry>> = std::mem::take(&mut self.entries).into_iter().map(Some).collect();
        let mut old = Vec::with_capacity(proxy.servers.len());
        for server in &proxy.servers {
            let at =
                before.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.state.name() == &server.name));
            old.push(at);
            let entry = match at.and_then(|at| before[at].take()) {
                Some(entry) => entry.changed(server),
                None => Entry::new(Arc::downgrade(backend), server, self.now),
            };
            self.entries.push(entry);
        }
        let mut orphans = Vec::new();
        for entry in before.into_iter().flatten() {
            entry.state.index.store(GONE, Ordering::Relaxed);
            entry.state.queued.store(0, Ordering::Relaxed);
            orphans.push(entry.queue);
        }
        self.settings = Settings { fullconn: proxy.fullconn.unwrap_or(self.settings.fullconn), ..Settings::new(proxy) };
        self.number(proxy);
        let members = self.members();
        self.group = self.group.rebuilt(&proxy.balance, proxy.tcp.all_backups, members, &old);
        // Who waits for a server that the file now disables must not wait for ever.
        for entry in self.entries.iter_mut().filter(|entry| !entry.state.is_running() && !proxy.tcp.persist) {
            orphans.push(entry.queue.take());
            entry.count_queue();
        }
        orphans.into_iter().for_each(|queue| self.requeue(queue, wakers));
        for index in 0..self.entries.len() {
            self.note_load(index);
        }
    }

    /// Tells servers their places and what follows from the proxy's settings.
    fn number(&mut self, proxy: &Proxy) {
        let cuts_backups =
            proxy.servers.iter().any(|server| server.check.on_marked_up == MarkedUp::ShutdownBackupSessions);
        let dynamic = proxy.cookie.as_ref().and_then(|cookie| cookie.dynamic_key.as_deref());
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let config = &entry.config;
            let cut = config.check.on_marked_down == MarkedDown::ShutdownSessions || config.backup && cuts_backups;
            entry.cookie = match (&config.cookie, dynamic) {
                (Some(value), _) => Some(value.as_str().into()),
                (None, Some(key)) => super::keys::dynamic_cookie(key, config).map(Into::into),
                (None, None) => None,
            };
            entry.state.may_be_cut.store(cut, Ordering::Relaxed);
            entry.state.notes().cookie = entry.cookie.clone();
            entry.state.index.store(index, Ordering::Relaxed);
        }
    }

    fn members(&mut self) -> Vec<Member> {
        let now = self.now;
        let members = self.entries.iter_mut().map(|entry| {
            let weight = entry.effective(now);
            entry.state.effective.store(weight, Ordering::Relaxed);
            Member { id: entry.config.id, backup: entry.config.backup, weight: entry.usable_weight(weight) }
        });
        members.collect()
    }

    /// The wanted server, or why it cannot be had.
    fn wanted(&self, wanted: Wanted<'_>, force: bool, avoid: Option<usize>) -> Result<usize, Found> {
        let mut known = false;
        for (index, entry) in self.entries.iter().enumerate() {
            let matches = match wanted {
                Wanted::Cookie(value) => entry.has_cookie(value),
                Wanted::Name(name) => &**entry.state.name() == name,
            };
            if !matches {
                continue;
            }
            known = true;
            if Some(index) != avoid && (force || self.settings.persist || entry.state.is_running()) {
                return Ok(index);
            }
        }
        Err(if known { Found::Down } else { Found::Unknown })
    }

    fn balance(&mut self, ask: &Ask<'_>) -> Choice {
        let Inner { entries, group, settings, sessions, .. } = self;
        let question = Question {
            key: ask.key,
            random: ask.random,
            avoid: ask.avoid.map(|server| server.index.load(Ordering::Relaxed)),
            factor: settings.balance.factor,
            load: &|server| entries[server].load(*sessions, settings.fullconn, ask.now),
        };
        group.choose(&question)
    }

    fn load(&self, server: usize) -> Load {
        self.entries[server].load(self.sessions, self.settings.fullconn, self.now)
    }

    /// Whether one who waits could have a slot now.
    fn has_room(&self, server: usize) -> bool {
        let entry = &self.entries[server];
        let limit = entry.limit(self.sessions, self.settings.fullconn, self.now);
        entry.state.is_running() && limit.is_none_or(|limit| entry.state.occupied() < limit)
    }

    fn note_load(&mut self, server: usize) {
        let entry = &self.entries[server];
        self.group.set_load(server, entry.state.served() + entry.queue.len() as u32);
    }

    /// The server's effective weight may have changed.
    pub(super) fn weigh(&mut self, server: usize) {
        let entry = &mut self.entries[server];
        let weight = entry.effective(self.now);
        entry.state.effective.store(weight, Ordering::Relaxed);
        let load = entry.state.served() + entry.queue.len() as u32;
        let usable = entry.usable_weight(weight);
        self.group.set_weight(server, usable, load);
    }

    /// A step of all slow starts.
    fn warm(&mut self) {
        self.warm_at = None;
        for server in 0..self.entries.len() {
            if self.entries[server].warm_since.is_some() {
                self.weigh(server);
                self.plan_warming(server);
            }
        }
    }

    pub(super) fn plan_warming(&mut self, server: usize) {
        let entry = &self.entries[server];
        if let (Some(_), Some(slowstart)) = (entry.warm_since, entry.config.slowstart) {
            let at = self.now + slowstart / WARM_STEPS;
            self.warm_at = Some(self.warm_at.map_or(at, |planned| planned.min(at)));
        }
    }

    fn went_up(&mut self, server: usize) {
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

    fn went_down(&mut self, server: usize, wakers: &mut Wakers) -> u32 {
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
        entry.count_queue();
        let moved = queue.len() as u32;
        self.group.set_load(server, self.entries[server].state.served());
        self.ask_again(queue, wakers);
        moved
    }

    /// Those who wait for a server that was removed or disabled.
    fn requeue(&mut self, queue: Queue, wakers: &mut Wakers) {
        if self.group.is_hashing() {
            self.ask_again(queue, wakers);
        } else {
            self.queue.append(queue);
        }
    }

    fn ask_again(&mut self, mut queue: Queue, wakers: &mut Wakers) {
        while let Some(waiter) = queue.pop() {
            self.sessions = self.sessions.saturating_sub(1);
            wakers.0.extend(waiter.grant(Granted::Again));
        }
    }
}

impl Wakers {
    fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for BackendState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BackendState({})", self.name)
    }
}
