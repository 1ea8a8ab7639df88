//! A backend's servers, slots and queues behind one lock.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use baton_model::{EffectiveServer, Proxy, Server};
use baton_rules::QueuePriority;
use tokio::sync::Notify;

use super::edit::{Addition, Edit, Entered, Removal};
use super::entry::{Entry, Settings};
use super::group::Choice;
use super::inner::{Inner, Wakers};
use super::layout::Layouts;
use super::queue::{Queue, QueueTicket, Waiter};
use super::replacement::{Effective, Encryptions, InUse, Replacement};
use super::server::GONE;
use super::{
    Admin, Affinity, Granted, HealthState, Outages, PickCriteria, Picked, QUEUE_MAX, QueueWait, ServerState, Slot,
    WantedServer,
};
use crate::upstream::ServerTlsContext;

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
    /// Who wants to know of changes.
    told: OnceLock<Arc<Notify>>,
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

/// What [`BackendState::edition`] gives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Edition {
    reloads: u64,
    changes: u64,
}

impl BackendState {
    /// The state of a backend that nobody used yet.
    pub fn new(proxy: &Arc<Proxy>, now: Instant) -> Arc<BackendState> {
        Arc::new_cyclic(|backend| {
            let next = Replacement::build(backend, proxy, InUse::default(), (&EffectiveServer::of, &|_| None), now);
            let Replacement { proxy, entries, directory, group, .. } = next;
            let inner = Inner {
                settings: Settings::new(&proxy),
                entries,
                directory,
                group,
                queue: Queue::default(),
                queued: 0,
                reloads: 0,
                changes: 0,
                tickets: 0,
                began: now,
                arrival_ms: 0,
                sessions: 0,
                now,
                warm_at: None,
                warming: BTreeSet::new(),
                proxy,
            };
            let state = BackendState {
                name: Arc::clone(&inner.proxy.name),
                inner: Mutex::new(inner),
                queued: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
                waiting_max: AtomicU32::new(0),
                active: AtomicU32::new(0),
                backups: AtomicU32::new(0),
                outages: Mutex::new(Outages::begin(now)),
                told: OnceLock::new(),
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
        self.replace(proxy, &EffectiveServer::of, &|_| None, now);
    }

    /// [`BackendState::reconfigure`] with what is in force of each server, and TLS of those that speak it.
    pub fn replace(
        self: &Arc<Self>,
        proxy: &Arc<Proxy>,
        effective: &dyn Fn(&Server) -> EffectiveServer,
        encryption: &dyn Fn(&str) -> Option<Arc<ServerTlsContext>>,
        now: Instant,
    ) {
        let mut is_edit = true;
        loop {
            let (seen, is_known) = {
                let inner = self.lock();
                (inner.in_use(), Arc::ptr_eq(&inner.proxy, proxy))
            };
            let mut wakers = Wakers::default();
            let backend = Arc::downgrade(self);
            let edit = || Edit::build(&backend, proxy, &seen, (effective, encryption), now);
            let (is_done, is_stale) = if is_known {
                self.tell_again(&seen, (effective, encryption), now)
            } else if let Some(mut edit) = is_edit.then(edit).flatten() {
                let done = self.edit(&mut edit, seen.reloads, now);
                // Somebody uses a server that leaves, or there is another configuration by now.
                is_edit = done.0;
                done
            } else {
                let mut next = Replacement::build(&backend, proxy, seen, (effective, encryption), now);
                self.swap(&mut next, &mut wakers, now)
            };
            wakers.wake();
            if is_stale {
                self.lay();
            }
            if is_done {
                return;
            }
        }
    }

    /// [`BackendState::replace`] by a configuration of which it is known that it has one server more, its last one, and that nothing else
    /// differs, nor what is in force of the others. None of them is looked at as long as the new one takes no part.
    pub fn add(
        self: &Arc<Self>,
        proxy: &Arc<Proxy>,
        effective: &dyn Fn(&Server) -> EffectiveServer,
        encryption: &dyn Fn(&str) -> Option<Arc<ServerTlsContext>>,
        now: Instant,
    ) {
        let before = Arc::clone(&self.lock().proxy);
        let Some(mut addition) = Addition::build(&Arc::downgrade(self), proxy, before, encryption, now) else {
            return self.replace(proxy, effective, encryption, now);
        };
        let (former, is_stale) = loop {
            let mut inner = self.lock();
            match inner.enter(&mut addition) {
                Entered::Done => {
                    let former = inner.add(addition);
                    inner.now = now;
                    self.publish(&inner);
                    break (former, inner.group.is_stale());
                }
                Entered::NoRoom => {
                    let directory = Arc::clone(&inner.directory);
                    drop(inner);
                    let grown = Arc::new(directory.grown(&addition.entry));
                    addition.grown = Some((directory, grown));
                }
                Entered::Replaced => {
                    drop(inner);
                    return self.replace(proxy, effective, encryption, now);
                }
            }
        };
        drop(former);
        if is_stale {
            self.lay();
        }
    }

    /// [`BackendState::replace`] by a configuration of which it is known that it does not have this server, and that nothing else differs,
    /// nor what is in force of the others. None of them is looked at as long as nobody uses the one that leaves.
    pub fn remove(
        self: &Arc<Self>,
        proxy: &Arc<Proxy>,
        server: &ServerState,
        effective: &dyn Fn(&Server) -> EffectiveServer,
        encryption: &dyn Fn(&str) -> Option<Arc<ServerTlsContext>>,
        now: Instant,
    ) {
        let before = Arc::clone(&self.lock().proxy);
        let Some(mut removal) = Removal::build(proxy, before, server) else {
            return self.replace(proxy, effective, encryption, now);
        };
        loop {
            let mut inner = self.lock();
            match inner.remove(&mut removal) {
                Entered::Done => {
                    inner.now = now;
                    self.publish(&inner);
                    let is_stale = inner.group.is_stale();
                    drop(inner);
                    drop(removal);
                    if is_stale {
                        self.lay();
                    }
                    return;
                }
                Entered::NoRoom => {
                    let directory = Arc::clone(&inner.directory);
                    drop(inner);
                    let copy = Arc::new(directory.copied());
                    removal.copy = Some((directory, copy));
                }
                Entered::Replaced => {
                    drop(inner);
                    return self.replace(proxy, effective, encryption, now);
                }
            }
        }
    }

    /// Edits the servers in use, unless they were replaced meanwhile or somebody uses one that leaves. Whether it did, and whether there
    /// is something to lay.
    fn edit(&self, edit: &mut Edit, reloads: u64, now: Instant) -> (bool, bool) {
        let mut inner = self.lock();
        if inner.reloads != reloads || !inner.edit(edit) {
            return (false, false);
        }
        inner.now = now;
        self.publish(&inner);
        (true, inner.group.is_stale())
    }

    /// Swaps in what was built, unless servers were replaced meanwhile. Whether it did, and whether there is something to lay.
    pub(super) fn swap(self: &Arc<Self>, next: &mut Replacement, wakers: &mut Wakers, now: Instant) -> (bool, bool) {
        let mut inner = self.lock();
        if inner.reloads != next.seen.reloads {
            return (false, false);
        }
        inner.now = now;
        inner.swap(next, wakers);
        self.hand_out_all(&mut inner, wakers);
        self.publish(&inner);
        (true, inner.group.is_stale())
    }

    /// The configuration in use once more, as in its first commit: what is in force of servers, and TLS with them, may be others.
    fn tell_again(
        &self,
        seen: &InUse,
        (effective, encryption): (Effective<'_>, Encryptions<'_>),
        now: Instant,
    ) -> (bool, bool) {
        let mut others = Vec::new();
        for (server, state) in seen.directory.servers.iter().enumerate() {
            let Some(state) = state else { continue };
            let config = state.config();
            let encryption = config.any_tls().and_then(|_| encryption(state.name()));
            let mut entry = Entry::of(Arc::clone(state), &config);
            entry.encryption = encryption;
            let effective = effective(&config);
            if !entry.is_in_force(effective) {
                others.push((server, entry.encryption, effective));
            }
        }
        let mut inner = self.lock();
        if inner.reloads != seen.reloads {
            return (false, false);
        }
        inner.now = now;
        for (server, encryption, effective) in others {
            let entry = &mut inner.entries[server];
            entry.encrypt(encryption);
            if entry.settle(effective) {
                inner.weigh(server);
            }
        }
        self.publish(&inner);
        (true, inner.group.is_stale())
    }

    /// Has servers that nobody uses yet as what is in force of each says.
    pub fn settle(&self, effective: &dyn Fn(&Server) -> EffectiveServer) {
        let mut inner = self.lock();
        inner.settle(effective);
        self.publish(&inner);
    }

    /// Sets `fullconn` where the configuration leaves it open: a tenth of the `maxconn` of the frontends that lead here.
    pub fn set_fullconn(&self, fullconn: u32) {
        self.lock().settings.fullconn = fullconn;
    }

    /// Chooses a server for a request, and takes a slot or a place in a queue. One lock; no allocation unless it queues.
    pub fn pick(self: &Arc<Self>, ask: &PickCriteria<'_>) -> Picked {
        let mut inner = self.lock();
        inner.now = ask.now;
        if inner.warm_at.is_some_and(|at| at <= ask.now) {
            inner.warm();
        }
        let mut found = Affinity::Nothing;
        if let Some(wanted) = ask.wanted {
            let avoid = ask.avoid.map(|server| server.index.load(Ordering::Relaxed));
            match inner.wanted(wanted, ask.force, avoid) {
                Ok(server) => match self.take(&mut inner, server, Affinity::Kept, ask.priority) {
                    // A queue that is full breaks persistence, as the manual says of `maxqueue`.
                    Picked::Full => found = Affinity::Full,
                    picked => return picked,
                },
                Err(why) => found = why,
            }
        }
        if let Some(last) = ask.last.filter(|_| inner.settings.prefer_last && ask.avoid.is_none()) {
            let server = last.index.load(Ordering::Relaxed);
            if server < inner.entries.len() && last.is_usable() && !inner.load(server).full {
                return self.take(&mut inner, server, found, ask.priority);
            }
        }
        match inner.balance(ask) {
            Choice::Server(server) => self.take(&mut inner, server, found, ask.priority),
            Choice::Full => self.enqueue(&mut inner, None, found, ask.priority),
            Choice::None => Picked::None,
        }
    }

    /// The slot of a session that another process had until now, whatever the server's limit and state. It is counted as one of its sessions,
    /// but not as one more that was chosen. `None`: there is no such server.
    pub fn resume(self: &Arc<Self>, server: &str) -> Option<Slot> {
        let mut inner = self.lock();
        let at = inner.directory.names.find(server.as_bytes()).next()?;
        let total = inner.entries[at].state.total.load(Ordering::Relaxed);
        inner.sessions += 1;
        let slot = self.slot(&mut inner, at, Affinity::Kept);
        inner.entries[at].state.total.store(total, Ordering::Relaxed);
        Some(slot)
    }

    /// Whether a server that is wanted may be taken, whatever others there are; else why not.
    pub fn judge(&self, wanted: WantedServer<'_>, force: bool) -> Result<(), Affinity> {
        self.lock().wanted(wanted, force, None).map(|_| ())
    }

    /// The server that is wanted, if it may be taken; else why not.
    pub fn wanted(&self, wanted: WantedServer<'_>, force: bool) -> Result<Arc<ServerState>, Affinity> {
        let inner = self.lock();
        inner.wanted(wanted, force, None).map(|server| Arc::clone(&inner.entries[server].state))
    }

    /// The server with this id that is like this, or else the first one like this. Where servers have the ids of their positions, one is
    /// looked at; else one after the other.
    pub fn find_server(&self, id: u32, mut is: impl FnMut(&Server) -> bool) -> Option<Arc<ServerState>> {
        let directory = Arc::clone(&self.lock().directory);
        let guess = (id as usize).checked_sub(1).and_then(|at| directory.servers.get(at)?.as_ref());
        let guess = guess.filter(|server| {
            let config = server.config();
            config.id == id && is(&config)
        });
        guess.or_else(|| directory.servers.iter().flatten().find(|server| is(&server.config()))).cloned()
    }

    /// The name of the first server at this address that may be taken: one that is up, or any if `force`.
    pub fn name_at(&self, address: SocketAddr, force: bool) -> Option<String> {
        let is_it = |server: &&Arc<ServerState>| {
            (force || server.is_running()) && server.config().address.inet() == Some(address)
        };
        let directory = Arc::clone(&self.lock().directory);
        directory.servers.iter().flatten().find(is_it).map(|server| server.name().to_string())
    }

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<Arc<ServerState>> {
        let inner = self.lock();
        inner.find(name).map(|server| Arc::clone(&inner.entries[server].state))
    }

    /// By what is seen whether servers, their states or their weights may have changed since.
    pub fn edition(&self) -> Edition {
        let inner = self.lock();
        Edition { reloads: inner.reloads, changes: inner.changes }
    }

    /// All servers in the order of the configuration.
    pub fn servers(&self) -> Vec<Arc<ServerState>> {
        let directory = Arc::clone(&self.lock().directory);
        directory.servers.iter().flatten().cloned().collect()
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
        /// So many servers are cleared before others may have the lock.
        const AT_ONCE: usize = 16;
        for servers in self.servers().chunks(AT_ONCE) {
            let _written_under_the_lock = self.lock();
            servers.iter().for_each(|server| server.clear(all));
        }
        let inner = self.lock();
        self.waiting_max.store(inner.queue.len() as u32, Ordering::Relaxed);
        if all {
            self.outages().clear();
        }
    }

    /// The server of that name with the slots that it has now (`None`: no limit), as `minconn` and slow start make of its `maxconn`.
    pub fn limit_of(&self, name: &str, now: Instant) -> Option<(Arc<ServerState>, Option<u32>)> {
        let inner = self.lock();
        let entry = &inner.entries[inner.find(name)?];
        Some((Arc::clone(&entry.state), entry.limit(inner.sessions, inner.settings.fullconn, now)))
    }

    /// Calls `each` with every server, its settings and the slots that it has now (`None`: no limit).
    pub fn look_at_servers(&self, now: Instant, mut each: impl FnMut(&ServerState, &Server, Option<u32>)) {
        let inner = self.lock();
        for (server, entry) in inner.directory.servers.iter().zip(&inner.entries) {
            if let Some(server) = server {
                each(server, &entry.config, entry.limit(inner.sessions, inner.settings.fullconn, now));
            }
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

    /// From now on this one is woken when a server's state or weight changes. There is one for the life of the backend.
    pub fn tell_changes(&self, who: &Arc<Notify>) {
        self.told.get_or_init(|| who.clone());
    }

    /// Takes slow starts a step further if it is time, for who balances without picking here.
    pub fn warm_up(&self, now: Instant) {
        let mut inner = self.lock();
        if inner.warm_at.is_some_and(|at| at <= now) {
            inner.now = now;
            inner.warm();
        }
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
            before != server.health()
        })
    }

    pub(super) fn hold(self: &Arc<Self>, server: &ServerState, is_held: bool, now: Instant) -> Option<Transition> {
        self.change(server, now, |server| {
            let before = server.health();
            server.store_hold(is_held);
            before != server.health()
        })
    }

    pub(super) fn force_health(
        self: &Arc<Self>,
        server: &ServerState,
        health: HealthState,
        is_held: bool,
        now: Instant,
    ) -> Option<Transition> {
        self.change(server, now, |server| {
            let before = server.health();
            server.store_health(health);
            server.store_hold(is_held);
            before != server.health()
        })
    }

    pub(super) fn set_admin(self: &Arc<Self>, server: &ServerState, admin: Admin, now: Instant) -> Option<Transition> {
        self.change(server, now, |server| {
            let before = server.admin();
            server.store_admin(admin);
            // Who leaves maintenance is up until a check says otherwise, as in HAProxy; a tracked server decides for others.
            let leaves = before.in_maintenance() && !admin.in_maintenance();
            if leaves && server.checked_health() == HealthState::Down && server.notes().config.check.track.is_none() {
                server.store_health(HealthState::Up);
            }
            if leaves && server.is_down_by_agent() {
                server.store_hold(true);
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
                inner.note_full(index);
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
    pub(super) fn leave(&self, server: Option<&Arc<ServerState>>, ticket: QueueTicket) {
        let mut inner = self.lock();
        let index = server.map_or(GONE, |server| server.index.load(Ordering::Relaxed));
        let own = inner.entries.get_mut(index).is_some_and(|entry| entry.queue.remove(ticket));
        if own {
            inner.note_queue(index);
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
        let (transition, is_stale) = {
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
            (transition, inner.group.is_stale())
        };
        wakers.wake();
        if is_stale {
            self.lay();
        }
        if let Some(told) = self.told.get() {
            told.notify_one();
        }
        Some(transition)
    }

    /// Lays what the algorithm wants for the servers as they are now, beside the lock.
    fn lay(self: &Arc<Self>) {
        loop {
            let (orders, reloads) = {
                let inner = self.lock();
                match inner.group.orders() {
                    Some(orders) => (orders, inner.reloads),
                    None => return,
                }
            };
            let layouts = orders.lay(&Layouts::default());
            let mut wakers = Wakers::default();
            let former = {
                let mut inner = self.lock();
                // What was laid for servers that a reload replaced meanwhile is nothing for these.
                (inner.reloads == reloads).then(|| {
                    let former = inner.group.take(layouts);
                    self.hand_out_all(&mut inner, &mut wakers);
                    former
                })
            };
            wakers.wake();
            drop(former);
        }
    }

    /// A slot of this server, or a place in its queue.
    fn take(self: &Arc<Self>, inner: &mut Inner, server: usize, found: Affinity, priority: QueuePriority) -> Picked {
        if inner.load(server).full {
            return self.enqueue(inner, Some(server), found, priority);
        }
        inner.sessions += 1;
        Picked::Slot(self.slot(inner, server, found))
    }

    fn enqueue(
        self: &Arc<Self>,
        inner: &mut Inner,
        server: Option<usize>,
        found: Affinity,
        priority: QueuePriority,
    ) -> Picked {
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
        // Never earlier than the one before, whatever core's clock it is by: without offsets, first come is first served.
        let arrival_ms = inner.now.saturating_duration_since(inner.began).as_millis() as i64;
        inner.arrival_ms = inner.arrival_ms.max(arrival_ms);
        let waiter = Waiter::new(QueueTicket::new(priority, inner.arrival_ms, inner.tickets), found);
        let server = match server {
            Some(index) => {
                let entry = &mut inner.entries[index];
                entry.queue.push(Arc::clone(&waiter));
                let server = Arc::clone(&entry.state);
                inner.note_queue(index);
                inner.note_load(index);
                Some(server)
            }
            None => {
                inner.queue.push(Arc::clone(&waiter));
                None
            }
        };
        self.publish(inner);
        Picked::Queue(QueueWait { backend: Arc::clone(self), server, waiter, position, done: false })
    }

    /// Counts a slot as taken.
    fn slot(self: &Arc<Self>, inner: &mut Inner, server: usize, found: Affinity) -> Slot {
        let entry = &inner.entries[server];
        let served = entry.state.served.fetch_add(1, Ordering::Relaxed) + 1;
        entry.state.served_max.fetch_max(served, Ordering::Relaxed);
        entry.state.total.fetch_add(1, Ordering::Relaxed);
        let slot = Slot {
            backend: Arc::clone(self),
            server: Arc::clone(&entry.state),
            config: Arc::clone(&entry.config),
            encryption: entry.encryption.clone(),
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
            inner.note_queue(server);
            let slot = self.slot(inner, server, waiter.found);
            wakers.0.extend(waiter.grant(Granted::Slot(slot)));
        }
        if changed {
            self.publish(inner);
        }
    }

    fn hand_out_all(self: &Arc<Self>, inner: &mut Inner, wakers: &mut Wakers) {
        for server in 0..inner.entries.len() {
            if inner.queued == 0 && inner.queue.len() == 0 {
                return;
            }
            self.hand_out(inner, server, wakers);
        }
    }

    pub(super) fn publish(&self, inner: &Inner) {
        let waiting = inner.queue.len() as u32;
        self.waiting.store(waiting, Ordering::Relaxed);
        self.waiting_max.fetch_max(waiting, Ordering::Relaxed);
        self.queued.store(waiting + inner.queued, Ordering::Relaxed);
        let (active, backups) = inner.group.usable();
        self.active.store(active as u32, Ordering::Relaxed);
        self.backups.store(backups as u32, Ordering::Relaxed);
        self.outages().look(active + backups > 0 || inner.proxy.servers.is_empty(), inner.now);
    }

    pub(super) fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The largest `weight`.
pub(super) const WEIGHT_MAX: u32 = 256;

impl fmt::Debug for BackendState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BackendState({})", self.name)
    }
}
