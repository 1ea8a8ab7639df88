//! What is set, changed, left alone and taken over.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use baton_direct::{OnExit, Persistence, Tunnel};

use super::*;

/// Tells the test program that it is to change services until it is killed.
const RESTLESS: &str = "BATON_TEST_RESTLESS";

/// Services that somebody else has, with what no service of ours can have.
const FOREIGN: &str = "ipvsadm -A -t 10.0.0.9:80 -s rr
    ipvsadm -a -t 10.0.0.9:80 -r 10.0.1.9:80 -g -w 3
    ipvsadm -A -u 10.0.0.9:5060 -s lc -p 60 --pe sip
    ipvsadm -A -f 9 -s wlc
    ipvsadm -a -f 9 -r 127.0.0.1:8080 -m
    ipvsadm -A -t [2001:db8::9]:80 -s wrr";

fn by(forwarding: Forwarding, destination: Destination) -> Destination {
    Destination { forwarding, ..destination }
}

/// One of everything.
fn everything() -> Vec<Service> {
    let persistence = |seconds, prefix| Some(Persistence { timeout: Duration::from_secs(seconds), prefix });
    // The lab's kernel was built without `twos`.
    let schedulers = Scheduler::ALL.into_iter().filter(|scheduler| *scheduler != Scheduler::TwoRandom).enumerate();
    let mut all: Vec<Service> =
        schedulers.map(|(at, scheduler)| service(tcp(&format!("10.0.0.1:{}", 100 + at)), scheduler, &[])).collect();
    let web = Destination { upper: 1000, lower: 800, ..to("10.0.1.2:80", 65_535) };
    let tunnel = Forwarding::Tunnel;
    let far = [
        by(tunnel(Tunnel::IpIp), to("10.9.0.1:81", 1)),
        by(tunnel(Tunnel::Gue(6080)), to("10.9.0.2:81", 1)),
        by(tunnel(Tunnel::Gre), to("10.9.0.3:81", 1)),
        by(tunnel(Tunnel::IpIp), to("[2001:db8:9::1]:81", 1)),
    ];
    let nat = by(Forwarding::Masquerade, to("10.0.2.1:8080", 1));
    all.extend([
        service(tcp("10.0.0.1:80"), Scheduler::RoundRobin, &[to("10.0.1.1:80", 1), web, to("10.0.1.3:80", 0)]),
        Service { hash_port: true, fallback: true, ..service(tcp("10.0.0.1:81"), Scheduler::Maglev, &far) },
        Service {
            fallback: true,
            persistence: persistence(300, 24),
            ..service(tcp("10.0.0.1:82"), Scheduler::Source, &[nat])
        },
        Service {
            persistence: persistence(60, 32),
            ..service(tcp("10.0.0.2:0"), Scheduler::LeastConn, &[to("10.0.1.1:0", 1)])
        },
        Service { one_packet: true, ..service(udp("10.0.0.1:53"), Scheduler::RoundRobin, &[to("10.0.1.1:53", 3)]) },
        Service {
            persistence: persistence(60, 64),
            ..service(tcp("[2001:db8::1]:80"), Scheduler::LeastConn, &[to("[2001:db8:1::1]:80", 1)])
        },
        service(ServiceKey::Mark { mark: 7, ipv6: false }, Scheduler::RoundRobin, &[to("10.0.1.1:0", 1)]),
        service(ServiceKey::Mark { mark: 7, ipv6: true }, Scheduler::RoundRobin, &[to("[2001:db8:1::1]:0", 1)]),
    ]);
    all
}

/// What `ipvsadm` shows of it.
const EVERYTHING: &str = "
-A -f 7 -6 -s wrr
-A -f 7 -s wrr
-A -t 10.0.0.1:100 -s wrr
-A -t 10.0.0.1:101 -s wlc
-A -t 10.0.0.1:102 -s sh
-A -t 10.0.0.1:103 -s mh
-A -t 10.0.0.1:104 -s dh
-A -t 10.0.0.1:105 -s sed
-A -t 10.0.0.1:106 -s nq
-A -t 10.0.0.1:107 -s lblc
-A -t 10.0.0.1:108 -s lblcr
-A -t 10.0.0.1:109 -s fo
-A -t 10.0.0.1:110 -s ovf
-A -t 10.0.0.1:80 -s wrr
-A -t 10.0.0.1:81 -s mh -b mh-fallback,mh-port
-A -t 10.0.0.1:82 -s sh -p 300 -M 255.255.255.0 -b sh-fallback
-A -t 10.0.0.2:0 -s wlc -p 60
-A -t [2001:db8::1]:80 -s wlc -p 60 -M 64
-A -u 10.0.0.1:53 -s wrr -o
-a -f 7 -6 -r [2001:db8:1::1]:0 -g -w 1
-a -f 7 -r 10.0.1.1:0 -g -w 1
-a -t 10.0.0.1:80 -r 10.0.1.1:80 -g -w 1
-a -t 10.0.0.1:80 -r 10.0.1.2:80 -g -w 65535
-a -t 10.0.0.1:80 -r 10.0.1.3:80 -g -w 0
-a -t 10.0.0.1:81 -r 10.9.0.1:81 -i -w 1 --tun-type ipip
-a -t 10.0.0.1:81 -r 10.9.0.2:81 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t 10.0.0.1:81 -r 10.9.0.3:81 -i -w 1 --tun-type gre --tun-nocsum
-a -t 10.0.0.1:81 -r [2001:db8:9::1]:81 -i -w 1 --tun-type ipip
-a -t 10.0.0.1:82 -r 10.0.2.1:8080 -m -w 1
-a -t 10.0.0.2:0 -r 10.0.1.1:0 -g -w 1
-a -t [2001:db8::1]:80 -r [2001:db8:1::1]:80 -g -w 1
-a -u 10.0.0.1:53 -r 10.0.1.1:53 -g -w 3
";

#[test]
fn everything_reads_back_as_it_was_set() {
    lab::inside(|| {
        let mut director = director();
        let desired = everything();
        assert!(director.judge(&desired).is_empty());
        let plan = director.plan(&desired).unwrap();
        assert_eq!(dump(), [""; 0], "a plan changes nothing");
        let steps = done(director.reconcile(&desired).unwrap());
        assert_eq!(steps, plan.to_string().lines().collect::<Vec<_>>());
        assert_eq!(dump(), EVERYTHING.trim().lines().collect::<Vec<_>>());
        let thresholds = said("ipvsadm -Ln --thresholds");
        assert!(thresholds.contains("10.0.1.2:80                  1000       800"), "{thresholds}");
        let again = director.plan(&desired).unwrap();
        assert!(again.is_empty(), "{again}");
    });
}

#[test]
fn a_change_is_its_own_steps_and_leaves_others_services_alone() {
    lab::inside(|| {
        said(FOREIGN);
        let foreign = dump();
        let mut director = director();
        let mut desired = everything();
        done(director.reconcile(&desired).unwrap());
        let before = dump();
        let web = desired.iter_mut().find(|service| service.key == tcp("10.0.0.1:80")).unwrap();
        web.scheduler = Scheduler::Failover;
        web.destinations[0].weight = 7;
        web.destinations[1].upper = 0;
        web.destinations[1].lower = 0;
        web.destinations[2].address = address("10.0.1.4:80");
        desired.retain(|service| service.key != udp("10.0.0.1:53"));
        let steps = done(director.reconcile(&desired).unwrap());
        let removal = director.removal();
        let expected = [
            "change service tcp 10.0.0.1:80: fo, until now wrr",
            "add server 10.0.1.4:80 to tcp 10.0.0.1:80: direct, weight 0",
            "change server 10.0.1.1:80 of tcp 10.0.0.1:80: direct, weight 7, until now direct, weight 1",
            "change server 10.0.1.2:80 of tcp 10.0.0.1:80: direct, weight 65535, until now direct, weight 65535, \
             at most 1000 connections, again below 800",
            &format!("remove server 10.0.1.3:80 of tcp 10.0.0.1:80: {removal}"),
            &format!("remove service udp 10.0.0.1:53: {removal}"),
        ];
        assert_eq!(steps, expected);
        let changed = |line: &&String| !["10.0.0.1:80 ", "10.0.0.1:53 "].iter().any(|key| line.contains(key));
        let untouched = |lines: &[String]| lines.iter().filter(changed).cloned().collect::<Vec<_>>();
        assert_eq!(untouched(&dump()), untouched(&before));
        assert!(director.plan(&desired).unwrap().is_empty());
        // Every other setting of a service and of a server, on what is there.
        for service in &mut desired {
            service.scheduler = Scheduler::Source;
            service.hash_port = true;
            service.persistence = Some(Persistence { timeout: Duration::from_secs(10), prefix: 16 });
            for destination in &mut service.destinations {
                destination.forwarding = Forwarding::Tunnel(Tunnel::Gue(1234));
                destination.weight += 1;
            }
            service.destinations.retain(|destination| destination.weight <= 65_535);
        }
        desired.retain(|service| !service.destinations.iter().any(|destination| destination.address.port() == 8080));
        done(director.reconcile(&desired).unwrap());
        let again = director.plan(&desired).unwrap();
        assert!(again.is_empty(), "{again}");
        for service in &mut desired {
            service.hash_port = false;
            service.persistence = None;
        }
        desired.retain(|service| service.key != tcp("10.0.0.2:0"));
        done(director.reconcile(&desired).unwrap());
        assert!(director.plan(&desired).unwrap().is_empty());

        // The next program goes on with it; what is kept is kept.
        assert!(director.leave(OnExit::Keep).unwrap().is_empty());
        let kept = dump();
        let mut next = super::director();
        assert!(next.plan(&desired).unwrap().to_string().is_empty());
        assert_eq!(dump(), kept);
        next.leave(OnExit::Flush).unwrap();
        assert_eq!(dump(), foreign);
        let folder = said("find /run/baton-direct -name '*.json'");
        assert_eq!(folder, "", "an empty record is none");
    });
}

#[test]
fn what_is_there_is_taken_over_and_said() {
    lab::inside(|| {
        said(FOREIGN);
        let others: Vec<String> = dump().into_iter().filter(|line| !line.contains("10.0.0.9:")).collect();
        let mut director = director();
        let sip = udp("10.0.0.9:5060");
        let desired = [
            service(tcp("10.0.0.9:80"), Scheduler::RoundRobin, &[to("10.0.1.9:80", 3)]),
            service(sip, Scheduler::LeastConn, &[]),
        ];
        let plan = director.plan(&desired).unwrap().to_string();
        let expected = [
            "take over service tcp 10.0.0.9:80, which exists in the kernel without a record",
            "take over service udp 10.0.0.9:5060, which exists in the kernel without a record",
            "change service tcp 10.0.0.9:80: wrr, until now scheduler rr",
            "change server 10.0.1.9:80 of tcp 10.0.0.9:80: direct, weight 3, until now direct, weight 3",
            "change service udp 10.0.0.9:5060: wlc, until now scheduler lc, persistence engine sip",
        ];
        assert_eq!(plan.lines().collect::<Vec<_>>(), expected);
        let report = director.reconcile(&desired).unwrap();
        assert_eq!(report.taken_over, [desired[0].key, sip]);
        assert_eq!(report.done, expected[2..]);
        let mine =
            ["-A -t 10.0.0.9:80 -s wrr", "-A -u 10.0.0.9:5060 -s wlc", "-a -t 10.0.0.9:80 -r 10.0.1.9:80 -g -w 3"];
        let is_mine = |line: &String| line.contains("10.0.0.9:");
        assert_eq!(dump().into_iter().filter(is_mine).collect::<Vec<_>>(), mine);
        assert_eq!(director.reconcile(&desired).unwrap(), DirectorReport::default(), "it is ours now");
        director.leave(OnExit::Flush).unwrap();
        assert_eq!(dump(), others);
    });
}

#[test]
fn what_somebody_removes_is_put_back() {
    lab::inside(|| {
        let mut director = director();
        let desired = everything();
        done(director.reconcile(&desired).unwrap());
        let whole = dump();
        said(
            "ipvsadm -D -t 10.0.0.1:81 && ipvsadm -d -t 10.0.0.1:80 -r 10.0.1.1:80 && ipvsadm -e -f 7 -r 10.0.1.1:0 -g -w 9",
        );
        said("ipvsadm -a -t 10.0.0.1:80 -r 10.0.1.99:80 -g");
        assert_eq!(done(director.reconcile(&desired).unwrap()).len(), 5 + 1 + 1 + 1);
        assert_eq!(dump(), whole);
    });
}

/// What [`nothing_is_orphaned_by_a_kill`] kills.
#[test]
fn restless() {
    if std::env::var_os(RESTLESS).is_none() {
        return;
    }
    let all = everything();
    let mut director = director();
    for turn in 0.. {
        let desired: Vec<Service> = all.iter().skip(turn % 3).step_by(1 + turn % 2).cloned().collect();
        director.reconcile(&desired).unwrap();
        println!("reconciled");
    }
}

#[test]
fn nothing_is_orphaned_by_a_kill() {
    lab::inside(|| {
        said(FOREIGN);
        let foreign = dump();
        let mut rests = 0;
        for round in 0..12 {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "plan::restless", "--nocapture"]).env(RESTLESS, "1").stdout(Stdio::piped());
            let mut restless = command.spawn().unwrap();
            let lines = BufReader::new(restless.stdout.take().unwrap()).lines();
            let reconciled = lines.map(Result::unwrap).filter(|line| line.contains("reconciled"));
            assert_eq!(reconciled.take(1 + round % 4).count(), 1 + round % 4);
            restless.kill().unwrap();
            restless.wait().unwrap();
            rests += usize::from(dump() != foreign);
            let report = director().reconcile(&[]).unwrap();
            assert!(report.failed.is_empty() && report.remarks.is_empty(), "{report:?}");
            assert_eq!(dump(), foreign, "in round {round}");
        }
        assert!(rests > 0, "it was killed with services in the kernel");
    });
}
