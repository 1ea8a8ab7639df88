//! `resolvers` sections: name servers that are asked at run time (configuration manual, 5.3.2), and the words of `server` lines about them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use baton_model::{Address, Family, GlobalTls, NameServer, NetAddress, Resolution, Resolvers, Source, constant_name};
use baton_rules::{nearest, suggestion};

use crate::address::{self, Port, Text};
use crate::diagnostic::Severity;
use crate::keywords::Parameter;
use crate::keywords::server::tls::{self, JudgedFiles, Surroundings};
use crate::keywords::server::{of_name_server, parameter as row};
use crate::lower::{Call, Context, Draft, Prefix, ServerDraft, late};
use crate::syntax::{Line, Section};
use crate::values::Unit;

/// Keywords of a section.
const KEYWORDS: [&str; 7] = [
    "accepted_payload_size",
    "hold",
    "nameserver",
    "parse-resolv-conf",
    "resolve_retries",
    "timeout resolve",
    "timeout retry",
];
const HOLDS: [&str; 6] = ["nx", "obsolete", "other", "refused", "timeout", "valid"];
const OPTIONS: [&str; 3] = ["allow-dup-ip", "ignore-weight", "prevent-dup-ip"];
/// Where the system has its name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The port of DNS.
const DNS_PORT: u16 = 53;
/// The longest response that is accepted: its least and its largest value.
const PAYLOADS: std::ops::RangeInclusive<u32> = 12..=65_535;
/// Networks of `resolve-net`.
const NETWORKS_MAX: usize = 5;
/// The longest time, as HAProxy has it.
const TIME_MAX_MS: u128 = i32::MAX as u128;

/// The words of a `server` line.
pub(crate) static SERVER_ROWS: &[Parameter<ServerDraft>] = &[
    row("resolve-net", 1, resolve_net, "Networks whose addresses are preferred."),
    row("resolve-opts", 1, resolve_opts, "Whether servers may share an address, and SRV weights count."),
    row("resolve-prefer", 1, resolve_prefer, "Address family that is looked up first."),
    row("resolvers", 1, resolvers, "Section of name servers that give its address at run time."),
];

/// Reads a `resolvers` section.
pub(crate) fn section(section: &Section, context: &mut Context<'_>) {
    let head = &section.head;
    let name = head.word(1);
    let wrong = match name.chars().find(|char| !crate::lower::is_name(*char)) {
        _ if name.is_empty() => Some("missing name for resolvers section.".to_owned()),
        Some(odd) => Some(format!("character '{odd}' is not permitted in 'resolvers' name '{name}'.")),
        None => context.resolvers.iter().find(|known| &*known.name == name).map(|known| {
            format!("resolvers '{name}' has same name as another resolvers (declared at {}).", known.source)
        }),
    };
    if let Some(message) = wrong {
        return context.report.add(head.diagnostic(Severity::Alert, "bad-name", 1, message));
    }
    let mut draft = Resolvers::new(name.into(), head.source());
    let mut named: Vec<(Arc<str>, u32)> = Vec::new();
    for line in &section.lines {
        match line.word(0) {
            "nameserver" => {
                let call = &mut Call::new(line, 1, Prefix::None, "nameserver", context);
                if let Some(server) = name_server(&draft.name, &named, call) {
                    named.push((Arc::clone(&server.name), line.number));
                    draft.servers.push(server);
                }
            }
            "parse-resolv-conf" => system_servers(&mut draft, line, context),
            "hold" => hold(&mut draft, &mut Call::new(line, 1, Prefix::None, "hold", context)),
            "timeout" => timeout(&mut draft, &mut Call::new(line, 1, Prefix::None, "timeout", context)),
            "resolve_retries" => {
                let call = &mut Call::new(line, 1, Prefix::None, "resolve_retries", context);
                draft.retries = retries(call).unwrap_or(draft.retries);
            }
            "accepted_payload_size" => {
                let call = &mut Call::new(line, 1, Prefix::None, "accepted_payload_size", context);
                draft.payload = payload(call).unwrap_or(draft.payload);
            }
            word => {
                let message = format!("unknown keyword '{word}' in 'resolvers' section");
                let mut diagnostic = line.diagnostic(Severity::Alert, "unknown-keyword", 0, message);
                diagnostic.hint = nearest(word, KEYWORDS).map(|near| format!("did you mean '{near}'?"));
                context.report.add(diagnostic);
            }
        }
    }
    if draft.servers.is_empty() {
        let message = format!("resolvers '{name}' [{}] has no nameservers configured!", draft.source);
        context.report.add(late(head, Severity::Warning, "no-nameserver", 1, message));
    }
    context.resolvers.push(draft);
}

/// `nameserver ID ADDRESS:PORT …`.
fn name_server(section: &Arc<str>, known: &[(Arc<str>, u32)], call: &mut Call<'_, '_>) -> Option<NameServer> {
    let (name, place) = (call.arg(0), call.arg(1));
    if place.is_empty() {
        call.expects(call.args().min(1), "<name> and <addr>[:<port>] as arguments");
        return None;
    }
    if let Some((_, number)) = known.iter().find(|(other, _)| &**other == name) {
        let message = format!(
            "nameserver '{name}' has same name as another nameserver (declared at {}:{number}).",
            call.line.file
        );
        call.wrong(0, message);
        return None;
    }
    let (text, is_stream) = match place.split_once('@') {
        Some(("udp", rest)) => (rest.to_owned(), false),
        Some(("udp4", rest)) => (format!("ipv4@{rest}"), false),
        Some(("udp6", rest)) => (format!("ipv6@{rest}"), false),
        Some(("tcp" | "tcp4" | "tcp6", _)) => (place.to_owned(), true),
        Some(_) | None => (place.to_owned(), false),
    };
    let address = address::parse(&text).and_then(|parsed| match parsed {
        Text::Unix(_) | Text::Abstract(_) | Text::Fd(_) => {
            Err("a name server is asked over UDP or TCP: write an IP address and a port".to_owned())
        }
        Text::Inet { host, family, port } => {
            let port = match port {
                Port::One(port @ 1..) => port,
                Port::Range(..) => return Err(format!("port range not permitted here in '{place}'")),
                Port::Absent | Port::One(_) | Port::Offset(_) => {
                    return Err(format!("missing port specification in '{place}'"));
                }
            };
            let ip = address::literal(&host, family).or_else(|| call.context.resolve(&host, family));
            ip.map(|ip| SocketAddr::new(ip, port)).ok_or_else(|| format!("invalid address: '{host}' in '{place}'"))
        }
    });
    let address = match address {
        Ok(address) => address,
        Err(message) => {
            call.wrong(1, format!("'nameserver {name}' : {message}"));
            return None;
        }
    };
    let mut server = NameServer { is_stream, ..NameServer::new(name, address) };
    match is_stream {
        true => stream_words(section, &mut server, call)?,
        false if call.arg(2).is_empty() => {}
        false => {
            let message = format!(
                "'nameserver {name}' : '{}' has no effect, as in HAProxy: the name server is asked over UDP",
                call.arg(2)
            );
            let diagnostic = call.line.diagnostic(Severity::Warning, "no-effect", call.first + 2, message);
            call.context.report.add(diagnostic);
        }
    }
    Some(server)
}

/// What stands behind the address of a name server that is asked over TCP: `source`, `maxconn`, `ssl` and its companions. `None`: an error.
fn stream_words(section: &Arc<str>, server: &mut NameServer, call: &mut Call<'_, '_>) -> Option<()> {
    let mut words = of_name_server(section, &server.name, call, call.first + 2)?;
    if words.server.source_address.as_ref().is_some_and(|source| source.use_client.is_some()) {
        let message = format!("'nameserver {}' : 'usesrc' is about clients, of which there are none", server.name);
        call.error(call.first + 2, "bad-value", message);
        return None;
    }
    if let Some(sni) = words.tls.sni().filter(|sni| constant_name(sni).is_none()) {
        let message = format!("'nameserver {}' : 'sni {sni}' is not constant: write str(NAME)", server.name);
        call.error(call.first + 2, "bad-value", message);
        return None;
    }
    (server.source, server.maxconn) = (words.server.source_address.clone(), words.server.maxconn);
    if words.tls.on {
        words.server.name = format!("{section}/{}", server.name).into();
        words.server.address.target = Address::Inet(server.address).into();
        call.context.name_servers.push(NameServerWords {
            section: Arc::clone(section),
            name: Arc::clone(&server.name),
            words,
        });
    }
    Some(())
}

/// A name server that is asked over TLS.
pub(crate) struct NameServerWords {
    section: Arc<str>,
    name: Arc<str>,
    words: ServerDraft,
}

/// `parse-resolv-conf`.
fn system_servers(draft: &mut Resolvers, line: &Line, context: &mut Context<'_>) {
    match read_system_servers(context) {
        Ok(servers) => {
            let known: Vec<SocketAddr> = draft.servers.iter().map(|server| server.address).collect();
            draft.servers.extend(servers.into_iter().filter(|server| !known.contains(&server.address)));
        }
        Err(reason) => {
            let message = format!("failed to open {RESOLV_CONF}: {reason}.");
            context.report.add(line.diagnostic(Severity::Alert, "unreadable-file", 0, message));
        }
    }
}

fn read_system_servers(context: &Context<'_>) -> Result<Vec<NameServer>, String> {
    let content = context.env.read(Path::new(RESOLV_CONF));
    let content = content.map_err(|error| crate::environment::reason(&error))?;
    let mut servers: Vec<NameServer> = Vec::new();
    for line in String::from_utf8_lossy(&content).lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some("nameserver"), Some(text)) = (words.next(), words.next()) else { continue };
        let Ok(ip) = text.parse::<IpAddr>() else { continue };
        let address = SocketAddr::new(ip, DNS_PORT);
        if servers.iter().all(|known| known.address != address) {
            servers.push(NameServer::new(text, address));
        }
    }
    Ok(servers)
}

fn hold(draft: &mut Resolvers, call: &mut Call<'_, '_>) {
    let (event, text) = (call.arg(0), call.arg(1));
    if text.is_empty() {
        return call.wrong(
            call.args().min(1),
            "'hold' expects an <event> and a <time> as arguments.\n<event> can be either 'valid', 'nx', 'refused', \
             'timeout', 'obsolete' or 'other'"
                .into(),
        );
    }
    let hold = &mut draft.hold;
    let time = match event {
        "nx" => &mut hold.nx,
        "obsolete" => &mut hold.obsolete,
        "other" => &mut hold.other,
        "refused" => &mut hold.refused,
        "timeout" => &mut hold.timeout,
        "valid" => &mut hold.valid,
        _ => {
            let message = format!(
                "'hold' unknown <event>: '{event}', expects either 'nx', 'timeout', 'valid', 'obsolete' or 'other'."
            );
            return call.not_one_of(0, message, HOLDS);
        }
    };
    *time = time_of(call, 1, "hold").unwrap_or(*time);
}

fn timeout(draft: &mut Resolvers, call: &mut Call<'_, '_>) {
    let (event, text) = (call.arg(0), call.arg(1));
    match event {
        "" => call.wrong(0, "'timeout' expects 'retry' or 'resolve' and <time> as arguments.".into()),
        "retry" | "resolve" if text.is_empty() => {
            call.wrong(1, format!("'timeout {event}' expects <time> as argument."));
        }
        "retry" => draft.retry = time_of(call, 1, "timeout retry").unwrap_or(draft.retry),
        "resolve" => draft.resolve = time_of(call, 1, "timeout resolve").unwrap_or(draft.resolve),
        _ => {
            let message = format!("'timeout' expects 'retry' or 'resolve' and <time> as arguments got '{event}'.");
            call.not_one_of(0, message, ["retry", "resolve"]);
        }
    }
}

/// A time at an argument; complains in HAProxy's words.
fn time_of(call: &mut Call<'_, '_>, index: usize, of: &'static str) -> Option<Duration> {
    let time = call.time_at(call.first + index, of, Unit::Ms)?;
    (time.as_millis() <= TIME_MAX_MS).then_some(time)
}

fn retries(call: &mut Call<'_, '_>) -> Option<u32> {
    if call.arg(0).is_empty() {
        call.expects(0, "<nb> as argument");
        return None;
    }
    let parsed = call.arg(0).parse::<u32>();
    if parsed.is_err() {
        call.wrong(0, format!("'resolve_retries' expects a number (was '{}').", call.arg(0)));
    }
    parsed.ok()
}

fn payload(call: &mut Call<'_, '_>) -> Option<u16> {
    let text = call.arg(0);
    if text.is_empty() {
        call.expects(0, "<nb> as argument");
        return None;
    }
    let size = text.parse::<u32>().ok().filter(|size| PAYLOADS.contains(size));
    if size.is_none() {
        let (least, most) = (PAYLOADS.start(), PAYLOADS.end());
        call.wrong(0, format!("'accepted_payload_size' must be between {least} and {most} inclusive (was {text})."));
    }
    size.and_then(|size| u16::try_from(size).ok())
}

fn resolution(server: &mut ServerDraft) -> &mut Resolution {
    server.resolution.get_or_insert_with(|| Resolution::new(""))
}

fn resolvers(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    resolution(server).resolvers = call.line.word(at + 1).into();
    1
}

fn resolve_prefer(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let text = call.line.word(at + 1);
    match text {
        "ipv4" => resolution(server).prefer = Family::V4,
        "ipv6" => resolution(server).prefer = Family::V6,
        _ => {
            let message = "'resolve-prefer' expects either ipv4 or ipv6 as argument.".to_owned();
            call.error_with(at + 1, "bad-value", message, suggestion(text, ["ipv4", "ipv6"]));
        }
    }
    1
}

fn resolve_net(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let list = call.line.word(at + 1);
    let mut networks = Vec::new();
    for text in list.split(',') {
        if networks.len() == NETWORKS_MAX {
            call.error(at + 1, "out-of-range", format!("'resolve-net' exceed {NETWORKS_MAX} networks."));
            return 1;
        }
        let Some(network) = address::network(text) else {
            call.error(at + 1, "bad-value", format!("'resolve-net' invalid network '{text}'."));
            return 1;
        };
        networks.push(network);
    }
    resolution(server).networks = networks;
    1
}

fn resolve_opts(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let resolution = resolution(server);
    (resolution.may_share, resolution.ignore_weight) = (false, false);
    for text in call.line.word(at + 1).split(',').filter(|text| !text.is_empty()) {
        match text {
            "allow-dup-ip" => resolution.may_share = true,
            "ignore-weight" => resolution.ignore_weight = true,
            "prevent-dup-ip" => resolution.may_share = false,
            _ => {
                let message = format!(
                    "'resolve-opts' : unknown resolve-opts option '{text}', supported methods are 'allow-dup-ip', \
                     'ignore-weight', and 'prevent-dup-ip'."
                );
                call.error_with(at + 1, "bad-value", message, suggestion(text, OPTIONS));
                return 1;
            }
        }
    }
    1
}

/// Whether a name is one of SRV records, for a server that is looked up at run time.
pub(crate) fn is_service(name: &str) -> bool {
    name.starts_with('_')
}

/// What the words of a server's line make of it: nothing without a section. With a literal address nothing is looked up until an operator
/// names a host. An address family in front of the name is one that is preferred.
pub(crate) fn settle(server: &mut ServerDraft) {
    let Some(mut resolution) = server.resolution.clone().filter(|resolution| !resolution.resolvers.is_empty()) else {
        return;
    };
    match server.server.address.host.clone() {
        NetAddress::Name(name, family) => {
            if is_service(&name) {
                resolution.service = Some(name.as_str().into());
                server.has_port = true;
            }
            if family != Family::Any {
                resolution.prefer = family;
            }
        }
        NetAddress::Literal if server.server.address.inet().is_some() => {}
        NetAddress::Literal => return,
    }
    server.server.resolution = Some(Arc::new(resolution));
}

/// Names in `server` lines are those of sections. `default` is made of the system's name servers where it is not there.
pub(crate) fn check_names(drafts: &[Draft], context: &mut Context<'_>) {
    for draft in drafts {
        for server in &draft.servers {
            let (Some(resolution), Some(line)) = (&server.resolution, &server.line) else { continue };
            // Words about a look-up that no section is named for.
            if !line.texts().any(|word| word == "resolvers") && resolution.resolvers.is_empty() {
                continue;
            }
            let (name, proxy) = (&*resolution.resolvers, &draft.proxy.name);
            if !exists(name, context) {
                let message = format!(
                    "proxy '{proxy}', server '{}': unable to find required resolvers '{name}'",
                    server.server.name
                );
                unknown(line, name, message, context);
            }
        }
    }
}

fn unknown(line: &Line, name: &str, message: String, context: &mut Context<'_>) {
    let at = line.texts().position(|word| word == "resolvers").unwrap_or(0);
    let mut diagnostic = late(line, Severity::Alert, "unknown-resolvers", at + 1, message);
    diagnostic.hint = suggestion(name, context.resolvers.iter().map(|section| &*section.name));
    context.report.add(diagnostic);
}

/// Whether there is a section of that name.
pub(crate) fn exists(name: &str, context: &mut Context<'_>) -> bool {
    if context.resolvers.iter().any(|section| &*section.name == name) {
        return true;
    }
    if name != Resolvers::DEFAULT {
        return false;
    }
    let Ok(servers) = read_system_servers(context) else { return false };
    add_default(servers, context);
    true
}

fn add_default(servers: Vec<NameServer>, context: &mut Context<'_>) {
    let name = Resolvers::DEFAULT.into();
    context.resolvers.push(Resolvers { servers, ..Resolvers::new(name, Source::default()) });
}

/// The sections for the model. As in HAProxy there is always a `default`, unless the system has no name servers.
pub(crate) fn finish(
    global: &GlobalTls,
    files: &mut JudgedFiles<'_>,
    context: &mut Context<'_>,
) -> Vec<Arc<Resolvers>> {
    for NameServerWords { section, name, mut words } in std::mem::take(&mut context.name_servers) {
        let Some(line) = words.line.clone() else { continue };
        let mut around =
            Surroundings { global, backend: &section, http: false, check_protos: &[], steps: &[], files, last: None };
        tls::judge(&mut words, &line, &mut around, context);
        let mut sections = context.resolvers.iter_mut().filter(|other| other.name == section);
        let server = sections.find_map(|section| section.servers.iter_mut().find(|server| server.name == name));
        if let Some(server) = server {
            server.tls = Some(words.server.share());
        }
    }
    if !context.resolvers.iter().any(|section| &*section.name == Resolvers::DEFAULT)
        && let Ok(servers) = read_system_servers(context)
        && !servers.is_empty()
    {
        add_default(servers, context);
    }
    std::mem::take(&mut context.resolvers).into_iter().map(Arc::new).collect()
}
