//! The way to an address.

use std::net::IpAddr;

use nix::errno::Errno;

use super::{Routing, bits, byte, family, ip, octets};
use crate::KernelError;
use crate::netlink::{Attribute, Attributes, Reply, Request};

/// `RTM_GETROUTE`.
const GET_ROUTE: u16 = 26;
/// Bytes of `struct rtmsg`.
const RTMSG: usize = 12;
/// Attributes (`RTA_…`, `RTAX_MTU`).
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
const GATEWAY: u16 = 5;
const PREFERRED_SOURCE: u16 = 7;
const METRICS: u16 = 8;
const VIA: u16 = 18;
const METRIC_MTU: u16 = 2;

/// What becomes of a packet on a way (`RTN_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// It is sent.
    Unicast,
    /// The address is this machine's own.
    Local,
    /// It is sent to everybody on the link.
    Broadcast,
    /// It is sent to a group.
    Multicast,
    /// It is not sent (`blackhole`, `unreachable`, `prohibit` …).
    Refused,
}

/// The way to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What becomes of a packet.
    pub kind: RouteKind,
    /// The number of the interface by which it leaves.
    pub interface: u32,
    /// The neighbour that carries it on; `None` when the destination is a neighbour itself.
    pub via: Option<IpAddr>,
    /// The source address of packets that have none.
    pub source: Option<IpAddr>,
    /// Bytes of the largest packet, where the way has a limit of its own.
    pub mtu: Option<u32>,
}

impl Route {}

impl Routing {
    /// The way that the kernel would take to an address now; `None` when there is none.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn route_to(&mut self, destination: IpAddr) -> Result<Option<Route>, KernelError> {
        // `struct rtmsg`: family, length of the destination; the rest is the kernel's choice.
        let mut message = vec![family(destination), bits(destination)];
        message.resize(RTMSG, 0);
        let attributes = Attributes::new().raw(DESTINATION, &octets(destination));
        match self.0.ask(&Request::new(GET_ROUTE, 0, &message, &attributes)) {
            Ok(replies) => Ok(replies.iter().find_map(route)),
            Err(fault) => match fault.errno() {
                // The last three are how IPv4 tells of routes that refuse.
                Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EACCES | Errno::EINVAL) => Ok(None),
                _ => Err(KernelError::netlink(format!("route to {destination}"), &fault)),
            },
        }
    }
}

fn route(reply: &Reply) -> Option<Route> {
    let kind = match byte(reply, 7)? {
        1 => RouteKind::Unicast,
        2 => RouteKind::Local,
        3 | 4 => RouteKind::Broadcast,
        5 => RouteKind::Multicast,
        _ => RouteKind::Refused,
    };
    let attributes = reply.attributes(RTMSG);
    let address = |kind| attributes.find(kind).and_then(ip);
    let metrics = attributes.find(METRICS).map(|found| found.nested());
    Some(Route {
        kind,
        interface: attributes.find(INTERFACE).and_then(|found| found.u32()).unwrap_or_default(),
        via: address(GATEWAY).or_else(|| attributes.find(VIA).and_then(via)),
        source: address(PREFERRED_SOURCE),
        mtu: metrics.and_then(|all| all.find(METRIC_MTU)?.u32()),
    })
}

/// `struct rtvia`: a family, and an address of it, which may be another than the destination's (RFC 5549).
fn via(attribute: Attribute<'_>) -> Option<IpAddr> {
    ip(Attribute { kind: attribute.kind, value: attribute.value.get(2..)? })
}
