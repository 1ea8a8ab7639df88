//! How a packet gets to a server: its MAC address, and the interface and VLAN on which it is.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use baton_kernel::bpf::direct::XdpMode;
use baton_kernel::route::{Link, RouteKind, Routing, Vlan};

use super::judge;
use crate::KernelError;

/// How often neighbours are looked for that the kernel has just begun to ask for, and the pause before each time.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);
/// VLAN tags that the program can write.
const TAGS_MAX: usize = 2;

/// The next hop of packets for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextHop {
    /// The interface of the route.
    pub(super) link: u32,
    /// The interface to which the program gives frames, with these tags.
    pub(super) interface: u32,
    pub(super) to: [u8; 6],
    pub(super) from: [u8; 6],
    pub(super) tags: usize,
    pub(super) protocols: [[u8; 2]; TAGS_MAX],
    pub(super) numbers: [u16; TAGS_MAX],
    pub(super) mtu: u32,
}

/// Looks for the way to a server; `attached` are the interfaces whose frames the program sees as they are. What is in the way is
/// a sentence.
///
/// From a driver, packets go to the interface below a VLAN, and the program writes the tags. In the stack they go to the VLAN's own
/// interface, which sees to its tag: there a tag that a packet came with may be beside the frame, where the program does not see it.
pub(super) fn find(
    routing: &mut Routing,
    links: &[Link],
    attached: &[u32],
    mode: XdpMode,
    server: IpAddr,
) -> Result<Result<NextHop, String>, KernelError> {
    let Some(route) = routing.route_to(server)? else {
        return Ok(Err("there is no route to it; give this machine an address in its network".into()));
    };
    match route.kind {
        RouteKind::Unicast => {}
        RouteKind::Local => {
            return Ok(Err(judge::LOCAL.into()));
        }
        _ => return Ok(Err("its route is not unicast".into())),
    }
    if let Some(router) = route.via {
        return Ok(Err(format!(
            "it is behind the router {router}, and direct routing needs it on the same network; give this machine an address there, or \
             use a tunnel with the engine ipvs"
        )));
    }
    let Some(link) = links.iter().find(|link| link.index == route.interface) else {
        return Ok(Err("its interface is gone".into()));
    };
    let Some(from) = link.mac else {
        return Ok(Err(format!("its interface {} has no MAC addresses", link.name)));
    };
    let Some(to) = neighbour(routing, link.index, server)? else {
        return Ok(Err(format!("no machine responds to ARP for it on {}", link.name)));
    };
    let below = match mode {
        XdpMode::Native => below(links, attached, link),
        XdpMode::Generic => Ok((link.index, Vec::new())),
    };
    Ok(below.map(|(interface, vlans)| {
        let (mut protocols, mut numbers) = ([[0; 2]; TAGS_MAX], [0; TAGS_MAX]);
        for (at, vlan) in vlans.iter().enumerate().take(TAGS_MAX) {
            (protocols[at], numbers[at]) = (vlan.protocol, vlan.number);
        }
        NextHop { link: link.index, interface, to, from: from.0, tags: vlans.len(), protocols, numbers, mtu: link.mtu }
    }))
}

/// The MAC address, when the kernel knows it; else it is asked for, and known later.
fn neighbour(routing: &mut Routing, interface: u32, server: IpAddr) -> Result<Option<[u8; 6]>, KernelError> {
    let known = routing.neighbour(interface, server)?.and_then(|neighbour| Some(neighbour.usable()?.0));
    if known.is_none() {
        routing.resolve_neighbour(interface, server)?;
    }
    Ok(known)
}

/// Has the kernel ask for the MAC addresses of all these servers, and waits a moment for the answers. Gives the interfaces of the routes
/// to them. Whose MAC address is unknown then, [`find`] says.
pub(super) fn wait_for(routing: &mut Routing, servers: &BTreeSet<IpAddr>) -> Vec<u32> {
    let mut interfaces = BTreeSet::new();
    let mut asked = Vec::new();
    for server in servers {
        let route = routing.route_to(*server).ok().flatten();
        let Some(route) = route.filter(|route| route.kind == RouteKind::Unicast && route.via.is_none()) else {
            continue;
        };
        interfaces.insert(route.interface);
        if matches!(neighbour(routing, route.interface, *server), Ok(None)) {
            asked.push((route.interface, *server));
        }
    }
    for _ in 0..TRIES {
        if asked.is_empty() {
            break;
        }
        thread::sleep(PAUSE);
        asked.retain(|(interface, server)| {
            let known = routing.neighbour(*interface, *server).ok().flatten();
            known.is_none_or(|neighbour| neighbour.usable().is_none())
        });
    }
    interfaces.into_iter().collect()
}

/// The interface below an interface's VLANs, and the VLANs' tags, the outer one first.
pub(super) fn below(links: &[Link], attached: &[u32], link: &Link) -> Result<(u32, Vec<Vlan>), String> {
    let mut vlans = Vec::new();
    let mut at = link;
    while let (false, Some(vlan), Some(lower)) = (attached.contains(&at.index), at.vlan, at.lower) {
        if vlans.len() == TAGS_MAX {
            return Err(format!("its interface {} has more than {TAGS_MAX} nested VLAN tags", link.name));
        }
        let Some(parent) = links.iter().find(|parent| parent.index == lower) else {
            return Err(format!(
                "the interface below {} is in another network namespace; name it with `interface`",
                at.name
            ));
        };
        vlans.insert(0, vlan);
        at = parent;
    }
    Ok((at.index, vlans))
}

#[cfg(test)]
pub(super) mod testing {
    use super::{Link, Vlan};

    /// The tag of an ordinary VLAN.
    pub(in crate::xdp) fn tag(number: u16) -> Vlan {
        Vlan { number, protocol: [0x81, 0x00] }
    }

    /// An interface as it might be, a VLAN by its number and the interface below.
    pub(in crate::xdp) fn link(index: u32, vlan: Option<(u16, u32)>) -> Link {
        Link {
            index,
            name: format!("if{index}"),
            mac: None,
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            is_loopback: false,
            has_neighbours: true,
            kind: None,
            vlan: vlan.map(|(number, _)| tag(number)),
            lower: vlan.map(|(_, lower)| lower),
            master: None,
            has_xdp: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{link, tag};
    use super::*;

    #[test]
    fn frames_leave_below_the_vlans() {
        let mut links = [
            link(1, None),
            link(2, Some((10, 1))),
            link(3, Some((20, 2))),
            link(4, Some((30, 3))),
            link(5, Some((1, 99))),
        ];
        let provider = Vlan { protocol: [0x88, 0xa8], ..tag(10) };
        links[1].vlan = Some(provider);
        let below = |attached: &[u32], at: usize| below(&links, attached, &links[at]);
        assert_eq!(below(&[], 0), Ok((1, vec![])));
        assert_eq!(below(&[], 1), Ok((1, vec![provider])));
        assert_eq!(below(&[], 2), Ok((1, vec![provider, tag(20)])));
        assert_eq!(below(&[2], 2), Ok((2, vec![tag(20)])), "whoever is tied to the VLAN itself sees no tag of it");
        assert_eq!(below(&[3], 2), Ok((3, vec![])));
        assert!(below(&[], 3).unwrap_err().contains("nested VLAN tags"));
        assert!(below(&[], 4).unwrap_err().contains("another network namespace"));
    }
}
