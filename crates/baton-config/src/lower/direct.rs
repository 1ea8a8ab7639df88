//! `mode direct`: what its sections amount to, and what does not fit together.
//!
//! Packets pass through the kernel, and answers do not come back this way at all. So whatever HAProxy does with bytes has no
//! meaning here: written in the section itself it is refused; where it comes from `defaults` it is left out, with a warning if
//! clients or servers would notice.

mod whole;

pub(crate) use whole::MAX_SERVICES;
pub(super) use whole::{is_mixed, mixed, whole};

use std::collections::HashMap;
use std::sync::Arc;

use baton_model::{
    Address, Algorithm, Bind, BindOptions, CheckStep, CheckType, Direct, DirectBind, Forwarding, HttpOptions, Mode,
    Place, Proxy, RetryOn, Scheduler, TcpOptions, Timeouts,
};

use super::{Context, Draft, Kind, ServerDraft, late};
use crate::diagnostic::Severity;
use crate::keywords::direct::{BALANCE, DirectDraft};

/// Keywords that mean something in this mode.
const KNOWN: [&str; 34] = [
    "balance",
    "bind",
    "default-server",
    "default_backend",
    "description",
    "disabled",
    "enabled",
    "engine",
    "http-check comment",
    "http-check connect",
    "http-check disable-on-404",
    "http-check expect",
    "http-check send",
    "id",
    "log",
    "log-tag",
    "manage-vip",
    "mode",
    "on-exit",
    "option allbackups",
    "option direct-vip-check",
    "option dontlog-normal",
    "option dontlognull",
    "option httpchk",
    "option log-health-checks",
    "option log-separate-errors",
    "option tcplog",
    "server",
    "server-template",
    "source",
    "stick",
    "stick-table",
    "timeout check",
    "timeout connect",
];

/// What to do instead of a keyword.
fn remedy(keyword: &str) -> &'static str {
    match keyword {
        "maxconn" | "fullconn" | "backlog" | "rate-limit sessions" => {
            "remove it; 'maxconn' of a server is its upper threshold"
        }
        "option forwardfor" | "option originalto" => "remove it: servers see the client's address",
        "cookie" | "dynamic-cookie-key" => "use 'stick on src' for persistence",
        "hash-type" | "hash-balance-factor" => "use 'balance mh'",
        "use_backend" | "use-server" => "use 'default_backend', or select packets by a firewall mark ('bind fwmark@N')",
        "ssl-f-use" => "remove it: clients use TLS directly with the server",
        _ if keyword.starts_with("timeout ") => {
            "remove it; 'tune.ipvs.timeout-…' in 'global' sets the kernel's timeouts"
        }
        _ => "remove it, or use 'mode tcp' or 'mode http'",
    }
}

/// Keywords without a meaning that do no harm either: a section that was `mode tcp` before may have them.
fn is_harmless(keyword: &str) -> bool {
    keyword.starts_with("timeout ")
        || matches!(keyword, "retries" | "option redispatch" | "option httplog" | "option logasap")
}

/// Keywords that `defaults` bring and whose absence somebody would notice.
fn is_missed(keyword: &str) -> bool {
    const MISSED: [&str; 10] = [
        "acl",
        "cookie",
        "http-request",
        "maxconn",
        "option forwardfor",
        "option originalto",
        "rate-limit sessions",
        "tcp-request connection",
        "tcp-request content",
        "tcp-request session",
    ];
    MISSED.contains(&keyword)
}

/// What is in sections of other modes and belongs to this one.
pub(super) fn foreign(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    for place in &draft.direct.places {
        let message = format!("'bind' : {}", place.refusal);
        let mut diagnostic = place.line.diagnostic(Severity::Alert, "bad-value", 1, message);
        diagnostic.hint = Some("it is supported in 'mode direct'".into());
        context.report.add(diagnostic);
    }
    let needs = |keyword: &str, context: &mut Context<'_>| {
        let Some(line) = draft.lines.get(keyword) else { return };
        let message = format!(
            "'{keyword}' is not supported for {} '{}', which is in 'mode {}': it needs 'mode direct'.",
            draft.kind.label(),
            proxy.name,
            proxy.mode.word()
        );
        context.report.add(late(line, Severity::Alert, "needs-direct", 0, message));
    };
    for keyword in ["engine", "on-exit", "manage-vip", "option direct-vip-check"] {
        needs(keyword, context);
    }
    if draft.direct.scheduler.is_some() {
        needs("balance", context);
    }
    for server in &draft.servers {
        if server.server.forwarding == Forwarding::Direct {
            continue;
        }
        if let Some(line) = &server.line {
            let message = format!(
                "'server {}/{}' : 'tunnel' and 'masquerade' need 'mode direct'.",
                proxy.name, server.server.name
            );
            context.report.add(late(line, Severity::Alert, "needs-direct", 1, message));
        }
    }
}

/// The values of a section of this mode; all that has no meaning in it goes.
pub(super) fn finish(proxy: &mut Proxy, draft: &Draft, context: &mut Context<'_>) {
    meaningless(proxy, draft, context);
    let table = proxy.table.take();
    let mut direct = Direct {
        places: places(proxy, draft, context),
        engine: draft.direct.engine,
        on_exit: draft.direct.on_exit,
        manage_vip: draft.direct.manage_vip.clone(),
        scheduler: Scheduler::default(),
        hash_port: draft.direct.hash_port,
        fallback: draft.direct.fallback,
        persistence: None,
        vip_check: !draft.direct.no_vip_check,
    };
    if proxy.role.is_backend() {
        direct.scheduler = scheduler(proxy, draft, context);
        match draft.direct.persistence(draft.lines.get("stick"), table.and_then(|table| table.expire)) {
            Ok(persistence) => direct.persistence = persistence,
            Err(message) => {
                let line = draft.lines.get("stick").unwrap_or(&draft.head);
                context.report.add(late(line, Severity::Alert, "bad-value", 0, format!("{message}.")));
            }
        }
    } else {
        (direct.hash_port, direct.fallback, direct.vip_check) = (false, false, true);
        if let Some(line) = draft.lines.get("stick-table") {
            let message = "in 'mode direct', 'stick-table' belongs in the backend, with 'stick on src'.";
            context.report.add(late(line, Severity::Alert, "wrong-section", 0, message.into()));
        }
    }
    proxy.direct = Some(Arc::new(direct));
    proxy.binds = Vec::new();
    proxy.balance = Default::default();
    proxy.rules.clear();
    proxy.http = HttpOptions::default();
    proxy.tcp = TcpOptions { all_backups: proxy.tcp.all_backups, ..TcpOptions::default() };
    let Timeouts { connect, check, .. } = proxy.timeouts;
    proxy.timeouts = Timeouts { connect, check, ..Timeouts::default() };
    (proxy.maxconn, proxy.backlog, proxy.rate_limit, proxy.fullconn) = (None, None, None, None);
    proxy.cookie = None;
    (proxy.retries, proxy.retry_on) = (3, RetryOn::default());
}

/// Lines that say something about bytes.
fn meaningless(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    let (kind, name) = (draft.kind.label(), &proxy.name);
    let known = |keyword: &str| KNOWN.contains(&keyword);
    for (keyword, line) in draft.lines.iter().filter(|(keyword, _)| !known(keyword)) {
        let (severity, what) = match is_harmless(keyword) {
            true => (Severity::Warning, "is ignored for"),
            false => (Severity::Alert, "is not supported for"),
        };
        let message = format!("'{keyword}' {what} {kind} '{name}', which is in 'mode direct'.");
        let mut diagnostic = late(line, severity, "without-meaning", 0, message);
        diagnostic.hint = Some(remedy(keyword).into());
        context.report.add(diagnostic);
    }
    let inherited = draft.inherited.iter().filter(|(keyword, _)| !known(keyword) && is_missed(keyword));
    for (keyword, line) in inherited.filter(|(keyword, _)| draft.lines.get(keyword).is_none()) {
        let message = format!(
            "'{keyword}' of this 'defaults' section is ignored for {kind} '{name}', which is in 'mode direct'."
        );
        let mut diagnostic = late(line, Severity::Warning, "without-meaning", 0, message);
        diagnostic.hint = Some("use a separate 'defaults' section: 'listen NAME from DEFAULTS'".into());
        context.report.add(diagnostic);
    }
}

/// The places of `bind` lines, in the order of the lines.
fn places(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) -> Vec<DirectBind> {
    let usual = proxy.binds.iter().map(|bind| (bind, None));
    let own = draft.direct.places.iter().map(|own| (&*own.bind, Some(own.place)));
    let mut all: Vec<(&Bind, Option<Place>)> = usual.chain(own).collect();
    all.sort_by_key(|(bind, _)| bind.source.line);
    let mut places = Vec::with_capacity(all.len());
    let mut told = 0;
    for (bind, own) in all {
        let line = draft.bind_lines.iter().find(|line| line.number == bind.source.line).unwrap_or(&draft.head);
        let mut fault = |message: String, hint: &str| {
            // A range is refused once.
            if told != line.number {
                told = line.number;
                let mut diagnostic = late(line, Severity::Alert, "bad-value", 1, message);
                diagnostic.hint = Some(hint.into());
                context.report.add(diagnostic);
            }
        };
        let place = match (own, &bind.address) {
            (Some(place), _) => place,
            (None, Address::Inet(address)) => Place::Tcp(*address),
            (None, other) => {
                let message = format!("'bind {other}' is not a virtual address: 'mode direct' balances packets.");
                fault(message, "write ADDRESS:PORT, 'udp@ADDRESS:PORT' or 'fwmark@MARK'");
                continue;
            }
        };
        if place.address().is_some_and(|address| address.ip().is_unspecified()) {
            let message = format!("'bind {place}' : a virtual service of 'mode direct' needs a specific address.");
            fault(message, "write the virtual address, or 'fwmark@MARK' for packets that a firewall marks");
        }
        let plain = BindOptions { interface: bind.options.interface.clone(), ..BindOptions::default() };
        if bind.options != plain {
            let message =
                format!("'bind {place}' : 'mode direct' only supports 'name', 'id' and 'interface' after the address.");
            fault(message, "clients connect directly to the server, which has all other connection settings");
        }
        let interface = bind.options.interface.clone();
        places.push(DirectBind { place, name: bind.name.clone(), id: bind.id, interface, source: bind.source.clone() });
    }
    places
}

/// `balance`, as the kernel can do it.
fn scheduler(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) -> Scheduler {
    if let Some(own) = draft.direct.scheduler {
        return own;
    }
    surplus(proxy, draft, context);
    match &proxy.balance.algorithm {
        Algorithm::RoundRobin | Algorithm::StaticRr => Scheduler::RoundRobin,
        Algorithm::LeastConn => Scheduler::LeastConn,
        Algorithm::Source => Scheduler::Source,
        Algorithm::Random { .. } => Scheduler::Random,
        Algorithm::First
        | Algorithm::Uri(_)
        | Algorithm::UrlParam { .. }
        | Algorithm::Hdr { .. }
        | Algorithm::RdpCookie(_)
        | Algorithm::Hash(_) => {
            let (line, severity, end) = match (draft.lines.get("balance"), draft.inherited.get("balance")) {
                (Some(line), _) => (line, Severity::Alert, "."),
                (None, Some(line)) => (line, Severity::Warning, ": falling back to round robin."),
                (None, None) => (&draft.head, Severity::Alert, "."),
            };
            let (kind, name) = (draft.kind.label(), &proxy.name);
            let word = line.word(1);
            let message = format!("'balance {word}' is not supported in the kernel for {kind} '{name}'{end}");
            let mut diagnostic = late(line, severity, "without-meaning", 1, message);
            diagnostic.hint = Some(BALANCE.into());
            context.report.add(diagnostic);
            Scheduler::RoundRobin
        }
    }
}

/// Words behind `balance` that other modes do not mind, and that somebody may expect something of here.
fn surplus(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    use Algorithm::{LeastConn, Random, RoundRobin, Source, StaticRr};
    let (line, severity) = match (draft.lines.get("balance"), draft.inherited.get("balance")) {
        (Some(line), _) => (line, Severity::Alert),
        (None, Some(line)) => (line, Severity::Warning),
        (None, None) => return,
    };
    let accepts: &[&str] = match &proxy.balance.algorithm {
        Source => &["hash-port", "fallback"],
        RoundRobin | StaticRr | LeastConn | Random { .. } => &[],
        _ => return,
    };
    let odd = line.texts().enumerate().skip(2).find(|(_, word)| !accepts.contains(word));
    if let Some((index, word)) = odd {
        let message = format!(
            "'balance {}' cannot handle unexpected argument '{word}' for {} '{}', which is in 'mode direct'.",
            line.word(1),
            draft.kind.label(),
            proxy.name
        );
        let mut diagnostic = late(line, severity, "extra-argument", index, message);
        let is_of_hashes = matches!(word, "hash-port" | "fallback");
        diagnostic.hint = is_of_hashes.then(|| "'hash-port' and 'fallback' are options of 'source' and 'mh'".into());
        context.report.add(diagnostic);
    }
}

/// Gives each backend of this mode the port of the service that leads there, for checks of servers without one.
pub(super) fn service_ports(drafts: &mut [Draft]) {
    let mut ports: HashMap<Arc<str>, (u16, bool)> = HashMap::new();
    for draft in drafts.iter().filter(|draft| draft.proxy.mode == Mode::Direct && draft.kind != Kind::Backend) {
        let usual = draft.proxy.binds.iter().find_map(|bind| match &bind.address {
            Address::Inet(address) => Some(address.port()),
            Address::Unix(_) | Address::Abstract(_) | Address::Fd(_) => None,
        });
        let other = || draft.direct.places.iter().find(|own| own.place.port().is_some());
        let other = || other().and_then(|own| Some((own.place.port()?, matches!(own.place, Place::Udp(_)))));
        let Some(port) = usual.map(|port| (port, false)).or_else(other) else { continue };
        let backend = match &draft.proxy.default_backend {
            Some(name) => Arc::from(name.as_str()),
            None => draft.proxy.name.clone(),
        };
        // Where a service of TCP leads there too, that is the one to ask.
        let known = ports.entry(backend).or_insert(port);
        if known.1 && !port.1 {
            *known = port;
        }
    }
    for draft in drafts.iter_mut().filter(|draft| draft.proxy.mode == Mode::Direct && draft.kind != Kind::Frontend) {
        let service = ports.get(&draft.proxy.name).copied();
        (draft.direct.service_port, draft.direct.is_udp) =
            (service.map(|(port, _)| port), service.is_some_and(|(_, is_udp)| is_udp));
    }
}

/// Servers without a port are checked at the service's. That is a port of TCP, so it is odd where the service is of UDP.
pub(super) fn check_port(server: &mut ServerDraft, own: &DirectDraft, kind: &CheckType, context: &mut Context<'_>) {
    let (check, service) = (&server.server.check, own.service_port);
    let is_given = check.port.is_some() || matches!(check.addr, Some(Address::Inet(address)) if address.port() > 0);
    let is_step = |step: &CheckStep| matches!(step, CheckStep::Connect(connect) if connect.port.is_some());
    let is_said = is_given || kind.steps().iter().any(is_step);
    if let (Some(port), Some(line), true) = (service, &server.line, check.enabled && own.is_udp && !is_said) {
        let message = format!(
            "'server {}' : 'check' uses TCP, but the service on port {port} is UDP: a server without TCP on that port \
             is never up.",
            server.server.name
        );
        let mut diagnostic = late(line, Severity::Warning, "udp-check", 1, message);
        diagnostic.hint = Some("check a TCP port of the server ('check port N')".into());
        context.report.add(diagnostic);
    }
    if check.enabled && !server.has_port && !is_given {
        server.server.check.port = service;
    }
}
