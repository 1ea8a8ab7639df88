//! Whether the virtual address is set up on a real server: a packet with the virtual address as its destination, to the real
//! server's hardware address, as a director sends it.
//!
//! For TCP it is a SYN to the service's port. A SYN-ACK or an RST comes from whoever has the address; the SYN-ACK is ended by an RST. For
//! anything else it is ICMP's echo, which a firewall on the real server may swallow: then a server whose address is set up looks
//! as if it had none. The packet may go one hop only, so that a real server without the address cannot pass it on to one that has it.
//!
//! What comes back goes to an address of this machine's own and is seen before the machine judges it: a director that has the
//! virtual address itself would drop a packet from it. The real server must be a neighbour: direct routing reaches no other. Takes
//! CAP_NET_RAW. The call blocks until there is an answer or the time is over; give it a thread.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use baton_kernel::KernelError;
use baton_kernel::packet::{EtherType, FrameFilter, PacketSocket, ReservedPort};
use baton_kernel::route::{Mac, Reachability, RouteKind, Routing};

use crate::station::Station;
use crate::who_has;
use crate::wire::tcp::{self, Ports, SynReply};
use crate::wire::{ETHERNET, ICMP, ICMPV6, Path, echo, octets, packet};

/// How often a packet is sent: it or its answer may be lost.
const TRIES: u32 = 3;
/// How long after a try the next one comes, at most.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The part of the time in which the hardware address has to be found.
const RESOLVING_PART: u32 = 3;

/// The probe that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMethod {
    /// A SYN to this port.
    Tcp(u16),
    /// An echo request.
    Echo,
}

/// The virtual address and the real server that is probed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTarget {
    /// The virtual address.
    pub vip: IpAddr,
    /// The real server's own address, of the same family.
    pub server: IpAddr,
    /// The probe that is sent.
    pub with: ProbeMethod,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The real server takes packets for the virtual address.
    SetUp {
        /// Whether somebody listens on the port; `None` when no port was asked.
        listens: Option<bool>,
    },
    /// It does not, as far as one can see.
    Missing(MissingVip),
}

/// Why the virtual address seems not to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingVip {
    /// No reply. A firewall on the real server has the same effect.
    Silent,
    /// The real server would have carried the packet on: it does not have the address, and forwards packets.
    Forwards,
    /// The real server's own address has no answer either.
    NoNeighbour,
    /// The real server is behind this router.
    Behind(IpAddr),
    /// There is no way to the real server.
    NoWay,
    /// The real server is this machine, which does not have the address.
    NotHere,
}

impl ProbeResult {
    /// Whether the real server may get clients.
    pub fn is_set_up(self) -> bool {
        matches!(self, ProbeResult::SetUp { .. })
    }
}

/// Asks one real server.
///
/// # Errors
/// Without CAP_NET_RAW, for addresses of two families, or when this machine has no address of its own to ask from.
pub fn probe(asked: &ProbeTarget, within: Duration) -> Result<ProbeResult, KernelError> {
    let deadline = Instant::now() + within;
    let place = || format!("probe of {} on {}", asked.vip, asked.server);
    if asked.vip.is_ipv4() != asked.server.is_ipv4() {
        return Err(KernelError::new(
            place(),
            "one is IPv4 and the other IPv6",
            "direct routing needs the same address family for both",
        ));
    }
    let mut routing = Routing::open()?;
    let Some(route) = routing.route_to(asked.server)? else { return Ok(ProbeResult::Missing(MissingVip::NoWay)) };
    match (route.kind, route.via) {
        (RouteKind::Local, _) => {
            let is_here = routing.addresses()?.iter().any(|known| known.address == asked.vip);
            return Ok(if is_here {
                ProbeResult::SetUp { listens: None }
            } else {
                ProbeResult::Missing(MissingVip::NotHere)
            });
        }
        (RouteKind::Unicast, Some(router)) => return Ok(ProbeResult::Missing(MissingVip::Behind(router))),
        (RouteKind::Unicast, None) => {}
        (RouteKind::Broadcast | RouteKind::Multicast | RouteKind::Refused, _) => {
            return Ok(ProbeResult::Missing(MissingVip::NoWay));
        }
    }
    let station = Station::by_index(&mut routing, route.interface)?;
    let own = route.source.filter(|source| *source != asked.vip).or_else(|| station.own_address(asked.vip));
    let Some(own) = own else {
        let reason = format!("this machine has no source address on {} for the probe", station.link.name);
        return Err(KernelError::new(place(), reason, "add one besides the virtual address"));
    };
    let Some(to) = hardware_address(&mut routing, &station, asked.server, within / RESOLVING_PART)? else {
        return Ok(ProbeResult::Missing(MissingVip::NoNeighbour));
    };
    let path = Path { from: station.mac, to, source: own, destination: asked.vip, hops: 1 };
    ask(asked, station.link.index, &path, deadline).map_err(|fault| match fault {
        ProbeError::Fault(fault) => fault,
        ProbeError::Io(error) => KernelError::io(place(), &error),
    })
}

/// Where to send to: what the kernel is sure of, or else what a question of our own finds.
fn hardware_address(
    routing: &mut Routing,
    station: &Station,
    server: IpAddr,
    within: Duration,
) -> Result<Option<Mac>, KernelError> {
    let known = routing.neighbour(station.link.index, server)?;
    let is_sure = |state| matches!(state, Reachability::Reachable | Reachability::Permanent | Reachability::NoArp);
    match known.filter(|known| is_sure(known.reachability)).and_then(|known| known.mac) {
        Some(mac) => Ok(Some(mac)),
        None => who_has::first(station, server, within),
    }
}

enum ProbeError {
    Fault(KernelError),
    Io(io::Error),
}

impl From<KernelError> for ProbeError {
    fn from(fault: KernelError) -> ProbeError {
        ProbeError::Fault(fault)
    }
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> ProbeError {
        ProbeError::Io(error)
    }
}

fn ask(asked: &ProbeTarget, interface: u32, path: &Path, deadline: Instant) -> Result<ProbeResult, ProbeError> {
    let kind = EtherType::of(asked.vip);
    // One socket: to close one takes the kernel some ten milliseconds.
    let answers = PacketSocket::open(interface, kind, &answers_of(asked, path.source))?;
    let number = RandomState::new().build_hasher().finish() as u32;
    // Nobody connects from this port meanwhile.
    let reserved = match asked.with {
        ProbeMethod::Tcp(_) => Some(ReservedPort::tcp(path.source)?),
        ProbeMethod::Echo => None,
    };
    let ports = Ports {
        source: reserved.as_ref().map(ReservedPort::number).unwrap_or_default(),
        destination: if let ProbeMethod::Tcp(port) = asked.with { port } else { 0 },
    };
    let question = match asked.with {
        ProbeMethod::Tcp(_) => tcp::syn(path, ports, number),
        ProbeMethod::Echo => echo::request(path, number),
    };
    let start = Instant::now();
    let pause = (deadline.saturating_duration_since(start) / TRIES).min(PAUSE_MAX);
    let mut tries = 0;
    while tries == 0 || Instant::now() < deadline {
        if tries < TRIES {
            answers.send(&question)?;
            tries += 1;
        }
        let until = deadline.min(Instant::now() + pause);
        // However many frames come, the time ends.
        while let Some(frame) = answers.receive(until)?.filter(|_| Instant::now() < deadline) {
            let Some(packet) = packet(&frame) else { continue };
            if echo::is_exceeded(&packet, asked.vip) {
                return Ok(ProbeResult::Missing(MissingVip::Forwards));
            }
            match asked.with {
                ProbeMethod::Echo if echo::is_reply(&packet, asked.vip, number) => {
                    return Ok(ProbeResult::SetUp { listens: None });
                }
                ProbeMethod::Echo => {}
                ProbeMethod::Tcp(_) => match tcp::answer(&packet, asked.vip, ports, number) {
                    Some(SynReply::Listens(sequence)) => {
                        answers.send(&tcp::reset(path, ports, sequence))?;
                        return Ok(ProbeResult::SetUp { listens: Some(true) });
                    }
                    Some(SynReply::Refuses) => return Ok(ProbeResult::SetUp { listens: Some(false) }),
                    None => {}
                },
            }
        }
    }
    Ok(ProbeResult::Missing(MissingVip::Silent))
}

/// Packets from the virtual address, and ICMP from the real server's own, to `own`.
fn answers_of(asked: &ProbeTarget, own: IpAddr) -> FrameFilter {
    let base = ETHERNET as u32;
    let (protocol, icmp, source, destination) = match own {
        IpAddr::V4(_) => (9, ICMP, 12, 16),
        IpAddr::V6(_) => (6, ICMPV6, 8, 24),
    };
    let to_us = |filter: FrameFilter| filter.bytes(base + destination, &octets(own));
    let from_vip = to_us(FrameFilter::new().bytes(base + source, &octets(asked.vip)));
    to_us(from_vip.or().byte(base + protocol, icmp).bytes(base + source, &octets(asked.server)))
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeResult::SetUp { listens: Some(true) } => {
                f.write_str("the virtual address is set up, and its port listens")
            }
            ProbeResult::SetUp { listens: Some(false) } => {
                f.write_str("the virtual address is set up, but nothing listens on its port")
            }
            ProbeResult::SetUp { listens: None } => f.write_str("the virtual address is set up"),
            ProbeResult::Missing(missing) => missing.fmt(f),
        }
    }
}

impl fmt::Display for MissingVip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingVip::Silent => f.write_str("nothing there responds for the virtual address: is it set up on lo?"),
            MissingVip::Forwards => {
                f.write_str("the virtual address is not set up there, and the server forwards packets")
            }
            MissingVip::NoNeighbour => f.write_str("the server's own address does not respond on this link"),
            MissingVip::Behind(router) => {
                write!(f, "the server is behind the router {router}; direct routing reaches only neighbours")
            }
            MissingVip::NoWay => f.write_str("there is no route to the server"),
            MissingVip::NotHere => f.write_str("the server is this machine, which does not have the virtual address"),
        }
    }
}
