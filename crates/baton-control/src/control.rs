//! The running process: signals, questions and time come in, the change path answers.

mod directing;
mod discovering;
mod moving;
mod pace;
mod pausing;
mod readings;
pub(crate) mod reloading;
pub(crate) mod service;
pub(crate) mod states;
mod stuck;
mod succeeding;
mod watching;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use baton_config::{Options, Severity};
use baton_kernel::process::known::ProcessId;
use baton_model::Level;
use baton_proxy::{Command, Workers};

use self::pace::Pace;
use self::pausing::Pausing;
use self::reloading::Readings;
pub use self::service::Begun;
use self::succeeding::Succession;
use crate::certificates::Certificates;
use crate::control_socket::ControlSocket;
use crate::drain::{Drain, DrainStep, Left};
use crate::environment::Outside;
use crate::handover::taker::Taken;
use crate::history::{self, History};
use crate::losses::LossReports;
use crate::messages::Messages;
use crate::reload::{Change, ChangeLine, Changed, Open};
use crate::rights::Rights;
use crate::rings::Rings;
use crate::sayings;
use crate::servant::Servant;
use crate::servant::duties::DutyEvent;
use crate::service_manager::ServiceManager;
use crate::start_command::StartCommand;
use crate::table_care::TableCare;
use crate::tickets;

/// What stays the same for the life of the process.
#[derive(Debug)]
pub struct Settings {
    /// What the command line says about the files.
    pub options: Options,
    /// The command line itself.
    pub started_by: StartCommand,
    /// Where files are found.
    pub outside: Outside,
    /// Baton's version.
    pub version: String,
    /// Whom to tell how we are.
    pub manager: ServiceManager,
    /// Who may ask besides root.
    pub rights: Rights,
    /// This process as it was when its sockets were opened: its PID and when it began. `None` without `/proc`.
    pub known: Option<ProcessId>,
}

/// The running process.
pub struct Control {
    pub(crate) settings: Arc<Settings>,
    /// Where we are asked.
    pub(crate) socket: ControlSocket,
    pub(crate) line: ChangeLine,
    pub(crate) workers: Workers,
    pub(crate) messages: Rc<Messages>,
    pub(crate) succession: Succession,
    pub(crate) drain: Option<(Drain, Instant)>,
    pausing: Pausing,
    /// Readings of the files, and what waits for them.
    pub(crate) readings: Readings,
    /// Certificates that change by themselves.
    pub(crate) certificates: Certificates,
    /// From whom we take over.
    pub(crate) taking_over: Option<Taken>,
    /// The line to our master, before we serve and from then on; `None` without a master.
    pub(crate) begun: Option<Begun>,
    pub(crate) servant: Option<Servant>,
    /// Log lines that were lost, as far as they were reported.
    pub(crate) losses: LossReports,
    /// When the master learns the health of servers.
    pub(crate) health: Pace,
    /// Of changed entries of maps and ACLs.
    pub(crate) entries: Pace,
    /// Of variables of the process.
    pub(crate) parts: Pace,
    /// What changed lately.
    pub(crate) history: History,
    /// Stick tables.
    pub(crate) tables: TableCare,
    /// Buffers of log lines, and who gets them.
    pub(crate) rings: Rings,
    /// Held by every scrape that is in progress.
    pub(crate) scrapes: Arc<()>,
}

impl Control {
    /// Starts the cores with the first configuration.
    ///
    /// # Errors
    /// A sentence.
    pub async fn start(
        settings: Settings,
        socket: ControlSocket,
        mut line: ChangeLine,
        open: Open,
        messages: Rc<Messages>,
    ) -> Result<Control, String> {
        let cores = line.registry().cores();
        let bufsize = open.bufsize();
        let workers = Workers::start(cores, line.registry().clone(), bufsize, open.cpu_map())
            .map_err(|error| format!("cannot start {cores} threads: {error}"))?;
        line.commit(open, &workers).await;
        messages.apply(line.model());
        let mut history = History::default();
        history.recall(&line.take_history_before());
        let mut rings = Rings::default();
        rings.apply(line.model());
        Ok(Control {
            settings: Arc::new(settings),
            socket,
            line,
            workers,
            messages,
            succession: Succession::default(),
            drain: None,
            pausing: Pausing::default(),
            readings: Readings::default(),
            certificates: Certificates::default(),
            taking_over: None,
            begun: None,
            servant: None,
            losses: LossReports::default(),
            health: Pace::default(),
            entries: Pace::default(),
            history,
            parts: Pace::default(),
            tables: TableCare::default(),
            rings,
            scrapes: Arc::default(),
        })
    }

    /// The process works for a master, which keeps the text that was read.
    pub fn under(mut self, begun: Begun) -> Control {
        self.begun = Some(begun);
        self
    }

    /// The process took over from another one, which has to be told once this one serves.
    pub fn taking_over(mut self, taken: Taken) -> Control {
        self.taking_over = Some(taken);
        self
    }

    /// Whether a graceful stop is in progress.
    pub(crate) fn is_stopping(&self) -> bool {
        self.drain.is_some()
    }

    /// Whether the files of a reload were read, and only have to be put in use.
    pub(crate) fn has_read(&self) -> bool {
        self.readings.under_way().is_some_and(|reading| reading.task.loaded.is_finished())
    }

    /// Sends a change down the line.
    pub(crate) async fn take(&mut self, change: Change) -> Changed {
        let settings = self.settings.clone();
        self.take_from(change, &settings.outside).await
    }

    /// As [`Control::take`], where files are found there.
    pub(crate) async fn take_from(&mut self, change: Change, outside: &Outside) -> Changed {
        let pending = history::Pending::of(&change);
        let before = self.line.generation().cloned();
        let changed = self.line.take(change, outside, &self.workers).await;
        self.history.note(pending, &changed, tickets::wall_seconds());
        if let (Some(before), Some(now)) = (before, self.line.generation())
            && !Arc::ptr_eq(&before, now)
        {
            self.history.replaced(&before, now);
        }
        changed
    }

    pub(crate) fn soft_stop(&mut self) {
        if self.drain.is_none() && !self.succession.defer_stop() {
            self.resume_no_more();
            self.settings.manager.stopping();
            let now = Instant::now();
            self.drain = Some((Drain::start(&self.line.model().global, now), now));
        }
    }

    /// Takes the soft stop one step further; true when it is complete.
    pub(crate) async fn drained(&mut self) -> bool {
        let Some((mut drain, _)) = self.drain.take() else { return false };
        loop {
            let left = Left {
                connections: self.workers.open_connections() + self.line.direct().left() + self.line.peers().left(),
                listeners: self.line.listeners().leaving_count(),
            };
            match drain.step(Instant::now(), left) {
                DrainStep::Wait(until) => {
                    self.drain = Some((drain, until));
                    return false;
                }
                DrainStep::StopListening => {
                    self.stop_listening().await;
                    self.line.peers().end(true);
                    self.end_direct_softly();
                }
                DrainStep::HardStop => {
                    let text = "soft-stop running for too long, performing a hard-stop.";
                    self.messages.event(Severity::Warning, Level(4), text);
                    return true;
                }
                DrainStep::Done => return true,
            }
        }
    }

    /// No new connections; the open ones end.
    pub(crate) async fn stop_listening(&mut self) {
        self.line.stop_accepting(Instant::now());
        let spread = self.line.model().global.close_spread_time;
        self.serve_master(DutyEvent::Leaving).await;
        self.workers.command(Command::Drain { spread }).await;
        for (proxy, text) in sayings::stopped(&self.line) {
            self.messages.event_for(&proxy, Severity::Warning, Level(4), &text);
        }
    }
}
