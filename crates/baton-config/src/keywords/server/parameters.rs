//! The words of `server` and `default-server` lines: a row each, and what each does to a server.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use baton_model::{
    Address, AgentSettings, Family, InitState, MarkedDown, MarkedUp, Observe, OnError, SendProxy, WebSocketProtocol,
};
use baton_rules::suggestion;
use rustc_hash::FxHashMap;

use crate::address::{self, Port, Text};
use crate::keywords::source::source_words;
use crate::keywords::{Parameter, Status, direct, resolvers};
use crate::lower::{Call, Context, InitAddr, ServerDraft};
use crate::values::Unit;

pub(crate) type ApplyServer = fn(&mut ServerDraft, &mut Call<'_, '_>, usize) -> usize;

pub(crate) const fn row(
    name: &'static str,
    args: usize,
    apply: ApplyServer,
    doc: &'static str,
) -> Parameter<ServerDraft> {
    Parameter { name, args, status: Status::Done, doc, apply }
}

pub(super) const fn none(name: &'static str, args: usize, why: &'static str) -> Parameter<ServerDraft> {
    Parameter { name, args, status: Status::NoEffect(why), doc: "", apply: nothing }
}

const fn later(name: &'static str, args: usize) -> Parameter<ServerDraft> {
    Parameter { name, args, status: Status::NotYet, doc: "", apply: nothing }
}

/// As haproxy 3.2 was seen to do: over HTTP/1 its checks ask the server to close.
const CHECK_REUSE: &str = "a check opens a connection of its own; HAProxy 3.2, too, reuses none of HTTP/1 for checks";

static PARAMETERS: &[Parameter<ServerDraft>] = &[
    row("addr", 1, addr, "Address for health checks."),
    row("agent-addr", 1, agent_addr, "Address of the agent (default: where the server is checked)."),
    row("agent-check", 0, |s, _, _| set(&mut agent(s).is_configured, true), "Asks an agent how the server is."),
    row("agent-inter", 1, agent_inter, "Interval of agent checks, and time for each of them."),
    row("agent-port", 1, agent_port, "Port of the agent."),
    row("agent-send", 1, agent_send, "Text that the agent is sent."),
    row("backup", 0, |s, _, _| set(&mut s.server.backup, true), "Used only if no other server is available."),
    row("check", 0, |s, _, _| set(&mut s.server.check.enabled, true), "Enables health checks."),
    row(
        "check-send-proxy",
        0,
        |s, _, _| set(&mut s.server.check.send_proxy, true),
        "Health checks send a PROXY header.",
    ),
    row(
        "check-proto",
        1,
        check_proto,
        "Protocol of health checks: 'h1' or 'h2' of HTTP checks, 'none' of others; that of 'proto' without it.",
    ),
    row(
        "check-via-socks4",
        0,
        |s, _, _| set(&mut s.server.check.via_socks4, true),
        "Health checks go through the proxy of 'socks4'.",
    ),
    row("cookie", 1, cookie, "Value of the server in the persistence cookie."),
    row("disabled", 0, |s, _, _| set(&mut s.server.disabled, true), "Starts in maintenance."),
    row("downinter", 1, downinter, "Interval of health checks while down."),
    row("enabled", 0, |s, _, _| set(&mut s.server.disabled, false), "Undoes 'disabled' of a default-server."),
    row("error-limit", 1, error_limit, "Number of observed errors that trigger 'on-error'."),
    row("fall", 1, fall, "Failed health checks until the server is down."),
    row("fastinter", 1, fastinter, "Interval of health checks while changing state."),
    row("id", 1, id, "Numeric id."),
    row("init-addr", 1, init_addr, "How the address is resolved at start-up."),
    row("init-state", 1, init_state, "State before the first health check (HAProxy 3.1)."),
    row("inter", 1, inter, "Interval of health checks."),
    row("max-reuse", 1, max_reuse, "Maximum number of requests over one connection."),
    row("maxconn", 1, maxconn, "Maximum number of concurrent requests."),
    row("maxqueue", 1, maxqueue, "Maximum number of requests queued for this server."),
    row("minconn", 1, minconn, "Lower bound of the dynamic connection limit."),
    row("no-agent-check", 0, no_agent_check, "Undoes 'agent-check'."),
    row("no-backup", 0, |s, _, _| set(&mut s.server.backup, false), "Undoes 'backup'."),
    row("no-check", 0, |s, _, _| set(&mut s.server.check.enabled, false), "Undoes 'check'."),
    row("no-check-send-proxy", 0, |s, _, _| set(&mut s.server.check.send_proxy, false), "Undoes 'check-send-proxy'."),
    row("no-send-proxy", 0, |s, _, _| without(s, SendProxy::V1), "Undoes 'send-proxy'."),
    row("no-send-proxy-v2", 0, |s, _, _| without(s, SendProxy::V2), "Undoes 'send-proxy-v2'."),
    row("no-send-proxy-v2-ssl", 0, |s, _, _| without(s, SendProxy::V2 | SendProxy::SSL), "Undoes 'send-proxy-v2-ssl'."),
    row(
        "no-send-proxy-v2-ssl-cn",
        0,
        |s, _, _| without(s, SendProxy::V2 | SendProxy::CERT_CN),
        "Undoes 'send-proxy-v2-ssl-cn'.",
    ),
    row("no-tfo", 0, |s, _, _| set(&mut s.server.tfo, false), "Undoes 'tfo'."),
    row("non-stick", 0, |s, _, _| set(&mut s.server.non_stick, true), "Never put into a stick table."),
    row("observe", 1, observe, "Traffic that is observed as a health check."),
    row("on-error", 1, on_error, "Action on too many observed errors."),
    row("on-marked-down", 1, on_marked_down, "Action on sessions when the server goes down."),
    row("on-marked-up", 1, on_marked_up, "Action on sessions of backup servers when the server comes up."),
    row("pool-max-conn", 1, pool_max_conn, "Maximum number of idle connections."),
    row("pool-purge-delay", 1, pool_purge_delay, "Interval at which half of the unneeded idle connections is closed."),
    row("port", 1, port, "Port for health checks."),
    row(
        "proto",
        1,
        proto,
        "Protocol of connections: 'h1' or 'h2' in 'mode http', 'none' in 'mode tcp'; otherwise ALPN decides, or it is 'h1'.",
    ),
    row("proxy-v2-options", 1, proxy_options, "What a PROXY header of version 2 has besides addresses."),
    row("redir", 1, redir, "Redirect GET and HEAD requests to this prefix instead of forwarding them."),
    row("rise", 1, rise, "Successful health checks until the server is up."),
    row("send-proxy", 0, |s, _, _| with(s, SendProxy::V1), "A PROXY header, version 1, is sent first."),
    row("send-proxy-v2", 0, |s, _, _| with(s, SendProxy::V2), "A PROXY header, version 2, is sent first."),
    row(
        "send-proxy-v2-ssl",
        0,
        |s, _, _| with(s, SendProxy::V2 | SendProxy::SSL),
        "A PROXY header, version 2, with the version of TLS that the client speaks.",
    ),
    row(
        "send-proxy-v2-ssl-cn",
        0,
        |s, _, _| with(s, SendProxy::V2 | SendProxy::CERT_CN),
        "As 'send-proxy-v2-ssl', with the common name of the client's certificate.",
    ),
    row("shard", 1, shard, "In a 'peers' section: the shard whose entries this peer gets; 0: all (HAProxy 2.7)."),
    row("slowstart", 1, slowstart, "Time to reach full weight after coming up."),
    row("socks4", 1, socks4, "Address and port of a SOCKS4 proxy through which the server is connected to."),
    row("source", 1, source_parameter, "Source address of connections to the server."),
    row("stick", 0, |s, _, _| set(&mut s.server.non_stick, false), "Undoes 'non-stick'."),
    row("tcp-ut", 1, tcp_ut, "TCP user timeout: how long sent data may stay unacknowledged."),
    row(
        "tfo",
        0,
        |s, _, _| set(&mut s.server.tfo, true),
        "TCP Fast Open: a request may go with the SYN. Use with 'retry-on conn-failure empty-response \
         response-timeout'.",
    ),
    row("track", 1, track, "Follows the state of another server instead of its own health checks."),
    row("usesrc", 0, stray_usesrc, "Only after 'source'."),
    row("weight", 1, weight, "Share of the load, 0 to 256."),
    none("log-proto", 1, "it configures logging over TCP, which is not supported yet"),
    none("pool-low-conn", 1, "it says when threads take no idle connections from each other, and Baton's never do"),
    none("check-pool-conn-name", 1, CHECK_REUSE),
    none("check-reuse-pool", 0, CHECK_REUSE),
    none("no-check-reuse-pool", 0, CHECK_REUSE),
    row(
        "ws",
        1,
        websockets,
        "Protocol of WebSockets to the server: 'h1', 'h2', or 'auto', which prefers 'h1' where ALPN decides.",
    ),
    later("namespace", 1),
];

/// All rows, those about TLS last.
pub(crate) fn all() -> impl Iterator<Item = &'static Parameter<ServerDraft>> {
    PARAMETERS.iter().chain(resolvers::SERVER_ROWS).chain(direct::SERVER_ROWS).chain(super::tls::PARAMETERS)
}

/// The rows by name: thousands of servers ask for them.
pub(super) static INDEX: LazyLock<FxHashMap<&'static str, &'static Parameter<ServerDraft>>> =
    LazyLock::new(|| all().map(|row| (row.name, row)).collect());

fn nothing(_: &mut ServerDraft, _: &mut Call<'_, '_>, _: usize) -> usize {
    0
}

fn set(field: &mut bool, value: bool) -> usize {
    *field = value;
    0
}

fn with(server: &mut ServerDraft, flags: SendProxy) -> usize {
    server.server.send_proxy = server.server.send_proxy | flags;
    0
}

fn without(server: &mut ServerDraft, flags: SendProxy) -> usize {
    server.server.send_proxy = server.server.send_proxy.without(flags);
    0
}

fn proxy_options(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1).to_owned();
    for word in text.split(',') {
        match SendProxy::OPTIONS.iter().find(|(name, _)| *name == word) {
            Some((_, flags)) => _ = with(server, *flags),
            None => {
                let message = format!("'{word}' : proxy v2 option not implemented.");
                call.not_one_of(at + 1, message, SendProxy::OPTIONS.map(|(name, _)| name));
            }
        }
    }
    1
}

fn number(call: &mut Call<'_, '_>, at: usize, low: i64, high: i64) -> Option<u32> {
    let name = call.line.word(at);
    call.number_at(at + 1, name, low, high).and_then(|value| u32::try_from(value).ok())
}

/// A time over zero.
fn delay(call: &mut Call<'_, '_>, at: usize) -> Option<std::time::Duration> {
    let name = call.line.word(at);
    let time = call.time_at(at + 1, name, Unit::Ms)?;
    if time.is_zero() {
        call.error(at + 1, "bad-value", format!("invalid value 0 for argument '{name}'."));
        return None;
    }
    Some(time)
}

/// An address that checks go to.
pub(crate) fn check_address(text: &str, context: &mut Context<'_>) -> Result<Address, String> {
    match address::parse(text)? {
        Text::Unix(path) => Ok(Address::Unix(path)),
        Text::Abstract(name) => Ok(Address::Abstract(name)),
        Text::Inet { host, family, port } => {
            let port = if let Port::One(port) = port { port } else { 0 };
            match address::literal(&host, family).or_else(|| context.resolve(&host, family)) {
                Some(ip) => Ok(Address::Inet((ip, port).into())),
                None => Err(format!("invalid address: '{host}' in '{text}'")),
            }
        }
        Text::Fd(_) => Err(format!("a file descriptor is not acceptable here in '{text}'")),
    }
}

fn addr(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match check_address(call.line.word(at + 1), call.context) {
        Ok(address) => server.server.check.addr = Some(address),
        Err(message) => call.error(at + 1, "bad-address", format!("'addr' : {message}.")),
    }
    1
}

/// The name of a protocol that HAProxy knows.
fn protocol(call: &mut Call<'_, '_>, at: usize) -> Option<&'static str> {
    let (name, text) = (call.line.word(at).to_owned(), call.line.word(at + 1).to_owned());
    let known = ["h1", "h2", "fcgi", "none"].into_iter().find(|known| *known == text);
    match known {
        Some("fcgi") => {
            let message = format!("'{name} {text}' is not supported yet: connections to servers are HTTP/1 or HTTP/2");
            call.error(at + 1, "not-yet", message);
            None
        }
        Some(known) => Some(known),
        None if text.is_empty() => {
            call.error(at + 1, "missing-argument", format!("'{name}' : missing value."));
            None
        }
        None => {
            let message = format!("'{name}' :  unknown MUX protocol '{text}'.");
            call.error_with(at + 1, "bad-value", message, suggestion(&text, ["h1", "h2", "none"]));
            None
        }
    }
}

fn proto(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.proto = protocol(call, at);
    1
}

fn websockets(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1).to_owned();
    server.server.websockets = match text.as_str() {
        "auto" => WebSocketProtocol::Auto,
        "h1" => WebSocketProtocol::H1,
        "h2" => WebSocketProtocol::H2,
        "" => {
            call.error(at + 1, "missing-argument", "'ws' : missing value.".into());
            return 1;
        }
        _ => {
            let message = format!("'ws' :  unknown value '{text}'.");
            call.error_with(at + 1, "bad-value", message, suggestion(&text, ["auto", "h1", "h2"]));
            return 1;
        }
    };
    1
}

fn check_proto(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.check_proto = protocol(call, at);
    1
}

fn socks4(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1);
    if text.is_empty() {
        call.error(at + 1, "missing-argument", "'socks4' expects <addr>:<port> as argument.".into());
        return 1;
    }
    match check_address(text, call.context) {
        Ok(Address::Inet(address)) if address.port() > 0 => server.server.socks4 = Some(address),
        Ok(Address::Inet(_)) => {
            let message = format!("'socks4 {text}' : missing port specification in '{text}'.");
            call.error(at + 1, "bad-address", message);
        }
        Ok(_) => call.error(at + 1, "bad-address", format!("'socks4 {text}' : expects an address and a port.")),
        Err(reason) => call.error(at + 1, "bad-address", format!("'socks4 {text}' : {reason}.")),
    }
    1
}

/// What is said of an agent.
fn agent(server: &mut ServerDraft) -> &mut AgentSettings {
    Arc::make_mut(server.server.agent.get_or_insert_default())
}

fn no_agent_check(server: &mut ServerDraft, _: &mut Call<'_, '_>, _: usize) -> usize {
    if server.server.agent.is_some() {
        agent(server).is_configured = false;
    }
    0
}

fn agent_addr(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1);
    if text.is_empty() {
        call.error(at + 1, "missing-argument", "'agent-addr' expects an address as argument.".into());
        return 1;
    }
    match text.parse().ok().or_else(|| call.context.resolve(text, Family::Any)) {
        Some(address) => agent(server).addr = Some(address),
        None => {
            let message = format!("parsing agent-addr failed. Check if '{text}' is correct address.");
            call.error(at + 1, "bad-address", message);
        }
    }
    1
}

fn agent_inter(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if call.line.word(at + 1).is_empty() {
        call.error(at + 1, "missing-argument", "'agent-inter' expects a delay as argument.".into());
    } else if let Some(time) = delay(call, at) {
        agent(server).inter = time;
    }
    1
}

fn agent_port(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1) {
        "" => call.error(at + 1, "missing-argument", "'agent-port' expects a port number as argument.".into()),
        text => match text.parse::<u16>() {
            Ok(port) => agent(server).port = Some(port).filter(|port| *port > 0),
            Err(_) => call.error(at + 1, "bad-value", format!("'agent-port' : invalid port '{text}'.")),
        },
    }
    1
}

fn agent_send(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1) {
        "" => call.error(at + 1, "missing-argument", "'agent-send' expects a string as argument.".into()),
        text => agent(server).send = text.into(),
    }
    1
}

fn cookie(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1) {
        "" => call.error(at + 1, "missing-argument", "'cookie' expects <value> as argument.".into()),
        value => server.server.cookie = Some(value.into()),
    }
    1
}

fn inter(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(time) = delay(call, at) {
        server.server.check.inter = time;
    }
    1
}

fn fastinter(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.check.fastinter = delay(call, at);
    1
}

fn downinter(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.check.downinter = delay(call, at);
    1
}

/// A count over zero.
fn count(call: &mut Call<'_, '_>, at: usize) -> Option<u32> {
    let name = call.line.word(at);
    match call.line.word(at + 1).parse::<u32>() {
        Ok(value) if value > 0 => Some(value),
        _ => {
            call.error(at + 1, "bad-value", format!("'{name}' has to be > 0."));
            None
        }
    }
}

fn rise(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(value) = count(call, at) {
        server.server.check.rise = value;
    }
    1
}

fn fall(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(value) = count(call, at) {
        server.server.check.fall = value;
    }
    1
}

fn error_limit(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(value) = count(call, at) {
        server.server.check.error_limit = value;
    }
    1
}

fn id(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1).parse::<u32>() {
        Ok(value) if value > 0 => server.id = Some(value),
        _ => call.error(at + 1, "bad-value", "'id' : custom id has to be > 0.".into()),
    }
    1
}

fn init_addr(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let list = call.line.word(at + 1);
    if list.is_empty() {
        server.init_addr = None;
        return 1;
    }
    let mut methods = Vec::new();
    for text in list.split(',') {
        methods.push(match text {
            "last" => InitAddr::Last,
            "libc" => InitAddr::Libc,
            "none" => InitAddr::None,
            other => match other.parse::<IpAddr>() {
                Ok(ip) => InitAddr::Ip(ip),
                Err(_) => {
                    let message = format!(
                        "'init-addr' : unknown init-addr method '{other}', supported methods are 'libc', 'last', 'none'."
                    );
                    let hint = suggestion(other, ["libc", "last", "none"]);
                    call.error_with(at + 1, "bad-value", message, hint);
                    return 1;
                }
            },
        });
    }
    server.init_addr = Some(methods);
    1
}

fn init_state(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let choices = [
        ("up", InitState::Up),
        ("fully-up", InitState::FullyUp),
        ("down", InitState::Down),
        ("fully-down", InitState::FullyDown),
    ];
    if let Some(state) = call.choose(at + 1, "init-state", &choices) {
        server.server.check.init_state = state;
    }
    1
}

fn max_reuse(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(value) = call.number_at(at + 1, "max-reuse", -1, i64::from(i32::MAX)) {
        server.server.max_reuse = u32::try_from(value).ok();
    }
    1
}

fn maxconn(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.maxconn = number(call, at, 0, i64::from(i32::MAX)).unwrap_or_default();
    1
}

fn minconn(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.minconn = number(call, at, 0, i64::from(i32::MAX)).unwrap_or_default();
    1
}

fn maxqueue(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.maxqueue = number(call, at, 0, i64::from(i32::MAX)).unwrap_or_default();
    1
}

fn shard(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.shard = number(call, at, 0, 1000).unwrap_or_default();
    if !call.context.in_peers {
        call.notice("no-effect", "'shard' has no effect outside of a 'peers' section".into());
    }
    1
}

fn observe(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let choices = [("none", Observe::None), ("layer4", Observe::Layer4), ("layer7", Observe::Layer7)];
    if let Some(value) = call.choose(at + 1, "observe", &choices) {
        server.server.check.observe = value;
    }
    1
}

fn on_error(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let choices = [
        ("fastinter", OnError::FastInter),
        ("fail-check", OnError::FailCheck),
        ("sudden-death", OnError::SuddenDeath),
        ("mark-down", OnError::MarkDown),
    ];
    if let Some(value) = call.choose(at + 1, "on-error", &choices) {
        server.server.check.on_error = value;
    }
    1
}

fn on_marked_down(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let choices = [("shutdown-sessions", MarkedDown::ShutdownSessions)];
    if let Some(value) = call.choose(at + 1, "on-marked-down", &choices) {
        server.server.check.on_marked_down = value;
    }
    1
}

fn on_marked_up(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let choices = [("shutdown-backup-sessions", MarkedUp::ShutdownBackupSessions)];
    if let Some(value) = call.choose(at + 1, "on-marked-up", &choices) {
        server.server.check.on_marked_up = value;
    }
    1
}

fn pool_max_conn(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(value) = call.number_at(at + 1, "pool-max-conn", -1, i64::from(i32::MAX)) {
        server.server.pool_max_conn = value as i32;
    }
    1
}

fn pool_purge_delay(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(time) = call.time_at(at + 1, "pool-purge-delay", Unit::Ms) {
        server.server.pool_purge_delay = time;
    }
    1
}

fn port(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.check.port = number(call, at, 1, 65535).and_then(|port| u16::try_from(port).ok());
    1
}

fn redir(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.redir = Some(call.line.word(at + 1).into());
    1
}

fn slowstart(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let time = call.time_at(at + 1, "slowstart", Unit::Ms);
    server.server.slowstart = time.filter(|time| !time.is_zero());
    1
}

fn tcp_ut(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let time = call.time_at(at + 1, "tcp-ut", Unit::Ms);
    server.server.tcp_user_timeout_ms = time.map(|time| time.as_millis() as u32).filter(|ms| *ms > 0);
    1
}

fn track(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    server.server.check.track = Some(call.line.word(at + 1).into());
    1
}

fn stray_usesrc(_: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    call.error(at, "wrong-place", "'usesrc' only allowed after a 'source' statement.".into());
    0
}

/// The largest weight of a server.
const WEIGHT_MAX: u32 = 256;

fn weight(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1);
    if text.parse::<u32>().is_ok_and(|value| value > WEIGHT_MAX) {
        let hint = "scale down the weights of all servers of the backend";
        let message = format!("'weight' value must be between 0 and {WEIGHT_MAX} (was {text}).");
        call.error_with(at + 1, "out-of-range", message, Some(hint.into()));
    } else if let Some(value) = number(call, at, 0, i64::from(WEIGHT_MAX)) {
        server.server.weight = value;
    }
    1
}

fn source_parameter(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let (found, used) = source_words(call, at + 1, true);
    if found.is_some() {
        server.server.source_address = found;
    }
    used
}
