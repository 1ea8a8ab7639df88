//! Agent checks (`agent-check`): a process beside a server says how the server is, in words. The pure part is [`response`]; [`ask`] asks an
//! agent once. What it says of the server's mode, weight and limit is asked of the change path as an order, and done before
//! it counts whether the server is up. That is [`ServerState::hold`]'s: checks and agent have to agree that a server is up.

mod ask;
mod response;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{AdminState, Proxy, Role, Server, Setting};
use baton_proxy::balance::{CheckReport, HealthState, ServerState};
use baton_proxy::supervise;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time;

pub(crate) use ask::AgentPlan;
use response::{AgentMode, AgentResponse};

use crate::check::{Key, Random};
use crate::orders::AgentOrder;
use crate::shared::{Severity, Shared, Subject};
use crate::text::{self, LogChecks, Why};
use crate::{Report, Status};

/// The highest weight of a server.
const WEIGHT_MAX: u32 = 256;
/// `rise` and `fall` of an agent: its word counts at once.
const LIMIT: u32 = 1;

/// What an agent's bytes say, for fuzz targets.
pub(crate) fn read_bytes(bytes: &[u8]) {
    if let Some(line) = response::first_line(bytes) {
        let response = AgentResponse::read(line, false);
        assert!(!Report::new(Status::Checked).info(response.info).info.contains(char::is_control));
    }
}

/// The health that statistics show of an agent: 1 is up.
pub fn agent_health(report: &CheckReport) -> u32 {
    if report.rise == 0 { LIMIT } else { report.health }
}

/// An agent check that runs.
pub(crate) struct RunningAgent {
    task: Rc<AgentTask>,
    abort: AbortHandle,
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl RunningAgent {
    /// Whether it goes on as it is for a server that reads so now.
    pub(crate) fn is_same(&self, other: &AgentTask) -> bool {
        let own = &self.task;
        own.plan == other.plan
            && own.inter == other.inter
            && own.spread == other.spread
            && own.tracked == other.tracked
            && (own.log_checks, own.is_listen, own.is_static) == (other.log_checks, other.is_listen, other.is_static)
            && Arc::ptr_eq(&own.server, &other.server)
    }
}

/// The agent check of a server.
pub(crate) struct AgentTask {
    key: Key,
    is_listen: bool,
    server: Arc<ServerState>,
    plan: AgentPlan,
    inter: Duration,
    /// `spread-checks`, in percent.
    spread: u32,
    /// The server that this one tracks, as `backend/server`.
    tracked: Option<String>,
    log_checks: LogChecks,
    /// Weights of the backend stay what they are.
    is_static: bool,
    due: Cell<Instant>,
    /// Result and health that were logged last.
    logged: Cell<Option<(Status, u32)>>,
    random: RefCell<Random>,
}

impl AgentTask {
    /// The agent of a server, if it has one that is to be asked.
    pub(crate) fn new(proxy: &Proxy, server: &Server, state: &Arc<ServerState>, spread: u32) -> Option<AgentTask> {
        let agent = server.agent().filter(|agent| agent.enabled)?;
        let key = (Arc::clone(&proxy.name), Arc::clone(&server.name));
        let tracked = server.check.track.as_ref().map(|track| match track.contains('/') {
            true => track.clone(),
            false => format!("{}/{track}", proxy.name),
        });
        Some(AgentTask {
            is_listen: proxy.role == Role::Listen,
            server: Arc::clone(state),
            plan: AgentPlan::new(proxy, server, agent),
            inter: agent.inter,
            spread,
            tracked,
            log_checks: if proxy.check.log { LogChecks::On } else { LogChecks::Off },
            is_static: proxy.has_static_weights(),
            due: Cell::new(Instant::now()),
            logged: Cell::new(None),
            random: RefCell::new(Random::new(&key)),
            key,
        })
    }

    /// Starts asking: this one of `count` that start together, which are spread over their interval, or `most`.
    pub(crate) fn start(
        self,
        shared: &Rc<Shared>,
        most: Option<Duration>,
        number: usize,
        count: usize,
    ) -> RunningAgent {
        let over = most.map_or(self.inter, |most| self.inter.min(most));
        self.due.set(Instant::now() + over / count.max(1) as u32 * number as u32);
        let (shared, task) = (Rc::clone(shared), Rc::new(self));
        let running = Rc::clone(&task);
        let run = move || run(Rc::clone(&shared), Rc::clone(&running));
        let abort = tokio::task::spawn_local(supervise::for_ever(run)).abort_handle();
        RunningAgent { task, abort }
    }

    pub(crate) fn server_name(&self) -> &Arc<str> {
        &self.key.1
    }

    fn subject(&self) -> Subject<'_> {
        Subject { key: &self.key, server: &self.server, is_listen: self.is_listen }
    }

    /// What a response asks for that is not so already.
    fn settings(&self, response: &AgentResponse) -> Vec<Setting> {
        let config = self.server.config();
        let admin = self.server.admin();
        let mode = response
            .mode
            .map(|mode| AdminState { maintenance: mode == AgentMode::Maint, drain: mode == AgentMode::Drain });
        let mode = mode.filter(|wanted| *wanted != AdminState { maintenance: admin.maintenance, drain: admin.drain });
        let weight = response.weight_percent.map(|percent| {
            let weight = u64::from(config.weight) * u64::from(percent) / 100;
            u32::try_from(weight).unwrap_or(WEIGHT_MAX).min(WEIGHT_MAX)
        });
        let weight = weight.filter(|weight| *weight != self.server.weight());
        let maxconn = response.maxconn.filter(|limit| *limit != config.maxconn);
        let mode = mode.map(Setting::State).into_iter();
        mode.chain(weight.map(Setting::Weight)).chain(maxconn.map(Setting::Maxconn)).collect()
    }
}

/// An agent check's life.
async fn run(shared: Rc<Shared>, task: Rc<AgentTask>) {
    loop {
        time::sleep_until(task.due.get().into()).await;
        let begun = Instant::now();
        let (report, response) = task.plan.ask(task.is_static).await;
        if let Some(response) = response {
            let settings = task.settings(&response);
            // In maintenance nothing follows from it, and who leaves that is what it is by then.
            if task.server.admin().in_maintenance() {
                shared.hear(&task, &report);
            }
            if !settings.is_empty() {
                shared.order(&task.server, settings).await;
            }
        }
        shared.hear(&task, &report);
        let pause = task.random.borrow_mut().spread(task.inter, task.spread);
        task.due.set((begun + pause).max(Instant::now()));
    }
}

impl Shared {
    /// Has the change path do what an agent wants.
    async fn order(&self, server: &Arc<ServerState>, settings: Vec<Setting>) {
        let (done, is_done) = oneshot::channel();
        self.orders.borrow_mut().push_back(AgentOrder { server: Arc::clone(server), settings, done });
        self.ordered.notify_one();
        // A process that hands over does not take it: the agent will say it again.
        let _ = is_done.await;
    }

    /// What an agent says of its server's health counts, and is shown.
    fn hear(&self, task: &AgentTask, report: &Report) {
        let AgentTask { server, key, .. } = task;
        let before = server.agent_report();
        let health = match report.status {
            Status::L7Ok => LIMIT,
            Status::L7Status => 0,
            _ => agent_health(&before),
        };
        let failed = before.failed;
        server.set_agent_report(CheckReport { health, rise: LIMIT, fall: LIMIT, ..report.statistics(failed) });
        let now = Some((report.status, health));
        if task.logged.replace(now) != now && task.log_checks == LogChecks::On && report.status != Status::Checked {
            self.log(
                key,
                Severity::Notice,
                text::agent_line(task.subject().logged(), report, health),
                Some(Severity::Info),
            );
        }
        let is_held = match report.status {
            Status::L7Ok => false,
            Status::L7Status => true,
            _ => return,
        };
        let why = match &task.tracked {
            Some(tracked) => Why::Tracked(tracked),
            None => Why::Check(report, task.log_checks),
        };
        self.hold(&task.subject(), is_held, why);
    }

    /// An agent keeps its server down, or does so no more.
    pub(crate) fn hold(&self, subject: &Subject<'_>, is_held: bool, why: Why<'_>) {
        let server = subject.server;
        if server.is_held() == is_held {
            return;
        }
        let left = server.hold(is_held, Instant::now());
        self.tell();
        if let Some(left) = left {
            self.spread(subject, server.health(), why, &left, 0);
        }
    }

    /// A server whose agent is not asked any more, and which has passed a check.
    pub(crate) fn release(&self, subject: &Subject<'_>, report: &Report, log_checks: LogChecks) {
        let server = subject.server;
        if server.is_held() && server.checked_health() == HealthState::Up && !server.config().has_running_agent() {
            self.hold(subject, false, Why::Check(report, log_checks));
        }
    }
}
