//! A real server that is set up and taken down, between network namespaces: who answers ARP, where packets arrive, and that all is
//! as before afterwards.

#[path = "../../baton/tests/support/lab/mod.rs"]
mod lab;
mod link;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use baton_direct::probe::{Asked as Probed, Found, With, probe};
use baton_direct::real_server::check::{self, Answerer, Finding, Grade, Outside};
use baton_direct::real_server::{Asked, Method, Report, Tunnels, down, up};
use baton_direct::vip::{Vip, Vips, announce};
use baton_direct::who_has::who_has;
use baton_direct::{Destination, Director, Forwarding, Key, Protocol, Scheduler, Service, Settings};
use baton_kernel::packet::{EtherType, Filter, PacketSocket};
use baton_kernel::route::Routing;
use link::{Machine, alone, vips};

/// How long an answer may take that is expected; nothing waits for so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long is waited where nobody is to answer.
const SHORT: Duration = Duration::from_millis(150);

fn asked(vips: &[IpAddr], method: Method) -> Asked {
    Asked { vips: vips.to_vec(), method, ..Asked::default() }
}

fn set_up(machine: &Machine, asked: &Asked) -> Report {
    machine.inside(|| up(asked, false)).unwrap_or_else(|fault| panic!("{fault}"))
}

fn take_down(machine: &Machine, vips: &[IpAddr]) -> Report {
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

/// A request to the virtual address on this machine, from a client that was told where it is, and nothing that teaches the client
/// otherwise.
fn is_served_quietly(client: &Machine, server: &Machine, vip: IpAddr) {
    let listener = server.inside(|| TcpListener::bind((vip, 80)).unwrap());
    let family = if vip.is_ipv4() { "-4" } else { "-6" };
    client.run(&format!("ip {family} neighbour replace {vip} lladdr {} dev eth0 nud permanent", server.mac()));
    // The real server has to ask for the client's hardware address itself, with a packet from the virtual address.
    server.run("ip neighbour flush dev eth0");
    let heard = client.inside(|| {
        let eth0 = Routing::open().unwrap().link("eth0").unwrap().index;
        PacketSocket::open(eth0, EtherType::Arp, &Filter::new()).unwrap()
    });
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    client.inside(|| {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::new(vip, 80), PATIENCE).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    });
    echo.join().unwrap();
    let mut asked = 0;
    while let Some(frame) = heard.receive(Instant::now()).unwrap() {
        if let (IpAddr::V4(vip), Some(sender)) = (vip, frame.get(28..32)) {
            assert_ne!(sender, vip.octets(), "the virtual address went out in ARP");
            asked += 1;
        }
    }
    assert!(asked > 0 || vip.is_ipv6(), "the server asked for the client");
    client.run(&format!("ip {family} neighbour del {vip} dev eth0"));
}

#[test]
fn both_methods_keep_quiet_and_leave_no_trace() {
    alone(|| {
        let [client, server] = [Machine::new("client", 1), Machine::new("server", 11)];
        server.run("nft add table inet theirs");
        server.run("nft add chain inet theirs in { type filter hook input priority 0 ; }");
        server.run("nft add table arp others");
        let before = all_of(&server);
        for method in [Method::Sysctl, Method::Filter, Method::Auto] {
            let report = set_up(&server, &asked(&vips(), method));
            assert!(report.steps.iter().any(|step| step == "put 192.0.2.7/32 on lo"), "{report:?}");
            assert_eq!(report.remarks, [""; 0]);
            for vip in vips() {
                assert!(client.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty(), "{method} {vip}");
                let own = client.inside(|| who_has("eth0", server.address(vip), SHORT).unwrap());
                assert_eq!(own, [server.mac()], "its own address is answered for");
                let probed = Probed { vip, server: server.address(vip), with: With::Tcp(80) };
                assert!(client.inside(|| probe(&probed, PATIENCE).unwrap()).is_set_up(), "{method} {vip}");
                is_served_quietly(&client, &server, vip);
            }
            assert!(
                server.run("nft list ruleset").contains("table arp baton-real-server") == (method == Method::Filter)
            );
            // Once more, by another process, changes nothing.
            assert_eq!(set_up(&server, &asked(&vips(), method)), Report::default(), "{method}");
            assert_eq!(set_up(&server, &asked(&vips(), Method::Auto)), Report::default(), "what was chosen stays");
            take_down(&server, &vips());
            same(&all_of(&server), &before);
            assert!(take_down(&server, &[]).steps.is_empty());
        }
    });
}

#[test]
fn an_address_on_lo_alone_is_found_wrong_and_put_right() {
    alone(|| {
        let [client, server] = [Machine::new("client", 1), Machine::new("server", 11)];
        let [vip, vip6] = vips();
        let look = || server.inside(|| check::here(&[vip, vip6], &[], &[80]).unwrap());
        let wrong = |findings: &[Finding]| -> Vec<String> {
            let wrong = findings.iter().filter(|finding| finding.grade == Grade::Wrong);
            wrong.map(|finding| format!("{} | {}", finding.what, finding.remedy)).collect()
        };
        let found = wrong(&look());
        assert!(found[0].starts_with(
            "192.0.2.7 is not on lo: packets for it are dropped here | baton real-server up --vip 192.0.2.7"
        ));
        assert!(found.iter().any(|found| found.contains("arp_ignore is 0 on eth0")), "{found:#?}");
        assert!(found.iter().any(|found| found.contains("arp_announce is 0 on eth0")), "{found:#?}");
        assert!(found.iter().any(|found| found.contains("nobody listens on port 80")), "{found:#?}");
        assert!(found.iter().any(|found| found.contains("2001:db8::77 is not on lo")), "{found:#?}");

        server.run("ip address add 192.0.2.7/24 dev lo");
        server.run("ip address add 2001:db8::77/64 dev eth0 nodad");
        let found = wrong(&look());
        assert!(
            found.iter().any(
                |found| found.contains("is on lo with /24") && found.contains("ip address del 192.0.2.7/24 dev lo")
            )
        );
        assert!(
            found.iter().any(|found| found.contains("2001:db8::77 is on eth0, where this machine answers")),
            "{found:#?}"
        );
        server.run("ip address del 192.0.2.7/24 dev lo");
        server.run("ip address del 2001:db8::77/64 dev eth0");
        let managed = Vip { address: vip, interface: "eth0".into(), prefix: 32 };
        server.inside(|| Vips::open("").unwrap().reconcile(&[managed]).unwrap());
        let found = wrong(&look());
        assert!(found[0].contains("put there by `manage-vip`") && !found[0].contains("address del"), "{found:#?}");
        server.inside(|| Vips::open("").unwrap().reconcile(&[]).unwrap());

        let own = server.inside(|| TcpListener::bind((server.ipv4(), 80)).unwrap());
        set_up(&server, &asked(&[vip, vip6], Method::Auto));
        let found = wrong(&look());
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].contains("nobody listens on 192.0.2.7 port 80, but on 192.0.2.11:80"), "{found:#?}");
        drop(own);
        let _all = server.inside(|| TcpListener::bind("[::]:80").unwrap());
        assert_eq!(wrong(&look()), [""; 0]);
        assert!(client.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty());

        set_up(&server, &asked(&[vip], Method::Filter));
        assert_eq!(wrong(&look()), [""; 0]);
        server.run("nft flush ruleset");
        let found = wrong(&look());
        assert!(found[0].contains("table arp baton-real-server of nftables is gone"), "{found:#?}");
        let report = set_up(&server, &asked(&[vip], Method::Filter));
        assert_eq!(report.steps.len(), 1, "{report:?}");
        assert_eq!(wrong(&look()), [""; 0]);
    });
}

#[test]
fn from_outside_who_answers_is_named() {
    alone(|| {
        let [director, one, two] = [Machine::new("director", 1), Machine::new("one", 11), Machine::new("two", 12)];
        let [vip, _] = vips();
        director.run("ip address add 192.0.2.7/32 dev eth0");
        let look = |from: &Machine, director: Option<Answerer>, servers: Vec<IpAddr>, within| {
            let vips = vec![vip];
            let asked = Outside { vips, interface: "eth0".into(), director, servers, ports: vec![80], within };
            from.inside(|| check::outside(&asked).unwrap())
        };
        let told = |findings: &[Finding]| -> Vec<String> { findings.iter().map(ToString::to_string).collect() };
        assert_eq!(told(&look(&director, None, vec![], SHORT)), ["ok: nobody else answers for 192.0.2.7"]);
        let known = Some(Answerer::Address(director.ipv4()));
        assert_eq!(told(&look(&two, known, vec![], SHORT)), ["ok: the director alone answers for 192.0.2.7"]);
        let found = told(&look(&two, None, vec![], SHORT));
        assert!(found[0].starts_with(&format!("note: {}", director.mac())), "{found:?}");

        // A real server that nobody made quiet. That it is known by name takes a neighbour entry.
        one.run("ip address add 192.0.2.7/32 dev lo");
        director.inside(|| who_has("eth0", one.ipv4(), SHORT).unwrap());
        let eth0 = director.inside(|| Routing::open().unwrap().link("eth0").unwrap().index);
        director.inside(|| Routing::open().unwrap().resolve_neighbour(eth0, one.ipv4()).unwrap());
        let end = Instant::now() + PATIENCE;
        let is_known = || director.inside(|| Routing::open().unwrap().neighbour(eth0, one.ipv4()).unwrap());
        while is_known().and_then(|known| known.usable()).is_none() {
            assert!(Instant::now() < end);
        }
        let found = told(&look(&director, None, vec![one.ipv4(), two.ipv4()], SHORT));
        assert!(
            found[0].starts_with(&format!("WRONG: {} (192.0.2.11) answers for 192.0.2.7", one.mac())),
            "{found:#?}"
        );
        assert!(found[1].contains("nobody listens on its port"), "{found:#?}");
        assert!(
            found[2].contains("192.0.2.7 port 80 on 192.0.2.12: nobody answers for the virtual address there"),
            "{found:#?}"
        );
        let found = told(&look(&two, Some(Answerer::Mac(director.mac())), vec![], SHORT));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&one.mac().to_string()), "{found:?}");
    });
}

#[test]
fn what_others_want_is_respected() {
    alone(|| {
        let server = Machine::new("server", 11);
        let [vip, other] = ["192.0.2.7".parse().unwrap(), "192.0.2.8".parse().unwrap()];
        // Somebody is stricter already, and has the address on lo.
        server.run("sysctl -qw net.ipv4.conf.all.arp_ignore=2");
        server.run("ip address add 192.0.2.8/32 dev lo");
        let before = all_of(&server);
        let report = set_up(&server, &asked(&[vip, other], Method::Auto));
        assert_eq!(report.steps, ["set net.ipv4.conf.all.arp_announce to 2 (it is 0)", "put 192.0.2.7/32 on lo"]);
        // The last one to go takes the settings with it.
        assert_eq!(take_down(&server, &[vip]).steps, ["take away 192.0.2.7/32 on lo"]);
        let report = take_down(&server, &[other]);
        assert_eq!(report.steps, ["put net.ipv4.conf.all.arp_announce back to 0"]);
        assert!(report.remarks[0].contains("192.0.2.8 was on lo before: it stays there"), "{report:?}");
        same(&all_of(&server), &before);
        let report = take_down(&server, &[other]);
        assert!(report.remarks[0].contains("was not put there by this program: it stays"), "{report:?}");

        // Somebody sets it while it is up.
        set_up(&server, &asked(&[vip], Method::Auto));
        server.run("sysctl -qw net.ipv4.conf.all.arp_announce=1");
        let report = take_down(&server, &[vip]);
        assert!(
            report.remarks[0].contains("arp_announce is 1 by now, which somebody else has set: it stays"),
            "{report:?}"
        );
        assert!(server.run("sysctl net.ipv4.conf.all.arp_announce").contains("= 1"));

        // A value under which settings cannot do it.
        server.run("sysctl -qw net.ipv4.conf.eth0.arp_ignore=3");
        let fault = server.inside(|| up(&asked(&[vip], Method::Sysctl), false).unwrap_err());
        assert!(fault.to_string().contains("net.ipv4.conf.eth0.arp_ignore is 3"), "{fault}");
        assert!(fault.remedy.contains("--method filter"), "{fault}");
        let report = set_up(&server, &asked(&[vip], Method::Auto));
        assert!(report.steps[0].contains("table arp baton-real-server"), "{report:?}");
        assert!(report.steps[0].contains("under 192.0.2.11 on eth0"), "{report:?}");
    });
}

#[test]
fn interfaces_are_chosen_and_methods_changed() {
    alone(|| {
        let [client, server] = [Machine::new("client", 1), Machine::new("server", 11)];
        let [vip, other]: [IpAddr; 2] = ["192.0.2.7".parse().unwrap(), "192.0.2.8".parse().unwrap()];
        let before = all_of(&server);
        let on_eth0 = |vip, method| Asked { interfaces: vec!["eth0".into()], ..asked(&[vip], method) };
        let quiet = |vip| assert!(client.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty());
        set_up(&server, &on_eth0(vip, Method::Sysctl));
        assert!(server.run("sysctl net.ipv4.conf.eth0.arp_ignore").contains("= 1"));
        assert!(server.run("sysctl net.ipv4.conf.all.arp_ignore").contains("= 0"));
        quiet(vip);
        // One that leans on `all` while it is there must not fall with it.
        set_up(&server, &asked(&[other], Method::Sysctl));
        take_down(&server, &[vip]);
        set_up(&server, &on_eth0(vip, Method::Sysctl));
        take_down(&server, &[other]);
        quiet(vip);
        set_up(&server, &on_eth0(vip, Method::Filter));
        assert!(server.run("sysctl net.ipv4.conf.eth0.arp_ignore").contains("= 0"));
        quiet(vip);
        set_up(&server, &asked(&[other], Method::Filter));
        quiet(other);
        take_down(&server, &[vip]);
        quiet(other);
        take_down(&server, &[]);
        same(&all_of(&server), &before);
        let fault =
            server.inside(|| up(&Asked { interfaces: vec!["eth7".into()], ..asked(&[vip], Method::Auto) }, false));
        assert!(fault.unwrap_err().to_string().contains("interface eth7: there is no such interface"));
        for wrong in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "fe80::1", "255.255.255.255", "::"] {
            let fault = server.inside(|| up(&asked(&[wrong.parse().unwrap()], Method::Auto), false).unwrap_err());
            assert!(fault.to_string().contains(wrong), "{fault}");
        }
    });
}

#[test]
fn addresses_that_are_no_virtual_ones_are_refused() {
    alone(|| {
        let server = Machine::new("server", 11);
        let before = all_of(&server);
        let refused = |vip: &str, tunnel| {
            let wanted = Asked { tunnel, ..asked(&[vip.parse().unwrap()], Method::Auto) };
            server.inside(|| up(&wanted, false).unwrap_err().to_string())
        };
        for (vip, tunnel, said) in [
            ("192.0.2.11", None, "this machine has it on eth0"),
            ("::ffff:192.0.2.7", None, "write 192.0.2.7"),
            ("2001:db8::77", Some(Tunnels::Ipip), "IPv4 only"),
            ("224.0.0.1", None, "no address that clients could ask for"),
            ("ff02::1", None, "no address that clients could ask for"),
            ("0.0.0.0", None, "no address that clients could ask for"),
            ("::1", None, "no address that clients could ask for"),
            ("127.0.0.1", None, "no address that clients could ask for"),
        ] {
            let fault = refused(vip, tunnel);
            assert!(fault.contains(said) && fault.contains(&format!("virtual address {vip}")), "{fault}");
        }
        same(&all_of(&server), &before);
    });
}

#[test]
fn nothing_is_half_done() {
    alone(|| {
        let server = Machine::new("server", 11);
        let before = all_of(&server);
        let report = server.inside(|| up(&asked(&vips(), Method::Auto), true).unwrap());
        assert_eq!(
            report.steps,
            [
                "set net.ipv4.conf.all.arp_announce to 2 (it is 0)",
                "set net.ipv4.conf.all.arp_ignore to 1 (it is 0)",
                "put 192.0.2.7/32 on lo",
                "put 2001:db8::77/128 on lo"
            ]
        );
        same(&all_of(&server), &before);
        // Settings can be written by root without a capability, and addresses cannot.
        let fault = server.inside(|| {
            baton_kernel::process::capabilities::reduce_to(&[]).unwrap();
            up(&asked(&vips(), Method::Sysctl), false).unwrap_err()
        });
        assert!(fault.remedy.contains("CAP_NET_ADMIN"), "{fault}");
        same(&all_of(&server), &before);
        let fault = server.inside(|| {
            baton_kernel::process::capabilities::reduce_to(&[]).unwrap();
            up(&asked(&vips(), Method::Filter), false).unwrap_err()
        });
        assert!(fault.to_string().contains("CAP_NET_ADMIN"), "{fault}");
        same(&all_of(&server), &before);
        assert_eq!(take_down(&server, &[]), Report::default());
    });
}

#[test]
fn a_unit_sets_it_up_at_the_next_boot() {
    if !fs::exists("/etc/systemd/system").unwrap() {
        return eprintln!("SKIPPED: no folder for units of systemd here");
    }
    alone(|| {
        link::run("mount -t tmpfs tmpfs /etc/systemd/system");
        let server = Machine::new("server", 11);
        let persistent = |method| Asked { is_persistent: true, ..asked(&vips(), method) };
        set_up(&server, &persistent(Method::Filter));
        for vip in vips() {
            let name = format!("baton-real-server@{}.service", vip.to_string().replace(':', "-"));
            let unit = format!("/etc/systemd/system/{name}");
            let wanted = format!("/etc/systemd/system/multi-user.target.wants/{name}");
            assert_eq!(fs::read_to_string(&unit).unwrap(), fs::read_to_string(wanted).unwrap());
            let text = fs::read_to_string(&unit).unwrap();
            assert!(text.contains(&format!("real-server up --vip {vip}")), "{text}");
            assert_eq!(text.contains("--method filter"), vip.is_ipv4());
            let verified = link::try_run(&format!("systemd-analyze verify --man=no {unit}"));
            let said = String::from_utf8_lossy(&verified.stderr).into_owned();
            assert!(verified.status.success() && !said.contains("baton-real-server"), "{said}");
        }
        assert_eq!(set_up(&server, &persistent(Method::Filter)), Report::default());
        // What the unit itself does when the machine goes down leaves the unit.
        server.inside(|| down(&vips(), true, false)).unwrap();
        assert_eq!(fs::read_dir("/etc/systemd/system").unwrap().count(), 3);
        // After the next boot nothing is remembered, and `down` removes it all the same.
        let report = take_down(&server, &vips());
        assert_eq!(report.steps.len(), 2, "{report:?}");
        assert_eq!(fs::read_dir("/etc/systemd/system/multi-user.target.wants").unwrap().count(), 0);
        fs::write("/etc/systemd/system/baton-real-server@192.0.2.7.service", "[Unit]\n").unwrap();
        let fault = server.inside(|| up(&persistent(Method::Auto), false).unwrap_err());
        assert!(fault.to_string().contains("was not made by this program"), "{fault}");
        take_down(&server, &vips());
        assert!(fs::exists("/etc/systemd/system/baton-real-server@192.0.2.7.service").unwrap());
    });
}

/// `up` in a program of its own, so that it can be killed: this test program, asked for the test below.
const KILLED: &str = "BATON_TEST_REAL_SERVER";

#[test]
fn up_for_a_test_that_kills_it() {
    if let Some(method) = std::env::var_os(KILLED) {
        up(&asked(&vips(), method.to_str().unwrap().parse().unwrap()), false).unwrap();
    }
}

#[test]
fn whenever_it_is_killed_down_puts_all_back() {
    alone(|| {
        let server = Machine::new("server", 11);
        server.run("nft add table inet theirs");
        let before = all_of(&server);
        let this = std::env::current_exe().unwrap();
        let mut ends = Vec::new();
        for method in ["sysctl", "filter"] {
            for turn in 0..40 {
                let mut command = std::process::Command::new("ip");
                command
                    .args(["netns", "exec", server.name])
                    .arg(&this)
                    .args(["--exact", "up_for_a_test_that_kills_it"]);
                command.env(KILLED, method).stdout(std::process::Stdio::null());
                let mut child = command.spawn().unwrap();
                // Its first trace, and then a little more each time.
                let folder = std::path::Path::new("/run/baton-real-server");
                while !folder.exists() && child.try_wait().unwrap().is_none() {
                    std::hint::spin_loop();
                }
                let more = Instant::now() + Duration::from_micros(turn * 150);
                while Instant::now() < more {
                    std::hint::spin_loop();
                }
                child.kill().unwrap();
                child.wait().unwrap();
                let steps = take_down(&server, &[]).steps.len();
                ends.push(steps);
                same(&all_of(&server), &before);
                let left: Vec<_> = fs::read_dir(folder)
                    .into_iter()
                    .flatten()
                    .flat_map(|place| fs::read_dir(place.unwrap().path()).unwrap())
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .filter(|name| name.ends_with(".json"))
                    .collect();
                assert_eq!(left, [""; 0], "{method} after {turn}");
                let _ = fs::remove_dir_all(folder);
            }
        }
        ends.sort_unstable();
        ends.dedup();
        eprintln!("killed so that {ends:?} steps were left to undo");
    });
}

#[test]
fn packets_come_out_of_a_tunnel() {
    // The kernel of the lab has tunnels as a module.
    lab::inside(|| {
        alone(|| {
            let [director, server] = [Machine::new("director", 1), Machine::new("server", 11)];
            let vip: IpAddr = "192.0.2.7".parse().unwrap();
            // Strict, so that what comes out of a tunnel would be dropped.
            server.run("sysctl -qw net.ipv4.conf.all.rp_filter=1");
            let wanted = Asked { tunnel: Some(Tunnels::Ipip), ..asked(&[vip], Method::Sysctl) };
            let report = set_up(&server, &wanted);
            assert_eq!(report.steps[0], "set interface tunl0 up", "{report:?}");
            assert_eq!(set_up(&server, &wanted), Report::default());
            let look = || server.inside(|| check::here(&[vip], &[], &[]).unwrap());
            assert!(look().iter().all(|finding| finding.grade != Grade::Wrong), "{:#?}", look());
            director.run("ip link add out type ipip local 192.0.2.1 remote 192.0.2.11");
            director.run("ip link set out up");
            director.run("ip route add 192.0.2.7/32 dev out src 192.0.2.1");
            let listener = server.inside(|| TcpListener::bind((vip, 80)).unwrap());
            let stream = director.inside(|| TcpStream::connect_timeout(&SocketAddr::new(vip, 80), PATIENCE).unwrap());
            assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
            server.run("ip link set tunl0 down");
            assert!(look().iter().any(|finding| finding.what == "interface tunl0 is down"), "{:#?}", look());
            set_up(&server, &wanted);
            let report = take_down(&server, &[vip]);
            assert!(report.steps.contains(&"set interface tunl0 down".into()), "{report:?}");
            assert!(server.run("sysctl net.ipv4.conf.tunl0.rp_filter").contains("= 0"));
        });
    });
}

/// Everything at once: a director that takes the address and announces it, two real servers that keep quiet, and a client.
#[test]
fn clients_are_served_by_real_servers_through_a_director() {
    // The kernel of the lab has IPVS.
    lab::inside(|| {
        alone(|| {
            let [client, director] = [Machine::new("client", 2), Machine::new("director", 1)];
            let servers = [Machine::new("one", 11), Machine::new("two", 12)];
            for vip in vips() {
                let key = Key::Address { protocol: Protocol::Tcp, address: SocketAddr::new(vip, 80) };
                let destination = |server: &Machine| Destination {
                    address: SocketAddr::new(server.address(vip), 80),
                    forwarding: Forwarding::Direct,
                    weight: 1,
                    upper: 0,
                    lower: 0,
                };
                let service = Service {
                    key,
                    scheduler: Scheduler::RoundRobin,
                    hash_port: false,
                    fallback: false,
                    persistence: None,
                    one_packet: false,
                    destinations: servers.iter().map(destination).collect(),
                };
                director.inside(|| {
                    let prefix = if vip.is_ipv4() { 32 } else { 128 };
                    let wanted = Vip { address: vip, interface: "eth0".into(), prefix };
                    let report = Vips::open("").unwrap().reconcile(std::slice::from_ref(&wanted)).unwrap();
                    assert_eq!(announce(&report.added), []);
                    let mut director = Director::open(baton_direct::Asked::Ipvs, &Settings::default()).unwrap();
                    let report = director.reconcile(&[service]).unwrap();
                    assert!(report.failed.is_empty(), "{report:?}");
                });
                let listeners = servers.map(|server| {
                    set_up(&server, &asked(&[vip], Method::Sysctl));
                    let probed = Probed { vip, server: server.address(vip), with: With::Tcp(80) };
                    let ask = || director.inside(|| probe(&probed, PATIENCE).unwrap());
                    assert_eq!(ask(), Found::SetUp { listens: Some(false) });
                    let listener = server.inside(|| TcpListener::bind((vip, 80)).unwrap());
                    assert_eq!(ask(), Found::SetUp { listens: Some(true) });
                    listener
                });
                assert!(director.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty());
                assert_eq!(client.inside(|| who_has("eth0", vip, SHORT).unwrap()), [director.mac()]);
                // In turn, each gets its connections.
                for _ in 0..4 {
                    let connect = || TcpStream::connect_timeout(&SocketAddr::new(vip, 80), PATIENCE).unwrap();
                    let streams = client.inside(|| [connect(), connect()]);
                    for listener in &listeners {
                        let (_, peer) = listener.accept().unwrap();
                        assert!(streams.iter().any(|stream| stream.local_addr().unwrap() == peer), "{peer}");
                    }
                }
                take_down(&servers[1], &[vip]);
                let probed = Probed { vip, server: servers[1].address(vip), with: With::Tcp(80) };
                let found = director.inside(|| probe(&probed, Duration::from_secs(1)).unwrap());
                assert!(!found.is_set_up(), "{found}");
            }
        });
    });
}
