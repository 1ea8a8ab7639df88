//! `virtual_server` and its `real_server`s.

use std::net::IpAddr;

use super::check::{self, Times};
use super::tree::Statement;
use super::{UNFINISHED, group_keys, mark, port};
use crate::convert::ipvsadm::prefix;
use crate::convert::service::{Forwarding, Key, Persistence, Protocol, RealServer, Scheduler, Table, VirtualService};
use crate::convert::{ConvertError, ConvertNote, MAX_CONVERT_ENTRIES};

/// How long clients stay with a server when no time is given, in seconds.
const PERSISTENT: u32 = 360;

/// What real servers have from their virtual server unless they say it themselves.
#[derive(Clone)]
struct Inherited {
    forwarding: Forwarding,
    times: Times,
    virtualhost: Option<String>,
}

/// Reads one; what cannot be carried over at all becomes a remark of the table.
pub(super) fn read(statement: &Statement, group: Option<&Statement>, table: &mut Table) -> Result<(), ConvertError> {
    let word = statement.inside().iter().rev().find(|inner| matches!(inner.word(0), "lvs_sched" | "lb_algo"));
    let word = word.map_or(Scheduler::DEFAULT, |inner| inner.word(1));
    let Some(scheduler) = Scheduler::of(word) else {
        if word.is_empty() {
            table.remark(statement.line, &statement.text(), "left out with its servers: its scheduler is missing");
            return Ok(());
        }
        let why = format!("left out with its servers: unknown scheduler {}", super::super::shown(word));
        table.remark(statement.line, &statement.text(), why);
        return Ok(());
    };
    let said = last(statement, "protocol");
    let protocol = match said {
        Some("TCP" | "tcp") => Protocol::Tcp,
        // A mark is of both; its servers are asked by TCP.
        None if statement.word(1) == "fwmark" => Protocol::Tcp,
        Some("UDP" | "udp") | None => Protocol::Udp,
        Some("") => {
            let why = "left out with its servers: its protocol is missing";
            table.remark(statement.line, &statement.text(), why);
            return Ok(());
        }
        Some(other) => {
            let why = format!(
                "left out with its servers: only TCP and UDP are supported, not {}",
                super::super::shown(other)
            );
            table.remark(statement.line, &statement.text(), why);
            return Ok(());
        }
    };
    let mut service = VirtualService::new(statement.line, &statement.text(), scheduler);
    if said.is_none() && protocol == Protocol::Udp {
        let why = "UDP, keepalived's default without `protocol`; for TCP, remove `udp@` below";
        service.remark(statement.line, &statement.text(), why);
    }
    match keys(statement, group, protocol, table)? {
        Ok(keys) => service.keys = keys,
        Err(why) => {
            table.remark(statement.line, &statement.text(), why);
            return Ok(());
        }
    }
    service.name = match group {
        Some(group) => Some(group.word(1).to_owned()),
        None => last(statement, "snmp_name").map(str::to_owned),
    };
    let mut inherited = Inherited { forwarding: Forwarding::Masquerade, times: Times::default(), virtualhost: None };
    for inner in statement.inside() {
        setting(&mut service, inner, &mut inherited);
    }
    let family = if service.keys.iter().any(is_ipv6) { 128 } else { 32 };
    if let Some(Persistence { prefix: prefix @ Some(_), .. }) = &mut service.persistence
        && prefix.is_some_and(|prefix| prefix > family)
    {
        *prefix = None;
        let granularity = statement.inside().iter().rev().find(|inner| inner.word(0) == "persistence_granularity");
        if let Some(line) = granularity {
            let why = "left out: longer than an address, so persistence is per client address";
            service.remark(line.line, &line.text(), why);
        }
    }
    for inner in statement.inside().iter().filter(|inner| inner.word(0) == "real_server") {
        if !table.has_room_for(1) {
            let message = format!("more than {MAX_CONVERT_ENTRIES} addresses, marks and real servers");
            return Err(ConvertError::at(inner.line, message));
        }
        real_server(&mut service, inner, protocol, inherited.clone());
    }
    sorry_server(&mut service, statement, inherited.forwarding);
    table.services.push(service);
    Ok(())
}

fn is_ipv6(key: &Key) -> bool {
    match key {
        Key::Address { address, .. } => address.is_ipv6(),
        Key::Mark { ipv6, .. } => *ipv6 == Some(true),
    }
}

/// The value of the last statement with this word.
fn last<'a>(statement: &'a Statement, word: &str) -> Option<&'a str> {
    statement.inside().iter().rev().find(|inner| inner.word(0) == word).map(|inner| inner.word(1))
}

type Keys = Result<Vec<Key>, String>;

fn keys(
    statement: &Statement,
    group: Option<&Statement>,
    protocol: Protocol,
    table: &mut Table,
) -> Result<Keys, ConvertError> {
    let family = last(statement, "ip_family").unwrap_or_default();
    Ok(match (statement.word(1), group) {
        ("group", Some(group)) => match group_keys(group, protocol, table)? {
            keys if keys.is_empty() => Err("left out with its servers: its group has no valid address".into()),
            keys => Ok(keys),
        },
        ("group", None) => Err("left out with its servers: unknown virtual_server_group".into()),
        ("fwmark", _) => mark(statement.word(2), family).map(|key| vec![key]),
        (address, _) => address
            .parse()
            .map_err(|_| "left out with its servers: it has no address".to_owned())
            .and_then(|address| Ok(vec![Key::Address { protocol, address, port: port(statement.word(2))? }])),
    })
}

/// What is said of the service itself.
fn setting(service: &mut VirtualService, statement: &Statement, inherited: &mut Inherited) {
    let line = statement.line;
    let why = match statement.word(0) {
        // Read elsewhere.
        "lvs_sched"
        | "lb_algo"
        | "protocol"
        | "ip_family"
        | "real_server"
        | "sorry_server"
        | "sorry_server_lvs_method" => return,
        "snmp_name" if service.name.as_deref() == Some(statement.word(1)) => return,
        "lvs_method" | "lb_kind" => match forwarding(service, statement) {
            Ok(forwarding) => return inherited.forwarding = forwarding,
            Err(why) => why,
        },
        "sh-port" | "mh-port" if statement.word(0).starts_with(service.scheduler.kernel) => {
            return service.hash_port = true;
        }
        "sh-fallback" | "mh-fallback" if statement.word(0).starts_with(service.scheduler.kernel) => {
            return service.fallback = true;
        }
        // As ipvsadm(8) and the kernel number them.
        "flag-1" if matches!(service.scheduler.kernel, "sh" | "mh") => return service.fallback = true,
        "flag-2" if matches!(service.scheduler.kernel, "sh" | "mh") => return service.hash_port = true,
        "ops" => return service.one_packet = Some(line),
        "persistence_timeout" => match statement.word(1) {
            "" => return persistence(service).seconds = PERSISTENT,
            seconds => match seconds.parse() {
                Ok(seconds) => return persistence(service).seconds = seconds,
                Err(_) => "left out: expects whole seconds".to_owned(),
            },
        },
        "persistence_granularity" => match prefix(statement.word(1)) {
            Some(prefix) => return persistence(service).prefix = Some(prefix),
            None => "left out: invalid netmask".to_owned(),
        },
        "virtualhost" => match check::host(statement.word(1)) {
            Ok(host) => return inherited.virtualhost = Some(host),
            Err(why) => why,
        },
        "quorum" if statement.word(1) == "1" => return,
        "hysteresis" if statement.word(1) == "0" => return,
        "inhibit_on_failure" => return,
        word if inherited.times.is_word(word) => match inherited.times.read(statement) {
            Ok(()) => return,
            Err(why) => why,
        },
        word => not_carried(word).into(),
    };
    service.remarks.push(ConvertNote::new(line, &statement.text(), why));
}

fn persistence(service: &mut VirtualService) -> &mut Persistence {
    service.persistence.get_or_insert(Persistence { seconds: PERSISTENT, prefix: None })
}

/// Why a word of a virtual or a real server has no counterpart.
fn not_carried(word: &str) -> &'static str {
    match word {
        "persistence_engine" => "left out: persistence is by client address only",
        "ha_suspend" => {
            "left out: servers are always checked, also while this machine does not have the virtual \
                         address"
        }
        "quorum" | "hysteresis" => "left out: the sorry server takes over when all others are down",
        "quorum_up" | "quorum_down" | "notify_up" | "notify_down" => {
            "left out: scripts are not supported; state changes are in the log and in `show servers state`"
        }
        "smtp_alert" => "left out: mail is not supported; state changes are in the log",
        "omega" => "left out: scripts are not supported",
        "snmp_name" => "left out: the section is named after its group",
        "sorry_server_inhibit" => "left out: a backup server that is down gets weight 0, as every other server",
        "warmup" => "left out: health checks are always spread over their interval",
        word if word.starts_with("include") => "not read: included files are not read: insert the lines here",
        "nat_mask" => "left out: the kernel does not support it any more",
        "sh-port" | "sh-fallback" | "mh-port" | "mh-fallback" | "flag-1" | "flag-2" | "flag-3" => {
            "left out: not a flag of this scheduler"
        }
        word if word.starts_with('@') => {
            "not read: it applies to one configuration id only; keep the line without the keyword, or remove it"
        }
        word if word.starts_with('~') || word.starts_with('$') => "not read: its definition must be written out",
        "" => UNFINISHED,
        _ => "not read: unknown keyword here",
    }
}

/// `lvs_method NAT|DR|TUN …`.
fn forwarding(service: &mut VirtualService, statement: &Statement) -> Result<Forwarding, String> {
    match statement.word(1) {
        "NAT" => return Ok(Forwarding::Masquerade),
        "DR" => return Ok(Forwarding::Direct),
        "TUN" => {}
        _ => return Err("left out: expects the method NAT, DR or TUN".into()),
    }
    let mut words = statement.rest(2).iter().map(String::as_str);
    let mut forwarding = Forwarding::IpIp;
    while let Some(word) = words.next() {
        match word {
            "type" => match words.next().unwrap_or_default() {
                "ipip" => forwarding = Forwarding::IpIp,
                "gre" => forwarding = Forwarding::Gre,
                "gue" => forwarding = Forwarding::Gue(0),
                _ => return Err("left out: expects the tunnel type ipip, gue or gre".into()),
            },
            "port" => match (words.next().unwrap_or_default().parse(), &mut forwarding) {
                (Ok(port @ 1..), Forwarding::Gue(place)) => *place = port,
                _ => return Err("left out: only tunnels of type gue have a port".into()),
            },
            "nocsum" => {}
            "csum" | "remcsum" => {
                service.remark(statement.line, &statement.text(), "tunnel checksums are not supported");
            }
            _ => return Err("left out: unknown tunnel option".into()),
        }
    }
    match forwarding {
        Forwarding::Gue(0) => Err("left out: a tunnel of type gue needs a port".into()),
        forwarding => Ok(forwarding),
    }
}

fn real_server(service: &mut VirtualService, statement: &Statement, protocol: Protocol, mut inherited: Inherited) {
    let place = statement.word(1).parse::<IpAddr>().map_err(|_| "left out: it has no address".to_owned());
    let place = place.and_then(|address| Ok((address, port(statement.word(2))?)));
    let (address, mut port) = match place {
        Ok(place) => place,
        Err(why) => return service.remark(statement.line, &statement.text(), why),
    };
    // keepalived takes it for checks alone then.
    let mut check_port = None;
    if service.keys.iter().all(|key| matches!(key, Key::Mark { .. })) {
        check_port = Some(std::mem::take(&mut port)).filter(|port| *port > 0);
    }
    let mut real = RealServer {
        line: statement.line,
        title: super::super::shown(&statement.text()),
        name: None,
        address,
        port,
        forwarding: inherited.forwarding,
        weight: 1,
        upper: 0,
        lower: 0,
        is_backup: false,
        check: None,
    };
    let mut checks = Vec::new();
    for inner in statement.inside() {
        let number = |place: &mut u32| match inner.word(1).parse() {
            Ok(number) => {
                *place = number;
                Ok(())
            }
            Err(_) => Err("left out: expects a number, 0 or more".to_owned()),
        };
        let read = match inner.word(0) {
            "weight" => number(&mut real.weight),
            "uthreshold" => number(&mut real.upper),
            "lthreshold" => number(&mut real.lower),
            "lvs_method" | "lb_kind" => forwarding(service, inner).map(|method| real.forwarding = method),
            "virtualhost" => check::host(inner.word(1)).map(|host| inherited.virtualhost = Some(host)),
            "snmp_name" => {
                real.name = Some(inner.word(1).to_owned());
                Ok(())
            }
            "inhibit_on_failure" => Ok(()),
            word if check::is_checker(word) => {
                checks.push(inner);
                Ok(())
            }
            word if inherited.times.is_word(word) => inherited.times.read(inner),
            word => Err(not_carried(word).into()),
        };
        if let Err(why) = read {
            service.remark(inner.line, &inner.text(), why);
        }
    }
    let host = inherited.virtualhost.as_deref();
    real.check = check::read(&checks, &inherited.times, host, protocol, &mut service.remarks);
    if let Some(check) = &mut real.check {
        check.port = check.port.or(check_port);
    }
    service.servers.push(real);
}

/// `sorry_server ADDRESS [PORT]`: for when no other is left.
fn sorry_server(service: &mut VirtualService, statement: &Statement, usual: Forwarding) {
    let method = statement.inside().iter().rev().find(|inner| inner.word(0) == "sorry_server_lvs_method");
    let Some(sorry) = statement.inside().iter().rev().find(|inner| inner.word(0) == "sorry_server") else {
        if let Some(method) = method {
            service.remark(method.line, &method.text(), "left out: it requires a sorry_server");
        }
        return;
    };
    let (Ok(address), Ok(port)) = (sorry.word(1).parse::<std::net::IpAddr>(), port(sorry.word(2))) else {
        return service.remark(sorry.line, &sorry.text(), "left out: it has no address");
    };
    if address.is_loopback() {
        let why = "a server on this machine: the engine xdp cannot send to it, 'engine ipvs' can";
        service.remark(sorry.line, &sorry.text(), why);
    }
    let forwarding = match method.map(|method| (method, forwarding(service, method))) {
        None => usual,
        Some((_, Ok(forwarding))) => forwarding,
        Some((method, Err(why))) => {
            service.remark(method.line, &method.text(), why);
            usual
        }
    };
    service.servers.push(RealServer {
        line: sorry.line,
        title: super::super::shown(&sorry.text()),
        name: Some(format!("sorry-{address}")),
        address,
        port,
        forwarding,
        weight: 1,
        upper: 0,
        lower: 0,
        is_backup: true,
        check: None,
    });
}
