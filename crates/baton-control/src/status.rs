//! How things are, for `baton status` and SIGHUP.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_kernel::output::losses;
use baton_kernel::panics;
use baton_kernel::process::usage;
use baton_proxy::balance::{HealthState, ServerState};
use baton_proxy::{BackendPlan, Counter, CounterBlock, FrontendPlan};

use crate::certificates::{Census, wall_seconds};
use crate::control::Control;
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
        status.frontends = generation.frontends.iter().map(|plan| frontend(plan)).collect();
        status.backends = backends(line).iter().map(|plan| backend(plan)).collect();
    }
    status
}

fn lossy_targets() -> Vec<LossyTarget> {
    let lossy = losses::all().into_iter().filter(|losses| losses.lost() > 0);
    lossy.map(|one| LossyTarget { target: one.name().into(), lost: one.lost(), reason: one.reason() }).collect()
}

fn frontend(plan: &FrontendPlan) -> Figures {
    Figures {
        name: plan.proxy.name.to_string(),
        status: "OPEN".into(),
        open: plan.state.open.load(Ordering::Relaxed),
        open_max: plan.state.open_max.load(Ordering::Relaxed),
        counters: counters(&plan.state.counters),
        servers: Vec::new(),
    }
}

fn backend(plan: &BackendPlan) -> Figures {
    let is_up = plan.state.active() + plan.state.backups() > 0;
    Figures {
        name: plan.proxy.name.to_string(),
        status: if is_up || plan.proxy.servers.is_empty() { "UP" } else { "DOWN" }.into(),
        open: plan.figures.open.load(Ordering::Relaxed),
        open_max: plan.figures.open_max.load(Ordering::Relaxed),
        counters: counters(&plan.figures.counters),
        servers: plan.state.servers().iter().map(|state| server(plan, state)).collect(),
    }
}

fn server(plan: &BackendPlan, state: &ServerState) -> Figures {
    Figures {
        name: state.name().to_string(),
        status: server_status(state).into(),
        open: i64::from(state.served()),
        open_max: i64::from(state.served_max()),
        counters: plan.servers.get(state.name()).map(|server| counters(&server.counters)).unwrap_or_default(),
        servers: Vec::new(),
    }
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
