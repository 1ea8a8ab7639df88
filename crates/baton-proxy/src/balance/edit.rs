//! A few servers that come to a backend of many, or leave it, while nobody uses them: nothing follows for the others, so none of them is
//! looked at under the lock. An [`Edit`] finds out which they are, and that all others are as they were; an [`Addition`] and a [`Removal`]
//! are told so, and look at no other server at all.
//!
//! One that comes stands behind all others, and takes no part yet. One that leaves leaves its place empty, so that the others keep theirs;
//! a [`Replacement`](super::replacement::Replacement) has no empty places, and there is one as soon as more places would be empty than not.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use baton_model::{MarkedUp, Proxy, Server};

use super::entry::Entry;
use super::group::Member;
use super::replacement::{Directory, Effective, Encryptions, InUse, cookie, cuts_backups, may_be_cut};
use super::server::GONE;
use super::words::Words;
use super::{BackendState, ServerState};

/// The most servers that come, and that leave.
const SERVERS_MAX: usize = 16;

/// What is to be edited.
pub(super) struct Edit {
    pub(super) proxy: Arc<Proxy>,
    pub(super) directory: Arc<Directory>,
    pub(super) added: Vec<(Entry, Member)>,
    /// The places of those that leave.
    pub(super) removed: Vec<usize>,
}

impl Edit {
    /// What makes another configuration of the one in use; `None` when more follows from it. Takes its time.
    pub(super) fn build(
        backend: &Weak<BackendState>,
        proxy: &Arc<Proxy>,
        seen: &InUse,
        (effective, encryption): (Effective<'_>, Encryptions<'_>),
        now: Instant,
    ) -> Option<Edit> {
        let used = seen.proxy.as_ref().filter(|used| is_alike(used, proxy))?;
        let (positions, kept) = differences(&used.servers, &proxy.servers)?;
        let mut states = seen.directory.servers.clone();
        let places: Vec<usize> = (0..states.len()).filter(|place| states[*place].is_some()).collect();
        let removed: Vec<usize> = positions.iter().filter_map(|position| places.get(*position).copied()).collect();
        if states.len() - places.len() + removed.len() > proxy.servers.len() || places.len() != used.servers.len() {
            return None;
        }
        removed.iter().for_each(|place| states[*place] = None);
        let cuts_backups = cuts_backups(proxy);
        let mut cookies = vec![None; states.len()];
        let left = (0..states.len()).filter_map(|place| Some((place, Arc::clone(states[place].as_ref()?))));
        for ((place, state), config) in left.zip(&proxy.servers) {
            let entry = said(Entry::of(state, config), proxy, encryption);
            if !entry.is_told(may_be_cut(cuts_backups, config), effective(config)) {
                return None;
            }
            cookies[place] = entry.cookie;
        }
        let mut added = Vec::with_capacity(proxy.servers.len() - kept);
        for config in &proxy.servers[kept..] {
            let entry = said(Entry::new(backend.clone(), config, now), proxy, encryption);
            entry.state.index.store(states.len(), Ordering::Relaxed);
            entry.tell(may_be_cut(cuts_backups, config));
            let member = entry.member();
            if member.weight > 0 {
                return None;
            }
            states.push(Some(Arc::clone(&entry.state)));
            cookies.push(entry.cookie.clone());
            added.push((entry, member));
        }
        let names = Words::new(states.iter().map(|state| state.as_ref().map(|state| state.name())));
        let cookies = Words::new(cookies.iter().map(Option::as_ref));
        let directory = Arc::new(Directory { servers: states, names, cookies });
        Some(Edit { proxy: Arc::clone(proxy), directory, added, removed })
    }
}

/// One server more, when it is known that nothing else differs, nor what is in force of the others.
pub(super) struct Addition {
    pub(super) proxy: Arc<Proxy>,
    /// The configuration that it is added to.
    pub(super) before: Arc<Proxy>,
    pub(super) entry: Entry,
    pub(super) member: Member,
    /// The directory in use, and one made of it that has this server too: where that in use has no room.
    pub(super) grown: Option<(Arc<Directory>, Arc<Directory>)>,
    /// What was in use before, to be dropped when the lock is released.
    pub(super) former: Option<Arc<Directory>>,
}

/// One server less, when it is known that nothing else differs, nor what is in force of the others.
pub(super) struct Removal {
    pub(super) proxy: Arc<Proxy>,
    /// The configuration that it is taken out of.
    pub(super) before: Arc<Proxy>,
    /// Its place.
    pub(super) place: usize,
    /// The directory in use, and a copy of it: where somebody reads that in use.
    pub(super) copy: Option<(Arc<Directory>, Arc<Directory>)>,
    /// What was in use before, to be dropped when the lock is released.
    pub(super) former: Option<Arc<Directory>>,
}

impl Removal {
    /// Of a server that `proxy` does not have any more, and `before` has; `None` when more follows from it.
    pub(super) fn build(proxy: &Arc<Proxy>, before: Arc<Proxy>, server: &ServerState) -> Option<Removal> {
        let config = server.config();
        // Others are cut because of it, or it because of others.
        let is_alone = !config.backup && config.check.on_marked_up != MarkedUp::ShutdownBackupSessions;
        let place = server.index.load(Ordering::Relaxed);
        let is_one = before.servers.len() == proxy.servers.len() + 1;
        let is_plain = is_alone && is_one && place != GONE && is_alike(&before, proxy);
        is_plain.then(|| Removal { proxy: Arc::clone(proxy), before, place, copy: None, former: None })
    }
}

/// What came of entering a server in the directory.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Entered {
    /// It is there.
    Done,
    /// There is no room for it, or somebody reads the directory at this moment.
    NoRoom,
    /// There is another configuration by now.
    Replaced,
}

impl Addition {
    /// The last server of `proxy`, which has one server more than `before`; `None` when more follows from it.
    pub(super) fn build(
        backend: &Weak<BackendState>,
        proxy: &Arc<Proxy>,
        before: Arc<Proxy>,
        encryption: Encryptions<'_>,
        now: Instant,
    ) -> Option<Addition> {
        let config = proxy.servers.last().filter(|_| proxy.servers.len() == before.servers.len() + 1)?;
        // It has others cut, or is cut by others, of which all would have to be looked at.
        if config.backup || config.check.on_marked_up == MarkedUp::ShutdownBackupSessions || !is_alike(&before, proxy) {
            return None;
        }
        let entry = said(Entry::new(backend.clone(), config, now), proxy, encryption);
        // As long as it is in no list, it is not usable either way.
        if !entry.state.admin().in_maintenance() {
            return None;
        }
        entry.tell(may_be_cut(false, config));
        let member = entry.member();
        Some(Addition { proxy: Arc::clone(proxy), before, entry, member, grown: None, former: None })
    }
}

/// With what the configuration says of it besides its line.
fn said(entry: Entry, proxy: &Proxy, encryption: Encryptions<'_>) -> Entry {
    let cookie = cookie(proxy, &entry.config);
    let encryption = entry.config.any_tls().and_then(|_| encryption(&entry.config.name));
    Entry { cookie, encryption, ..entry }
}

/// Whether two configurations differ at most in their servers, as far as balancing goes.
fn is_alike(one: &Proxy, other: &Proxy) -> bool {
    let settings = |proxy: &Proxy| (proxy.tcp.all_backups, proxy.tcp.persist, proxy.tcp.prefer_last_server);
    one.balance == other.balance && settings(one) == settings(other) && one.fullconn == other.fullconn
}

/// Where servers are that another configuration does not have, and how many it has of those from before. The rest of it is new.
fn differences(before: &[Arc<Server>], after: &[Arc<Server>]) -> Option<(Vec<usize>, usize)> {
    let (mut removed, mut kept) = (Vec::new(), 0);
    for (position, server) in before.iter().enumerate() {
        match after.get(kept).is_some_and(|same| Arc::ptr_eq(server, same)) {
            true => kept += 1,
            false if removed.len() == SERVERS_MAX => return None,
            false => removed.push(position),
        }
    }
    (after.len() - kept <= SERVERS_MAX).then_some((removed, kept))
}
