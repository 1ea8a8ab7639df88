//! Which new connections are meant: addresses and ports of TCP.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Targets of one hold at most.
pub const TARGETS_MAX: usize = 64;

/// A port, of one address or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    /// The address that clients dial; `None` for all addresses, IPv4 and IPv6.
    pub address: Option<IpAddr>,
    /// The port, never 0.
    pub port: u16,
}

impl Target {
    /// Whether a connection to `local` is meant.
    pub fn covers(&self, local: SocketAddr) -> bool {
        self.port == local.port() && self.address.is_none_or(|address| address == local.ip().to_canonical())
    }

    /// Whether some connection belongs to both.
    pub fn overlaps(&self, other: &Target) -> bool {
        let is_same = match (self.address, other.address) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        is_same && self.port == other.port
    }

    /// Whether a socket that listens at `local`, perhaps at all addresses, may get connections to this target.
    pub fn is_served_by(&self, local: SocketAddr) -> bool {
        let ip = local.ip().to_canonical();
        let is_wildcard_of = |address: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || address.is_ipv4());
        self.port == local.port() && self.address.is_none_or(|address| address == ip || is_wildcard_of(address))
    }
}

impl FromStr for Target {
    type Err = String;

    /// `127.0.0.1:80`, `[::1]:80`, and `:80` or `*:80` for all addresses, as `0.0.0.0:80` and `[::]:80` are too.
    fn from_str(text: &str) -> Result<Target, String> {
        let wrong = |why: &str| {
            format!(
                "'{text}' is not an address with a port: {why}; write 192.0.2.1:80, [2001:db8::1]:80, or :80 for all addresses"
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        let port = match port.parse::<u16>() {
            Ok(port) if port != 0 && port.to_string().len() == text.len() - host.len() - 1 => port,
            _ => return Err(wrong("a port is a number from 1 to 65535")),
        };
        let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = match (host, inside) {
            ("" | "*", _) => None,
            (_, Some(six)) => Some(IpAddr::V6(six.parse().map_err(|_| wrong("an IPv6 address needs brackets"))?)),
            (four, None) => Some(IpAddr::V4(four.parse().map_err(|_| wrong("names are not resolved"))?)),
        };
        let address = address.map(|address| address.to_canonical()).filter(|address| !address.is_unspecified());
        Ok(Target { address, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Target, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

/// What one hold is about: 1 to [`TARGETS_MAX`] targets, sorted, none inside of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Target>", into = "Vec<Target>")]
pub struct Targets(Vec<Target>);

impl Targets {
    /// # Errors
    /// With none, or too many.
    pub fn new(mut targets: Vec<Target>) -> Result<Targets, String> {
        if targets.is_empty() || targets.len() > TARGETS_MAX {
            return Err(format!("{} targets; 1 to {TARGETS_MAX} can be held at a time", targets.len()));
        }
        targets.sort_unstable_by_key(|target| (target.port, target.address));
        // All addresses of a port come first.
        targets.dedup_by(|next, kept| kept == next || (kept.address.is_none() && kept.port == next.port));
        Ok(Targets(targets))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Target> {
        self.0.iter()
    }

    /// Ports of which all addresses are meant.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.0.iter().filter(|target| target.address.is_none()).map(|target| target.port)
    }

    /// Single addresses with their ports.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter_map(|target| Some(SocketAddr::new(target.address?, target.port)))
    }

    /// Whether a connection to `local` is meant.
    pub fn covers(&self, local: SocketAddr) -> bool {
        self.0.iter().any(|target| target.covers(local))
    }

    /// Whether some connection belongs to both.
    pub fn overlaps(&self, other: &Targets) -> bool {
        self.0.iter().any(|one| other.0.iter().any(|other| one.overlaps(other)))
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, target) in self.0.iter().enumerate() {
            write!(f, "{}{target}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl TryFrom<Vec<Target>> for Targets {
    type Error = String;

    fn try_from(targets: Vec<Target>) -> Result<Targets, String> {
        Targets::new(targets)
    }
}

impl From<Targets> for Vec<Target> {
    fn from(targets: Targets) -> Vec<Target> {
        targets.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(texts: &[&str]) -> Targets {
        Targets::new(texts.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
    }

    #[test]
    fn addresses_are_read_and_written() {
        let check = |text: &str, expect: &str| assert_eq!(text.parse::<Target>().unwrap().to_string(), expect);
        check("127.0.0.1:80", "127.0.0.1:80");
        check("[::1]:443", "[::1]:443");
        check("[::ffff:10.0.0.1]:443", "10.0.0.1:443");
        for all in [":80", "*:80", "0.0.0.0:80", "[::]:80"] {
            check(all, ":80");
        }
        for wrong in ["80", "localhost:80", "::1:80", ":0", ":65536", ":+80", ":080", "127.0.0.1:", "[::1]", ""] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_lies_in_another_is_left_out() {
        assert_eq!(targets(&["10.0.0.1:80", ":80", "10.0.0.1:81", "10.0.0.1:81"]).to_string(), ":80, 10.0.0.1:81");
        assert!(Targets::new(Vec::new()).is_err());
    }

    #[test]
    fn they_overlap_by_address_and_port() {
        let check = |one: &[&str], other: &[&str], expect: bool| {
            assert_eq!(targets(one).overlaps(&targets(other)), expect, "{one:?} {other:?}");
        };
        check(&["10.0.0.1:80"], &["10.0.0.2:80"], false);
        check(&["10.0.0.1:80"], &["10.0.0.1:81"], false);
        check(&["10.0.0.1:80", ":81"], &["[::1]:81"], true);
        check(&["10.0.0.1:80"], &[":80"], true);
    }

    #[test]
    fn listeners_of_all_addresses_serve_their_family() {
        let check = |target: &str, local: &str, expect: bool| {
            let target: Target = target.parse().unwrap();
            assert_eq!(target.is_served_by(local.parse().unwrap()), expect, "{target} {local}");
        };
        check("10.0.0.1:80", "0.0.0.0:80", true);
        check("10.0.0.1:80", "[::]:80", true);
        check("[::1]:80", "0.0.0.0:80", false);
        check(":80", "10.0.0.1:80", true);
        check("10.0.0.1:80", "10.0.0.2:80", false);
        check("10.0.0.1:80", "0.0.0.0:81", false);
    }
}
