//! Machines on a link, for tests: network namespaces on a bridge, seen by one test alone and gone with it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Output};

use baton_direct::{Destination, Forwarding, Protocol, Scheduler, Service, ServiceKey};
use baton_kernel::route::{Mac, Routing};
use baton_kernel::{namespace, netns};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs a test with a bridge `br0` in a network of its own, and with folders under `/run` of its own. Says so and does nothing without
/// the right to that.
pub fn alone(test: impl FnOnce() + Send) {
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount::<str, str, str, str>(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
        mount::<str, str, str, str>(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None)?;
        // Which may be there too.
        std::fs::create_dir_all(std::env::temp_dir()).expect("a folder for temporary files");
        run("ip link add br0 type bridge forward_delay 0");
        run("ip link set br0 up");
        test();
        Ok::<(), nix::Error>(())
    };
    match netns::in_new(inside) {
        Ok(done) => done.expect("folders of our own under /run"),
        Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
    }
}

/// A machine on the bridge: its network namespace has an interface `eth0` and goes with the test's `/run`.
#[derive(Clone, Copy)]
pub struct Machine {
    pub name: &'static str,
    number: u8,
}

impl Machine {
    /// One with the addresses 192.0.2.NUMBER/24 and 2001:db8::NUMBER/64.
    pub fn new(name: &'static str, number: u8) -> Machine {
        let machine = Machine { name, number };
        run(&format!("ip netns add {name}"));
        run(&format!("ip link add {name} type veth peer name eth0 netns {name}"));
        run(&format!("ip link set {name} master br0 up"));
        machine.run("ip link set lo up");
        machine.run("ip link set eth0 up");
        machine.run(&format!("ip address add {}/24 dev eth0", machine.ipv4()));
        machine.run(&format!("ip address add {}/64 dev eth0 nodad", machine.ipv6()));
        machine
    }

    pub fn ipv4(&self) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, self.number).into()
    }

    pub fn ipv6(&self) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, self.number.into()).into()
    }

    /// Its address of the family of this one.
    pub fn address(&self, like: IpAddr) -> IpAddr {
        if like.is_ipv4() { self.ipv4() } else { self.ipv6() }
    }

    pub fn mac(&self) -> Mac {
        self.inside(|| Routing::open().unwrap().link("eth0").unwrap().mac.unwrap())
    }

    /// Does something there.
    pub fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        namespace::inside(Some(self.name), work).unwrap()
    }

    /// Runs a program there, which must succeed; gives what it printed.
    #[track_caller]
    pub fn run(&self, words: &str) -> String {
        run(&format!("ip netns exec {} {words}", self.name))
    }

    pub fn try_run(&self, words: &str) -> Output {
        try_run(&format!("ip netns exec {} {words}", self.name))
    }
}

#[track_caller]
pub fn run(words: &str) -> String {
    let output = try_run(words);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn try_run(words: &str) -> Output {
    let mut words = words.split_whitespace();
    let program = words.next().unwrap();
    Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// The virtual addresses of the tests.
pub fn vips() -> [IpAddr; 2] {
    ["192.0.2.7".parse().unwrap(), "2001:db8::77".parse().unwrap()]
}

/// A service of TCP at port 80, by direct routing to servers with their weights.
pub fn web(vip: IpAddr, servers: impl IntoIterator<Item = (IpAddr, u32)>) -> Service {
    let destination = |(address, weight)| Destination {
        address: SocketAddr::new(address, 80),
        forwarding: Forwarding::Direct,
        weight,
        upper: 0,
        lower: 0,
    };
    Service {
        key: ServiceKey::Address { protocol: Protocol::Tcp, address: SocketAddr::new(vip, 80) },
        scheduler: Scheduler::RoundRobin,
        hash_port: false,
        fallback: false,
        persistence: None,
        one_packet: false,
        destinations: servers.into_iter().map(destination).collect(),
    }
}
