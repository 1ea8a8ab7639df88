//! Services as the maps have them, and back.

use std::time::Duration;

use baton_kernel::bpf::direct::{self, HASH_PORT, ONE_PACKET, STICK, TCP, UDP};

use crate::{Destination, Forwarding, Persistence, Protocol, Scheduler, Service, ServiceKey};

/// What the program does not read: the scheduler's number among [`Scheduler::ALL`] in the lowest byte, then flags, and the prefix
/// of stickiness in the third byte.
const ASKS_HASH_PORT: u32 = 1 << 8;
const ASKS_FALLBACK: u32 = 1 << 9;

/// The place of a key; a mark has none.
pub(super) fn place(key: &ServiceKey) -> Option<direct::VirtualAddressKey> {
    match key {
        ServiceKey::Address { protocol: Protocol::Tcp, address } => Some(direct::VirtualAddressKey::new(TCP, *address)),
        ServiceKey::Address { protocol: Protocol::Udp, address } => Some(direct::VirtualAddressKey::new(UDP, *address)),
        ServiceKey::Mark { .. } => None,
    }
}

/// A service's slot, with this table.
pub(super) fn slot(service: &Service, place: direct::VirtualAddressKey, table: u32) -> direct::ServiceSlot {
    let by_connection = match service.scheduler {
        Scheduler::RoundRobin => true,
        _ => service.hash_port,
    };
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let scheduler = Scheduler::ALL.iter().position(|known| *known == service.scheduler).unwrap_or_default() as u32;
    let bits = if service.key.is_ipv6() { 128 } else { 32 };
    let prefix = service.persistence.map_or(bits, |persistence| persistence.prefix.min(bits));
    direct::ServiceSlot {
        is_used: 1,
        table,
        // A client that sticks is chosen by its address alone, so that every director chooses alike.
        flags: flag(by_connection && service.persistence.is_none(), HASH_PORT)
            | flag(service.persistence.is_some(), STICK)
            | flag(service.one_packet, ONE_PACKET),
        timeout: service
            .persistence
            .map_or(0, |persistence| persistence.timeout.as_secs().try_into().unwrap_or(u32::MAX)),
        mask: mask(prefix),
        place,
        settings: scheduler
            | flag(service.hash_port, ASKS_HASH_PORT)
            | flag(service.fallback, ASKS_FALLBACK)
            | u32::from(prefix) << 16,
    }
}

/// So many leading bits.
fn mask(prefix: u8) -> [u8; 16] {
    let ones = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    ones.to_be_bytes()
}

/// The service of a slot, without destinations.
pub(super) fn service(slot: &direct::ServiceSlot) -> Service {
    let protocol = if slot.place.protocol == UDP { Protocol::Udp } else { Protocol::Tcp };
    let persistence =
        Persistence { timeout: Duration::from_secs(slot.timeout.into()), prefix: (slot.settings >> 16 & 0xff) as u8 };
    Service {
        key: ServiceKey::Address { protocol, address: slot.place.socket_address() },
        scheduler: Scheduler::ALL.get((slot.settings & 0xff) as usize).copied().unwrap_or_default(),
        hash_port: slot.settings & ASKS_HASH_PORT != 0,
        fallback: slot.settings & ASKS_FALLBACK != 0,
        persistence: (slot.flags & STICK != 0).then_some(persistence),
        one_packet: slot.flags & ONE_PACKET != 0,
        destinations: Vec::new(),
    }
}

/// The destination of a slot.
pub(super) fn destination(slot: &direct::ServerSlot) -> Destination {
    Destination {
        address: slot.socket_address(),
        forwarding: Forwarding::Direct,
        weight: slot.weight,
        upper: 0,
        lower: 0,
    }
}

/// The name of a destination among the members of a table: alike in every director.
pub(super) fn name(slot: &direct::ServerSlot) -> Vec<u8> {
    let mut name = slot.family.to_be_bytes().to_vec();
    name.extend(slot.address);
    name.extend((slot.port as u16).to_be_bytes());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(mask(0), [0; 16]);
        assert_eq!(mask(128), [0xff; 16]);
        assert_eq!(mask(25)[..5], [0xff, 0xff, 0xff, 0x80, 0]);
    }

    #[test]
    fn a_service_is_read_back_as_it_was_written() {
        let sticks = Persistence { timeout: Duration::from_secs(300), prefix: 24 };
        for address in ["192.0.2.1:80", "192.0.2.1:0", "[2001:db8::1]:443"] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                for persistence in [None, Some(sticks)] {
                    for (scheduler, hash_port, fallback) in [
                        (Scheduler::RoundRobin, false, false),
                        (Scheduler::Maglev, true, true),
                        (Scheduler::Source, false, true),
                    ] {
                        let one_packet = protocol == Protocol::Udp && fallback;
                        let key = ServiceKey::Address { protocol, address: address.parse().unwrap() };
                        let asked = Service {
                            key,
                            scheduler,
                            hash_port,
                            fallback,
                            persistence,
                            one_packet,
                            destinations: Vec::new(),
                        };
                        let slot = slot(&asked, place(&key).unwrap(), 4);
                        assert_eq!(service(&slot), asked);
                        let by_port = persistence.is_none() && (hash_port || scheduler == Scheduler::RoundRobin);
                        assert_eq!(slot.flags & HASH_PORT != 0, by_port);
                    }
                }
            }
        }
    }
}
