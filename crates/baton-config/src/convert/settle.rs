//! What holds for services whatever they came from: no two alike, families that fit, and weights as `mode direct` has them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::service::{Check, Forwarding, Key, Protocol, RealServer, Table, VirtualService, host};
use super::{ConvertError, ConvertNote};
use crate::lower::MAX_SERVICES;

/// Largest weight of a server line.
const WEIGHT_MAX: u32 = 256;
/// Longest persistence, in seconds: no time is longer (configuration manual, 2.5), though the kernel would take it.
const PERSISTENCE_MAX: u32 = 2_147_483;
/// Largest threshold (ipvsadm(8)).
const THRESHOLD_MAX: u32 = 65_535;

/// Judges a table and makes it what can be written.
///
/// # Errors
/// There are more services than a configuration may have.
pub(super) fn settle(table: &mut Table) -> Result<(), ConvertError> {
    let mut seen = BTreeMap::new();
    let mut names = BTreeMap::new();
    for mut service in std::mem::take(&mut table.services) {
        resolve_families(&mut service);
        leave_out_unserved(&mut service);
        leave_out_seen(&mut service, &mut seen);
        if service.keys.is_empty() {
            table.remarks.append(&mut service.remarks);
            table.remark(service.line, &service.title, "left out with its servers: no valid address or mark");
            continue;
        }
        if seen.len() > MAX_SERVICES {
            return Err(ConvertError::at(service.line, format!("more than {MAX_SERVICES} virtual services")));
        }
        settle_service(&mut service);
        settle_servers(&mut service);
        settle_weights(&mut service);
        settle_checks(&mut service);
        let wanted = service.name.take().unwrap_or_else(|| name_of(&service.keys[0]));
        service.name = Some(unique(&wanted, &mut names));
        service.remarks.sort_by_key(|remark| remark.line);
        table.services.push(service);
    }
    table.remarks.sort_by_key(|remark| remark.line);
    Ok(())
}

/// A mark has a family; where none was said, it is that of the servers.
fn resolve_families(service: &mut VirtualService) {
    let is_ipv6 = service.servers.first().is_some_and(|server| server.address.is_ipv6());
    for key in &mut service.keys {
        if let Key::Mark { ipv6: family @ None, .. } = key {
            *family = Some(is_ipv6);
        }
    }
}

/// What no packet belongs to, or nothing in the kernel serves.
fn leave_out_unserved(service: &mut VirtualService) {
    let line = service.line;
    for key in std::mem::take(&mut service.keys) {
        let why = match &key {
            Key::Address { address, .. } if address.is_unspecified() => "left out: not a specific address",
            Key::Address { port: 0, .. } if service.persistence.is_none() => {
                "left out: port 0 (all ports) requires persistence"
            }
            Key::Address { .. } | Key::Mark { .. } => {
                service.keys.push(key);
                continue;
            }
        };
        service.remark(line, &bind(&key), why);
    }
}

/// The kernel has each address and mark once.
fn leave_out_seen(service: &mut VirtualService, seen: &mut BTreeMap<Key, u32>) {
    let line = service.line;
    for key in std::mem::take(&mut service.keys) {
        match seen.get(&key) {
            Some(first) => service.remarks.push(ConvertNote::new(
                line,
                &bind(&key),
                format!("left out: duplicate of line {first}"),
            )),
            None => {
                seen.insert(key.clone(), line);
                service.keys.push(key);
            }
        }
    }
}

fn settle_service(service: &mut VirtualService) {
    let (line, title) = (service.line, service.title.clone());
    if let Some(at) = service.one_packet {
        let what = if at == line { &*title } else { "ops" };
        service.remark(at, what, "without one-packet scheduling: datagrams of one flow go to one server");
    }
    let Some(persistence) = &mut service.persistence else { return };
    let asked = persistence.seconds;
    persistence.seconds = asked.clamp(1, PERSISTENCE_MAX);
    if persistence.seconds != asked {
        let why = format!("its persistence of {asked} seconds is written as {}", asked.clamp(1, PERSISTENCE_MAX));
        service.remark(line, &title, why);
    }
}

fn settle_servers(service: &mut VirtualService) {
    let families: BTreeSet<bool> = service.keys.iter().map(is_ipv6).collect();
    let addresses: BTreeSet<IpAddr> = service.keys.iter().filter_map(Key::address).collect();
    let mut seen = BTreeSet::new();
    let mut names = BTreeMap::new();
    for mut server in std::mem::take(&mut service.servers) {
        let is_tunnelled = matches!(server.forwarding, Forwarding::IpIp | Forwarding::Gue(_) | Forwarding::Gre);
        if !is_tunnelled && families.iter().any(|ipv6| *ipv6 != server.address.is_ipv6()) {
            service.remark(server.line, &server.title, "left out: not of the service's address family");
            continue;
        }
        if addresses.contains(&server.address) || server.address.is_unspecified() {
            service.remark(server.line, &server.title, "left out: not a server address of its own");
            continue;
        }
        settle_port(service, &mut server);
        if !seen.insert((server.address, server.port)) {
            service.remark(server.line, &server.title, "left out: duplicate server of the service");
            continue;
        }
        settle_thresholds(service, &mut server);
        let wanted = server.name.take().unwrap_or_else(|| match server.port {
            0 => server.address.to_string(),
            port => format!("{}-{port}", server.address),
        });
        server.name = Some(unique(&wanted, &mut names));
        service.servers.push(server);
    }
}

/// Only masquerading reaches another port than the one that was asked for. Of another server the port is that of its check.
fn settle_port(service: &mut VirtualService, server: &mut RealServer) {
    let mut ports = service.keys.iter().filter_map(|key| match key {
        Key::Address { port, .. } => Some(*port),
        Key::Mark { .. } => None,
    });
    let has_addresses = service.keys.iter().any(|key| matches!(key, Key::Address { .. }));
    let is_same = has_addresses && ports.all(|port| port == server.port);
    if server.port == 0 || (server.forwarding == Forwarding::Masquerade && !is_same) {
        return;
    }
    match &mut server.check {
        Some(check) if !is_same => check.port = check.port.or(Some(server.port)),
        None if !is_same && has_addresses => {
            let why = format!("without its port {}: only masquerading changes the port of a packet", server.port);
            service.remark(server.line, &server.title, why);
        }
        _ => {}
    }
    server.port = 0;
}

fn settle_thresholds(service: &mut VirtualService, server: &mut RealServer) {
    for (what, value) in [("upper", &mut server.upper), ("lower", &mut server.lower)] {
        if *value > THRESHOLD_MAX {
            let why = format!("its {what} threshold {value} is written as {THRESHOLD_MAX}, the kernel's maximum");
            service.remark(server.line, &server.title, why);
            *value = THRESHOLD_MAX;
        }
    }
    if server.lower > server.upper {
        let why = format!("without its lower threshold {}: it is above the upper one", server.lower);
        service.remark(server.line, &server.title, why);
        server.lower = 0;
    }
}

fn settle_weights(service: &mut VirtualService) {
    let is_even = service.scheduler.ignores_weights();
    let largest = service.servers.iter().map(|server| server.weight).max().unwrap_or_default();
    // Here a weight is a number of connections, no share.
    let is_absolute = service.scheduler.kernel == "ovf";
    let mut remarks = Vec::new();
    for server in &mut service.servers {
        let (old, why) = (
            server.weight,
            match server.weight {
                0 | 1 => continue,
                _ if is_even => {
                    server.weight = 1;
                    format!(
                        "`{}` ignores weights, `balance {}` does not",
                        service.scheduler.kernel, service.scheduler.balance
                    )
                }
                _ if largest <= WEIGHT_MAX => continue,
                _ if is_absolute => {
                    server.weight = server.weight.min(WEIGHT_MAX);
                    format!(
                        "{WEIGHT_MAX} is the maximum; with `ovf` it is a number of connections, so the server gets \
                             fewer"
                    )
                }
                weight => {
                    let scaled = u64::from(weight) * u64::from(WEIGHT_MAX) / u64::from(largest);
                    server.weight = u32::try_from(scaled).unwrap_or(WEIGHT_MAX).max(1);
                    format!("all weights of the service are scaled down, as {WEIGHT_MAX} is the maximum")
                }
            },
        );
        if server.weight != old {
            let why = format!("weight {old} is written as {}: {why}", server.weight);
            remarks.push(ConvertNote::new(server.line, &server.title, why));
        }
    }
    service.remarks.append(&mut remarks);
}

/// A check is of TCP. Where clients come by UDP, its port is written, which says that TCP is meant.
fn name_ports_beside_udp(service: &mut VirtualService) {
    let address = |key: &Key| match key {
        Key::Address { protocol, port, .. } => Some((*protocol, *port)),
        Key::Mark { .. } => None,
    };
    if service.keys.iter().filter_map(address).any(|(protocol, _)| protocol == Protocol::Tcp) {
        return;
    }
    let of_service = service.keys.iter().filter_map(address).map(|(_, port)| port).find(|port| *port > 0);
    for server in &mut service.servers {
        if let Some(check) = &mut server.check {
            check.port = check.port.or(Some(server.port).filter(|port| *port > 0)).or(of_service);
        }
    }
}

/// A section checks its servers in one way, and a check needs a port.
fn settle_checks(service: &mut VirtualService) {
    let has_port = service.keys.iter().any(|key| matches!(key, Key::Address { port: 1.., .. }));
    let mut remarks = Vec::new();
    for server in &mut service.servers {
        let without = |check: &Check| !has_port && check.port.is_none() && server.port == 0;
        if let Some(check) = server.check.take_if(|check| without(check)) {
            let why = "the server is not checked: neither it nor the service has a port; add `check port N`";
            remarks.push(ConvertNote::new(check.line, check.title, why));
        }
    }
    name_ports_beside_udp(service);
    let ways: Vec<&Vec<String>> =
        service.servers.iter().filter_map(|server| Some(&server.check.as_ref()?.lines)).collect();
    let is_one = ways.windows(2).all(|pair| pair[0] == pair[1]);
    for check in service.servers.iter_mut().filter_map(|server| server.check.as_mut()) {
        if !is_one && !check.lines.is_empty() {
            check.lines.clear();
            let why = "a section has one kind of health check and those of its servers differ: a TCP connect check \
                       replaces them";
            remarks.push(ConvertNote::new(check.line, check.title, why));
        }
    }
    let mut timeouts = service.servers.iter_mut().filter_map(|server| server.check.as_mut());
    if let Some(first) = timeouts.next().map(|check| check.timeout.clone()) {
        for check in timeouts.filter(|check| check.timeout != first) {
            let why =
                format!("its check timeout is {first} instead of {}: a section has one `timeout check`", check.timeout);
            remarks.push(ConvertNote::new(check.line, check.title, why));
            check.timeout.clone_from(&first);
        }
    }
    service.remarks.append(&mut remarks);
}

fn is_ipv6(key: &Key) -> bool {
    match key {
        Key::Address { address, .. } => address.is_ipv6(),
        Key::Mark { ipv6, .. } => *ipv6 == Some(true),
    }
}

/// A key as `bind` has it.
pub(super) fn bind(key: &Key) -> String {
    match key {
        Key::Address { protocol, address, port } => {
            let family = if *protocol == Protocol::Udp { "udp@" } else { "" };
            format!("{family}{}:{port}", host(*address))
        }
        Key::Mark { mark, ipv6: Some(true) } => format!("fwmark6@{mark}"),
        Key::Mark { mark, .. } => format!("fwmark@{mark}"),
    }
}

/// The name of a section that has none: what it serves.
fn name_of(key: &Key) -> String {
    match key {
        Key::Address { protocol: Protocol::Tcp, address, port } => format!("tcp-{address}-{port}"),
        Key::Address { protocol: Protocol::Udp, address, port } => format!("udp-{address}-{port}"),
        Key::Mark { mark, ipv6: Some(true) } => format!("mark6-{mark}"),
        Key::Mark { mark, .. } => format!("mark-{mark}"),
    }
}

/// A name as HAProxy takes them, that no other has. With each name, `names` knows the number that was appended to it last.
fn unique(wanted: &str, names: &mut BTreeMap<String, u64>) -> String {
    const LONGEST: usize = 64;
    let is_fine = |char: char| char.is_ascii_alphanumeric() || "-_.:".contains(char);
    let name: String = wanted.chars().take(LONGEST).map(|char| if is_fine(char) { char } else { '_' }).collect();
    let name = if name.is_empty() { "service".into() } else { name };
    let mut free = name.clone();
    let mut number = names.get(&name).copied().unwrap_or(1);
    while names.contains_key(&free) {
        number += 1;
        free = format!("{name}-{number}");
    }
    names.insert(name, number);
    names.insert(free.clone(), 1);
    free
}
