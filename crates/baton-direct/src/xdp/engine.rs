//! The engine: services and destinations in the program's maps, and the program on interfaces.
//!
//! It keeps nothing that is not in the maps: whoever opens it next finds everything there.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;

use baton_kernel::bpf::direct::{self, Direct, FITTING, REDIRECTED, XdpMode};
use baton_kernel::route::{Link, Routing};

use super::place::is_veth;
use super::slots::Slots;
use super::steps::Batch;
use super::way::NextHop;
use super::{XdpSettings, judge, words};
use crate::{Counters, DestinationFigures, Engine, Figures, KernelChange, KernelError, Observed, Refused, Service};

/// The engine, in one network namespace.
pub(super) struct Xdp {
    pub(super) settings: XdpSettings,
    folder: PathBuf,
    pub(super) routing: Routing,
    /// Nothing before the first service.
    pub(super) direct: Option<Direct>,
    /// Whether it was said once by which settings it works.
    pub(super) is_set: bool,
    /// Whether the links have this process's program.
    is_renewed: bool,
    /// Whether root was given up: what is open is what there is.
    is_given: bool,
    /// What kept the program out of the drivers of all interfaces.
    pub(super) hindrance: Option<String>,
    /// What the steps share that are taken now.
    pub(super) batch: Option<Batch>,
    /// Services whose tables are older than their servers.
    pub(super) unfilled: BTreeSet<u32>,
}

impl Xdp {
    pub(super) fn open(settings: &XdpSettings) -> Result<Xdp, KernelError> {
        let folder = direct::folder()?;
        direct::check(&folder)?;
        let direct = Direct::find(&folder)?;
        Ok(Xdp {
            settings: settings.clone(),
            folder,
            routing: Routing::open()?,
            direct,
            is_set: false,
            is_renewed: false,
            is_given: false,
            hindrance: None,
            batch: None,
            unfilled: BTreeSet::new(),
        })
    }

    /// The maps, with this process's program in the links.
    pub(super) fn ready(&mut self) -> Result<&mut Direct, KernelError> {
        let direct = match self.direct.take() {
            Some(direct) => direct,
            None => Direct::make(&self.folder, self.settings.remembered())?,
        };
        let is_renewed = std::mem::replace(&mut self.is_renewed, true);
        self.direct.insert(direct).take_up()?;
        if !is_renewed {
            self.take_over().inspect_err(|_| self.is_renewed = false)?;
        }
        self.direct.as_mut().ok_or_else(|| KernelError::new("engine xdp", "its maps are missing", "try again"))
    }

    /// Puts this process's program into the links, and mends what a process left that was killed between two changes to the maps.
    fn take_over(&mut self) -> Result<(), KernelError> {
        let Some(direct) = &mut self.direct else { return Ok(()) };
        // Interfaces that are gone are looked for again by name, with the next refresh.
        direct.renew()?;
        let mut slots = Slots::read(direct)?;
        let places: HashSet<direct::VirtualAddressKey> =
            slots.services().flat_map(|(_, slot)| [slot.place, slot.place.address_alone()]).collect();
        for (place, _) in direct.places()? {
            if !places.contains(&place) {
                direct.remove_place(&place)?;
            }
        }
        let is_lost = |slot: &direct::ServerSlot| slots.service(slot.service).is_none();
        let lost: Vec<u32> = slots.servers().filter(|(_, slot)| is_lost(slot)).map(|(number, _)| number).collect();
        lost.into_iter().try_for_each(|number| slots.free(direct, number))?;
        self.unfilled = slots.services().map(|(number, _)| number).collect();
        self.fill_all(&mut slots)
    }

    /// Another process may have begun or ended it.
    fn look_again(&mut self) -> Result<(), KernelError> {
        if !self.is_given {
            let is_there = self.direct.is_some() && self.folder.exists();
            if !is_there {
                self.direct = Direct::find(&self.folder)?;
                self.is_renewed = false;
            }
        }
        Ok(())
    }

    /// The slots in use.
    pub(super) fn services(&self) -> Result<Vec<(u32, direct::ServiceSlot)>, KernelError> {
        let Some(direct) = &self.direct else { return Ok(Vec::new()) };
        Ok((0..).zip(direct.services()?).filter(|(_, slot)| slot.is_used != 0).collect())
    }

    /// The slots in use.
    pub(super) fn servers(&self) -> Result<Vec<(u32, direct::ServerSlot)>, KernelError> {
        let Some(direct) = &self.direct else { return Ok(Vec::new()) };
        Ok((0..).zip(direct.servers()?).filter(|(_, slot)| slot.generation != 0).collect())
    }
}

/// What packets meet on their way out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    limit: Limit,
    /// They leave by redirection alone, whichever interface they came in by: in the driver of a veth.
    is_redirected: bool,
}

/// Which packets must not be larger than the interface allows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// In drivers none is, as it came.
    All,
    /// In the stack several may have become a large one, which is cut again when it leaves ...
    None,
    /// ... but by another interface than it came in by only from Linux 6.6 on.
    Redirected,
}

impl Limit {
    /// Where the program is on these interfaces.
    pub(super) fn new(direct: Option<&Direct>, attached: &[(u32, XdpMode)]) -> Result<Limit, KernelError> {
        Ok(match mode_of(attached) {
            XdpMode::Native => Limit::All,
            XdpMode::Generic if direct.map_or(Ok(true), Direct::sends_joined)? => Limit::None,
            XdpMode::Generic => Limit::Redirected,
        })
    }
}

impl Passage {
    /// On the interface of this way, when the program is on these.
    pub(super) fn new(links: &[Link], attached: &[(u32, XdpMode)], limit: Limit, way: &NextHop) -> Passage {
        let is_veth = links.iter().any(|link| link.index == way.interface && is_veth(link));
        Passage { limit, is_redirected: is_veth && attached.contains(&(way.interface, XdpMode::Native)) }
    }
}

/// Where packets are seen.
pub(super) fn mode_of(attached: &[(u32, XdpMode)]) -> XdpMode {
    match attached.iter().all(|(_, mode)| *mode == XdpMode::Native) {
        true => XdpMode::Native,
        false => XdpMode::Generic,
    }
}

pub(super) fn lead(slot: &mut direct::ServerSlot, way: &NextHop, passage: &Passage) {
    let (mtu, limited) = match passage.limit {
        Limit::All => (way.mtu, 0),
        Limit::None => (0, 0),
        Limit::Redirected => (way.mtu, FITTING),
    };
    slot.interface = way.interface;
    slot.to = way.to;
    slot.from = way.from;
    slot.tags = way.tags as u16;
    slot.leaves = limited | if passage.is_redirected { REDIRECTED } else { 0 };
    slot.protocols = way.protocols;
    slot.numbers = way.numbers;
    slot.mtu = mtu;
}

fn counters(counted: direct::SlotCounters) -> Counters {
    Counters {
        connections: counted.connections,
        packets_in: counted.packets,
        bytes_in: counted.bytes,
        ..Counters::default()
    }
}

impl Engine for Xdp {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn observe(&mut self) -> Result<Vec<Observed>, KernelError> {
        self.look_again()?;
        let servers = self.servers()?;
        let mut found = Vec::new();
        for (number, slot) in self.services()? {
            let mut service = words::service(&slot);
            let own = servers.iter().filter(|(_, server)| server.service == number);
            service.destinations = own.map(|(_, server)| words::destination(server)).collect();
            found.push(Observed::from(service));
        }
        Ok(found)
    }

    fn judge(&self, service: &Service) -> Vec<String> {
        judge::judge(service)
    }

    fn advise(&self, _settings: &crate::DirectorSettings, desired: &[Service]) -> Vec<String> {
        desired.iter().flat_map(judge::advise).collect()
    }

    fn begin(&mut self, steps: &[&KernelChange]) -> Result<(), KernelError> {
        self.prepare(steps)
    }

    fn take(&mut self, step: &KernelChange) -> Result<(), KernelError> {
        self.step(step)
    }

    fn finish(&mut self) -> Result<(), KernelError> {
        self.conclude()
    }

    fn removal(&self) -> &'static str {
        "its open connections go to other servers: TCP ends with a reset, UDP continues"
    }

    fn figures(&mut self) -> Result<Vec<Figures>, KernelError> {
        let servers = self.servers()?;
        let services = self.services()?;
        let Some(direct) = &self.direct else { return Ok(Vec::new()) };
        let mut figures = Vec::new();
        for (number, slot) in services {
            let mut destinations = Vec::new();
            for (number, server) in servers.iter().filter(|(_, server)| server.service == number) {
                destinations.push(DestinationFigures {
                    address: server.socket_address(),
                    counters: counters(direct.counted_of_server(*number)?),
                    active: 0,
                    inactive: 0,
                    persistent: 0,
                });
            }
            figures.push(Figures {
                key: words::service(&slot).key,
                counters: counters(direct.counted_of_service(number)?),
                destinations,
            });
        }
        Ok(figures)
    }

    fn look(&mut self, settings: &crate::DirectorSettings, desired: &[Service]) -> Result<Vec<Refused>, KernelError> {
        self.against(&settings.xdp, desired)
    }

    fn foresee(&mut self, settings: &crate::DirectorSettings, desired: &[Service]) -> Result<Vec<String>, KernelError> {
        let mut sentences = self.about_interfaces(&settings.xdp, desired)?;
        sentences.extend(self.remembers_otherwise(&settings.xdp));
        Ok(sentences)
    }

    fn set(&mut self, settings: &crate::DirectorSettings) -> Result<(), KernelError> {
        let is_first = !std::mem::replace(&mut self.is_set, true);
        let before = self.settings.clone();
        self.settings = settings.xdp.clone();
        if self.direct.is_none() || (!is_first && before == self.settings) {
            return Ok(());
        }
        let place = (!is_first).then_some(before.place);
        self.tie_after(place, &BTreeSet::new(), &[]).inspect_err(|_| self.settings = before)
    }

    fn refresh(&mut self) -> Result<Vec<String>, KernelError> {
        if self.direct.is_none() {
            return Ok(Vec::new());
        }
        let mut slots = Slots::read(self.ready()?)?;
        let links = self.routing.links()?;
        let mut troubles: Vec<String> = self.missing(&links).collect();
        troubles.extend(self.remembers_otherwise(&self.settings));
        let addresses: BTreeSet<IpAddr> = slots.servers().map(|(_, slot)| slot.socket_address().ip()).collect();
        let ways = self.ways(&links, &addresses)?;
        let mut led = Vec::new();
        for (number, slot) in slots.servers() {
            let (Some(service), address) = (slots.service(slot.service), slot.socket_address()) else { continue };
            let key = words::service(service).key;
            match ways.get(&address.ip()) {
                Some(Ok((way, passage))) => {
                    let mut after = *slot;
                    lead(&mut after, way, passage);
                    led.extend((after != *slot).then_some((number, after)));
                    if slot.interface == 0 {
                        self.unfilled.insert(slot.service);
                    }
                }
                // What it has is kept: whoever does not answer for a moment is not sent away, which is the health checks' to say.
                Some(Err(why)) if slot.interface == 0 => {
                    troubles.push(format!("service {key}: server {address} gets no packets: {why}"));
                }
                Some(Err(why)) => {
                    troubles.push(format!("service {key}: server {address} gets packets as before, but {why}"));
                }
                None => {}
            }
        }
        let direct = self.ready()?;
        led.into_iter().try_for_each(|(number, slot)| slots.set_server(direct, number, &slot))?;
        troubles.extend(self.fill_all(&mut slots).err().map(|fault| fault.to_string()));
        if let Err(fault) = self.tie(&BTreeSet::new(), &[]) {
            troubles.push(fault.to_string());
        }
        troubles.extend(self.unheard(&links));
        troubles.extend(self.uncut(&links)?);
        Ok(troubles)
    }

    fn manner(&self) -> String {
        self.told()
    }

    fn give_to(&mut self, user: u32, group: u32) -> Result<(), KernelError> {
        self.ready()?;
        self.tie(&BTreeSet::new(), &[])?;
        self.ready()?.give_to(user, group)?;
        self.is_given = true;
        Ok(())
    }

    fn pause(&mut self) -> Result<(), KernelError> {
        // To make it anew takes root's rights.
        if self.is_given { self.put_aside() } else { self.leave() }
    }

    fn leave(&mut self) -> Result<(), KernelError> {
        self.look_again()?;
        if !self.services()?.is_empty() {
            return Ok(());
        }
        self.is_renewed = false;
        self.direct.take().map_or(Ok(()), Direct::remove)
    }
}
