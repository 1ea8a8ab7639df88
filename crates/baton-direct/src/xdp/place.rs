//! In the driver of an interface or in the stack: which it is and why, what speaks against it, and how the program moves from one
//! to the other.

use std::collections::BTreeSet;

use baton_kernel::bpf::direct::{Mode, REDIRECTED, driver};
use baton_kernel::route::Link;

use super::engine::Xdp;
use super::gate::Gate;
use super::{Settings, Where};
use crate::{Fault, Refused};

/// The ways to try on an interface, in this order.
pub(super) fn modes(place: Where, link: &Link) -> &'static [Mode] {
    match place {
        Where::Driver => &[Mode::Native],
        Where::Stack => &[Mode::Generic],
        Where::Best if is_veth(link) => &[Mode::Generic],
        Where::Best => &[Mode::Native, Mode::Generic],
    }
}

/// How it is to be on an interface where it is already. `before` is what was asked for until now, if that is known.
fn wanted(place: Where, before: Option<Where>, link: &Link, now: Mode) -> Mode {
    match place {
        Where::Driver => Mode::Native,
        Where::Stack => Mode::Generic,
        Where::Best if is_veth(link) => Mode::Generic,
        Where::Best if before == Some(Where::Stack) => Mode::Native,
        // It may be in the stack because the driver did not take it, which is not tried again and again.
        Where::Best => now,
    }
}

/// Where it is and why, in a few words.
pub(super) fn reason(place: Where, mode: Mode, link: Option<&Link>) -> &'static str {
    match (mode, place) {
        (Mode::Native, Where::Driver) => "in its driver, as asked for",
        (Mode::Native, Where::Best | Where::Stack) => "in its driver",
        (Mode::Generic, Where::Stack) => "generic: the stack is asked for",
        (Mode::Generic, Where::Driver) => "generic: it could not be moved to the driver",
        (Mode::Generic, Where::Best) if link.is_some_and(is_veth) => {
            "generic: what a veth's driver sends back may vanish"
        }
        (Mode::Generic, Where::Best) => "generic: its driver has no XDP, which costs speed",
    }
}

/// What helps where only the driver is asked for.
pub(super) fn advised(mut fault: Fault, place: Where) -> Fault {
    if place == Where::Driver && fault.remedy.is_empty() {
        fault.remedy = "a smaller MTU may help; or leave `driver` out, and the program is in the stack".into();
    }
    fault
}

/// Why it cannot be in the driver of an interface, as far as that is known before it is tried.
fn against_driver(link: &Link) -> Option<String> {
    let driver = driver(link.index)?;
    if !driver.runs {
        return Some("its driver has no XDP: leave `driver` out, and the program is in the stack".into());
    }
    (is_veth(link) && !driver.sends).then(|| {
        format!(
            "what its driver sends back would be dropped, since the other end of the veth has neither GRO nor an XDP program: {}, or \
             leave `driver` out, and the program is in the stack",
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

/// An interface on which the program is to be in another place than it is.
pub(super) struct Move {
    link: Link,
    to: Mode,
}

impl Xdp {
    /// What has to move for these settings.
    pub(super) fn moves(&self, settings: &Settings, links: &[Link]) -> Result<Vec<Move>, Fault> {
        let Some(direct) = &self.direct else { return Ok(Vec::new()) };
        let before = self.is_set.then_some(self.settings.place);
        let is_to_move = |(index, now): (u32, Mode)| {
            let link = links.iter().find(|link| link.index == index)?;
            let to = wanted(settings.place, before, link, now);
            (to != now).then(|| Move { link: link.clone(), to })
        };
        Ok(direct.attached()?.into_iter().filter_map(is_to_move).collect())
    }

    /// What is against having it in the drivers of these interfaces, if that is asked for, or against moving it.
    pub(super) fn against_place(
        &self,
        settings: &Settings,
        links: &[Link],
        wanted: &[u32],
    ) -> Result<Vec<Refused>, Fault> {
        let mut refused = Vec::new();
        let direct = self.direct.as_ref();
        let attached = direct.map_or(Ok(Vec::new()), |direct| direct.attached())?;
        if settings.place == Where::Driver {
            // Where it works already, nobody asks.
            let is_there = |link: &Link| attached.contains(&(link.index, Mode::Native));
            let fresh = links.iter().filter(|link| wanted.contains(&link.index) && !is_there(link));
            let why =
                |link: &Link| Some(Refused { what: format!("interface {}", link.name), why: against_driver(link)? });
            refused.extend(fresh.filter_map(why));
        }
        let moves = self.moves(settings, links)?;
        let tried = match direct.filter(|_| !moves.is_empty()) {
            Some(direct) => {
                let reach = moves.iter().try_for_each(|one| direct.may_move(one.link.index, &one.link.name));
                reach.and_then(|()| Gate::shut(&BTreeSet::new()).map(drop))
            }
            None => Ok(()),
        };
        refused.extend(tried.err().map(|fault| Refused {
            what: "mode direct".into(),
            why: format!(
                "moving the program between driver and stack takes what is not there: {fault}; keep the word that was there, or end Baton \
                 with `on-exit flush` and start it anew, which ends connections"
            ),
        }));
        Ok(refused)
    }

    /// Moves the program to where these settings want it. No packet gets beside it: what comes for a service meanwhile is dropped, and
    /// clients send it again.
    pub(super) fn settle(&mut self, settings: &Settings) -> Result<(), Fault> {
        let links = self.routing.links()?;
        let moves = self.moves(settings, &links)?;
        if moves.is_empty() {
            return Ok(());
        }
        let addresses = self.services()?.iter().map(|(_, slot)| slot.place.socket_address().ip()).collect();
        let mut servers = self.servers()?;
        let direct = self.ready()?;
        let gate = Gate::shut(&addresses)?;
        let mut failed = None;
        for Move { link, to } in moves {
            if let Err(fault) = direct.move_to(link.index, &link.name, to) {
                failed = Some(advised(fault, settings.place));
            }
        }
        // The stack may join packets to larger ones than an interface sends, and cuts them again; the next look at servers sets limits
        // where there are any.
        for (number, slot) in &mut servers {
            slot.leaves = if self.redirects(&links, slot.interface)? { REDIRECTED } else { 0 };
            slot.mtu = 0;
            self.ready()?.set_server(*number, slot)?;
        }
        drop(gate);
        // In the stack it is well too, if nobody asked for the driver alone.
        failed.filter(|_| settings.place != Where::Best).map_or(Ok(()), Err)
    }

    /// Whether packets leave by an interface only when they are redirected to it, whichever they came in by: in the driver of a veth.
    pub(super) fn redirects(&self, links: &[Link], interface: u32) -> Result<bool, Fault> {
        let is_veth = links.iter().any(|link| link.index == interface && is_veth(link));
        let attached = self.direct.as_ref().map_or(Ok(Vec::new()), |direct| direct.attached())?;
        Ok(is_veth && attached.contains(&(interface, Mode::Native)))
    }

    /// Interfaces from which nothing leaves any more: the other end of a veth was changed.
    pub(super) fn unheard(&self, links: &[Link]) -> Vec<String> {
        let attached = self.direct.as_ref().and_then(|direct| direct.attached().ok()).unwrap_or_default();
        let is_native = |link: &&Link| is_veth(link) && attached.contains(&(link.index, Mode::Native));
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

    /// What becomes of the interfaces by these settings, a sentence each; `wanted` are those on which the program is to be, `is_all`
    /// says that it is to be on no others.
    pub(super) fn foreseen(
        &self,
        settings: &Settings,
        links: &[Link],
        wanted: &[u32],
        is_all: bool,
    ) -> Result<Vec<String>, Fault> {
        let attached = self.direct.as_ref().map_or(Ok(Vec::new()), |direct| direct.attached())?;
        let is_tied = |link: &Link| attached.iter().any(|(there, _)| *there == link.index);
        let mut sentences = Vec::new();
        for link in links {
            let name = &link.name;
            match (wanted.contains(&link.index), is_tied(link)) {
                (true, false) => {
                    let mode = likely(modes(settings.place, link), link);
                    sentences.push(format!(
                        "tie the program to interface {name} ({})",
                        reason(settings.place, mode, Some(link))
                    ));
                }
                (false, true) if is_all => sentences.push(format!("take the program from interface {name}")),
                (false, true) | (true, true) | (false, false) => {}
            }
        }
        for Move { link, to } in self.moves(settings, links)? {
            let (from, to) = match to {
                Mode::Native => ("the stack", "its driver"),
                Mode::Generic => ("its driver", "the stack"),
            };
            sentences.push(format!(
                "move the program on interface {} from {from} to {to}: what clients send at that moment they send again",
                link.name
            ));
        }
        Ok(sentences)
    }
}

/// The first of these modes, unless the driver says that it cannot.
fn likely(modes: &[Mode], link: &Link) -> Mode {
    match modes {
        [Mode::Native, Mode::Generic] if driver(link.index).is_some_and(|driver| !driver.runs) => Mode::Generic,
        [mode, ..] => *mode,
        [] => Mode::Generic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::way::testing::link;

    #[test]
    fn a_program_that_is_there_moves_only_where_it_must() {
        let (card, veth) = (link(1, None), Link { kind: Some("veth".into()), ..link(2, None) });
        for (place, before, link, now, expected) in [
            (Where::Driver, None, &card, Mode::Generic, Mode::Native),
            (Where::Driver, None, &veth, Mode::Generic, Mode::Native),
            (Where::Stack, Some(Where::Best), &card, Mode::Native, Mode::Generic),
            (Where::Best, Some(Where::Driver), &veth, Mode::Native, Mode::Generic),
            (Where::Best, Some(Where::Driver), &card, Mode::Native, Mode::Native),
            (Where::Best, Some(Where::Stack), &card, Mode::Generic, Mode::Native),
            (Where::Best, Some(Where::Best), &card, Mode::Generic, Mode::Generic),
            (Where::Best, None, &card, Mode::Generic, Mode::Generic),
        ] {
            assert_eq!(wanted(place, before, link, now), expected, "{place:?} after {before:?}, {now}");
        }
    }
}
