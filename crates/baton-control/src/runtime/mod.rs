//! The runtime API: questions and commands of operators over `stats socket` (management guide, 9.3).
//!
//! `listener` accepts, `session` speaks with one peer, [`mod@line`] takes its bytes apart, `table` knows the commands,
//! [`answer`] is what goes back. Everything happens on the thread of the change line: a command that looks at live state is
//! passed to [`Control`] as a `Question`, answered between two events, and written by its session's task, so
//! that a peer that does not read holds up nobody. A command is a `row` of `table`; the files beside it hold what the
//! rows do, one for each group.

pub mod answer;
mod change_server;
mod clear;
mod connection;
pub mod field;
pub(crate) mod figures;
mod give;
mod info;
pub mod line;
mod listener;
mod own;
mod process;
pub mod rates;
pub(crate) mod row;
mod servers;
mod session;
pub(crate) mod ssl;
mod stat;
mod table;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use baton_kernel::output;
use baton_model::{AccessLevel, Author, Model};
use baton_proxy::ListenerId;
use socket2::Socket;
use tokio::sync::{Notify, mpsc};

use crate::control::Control;
use crate::listeners::OpenStats;
use answer::Answer;
pub(crate) use connection::Connection;
use figures::Key;
pub(crate) use info::spoken_version;
use listener::Listening;
use rates::Rates;
pub(crate) use session::Question;
use table::Act;

/// Questions that wait for the change line; further ones wait in their sessions, of which there are `stats maxconn`.
const QUESTIONS_MAX: usize = 16;

/// The sockets of the runtime API and their sessions. Lives in the `LocalSet` of the control thread; dropping it ends all.
#[derive(Debug)]
pub struct Runtime {
    shared: Rc<Shared>,
    listening: HashMap<ListenerId, Listening>,
    questions: mpsc::Receiver<Question>,
    /// Changes that wait until it is clear who serves: one of each session, of which there are `stats maxconn`.
    postponed: Vec<Question>,
    pub(crate) rates: Rates<Key>,
}

/// What all sockets and sessions share.
#[derive(Debug)]
struct Shared {
    settings: RefCell<Settings>,
    /// Sessions now, and since the start.
    open: Cell<u32>,
    total: Cell<u64>,
    /// Told when a session ends, or the settings change.
    freed: Notify,
    /// Every socket, for `show cli sockets`.
    sockets: RefCell<Vec<baton_model::StatsSocket>>,
    ask: mpsc::Sender<Question>,
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

impl Default for Runtime {
    fn default() -> Self {
        let (ask, questions) = mpsc::channel(QUESTIONS_MAX);
        let settings = Settings { timeout: Duration::from_secs(10), maxconn: 10, line_bytes_max: 16384 };
        let shared = Shared {
            settings: RefCell::new(settings),
            open: Cell::new(0),
            total: Cell::new(0),
            freed: Notify::new(),
            sockets: RefCell::default(),
            ask,
        };
        Runtime {
            shared: Rc::new(shared),
            listening: HashMap::new(),
            questions,
            postponed: Vec::new(),
            rates: Rates::new(Instant::now()),
        }
    }
}

impl Runtime {
    /// Serves the sockets of a configuration. An address that is in it no more is still served until [`Runtime::close`].
    pub fn apply(&mut self, model: &Model, open: Vec<OpenStats>) {
        let stats = &model.global.stats;
        *self.shared.settings.borrow_mut() =
            Settings { timeout: stats.timeout, maxconn: stats.maxconn, line_bytes_max: model.global.bufsize };
        self.shared.sockets.replace(stats.sockets.clone());
        for open in open {
            match self.listening.get(&open.id) {
                Some(listening) => listening.lead(open.socket),
                None => match Listening::start(&self.shared, &open) {
                    Ok(listening) => drop(self.listening.insert(open.id, listening)),
                    Err(error) => output::print_error(&format!(
                        "[ALERT]    ({}) : stats socket {}: {error}\n",
                        std::process::id(),
                        open.socket.bind.address
                    )),
                },
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

    /// When counters are to be read for rates; never while nobody could ask.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.shared.sockets.borrow().is_empty()).then(|| self.rates.due())
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
        (self.shared.open.get(), self.shared.total.get())
    }
}

/// Answers a session's command, between two events of the process.
pub(crate) async fn answer(control: &mut Control, question: Question) {
    let answer = match (question.row.act, question.socket) {
        (Act::Ask(act), _) => act(control, &question.call),
        (Act::Change(_), socket) if control.succession.is_giving() => {
            // What there is to know has gone to the other process already.
            return control.line.runtime.postponed.push(Question { socket, ..question });
        }
        (Act::Change(act), _) => match control.succession.successor() {
            Some(pid) => Answer::error(format!("Process {pid} has taken over: change it there.")),
            None => {
                let answer = act(control, &question.call);
                // What is done outlives us, whenever we die.
                control.keep_overrides().await;
                answer
            }
        },
        (Act::Take(act), Some(socket)) => return act(control, socket),
        // The session answers these itself.
        (Act::Own(_), _) | (Act::Take(_), None) => return,
    };
    // Who left does not want it any more.
    let _ = question.reply.send(answer);
}

/// Answers what had to wait until it was clear who serves.
pub(crate) async fn answer_postponed(control: &mut Control) {
    if !control.succession.is_giving() {
        for question in std::mem::take(&mut control.line.runtime.postponed) {
            answer(control, question).await;
        }
    }
}
