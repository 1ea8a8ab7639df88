//! `resolvers` sections: DNS servers that are asked for addresses at run time, and how a server is found by them (configuration manual, 5.3).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::{Family, Server, Source, SourceAddress};

/// A `resolvers` section.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolvers {
    /// Its name, for `resolvers NAME` of servers and for `do-resolve`.
    pub name: Arc<str>,
    /// Where names are looked up: all of them are asked, the first valid response counts.
    pub servers: Vec<NameServer>,
    /// `hold`.
    pub hold: HoldTimes,
    /// `resolve_retries`: how often a query is sent before its name counts as unresolved.
    pub retries: u32,
    /// `timeout resolve`: from the end of a look-up to the next one of that name.
    pub resolve: Duration,
    /// `timeout retry`: how long a response is waited for.
    pub retry: Duration,
    /// `accepted_payload_size`: the longest UDP response.
    pub payload: u16,
    /// The section's first line.
    pub source: Source,
}

/// A name server.
#[derive(Clone, Debug, PartialEq)]
pub struct NameServer {
    /// Its name, unique in the section.
    pub name: Arc<str>,
    /// Where it is.
    pub address: SocketAddr,
    /// `tcp@`: asked by TCP; else by UDP, and by TCP what does not fit into a datagram.
    pub is_stream: bool,
    /// `source` of one that is asked by TCP: where from.
    pub source: Option<SourceAddress>,
    /// `maxconn` of one that is asked by TCP: connections at a time; 0 is no limit.
    pub maxconn: u32,
    /// `ssl` of one that is asked by TCP: the words about TLS, as those of a server named `SECTION/NAME`.
    pub tls: Option<Arc<Server>>,
}

impl NameServer {
    /// One that is asked by UDP.
    pub fn new(name: impl Into<Arc<str>>, address: SocketAddr) -> NameServer {
        NameServer { name: name.into(), address, is_stream: false, source: None, maxconn: 0, tls: None }
    }
}

/// For how long the last valid response counts after one of these outcomes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HoldTimes {
    /// The name does not exist.
    pub nx: Duration,
    /// A valid response that lacks what an earlier one had.
    pub obsolete: Duration,
    /// Any other error.
    pub other: Duration,
    /// The name server refuses to respond.
    pub refused: Duration,
    /// No response.
    pub timeout: Duration,
    /// A valid response, for `do-resolve`: it is not asked for again in this time.
    pub valid: Duration,
}

impl Resolvers {
    /// The name of the section that is made of `/etc/resolv.conf` where it is named and not there.
    pub const DEFAULT: &'static str = "default";

    /// A section without name servers, with HAProxy's defaults for everything else.
    pub fn new(name: Arc<str>, source: Source) -> Resolvers {
        Resolvers {
            name,
            servers: Vec::new(),
            hold: HoldTimes::default(),
            retries: 3,
            resolve: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            payload: 512,
            source,
        }
    }
}

impl Default for HoldTimes {
    fn default() -> HoldTimes {
        let usual = Duration::from_secs(30);
        HoldTimes {
            nx: usual,
            obsolete: Duration::ZERO,
            other: usual,
            refused: usual,
            timeout: usual,
            valid: Duration::from_secs(10),
        }
    }
}

/// How a server is found by DNS at run time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resolution {
    /// `resolvers`: the section.
    pub resolvers: Arc<str>,
    /// The name of SRV records that give host, port and weight, instead of a host whose addresses are looked up.
    pub service: Option<Arc<str>>,
    /// `resolve-prefer`: the family that is asked for first.
    pub prefer: Family,
    /// `resolve-net`: addresses of these networks are preferred.
    pub networks: Vec<(IpAddr, u8)>,
    /// `resolve-opts allow-dup-ip`: other servers of the backend may have the same address.
    pub may_share: bool,
    /// `resolve-opts ignore-weight`: the weight of SRV records does not count.
    pub ignore_weight: bool,
}

impl Resolution {
    /// By this section, with HAProxy's defaults.
    pub fn new(resolvers: impl Into<Arc<str>>) -> Resolution {
        Resolution {
            resolvers: resolvers.into(),
            service: None,
            prefer: Family::V6,
            networks: Vec::new(),
            may_share: false,
            ignore_weight: false,
        }
    }

    /// Whether an address is of one of the preferred networks.
    pub fn is_near(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| is_within(address, *network))
    }
}

/// The name that `str(NAME)` gives; `None`: the expression is another one.
pub fn constant_name(expression: &str) -> Option<&str> {
    let name = expression.strip_prefix("str(")?.strip_suffix(')')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    is_name.then_some(name)
}

fn is_within(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            (address.to_bits() ^ network.to_bits()) & mask == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            (address.to_bits() ^ network.to_bits()) & mask == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_preferred_by_their_bits() {
        let check = |network: (&str, u8), address: &str, expect: bool| {
            let networks = vec![(network.0.parse().expect("an address"), network.1)];
            let resolution = Resolution { networks, ..Resolution::new("r") };
            assert_eq!(resolution.is_near(address.parse().expect("an address")), expect, "{network:?} {address}");
        };
        check(("10.0.0.0", 8), "10.255.0.1", true);
        check(("10.0.0.0", 8), "11.0.0.1", false);
        check(("10.0.0.0", 0), "192.0.2.1", true);
        check(("10.0.0.1", 32), "10.0.0.1", true);
        check(("2001:db8::", 32), "2001:db8:1::1", true);
        check(("2001:db8::", 32), "2001:db9::1", false);
        check(("::", 0), "10.0.0.1", false);
    }
}
