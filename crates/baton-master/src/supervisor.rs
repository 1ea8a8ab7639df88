//! What a master does with its worker: pure. Events and the time go in, [`Effect`]s come out; the shell starts processes,
//! sends signals and reads the clock.
//!
//! ```text
//!            spawn            ready                  crash
//!  (nobody) ──────▶ starting ──────▶ current ───────────────────▶ (nobody) ── back-off ──▶ starting
//!                      │                │  upgrade: a second one starts beside it
//!                      │ crash,         ▼
//!                      │ too slow    leaving ── exits when its last connection ends
//!                      ▼
//!             first: the master ends · replacement: back-off · upgrade: the current one stays (rollback)
//! ```
//!
//! At most two workers take part at a time, one of them not ready; those that leave are beside this, and only a master that
//! ends waits for them.

mod words;

use std::time::{Duration, Instant};

use words::say_ended;

/// How long a new worker may take until it serves, if nothing else is asked for; then it is killed.
pub const READY_WITHIN: Duration = Duration::from_secs(60);

/// A worker that served this long is not part of a crash loop.
pub const SETTLED: Duration = Duration::from_millis(500);

/// So many crashes in a row are answered at once.
pub const QUICK_RESTARTS: u32 = 5;

/// The wait after one crash more; it doubles with each further one.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// The longest wait of a crash loop.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long a worker may take to die of SIGTERM or SIGINT; then it is killed.
pub const TERMINATE_WITHIN: Duration = Duration::from_secs(5);

/// Workers that leave at a time; one more, and the oldest is ended at once.
pub const LEAVING_MAX: usize = 8;

/// A worker, numbered from 1 by its master.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WorkerId(pub u32);

/// Why a worker is started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// Nobody served yet: a failure is the failure of the master.
    First,
    /// The one before crashed.
    Replace,
    /// Another binary shall serve; the one before stays until this one is ready.
    Upgrade,
}

/// Which text a worker works by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Text {
    /// The files as they are now.
    Files,
    /// The last text that was in use: a crash is no reload, and must not put half-written files in force.
    LastGood,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl Ended {
    /// As a shell counts: 128 and the signal's number.
    pub fn code(self) -> i32 {
        match self {
            Ended::Exited(code) => code,
            Ended::Signaled(signal) => 128 + signal,
        }
    }
}

/// How the master ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// SIGUSR1: the worker finishes what it has.
    Soft,
    /// SIGTERM or SIGINT, by number: all end at once.
    Hard(i32),
}

/// What the shell shall do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Start a process; then [`Supervisor::spawned`] or [`Supervisor::exited`].
    Spawn {
        /// Its number.
        id: WorkerId,
        /// Which binary and state: an upgrade uses the file on disk and takes over from the current worker.
        why: Why,
        /// Which configuration.
        text: Text,
    },
    /// Ask a worker to read the files anew.
    Reload(WorkerId),
    /// A worker that was replaced shall finish what it has; its sockets belong to the next one.
    Retire(WorkerId),
    /// Send a signal to a worker, by number.
    Signal(WorkerId, i32),
    /// An upgrade is over: the new worker serves.
    Upgraded,
    /// An upgrade is over: the new worker ended before it served. The one before serves on, unless it is gone too.
    NotUpgraded {
        /// The new worker.
        id: WorkerId,
        /// How it ended.
        ended: Ended,
    },
    /// The first worker serves: the start is complete.
    Started,
    /// Say this, and log it.
    Say(Tone, String),
    /// The master becomes the new binary too.
    Reexec,
    /// End with this code.
    Exit(i32),
}

/// How bad a message is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tone {
    /// Worth knowing.
    Notice,
    /// Something ended as it was told to, or was refused.
    Warning,
    /// Something broke.
    Alert,
}

/// A worker that has a process, or is about to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Worker {
    /// Its number.
    pub id: WorkerId,
    /// Its process; 0 until it has one.
    pub pid: i32,
    /// When it was started.
    pub since: Instant,
    /// Since when it serves.
    pub ready: Option<Instant>,
    /// Reloads of the master it has lived through.
    pub reloads: u32,
    /// Version of its binary; empty until it said so.
    pub version: String,
}

/// A worker that is not ready yet.
#[derive(Clone, Debug)]
struct Starting {
    worker: Worker,
    why: Why,
    is_killed: bool,
}

/// The master's mind.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    current: Option<Worker>,
    starting: Option<Starting>,
    leaving: Vec<Worker>,
    /// Workers in a row that did not settle.
    crashes: u32,
    /// When the next one is started, after a crash.
    retry_at: Option<Instant>,
    stop: Option<(Stop, Option<Instant>)>,
    /// A reload came while nobody could do it.
    reload_waits: bool,
    has_served: bool,
    last_id: u32,
    /// How long a new worker may take until it serves; `None` is [`READY_WITHIN`].
    ready_within: Option<Duration>,
    /// Reloads asked for, and refused ones among them.
    pub reloads: u32,
    /// Reloads that were refused.
    pub reloads_failed: u32,
    /// Whether the last reload was rejected.
    pub last_reload_failed: bool,
    /// Workers that crashed since the start.
    pub crashed_total: u32,
}

impl Supervisor {
    /// A mind without a worker. `ready_within`: how long a new one may take until it serves, if not [`READY_WITHIN`].
    pub fn new(ready_within: Option<Duration>) -> Supervisor {
        Supervisor { ready_within, ..Supervisor::default() }
    }

    /// Starts the first worker.
    pub fn start(&mut self, now: Instant) -> Vec<Effect> {
        vec![self.spawn(Why::First, Text::Files, now)]
    }

    /// Takes up again with workers that another master, or this one before it became a new binary, had: the last ready one
    /// of them serves, the others leave.
    pub fn resume(&mut self, mut workers: Vec<Worker>) {
        self.last_id = workers.iter().map(|worker| worker.id.0).max().unwrap_or_default();
        self.current = workers.pop();
        self.leaving = workers;
        self.has_served = true;
    }

    /// The process of a worker exists.
    pub fn spawned(&mut self, id: WorkerId, pid: i32) {
        if let Some(starting) = self.starting.as_mut().filter(|starting| starting.worker.id == id) {
            starting.worker.pid = pid;
        }
    }

    /// A worker serves.
    pub fn ready(&mut self, id: WorkerId, version: &str, now: Instant) -> Vec<Effect> {
        let Some(starting) = self.starting.take_if(|starting| starting.worker.id == id && !starting.is_killed) else {
            return Vec::new();
        };
        let mut worker = starting.worker;
        worker.ready = Some(now);
        worker.version = version.to_owned();
        let before = self.current.replace(worker);
        let is_start = !std::mem::replace(&mut self.has_served, true);
        let mut effects = Vec::new();
        if is_start {
            effects.push(Effect::Started);
        }
        if starting.why == Why::Upgrade {
            if let Some(before) = before {
                effects.push(Effect::Retire(before.id));
                effects.extend(self.leave(before));
            }
            effects.push(Effect::Upgraded);
            effects.push(Effect::Reexec);
        }
        if std::mem::take(&mut self.reload_waits) {
            effects.push(Effect::Reload(id));
        }
        effects
    }

    /// A worker's process is gone, or could not be started.
    pub fn exited(&mut self, id: WorkerId, ended: Ended, now: Instant) -> Vec<Effect> {
        if let Some(at) = self.leaving.iter().position(|worker| worker.id == id) {
            let worker = self.leaving.remove(at);
            let say = say_ended("Former", &worker, ended, Tone::Warning);
            return self.after(vec![say]);
        }
        if let Some(starting) = self.starting.take_if(|starting| starting.worker.id == id) {
            return self.failed_to_start(starting, ended, now);
        }
        let Some(worker) = self.current.take_if(|worker| worker.id == id) else { return Vec::new() };
        let tone = if ended == Ended::Exited(0) { Tone::Warning } else { Tone::Alert };
        let mut effects = vec![say_ended("Current", &worker, ended, tone)];
        if self.stop.is_some() {
            return self.after(effects);
        }
        let is_succeeded = self.starting.is_some();
        // With a successor and without a connection it ends before the successor has said that it serves.
        if !(is_succeeded && ended == Ended::Exited(0)) {
            let has_settled = worker.ready.is_some_and(|ready| now >= ready + SETTLED);
            self.count_crash(has_settled);
        }
        if !is_succeeded {
            effects.extend(self.replace(now));
        }
        effects
    }

    /// SIGUSR2, SIGHUP, `reload`, or `upgrade`. `is_new_binary`: another binary shall serve from now on.
    pub fn reload(&mut self, is_new_binary: bool, now: Instant) -> Vec<Effect> {
        if self.stop.is_some() {
            return vec![Effect::Say(Tone::Warning, "Reload rejected: the master is stopping.".into())];
        }
        self.reloads += 1;
        if self.starting.is_some() {
            self.reload_waits = true;
            return Vec::new();
        }
        let Some(current) = &mut self.current else {
            // In the middle of a crash loop: the new files may be its end.
            self.retry_at = None;
            return vec![self.spawn(Why::Replace, Text::Files, now)];
        };
        current.reloads += 1;
        let id = current.id;
        self.leaving.iter_mut().for_each(|worker| worker.reloads += 1);
        match is_new_binary {
            true => vec![self.spawn(Why::Upgrade, Text::Files, now)],
            false => vec![Effect::Reload(id)],
        }
    }

    /// What became of a reload in a worker.
    pub fn reloaded(&mut self, is_accepted: bool) {
        self.last_reload_failed = !is_accepted;
        self.reloads_failed += u32::from(!is_accepted);
    }

    /// Begins to end; a hard stop overtakes a soft one.
    pub fn stop(&mut self, stop: Stop, now: Instant) -> Vec<Effect> {
        if matches!((self.stop, stop), (Some(_), Stop::Soft)) {
            return Vec::new();
        }
        let mut effects = match self.stop {
            None => vec![Effect::Say(Tone::Warning, "Exiting Master process...".into())],
            Some(_) => Vec::new(),
        };
        self.retry_at = None;
        if let Some(starting) = &mut self.starting {
            starting.is_killed = true;
            effects.push(Effect::Signal(starting.worker.id, SIGTERM));
        }
        match stop {
            Stop::Soft => {
                self.stop = Some((stop, None));
                effects.extend(self.current.iter().map(|worker| Effect::Signal(worker.id, SIGUSR1)));
            }
            Stop::Hard(signal) => {
                self.stop = Some((stop, Some(now + TERMINATE_WITHIN)));
                let serving = self.leaving.iter().chain(&self.current);
                effects.extend(serving.map(|worker| Effect::Signal(worker.id, signal)));
            }
        }
        self.after(effects)
    }

    /// When time alone makes something happen.
    pub fn look_again(&self) -> Option<Instant> {
        let starting = self.starting.as_ref().filter(|starting| !starting.is_killed);
        let deadline = starting.map(|starting| starting.worker.since + self.ready_within());
        let last = self.stop.as_ref().and_then(|(_, last)| *last);
        [deadline, self.retry_at, last].into_iter().flatten().min()
    }

    /// The time has come, perhaps.
    pub fn time(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        let ready_within = self.ready_within();
        if let Some(starting) = &mut self.starting
            && !starting.is_killed
            && now >= starting.worker.since + ready_within
        {
            starting.is_killed = true;
            let text = format!("New worker ({}) was not ready in time, killing it.", starting.worker.pid);
            effects.push(Effect::Say(Tone::Alert, text));
            effects.push(Effect::Signal(starting.worker.id, SIGKILL));
        }
        if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
            effects.push(self.spawn(Why::Replace, Text::LastGood, now));
        }
        if let Some((_, last)) = &mut self.stop
            && last.is_some_and(|last| now >= last)
        {
            *last = None;
            effects.extend(self.everybody().map(|worker| Effect::Signal(worker.id, SIGKILL)));
        }
        effects
    }

    /// The worker that serves.
    pub fn current(&self) -> Option<&Worker> {
        self.current.as_ref()
    }

    /// The worker that is being started.
    pub fn starting(&self) -> Option<&Worker> {
        self.starting.as_ref().map(|starting| &starting.worker)
    }

    /// Workers that finish what they have.
    pub fn leaving(&self) -> &[Worker] {
        &self.leaving
    }

    /// Whether the end has begun.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Crashes in a row, and the wait before the next start if there is one; `None` when all is well.
    pub fn crash_loop(&self, now: Instant) -> Option<(u32, Duration)> {
        let is_well = self.current.as_ref().is_some_and(|worker| worker.ready.is_none_or(|at| now >= at + SETTLED));
        let wait = self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        (self.crashes > 0 && !is_well).then_some((self.crashes, wait))
    }

    fn ready_within(&self) -> Duration {
        self.ready_within.unwrap_or(READY_WITHIN)
    }

    fn everybody(&self) -> impl Iterator<Item = &Worker> {
        self.leaving.iter().chain(&self.current).chain(self.starting())
    }

    fn spawn(&mut self, why: Why, text: Text, now: Instant) -> Effect {
        self.last_id += 1;
        let id = WorkerId(self.last_id);
        let worker = Worker { id, pid: 0, since: now, ready: None, reloads: 0, version: String::new() };
        self.starting = Some(Starting { worker, why, is_killed: false });
        Effect::Spawn { id, why, text }
    }

    fn failed_to_start(&mut self, starting: Starting, ended: Ended, now: Instant) -> Vec<Effect> {
        let Starting { worker, why, .. } = starting;
        let mut effects = vec![say_ended("New", &worker, ended, Tone::Alert)];
        if self.stop.is_some() {
            return self.after(effects);
        }
        match why {
            Why::First => effects.push(Effect::Exit(ended.code().max(1))),
            Why::Replace => {
                self.count_crash(false);
                effects.extend(self.replace(now));
            }
            Why::Upgrade if self.current.is_none() => {
                effects.push(Effect::NotUpgraded { id: worker.id, ended });
                self.count_crash(false);
                effects.extend(self.replace(now));
            }
            Why::Upgrade => {
                effects.push(Effect::NotUpgraded { id: worker.id, ended });
                if std::mem::take(&mut self.reload_waits)
                    && let Some(current) = &self.current
                {
                    effects.push(Effect::Reload(current.id));
                }
            }
        }
        effects
    }

    fn count_crash(&mut self, has_settled: bool) {
        self.crashes = if has_settled { 1 } else { self.crashes.saturating_add(1) };
        self.crashed_total = self.crashed_total.saturating_add(1);
    }

    /// The next worker, now or after a while.
    fn replace(&mut self, now: Instant) -> Vec<Effect> {
        if std::mem::take(&mut self.reload_waits) {
            return vec![self.spawn(Why::Replace, Text::Files, now)];
        }
        let wait = backoff(self.crashes);
        if wait.is_zero() {
            return vec![self.spawn(Why::Replace, Text::LastGood, now)];
        }
        self.retry_at = Some(now + wait);
        let text = format!("{} workers crashed in a row; the next one starts in {wait:?}.", self.crashes);
        vec![Effect::Say(Tone::Alert, text)]
    }

    fn leave(&mut self, worker: Worker) -> Option<Effect> {
        self.leaving.push(worker);
        (self.leaving.len() > LEAVING_MAX).then(|| Effect::Signal(self.leaving[0].id, SIGTERM))
    }

    /// Ends the master when it is to end and nobody is left.
    fn after(&self, mut effects: Vec<Effect>) -> Vec<Effect> {
        if let Some((stop, _)) = self.stop
            && self.everybody().next().is_none()
        {
            let code = match stop {
                Stop::Hard(SIGINT) => 128 + SIGINT,
                Stop::Soft | Stop::Hard(_) => 0,
            };
            effects.push(Effect::Say(Tone::Warning, format!("All workers exited. Exiting... ({code})")));
            effects.push(Effect::Exit(code));
        }
        effects
    }
}

const SIGINT: i32 = nix::libc::SIGINT;
const SIGKILL: i32 = nix::libc::SIGKILL;
const SIGTERM: i32 = nix::libc::SIGTERM;
const SIGUSR1: i32 = nix::libc::SIGUSR1;

/// The wait after so many crashes in a row.
fn backoff(crashes: u32) -> Duration {
    match crashes.checked_sub(QUICK_RESTARTS) {
        None | Some(0) => Duration::ZERO,
        Some(more) => BACKOFF_FIRST.saturating_mul(1 << (more - 1).min(16)).min(BACKOFF_MAX),
    }
}

#[cfg(test)]
mod tests;
