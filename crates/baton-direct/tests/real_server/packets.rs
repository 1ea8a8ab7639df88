//! Packets that come by a director, on links and out of tunnels.

use baton_direct::probe::{ProbeMethod, ProbeResult, ProbeTarget as Probed, probe};
use baton_direct::real_server::Tunnels;
use baton_direct::real_server::check::{self, Grade};
use baton_direct::vip::{Vip, Vips, announce};
use baton_direct::{Director, DirectorSettings};

use super::*;

#[test]
fn packets_come_out_of_a_tunnel() {
    // The kernel of the lab has tunnels as a module.
    lab::inside(|| {
        alone(|| {
            let [director, server] = [Machine::new("director", 1), Machine::new("server", 11)];
            let vip: IpAddr = "192.0.2.7".parse().unwrap();
            // Strict, so that what comes out of a tunnel would be dropped.
            server.run("sysctl -qw net.ipv4.conf.all.rp_filter=1");
            let wanted = RealServerOptions { tunnel: Some(Tunnels::Ipip), ..asked(&[vip], ArpMethod::Sysctl) };
            let report = set_up(&server, &wanted);
            assert_eq!(report.steps[0], "set interface tunl0 up", "{report:?}");
            assert_eq!(set_up(&server, &wanted), RealServerReport::default());
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
                let service = web(vip, servers.iter().map(|server| (server.address(vip), 1)));
                director.inside(|| {
                    let prefix = if vip.is_ipv4() { 32 } else { 128 };
                    let wanted = Vip { address: vip, interface: "eth0".into(), prefix };
                    let report = Vips::open("").unwrap().reconcile(std::slice::from_ref(&wanted)).unwrap();
                    assert_eq!(announce(&report.added), []);
                    let mut director =
                        Director::open(baton_direct::EngineChoice::Ipvs, &DirectorSettings::default()).unwrap();
                    let report = director.reconcile(&[service]).unwrap();
                    assert!(report.failed.is_empty(), "{report:?}");
                });
                let listeners = servers.map(|server| {
                    set_up(&server, &asked(&[vip], ArpMethod::Sysctl));
                    let probed = Probed { vip, server: server.address(vip), with: ProbeMethod::Tcp(80) };
                    let ask = || director.inside(|| probe(&probed, PATIENCE).unwrap());
                    assert_eq!(ask(), ProbeResult::SetUp { listens: Some(false) });
                    let listener = server.inside(|| TcpListener::bind((vip, 80)).unwrap());
                    assert_eq!(ask(), ProbeResult::SetUp { listens: Some(true) });
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
                let probed = Probed { vip, server: servers[1].address(vip), with: ProbeMethod::Tcp(80) };
                let found = director.inside(|| probe(&probed, Duration::from_secs(1)).unwrap());
                assert!(!found.is_set_up(), "{found}");
            }
        });
    });
}
