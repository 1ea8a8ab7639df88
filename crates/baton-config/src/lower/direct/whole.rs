//! What only all sections of `mode direct` together can tell: services that two want, servers that no packet reaches.

use std::collections::HashMap;
use std::net::IpAddr;

use baton_model::{Address, DirectBind, EngineChoice, Forwarding, MarkedUp, Mode, Observe, Place, ServerTarget};

use crate::diagnostic::Severity;
use crate::lower::judge::SectionIndex;
use crate::lower::{Context, Draft, Kind, ServerDraft, late};
use crate::syntax::Line;

/// Most virtual services of one configuration: port ranges expanded. A firewall's mark or port 0 makes one of many ports.
pub(crate) const MAX_SERVICES: usize = 4096;

/// What only all sections together can tell.
pub(in crate::lower) fn whole(drafts: &[Draft], heads: &SectionIndex<'_>, context: &mut Context<'_>) {
    let is_direct = |draft: &&Draft| draft.proxy.mode == Mode::Direct && !draft.proxy.disabled;
    if !drafts.iter().any(|draft| is_direct(&draft)) {
        return;
    }
    engines(drafts, context);
    collisions(drafts, context);
    for draft in drafts.iter().filter(is_direct) {
        if draft.kind != Kind::Backend {
            frontend(draft, heads, context);
        }
        if draft.kind != Kind::Frontend {
            servers(draft, drafts, context);
        }
    }
}

/// One process has one engine.
fn engines(drafts: &[Draft], context: &mut Context<'_>) {
    let mut first: Option<&Draft> = None;
    for draft in drafts.iter().filter(|draft| draft.kind != Kind::Backend && !draft.proxy.disabled) {
        let engine = |draft: &Draft| draft.proxy.direct.as_ref().map_or(EngineChoice::Auto, |direct| direct.engine);
        if engine(draft) == EngineChoice::Auto {
            continue;
        }
        match first {
            None => first = Some(draft),
            Some(other) if engine(other) == engine(draft) => {}
            Some(other) => {
                let message = format!(
                    "{} '{}' requests engine {}, but {} '{}' ({}:{}) requests {}: all sections must use the same \
                     engine.",
                    draft.kind.label(),
                    draft.proxy.name,
                    engine(draft).word(),
                    other.kind.label(),
                    other.proxy.name,
                    other.head.file,
                    other.head.number,
                    engine(other).word()
                );
                let line = draft.lines.get("engine").unwrap_or(&draft.head);
                context.report.add(late(line, Severity::Alert, "engines", 1, message));
            }
        }
    }
}

/// Places that two sections want, and addresses at which somebody listens.
fn collisions(drafts: &[Draft], context: &mut Context<'_>) {
    let mut taken: HashMap<Place, &Draft> = HashMap::new();
    let enabled = || drafts.iter().filter(|draft| !draft.proxy.disabled);
    for draft in enabled() {
        for place in draft.proxy.places() {
            if let Some(other) = taken.insert(place.place, draft) {
                let message = format!(
                    "'bind {}' of {} '{}' is already a virtual service of {} '{}' ({}:{}).",
                    place.place,
                    draft.kind.label(),
                    draft.proxy.name,
                    other.kind.label(),
                    other.proxy.name,
                    other.head.file,
                    other.head.number
                );
                context.report.add(late(line_of(draft, place), Severity::Alert, "duplicate-service", 1, message));
            }
        }
        if taken.len() > MAX_SERVICES {
            let message = format!("more than {MAX_SERVICES} virtual services.");
            let mut diagnostic = late(&draft.head, Severity::Alert, "too-many-objects", 0, message);
            let hint =
                "use port 0 (with 'stick on src') or a firewall mark ('bind fwmark@N') for one service with many ports";
            diagnostic.hint = Some(hint.into());
            context.report.add(diagnostic);
            return;
        }
    }
    for (place, draft) in taken {
        // One without an address of its own was refused already.
        let Place::Tcp(service) = place else { continue };
        if service.ip().is_unspecified() {
            continue;
        }
        for other in enabled() {
            for bind in &other.proxy.binds {
                let Address::Inet(address) = bind.address else { continue };
                let is_port = service.port() == 0 || address.port() == service.port();
                let all_of = address.ip().is_unspecified() && (address.is_ipv6() || service.is_ipv4());
                let severity = match address.ip() == service.ip() {
                    _ if !is_port => continue,
                    true => Severity::Alert,
                    false if all_of => Severity::Warning,
                    false => continue,
                };
                let packets = match service.port() {
                    0 => format!("all ports of {}", service.ip()),
                    _ => place.to_string(),
                };
                let source = draft.proxy.places().iter().find(|own| own.place == place).map(|own| &own.source);
                let message = format!(
                    "{} '{}' listens on {address}, but the kernel sends packets to {packets} to servers of {} '{}' \
                     ({}): no connection will arrive.",
                    other.kind.label(),
                    other.proxy.name,
                    draft.kind.label(),
                    draft.proxy.name,
                    source.unwrap_or(&draft.proxy.source)
                );
                let line = other.bind_lines.iter().find(|line| line.number == bind.source.line).unwrap_or(&other.head);
                let mut diagnostic = late(line, severity, "service-and-listener", 1, message);
                diagnostic.hint = Some("listen on another address of this machine".into());
                context.report.add(diagnostic);
            }
        }
    }
}

fn line_of<'d>(draft: &'d Draft, place: &DirectBind) -> &'d Line {
    draft.bind_lines.iter().find(|line| line.number == place.source.line).unwrap_or(&draft.head)
}

fn frontend(draft: &Draft, heads: &SectionIndex<'_>, context: &mut Context<'_>) {
    let (kind, name) = (draft.kind.label(), &draft.proxy.name);
    let Some(direct) = &draft.proxy.direct else { return };
    let mut fault = |line: &Line, word: usize, message: String, hint: &str| {
        let mut diagnostic = late(line, Severity::Alert, "direct", word, message);
        diagnostic.hint = Some(hint.into());
        context.report.add(diagnostic);
    };
    let backend = match (&draft.proxy.default_backend, draft.kind) {
        // That it is there and of this mode is judged elsewhere.
        (Some(name), _) => {
            [Kind::Backend, Kind::Listen].iter().find_map(|kind| heads.get(&(name.as_str(), *kind))).copied()
        }
        (None, Kind::Listen) => Some(draft),
        (None, _) => {
            let message = format!("{kind} '{name}' is in 'mode direct' and has no servers.");
            return fault(&draft.head, 0, message, "use a backend in 'mode direct': 'default_backend NAME'");
        }
    };
    let sticks =
        backend.and_then(|backend| backend.proxy.direct.as_ref()).is_none_or(|back| back.persistence.is_some());
    for place in &direct.places {
        let line = line_of(draft, place);
        match place.place {
            Place::Mark { .. } if matches!(direct.engine, EngineChoice::Xdp(_)) => {
                let message = format!(
                    "'bind {}' : the engine xdp processes packets before a firewall can mark them.",
                    place.place
                );
                fault(line, 1, message, "use 'engine ipvs', or an address and port");
            }
            Place::Tcp(address) | Place::Udp(address) if address.port() == 0 && !sticks => {
                let message = format!("'bind {}' : port 0 (all ports) requires persistence.", place.place);
                fault(
                    line,
                    1,
                    message,
                    "add 'stick-table type ip size 1m expire 5m' and 'stick on src' to the backend",
                );
            }
            Place::Mark { .. } | Place::Tcp(_) | Place::Udp(_) => {}
        }
    }
    if let Some(managed) = &direct.manage_vip {
        let line = draft.lines.get("manage-vip").unwrap_or(&draft.head);
        let mut addresses = direct.places.iter().filter_map(|place| place.place.address()).peekable();
        if addresses.peek().is_none() && !direct.places.is_empty() {
            let message = format!("'manage-vip' : {kind} '{name}' has only firewall marks, which have no address.");
            fault(line, 0, message, "remove it, or add a 'bind' with the address");
        } else if managed.prefix.is_some_and(|bits| bits > 32) && addresses.any(|address| address.is_ipv4()) {
            let message = format!("'manage-vip' : {kind} '{name}' has IPv4 addresses, whose prefix is at most 32.");
            fault(line, 0, message, "use separate sections for IPv4 and IPv6 addresses with different prefixes");
        }
    }
}

/// Servers of a backend, with the services that lead there.
fn servers(draft: &Draft, drafts: &[Draft], context: &mut Context<'_>) {
    let leads = |front: &&Draft| match (&front.proxy.default_backend, front.kind) {
        (Some(name), Kind::Frontend | Kind::Listen) => **name == *draft.proxy.name,
        (None, Kind::Listen) => front.proxy.name == draft.proxy.name,
        (_, Kind::Frontend | Kind::Backend | Kind::Defaults) => false,
    };
    let fronts = drafts.iter().filter(|front| front.proxy.mode == Mode::Direct && !front.proxy.disabled).filter(leads);
    let places: Vec<Place> = fronts.flat_map(|front| front.proxy.places()).map(|place| place.place).collect();
    let mut seen: HashMap<(Option<Place>, IpAddr, u16), &str> = HashMap::new();
    for server in &draft.servers {
        let Some(line) = &server.line else { continue };
        if let Some((message, hint)) = fault_of(server, &places).or_else(|| sticks_nevertheless(draft, server)) {
            let about = format!("'server {}/{}' : {message}.", draft.proxy.name, server.server.name);
            let mut diagnostic = late(line, Severity::Alert, "direct", 2, about);
            let is_port = matches!(server.server.address.fixed(), Some(Address::Inet(address)) if address.port() > 0);
            diagnostic.hint = crate::address::hint(line.word(2)).filter(|_| is_port).or(Some(hint.into()));
            context.report.add(diagnostic);
        }
        if let Some(word) = ignored(server) {
            let message = format!(
                "'server {}/{}' : '{word}' is ignored, as it is not supported in 'mode direct'.",
                draft.proxy.name, server.server.name
            );
            context.report.add(late(line, Severity::Warning, "without-meaning", 1, message));
        }
        // The kernel tells servers apart by their addresses.
        if let Some(Address::Inet(address)) = server.server.address.fixed() {
            let masquerade = server.server.forwarding == Forwarding::Masquerade;
            let port = if masquerade { address.port() } else { 0 };
            // Without a port of its own it gets packets at the service's.
            let in_kernel = |place: &Place| if port > 0 { port } else { place.port().unwrap_or_default() };
            let mut keys: Vec<_> = places.iter().map(|place| (Some(*place), address.ip(), in_kernel(place))).collect();
            if keys.is_empty() {
                keys.push((None, address.ip(), port));
            }
            let name = &*server.server.name;
            let others: Vec<&str> = keys.into_iter().filter_map(|key| seen.insert(key, name)).collect();
            if let Some(other) = others.first() {
                let message = format!(
                    "'server {}/{}' : has the same address as server '{other}'; in the kernel, servers differ by \
                     address.",
                    draft.proxy.name, server.server.name
                );
                context.report.add(late(line, Severity::Alert, "duplicate-server", 2, message));
            }
        }
    }
}

/// What is wrong with a server behind these services, and what helps.
fn fault_of(server: &ServerDraft, places: &[Place]) -> Option<(String, &'static str)> {
    let own = &server.server;
    let address = match &own.address.target {
        ServerTarget::Fixed(Address::Inet(address)) => *address,
        // It is in maintenance, until it has one.
        ServerTarget::Unresolved { .. } => return None,
        ServerTarget::Fixed(Address::Unix(_) | Address::Abstract(_) | Address::Fd(_))
        | ServerTarget::ClientDestination(_) => {
            return Some(("'mode direct' needs an IP address".into(), "use the IP address of the server"));
        }
    };
    if own.address.port_offset.is_some() {
        return Some(("a relative port is not supported in 'mode direct'".into(), "remove the port"));
    }
    if own.tls.is_some() {
        return Some((
            "'ssl' is not supported in 'mode direct': clients connect directly to the server".into(),
            "for health checks over TLS, use 'check-ssl'",
        ));
    }
    if own.send_proxy.is_on() {
        return Some((
            "'send-proxy' is not supported in 'mode direct'".into(),
            "remove it: the server sees the client's address; 'check-send-proxy' is for health checks",
        ));
    }
    if own.check.observe != Observe::None {
        return Some((
            "'observe' is not supported in 'mode direct': responses do not pass this machine".into(),
            "remove it, and use 'check'",
        ));
    }
    if own.check.on_marked_up != MarkedUp::None {
        return Some((
            "'on-marked-up shutdown-backup-sessions' is not supported in 'mode direct'".into(),
            "remove it: connections of backup servers continue until they are closed",
        ));
    }
    if own.minconn > 0 && own.minconn > own.maxconn {
        return Some((
            "'minconn' is greater than 'maxconn'".into(),
            "at 'maxconn' a server gets no new connections until it is below 'minconn'",
        ));
    }
    for place in places {
        if let (Some(port), true) = (place.address().map(|place| place.port()), address.port() > 0)
            && own.forwarding != Forwarding::Masquerade
            && address.port() != port
        {
            return Some((
                format!(
                    "port {} differs from that of the service {place}, and packets keep their port",
                    address.port()
                ),
                "remove the port, or use 'masquerade', which changes it; for health checks, use 'port'",
            ));
        }
        if place.is_ipv6() != address.is_ipv6() && !matches!(own.forwarding, Forwarding::Tunnel(_)) {
            return Some((
                format!("{} is not of the address family of the service {place}", address.ip()),
                "use separate backends for IPv4 and IPv6 services; only a tunnel can carry one in the other",
            ));
        }
        if place.address().is_some_and(|service| service.ip() == address.ip()) {
            return Some((
                format!("has the virtual address of the service {place}"),
                "use the server's own address, not the virtual one",
            ));
        }
    }
    None
}

/// The kernel's persistence is a service's, not a server's.
fn sticks_nevertheless(draft: &Draft, server: &ServerDraft) -> Option<(String, &'static str)> {
    (server.server.non_stick && draft.direct.stick.is_some()).then(|| {
        let message = "'non-stick' is not supported with 'stick on src' in 'mode direct'".into();
        (message, "remove one of the two: persistence applies to all servers of a service or to none")
    })
}

/// A word of a server that changes nothing here.
fn ignored(server: &ServerDraft) -> Option<&'static str> {
    let own = &server.server;
    if own.maxqueue > 0 {
        Some("maxqueue")
    } else if own.tfo {
        Some("tfo")
    } else if own.tcp_user_timeout_ms.is_some() {
        Some("tcp-ut")
    } else if own.max_reuse.is_some() {
        Some("max-reuse")
    } else {
        None
    }
}

/// Whether a frontend leads to a backend of another mode, where one of the modes is this one.
pub(in crate::lower) fn is_mixed(draft: &Draft, backend: &Draft) -> bool {
    (draft.proxy.mode == Mode::Direct) != (backend.proxy.mode == Mode::Direct)
}

/// What is said of that.
pub(in crate::lower) fn mixed(draft: &Draft, backend: &Draft) -> String {
    format!(
        "{} {} '{}' cannot use the {} {} '{}' ({}:{}): 'mode direct' cannot be combined with another mode.",
        draft.proxy.mode.word(),
        draft.kind.label(),
        draft.proxy.name,
        backend.proxy.mode.word(),
        backend.kind.label(),
        backend.proxy.name,
        backend.head.file,
        backend.head.number
    )
}
