//! A kernel in memory, for what can be said of plans and directors without one, and services by chance.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use crate::*;

pub(crate) const REMOVAL: &str = "its connections end";

/// Services in memory. Clones are the same kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryEngine {
    pub(crate) services: Arc<Mutex<Vec<Observed>>>,
    /// After so many steps it takes no more.
    pub(crate) dies_after: Arc<Mutex<Option<usize>>>,
    /// It refuses to add this one.
    pub(crate) refuses: Option<ServiceKey>,
    /// It does not say what it has.
    pub(crate) is_silent: Arc<AtomicBool>,
    /// It belongs to a user.
    pub(crate) is_given: Arc<AtomicBool>,
}

impl MemoryEngine {
    pub(crate) fn of(services: impl IntoIterator<Item = Service>) -> MemoryEngine {
        let memory = MemoryEngine::default();
        memory.services.lock().unwrap().extend(services.into_iter().map(Observed::from));
        memory
    }

    /// Sorted, to be compared.
    pub(crate) fn services(&self) -> Vec<Service> {
        sorted(self.services.lock().unwrap().iter().map(|found| found.service.clone()))
    }
}

/// In the order of their keys, with destinations in the order of their addresses.
pub(crate) fn sorted(services: impl IntoIterator<Item = Service>) -> Vec<Service> {
    let mut services: Vec<Service> = services.into_iter().collect();
    services.iter_mut().for_each(|service| service.destinations.sort_by_key(|destination| destination.address));
    services.sort_by_key(|service| service.key);
    services
}

impl Engine for MemoryEngine {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn observe(&mut self) -> Result<Vec<Observed>, KernelError> {
        if self.is_silent.load(Ordering::Relaxed) {
            return Err(KernelError::new("memory", "it does not say what it has", ""));
        }
        Ok(self.services.lock().unwrap().clone())
    }

    fn judge(&self, service: &Service) -> Vec<String> {
        let is_wrong = service.one_packet && matches!(service.key, ServiceKey::Address { protocol: Protocol::Tcp, .. });
        is_wrong.then(|| "TCP has no single packets".to_owned()).into_iter().collect()
    }

    fn take(&mut self, step: &KernelChange) -> Result<(), KernelError> {
        let refusal = |why: &str| Err(KernelError::new("memory", why, ""));
        let left = *self.dies_after.lock().unwrap();
        match left {
            Some(0) => std::panic::resume_unwind(Box::new("killed")),
            left => *self.dies_after.lock().unwrap() = left.map(|left| left - 1),
        }
        let mut services = self.services.lock().unwrap();
        let key = step.key();
        let at = services.iter().position(|found| found.service.key == key);
        let Some(at) = at else {
            return match step {
                KernelChange::AddService(_) if self.refuses == Some(key) => refusal("refused"),
                KernelChange::AddService(service) => {
                    assert!(service.destinations.is_empty());
                    services.push(service.clone().into());
                    Ok(())
                }
                _ => refusal("no such service"),
            };
        };
        let of = |address: SocketAddr| services[at].service.destinations.iter().position(|it| it.address == address);
        match step {
            KernelChange::AddService(_) => return refusal("it is there"),
            KernelChange::EditService(service) => {
                let destinations = std::mem::take(&mut services[at].service.destinations);
                services[at] = Service { destinations, ..service.clone() }.into();
            }
            KernelChange::RemoveService(_) => drop(services.remove(at)),
            KernelChange::AddDestination(_, destination) => {
                assert_eq!(of(destination.address), None);
                services[at].service.destinations.push(destination.clone());
            }
            KernelChange::EditDestination(_, destination) => {
                let there = of(destination.address).unwrap();
                services[at].service.destinations[there] = destination.clone();
            }
            KernelChange::RemoveDestination(_, address) => {
                let there = of(*address).unwrap();
                services[at].service.destinations.remove(there);
            }
        }
        Ok(())
    }

    fn removal(&self) -> &'static str {
        REMOVAL
    }

    fn give_to(&mut self, _: u32, _: u32) -> Result<(), KernelError> {
        self.is_given.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn figures(&mut self) -> Result<Vec<Figures>, KernelError> {
        let server = |address| DestinationFigures {
            address,
            counters: Counters::default(),
            active: 0,
            inactive: 0,
            persistent: 0,
        };
        let figures = |service: Service| Figures {
            key: service.key,
            counters: Counters::default(),
            destinations: service.destinations.iter().map(|found| server(found.address)).collect(),
        };
        Ok(self.services().into_iter().map(figures).collect())
    }
}

/// One with a destination.
pub(crate) fn service(port: u16) -> Service {
    let destination = Destination {
        address: ([10, 0, 1, 1], port).into(),
        forwarding: Forwarding::Direct,
        weight: 1,
        upper: 0,
        lower: 0,
    };
    Service {
        key: ServiceKey::Address { protocol: Protocol::Tcp, address: ([10, 0, 0, 1], port).into() },
        scheduler: Scheduler::RoundRobin,
        hash_port: false,
        fallback: false,
        persistence: None,
        one_packet: false,
        destinations: vec![destination],
    }
}

/// Few enough that they meet.
fn keys() -> impl Strategy<Value = ServiceKey> {
    let address = |protocol, last: u8, ipv6| {
        let ip = if ipv6 { IpAddr::V6(Ipv6Addr::from(u128::from(last))) } else { IpAddr::V4([10, 0, 0, last].into()) };
        ServiceKey::Address { protocol, address: SocketAddr::new(ip, 80) }
    };
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    prop_oneof![
        (protocol, 1..3u8, any::<bool>()).prop_map(move |(protocol, last, ipv6)| address(protocol, last, ipv6)),
        (1..3u32, any::<bool>()).prop_map(|(mark, ipv6)| ServiceKey::Mark { mark, ipv6 }),
    ]
}

fn destinations() -> impl Strategy<Value = Vec<Destination>> {
    let forwarding = prop_oneof![
        Just(Forwarding::Direct),
        Just(Forwarding::Masquerade),
        Just(Forwarding::Tunnel(Tunnel::IpIp)),
        Just(Forwarding::Tunnel(Tunnel::Gue(6080))),
    ];
    let one = (forwarding, 0..3u32, 0..2u32);
    proptest::collection::btree_map(1..5u8, one, 0..4).prop_map(|all| {
        let one = |(last, (forwarding, weight, upper)): (u8, (Forwarding, u32, u32))| Destination {
            address: SocketAddr::new(Ipv4Addr::new(10, 0, 1, last).into(), 80),
            forwarding,
            weight,
            upper,
            lower: 0,
        };
        all.into_iter().map(one).collect()
    })
}

/// No two with the same key.
pub(crate) fn services() -> impl Strategy<Value = Vec<Service>> {
    let scheduler = (0..Scheduler::ALL.len()).prop_map(|at| Scheduler::ALL[at]);
    let persistence = proptest::option::of(
        (1..3u64, 24..26u8).prop_map(|(s, prefix)| Persistence { timeout: Duration::from_secs(s), prefix }),
    );
    let one = (scheduler, any::<bool>(), any::<bool>(), persistence, destinations());
    proptest::collection::btree_map(keys(), one, 0..6).prop_map(|all| {
        let one = |(key, (scheduler, hash_port, fallback, persistence, destinations))| Service {
            key,
            scheduler,
            hash_port,
            fallback,
            persistence,
            one_packet: false,
            destinations,
        };
        all.into_iter().map(one).collect()
    })
}
