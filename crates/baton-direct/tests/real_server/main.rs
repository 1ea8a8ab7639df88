//! A real server that is set up and taken down, between network namespaces: who answers ARP, where packets arrive, and that all is
//! as before afterwards.

#[path = "../../../baton/tests/support/lab/mod.rs"]
mod lab;
#[path = "../link/mod.rs"]
mod link;

mod check;
mod faults;
mod packets;
mod quiet;
mod unit;

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use baton_direct::real_server::{ArpMethod, RealServerOptions, RealServerReport, down, up};
use baton_direct::who_has::who_has;
use link::{Machine, alone, vips, web};

/// How long an answer may take that is expected; nothing waits for so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long is waited where nobody is to answer.
const SHORT: Duration = Duration::from_millis(150);

fn asked(vips: &[IpAddr], method: ArpMethod) -> RealServerOptions {
    RealServerOptions { vips: vips.to_vec(), method, ..RealServerOptions::default() }
}

fn set_up(machine: &Machine, asked: &RealServerOptions) -> RealServerReport {
    machine.inside(|| up(asked, false)).unwrap_or_else(|fault| panic!("{fault}"))
}

fn take_down(machine: &Machine, vips: &[IpAddr]) -> RealServerReport {
    machine.inside(|| down(vips, false, false)).unwrap_or_else(|fault| panic!("{fault}"))
}

/// Everything that could be changed: settings, addresses and rules.
fn all_of(machine: &Machine) -> String {
    let settings = machine.inside(|| {
        let mut all = String::new();
        for family in ["ipv4", "ipv6"] {
            for interface in ["all", "default", "lo", "eth0"] {
                let folder = format!("/proc/sys/net/{family}/conf/{interface}");
                let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
                names.sort();
                for name in names {
                    // Some are secret and cannot be read until they are set.
                    let value = fs::read_to_string(&name).unwrap_or_default();
                    all.push_str(&format!("{} {value}", name.display()));
                }
            }
        }
        all
    });
    // Whether another machine has the link's own address is asked meanwhile.
    let addresses = machine.run("ip address show").replace(" tentative", "");
    format!("{settings}\n{addresses}\n{}", machine.run("nft list ruleset"))
}

/// Says which lines differ.
#[track_caller]
fn same(now: &str, before: &str) {
    let other = |from: &str, of: &str| -> Vec<String> {
        from.lines().filter(|line| !of.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    assert!(now == before, "there is now {:#?}, before there was {:#?}", other(now, before), other(before, now));
}
