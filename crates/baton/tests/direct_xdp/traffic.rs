//! What kinds of services do with real clients: UDP, clients that stay; and clients behind a link of a smaller MTU, of which routers tell
//! the virtual address.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::thread;

use baton_kernel::namespace;
use flows::Held;
use link::{Machine, run};

use super::*;

/// Lines that are asked for at once: many packets of answers.
const LINES: usize = 5_000;

/// A router on the bridge, and behind it a client with a link that takes less than an Ethernet.
fn far(lab: &Lab) {
    let router = Machine::new("router", 254);
    router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    run("ip netns add far");
    run("ip link add far netns router mtu 1300 type veth peer name eth0 netns far");
    for (name, interface, number) in [("router", "far", 1), ("far", "eth0", 2)] {
        run(&format!("ip -n {name} link set {interface} up"));
        run(&format!("ip -n {name} address add 198.51.100.{number}/24 dev {interface}"));
        run(&format!("ip -n {name} address add 2001:db8:7::{number}/64 dev {interface} nodad"));
    }
    run("ip -n far route add default via 198.51.100.1");
    run("ip -n far route add default via 2001:db8:7::1");
    for server in &lab.servers {
        server.run(&format!("ip route add 198.51.100.0/24 via {}", router.ipv4()));
        server.run(&format!("ip route add 2001:db8:7::/64 via {}", router.ipv6()));
    }
    // Whose checksums nobody completes who sends them on, as in `flows`.
    router.run("ethtool -K eth0 tx off");
}

#[test]
fn clients_behind_a_small_link_get_large_answers() {
    lab(2, |lab| {
        far(lab);
        let folder = tempfile::tempdir().unwrap();
        let _proxy = start(lab, &text(lab, folder.path(), &[1, 1], "flush"));
        let mut served = BTreeSet::new();
        for vip in [vips(), vips(), vips(), vips()].concat() {
            let stream =
                namespace::inside(Some("far"), || TcpStream::connect_timeout(&SocketAddr::new(vip, 80), PATIENCE));
            let mut held = Held::of(stream.unwrap().unwrap());
            held.stream.get_mut().write_all("who\n".repeat(LINES).as_bytes()).unwrap();
            for at in 0..LINES {
                let mut line = String::new();
                held.stream.read_line(&mut line).unwrap_or_else(|error| panic!("{vip}, line {at}: {error}"));
                assert_eq!(line.trim_end(), held.server);
            }
            served.insert((vip, held.server));
        }
        for (vip, server) in served {
            let server = lab.servers.iter().find(|machine| machine.name == server).unwrap();
            let client = if vip.is_ipv4() { "198.51.100.2" } else { "2001:db8:7::2" };
            let known = server.run(&format!("ip route get {client}"));
            assert!(known.contains("mtu 1300"), "{}: {known}", server.name);
        }
    });
}

/// Answers each datagram to an address with the server's name.
fn names(server: &Machine, vip: IpAddr) {
    let (socket, name) = (server.inside(|| UdpSocket::bind((vip, 53)).unwrap()), server.name);
    thread::spawn(move || {
        let mut question = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut question) {
            socket.send_to(name.as_bytes(), from).unwrap();
        }
    });
}

#[test]
fn datagrams_and_clients_that_stay() {
    lab(2, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let [four, six] = vips();
        let sticky = "balance roundrobin\nstick-table type ip size 1m expire 5m\nstick on src\n";
        let mut even = text(lab, folder.path(), &[1, 1], "flush").replacen("balance roundrobin\n", sticky, 1);
        for (name, vip) in [("names4", four), ("names6", six)] {
            let bind = SocketAddr::new(vip, 53);
            even += &format!(
                "listen {name}\nmode direct\nengine xdp\non-exit flush\nbind udp@{bind}\nbalance roundrobin\n"
            );
            for server in &lab.servers {
                names(server, vip);
                let address = SocketAddr::new(server.address(vip), 53);
                even += &format!("server {} {address}\n", server.name);
            }
        }
        let proxy = start(lab, &even);
        for vip in vips() {
            let mut answered = BTreeMap::new();
            for _ in 0..24 {
                let own = if vip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = lab.client.inside(|| UdpSocket::bind(own).unwrap());
                socket.connect((vip, 53)).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                let ask = || {
                    let mut answer = [0; 64];
                    socket.send(b"?").unwrap();
                    let length = socket.recv(&mut answer).unwrap();
                    String::from_utf8(answer[..length].to_vec()).unwrap()
                };
                let by = ask();
                assert_eq!([ask(), ask()], [by.clone(), by.clone()], "as long as it has its port");
                *answered.entry(by).or_insert(0) += 1;
            }
            assert_eq!(answered.len(), 2, "{answered:?}");
        }

        // A client stays with its server whatever its port, and what weights become; until the server takes nothing new.
        let by = ask(&lab.client, four, 1).into_keys().next().unwrap();
        let stays = || assert_eq!(ask(&lab.client, four, 12), BTreeMap::from([(by.clone(), 12)]));
        stays();
        let with = |of_it: u32, of_others: u32| -> String {
            let weight = |line: &str| if line.starts_with(&format!("server {by} ")) { of_it } else { of_others };
            let lines = even.lines().map(|line| line.replace("weight 1", &format!("weight {}", weight(line))) + "\n");
            lines.collect()
        };
        lab.director.inside(|| proxy.change(&with(1, 100)));
        stays();
        lab.director.inside(|| proxy.change(&with(0, 1)));
        until("it goes to the other one", || !ask(&lab.client, four, 3).contains_key(&by));
    });
}
