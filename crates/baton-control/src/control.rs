//! The running process: signals, questions and time come in, the change line answers.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use baton_config::{Loaded, Options};
use baton_model::Level;
use baton_proxy::{Command, Workers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::drain::{Drain, DrainStep, Left};
use crate::endpoint::{self, Asked};
use crate::environment::Outside;
use crate::handover::giver;
use crate::handover::succession::{self, Succession};
use crate::handover::taker::Taken;
use crate::master::link::{Heard, ToWorker};
use crate::master::{Servant, Summoned};
use crate::messages::Messages;
use crate::protocol::{Outcome, Reply, Request};
use crate::reload::{self, ChangeLine, Ready};
use crate::runtime::{self, Question};
use crate::service_manager::ServiceManager;
use crate::{retirement, status};

/// Questions that wait for the change line; further askers wait themselves.
const ASKED_MAX: usize = 64;
/// Reloads that wait for the same reading of the files.
const WAITING_MAX: usize = 64;

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
    /// Users besides root that may ask: the one of the start and the one of now.
    pub may_ask: Vec<u32>,
}

/// The running process.
pub struct Control {
    pub(crate) settings: Arc<Settings>,
    pub(crate) line: ChangeLine,
    pub(crate) workers: Workers,
    pub(crate) messages: Rc<Messages>,
    pub(crate) succession: Succession,
    pub(crate) drain: Option<(Drain, Instant)>,
    reading: Option<Reading>,
    /// A reload was asked for after the files of the current one had begun to be read, or while somebody takes over.
    again: Vec<Waiting>,
    /// From whom we take over.
    taking_over: Option<Taken>,
    /// The line to our master, before we serve and from then on; `None` without a master.
    pub(crate) summoned: Option<(Summoned, Option<Vec<u8>>)>,
    pub(crate) servant: Option<Servant>,
}

/// Files being read on another thread.
#[derive(Debug)]
struct Reading {
    loaded: JoinHandle<Box<Loaded>>,
    outside: Arc<Outside>,
    waiting: Vec<Waiting>,
}

/// Who wants to know the outcome of a reload.
#[derive(Debug)]
enum Waiting {
    /// SIGUSR2: the messages are the answer.
    Signal,
    /// `baton reload`.
    Asker(oneshot::Sender<Reply>),
}

/// What can happen to the process.
#[derive(Debug)]
enum Event {
    Reload,
    SoftStop,
    Dump,
    PauseOrResume(&'static str),
    Asked(Asked),
    Command(Question),
    Conversation(giver::Event),
    Loaded(Result<Box<Loaded>, tokio::task::JoinError>),
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
            line,
            workers,
            messages,
            succession: Succession::default(),
            drain: None,
            reading: None,
            again: Vec::new(),
            taking_over: None,
            summoned: None,
            servant: None,
        })
    }

    /// The process works for a master, which keeps the text that was read.
    pub fn under(mut self, summoned: Summoned, text: Option<Vec<u8>>) -> Control {
        self.summoned = Some((summoned, text));
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
            end_as_first_process()?;
        }
        let (asked, mut questions) = mpsc::channel(ASKED_MAX);
        let (events, mut conversations) = mpsc::channel(succession::EVENTS_MAX);
        match endpoint::listen() {
            Ok(listener) => {
                let may_ask = self.settings.may_ask.clone();
                tokio::spawn(endpoint::serve(listener, may_ask, asked.clone(), events.clone()));
            }
            Err(error) => self.messages.warning(&format!("`baton reload` will not find this process: {error}")),
        }
        let mut code = 0;
        match self.take_over(&events).await {
            Ok(()) => {
                self.begin_service().await;
                announce();
                self.settings.manager.ready("");
                self.messages.is_serving();
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
                Event::Command(question) => runtime::answer(&mut self, question),
                Event::Conversation(event) => self.converse(event).await,
                Event::SoftStop => self.soft_stop(),
                Event::Dump => self.dump(),
                Event::PauseOrResume(name) => {
                    self.messages.warning(&format!("{name} received: listeners are not paused or resumed, ignored."));
                }
                Event::Master(heard) => self.obey(heard, &asked, &events).await,
                Event::Time => {}
            }
            runtime::figures::tick(&mut self, Instant::now());
            if self.line.close_empty(Instant::now(), &self.workers).await > 0 {
                self.report_sockets().await;
            }
            self.report(false);
            if self.succession.is_cut() || self.drained().await {
                self.workers.command(Command::Abort).await;
                self.workers.join();
                self.report_last(&mut conversations).await;
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

    /// Whether the files are being read.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
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
        let loaded = async {
            match reading {
                Some(reading) => (&mut reading.loaded).await,
                None => pending().await,
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
            _ = signals.ttou.recv() => Event::PauseOrResume("SIGTTOU"),
            _ = signals.ttin.recv() => Event::PauseOrResume("SIGTTIN"),
            Some(asked) = questions.recv() => Event::Asked(asked),
            Some(question) = runtime.next() => Event::Command(question),
            Some(event) = conversations.recv() => Event::Conversation(event),
            () = time => Event::Time,
        }
    }

    /// When time alone makes something happen.
    fn look_again(&self) -> Option<Instant> {
        let leaving = (self.line.listeners.leaving_count() > 0).then(|| Instant::now() + retirement::LOOK_EVERY);
        let draining = self.drain.as_ref().map(|(_, at)| *at);
        leaving.into_iter().chain(draining).chain(self.line.runtime.due()).min()
    }

    /// Begins to read the files, or remembers to do so again: what was asked for after a reading began may not be in it.
    fn reload(&mut self, waiting: Waiting) {
        if self.drain.is_some() {
            let reason = match self.succession.successor() {
                Some(successor) => format!("process {successor} has taken over"),
                None => "a soft stop is under way".into(),
            };
            self.refuse_reload(waiting, &reason);
            return;
        }
        if self.reading.is_some() || self.succession.is_giving() {
            if self.again.len() < WAITING_MAX {
                self.again.push(waiting);
            } else if let Waiting::Asker(reply) = waiting {
                drop(reply.send(Reply::Failed { reason: "too many reloads wait already".into() }));
            }
            return;
        }
        self.settings.manager.reloading();
        let settings = self.settings.clone();
        let is_kept = self.servant.is_some();
        let outside = Arc::new(if is_kept { settings.outside.recording() } else { settings.outside.view() });
        let from = outside.clone();
        let loaded = tokio::task::spawn_blocking(move || Box::new(reload::read(&settings.options, &from)));
        self.reading = Some(Reading { loaded, outside, waiting: vec![waiting] });
    }

    /// The files were read: changes to them, tells everybody who waits, and reads again if that was asked for meanwhile.
    async fn change(&mut self, loaded: Result<Box<Loaded>, tokio::task::JoinError>) {
        let Some(reading) = self.reading.take() else { return };
        let outcome = match loaded {
            Ok(_) if self.drain.is_some() => Err("a soft stop is under way".to_owned()),
            Ok(loaded) => Ok(self.line.change(*loaded, &reading.outside, &self.workers).await),
            Err(error) => Err(format!("the files could not be read: {error}")),
        };
        if outcome.as_ref().is_ok_and(|outcome| outcome.accepted) {
            self.report_sockets().await;
            self.keep_text(reading.outside.record()).await;
        }
        self.settings.manager.ready("");
        match &outcome {
            Ok(outcome) => self.tell(outcome),
            Err(reason) => self.messages.alert(&format!("Reload refused: {reason}.")),
        }
        let reply = match outcome {
            Ok(outcome) => Reply::Reload(outcome),
            Err(reason) => Reply::Failed { reason },
        };
        for waiting in reading.waiting {
            if let Waiting::Asker(asker) = waiting {
                // Who does not wait any more does not want to know.
                let _ = asker.send(reply.clone());
            }
        }
        self.reload_again();
    }

    /// Reads the files for those who asked while that had to wait.
    pub(crate) fn reload_again(&mut self) {
        let mut again = std::mem::take(&mut self.again).into_iter();
        again.next().into_iter().for_each(|first| self.reload(first));
        match &mut self.reading {
            Some(reading) => reading.waiting.extend(again),
            None => again.for_each(|waiting| self.reload(waiting)),
        }
    }

    /// Tells those who wait for a reload that there will be none.
    pub(crate) fn refuse_waiting(&mut self, reason: &str) {
        for waiting in std::mem::take(&mut self.again) {
            self.refuse_reload(waiting, reason);
        }
    }

    fn refuse_reload(&self, waiting: Waiting, reason: &str) {
        let text = format!("Reload refused: {reason}.");
        match waiting {
            Waiting::Signal => self.messages.warning(&text),
            // Who does not wait any more does not want to know.
            Waiting::Asker(reply) => drop(reply.send(Reply::Failed { reason: text })),
        }
    }

    /// Says what became of a reload, on standard error and in the log.
    fn tell(&self, outcome: &Outcome) {
        for message in &outcome.messages {
            self.messages.rendered(&message.rendered);
        }
        if !outcome.accepted {
            let text = format!("Reload refused, configuration {} stays in use.", outcome.generation);
            self.messages.alert(&text);
            self.messages.log(Level(1), &text);
            return;
        }
        self.messages.apply(&self.line.model);
        let mut text = match outcome.plan.changes.len() {
            0 => format!("Reload: configuration {} is in use, nothing changed.", outcome.generation),
            1 => format!("Reload: configuration {} is in use, 1 change.", outcome.generation),
            count => format!("Reload: configuration {} is in use, {count} changes.", outcome.generation),
        };
        self.messages.log(Level(5), &text);
        for change in &outcome.plan.changes {
            text.push('\n');
            text.push_str(&change.change);
        }
        self.messages.notice(&text);
    }

    fn answer(&mut self, asked: Asked) {
        match asked.request {
            Request::Reload => self.reload(Waiting::Asker(asked.reply)),
            Request::Status => {
                let status = status::status(self);
                let _ = asked.reply.send(Reply::Status(Box::new(status)));
            }
            // The endpoint leaves these to the handover.
            Request::Handover => {}
            Request::Upgrade => {
                let reason = "it has no master that could replace it: start the new program with `-sf` and its number";
                let _ = asked.reply.send(Reply::Failed { reason: reason.into() });
            }
            Request::Plan { files } => {
                let (settings, model, number) = (self.settings.clone(), self.line.model.clone(), self.line.number());
                tokio::task::spawn_blocking(move || {
                    let outcome = foresee(&settings, files, &model, number);
                    let _ = asked.reply.send(Reply::Plan(outcome));
                });
            }
        }
    }

    pub(crate) fn soft_stop(&mut self) {
        if self.drain.is_none() && !self.succession.defer_stop() {
            self.settings.manager.stopping();
            let now = Instant::now();
            self.drain = Some((Drain::start(&self.line.model.global, now), now));
        }
    }

    /// Takes the soft stop one step further; true when it is complete.
    async fn drained(&mut self) -> bool {
        let Some((mut drain, _)) = self.drain.take() else { return false };
        loop {
            let left =
                Left { connections: self.workers.open_connections(), listeners: self.line.listeners.leaving_count() };
            match drain.step(Instant::now(), left) {
                DrainStep::Wait(until) => {
                    self.drain = Some((drain, until));
                    return false;
                }
                DrainStep::StopListening => self.stop_listening().await,
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

/// SIGTERM and SIGINT end any other process without our doing; to the first one of a container the kernel gives only signals
/// that it listens to.
fn end_as_first_process() -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signal = signal(kind)?;
        tokio::spawn(async move {
            signal.recv().await;
            std::process::exit(128 + kind.as_raw_value());
        });
    }
    Ok(())
}

/// What `baton plan` asks. Files are read as the process would read them.
fn foresee(settings: &Settings, files: Vec<PathBuf>, model: &baton_model::Model, number: u64) -> Outcome {
    let mut options = settings.options.clone();
    if !files.is_empty() {
        options.files = files;
    }
    reload::foresee(reload::read(&options, &settings.outside), model, number)
}

/// The signals that are listened to. Several of one kind that arrive before it is looked at are one.
struct Signals {
    usr1: Signal,
    usr2: Signal,
    hup: Signal,
    ttou: Signal,
    ttin: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let of = |number| signal(SignalKind::from_raw(number));
        Ok(Signals {
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
            hup: signal(SignalKind::hangup())?,
            ttou: of(nix::libc::SIGTTOU)?,
            ttin: of(nix::libc::SIGTTIN)?,
        })
    }
}
