//! On which interfaces the program is, and for which MAC addresses it takes packets there.

use std::net::IpAddr;

use baton_kernel::bpf::direct::{Mode, OwnMac, Reason};
use baton_kernel::route::{Link, Routing};

use super::engine::Xdp;
use super::way;
use crate::{Fault, Refused, Service};

/// MAC addresses that packets are taken for, at most: those of the interfaces, and of what stands on them.
const MACS_MAX: usize = 256;

impl Xdp {
    /// The numbers of the interfaces that are named in the settings.
    pub(super) fn named(&self, links: &[Link]) -> Result<Vec<u32>, Fault> {
        let number = |name: &String| {
            let link = links.iter().find(|link| link.name == *name);
            let none = || Fault::new(format!("interface {name}"), "there is no such interface", "`ip link` lists them");
            link.map(|link| link.index).ok_or_else(none)
        };
        self.settings.interfaces.iter().map(number).collect()
    }

    /// Ties the program to the interfaces on which it is wanted, and takes packets for their MAC addresses. `coming` are what is
    /// about to be added: a virtual address, and the interface of a server.
    pub(super) fn tie(&mut self, coming: Option<IpAddr>, server: Option<u32>) -> Result<(), Fault> {
        let links = self.routing.links()?;
        let named = self.named(&links)?;
        let is_named = !named.is_empty();
        let wanted = if is_named { named } else { self.unnamed(&links, coming, server)? };
        let is_in_veth = self.settings.is_in_veth;
        let direct = self.ready()?;
        let (mut tied, mut unwanted) = (Vec::new(), Vec::new());
        for (there, _) in direct.attached()? {
            // The link of an interface that is gone has nothing to do.
            if links.iter().all(|link| link.index != there) {
                direct.detach(there)?;
                continue;
            }
            tied.push(there);
            // Where names are given, they are all.
            if is_named && !wanted.contains(&there) {
                unwanted.push(there);
            }
        }
        let fresh: Vec<u32> = wanted.into_iter().filter(|wanted| !tied.contains(wanted)).collect();
        // The addresses first: from its first packet on the program knows what is for it.
        direct.set_macs(&macs(&links, &[&tied[..], &fresh].concat()))?;
        let mut failed = None;
        for index in fresh {
            let link = links.iter().find(|link| link.index == index);
            let may_native = is_in_veth || !link.is_some_and(is_veth);
            match direct.attach(index, link.map_or("", |link| &link.name), may_native) {
                Ok(_) => tied.push(index),
                Err(fault) => failed = Some(fault),
            }
        }
        // No sooner than the others see packets.
        if failed.is_none() && !unwanted.is_empty() {
            unwanted.iter().try_for_each(|there| direct.detach(*there))?;
            tied.retain(|there| !unwanted.contains(there));
            direct.set_macs(&macs(&links, &tied))?;
        }
        // Of those that nobody named, one is enough.
        failed.filter(|_| is_named || tied.is_empty()).map_or(Ok(()), Err)
    }

    /// What is against these interfaces, or without any, against those by which servers of these services are reached. What goes
    /// wrong with one that it works on already is not asked here.
    pub(super) fn against(&mut self, interfaces: &[String], desired: &[Service]) -> Result<Vec<Refused>, Fault> {
        let links = self.routing.links()?;
        let attached = self.direct.as_ref().map_or(Ok(Vec::new()), |direct| direct.attached())?;
        let is_taken = |link: &Link| link.has_xdp && attached.iter().all(|(there, _)| *there != link.index);
        let taken = |link: &Link| Refused {
            what: format!("interface {}", link.name),
            why: format!(
                "another XDP program is there, and it is left alone: end it (ip link set dev {} xdp off), or name another interface",
                link.name
            ),
        };
        if interfaces.is_empty() {
            let mut towards = Vec::new();
            for server in desired.iter().flat_map(|service| &service.destinations) {
                let route = self.routing.route_to(server.address.ip()).ok().flatten();
                let link = route.and_then(|route| links.iter().find(|link| link.index == route.interface));
                let below = link.and_then(|link| way::below(&links, &[], link).ok());
                towards.extend(below.and_then(|(below, _)| links.iter().find(|link| link.index == below)));
            }
            let all = !towards.is_empty() && towards.iter().all(|link| is_taken(link));
            return Ok(towards.first().filter(|_| all && !self.is_set).map(|link| taken(link)).into_iter().collect());
        }
        let fresh = interfaces.iter().filter(|name| !(self.is_set && self.settings.interfaces.contains(name)));
        let reason = |name: &String| match links.iter().find(|link| link.name == *name) {
            Some(link) => is_taken(link).then(|| taken(link)),
            None => Some(Refused {
                what: format!("interface {name}"),
                why: "there is no such interface (`ip link` lists them)".into(),
            }),
        };
        Ok(fresh.filter_map(reason).collect())
    }

    /// Where nobody names any: the interfaces that have a virtual address, and those by which servers are reached.
    fn unnamed(&mut self, links: &[Link], coming: Option<IpAddr>, server: Option<u32>) -> Result<Vec<u32>, Fault> {
        let mut wanted: Vec<u32> = self.servers()?.iter().map(|(_, slot)| slot.interface).collect();
        wanted.extend(server);
        let mut virtuals: Vec<IpAddr> =
            self.services()?.iter().map(|(_, slot)| slot.place.socket_address().ip()).collect();
        virtuals.extend(coming);
        for address in self.routing.addresses()? {
            let link = links.iter().find(|link| link.index == address.interface);
            if let Some(link) = link.filter(|link| !link.is_loopback && virtuals.contains(&address.address)) {
                wanted.extend(way::below(links, &[], link).ok().map(|(below, _)| below));
            }
        }
        wanted.retain(|number| *number != 0);
        wanted.sort_unstable();
        wanted.dedup();
        Ok(wanted)
    }

    /// Where the program is and how, and what it counted besides what it just forwarded.
    pub(super) fn told(&self) -> String {
        let attached = self.direct.as_ref().and_then(|direct| direct.attached().ok()).unwrap_or_default();
        if attached.is_empty() {
            return "on no interface yet".into();
        }
        let how = |(index, mode): &(u32, Mode)| {
            let link = Routing::open().and_then(|mut routing| routing.link_by_index(*index)).ok().flatten();
            let why = match mode {
                Mode::Native => "in its driver",
                Mode::Generic if link.as_ref().is_some_and(is_veth) => {
                    "generic: what a veth's driver sends back may vanish"
                }
                Mode::Generic => "generic: its driver has no XDP, which costs speed",
            };
            format!("{} ({why})", link.map_or_else(|| format!("interface {index}"), |link| link.name))
        };
        let mut manner = format!("on {}", attached.iter().map(how).collect::<Vec<_>>().join(", "));
        if let Some(direct) = &self.direct {
            let counted = Reason::ALL.iter().filter_map(|reason| {
                let packets = direct.reason(*reason).ok().filter(|packets| *packets > 0)?;
                Some(format!("{packets} {}", super::reason(*reason)))
            });
            let counted = counted.collect::<Vec<_>>().join(", ");
            if !counted.is_empty() {
                manner.push_str(&format!("; packets: {counted}"));
            }
        }
        manner
    }
}

/// Whether it is one end of a veth, such as a container's eth0. In its driver, what goes back is dropped unless the other end has an XDP
/// program too, and nobody hears of it.
fn is_veth(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth")
}

/// The MAC addresses of interfaces and of all that stands on them, such as VLANs and the MACVLAN of a virtual router. A frame is
/// seen on the interface below.
fn macs(links: &[Link], tied: &[u32]) -> Vec<OwnMac> {
    let mut macs = Vec::new();
    for interface in tied {
        let mut own = vec![*interface];
        let mut at = 0;
        while let Some(below) = own.get(at).copied().filter(|_| own.len() < MACS_MAX) {
            // A veth's peer is not on it.
            let stands = |link: &&Link| link.lower == Some(below) && !is_veth(link);
            own.extend(
                links
                    .iter()
                    .filter(stands)
                    .map(|link| link.index)
                    .filter(|index| !own.contains(index))
                    .collect::<Vec<_>>(),
            );
            at += 1;
        }
        for link in links.iter().filter(|link| own.contains(&link.index)) {
            let mac = link.mac.map(|mac| OwnMac { interface: *interface, address: mac.0, zero: 0 });
            macs.extend(mac.filter(|mac| !macs.contains(mac)));
        }
    }
    macs.truncate(MACS_MAX);
    macs
}
