//! `keepalived.conf` (keepalived.conf(5)): its LVS part. VRRP stays with keepalived.

mod check;
mod tree;
mod virtual_server;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::service::{Key, Protocol, Table};
use super::{ConvertError, MAX_CONVERT_ENTRIES, ipvsadm};
use tree::Statement;

/// Blocks and words at the top that Baton has no part in, and who does it then.
const ELSEWHERE: [(&str, &str); 4] = [
    ("vrrp_", "VRRP stays with keepalived"),
    ("static_", "addresses, routes and rules stay with keepalived"),
    ("bfd_", "BFD stays with keepalived"),
    ("include", "included files are not read: convert them separately"),
];

/// Why a line is left out that begins with nothing: with a quote, and nothing behind it.
const UNFINISHED: &str = "not read: incomplete line, its quotes are empty";

/// Reads a file.
pub(super) fn read(text: &str) -> Result<Table, ConvertError> {
    let mut table = Table::default();
    let lines = words::lines(text, &mut table)?;
    let statements = tree::build(lines)?;
    let groups: Vec<&Statement> =
        statements.iter().filter(|statement| statement.word(0) == "virtual_server_group").collect();
    let by_name: BTreeMap<&str, usize> =
        groups.iter().enumerate().rev().map(|(index, group)| (group.word(1), index)).collect();
    let mut used = vec![false; groups.len()];
    for statement in &statements {
        match statement.word(0) {
            "virtual_server" => {
                let group = (statement.word(1) == "group").then(|| by_name.get(statement.word(2))).flatten().copied();
                if let Some(index) = group {
                    used[index] = true;
                }
                virtual_server::read(statement, group.map(|index| groups[index]), &mut table)?;
            }
            "virtual_server_group" => {}
            "global_defs" => read_globals(statement, &mut table),
            "" => table.remark(statement.line, &statement.text(), UNFINISHED),
            word => {
                let elsewhere = ELSEWHERE.iter().find(|(begin, _)| word.starts_with(begin)).map(|(_, why)| *why);
                let begin = if is_understood(word) { "left out" } else { "not read" };
                let why = elsewhere.unwrap_or_else(|| unknown(word));
                table.remark(statement.line, &statement.text(), format!("{begin}: {why}"));
            }
        }
    }
    for (group, _) in groups.iter().zip(used).filter(|(_, used)| !used) {
        table.remark(group.line, &group.text(), "left out: no virtual_server uses it");
    }
    let reported: BTreeSet<u32> =
        table.all_remarks().filter(|remark| remark.is_about_loss()).map(|remark| remark.line).collect();
    let mut unread = Vec::new();
    statements.iter().for_each(|statement| statement.report_unread(&reported, &mut unread));
    for remark in unread {
        // Beside what its service says of itself.
        let service = table.services.iter_mut().rev().find(|service| service.line <= remark.line);
        service.map_or(&mut table.remarks, |service| &mut service.remarks).push(remark);
    }
    Ok(table)
}

/// Whether it is known what a word at the top means, so that leaving it out is a decision.
fn is_understood(word: &str) -> bool {
    word == "SSL" || ["vrrp_", "static_", "bfd_"].iter().any(|begin| word.starts_with(begin))
}

fn unknown(word: &str) -> &'static str {
    match word {
        "SSL" => "client certificates are not supported in TLS health checks",
        word if word.starts_with('@') => {
            "it applies to one configuration id only; keep its lines without the keyword, or remove them"
        }
        word if word.starts_with('~') => "lines repeated with ~SEQ or ~LST must be written out",
        word if word.starts_with('$') => "multi-line definitions must be written out",
        _ => "it does not concern virtual servers",
    }
}

/// `global_defs`: what is about all virtual servers.
fn read_globals(block: &Statement, table: &mut Table) {
    for statement in block.inside() {
        let read = match statement.word(0) {
            "lvs_timeouts" => read_timeouts(statement),
            "lvs_sync_daemon" => read_daemon(statement, table),
            "lvs_flush" | "lvs_flush_on_stop" => {
                Err("left out: services of other programs are never removed; `on-exit flush` removes Baton's own on \
                     exit"
                    .into())
            }
            _ => Err("left out: it configures keepalived itself".into()),
        };
        match read {
            Ok(mut lines) => table.global.append(&mut lines),
            Err(why) => table.remark(statement.line, &statement.text(), why),
        }
    }
}

fn read_timeouts(statement: &Statement) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for pair in statement.rest(1).chunks(2) {
        let [name, seconds] = pair else { return Err("left out: a timeout is missing".into()) };
        let (true, Ok(seconds)) = (["tcp", "tcpfin", "udp"].contains(&&**name), seconds.parse()) else {
            return Err("left out: expects `tcp`, `tcpfin` and `udp`, each with seconds".into());
        };
        lines.push(ipvsadm::timeout(name, seconds)?);
    }
    Ok(lines)
}

/// `lvs_sync_daemon INTERFACE [[inst] INSTANCE] [id N] …`.
fn read_daemon(statement: &Statement, table: &mut Table) -> Result<Vec<String>, String> {
    let (mut id, mut index) = (0, 2);
    let mut others = Vec::new();
    let words = statement.rest(2);
    while let Some(word) = words.get(index - 2) {
        let value = statement.word(index + 1);
        index += 2;
        match &**word {
            "id" | "syncid" => id = value.parse().map_err(|_| "left out: expects an id from 0 to 255")?,
            "inst" => others.push("both roles are always enabled, as Baton does not follow a VRRP instance".to_owned()),
            "maxlen" | "port" | "ttl" | "group" => {
                others.push(format!("without `{word}`: the kernel's default applies"))
            }
            _ => {
                others.push("both roles are always enabled, as Baton does not follow a VRRP instance".to_owned());
                index -= 1;
            }
        }
    }
    let interface = statement.word(1);
    let lines = ["master", "backup"].into_iter().map(|role| ipvsadm::daemon(role, interface, id));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    for other in others {
        table.remark(statement.line, &statement.text(), other);
    }
    Ok(lines)
}

/// The addresses and marks of a `virtual_server_group`.
fn group_keys(group: &Statement, protocol: Protocol, table: &mut Table) -> Result<Vec<Key>, ConvertError> {
    let mut keys = Vec::new();
    for statement in group.inside() {
        let found = match statement.word(0) {
            "fwmark" => mark(statement.word(1), statement.word(2)).map(|key| vec![key]),
            range => addresses(range, statement.word(1), protocol),
        };
        match found {
            Err(why) => table.remark(statement.line, &statement.text(), why),
            Ok(found) => {
                if !table.has_room_for(found.len()) {
                    let message = format!("more than {MAX_CONVERT_ENTRIES} addresses, marks and real servers");
                    return Err(ConvertError::at(statement.line, message));
                }
                keys.extend(found);
            }
        }
    }
    Ok(keys)
}

fn mark(mark: &str, family: &str) -> Result<Key, String> {
    let ipv6 = match family {
        "" | "{" => None,
        "inet" => Some(false),
        "inet6" => Some(true),
        _ => return Err("left out: expects the family inet or inet6".into()),
    };
    match mark.parse() {
        Ok(mark @ 1..) => Ok(Key::Mark { mark, ipv6 }),
        _ => Err("left out: a firewall mark is a number above 0".into()),
    }
}

/// One address, or a range: `192.0.2.1-10`, `192.0.2.250-192.0.3.10`, `192.0.2.8/29`.
fn addresses(range: &str, port: &str, protocol: Protocol) -> Result<Vec<Key>, String> {
    let port = self::port(port)?;
    let (first, last) = ends(range).ok_or("left out: neither an address nor an address range")?;
    let key = |address| Key::Address { protocol, address, port };
    let (low, high) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (u128::from(u32::from(first)), u128::from(u32::from(last))),
        (IpAddr::V6(first), IpAddr::V6(last)) => (u128::from(first), u128::from(last)),
        _ => return Err("left out: start and end of the range are of different address families".into()),
    };
    if high < low {
        return Err("left out: the range ends before it starts".into());
    }
    if high - low >= MAX_CONVERT_ENTRIES as u128 {
        return Err(format!("left out: the range has more than {MAX_CONVERT_ENTRIES} addresses"));
    }
    Ok((low..=high)
        .map(|number| match first {
            IpAddr::V4(_) => key(IpAddr::V4((number as u32).into())),
            IpAddr::V6(_) => key(IpAddr::V6(number.into())),
        })
        .collect())
}

/// First and last address of a range.
fn ends(range: &str) -> Option<(IpAddr, IpAddr)> {
    if let Ok(address) = range.parse() {
        return Some((address, address));
    }
    if let Some((address, length)) = range.split_once('/') {
        let length: u32 = length.parse().ok()?;
        return match address.parse().ok()? {
            IpAddr::V4(address) if length <= 32 => {
                let rest = u32::MAX.checked_shr(length).unwrap_or(0);
                let first = u32::from(address) & !rest;
                Some((IpAddr::V4(first.into()), IpAddr::V4((first | rest).into())))
            }
            IpAddr::V6(address) if length <= 128 => {
                let rest = u128::MAX.checked_shr(length).unwrap_or(0);
                let first = u128::from(address) & !rest;
                Some((IpAddr::V6(first.into()), IpAddr::V6((first | rest).into())))
            }
            _ => None,
        };
    }
    let (first, last) = range.split_once('-')?;
    let first: IpAddr = first.parse().ok()?;
    if let Ok(last) = last.parse() {
        return Some((first, last));
    }
    // The last part alone.
    let last = match first {
        IpAddr::V4(first) => {
            let [a, b, c, _] = first.octets();
            IpAddr::V4([a, b, c, last.parse().ok()?].into())
        }
        IpAddr::V6(first) => {
            let mut parts = first.segments();
            parts[7] = u16::from_str_radix(last, 16).ok()?;
            IpAddr::V6(parts.into())
        }
    };
    Some((first, last))
}

/// A port; none is 0, which is every port.
fn port(text: &str) -> Result<u16, String> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| "left out: its port is not a number up to 65535".into()),
    }
}
