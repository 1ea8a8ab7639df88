//! Lines of backends and their servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use baton_health::agent_health;
use baton_model::{Address, Algorithm, Mode, Observe, Proxy, Server, ServerTarget};
use baton_proxy::balance::{CheckReport, HealthState, ServerState};
use baton_proxy::{BackendPlan, Counter, CounterBlock, Generation};

use super::frontend::{HTTP2, TLS, address};
use super::table::SERVERS_TOGETHER;
use super::{Column, ObjectKind, RESPONSES, StatFilter, StatRow, TRAFFIC};
use crate::control::Control;
use crate::operators::figures::{self, ObjectKey, ObjectSample};
use crate::runtime::field::Value;

/// The longest chain of servers that track servers.
const TRACKED_MAX: usize = 16;
/// Counters of backends and servers.
const COUNTED: &[(Column, Counter)] = &[
    (Column::Stot, Counter::Sessions),
    (Column::Dresp, Counter::DeniedResponses),
    (Column::Eint, Counter::InternalErrors),
    (Column::Econ, Counter::ConnectErrors),
    (Column::Eresp, Counter::ResponseErrors),
    (Column::Wretr, Counter::Retries),
    (Column::Wredis, Counter::Redispatches),
    (Column::Wrew, Counter::FailedRewrites),
    (Column::CliAbrt, Counter::ClientAborts),
    (Column::SrvAbrt, Counter::ServerAborts),
    (Column::Lbtot, Counter::Chosen),
    (Column::Connect, Counter::Connects),
    (Column::Reuse, Counter::Reuses),
];

/// A line for each of some servers, from that place on, and the backend's with the last of them. Gives the place to go on from.
pub(super) fn lines(
    (control, generation): (&Control, &Generation),
    wanted: &StatFilter,
    proxy: &Arc<Proxy>,
    (from, now): (usize, Instant),
    out: &mut Vec<StatRow>,
) -> Option<usize> {
    let plan = generation.backends.get(&proxy.name)?;
    let states = plan.state.servers();
    let end = states.len().min(from.saturating_add(SERVERS_TOGETHER));
    if wanted.takes(ObjectKind::Server) {
        for state in states.get(from..end).unwrap_or_default() {
            let config = state.config();
            let is_left_out = (wanted.is_up && !state.is_running())
                || (wanted.no_maintenance && state.admin().in_maintenance())
                || !wanted.takes_id(config.id);
            if !is_left_out {
                out.push(server(control, wanted, plan, state, &config, now));
            }
        }
    }
    if end < states.len() {
        return Some(end);
    }
    if wanted.takes(ObjectKind::Backend) {
        out.push(backend(control, wanted, plan, &states, now));
    }
    None
}

fn common(
    control: &Control,
    line: &mut StatRow,
    key: &ObjectKey,
    counters: &CounterBlock,
    is_http: bool,
    now: Instant,
) {
    use Column::{Ctime, CtimeMax, Qtime, QtimeMax, Rtime, RtimeMax, Ttime, TtimeMax};
    let seen = ObjectSample::of(&control.line.runtime().rates, key, figures::of_backend(counters), now);
    let (rate, rate_max) = seen.sessions();
    line.set(Column::Rate, Value::count(rate));
    line.set(Column::RateMax, Value::count(rate_max));
    line.set(Column::Lastsess, Value::S32(seen.last_session()));
    let longest = counters.times().longest;
    for (column, average) in [Qtime, Ctime, Rtime, Ttime].into_iter().zip(seen.averages()) {
        line.set(column, Value::U32(average));
    }
    for (column, longest) in [QtimeMax, CtimeMax, RtimeMax, TtimeMax].into_iter().zip(longest) {
        line.set(column, Value::count(longest));
    }
    line.count(counters, TRAFFIC);
    line.count(counters, COUNTED);
    line.count(counters, TLS);
    if is_http {
        line.count(counters, RESPONSES);
        line.count(counters, &[(Column::ReqTot, Counter::Requests)]);
    }
}

/// The backend's line.
pub(super) fn backend(
    control: &Control,
    wanted: &StatFilter,
    plan: &BackendPlan,
    states: &[Arc<ServerState>],
    now: Instant,
) -> StatRow {
    let (proxy, state) = (&plan.proxy, &plan.state);
    let is_http = proxy.mode == Mode::Http;
    let (active, backups) = (state.active(), state.backups());
    let mut line = StatRow::new(ObjectKind::Backend, proxy, "BACKEND", 0);
    let key = ObjectKey::Backend(proxy.name.clone());
    common(control, &mut line, &key, &plan.figures.counters, is_http, now);
    line.zero_proxy(is_http);
    line.count(&plan.figures.counters, TLS);
    if is_http {
        let total = |counter| plan.figures.counters.total(counter);
        let requests = total(Counter::Connects) + total(Counter::Reuses);
        let others = |all: u64, ours| Value::U64(all.saturating_sub(total(ours)));
        line.set(Column::H1TotalConnections, others(total(Counter::Connects), Counter::Http2Connections));
        line.set(Column::H1TotalStreams, others(requests, Counter::Http2Streams));
        // Of the type that frontends have, and HAProxy.
        let gauge = |gauge: &AtomicI64| Value::U64(u64::try_from(gauge.load(Ordering::Relaxed)).unwrap_or_default());
        line.set(Column::H2OpenConnections, gauge(&plan.figures.http2_open));
        line.set(Column::H2BackendOpenStreams, gauge(&plan.figures.http2_streams));
        line.count(&plan.figures.counters, HTTP2);
    }
    let word = if active + backups > 0 || states.is_empty() { "UP" } else { "DOWN" };
    let status = match wanted.is_up || wanted.no_maintenance {
        true => format!("{word} ({}/{})", active + backups, states.len()),
        false => word.to_owned(),
    };
    line.set(Column::Status, Value::text(status));
    line.set(Column::Qcur, Value::U32(state.waiting()));
    line.set(Column::Qmax, Value::U32(state.waiting_max()));
    line.set(Column::Scur, Value::gauge(plan.figures.open.load(Ordering::Relaxed)));
    line.set(Column::Smax, Value::gauge(plan.figures.open_max.load(Ordering::Relaxed)));
    line.set(Column::Slim, Value::U32(plan.fullconn));
    line.count(&plan.figures.counters, &[(Column::Dreq, Counter::DeniedRequests)]);
    let takes_part = |server: &&Arc<ServerState>| server.is_usable() && server.config().backup == (active == 0);
    let usable = states.iter().filter(takes_part);
    let sum = |weight: fn(&ServerState) -> u32| usable.clone().map(|server| weight(server)).sum::<u32>();
    line.set(Column::Weight, Value::U32(sum(weight)));
    line.set(Column::Uweight, Value::U32(sum(ServerState::weight)));
    line.set(Column::Act, Value::U32(active));
    line.set(Column::Bck, Value::U32(backups));
    let outages = state.outages_until(now);
    line.set(Column::Chkdown, Value::U64(outages.downs));
    line.set(Column::Lastchg, seconds(now.saturating_duration_since(outages.changed)));
    if !states.is_empty() {
        line.set(Column::Downtime, seconds(outages.down_time));
    }
    use Column::{AggCheckStatus, AggServerCheckStatus, AggServerStatus};
    line.zero(&[AggServerStatus, AggServerCheckStatus, AggCheckStatus]);
    if wanted.shows_places {
        line.set(Column::Cookie, proxy.cookie.as_ref().map_or(Value::None, |cookie| Value::text(&*cookie.name)));
        line.set(Column::Algo, Value::text(algorithm(&proxy.balance.algorithm)));
    }
    line
}

pub(super) fn server(
    control: &Control,
    wanted: &StatFilter,
    plan: &BackendPlan,
    state: &ServerState,
    config: &Server,
    now: Instant,
) -> StatRow {
    let is_http = plan.proxy.mode == Mode::Http;
    let mut line = StatRow::new(ObjectKind::Server, &plan.proxy, state.name(), config.id);
    if let Some(server) = plan.servers.get(state.name()) {
        let key = ObjectKey::Server(plan.proxy.name.clone(), state.name().clone());
        common(control, &mut line, &key, &server.counters, is_http, now);
        // As HAProxy counts: every attempt is a session of the server.
        let attempts = server.counters.total(Counter::Sessions) + server.counters.total(Counter::Retries);
        line.set(Column::Stot, Value::U64(attempts));
    }
    let limit = |limit: u32| if limit == 0 { Value::None } else { Value::U32(limit) };
    line.set(Column::Status, Value::text(status(control, plan, state, config)));
    line.set(Column::Qcur, Value::U32(state.queued()));
    line.set(Column::Qmax, Value::U32(state.queued_max()));
    line.set(Column::Qlimit, limit(config.maxqueue));
    line.set(Column::Scur, Value::U32(state.served()));
    line.set(Column::Smax, Value::U32(state.served_max()));
    line.set(Column::Slim, limit(config.maxconn));
    line.set(Column::Weight, Value::U32(weight(state)));
    line.set(Column::Uweight, Value::U32(state.weight()));
    line.set(Column::Act, Value::U32((!config.backup).into()));
    line.set(Column::Bck, Value::U32(config.backup.into()));
    line.set(Column::Lastchg, seconds(now.saturating_duration_since(state.changed())));
    line.set(Column::Throttle, state.throttle().map_or(Value::None, Value::U32));
    line.set(
        Column::Tracked,
        config.check.track.as_deref().map_or(Value::None, |track| Value::text(tracked_name(&plan.proxy.name, track))),
    );
    if config.check.enabled {
        checks(&mut line, state, config, &state.check_report(), now);
    }
    if config.has_running_agent() {
        agent(&mut line, state);
    }
    if config.check.observe != Observe::None {
        line.set(Column::Hanafail, Value::U64(0));
    }
    use Column::{IdleConnCur, NeedConnEst, SafeConnCur, SrvIcur, UsedConnCur};
    line.zero(&[IdleConnCur]);
    let idle = plan.servers.get(state.name()).map_or(0, |server| server.counters.idle().sum());
    line.set(SrvIcur, Value::count(idle));
    line.set(SafeConnCur, Value::count(idle));
    line.set(UsedConnCur, Value::U32(state.served()));
    line.set(NeedConnEst, Value::U32(state.served()));
    if let Ok(most) = u32::try_from(config.pool_max_conn) {
        line.set(Column::SrcIlim, Value::U32(most));
    }
    if wanted.shows_places {
        let place = match &config.address.target {
            // Its port is each service's.
            ServerTarget::Fixed(Address::Inet(address)) if plan.proxy.mode == Mode::Direct && address.port() == 0 => {
                Value::text(address.ip().to_string())
            }
            ServerTarget::Fixed(Address::Inet(inet)) | ServerTarget::ClientDestination(inet) => {
                let port = config.address.service_port() as i32;
                Value::text(if inet.is_ipv6() {
                    format!("[{}]:{port}", inet.ip())
                } else {
                    format!("{}:{port}", inet.ip())
                })
            }
            ServerTarget::Fixed(place) => address(place),
            ServerTarget::Unresolved { .. } => Value::None,
        };
        line.set(Column::Addr, place);
        line.set(Column::Cookie, state.cookie().map_or(Value::None, |cookie| Value::text(&*cookie)));
    }
    line
}

/// What checks found.
fn checks(line: &mut StatRow, state: &ServerState, config: &Server, report: &CheckReport, now: Instant) {
    line.set(Column::Chkfail, Value::U64(report.failed));
    line.set(Column::Chkdown, Value::U64(state.downs()));
    line.set(Column::Downtime, seconds(state.down_time(now)));
    if state.admin().in_maintenance() {
        return;
    }
    let is_first = report.status.is_empty();
    line.set(Column::CheckStatus, Value::text(if is_first { "INI" } else { report.status }));
    line.set(Column::CheckDesc, Value::text(if is_first { "Initializing" } else { report.description }));
    line.set(Column::CheckRise, Value::U32(config.check.rise));
    line.set(Column::CheckFall, Value::U32(config.check.fall));
    let up = if state.health() == HealthState::Down { 0 } else { config.check.rise };
    line.set(Column::CheckHealth, Value::U32(if is_first { up } else { report.health }));
    if !is_first {
        line.set(Column::CheckDuration, Value::U64(u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX)));
        line.set(Column::CheckCode, report.code.map_or(Value::None, |code| Value::U32(code.into())));
        line.set(Column::LastChk, Value::text(&*report.info));
    }
}

/// What its agent said last.
fn agent(line: &mut StatRow, state: &ServerState) {
    let report = state.agent_report();
    let is_first = report.status.is_empty();
    line.set(Column::AgentStatus, Value::text(if is_first { "INI" } else { report.status }));
    line.set(Column::AgentDesc, Value::text(if is_first { "Initializing" } else { report.description }));
    line.set(Column::AgentRise, Value::U32(1));
    line.set(Column::AgentFall, Value::U32(1));
    line.set(Column::AgentHealth, Value::U32(agent_health(&report)));
    if !is_first {
        line.set(Column::AgentDuration, Value::U64(u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX)));
        line.set(Column::AgentCode, report.code.map_or(Value::None, |code| Value::U32(code.into())));
        line.set(Column::LastAgt, Value::text(&*report.info));
    }
}

/// The words of the status column: what it is, and the way it is on after a check that disagrees. Of one that tracks another server, those are
/// that one's checks and agent.
fn status(control: &Control, plan: &BackendPlan, state: &ServerState, config: &Server) -> String {
    let admin = state.admin();
    if admin.unresolved {
        return "MAINT (resolution)".into();
    }
    if admin.maintenance || admin.maintenance_inherited {
        return match config.check.track.as_deref().filter(|_| admin.maintenance_inherited) {
            Some(track) => format!("MAINT (via {})", tracked_name(&plan.proxy.name, track)),
            None => "MAINT".into(),
        };
    }
    let Some((decisive, its_config)) = decisive(control, plan, config) else {
        return unmaintained(state, state, config);
    };
    unmaintained(state, &decisive, &its_config)
}

/// The words of a server that is not in maintenance, by the checks and the agent of this one.
fn unmaintained(state: &ServerState, decisive: &ServerState, config: &Server) -> String {
    let report = decisive.check_report();
    let is_checked = config.check.enabled;
    let (health, rise, fall) = match report.status.is_empty() {
        true => (config.check.rise, config.check.rise, config.check.fall),
        false => (report.health, report.rise, report.fall),
    };
    let most = (rise + fall).saturating_sub(1);
    let has_agent = config.has_running_agent();
    let is_draining = state.admin().is_draining();
    let word = match state.health() {
        HealthState::Down if has_agent && agent_health(&decisive.agent_report()) == 0 => return "DOWN (agent)".into(),
        HealthState::Down if is_checked && health > 0 => return format!("DOWN {health}/{rise}"),
        HealthState::Down => return "DOWN".into(),
        HealthState::Stopping => "NOLB",
        HealthState::Up if is_draining && has_agent => return "DRAIN (agent)".into(),
        HealthState::Up if is_draining => "DRAIN",
        HealthState::Up if !is_checked => return "no check".into(),
        HealthState::Up => "UP",
    };
    match is_checked && health < most {
        true => format!("{word} {}/{fall}", (health + 1).saturating_sub(rise)),
        false => word.into(),
    }
}

/// The server at the end of those that a server tracks; `None`: it tracks none.
fn decisive(control: &Control, plan: &BackendPlan, config: &Server) -> Option<(Arc<ServerState>, Arc<Server>)> {
    let mut backend = Arc::clone(&plan.proxy.name);
    let mut track = config.check.track.clone()?;
    for _ in 0..TRACKED_MAX {
        let (name, server) = match track.split_once('/') {
            Some((name, server)) => (Arc::from(name), server),
            None => (Arc::clone(&backend), &*track),
        };
        let state = control.line.generation()?.backends.get(&name)?.state.server(server)?;
        let config = state.config();
        match &config.check.track {
            None => return Some((state, config)),
            Some(next) => (backend, track) = (name, next.clone()),
        }
    }
    None
}

/// The weight in use: less than its own while it starts slowly.
fn weight(state: &ServerState) -> u32 {
    if state.is_usable() { state.effective_weight().min(state.weight()) } else { state.weight() }
}

/// The tracked server with its backend.
fn tracked_name(backend: &str, track: &str) -> String {
    if track.contains('/') { track.to_owned() } else { format!("{backend}/{track}") }
}

fn seconds(time: std::time::Duration) -> Value {
    Value::count(time.as_secs())
}

/// The word of the column; HAProxy 2.6 has none for the others.
fn algorithm(algorithm: &Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RoundRobin => "roundrobin",
        Algorithm::StaticRr => "static-rr",
        Algorithm::LeastConn => "leastconn",
        Algorithm::First => "first",
        Algorithm::Source => "source",
        Algorithm::Uri(_) => "uri",
        Algorithm::UrlParam { .. } => "url_param",
        Algorithm::Hdr { .. } => "hdr",
        Algorithm::RdpCookie(_) => "rdp-cookie",
        Algorithm::Hash(_) => "hash",
        Algorithm::Random { .. } => "unknown",
    }
}
