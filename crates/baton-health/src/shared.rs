//! What the tasks of checks and agents have in common: what they log, and what follows from another state of a server, up to the servers
//! that track it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
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
use crate::text::{self, Why};

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

impl Shared {
    /// Something happened that a process after this one has to know.
    pub(crate) fn tell(&self) {
        self.has_news.set(true);
        self.news.notify_one();
    }

    /// Changes a server's state, logs it, and goes on to those who track it.
    pub(crate) fn change(&self, subject: &Subject<'_>, state: HealthState, why: Why<'_>, depth: usize) {
        let Some(left) = subject.server.set_health(state, Instant::now()) else { return };
        self.tell();
        // Its agent may say otherwise.
        self.spread(subject, subject.server.health(), Some(why), &left, depth);
    }

    /// A server's state has changed: that is logged, and goes on to those who track it. `why`: `None` of what is not logged.
    pub(crate) fn spread(
        &self,
        subject: &Subject<'_>,
        state: HealthState,
        why: Option<Why<'_>>,
        left: &Transition,
        depth: usize,
    ) {
        let Subject { key, server, is_listen } = *subject;
        if let Some(why) = why {
            let is_alert = state == HealthState::Down && !server.admin().is_draining();
            let severity = if is_alert { Severity::Alert } else { Severity::Notice };
            self.log(key, severity, text::state_line(&key.0, &key.1, state, why, left), Some(severity));
            if state != HealthState::Up && left.active + left.backups == 0 && !server.admin().is_draining() {
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

    /// Copies what a server is to those who track it, and from them on.
    pub(crate) fn copy_to_followers(&self, key: &Key, of: &ServerState, copy: Copy, now: Instant, depth: usize) {
        if depth >= TRACK_DEPTH_MAX {
            return;
        }
        for (key, follower) in self.followers(key) {
            copy(of, &follower.server, now);
            self.copy_to_followers(&key, &follower.server, copy, now, depth + 1);
        }
    }

    pub(crate) fn followers(&self, key: &Key) -> Vec<(Key, Rc<Follower>)> {
        self.following.borrow().of(key)
    }

    pub(crate) fn log(&self, key: &Key, severity: Severity, text: String, mail: Option<Severity>) {
        (self.log)(Event { backend: Arc::clone(&key.0), severity, text, mail });
    }
}

/// What a follower has of the server that it tracks.
pub(crate) type Copy = fn(&ServerState, &ServerState, Instant);

pub(crate) fn copy_admin(of: &ServerState, to: &ServerState, now: Instant) {
    let of = of.admin();
    let inherited =
        Admin { maintenance_inherited: of.in_maintenance(), drain_inherited: of.is_draining(), ..to.admin() };
    to.set_admin(inherited, now);
}

pub(crate) fn copy_all(of: &ServerState, to: &ServerState, now: Instant) {
    to.set_health(of.health(), now);
    copy_admin(of, to, now);
}

/// The longest chain of servers that track servers.
const TRACK_DEPTH_MAX: usize = 16;
