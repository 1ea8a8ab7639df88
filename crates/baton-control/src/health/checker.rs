//! All checks of a process, and the tasks that run them.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{CheckSettings, Mode, Model, Observe, Proxy, Role, Server};
use baton_proxy::balance::{Admin, BackendState, HealthState, Observed, ServerState};
use baton_proxy::supervise;
use rustc_hash::FxHashMap;
use tokio::task::AbortHandle;
use tokio::time;

use super::fsm::Health;
use super::plan::{Origin, Plan};
use super::probe::probe;
use super::text::{self, LogChecks, Why};
use super::vip;
use super::{Report, Status};
use crate::direct::Prober;

/// Something to log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// The backend it is about.
    pub backend: Arc<str>,
    /// How serious it is.
    pub severity: Severity,
    /// HAProxy's line.
    pub text: String,
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
}

/// Runs the checks of a model. Lives in a `LocalSet` of the control thread; dropping it ends all checks.
pub struct Checker {
    shared: Rc<Shared>,
    /// By backend and server.
    checks: FxHashMap<Arc<str>, FxHashMap<Arc<str>, Running>>,
    /// `spread-checks` of the model that was applied last.
    spread: u32,
    /// Where another process was, for the next [`Checker::apply`].
    recalled: FxHashMap<Key, Recalled>,
}

/// Where a check was in another process.
#[derive(Clone, Debug)]
pub struct Recalled {
    /// The server's state.
    pub state: HealthState,
    /// The health counter, and `rise` and `fall` that it counted by. `rise` 0: there was no result yet.
    pub counter: u32,
    /// `rise`, by which `counter` counts.
    pub rise: u32,
    /// `fall`, by which `counter` counts.
    pub fall: u32,
    /// Checks that failed.
    pub failed: u64,
    /// When the next one is due, from now on.
    pub due: Option<Duration>,
}

/// Backend and server.
type Key = (Arc<str>, Arc<str>);

/// Tracked servers, and those who follow each.
type Trackers = FxHashMap<Key, Vec<(Key, Arc<ServerState>)>>;

/// What all tasks use.
struct Shared {
    log: Box<dyn Fn(Event)>,
    /// Who tracks a server.
    trackers: RefCell<Trackers>,
    /// Backends that are `listen` sections: the log has another word for them.
    listens: RefCell<HashSet<Arc<str>>>,
    /// Who asks servers for virtual addresses.
    prober: RefCell<Option<Prober>>,
    /// Why virtual addresses could not be asked for, as it was told last.
    vip_fault: RefCell<String>,
}

/// A check that runs.
struct Running {
    origin: Origin,
    check: Rc<Task>,
    abort: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// One server's check.
struct Task {
    key: Key,
    server: Arc<ServerState>,
    settings: CheckSettings,
    plan: Plan,
    log_checks: LogChecks,
    spread: u32,
    health: RefCell<Health>,
    failed: Cell<u64>,
    /// When the next check is due.
    due: Cell<time::Instant>,
    /// When another process would have made the next one.
    recalled_due: Option<Duration>,
    /// Result and counter that were logged last.
    logged: RefCell<Option<(Status, Option<u16>, u32)>>,
}

impl Checker {
    /// No checks yet; `log` gets every line.
    pub fn new(log: impl Fn(Event) + 'static) -> Checker {
        let shared = Rc::new(Shared {
            log: Box::new(log),
            trackers: RefCell::default(),
            listens: RefCell::default(),
            prober: RefCell::default(),
            vip_fault: RefCell::default(),
        });
        Checker { shared, checks: FxHashMap::default(), spread: 0, recalled: FxHashMap::default() }
    }

    /// Virtual addresses are asked for by this one from now on.
    pub fn probe_by(&mut self, prober: Option<Prober>) {
        *self.shared.prober.borrow_mut() = prober;
    }

    /// The next [`Checker::apply`] starts this server's check where another process was.
    pub fn recall(&mut self, backend: &Arc<str>, server: &Arc<str>, recalled: Recalled) {
        self.recalled.insert((Arc::clone(backend), Arc::clone(server)), recalled);
    }

    /// When the next check of a server is due.
    pub fn due(&self, backend: &Arc<str>, server: &Arc<str>) -> Option<Duration> {
        let running = self.checks.get(backend)?.get(server)?;
        Some(running.check.due.get().saturating_duration_since(time::Instant::now()))
    }

    /// Brings the checks in line with a model; `find` is the registry's look-up of a backend by name, and `is_same` says which backends
    /// are what they were in the model before, whose checks are not looked at. Of the others, checks whose settings
    /// are the same go on untouched, changed ones start again with their counters, others end. Has to be called within a
    /// `LocalSet`, after [`BackendState::reconfigure`].
    pub fn apply(
        &mut self,
        model: &Model,
        find: impl Fn(&str) -> Option<Arc<BackendState>>,
        is_same: impl Fn(&str) -> bool,
    ) {
        let listens = model.proxies.iter().filter(|proxy| proxy.role == Role::Listen);
        *self.shared.listens.borrow_mut() = listens.map(|proxy| proxy.name.clone()).collect();
        let mut before = std::mem::take(&mut self.checks);
        let recalled = std::mem::take(&mut self.recalled);
        let mut fresh = Vec::new();
        let spread = model.global.spread_checks;
        let has_same_spread = std::mem::replace(&mut self.spread, spread) == spread;
        // Which virtual addresses a server is asked for, frontends say.
        let stays = |proxy: &Proxy| has_same_spread && proxy.mode != Mode::Direct && is_same(&proxy.name);
        for proxy in model.proxies.iter().filter(|proxy| stays(proxy)) {
            if let Some(kept) = before.remove(&proxy.name) {
                self.checks.insert(Arc::clone(&proxy.name), kept);
            }
        }
        for (proxy, server, state) in servers(model, &find, |proxy| !stays(proxy), |_| true) {
            let key: Key = (Arc::clone(&proxy.name), Arc::clone(&server.name));
            let old = before.get_mut(&proxy.name).and_then(|checks| checks.remove(&server.name));
            if !server.check.enabled {
                drop(old);
                self.shared.unchecked(&server, &state);
                continue;
            }
            let vips = vip::asked(model, &proxy, &server);
            let origin = Origin::new(&proxy, &server, &state, spread, vips.clone());
            match old {
                Some(old) if old.origin == origin && Arc::ptr_eq(&old.check.server, &state) => {
                    self.checks.entry(key.0).or_default().insert(key.1, old);
                }
                old => {
                    let recalled = recalled.get(&key);
                    let set = Set { proxy: &proxy, server: &server, spread, vips };
                    fresh.push((origin, Task::new(key, set, state, old.as_ref(), recalled)));
                }
            }
        }
        drop(before);
        self.start(fresh, model.global.max_spread_checks);
        self.track(model, &find);
    }

    /// Copies the administrative state of tracked servers to those who track them; called by [`apply`](Self::apply), and to
    /// be called after a runtime command changed one.
    pub fn track_admin(&self, now: Instant, find: impl Fn(&str) -> Option<Arc<BackendState>>) {
        for ((backend, server), trackers) in &*self.shared.trackers.borrow() {
            let Some(tracked) = find(backend).and_then(|backend| backend.server(server)) else { continue };
            let of = tracked.admin();
            for (_, tracker) in trackers {
                tracker.set_admin(
                    Admin {
                        maintenance_inherited: of.in_maintenance(),
                        drain_inherited: of.is_draining(),
                        ..tracker.admin()
                    },
                    now,
                );
            }
        }
    }

    /// Failed checks are counted anew (`clear counters all`).
    pub fn clear(&self) {
        self.checks.values().flat_map(FxHashMap::values).for_each(|running| running.check.failed.set(0));
    }

    /// By what a test tells whether a check began anew.
    #[cfg(test)]
    pub(super) fn task_of(&self, backend: &str, server: &str) -> tokio::task::Id {
        self.checks[backend][server].abort.id()
    }

    /// How many checks run.
    pub fn len(&self) -> usize {
        self.checks.values().map(FxHashMap::len).sum()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts checks spread over the longest of their intervals, as HAProxy does, so that they do not come in bursts.
    fn start(&mut self, fresh: Vec<(Origin, Task)>, spread_max: Option<Duration>) {
        let longest = fresh.iter().map(|(_, task)| task.settings.inter).max().unwrap_or_default();
        let over = spread_max.map_or(longest, |max| longest.min(max));
        let count = fresh.len().max(1) as u32;
        for (number, (origin, task)) in fresh.into_iter().enumerate() {
            let delay = task.recalled_due.unwrap_or(over / count * number as u32);
            let check = Rc::new(task);
            let key = check.key.clone();
            let health = check.health.borrow().state();
            check.server.observe(check.observed_limit(), check.settings.observe == Observe::Layer7);
            check.server.set_health(health, Instant::now());
            let (shared, task) = (Rc::clone(&self.shared), Rc::clone(&check));
            let run = move || run(Rc::clone(&shared), Rc::clone(&task), delay);
            let abort = tokio::task::spawn_local(supervise::for_ever(run)).abort_handle();
            self.checks.entry(key.0).or_default().insert(key.1, Running { origin, check, abort });
        }
    }

    /// Notes who tracks whom, and copies the states.
    fn track(&self, model: &Model, find: &impl Fn(&str) -> Option<Arc<BackendState>>) {
        let mut trackers = Trackers::default();
        for (proxy, server, state) in servers(model, find, |_| true, |server| server.check.track.is_some()) {
            let Some(track) = &server.check.track else { continue };
            let (backend, tracked) = track.split_once('/').unwrap_or((&proxy.name, track));
            let Some(found) = find(backend).and_then(|backend| backend.server(tracked)) else { continue };
            state.set_health(found.health(), Instant::now());
            let key = (Arc::clone(&proxy.name), Arc::clone(&server.name));
            trackers.entry((backend.into(), tracked.into())).or_default().push((key, state));
        }
        *self.shared.trackers.borrow_mut() = trackers;
        self.track_admin(Instant::now(), find);
    }
}

/// The wanted servers of the backends in question that have a state.
fn servers(
    model: &Model,
    find: &impl Fn(&str) -> Option<Arc<BackendState>>,
    in_question: impl Fn(&Proxy) -> bool,
    wanted: impl Fn(&Server) -> bool,
) -> Vec<(Arc<Proxy>, Arc<Server>, Arc<ServerState>)> {
    let backends = model.proxies.iter().filter(|proxy| proxy.role.is_backend() && !proxy.disabled);
    let mut all = Vec::new();
    for proxy in backends.filter(|proxy| in_question(proxy) && proxy.servers.iter().any(|server| wanted(server))) {
        let Some(backend) = find(&proxy.name) else { continue };
        // Both are in the order of the configuration when it is in use.
        let states = backend.servers();
        for (at, server) in proxy.servers.iter().enumerate().filter(|(_, server)| wanted(server)) {
            let same = states.get(at).filter(|state| *state.name() == server.name).cloned();
            if let Some(state) = same.or_else(|| backend.server(&server.name)) {
                all.push((Arc::clone(proxy), Arc::clone(server), state));
            }
        }
    }
    all
}

/// What a model says of a server's check.
struct Set<'m> {
    proxy: &'m Proxy,
    server: &'m Server,
    spread: u32,
    vips: Vec<vip::Asked>,
}

impl Task {
    fn new(
        key: Key,
        Set { proxy, server, spread, vips }: Set<'_>,
        state: Arc<ServerState>,
        old: Option<&Running>,
        recalled: Option<&Recalled>,
    ) -> Task {
        let kept = old.filter(|old| Arc::ptr_eq(&old.check.server, &state));
        let health = match kept {
            Some(old) => old.check.health.borrow().clone().with_settings(&server.check),
            None => recalled_health(&server.check, recalled),
        };
        let inter = server.check.inter;
        let connector = state.encryption().map(|encryption| encryption.connector.clone());
        Task {
            key,
            server: state,
            settings: server.check.clone(),
            plan: Plan::new(proxy, server, connector, vips),
            log_checks: if proxy.check.log { LogChecks::On } else { LogChecks::Off },
            spread,
            health: RefCell::new(health),
            failed: Cell::new(kept.map(|old| old.check.failed.get()).or(recalled.map(|kept| kept.failed)).unwrap_or(0)),
            due: Cell::new(time::Instant::now()),
            recalled_due: recalled.and_then(|kept| kept.due).map(|due| due.min(inter)),
            logged: RefCell::new(kept.and_then(|old| *old.check.logged.borrow())),
        }
    }

    fn observed_limit(&self) -> u32 {
        match self.settings.observe {
            Observe::None => 0,
            Observe::Layer4 | Observe::Layer7 => self.settings.error_limit.max(1),
        }
    }
}

fn recalled_health(settings: &CheckSettings, recalled: Option<&Recalled>) -> Health {
    match recalled {
        Some(kept) if kept.rise > 0 => Health::recalled(settings, kept.state, kept.counter, kept.rise, kept.fall),
        Some(_) | None => Health::new(settings),
    }
}

/// A check's life: wait, look, judge; and listen to what traffic says meanwhile.
async fn run(shared: Rc<Shared>, task: Rc<Task>, delay: Duration) {
    let mut random = Random::new(&task.key);
    let mut due = time::Instant::now() + delay;
    loop {
        task.due.set(due);
        tokio::select! {
            () = time::sleep_until(due) => {
                let started = time::Instant::now();
                if !task.server.admin().in_maintenance() {
                    let mut report = probe(&task.plan).await;
                    if report.status.verdict() != super::fsm::Verdict::Failed {
                        shared.ask_for_vips(&task, &mut report).await;
                    }
                    shared.checked(&task, &report);
                }
                let pause = task.health.borrow().pause();
                due = (started + random.spread(pause, task.spread)).max(time::Instant::now());
            }
            () = task.server.error_limit_reached() => {
                shared.observed(&task);
                due = due.min(time::Instant::now() + task.health.borrow().fastinter());
            }
        }
    }
}

impl Shared {
    /// Asks a server that is well for the virtual addresses that it has to have.
    async fn ask_for_vips(&self, task: &Task, report: &mut Report) {
        let prober = self.prober.borrow().clone();
        let Some(prober) = prober.filter(|_| !task.plan.vips.is_empty()) else { return };
        match vip::ask(&prober, &task.plan).await {
            Ok(None) => {}
            Ok(Some(missing)) => *report = Report { duration: report.duration, ..missing },
            // It is not the server's fault.
            Err(fault) => {
                let news = self.vip_fault.replace(fault.clone()) != fault;
                if news {
                    self.log(&task.key, Severity::Alert, format!("Server {}/{}: {fault}", task.key.0, task.key.1));
                }
            }
        }
    }

    /// A check ended.
    fn checked(&self, task: &Task, report: &Report) {
        let verdict = report.status.verdict();
        let (state, words, counter) = {
            let mut health = task.health.borrow_mut();
            health.adopt(task.server.health());
            let state = health.step(verdict);
            (state, health.words(), health.counter())
        };
        // As HAProxy counts: what fails when it is down already is no news.
        if verdict == super::fsm::Verdict::Failed && task.server.health() != HealthState::Down {
            task.failed.set(task.failed.get() + 1);
        }
        let now = Some((report.status, report.code, counter));
        if task.log_checks == LogChecks::On && task.logged.replace(now) != now {
            let line = text::check_line(&task.key.0, &task.key.1, report, &words);
            self.log(&task.key, Severity::Notice, line);
        }
        self.settle(task, report, state);
    }

    /// Traffic reported `error-limit` errors in a row.
    fn observed(&self, task: &Task) {
        let state = {
            let mut health = task.health.borrow_mut();
            health.adopt(task.server.health());
            health.on_error(task.settings.on_error)
        };
        let last = match task.server.observed_last() {
            Observed::AnswerFailed => "Invalid http response (headers)",
            Observed::BadStatus => "Wrong http response",
            Observed::Connected | Observed::ConnectFailed | Observed::Answered => "L4 unsuccessful connection",
        };
        let errors = task.observed_limit();
        let info = format!("Detected {errors} consecutive errors, last one was: {last}");
        self.settle(task, &Report::new(Status::Analyze).info(info), state);
    }

    /// Publishes a result and what it means.
    fn settle(&self, task: &Task, report: &Report, state: HealthState) {
        task.server.set_check_report(report.for_statistics(&task.health.borrow(), task.failed.get()));
        if task.server.health() != state {
            self.change(&task.key, &task.server, state, Why::Check(report, task.log_checks), 0);
        }
    }

    /// Changes a server's state, logs it, and goes on to those who track it.
    fn change(&self, key: &Key, server: &ServerState, state: HealthState, why: Why<'_>, depth: usize) {
        let Some(left) = server.set_health(state, Instant::now()) else { return };
        let severity = if state == HealthState::Down { Severity::Alert } else { Severity::Notice };
        self.log(key, severity, text::state_line(&key.0, &key.1, state, why, &left));
        if state != HealthState::Up && left.active + left.backups == 0 {
            self.log(key, Severity::Emergency, text::no_server_line(&key.0, self.listens.borrow().contains(&key.0)));
        }
        if depth >= TRACK_DEPTH_MAX {
            return;
        }
        let trackers = self.trackers.borrow().get(key).cloned().unwrap_or_default();
        let via = format!("{}/{}", key.0, key.1);
        for (tracker, server) in trackers {
            self.change(&tracker, &server, state, Why::Tracked(&via), depth + 1);
        }
    }

    /// A server without a check is up, unless it tracks another one.
    fn unchecked(&self, server: &Server, state: &ServerState) {
        state.observe(0, false);
        if server.check.track.is_none() && state.health() != HealthState::Up {
            state.set_health(HealthState::Up, Instant::now());
        }
    }

    fn log(&self, key: &Key, severity: Severity, text: String) {
        (self.log)(Event { backend: Arc::clone(&key.0), severity, text });
    }
}

/// The longest chain of servers that track servers.
const TRACK_DEPTH_MAX: usize = 16;

/// A small generator for `spread-checks`; nothing secret depends on it.
struct Random(u64);

impl Random {
    fn new(key: &Key) -> Random {
        let seed = key.0.bytes().chain(key.1.bytes());
        Random(
            seed.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)) | 1,
        )
    }

    /// A pause up to `percent` shorter or longer.
    fn spread(&mut self, pause: Duration, percent: u32) -> Duration {
        let percent = percent.min(50);
        if percent == 0 {
            return pause;
        }
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let share = f64::from((self.0 >> 32) as u32) / f64::from(u32::MAX) * 2.0 - 1.0;
        pause.mul_f64(1.0 + share * f64::from(percent) / 100.0)
    }
}
