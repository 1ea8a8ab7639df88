//! What is known of a server, for every core to read.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use baton_model::Server;
use tokio::sync::Notify;

use super::complaint::Complaint;
use super::{BackendState, Transition};
use crate::upstream::ServerTlsContext;

/// A server's state. Figures are atomics that anybody may read; they are written under its backend's lock only.
pub struct ServerState {
    name: Arc<str>,
    pub(super) backend: Weak<BackendState>,
    /// Its place in the backend's table; [`GONE`] once a reload removed it.
    pub(super) index: AtomicUsize,
    /// What counts: down as long as its agent says so, else what checks say.
    pub(super) health: AtomicU8,
    /// What checks say, or the server that it tracks.
    checked: AtomicU8,
    /// Its agent says that it is down.
    is_held: AtomicBool,
    pub(super) admin: AtomicU8,
    /// `weight` of the configuration, or as an operator set it.
    pub(super) weight: AtomicU32,
    /// In sixteenths of a weight: what the algorithm uses now.
    pub(super) effective: AtomicU32,
    pub(super) served: AtomicU32,
    /// Sessions that processes before this one still have on it.
    pub(super) elsewhere: AtomicU32,
    pub(super) served_max: AtomicU32,
    pub(super) total: AtomicU64,
    pub(super) queued: AtomicU32,
    pub(super) queued_max: AtomicU32,
    pub(super) may_be_cut: AtomicBool,
    /// The last handshake with it failed.
    pub(super) is_refusing: AtomicBool,
    /// How often its sessions were shut down.
    pub(super) cuts: AtomicU64,
    pub(super) cut_notify: Notify,
    /// Reports of the request path for `observe`. Made when something is observed, which few servers are.
    observed: OnceLock<Box<ObservedCounts>>,
    pub(super) notes: Mutex<Notes>,
}

/// `index` of a server that was removed.
pub(super) const GONE: usize = usize::MAX;

/// What is read seldom.
pub(super) struct Notes {
    pub(super) config: Arc<Server>,
    pub(super) encryption: Option<Arc<ServerTlsContext>>,
    pub(super) cookie: Option<Arc<str>>,
    /// `None`: no check was made yet, as of most of thousands of servers that are not checked.
    pub(super) check: Option<Box<CheckReport>>,
    /// What its agent said last; `None` without one.
    pub(super) agent: Option<Box<CheckReport>>,
    pub(super) changed: Instant,
    /// Why a handshake with it failed, as it was said last.
    pub(super) complaint: Option<Box<Complaint>>,
    /// Times it went down, and the time it was down before the current outage.
    pub(super) downs: u64,
    pub(super) down_time: Duration,
}

/// What the last health check found, for statistics (`check_status`, `check_code`, `check_desc`, `last_chk` …).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckReport {
    /// HAProxy's short word: `L4OK`, `L4CON`, `L7STS` …; empty without a check yet.
    pub status: &'static str,
    /// The long words: `Layer4 check passed` …
    pub description: &'static str,
    /// Status code of an HTTP check.
    pub code: Option<u16>,
    /// What else there is to say: `Connection refused` …
    pub info: String,
    /// How long it took.
    pub duration: Duration,
    /// HAProxy's health counter: 0 to `rise + fall - 1`, up from `rise` on.
    pub health: u32,
    /// `rise` in force.
    pub rise: u32,
    /// `fall` in force.
    pub fall: u32,
    /// Checks that failed.
    pub failed: u64,
}

/// What checks say of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HealthState {
    /// Usable.
    Up,
    /// Answers, but wants no new sessions (`disable-on-404`): persistent ones still go there.
    Stopping,
    /// Not usable.
    Down,
}

impl HealthState {
    fn of(number: u8) -> HealthState {
        match number {
            0 => HealthState::Up,
            1 => HealthState::Stopping,
            _ => HealthState::Down,
        }
    }
}

/// What operators and the configuration say of a server: reasons that may apply together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Admin {
    /// Maintenance by `disabled` in the configuration, or by an operator.
    pub maintenance: bool,
    /// Maintenance inherited from the server it tracks.
    pub maintenance_inherited: bool,
    /// Maintenance because its name does not resolve.
    pub unresolved: bool,
    /// Drain by an operator: no new sessions but persistent ones.
    pub drain: bool,
    /// Drain inherited from the server it tracks.
    pub drain_inherited: bool,
}

impl Admin {
    /// Whether any reason for maintenance applies.
    pub fn in_maintenance(self) -> bool {
        self.maintenance || self.maintenance_inherited || self.unresolved
    }

    /// Whether any reason to drain applies.
    pub fn is_draining(self) -> bool {
        self.drain || self.drain_inherited
    }

    fn bits(self) -> u8 {
        u8::from(self.maintenance)
            | u8::from(self.maintenance_inherited) << 1
            | u8::from(self.unresolved) << 2
            | u8::from(self.drain) << 3
            | u8::from(self.drain_inherited) << 4
    }

    fn from_bits(bits: u8) -> Admin {
        Admin {
            maintenance: bits & 1 != 0,
            maintenance_inherited: bits & 2 != 0,
            unresolved: bits & 4 != 0,
            drain: bits & 8 != 0,
            drain_inherited: bits & 16 != 0,
        }
    }
}

/// A report of the request path, for `observe`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Observed {
    /// A connection opened (`layer4`).
    Connected,
    /// A connection failed (`layer4`, `layer7`).
    ConnectFailed,
    /// A good response (`layer7`).
    Answered,
    /// No answer, or junk (`layer7`).
    AnswerFailed,
    /// An answer with a status that the manual counts as an error (`layer7`).
    BadStatus,
}

/// Counters of reports since the start; the health checker looks at how they grow.
#[derive(Debug, Default)]
struct ObservedCounts {
    good: AtomicU64,
    bad: AtomicU64,
    /// Errors since the last good report.
    bad_in_row: AtomicU32,
    /// The last error: 0 a connection's, 1 no answer, 2 a status.
    last_bad: AtomicU8,
    /// Wakes the checker when `bad_in_row` reaches the limit.
    notify: Notify,
    limit: AtomicU32,
    layer7: AtomicBool,
}

impl ServerState {
    /// A server that nobody uses yet, as the configuration starts it.
    pub(super) fn new(backend: Weak<BackendState>, config: Arc<Server>, now: Instant) -> ServerState {
        let unresolved = config.address.is_unresolved();
        let admin = Admin { maintenance: config.disabled, unresolved, ..Admin::default() };
        ServerState {
            name: Arc::clone(&config.name),
            backend,
            index: AtomicUsize::new(GONE),
            health: AtomicU8::new(HealthState::Up as u8),
            checked: AtomicU8::new(HealthState::Up as u8),
            is_held: AtomicBool::new(false),
            admin: AtomicU8::new(admin.bits()),
            weight: AtomicU32::new(config.weight),
            effective: AtomicU32::new(0),
            served: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            served_max: AtomicU32::new(0),
            total: AtomicU64::new(0),
            queued: AtomicU32::new(0),
            queued_max: AtomicU32::new(0),
            may_be_cut: AtomicBool::new(false),
            is_refusing: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            cut_notify: Notify::new(),
            observed: OnceLock::new(),
            notes: Mutex::new(Notes {
                config,
                encryption: None,
                cookie: None,
                check: None,
                agent: None,
                changed: now,
                downs: 0,
                down_time: Duration::ZERO,
                complaint: None,
            }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its backend, as long as anybody uses that.
    pub fn backend(&self) -> Option<Arc<BackendState>> {
        self.backend.upgrade()
    }

    /// What the configuration says of it now.
    pub fn config(&self) -> Arc<Server> {
        Arc::clone(&self.notes().config)
    }

    /// The value of the persistence cookie that means this server: `cookie`, or the dynamic one.
    pub fn cookie(&self) -> Option<Arc<str>> {
        self.notes().cookie.clone()
    }

    /// What checks and its agent say.
    pub fn health(&self) -> HealthState {
        HealthState::of(self.health.load(Ordering::Relaxed))
    }

    /// What checks say, whatever its agent says.
    pub fn checked_health(&self) -> HealthState {
        HealthState::of(self.checked.load(Ordering::Relaxed))
    }

    /// Whether its agent keeps it down.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// What the operator says.
    pub fn admin(&self) -> Admin {
        Admin::from_bits(self.admin.load(Ordering::Relaxed))
    }

    /// Whether a session that wants this very server may go there: neither down nor in maintenance.
    pub fn is_running(&self) -> bool {
        !self.admin().in_maintenance() && self.health() != HealthState::Down && !self.is_removed()
    }

    /// Whether new sessions are balanced to it: running, not draining, with a weight.
    pub fn is_usable(&self) -> bool {
        self.is_running()
            && self.health() == HealthState::Up
            && !self.admin().is_draining()
            && self.weight.load(Ordering::Relaxed) > 0
    }

    /// TLS with it now; `None`: neither its traffic nor its checks are encrypted.
    pub fn encryption(&self) -> Option<Arc<ServerTlsContext>> {
        self.notes().encryption.clone()
    }

    /// Whether a reload took it out of the configuration.
    pub fn is_removed(&self) -> bool {
        self.index.load(Ordering::Relaxed) == GONE
    }

    /// The weight as configured or set.
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// The weight the algorithm uses now, slow start considered (0 to 256, rounded up as in HAProxy's statistics).
    pub fn effective_weight(&self) -> u32 {
        self.effective.load(Ordering::Relaxed).div_ceil(super::group::WEIGHT_SCALE)
    }

    /// How far it is in a slow start, percent of its weight; `None` when it is in none.
    pub fn throttle(&self) -> Option<u32> {
        let full = self.weight() * super::group::WEIGHT_SCALE;
        let effective = self.effective.load(Ordering::Relaxed);
        (0 < effective && effective < full).then(|| effective * 100 / full)
    }

    /// Slots in use.
    pub fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    /// Sessions that other processes hold on it while they end: they count for its `maxconn`, not for balancing.
    pub fn elsewhere(&self) -> u32 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    /// Notes how many connections the kernel has with it, where the kernel balances and no slot is given.
    pub fn set_served_by_kernel(&self, connections: u32) {
        self.served.store(connections, Ordering::Relaxed);
        self.served_max.fetch_max(connections, Ordering::Relaxed);
    }

    /// Notes how many there are; those that became fewer let others out of the queue.
    pub fn set_elsewhere(&self, sessions: u32) {
        if let Some(backend) = self.backend.upgrade() {
            backend.set_elsewhere(self, sessions);
        }
    }

    /// Slots that count for `maxconn`.
    pub(super) fn occupied(&self) -> u32 {
        self.served().saturating_add(self.elsewhere())
    }

    /// The most slots ever in use.
    pub fn served_max(&self) -> u32 {
        self.served_max.load(Ordering::Relaxed)
    }

    /// Slots ever given (`lbtot` and persistent ones).
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Requests in its own queue.
    pub fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// The most ever in its queue.
    pub fn queued_max(&self) -> u32 {
        self.queued_max.load(Ordering::Relaxed)
    }

    /// What the last check found.
    pub fn check_report(&self) -> CheckReport {
        self.notes().check.as_deref().cloned().unwrap_or_default()
    }

    /// Writes what a check found and gives what was found before; does not change the state.
    pub fn set_check_report(&self, report: CheckReport) -> CheckReport {
        self.notes().check.replace(Box::new(report)).map(|before| *before).unwrap_or_default()
    }

    /// What its agent said last.
    pub fn agent_report(&self) -> CheckReport {
        self.notes().agent.as_deref().cloned().unwrap_or_default()
    }

    /// Writes what its agent said; does not change the state.
    pub fn set_agent_report(&self, report: CheckReport) {
        self.notes().agent = Some(Box::new(report));
    }

    /// Its agent has said nothing yet.
    pub fn forget_agent_report(&self) {
        self.notes().agent = None;
    }

    /// Whether its agent, which is asked, has said that it is down, and not that it is up again.
    pub(super) fn is_down_by_agent(&self) -> bool {
        let notes = self.notes();
        let is_down = notes.agent.as_deref().is_some_and(|report| report.rise > 0 && report.health == 0);
        is_down && notes.config.has_running_agent()
    }

    /// When it last went up or down.
    pub fn changed(&self) -> Instant {
        self.notes().changed
    }

    /// How often it went down.
    pub fn downs(&self) -> u64 {
        self.notes().downs
    }

    /// How long it was down in total.
    pub fn down_time(&self, now: Instant) -> Duration {
        let notes = self.notes();
        let current = match self.health() {
            HealthState::Down => now.saturating_duration_since(notes.changed),
            HealthState::Up | HealthState::Stopping => Duration::ZERO,
        };
        notes.down_time + current
    }

    /// Marks it up, down or stopping. Takes the backend's lock, updates the algorithm, moves its queue when it is not
    /// usable any more, and hands slots to those who wait when it is again. `None` when nothing changed, or the server was
    /// removed.
    pub fn set_health(&self, health: HealthState, now: Instant) -> Option<Transition> {
        self.backend.upgrade()?.set_health(self, health, now)
    }

    /// Its agent holds it down, or does so no more. As [`ServerState::set_health`].
    pub fn hold(&self, is_held: bool, now: Instant) -> Option<Transition> {
        self.backend.upgrade()?.hold(self, is_held, now)
    }

    /// Marks it as an operator says, who has the last word until the next check and the next response of its agent. As
    /// [`ServerState::set_health`].
    pub fn force_health(&self, health: HealthState, is_held: bool, now: Instant) -> Option<Transition> {
        self.backend.upgrade()?.force_health(self, health, is_held, now)
    }

    /// Sets the administrative state. Takes the backend's lock, updates the algorithm and the queues as [`ServerState::set_health`] does.
    pub fn set_admin(&self, admin: Admin, now: Instant) -> Option<Transition> {
        self.backend.upgrade()?.set_admin(self, admin, now)
    }

    /// Sets the weight (0 to 256), for the change path: a reload sets what is in force then.
    pub fn set_weight(&self, weight: u32, now: Instant) {
        if let Some(backend) = self.backend.upgrade() {
            backend.set_weight(self, weight, now);
        }
    }

    /// A report of the request path for `observe`. Cheap when nothing is observed: one relaxed load.
    pub fn report(&self, observed: Observed) {
        let Some(counts) = self.observed.get() else { return };
        let limit = counts.limit.load(Ordering::Relaxed);
        if limit == 0 {
            return;
        }
        let layer7 = counts.layer7.load(Ordering::Relaxed);
        let bad = match (observed, layer7) {
            (Observed::Connected, true) => return,
            (Observed::Answered | Observed::AnswerFailed | Observed::BadStatus, false) => return,
            (Observed::Connected, false) | (Observed::Answered, true) => false,
            (Observed::ConnectFailed, _) | (Observed::AnswerFailed | Observed::BadStatus, true) => true,
        };
        if !bad {
            counts.good.fetch_add(1, Ordering::Relaxed);
            counts.bad_in_row.store(0, Ordering::Relaxed);
            return;
        }
        counts.bad.fetch_add(1, Ordering::Relaxed);
        let kind = match observed {
            Observed::AnswerFailed => 1,
            Observed::BadStatus => 2,
            Observed::Connected | Observed::ConnectFailed | Observed::Answered => 0,
        };
        counts.last_bad.store(kind, Ordering::Relaxed);
        if counts.bad_in_row.fetch_add(1, Ordering::AcqRel) + 1 >= limit {
            counts.bad_in_row.store(0, Ordering::Relaxed);
            counts.notify.notify_one();
        }
    }

    /// Sets what is observed: `error-limit` errors in a row end [`error_limit_reached`](Self::error_limit_reached); 0
    /// observes nothing. `layer7`: responses count too.
    pub fn observe(&self, limit: u32, layer7: bool) {
        if limit == 0 && self.observed.get().is_none() {
            return;
        }
        let observed = self.observed.get_or_init(Box::default);
        observed.layer7.store(layer7, Ordering::Relaxed);
        observed.limit.store(limit, Ordering::Relaxed);
    }

    /// Waits until `error-limit` errors in a row were reported. For one task, the health checker's.
    pub async fn error_limit_reached(&self) {
        self.observed.get_or_init(Box::default).notify.notified().await;
    }

    /// Good and bad reports so far.
    pub fn observed(&self) -> (u64, u64) {
        let Some(observed) = self.observed.get() else { return (0, 0) };
        (observed.good.load(Ordering::Relaxed), observed.bad.load(Ordering::Relaxed))
    }

    /// The last error that was reported.
    pub fn observed_last(&self) -> Observed {
        match self.observed.get().map_or(0, |observed| observed.last_bad.load(Ordering::Relaxed)) {
            1 => Observed::AnswerFailed,
            2 => Observed::BadStatus,
            _ => Observed::ConnectFailed,
        }
    }

    /// The server's part of [`BackendState::clear`]; under the backend's lock.
    pub(super) fn clear(&self, all: bool) {
        self.served_max.store(self.served(), Ordering::Relaxed);
        self.queued_max.store(self.queued(), Ordering::Relaxed);
        if all {
            self.total.store(0, Ordering::Relaxed);
            let mut notes = self.notes();
            (notes.downs, notes.down_time) = (0, Duration::ZERO);
            if let Some(check) = &mut notes.check {
                check.failed = 0;
            }
        }
    }

    pub(super) fn store_health(&self, health: HealthState) {
        self.checked.store(health as u8, Ordering::Relaxed);
        self.store_hold(self.is_held());
    }

    pub(super) fn store_hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
        let health = if is_held { HealthState::Down } else { self.checked_health() };
        self.health.store(health as u8, Ordering::Relaxed);
    }

    pub(super) fn store_admin(&self, admin: Admin) {
        self.admin.store(admin.bits(), Ordering::Relaxed);
    }

    /// All sessions on it have to end.
    pub(super) fn cut_sessions(&self) {
        self.cuts.fetch_add(1, Ordering::AcqRel);
        self.cut_notify.notify_waiters();
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ServerState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServerState")
            .field("name", &self.name)
            .field("health", &self.health())
            .field("admin", &self.admin())
            .field("served", &self.served())
            .field("queued", &self.queued())
            .finish_non_exhaustive()
    }
}
