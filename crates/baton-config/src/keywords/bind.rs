//! `bind` lines (configuration manual, 4.2 and 5.1).

use baton_model::{Address, Bind, BindOptions, BindProtocol, Family, Mode, Proxy};
use baton_rules::{nearest, suggestion};

use super::direct::{self, OwnNode};
use super::stats::{self, StatsDraft};
use super::tls::{self, TlsDraft};
use super::{Parameter, Status};
use crate::address::{self, Port, Text};
use crate::diagnostic::{Diagnostic, Severity};
use crate::lower::{Call, Context, Draft, Kind, MAX_OBJECTS, Subject};
use crate::values::Unit;

/// A `bind` line while its words are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct BindDraft {
    pub name: Option<String>,
    pub id: Option<u32>,
    pub options: BindOptions,
    /// What only a `stats socket` line has.
    pub stats: StatsDraft,
    /// What it says about TLS.
    pub tls: TlsDraft,
}

impl BindDraft {
    /// One address of the line.
    pub fn bind(&self, address: Address, call: &Call<'_, '_>) -> Bind {
        let source = call.line.source();
        Bind { address, name: self.name.clone(), id: self.id, options: self.options.clone(), source }
    }
}

/// Bytes in a namespace's name, which is that of a file.
const NAMESPACE_MAX: usize = 255;

type ApplyBind = fn(&mut BindDraft, &mut Call<'_, '_>, usize) -> usize;

const fn row(name: &'static str, args: usize, apply: ApplyBind, doc: &'static str) -> Parameter<BindDraft> {
    Parameter { name, args, status: Status::Done, doc, apply }
}

const fn none(name: &'static str, args: usize, why: &'static str) -> Parameter<BindDraft> {
    Parameter { name, args, status: Status::NoEffect(why), doc: "", apply: nothing }
}

const fn later(name: &'static str, args: usize) -> Parameter<BindDraft> {
    Parameter { name, args, status: Status::NotYet, doc: "", apply: nothing }
}

pub(crate) static PARAMETERS: &[Parameter<BindDraft>] = &[
    row("accept-proxy", 0, |b, _, _| flag(&mut b.options.accept_proxy), "Clients send a PROXY protocol header first."),
    row(
        "accept-netscaler-cip",
        1,
        accept_netscaler,
        "Clients send a client IP header of NetScaler first, which begins with this number.",
    ),
    row("backlog", 1, backlog, "Length of the kernel's accept queue."),
    row(
        "defer-accept",
        0,
        |b, _, _| flag(&mut b.options.defer_accept),
        "Accept a connection once its first data has arrived.",
    ),
    row(
        "expose-fd",
        1,
        stats::expose_fd,
        "On a 'stats socket': a new process may take over the listening sockets \
                                           through it.",
    ),
    row("gid", 1, gid, "Group id of the UNIX socket."),
    row("group", 1, group, "Group of the UNIX socket."),
    row("id", 1, id, "Numeric id of the listening socket."),
    row("interface", 1, interface, "Accept from this network interface only."),
    row("level", 1, stats::level, "On a 'stats socket': access level of its sessions, 'user', 'operator' or 'admin'."),
    row("maxconn", 1, maxconn, "Maximum number of concurrent connections on this address."),
    row("mode", 1, mode, "Permissions of the UNIX socket, octal."),
    row("mss", 1, mss, "TCP maximum segment size (MSS)."),
    row("name", 1, name, "Name of the listening socket in statistics."),
    row("namespace", 1, namespace, "Listen in this network namespace ('ip netns')."),
    row(
        "proto",
        1,
        proto,
        "What clients speak: 'h1', 'h2', or 'none' in 'mode tcp'; otherwise ALPN or their first bytes decide.",
    ),
    row("severity-output", 1, stats::severity, "On a 'stats socket': whether messages begin with their severity."),
    row("shards", 1, shards, "Number of listening sockets for the address, or 'by-thread'."),
    row("tcp-ut", 1, tcp_ut, "TCP user timeout: how long sent data may stay unacknowledged."),
    row("tfo", 0, |b, _, _| flag(&mut b.options.tfo), "TCP Fast Open."),
    row(
        "transparent",
        0,
        |b, _, _| flag(&mut b.options.transparent),
        "Bind to addresses that this machine does not have.",
    ),
    row("uid", 1, uid, "User id of the UNIX socket."),
    row("user", 1, user, "User of the UNIX socket."),
    row("v4v6", 0, |b, _, _| v6(b, false), "An IPv6 socket accepts IPv4 as well."),
    row("v6only", 0, |b, _, _| v6(b, true), "An IPv6 socket accepts IPv6 only."),
    none("nice", 1, "connections are processed in the order of their events"),
    none("process", 1, "all threads serve all addresses"),
    none("thread", 1, "all threads serve all addresses"),
    later("quic-force-retry", 0),
];

/// All rows: those of TLS come last.
pub(crate) fn rows() -> impl Iterator<Item = &'static Parameter<BindDraft>> {
    PARAMETERS.iter().chain(tls::BIND_ROWS)
}

fn nothing(_: &mut BindDraft, _: &mut Call<'_, '_>, _: usize) -> usize {
    0
}

/// Reads a `bind` line into the draft.
pub(crate) fn bind(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let list = call.arg(0);
    if list.is_empty() {
        return call.expects(0, "{<path>|[addr1]:port1[-end1]}{,[addr]:port[-end]}... as arguments");
    }
    let mut addresses = Vec::new();
    let mut own = Vec::new();
    // HAProxy takes a comma at the end, too.
    for text in list.strip_suffix(',').unwrap_or(list).split(',') {
        let refusal = match expand(text, call) {
            Ok(more) => {
                addresses.extend(more);
                continue;
            }
            Err(message) => message,
        };
        match direct::place(text, call).unwrap_or(Err(refusal.clone())) {
            Ok(more) => {
                call.context.objects += more.len();
                own.extend(more.into_iter().map(|place| (place, refusal.clone())));
            }
            Err(message) => {
                let hint = direct::bind_hint(text).or_else(|| address::hint(text));
                return call.error_with(call.first, "bad-value", format!("'bind' : {message}"), hint);
            }
        }
    }
    let about = format!("'bind {list}' in section '{}' : ", draft.kind.word());
    let Some(mut bind) = parameters(call, &about) else { return };
    if let Some(id) = bind.id
        && let Some(other) = draft.proxy.binds.iter().find(|other| other.id == Some(id))
    {
        let message = format!("{about}'id' : custom id {id} already used at {}", other.source);
        return call.error(call.first, "duplicate-id", message);
    }
    stats::on_a_bind(&bind, call, &about);
    tls::finish(&mut bind, call, &about);
    if bind.options.tls.is_some() {
        draft.ssl_lines.push(call.line.clone());
    }
    draft.bind_lines.push(call.line.clone());
    // A stand-in for the address, so that all else of the line is at hand.
    let nowhere = || Address::Inet(([0, 0, 0, 0], 0).into());
    draft.direct.places.extend(own.into_iter().map(|(place, refusal)| OwnNode {
        place,
        bind: Box::new(bind.bind(nowhere(), call)),
        refusal,
        line: call.line.clone(),
    }));
    draft.proxy.binds.extend(addresses.into_iter().map(|address| bind.bind(address, call)));
}

/// Reads the words behind the address of a `bind` line. `None` when one of them is at fault.
pub(crate) fn parameters(call: &mut Call<'_, '_>, about: &str) -> Option<BindDraft> {
    let mut bind = BindDraft::default();
    let mut valid = true;
    let mut at = call.first + 1;
    while at < call.line.words.len() {
        let word = call.line.word(at);
        let Some(row) = rows().find(|row| row.name == word) else {
            let guess = nearest(word, rows().map(|row| row.name));
            let guess = guess.map(|name| format!("; did you mean '{name}' maybe ?")).unwrap_or_default();
            call.error(at, "unknown-keyword", format!("{about}unknown keyword '{word}'{guess}"));
            return None;
        };
        if at + row.args >= call.line.words.len() {
            call.error(at, "missing-argument", format!("{about}'{word}' : missing {}", tls::missing(word)));
            return None;
        }
        match row.status {
            Status::Done => {
                let alerts = call.context.report.alerts();
                call.about = Subject::Text(format!("{about}'{word}' : "));
                (row.apply)(&mut bind, call, at);
                call.about = Subject::Nothing;
                valid &= call.context.report.alerts() == alerts;
            }
            Status::NoEffect(why) => call.notice("no-effect", format!("{about}'{word}' has no effect: {why}")),
            Status::NotYet | Status::Removed(_) => {
                let message = format!("{about}keyword '{word}' is not supported yet");
                call.error(at, "not-yet", message);
                valid = false;
            }
        }
        at += 1 + row.args;
    }
    valid.then_some(bind)
}

/// One address text to addresses: one for each port of a range.
pub(crate) fn expand(text: &str, call: &mut Call<'_, '_>) -> Result<Vec<Address>, String> {
    let (host, family, port) = match address::parse(text)? {
        Text::Unix(path) => return Ok(vec![Address::Unix(path)]),
        Text::Abstract(name) => return Ok(vec![Address::Abstract(name)]),
        Text::Fd(fd) if call.context.env.is_fd_open(fd) => return Ok(vec![Address::Fd(fd)]),
        Text::Fd(fd) => return Err(format!("cannot use file descriptor '{fd}' : Bad file descriptor.")),
        Text::Inet { host, family, port } => (host, family, port),
    };
    let (low, high) = match port {
        Port::Absent => return Err(format!("missing port specification in '{text}'")),
        Port::One(0) => return Err("invalid port '0'".into()),
        Port::One(port) => (port, port),
        Port::Range(low, high) => (low, high),
        Port::Offset(_) => return Err(format!("port offset not permitted here in '{text}'")),
    };
    let ip = resolve(&host, family, text, call)?;
    call.context.objects += usize::from(high - low) + 1;
    if call.context.objects > MAX_OBJECTS {
        return Err(format!("more than {MAX_OBJECTS} listening addresses and servers in '{text}'"));
    }
    Ok((low..=high).map(|port| Address::Inet((ip, port).into())).collect())
}

fn resolve(host: &str, family: Family, text: &str, call: &mut Call<'_, '_>) -> Result<std::net::IpAddr, String> {
    match address::literal(host, family) {
        Some(ip) => Ok(ip),
        None => call.context.resolve(host, family).ok_or_else(|| format!("invalid address: '{host}' in '{text}'")),
    }
}

fn flag(field: &mut bool) -> usize {
    *field = true;
    0
}

fn v6(bind: &mut BindDraft, only: bool) -> usize {
    bind.options.v6only = Some(only);
    0
}

fn unsigned(call: &mut Call<'_, '_>, at: usize, low: i64, high: i64) -> Option<u32> {
    let name = call.line.word(at).to_string();
    call.number_at(at + 1, &name, low, high).and_then(|value| u32::try_from(value).ok())
}

fn accept_netscaler(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.options.accept_netscaler = unsigned(call, at, 1, i64::from(u32::MAX));
    1
}

fn backlog(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.options.backlog = unsigned(call, at, 0, i64::from(i32::MAX)).filter(|value| *value > 0);
    1
}

fn maxconn(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.options.maxconn = unsigned(call, at, 0, i64::from(i32::MAX)).filter(|value| *value > 0);
    1
}

fn id(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.id = unsigned(call, at, 1, i64::from(i32::MAX));
    1
}

fn name(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.name = Some(call.line.word(at + 1).into());
    1
}

fn interface(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.options.interface = Some(call.line.word(at + 1).into());
    1
}

fn namespace(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let name = call.line.word(at + 1);
    match name.contains('/') || name == "." || name == ".." || name.len() > NAMESPACE_MAX {
        true => call.error(
            at + 1,
            "bad-value",
            format!(
                "'{name}' is not a valid name of a network namespace ('ip \
                                                         netns')"
            ),
        ),
        false => bind.options.namespace = Some(name.into()),
    }
    1
}

fn mode(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1);
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => bind.options.socket.mode = Some(mode),
        _ => call.error(at + 1, "bad-value", format!("missing or invalid mode '{text}' (octal integer expected)")),
    }
    1
}

fn uid(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.options.socket.uid = unsigned(call, at, 0, i64::from(u32::MAX) - 1);
    1
}

fn gid(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.options.socket.gid = unsigned(call, at, 0, i64::from(u32::MAX) - 1);
    1
}

fn user(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let name = call.line.word(at + 1);
    bind.options.socket.uid = call.context.env.user(name);
    if bind.options.socket.uid.is_none() {
        call.error(at + 1, "unknown-user", format!("unknown user name '{name}'"));
    }
    1
}

fn group(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let name = call.line.word(at + 1);
    bind.options.socket.gid = call.context.env.group(name);
    if bind.options.socket.gid.is_none() {
        call.error(at + 1, "unknown-group", format!("unknown group name '{name}'"));
    }
    1
}

fn mss(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1).parse::<i32>() {
        Ok(mss @ 1..=65535) => bind.options.mss = Some(mss.unsigned_abs()),
        Ok(-65535..=-1) => {
            let message = "a negative 'mss' has no effect on Linux, in HAProxy neither: use the positive value to \
                           advertise";
            call.warn(at + 1, "without-effect", message.into());
        }
        _ => call.error(at + 1, "bad-value", "expects an MSS with an absolute value between 1 and 65535".into()),
    }
    1
}

fn proto(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1) {
        "h1" => bind.options.proto = Some(BindProtocol::H1),
        "h2" => bind.options.proto = Some(BindProtocol::H2),
        "none" => bind.options.proto = Some(BindProtocol::Bytes),
        text => {
            let message = format!("'proto' :  unknown MUX protocol '{text}'");
            call.error_with(at + 1, "bad-value", message, suggestion(text, ["h1", "h2", "none"]));
        }
    }
    1
}

/// Whether what clients of each address speak fits the section's mode.
pub(crate) fn judge_protocols(proxy: &Proxy, kind: Kind, context: &mut Context<'_>) {
    for bind in &proxy.binds {
        let word = match (bind.options.proto, proxy.mode) {
            (None, _) | (Some(BindProtocol::H1 | BindProtocol::H2), Mode::Http) => continue,
            (Some(BindProtocol::Bytes), Mode::Tcp) => continue,
            (Some(BindProtocol::H1), _) => "h1",
            (Some(BindProtocol::H2), _) => "h2",
            (Some(BindProtocol::Bytes), _) => "none",
        };
        let (kind, name, place, source) = (kind.label(), &proxy.name, bind.place(), &bind.source);
        let message =
            format!("{kind} '{name}' : MUX protocol '{word}' is not usable for 'bind {place}' at [{source}].");
        let plain = Diagnostic::plain(Severity::Alert, "needs-http", message);
        context.report.add(Diagnostic { late: true, file: source.file.clone(), line: source.line, ..plain });
    }
}

fn shards(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    match call.line.word(at + 1) {
        "by-thread" => bind.options.shards = None,
        text => match text.parse::<u32>() {
            Ok(number @ 1..=64) => bind.options.shards = Some(number),
            _ => {
                let message = format!("invalid value {text}, allowed range is 1..64 or 'by-thread'");
                call.error_with(at + 1, "bad-value", message, suggestion(text, ["by-thread"]));
            }
        },
    }
    1
}

fn tcp_ut(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let time = call.time_at(at + 1, "tcp-ut", Unit::Ms);
    bind.options.tcp_user_timeout_ms = time.map(|time| time.as_millis() as u32).filter(|ms| *ms > 0);
    1
}
