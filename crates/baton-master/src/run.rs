//! The running master: signals, the end of children, what workers say and who asks come in; the supervisor's effects go out.

mod reexec;
mod store;
mod tell;
mod workers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::pending;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use baton_control::control_socket::{self, ControlSocket};
use baton_control::losses::LossReports;
use baton_control::messages::Messages;
use baton_control::protocol::{Reply, Request};
use baton_control::rights::{Places, Rights};
use baton_control::runtime::spoken_version;
use baton_control::servant::kept::KeptOverrides;
use baton_control::servant::link::{Link, ToMaster};
use baton_control::service_manager::ServiceManager;
use baton_kernel::output::losses;
use baton_kernel::process::over_exec::memory_file;
use socket2::Socket;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use self::reexec::Resumed;
pub use self::store::STORED_AS;
use crate::cli::{Cli, Question};
use crate::conversation::{self, Conversation};
use crate::held::Held;
use crate::opening::Reading;
use crate::process::Program;
use crate::supervisor::{Effect, Stop, Supervisor, Tone, WorkerId};

/// How long those who waited for an upgrade have to get their answer, before the master becomes the new binary.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);
/// Texts that are kept besides the one in use, while addresses of theirs are being emptied.
const EARLIER_MAX: usize = 4;
/// Parts of what is remembered of the worker.
const PARTS_MAX: usize = 4096;
/// How long a thread stays that read files.
const THREAD_KEPT: Duration = Duration::from_secs(1);
/// Askers that wait for the same reload.
const WAITING_MAX: usize = 64;

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
    /// How long a new worker may take until it serves.
    pub ready_within: Option<Duration>,
    /// How to read the files, by which addresses are bound for a worker that may not; `None`: they are not.
    pub reading: Option<Reading>,
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
    /// Texts before it, the newest last, some of whose addresses are not empty yet; at most [`EARLIER_MAX`].
    earlier: VecDeque<OwnedFd>,
    /// Keys of session tickets that the worker uses.
    tickets: Option<OwnedFd>,
    /// The memory in which the worker counts.
    counters: Option<OwnedFd>,
    /// The health of servers as it was reported last.
    health: Option<OwnedFd>,
    /// What operators have set, as the worker said.
    overrides: KeptOverrides,
    /// Other parts of what is remembered of the worker, by their words, as memory files.
    parts: BTreeMap<String, OwnedFd>,
    /// Who waits for an upgrade.
    waiting: Vec<Waiting>,
    since: Instant,
    /// What the worker that started last said by then.
    logs: String,
    /// Which worker that is; `None` after an upgrade of the master.
    logs_of: Option<WorkerId>,
    /// Whether the worker that serves has answered since it was asked; `None` before the first question.
    answered: Option<bool>,
    /// The first worker has served: `READY=1`, which has to be the first word, was said.
    is_started: bool,
    /// Reloads that the worker has not answered yet.
    reloads_under_way: usize,
    /// Where `baton reload` asks: a second descriptor, for the next binary.
    socket: Option<ControlSocket>,
    /// Held by every conversation whose request we have not read yet, or whose response is not written yet.
    busy: Rc<()>,
    /// How often becoming the new binary was put off.
    put_off: u32,
    /// Of conversations at our sockets.
    places: Places,
    /// A second descriptor of the socket of `-S`, for the next binary.
    cli: Option<OwnedFd>,
    events: mpsc::UnboundedSender<Event>,
    /// Messages that were lost, as far as they were reported.
    losses: LossReports,
}

/// A worker's process.
#[derive(Debug)]
struct Process {
    pid: i32,
    link: Rc<Link>,
    reader: JoinHandle<()>,
    /// The version of the state its binary reads.
    state: u32,
    /// Whether its binary goes on at our socket file.
    keeps_file: bool,
    /// Whether there is a conversation about new addresses.
    is_opening: bool,
    /// Those that wait for their turn.
    openings: VecDeque<Socket>,
}

/// Who wants to know what came of a reload.
#[derive(Debug)]
enum Waiting {
    /// `baton reload`.
    Asker(UnixStream),
    /// `reload` of the master's socket.
    Session(oneshot::Sender<Reply>),
}

impl Waiting {
    /// `busy` is held until the response is written.
    fn answer(self, reply: Reply, busy: &Rc<()>) {
        match self {
            Waiting::Asker(stream) => respond(stream, reply, busy),
            // Who does not wait any more does not want to know.
            Waiting::Session(session) => drop(session.send(reply)),
        }
    }
}

/// Writes a response to a conversation, which holds `busy` until then: by `exec` the response would be lost.
fn respond(stream: UnixStream, reply: Reply, busy: &Rc<()>) {
    let busy = Rc::clone(busy);
    tokio::task::spawn_local(async move {
        // A client that is gone does not want it any more.
        let _ = conversation::answer(stream, reply).await;
        drop(busy);
    });
}

/// What can happen to a master.
#[derive(Debug)]
enum Event {
    /// SIGUSR2 or SIGHUP.
    Reload,
    /// SIGUSR1, SIGTERM, SIGINT.
    Stop(Stop),
    /// SIGCHLD.
    Child,
    /// A worker says something.
    Heard(WorkerId, ToMaster, Vec<OwnedFd>),
    /// An address was bound for a worker.
    Bound(WorkerId, SocketAddr),
    /// A conversation about new addresses is over.
    Opened(WorkerId),
    /// Everybody who waited has his answer: become the new binary.
    Reexec,
    /// Something is asked at our address.
    Conversation(Conversation),
    /// What became of a reload in a worker.
    Reloaded(Result<Reply, String>, Vec<Waiting>),
    /// A session of `-S` wants to know something.
    Question(Question),
    /// Look whether it is time for something.
    Time,
    /// Time to tell that we are alive.
    Alive,
    /// Messages were lost, or something panicked.
    Lost,
}

impl From<Question> for Event {
    fn from(question: Question) -> Event {
        Event::Question(question)
    }
}

impl From<Conversation> for Event {
    fn from(conversation: Conversation) -> Event {
        Event::Conversation(conversation)
    }
}

/// Runs until the last worker has ended; gives the exit code. `started` is called when the first worker serves.
///
/// # Errors
/// A sentence: the master cannot begin.
pub fn run(setup: Setup, resumed: Option<Resumed>, started: impl FnOnce()) -> Result<u8, String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_name("baton/files").thread_keep_alive(THREAD_KEPT).build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, async {
        let (events, happened) = mpsc::unbounded_channel();
        let master = match resumed {
            Some(resumed) => Master::resumed(setup, resumed, events),
            None => Master::new(setup, events),
        };
        let master = master.map_err(|error| format!("cannot start: {error}"))?;
        master.live(happened, started).await.map_err(|error| format!("cannot start: {error}"))
    });
    // Whoever still reads files for a worker reads for nobody.
    runtime.shutdown_background();
    outcome
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
        let ready_within = setup.ready_within;
        Ok(Master {
            setup,
            supervisor: Supervisor::new(ready_within),
            workers: HashMap::new(),
            held,
            input,
            text: None,
            earlier: VecDeque::new(),
            tickets: None,
            counters: None,
            health: None,
            overrides: KeptOverrides::default(),
            parts: BTreeMap::new(),
            waiting: Vec::new(),
            since: Instant::now(),
            logs: String::new(),
            logs_of: None,
            answered: None,
            is_started: false,
            reloads_under_way: 0,
            cli: None,
            socket: None,
            busy: Rc::default(),
            places: Places::default(),
            put_off: 0,
            events,
            losses: LossReports::default(),
        })
    }

    async fn live(
        mut self,
        mut happened: mpsc::UnboundedReceiver<Event>,
        started: impl FnOnce(),
    ) -> std::io::Result<u8> {
        let mut signals = Signals::listen()?;
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => ControlSocket::open().map_err(|error| {
                std::io::Error::other(format!("cannot open the control socket for `baton reload`: {error}"))
            })?,
        };
        socket.notices.drain(..).for_each(|notice| self.messages().notice(&notice));
        self.socket = Some(socket);
        self.listen_for_askers()?;
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
                        Effect::Exit(code) => {
                            drop(self.socket.take());
                            // Workers that became another user could not remove theirs.
                            control_socket::sweep();
                            return Ok(u8::try_from(code).unwrap_or(u8::MAX));
                        }
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
            self.losses.report(&self.setup.messages);
        }
    }

    /// Serves all who ask at our sockets.
    fn listen_for_askers(&self) -> std::io::Result<()> {
        let uid = nix::unistd::geteuid().as_raw();
        let desk = Rc::new(conversation::Desk {
            rights: Rights { starters: vec![uid], runs_as: uid },
            places: self.places.clone(),
            busy: Rc::downgrade(&self.busy),
            events: self.events.clone(),
        });
        for listener in self.socket.iter().map(ControlSocket::listeners) {
            for listener in listener? {
                tokio::task::spawn_local(conversation::serve(listener, desk.clone()));
            }
        }
        Ok(())
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
        let look = self.supervisor.look_again().into_iter().chain(self.losses.due()).min();
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
            () = losses::happened() => Event::Lost,
        }
    }

    async fn happen(&mut self, event: Event, happened: &mut mpsc::UnboundedReceiver<Event>) -> Vec<Effect> {
        let now = Instant::now();
        match event {
            Event::Reload => self.reload(false, now),
            Event::Conversation(Conversation::Reload { stream, is_upgrade }) => {
                self.reload_for(Waiting::Asker(stream), is_upgrade, now)
            }
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
            Event::Opened(id) => {
                self.opened(id);
                Vec::new()
            }
            Event::Bound(id, address) => {
                let pid = self.workers.get(&id).map_or(0, |process| process.pid);
                self.messages().notice(&format!("Bound {address} for worker {pid}."));
                Vec::new()
            }
            Event::Conversation(Conversation::Other(stream)) => {
                self.hand_on(stream).await;
                Vec::new()
            }
            Event::Reloaded(outcome, waiting) => {
                self.reloaded(outcome, waiting);
                Vec::new()
            }
            Event::Time => self.supervisor.time(now),
            Event::Lost => Vec::new(),
            Event::Alive => {
                self.alive().await;
                Vec::new()
            }
        }
    }

    fn reload_for(&mut self, waiting: Waiting, is_upgrade: bool, now: Instant) -> Vec<Effect> {
        if self.waiting.len() >= WAITING_MAX {
            waiting.answer(Reply::Failed { reason: "too many reloads are waiting".into() }, &self.busy);
            return Vec::new();
        }
        self.waiting.push(waiting);
        let effects = self.reload(is_upgrade, now);
        if self.supervisor.is_stopping() {
            self.answer(&Reply::Failed { reason: "the master is stopping".into() });
        }
        effects
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
                    match nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.pid), signal) {
                        // One that is gone already has what was wanted.
                        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                        Err(errno) => self.messages().alert(&format!(
                            "Cannot send {signal} to worker {}: {}. It runs as another user: a master needs CAP_KILL for that.",
                            process.pid,
                            errno.desc()
                        )),
                    }
                }
            }
            Effect::Upgraded => self.upgraded(),
            Effect::NotUpgraded { id, ended } => self.not_upgraded(id, ended),
            Effect::Say(tone, text) => self.say(tone, &text),
            Effect::Reexec => self.reexec_soon(),
            Effect::Started | Effect::Exit(_) => {}
        }
        Vec::new()
    }

    fn started(&mut self) {
        self.messages().notice("Loading success.");
        self.messages().is_serving();
        if !self.messages().is_quiet() {
            let pid = std::process::id();
            let text = format!(
                "To apply changed files: `baton reload --pid {pid}` or SIGUSR2; to stop gracefully: SIGUSR1 (to process {pid}, \
                 the master)."
            );
            self.say(Tone::Notice, &text);
        }
        self.is_started = true;
        self.setup.manager.ready(&self.status());
        self.store_all();
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
        baton_kernel::process::ignore_pauses()?;
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
