//! Address texts (configuration manual, 11): `:80`, `[::1]:80-90`, `unix@/run/x`, `abns@x`, `fd@3`, `ipv6@host:1`.

use std::net::IpAddr;
use std::path::PathBuf;

use baton_model::Family;
use baton_rules::nearest;

use crate::environment::Environment;

/// An address text taken apart; names are not resolved yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Text {
    Unix(PathBuf),
    Abstract(String),
    Fd(i32),
    /// A host, which may be empty or `*`, and a port.
    Inet {
        host: String,
        family: Family,
        port: Port,
    },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Port {
    Absent,
    One(u16),
    /// Both ends included.
    Range(u16, u16),
    /// `+80`, `-80`.
    Offset(i32),
}

/// Longest name of a unix socket, Linux' `sun_path` without its final NUL.
const MAX_UNIX: usize = 107;

/// Takes an address text apart. The error is a sentence without the keyword it belongs to.
pub(crate) fn parse(text: &str) -> Result<Text, String> {
    // A text of variables that are all unset or empty is left as it stands in the file.
    if text.is_empty() || text.starts_with('$') {
        return Err(format!("'{text}' resolves to an empty address (environment variable missing?)"));
    }
    let mut rest = text;
    if let Some(after) = rest.strip_prefix("stream+") {
        rest = after;
    } else if rest.starts_with("dgram+") {
        return Err(format!("dgram-type address not acceptable in '{text}'"));
    }
    if rest.starts_with('/') {
        return unix(rest);
    }
    if let Some((prefix, after)) = rest.split_once('@') {
        return match prefix {
            "unix" => unix(after),
            "abns" if after.len() > MAX_UNIX => Err(format!("socket name '{after}' is longer than {MAX_UNIX} bytes")),
            "abns" => Ok(Text::Abstract(after.into())),
            "fd" => match after.parse::<i32>() {
                Ok(fd) if fd >= 0 => Ok(Text::Fd(fd)),
                _ => Err(format!("file descriptor '{after}' is not a valid integer in '{text}'")),
            },
            "ipv4" | "tcp4" => inet(after, Family::V4, text),
            "ipv6" | "tcp6" => inet(after, Family::V6, text),
            "tcp" => inet(after, Family::Any, text),
            "udp" | "udp4" | "udp6" | "uxdg" => Err(format!("dgram-type address not acceptable in '{text}'")),
            "sockpair" | "quic4" | "quic6" | "uxst" => Err(format!("'{prefix}@' is not supported yet in '{text}'")),
            _ => Err(format!("invalid address: '{text}' has an unknown prefix '{prefix}@'")),
        };
    }
    inet(rest, Family::Any, text)
}

/// What helps against an invalid address: a known prefix, or brackets around an IPv6 address whose last part is read as a port.
pub(crate) fn hint(text: &str) -> Option<String> {
    if let Some((prefix, _)) = text.split_once('@') {
        return nearest(prefix, PREFIXES).filter(|near| *near != prefix).map(|near| format!("did you mean '{near}@'?"));
    }
    text.parse::<std::net::Ipv6Addr>()
        .ok()
        .map(|_| format!("write '[{text}]': without brackets, what follows the last ':' is read as the port"))
}

/// Prefixes of addresses that are supported.
const PREFIXES: [&str; 8] = ["unix", "abns", "fd", "ipv4", "ipv6", "tcp", "tcp4", "tcp6"];

fn unix(path: &str) -> Result<Text, String> {
    match path.len() {
        0 => Err("a UNIX socket needs a path".into()),
        length if length > MAX_UNIX => Err(format!("socket path '{path}' is longer than {MAX_UNIX} bytes")),
        _ => Ok(Text::Unix(path.into())),
    }
}

fn inet(rest: &str, family: Family, text: &str) -> Result<Text, String> {
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // An IPv6 address may be written without brackets; `::1` alone could also mean port 1, so it needs them.
    let host = bracketed.unwrap_or(host);
    if host.contains(['[', ']']) || (bracketed.is_none() && host.contains(':') && host.parse::<IpAddr>().is_err()) {
        return Err(format!("invalid address: '{host}' in '{text}'"));
    }
    let port = match port {
        None | Some("") => Port::Absent,
        Some(port) => self::port(port, text)?,
    };
    Ok(Text::Inet { host: host.into(), family, port })
}

fn port(port: &str, text: &str) -> Result<Port, String> {
    let number = |digits: &str| -> Result<u32, String> {
        if let Some(other) = digits.chars().find(|char| !char.is_ascii_digit()) {
            return Err(format!("invalid character '{other}' in port number '{port}' in '{text}'"));
        }
        digits.parse::<u32>().map_err(|_| format!("invalid port '{port}'"))
    };
    if let Some(digits) = port.strip_prefix('+') {
        return offset(number(digits)?, 1, port);
    }
    if let Some(digits) = port.strip_prefix('-') {
        return offset(number(digits)?, -1, port);
    }
    let single = |value: u32| match u16::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => Err(format!("invalid port '{value}'")),
    };
    match port.split_once('-') {
        None => Ok(Port::One(single(number(port)?)?)),
        Some((low, high)) => {
            let (low, high) = (single(number(low)?)?, single(number(high)?)?);
            if low == 0 || low > high {
                return Err(format!("invalid port range '{port}'"));
            }
            Ok(Port::Range(low, high))
        }
    }
}

fn offset(value: u32, sign: i32, port: &str) -> Result<Port, String> {
    match u16::try_from(value) {
        Ok(value) => Ok(Port::Offset(i32::from(value) * sign)),
        Err(_) => Err(format!("invalid relative port '{port}'")),
    }
}

/// The address a host text stands for: literal, unspecified when empty or `*`, else asked of the resolver.
pub(crate) fn host(host: &str, family: Family, env: &dyn Environment) -> Result<IpAddr, String> {
    if let Some(ip) = literal(host, family) {
        return Ok(ip);
    }
    let found = match host.parse::<IpAddr>() {
        Ok(_) => None,
        Err(_) => env.resolve(host, family).ok().and_then(|list| list.into_iter().next()),
    };
    found.ok_or_else(|| format!("invalid address: '{host}'"))
}

/// The address a host text stands for without asking anybody.
pub(crate) fn literal(host: &str, family: Family) -> Option<IpAddr> {
    if host.is_empty() || host == "*" {
        return Some(match family {
            Family::V6 => IpAddr::from([0u16; 8]),
            Family::Any | Family::V4 => IpAddr::from([0u8; 4]),
        });
    }
    let ip: IpAddr = host.parse().ok()?;
    let fits = match family {
        Family::Any => true,
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6(),
    };
    fits.then_some(ip)
}

/// `ADDRESS[/MASK]` as a network; the mask in bits or, for IPv4, dotted.
pub(crate) fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, mask) = match text.split_once('/') {
        Some((ip, mask)) => (ip.parse::<IpAddr>().ok()?, Some(mask)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let widest = if ip.is_ipv4() { 32 } else { 128 };
    let bits = match mask {
        None => widest,
        Some(mask) => match mask.parse::<u8>() {
            Ok(bits) => bits,
            Err(_) => {
                let mask = u32::from(mask.parse::<std::net::Ipv4Addr>().ok()?);
                (mask.leading_ones() + mask.trailing_zeros() == 32 || mask == u32::MAX || mask == 0)
                    .then_some(mask.leading_ones() as u8)?
            }
        },
    };
    (bits <= widest).then_some((ip, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let shown = match parse(text) {
            Ok(Text::Unix(path)) => format!("unix {}", path.display()),
            Ok(Text::Abstract(name)) => format!("abns {name}"),
            Ok(Text::Fd(fd)) => format!("fd {fd}"),
            Ok(Text::Inet { host, family, port }) => format!("{host} {family:?} {port:?}"),
            Err(message) => message,
        };
        assert_eq!(shown, expect, "{text}");
    }

    #[test]
    fn texts() {
        check(":80", " Any One(80)");
        check("*:80-82", "* Any Range(80, 82)");
        check("1.2.3.4", "1.2.3.4 Any Absent");
        check("[::1]:80", "::1 Any One(80)");
        check("[::1]", "::1 Any Absent");
        check("::1:80", "::1 Any One(80)");
        check(":::80", ":: Any One(80)");
        check("host:+5", "host Any Offset(5)");
        check("host:-5", "host Any Offset(-5)");
        check("ipv6@:80", " V6 One(80)");
        check("stream+ipv4@h:1", "h V4 One(1)");
        check("/tmp/x", "unix /tmp/x");
        check("unix@rel", "unix rel");
        check("abns@foo", "abns foo");
        check("fd@7", "fd 7");
    }

    #[test]
    fn faults() {
        check("fd@x", "file descriptor 'x' is not a valid integer in 'fd@x'");
        check("fd@-1", "file descriptor '-1' is not a valid integer in 'fd@-1'");
        check(":80-70", "invalid port range '80-70'");
        check(":99999", "invalid port '99999'");
        check("1.1.1.1:abc", "invalid character 'a' in port number 'abc' in '1.1.1.1:abc'");
        check("udp@:80", "dgram-type address not acceptable in 'udp@:80'");
        check("::1", "invalid address: ':' in '::1'");
        check("", "'' resolves to an empty address (environment variable missing?)");
        check("${X}", "'${X}' resolves to an empty address (environment variable missing?)");
        check("x@y", "invalid address: 'x@y' has an unknown prefix 'x@'");
    }

    #[test]
    fn networks() {
        assert_eq!(network("10.0.0.0/8"), Some(([10, 0, 0, 0].into(), 8)));
        assert_eq!(network("10.0.0.0/255.0.0.0"), Some(([10, 0, 0, 0].into(), 8)));
        assert_eq!(network("10.0.0.1"), Some(([10, 0, 0, 1].into(), 32)));
        assert_eq!(network("10.0.0.1/33"), None);
        assert_eq!(network("10.0.0.1/255.0.255.0"), None);
        assert_eq!(network("x"), None);
    }
}
