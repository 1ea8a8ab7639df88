//! Services as sections of haproxy.cfg.

use std::fmt::Write as _;
use std::path::Path;

use super::service::{Forwarding, Key, Persistence, RealServer, Table, VirtualService, host};
use super::settle::bind;
use super::{ConvertNote, Source, shown};

/// How many clients a table of persistence may have; the kernel's own has no limit.
const STICK_TABLE: &str = "1m";

/// What an operator wants besides, for the own taste.
const OBSERVED: &str = "\
# To log state changes, and for `show servers state`, add:
#global
#    log /dev/log local0
#    stats socket /run/baton.sock mode 660 level admin
#defaults
#    log global
#    option log-health-checks
";

/// The whole file.
pub(super) fn write(name: &str, source: Source, table: &Table) -> String {
    let mut out = String::new();
    let name = Path::new(name).file_name().map_or_else(|| name.into(), |name| name.to_string_lossy());
    let _ = writeln!(out, "# Written by `baton convert` from {} ({}).", shown(&name), source.word());
    if source == Source::Ipvsadm {
        out.push_str(
            "# A dump has no health checks: add `check` to the servers, and `option httpchk` for HTTP. ipvsadm 1.31 does not write\n\
             # thresholds either: add what `ipvsadm -Ln --thresholds` shows as `maxconn` and `minconn` of the servers.\n",
        );
    }
    out.push_str(OBSERVED);
    comment_remarks(&mut out, &table.remarks);
    if !table.global.is_empty() {
        out.push_str("\nglobal\n");
        for line in &table.global {
            let _ = writeln!(out, "    {line}");
        }
    }
    for service in &table.services {
        section(&mut out, service);
    }
    out
}

fn section(out: &mut String, service: &VirtualService) {
    let _ = writeln!(out, "\n# line {}: {}", service.line, service.title);
    comment_remarks(out, &service.remarks);
    let _ = writeln!(out, "listen {}\n    mode direct", service.name.as_deref().unwrap_or("service"));
    for key in &service.keys {
        let _ = writeln!(out, "    bind {}", bind(key));
    }
    let hash_port = if service.hash_port { " hash-port" } else { "" };
    let fallback = if service.fallback { " fallback" } else { "" };
    let _ = writeln!(out, "    balance {}{hash_port}{fallback}", service.scheduler.balance);
    if let Some(persistence) = &service.persistence {
        stick(out, persistence, service.keys.first());
    }
    let mut checks = service.servers.iter().filter_map(|server| server.check.as_ref());
    let first = checks.next();
    let common = first.filter(|first| checks.all(|check| check.times == first.times)).map(|check| check.times.clone());
    if let Some(check) = first {
        for line in &check.lines {
            let _ = writeln!(out, "    {line}");
        }
        let _ = writeln!(out, "    timeout check {}", check.timeout);
    }
    if let Some(times) = &common {
        let _ = writeln!(out, "    default-server {times}");
    }
    for real in &service.servers {
        server(out, real, common.is_some());
    }
}

fn stick(out: &mut String, persistence: &Persistence, key: Option<&Key>) {
    let is_ipv6 = match key {
        Some(Key::Address { address, .. }) => address.is_ipv6(),
        Some(Key::Mark { ipv6, .. }) => *ipv6 == Some(true),
        None => false,
    };
    let kind = if is_ipv6 { "ipv6" } else { "ip" };
    let _ = writeln!(out, "    stick-table type {kind} size {STICK_TABLE} expire {}s", persistence.seconds);
    let whole = if is_ipv6 { 128 } else { 32 };
    match persistence.prefix.filter(|prefix| *prefix < whole) {
        None => out.push_str("    stick on src\n"),
        Some(prefix) if is_ipv6 => {
            let _ = writeln!(out, "    stick on src,ipmask(32,{prefix})");
        }
        Some(prefix) => {
            let _ = writeln!(out, "    stick on src,ipmask({prefix})");
        }
    }
}

fn server(out: &mut String, server: &RealServer, is_common: bool) {
    let _ = write!(out, "    server {} ", server.name.as_deref().unwrap_or("server"));
    out.push_str(&host(server.address));
    if server.port > 0 {
        let _ = write!(out, ":{}", server.port);
    }
    let _ = match server.forwarding {
        Forwarding::Direct => Ok(()),
        Forwarding::IpIp => write!(out, " tunnel ipip"),
        Forwarding::Gue(port) => write!(out, " tunnel gue:{port}"),
        Forwarding::Gre => write!(out, " tunnel gre"),
        Forwarding::Masquerade => write!(out, " masquerade"),
    };
    for (word, value, usual) in
        [("weight", server.weight, 1), ("maxconn", server.upper, 0), ("minconn", server.lower, 0)]
    {
        if value != usual {
            let _ = write!(out, " {word} {value}");
        }
    }
    if let Some(check) = &server.check {
        out.push_str(" check");
        if let Some(port) = check.port {
            let _ = write!(out, " port {port}");
        }
        let times = if is_common { "" } else { &check.times };
        for words in [&*check.words, times].into_iter().filter(|words| !words.is_empty()) {
            let _ = write!(out, " {words}");
        }
    }
    if server.is_backup {
        out.push_str(" backup");
    }
    out.push('\n');
}

fn comment_remarks(out: &mut String, remarks: &[ConvertNote]) {
    if remarks.is_empty() {
        return;
    }
    out.push_str("# Differences from the input:\n");
    for remark in remarks {
        let _ = writeln!(out, "#   {remark}");
    }
}
