//! HAProxy's default log formats (configuration manual, 8.2).

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use baton_model::LogFormat;

use crate::connection::Connection;
use crate::core::Core;
use crate::ended::Ended;
use crate::record::Recorded;
use crate::view::FrontendView;

/// The longest part of a request line that is logged, in bytes.
const REQUEST_MAX: usize = 1024;

/// Appends the line for `exchange` in the frontend's format.
pub fn line(core: &Core, exchange: Recorded<'_>, ended: Ended, out: &mut Vec<u8>) {
    match exchange.progress.frontend.plan.proxy.logging.format {
        LogFormat::Default => connect_line(exchange.connection, &exchange.progress.frontend, out),
        LogFormat::Tcp => tcp(core, exchange, ended, out),
        LogFormat::Http => http(core, exchange, ended, out),
        LogFormat::HttpClf => clf(core, exchange, ended, out),
    }
}

/// `Connect from 10.0.1.2:33312 to 10.0.3.31:8012 (www/HTTP)` (8.2.1).
pub fn connect_line(connection: &Connection, frontend: &FrontendView, out: &mut Vec<u8>) {
    let mode = match frontend.plan.proxy.mode {
        baton_model::Mode::Http => "HTTP",
        baton_model::Mode::Tcp => "TCP",
        baton_model::Mode::Direct => "DIRECT",
    };
    out.extend_from_slice(b"Connect from ");
    address(connection.source(), out);
    out.extend_from_slice(b" to ");
    address(connection.destination(), out);
    out.extend_from_slice(format!(" ({}/{mode})", frontend.plan.proxy.name).as_bytes());
}

/// `10.0.1.2:33312 [21/Nov/2026:03:42:51.123] www/1: text`: the frontend and the `bind` it came in by (8.2.5).
pub fn refusal_line(core: &Core, connection: &Connection, text: &str, out: &mut Vec<u8>) {
    client_address(connection, out);
    out.extend_from_slice(b" [");
    core.log.dates.http(core.clock.wall_at(connection.accepted), out);
    out.extend_from_slice(b"] ");
    out.extend_from_slice(connection.listener().frontend.proxy.name.as_bytes());
    out.push(b'/');
    match &connection.listener().bind.name {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => number(connection.listener().number, out),
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(text.as_bytes());
}

/// `%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq` (8.2.2).
fn tcp(core: &Core, exchange: Recorded<'_>, ended: Ended, out: &mut Vec<u8>) {
    client_address(exchange.connection, out);
    out.extend_from_slice(b" [");
    core.log.dates.http(wall(core, exchange), out);
    out.extend_from_slice(b"] ");
    path(exchange, out);
    out.push(b' ');
    for time in [exchange.facts.queue_time, exchange.facts.connect_time] {
        millis(time, out);
        out.push(b'/');
    }
    total(core, exchange, out);
    out.push(b' ');
    bytes(exchange, out);
    out.extend_from_slice(&[b' ', ended.cause.letter(), ended.phase.letter(), b' ']);
    loads(core, exchange, out);
}

/// `%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r` (8.2.3).
fn http(core: &Core, exchange: Recorded<'_>, ended: Ended, out: &mut Vec<u8>) {
    client_address(exchange.connection, out);
    out.extend_from_slice(b" [");
    core.log.dates.http(wall(core, exchange), out);
    out.extend_from_slice(b"] ");
    path(exchange, out);
    out.push(b' ');
    for time in [
        exchange.facts.request_time,
        exchange.facts.queue_time,
        exchange.facts.connect_time,
        exchange.facts.response_time,
    ] {
        millis(time, out);
        out.push(b'/');
    }
    total(core, exchange, out);
    out.push(b' ');
    status(exchange, out);
    out.push(b' ');
    bytes(exchange, out);
    out.extend_from_slice(b" - - ");
    state(exchange, ended, out);
    out.push(b' ');
    loads(core, exchange, out);
    out.extend_from_slice(b" \"");
    quoted(exchange, out);
    out.push(b'"');
}

/// `%{+Q}o %{-Q}ci - - [%trg] %r %ST %B "" "" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc %ac %fc %bc %sc %rc %sq %bq %CC
/// %CS %hrl %hsl` (8.2.3).
fn clf(core: &Core, exchange: Recorded<'_>, ended: Ended, out: &mut Vec<u8>) {
    let time = wall(core, exchange);
    match exchange.connection.source() {
        Some(source) => out.extend_from_slice(source.ip().to_string().as_bytes()),
        None => out.push(b'-'),
    }
    out.extend_from_slice(b" - - [");
    core.log.dates.clf(time, out);
    out.extend_from_slice(b"] \"");
    quoted(exchange, out);
    out.extend_from_slice(b"\" ");
    status(exchange, out);
    out.push(b' ');
    number(exchange.facts.bytes_out, out);
    let port = exchange.connection.source().map_or(0, |source| source.port());
    let ms = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_millis());
    out.extend_from_slice(format!(" \"\" \"\" {port} {ms:03} \"").as_bytes());
    let mut names = Vec::new();
    path(exchange, &mut names);
    for byte in names {
        match byte {
            b' ' | b'/' => out.extend_from_slice(b"\" \""),
            other => out.push(other),
        }
    }
    out.extend_from_slice(b"\" ");
    for time in [
        exchange.facts.request_time,
        exchange.facts.queue_time,
        exchange.facts.connect_time,
        exchange.facts.response_time,
    ] {
        millis(time, out);
        out.push(b' ');
    }
    total(core, exchange, out);
    out.extend_from_slice(b" \"");
    state(exchange, ended, out);
    out.extend_from_slice(b"\" ");
    let mut figures = Vec::new();
    loads(core, exchange, &mut figures);
    out.extend(figures.into_iter().map(|byte| if byte == b'/' { b' ' } else { byte }));
    out.extend_from_slice(b" \"-\" \"-\"");
}

/// When the request began, by the wall.
fn wall(core: &Core, exchange: Recorded<'_>) -> SystemTime {
    core.clock.wall_at(exchange.facts.began)
}

fn address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    match address {
        Some(address) => out.extend_from_slice(format!("{}:{}", address.ip(), address.port()).as_bytes()),
        None => out.extend_from_slice(b"unix:0"),
    }
}

/// The client's address and port; of a unix socket the number of the `bind` it came in by.
fn client_address(connection: &Connection, out: &mut Vec<u8>) {
    if connection.source().is_some() {
        return address(connection.source(), out);
    }
    out.extend_from_slice(b"unix:");
    number(connection.listener().number, out);
}

/// `frontend backend/server`, the frontend with `~` when the client speaks TLS. Without a backend the frontend's own name
/// stands there.
fn path(exchange: Recorded<'_>, out: &mut Vec<u8>) {
    let frontend = &exchange.progress.frontend.plan.proxy.name;
    out.extend_from_slice(frontend.as_bytes());
    if exchange.connection.tls().is_some() {
        out.push(b'~');
    }
    out.push(b' ');
    let absent = exchange.facts.missing.as_ref().unwrap_or(frontend);
    let backend = exchange.progress.backend().map_or(absent, |backend| &backend.plan.proxy.name);
    out.extend_from_slice(backend.as_bytes());
    out.push(b'/');
    match exchange.progress.server() {
        Some(server) => out.extend_from_slice(server.name().as_bytes()),
        None => out.extend_from_slice(exchange.facts.service.unwrap_or("<NOSRV>").as_bytes()),
    }
}

fn millis(time: Option<Duration>, out: &mut Vec<u8>) {
    match time {
        Some(time) => number(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), out),
        None => out.extend_from_slice(b"-1"),
    }
}

/// `Ta` or `Tt`; marked with `+` when the line is written before the end (`option logasap`).
fn total(core: &Core, exchange: Recorded<'_>, out: &mut Vec<u8>) {
    if exchange.progress.frontend.plan.proxy.logging.asap {
        out.push(b'+');
    }
    millis(Some(core.now().saturating_duration_since(exchange.facts.began)), out);
}

/// `%B`, marked like the total time.
fn bytes(exchange: Recorded<'_>, out: &mut Vec<u8>) {
    if exchange.progress.frontend.plan.proxy.logging.asap {
        out.push(b'+');
    }
    number(exchange.facts.bytes_out, out);
}

fn status(exchange: Recorded<'_>, out: &mut Vec<u8>) {
    match exchange.facts.status {
        0 => out.extend_from_slice(b"-1"),
        status => number(u64::from(status), out),
    }
}

fn state(exchange: Recorded<'_>, ended: Ended, out: &mut Vec<u8>) {
    out.extend_from_slice(&[ended.cause.letter(), ended.phase.letter()]);
    out.extend_from_slice(&exchange.facts.cookie);
}

/// `actconn/feconn/beconn/srvconn/retries srv_queue/backend_queue`. As in HAProxy, this one has left backend and server by
/// now, but not the frontend.
fn loads(core: &Core, exchange: Recorded<'_>, out: &mut Vec<u8>) {
    let gauge = |value: i64| u64::try_from(value).unwrap_or(0);
    let backend = exchange.progress.backend().map_or(0, |backend| backend.plan.figures.open.load(Ordering::Relaxed));
    let own = u32::from(exchange.progress.has_slot());
    let served = exchange.progress.server().map_or(0, |server| u64::from(server.served().saturating_sub(own)));
    let figures = [
        gauge(core.registry.open.load(Ordering::Relaxed)),
        gauge(exchange.progress.frontend.plan.state.open.load(Ordering::Relaxed)),
        gauge(backend),
        served,
    ];
    for figure in figures {
        number(figure, out);
        out.push(b'/');
    }
    if exchange.facts.redispatched {
        out.push(b'+');
    }
    number(u64::from(exchange.facts.retries), out);
    out.push(b' ');
    number(exchange.facts.server_queue as u64, out);
    out.push(b'/');
    number(exchange.facts.backend_queue as u64, out);
}

/// The request line, with bytes that could mislead a reader of the log written as `#XX`.
fn quoted(exchange: Recorded<'_>, out: &mut Vec<u8>) {
    if !exchange.facts.has_request {
        out.extend_from_slice(b"<BADREQ>");
        return;
    }
    let line = &exchange.facts.line;
    for byte in &line[..line.len().min(REQUEST_MAX)] {
        match byte {
            b'"' | b'#' | 0..=31 | 127..=255 => out.extend_from_slice(format!("#{byte:02X}").as_bytes()),
            byte => out.push(*byte),
        }
    }
}

fn number(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
