//! All checks of a process, and the tasks that run them: the shell around [`check`](crate::check) and
//! [`following`](crate::following).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::process;
use baton_model::{CheckSettings, Model, Observe, Proxy, Role, Server};
use baton_proxy::Registry;
use baton_proxy::balance::{Admin, BackendState, CheckReport, HealthState, ServerState, Transition};
use baton_proxy::supervise;
use baton_rules::CheckFiles;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time;

use crate::agent::{AgentTask, RunningAgent};
use crate::check::{Check, CheckEffect, CheckEvent, Key};
use crate::health::{Health, Verdict};
use crate::live::CheckSubject;
use crate::orders::AgentOrder;
use crate::plan::{self, Origin, Plan};
use crate::probe::probe;
use crate::script::Script;
use crate::shared::{Event, Follower, Severity, Shared, Subject, admin_events, copy_all};
use crate::sockets::Sockets;
use crate::text::{self, DnsNews, LogChecks, Why};
use crate::vip::{self, VirtualAddresses};
use crate::{Prober, Report, Status};

/// Runs the checks of a model. Lives in a `LocalSet` of the control thread; dropping it ends all checks.
pub struct Checker {
    shared: Rc<Shared>,
    /// Backends with servers that are checked.
    checked: FxHashMap<Arc<str>, Checked>,
    /// Those of them whose servers are asked for virtual addresses, which frontends name.
    with_vips: BTreeSet<Arc<str>>,
    /// `spread-checks` of the model that was applied last.
    spread: u32,
    /// `max-spread-checks` of that.
    spread_max: Option<Duration>,
    /// Where another process was, for the next [`Checker::apply`].
    recalled: FxHashMap<Key, Recalled>,
}

/// A backend that is there from now on, or is not what it was.
#[derive(Clone, Debug)]
pub struct ChangedBackend {
    /// What was asked.
    pub proxy: Arc<Proxy>,
    /// Its state, which has the servers of `proxy` already.
    pub state: Arc<BackendState>,
}

/// Another administrative state of a server, which it has already.
#[derive(Clone, Copy, Debug)]
pub struct AdminMove<'a> {
    /// As it was.
    pub before: Admin,
    /// What followed.
    pub left: &'a Transition,
    /// Its backend is a `listen` section.
    pub is_listen: bool,
    /// What DNS has to do with it.
    pub dns: Option<DnsNews<'a>>,
}

/// A backend and its checks, by server.
struct Checked {
    backend: ChangedBackend,
    checks: FxHashMap<Arc<str>, Running>,
    agents: FxHashMap<Arc<str>, RunningAgent>,
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

/// A check that runs.
struct Running {
    origin: Origin,
    task: Rc<Task>,
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
    is_listen: bool,
    server: Arc<ServerState>,
    plan: Plan,
    check: RefCell<Check>,
    log_checks: LogChecks,
    /// The backend's `id`.
    backend_id: u32,
    /// When another process would have made the next one.
    recalled_due: Option<Duration>,
}

impl Checker {
    /// No checks yet, of a process with this registry; `log` gets every line.
    pub fn new(registry: Arc<Registry>, log: impl Fn(Event) + 'static) -> Checker {
        let hostname = process::hostname();
        let shared = Rc::new(Shared {
            log: Box::new(log),
            registry,
            following: RefCell::default(),
            prober: RefCell::default(),
            vip_fault: RefCell::default(),
            has_news: Cell::new(false),
            news: Notify::new(),
            orders: RefCell::default(),
            ordered: Notify::new(),
            unreachable: RefCell::default(),
            unreached: Notify::new(),
            sockets: RefCell::default(),
            turns_since: Instant::now(),
            node: RefCell::new(Rc::from(hostname.as_str())),
            hostname,
        });
        Checker {
            shared,
            checked: FxHashMap::default(),
            with_vips: BTreeSet::new(),
            spread: 0,
            spread_max: None,
            recalled: FxHashMap::default(),
        }
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
        let running = self.checked.get(backend)?.checks.get(server)?;
        Some(running.task.check.borrow().due().saturating_duration_since(Instant::now()))
    }

    /// Takes up a model, of which these backends are not what they were in the model before, and those are gone: no other backend is
    /// looked at. `find` is the registry's look-up of a backend by name. Checks whose settings are the same go on untouched, changed ones start again with their counters, others end. Has to be
    /// called within a `LocalSet`, after the backends have their new servers.
    pub fn apply(
        &mut self,
        model: &Model,
        find: impl Fn(&str) -> Option<Arc<BackendState>>,
        changed: impl IntoIterator<Item = ChangedBackend>,
        gone: impl IntoIterator<Item = Arc<str>>,
    ) {
        for name in gone {
            self.forget(&name);
        }
        let node = model.global.node.as_deref().unwrap_or(&self.shared.hostname);
        *self.shared.node.borrow_mut() = Rc::from(node);
        let mut changed: Vec<ChangedBackend> = changed.into_iter().collect();
        let spread = model.global.spread_checks;
        self.spread_max = model.global.max_spread_checks;
        let has_same_spread = std::mem::replace(&mut self.spread, spread) == spread;
        let names: BTreeSet<Arc<str>> = changed.iter().map(|changed| Arc::clone(&changed.proxy.name)).collect();
        // What else depends on more than a backend: the pace of all checks, and virtual addresses, which frontends name.
        let others: Vec<ChangedBackend> = match has_same_spread {
            true => {
                self.with_vips.iter().filter_map(|name| self.checked.get(name)).map(|own| own.backend.clone()).collect()
            }
            false => self.checked.values().map(|own| own.backend.clone()).collect(),
        };
        changed.extend(others.into_iter().filter(|other| !names.contains(&other.proxy.name)));
        let vips = match changed.iter().any(|changed| vip::is_checked(&changed.proxy)) {
            true => VirtualAddresses::of(model),
            false => VirtualAddresses::default(),
        };
        let recalled = std::mem::take(&mut self.recalled);
        let mut fresh = Vec::new();
        for backend in &changed {
            fresh.extend(self.take_up(backend, &vips, &recalled));
        }
        self.start(fresh, model.global.max_spread_checks);
        self.track(&changed, &find);
    }

    /// Takes up one server more of a backend, which has it already, and which is not checked yet: no other server is looked at. As
    /// [`Checker::apply`] otherwise.
    pub fn add(
        &mut self,
        backend: ChangedBackend,
        server: &Arc<Server>,
        find: impl Fn(&str) -> Option<Arc<BackendState>>,
    ) {
        let Some(state) = backend.state.server(&server.name) else { return };
        unchecked(server, &state);
        self.track_by(&backend.proxy, server, &state, &find, Instant::now());
        if let Some(checked) = self.checked.get_mut(&backend.proxy.name) {
            checked.backend = backend;
        }
    }

    /// One server of a backend is gone, which has another configuration by now: no other server is looked at.
    pub fn remove(&mut self, backend: ChangedBackend, server: &Arc<str>) {
        let key = (Arc::clone(&backend.proxy.name), Arc::clone(server));
        self.shared.following.borrow_mut().leave(&key);
        if let Some(checked) = self.checked.get_mut(&key.0) {
            checked.checks.remove(server);
            checked.agents.remove(server);
            checked.backend = backend;
        }
    }

    /// Whether a server is tracked by another one.
    pub fn is_tracked(&self, backend: &Arc<str>, server: &Arc<str>) -> bool {
        self.shared.following.borrow().is_followed(&(Arc::clone(backend), Arc::clone(server)))
    }

    /// A backend is gone.
    fn forget(&mut self, name: &str) {
        self.checked.remove(name);
        self.with_vips.remove(name);
        self.shared.following.borrow_mut().forget(name);
    }

    /// The checks of a backend that have to begin; the others of it go on, or have ended.
    fn take_up(
        &mut self,
        backend: &ChangedBackend,
        vips: &VirtualAddresses<'_>,
        recalled: &FxHashMap<Key, Recalled>,
    ) -> Vec<(Origin, Task)> {
        let ChangedBackend { proxy, .. } = backend;
        let before = self.checked.remove(&proxy.name);
        let (mut before, mut agents_before) = before.map(|before| (before.checks, before.agents)).unwrap_or_default();
        let (mut agents, mut fresh_agents) = (FxHashMap::default(), Vec::new());
        self.with_vips.remove(&proxy.name);
        let (mut checks, mut fresh) = (FxHashMap::default(), Vec::new());
        // The steps are the same for all servers.
        let mut script = None;
        let vips = vips.of_backend(proxy);
        for (server, state) in servers(backend) {
            let old = before.remove(&server.name);
            match (AgentTask::new(proxy, server, &state, self.spread), agents_before.remove(&server.name)) {
                (Some(agent), Some(running)) if running.is_same(&agent) => {
                    agents.insert(Arc::clone(&server.name), running);
                }
                (Some(agent), _) => fresh_agents.push(agent),
                (None, _) => without_agent(server, &state),
            }
            if !server.check.enabled {
                drop(old);
                unchecked(server, &state);
                continue;
            }
            let vips = vips.asked(server);
            let origin = Origin::new(proxy, server, &state, self.spread, vips.clone());
            match old {
                Some(old) if old.origin == origin && Arc::ptr_eq(&old.task.server, &state) => {
                    checks.insert(Arc::clone(&server.name), old);
                }
                old => {
                    let key: Key = (Arc::clone(&proxy.name), Arc::clone(&server.name));
                    let recalled = recalled.get(&key);
                    let script = script.get_or_insert_with(|| {
                        let files = CheckFiles { hostname: self.shared.hostname.clone() };
                        Arc::new(plan::script(proxy, &files))
                    });
                    let set = Set { proxy, server, script, spread: self.spread, vips };
                    fresh.push((origin, Task::new(key, set, state, old.as_ref(), recalled)));
                }
            }
        }
        let count = fresh_agents.len();
        for (number, agent) in fresh_agents.into_iter().enumerate() {
            agents.insert(Arc::clone(agent.server_name()), agent.start(&self.shared, self.spread_max, number, count));
        }
        if !checks.is_empty() || !fresh.is_empty() || !agents.is_empty() {
            if vip::is_checked(proxy) {
                self.with_vips.insert(Arc::clone(&proxy.name));
            }
            self.checked.insert(Arc::clone(&proxy.name), Checked { backend: backend.clone(), checks, agents });
        }
        fresh
    }

    /// A server is in another administrative state than before: passes it on to those who track the server, and gives what is to be logged
    /// of all of them.
    pub fn admin_changed(&self, server: &ServerState, moved: AdminMove<'_>, now: Instant) -> Vec<Event> {
        let AdminMove { before, left, is_listen, dns } = moved;
        let Some(key) = key_of(server) else { return Vec::new() };
        let mut events = admin_events(&Subject { key: &key, server, is_listen }, before, left, dns);
        // What an address is found for is said of its own server alone.
        let dns = dns.filter(|dns| matches!(dns, DnsNews::Lost(_)));
        self.shared.spread_admin((&key, server), dns, now, 0, &mut events);
        events
    }

    /// An operator has decided whether a server is up: logs that, and passes it on to those who track the server.
    pub fn health_forced(&self, server: &ServerState, left: &Transition, is_listen: bool) {
        let Some(key) = key_of(server) else { return };
        self.shared.spread(&Subject { key: &key, server, is_listen }, server.health(), Why::Operator, left, 0);
    }

    /// Logs what there is to say of servers.
    pub fn log(&self, events: Vec<Event>) {
        events.into_iter().for_each(&self.shared.log);
    }

    /// Whether servers went up or down, or checks failed, since this was asked last.
    pub fn take_news(&self) -> bool {
        self.shared.has_news.take()
    }

    /// Ready when there is such news. For one waiter.
    pub fn news(&self) -> impl Future<Output = ()> + use<> {
        let shared = Rc::clone(&self.shared);
        async move { shared.news.notified().await }
    }

    /// What statistics show of an agent when an operator speaks in its place.
    pub fn forced_agent(&self, server: &ServerState, is_up: bool) -> CheckReport {
        CheckReport { health: u32::from(is_up), rise: 1, fall: 1, ..server.agent_report() }
    }

    /// What an agent wants of its server next.
    pub fn take_order(&self) -> Option<AgentOrder> {
        self.shared.orders.borrow_mut().pop_front()
    }

    /// Ready when an agent wants something. For one waiter.
    pub fn ordered(&self) -> impl Future<Output = ()> + use<> {
        let shared = Rc::clone(&self.shared);
        async move { shared.ordered.notified().await }
    }

    /// Servers found by DNS, by backend and name, to which a check could not connect since this was asked last.
    pub fn take_unreachable(&self) -> impl Iterator<Item = (Arc<str>, Arc<str>)> + use<> {
        self.shared.unreachable.take().into_iter()
    }

    /// Ready when there are such servers. For one waiter.
    pub fn unreached(&self) -> impl Future<Output = ()> + use<> {
        let shared = Rc::clone(&self.shared);
        async move { shared.unreached.notified().await }
    }

    /// Failed checks are counted anew (`clear counters all`).
    pub fn clear(&self) {
        self.running().for_each(|running| running.task.check.borrow_mut().clear());
    }

    /// By what a test tells whether a check began anew.
    #[cfg(test)]
    pub(crate) fn task_of(&self, backend: &str, server: &str) -> tokio::task::Id {
        self.checked[backend].checks[server].abort.id()
    }

    /// Sockets that checks pass on, those in use and the others.
    #[cfg(test)]
    pub(crate) fn open_sockets(&self) -> usize {
        self.shared.sockets.borrow().as_ref().map_or(0, |sockets| sockets.count())
    }

    /// How many checks run.
    pub fn len(&self) -> usize {
        self.checked.values().map(|checked| checked.checks.len() + checked.agents.len()).sum()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn running(&self) -> impl Iterator<Item = &Running> {
        self.checked.values().flat_map(|checked| checked.checks.values())
    }

    /// Starts checks spread over the longest of their intervals, as HAProxy does, so that they do not come in bursts.
    fn start(&mut self, fresh: Vec<(Origin, Task)>, spread_max: Option<Duration>) {
        self.shared.share_sockets(!self.checked.is_empty());
        let inter = |task: &Task| task.check.borrow().settings().inter;
        let longest = fresh.iter().map(|(_, task)| inter(task)).max().unwrap_or_default();
        let over = spread_max.map_or(longest, |max| longest.min(max));
        let count = fresh.len().max(1) as u32;
        for (number, (origin, task)) in fresh.into_iter().enumerate() {
            let delay = task.recalled_due.unwrap_or(over / count * number as u32);
            let health = {
                let mut check = task.check.borrow_mut();
                check.start_at(Instant::now() + delay);
                task.server.observe(check.observed_limit(), check.settings().observe == Observe::Layer7);
                check.state()
            };
            task.server.set_health(health, Instant::now());
            let key = task.key.clone();
            let Some(checked) = self.checked.get_mut(&key.0) else { continue };
            let (shared, task) = (Rc::clone(&self.shared), Rc::new(task));
            let running = Rc::clone(&task);
            let run = move || run(Rc::clone(&shared), Rc::clone(&running));
            let abort = tokio::task::spawn_local(supervise::for_ever(run)).abort_handle();
            checked.checks.insert(key.1, Running { origin, task, abort });
        }
    }

    /// Notes who of these backends tracks whom, and copies the states to followers, which may be in any backend.
    fn track(&self, changed: &[ChangedBackend], find: &impl Fn(&str) -> Option<Arc<BackendState>>) {
        let now = Instant::now();
        for ChangedBackend { proxy, .. } in changed {
            self.shared.following.borrow_mut().forget(&proxy.name);
        }
        for backend in changed {
            let proxy = &backend.proxy;
            servers(backend).for_each(|(server, state)| self.track_by(proxy, server, &state, find, now));
        }
        if self.shared.following.borrow().is_empty() {
            return;
        }
        for backend in changed {
            for (server, state) in servers(backend) {
                let key = (Arc::clone(&backend.proxy.name), Arc::clone(&server.name));
                self.shared.copy_to_followers(&key, &state, now, 0);
            }
        }
    }

    /// A server follows the one that it tracks, if it does, and is as that one is.
    fn track_by(
        &self,
        proxy: &Proxy,
        server: &Server,
        state: &Arc<ServerState>,
        find: &impl Fn(&str) -> Option<Arc<BackendState>>,
        now: Instant,
    ) {
        let Some(track) = &server.check.track else { return };
        let (tracked_backend, tracked) = track.split_once('/').unwrap_or((&proxy.name, track));
        let key = (Arc::clone(&proxy.name), Arc::clone(&server.name));
        if let Some(tracked) = find(tracked_backend).and_then(|backend| backend.server(tracked)) {
            copy_all(&tracked, state, now);
        }
        let follower = Follower { server: Arc::clone(state), is_listen: proxy.role == Role::Listen };
        let tracked = (tracked_backend.into(), tracked.into());
        self.shared.following.borrow_mut().follow(tracked, key, Rc::new(follower));
    }
}

/// The servers of a backend that have a state.
fn servers(backend: &ChangedBackend) -> impl Iterator<Item = (&Arc<Server>, Arc<ServerState>)> {
    let ChangedBackend { proxy, state } = backend;
    // Both are in the order of the configuration when it is in use.
    let states = state.servers();
    let is_used = proxy.role.is_backend() && !proxy.disabled;
    proxy.servers.iter().enumerate().filter(move |_| is_used).filter_map(move |(at, server)| {
        let same = states.get(at).filter(|state| *state.name() == server.name).cloned();
        Some((server, same.or_else(|| state.server(&server.name))?))
    })
}

fn key_of(server: &ServerState) -> Option<Key> {
    Some((Arc::clone(server.backend()?.name()), Arc::clone(server.name())))
}

/// A server without a check is up, unless it tracks another one.
fn unchecked(server: &Server, state: &ServerState) {
    state.observe(0, false);
    if server.check.track.is_none() && state.checked_health() != HealthState::Up {
        state.set_health(HealthState::Up, Instant::now());
    }
}

/// A server without an agent is not kept down by one. One whose agent is not asked for a while stays what it is.
fn without_agent(server: &Server, state: &ServerState) {
    if server.agent().is_none() && (state.is_held() || state.agent_report().rise > 0) {
        state.hold(false, Instant::now());
        state.forget_agent_report();
    }
}

/// What a model says of a server's check.
struct Set<'m> {
    proxy: &'m Proxy,
    server: &'m Server,
    script: &'m Arc<Script>,
    spread: u32,
    vips: Vec<vip::ProbeTarget>,
}

impl Task {
    fn new(
        key: Key,
        Set { proxy, server, script, spread, vips }: Set<'_>,
        state: Arc<ServerState>,
        old: Option<&Running>,
        recalled: Option<&Recalled>,
    ) -> Task {
        let settings = &server.check;
        let log_checks = if proxy.check.log { LogChecks::On } else { LogChecks::Off };
        let health = recalled_health(settings, recalled);
        let check = Check::new(&key, settings.clone(), log_checks, spread, health, Instant::now());
        let check = match old.filter(|old| Arc::ptr_eq(&old.task.server, &state)) {
            Some(old) => check.after(&old.task.check.borrow()),
            None => check.with_failed(recalled.map_or(0, |kept| kept.failed)),
        };
        let connector = state.encryption().map(|encryption| encryption.connector.clone());
        Task {
            key,
            is_listen: proxy.role == Role::Listen,
            server: state,
            plan: Plan::new(proxy, server, script, connector, vips),
            backend_id: proxy.id,
            check: RefCell::new(check),
            log_checks,
            recalled_due: recalled.and_then(|kept| kept.due).map(|due| due.min(settings.inter)),
        }
    }

    fn subject(&self) -> Subject<'_> {
        Subject { key: &self.key, server: &self.server, is_listen: self.is_listen }
    }
}

fn recalled_health(settings: &CheckSettings, recalled: Option<&Recalled>) -> Health {
    match recalled {
        Some(kept) if kept.rise > 0 => Health::recalled(settings, kept.state, kept.counter, kept.rise, kept.fall),
        Some(_) | None => Health::new(settings),
    }
}

/// A check's life: events come in, its effects are done.
async fn run(shared: Rc<Shared>, task: Rc<Task>) {
    // It begins anew after a panic.
    shared.happen(&task, CheckEvent::Interrupted);
    let (is_observed, inter) = {
        let check = task.check.borrow();
        (check.observed_limit() > 0, check.settings().inter)
    };
    loop {
        let due = task.check.borrow().due();
        let waiting = time::sleep_until(shared.turn_of(due, inter).into());
        let is_due = match is_observed {
            true => tokio::select! {
                () = waiting => true,
                () = task.server.error_limit_reached() => false,
            },
            false => {
                waiting.await;
                true
            }
        };
        let event = match is_due {
            true => CheckEvent::Due { in_maintenance: task.server.admin().in_maintenance() },
            false => CheckEvent::ErrorLimit { last: task.server.observed_last(), server: task.server.checked_health() },
        };
        if shared.happen(&task, event) {
            let state = if task.plan.script.sends_state { task.check.borrow().sent_state() } else { String::new() };
            let node = Rc::clone(&*shared.node.borrow());
            let sockets = shared.sockets.borrow().clone();
            let subject = CheckSubject {
                server: &task.server,
                backend: &task.key.0,
                backend_id: task.backend_id,
                state: &state,
                node: &node,
                registry: &shared.registry,
                sockets: sockets.as_deref(),
            };
            let mut report = probe(&task.plan, &subject).await;
            if matches!(report.status, Status::L4Timeout | Status::L4Connection) {
                shared.not_reached(&task.key, &task.server);
            }
            if report.status.verdict() != Verdict::Failed {
                shared.ask_for_vips(&task, &mut report).await;
            }
            let passed = (report.status.verdict() == Verdict::Passed && task.server.is_held()).then(|| report.clone());
            shared.happen(&task, CheckEvent::Probed { report, server: task.server.checked_health() });
            if let Some(report) = passed {
                shared.release(&task.subject(), &report, task.log_checks);
            }
        }
    }
}

impl Shared {
    /// Opens what connections of checks share as long as there are checks, and closes it after the last.
    fn share_sockets(&self, are_checks: bool) {
        let mut sockets = self.sockets.borrow_mut();
        match are_checks {
            true if sockets.is_none() => *sockets = Sockets::new().ok().map(Rc::new),
            true => {}
            false => *sockets = None,
        }
    }

    /// When a check that is due then begins: many begin in one turn of the event loop, so that the kernel is asked for their events once.
    /// Checks that follow each other closely are begun when they are due.
    fn turn_of(&self, due: Instant, inter: Duration) -> Instant {
        if inter < TURN * 100 {
            return due;
        }
        let since = due.saturating_duration_since(self.turns_since).as_micros();
        let into = Duration::from_micros((since % TURN.as_micros()) as u64);
        if into.is_zero() { due } else { due + (TURN - into) }
    }

    /// Takes an event to a check and does what follows, but for asking the server: true when that is to be done.
    fn happen(&self, task: &Task, event: CheckEvent) -> bool {
        let effects = task.check.borrow_mut().step(event, Instant::now());
        let mut is_asked = false;
        for effect in effects {
            match effect {
                CheckEffect::Probe => is_asked = true,
                CheckEffect::Log(result) => {
                    let line = text::check_line(task.subject().logged(), &result);
                    self.log(&task.key, Severity::Notice, line, Some(Severity::Info));
                }
                CheckEffect::Publish(report) => {
                    let failed = report.failed;
                    if task.server.set_check_report(report).failed != failed {
                        self.tell();
                    }
                }
                CheckEffect::Change { state, report } => {
                    self.change(&task.subject(), state, Why::Check(&report, task.log_checks), 0);
                }
            }
        }
        is_asked
    }

    /// Asks a server that is well for the virtual addresses that it has to have.
    async fn ask_for_vips(&self, task: &Task, report: &mut Report) {
        let prober = self.prober.borrow().clone();
        let Some(prober) = prober.filter(|_| !task.plan.vips.is_empty()) else { return };
        match vip::ask(&prober, &task.plan.vips, task.plan.connect).await {
            Ok(None) => {}
            Ok(Some(missing)) => *report = Report { duration: report.duration, ..missing },
            // It is not the server's fault.
            Err(fault) => {
                let news = self.vip_fault.replace(fault.clone()) != fault;
                if news {
                    let text = format!("Server {}/{}: {fault}", task.key.0, task.key.1);
                    self.log(&task.key, Severity::Alert, text, None);
                }
            }
        }
    }
}

/// The time between two turns in which checks begin.
const TURN: Duration = Duration::from_millis(5);
