//! What a backend's lock guards: its servers, the algorithm's state and the queues, and what follows for them from a change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;

use baton_model::{EffectiveServer, MarkedDown, MarkedUp, Proxy, Server};

use super::entry::{Entry, Settings};
use super::group::{Choice, Group, Load, Member, Question, WEIGHT_SCALE};
use super::queue::Queue;
use super::server::GONE;
use super::words::Words;
use super::{Ask, BackendState, Found, Granted, Wanted};
use crate::upstream::Encryption;

/// Into how many steps a slow start is divided.
const WARM_STEPS: u32 = 20;

/// Under its backend's lock.
pub(super) struct Inner {
    /// What all of it was made of.
    pub(super) proxy: Arc<Proxy>,
    pub(super) settings: Settings,
    /// In the order of the configuration; [`ServerState::index`] points here.
    pub(super) entries: Vec<Entry>,
    /// Servers by name, and by the value of their cookie.
    pub(super) names: Words,
    pub(super) cookies: Words,
    pub(super) group: Group,
    pub(super) queue: Queue,
    /// Requests in the queues of servers.
    pub(super) queued: u32,
    /// How often the servers were replaced by those of another configuration.
    pub(super) reloads: u64,
    pub(super) tickets: u64,
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

/// What is in force of a server that the file has so.
pub(super) type Effective<'a> = &'a dyn Fn(&Server) -> EffectiveServer;

/// TLS of a server by its name.
pub(super) type Encryptions<'a> = &'a dyn Fn(&str) -> Option<Arc<Encryption>>;

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
        self.group.lay(None);
    }

    /// TLS of its servers, of those that speak it.
    pub(super) fn encrypt(&mut self, encryption: Encryptions<'_>) {
        for entry in &mut self.entries {
            let ready = entry.config.any_tls().and_then(|_| encryption(entry.state.name()));
            entry.encrypt(ready);
        }
    }

    pub(super) fn reconfigure(
        &mut self,
        backend: &Arc<BackendState>,
        proxy: &Proxy,
        (effective, encryption): (Effective<'_>, Encryptions<'_>),
        wakers: &mut Wakers,
    ) {
        self.reloads += 1;
        let mut before: Vec<Option<Entry>> = std::mem::take(&mut self.entries).into_iter().map(Some).collect();
        let mut old = Vec::with_capacity(proxy.servers.len());
        for server in &proxy.servers {
            let at =
                before.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.state.name() == &server.name));
            old.push(at);
            let entry = match at.and_then(|at| before[at].take()) {
                Some(entry) => entry.changed(server, effective(server)),
                None => Entry::new(Arc::downgrade(backend), server, self.now),
            };
            self.entries.push(entry);
        }
        self.encrypt(encryption);
        let mut orphans = Vec::new();
        for entry in before.into_iter().flatten() {
            entry.state.index.store(GONE, Ordering::Relaxed);
            self.queued -= entry.state.queued.swap(0, Ordering::Relaxed);
            orphans.push(entry.queue);
        }
        self.settings = Settings { fullconn: proxy.fullconn.unwrap_or(self.settings.fullconn), ..Settings::new(proxy) };
        self.number(proxy);
        // Who waits for a server that the file now disables must not wait for ever.
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if entry.queue.len() > 0 && !entry.state.is_running() && !proxy.tcp.persist {
                orphans.push(entry.queue.take());
                self.note_queue(index);
            }
        }
        let members = self.members();
        self.group = self.group.rebuilt(&proxy.balance, proxy.tcp.all_backups, members, &old);
        orphans.into_iter().for_each(|queue| self.requeue(queue, wakers));
    }

    /// Tells servers their places and what follows from the proxy's settings.
    pub(super) fn number(&mut self, proxy: &Proxy) {
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
        self.names = Words::new(self.entries.iter().map(|entry| Some(entry.state.name())));
        self.cookies = Words::new(self.entries.iter().map(|entry| entry.cookie.as_ref()));
        let warming = self.entries.iter().enumerate().filter(|(_, entry)| entry.warm_since.is_some());
        self.warming = warming.map(|(index, _)| index).collect();
    }

    pub(super) fn members(&mut self) -> Vec<Member> {
        let now = self.now;
        let members = self.entries.iter_mut().map(|entry| {
            let weight = entry.effective(now);
            entry.state.effective.store(weight, Ordering::Relaxed);
            Member {
                id: entry.config.id,
                backup: entry.config.backup,
                weight: entry.usable_weight(weight),
                nominal: entry.state.weight() * WEIGHT_SCALE,
                load: entry.sessions(),
                full: entry.is_full(),
            }
        });
        members.collect()
    }

    /// The server of that name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.find(name.as_bytes()).next()
    }

    /// The wanted server, or why it cannot be had.
    pub(super) fn wanted(&self, wanted: Wanted<'_>, force: bool, avoid: Option<usize>) -> Result<usize, Found> {
        let (words, word) = match wanted {
            Wanted::Cookie(value) => (&self.cookies, value),
            Wanted::Name(name) => (&self.names, name.as_bytes()),
        };
        let mut known = false;
        for index in words.find(word) {
            known = true;
            if Some(index) != avoid && (force || self.settings.persist || self.entries[index].state.is_running()) {
                return Ok(index);
            }
        }
        Err(if known { Found::Down } else { Found::Unknown })
    }

    pub(super) fn balance(&mut self, ask: &Ask<'_>) -> Choice {
        let Inner { entries, group, settings, sessions, .. } = self;
        let question = Question {
            key: ask.key,
            random: ask.random,
            avoid: ask.avoid.map(|server| server.index.load(Ordering::Relaxed)),
            load: &|server| entries[server].load(*sessions, settings.fullconn, ask.now),
        };
        group.choose(&question)
    }

    pub(super) fn load(&self, server: usize) -> Load {
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
