//! Fetches from states of proxies, servers and the process (configuration manual 7.3.2 and 7.3.3). Each is looked up when a rule asks.

use std::time::Duration;

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::live::{BackendFigure, ExchangeFigure, Figure, FrontendFigure, ProcessFigure, ServerFigure};
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

const BACKEND: &[Arg] = &[Arg::opt(ArgKind::Backend)];
const FRONTEND: &[Arg] = &[Arg::opt(ArgKind::Frontend)];
const SERVER: &[Arg] = &[Arg::req(ArgKind::Server)];

/// A row whose value is one figure.
macro_rules! figure {
    ($names:expr, $needs:ident, $of:expr, $doc:literal) => {
        Fetch::new(
            &$names,
            Type::Int,
            FetchNeeds::$needs,
            |cx, args| {
                let of: for<'c> fn(&'c Context<'_>, &'c [Value]) -> Option<Figure<'c>> = $of;
                figure(cx, of(cx, args)?).map(Sample::Int)
            },
            $doc,
        )
    };
}

/// A figure as it is now, or as rules have set it.
fn figure(cx: &Context<'_>, figure: Figure<'_>) -> Option<i64> {
    let set = cx.settings.values();
    let ms = |time: Option<Duration>| time.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let set = match figure {
        Figure::Exchange(ExchangeFigure::PriorityClass) => Some(set.map_or(0, |set| set.priority.class.into())),
        Figure::Exchange(ExchangeFigure::PriorityOffset) => Some(set.map_or(0, |set| set.priority.offset_ms.into())),
        Figure::Exchange(ExchangeFigure::ClientTimeout) => set.and_then(|set| ms(set.client_timeout)),
        Figure::Exchange(ExchangeFigure::ServerTimeout) => set.and_then(|set| ms(set.server_timeout)),
        Figure::Exchange(ExchangeFigure::TunnelTimeout) => set.and_then(|set| ms(set.tunnel_timeout)),
        _ => None,
    };
    set.or_else(|| cx.live.figure(figure))
}

/// A figure of the backend that an argument names.
macro_rules! of_backend {
    ($name:literal, $figure:ident, $doc:literal) => {
        figure!([$name], NOTHING, |cx, args| Some(backend(cx, args, BackendFigure::$figure)), $doc).args(BACKEND)
    };
}

/// A figure of the frontend that an argument names.
macro_rules! of_frontend {
    ($name:literal, $figure:ident, $doc:literal) => {
        figure!([$name], NOTHING, |cx, args| Some(frontend(cx, args, FrontendFigure::$figure)), $doc).args(FRONTEND)
    };
}

/// A figure of the server that an argument names.
macro_rules! of_server {
    ($name:literal, $figure:ident, $doc:literal) => {
        figure!([$name], NOTHING, |cx, args| server(cx, args, ServerFigure::$figure), $doc).args(SERVER)
    };
}

#[rustfmt::skip]
pub(super) const ROWS: &[Fetch] = &[
    of_backend!("be_conn", Connections, "Sessions of a backend now."),
    of_backend!("be_conn_free", ConnectionsFree,
        "Connections that the usable servers of a backend could still take; -1 if one has no maxconn."),
    of_backend!("connslots", Slots,
        "Connections and places in queues that are free in a backend; -1 if a server has no maxconn or no maxqueue."),
    of_backend!("be_sess_rate", SessionRate, "Sessions that came to a backend in the last second."),
    of_backend!("queue", Queued, "Requests in the queues of a backend and its servers."),
    of_backend!("nbsrv", UsableServers, "How many servers of a backend are usable."),
    Fetch::new(&["avg_queue"], Type::Int, FetchNeeds::NOTHING, average_queue,
        "Requests in the queues of a backend by usable server.").args(BACKEND),
    of_frontend!("fe_conn", Connections, "Connections of a frontend now."),
    of_frontend!("fe_req_rate", RequestRate, "Requests that came to a frontend in the last second."),
    of_frontend!("fe_sess_rate", SessionRate, "Connections that came to a frontend in the last second."),
    of_server!("srv_conn", Connections, "Connections of a server now."),
    of_server!("srv_conn_free", ConnectionsFree, "Connections that a server could still take; -1 without maxconn."),
    of_server!("srv_queue", Queued, "Requests in the queue of a server."),
    of_server!("srv_sess_rate", SessionRate, "Sessions that came to a server in the last second."),
    of_server!("srv_weight", Weight, "The weight of a server in use, which a slow start lowers."),
    of_server!("srv_iweight", InitialWeight, "The weight of a server in the configuration."),
    of_server!("srv_uweight", UserWeight, "The weight of a server as it was set."),
    Fetch::new(&["srv_is_up"], Type::Bool, FetchNeeds::NOTHING, is_up,
        "Whether a server is up and not in maintenance.").args(SERVER),
    Fetch::new(&["srv_name"], Type::Str, FetchNeeds::SERVER, |cx, _| cx.server.map(|name| Sample::str(name.as_bytes())),
        "The name of the chosen server."),
    figure!(["srv_id"], SERVER, |_, _| Some(Figure::Exchange(ExchangeFigure::ServerId)), "The id of the chosen server."),
    Fetch::new(&["fe_defbe"], Type::Str, FetchNeeds::NOTHING,
        |cx, _| cx.live.default_backend().map(|name| Sample::str(name.as_bytes())),
        "The name of the frontend's default backend."),
    figure!(["fe_client_timeout"], NOTHING,
        |cx, _| Some(Figure::Frontend(cx.frontend.name, FrontendFigure::ClientTimeout)),
        "timeout client of the frontend, in milliseconds."),
    figure!(["be_server_timeout"], BACKEND,
        |cx, _| Some(Figure::Backend(cx.backend?.name, BackendFigure::ServerTimeout)),
        "timeout server of the backend, in milliseconds."),
    figure!(["be_tunnel_timeout"], BACKEND,
        |cx, _| Some(Figure::Backend(cx.backend?.name, BackendFigure::TunnelTimeout)),
        "timeout tunnel of the backend, in milliseconds."),
    figure!(["cur_client_timeout"], NOTHING, |_, _| Some(Figure::Exchange(ExchangeFigure::ClientTimeout)),
        "timeout client in force, in milliseconds."),
    figure!(["cur_server_timeout"], BACKEND, |_, _| Some(Figure::Exchange(ExchangeFigure::ServerTimeout)),
        "timeout server in force, in milliseconds."),
    figure!(["cur_tunnel_timeout"], BACKEND, |_, _| Some(Figure::Exchange(ExchangeFigure::TunnelTimeout)),
        "timeout tunnel in force, in milliseconds."),
    figure!(["dst_conn"], NOTHING, |_, _| Some(Figure::Exchange(ExchangeFigure::ListenerConnections)),
        "Connections of the listening address now."),
    figure!(["prio_class"], NOTHING, |_, _| Some(Figure::Exchange(ExchangeFigure::PriorityClass)),
        "The priority class of the request in queues."),
    figure!(["prio_offset"], NOTHING, |_, _| Some(Figure::Exchange(ExchangeFigure::PriorityOffset)),
        "The priority offset of the request in queues."),
    figure!(["act_conn"], NOTHING, |_, _| Some(Figure::Process(ProcessFigure::Connections)),
        "Connections of clients of the whole process now."),
    figure!(["thread"], NOTHING, |_, _| Some(Figure::Process(ProcessFigure::Thread)),
        "The number of the thread, from 0."),
    figure!(["nbthread"], NOTHING, |_, _| Some(Figure::Process(ProcessFigure::Threads)), "How many threads serve."),
    Fetch::new(&["nbproc"], Type::Int, FetchNeeds::NOTHING, |_, _| Some(Sample::Int(1)), "1: there is one process."),
    Fetch::new(&["proc"], Type::Int, FetchNeeds::NOTHING, |_, _| Some(Sample::Int(1)), "1: there is one process."),
    Fetch::new(&["stopping"], Type::Bool, FetchNeeds::NOTHING,
        |cx, _| Some(Sample::Bool(cx.live.figure(Figure::Process(ProcessFigure::IsStopping))? != 0)),
        "Whether a graceful stop is under way."),
    Fetch::new(&["last_rule_file"], Type::Str, FetchNeeds::NOTHING,
        |cx, _| cx.last_rule.map(|rule| Sample::str(rule.file.as_bytes())),
        "The file of the last rule that ended a rule set."),
    Fetch::new(&["last_rule_line"], Type::Int, FetchNeeds::NOTHING,
        |cx, _| cx.last_rule.map(|rule| Sample::Int(rule.line.into())),
        "The line of the last rule that ended a rule set."),
];

/// The backend of the argument; without one, the chosen one.
fn backend<'c>(cx: &'c Context<'_>, args: &'c [Value], figure: BackendFigure) -> Figure<'c> {
    let name = args.first().and_then(Value::name);
    Figure::Backend(name.unwrap_or_else(|| cx.backend.unwrap_or(cx.frontend).name), figure)
}

fn frontend<'c>(cx: &'c Context<'_>, args: &'c [Value], figure: FrontendFigure) -> Figure<'c> {
    Figure::Frontend(args.first().and_then(Value::name).unwrap_or(cx.frontend.name), figure)
}

fn server<'c>(cx: &'c Context<'_>, args: &'c [Value], figure: ServerFigure) -> Option<Figure<'c>> {
    match args.first()? {
        Value::Server(backend, server) if backend.is_empty() => Some(Figure::Server(cx.backend?.name, server, figure)),
        Value::Server(backend, server) => Some(Figure::Server(backend, server, figure)),
        _ => None,
    }
}

fn is_up<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    cx.live.figure(server(cx, args, ServerFigure::IsUp)?).map(|up| Sample::Bool(up != 0))
}

/// Rounded up; twice the queue where no server is usable, for one will soon be.
fn average_queue<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let queued = cx.live.figure(backend(cx, args, BackendFigure::Queued))?;
    let servers = cx.live.figure(backend(cx, args, BackendFigure::UsableServers))?;
    Some(Sample::Int(if servers > 0 { (queued + servers - 1) / servers } else { queued.saturating_mul(2) }))
}
