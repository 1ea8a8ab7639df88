//! The running process: signals, questions and time come in, the change line answers.

mod directing;
mod pausing;
mod reloading;
mod signals;
pub(crate) mod stuck;

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_config::Options;
use baton_kernel::output::{self, losses};
use baton_kernel::process::end_by;
use baton_kernel::process::known::Known;
use baton_model::Level;
use baton_proxy::{Command, Workers};
use tokio::sync::mpsc;

use self::pausing::Resuming;
use self::reloading::{Planning, Reading, Waiting};
use self::signals::{Signals, the_end};
use crate::apart::Lost;
use crate::certificates::{self, Certificates};
use crate::control_socket::ControlSocket;
use crate::direct;
use crate::drain::{Drain, DrainStep, Left};
use crate::endpoint::{self, Asked, Desk};
use crate::environment::Outside;
use crate::handover::giver;
use crate::handover::succession::{self, Succession};
use crate::handover::taker::Taken;
use crate::losses::LossReports;
use crate::master::link::{Heard, ToWorker};
use crate::master::{Begun, Found, Servant};
use crate::messages::Messages;
use crate::protocol::{Reply, Request};
use crate::reload::{ChangeLine, Ready};
use crate::rights::{Places, Rights};
use crate::runtime::{self, Question};
use crate::service_manager::ServiceManager;
use crate::{early_signals, retirement, status};

/// Questions that wait for the change line; further askers wait themselves.
const ASKED_MAX: usize = 64;

/// What stays the same for the life of the process.
#[derive(Debug)]
pub struct Settings {
    /// What the command line says about the files.
    pub options: Options,
    /// Where files are found.
    pub outside: Outside,
    /// Baton's version.
    pub version: String,
    /// Whom to tell how we are.
    pub manager: ServiceManager,
    /// Who may ask besides root.
    pub rights: Rights,
    /// This process as it was when its sockets were opened: its PID and when it began. `None` without `/proc`.
    pub known: Option<Known>,
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
    resuming: Resuming,
    reading: Option<Reading>,
    /// A reload was asked for after the files of the current one had begun to be read, or while somebody takes over.
    again: Vec<Waiting>,
    /// Plans that were asked for while something else was being read.
    plans: VecDeque<Planning>,
    /// How long a reading may wait for one file when somebody waits for it; see `stuck`.
    patience: Duration,
    /// Certificates that change by themselves.
    pub(crate) certificates: Certificates,
    /// From whom we take over.
    taking_over: Option<Taken>,
    /// The line to our master, before we serve and from then on; `None` without a master.
    pub(crate) begun: Option<Begun>,
    pub(crate) servant: Option<Servant>,
    /// Log lines that were lost, as far as they were reported.
    pub(crate) losses: LossReports,
}

/// What can happen to the process.
#[derive(Debug)]
enum Event {
    Reload,
    SoftStop,
    Dump,
    /// A signal that ends the process at once, when something is left to do then.
    HardStop(i32),
    Pause,
    Resume,
    Asked(Asked),
    Command(Question),
    Certificates(certificates::Event),
    Conversation(giver::Event),
    /// `mode direct`: a server's state changed, or the kernel was asked and answered.
    Direct(Option<direct::Answer>),
    /// Log lines were lost, or something panicked.
    LinesLost,
    Loaded(Result<Found, Lost>),
    Master(io::Result<Heard<ToWorker>>),
    Time,
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
        ready: Ready,
        messages: Rc<Messages>,
    ) -> Result<Control, String> {
        let cores = line.registry.cores();
        let bufsize = ready.bufsize();
        let workers = Workers::start(cores, line.registry.clone(), bufsize, ready.cpu_map())
            .map_err(|error| format!("cannot start {cores} threads: {error}"))?;
        line.commit(ready, &workers).await.map_err(|refused| refused.to_string())?;
        messages.apply(&line.model);
        Ok(Control {
            settings: Arc::new(settings),
            socket,
            line,
            workers,
            messages,
            succession: Succession::default(),
            drain: None,
            resuming: Resuming::default(),
            reading: None,
            again: Vec::new(),
            plans: VecDeque::new(),
            patience: stuck::OVERTAKEN_AFTER,
            certificates: Certificates::default(),
            taking_over: None,
            begun: None,
            servant: None,
            losses: LossReports::default(),
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

    /// Serves until a soft stop is complete; gives the exit code. `announce` is called once signals are listened to and it is
    /// decided that we are the ones to serve.
    ///
    /// # Errors
    /// When signals cannot be listened to.
    pub async fn run(mut self, announce: impl FnOnce()) -> io::Result<u8> {
        let mut signals = Signals::listen()?;
        if std::process::id() == 1 {
            // To the first process of a container the kernel gives only signals that it listens to.
            signals.listen_for_the_end()?;
        }
        early_signals::come()?;
        let (asked, mut questions) = mpsc::channel(ASKED_MAX);
        let (events, mut conversations) = mpsc::channel(succession::EVENTS_MAX);
        let rights = self.settings.rights.clone();
        let lineage = self.succession.lineage.clone();
        let desk = Desk { rights, places: Places::default(), lineage, asked, events };
        for listener in self.socket.listeners()? {
            tokio::spawn(endpoint::serve(listener, desk.clone()));
        }
        let mut code = 0;
        self.listen_for_the_end(&mut signals)?;
        match self.take_over(&desk.events).await {
            Ok(()) => {
                self.begin_direct().await;
                self.begin_service().await;
                announce();
                self.settings.manager.ready("");
                self.messages.is_serving();
                self.watch_certificates();
            }
            Err(reason) => {
                // Whoever started us learns it from our end.
                drop(announce);
                self.messages.alert(&format!("[haproxy.main()] {reason}. Ending."));
                code = 1;
                let now = Instant::now();
                self.stop_listening().await;
                self.drain = Some((Drain::draining(&self.line.model.global, now), now));
            }
        }
        loop {
            let event = self.next(&mut signals, &mut questions, &mut conversations).await;
            match event {
                Event::Reload => self.reload(Waiting::Signal),
                Event::Loaded(loaded) => self.change(loaded).await,
                Event::Asked(asked) => self.answer(asked),
                Event::Command(question) => runtime::answer(&mut self, question).await,
                Event::Conversation(event) => self.converse(event).await,
                Event::Certificates(event) => self.note_certificates(event),
                Event::SoftStop => self.soft_stop(),
                Event::Dump => self.dump(),
                Event::Pause => self.pause(),
                Event::Resume => self.resume().await,
                Event::Master(heard) => self.obey(heard, &desk).await,
                Event::Direct(answer) => self.step_direct(answer),
                Event::LinesLost => {}
                Event::HardStop(number) => {
                    self.leave_direct();
                    self.socket.remove_file();
                    output::flush(output::FLUSHED_WITHIN);
                    end_by(number);
                }
                Event::Time => self.step_direct(None),
            }
            self.listen_for_the_end(&mut signals)?;
            runtime::answer_postponed(&mut self).await;
            self.step_readings();
            self.step_pause().await;
            self.rotate_tickets().await;
            self.look_at_certificates();
            self.losses.report(&self.messages);
            runtime::figures::tick(&mut self, Instant::now());
            if self.line.close_empty(Instant::now(), &self.workers).await > 0 {
                self.report_sockets().await;
            }
            self.report(false);
            if self.succession.is_cut() || self.drained().await {
                self.workers.command(Command::Abort).await;
                self.workers.join();
                self.report_last(&mut conversations).await;
                self.leave_direct();
                return Ok(code);
            }
        }
    }

    /// Lets go of sockets that were given to us and that the configuration does not ask for.
    fn drop_left(&mut self) {
        let left: Vec<String> = self.line.listeners.left().known().map(ToString::to_string).collect();
        if !left.is_empty() {
            let list = left.join(", ");
            self.messages.notice(&format!("Not in the configuration, and left to whoever passed them to us: {list}."));
        }
        self.line.listeners.drop_left();
    }

    /// Tells those we take over from, if there is anybody.
    async fn take_over(&mut self, events: &mpsc::Sender<giver::Event>) -> Result<(), String> {
        match self.taking_over.take() {
            Some(taken) => self.conclude(taken, events).await,
            None => {
                self.drop_left();
                Ok(())
            }
        }
    }

    /// Whether a soft stop is under way.
    pub(crate) fn is_stopping(&self) -> bool {
        self.drain.is_some()
    }

    /// Whether the files of a reload were read, and only have to be put in use.
    pub(crate) fn has_read(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.loaded.is_finished())
    }

    async fn next(
        &mut self,
        signals: &mut Signals,
        questions: &mut mpsc::Receiver<Asked>,
        conversations: &mut mpsc::Receiver<giver::Event>,
    ) -> Event {
        let look = self.look_again();
        let time = async {
            match look {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        let (reading, runtime, servant) = (&mut self.reading, &mut self.line.runtime, &self.servant);
        let direct = &mut self.line.direct;
        let certificates = &mut self.certificates;
        let is_looking = certificates.is_looking();
        let loaded = async {
            match reading {
                Some(reading) if !is_looking => (&mut reading.loaded).await,
                Some(_) | None => pending().await,
            }
        };
        let master = async {
            match servant {
                Some(servant) => servant.hear().await,
                None => pending().await,
            }
        };
        tokio::select! {
            heard = master => Event::Master(heard),
            loaded = loaded => Event::Loaded(loaded),
            _ = signals.usr2.recv() => Event::Reload,
            _ = signals.usr1.recv() => Event::SoftStop,
            _ = signals.hup.recv() => Event::Dump,
            _ = signals.ttou.recv() => Event::Pause,
            _ = signals.ttin.recv() => Event::Resume,
            Some(asked) = questions.recv() => Event::Asked(asked),
            Some(question) = runtime.next() => Event::Command(question),
            Some(event) = conversations.recv() => Event::Conversation(event),
            answer = direct.next() => Event::Direct(answer),
            number = the_end(&mut signals.end) => Event::HardStop(number),
            event = certificates.next() => Event::Certificates(event),
            () = losses::happened() => Event::LinesLost,
            () = time => Event::Time,
        }
    }

    /// When time alone makes something happen.
    fn look_again(&self) -> Option<Instant> {
        let leaving = (self.line.listeners.leaving_count() > 0).then(|| Instant::now() + retirement::LOOK_EVERY);
        let draining = self.drain.as_ref().map(|(_, at)| *at);
        leaving
            .into_iter()
            .chain(self.look_at_pause())
            .chain(self.look_at_readings())
            .chain(draining)
            .chain(self.line.runtime.due())
            .chain(self.tickets_due())
            .chain(self.losses.due())
            .chain(self.line.direct.due().filter(|_| !self.succession.is_giving()))
            // Nothing is looked at any more by who stops.
            .chain(self.certificates.due().filter(|_| self.drain.is_none()))
            .min()
    }

    fn answer(&mut self, asked: Asked) {
        match asked.request {
            Request::Reload => self.reload(Waiting::Asker(asked.reply)),
            Request::Status => {
                let status = status::status(self);
                let _ = asked.reply.send(Reply::Status(Box::new(status)));
            }
            Request::SyncCertificates => self.sync_certificates(asked.reply),
            Request::Certificates => self.list_certificates(asked.reply),
            // The endpoint leaves these to the handover.
            Request::Handover => {}
            Request::Upgrade => {
                let reason = "it has no master that could replace it: start the new program with `-sf` and its number";
                let _ = asked.reply.send(Reply::Failed { reason: reason.into() });
            }
            Request::Plan { files } => self.plan(Planning { files, reply: asked.reply }),
        }
    }

    pub(crate) fn soft_stop(&mut self) {
        if self.drain.is_none() && !self.succession.defer_stop() {
            self.resuming = Resuming::No;
            self.settings.manager.stopping();
            let now = Instant::now();
            self.drain = Some((Drain::start(&self.line.model.global, now), now));
        }
    }

    /// Takes the soft stop one step further; true when it is complete.
    async fn drained(&mut self) -> bool {
        let Some((mut drain, _)) = self.drain.take() else { return false };
        loop {
            let left = Left {
                connections: self.workers.open_connections() + self.line.direct.left(),
                listeners: self.line.listeners.leaving_count(),
            };
            match drain.step(Instant::now(), left) {
                DrainStep::Wait(until) => {
                    self.drain = Some((drain, until));
                    return false;
                }
                DrainStep::StopListening => {
                    self.stop_listening().await;
                    self.end_direct_softly();
                }
                DrainStep::HardStop => {
                    let text = "soft-stop running for too long, performing a hard-stop.";
                    self.messages.warning(text);
                    self.messages.log(Level(4), text);
                    return true;
                }
                DrainStep::Done => return true,
            }
        }
    }

    /// No new connections; the open ones end.
    pub(crate) async fn stop_listening(&mut self) {
        self.line.listeners.retire_all(Instant::now());
        let spread = self.line.model.global.close_spread_time;
        self.retire_by_master().await;
        self.workers.command(Command::Drain { spread }).await;
        for (proxy, text) in status::stopped(&self.line) {
            self.messages.warning(&text);
            self.messages.log_for(&proxy, Level(4), &text);
        }
    }

    fn dump(&self) {
        self.messages.warning("SIGHUP received, dumping servers states.");
        for (proxy, text) in status::dump(&self.line) {
            self.messages.warning(&text);
            self.messages.log_for(&proxy, Level(5), &text);
        }
    }
}
