//! The engine `ipvs` in a kernel that has it, against what `ipvsadm` shows and does, and real connections through it.

#[path = "../../../baton/tests/support/lab/mod.rs"]
mod lab;

#[path = "../network/mod.rs"]
mod network;

mod flow;
mod plan;
mod settings;

use std::net::SocketAddr;

use baton_direct::{Asked, Destination, Director, Forwarding, Key, Protocol, Report, Scheduler, Service, Settings};

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

fn service(key: Key, scheduler: Scheduler, destinations: &[Destination]) -> Service {
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

fn tcp(text: &str) -> Key {
    Key::Address { protocol: Protocol::Tcp, address: address(text) }
}

fn udp(text: &str) -> Key {
    Key::Address { protocol: Protocol::Udp, address: address(text) }
}

fn to(text: &str, weight: u32) -> Destination {
    Destination { address: address(text), forwarding: Forwarding::Direct, weight, upper: 0, lower: 0 }
}

fn director() -> Director {
    director_with(&Settings::default())
}

fn director_with(settings: &Settings) -> Director {
    Director::open(Asked::Ipvs, settings).unwrap()
}

/// Nothing but what was to be done was said.
#[track_caller]
fn done(report: Report) -> Vec<String> {
    assert_eq!(report, Report { done: report.done.clone(), ..Report::default() });
    report.done
}
