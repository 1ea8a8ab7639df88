//! What the tasks of checks and agents have in common: what they log, and what follows from another state of a server, up to the servers
//! that track it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use baton_proxy::Registry;
use baton_proxy::balance::{Admin, HealthState, ServerState, Transition};
use tokio::sync::Notify;

use crate::Prober;
use crate::check::Key;
use crate::following::Following;
use crate::orders::AgentOrder;
use crate::sockets::Sockets;
use crate::text::{self, AdminChange, DnsNews, LoggedServer, Why};

/// Something to log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// The backend it is about.
    pub backend: Arc<str>,
    /// How serious it is.
    pub severity: Severity,
    /// HAProxy's line.
    pub text: String,
    /// How urgent it is as a mail; `None`: it is not mailed.
    pub mail: Option<Severity>,
}

/// The syslog level of an [`Event`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// No server is left.
    Emergency,
    /// A server went down.
    Alert,
    /// Anything else.
    Notice,
    /// A result of a check, as a mail.
    Info,
}

/// What all tasks use.
pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) log: Box<dyn Fn(Event)>,
    /// Who tracks a server.
    pub(crate) following: RefCell<Following<Rc<Follower>>>,
    /// Who asks servers for virtual addresses.
    pub(crate) prober: RefCell<Option<Prober>>,
    /// Why virtual addresses could not be asked for, as it was told last.
    pub(crate) vip_fault: RefCell<String>,
    /// Servers went up or down, or checks failed, since that was asked last.
    pub(crate) has_news: Cell<bool>,
    pub(crate) news: Notify,
    /// What agents want of servers: one order of a server at most.
    pub(crate) orders: RefCell<VecDeque<AgentOrder>>,
    pub(crate) ordered: Notify,
    /// Servers found by DNS to which a check could not connect, since that was asked last.
    pub(crate) unreachable: RefCell<BTreeSet<Key>>,
    pub(crate) unreached: Notify,
    /// What connections of checks share; `None`: nothing was checked yet, or the kernel has no room.
    pub(crate) sockets: RefCell<Option<Rc<Sockets>>>,
    /// When turns of checks begin.
    pub(crate) turns_since: Instant,
    /// `node`, or the host's name.
    pub(crate) node: RefCell<Rc<str>>,
    pub(crate) hostname: String,
}

/// A server that tracks another one.
pub(crate) struct Follower {
    pub(crate) server: Arc<ServerState>,
    /// As [`Subject::is_listen`].
    pub(crate) is_listen: bool,
}

/// A server whose state changes.
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a Key,
    pub(crate) server: &'a ServerState,
    /// Its backend is a `listen` section: the log has another word for that.
    pub(crate) is_listen: bool,
}

impl<'a> Subject<'a> {
    pub(crate) fn logged(&self) -> LoggedServer<'a> {
        LoggedServer { backend: &self.key.0, name: &self.key.1, is_backup: self.server.config().backup }
    }
}

impl Shared {
    /// Something happened that a process after this one has to know.
    pub(crate) fn tell(&self) {
        self.has_news.set(true);
        self.news.notify_one();
    }

    /// A check could not connect to a server: one that is found by DNS may be elsewhere by now.
    pub(crate) fn not_reached(&self, key: &Key, server: &ServerState) {
        if server.config().looked_up().is_some() {
            self.unreachable.borrow_mut().insert(key.clone());
            self.unreached.notify_one();
        }
    }

    /// Changes a server's state, logs it, and goes on to those who track it.
    pub(crate) fn change(&self, subject: &Subject<'_>, state: HealthState, why: Why<'_>, depth: usize) {
        let Some(left) = subject.server.set_health(state, Instant::now()) else { return };
        self.tell();
        // Its agent may say otherwise.
        self.spread(subject, subject.server.health(), why, &left, depth);
    }

    /// A server's state has changed: that is logged, and goes on to those who track it.
    pub(crate) fn spread(
        &self,
        subject: &Subject<'_>,
        state: HealthState,
        why: Why<'_>,
        left: &Transition,
        depth: usize,
    ) {
        let Subject { key, server, is_listen } = *subject;
        let admin = server.admin();
        // What is in maintenance is not up for anybody.
        if !admin.in_maintenance() {
            let is_alert = state == HealthState::Down && !admin.is_draining();
            let severity = if is_alert { Severity::Alert } else { Severity::Notice };
            self.log(key, severity, text::state_line(subject.logged(), state, why, left), Some(severity));
            if admin.is_draining() {
                let line = text::draining_line(subject.logged(), admin, tracked(key, server).as_deref());
                self.log(key, Severity::Notice, line, None);
            } else if state != HealthState::Up && left.active + left.backups == 0 {
                self.log(key, Severity::Emergency, text::no_server_line(&key.0, is_listen), None);
            }
        }
        if depth >= TRACK_DEPTH_MAX {
            return;
        }
        let via = format!("{}/{}", key.0, key.1);
        for (key, follower) in self.followers(key) {
            let subject = Subject { key: &key, server: &follower.server, is_listen: follower.is_listen };
            self.change(&subject, state, Why::Tracked(&via), depth + 1);
        }
    }

    /// Copies what a server is to those who track it, and from them on, without a word.
    pub(crate) fn copy_to_followers(&self, key: &Key, of: &ServerState, now: Instant, depth: usize) {
        if depth >= TRACK_DEPTH_MAX {
            return;
        }
        for (key, follower) in self.followers(key) {
            copy_all(of, &follower.server, now);
            self.copy_to_followers(&key, &follower.server, now, depth + 1);
        }
    }

    /// Gives the administrative state of a server to those who track it, and from them on. Adds what is to be logged of them.
    pub(crate) fn spread_admin(
        &self,
        (key, of): (&Key, &ServerState),
        dns: Option<DnsNews<'_>>,
        now: Instant,
        depth: usize,
        events: &mut Vec<Event>,
    ) {
        if depth >= TRACK_DEPTH_MAX {
            return;
        }
        for (key, follower) in self.followers(key) {
            let subject = Subject { key: &key, server: &follower.server, is_listen: follower.is_listen };
            let before = subject.server.admin();
            // Who leaves maintenance with another server is what that one is by then.
            if before.maintenance_inherited && !of.admin().in_maintenance() {
                subject.server.set_health(of.health(), now);
            }
            if let Some(left) = copy_admin(of, subject.server, now) {
                events.extend(admin_events(&subject, before, &left, dns));
            }
            self.spread_admin((&key, subject.server), dns, now, depth + 1, events);
        }
    }

    pub(crate) fn followers(&self, key: &Key) -> Vec<(Key, Rc<Follower>)> {
        self.following.borrow().of(key)
    }

    pub(crate) fn log(&self, key: &Key, severity: Severity, text: String, mail: Option<Severity>) {
        (self.log)(Event { backend: Arc::clone(&key.0), severity, text, mail });
    }
}

/// What is to be logged of a server that is in another administrative state than before.
pub(crate) fn admin_events(
    subject: &Subject<'_>,
    before: Admin,
    left: &Transition,
    dns: Option<DnsNews<'_>>,
) -> Vec<Event> {
    let Subject { key, server, is_listen } = *subject;
    let (after, is_down) = (server.admin(), server.health() == HealthState::Down);
    let tracked = tracked(key, server);
    let change = AdminChange { before, after, is_down, left, tracked: tracked.as_deref(), dns };
    let event = |severity, text, mail| Event { backend: Arc::clone(&key.0), severity, text, mail };
    let lines = text::admin_lines(subject.logged(), &change).into_iter();
    let mut events: Vec<Event> =
        lines.map(|line| event(line.severity, line.text, line.is_mailed.then_some(line.severity))).collect();
    let was_usable = !before.in_maintenance() && !before.is_draining() && !is_down;
    if was_usable && left.active + left.backups == 0 {
        events.push(event(Severity::Emergency, text::no_server_line(&key.0, is_listen), None));
    }
    events
}

/// The server that another one tracks, as `backend/server`.
fn tracked(key: &Key, server: &ServerState) -> Option<String> {
    let config = server.config();
    let track = config.check.track.as_deref()?;
    Some(if track.contains('/') { track.to_owned() } else { format!("{}/{track}", key.0) })
}

fn copy_admin(of: &ServerState, to: &ServerState, now: Instant) -> Option<Transition> {
    let of = of.admin();
    let inherited =
        Admin { maintenance_inherited: of.in_maintenance(), drain_inherited: of.is_draining(), ..to.admin() };
    to.set_admin(inherited, now)
}

pub(crate) fn copy_all(of: &ServerState, to: &ServerState, now: Instant) {
    to.set_health(of.health(), now);
    copy_admin(of, to, now);
}

/// The longest chain of servers that track servers.
const TRACK_DEPTH_MAX: usize = 16;
