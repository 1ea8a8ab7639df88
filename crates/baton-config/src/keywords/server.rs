//! `server`, `server-template` and `default-server` lines (configuration manual, 4.2 and 5.2).

mod parameters;
pub(crate) mod tls;

use std::net::IpAddr;
use std::sync::Arc;

use baton_model::{Address, NetAddress, ServerTarget, Written};
use baton_rules::nearest;

use super::{Status, direct};
use crate::address::{self, Port, Text};
use crate::dynamic_server::{self, quoted};
use crate::lower::{Call, Draft, MAX_OBJECTS, ServerDraft, Subject, is_name, server_words};

use parameters::INDEX;
pub(crate) use parameters::{all, check_address, row as parameter};

/// How many words belong to this one on a `server` line; none to one that is unknown.
pub(crate) fn arguments(word: &str) -> usize {
    INDEX.get(word).map_or(0, |row| row.args)
}

/// `server NAME ADDRESS[:PORT] …`.
pub(crate) fn server(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() || call.arg(1).is_empty() {
        let missing = usize::from(!call.arg(0).is_empty());
        return call.expects(missing, "<name> and <addr>[:<port>] as arguments");
    }
    let name = call.arg(0);
    let mut server = draft.default_server.clone();
    server.line = Some(call.line.clone());
    server.server.line = call.line.source();
    server.server.written = written(call, call.first + 1);
    server.server.name = Arc::from(name);
    if named(name, call, call.first)
        && place(&mut server, draft, call, call.first + 1)
        && parameters(&mut server, &draft.proxy.name, call, call.first + 2)
    {
        add(draft, server, call);
    }
}

/// `server-template PREFIX NUMBER|RANGE ADDRESS[:PORT] …`.
pub(crate) fn template(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.args() < 3 || call.arg(0).is_empty() || call.arg(2).is_empty() {
        return call.expects(call.args().min(2), "<prefix> <nb | range> <addr>[:<port>] as arguments");
    }
    let numbers = match call.arg(1).split_once('-') {
        None => call.arg(1).parse::<u32>().ok().map(|last| (1, last)),
        Some((low, high)) => low.parse::<u32>().ok().zip(high.parse::<u32>().ok()),
    };
    let Some((low, high)) = numbers.filter(|(low, high)| *low >= 1 && low <= high) else {
        let message = format!("Wrong server-template number or range arg '{}'.", call.arg(1));
        return call.wrong(1, message);
    };
    let prefix = call.arg(0);
    let mut server = draft.default_server.clone();
    server.line = Some(call.line.clone());
    server.server.line = call.line.source();
    server.server.written = written(call, call.first + 2);
    server.server.name = Arc::from(prefix);
    if !named(prefix, call, call.first)
        || !place(&mut server, draft, call, call.first + 2)
        || !parameters(&mut server, &draft.proxy.name, call, call.first + 3)
    {
        return;
    }
    for number in low..=high {
        let mut one = server.clone();
        one.server.name = Arc::from(format!("{prefix}{number}"));
        one.id = server.id.map(|first| first.saturating_add(number - low));
        if !add(draft, one, call) {
            return;
        }
    }
}

/// `default-server …`: settings of the servers below.
pub(crate) fn default_server(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut server = draft.default_server.clone();
    server.line = None;
    if parameters(&mut server, &draft.proxy.name, call, call.first) {
        if server.tls.ready != server.tls.on {
            server.tls.ready = server.tls.on;
        }
        draft.default_server = server;
    }
}

/// The words from one on, which all servers of a template share.
/// What stands on the line of a name server that is asked over TCP, from that word on. `None`: an error.
pub(crate) fn of_name_server(
    section: &Arc<str>,
    name: &str,
    call: &mut Call<'_, '_>,
    from: usize,
) -> Option<ServerDraft> {
    let mut server = ServerDraft::new();
    server.line = Some(call.line.clone());
    server.server.line = call.line.source();
    server.server.name = Arc::from(name);
    let mut at = from;
    while let Some(row) = INDEX.get(call.line.word(at)) {
        let word = row.name;
        match word {
            _ if tls::is_about_traffic(word) => {}
            "maxconn" | "source" => {}
            "namespace"
            | "proto"
            | "proxy-v2-options"
            | "send-proxy"
            | "send-proxy-v2"
            | "send-proxy-v2-ssl"
            | "send-proxy-v2-ssl-cn"
            | "socks4"
            | "tcp-ut"
            | "tfo" => {
                call.error(at, "not-yet", format!("'nameserver {name}' : '{word}' is not supported for name servers"));
                return None;
            }
            _ => call.warn(at, "no-effect", format!("'nameserver {name}' : '{word}' has no effect on a name server")),
        }
        at += 1 + row.args;
    }
    parameters(&mut server, section, call, from).then_some(server)
}

fn written(call: &Call<'_, '_>, from: usize) -> Written {
    Written(quoted((from..call.line.words.len()).map(|at| call.line.word(at))).into())
}

fn named(name: &str, call: &mut Call<'_, '_>, word: usize) -> bool {
    let Some(odd) = name.chars().find(|char| !is_name(*char)) else { return true };
    call.error(word, "bad-name", format!("character '{odd}' is not permitted in server name '{name}'."));
    false
}

fn add(draft: &mut Draft, mut server: ServerDraft, call: &mut Call<'_, '_>) -> bool {
    call.context.objects += 1;
    if call.context.objects > MAX_OBJECTS {
        let message = format!("more than {MAX_OBJECTS} listening addresses and servers");
        call.error(call.first, "too-many-objects", message);
        return false;
    }
    if server.server.check.track.is_some() && server.server.check.enabled {
        let message = format!(
            "'server {}/{}' : unable to enable checks and tracking at the same time!",
            draft.proxy.name, server.server.name
        );
        call.error(call.first, "check-and-track", message);
    }
    // A server that is limited has its dynamic limit between both; HAProxy reads a lone minconn as maxconn.
    if server.server.minconn > 0 && server.server.maxconn == 0 {
        server.server.maxconn = server.server.minconn;
    }
    draft.servers.push(server);
    true
}

/// Reads the address of a server.
fn place(server: &mut ServerDraft, draft: &Draft, call: &mut Call<'_, '_>, word: usize) -> bool {
    let (proxy, name) = (&*draft.proxy.name, server.server.name.clone());
    let text = call.line.word(word);
    let fault = |message: String, call: &mut Call<'_, '_>| {
        let about = format!("'server {proxy}/{name}' : ");
        call.error_with(word, "bad-address", format!("{about}{message}"), address::hint(text));
        false
    };
    let target = &mut server.server.address;
    target.host = NetAddress::Literal;
    target.port_offset = None;
    let (host, family, port) = match address::parse(text) {
        Ok(Text::Unix(path)) => {
            target.target = ServerTarget::Fixed(Address::Unix(path));
            server.has_port = true;
            return true;
        }
        Ok(Text::Abstract(name)) => {
            target.target = ServerTarget::Fixed(Address::Abstract(name));
            server.has_port = true;
            return true;
        }
        Ok(Text::Fd(_)) => return fault(format!("a file descriptor is not acceptable here in '{text}'"), call),
        Ok(Text::Inet { host, family, port }) => (host, family, port),
        Err(message) => return fault(message, call),
    };
    let number = match port {
        Port::Absent => 0,
        Port::One(port) => port,
        Port::Range(..) => return fault(format!("port range not permitted here in '{text}'"), call),
        Port::Offset(offset) => {
            target.port_offset = Some(offset);
            0
        }
    };
    server.has_port = number > 0;
    match address::literal(&host, family) {
        Some(ip) => target.target = Address::Inet((ip, number).into()).into(),
        None if host.parse::<IpAddr>().is_ok() => {
            return fault(format!("invalid address: '{host}' in '{text}'"), call);
        }
        None => {
            // Resolved when the whole line is known, since `init-addr` may follow.
            target.host = NetAddress::Name(host, family);
            target.target = ServerTarget::Unresolved { port: number };
        }
    }
    true
}

/// Reads the words behind the address. False when one of them is at fault; the rest of the line is then not read.
fn parameters(server: &mut ServerDraft, proxy: &Arc<str>, call: &mut Call<'_, '_>, from: usize) -> bool {
    let mut about = match server.line {
        Some(_) => Subject::Server(proxy.clone(), server.server.name.clone()),
        None => Subject::Nothing,
    };
    let mut valid = true;
    let mut at = from;
    while at < call.line.words.len() {
        let word = call.line.word(at);
        let Some(row) = INDEX.get(word) else {
            let guess = nearest(word, server_words());
            let guess = guess.map(|name| format!("; did you mean '{name}' maybe ?")).unwrap_or(".".into());
            let hint = if server.line.is_none() { " Hint: no address was expected for this server." } else { "" };
            let help = direct::server_hint(word);
            call.error_with(at, "unknown-keyword", format!("{about}unknown keyword '{word}'{guess}{hint}"), help);
            return false;
        };
        if server.line.is_none() && matches!(word, "id") {
            call.error(at, "wrong-section", format!("'{word}' option is not accepted in default-server sections"));
            return false;
        }
        if server.is_dynamic && !dynamic_server::is_accepted(word) {
            call.error(at, "not-dynamic", format!("'{word}' option is not accepted for dynamic server"));
            return false;
        }
        // HAProxy reads `init-addr` without a method as the default.
        if at + row.args >= call.line.words.len() && word != "init-addr" {
            let what = match word {
                "inter" | "fastinter" | "downinter" | "slowstart" | "tcp-ut" | "pool-purge-delay" => "a delay",
                "cookie" => "<value>",
                "track" => "[<proxy>/]<server>",
                "redir" => "<prefix>",
                "resolve-prefer" => "either ipv4 or ipv6",
                "resolve-net" => "a list of networks",
                "addr" => "<ipv4|ipv6>",
                _ => "an argument",
            };
            let message = match tls::missing(word) {
                Some(what) => format!("{about}'{word}' : missing {what}."),
                None => format!("{about}'{word}' expects {what} as argument."),
            };
            call.error(at, "missing-argument", message);
            return false;
        }
        let mut used = row.args;
        match row.status {
            Status::Done => {
                let alerts = call.context.report.alerts();
                std::mem::swap(&mut call.about, &mut about);
                used = (row.apply)(server, call, at);
                std::mem::swap(&mut call.about, &mut about);
                valid &= call.context.report.alerts() == alerts;
            }
            Status::NoEffect(why) => {
                call.notice("no-effect", format!("{about}'{word}' has no effect: {why}"));
            }
            Status::NotYet | Status::Removed(_) => {
                let message = format!("{about}keyword '{word}' is not supported yet");
                call.error(at, "not-yet", message);
                valid = false;
            }
        }
        at += 1 + used;
    }
    valid
}
