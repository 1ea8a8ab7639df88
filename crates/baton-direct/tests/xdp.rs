//! The engine xdp on links: a client, directors and real servers with the virtual addresses on `lo`, on one bridge.
#![cfg(feature = "bpf")]

mod flows;
mod link;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use baton_direct::xdp::XdpHook;
use baton_direct::{
    Destination, Director, DirectorReport, DirectorSettings, EngineChoice, OnExit, Protocol, Service, ServiceKey,
};
use baton_kernel::bpf::direct::{self, Direct};
use baton_kernel::route::Routing;
use flows::{Held, PATIENCE, all_go_on, ask, hold, lab, machine, new_director, on, pass};
use link::{Machine, run, vips, web};

/// Lets the test program be the agent of another process.
const AGENT: &str = "BATON_XDP_TEST_AGENT";
/// And one that gives up root, in this folder.
const JAIL: &str = "BATON_XDP_TEST_JAIL";
const JAILED_SERVICES: &str = "BATON_XDP_TEST_JAILED";
const NOBODY: u32 = 65_534;

fn service(vip: IpAddr, servers: &[(&Machine, u32)]) -> Service {
    web(vip, servers.iter().map(|(machine, weight)| (machine.address(vip), *weight)))
}

/// The services of both families.
fn services(servers: &[(&Machine, u32)]) -> Vec<Service> {
    vips().into_iter().map(|vip| service(vip, servers)).collect()
}

fn open() -> Director {
    Director::open(EngineChoice::Xdp, &settings("eth0", XdpHook::Driver)).unwrap()
}

fn settings(interface: &str, place: XdpHook) -> DirectorSettings {
    let mut settings = DirectorSettings::default();
    settings.xdp.interfaces = vec![interface.into()];
    settings.xdp.connections = Some(10_000);
    settings.xdp.place = place;
    settings
}

#[track_caller]
fn reconciled(director: &mut Director, services: &[Service]) -> DirectorReport {
    let report = director.reconcile(services).unwrap();
    assert!(report.failed.is_empty() && report.refused.is_empty(), "{report:?}");
    report
}

/// Sets it up, once, as a process does that ends right after.
#[track_caller]
fn set_up(machine: &Machine, services: &[Service]) {
    machine.inside(|| {
        let mut director = open();
        reconciled(&mut director, services);
        assert!(director.plan(services).unwrap().is_empty(), "nothing is left to do");
    });
}

/// An agent in a process of its own, which has set everything up.
fn agent(machine: &Machine, services: &[Service]) -> Child {
    let mut agent = machine.inside(|| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "the_agent_of_another_process", "--nocapture"]);
        command.env(AGENT, serde_json::to_string(services).unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    });
    let mut lines = BufReader::new(agent.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("set up"))), "the agent did not set it up");
    agent
}

#[test]
fn the_agent_of_another_process() {
    let Ok(services) = env::var(AGENT) else { return };
    let services: Vec<Service> = serde_json::from_str(&services).unwrap();
    let mut director = open();
    reconciled(&mut director, &services);
    println!("\nset up");
    // Until the other end is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

/// In a process of its own, because a user belongs to a whole one.
#[test]
fn the_agent_that_gives_up_root() {
    let Ok(jail) = env::var(JAIL) else { return };
    let mut services: Vec<Service> = serde_json::from_str(&env::var(JAILED_SERVICES).unwrap()).unwrap();
    // Nobody names an interface: it is found when services come, and that is later.
    let mut director = Director::open(EngineChoice::Xdp, &DirectorSettings::default()).unwrap();
    director.give_to(NOBODY, NOBODY).unwrap();
    nix::unistd::chroot(jail.as_str()).unwrap();
    env::set_current_dir("/").unwrap();
    nix::sys::prctl::set_keepcaps(true).unwrap();
    nix::unistd::setgid(NOBODY.into()).unwrap();
    nix::unistd::setuid(NOBODY.into()).unwrap();
    let kept = [caps::Capability::CAP_NET_ADMIN].into_iter().collect();
    caps::set(None, caps::CapSet::Effective, &kept).unwrap();

    reconciled(&mut director, &services);
    services[0].destinations.pop();
    services[1].destinations[0].weight = 7;
    reconciled(&mut director, &services);
    assert!(director.plan(&services).unwrap().is_empty());
    assert!(director.refresh().unwrap().is_empty());
    assert_eq!(director.figures().unwrap().len(), 2);
    // Nothing is asked for, and then it is again.
    let mut lines = std::io::stdin().lines();
    for _ in 0..2 {
        println!("\nset up");
        assert!(lines.next().is_some());
        assert!(director.pause().unwrap().failed.is_empty());
        println!("\npaused");
        assert!(lines.next().is_some());
        reconciled(&mut director, &services);
        assert!(director.plan(&services).unwrap().is_empty() && director.refresh().unwrap().is_empty());
    }
    println!("\nset up");
    let _ = lines.next();
    assert!(director.leave(OnExit::Flush).unwrap().failed.is_empty());
}

#[test]
fn without_root_and_in_a_jail_it_goes_on() {
    lab(2, |lab| {
        let jail = tempfile::tempdir().unwrap();
        let services = services(&[(&lab.servers[0], 1), (&lab.servers[1], 1)]);
        let mut agent = lab.director.inside(|| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", "the_agent_that_gives_up_root", "--nocapture"]);
            command.env(JAIL, jail.path()).env(JAILED_SERVICES, serde_json::to_string(&services).unwrap());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        });
        let mut lines = BufReader::new(agent.stdout.take().unwrap()).lines();
        let mut says = |what: &str| {
            let is_it = |line: std::io::Result<String>| line.is_ok_and(|line| line.ends_with(what));
            assert!(lines.any(is_it), "it does not come to: {what}");
        };
        let mut orders = agent.stdin.take().unwrap();
        let files = || lab.director.inside(|| fs::read_dir(direct::folder().unwrap()).map_or(0, |files| files.count()));
        for _ in 0..2 {
            says("set up");
            let answers = ask(&lab.client, vips()[0], 10);
            assert_eq!(answers, BTreeMap::from([("one".to_owned(), 10)]));
            assert_eq!(ask(&lab.client, vips()[1], 10).values().sum::<usize>(), 10);
            orders.write_all(b"\n").unwrap();
            says("paused");
            assert_eq!(files(), 0, "nothing of it is there");
            let refused = ask(&lab.client, vips()[0], 1);
            assert!(refused.keys().all(|answer| answer.contains("connect to server")), "{refused:?}");
            orders.write_all(b"\n").unwrap();
        }
        says("set up");
        assert_eq!(ask(&lab.client, vips()[1], 10).values().sum::<usize>(), 10);
        drop(orders);
        assert!(agent.wait().unwrap().success());
        assert_eq!(files(), 0, "nothing of it is there");
    });
}

#[test]
fn downloads_are_balanced_by_weight() {
    lab(3, |lab| {
        let [one, two, three] = [0, 1, 2].map(|at| &lab.servers[at]);
        set_up(&lab.director, &services(&[(one, 1), (two, 1), (three, 2)]));
        for vip in vips() {
            let answers = ask(&lab.client, vip, 60);
            assert!(answers.values().sum::<usize>() == 60 && answers.len() == 3, "{answers:?}");
            assert!(answers["three"] > 15, "{answers:?}");
        }
        lab.director.inside(|| {
            let mut director = open();
            for service in director.figures().unwrap() {
                let of_servers: u64 = service.destinations.iter().map(|server| server.counters.connections).sum();
                assert_eq!((service.counters.connections, of_servers), (60, 60));
                assert!(service.counters.packets_in > 240 && service.counters.bytes_in > 240 * 40);
            }
            assert!(director.manner().starts_with("on eth0 (in its driver, as configured)"), "{}", director.manner());
            assert_eq!(director.refresh().unwrap(), Vec::<String>::new());
            assert!(director.leave(OnExit::Flush).unwrap().failed.is_empty());
            assert!(!direct::folder().unwrap().exists());
        });
        let answers = ask(&lab.client, vips()[0], 1);
        assert!(
            answers.keys().all(|answer| answer.contains("connect to server")),
            "the stack answers again: {answers:?}"
        );
        let link = lab.director.run("ip link show dev eth0");
        assert!(!link.contains("xdp"), "{link}");
    });
}

#[test]
fn connections_live_on_through_every_change() {
    lab(4, |lab| {
        let [one, two, three, four] = [0, 1, 2, 3].map(|at| &lab.servers[at]);
        set_up(&lab.director, &services(&[(one, 1), (two, 1), (three, 1), (four, 1)]));
        let mut held = hold(lab, 20);
        // Other weights; a server that drains.
        set_up(&lab.director, &services(&[(one, 5), (two, 1), (three, 1), (four, 1)]));
        all_go_on(&mut held);
        set_up(&lab.director, &services(&[(one, 0), (two, 1), (three, 1), (four, 9)]));
        all_go_on(&mut held);
        let answers = ask(&lab.client, vips()[0], 30);
        assert!(!answers.contains_key("one") && answers.len() > 1, "{answers:?}");
        // One that is removed: what it had is refused by others; what others had goes on.
        set_up(&lab.director, &services(&[(one, 1), (two, 1), (three, 1)]));
        let (mut lost, mut kept): (Vec<Held>, Vec<Held>) = held.into_iter().partition(|held| held.server == "four");
        for lost in &mut lost {
            let end = lost.says();
            assert!(end.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset), "{end:?}");
        }
        all_go_on(&mut kept);
        // It comes back.
        set_up(&lab.director, &services(&[(one, 1), (two, 1), (three, 1), (four, 1)]));
        all_go_on(&mut kept);
        // An agent that is killed; nobody is there then; and another one, with a program of its own.
        let mut agent = agent(&lab.director, &services(&[(one, 1), (two, 2), (three, 3), (four, 1)]));
        all_go_on(&mut kept);
        agent.kill().unwrap();
        agent.wait().unwrap();
        all_go_on(&mut kept);
        let mut fresh = Held::new(&lab.client, vips()[0]);
        let before = program(&lab.director);
        lab.director.inside(|| assert!(open().refresh().unwrap().is_empty()));
        assert_ne!(program(&lab.director), before, "the program is another one");
        all_go_on(&mut kept);
        assert_eq!(fresh.says().unwrap(), fresh.server);
    });
}

/// What `ip` says of the XDP program on the director's interface.
fn program(machine: &Machine) -> String {
    let links = machine.run("ip link show dev eth0");
    links.lines().find(|line| line.contains("prog/xdp")).unwrap_or_else(|| panic!("{links}")).to_owned()
}

#[test]
fn another_director_chooses_the_same_servers() {
    lab(3, |lab| {
        let [one, two, three] = [0, 1, 2].map(|at| &lab.servers[at]);
        set_up(&lab.director, &services(&[(one, 1), (two, 1), (three, 2)]));
        let mut held = hold(lab, 15);
        let second = new_director("second", 3);
        // Its list is in another order.
        set_up(&second, &services(&[(three, 2), (one, 1), (two, 1)]));
        let mac = second.mac();
        for vip in vips() {
            lab.client.run(&format!("ip neighbour replace {vip} lladdr {mac} dev eth0"));
        }
        run("ip link set director down");
        all_go_on(&mut held);
        let counted = second.inside(|| open().figures().unwrap());
        assert_eq!(
            counted.iter().map(|service| service.counters.connections).sum::<u64>(),
            30,
            "it has all of them now"
        );
    });
}

#[test]
fn a_server_is_found_by_its_mac_address() {
    lab(2, |lab| {
        let [one, two] = [0, 1].map(|at| &lab.servers[at]);
        let nobody = machine("nobody", 99);
        nobody.run("ip link set eth0 down");
        let services = services(&[(one, 1), (two, 1), (&nobody, 5)]);
        set_up(&lab.director, &services);
        let answers = ask(&lab.client, vips()[0], 20);
        assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "{answers:?}");
        let refreshed = || lab.director.inside(|| open().refresh().unwrap());
        let troubles = refreshed();
        assert_eq!(troubles.len(), 2, "{troubles:?}");
        assert!(
            troubles[0].contains("192.0.2.99:80 gets no packets: no machine responds to ARP for it on eth0"),
            "{troubles:?}"
        );
        // It appears.
        nobody.run("ip link set eth0 up");
        let start = Instant::now();
        while refreshed().iter().any(|trouble| trouble.contains("192.0.2.99")) {
            assert!(start.elapsed() < PATIENCE, "it is not found");
        }
        let answers = ask(&lab.client, vips()[0], 10);
        assert!(answers.keys().any(|answer| answer != "one" && answer != "two"), "it has no such service: {answers:?}");
        // Another network card.
        let services = self::services(&[(one, 1), (two, 1)]);
        set_up(&lab.director, &services);
        let mut held = hold(lab, 8);
        one.run("ip link set eth0 address 02:00:00:00:be:ef");
        lab.director
            .run(&format!("ip neighbour replace {} lladdr 02:00:00:00:be:ef dev eth0 nud reachable", one.ipv4()));
        lab.director
            .run(&format!("ip neighbour replace {} lladdr 02:00:00:00:be:ef dev eth0 nud reachable", one.ipv6()));
        assert!(refreshed().is_empty());
        all_go_on(&mut held);
    });
}

#[test]
fn an_interface_that_is_gone_is_told_and_stops_nothing_else() {
    lab(2, |lab| {
        let [one, two] = [0, 1].map(|at| &lab.servers[at]);
        lab.director.run("ip link add eth1 type veth peer name beside1");
        lab.director.run("ip link set eth1 up");
        let both = || {
            let mut settings = settings("eth0", XdpHook::Stack);
            settings.xdp.interfaces.push("eth1".into());
            Director::open(EngineChoice::Xdp, &settings).unwrap()
        };
        lab.director.inside(|| reconciled(&mut both(), &services(&[(one, 1), (two, 1)])));
        let mut held = hold(lab, 8);
        lab.director.run("ip link del eth1");
        // MAC addresses are followed.
        one.run("ip link set eth0 address 02:00:00:00:be:ef");
        for address in [one.ipv4(), one.ipv6()] {
            lab.director
                .run(&format!("ip neighbour replace {address} lladdr 02:00:00:00:be:ef dev eth0 nud reachable"));
        }
        let refreshed = || lab.director.inside(|| both().refresh().unwrap());
        let troubles = refreshed();
        assert!(troubles.len() == 1 && troubles[0].starts_with("interface eth1 does not exist"), "{troubles:?}");
        all_go_on(&mut held);
        drop(held);
        // Servers come and go.
        for (servers, names) in [(&[(two, 1)][..], 1), (&[(one, 1), (two, 1)], 2)] {
            lab.director.inside(|| reconciled(&mut both(), &services(servers)));
            assert_eq!(ask(&lab.client, vips()[0], 20).len(), names);
        }
        // It is back.
        lab.director.run("ip link add eth1 type veth peer name beside1");
        lab.director.run("ip link set eth1 up");
        assert_eq!(refreshed(), [""; 0]);
        lab.director.inside(|| assert!(both().manner().contains("eth1 (generic"), "{}", both().manner()));
    });
}

#[test]
fn how_many_connections_are_remembered_is_said_and_asked_for() {
    lab(1, |lab| {
        let services = services(&[(&lab.servers[0], 1)]);
        let processors = direct::processors() as u32;
        lab.director.inside(|| {
            let by = |connections| {
                let mut settings = settings("eth0", XdpHook::Stack);
                settings.xdp.connections = connections;
                Director::open(EngineChoice::Xdp, &settings).unwrap()
            };
            let remembered = || Direct::find(&direct::folder().unwrap()).unwrap().unwrap().remembered().unwrap();
            let mut director = by(Some(5000 * processors));
            reconciled(&mut director, &services);
            assert_eq!(remembered(), 5000 * processors);
            let each = format!("5000 for each of {processors} CPUs");
            assert!(director.manner().contains(&each) || processors == 1, "{}", director.manner());
            assert_eq!(director.refresh().unwrap(), [""; 0]);
            drop(director);
            let mut other = by(Some(7000 * processors));
            reconciled(&mut other, &services);
            for said in [other.refresh().unwrap(), other.plan(&services).unwrap().remarks] {
                let asked = format!(
                    "tune.xdp.connections {}: the connection table has {} entries",
                    7000 * processors,
                    5000 * processors
                );
                assert!(said.len() == 1 && said[0].contains(&asked) && said[0].contains("on-exit flush"), "{said:?}");
            }
            assert_eq!(by(None).refresh().unwrap(), [""; 0], "nobody asks for another number");
            other.leave(OnExit::Flush).unwrap();
            reconciled(&mut by(Some(7000 * processors)), &services);
            assert_eq!(remembered(), 7000 * processors);
            by(None).leave(OnExit::Flush).unwrap();
            reconciled(&mut by(None), &services);
            assert!(remembered() >= 524_288);
        });
    });
}

#[test]
fn servers_that_nobody_answers_for_are_looked_for_together() {
    lab(1, |lab| {
        let one = &lab.servers[0];
        let many = |ports: u16| -> Vec<Service> {
            let of_port = |port: u16| {
                let mut service = service(vips()[0], &[(one, 1)]);
                service.key =
                    ServiceKey::Address { protocol: Protocol::Tcp, address: SocketAddr::new(vips()[0], port) };
                let unknown = (101..104).map(|number| Destination {
                    address: SocketAddr::from(([192, 0, 2, number], port)),
                    ..service.destinations[0].clone()
                });
                service.destinations.extend(unknown.collect::<Vec<_>>());
                service.destinations[0].address.set_port(port);
                service
            };
            (80..80 + ports).map(of_port).collect()
        };
        let timed = |services: &[Service]| {
            lab.director.inside(|| {
                let mut director = open();
                let start = Instant::now();
                let report = reconciled(&mut director, services);
                let took = start.elapsed();
                assert!(director.plan(services).unwrap().is_empty());
                (took, report.done.len())
            })
        };
        // Each of them waits as long as the other for answers, and that is most of it.
        let (for_one, _) = timed(&many(1));
        let (for_many, done) = timed(&many(60));
        assert_eq!(done, 59 * 5);
        assert!(for_many < 20 * for_one, "{for_many:?} for 60 services, {for_one:?} for one");
        assert_eq!(ask(&lab.client, vips()[0], 5)["one"], 5);
        // All of them change and go at once.
        let half: Vec<Service> = many(60).into_iter().skip(30).collect();
        let mut heavy = half.clone();
        heavy.iter_mut().for_each(|service| service.destinations[0].weight = 9);
        heavy.iter_mut().for_each(|service| service.destinations.truncate(2));
        assert_eq!(timed(&heavy).1, 30 + 30 + 2 * 30);
        lab.director.inside(|| {
            let direct = Direct::find(&direct::folder().unwrap()).unwrap().unwrap();
            assert_eq!(direct.places().unwrap().len(), 31);
            let used = direct.servers().unwrap().into_iter().filter(|slot| slot.generation != 0);
            assert!(used.clone().all(|slot| slot.generation == 1) && used.count() == 60);
        });
        timed(&many(60));
        lab.director.inside(|| {
            let direct = Direct::find(&direct::folder().unwrap()).unwrap().unwrap();
            let again = direct.servers().unwrap().into_iter().filter(|slot| slot.generation == 2).count();
            assert_eq!(again, 180, "slots that are used again have another generation");
        });
        assert_eq!(ask(&lab.client, vips()[0], 5)["one"], 5);
    });
}

/// As in a container: nobody gave the other end of the director's veth a program.
#[test]
fn in_the_stack_of_a_veth() {
    lab(2, |lab| {
        let [one, two] = [0, 1].map(|at| &lab.servers[at]);
        run("ip link set dev director xdp off");
        lab.director.inside(|| {
            let mut director = Director::open(EngineChoice::Xdp, &settings("eth0", XdpHook::Best)).unwrap();
            reconciled(&mut director, &services(&[(one, 1), (two, 1)]));
            assert!(director.manner().starts_with("on eth0 (generic: a veth driver"), "{}", director.manner());
        });
        for vip in vips() {
            let answers = ask(&lab.client, vip, 20);
            assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "{answers:?}");
        }
        // Checksums that are left to the network card are completed behind the stack, and those of a container's are.
        lab.client.run("ethtool -K eth0 tx on");
        for vip in vips() {
            let answers = ask(&lab.client, vip, 20);
            assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "with tx on: {answers:?}");
        }
    });
}

#[test]
fn it_moves_between_driver_and_stack_and_no_packet_gets_beside_it() {
    lab(2, |lab| {
        let services = services(&[(&lab.servers[0], 1), (&lab.servers[1], 1)]);
        let mut director = lab.director.inside(open);
        lab.director.inside(|| reconciled(&mut director, &services));
        let mut held = hold(lab, 6);
        let mut change = |place, because: &str| {
            lab.director.inside(|| {
                director.set(&settings("eth0", place));
                let plan = director.plan(&services).unwrap().to_string();
                assert!(plan.contains(because), "{plan}");
                reconciled(&mut director, &services);
                let plan = director.plan(&services).unwrap();
                assert!(plan.is_empty() && plan.remarks.is_empty(), "nothing is left to do: {plan}");
                director.manner()
            })
        };
        for round in 0..3 {
            // While it moves, connections are begun and used: the director's own stack would refuse them.
            let (manner, answers) = std::thread::scope(|scope| {
                let asked = scope.spawn(|| {
                    all_go_on(&mut held);
                    let answers = ask(&lab.client, vips()[0], 12);
                    all_go_on(&mut held);
                    answers
                });
                let to_stack =
                    change(XdpHook::Stack, "move the program on interface eth0 from its driver to the stack");
                let to_driver =
                    change(XdpHook::Driver, "move the program on interface eth0 from the stack to its driver");
                ([to_stack, to_driver], asked.join().unwrap())
            });
            assert!(manner[0].starts_with("on eth0 (generic, as configured)"), "{manner:?}");
            assert!(manner[1].starts_with("on eth0 (in its driver, as configured)"), "{manner:?}");
            assert!(answers.values().sum::<usize>() == 12 && answers.len() == 2, "round {round}: {answers:?}");
        }
        assert!(!lab.director.run("nft list tables").contains("baton"), "nothing keeps packets back any more");
        drop(director);
        // Another process that is asked for nothing: on a veth it is in the stack.
        lab.director.inside(|| {
            let mut director = Director::open(EngineChoice::Xdp, &settings("eth0", XdpHook::Best)).unwrap();
            reconciled(&mut director, &services);
            assert!(director.manner().starts_with("on eth0 (generic: a veth driver"), "{}", director.manner());
        });
        all_go_on(&mut held);
    });
}

#[test]
fn the_driver_of_a_veth_needs_somebody_at_the_other_end() {
    lab(1, |lab| {
        run("ip link set dev director xdp off");
        let services = services(&[(&lab.servers[0], 1)]);
        let refused = || {
            let refused = lab.director.inside(|| open().look(&settings("eth0", XdpHook::Driver), &services).unwrap());
            refused.into_iter().map(|refused| format!("{}: {}", refused.what, refused.why)).collect::<Vec<_>>()
        };
        assert!(
            refused().len() == 1 && refused()[0].contains("interface eth0: what its driver sends"),
            "{:?}",
            refused()
        );
        // GRO is enough.
        run("ethtool -K director gro on");
        assert_eq!(refused(), Vec::<String>::new());
        set_up(&lab.director, &services);
        assert_eq!(ask(&lab.client, vips()[0], 5), BTreeMap::from([("one".to_owned(), 5)]));
        // Nobody hears of it when it is turned off, but who looks.
        run("ethtool -K director gro off");
        let troubles = lab.director.inside(|| open().refresh().unwrap());
        assert!(troubles.len() == 1 && troubles[0].contains("all that the program sends is dropped"), "{troubles:?}");
        // Where a driver has no XDP at all.
        lab.director.run("ip link add link eth0 name mac0 type macvlan mode bridge");
        let settings = settings("mac0", XdpHook::Driver);
        let refused = lab.director.inside(|| open().look(&settings, &services).unwrap());
        assert!(refused[0].why.contains("its driver does not support XDP: without `driver`"), "{refused:?}");
    });
}

#[test]
fn in_the_stack_where_a_driver_has_no_xdp() {
    lab(2, |lab| {
        // A MACVLAN has none.
        let [one, two] = [0, 1].map(|at| &lab.servers[at]);
        let vip = vips()[0];
        lab.director.run("ip link add link eth0 name mac0 type macvlan mode bridge");
        lab.director.run("sysctl -qw net.ipv4.conf.all.arp_ignore=1");
        lab.director.run("ip address flush dev eth0");
        lab.director.run("ip link set mac0 up");
        lab.director.run(&format!("ip address add {}/24 dev mac0", lab.director.ipv4()));
        lab.director.run(&format!("ip address add {}", on(vip, "mac0")));
        lab.director.inside(|| {
            let mut director = Director::open(EngineChoice::Xdp, &settings("mac0", XdpHook::Best)).unwrap();
            reconciled(&mut director, &[service(vip, &[(one, 1), (two, 1)])]);
            assert!(director.manner().contains("mac0 (generic"), "{}", director.manner());
        });
        let answers = ask(&lab.client, vip, 20);
        assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "{answers:?}");
        // The interface is made anew, with another number.
        lab.director.run("ip link delete mac0");
        lab.director.run("ip link add link eth0 name mac0 type macvlan mode bridge");
        lab.director.run("ip link set mac0 up");
        lab.director.run(&format!("ip address add {}/24 dev mac0", lab.director.ipv4()));
        lab.director.run(&format!("ip address add {}", on(vip, "mac0")));
        let mac = lab.director.inside(|| Routing::open().unwrap().link("mac0").unwrap().mac.unwrap());
        lab.client.run(&format!("ip neighbour replace {vip} lladdr {mac} dev eth0"));
        let mut director =
            lab.director.inside(|| Director::open(EngineChoice::Xdp, &settings("mac0", XdpHook::Best)).unwrap());
        let start = Instant::now();
        while !lab.director.inside(|| director.refresh().unwrap()).is_empty() {
            assert!(start.elapsed() < PATIENCE, "the servers are not found");
        }
        let answers = ask(&lab.client, vip, 20);
        assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "{answers:?}");
    });
}

#[test]
fn what_was_half_done_is_mended() {
    lab(2, |lab| {
        let services = services(&[(&lab.servers[0], 1), (&lab.servers[1], 1)]);
        set_up(&lab.director, &services);
        let mut held = hold(lab, 6);
        lab.director.inside(|| {
            let folder = direct::folder().unwrap();
            let mut maps = Direct::find(&folder).unwrap().unwrap();
            // As if it was killed while a service was added or removed, and while weights were changed.
            for (place, _) in maps.places().unwrap() {
                maps.remove_place(&place).unwrap();
            }
            let stray = direct::VirtualAddressKey::new(direct::TCP, "192.0.2.8:80".parse().unwrap());
            maps.set_place(&stray, 7).unwrap();
            let server = maps.server(0).unwrap();
            maps.set_server(9, &direct::ServerSlot { service: 200, ..server }).unwrap();
            for table in 0..4 {
                maps.set_table(table, &[direct::NOBODY; direct::TABLE]).unwrap();
            }
            let mut director = open();
            assert!(director.plan(&services).unwrap().is_empty());
            assert!(director.refresh().unwrap().is_empty());
            assert_eq!(maps.places().unwrap().len(), 4);
            assert_eq!(maps.server(9).unwrap().generation, 0);
        });
        all_go_on(&mut held);
        assert_eq!(ask(&lab.client, vips()[0], 20).len(), 2);
    });
}

#[test]
fn somebody_elses_program_is_left_alone() {
    lab(1, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let object = pass(folder.path());
        attach(&lab.director, &object);
        let before = self::program(&lab.director);
        let report = lab.director.inside(|| {
            let mut director = open();
            director.reconcile(&services(&[(&lab.servers[0], 1)])).unwrap()
        });
        let faults: Vec<String> = report.failed.iter().map(ToString::to_string).collect();
        assert!(faults.iter().all(|fault| fault.contains("interface eth0: it has another XDP program")), "{faults:?}");
        assert!(!faults.is_empty());
        assert_eq!(self::program(&lab.director), before);
        assert!(lab.director.inside(|| open().plan(&[]).unwrap().is_empty()), "nothing of it is there");
    });
}

fn attach(machine: &Machine, object: &Path) {
    machine.run(&format!("ip link set dev eth0 xdp object {} section xdp", object.display()));
}
