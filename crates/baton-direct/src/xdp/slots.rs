//! The slots of services and servers: read at once and known from then on, by key and by address.
//!
//! What is changed is changed in the maps and here. Nobody else changes them meanwhile, for one process at a time directs; who has
//! nothing to change any more forgets them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use baton_kernel::bpf::direct::{self, Direct, TABLE};

use super::words;
use crate::maglev::{self, Member};
use crate::{KernelError, ServiceKey};

/// No address is before it.
const FIRST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What is in the maps.
#[derive(Debug)]
pub(super) struct Slots {
    services: BTreeMap<u32, direct::ServiceSlot>,
    servers: BTreeMap<u32, direct::ServerSlot>,
    keys: BTreeMap<ServiceKey, u32>,
    /// By the service's slot.
    addresses: BTreeMap<(u32, SocketAddr), u32>,
    free_services: BTreeSet<u32>,
    /// With what was last there.
    free_servers: BTreeMap<u32, direct::ServerSlot>,
}

impl Slots {
    /// As they are now.
    pub(super) fn read(direct: &Direct) -> Result<Slots, KernelError> {
        let mut slots = Slots {
            services: BTreeMap::new(),
            servers: BTreeMap::new(),
            keys: BTreeMap::new(),
            addresses: BTreeMap::new(),
            free_services: BTreeSet::new(),
            free_servers: BTreeMap::new(),
        };
        (0..).zip(direct.services()?).for_each(|(number, slot)| slots.note_service(number, slot));
        (0..).zip(direct.servers()?).for_each(|(number, slot)| slots.note_server(number, slot));
        Ok(slots)
    }

    fn note_service(&mut self, number: u32, slot: direct::ServiceSlot) {
        if slot.is_used != 0 {
            self.keys.insert(words::service(&slot).key, number);
            self.services.insert(number, slot);
            self.free_services.remove(&number);
        } else {
            if let Some(before) = self.services.remove(&number) {
                self.keys.remove(&words::service(&before).key);
            }
            self.free_services.insert(number);
        }
    }

    fn note_server(&mut self, number: u32, slot: direct::ServerSlot) {
        if slot.generation != 0 {
            self.addresses.insert((slot.service, slot.socket_address()), number);
            self.servers.insert(number, slot);
            self.free_servers.remove(&number);
        } else {
            if let Some(before) = self.servers.remove(&number) {
                self.addresses.remove(&(before.service, before.socket_address()));
            }
            self.free_servers.insert(number, slot);
        }
    }

    /// Those in use.
    pub(super) fn services(&self) -> impl Iterator<Item = (u32, &direct::ServiceSlot)> {
        self.services.iter().map(|(number, slot)| (*number, slot))
    }

    /// Those in use.
    pub(super) fn servers(&self) -> impl Iterator<Item = (u32, &direct::ServerSlot)> {
        self.servers.iter().map(|(number, slot)| (*number, slot))
    }

    /// A service's.
    pub(super) fn servers_of(&self, service: u32) -> impl Iterator<Item = (u32, &direct::ServerSlot)> {
        let own = self.addresses.range((service, FIRST)..).take_while(move |((of, _), _)| *of == service);
        own.filter_map(|(_, number)| Some((*number, self.servers.get(number)?)))
    }

    /// By its number.
    pub(super) fn service(&self, number: u32) -> Option<&direct::ServiceSlot> {
        self.services.get(&number)
    }

    /// The number of a key's slot.
    pub(super) fn number_of(&self, key: &ServiceKey) -> Option<u32> {
        self.keys.get(key).copied()
    }

    /// A service's server.
    pub(super) fn server(&self, service: u32, address: SocketAddr) -> Option<(u32, direct::ServerSlot)> {
        let number = *self.addresses.get(&(service, address))?;
        Some((number, *self.servers.get(&number)?))
    }

    /// A slot for another service.
    pub(super) fn free_service(&self) -> Option<u32> {
        self.free_services.first().copied()
    }

    /// A slot for another server, with what was last there.
    pub(super) fn free_server(&self) -> Option<(u32, direct::ServerSlot)> {
        self.free_servers.first_key_value().map(|(number, slot)| (*number, *slot))
    }

    /// Changes a service's slot.
    pub(super) fn set_service(
        &mut self,
        direct: &mut Direct,
        number: u32,
        slot: &direct::ServiceSlot,
    ) -> Result<(), KernelError> {
        direct.set_service(number, slot)?;
        self.note_service(number, *slot);
        Ok(())
    }

    /// Changes a server's slot.
    pub(super) fn set_server(
        &mut self,
        direct: &mut Direct,
        number: u32,
        slot: &direct::ServerSlot,
    ) -> Result<(), KernelError> {
        direct.set_server(number, slot)?;
        self.note_server(number, *slot);
        Ok(())
    }

    /// Frees a server's slot.
    pub(super) fn free(&mut self, direct: &mut Direct, number: u32) -> Result<(), KernelError> {
        let Some(slot) = self.servers.get(&number) else { return Ok(()) };
        let freed = direct::ServerSlot::freed(slot.generation);
        self.set_server(direct, number, &freed)
    }

    /// Writes a service's table anew, the one that is not in use, and then uses that one.
    pub(super) fn fill(&mut self, direct: &mut Direct, service: u32) -> Result<(), KernelError> {
        let Some(mut slot) = self.services.get(&service).copied() else { return Ok(()) };
        let servers = self.servers_of(service).filter(|(_, slot)| slot.weight > 0 && slot.interface != 0);
        let (numbers, members): (Vec<u32>, Vec<Member>) =
            servers.map(|(number, slot)| (number, Member { name: words::name(slot), weight: slot.weight })).unzip();
        let mut table = [direct::NOBODY; TABLE];
        for (entry, place) in table.iter_mut().zip(maglev::table(&members, TABLE)) {
            if let Some(number) = numbers.get(usize::from(place)) {
                *entry = *number as u16;
            }
        }
        let other = slot.table ^ 1;
        direct.set_table(other, &table)?;
        slot.table = other;
        self.set_service(direct, service, &slot)
    }
}
