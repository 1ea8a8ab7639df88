//! What is set up keeps quiet and serves, by each method, and leaves what others want as it was.

use std::io::{Read, Write};

use baton_direct::probe::{ProbeMethod, ProbeTarget as Probed, probe};
use baton_kernel::packet::{EtherType, FrameFilter, PacketSocket};
use baton_kernel::route::Routing;

use super::*;

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
        PacketSocket::open(eth0, EtherType::Arp, &FrameFilter::new()).unwrap()
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
        for method in [ArpMethod::Sysctl, ArpMethod::Filter, ArpMethod::Auto] {
            let report = set_up(&server, &asked(&vips(), method));
            assert!(report.steps.iter().any(|step| step == "put 192.0.2.7/32 on lo"), "{report:?}");
            assert_eq!(report.remarks, [""; 0]);
            for vip in vips() {
                assert!(client.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty(), "{method} {vip}");
                let own = client.inside(|| who_has("eth0", server.address(vip), SHORT).unwrap());
                assert_eq!(own, [server.mac()], "its own address is answered for");
                let probed = Probed { vip, server: server.address(vip), with: ProbeMethod::Tcp(80) };
                assert!(client.inside(|| probe(&probed, PATIENCE).unwrap()).is_set_up(), "{method} {vip}");
                is_served_quietly(&client, &server, vip);
            }
            assert!(
                server.run("nft list ruleset").contains("table arp baton-real-server") == (method == ArpMethod::Filter)
            );
            // Once more, by another process, changes nothing.
            assert_eq!(set_up(&server, &asked(&vips(), method)), RealServerReport::default(), "{method}");
            assert_eq!(
                set_up(&server, &asked(&vips(), ArpMethod::Auto)),
                RealServerReport::default(),
                "what was chosen stays"
            );
            take_down(&server, &vips());
            same(&all_of(&server), &before);
            assert!(take_down(&server, &[]).steps.is_empty());
        }
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
        let report = set_up(&server, &asked(&[vip, other], ArpMethod::Auto));
        assert_eq!(report.steps, ["set net.ipv4.conf.all.arp_announce to 2 (it is 0)", "put 192.0.2.7/32 on lo"]);
        // The last one to go takes the settings with it.
        assert_eq!(take_down(&server, &[vip]).steps, ["remove 192.0.2.7/32 on lo"]);
        let report = take_down(&server, &[other]);
        assert_eq!(report.steps, ["restore net.ipv4.conf.all.arp_announce to 0"]);
        assert!(report.remarks[0].contains("192.0.2.8 was on lo before: it is kept"), "{report:?}");
        same(&all_of(&server), &before);
        let report = take_down(&server, &[other]);
        assert!(report.remarks[0].contains("was not added by this program: it is kept"), "{report:?}");

        // Somebody sets it while it is up.
        set_up(&server, &asked(&[vip], ArpMethod::Auto));
        server.run("sysctl -qw net.ipv4.conf.all.arp_announce=1");
        let report = take_down(&server, &[vip]);
        assert!(report.remarks[0].contains("arp_announce is now 1, set by another program: it is kept"), "{report:?}");
        assert!(server.run("sysctl net.ipv4.conf.all.arp_announce").contains("= 1"));

        // A value under which settings cannot do it.
        server.run("sysctl -qw net.ipv4.conf.eth0.arp_ignore=3");
        let fault = server.inside(|| up(&asked(&[vip], ArpMethod::Sysctl), false).unwrap_err());
        assert!(fault.to_string().contains("net.ipv4.conf.eth0.arp_ignore is 3"), "{fault}");
        assert!(fault.remedy.contains("--method filter"), "{fault}");
        let report = set_up(&server, &asked(&[vip], ArpMethod::Auto));
        assert!(report.steps[0].contains("table arp baton-real-server"), "{report:?}");
        assert!(report.steps[0].contains("192.0.2.11 on eth0 as source"), "{report:?}");
    });
}

#[test]
fn interfaces_are_chosen_and_methods_changed() {
    alone(|| {
        let [client, server] = [Machine::new("client", 1), Machine::new("server", 11)];
        let [vip, other]: [IpAddr; 2] = ["192.0.2.7".parse().unwrap(), "192.0.2.8".parse().unwrap()];
        let before = all_of(&server);
        let on_eth0 = |vip, method| RealServerOptions { interfaces: vec!["eth0".into()], ..asked(&[vip], method) };
        let quiet = |vip| assert!(client.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty());
        set_up(&server, &on_eth0(vip, ArpMethod::Sysctl));
        assert!(server.run("sysctl net.ipv4.conf.eth0.arp_ignore").contains("= 1"));
        assert!(server.run("sysctl net.ipv4.conf.all.arp_ignore").contains("= 0"));
        quiet(vip);
        // One that leans on `all` while it is there must not fall with it.
        set_up(&server, &asked(&[other], ArpMethod::Sysctl));
        take_down(&server, &[vip]);
        set_up(&server, &on_eth0(vip, ArpMethod::Sysctl));
        take_down(&server, &[other]);
        quiet(vip);
        set_up(&server, &on_eth0(vip, ArpMethod::Filter));
        assert!(server.run("sysctl net.ipv4.conf.eth0.arp_ignore").contains("= 0"));
        quiet(vip);
        set_up(&server, &asked(&[other], ArpMethod::Filter));
        quiet(other);
        take_down(&server, &[vip]);
        quiet(other);
        take_down(&server, &[]);
        same(&all_of(&server), &before);
        let fault = server.inside(|| {
            up(&RealServerOptions { interfaces: vec!["eth7".into()], ..asked(&[vip], ArpMethod::Auto) }, false)
        });
        assert!(fault.unwrap_err().to_string().contains("interface eth7: there is no such interface"));
        for wrong in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "fe80::1", "255.255.255.255", "::"] {
            let fault = server.inside(|| up(&asked(&[wrong.parse().unwrap()], ArpMethod::Auto), false).unwrap_err());
            assert!(fault.to_string().contains(wrong), "{fault}");
        }
    });
}
