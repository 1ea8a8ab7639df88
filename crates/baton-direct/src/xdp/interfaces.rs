//! On which interfaces the program is, and what comes of that being changed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use baton_kernel::bpf::direct::{Reason, XdpMode};
use baton_kernel::route::{Link, Routing, Vlan};

use super::engine::{Xdp, lead};
use super::gate::Gate;
use super::macs::macs;
use super::place::{Change, XdpInterfaces, advised, deaf, is_veth, reason, stripped, unsent, untagged};
use super::{XdpHook, XdpSettings};
use crate::{KernelError, Refused, Service};

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
            format!("interface {name} does not exist (see `ip link`); its packets are processed as soon as it is back")
        })
    }

    /// Ties the program to the interfaces on which it is wanted, and takes packets for their MAC addresses. `coming` are what is
    /// about to be added: virtual addresses, and the interfaces of servers' routes.
    pub(super) fn tie(&mut self, coming: &BTreeSet<IpAddr>, servers: &[u32]) -> Result<(), KernelError> {
        let before = self.is_set.then_some(self.settings.place);
        self.tie_after(before, coming, servers)
    }

    /// [`tie`](Self::tie), where the program was in another place until now.
    pub(super) fn tie_after(
        &mut self,
        before: Option<XdpHook>,
        coming: &BTreeSet<IpAddr>,
        servers: &[u32],
    ) -> Result<(), KernelError> {
        let place = self.settings.place;
        let links = self.routing.links()?;
        let ends = self.ends(&links, coming, servers)?;
        let known = self.attached()?;
        let (mode, hindrance) = self.mode(place, before, &links, &ends)?;
        let mut change = Change::new(mode, &known, &links, &ends);
        let mut done = self.bring(&links, &ends, &change, &known);
        match (&done, place, mode) {
            (Err(fault), XdpHook::Best, XdpMode::Native) => {
                // All of them together are in the stack.
                self.hindrance = Some(format!("{}: {}", fault.place, fault.reason));
                change = Change::new(XdpMode::Generic, &self.attached()?, &links, &ends);
                done = self.bring(&links, &ends, &change, &known);
            }
            (_, _, XdpMode::Native) => self.hindrance = None,
            (_, _, XdpMode::Generic) => self.hindrance = hindrance.or(self.hindrance.take()),
        }
        done.map_err(|fault| advised(fault, place))
    }

    /// Makes a change to interfaces. No packet gets beside the program: while it moves from a driver to the stack or back, what comes for a
    /// service is dropped, and clients send it again. `known` is where it was before anything was tried.
    fn bring(
        &mut self,
        links: &[Link],
        ends: &XdpInterfaces,
        change: &Change,
        known: &[(u32, XdpMode)],
    ) -> Result<(), KernelError> {
        let receiving = ends.receiving(links, change.mode);
        // On these it is for sending alone.
        let mut silent = ends.tied(links, change.mode);
        silent.retain(|index| !receiving.contains(index));
        let addresses: BTreeSet<IpAddr> =
            self.services()?.iter().map(|(_, slot)| slot.place.socket_address().ip()).collect();
        let direct = self.ready()?;
        change.gone.iter().try_for_each(|index| direct.detach(*index))?;
        let mut tied: Vec<u32> = direct.attached()?.into_iter().map(|(index, _)| index).collect();
        let listening =
            |tied: &[u32]| -> Vec<u32> { tied.iter().copied().filter(|index| !silent.contains(index)).collect() };
        let fresh: Vec<u32> = change.fresh.iter().map(|link| link.index).collect();
        // The addresses first: from its first packet on the program knows what is for it.
        direct.set_macs(&macs(links, &listening(&[&tied[..], &fresh].concat())))?;
        let mut failed = None;
        for link in &change.fresh {
            match direct.attach(link.index, &link.name, &[change.mode]) {
                Ok(_) => tied.push(link.index),
                // Somebody else's program sends as well as ours.
                Err(_) if link.has_xdp && silent.contains(&link.index) => {}
                Err(fault) if ends.is_named || (change.mode == XdpMode::Native && !link.has_xdp) => return Err(fault),
                // Of those that nobody named, one is enough.
                Err(fault) => failed = Some(fault),
            }
        }
        if let Some(fault) = failed.filter(|_| tied.is_empty()) {
            return Err(fault);
        }
        let is_seen = |link: &Link| known.iter().any(|(index, _)| *index == link.index);
        let gate = (change.moves.iter().any(is_seen) && !addresses.is_empty()).then(|| Gate::shut(&addresses));
        let gate = gate.transpose()?;
        let mut failed = None;
        for link in &change.moves {
            if let Err(fault) = self.ready()?.move_to(link.index, &link.name, change.mode) {
                failed = Some(fault);
            }
        }
        let attached = self.attached()?;
        // What becomes of a veth later, `unheard` says.
        let is_news = |link: &Link| !is_veth(link) || change.fresh.contains(link) || change.moves.contains(link);
        let deaf = deaf(links, ends, &attached).filter(|link| change.mode == XdpMode::Native && is_news(link));
        let remedy = "without `driver` the program runs in the stack";
        if let Some(link) = deaf {
            failed = failed.or(Some(KernelError::new(format!("interface {}", link.name), unsent(&link), remedy)));
        }
        if let Some(link) = stripped(links, ends).filter(|_| change.mode == XdpMode::Native) {
            failed = failed.or(Some(KernelError::new(format!("interface {}", link.name), untagged(link), remedy)));
        }
        if !change.fresh.is_empty() || !change.moves.is_empty() {
            self.lead_anew(links)?;
        }
        drop(gate);
        if let Some(fault) = failed {
            return Err(fault);
        }
        // No sooner than the others see packets.
        let direct = self.ready()?;
        change.stale.iter().try_for_each(|index| direct.detach(*index))?;
        tied.retain(|index| !change.stale.contains(index));
        direct.set_macs(&macs(links, &listening(&tied)))
    }

    /// Leads packets for all servers as they have to leave from where the program is now.
    fn lead_anew(&mut self, links: &[Link]) -> Result<(), KernelError> {
        let servers = self.servers()?;
        let addresses = servers.iter().map(|(_, slot)| slot.socket_address().ip()).collect();
        let ways = self.ways(links, &addresses)?;
        let direct = self.ready()?;
        for (number, mut slot) in servers.into_iter().filter(|(_, slot)| slot.interface != 0) {
            if let Some(Ok((way, passage))) = ways.get(&slot.socket_address().ip()) {
                lead(&mut slot, way, passage);
                direct.set_server(number, &slot)?;
            }
        }
        Ok(())
    }

    /// Where packets come in and leave, with what is about to be added.
    fn ends(
        &mut self,
        links: &[Link],
        coming: &BTreeSet<IpAddr>,
        servers: &[u32],
    ) -> Result<XdpInterfaces, KernelError> {
        let is_named = !self.settings.interfaces.is_empty();
        let mut ends = XdpInterfaces { coming: self.named(links), leaving: Vec::new(), is_named };
        let slots = self.servers()?;
        let of_slots = slots.iter().filter(|(_, slot)| slot.interface != 0).map(|(_, slot)| {
            // In drivers, a VLAN's tag is the slot's.
            (0..usize::from(slot.tags).min(slot.numbers.len())).fold(slot.interface, |below, at| {
                let is_it = |link: &&Link| {
                    let tag = Vlan { number: slot.numbers[at], protocol: slot.protocols[at] };
                    link.lower == Some(below) && link.vlan == Some(tag)
                };
                links.iter().find(is_it).map_or(below, |link| link.index)
            })
        });
        ends.leaving = of_slots.chain(servers.iter().copied()).collect();
        if !ends.is_named {
            let mut virtuals: Vec<IpAddr> =
                self.services()?.iter().map(|(_, slot)| slot.place.socket_address().ip()).collect();
            virtuals.extend(coming);
            ends.coming = self.having(links, &virtuals)?;
        }
        Ok(ends)
    }

    /// The interfaces that services which do not exist yet will need.
    fn ends_of(
        &mut self,
        links: &[Link],
        settings: &XdpSettings,
        desired: &[Service],
    ) -> Result<XdpInterfaces, KernelError> {
        let mut leaving = Vec::new();
        let servers = desired.iter().flat_map(|service| &service.destinations).map(|server| server.address.ip());
        for server in servers.collect::<BTreeSet<IpAddr>>() {
            let route = self.routing.route_to(server).ok().flatten();
            leaving.extend(route.map(|route| route.interface));
        }
        leaving.retain(|index| links.iter().any(|link| link.index == *index && !link.is_loopback));
        leaving.sort_unstable();
        leaving.dedup();
        let is_named = !settings.interfaces.is_empty();
        let coming = match is_named {
            true => numbers(links, &settings.interfaces),
            false => {
                let virtuals: Vec<IpAddr> =
                    desired.iter().filter_map(|service| service.key.virtual_address()).collect();
                self.having(links, &virtuals)?
            }
        };
        Ok(XdpInterfaces { coming, leaving, is_named })
    }

    /// The interfaces that have one of these addresses and on which packets for it come in.
    fn having(&mut self, links: &[Link], virtuals: &[IpAddr]) -> Result<Vec<u32>, KernelError> {
        let mut having = Vec::new();
        for address in self.routing.addresses()?.into_iter().filter(|address| virtuals.contains(&address.address)) {
            let link = links.iter().find(|link| link.index == address.interface);
            let is_silent = |link: &Link| link.is_loopback || link.kind.as_deref() == Some("dummy");
            having.extend(link.filter(|link| !is_silent(link)).map(|link| link.index));
        }
        having.sort_unstable();
        having.dedup();
        Ok(having)
    }

    /// What is against these interfaces, or without any, against those by which servers of these services are reached; and against
    /// having the program there in the place that is asked for. What goes wrong with one that it works on already is not asked here.
    pub(super) fn against(&mut self, settings: &XdpSettings, desired: &[Service]) -> Result<Vec<Refused>, KernelError> {
        let links = self.routing.links()?;
        let attached = self.attached()?;
        let ends = self.ends_of(&links, settings, desired)?;
        let change = self.change(settings, &links, &ends)?;
        let is_taken = |link: &Link| link.has_xdp && attached.iter().all(|(there, _)| *there != link.index);
        let taken = |link: &Link| Refused {
            what: format!("interface {}", link.name),
            why: format!(
                "it has another XDP program, which is not replaced: remove it (ip link set dev {} xdp off), or use another \
                 interface",
                link.name
            ),
        };
        let mut refused = Vec::new();
        let receiving = ends.receiving(&links, change.mode);
        let receiving: Vec<&Link> = links.iter().filter(|link| receiving.contains(&link.index)).collect();
        if ends.is_named {
            let fresh = |name: &&String| !(self.is_set && self.settings.interfaces.contains(name));
            let reason = |name: &String| match links.iter().find(|link| link.name == *name) {
                Some(link) => is_taken(link).then(|| taken(link)),
                None => Some(Refused {
                    what: format!("interface {name}"),
                    why: "there is no such interface (`ip link` lists them)".into(),
                }),
            };
            refused.extend(settings.interfaces.iter().filter(fresh).filter_map(reason));
        } else {
            let is_all = receiving.iter().all(|link| is_taken(link)) && !self.is_set;
            refused.extend(receiving.first().filter(|_| is_all).map(|link| taken(link)));
        }
        if settings.place == XdpHook::Driver && !desired.is_empty() {
            refused.extend(self.against_drivers(&links, &ends.tied(&links, XdpMode::Native))?);
            let deaf = deaf(&links, &ends, &attached);
            refused.extend(deaf.map(|link| Refused {
                what: format!("interface {}", link.name),
                why: format!("{}: without `driver` the program runs in the stack", unsent(&link)),
            }));
            refused.extend(stripped(&links, &ends).map(|link| Refused {
                what: format!("interface {}", link.name),
                why: format!("{}, or without `driver` the program runs in the stack", untagged(link)),
            }));
        }
        refused.extend(self.against_moves(&change)?);
        Ok(refused)
    }

    /// What is against moving it from the driver to the stack or back, if anything is to move.
    fn against_moves(&self, change: &Change) -> Result<Option<Refused>, KernelError> {
        let Some(direct) = self.direct.as_ref().filter(|_| !change.moves.is_empty()) else { return Ok(None) };
        let reach = change.moves.iter().try_for_each(|link| direct.may_move(link.index, &link.name));
        let tried = reach.and_then(|()| Gate::shut(&BTreeSet::new()).map(drop));
        Ok(tried.err().map(|fault| Refused {
            what: "mode direct".into(),
            why: format!(
                "the program cannot move between driver and stack: {fault}; keep the previous setting, or stop Baton with \
                 `on-exit flush` and start it again, which ends connections"
            ),
        }))
    }

    fn change(&self, settings: &XdpSettings, links: &[Link], ends: &XdpInterfaces) -> Result<Change, KernelError> {
        let before = self.is_set.then_some(self.settings.place);
        let (mode, _) = self.mode(settings.place, before, links, ends)?;
        Ok(Change::new(mode, &self.attached()?, links, ends))
    }

    /// What would become of the interfaces, a sentence each.
    pub(super) fn about_interfaces(
        &mut self,
        settings: &XdpSettings,
        desired: &[Service],
    ) -> Result<Vec<String>, KernelError> {
        if desired.is_empty() {
            return Ok(Vec::new());
        }
        let links = self.routing.links()?;
        let ends = self.ends_of(&links, settings, desired)?;
        let before = self.is_set.then_some(self.settings.place);
        let (mode, hindrance) = self.mode(settings.place, before, &links, &ends)?;
        let change = Change::new(mode, &self.attached()?, &links, &ends);
        let receiving = ends.receiving(&links, mode);
        let mut sentences = Vec::new();
        for link in &change.fresh {
            let why = reason(settings.place, mode, Some(link), hindrance.as_deref());
            let besides = if receiving.contains(&link.index) { "" } else { "; to send by it" };
            sentences.push(format!("attach the program to interface {} ({why}{besides})", link.name));
        }
        for link in links.iter().filter(|link| change.stale.contains(&link.index)) {
            sentences.push(format!("detach the program from interface {}", link.name));
        }
        let (from, to) = match mode {
            XdpMode::Native => ("the stack", "its driver"),
            XdpMode::Generic => ("its driver", "the stack"),
        };
        for link in &change.moves {
            sentences.push(format!(
                "move the program on interface {} from {from} to {to}: packets of that moment are retransmitted by clients",
                link.name
            ));
        }
        Ok(sentences)
    }

    /// Where the program is and how, and what it counted besides what it just forwarded.
    pub(super) fn told(&self) -> String {
        let attached = self.attached().unwrap_or_default();
        if attached.is_empty() {
            return "on no interface yet".into();
        }
        let how = |(index, mode): &(u32, XdpMode)| {
            let link = Routing::open().and_then(|mut routing| routing.link_by_index(*index)).ok().flatten();
            let why = reason(self.settings.place, *mode, link.as_ref(), self.hindrance.as_deref());
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
        if let Some(remembers) = self.remembers() {
            manner.push_str(&format!("; {remembers}"));
        }
        manner
    }
}

/// The interfaces with these names, as far as they are there.
fn numbers(links: &[Link], names: &[String]) -> Vec<u32> {
    links.iter().filter(|link| names.contains(&link.name)).map(|link| link.index).collect()
}
