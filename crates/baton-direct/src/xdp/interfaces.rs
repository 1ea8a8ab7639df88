//! On which interfaces the program is, and for which MAC addresses it takes packets there.

use std::net::IpAddr;

use baton_kernel::bpf::direct::{Mode, OwnMac, Reason};
use baton_kernel::route::{Link, Routing};

use super::engine::Xdp;
use super::place::{advised, is_veth, modes, reason};
use super::{Settings, way};
use crate::{Fault, Refused, Service};

/// MAC addresses that packets are taken for, at most: those of the interfaces, and of what stands on them.
const MACS_MAX: usize = 256;

impl Xdp {
    /// The numbers of the interfaces that are named in the settings, as far as they are there: the others must not suffer by one
    /// that is not.
    pub(super) fn named(&self, links: &[Link]) -> Vec<u32> {
        numbers(links, &self.settings.interfaces)
    }

    /// Those that are named and not there, a sentence each.
    pub(super) fn missing(&self, links: &[Link]) -> impl Iterator<Item = String> {
        let is_missing = |name: &&String| links.iter().all(|link| link.name != **name);
        self.settings.interfaces.iter().filter(is_missing).map(|name| {
            format!("interface {name}: it is not there (`ip link` lists them); packets are taken from it as soon as it is back")
        })
    }

    /// Ties the program to the interfaces on which it is wanted, and takes packets for their MAC addresses. `coming` are what is
    /// about to be added: a virtual address, and the interface of a server.
    pub(super) fn tie(&mut self, coming: Option<IpAddr>, server: Option<u32>) -> Result<(), Fault> {
        let links = self.routing.links()?;
        let is_named = !self.settings.interfaces.is_empty();
        let wanted = if is_named { self.named(&links) } else { self.unnamed(&links, coming, server)? };
        let place = self.settings.place;
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
            let Some(link) = links.iter().find(|link| link.index == index) else { continue };
            match direct.attach(index, &link.name, modes(place, link)) {
                Ok(_) => tied.push(index),
                Err(fault) => failed = Some(advised(fault, place)),
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

    /// What is against these interfaces, or without any, against those by which servers of these services are reached; and against
    /// having the program there in the place that is asked for. What goes wrong with one that it works on already is not asked here.
    pub(super) fn against(&mut self, settings: &Settings, desired: &[Service]) -> Result<Vec<Refused>, Fault> {
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
        let mut refused = Vec::new();
        if settings.interfaces.is_empty() {
            let towards = self.towards(&links, desired);
            let towards: Vec<&Link> = links.iter().filter(|link| towards.contains(&link.index)).collect();
            let all = towards.iter().all(|link| is_taken(link));
            refused.extend(towards.first().filter(|_| all && !self.is_set).map(|link| taken(link)));
            let numbers: Vec<u32> = towards.iter().map(|link| link.index).collect();
            let against = self.against_place(settings, &links, &numbers)?;
            // Of those that nobody named, one is enough.
            let (of_one, of_all): (Vec<Refused>, Vec<Refused>) =
                against.into_iter().partition(|refused| refused.what.starts_with("interface "));
            let is_none_left = of_one.len() == towards.len();
            refused.extend(of_all);
            refused.extend(of_one.into_iter().filter(|_| is_none_left));
            return Ok(refused);
        }
        let fresh = settings.interfaces.iter().filter(|name| !(self.is_set && self.settings.interfaces.contains(name)));
        let reason = |name: &String| match links.iter().find(|link| link.name == *name) {
            Some(link) => is_taken(link).then(|| taken(link)),
            None => Some(Refused {
                what: format!("interface {name}"),
                why: "there is no such interface (`ip link` lists them)".into(),
            }),
        };
        refused.extend(fresh.filter_map(reason));
        let numbers = numbers(&links, &settings.interfaces);
        refused.extend(self.against_place(settings, &links, &numbers)?);
        Ok(refused)
    }

    /// What would become of the interfaces, a sentence each.
    pub(super) fn about_interfaces(&mut self, settings: &Settings, desired: &[Service]) -> Result<Vec<String>, Fault> {
        if desired.is_empty() {
            return Ok(Vec::new());
        }
        let links = self.routing.links()?;
        let is_named = !settings.interfaces.is_empty();
        let wanted = if is_named { numbers(&links, &settings.interfaces) } else { self.towards(&links, desired) };
        self.foreseen(settings, &links, &wanted, is_named)
    }

    /// The interfaces by which servers of these services are reached.
    fn towards(&mut self, links: &[Link], desired: &[Service]) -> Vec<u32> {
        let mut towards = Vec::new();
        for server in desired.iter().flat_map(|service| &service.destinations) {
            let route = self.routing.route_to(server.address.ip()).ok().flatten();
            let link = route.and_then(|route| links.iter().find(|link| link.index == route.interface));
            let below = link.and_then(|link| way::below(links, &[], link).ok());
            towards.extend(below.map(|(below, _)| below));
        }
        towards.sort_unstable();
        towards.dedup();
        towards
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
            let why = reason(self.settings.place, *mode, link.as_ref());
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

/// The interfaces with these names, as far as they are there.
fn numbers(links: &[Link], names: &[String]) -> Vec<u32> {
    links.iter().filter(|link| names.contains(&link.name)).map(|link| link.index).collect()
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
