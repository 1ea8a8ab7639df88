//! Virtual services as data: what shall be in the kernel, whichever engine does it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// By what packets belong to a service. Two services never have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKey {
    /// Their destination: a virtual address and port.
    Address {
        /// TCP or UDP.
        protocol: Protocol,
        /// Port 0 is every port, which the kernel takes only with persistence.
        address: SocketAddr,
    },
    /// The mark that a firewall gave them.
    Mark {
        /// The mark; not 0.
        mark: u32,
        /// IPv6 instead of IPv4: a service has one family.
        ipv6: bool,
    },
}

/// Which destination gets a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// `wrr`: in turn, by weight.
    #[default]
    RoundRobin,
    /// `wlc`: with the fewest connections for its weight.
    LeastConn,
    /// `sh`: by the client's address.
    Source,
    /// `mh`: Maglev, by the client's address and, where asked for, port: every director chooses alike.
    Maglev,
    /// `dh`: by the address asked for.
    Destination,
    /// `sed`: with the shortest expected delay.
    ShortestDelay,
    /// `nq`: an idle one, else as `sed`.
    NeverQueue,
    /// `lblc`: the one that had this destination last, unless it is overloaded.
    Locality,
    /// `lblcr`: the same with several for a destination.
    LocalityReplicated,
    /// `fo`: the usable one with the highest weight.
    Failover,
    /// `ovf`: the usable one with the highest weight until it has as many connections as its weight.
    Overflow,
    /// `twos`: the less loaded of two drawn.
    TwoRandom,
}

impl Scheduler {
    /// All of them.
    pub const ALL: [Scheduler; 12] = [
        Scheduler::RoundRobin,
        Scheduler::LeastConn,
        Scheduler::Source,
        Scheduler::Maglev,
        Scheduler::Destination,
        Scheduler::ShortestDelay,
        Scheduler::NeverQueue,
        Scheduler::Locality,
        Scheduler::LocalityReplicated,
        Scheduler::Failover,
        Scheduler::Overflow,
        Scheduler::TwoRandom,
    ];

    /// As the kernel's IPVS calls it (ipvsadm(8), `--scheduler`).
    pub fn word(self) -> &'static str {
        match self {
            Scheduler::RoundRobin => "wrr",
            Scheduler::LeastConn => "wlc",
            Scheduler::Source => "sh",
            Scheduler::Maglev => "mh",
            Scheduler::Destination => "dh",
            Scheduler::ShortestDelay => "sed",
            Scheduler::NeverQueue => "nq",
            Scheduler::Locality => "lblc",
            Scheduler::LocalityReplicated => "lblcr",
            Scheduler::Failover => "fo",
            Scheduler::Overflow => "ovf",
            Scheduler::TwoRandom => "twos",
        }
    }
}

/// That a client's later connections go where its first one went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Persistence {
    /// For how long after the last connection; whole seconds.
    pub timeout: Duration,
    /// How many leading bits of the client's address count: 32 or 128 is the client alone.
    pub prefix: u8,
}

/// How a packet gets to a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forwarding {
    /// By the MAC address alone; the destination has the virtual address and responds directly.
    #[default]
    Direct,
    /// Inside of another packet; the destination responds directly, and may be anywhere.
    Tunnel(Tunnel),
    /// With another destination address; answers come back through here.
    Masquerade,
}

/// What is around a packet in a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tunnel {
    /// IP in IP (RFC 2003).
    #[default]
    IpIp,
    /// Generic UDP encapsulation, to this port.
    Gue(u16),
    /// Generic routing encapsulation (RFC 2784).
    Gre,
}

/// A real server of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// Its address and port. By direct routing and in tunnels the port is the service's.
    pub address: SocketAddr,
    /// How packets get there.
    pub forwarding: Forwarding,
    /// Its share of new connections, as large as 65,535; with 0 it keeps what it has and gets nothing new.
    pub weight: u32,
    /// It gets nothing new from so many connections on; 0 is no limit.
    pub upper: u32,
    /// After that, it gets something again below so many; 0 is three quarters of `upper`.
    pub lower: u32,
}

/// A virtual service with its real servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What belongs to it.
    pub key: ServiceKey,
    /// Who gets a new connection.
    pub scheduler: Scheduler,
    /// The scheduler hashes ports too (`sh-port`, `mh-port`).
    pub hash_port: bool,
    /// The scheduler goes on to another one when the chosen one has weight 0 or is overloaded (`sh-fallback`, `mh-fallback`).
    pub fallback: bool,
    /// Whether clients stay where they are.
    pub persistence: Option<Persistence>,
    /// Each UDP packet is balanced alone (`ops`).
    pub one_packet: bool,
    /// The real servers. No two have the same address.
    pub destinations: Vec<Destination>,
}

impl ServiceKey {
    /// Whether its packets are IPv6.
    pub fn is_ipv6(&self) -> bool {
        match self {
            ServiceKey::Address { address, .. } => address.is_ipv6(),
            ServiceKey::Mark { ipv6, .. } => *ipv6,
        }
    }

    /// The virtual address; a mark has none.
    pub fn virtual_address(&self) -> Option<IpAddr> {
        match self {
            ServiceKey::Address { address, .. } => Some(address.ip()),
            ServiceKey::Mark { .. } => None,
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceKey::Address { protocol, address } => write!(f, "{protocol} {address}"),
            ServiceKey::Mark { mark, ipv6: false } => write!(f, "mark {mark}"),
            ServiceKey::Mark { mark, ipv6: true } => write!(f, "mark {mark} (IPv6)"),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}
