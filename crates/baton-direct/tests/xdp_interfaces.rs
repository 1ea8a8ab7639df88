//! The engine xdp on several interfaces, on VLANs and on a bond.
#![cfg(feature = "bpf")]

mod flows;
#[path = "../../baton/tests/support/lab/mod.rs"]
mod lab;
mod link;

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use baton_direct::xdp::XdpHook;
use baton_direct::{Director, DirectorSettings, EngineChoice, Service};
use baton_kernel::route::Mac;
use flows::{Held, Lab, PATIENCE, ask, second_network};
use link::{Machine, run, vips, web};

fn service(vip: IpAddr, servers: &[&str]) -> Service {
    web(vip, servers.iter().map(|address| (address.parse().unwrap(), 1)))
}

fn settings(interface: Option<&str>, place: XdpHook) -> DirectorSettings {
    let mut settings = DirectorSettings::default();
    settings.xdp.interfaces = interface.map(Into::into).into_iter().collect();
    settings.xdp.connections = Some(10_000);
    settings.xdp.place = place;
    settings
}

/// Sets it up; gives what is said of where it is.
#[track_caller]
fn set_up(machine: &Machine, settings: &DirectorSettings, services: &[Service]) -> String {
    machine.inside(|| {
        let mut director = Director::open(EngineChoice::Xdp, settings).unwrap();
        director.set(settings);
        let report = director.reconcile(services).unwrap();
        assert!(report.failed.is_empty() && report.refused.is_empty(), "{report:?}");
        assert!(director.plan(services).unwrap().is_empty(), "nothing is left to do");
        let troubles = director.refresh().unwrap();
        assert!(troubles.is_empty(), "{troubles:?}");
        // How many connections are remembered is another test's.
        director.manner().split("; connection table").next().unwrap_or_default().to_owned()
    })
}

/// What is against it, a sentence each.
fn refused(machine: &Machine, settings: &DirectorSettings, services: &[Service]) -> Vec<String> {
    let refused = machine.inside(|| {
        let mut director = Director::open(EngineChoice::Xdp, settings).unwrap();
        director.look(settings, services).unwrap()
    });
    refused.into_iter().map(|refused| format!("{}: {}", refused.what, refused.why)).collect()
}

#[test]
fn servers_behind_another_interface() {
    flows::lab(2, |lab| {
        second_network(lab);
        let vip = vips()[0];
        let services = [service(vip, &["198.51.100.11", "198.51.100.12"])];
        // What no driver would send is refused, not dropped.
        let driver = settings(Some("eth0"), XdpHook::Driver);
        let refused = refused(&lab.director, &driver, &services);
        assert!(refused.len() == 1 && refused[0].starts_with("interface eth1: what its driver sends"), "{refused:?}");
        let manner = set_up(&lab.director, &settings(Some("eth0"), XdpHook::Best), &services);
        assert!(manner.starts_with("on eth0 (generic: a veth driver"), "{manner}");
        assert_eq!(ask(&lab.client, vip, 20).values().sum::<usize>(), 20);
        let mut held = Held::new(&lab.client, vip);
        // An upload, of which many packets go through the kernel as one that is larger than any interface sends.
        lab.client.run("ethtool -K eth0 tx on tso on gso on");
        held.stream.get_ref().set_write_timeout(Some(PATIENCE)).unwrap();
        held.stream.get_mut().write_all(&vec![b'z'; 5_000_000]).unwrap();
        assert_eq!(held.says().unwrap(), held.server);
        lab.client.run("ethtool -K eth0 tx off");
        run("ethtool -K director1 gro on");
        let manner = set_up(&lab.director, &driver, &services);
        assert!(manner.starts_with("on eth0 (in its driver, as configured), eth1 (in its driver"), "{manner}");
        assert_eq!(held.says().unwrap(), held.server);
        let answers = ask(&lab.client, vip, 20);
        assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "{answers:?}");
        // Where it is for sending alone, it takes nothing.
        let [one, two] = [&lab.servers[0], &lab.servers[1]];
        one.run("ip address del 192.0.2.7/32 dev lo");
        one.run("ip route replace 192.0.2.7/32 via 198.51.100.1 dev eth1");
        let answers = ask(one, vip, 1);
        assert!(answers.keys().all(|answer| *answer != two.name), "{answers:?}");
    });
}

/// Gives frames to an interface: those of its standard input, in hexadecimal, a line each. They come in by a network card that
/// it makes ...
const CARD: &str = "
import fcntl, os, struct, sys
card = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(card, 0x400454ca, struct.pack('16sH22x', sys.argv[1].encode(), 0x1002))
print('begun', flush=True)
for line in sys.stdin:
    os.write(card, bytes.fromhex(line))
    print('given', flush=True)
";

/// ... or leave by one that is there.
const SENDER: &str = "
import socket, sys
card = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
card.bind((sys.argv[1], 0))
print('begun', flush=True)
for line in sys.stdin:
    card.send(bytes.fromhex(line))
    print('given', flush=True)
";

struct Frames {
    process: Child,
    given: Lines<BufReader<ChildStdout>>,
}

impl Frames {
    fn new(machine: &Machine, script: &str, interface: &str) -> Frames {
        let mut process = machine.inside(|| {
            let mut command = Command::new("python3");
            command.args(["-c", script, interface]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("the program python3")
        });
        let mut given = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(given.next().unwrap().unwrap(), "begun");
        Frames { process, given }
    }

    fn give(&mut self, frame: &[u8]) {
        let line: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
        assert_eq!(self.given.next().unwrap().unwrap(), "given");
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// A SYN from a port of `client` to port 80, with VLAN tags and as much data.
fn syn(to: Mac, tags: &[u16], [client, vip]: [Ipv4Addr; 2], port: u16, data: usize) -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0].to_vec();
    ip[2..4].copy_from_slice(&(40 + data as u16).to_be_bytes());
    ip.extend([client.octets(), vip.octets()].concat());
    let of_ip = checksum(&ip);
    ip[10..12].copy_from_slice(&of_ip);
    let mut tcp = [&port.to_be_bytes()[..], &[0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]].concat();
    tcp.resize(20 + data, 0);
    let pseudo = [&ip[12..], &[0, 6], &(20 + data as u16).to_be_bytes(), &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo));
    let tags = tags.iter().flat_map(|tag| [[0x81, 0x00], tag.to_be_bytes()]).flatten().collect();
    [to.0.to_vec(), vec![2, 0, 0, 0, 0, 1], tags, vec![0x08, 0x00], ip, tcp].concat()
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!sum as u16).to_be_bytes()
}

#[test]
fn a_driver_gives_nothing_to_one_that_does_not_send() {
    flows::lab(1, |lab| {
        second_network(lab);
        let director = &lab.director;
        let mut card = Frames::new(director, CARD, "card0");
        director.run("ip link set card0 up address 02:00:00:00:00:c0");
        director.run("ip address add 203.0.113.2/24 dev card0");
        director.run("ip neighbour add 203.0.113.11 lladdr 02:00:00:00:00:11 dev card0");
        let vip: IpAddr = "203.0.113.7".parse().unwrap();
        let best = settings(Some("card0"), XdpHook::Best);
        let manner = set_up(director, &best, &[service(vip, &["203.0.113.11"])]);
        assert_eq!(manner, "on card0 (in its driver)");
        // A server that a veth leads to, and nobody takes what its driver sends.
        let driver = settings(Some("card0"), XdpHook::Driver);
        let services = [service(vip, &["198.51.100.11"])];
        let refused = refused(director, &driver, &services);
        assert!(refused.len() == 1 && refused[0].starts_with("interface eth1: "), "{refused:?}");
        let plan = director.inside(|| {
            let mut director = Director::open(EngineChoice::Xdp, &best).unwrap();
            director.plan(&services).unwrap().to_string()
        });
        assert!(plan.contains("move the program on interface card0 from its driver to the stack"), "{plan}");
        let manner = set_up(director, &best, &services);
        let why = "on card0 (generic, which is slower: the driver of eth1, a veth, may drop what the program sends)";
        assert!(manner.starts_with(why), "{manner}");
        let taken = || {
            let shown = lab.servers[0].run("ip -s -json link show dev eth1");
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            shown[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
        };
        let before = taken();
        let mac = "02:00:00:00:00:c0".parse().unwrap();
        for port in 0..20 {
            // With data that makes it larger than all that anybody else sends.
            card.give(&syn(mac, &[], [[203, 0, 113, 1].into(), [203, 0, 113, 7].into()], 4000 + port, 1000));
        }
        let start = Instant::now();
        while taken() - before < 20 * 1040 {
            assert!(start.elapsed() < PATIENCE, "{} bytes arrived", taken() - before);
        }
    });
}

/// Clients in a VLAN and servers in none: in the stack, tags are beside the frame.
#[test]
fn in_the_stack_tags_are_taken_off() {
    flows::lab(1, |lab| {
        let vip = vips()[0];
        let services = [service(vip, &["192.0.2.11"])];
        set_up(&lab.director, &settings(Some("eth0"), XdpHook::Stack), &services);
        let (mac, server) = (lab.director.mac(), &lab.servers[0]);
        let begun = || {
            let shown = server.run("ss -Htn state syn-recv");
            shown.lines().filter(|line| line.contains("192.0.2.99")).count()
        };
        let mut frames = Frames::new(&lab.client, SENDER, "eth0");
        for (port, tags) in (4000..).zip([&[][..], &[10], &[10, 20]]) {
            frames.give(&syn(mac, tags, [[192, 0, 2, 99].into(), [192, 0, 2, 7].into()], port, 0));
        }
        let start = Instant::now();
        while begun() < 3 {
            assert!(start.elapsed() < PATIENCE, "{} of 3 connections", begun());
        }
    });
}

/// A VLAN with this protocol on the interface of each, with 10.9.0.NUMBER for its address.
fn vlan(lab: &Lab, on: &str, protocol: &str) {
    let servers = lab.servers.iter().map(|machine| (machine, "eth0")).zip(11..);
    let machines = [((&lab.client, "eth0"), 1), ((&lab.director, on), 2)].into_iter().chain(servers);
    for ((machine, on), number) in machines {
        machine.run(&format!("ip link add link {on} name tagged type vlan proto {protocol} id 10"));
        machine.run("ip link set tagged up");
        machine.run(&format!("ip address add 10.9.0.{number}/24 dev tagged"));
    }
    lab.director.run("ip address add 10.9.0.7/32 dev tagged");
    lab.servers.iter().for_each(|server| drop(server.run("ip address add 10.9.0.7/32 dev lo")));
}

/// Not in every kernel, but in the lab's.
#[test]
fn in_the_stack_the_tag_of_a_vlan_is_its_interfaces() {
    lab::inside(|| {
        flows::lab(2, |lab| {
            let vip: IpAddr = "10.9.0.7".parse().unwrap();
            let services = [service(vip, &["10.9.0.11", "10.9.0.12"])];
            let rounds: [(_, &[_]); 2] =
                [("802.1Q", &[(Some("eth0"), "eth0"), (None, "tagged")]), ("802.1ad", &[(Some("eth0"), "eth0")])];
            for (protocol, rounds) in rounds {
                vlan(lab, "eth0", protocol);
                for (interface, on) in rounds.iter().copied() {
                    // As veths and most network cards have it, the tag is beside the frame; or it is in it.
                    for offload in ["on", "off"] {
                        run(&format!("ethtool -K director txvlan {offload} tx-vlan-stag-hw-insert {offload}"));
                        let manner = set_up(&lab.director, &settings(interface, XdpHook::Best), &services);
                        assert!(manner.starts_with(&format!("on {on} (generic")), "{manner}");
                        let answers = ask(&lab.client, vip, 10);
                        let whole = answers.values().sum::<usize>() == 10 && answers.len() == 2;
                        assert!(whole, "{protocol} by {interface:?}, offload {offload}: {answers:?}");
                    }
                    let nothing = settings(interface, XdpHook::Best);
                    lab.director.inside(|| {
                        let mut director = Director::open(EngineChoice::Xdp, &nothing).unwrap();
                        director.reconcile(&[]).unwrap();
                        director.leave(baton_direct::OnExit::Flush).unwrap();
                    });
                }
                for machine in [&lab.client, &lab.director, &lab.servers[0], &lab.servers[1]] {
                    machine.run("ip link delete tagged");
                }
                lab.servers.iter().for_each(|server| drop(server.run("ip address del 10.9.0.7/32 dev lo")));
            }
        });
    });
}

/// The lab's kernel is one that does not cut large packets for another interface.
#[test]
fn what_is_too_large_for_the_stack_of_an_old_kernel_is_said() {
    lab::inside(|| {
        flows::lab(1, |lab| {
            second_network(lab);
            let vip = vips()[0];
            let services = [service(vip, &["198.51.100.11"])];
            let settings = settings(Some("eth0"), XdpHook::Stack);
            set_up(&lab.director, &settings, &services);
            let mut held = Held::new(&lab.client, vip);
            lab.client.run("ethtool -K eth0 tx on tso on gso on");
            held.stream.get_mut().write_all(&vec![b'z'; 100_000]).unwrap();
            let start = Instant::now();
            let troubles = || {
                lab.director.inside(|| {
                    let mut director = Director::open(EngineChoice::Xdp, &settings).unwrap();
                    (director.refresh().unwrap(), director.manner())
                })
            };
            while troubles().0.is_empty() {
                assert!(start.elapsed() < PATIENCE, "nobody says it");
            }
            let (troubles, manner) = troubles();
            let said = "interface eth0: packets of uploads that were merged on receipt (GRO) are too large for eth1";
            assert!(troubles.len() == 1 && troubles[0].starts_with(said), "{troubles:?}");
            assert!(troubles[0].ends_with("(ethtool -K NAME tso off gso off)"), "{troubles:?}");
            assert!(manner.contains("dropped as too big"), "{manner}");
            // What it says helps.
            lab.client.run("ethtool -K eth0 tx off tso off gso off");
            let mut held = Held::new(&lab.client, vip);
            held.stream.get_mut().write_all(&vec![b'z'; 100_000]).unwrap();
            assert_eq!(held.says().unwrap(), held.server);
        });
    });
}

#[test]
fn on_a_bond_in_its_driver() {
    lab::inside(|| {
        flows::lab(2, |lab| {
            let director = &lab.director;
            let vip = vips()[0];
            director.run("ip address flush dev eth0");
            director.run("ip link set eth0 down");
            director.run("ip link add bond0 type bond mode active-backup miimon 100");
            director.run("ip link set eth0 master bond0");
            director.run("ip link set bond0 up");
            director.run("ip link set eth0 up");
            director.run("ip address add 192.0.2.2/24 dev bond0");
            director.run("ip address add 192.0.2.7/32 dev bond0");
            let services = [service(vip, &["192.0.2.11", "192.0.2.12"])];
            let manner = set_up(director, &settings(Some("bond0"), XdpHook::Driver), &services);
            assert_eq!(manner, "on bond0 (in its driver, as configured)");
            let answers = ask(&lab.client, vip, 10);
            assert!(answers.values().sum::<usize>() == 10 && answers.len() == 2, "{answers:?}");
            // A VLAN on it, with its tags in the frames: a driver's program sees no others.
            for name in ["director", "one", "two", "client"] {
                run(&format!("ethtool -K {name} txvlan off"));
            }
            vlan(lab, "bond0", "802.1Q");
            let vip: IpAddr = "10.9.0.7".parse().unwrap();
            let (driver, services) =
                (settings(Some("bond0"), XdpHook::Driver), [service(vip, &["10.9.0.11", "10.9.0.12"])]);
            let refused = refused(director, &driver, &services);
            let because = "interface eth0: VLAN tags are removed before the program in its driver sees them";
            assert!(refused.len() == 1 && refused[0].starts_with(because), "{refused:?}");
            director.run("ethtool -K eth0 rxvlan off");
            set_up(director, &driver, &services);
            let answers = ask(&lab.client, vip, 10);
            assert!(answers.values().sum::<usize>() == 10 && answers.len() == 2, "on a VLAN: {answers:?}");
        });
    });
}
