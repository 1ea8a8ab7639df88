//! How things are, for `baton status` and SIGHUP.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use baton_kernel::output::losses;
use baton_kernel::panics;
use baton_kernel::process::usage;
use baton_model::{Address, Field, Object, Overrides, StatsSocket};
use baton_proxy::balance::{CheckReport, HealthState, ServerState};
use baton_proxy::moving::MoveCount;
use baton_proxy::{BackendPlan, Counter, CounterBlock, FrontendPlan};

use crate::certificates::{Census, wall_seconds};
use crate::control::Control;
use crate::operators::figures::{self, ObjectKey, ObjectSample};
use crate::operators::rates::Counted;
use crate::overrides;
use crate::protocol::{Expiring, Figures, LossyTarget, Status};
use crate::reload::ChangeLine;

/// Everything `baton status` shows.
pub(crate) fn status(control: &Control) -> Status {
    let line = &control.line;
    let mut status = Status {
        pid: std::process::id(),
        id: control.socket.id.clone(),
        version: control.settings.version.clone(),
        generation: line.number(),
        refused: line.refused(),
        stopping: control.is_stopping(),
        uptime_ms: u64::try_from(line.registry().started.elapsed().as_millis()).unwrap_or(u64::MAX),
        cores: line.registry().cores(),
        connections: control.workers.open_connections(),
        descriptors: usage::open_descriptors().unwrap_or_default() as u64,
        resident_bytes: usage::resident_bytes().unwrap_or_default(),
        files: control.settings.options.files.clone(),
        listeners: line.listeners().addresses(),
        listeners_leaving: line.listeners().leaving_count(),
        pending: line.pending(),
        overrides: overrides::records(&line.registry().overrides()),
        log_targets: lossy_targets(),
        panics: panics::count(),
        stats_sockets: stats_sockets(line),
        last_refused: line.last_refused().map(str::to_owned),
        connections_arrived: line.registry().moves.of_process(MoveCount::ClientsIn),
        connections_departed: line.registry().moves.of_process(MoveCount::ClientsOut),
        server_connections_arrived: line.registry().moves.of_process(MoveCount::ServersIn),
        server_connections_departed: line.registry().moves.of_process(MoveCount::ServersOut),
        connections_staying: control.staying(),
        changes: control.history.changes().cloned().collect(),
        ..Status::default()
    };
    let census = Census::of(&line.store(), wall_seconds());
    status.certificates = Expiring {
        all: census.all,
        expired: census.expired.count,
        within_7_days: census.week.count,
        within_30_days: census.month.count,
    };
    if let Some(generation) = line.generation() {
        status.maxconn = generation.maxconn;
        let (now, overrides) = (Instant::now(), line.registry().overrides());
        status.frontends = generation.frontends.iter().map(|plan| frontend(line, plan, now)).collect();
        let backends = backends(line);
        status.backends = backends.iter().map(|plan| backend(line, &overrides, plan, now)).collect();
        let open: i64 = status.frontends.iter().map(|figures| figures.open).sum();
        status.connections_leaving = status.connections.saturating_sub(usize::try_from(open).unwrap_or_default());
        let servers = backends.iter().flat_map(|plan| plan.state.servers());
        status.sessions_elsewhere = servers.map(|server| u64::from(server.elsewhere())).sum();
    }
    status
}

fn stats_sockets(line: &ChangeLine) -> Vec<String> {
    let mut sockets = line.runtime().sockets();
    sockets.sort_by_key(|socket| std::cmp::Reverse(socket.level));
    let address = |socket: &StatsSocket| match &socket.bind.address {
        Address::Unix(path) => Some(path.display().to_string()),
        Address::Inet(address) => Some(address.to_string()),
        Address::Abstract(_) | Address::Fd(_) => None,
    };
    sockets.iter().filter_map(address).collect()
}

fn lossy_targets() -> Vec<LossyTarget> {
    let lossy = losses::all().into_iter().filter(|losses| losses.lost() > 0);
    lossy.map(|one| LossyTarget { target: one.name().into(), lost: one.lost(), reason: one.reason() }).collect()
}

fn frontend(line: &ChangeLine, plan: &FrontendPlan, now: Instant) -> Figures {
    let key = ObjectKey::Frontend(plan.proxy.name.clone());
    Figures {
        name: plan.proxy.name.to_string(),
        status: "OPEN".into(),
        open: plan.state.open.load(Ordering::Relaxed),
        open_max: plan.state.open_max.load(Ordering::Relaxed),
        counters: counters(&plan.state.counters),
        rate: rate(line, &key, figures::of_frontend(&plan.state.counters), now),
        ..Figures::default()
    }
}

fn backend(line: &ChangeLine, overrides: &Overrides, plan: &BackendPlan, now: Instant) -> Figures {
    let is_up = plan.state.active() + plan.state.backups() > 0;
    let key = ObjectKey::Backend(plan.proxy.name.clone());
    let servers = plan.state.servers();
    Figures {
        name: plan.proxy.name.to_string(),
        status: if is_up || plan.proxy.servers.is_empty() { "UP" } else { "DOWN" }.into(),
        open: plan.figures.open.load(Ordering::Relaxed),
        open_max: plan.figures.open_max.load(Ordering::Relaxed),
        counters: counters(&plan.figures.counters),
        since_s: Some(now.saturating_duration_since(plan.state.outages_until(now).changed).as_secs()),
        queued: plan.state.queued(),
        rate: rate(line, &key, figures::of_backend(&plan.figures.counters), now),
        servers: servers.iter().map(|state| server(line, overrides, plan, state, now)).collect(),
        ..Figures::default()
    }
}

fn server(line: &ChangeLine, overrides: &Overrides, plan: &BackendPlan, state: &ServerState, now: Instant) -> Figures {
    let key = ObjectKey::Server(plan.proxy.name.clone(), state.name().clone());
    let counted = plan.servers.get(state.name());
    Figures {
        name: state.name().to_string(),
        status: server_status(state).into(),
        open: i64::from(state.served()),
        open_max: i64::from(state.served_max()),
        counters: counted.map(|server| counters(&server.counters)).unwrap_or_default(),
        reason: reason(overrides, plan, state),
        since_s: Some(now.saturating_duration_since(state.changed()).as_secs()),
        queued: state.queued(),
        rate: counted.and_then(|server| rate(line, &key, figures::of_backend(&server.counters), now)),
        ..Figures::default()
    }
}

/// Sessions in the last second, where they are measured.
fn rate(line: &ChangeLine, key: &ObjectKey, counted: Counted, now: Instant) -> Option<u64> {
    let runtime = line.runtime();
    runtime.due().map(|_| ObjectSample::of(&runtime.rates, key, counted, now).sessions().0)
}

/// Why a server is not up.
fn reason(overrides: &Overrides, plan: &BackendPlan, state: &ServerState) -> String {
    let (config, admin) = (state.config(), state.admin());
    let operator = || {
        let object = Object::server(&plan.proxy.name, state.name());
        overrides.get(&object, Field::State).map(|set| format!("set by {}", set.by))
    };
    if admin.unresolved {
        return "its name does not resolve".into();
    }
    if admin.maintenance {
        return operator().unwrap_or_else(|| "disabled in the configuration".into());
    }
    if admin.maintenance_inherited {
        return format!("tracks {}", config.check.track.as_deref().unwrap_or_default());
    }
    match state.health() {
        HealthState::Up if admin.drain => operator().unwrap_or_default(),
        HealthState::Up => String::new(),
        HealthState::Down | HealthState::Stopping => match config.check.track.as_deref() {
            Some(track) => format!("tracks {track}"),
            None => checked(&state.check_report()),
        },
    }
}

/// What the last health check found.
fn checked(report: &CheckReport) -> String {
    let code = report.code.map(|code| format!(", status {code}")).unwrap_or_default();
    let info = if report.info.is_empty() { String::new() } else { format!(" ({})", report.info) };
    format!("{}{code}{info}", report.description)
}

/// The words of HAProxy's `status` column.
fn server_status(state: &ServerState) -> &'static str {
    let config = state.config();
    if state.admin().in_maintenance() {
        return "MAINT";
    }
    match state.health() {
        HealthState::Down => "DOWN",
        HealthState::Stopping => "NOLB",
        HealthState::Up if state.admin().is_draining() => "DRAIN",
        HealthState::Up if !config.check.enabled && config.check.track.is_none() => "no check",
        HealthState::Up => "UP",
    }
}

fn counters(block: &CounterBlock) -> std::collections::BTreeMap<String, u64> {
    let total = |(counter, name): &(Counter, &str)| ((*name).to_owned(), block.total(*counter));
    Counter::NAMED.iter().map(total).filter(|(_, total)| *total > 0).collect()
}

/// Backends in the order of the files.
fn backends(line: &ChangeLine) -> Vec<Arc<BackendPlan>> {
    let Some(generation) = line.generation() else { return Vec::new() };
    line.model().proxies.iter().filter_map(|proxy| generation.backends.get(&proxy.name)).cloned().collect()
}
