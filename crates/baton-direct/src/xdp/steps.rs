//! Steps to the maps. What many of them need is done once: before the first one all slots are read, all servers are looked for together and
//! the program is brought to interfaces; after the last one each service's table is filled.
//!
//! A service gets packets when its table is there, and a server's slot is free when no table has it any more, so that at every moment
//! what is in the maps is whole. What was not filled, because the process ended or the kernel refused it, is filled by the next look.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use baton_kernel::bpf::direct::{self, Direct, SERVERS_MAX, SERVICES_MAX};
use baton_kernel::route::Link;

use super::engine::{Limit, Passage, Xdp, lead, mode_of};
use super::slots::Slots;
use super::way::{self, NextHop};
use super::words;
use crate::{Destination, KernelChange, KernelError, Service, ServiceKey};

/// How servers are reached, or a sentence on what is in the way.
pub(super) type NextHops = BTreeMap<IpAddr, Result<(NextHop, Passage), String>>;

/// What steps share.
pub(super) struct Batch {
    slots: Slots,
    /// Whether the program is where it has to be for what is added.
    is_tied: Result<(), KernelError>,
    /// How new servers are reached, as far as they are.
    ways: NextHops,
    /// Servers that go when no table has them.
    leaving: Vec<u32>,
}

impl Xdp {
    /// Does what is done once for these steps.
    pub(super) fn prepare(&mut self, steps: &[&KernelChange]) -> Result<(), KernelError> {
        let mut coming = BTreeSet::new();
        let mut servers = BTreeSet::new();
        for step in steps {
            match step {
                KernelChange::AddService(service) => coming.extend(service.key.virtual_address()),
                KernelChange::AddDestination(_, destination) => drop(servers.insert(destination.address.ip())),
                KernelChange::EditService(_)
                | KernelChange::RemoveService(_)
                | KernelChange::EditDestination(..)
                | KernelChange::RemoveDestination(..) => {}
            }
        }
        self.ready()?;
        let mut is_tied = Ok(());
        let mut ways = BTreeMap::new();
        if !coming.is_empty() || !servers.is_empty() {
            let leaving = way::wait_for(&mut self.routing, &servers);
            is_tied = self.tie(&coming, &leaving);
            let links = self.routing.links()?;
            ways = self.ways(&links, &servers)?;
        }
        let slots = Slots::read(self.ready()?)?;
        self.batch = Some(Batch { slots, is_tied, ways, leaving: Vec::new() });
        Ok(())
    }

    /// Fills tables, then frees what they had.
    pub(super) fn conclude(&mut self) -> Result<(), KernelError> {
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        let filled = self.fill_all(&mut batch.slots);
        let direct = self.ready()?;
        // Of a table that could not be filled they stay, with the weight 0, and are removed the next time.
        filled?;
        batch.leaving.iter().try_for_each(|number| batch.slots.free(direct, *number))
    }

    /// Fills the tables that have to be, and lets packets come to those.
    pub(super) fn fill_all(&mut self, slots: &mut Slots) -> Result<(), KernelError> {
        while let Some(number) = self.unfilled.first().copied() {
            let direct = self.ready()?;
            slots.fill(direct, number)?;
            if let Some(slot) = slots.service(number) {
                direct.set_place(&slot.place.address_alone(), number)?;
                direct.set_place(&slot.place, number)?;
            }
            self.unfilled.remove(&number);
        }
        Ok(())
    }

    /// How these servers are reached, each asked for once.
    pub(super) fn ways(&mut self, links: &[Link], servers: &BTreeSet<IpAddr>) -> Result<NextHops, KernelError> {
        let named = self.named(links);
        let attached = self.attached()?;
        let limit = Limit::new(self.direct.as_ref(), &attached)?;
        let mut ways = BTreeMap::new();
        for server in servers {
            let found = way::find(&mut self.routing, links, &named, mode_of(&attached), *server);
            // What is wrong with one is no reason to leave the others.
            let found = found.unwrap_or_else(|fault| Err(fault.to_string()));
            ways.insert(*server, found.map(|way| (way, Passage::new(links, &attached, limit, &way))));
        }
        Ok(ways)
    }

    /// Takes a step, of those that were prepared.
    pub(super) fn step(&mut self, step: &KernelChange) -> Result<(), KernelError> {
        match step {
            KernelChange::AddService(service) => self.add_service(service),
            KernelChange::EditService(service) => self.edit_service(service),
            KernelChange::RemoveService(key) => self.remove_service(key),
            KernelChange::AddDestination(key, destination) => self.add_destination(key, destination),
            KernelChange::EditDestination(key, destination) => self.edit_destination(key, destination),
            KernelChange::RemoveDestination(key, address) => self.remove_destination(key, *address),
        }
    }

    fn parts(&mut self) -> Result<(&mut Batch, &mut Direct), KernelError> {
        match (&mut self.batch, &mut self.direct) {
            (Some(batch), Some(direct)) => Ok((batch, direct)),
            _ => Err(KernelError::new("engine xdp", "its maps are missing", "try again")),
        }
    }

    fn found(&mut self, key: &ServiceKey) -> Result<u32, KernelError> {
        let number = self.parts()?.0.slots.number_of(key);
        number.ok_or_else(|| fault(key, "it is not there", "another program removed it; try again"))
    }

    fn add_service(&mut self, service: &Service) -> Result<(), KernelError> {
        let Some(place) = words::place(&service.key) else {
            return Err(fault(&service.key, "the engine xdp does not support firewall marks", "use the engine ipvs"));
        };
        let (batch, direct) = self.parts()?;
        if batch.slots.number_of(&service.key).is_some() {
            return self.edit_service(service);
        }
        batch.is_tied.clone()?;
        let Some(number) = batch.slots.free_service() else {
            let reason = format!("the maximum of the engine xdp is {SERVICES_MAX} services");
            return Err(fault(&service.key, reason, "use the engine ipvs"));
        };
        direct.clear_service(number)?;
        batch.slots.set_service(direct, number, &words::slot(service, place, 2 * number))?;
        self.unfilled.insert(number);
        Ok(())
    }

    fn edit_service(&mut self, service: &Service) -> Result<(), KernelError> {
        let number = self.found(&service.key)?;
        let (batch, direct) = self.parts()?;
        let Some(there) = batch.slots.service(number).copied() else { return Ok(()) };
        batch.slots.set_service(direct, number, &words::slot(service, there.place, there.table))
    }

    fn remove_service(&mut self, key: &ServiceKey) -> Result<(), KernelError> {
        let number = self.found(key)?;
        let (batch, direct) = self.parts()?;
        let slots = &mut batch.slots;
        let Some(place) = slots.service(number).map(|slot| slot.place) else { return Ok(()) };
        direct.remove_place(&place)?;
        let has_others = slots
            .services()
            .any(|(other, slot)| other != number && slot.place.address_alone() == place.address_alone());
        if !has_others {
            direct.remove_place(&place.address_alone())?;
        }
        slots.set_service(direct, number, &direct::ServiceSlot::default())?;
        let servers: Vec<u32> = slots.servers_of(number).map(|(number, _)| number).collect();
        servers.into_iter().try_for_each(|number| slots.free(direct, number))?;
        self.unfilled.remove(&number);
        Ok(())
    }

    fn add_destination(&mut self, key: &ServiceKey, destination: &Destination) -> Result<(), KernelError> {
        let service = self.found(key)?;
        if self.parts()?.0.slots.server(service, destination.address).is_some() {
            return self.edit_destination(key, destination);
        }
        let (batch, direct) = self.parts()?;
        batch.is_tied.clone()?;
        let Some((number, before)) = batch.slots.free_server() else {
            let reason = format!("the maximum of the engine xdp is {SERVERS_MAX} servers");
            return Err(fault(key, reason, "use the engine ipvs"));
        };
        let (family, address) = direct::bytes_of(destination.address.ip());
        let mut slot = direct::ServerSlot {
            generation: before.next_generation(),
            service,
            weight: destination.weight,
            port: destination.address.port().into(),
            family: family.into(),
            address,
            ..direct::ServerSlot::default()
        };
        if let Some(Ok((way, passage))) = batch.ways.get(&destination.address.ip()) {
            lead(&mut slot, way, passage);
        }
        direct.clear_server(number)?;
        batch.slots.set_server(direct, number, &slot)?;
        self.unfilled.insert(service);
        Ok(())
    }

    fn edit_destination(&mut self, key: &ServiceKey, destination: &Destination) -> Result<(), KernelError> {
        self.set_weight(key, destination.address, destination.weight).map(drop)
    }

    fn remove_destination(&mut self, key: &ServiceKey, address: SocketAddr) -> Result<(), KernelError> {
        // First nobody new comes, then it goes.
        let number = self.set_weight(key, address, 0)?;
        self.parts()?.0.leaving.push(number);
        Ok(())
    }

    fn set_weight(&mut self, key: &ServiceKey, address: SocketAddr, weight: u32) -> Result<u32, KernelError> {
        let service = self.found(key)?;
        let (batch, direct) = self.parts()?;
        let Some((number, mut slot)) = batch.slots.server(service, address) else {
            let reason = format!("server {address} does not exist");
            return Err(fault(key, reason, "another program removed it; try again"));
        };
        slot.weight = weight;
        batch.slots.set_server(direct, number, &slot)?;
        self.unfilled.insert(service);
        Ok(number)
    }
}

fn fault(key: &ServiceKey, reason: impl Into<String>, remedy: &str) -> KernelError {
    KernelError::new(format!("service {key}"), reason, remedy)
}
