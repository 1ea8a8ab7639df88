//! `log` lines, which `global` and proxies share (configuration manual, 3.1 and 4.2).

use std::net::SocketAddr;
use std::sync::Arc;

use baton_model::{Facility, Level, LogAddress, LogTarget};
use baton_rules::suggestion;

use super::Call;
use crate::address::{self, Port, Text};

/// Facilities by number.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "auth2", "ftp", "ntp", "audit",
    "alert", "cron2", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// Levels by number.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Formats of a line's head.
pub(crate) const FORMATS: [&str; 8] = ["local", "rfc3164", "rfc5424", "priority", "short", "timed", "iso", "raw"];

/// Reads `ADDRESS [len N] [format F] [sample R:N] FACILITY [MAX [MIN]]`.
pub(crate) fn log_target(call: &mut Call<'_, '_>) -> Option<LogTarget> {
    if call.args() < 2 {
        let message = "log : expects <address> and <facility> as arguments";
        let hint = suggestion(call.arg(0), ["global"]);
        call.error_with(call.first + call.args(), "missing-argument", message.into(), hint);
        return None;
    }
    let address = match address(call) {
        Ok(address) => address,
        Err(message) => {
            call.error(call.first, "bad-address", format!("log : {message}"));
            return None;
        }
    };
    let mut target = LogTarget {
        address,
        len: 1024,
        format: String::new(),
        facility: Facility(0),
        max: Level(7),
        min: Level(0),
        sample: None,
    };
    let mut index = 1;
    loop {
        let value = call.arg(index + 1);
        match call.arg(index) {
            "len" => match value.parse::<usize>() {
                Ok(len @ 80..=65535) => target.len = len,
                _ => {
                    call.wrong(index + 1, format!("log : invalid log length '{value}', must be between 80 and 65535"));
                    return None;
                }
            },
            "format" if FORMATS.contains(&value) => target.format = value.into(),
            "format" => {
                call.not_one_of(index + 1, format!("log : unknown log format '{value}'"), FORMATS);
                return None;
            }
            "sample" => {
                let size = value.rsplit_once(':').and_then(|(ranges, size)| {
                    let size: u32 = size.parse().ok().filter(|size| *size > 0)?;
                    ranges.split(',').all(|range| is_range(range, size)).then_some(size)
                });
                if size.is_none() {
                    call.wrong(index + 1, format!("log : invalid sample '{value}', expected <ranges>:<size>"));
                    return None;
                }
                target.sample = Some(value.into());
            }
            _ => break,
        }
        index += 2;
    }
    let facility = call.arg(index);
    match FACILITIES.iter().position(|name| *name == facility) {
        Some(number) => target.facility = Facility(number as u8),
        None => {
            call.not_one_of(index, format!("log : unknown log facility '{facility}'"), FACILITIES);
            return None;
        }
    }
    target.max = level(call, index + 1, "optional log level", target.max)?;
    target.min = level(call, index + 2, "optional minimum log level", target.min)?;
    if !call.arg(index + 3).is_empty() {
        let message = format!("log : cannot handle unexpected argument '{}'", call.arg(index + 3));
        call.error(call.first + index + 3, "extra-argument", message);
        return None;
    }
    Some(target)
}

fn level(call: &mut Call<'_, '_>, index: usize, what: &str, default: Level) -> Option<Level> {
    match call.arg(index) {
        "" => Some(default),
        word => match LEVELS.iter().position(|name| *name == word) {
            Some(number) => Some(Level(number as u8)),
            None => {
                call.not_one_of(index, format!("log : unknown {what} '{word}'"), LEVELS);
                None
            }
        },
    }
}

/// `N` or `N-M`, both within the sample's size.
fn is_range(text: &str, size: u32) -> bool {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.parse::<u32>(), high.parse::<u32>()) {
        (Ok(low), Ok(high)) => low >= 1 && low <= high && high <= size,
        _ => false,
    }
}

fn address(call: &mut Call<'_, '_>) -> Result<LogAddress, String> {
    const SYSLOG: u16 = 514;
    let text = call.arg(0);
    match text {
        "stdout" => return Ok(LogAddress::Stdout),
        "stderr" => return Ok(LogAddress::Stderr),
        _ => {}
    }
    if let Some(name) = text.strip_prefix("ring@") {
        if name.is_empty() {
            return Err(format!("missing name of a ring in '{text}'"));
        }
        let name: Arc<str> = name.into();
        call.context.rings.named.push((name.clone(), call.line.clone(), call.first));
        return Ok(LogAddress::Ring(name));
    }
    // Logs go out as datagrams, so their prefixes mean the plain address here.
    let plain = ["udp@", "udp4@", "udp6@", "uxdg@"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    match address::parse(plain)? {
        Text::Unix(path) => Ok(LogAddress::Unix(path)),
        Text::Abstract(_) => Err(format!("an abstract socket is not acceptable here in '{text}'")),
        Text::Fd(fd) => Ok(LogAddress::Fd(fd)),
        Text::Inet { host, family, port } => {
            let port = match port {
                Port::Absent | Port::One(0) => SYSLOG,
                Port::One(port) => port,
                Port::Range(..) => return Err(format!("port range not permitted here in '{text}'")),
                Port::Offset(_) => return Err(format!("port offset not permitted here in '{text}'")),
            };
            let ip = address::literal(&host, family).or_else(|| call.context.resolve(&host, family));
            let ip = ip.ok_or_else(|| format!("invalid address: '{host}' in '{text}'"))?;
            Ok(LogAddress::Udp(SocketAddr::new(ip, port)))
        }
    }
}
