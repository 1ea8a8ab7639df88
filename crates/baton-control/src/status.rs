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
        refused: line.refused,
        stopping: control.is_stopping(),
        uptime_ms: u64::try_from(line.registry.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        cores: line.registry.cores(),
        connections: control.workers.open_connections(),
        descriptors: usage::open_descriptors().unwrap_or_default() as u64,
        resident_bytes: usage::resident_bytes().unwrap_or_default(),
        files: control.settings.options.files.clone(),
        listeners: line.listeners.addresses(),
        listeners_leaving: line.listeners.leaving_count(),
        pending: line.pending(),
        overrides: overrides::records(&line.registry.overrides()),
        log_targets: lossy_targets(),
        panics: panics::count(),
        ..Status::default()
    };
    let census = Census::of(&line.store, wall_seconds());
    status.certificates = Expiring {
        all: census.all,
        expired: census.expired.count,
        within_7_days: census.week.count,
        within_30_days: census.month.count,
    };
    if let Some(generation) = &line.generation {
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
    let Some(generation) = &line.generation else { return Vec::new() };
    line.model.proxies.iter().filter_map(|proxy| generation.backends.get(&proxy.name)).cloned().collect()
}

/// What SIGHUP shows: a line for each server and each proxy, in HAProxy's words, with the proxy it is about.
pub(crate) fn dump(line: &ChangeLine) -> Vec<(Arc<str>, String)> {
    let mut lines = Vec::new();
    let Some(generation) = &line.generation else { return lines };
    for proxy in &line.model.proxies {
        let frontend = generation.frontend(&proxy.name).filter(|_| proxy.role.is_frontend());
        let backend = generation.backends.get(&proxy.name).filter(|_| proxy.role.is_backend());
        for state in backend.map(|plan| plan.state.servers()).unwrap_or_default() {
            let is_up = state.health() != HealthState::Down && !state.admin().in_maintenance();
            let text = format!(
                "SIGHUP: Server {}/{} is {}. Conn: {} act, {} pend, {} tot.",
                proxy.name,
                state.name(),
                if is_up { "UP" } else { "DOWN" },
                state.served(),
                state.queued(),
                state.total(),
            );
            lines.push((proxy.name.clone(), text));
        }
        let text = proxy_line(&proxy.name, frontend.map(|plan| &**plan), backend.map(|plan| &**plan));
        lines.push((proxy.name.clone(), text));
    }
    lines
}

fn proxy_line(name: &str, frontend: Option<&FrontendPlan>, backend: Option<&BackendPlan>) -> String {
    let state = match backend.filter(|plan| !plan.proxy.servers.is_empty()) {
        None => "has no servers".to_owned(),
        Some(plan) => match (plan.state.active(), plan.state.backups()) {
            (0, 0) => "has no server available !".to_owned(),
            (active, backups) => format!("has {active} active servers and {backups} backup servers available"),
        },
    };
    let stop = if state.ends_with('!') { "" } else { "." };
    let open = |value: Option<i64>| value.unwrap_or_default();
    let front_open = open(frontend.map(|plan| plan.state.open.load(Ordering::Relaxed)));
    let back_open = open(backend.map(|plan| plan.figures.open.load(Ordering::Relaxed)));
    let (queued, waiting) = backend.map_or((0, 0), |plan| (plan.state.queued(), plan.state.waiting()));
    let front_total = frontend.map_or(0, |plan| plan.state.counters.total(Counter::Connections));
    let back_total = backend.map_or(0, |plan| plan.figures.counters.total(Counter::Sessions));
    format!(
        "SIGHUP: Proxy {name} {state}{stop} Conn: act(FE+BE): {front_open}+{back_open}, {queued} pend ({waiting} unass), \
         tot(FE+BE): {front_total}+{back_total}."
    )
}

/// What a soft stop says of each proxy, in HAProxy's words.
pub(crate) fn stopped(line: &ChangeLine) -> Vec<(Arc<str>, String)> {
    let Some(generation) = &line.generation else { return Vec::new() };
    let say = |proxy: &Arc<baton_model::Proxy>| {
        let front = generation.frontend(&proxy.name).filter(|_| proxy.role.is_frontend());
        let back = generation.backends.get(&proxy.name).filter(|_| proxy.role.is_backend());
        let front = front.map_or(0, |plan| plan.state.counters.total(Counter::Connections));
        let back = back.map_or(0, |plan| plan.figures.counters.total(Counter::Sessions));
        let text = format!("Proxy {} stopped (cumulated conns: FE: {front}, BE: {back}).", proxy.name);
        (proxy.name.clone(), text)
    };
    line.model.proxies.iter().filter(|proxy| !proxy.disabled).map(say).collect()
}
