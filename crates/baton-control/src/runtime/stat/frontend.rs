//! Lines of frontends and their sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_model::{Address, Mode, Proxy};
use baton_proxy::{Counter, FrontendPlan};

use super::{Column, Kind, Line, RESPONSES, TRAFFIC, Wanted};
use crate::control::Control;
use crate::runtime::field::Value;

/// The frontend's line, and one for each of its sockets if `option socket-stats` keeps their figures.
pub(super) fn lines(control: &Control, wanted: &Wanted, proxy: &Arc<Proxy>, out: &mut Vec<Line>) {
    let Some(generation) = &control.line.generation else { return };
    let Some(plan) = generation.frontends.iter().find(|plan| plan.proxy.name == proxy.name) else { return };
    if wanted.takes(Kind::Frontend) {
        out.push(frontend(control, plan, generation.maxconn));
    }
}

fn frontend(control: &Control, plan: &FrontendPlan, maxconn: u32) -> Line {
    let proxy = &plan.proxy;
    let is_http = proxy.mode == Mode::Http;
    let mut line = Line::new(Kind::Frontend, proxy, "FRONTEND", 0);
    let counters = &plan.state.counters;
    let is_stopping = control.is_stopping();
    line.set(Column::Status, Value::text(if is_stopping { "STOP" } else { "OPEN" }));
    line.set(Column::Scur, Value::gauge(plan.state.open.load(Ordering::Relaxed)));
    line.set(Column::Smax, Value::gauge(plan.state.open_max.load(Ordering::Relaxed)));
    line.set(Column::Slim, Value::U32(proxy.maxconn.unwrap_or(maxconn)));
    line.set(Column::RateLim, Value::U32(proxy.rate_limit.unwrap_or_default()));
    line.count(counters, TRAFFIC);
    line.count(
        counters,
        &[
            (Column::Stot, Counter::Connections),
            (Column::ConnTot, Counter::Connections),
            (Column::Dreq, Counter::DeniedRequests),
            (Column::Dresp, Counter::DeniedResponses),
            (Column::Ereq, Counter::RequestErrors),
        ],
    );
    use Column::{ConnRate, ConnRateMax, Dcon, Dses, Rate, RateMax, ReqRate, ReqRateMax, ReqTot};
    line.zero(&[Dcon, Dses, Rate, RateMax, ConnRate, ConnRateMax, ReqRate, ReqRateMax, ReqTot]);
    line.zero_proxy(is_http);
    if is_http {
        line.count(counters, RESPONSES);
        line.count(counters, &[(Column::ReqTot, Counter::Requests)]);
        line.zero(&[Column::Intercepted]);
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
