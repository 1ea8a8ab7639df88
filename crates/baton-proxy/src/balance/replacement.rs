//! A backend's next configuration, built beside its lock: what a reload swaps in.
//!
//! What is in use is looked at without the lock, so it may have changed when the next one is swapped in: what the requests and the
//! algorithm did meanwhile (queues, loads, turns) is taken over then; a server whose weight changed is weighed again
//! ([`Inner::changes`](super::inner::Inner)); and what was built for servers that are not in use any more is built again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use baton_model::{EffectiveServer, MarkedDown, MarkedUp, Proxy, Server};

use super::entry::Entry;
use super::group::{Group, Member, WEIGHT_SCALE};
use super::layout::Layouts;
use super::server::Notes;
use super::words::Words;
use super::{BackendState, HealthState, ServerState};
use crate::upstream::ServerTlsContext;

/// What is in force of a server that the file has so.
pub(super) type Effective<'a> = &'a dyn Fn(&Server) -> EffectiveServer;

/// TLS of a server by its name.
pub(super) type Encryptions<'a> = &'a dyn Fn(&str) -> Option<Arc<ServerTlsContext>>;

/// The servers of a configuration, which stay what they are until the next one.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// In the order of the configuration, each at its index; `None` is the empty place of one that left ([`Edit`](super::edit::Edit)).
    pub(super) servers: Vec<Option<Arc<ServerState>>>,
    pub(super) names: Words,
    /// By the value of their persistence cookie.
    pub(super) cookies: Words,
}

impl Directory {
    /// Whether [`Directory::push`] moves none of the others.
    pub(super) fn has_room(&self, entry: &Entry) -> bool {
        self.servers.len() < self.servers.capacity()
            && self.names.has_room(Some(entry.state.name()))
            && self.cookies.has_room(entry.cookie.as_ref())
    }

    /// One server more, behind all others.
    pub(super) fn push(&mut self, entry: &Entry) {
        let server = self.servers.len();
        self.servers.push(Some(Arc::clone(&entry.state)));
        self.names.push(server, Some(entry.state.name()));
        self.cookies.push(server, entry.cookie.as_ref());
    }

    /// A server leaves; its place stays empty.
    pub(super) fn remove(&mut self, server: usize) {
        let Some(state) = self.servers.get_mut(server).and_then(Option::take) else { return };
        self.names.remove(server, Some(state.name()));
        let cookie = state.notes().cookie.clone();
        self.cookies.remove(server, cookie.as_ref());
    }

    /// A copy, for one who changes it while somebody reads this one.
    pub(super) fn copied(&self) -> Directory {
        let cookies: Vec<Option<Arc<str>>> =
            self.servers.iter().map(|state| state.as_ref()?.notes().cookie.clone()).collect();
        Directory {
            names: Words::new(self.servers.iter().map(|state| state.as_ref().map(|state| state.name()))),
            cookies: Words::new(cookies.iter().map(Option::as_ref)),
            servers: self.servers.clone(),
        }
    }

    /// This one with one server more, and with room for as many again.
    pub(super) fn grown(&self, entry: &Entry) -> Directory {
        let mut servers = Vec::with_capacity(2 * (self.servers.len() + 1));
        servers.extend(self.servers.iter().cloned().chain([Some(Arc::clone(&entry.state))]));
        // Cookies of others are those that their states know.
        let mut cookies: Vec<Option<Arc<str>>> =
            self.servers.iter().map(|state| state.as_ref()?.notes().cookie.clone()).collect();
        cookies.push(entry.cookie.clone());
        Directory {
            names: Words::new(servers.iter().map(|state| state.as_ref().map(|state| state.name()))),
            cookies: Words::new(cookies.iter().map(Option::as_ref)),
            servers,
        }
    }
}

/// What was in use when building began.
#[derive(Debug, Default)]
pub(super) struct InUse {
    /// `None` at first.
    pub(super) proxy: Option<Arc<Proxy>>,
    pub(super) reloads: u64,
    pub(super) changes: u64,
    pub(super) directory: Arc<Directory>,
    /// Servers in slow start, and since when.
    pub(super) warming: Vec<(usize, Instant)>,
    pub(super) layouts: Layouts,
}

/// What is to be swapped in. After that it is what was in use, to be dropped when the lock is released.
pub(super) struct Replacement {
    pub(super) proxy: Arc<Proxy>,
    pub(super) seen: InUse,
    pub(super) entries: Vec<Entry>,
    pub(super) directory: Arc<Directory>,
    pub(super) group: Group,
    /// Where each server was before.
    pub(super) old: Vec<Option<usize>>,
    /// Where each server from before is now.
    pub(super) new: Vec<Option<usize>>,
    /// Servers whose state has to be told something.
    pub(super) touched: Vec<Touched>,
}

/// What a server's state has to be told.
pub(super) struct Touched {
    pub(super) server: usize,
    pub(super) may_be_cut: bool,
    pub(super) effective: EffectiveServer,
}

impl Replacement {
    /// Takes its time.
    pub(super) fn build(
        backend: &Weak<BackendState>,
        proxy: &Arc<Proxy>,
        seen: InUse,
        (effective, encryption): (Effective<'_>, Encryptions<'_>),
        now: Instant,
    ) -> Replacement {
        let mut next = Replacement {
            proxy: Arc::clone(proxy),
            entries: Vec::with_capacity(proxy.servers.len()),
            directory: Arc::default(),
            group: Group::new(&proxy.balance, proxy.tcp.all_backups, Vec::new()),
            old: Vec::with_capacity(proxy.servers.len()),
            new: vec![None; seen.directory.servers.len()],
            touched: Vec::new(),
            seen,
        };
        let cuts_backups = cuts_backups(proxy);
        let mut members = Vec::with_capacity(proxy.servers.len());
        for (server, config) in proxy.servers.iter().enumerate() {
            let cut = may_be_cut(cuts_backups, config);
            let cookie = cookie(proxy, config);
            let encryption = config.any_tls().and_then(|_| encryption(&config.name));
            let directory = &next.seen.directory;
            let at = directory.names.find(config.name.as_bytes()).find(|at| next.new[*at].is_none());
            let mut entry = match at.and_then(|at| directory.servers[at].as_ref()) {
                Some(state) => Entry::of(Arc::clone(state), config),
                None => Entry::new(backend.clone(), config, now),
            };
            (entry.cookie, entry.encryption) = (cookie, encryption);
            members.push(match at {
                Some(at) => {
                    next.new[at] = Some(server);
                    let effective = effective(config);
                    if !entry.is_told(cut, effective) {
                        next.touched.push(Touched { server, may_be_cut: cut, effective });
                    }
                    let warming = next.seen.warming.iter().find(|(warm, _)| *warm == at);
                    entry.member_after(effective, warming.map(|(_, since)| *since), now)
                }
                None => {
                    entry.state.index.store(server, Ordering::Relaxed);
                    entry.tell(cut);
                    entry.member()
                }
            });
            next.old.push(at);
            next.entries.push(entry);
        }
        next.directory = Arc::new(Directory {
            servers: next.entries.iter().map(|entry| Some(Arc::clone(&entry.state))).collect(),
            names: Words::new(next.entries.iter().map(|entry| Some(entry.state.name()))),
            cookies: Words::new(next.entries.iter().map(|entry| entry.cookie.as_ref())),
        });
        next.group = Group::new(&proxy.balance, proxy.tcp.all_backups, members);
        next.group.lay(&next.seen.layouts);
        next
    }
}

/// Whether sessions of backups are cut once another server is up.
pub(super) fn cuts_backups(proxy: &Proxy) -> bool {
    proxy.servers.iter().any(|server| server.check.on_marked_up == MarkedUp::ShutdownBackupSessions)
}

/// Whether sessions of a server may be cut.
pub(super) fn may_be_cut(cuts_backups: bool, server: &Server) -> bool {
    server.check.on_marked_down == MarkedDown::ShutdownSessions || server.backup && cuts_backups
}

/// The value of a server's persistence cookie.
pub(super) fn cookie(proxy: &Proxy, server: &Server) -> Option<Arc<str>> {
    let dynamic = proxy.cookie.as_ref().and_then(|cookie| cookie.dynamic_key.as_deref());
    match (&server.cookie, dynamic) {
        (Some(value), _) => Some(value.as_str().into()),
        (None, Some(key)) => super::keys::dynamic_cookie(key, server).map(Into::into),
        (None, None) => None,
    }
}

impl Entry {
    /// Whether its state knows all of this already.
    pub(super) fn is_told(&self, may_be_cut: bool, effective: EffectiveServer) -> bool {
        let state = &self.state;
        let mut notes = state.notes();
        let is_told = *notes.config == *self.config
            && notes.cookie == self.cookie
            && state.may_be_cut.load(Ordering::Relaxed) == may_be_cut
            && self.is_in_force_by(&notes, effective);
        if is_told {
            // It says the same, and where that is written now.
            notes.config = Arc::clone(&self.config);
        }
        is_told
    }

    /// Whether its state has this TLS, and is as what is in force says.
    pub(super) fn is_in_force(&self, effective: EffectiveServer) -> bool {
        self.is_in_force_by(&self.state.notes(), effective)
    }

    fn is_in_force_by(&self, notes: &Notes, effective: EffectiveServer) -> bool {
        let encryption = |encryption: &Option<Arc<ServerTlsContext>>| encryption.as_ref().map(Arc::as_ptr);
        encryption(&notes.encryption) == encryption(&self.encryption)
            && self.settled(effective) == (self.state.weight(), self.state.admin())
    }

    /// Tells its state what the configuration says.
    pub(super) fn tell(&self, may_be_cut: bool) {
        self.state.may_be_cut.store(may_be_cut, Ordering::Relaxed);
        let mut notes = self.state.notes();
        notes.config = Arc::clone(&self.config);
        notes.cookie.clone_from(&self.cookie);
        notes.encryption.clone_from(&self.encryption);
    }

    /// How the algorithm will know it once it is settled.
    fn member_after(&self, effective: EffectiveServer, warm_since: Option<Instant>, now: Instant) -> Member {
        let (weight, admin) = self.settled(effective);
        let nominal = weight * WEIGHT_SCALE;
        let is_usable = self.state.health() == HealthState::Up && !admin.in_maintenance() && !admin.is_draining();
        let weight = if is_usable { self.warmed(nominal, warm_since, now).unwrap_or(nominal) } else { 0 };
        Member { id: self.config.id, backup: self.config.backup, weight, nominal, ..Member::default() }
    }

    /// How the algorithm knows it at first.
    pub(super) fn member(&self) -> Member {
        let nominal = self.state.weight() * WEIGHT_SCALE;
        self.state.effective.store(nominal, Ordering::Relaxed);
        let Server { id, backup, .. } = *self.config;
        Member { id, backup, weight: self.usable_weight(nominal), nominal, ..Member::default() }
    }
}
