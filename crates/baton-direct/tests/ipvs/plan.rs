//! What is set, changed, left alone and taken over.

use std::time::Duration;

use baton_direct::{Persistence, Tunnel};

use super::*;

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
        service(Key::Mark { mark: 7, ipv6: false }, Scheduler::RoundRobin, &[to("10.0.1.1:0", 1)]),
        service(Key::Mark { mark: 7, ipv6: true }, Scheduler::RoundRobin, &[to("[2001:db8:1::1]:0", 1)]),
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
