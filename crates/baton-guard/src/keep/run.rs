//! The shell around the supervisor: signals, processes, time.

use std::collections::{HashSet, VecDeque};
use std::env;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::listen::ListenOptions;
use baton_kernel::output::{self, WriteMode};
use baton_kernel::process::activation::{FIRST, Launch, PassedSockets};
use baton_kernel::process::privileges::{Credentials, drop_to};
use baton_kernel::{Endpoint, Listening};
use nix::sys::signal::Signal;
use socket2::SockRef;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::instance::Instance;
use super::listen::{KeptSocket, open_new, variable};
use super::manager::Manager;
use super::probe::Probe;
use super::readiness::Readiness;
use super::supervisor::{Action, Event, Limits, Number, Supervisor};
use super::{Dialect, Keep, export};

/// How often a program that does not serve yet is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long after an answer that it does not serve it is asked again.
const ASK_AFTER: Duration = Duration::from_millis(100);

/// How long before the end of its time the last answer is heard.
const HEARD_BEFORE: Duration = Duration::from_millis(100);

/// How often it is looked whether something is left of a program that has ended.
const ORPHANS_EVERY: Duration = Duration::from_millis(200);

/// Descriptors that are needed besides the sockets, and some more for programs that ask for them.
const SPARE: usize = 24;

/// What helps when they are too few.
const MORE_FILES: &str = "raise the limit of open files (`ulimit -n`, or LimitNOFILE= of a unit of systemd)";

/// Variables that are meant for us and not for the program.
const OUR_OWN: [&str; 7] =
    ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "NGINX"];

/// Opens the sockets and keeps them until SIGTERM or SIGINT; gives the exit code.
///
/// # Errors
/// A sentence, when the sockets could not be opened, or rights not given up: nothing was started.
pub fn run(keep: &Keep) -> Result<u8, String> {
    output::set_mode(WriteMode::Brief);
    if keep.command.is_empty() {
        return Err("no program to start: write it after '--'".into());
    }
    let manager = Manager::connect().map_err(|error| format!("NOTIFY_SOCKET: {error}"))?;
    let kept: Arc<[KeptSocket]> = super::listen::open(&keep.listen)?.into();
    for kept in kept.iter() {
        // Who takes sockets by systemd's convention expects them as systemd makes them; nginx does not look.
        let is_blocking = keep.dialect != Dialect::Nginx;
        SockRef::from(kept).set_nonblocking(!is_blocking).map_err(|error| format!("{}: {error}", kept.name))?;
    }
    let readiness = match keep.readiness.clone() {
        Readiness::Probe(probe) => Readiness::Probe(probe.at(&kept)?),
        readiness => readiness,
    };
    let exported = keep.export.as_deref().map(|path| open_export(path, keep)).transpose()?;
    if let Some((uid, gid, groups)) = keep.user.clone() {
        let identity = Credentials { uid: Some(uid), gid: Some(gid), groups: Some(groups), capabilities: None };
        drop_to(&identity).map_err(|error| format!("--user: {error}; start as root, or omit it"))?;
    }
    let fds: Vec<BorrowedFd<'_>> = kept.iter().map(AsFd::as_fd).collect();
    let no_room = |error: io::Error| format!("no room for the sockets: {error}; {MORE_FILES}");
    let seats = PassedSockets::new(&fds).map_err(no_room)?;
    // What is opened later could not all be refused with a sentence.
    let spare: io::Result<Vec<OwnedFd>> = fds.iter().cycle().take(SPARE).map(BorrowedFd::try_clone_to_owned).collect();
    drop(spare.map_err(no_room)?);
    for (number, kept) in (FIRST..).zip(kept.iter()) {
        say(&format!("{} is descriptor {number} ({})", kept.listening.local(), variable(&kept.name)));
    }
    // Rights were given up: threads have the same from here on.
    output::set_mode(WriteMode::Queue);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let code = runtime.block_on(async {
        let serving = exported.as_ref().map(|listening| serve_export(listening, kept.clone())).transpose()?;
        let keeper = KeepRun {
            launch: launch(keep, &kept),
            sockets: kept.iter().filter_map(|kept| Some(nix::sys::stat::fstat(kept).ok()?.st_ino)).collect(),
            keep,
            seats,
            manager,
            supervisor: Supervisor::new(Limits { ready_within: keep.ready_within, drain_max: keep.drain_max }),
            instances: Vec::new(),
            readiness,
            asking: None,
        };
        let code = keeper.go_on().await;
        serving.iter().for_each(JoinHandle::abort);
        code
    });
    // A program that is just being answered has its own time.
    runtime.shutdown_background();
    let ours = kept.iter().filter(|kept| kept.is_ours).map(|kept| &kept.listening);
    for file in ours.chain(&exported).filter_map(Listening::file) {
        // Without the right to its directory any more it stays, and the next start replaces it.
        let _ = file.remove();
    }
    code
}

fn say(text: &str) {
    // Without a reader it goes on: the sockets matter more than the words.
    output::print_error(&format!("baton keep: {text}\n"));
}

fn open_export(path: &Path, keep: &Keep) -> Result<Listening, String> {
    let (uid, gid) = keep.user.as_ref().map(|(uid, gid, _)| (*uid, *gid)).unzip();
    let options = ListenOptions { mode: Some(0o600), uid, gid, ..ListenOptions::default() };
    open_new(&Endpoint::Unix(path.to_owned()), &options)
}

fn serve_export(listening: &Listening, kept: Arc<[KeptSocket]>) -> Result<JoinHandle<()>, String> {
    let copy = listening.try_clone().map(|copy| std::os::unix::net::UnixListener::from(copy.into_fd()));
    let listener = copy.and_then(UnixListener::from_std).map_err(|error| format!("--export: {error}"))?;
    Ok(tokio::spawn(export::serve(listener, kept)))
}

/// The program and what it finds in its environment.
fn launch(keep: &Keep, kept: &[KeptSocket]) -> Launch {
    let is_ours = |name: &OsString| OUR_OWN.iter().any(|own| name == own);
    let mut variables: Vec<(OsString, OsString)> = env::vars_os().filter(|(name, _)| !is_ours(name)).collect();
    let numbers = || (FIRST..).take(kept.len());
    let names: Vec<&str> = kept.iter().map(|kept| kept.name.as_str()).collect();
    variables.push(("LISTEN_FDNAMES".into(), names.join(":").into()));
    for (number, kept) in numbers().zip(kept) {
        let name = OsString::from(variable(&kept.name));
        variables.retain(|(other, _)| *other != name);
        variables.push((name, number.to_string().into()));
    }
    if keep.dialect == Dialect::Nginx {
        let list: String = numbers().map(|number| format!("{number};")).collect();
        variables.push(("NGINX".into(), list.into()));
    }
    Launch { program: keep.command[0].clone(), arguments: keep.command[1..].to_vec(), variables }
}

/// Why a program could not be started, and what to do.
fn not_started(program: &OsStr, error: &io::Error) -> String {
    let name = program.display();
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            format!("{name}: {error}; {MORE_FILES}")
        }
        _ if error.kind() != io::ErrorKind::NotFound => format!("{name}: {error}"),
        _ if program.as_bytes().contains(&b'/') => {
            format!("{name}: no such file, or its interpreter (first line) does not exist")
        }
        _ => format!("{name}: no such program in PATH; use the full path, or set PATH"),
    }
}

struct KeepRun<'a> {
    keep: &'a Keep,
    launch: Launch,
    seats: PassedSockets,
    sockets: HashSet<u64>,
    manager: Manager,
    supervisor: Supervisor,
    instances: Vec<Instance>,
    readiness: Readiness,
    asking: Option<Asking>,
}

/// The program that is coming is asked whether it serves.
struct Asking {
    number: Number,
    /// The question that is under way; none between two.
    question: Option<JoinHandle<Result<(), String>>>,
    next: Instant,
    /// Why it does not serve yet, as it was told last.
    why: String,
}

impl KeepRun<'_> {
    async fn go_on(mut self) -> Result<u8, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
        let mut hangup = listen(SignalKind::hangup())?;
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut child = listen(SignalKind::child())?;
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks_for_orphans = interval(ORPHANS_EVERY);
        looks_for_orphans.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begin = self.supervisor.begin(Instant::now());
        let mut left = self.apply(begin);
        while left.is_none() {
            let wakes = self.supervisor.wakes();
            let is_coming = self.supervisor.coming().is_some();
            let has_orphans = self.instances.iter().any(Instance::has_orphans);
            let due = async {
                match wakes {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            let events = tokio::select! {
                _ = hangup.recv() => vec![Event::Restart],
                _ = terminate.recv() => vec![Event::Stop],
                _ = interrupt.recv() => vec![Event::Stop],
                _ = child.recv() => self.ended(),
                _ = looks.tick(), if is_coming => self.look().await,
                _ = looks_for_orphans.tick(), if has_orphans => self.ended(),
                () = due => vec![Event::Tick],
            };
            for event in events {
                let all = self.supervisor.on(event, Instant::now());
                left = left.or(self.apply(all));
            }
        }
        Ok(left.unwrap_or_default())
    }

    /// Those that have ended.
    fn ended(&mut self) -> Vec<Event> {
        let drain = self.keep.drain_signal;
        let mut events = Vec::new();
        self.instances.retain_mut(|instance| {
            let event = instance.ended(drain);
            let is_over = matches!(event, Some(Event::Ended(..)));
            events.extend(event);
            !is_over
        });
        events
    }

    /// Whether the one that is coming serves.
    async fn look(&mut self) -> Vec<Event> {
        let Some(number) = self.supervisor.coming() else { return Vec::new() };
        let Some(instance) = self.instances.iter_mut().find(|instance| instance.number == number) else {
            return Vec::new();
        };
        let serves = match &self.readiness {
            Readiness::Probe(probe) => {
                let asking = self.asking.take().filter(|asking| asking.number == number);
                let mut asking = asking.unwrap_or_else(|| Asking::new(number));
                let known = asking.why.clone();
                let left = self.supervisor.left(Instant::now()).saturating_sub(HEARD_BEFORE);
                let answered = asking.goes_on(probe, instance.pid(), left).await;
                let news = (!answered && asking.why != known).then(|| Event::NotYet(number, asking.why.clone()));
                self.asking = Some(asking);
                if let Some(event) = news {
                    return vec![event];
                }
                answered
            }
            readiness => instance.serves(readiness, &self.sockets),
        };
        if !serves {
            return Vec::new();
        }
        instance.hear_no_more();
        vec![Event::Ready(number)]
    }

    /// Does what is to be done; gives the exit code when it is to leave.
    fn apply(&mut self, all: Vec<Action>) -> Option<u8> {
        let mut all = VecDeque::from(all);
        while let Some(act) = all.pop_front() {
            match act {
                Action::Start(number) => {
                    if let Err(error) = self.start(number) {
                        let event = Event::NotStarted(number, not_started(&self.launch.program, &error));
                        all.extend(self.supervisor.on(event, Instant::now()));
                    }
                }
                Action::Drain(number) => self.of(number, |instance| instance.signal(self.keep.drain_signal)),
                Action::Terminate(number) => self.of(number, |instance| instance.signal(Signal::SIGTERM)),
                Action::Kill(number) => self.of(number, Instance::kill),
                Action::Say(text) => say(&text),
                Action::TellReloading => self.manager.reloading(),
                Action::TellReady(status) => self.manager.ready(&status),
                Action::TellStopping => self.manager.stopping(),
                Action::Leave(code) => return Some(code),
            }
        }
        None
    }

    fn start(&mut self, number: Number) -> std::io::Result<()> {
        let instance = Instance::start(number, &self.seats, self.launch.clone())?;
        self.instances.push(instance);
        Ok(())
    }

    fn of(&self, number: Number, act: impl Fn(&Instance)) {
        self.instances.iter().filter(|instance| instance.number == number).for_each(act);
    }
}

impl Asking {
    fn new(number: Number) -> Asking {
        Asking { number, question: None, next: Instant::now(), why: String::new() }
    }

    /// Asks again when it is time, and takes the answer that has come: whether it serves. It does not wait.
    async fn goes_on(&mut self, probe: &Probe, pid: i32, left: Duration) -> bool {
        match self.question.take_if(|question| question.is_finished()) {
            // It has ended.
            Some(answer) => match answer.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(()) => return true,
                Err(why) if why != self.why => {
                    say(&format!("not yet: {why}"));
                    self.why = why;
                    self.next = Instant::now() + ASK_AFTER;
                }
                Err(_) => self.next = Instant::now() + ASK_AFTER,
            },
            None if self.question.is_none() && Instant::now() >= self.next => {
                let (probe, number) = (probe.clone(), self.number);
                self.question = Some(tokio::task::spawn_blocking(move || probe.ask(number, pid, left)));
            }
            None => {}
        }
        false
    }
}
