//! What the engine cannot do, by the configuration alone.

use std::net::SocketAddr;

use crate::{Destination, Forwarding, Protocol, Scheduler, Service, ServiceKey};

/// One sentence for each thing; none is well.
pub(crate) fn judge(service: &Service) -> Vec<String> {
    let mut reasons = Vec::new();
    let virtual_at = match service.key {
        ServiceKey::Address { protocol, address } => {
            if address.ip().is_unspecified() || address.ip().is_multicast() {
                reasons.push(format!("{} is not a single address", address.ip()));
            }
            if service.one_packet && protocol == Protocol::Tcp {
                reasons.push("TCP has no single packets".into());
            }
            Some(address)
        }
        ServiceKey::Mark { .. } => {
            reasons.push(
                "firewall marks are set after the engine xdp has seen a packet; use addresses, or the engine ipvs"
                    .into(),
            );
            None
        }
    };
    match service.scheduler {
        // Round robin is by a hash of address and port, by weight; the rest is so already.
        Scheduler::RoundRobin | Scheduler::Source | Scheduler::Maglev => {}
        Scheduler::LeastConn
        | Scheduler::Destination
        | Scheduler::ShortestDelay
        | Scheduler::NeverQueue
        | Scheduler::Locality
        | Scheduler::LocalityReplicated
        | Scheduler::Failover
        | Scheduler::Overflow
        | Scheduler::TwoRandom => reasons.push(format!(
            "the engine xdp chooses by a hash and does not see the ends of connections, so it has no scheduler '{}'; use \
             roundrobin, source or mh, or the engine ipvs",
            service.scheduler.word()
        )),
    }
    reasons.extend(service.destinations.iter().flat_map(|destination| of_destination(destination, virtual_at)));
    reasons
}

/// What an operator should know of a service, one sentence for each thing.
pub(crate) fn advise(service: &Service) -> Vec<String> {
    let here = service.destinations.iter().filter(|destination| destination.address.ip().is_loopback());
    let told = here.map(|destination| format!("service {}: server {}: {LOCAL}", service.key, destination.address));
    told.collect()
}

/// Why a server on this machine gets nothing.
pub(super) const LOCAL: &str = "the engine xdp cannot send to this machine itself: clients reach it only while no other server \
    accepts connections and if the virtual address is on this machine; or use the engine ipvs";

fn of_destination(destination: &Destination, virtual_at: Option<SocketAddr>) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut refuse = |why: &str| reasons.push(format!("server {}: {why}", destination.address));
    match destination.forwarding {
        Forwarding::Direct => {}
        Forwarding::Tunnel(_) => refuse("the engine xdp has no tunnels; use the engine ipvs"),
        Forwarding::Masquerade => {
            refuse("the engine xdp changes no addresses, so it cannot masquerade; use the engine ipvs");
        }
    }
    let is_other_port = |at: SocketAddr| at.port() != destination.address.port() && at.port() != 0;
    if destination.forwarding == Forwarding::Direct && virtual_at.is_some_and(is_other_port) {
        refuse("with direct routing a server has the port of the service");
    }
    if destination.upper != 0 || destination.lower != 0 {
        refuse("the engine xdp does not see the ends of connections, so it has no limits of them; use the engine ipvs");
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tunnel;

    fn service(address: &str) -> Service {
        let destination = Destination {
            address: "10.0.0.2:80".parse().unwrap(),
            forwarding: Forwarding::Direct,
            weight: 1,
            upper: 0,
            lower: 0,
        };
        Service {
            key: ServiceKey::Address { protocol: Protocol::Tcp, address: address.parse().unwrap() },
            scheduler: Scheduler::RoundRobin,
            hash_port: false,
            fallback: false,
            persistence: None,
            one_packet: false,
            destinations: vec![destination],
        }
    }

    #[track_caller]
    fn refuses(change: impl FnOnce(&mut Service), because: &str) {
        let mut service = service("192.0.2.1:80");
        change(&mut service);
        let reasons = judge(&service);
        assert!(reasons.len() == 1 && reasons[0].contains(because), "{reasons:?}");
    }

    #[test]
    fn what_it_can_do() {
        for scheduler in [Scheduler::RoundRobin, Scheduler::Source, Scheduler::Maglev] {
            assert!(judge(&Service { scheduler, ..service("192.0.2.1:80") }).is_empty());
        }
        assert!(judge(&service("192.0.2.1:0")).is_empty(), "every port");
    }

    #[test]
    fn who_is_here_is_told_of() {
        let mut service = service("192.0.2.1:80");
        assert_eq!(advise(&service), [""; 0]);
        service.destinations[0].address = "127.0.0.1:80".parse().unwrap();
        let told = advise(&service);
        assert!(told.len() == 1 && told[0].starts_with("service tcp 192.0.2.1:80: server 127.0.0.1:80: "), "{told:?}");
        assert!(judge(&service).is_empty());
    }

    #[test]
    fn what_it_cannot_do() {
        refuses(|service| service.key = ServiceKey::Mark { mark: 7, ipv6: false }, "firewall marks");
        refuses(|service| service.scheduler = Scheduler::LeastConn, "'wlc'");
        refuses(|service| service.one_packet = true, "no single packets");
        refuses(
            |service| service.destinations[0].forwarding = Forwarding::Masquerade,
            "10.0.0.2:80: the engine xdp changes no",
        );
        refuses(|service| service.destinations[0].forwarding = Forwarding::Tunnel(Tunnel::IpIp), "no tunnels");
        refuses(|service| service.destinations[0].upper = 10, "no limits");
        refuses(|service| service.destinations[0].address.set_port(8080), "has the port of the service");
        refuses(|service| *service = self::service("0.0.0.0:80"), "not a single address");
    }
}
