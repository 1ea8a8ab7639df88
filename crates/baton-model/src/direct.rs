//! `mode direct`: balancing in the kernel, where servers answer clients by themselves.
//!
//! What the sections say, not what the kernel shall have: that depends on servers' states too, and is another crate's.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{Model, Proxy, Role, Source};

/// What a proxy of `mode direct` has besides its servers. Of a frontend the places, the engine and what belongs to them count,
/// of a backend the scheduler and what belongs to it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Direct {
    /// `bind` lines, expanded. Nobody listens there: the kernel takes the packets.
    pub places: Vec<DirectBind>,
    /// `engine`.
    pub engine: EngineChoice,
    /// `on-exit`.
    pub on_exit: OnExit,
    /// `manage-vip`.
    pub manage_vip: Option<ManageVip>,
    /// `balance`.
    pub scheduler: Scheduler,
    /// `balance … hash-port`: the client's port is hashed too.
    pub hash_port: bool,
    /// `balance … fallback`: another server where the hashed one gets nothing.
    pub fallback: bool,
    /// `stick-table` with `stick on src`.
    pub persistence: Option<Stickiness>,
    /// `option direct-vip-check`: of servers that are checked and reached directly, it is checked too whether they have the
    /// virtual address.
    pub vip_check: bool,
}

/// A `bind` line's address of `mode direct`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectBind {
    /// Which packets.
    pub place: Place,
    /// `name`: as shown in statistics.
    pub name: Option<String>,
    /// `id`: unique in its proxy.
    pub id: Option<u32>,
    /// `interface`: where the packets come in; `None` leaves it to the engine.
    pub interface: Option<String>,
    /// The `bind` line.
    pub source: Source,
}

/// By what packets belong to a proxy of `mode direct`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Place {
    /// `ADDRESS:PORT`: TCP. Port 0 is every port.
    Tcp(SocketAddr),
    /// `udp@ADDRESS:PORT`.
    Udp(SocketAddr),
    /// `fwmark@MARK`, `fwmark6@MARK`: what a firewall marked.
    Mark {
        /// The mark, not 0.
        mark: u32,
        /// IPv6 instead of IPv4.
        ipv6: bool,
    },
}

impl Place {
    /// The virtual address; a mark has none.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Place::Tcp(address) | Place::Udp(address) => Some(*address),
            Place::Mark { .. } => None,
        }
    }

    /// The port, where it is one.
    pub fn port(&self) -> Option<u16> {
        self.address().map(|address| address.port()).filter(|port| *port > 0)
    }

    /// Whether its packets are IPv6.
    pub fn is_ipv6(&self) -> bool {
        match self {
            Place::Tcp(address) | Place::Udp(address) => address.is_ipv6(),
            Place::Mark { ipv6, .. } => *ipv6,
        }
    }
}

impl fmt::Display for Place {
    /// As in a configuration.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(address) => write!(out, "{address}"),
            Place::Udp(address) => write!(out, "udp@{address}"),
            Place::Mark { mark, ipv6: false } => write!(out, "fwmark@{mark}"),
            Place::Mark { mark, ipv6: true } => write!(out, "fwmark6@{mark}"),
        }
    }
}

/// `engine`: who balances in the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EngineChoice {
    /// `auto`: what is there and can do what is asked for.
    #[default]
    Auto,
    /// `ipvs`: the kernel's IP Virtual Server.
    Ipvs,
    /// `xdp`: a program at the network interface.
    Xdp(XdpWhere),
}

impl EngineChoice {
    /// As in a configuration.
    pub fn word(self) -> &'static str {
        match self {
            EngineChoice::Auto => "auto",
            EngineChoice::Ipvs => "ipvs",
            EngineChoice::Xdp(XdpWhere::Best) => "xdp",
            EngineChoice::Xdp(XdpWhere::Driver) => "xdp driver",
            EngineChoice::Xdp(XdpWhere::Stack) => "xdp stack",
        }
    }
}

/// `engine xdp [driver|stack]`: where the program sees packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum XdpWhere {
    /// In the driver where that can do it well, else in the stack.
    #[default]
    Best,
    /// `driver`: there alone.
    Driver,
    /// `stack`: there alone.
    Stack,
}

/// `on-exit`: what stays in the kernel when the process ends and no other one takes over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnExit {
    /// `keep`: connections live on, and new ones are balanced by what was known last.
    #[default]
    Keep,
    /// `flush`: nothing stays.
    Flush,
}

impl OnExit {
    /// As in a configuration.
    pub fn word(self) -> &'static str {
        match self {
            OnExit::Keep => "keep",
            OnExit::Flush => "flush",
        }
    }
}

/// `manage-vip`: the virtual addresses are put on an interface and announced.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ManageVip {
    /// `interface`; `None` is the one towards the servers.
    pub interface: Option<String>,
    /// `prefix`; `None` is the address alone, 32 or 128.
    pub prefix: Option<u8>,
}

/// How the kernel chooses a server for a new connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scheduler {
    /// `roundrobin`, `static-rr`.
    #[default]
    RoundRobin,
    /// `leastconn`.
    LeastConn,
    /// `source`: by the client's address.
    Source,
    /// `mh`: Maglev, by the client's address, with few changes when servers come and go.
    Maglev,
    /// `dh`: by the address asked for.
    Destination,
    /// `sed`: the shortest expected delay.
    ShortestDelay,
    /// `nq`: an idle server, else as `sed`.
    NeverQueue,
    /// `lblc`: where this destination went last.
    Locality,
    /// `lblcr`: the same with several servers for a destination.
    LocalityReplicated,
    /// `fo`: the server with the highest weight that is usable.
    Failover,
    /// `ovf`: the same until it has as many connections as its weight.
    Overflow,
    /// `random`: the less loaded of two drawn.
    Random,
}

impl Scheduler {
    /// Words of `balance` that only `mode direct` has.
    pub const OWN: [(&'static str, Scheduler); 8] = [
        ("mh", Scheduler::Maglev),
        ("dh", Scheduler::Destination),
        ("sed", Scheduler::ShortestDelay),
        ("nq", Scheduler::NeverQueue),
        ("lblc", Scheduler::Locality),
        ("lblcr", Scheduler::LocalityReplicated),
        ("fo", Scheduler::Failover),
        ("ovf", Scheduler::Overflow),
    ];
}

/// That a client's later connections go where its first one went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stickiness {
    /// `expire`, in whole seconds, since the last connection.
    pub expire: Duration,
    /// Leading bits of an IPv4 client that count.
    pub prefix: u8,
    /// Leading bits of an IPv6 client that count.
    pub prefix6: u8,
}

/// How packets get to a server in `mode direct`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Forwarding {
    /// By its MAC address; it has the virtual address too, and answers by itself.
    #[default]
    Direct,
    /// `tunnel`: inside of another packet; it answers by itself.
    Tunnel(Tunnel),
    /// `masquerade`: with its address as destination; answers come back this way.
    Masquerade,
}

/// What is around a packet in a tunnel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Tunnel {
    /// `ipip` (RFC 2003).
    #[default]
    IpIp,
    /// `gue:PORT`.
    Gue(u16),
    /// `gre` (RFC 2784).
    Gre,
}

/// `tune.ipvs.*`: settings of the kernel's IPVS, which has them once for all services. `None` leaves what is there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IpvsTuning {
    /// `tune.ipvs.timeout-tcp`: of silent TCP connections; whole seconds, as the others.
    pub timeout_tcp: Option<Duration>,
    /// `tune.ipvs.timeout-tcpfin`: of TCP connections that were closed by one side.
    pub timeout_tcpfin: Option<Duration>,
    /// `tune.ipvs.timeout-udp`: of UDP.
    pub timeout_udp: Option<Duration>,
    /// `tune.ipvs.expire-nodest-conn`: connections of a server that is removed end at once.
    pub expire_nodest_conn: Option<bool>,
    /// `tune.ipvs.sloppy-tcp`: a connection may begin with any packet, as after a failover.
    pub sloppy_tcp: Option<bool>,
    /// `tune.ipvs.expire-quiescent-template`: clients that stick to a server of weight 0 go to another one with what they begin anew.
    /// `None` is that too where a section has persistence.
    pub expire_quiescent_template: Option<bool>,
    /// `tune.ipvs.sync-master`.
    pub sync_master: Option<Sync>,
    /// `tune.ipvs.sync-backup`.
    pub sync_backup: Option<Sync>,
}

/// Connections are told to another director, or learned from it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sync {
    /// By which interface.
    pub interface: String,
    /// `id`, by which directors of one network are told apart.
    pub id: u8,
}

/// Frontends of `mode direct` that take part, with the backends that they lead to.
pub fn direct_pairs(model: &Model) -> impl Iterator<Item = (&Arc<Proxy>, &Arc<Proxy>)> {
    let fronts = model.proxies.iter().filter(|proxy| !proxy.disabled && !proxy.places().is_empty());
    let mut backs: HashMap<&str, &Arc<Proxy>> = HashMap::new();
    if fronts.clone().any(|front| front.default_backend.is_some()) {
        for back in model.proxies.iter().filter(|proxy| proxy.role.is_backend()) {
            backs.entry(&back.name).or_insert(back);
        }
    }
    fronts.filter_map(move |front| {
        let back = match &front.default_backend {
            Some(name) => *backs.get(name.as_str())?,
            None => Some(front).filter(|front| front.role == Role::Listen)?,
        };
        (!back.disabled && back.direct.is_some()).then_some((front, back))
    })
}
