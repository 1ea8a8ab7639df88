//! The running master: signals, the end of children, what workers say and who asks come in; the supervisor's effects go out.

mod reexec;

use std::collections::HashMap;
use std::future::pending;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use baton_config::Severity;
use baton_kernel::process::over_exec::memory_file;
use baton_model::{AccessLevel, Level};
use socket2::Socket;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use self::reexec::Resumed;
use super::cli::{Cli, One, Processes, Question, Target};
use super::conversation;
use super::held::Held;
use super::link::{self, Begin, Heard, Link, ToMaster, ToWorker};
use super::process::{self, Program};
use super::supervisor::{Effect, Ended, Stop, Supervisor, Tone, Why, Worker, WorkerId};
use crate::endpoint;
use crate::messages::Messages;
use crate::protocol::{Message, Outcome, Reply, Request};
use crate::runtime::spoken_version;
use crate::service_manager::ServiceManager;

/// How long to wait for the last words of a worker that has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);
/// How long those who waited for an upgrade have to get their answer, before the master becomes the new binary.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);
/// Askers that wait for the same reload.
const WAITING_MAX: usize = 64;
/// Bytes of start-up messages that are kept.
const LOGS_BYTES_MAX: usize = 64 * 1024;

/// What a master is made of.
#[derive(Debug)]
pub struct Setup {
    /// How to start workers.
    pub program: Program,
    /// Baton's version.
    pub version: String,
    /// The voice.
    pub messages: Rc<Messages>,
    /// Whom to tell how we are.
    pub manager: ServiceManager,
    /// How often to tell that we are alive.
    pub watchdog: Option<Duration>,
    /// What standard input held (`-f -`).
    pub input: Option<Vec<u8>>,
    /// `-D`: nobody sees what is said once the first worker serves.
    pub is_detached: bool,
    /// `-S`.
    pub cli: Option<Cli>,
    /// Listening sockets from whoever started us.
    pub sockets: Vec<OwnedFd>,
}

/// The master.
struct Master {
    setup: Setup,
    supervisor: Supervisor,
    workers: HashMap<WorkerId, Process>,
    held: Held,
    /// What standard input held.
    input: Option<OwnedFd>,
    /// The text that is in use.
    text: Option<OwnedFd>,
    /// Who waits for an upgrade.
    waiting: Vec<Waiting>,
    since: Instant,
    /// What workers said when they started.
    logs: String,
    /// Whether the worker that serves has answered since it was asked; `None` before the first question.
    answered: Option<bool>,
    /// The first worker has served: `READY=1`, which has to be the first word, was said.
    is_started: bool,
    /// Reloads that the worker has not answered yet.
    reloads_under_way: usize,
    /// Where `baton reload` asks: a second descriptor, for the next binary.
    endpoint: Option<StdListener>,
    /// Held by every conversation that we do not know of yet.
    busy: Rc<()>,
    /// How often becoming the new binary was put off.
    put_off: u32,
    /// A second descriptor of the socket of `-S`, for the next binary.
    cli: Option<OwnedFd>,
    events: mpsc::UnboundedSender<Event>,
}

/// A worker's process.
#[derive(Debug)]
struct Process {
    pid: i32,
    link: Rc<Link>,
    reader: JoinHandle<()>,
    /// The version of the state its binary reads.
    state: u32,
}

/// Who wants to know what came of a reload.
#[derive(Debug)]
pub(super) enum Waiting {
    /// `baton reload`.
    Asker(UnixStream),
    /// `reload` of the master's socket.
    Session(oneshot::Sender<Reply>),
}

impl Waiting {
    fn answer(self, reply: Reply) {
        match self {
            Waiting::Asker(stream) => drop(tokio::task::spawn_local(conversation::answer(stream, reply))),
            // Who does not wait any more does not want to know.
            Waiting::Session(session) => drop(session.send(reply)),
        }
    }
}

/// What can happen to a master.
#[derive(Debug)]
pub(super) enum Event {
    /// SIGUSR2 or SIGHUP.
    Reload,
    /// SIGUSR1, SIGTERM, SIGINT.
    Stop(Stop),
    /// SIGCHLD.
    Child,
    /// A worker says something.
    Heard(WorkerId, ToMaster, Vec<OwnedFd>),
    /// `baton reload` or `baton upgrade`.
    AskedReload {
        /// Takes the answer.
        stream: UnixStream,
        /// Whether the program is to be started anew even if it is the same.
        is_upgrade: bool,
    },
    /// Everybody who waited has his answer: become the new binary.
    Reexec,
    /// Anything else that is asked at our address.
    Conversation(UnixStream),
    /// What became of a reload in a worker.
    Reloaded(Result<Reply, String>, Vec<Waiting>),
    /// A session of `-S` wants to know something.
    Question(Question),
    /// Look whether it is time for something.
    Time,
    /// Time to tell that we are alive.
    Alive,
}

/// Runs until the last worker has ended; gives the exit code. `started` is called when the first worker serves.
///
/// # Errors
/// A sentence: the master cannot begin.
pub fn run(setup: Setup, resumed: Option<Resumed>, started: impl FnOnce()) -> Result<u8, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (events, happened) = mpsc::unbounded_channel();
        let master = match resumed {
            Some(resumed) => Master::resumed(setup, resumed, events),
            None => Master::new(setup, events),
        };
        let master = master.map_err(|error| format!("cannot start: {error}"))?;
        master.live(happened, started).await.map_err(|error| format!("cannot start: {error}"))
    })
}

impl Master {
    fn new(mut setup: Setup, events: mpsc::UnboundedSender<Event>) -> std::io::Result<Master> {
        let mut held = Held::default();
        for socket in std::mem::take(&mut setup.sockets) {
            if let Err(error) = held.hold(socket, None) {
                setup.messages.warning(&format!("an inherited socket is not used: {error}"));
            }
        }
        let input = setup.input.take().map(|input| memory_file("baton-input", &input)).transpose()?;
        Ok(Master {
            setup,
            supervisor: Supervisor::default(),
            workers: HashMap::new(),
            held,
            input,
            text: None,
            waiting: Vec::new(),
            since: Instant::now(),
            logs: String::new(),
            answered: None,
            is_started: false,
            reloads_under_way: 0,
            cli: None,
            endpoint: None,
            busy: Rc::default(),
            put_off: 0,
            events,
        })
    }

    async fn live(
        mut self,
        mut happened: mpsc::UnboundedReceiver<Event>,
        started: impl FnOnce(),
    ) -> std::io::Result<u8> {
        let mut signals = Signals::listen()?;
        let listening = match self.endpoint.take() {
            Some(listener) => Ok(listener),
            None => endpoint::listen(),
        };
        match listening {
            Ok(listener) => {
                self.endpoint = Some(listener.try_clone()?);
                let may_ask = nix::unistd::geteuid().as_raw();
                let busy = Rc::downgrade(&self.busy);
                tokio::task::spawn_local(conversation::serve(listener, may_ask, busy, self.events.clone()));
            }
            Err(error) => self.messages().warning(&format!("`baton reload` will not find this process: {error}")),
        }
        if let Some(cli) = self.setup.cli.take() {
            self.cli = Some(cli.another()?);
            tokio::task::spawn_local(cli.serve(spoken_version(&self.setup.version), self.events.clone()));
        }
        let mut watchdog = self.setup.watchdog.map(tokio::time::interval);
        let mut started = Some(started);
        Master::let_signals_in();
        let mut effects = match self.is_started {
            false => self.supervisor.start(Instant::now()),
            true => {
                self.messages().is_serving();
                self.setup.manager.ready(&self.status());
                Vec::new()
            }
        };
        loop {
            let mut todo = std::mem::take(&mut effects);
            while !todo.is_empty() {
                let mut next = Vec::new();
                for effect in todo {
                    match effect {
                        Effect::Exit(code) => return Ok(u8::try_from(code).unwrap_or(u8::MAX)),
                        Effect::Started => {
                            self.started();
                            started.take().into_iter().for_each(|started| started());
                        }
                        other => next.extend(self.act(other).await),
                    }
                }
                todo = next;
            }
            let event = self.next(&mut signals, &mut happened, &mut watchdog).await;
            effects = self.happen(event, &mut happened).await;
        }
    }

    fn messages(&self) -> &Messages {
        &self.setup.messages
    }

    async fn next(
        &mut self,
        signals: &mut Signals,
        happened: &mut mpsc::UnboundedReceiver<Event>,
        watchdog: &mut Option<tokio::time::Interval>,
    ) -> Event {
        let look = self.supervisor.look_again();
        let time = async {
            match look {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        let alive = async {
            match watchdog {
                Some(interval) => drop(interval.tick().await),
                None => pending().await,
            }
        };
        tokio::select! {
            _ = signals.child.recv() => Event::Child,
            _ = signals.usr2.recv() => Event::Reload,
            _ = signals.hup.recv() => Event::Reload,
            _ = signals.usr1.recv() => Event::Stop(Stop::Soft),
            _ = signals.term.recv() => Event::Stop(Stop::Hard(nix::libc::SIGTERM)),
            _ = signals.int.recv() => Event::Stop(Stop::Hard(nix::libc::SIGINT)),
            Some(event) = happened.recv() => event,
            () = time => Event::Time,
            () = alive => Event::Alive,
        }
    }

    async fn happen(&mut self, event: Event, happened: &mut mpsc::UnboundedReceiver<Event>) -> Vec<Effect> {
        let now = Instant::now();
        match event {
            Event::Reload => self.reload(false, now),
            Event::AskedReload { stream, is_upgrade } => self.reload_for(Waiting::Asker(stream), is_upgrade, now),
            Event::Question(Question::Reload(reply)) => self.reload_for(Waiting::Session(reply), false, now),
            Event::Reexec => {
                // What was heard meanwhile comes first.
                let is_idle = happened.is_empty() && self.reloads_under_way == 0 && Rc::strong_count(&self.busy) == 1;
                self.reexec(is_idle);
                Vec::new()
            }
            Event::Question(question) => {
                self.answer_session(question).await;
                Vec::new()
            }
            Event::Stop(stop) => {
                self.setup.manager.stopping();
                self.supervisor.stop(stop, now)
            }
            Event::Child => self.reap(happened).await,
            Event::Heard(id, message, fds) => self.heard(id, message, fds),
            Event::Conversation(stream) => {
                self.hand_on(stream).await;
                Vec::new()
            }
            Event::Reloaded(outcome, waiting) => {
                self.reloaded(outcome, waiting);
                Vec::new()
            }
            Event::Time => self.supervisor.time(now),
            Event::Alive => {
                self.alive().await;
                Vec::new()
            }
        }
    }

    fn reload_for(&mut self, waiting: Waiting, is_upgrade: bool, now: Instant) -> Vec<Effect> {
        if self.waiting.len() >= WAITING_MAX {
            waiting.answer(Reply::Failed { reason: "too many reloads wait already".into() });
            return Vec::new();
        }
        self.waiting.push(waiting);
        let effects = self.reload(is_upgrade, now);
        if self.supervisor.is_stopping() {
            self.answer(&Reply::Failed { reason: "the master is stopping".into() });
        }
        effects
    }

    /// Answers a session of `-S`, which may have left.
    async fn answer_session(&self, question: Question) {
        match question {
            Question::Processes(reply) => drop(reply.send(self.processes(Instant::now()))),
            Question::Logs(reply) => drop(reply.send(self.logs.clone())),
            Question::Reload(reply) => drop(reply.send(Reply::Failed { reason: "not now".into() })),
            Question::Worker(target, level, reply) => drop(reply.send(self.connect(target, level).await)),
        }
    }

    /// A connection to the runtime API of a worker, which is new for each command.
    async fn connect(&self, target: Target, level: AccessLevel) -> Option<(i32, Option<UnixStream>)> {
        let process = match target {
            Target::Relative(1) => self.workers.get(&self.supervisor.current()?.id)?,
            Target::Pid(pid) => self.workers.values().find(|process| process.pid == pid)?,
            Target::Master | Target::Relative(_) | Target::Nobody => return None,
        };
        let session = ToWorker::Session { level: level.word().into() };
        let stream = match UnixStream::pair() {
            Ok((ours, theirs)) => process.link.say(&session, &[theirs.as_fd()]).await.ok().map(|()| ours),
            Err(_) => None,
        };
        Some((process.pid, stream))
    }

    /// `show proc`.
    fn processes(&self, now: Instant) -> Processes {
        let one = |worker: &Worker| One {
            pid: worker.pid,
            reloads: worker.reloads,
            uptime: now.saturating_duration_since(worker.since),
            version: if worker.version.is_empty() { "-".into() } else { spoken_version(&worker.version) },
        };
        let master = One {
            pid: std::process::id().cast_signed(),
            reloads: self.supervisor.reloads,
            uptime: now.saturating_duration_since(self.since),
            version: spoken_version(&self.setup.version),
        };
        let trouble = self.supervisor.crash_loop(now).map(|(crashes, wait)| match wait.is_zero() {
            true => format!("{crashes} workers crashed in a row"),
            false => format!("{crashes} workers crashed in a row; the next one is started in {} ms", wait.as_millis()),
        });
        Processes {
            master,
            failed: self.supervisor.reloads_failed,
            workers: self.supervisor.current().into_iter().chain(self.supervisor.starting()).map(one).collect(),
            leaving: self.supervisor.leaving().iter().map(one).collect(),
            trouble,
            last_reload_failed: self.supervisor.last_reload_failed,
        }
    }

    fn reload(&mut self, is_upgrade: bool, now: Instant) -> Vec<Effect> {
        let is_new_binary = is_upgrade || self.setup.program.has_changed();
        if !self.supervisor.is_stopping() {
            self.setup.manager.reloading();
            self.messages().notice("Reloading");
        }
        self.supervisor.reload(is_new_binary, now)
    }

    /// What the supervisor wants done; gives what follows from it.
    async fn act(&mut self, effect: Effect) -> Vec<Effect> {
        let now = Instant::now();
        match effect {
            Effect::Spawn { id, why, text } => return self.spawn(id, why, text, now).await,
            Effect::Reload(id) => {
                if let Some(process) = self.workers.get(&id) {
                    let (pid, events) = (process.pid, self.events.clone());
                    let waiting = std::mem::take(&mut self.waiting);
                    self.reloads_under_way += 1;
                    tokio::task::spawn_local(async move {
                        let outcome = conversation::ask(pid, Request::Reload).await;
                        let _ = events.send(Event::Reloaded(outcome, waiting));
                    });
                }
            }
            // The handover has told it already.
            Effect::Retire(_) => {}
            Effect::Signal(id, number) => {
                if let (Some(process), Ok(signal)) = (self.workers.get(&id), nix::sys::signal::Signal::try_from(number))
                {
                    // One that is gone already has what was wanted.
                    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.pid), signal);
                }
            }
            Effect::Upgraded(is_done) => self.upgraded(is_done),
            Effect::Say(tone, text) => self.say(tone, &text),
            Effect::Reexec => self.reexec_soon(),
            Effect::Started | Effect::Exit(_) => {}
        }
        Vec::new()
    }

    fn started(&mut self) {
        self.messages().notice("Loading success.");
        self.messages().is_serving();
        self.is_started = true;
        self.setup.manager.ready(&self.status());
    }

    async fn spawn(&mut self, id: WorkerId, why: Why, text: super::supervisor::Text, now: Instant) -> Vec<Effect> {
        match self.try_spawn(id, why, text).await {
            Ok(pid) => {
                self.supervisor.spawned(id, pid);
                self.messages().notice(&format!("New worker ({pid}) forked"));
                Vec::new()
            }
            Err(error) => {
                self.messages().alert(&format!("Cannot start a worker: {error}"));
                self.supervisor.exited(id, Ended::Exited(1), now)
            }
        }
    }

    async fn try_spawn(&mut self, id: WorkerId, why: Why, text: super::supervisor::Text) -> std::io::Result<i32> {
        let (ours, theirs) = link::pair()?;
        let pid = self.setup.program.spawn(theirs, why == Why::Upgrade)?;
        let link = self.follow(id, pid, ours, 0)?;
        let take_over = match why {
            Why::Upgrade => self.supervisor.current().and_then(|worker| u32::try_from(worker.pid).ok()),
            Why::First | Why::Replace => None,
        };
        let begin = Begin {
            is_first: why == Why::First,
            is_detached: self.setup.is_detached && why == Why::First,
            take_over,
            may_ask: vec![nix::unistd::geteuid().as_raw()],
        };
        // A worker that is gone already is reaped like any other.
        let _ = self.summon(&link, begin, text).await;
        Ok(pid)
    }

    /// Listens to a worker from now on.
    fn follow(&mut self, id: WorkerId, pid: i32, line: Socket, state: u32) -> std::io::Result<Rc<Link>> {
        let link = Rc::new(Link::new(line)?);
        let reader = tokio::task::spawn_local(listen(id, link.clone(), self.events.clone()));
        self.workers.insert(id, Process { pid, link: link.clone(), reader, state });
        Ok(link)
    }

    async fn summon(&self, link: &Link, begin: Begin, text: super::supervisor::Text) -> std::io::Result<()> {
        link.say_sockets(&ToWorker::Sockets, &self.held.fds()).await?;
        if let Some(input) = &self.input {
            link.say(&ToWorker::Input, &[input.as_fd()]).await?;
        }
        if let (super::supervisor::Text::LastGood, Some(text)) = (text, &self.text) {
            link.say(&ToWorker::Text, &[text.as_fd()]).await?;
        }
        link.say(&ToWorker::Begin(begin), &[]).await
    }

    fn heard(&mut self, id: WorkerId, message: ToMaster, fds: Vec<OwnedFd>) -> Vec<Effect> {
        match message {
            ToMaster::Hold => {
                for fd in fds {
                    if let Err(error) = self.held.hold(fd, Some(id)) {
                        self.messages().warning(&format!("a listening socket is not held: {error}"));
                    }
                }
            }
            ToMaster::Release { sockets } => {
                let workers = &self.workers;
                self.held.release(&sockets, id, |other| workers.contains_key(&other));
            }
            ToMaster::Text => self.text = fds.into_iter().next(),
            ToMaster::Said { text } => {
                let is_room = text.len() <= LOGS_BYTES_MAX;
                self.logs = if is_room { text } else { String::new() };
            }
            ToMaster::Ready { version, state } => {
                if let Some(process) = self.workers.get_mut(&id) {
                    process.state = state;
                }
                self.answered = None;
                let effects = self.supervisor.ready(id, &version, Instant::now());
                self.tell_status();
                return effects;
            }
            ToMaster::HandedOver { to } => {
                let is_ours = self.workers.values().any(|process| u32::try_from(process.pid) == Ok(to));
                if !is_ours {
                    self.messages()
                        .notice(&format!("Process {to} took over from the worker; the master ends with it."));
                    self.held.clear();
                    self.setup.manager.stopping();
                    return self.supervisor.stop(Stop::Soft, Instant::now());
                }
            }
            ToMaster::Pong => self.answered = Some(true),
        }
        Vec::new()
    }

    /// Children have ended: first their last words, then the end.
    async fn reap(&mut self, happened: &mut mpsc::UnboundedReceiver<Event>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (pid, ended) in process::reap() {
            let Some(id) = self.workers.iter().find(|(_, process)| process.pid == pid).map(|(id, _)| *id) else {
                continue;
            };
            if let Some(process) = self.workers.get_mut(&id) {
                // It ends when everything was heard; a child of the worker that kept the line is not waited for.
                let _ = tokio::time::timeout(LAST_WORDS_WITHIN, &mut process.reader).await;
                process.reader.abort();
            }
            let mut later = Vec::new();
            while let Ok(event) = happened.try_recv() {
                match event {
                    Event::Heard(id, message, fds) => effects.extend(self.heard(id, message, fds)),
                    other => later.push(other),
                }
            }
            later.into_iter().for_each(|event| drop(self.events.send(event)));
            self.workers.remove(&id);
            effects.extend(self.supervisor.exited(id, ended, Instant::now()));
            self.tell_status();
        }
        effects
    }

    /// Hands an asker to the worker that serves.
    async fn hand_on(&mut self, stream: UnixStream) {
        let current = self.supervisor.current().and_then(|worker| self.workers.get(&worker.id));
        let handed = match current {
            Some(process) => process.link.say(&ToWorker::Serve, &[stream.as_fd()]).await.is_ok(),
            None => false,
        };
        if !handed {
            let reason = "there is no worker right now; try again".into();
            tokio::task::spawn_local(conversation::answer(stream, Reply::Failed { reason }));
        }
    }

    fn reloaded(&mut self, outcome: Result<Reply, String>, waiting: Vec<Waiting>) {
        self.reloads_under_way = self.reloads_under_way.saturating_sub(1);
        let reply = outcome.unwrap_or_else(|reason| Reply::Failed { reason });
        let is_accepted = matches!(&reply, Reply::Reload(outcome) if outcome.accepted);
        self.supervisor.reloaded(is_accepted);
        match is_accepted {
            true => self.messages().notice("Loading success."),
            false => self.messages().warning("Loading failure!"),
        }
        waiting.into_iter().for_each(|waiting| waiting.answer(reply.clone()));
        self.setup.manager.ready(&self.status());
    }

    fn upgraded(&mut self, is_done: bool) {
        self.supervisor.reloaded(is_done);
        let pid = std::process::id();
        let (severity, text) = match is_done {
            true => (Severity::Notice, "Another binary serves now."),
            false => (Severity::Alert, "The new binary did not get ready; the worker before it serves on."),
        };
        let mut messages = vec![Message::plain(severity, "upgrade", text, pid)];
        if !is_done && !self.logs.is_empty() {
            let rendered = self.logs.clone();
            messages.insert(0, Message { rendered, ..Message::plain(Severity::Alert, "worker", "", pid) });
        }
        let outcome = Outcome { accepted: is_done, generation: 1, messages, ..Outcome::default() };
        self.answer(&Reply::Reload(outcome));
        self.setup.manager.ready(&self.status());
    }

    fn answer(&mut self, reply: &Reply) {
        std::mem::take(&mut self.waiting).into_iter().for_each(|waiting| waiting.answer(reply.clone()));
    }

    /// Tells the service manager that we are alive, if the worker is.
    async fn alive(&mut self) {
        let current = self.supervisor.current().and_then(|worker| self.workers.get(&worker.id));
        let Some(process) = current else { return };
        if self.is_started && self.answered != Some(false) {
            self.setup.manager.alive();
        }
        if process.link.say(&ToWorker::Ping, &[]).await.is_ok() {
            self.answered = Some(false);
        }
    }

    /// How we are, in a sentence.
    fn status(&self) -> String {
        let mut text = match (self.supervisor.current(), self.supervisor.crash_loop(Instant::now())) {
            (_, Some((crashes, wait))) if !wait.is_zero() => {
                format!("{crashes} workers crashed in a row; the next one is started in {wait:?}")
            }
            (Some(worker), _) => format!("Serving with worker {}", worker.pid),
            (None, _) => "Starting a worker".into(),
        };
        if self.supervisor.crashed_total > 0 {
            text.push_str(&format!("; crashed workers: {}", self.supervisor.crashed_total));
        }
        if self.supervisor.last_reload_failed {
            text.push_str("; the last reload was refused");
        }
        text + "."
    }

    fn tell_status(&self) {
        if self.is_started {
            self.setup.manager.status(&self.status());
        }
    }

    fn say(&self, tone: Tone, text: &str) {
        let level = match tone {
            Tone::Notice => {
                self.messages().notice(text);
                Level(5)
            }
            Tone::Warning => {
                self.messages().warning(text);
                Level(4)
            }
            Tone::Alert => {
                self.messages().alert(text);
                Level(1)
            }
        };
        self.messages().log(level, text);
    }
}

/// Passes on what a worker says, until it is gone.
async fn listen(id: WorkerId, link: Rc<Link>, events: mpsc::UnboundedSender<Event>) {
    loop {
        match link.hear().await {
            Ok(Heard::Message(message, fds)) => {
                if events.send(Event::Heard(id, message, fds)).is_err() {
                    return;
                }
            }
            Ok(Heard::Unknown) => {}
            Ok(Heard::Closed) | Err(_) => return,
        }
    }
}

/// The signals that are listened to. Several of one kind that arrive before it is looked at are one.
struct Signals {
    child: Signal,
    usr1: Signal,
    usr2: Signal,
    hup: Signal,
    term: Signal,
    int: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            child: signal(SignalKind::child())?,
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
            hup: signal(SignalKind::hangup())?,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }
}
