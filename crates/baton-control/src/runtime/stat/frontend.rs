//! Lines of frontends and their sockets.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use baton_model::{Address, Mode, Proxy};
use baton_proxy::{Counter, FrontendPlan, FrontendService, FrontendState, Generation, ListenerPlan};

use super::{Column, ObjectKind, RESPONSES, StatFilter, StatRow, TRAFFIC};
use crate::control::Control;
use crate::operators::figures::{self, ObjectKey, ObjectSample};
use crate::runtime::field::Value;

/// Where the sockets of each frontend stand in a generation's list, by the frontend's name.
pub(super) type Sockets = HashMap<Arc<str>, Range<usize>>;

/// The sockets of all frontends: those of one stand one after the other.
pub(super) fn sockets(generation: &Generation) -> Sockets {
    let mut sockets = Sockets::new();
    for (at, socket) in generation.listeners.iter().enumerate() {
        sockets.entry(Arc::clone(&socket.frontend.proxy.name)).or_insert(at..at).end = at + 1;
    }
    sockets
}

/// The frontend's line, and one for each of its sockets if `option socket-stats` keeps their figures.
pub(super) fn lines(
    (control, generation, sockets): (&Control, &Generation, &Sockets),
    wanted: &StatFilter,
    proxy: &Arc<Proxy>,
    now: Instant,
    out: &mut Vec<StatRow>,
) {
    let Some(plan) = generation.frontend(&proxy.name) else { return };
    if wanted.takes(ObjectKind::Frontend) {
        out.push(frontend(control, plan, generation.maxconn, now));
    }
    if wanted.takes(ObjectKind::Listener) && proxy.tcp.socket_stats {
        let own = sockets.get(&proxy.name).and_then(|range| generation.listeners.get(range.clone()));
        let mut sockets: Vec<_> = own.unwrap_or_default().iter().collect();
        sockets.sort_by_key(|socket| socket.number);
        let takes = |socket: &&&Arc<ListenerPlan>| wanted.takes_id(u32::try_from(socket.number).unwrap_or(u32::MAX));
        out.extend(sockets.iter().filter(takes).map(|socket| listener(control, wanted, socket)));
    }
}

pub(super) fn listener(control: &Control, wanted: &StatFilter, plan: &ListenerPlan) -> StatRow {
    let number = u32::try_from(plan.number).unwrap_or(u32::MAX);
    let name = plan.bind.name.clone().unwrap_or_else(|| format!("sock-{number}"));
    let mut line = StatRow::new(ObjectKind::Listener, &plan.frontend.proxy, &name, number);
    let counters = &plan.state.counters;
    line.set(Column::Status, Value::text(status(control, &plan.frontend.state)));
    line.set(Column::Scur, Value::gauge(plan.state.open.load(Ordering::Relaxed)));
    line.set(Column::Smax, Value::gauge(plan.state.open_max.load(Ordering::Relaxed)));
    line.set(Column::Slim, Value::U32(plan.bind.options.maxconn.unwrap_or_default()));
    line.count(counters, TRAFFIC);
    line.count(counters, REQUESTS);
    line.count(counters, &[(Column::Stot, Counter::Connections)]);
    line.count(counters, DENIED);
    if wanted.shows_places {
        line.set(Column::Addr, address(&plan.bind.address));
    }
    line
}

/// TLS with clients; for backends and servers, with servers.
pub(super) const TLS: &[(Column, Counter)] = &[
    (Column::SslSess, Counter::TlsSessions),
    (Column::SslReusedSess, Counter::TlsResumed),
    (Column::SslFailedHandshake, Counter::TlsFailures),
];

/// Counters of connections with HTTP/2.
pub(super) const HTTP2: &[(Column, Counter)] = &[
    (Column::H2HeadersRcvd, Counter::Http2Headers),
    (Column::H2DataRcvd, Counter::Http2Data),
    (Column::H2SettingsRcvd, Counter::Http2Settings),
    (Column::H2RstStreamRcvd, Counter::Http2Resets),
    (Column::H2GoawayRcvd, Counter::Http2GoAways),
    (Column::H2DetectedConnProtocolErrors, Counter::Http2ConnectionErrors),
    (Column::H2DetectedStrmProtocolErrors, Counter::Http2StreamErrors),
    (Column::H2RstStreamResp, Counter::Http2ResetsSent),
    (Column::H2GoawayResp, Counter::Http2GoAwaysSent),
    (Column::H2TotalConnections, Counter::Http2Connections),
    (Column::H2BackendTotalStreams, Counter::Http2Streams),
];

/// Counters of requests before they get to a backend.
const REQUESTS: &[(Column, Counter)] = &[
    (Column::Dreq, Counter::DeniedRequests),
    (Column::Dresp, Counter::DeniedResponses),
    (Column::Ereq, Counter::RequestErrors),
    (Column::Wrew, Counter::FailedRewrites),
    (Column::Eint, Counter::InternalErrors),
];

/// Connections and sessions that rules rejected.
const DENIED: &[(Column, Counter)] =
    &[(Column::Dcon, Counter::DeniedConnections), (Column::Dses, Counter::DeniedSessions)];

fn status(control: &Control, state: &FrontendState) -> &'static str {
    match state.service() {
        _ if control.is_stopping() => "STOP",
        FrontendService::Open => "OPEN",
        FrontendService::Paused => "PAUSED",
        FrontendService::Stopped => "STOP",
    }
}

pub(super) fn frontend(control: &Control, plan: &FrontendPlan, maxconn: u32, now: Instant) -> StatRow {
    let proxy = &plan.proxy;
    let is_http = proxy.mode == Mode::Http;
    let mut line = StatRow::new(ObjectKind::Frontend, proxy, "FRONTEND", 0);
    let counters = &plan.state.counters;
    line.set(Column::Status, Value::text(status(control, &plan.state)));
    line.set(Column::Scur, Value::gauge(plan.state.open.load(Ordering::Relaxed)));
    line.set(Column::Smax, Value::gauge(plan.state.open_max.load(Ordering::Relaxed)));
    line.set(Column::Slim, Value::U32(plan.state.maxconn.or(proxy.maxconn.unwrap_or(maxconn))));
    line.set(Column::RateLim, Value::U32(proxy.rate_limit.unwrap_or_default()));
    line.count(counters, TRAFFIC);
    line.count(counters, REQUESTS);
    line.count(counters, &[(Column::ConnTot, Counter::Connections)]);
    line.count(counters, DENIED);
    // What rules rejected never was a session.
    let denied = DENIED.iter().map(|(_, counter)| counters.total(*counter)).sum();
    line.set(Column::Stot, Value::U64(counters.total(Counter::Connections).saturating_sub(denied)));
    use Column::{ConnRate, ConnRateMax, Rate, RateMax, ReqRate, ReqRateMax, ReqTot};
    let key = ObjectKey::Frontend(proxy.name.clone());
    let seen = ObjectSample::of(&control.line.runtime().rates, &key, figures::of_frontend(counters), now);
    let (rate, rate_max) = seen.sessions();
    for (column, value) in [(Rate, rate), (RateMax, rate_max), (ConnRate, rate), (ConnRateMax, rate_max)] {
        line.set(column, Value::count(value));
    }
    // In `mode tcp` too: connections may be served as HTTP.
    line.count(counters, &[(ReqTot, Counter::Requests)]);
    let (rate, rate_max) = seen.requests();
    line.set(ReqRate, Value::count(rate));
    line.set(ReqRateMax, Value::count(rate_max));
    line.zero_proxy(is_http);
    line.count(counters, TLS);
    if is_http {
        line.count(counters, RESPONSES);
        line.count(counters, &[(Column::Intercepted, Counter::Intercepted)]);
        let gauge = |gauge: &AtomicI64| u64::try_from(gauge.load(Ordering::Relaxed)).unwrap_or_default();
        let others = |all, ours| Value::U64(counters.total(all).saturating_sub(counters.total(ours)));
        let http2 = gauge(&plan.state.http2_open);
        line.set(Column::H1OpenConnections, Value::U64(gauge(&plan.state.open).saturating_sub(http2)));
        line.set(Column::H1TotalConnections, others(Counter::Connections, Counter::Http2Connections));
        line.set(Column::H1TotalStreams, others(Counter::Requests, Counter::Http2Streams));
        line.set(Column::H2OpenConnections, Value::U64(http2));
        line.set(Column::H2BackendOpenStreams, Value::U64(gauge(&plan.state.http2_streams)));
        line.count(counters, HTTP2);
    }
    line
}

/// The address column: `unix` stands for all sockets that have a path or a name.
pub(super) fn address(address: &Address) -> Value {
    match address {
        Address::Inet(SocketAddr::V4(address)) => Value::text(address.to_string()),
        Address::Inet(SocketAddr::V6(address)) => Value::text(format!("[{}]:{}", address.ip(), address.port())),
        Address::Unix(_) | Address::Abstract(_) => Value::text("unix"),
        Address::Fd(number) => Value::text(format!("fd@{number}")),
    }
}
