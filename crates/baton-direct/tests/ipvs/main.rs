//! The engine `ipvs` in a kernel that has it, against what `ipvsadm` shows and does, and real connections through it.

#[path = "../../../baton/tests/support/lab/mod.rs"]
mod lab;

#[path = "../network/mod.rs"]
mod network;

mod flow;
mod plan;
mod settings;

use std::net::SocketAddr;

use baton_direct::{
    Destination, Director, DirectorReport, DirectorSettings, EngineChoice, Forwarding, Protocol, Scheduler, Service,
    ServiceKey,
};

use network::said;

/// All services as `ipvsadm` would set them again, sorted.
#[track_caller]
fn dump() -> Vec<String> {
    let mut lines: Vec<String> = said("ipvsadm -Sn").lines().map(|line| line.trim_end().to_owned()).collect();
    lines.sort();
    lines
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn service(key: ServiceKey, scheduler: Scheduler, destinations: &[Destination]) -> Service {
    Service {
        key,
        scheduler,
        hash_port: false,
        fallback: false,
        persistence: None,
        one_packet: false,
        destinations: destinations.to_vec(),
    }
}

fn tcp(text: &str) -> ServiceKey {
    ServiceKey::Address { protocol: Protocol::Tcp, address: address(text) }
}

fn udp(text: &str) -> ServiceKey {
    ServiceKey::Address { protocol: Protocol::Udp, address: address(text) }
}

fn to(text: &str, weight: u32) -> Destination {
    Destination { address: address(text), forwarding: Forwarding::Direct, weight, upper: 0, lower: 0 }
}

fn director() -> Director {
    director_with(&DirectorSettings::default())
}

fn director_with(settings: &DirectorSettings) -> Director {
    Director::open(EngineChoice::Ipvs, settings).unwrap()
}

/// Nothing but what was to be done was said.
#[track_caller]
fn done(report: DirectorReport) -> Vec<String> {
    assert_eq!(report, DirectorReport { done: report.done.clone(), ..DirectorReport::default() });
    report.done
}
