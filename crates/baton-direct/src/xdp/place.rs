//! In the drivers of interfaces or in the stack: which it is and why, and what speaks against it.
//!
//! It is one of both for all interfaces. What came by a driver leaves by drivers alone, and a driver that cannot send such packets drops
//! them without a word; and the two see VLAN tags in different places.

use baton_kernel::bpf::direct::{Reason, XdpMode, driver, joins_packets, strips_tags};
use baton_kernel::route::Link;

use super::engine::Xdp;
use super::macs::is_bond;
use super::{XdpHook, way};
use crate::{KernelError, Refused};

/// The interfaces by which packets come in and leave, as addresses and routes name them: a VLAN is one of its own.
#[derive(Debug, Default)]
pub(super) struct XdpInterfaces {
    /// Where clients' packets come in.
    pub(super) coming: Vec<u32>,
    /// By which servers are reached.
    pub(super) leaving: Vec<u32>,
    /// Whether an operator named those where packets come in, which are all then.
    pub(super) is_named: bool,
}

impl XdpInterfaces {
    /// The interfaces on which packets are taken.
    pub(super) fn receiving(&self, links: &[Link], mode: XdpMode) -> Vec<u32> {
        let coming = |index: &u32| match mode {
            XdpMode::Native if !self.is_named => lowered(links, &[], *index, true),
            XdpMode::Native | XdpMode::Generic => *index,
        };
        let mut receiving: Vec<u32> = self.coming.iter().map(coming).collect();
        if !self.is_named {
            receiving.extend(self.sending(links, mode));
        }
        sorted(receiving)
    }

    /// The interfaces to which the program gives packets.
    pub(super) fn sending(&self, links: &[Link], mode: XdpMode) -> Vec<u32> {
        let named: &[u32] = if self.is_named { &self.coming } else { &[] };
        let leaving = |index: &u32| match mode {
            XdpMode::Native => lowered(links, named, *index, false),
            XdpMode::Generic => *index,
        };
        sorted(self.leaving.iter().map(leaving).collect())
    }

    /// The interfaces on which the program is: many drivers send nothing of other drivers' without one.
    pub(super) fn tied(&self, links: &[Link], mode: XdpMode) -> Vec<u32> {
        let mut tied = self.receiving(links, mode);
        if mode == XdpMode::Native {
            tied.extend(self.sending(links, mode));
        }
        sorted(tied)
    }

    /// Whether packets get to this interface by being redirected, in drivers.
    fn is_redirected_to(&self, links: &[Link], to: &Link) -> bool {
        let others = self.receiving(links, XdpMode::Native).into_iter().any(|index| index != to.index);
        others || is_bond(to) || is_veth(to)
    }
}

fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The interface on which a driver sees the frames of this one.
fn lowered(links: &[Link], attached: &[u32], index: u32, is_coming: bool) -> u32 {
    let Some(link) = links.iter().find(|link| link.index == index) else { return index };
    let macvlan = link.kind.as_deref() == Some("macvlan") && is_coming;
    match link.lower.filter(|lower| macvlan && links.iter().any(|link| link.index == *lower)) {
        Some(lower) => lowered(links, attached, lower, false),
        None => way::below(links, attached, link).map_or(index, |(below, _)| below),
    }
}

/// What is to happen to interfaces.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) mode: XdpMode,
    /// Where the program comes to.
    pub(super) fresh: Vec<Link>,
    /// Where it is in the other mode.
    pub(super) moves: Vec<Link>,
    /// From which it is taken.
    pub(super) stale: Vec<u32>,
    /// Those that are no more.
    pub(super) gone: Vec<u32>,
}

impl Change {
    /// From where the program is now.
    pub(super) fn new(mode: XdpMode, attached: &[(u32, XdpMode)], links: &[Link], ends: &XdpInterfaces) -> Change {
        let wanted = ends.tied(links, mode);
        let find = |index: u32| links.iter().find(|link| link.index == index);
        let is_fresh = |index: &u32| attached.iter().all(|(there, _)| there != index);
        let fresh = wanted.iter().copied().filter(is_fresh).filter_map(find).cloned().collect();
        let mut change = Change { mode, fresh, moves: Vec::new(), stale: Vec::new(), gone: Vec::new() };
        let base = |index: u32| lowered(links, &[], index, false);
        for (index, now) in attached {
            let is_other = *now != mode;
            // The program of a VLAN is not needed beside that of what is below it, nor the other way round.
            let is_doubled = is_other && wanted.iter().any(|wanted| base(*wanted) == base(*index));
            match find(*index) {
                None => change.gone.push(*index),
                Some(link) if wanted.contains(index) => change.moves.extend(is_other.then(|| link.clone())),
                // Where names are given, they are all. What nobody named stays: addresses come and go.
                Some(_) if ends.is_named || is_doubled => change.stale.push(*index),
                Some(link) => change.moves.extend(is_other.then(|| link.clone())),
            }
        }
        change
    }
}

/// Where it is and why, in a few words. `hindrance` is what kept it out of the drivers of all interfaces.
pub(super) fn reason(place: XdpHook, mode: XdpMode, link: Option<&Link>, hindrance: Option<&str>) -> String {
    let words = match (mode, place) {
        (XdpMode::Native, XdpHook::Driver) => "in its driver, as configured",
        (XdpMode::Native, XdpHook::Best | XdpHook::Stack) => "in its driver",
        (XdpMode::Generic, XdpHook::Stack) => "generic, as configured",
        (XdpMode::Generic, XdpHook::Driver) => "generic: it could not be moved to the driver",
        (XdpMode::Generic, XdpHook::Best) if link.is_some_and(is_veth) => {
            "generic: a veth driver may drop what the program sends back"
        }
        (XdpMode::Generic, XdpHook::Best) => match (link.and_then(|link| driver(link.index)), hindrance) {
            (Some(driver), Some(hindrance)) if driver.runs => {
                return format!("generic, which is slower: {hindrance}");
            }
            (Some(driver), None) if driver.runs => "generic, which is slower: a driver refused it",
            _ => "generic, which is slower: its driver does not support XDP",
        },
    };
    words.into()
}

/// What helps where only the driver is asked for.
pub(super) fn advised(mut fault: KernelError, place: XdpHook) -> KernelError {
    if place == XdpHook::Driver && fault.remedy.is_empty() {
        fault.remedy = "a smaller MTU may help; or without `driver` the program runs in the stack".into();
    }
    fault
}

/// Why it cannot be in the driver of an interface, as far as that is known before it is tried.
fn against_driver(link: &Link) -> Option<String> {
    let driver = driver(link.index)?;
    if !driver.runs {
        return Some("its driver does not support XDP: without `driver` the program runs in the stack".into());
    }
    (is_veth(link) && !driver.sends).then(|| {
        format!(
            "what its driver sends back would be dropped, since the other end of the veth has neither GRO nor an XDP program: {}, or \
             without `driver` the program runs in the stack",
            OTHER_END
        )
    })
}

/// What to do at the other end of a veth.
const OTHER_END: &str = "turn GRO on there (ethtool -K NAME gro on)";

/// Whether it is one end of a veth, such as a container's eth0. In its driver, what goes back is dropped unless the other end has an XDP
/// program or GRO, and nobody hears of it.
pub(super) fn is_veth(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth")
}

impl Xdp {
    /// Where the program is to be by this word, which was `before` until now if that is known; and, in the stack, what keeps it there.
    pub(super) fn mode(
        &self,
        place: XdpHook,
        before: Option<XdpHook>,
        links: &[Link],
        ends: &XdpInterfaces,
    ) -> Result<(XdpMode, Option<String>), KernelError> {
        let attached = self.attached()?;
        Ok(match place {
            XdpHook::Driver => (XdpMode::Native, None),
            XdpHook::Stack => (XdpMode::Generic, None),
            XdpHook::Best => match hindrance(links, ends, &attached) {
                Some(hindrance) => (XdpMode::Generic, Some(hindrance)),
                // It may be in the stack because a driver did not take it, which is not tried again and again.
                None if before != Some(XdpHook::Stack)
                    && attached.iter().any(|(_, mode)| *mode == XdpMode::Generic) =>
                {
                    (XdpMode::Generic, None)
                }
                None => (XdpMode::Native, None),
            },
        })
    }

    /// What is against having it in the drivers of these interfaces.
    pub(super) fn against_drivers(&self, links: &[Link], wanted: &[u32]) -> Result<Vec<Refused>, KernelError> {
        let attached = self.attached()?;
        // Where it works already, nobody asks.
        let is_there = |link: &Link| attached.contains(&(link.index, XdpMode::Native));
        let fresh = links.iter().filter(|link| wanted.contains(&link.index) && !is_there(link));
        let why = |link: &Link| Some(Refused { what: format!("interface {}", link.name), why: against_driver(link)? });
        Ok(fresh.filter_map(why).collect())
    }

    /// The interfaces on which the program is.
    pub(super) fn attached(&self) -> Result<Vec<(u32, XdpMode)>, KernelError> {
        self.direct.as_ref().map_or(Ok(Vec::new()), |direct| direct.attached())
    }

    /// Interfaces from which nothing leaves any more: the other end of a veth was changed.
    pub(super) fn unheard(&self, links: &[Link]) -> Vec<String> {
        let attached = self.attached().unwrap_or_default();
        let is_native = |link: &&Link| is_veth(link) && attached.contains(&(link.index, XdpMode::Native));
        let unheard =
            links.iter().filter(is_native).filter(|link| driver(link.index).is_some_and(|driver| !driver.sends));
        unheard
            .map(|link| {
                format!(
                    "interface {}: all that the program sends is dropped, since the other end of the veth has neither GRO nor an XDP program \
                     any more: {OTHER_END}",
                    link.name
                )
            })
            .collect()
    }

    /// Interfaces by which packets come that are too large to leave by another one, in a kernel that does not cut them there.
    pub(super) fn uncut(&self, links: &[Link]) -> Result<Vec<String>, KernelError> {
        let Some(direct) = self.direct.as_ref().filter(|direct| !direct.sends_joined().unwrap_or(true)) else {
            return Ok(Vec::new());
        };
        let leaving: Vec<u32> = self.servers()?.iter().map(|(_, slot)| slot.interface).collect();
        let is_dropped = direct.reason(Reason::TooBig)? > 0;
        let attached = direct.attached()?;
        let coming = links.iter().filter(|link| attached.iter().any(|(index, _)| *index == link.index));
        let sentence = |link: &Link| {
            let out = links.iter().find(|out| out.index != link.index && leaving.contains(&out.index))?;
            let (name, out) = (&link.name, &out.name);
            let remedy = match is_veth(link) {
                // What it joins is not seen from here, but what it does.
                true if is_dropped => {
                    "turn that off at the other end of the veth (ethtool -K NAME tso off gso off)".to_owned()
                }
                false if joins_packets(name)? => format!("turn that off (ethtool -K {name} gro off)"),
                true | false => return None,
            };
            Some(format!(
                "interface {name}: packets of uploads that were merged on receipt (GRO) are too large for {out}, and Linux before 6.6 drops them \
                 there: {remedy}"
            ))
        };
        Ok(coming.filter_map(sentence).collect())
    }
}

/// What keeps the program out of the drivers of all these interfaces, as far as it is known.
fn hindrance(links: &[Link], ends: &XdpInterfaces, attached: &[(u32, XdpMode)]) -> Option<String> {
    let tied = ends.tied(links, XdpMode::Native);
    let of_one = |link: &Link| {
        let is_bonded_veth = is_bond(link) && links.iter().any(|one| one.master == Some(link.index) && is_veth(one));
        if is_veth(link) || is_bonded_veth {
            return Some(format!("the driver of {}, a veth, may drop what the program sends", link.name));
        }
        let has_none = driver(link.index).is_some_and(|driver| !driver.runs);
        has_none.then(|| format!("the driver of {} does not support XDP", link.name))
    };
    let found = links.iter().filter(|link| tied.contains(&link.index)).find_map(of_one);
    let untagged = || stripped(links, ends).map(|link| format!("{}: {}", link.name, untagged(link)));
    found.or_else(|| deaf(links, ends, attached).map(|link| unsent(&link))).or_else(untagged)
}

/// An interface with the program in its driver that does not send what other interfaces' drivers give to it.
pub(super) fn deaf(links: &[Link], ends: &XdpInterfaces, attached: &[(u32, XdpMode)]) -> Option<Link> {
    let sending = ends.sending(links, XdpMode::Native);
    let is_deaf = |link: &&Link| {
        sending.contains(&link.index)
            && (link.has_xdp || attached.contains(&(link.index, XdpMode::Native)))
            && attached.iter().all(|(there, mode)| *there != link.index || *mode == XdpMode::Native)
            && ends.is_redirected_to(links, link)
            && driver(link.index).is_some_and(|driver| !driver.sends)
    };
    links.iter().find(is_deaf).cloned()
}

/// An interface below a VLAN by which packets come in or leave, whose driver's program would not see the tags.
pub(super) fn stripped<'a>(links: &'a [Link], ends: &XdpInterfaces) -> Option<&'a Link> {
    let named: &[u32] = if ends.is_named { &ends.coming } else { &[] };
    let tagged = ends.coming.iter().chain(&ends.leaving).filter_map(|index| {
        let below = lowered(links, named, *index, false);
        links.iter().find(|link| link.index == below && below != *index)
    });
    let strips = |link: &Link| {
        // Frames of a bond are seen by the interfaces that are bonded.
        let mut cards = links.iter().filter(|one| one.index == link.index || one.master == Some(link.index));
        cards.find(|card| strips_tags(&card.name) == Some(true) && !is_bond(card))
    };
    tagged.filter_map(strips).next()
}

/// What is wrong with it, and what helps.
pub(super) fn untagged(link: &Link) -> String {
    format!(
        "VLAN tags are removed before the program in its driver sees them: turn that off (ethtool -K {} rxvlan off)",
        link.name
    )
}

/// What is wrong with an interface that is deaf.
pub(super) fn unsent(link: &Link) -> String {
    format!("the driver of {} does not send packets that the driver of another interface passes to it", link.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::way::testing::link;

    fn ends(coming: &[u32], leaving: &[u32], is_named: bool) -> XdpInterfaces {
        XdpInterfaces { coming: coming.to_vec(), leaving: leaving.to_vec(), is_named }
    }

    #[test]
    fn the_program_is_where_packets_come_in_and_in_drivers_where_they_leave() {
        let macvlan = Link { kind: Some("macvlan".into()), lower: Some(1), ..link(4, None) };
        let links = [link(1, None), link(2, Some((10, 1))), link(3, None), macvlan];
        let named = ends(&[1], &[3], true);
        assert_eq!(named.tied(&links, XdpMode::Native), [1, 3]);
        assert_eq!(named.receiving(&links, XdpMode::Native), [1]);
        assert_eq!(named.tied(&links, XdpMode::Generic), [1]);
        let unnamed = ends(&[2], &[3], false);
        assert_eq!(unnamed.tied(&links, XdpMode::Native), [1, 3], "a driver sees what is below a VLAN");
        assert_eq!(unnamed.receiving(&links, XdpMode::Native), [1, 3]);
        assert_eq!(unnamed.tied(&links, XdpMode::Generic), [2, 3], "the stack sees the VLAN itself");
        assert_eq!(ends(&[2], &[2], true).tied(&links, XdpMode::Native), [2], "as it is named");
        assert_eq!(ends(&[4], &[3], false).tied(&links, XdpMode::Native), [1, 3], "a virtual router's");
    }

    #[test]
    fn it_moves_only_where_it_must() {
        let links = [link(1, None), link(2, Some((10, 1))), link(3, None)];
        let change = |mode, attached: &[(u32, XdpMode)], ends: &XdpInterfaces| {
            let change = Change::new(mode, attached, &links, ends);
            let numbers = |links: &[Link]| links.iter().map(|link| link.index).collect::<Vec<_>>();
            (numbers(&change.fresh), numbers(&change.moves), change.stale, change.gone)
        };
        let (native, generic) = (XdpMode::Native, XdpMode::Generic);
        let both = ends(&[1], &[3], false);
        assert_eq!(change(native, &[], &both), (vec![1, 3], vec![], vec![], vec![]));
        assert_eq!(change(native, &[(1, native), (3, native)], &both), (vec![], vec![], vec![], vec![]));
        assert_eq!(change(generic, &[(1, native), (9, native)], &both), (vec![3], vec![1], vec![], vec![9]));
        let one = ends(&[1], &[1], false);
        assert!(change(native, &[(1, native), (3, native)], &one).2.is_empty(), "what nobody named stays");
        assert_eq!(change(generic, &[(1, native), (3, native)], &one).1, [1, 3], "and is alike");
        let named = ends(&[1], &[1], true);
        assert_eq!(change(native, &[(1, native), (3, native)], &named).2, [3], "names are all");
        let vlan = ends(&[2], &[2], false);
        assert_eq!(change(generic, &[(1, native)], &vlan), (vec![2], vec![], vec![1], vec![]));
        assert_eq!(change(native, &[(2, generic)], &vlan), (vec![1], vec![], vec![2], vec![]));
    }
}
