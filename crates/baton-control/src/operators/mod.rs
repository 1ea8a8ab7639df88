//! The sockets of operators (`stats socket`) and their sessions. What commands do is [`runtime`](crate::runtime)'s; a session knows which
//! there are and who may give them.
//!
//! `listener` accepts, `session` speaks with one peer, [`mod@line`] takes its bytes apart, `own` has the commands that are about the session
//! alone, `events` shows what rings hold, [`answer`] is what goes back. A command that looks at live state is passed to the change path's thread as a `Question`, answered
//! between two events, and written by its session's task, so that a peer that does not read holds up nobody. What objects counted, and their
//! rates, are in `figures` and [`rates`].

pub mod answer;
mod connection;
pub(crate) mod events;
pub(crate) mod figures;
pub mod line;
mod listener;
pub(crate) mod own;
pub mod plots;
pub mod rates;
pub mod row;
mod session;
pub(crate) mod sessions;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{AccessLevel, Author, Model, Proxy, Ruleset};
use baton_proxy::{ListenerId, ProcessSum, ProcessSums};
use socket2::Socket;
use tokio::sync::{Notify, mpsc};

use crate::listeners::OpenStats;
pub use connection::Connection;
use figures::ObjectKey;
use listener::Listening;
use plots::Plots;
use rates::{Counted, Rates};
pub(crate) use session::{Call, Given, Question, Rest, Session};

/// The commands that sessions understand, by their place in the table of [`runtime`](crate::runtime).
#[derive(Clone, Copy, Debug)]
pub struct Commands(pub(crate) &'static [row::Row<Kind>]);

/// Who does what a command says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Its session.
    Own(fn(&mut Session, &Call) -> answer::CommandResponse),
    /// The running process, which answers.
    Asked,
    /// The running process, which gets the connection: something else is spoken on it from then on.
    Takes,
}

/// For how long rates are measured for somebody who asked for them.
const ASKED_FOR: Duration = Duration::from_secs(600);

/// Questions that wait for the change path; further ones wait in their sessions, of which there are `stats maxconn`.
const QUESTIONS_MAX: usize = 16;

/// The sockets of the runtime API and their sessions. Lives in the `LocalSet` of the control thread; dropping it ends all.
#[derive(Debug)]
pub struct Runtime {
    shared: Rc<Shared>,
    listening: HashMap<ListenerId, Listening>,
    questions: mpsc::Receiver<Question>,
    /// Changes that wait until it is clear who serves: one of each session, of which there are `stats maxconn`.
    pub(crate) postponed: Vec<Question>,
    pub(crate) rates: Rates<ObjectKey>,
    pub(crate) plots: Plots<ObjectKey>,
    /// The configuration has a statistics page.
    has_page: bool,
    /// Or it gives rates to others.
    has_service: bool,
    /// Or its rules ask for rates.
    has_rules: bool,
    /// Until then somebody who has asked for rates may ask again.
    asked_until: Option<Instant>,
}

/// What all sockets and sessions share.
#[derive(Debug)]
struct Shared {
    settings: RefCell<Settings>,
    /// Sessions now, and since the start.
    open: Cell<u32>,
    sums: Arc<ProcessSums>,
    /// Told when a session ends, or the settings change.
    freed: Notify,
    /// Every socket, for `show cli sockets`.
    sockets: RefCell<Vec<baton_model::StatsSocket>>,
    ask: mpsc::Sender<Question>,
    commands: Commands,
}

/// What a configuration says to all sessions that begin.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// `stats timeout`.
    timeout: Duration,
    /// `stats maxconn`.
    maxconn: u32,
    /// The most bytes of a line with its payload: `tune.bufsize`, as in HAProxy.
    line_bytes_max: usize,
}

impl Runtime {
    /// No sockets yet; sessions understand these commands.
    pub fn new(commands: Commands, sums: Arc<ProcessSums>) -> Runtime {
        let (ask, questions) = mpsc::channel(QUESTIONS_MAX);
        let settings = Settings { timeout: Duration::from_secs(10), maxconn: 10, line_bytes_max: 16384 };
        let shared = Shared {
            settings: RefCell::new(settings),
            open: Cell::new(0),
            sums,
            freed: Notify::new(),
            sockets: RefCell::default(),
            ask,
            commands,
        };
        Runtime {
            shared: Rc::new(shared),
            listening: HashMap::new(),
            questions,
            postponed: Vec::new(),
            rates: Rates::new(Instant::now()),
            plots: Plots::default(),
            has_page: false,
            has_service: false,
            has_rules: false,
            asked_until: None,
        }
    }

    /// Serves the sockets of a configuration, whose rules ask for rates if it `measures`. An address that is in it no more is still served until [`Runtime::close`].
    pub fn apply(&mut self, model: &Model, measures: bool, open: Vec<OpenStats>) {
        let stats = &model.global.stats;
        *self.shared.settings.borrow_mut() =
            Settings { timeout: stats.timeout, maxconn: stats.maxconn, line_bytes_max: model.global.bufsize };
        self.shared.sockets.replace(stats.sockets.clone());
        let uses_service = |proxy: &Arc<Proxy>| {
            let mut actions = proxy.rules(Ruleset::HttpRequest).iter().filter_map(|rule| rule.words.first());
            actions.any(|action| action == "use-service")
        };
        self.has_page = model.proxies.iter().any(|proxy| proxy.stats.is_some());
        self.has_rules = measures;
        self.has_service = model.proxies.iter().any(uses_service);
        if !self.has_page {
            self.plots.clear();
        }
        for open in open {
            match self.listening.get(&open.id) {
                Some(listening) => listening.lead(open.socket),
                None => drop(self.listening.insert(open.id, Listening::start(&self.shared, &open))),
            }
        }
        self.shared.freed.notify_waiters();
    }

    /// Speaks with a peer whom our master has accepted, with these rights; `None` as the peer is the master.
    pub(crate) fn serve(&self, socket: Socket, level: AccessLevel, by: Option<Author>) {
        listener::serve_alone(&self.shared, socket, level, by);
    }

    /// Stops accepting at an address that was removed.
    pub fn close(&mut self, id: ListenerId) {
        self.listening.remove(&id);
    }

    /// When counters are to be read for rates; never while nobody could ask, nor rules do.
    pub(crate) fn due(&self) -> Option<Instant> {
        let due = self.rates.due();
        let is_asked = self.has_page
            || self.has_service
            || self.has_rules
            || !self.shared.sockets.borrow().is_empty()
            || self.asked_until.is_some_and(|until| due <= until);
        is_asked.then_some(due)
    }

    /// Somebody asks for rates who is no socket: they are measured for a while from now on.
    pub(crate) fn asked(&mut self, now: Instant) {
        if self.due().is_none() {
            self.rates = Rates::new(now);
        }
        self.asked_until = Some(now + ASKED_FOR);
    }

    /// Whether the configuration has an exporter.
    pub(crate) fn has_service(&self) -> bool {
        self.has_service
    }

    /// Reads the counters of all objects, and draws a point of each plot.
    pub(crate) fn read_rates(&mut self, now: Instant, all: impl Iterator<Item = (ObjectKey, Counted)>) {
        self.rates.tick(now, all);
        if self.has_page {
            self.plots.tick(&self.rates);
        }
    }

    /// The next question of a session.
    pub(crate) async fn next(&mut self) -> Option<Question> {
        self.questions.recv().await
    }

    /// The sockets of the configuration in use.
    pub(crate) fn sockets(&self) -> Vec<baton_model::StatsSocket> {
        self.shared.sockets.borrow().clone()
    }

    /// Sessions now, and since the start.
    pub(crate) fn sessions(&self) -> (u32, u64) {
        (self.shared.open.get(), self.shared.sums.get(ProcessSum::RuntimeSessions))
    }
}
