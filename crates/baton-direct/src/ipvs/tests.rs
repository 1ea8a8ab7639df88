use proptest::prelude::*;

use super::*;
use crate::testing::{service, services};

proptest! {
    /// What is written for the kernel reads as what was meant, so that a second plan is empty.
    #[test]
    fn what_is_written_reads_as_it_was_meant(services in services()) {
        for service in services.iter().filter(|service| judge(service).is_empty()) {
            let destinations = service.destinations.iter().map(written_destination);
            let mut kernel = written(service);
            kernel.flags |= flag::HASHED;
            prop_assert_eq!(&read(service.key, &kernel, destinations), &Observed::from(service.clone()));
            prop_assert_eq!(read_key(&kernel.key), Some(service.key));
        }
    }
}

/// Changes the service of the tests and its server, and gives what is said against that.
fn against(change: impl FnOnce(&mut Service)) -> String {
    let mut service = service(80);
    change(&mut service);
    judge(&service).join("; ")
}

#[test]
fn what_the_kernel_would_refuse_is_said_before() {
    assert_eq!(against(|_| {}), "");
    let persistence = |seconds, prefix| Some(Persistence { timeout: Duration::from_secs(seconds), prefix });
    let cases = [
        (against(|service| service.hash_port = true), "only the schedulers sh and mh hash ports"),
        (against(|service| service.fallback = true), "have a fallback"),
        (against(|service| service.one_packet = true), "not for TCP"),
        (against(|service| service.key = ServiceKey::Mark { mark: 0, ipv6: false }), "0 is not a valid mark"),
        (against(|service| service.persistence = persistence(60, 33)), "the prefix length is out of range"),
        (against(|service| service.persistence = persistence(0, 32)), "at least one second"),
        (against(|service| service.persistence = persistence(86_400 * 32, 32)), "31 days"),
        (against(|service| service.destinations[0].address.set_port(81)), "server 10.0.1.1:81: only masquerading"),
        (
            against(|service| service.destinations[0].address = "[::1]:80".parse().unwrap()),
            "which only a tunnel allows",
        ),
        (
            against(|service| service.destinations[0].address = "224.0.0.1:80".parse().unwrap()),
            "not an address of a server",
        ),
        (against(|service| service.destinations[0].weight = 65_536), "the largest weight is 65535"),
        (against(|service| service.destinations[0].lower = 1), "needs an upper one"),
        (
            against(|service| service.destinations[0].forwarding = Forwarding::Tunnel(Tunnel::Gue(0))),
            "a GUE tunnel needs a port",
        ),
    ];
    for (said, expected) in cases {
        assert!(said.contains(expected), "{said} instead of {expected}");
    }
    let every_port = against(|service| {
        service.key = ServiceKey::Address { protocol: Protocol::Udp, address: "10.0.0.1:0".parse().unwrap() };
        service.destinations.clear();
    });
    assert_eq!(every_port, "a service for every port needs persistence");
}

#[test]
fn what_others_set_is_read_as_the_nearest_and_named() {
    let mut found = written(&service(80));
    found.scheduler = "lc".into();
    found.flags |= flag::SCHEDULER_1;
    found.engine = Some("sip".into());
    let mut destination = written_destination(&service(80).destinations[0]);
    destination.forwarding = ipvs::Forwarding::Local;
    let Observed { service, beyond } = read(service(80).key, &found, [destination].into_iter());
    assert_eq!((service.scheduler, service.fallback), (Scheduler::LeastConn, false));
    let expected = ["scheduler lc", "flags 0x8 of the scheduler", "persistence engine sip", "server 10.0.1.1:80 here"];
    assert_eq!(beyond, expected);
}
