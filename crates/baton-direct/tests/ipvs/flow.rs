//! Real connections: a client, a director and three real servers in namespaces on a bridge, by direct routing.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use baton_direct::{Figures, Persistence, Tunnel};

use super::network::{Download, PATIENCE, PIECE, SERVERS, SERVERS6, VIP, VIP6, network, share, within};
use super::*;

/// One download of each of the first two servers.
fn downloads() -> [Download; 2] {
    [1, 2].map(|server| {
        let mut begun = (0..10).map(|_| Download::begin(VIP)).map(|mut begun| (begun.next(PIECE).unwrap(), begun));
        begun.find(|(by, _)| *by == server).expect("it has a share").1
    })
}

/// What a director gives to the test, which is in the client's namespace.
type Turn = Box<dyn FnOnce(&mut Director) + Send>;

/// A director in its namespace, for the test to use.
struct Remote(std::sync::mpsc::Sender<Turn>);

impl Remote {
    fn open(settings: DirectorSettings) -> Remote {
        let (sender, turns) = std::sync::mpsc::channel::<Turn>();
        within("director", move || {
            let mut director = director_with(&settings);
            turns.iter().for_each(|turn| turn(&mut director));
        });
        Remote(sender)
    }

    #[track_caller]
    fn with<T: Send + 'static>(&self, run: impl FnOnce(&mut Director) -> T + Send + 'static) -> T {
        let (sender, result) = std::sync::mpsc::channel();
        self.0.send(Box::new(move |director| sender.send(run(director)).unwrap())).unwrap();
        result.recv().expect("the director does what it is asked for")
    }

    /// Sets the weights of the web service's servers; one without is not there. Gives what was done.
    #[track_caller]
    fn set(&self, weights: [Option<u32>; 3]) -> Vec<String> {
        let desired = desired(weights);
        done(self.with(move |director| director.reconcile(&desired).unwrap()))
    }

    fn figures(&self) -> Vec<Figures> {
        self.with(|director| director.figures().unwrap())
    }
}

/// The web by IPv4 with these weights, the same by IPv6 and UDP with equal ones.
fn desired(weights: [Option<u32>; 3]) -> Vec<Service> {
    let servers = SERVERS.iter().zip(weights);
    let web: Vec<Destination> = servers.filter_map(|(server, weight)| Some(to(server, weight?))).collect();
    vec![
        service(tcp(VIP), Scheduler::RoundRobin, &web),
        service(tcp(VIP6), Scheduler::RoundRobin, &SERVERS6.map(|server| to(server, 1))),
        Service { one_packet: true, ..service(udp(VIP), Scheduler::RoundRobin, &SERVERS.map(|server| to(server, 1))) },
    ]
}

fn entries(of: &str) -> Vec<String> {
    let all = said("ip netns exec director ipvsadm -Lcn");
    all.lines().filter(|line| line.contains("ESTABLISHED") && line.contains(of)).map(str::to_owned).collect()
}

#[test]
fn connections_are_shared_by_weight_and_counted() {
    lab::inside(|| {
        network("client");
        let director = Remote::open(DirectorSettings::default());
        director.set([Some(1), Some(2), None]);
        assert_eq!(share(VIP, 30), BTreeMap::from([(1, 10), (2, 20)]));
        assert_eq!(share(VIP6, 6), BTreeMap::from([(1, 2), (2, 2), (3, 2)]));
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answered = [0; 3];
        for _ in 0..6 {
            let mut answer = [0];
            socket.send_to(b"?", VIP).unwrap();
            socket.recv(&mut answer).unwrap();
            answered[usize::from(answer[0]) - 1] += 1;
        }
        assert_eq!(answered, [2; 3]);

        // The kernel adds up its counters every two seconds.
        let end = Instant::now() + PATIENCE;
        let web = loop {
            let figures = director.figures();
            assert_eq!(figures.len(), 3);
            let web = figures.into_iter().find(|service| service.key == tcp(VIP)).unwrap();
            if web.counters.connections == 30 {
                break web;
            }
            assert!(Instant::now() < end, "{web:?}");
            thread::yield_now();
        };
        let of = |server: &str| web.destinations.iter().find(|found| found.address == address(server)).unwrap().clone();
        let [one, two] = [0, 1].map(|at| of(SERVERS[at]));
        assert_eq!((one.counters.connections, two.counters.connections), (10, 20));
        assert!(one.counters.packets_in >= 30 && one.counters.bytes_in > 30 * 40, "{one:?}");
        assert_eq!(one.counters.packets_out, 0, "answers do not come this way");
        assert_eq!(u64::from(one.active + one.inactive), 10);
    });
}

#[test]
fn a_download_survives_every_change_but_the_removal_of_its_server() {
    lab::inside(|| {
        network("client");
        let director = Remote::open(DirectorSettings::default());
        director.set([Some(1), Some(1), None]);
        let [mut first, mut second] = downloads();
        let long = [&first, &second].map(|download| download.0.local_addr().unwrap().port().to_string());
        let held = |at: usize| entries(&format!("192.168.121.100:{}", long[at]));
        for (weights, steps) in [
            ([Some(3), Some(1), None], 1),
            ([Some(3), Some(1), Some(1)], 1),
            ([Some(0), Some(1), Some(5)], 2),
            ([Some(0), Some(1), None], 1),
        ] {
            assert_eq!(director.set(weights).len(), steps);
            first.goes_on(1);
            second.goes_on(2);
            assert_eq!((held(0).len(), held(1).len()), (1, 1), "the kernel's entries are where they were");
        }
        assert_eq!(share(VIP, 6), BTreeMap::from([(2, 6)]), "the first one is drained, the third one is gone");
        first.goes_on(1);

        // Its program is another one, and another one again after it was killed.
        drop(director);
        first.goes_on(1);
        let director = Remote::open(DirectorSettings::default());
        assert_eq!(director.set([Some(0), Some(1), None]), [""; 0], "nothing is to be done");
        first.goes_on(1);

        // Without expire_nodest_conn, the packets of a removed server's connections wait until it is back.
        let removed = director.set([Some(1), None, None]);
        assert!(removed[1].contains("dropped until it is back"), "{removed:?}");
        let waiting = thread::spawn(move || second.next(PIECE).map(|by| (by, second)));
        first.goes_on(1);
        assert_eq!(share(VIP, 3), BTreeMap::from([(1, 3)]));
        assert!(!waiting.is_finished());
        director.set([Some(1), Some(1), None]);
        let (by, mut second) = waiting.join().unwrap().unwrap();
        assert_eq!(by, 2);

        // With it, they end.
        director.with(|director| {
            director.set(&DirectorSettings { expire_nodest_conn: Some(true), ..DirectorSettings::default() })
        });
        let removed = director.set([Some(1), None, None]);
        assert!(removed[1].ends_with("its connections end (net.ipv4.vs.expire_nodest_conn = 1)"), "{removed:?}");
        let ended = second.next(PIECE).unwrap_err();
        assert!(matches!(ended.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{ended}");
        first.goes_on(1);
    });
}

/// More virtual addresses: one whose packets are marked, one that comes to the second server by a tunnel, and a third server that
/// answers by way of the director.
const OTHER_WAYS: &str = "set -e
    for vip in 3 4; do
        ip -n director address add 192.168.121.$vip/32 dev eth0
        for n in 1 2 3; do ip -n s$n address add 192.168.121.$vip/32 dev lo; done
    done
    ip netns exec director iptables-legacy -t mangle -A PREROUTING -d 192.168.121.3 -p tcp -j MARK --set-mark 7
    modprobe ipip
    ip -n s2 link set tunl0 up
    ip netns exec s2 sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.tunl0.rp_filter=0
    ip -n s3 route add 192.168.121.100 via 192.168.121.1
    ip netns exec director sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 \
        net.ipv4.conf.eth0.send_redirects=0 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0";

#[test]
fn marks_tunnels_masquerading_and_persistence_carry_connections() {
    lab::inside(|| {
        network("client");
        said(OTHER_WAYS);
        let director = Remote::open(DirectorSettings::default());
        let by = |forwarding, destination| Destination { forwarding, ..destination };
        let tunnel = by(Forwarding::Tunnel(Tunnel::IpIp), to(SERVERS[1], 1));
        let nat = by(Forwarding::Masquerade, to(SERVERS[2], 1));
        // The third one's answers come by way of the director, which takes none with an address of its own.
        let servers = [0, 1].map(|at| to(SERVERS[at], 1));
        let marked = servers.clone().map(|mut server| {
            server.address.set_port(0);
            server
        });
        let persistence = Some(Persistence { timeout: Duration::from_secs(60), prefix: 24 });
        let desired = [
            service(ServiceKey::Mark { mark: 7, ipv6: false }, Scheduler::RoundRobin, &marked),
            service(tcp("192.168.121.4:80"), Scheduler::RoundRobin, &[tunnel]),
            service(tcp("192.168.121.2:8080"), Scheduler::RoundRobin, &[nat]),
            Service { persistence, ..service(tcp(VIP), Scheduler::RoundRobin, &servers) },
        ];
        done(director.with(move |director| director.reconcile(&desired).unwrap()));
        assert_eq!(share("192.168.121.3:80", 4), BTreeMap::from([(1, 2), (2, 2)]));
        assert_eq!(share("192.168.121.4:80", 2), BTreeMap::from([(2, 2)]));
        assert_eq!(share("192.168.121.2:8080", 2), BTreeMap::from([(3, 2)]));
        assert_eq!(share(VIP, 6).into_values().collect::<Vec<_>>(), [6], "a client stays where it was");

        let figures = director.figures();
        let bound: u32 = figures.iter().flat_map(|service| &service.destinations).map(|found| found.persistent).sum();
        assert_eq!(bound, 1, "one client");
        let end = Instant::now() + PATIENCE;
        let is_counted = |figures: Vec<Figures>| {
            let nat = figures.into_iter().find(|service| service.key == tcp("192.168.121.2:8080")).unwrap();
            nat.counters.packets_out > 0 && nat.counters.bytes_out > 0
        };
        while !is_counted(director.figures()) {
            assert!(Instant::now() < end, "what is masqueraded comes back this way");
            thread::yield_now();
        }
    });
}
