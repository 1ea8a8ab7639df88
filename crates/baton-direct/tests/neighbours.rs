//! Virtual addresses on a real link: who answers for them, whether they are set up on a real server, and how a director takes them.

mod link;

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use baton_direct::probe::{MissingVip, ProbeMethod, ProbeResult, ProbeTarget, probe};
use baton_direct::vip::{PROTOCOL, Vip, Vips, announce};
use baton_direct::who_has::{known_as, others, who_has};
use baton_kernel::packet::{EtherType, FrameFilter, PacketSocket};
use baton_kernel::route::Routing;
use link::{Machine, alone, vips};

/// How long an answer may take that is expected; nothing waits for so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long is waited where nobody is to answer.
const SHORT: Duration = Duration::from_millis(150);

fn put(machine: &Machine, vip: IpAddr, interface: &str) {
    let words = if vip.is_ipv4() { format!("{vip}/32") } else { format!("{vip}/128 nodad") };
    machine.run(&format!("ip address add {words} dev {interface}"));
}

#[test]
fn all_who_answer_for_an_address_are_found() {
    alone(|| {
        let [director, one, two] = [Machine::new("director", 1), Machine::new("one", 11), Machine::new("two", 12)];
        for vip in vips() {
            let answers = || director.inside(|| who_has("eth0", vip, SHORT).unwrap());
            assert!(answers().is_empty(), "{vip}");
            put(&director, vip, "eth0");
            assert!(answers().is_empty(), "we do not answer ourselves");
            put(&one, vip, "eth0");
            assert_eq!(answers(), [one.mac()], "{vip}");
            put(&two, vip, "eth0");
            let mut both = [one.mac(), two.mac()];
            let mut found = answers();
            both.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, both, "{vip}");
        }
        let known = director.inside(|| known_as("eth0", &[one.mac()]).unwrap());
        assert!(known.get(&one.mac()).is_none_or(|known| known.contains(&one.ipv4()) || known.contains(&one.ipv6())));
        let fault = director.inside(|| who_has("lo", vips()[0], SHORT).unwrap_err());
        assert!(fault.to_string().contains("interface lo: has no neighbours"), "{fault}");
        let fault = director.inside(|| who_has("eth7", vips()[0], SHORT).unwrap_err());
        assert!(fault.to_string().contains("there is no such interface"), "{fault}");
        director.run("ip link set eth0 down");
        let fault = director.inside(|| who_has("eth0", vips()[0], SHORT).unwrap_err());
        assert!(fault.to_string().contains("is down; ip link set eth0 up"), "{fault}");
    });
}

#[test]
fn a_director_asks_for_all_its_addresses_at_once() {
    alone(|| {
        let [director, one] = [Machine::new("director", 1), Machine::new("one", 11)];
        let all: Vec<IpAddr> =
            vips().into_iter().chain(["192.0.2.8".parse().unwrap(), "2001:db8::78".parse().unwrap()]).collect();
        let ask = || director.inside(|| others(&all, SHORT).unwrap());
        put(&one, all[0], "eth0");
        assert_eq!(ask(), [], "none of them is here");
        all.iter().for_each(|vip| put(&director, *vip, "eth0"));
        put(&one, all[3], "eth0");
        let found = ask();
        let both: Vec<_> = found.iter().map(|other| (other.vip, other.interface.as_str(), other.mac)).collect();
        assert_eq!(both, [(all[0], "eth0", one.mac()), (all[3], "eth0", one.mac())]);
        let said = found[0].to_string();
        assert!(said.starts_with(&one.mac().to_string()), "{said}");
        assert!(said.contains("also responds for the virtual address 192.0.2.7 on eth0"), "{said}");
        director.run("ip link set eth0 down");
        assert_eq!(ask(), []);
    });
}

#[test]
fn an_address_on_lo_answers_for_ipv4_and_not_for_ipv6() {
    alone(|| {
        let [director, one] = [Machine::new("director", 1), Machine::new("one", 11)];
        let [vip, vip6] = vips();
        put(&one, vip, "lo");
        put(&one, vip6, "lo");
        assert_eq!(director.inside(|| who_has("eth0", vip, SHORT).unwrap()), [one.mac()]);
        assert!(director.inside(|| who_has("eth0", vip6, SHORT).unwrap()).is_empty(), "the kernel asks the interface");
        one.run("sysctl -qw net.ipv4.conf.all.arp_ignore=1");
        assert!(director.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty());
    });
}

#[test]
fn a_probe_tells_whether_the_address_is_set_up() {
    alone(|| {
        let [director, one] = [Machine::new("director", 1), Machine::new("one", 11)];
        for vip in vips() {
            let server = one.address(vip);
            let ask = |with, within| director.inside(|| probe(&ProbeTarget { vip, server, with }, within).unwrap());
            // Nobody listens, and a director that does not have the address is no other case than one that has.
            for _ in 0..2 {
                assert_eq!(ask(ProbeMethod::Tcp(80), SHORT), ProbeResult::Missing(MissingVip::Silent), "{vip}");
                assert_eq!(ask(ProbeMethod::Echo, SHORT), ProbeResult::Missing(MissingVip::Silent), "{vip}");
                put(&one, vip, "lo");
                assert_eq!(ask(ProbeMethod::Tcp(80), PATIENCE), ProbeResult::SetUp { listens: Some(false) }, "{vip}");
                assert_eq!(ask(ProbeMethod::Echo, PATIENCE), ProbeResult::SetUp { listens: None }, "{vip}");
                let listener = one.inside(|| TcpListener::bind((vip, 80)).unwrap());
                assert_eq!(ask(ProbeMethod::Tcp(80), PATIENCE), ProbeResult::SetUp { listens: Some(true) }, "{vip}");
                drop(listener);
                one.run(&format!("ip address del {vip} dev lo"));
                let _ = director
                    .try_run(&format!("ip address add {vip}/{} dev eth0", if vip.is_ipv4() { 32 } else { 128 }));
            }
        }
    });
}

#[test]
fn a_probe_leaves_no_connection_behind() {
    alone(|| {
        let [director, one] = [Machine::new("director", 1), Machine::new("one", 11)];
        for vip in vips() {
            put(&one, vip, "lo");
            put(&director, vip, "eth0");
            let listener = one.inside(|| TcpListener::bind((vip, 80)).unwrap());
            let server = one.address(vip);
            for _ in 0..20 {
                let found = director
                    .inside(|| probe(&ProbeTarget { vip, server, with: ProbeMethod::Tcp(80) }, PATIENCE).unwrap());
                assert!(found.is_set_up());
            }
            let end = Instant::now() + PATIENCE;
            // The last RST is on its way.
            while !one.run("ss -Htan state syn-recv state established").is_empty() {
                assert!(Instant::now() < end, "{}", one.run("ss -tan"));
            }
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "no handshake was complete");
        }
    });
}

#[test]
fn a_server_that_forwards_does_not_answer_with_anothers_address() {
    alone(|| {
        let [director, one, two] = [Machine::new("director", 1), Machine::new("one", 11), Machine::new("two", 12)];
        for vip in vips() {
            one.run("sysctl -qw net.ipv4.ip_forward=1");
            one.run("sysctl -qw net.ipv6.conf.all.forwarding=1");
            put(&two, vip, "eth0");
            let asked = ProbeTarget { vip, server: one.address(vip), with: ProbeMethod::Tcp(80) };
            let found = director.inside(|| probe(&asked, PATIENCE).unwrap());
            assert_eq!(found, ProbeResult::Missing(MissingVip::Forwards), "{vip}");
        }
    });
}

#[test]
fn what_cannot_be_asked_is_said() {
    alone(|| {
        let [director, one] = [Machine::new("director", 1), Machine::new("one", 11)];
        let [vip, vip6] = vips();
        let ask = |vip, server: &str| {
            let asked = ProbeTarget { vip, server: server.parse().unwrap(), with: ProbeMethod::Tcp(80) };
            director.inside(move || probe(&asked, SHORT))
        };
        assert_eq!(ask(vip, "192.0.2.99").unwrap(), ProbeResult::Missing(MissingVip::NoNeighbour));
        assert_eq!(ask(vip, "198.51.100.1").unwrap(), ProbeResult::Missing(MissingVip::NoWay));
        director.run("ip route add default via 192.0.2.11");
        assert_eq!(ask(vip, "198.51.100.1").unwrap(), ProbeResult::Missing(MissingVip::Behind(one.ipv4())));
        assert!(ask(vip6, "192.0.2.11").unwrap_err().to_string().contains("address family"));
        assert_eq!(ask(vip, "192.0.2.1").unwrap(), ProbeResult::Missing(MissingVip::NotHere));
        put(&director, vip, "lo");
        assert!(ask(vip, "192.0.2.1").unwrap().is_set_up());
        let alone = director.inside(|| {
            baton_kernel::process::capabilities::reduce_to(&[]).unwrap();
            who_has("eth0", vip, SHORT).unwrap_err()
        });
        assert!(alone.remedy.contains("CAP_NET_RAW"), "{alone}");
    });
}

fn on_eth0(address: IpAddr) -> Vip {
    Vip { address, interface: "eth0".into(), prefix: if address.is_ipv4() { 32 } else { 128 } }
}

/// Whether another machine has the link's own address is asked meanwhile.
#[track_caller]
fn same_addresses(now: &str, before: &str) {
    assert_eq!(now.replace(" tentative", ""), before.replace(" tentative", ""));
}

#[test]
fn connections_of_the_director_begin_under_its_own_address() {
    alone(|| {
        let [director, server] = [Machine::new("director", 1), Machine::new("server", 0x76)];
        for vip in vips() {
            // The virtual address is nearer to the server's than the director's own.
            director.inside(|| Vips::open("").unwrap().reconcile(&[on_eth0(vip)]).unwrap());
            let to = SocketAddr::new(server.address(vip), 80);
            let from = director.inside(|| {
                let own = if vip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(own).unwrap();
                socket.connect(to).unwrap();
                socket.local_addr().unwrap().ip()
            });
            assert_eq!(from, director.address(vip));
        }
    });
}

#[test]
fn a_director_takes_addresses_and_gives_only_its_own_back() {
    alone(|| {
        let director = Machine::new("director", 1);
        director.inside(|| {
            let wanted: Vec<Vip> = vips().map(on_eth0).to_vec();
            let theirs = on_eth0("192.0.2.8".parse().unwrap());
            link::run("ip address add 192.0.2.8/32 dev eth0");
            let before = link::run("ip address show");
            let report =
                Vips::open("").unwrap().reconcile(&[&wanted[..], std::slice::from_ref(&theirs)].concat()).unwrap();
            assert_eq!((&report.added, &report.foreign), (&wanted, &vec![theirs]));
            assert_eq!(report.faults, []);
            let marked = Routing::open().unwrap().addresses().unwrap();
            assert_eq!(marked.iter().filter(|address| address.protocol == PROTOCOL).count(), 2);
            // Another process, after a crash of the first, and another owner, who has none.
            assert_eq!(Vips::open("other").unwrap().reconcile(&[]).unwrap().removed, []);
            let report = Vips::open("").unwrap().reconcile(&wanted).unwrap();
            assert_eq!((report.added, report.kept.len()), (Vec::new(), 2));
            // Somebody takes one away and puts it there again: it is theirs now.
            link::run("ip address del 192.0.2.7/32 dev eth0");
            link::run("ip address add 192.0.2.7/32 dev eth0");
            assert_eq!(Vips::open("").unwrap().reconcile(&wanted).unwrap().foreign, wanted[..1]);
            assert_eq!(Vips::open("").unwrap().reconcile(&[]).unwrap().removed, wanted[1..]);
            link::run("ip address del 192.0.2.7/32 dev eth0");
            same_addresses(&link::run("ip address show"), &before);
            // The address is there already with another network, by somebody else or by us.
            link::run("ip address add 192.0.2.7/24 dev eth0");
            assert_eq!(Vips::open("").unwrap().reconcile(&wanted[..1]).unwrap().foreign, wanted[..1]);
            link::run("ip address del 192.0.2.7/24 dev eth0");
            assert_eq!(Vips::open("").unwrap().reconcile(&wanted[..1]).unwrap().added, wanted[..1]);
            let wider = Vip { prefix: 24, ..wanted[0].clone() };
            let report = Vips::open("").unwrap().reconcile(std::slice::from_ref(&wider)).unwrap();
            assert_eq!((&report.added[..], &report.removed[..]), (&[wider][..], &wanted[..1]));
            Vips::open("").unwrap().reconcile(&[]).unwrap();
            same_addresses(&link::run("ip address show"), &before);
            let wrong = Vip { interface: "eth9".into(), ..wanted[0].clone() };
            let report = Vips::open("").unwrap().reconcile(&[wrong, wanted[1].clone()]).unwrap();
            assert!(report.faults[0].to_string().contains("eth9"), "{:?}", report.faults);
            assert_eq!(report.added, wanted[1..]);
        });
    });
}

/// What the kernel tells of addresses that come and go.
struct Monitor {
    program: Child,
    told: Receiver<String>,
}

/// How often it is asked whether it listens.
const TELLS_WITHIN: Duration = Duration::from_millis(50);

impl Monitor {
    fn start() -> Monitor {
        let mut program = Command::new("ip").args(["-o", "monitor", "address"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let (sender, told) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let monitor = Monitor { program, told };
        let end = Instant::now() + PATIENCE;
        while monitor.told.recv_timeout(TELLS_WITHIN).is_err() {
            assert!(Instant::now() < end, "ip monitor says nothing");
            link::run("ip address add 198.51.100.9/32 dev lo");
            link::run("ip address del 198.51.100.9/32 dev lo");
        }
        monitor
    }

    /// The addresses that went until now.
    fn gone(mut self) -> Vec<String> {
        link::run("ip address add 198.51.100.10/32 dev lo");
        link::run("ip address del 198.51.100.10/32 dev lo");
        let mut gone = Vec::new();
        loop {
            let line = self.told.recv_timeout(PATIENCE).expect("it tells of the last address");
            match line.contains("198.51.100.10/32") {
                true => break,
                false if line.contains("Deleted") => gone.push(line),
                false => {}
            }
        }
        self.program.kill().unwrap();
        self.program.wait().unwrap();
        gone.retain(|line| !line.contains("198.51.100.9/32"));
        gone
    }
}

#[test]
fn an_address_goes_alone_whatever_else_is_of_its_network() {
    alone(|| {
        let director = Machine::new("director", 1);
        director.inside(|| {
            let of = |last: u8| Vip { address: [10, 1, 0, last].into(), interface: "eth0".into(), prefix: 24 };
            let setting = "net.ipv4.conf.eth0.promote_secondaries";
            for is_on in ["0", "1"] {
                link::run("sysctl -qw net.ipv4.conf.all.promote_secondaries=0");
                link::run(&format!("sysctl -qw {setting}={is_on}"));
                let report = Vips::open("").unwrap().reconcile(&[of(5), of(6)]).unwrap();
                assert_eq!((report.added.len(), report.faults), (2, vec![]));
                // An operator's, later: it hangs on ours.
                link::run("ip address add 10.1.0.99/24 dev eth0 label eth0:ops");
                let monitor = Monitor::start();
                let report = Vips::open("").unwrap().reconcile(&[of(6)]).unwrap();
                assert_eq!((&report.removed[..], &report.kept[..]), (&[of(5)][..], &[of(6)][..]));
                let gone = monitor.gone();
                assert!(gone.len() == 1 && gone[0].contains("10.1.0.5/24"), "{gone:?}");
                assert_eq!(link::run(&format!("sysctl -n {setting}")).trim(), is_on, "as it was");
                let left = link::run("ip -4 address show dev eth0");
                assert!(left.contains("10.1.0.99/24") && left.contains("eth0:ops"), "{left}");
                assert_eq!(Vips::open("").unwrap().reconcile(&[]).unwrap().removed, [of(6)]);
                let left = link::run("ip -4 address show dev eth0");
                assert!(left.contains("10.1.0.99/24") && !left.contains("10.1.0.6"), "{left}");
                link::run("ip address del 10.1.0.99/24 dev eth0");
            }
        });
    });
}

#[test]
fn an_announcement_moves_an_address_that_neighbours_know() {
    alone(|| {
        let [client, old, new] = [Machine::new("client", 1), Machine::new("old", 11), Machine::new("new", 12)];
        for vip in vips() {
            put(&old, vip, "eth0");
            let known = || {
                client.inside(|| {
                    let mut routing = Routing::open().unwrap();
                    let eth0 = routing.link("eth0").unwrap().index;
                    routing.neighbour(eth0, vip).unwrap().and_then(|known| known.mac)
                })
            };
            client.inside(|| {
                let mut routing = Routing::open().unwrap();
                let eth0 = routing.link("eth0").unwrap().index;
                routing.resolve_neighbour(eth0, vip).unwrap();
            });
            let end = Instant::now() + PATIENCE;
            while known() != Some(old.mac()) {
                assert!(Instant::now() < end, "{vip} was not resolved");
            }
            old.run(&format!("ip address del {vip} dev eth0"));
            new.inside(|| Vips::open("").unwrap().reconcile(&[on_eth0(vip)]).unwrap());
            // A neighbour believes one announcement a second; another is ignored (`locktime`).
            let end = Instant::now() + PATIENCE;
            while known() != Some(new.mac()) {
                assert!(Instant::now() < end, "{vip} did not move");
                assert_eq!(new.inside(|| announce(&[on_eth0(vip)])), []);
            }
        }
    });
}

/// Sends frames as fast as it can until it is told to end.
fn flood(machine: Machine, frames: Vec<Vec<u8>>, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let socket = machine.inside(|| {
        let eth0 = Routing::open().unwrap().link("eth0").unwrap().index;
        PacketSocket::open(eth0, EtherType::Arp, &FrameFilter::new()).unwrap()
    });
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            for frame in &frames {
                let _ = socket.send(frame);
            }
        }
    })
}

#[test]
fn a_flood_of_lies_and_rubbish_ends_with_the_time() {
    alone(|| {
        let [director, liar] = [Machine::new("director", 1), Machine::new("liar", 66)];
        let [vip, _] = vips();
        let IpAddr::V4(vip4) = vip else { unreachable!() };
        let arp = |length: usize, operation: u8, mac: [u8; 6]| {
            let mut frame =
                [&[0xff; 6][..], &[2, 0, 0, 0, 0, 66], &[8, 6], &[0, 1, 8, 0, 6, 4, 0, operation], &mac].concat();
            frame.extend(vip4.octets());
            frame.extend([0; 10]);
            frame.resize(length, 0);
            frame
        };
        // Cut off, of no known operation, from a group's address; and one that is a lie but whole.
        let mac = [2, 0, 0, 0, 0, 66];
        let frames = vec![arp(36, 1, mac), arp(60, 9, mac), arp(60, 2, [0xff; 6]), arp(60, 2, [0; 6]), arp(60, 2, mac)];
        let stop = Arc::new(AtomicBool::new(false));
        let flood = flood(liar, frames, stop.clone());
        let answers = director.inside(|| who_has("eth0", vip, SHORT));
        let asked = ProbeTarget { vip, server: liar.ipv4(), with: ProbeMethod::Tcp(80) };
        let found = director.inside(|| probe(&asked, SHORT));
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        assert_eq!(answers.unwrap(), ["02:00:00:00:00:42".parse().unwrap()]);
        assert_eq!(found.unwrap(), ProbeResult::Missing(MissingVip::Silent));
    });
}
