//! What SIGHUP and a soft stop say of proxies and servers, in HAProxy's words.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_proxy::balance::HealthState;
use baton_proxy::{BackendPlan, Counter, FrontendPlan};

use crate::reload::ChangeLine;

/// What SIGHUP shows: a line for each server and each proxy, in HAProxy's words, with the proxy it is about.
pub(crate) fn dump(line: &ChangeLine) -> Vec<(Arc<str>, String)> {
    let mut lines = Vec::new();
    let Some(generation) = line.generation() else { return lines };
    for proxy in &line.model().proxies {
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
    let Some(generation) = line.generation() else { return Vec::new() };
    let say = |proxy: &Arc<baton_model::Proxy>| {
        let front = generation.frontend(&proxy.name).filter(|_| proxy.role.is_frontend());
        let back = generation.backends.get(&proxy.name).filter(|_| proxy.role.is_backend());
        let front = front.map_or(0, |plan| plan.state.counters.total(Counter::Connections));
        let back = back.map_or(0, |plan| plan.figures.counters.total(Counter::Sessions));
        let text = format!("Proxy {} stopped (cumulated conns: FE: {front}, BE: {back}).", proxy.name);
        (proxy.name.clone(), text)
    };
    line.model().proxies.iter().filter(|proxy| !proxy.disabled).map(say).collect()
}
