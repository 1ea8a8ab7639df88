//! The engine: services and destinations in the program's maps, and the program on interfaces.
//!
//! It keeps nothing that is not in the maps: whoever opens it next finds everything there.

use std::net::SocketAddr;
use std::path::PathBuf;

use baton_kernel::bpf::direct::{self, Direct, Mode, SERVERS_MAX, SERVICES_MAX, TABLE};
use baton_kernel::route::{Link, Routing};

use super::way::{self, Wait, Way};
use super::{Settings, judge, words};
use crate::maglev::{self, Member};
use crate::{Counters, Destination, DestinationFigures, Engine, Fault, Figures, Key, Observed, Refused, Service, Step};

/// The engine, in one network namespace.
pub(super) struct Xdp {
    pub(super) settings: Settings,
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
}

impl Xdp {
    pub(super) fn open(settings: &Settings) -> Result<Xdp, Fault> {
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
        })
    }

    /// The maps, with this process's program in the links.
    pub(super) fn ready(&mut self) -> Result<&mut Direct, Fault> {
        let direct = match self.direct.take() {
            Some(direct) => direct,
            None => Direct::make(&self.folder, self.settings.flows)?,
        };
        let is_renewed = std::mem::replace(&mut self.is_renewed, true);
        self.direct.insert(direct).take_up()?;
        if !is_renewed {
            self.take_over().inspect_err(|_| self.is_renewed = false)?;
        }
        self.direct.as_mut().ok_or_else(|| Fault::new("engine xdp", "its maps are gone", "try again"))
    }

    /// Puts this process's program into the links, and mends what a process left that was killed between two changes to the maps.
    fn take_over(&mut self) -> Result<(), Fault> {
        let services = self.services()?;
        let servers = self.servers()?;
        let Some(direct) = &mut self.direct else { return Ok(()) };
        // Interfaces that are gone are looked for again by name, with the next refresh.
        direct.renew()?;
        let mut places = Vec::new();
        for (number, slot) in &services {
            direct.set_place(&slot.place.address_alone(), *number)?;
            direct.set_place(&slot.place, *number)?;
            places.extend([slot.place, slot.place.address_alone()]);
        }
        for (place, _) in direct.places()? {
            if !places.contains(&place) {
                direct.remove_place(&place)?;
            }
        }
        for (number, slot) in servers {
            if services.iter().all(|(service, _)| *service != slot.service) {
                free(direct, number, &slot)?;
            }
        }
        services.iter().try_for_each(|(number, _)| self.fill(*number))
    }

    /// Another process may have begun or ended it.
    fn look_again(&mut self) -> Result<(), Fault> {
        if !self.is_given {
            let is_there = self.direct.is_some() && self.folder.exists();
            if !is_there {
                self.direct = Direct::find(&self.folder)?;
                self.is_renewed = false;
            }
        }
        Ok(())
    }

    fn found(&self, key: &Key) -> Result<u32, Fault> {
        let there = self.services()?.into_iter().find(|(_, slot)| words::service(slot).key == *key);
        there
            .map(|(number, _)| number)
            .ok_or_else(|| fault(key, "it is not there", "it was removed by somebody else; try again"))
    }

    /// The slots in use.
    pub(super) fn services(&self) -> Result<Vec<(u32, direct::Service)>, Fault> {
        let Some(direct) = &self.direct else { return Ok(Vec::new()) };
        Ok((0..).zip(direct.services()?).filter(|(_, slot)| slot.is_used != 0).collect())
    }

    /// The slots in use.
    pub(super) fn servers(&self) -> Result<Vec<(u32, direct::Server)>, Fault> {
        let Some(direct) = &self.direct else { return Ok(Vec::new()) };
        Ok((0..).zip(direct.servers()?).filter(|(_, slot)| slot.generation != 0).collect())
    }

    fn servers_of(&self, service: u32) -> Result<Vec<(u32, direct::Server)>, Fault> {
        let mut servers = self.servers()?;
        servers.retain(|(_, slot)| slot.service == service);
        Ok(servers)
    }

    fn add_service(&mut self, service: &Service) -> Result<(), Fault> {
        let Some(place) = words::place(&service.key) else {
            return Err(fault(&service.key, "the engine xdp has no firewall marks", "use the engine ipvs"));
        };
        self.ready()?;
        if self.found(&service.key).is_ok() {
            return self.edit_service(service);
        }
        self.tie(Some(place.socket_address().ip()), None)?;
        let used: Vec<u32> = self.services()?.into_iter().map(|(number, _)| number).collect();
        let Some(number) = (0..SERVICES_MAX as u32).find(|number| !used.contains(number)) else {
            let reason = format!("there are {SERVICES_MAX} services, which is the most for the engine xdp");
            return Err(fault(&service.key, reason, "use the engine ipvs"));
        };
        let direct = self.ready()?;
        direct.clear_service(number)?;
        direct.set_table(2 * number, &[direct::NOBODY; TABLE])?;
        direct.set_service(number, &words::slot(service, place, 2 * number))?;
        direct.set_place(&place.address_alone(), number)?;
        direct.set_place(&place, number)
    }

    fn edit_service(&mut self, service: &Service) -> Result<(), Fault> {
        let number = self.found(&service.key)?;
        let direct = self.ready()?;
        let there = direct.service(number)?;
        direct.set_service(number, &words::slot(service, there.place, there.table))
    }

    fn remove_service(&mut self, key: &Key) -> Result<(), Fault> {
        self.ready()?;
        let number = self.found(key)?;
        let servers = self.servers_of(number)?;
        let services = self.services()?;
        let direct = self.ready()?;
        let place = direct.service(number)?.place;
        direct.remove_place(&place)?;
        let is_alone = |(other, slot): &(u32, direct::Service)| {
            *other == number || slot.place.address_alone() != place.address_alone()
        };
        if services.iter().all(is_alone) {
            direct.remove_place(&place.address_alone())?;
        }
        direct.set_service(number, &direct::Service::default())?;
        servers.iter().try_for_each(|(number, slot)| free(direct, *number, slot))
    }

    fn add_destination(&mut self, key: &Key, destination: &Destination) -> Result<(), Fault> {
        self.ready()?;
        let service = self.found(key)?;
        let servers = self.servers()?;
        if servers.iter().any(|(_, slot)| slot.service == service && slot.socket_address() == destination.address) {
            return self.edit_destination(key, destination);
        }
        let number = (0..SERVERS_MAX as u32).find(|number| servers.iter().all(|(used, _)| used != number));
        let Some(number) = number else {
            let reason = format!("there are {SERVERS_MAX} servers, which is the most for the engine xdp");
            return Err(fault(key, reason, "use the engine ipvs"));
        };
        let links = self.routing.links()?;
        let mut way = self.way(&links, destination.address, Wait::ForAnswer)?.ok();
        let mode = self.mode_now()?;
        self.tie(None, way.map(|way| way.link))?;
        if mode != self.mode_now()? {
            way = self.way(&links, destination.address, Wait::Never)?.ok();
        }
        let passage = way.map(|way| self.passage(&links, &way)).transpose()?;
        let (family, address) = direct::bytes_of(destination.address.ip());
        let direct = self.ready()?;
        // A free slot keeps the generation of its last use there.
        let last = direct.server(number)?.service;
        let mut slot = direct::Server {
            generation: last.wrapping_add(1).max(1),
            service,
            weight: destination.weight,
            port: destination.address.port().into(),
            family: family.into(),
            address,
            ..direct::Server::default()
        };
        if let (Some(way), Some(passage)) = (way, passage) {
            lead(&mut slot, &way, &passage);
        }
        direct.clear_server(number)?;
        direct.set_server(number, &slot)?;
        self.fill(service)
    }

    fn edit_destination(&mut self, key: &Key, destination: &Destination) -> Result<(), Fault> {
        self.ready()?;
        let service = self.found(key)?;
        let (number, mut slot) = self.server(key, service, destination.address)?;
        slot.weight = destination.weight;
        self.ready()?.set_server(number, &slot)?;
        self.fill(service)
    }

    fn remove_destination(&mut self, key: &Key, address: SocketAddr) -> Result<(), Fault> {
        self.ready()?;
        let service = self.found(key)?;
        let (number, mut slot) = self.server(key, service, address)?;
        // First nobody new comes, then it goes.
        slot.weight = 0;
        self.ready()?.set_server(number, &slot)?;
        self.fill(service)?;
        free(self.ready()?, number, &slot)
    }

    fn server(&self, key: &Key, service: u32, address: SocketAddr) -> Result<(u32, direct::Server), Fault> {
        let there = self.servers_of(service)?.into_iter().find(|(_, slot)| slot.socket_address() == address);
        there.ok_or_else(|| {
            fault(key, format!("server {address} is not there"), "it was removed by somebody else; try again")
        })
    }

    /// Writes the service's table anew, the one that is not in use, and then uses that one.
    fn fill(&mut self, service: u32) -> Result<(), Fault> {
        let mut servers = self.servers_of(service)?;
        servers.retain(|(_, slot)| slot.weight > 0 && slot.interface != 0);
        let member = |slot: &direct::Server| Member { name: words::name(slot), weight: slot.weight };
        let members: Vec<Member> = servers.iter().map(|(_, slot)| member(slot)).collect();
        let mut table = [direct::NOBODY; TABLE];
        for (entry, place) in table.iter_mut().zip(maglev::table(&members, TABLE)) {
            if let Some((number, _)) = servers.get(usize::from(place)) {
                *entry = *number as u16;
            }
        }
        let direct = self.ready()?;
        let mut slot = direct.service(service)?;
        let other = slot.table ^ 1;
        direct.set_table(other, &table)?;
        slot.table = other;
        direct.set_service(service, &slot)
    }

    pub(super) fn way(&mut self, links: &[Link], server: SocketAddr, wait: Wait) -> Result<Result<Way, String>, Fault> {
        let named = self.named(links);
        let mode = self.mode_now()?;
        way::find(&mut self.routing, links, &named, mode, server.ip(), wait)
    }

    /// What packets meet on the interface of this way.
    pub(super) fn passage(&self, links: &[Link], way: &Way) -> Result<Passage, Fault> {
        let is_native = self.mode_now()? == Mode::Native;
        Ok(Passage { is_native, is_redirected: self.redirects(links, way.interface)? })
    }

    /// Where packets are seen. In drivers none is larger than its interface allows.
    fn mode_now(&self) -> Result<Mode, Fault> {
        let is_native = self.attached()?.iter().all(|(_, mode)| *mode == Mode::Native);
        Ok(if is_native { Mode::Native } else { Mode::Generic })
    }
}

/// Frees a server's slot, which remembers its generation.
fn free(direct: &mut Direct, number: u32, slot: &direct::Server) -> Result<(), Fault> {
    direct.set_server(number, &direct::Server { service: slot.generation, ..direct::Server::default() })
}

/// What packets meet on their way out.
pub(super) struct Passage {
    /// None is larger than the interface allows.
    is_native: bool,
    /// They leave by redirection alone.
    is_redirected: bool,
}

pub(super) fn lead(slot: &mut direct::Server, way: &Way, passage: &Passage) {
    slot.interface = way.interface;
    slot.to = way.to;
    slot.from = way.from;
    slot.tags = way.tags as u16;
    slot.leaves = if passage.is_redirected { direct::REDIRECTED } else { 0 };
    slot.protocols = way.protocols;
    slot.numbers = way.numbers;
    slot.mtu = if passage.is_native { way.mtu } else { 0 };
}

fn fault(key: &Key, reason: impl Into<String>, remedy: &str) -> Fault {
    Fault::new(format!("service {key}"), reason, remedy)
}

fn counters(counted: direct::Counters) -> Counters {
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

    fn observe(&mut self) -> Result<Vec<Observed>, Fault> {
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

    fn take(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::AddService(service) => self.add_service(service),
            Step::EditService(service) => self.edit_service(service),
            Step::RemoveService(key) => self.remove_service(key),
            Step::AddDestination(key, destination) => self.add_destination(key, destination),
            Step::EditDestination(key, destination) => self.edit_destination(key, destination),
            Step::RemoveDestination(key, address) => self.remove_destination(key, *address),
        }
    }

    fn removal(&self) -> &'static str {
        "connections of a server that is removed are given to another one: TCP ends there with a reset, which the client sees at once, \
         and UDP goes on; connections of a service that is removed meet the network stack, as if Baton were not there"
    }

    fn figures(&mut self) -> Result<Vec<Figures>, Fault> {
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

    fn look(&mut self, settings: &crate::Settings, desired: &[Service]) -> Result<Vec<Refused>, Fault> {
        self.against(&settings.xdp, desired)
    }

    fn foresee(&mut self, settings: &crate::Settings, desired: &[Service]) -> Result<Vec<String>, Fault> {
        self.about_interfaces(&settings.xdp, desired)
    }

    fn set(&mut self, settings: &crate::Settings) -> Result<(), Fault> {
        let is_first = !std::mem::replace(&mut self.is_set, true);
        let before = self.settings.clone();
        self.settings = Settings { flows: before.flows, ..settings.xdp.clone() };
        if self.direct.is_none() || (!is_first && before == self.settings) {
            return Ok(());
        }
        let place = (!is_first).then_some(before.place);
        self.tie_after(place, None, None).inspect_err(|_| self.settings = before)
    }

    fn refresh(&mut self) -> Result<Vec<String>, Fault> {
        if self.direct.is_none() {
            return Ok(Vec::new());
        }
        self.ready()?;
        let services = self.services()?;
        let links = self.routing.links()?;
        let mut troubles: Vec<String> = self.missing(&links).collect();
        let mut changed = Vec::new();
        for (number, mut slot) in self.servers()? {
            let key =
                services.iter().find(|(number, _)| *number == slot.service).map(|(_, slot)| words::service(slot).key);
            let Some(key) = key else { continue };
            let address = slot.socket_address();
            // What is wrong with one is no reason to leave the others.
            let way = self.way(&links, address, Wait::Never).unwrap_or_else(|fault| Err(fault.to_string()));
            match way {
                Ok(way) => {
                    let before = slot;
                    lead(&mut slot, &way, &self.passage(&links, &way)?);
                    if slot != before {
                        self.ready()?.set_server(number, &slot)?;
                        if before.interface == 0 {
                            changed.push(slot.service);
                        }
                    }
                }
                // What it has is kept: whoever does not answer for a moment is not sent away, which is the health checks' to say.
                Err(why) if slot.interface == 0 => {
                    troubles.push(format!("service {key}: server {address} gets nothing: {why}"));
                }
                Err(why) => troubles.push(format!("service {key}: server {address} gets packets as before, but {why}")),
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().try_for_each(|service| self.fill(service))?;
        if let Err(fault) = self.tie(None, None) {
            troubles.push(fault.to_string());
        }
        troubles.extend(self.unheard(&links));
        Ok(troubles)
    }

    fn manner(&self) -> String {
        self.told()
    }

    fn give_to(&mut self, user: u32, group: u32) -> Result<(), Fault> {
        self.ready()?;
        self.tie(None, None)?;
        self.ready()?.give_to(user, group)?;
        self.is_given = true;
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Fault> {
        // To make it anew takes root's rights.
        if self.is_given { self.put_aside() } else { self.leave() }
    }

    fn leave(&mut self) -> Result<(), Fault> {
        self.look_again()?;
        if !self.services()?.is_empty() {
            return Ok(());
        }
        self.is_renewed = false;
        self.direct.take().map_or(Ok(()), Direct::remove)
    }
}
