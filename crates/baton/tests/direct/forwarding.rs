//! Other ways to a server than to its MAC address: tunnels of each kind, with servers that are set up as docs/direct.md has it, and
//! masquerading; with connections that carry something in both directions.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

/// How the page has a server set up that is reached by each kind of tunnel ...
const SET_UP: [(u8, &str); 3] = [
    (1, "baton real-server up --vip 192.168.121.2 --tunnel ipip\n"),
    (
        2,
        "\
baton real-server up --vip 192.168.121.2
modprobe ip_gre
ip link set gre0 up
ip address add 192.168.121.2/32 dev gre0
sysctl -w net.ipv4.conf.gre0.rp_filter=2
",
    ),
    (
        3,
        "\
baton real-server up --vip 192.168.121.2 --tunnel ipip
modprobe fou
ip fou add port 6080 gue
",
    ),
];
/// ... and one of IPv6: the client's IPv6 in IPv6, the client's IPv6 in IPv4, and the client's IPv4 in IPv6 ...
const SET_UP_IPV6: [(u8, &str); 3] = [
    (1, "modprobe ip6_tunnel\nip link set ip6tnl0 up\n"),
    (2, "modprobe sit\nip link set sit0 up\n"),
    (
        3,
        "\
modprobe ip6_tunnel
ip -6 tunnel change ip6tnl0 mode any
ip link set ip6tnl0 up
ip address add 192.168.121.2/32 dev ip6tnl0
sysctl -w net.ipv4.conf.ip6tnl0.rp_filter=2
",
    ),
];
/// ... and what makes clients send what fits into one.
const SMALLER: &str = "ip route change default via 192.168.121.254 dev eth0 advmss 1428\n";

/// The director's sections: of the first each server is reached by another tunnel; the second changes the port too.
const SERVERS: &str = "\
default-server check inter 100
server s1 192.168.121.11 tunnel ipip
server s2 192.168.121.12 tunnel gre
server s3 192.168.121.13 tunnel gue:6080

listen nat
mode direct
engine ipvs
bind 192.168.121.2:8080
balance roundrobin
server s3 192.168.121.13:80 masquerade check inter 100
";

/// Servers have no virtual address yet, and drop what comes in by an interface by which they would not answer, as many distributions set it.
const STRICT: &str = "set -e
    for n in 1 2 3; do
        ip -n s$n address del 192.168.121.2/32 dev lo
        ip netns exec s$n sysctl -qw net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0 net.ipv4.conf.all.rp_filter=1
        ip -n s$n route add default via 192.168.121.254 dev eth0
    done
    # The client is behind the router by which the answers leave, which is the client itself.
    ip -n client address add 192.168.121.254/24 dev eth0
    ip -n client address add 198.51.100.1/32 dev lo
    ip -n client route add 192.168.121.2/32 dev eth0 src 198.51.100.1
    ip -n director route add 198.51.100.1/32 via 192.168.121.254";

/// What is masqueraded comes back by the director: of its own address, the third server answers that way.
const BACK: &str = "set -e
    ip -n s3 rule add from 192.168.121.13 to 198.51.100.1 lookup 100
    ip -n s3 route add default via 192.168.121.1 table 100
    ip netns exec director sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0";

/// Sends so much over a new connection that packets are full; gives who has it.
fn upload(to: &str) -> u8 {
    let mut download = Download::begin(to);
    // Each four bytes ask for nothing.
    download.0.write_all(&[0; 30_000]).expect("somebody reads");
    download.next(1).expect("all of it arrived")
}

/// One to each server of the web; they come in turn.
#[track_caller]
fn uploads() {
    let by = within("client", || [(); 3].map(|()| upload(VIP))).join().expect("uploads go through");
    assert_eq!(BTreeSet::from(by).len(), 3, "{by:?}");
}

#[test]
fn tunnels_and_masquerading_carry_connections() {
    lab::inside(|| {
        begin();
        said(STRICT);
        said(BACK);
        symlink(support::program(), "/run/bin/baton").unwrap();
        for (server, commands) in SET_UP {
            fs::write("/run/commands", commands).unwrap();
            said(&format!(
                "ip netns exec s{server} sh -ec '. /run/commands; baton real-server check --vip 192.168.121.2 --port 80'"
            ));
        }
        let director = Director::start(&Text { servers: SERVERS, ..PLAIN });
        assert_eq!(shares(6), BTreeMap::from([(1, 2), (2, 2), (3, 2)]));
        let by = within("client", || [(); 3].map(|()| Download::begin(VIP).next(PIECE).unwrap())).join().unwrap();
        assert_eq!(BTreeSet::from(by).len(), 3);

        // What a client sends in whole packets does not fit into a tunnel: the director says so, and the client believes it.
        uploads();
        said("ip netns exec client ethtool -K eth0 tso off gso off");
        uploads();
        let known = said("ip -n client route get 192.168.121.2");
        assert!(known.contains("mtu 1468"), "GUE takes 32 bytes: {known}");
        // Where nobody may say so, servers ask for less from the beginning.
        said("ip -n client route flush cache; ip netns exec client iptables-legacy -A INPUT -p icmp -j DROP");
        for server in 1..=3 {
            said(&format!("ip netns exec s{server} {SMALLER}"));
        }
        uploads();
        let known = said("ip -n client route get 192.168.121.2");
        assert!(!known.contains("mtu"), "{known}");

        // Masqueraded, a server has another port than the service, and what it answers is counted.
        let nat = "192.168.121.2:8080";
        let by = within("client", || (share(nat, 3), upload(nat), Download::begin(nat).next(PIECE).unwrap())).join();
        assert_eq!(by.unwrap(), (BTreeMap::from([(3, 3)]), 3, 3));
        let bytes = |column| director.stat("nat", "s3", column).parse::<u64>().unwrap_or_default();
        until("both directions are counted", || bytes("bin") > 30_000 && bytes("bout") > u64::from(PIECE));
        // What it said itself of packets that were too large is counted too.
        let back: u64 = director.stat("web", "BACKEND", "bout").parse().unwrap();
        assert!(back < u64::from(PIECE) / 10, "answers of tunnels go past the director: {back}");
        for (section, server) in [("web", "s1"), ("web", "s2"), ("web", "s3"), ("nat", "s3")] {
            assert_eq!(director.stat(section, server, "status"), "UP", "{section}/{server}");
        }
    });
}

/// Servers of IPv6, and those that clients of the other family are given to.
const SERVERS_IPV6: &str = "\
server s3 [fd21::13] tunnel check inter 100

listen six
mode direct
engine ipvs
bind [fd21::2]:80
balance roundrobin
server s1 [fd21::11] tunnel check inter 100
server s2 192.168.121.12 tunnel check inter 100
";

#[test]
fn tunnels_of_ipv6_carry_connections() {
    lab::inside(|| {
        begin();
        for (server, commands) in SET_UP_IPV6 {
            said(&format!("ip netns exec s{server} sysctl -qw net.ipv4.conf.all.rp_filter=1"));
            fs::write("/run/commands", commands).unwrap();
            said(&format!("ip netns exec s{server} sh -ec '. /run/commands'"));
        }
        said("ip -n s3 route add default dev eth0");
        // Else it would be what servers are asked from.
        said("ip address change fd21::2/128 dev eth0 preferred_lft 0");
        let director = Director::start(&Text { servers: SERVERS_IPV6, ..PLAIN });
        let six = network::VIP6;
        let by = within("client", move || (share(six, 4), share(VIP, 2))).join().unwrap();
        assert_eq!(by, (BTreeMap::from([(1, 2), (2, 2)]), BTreeMap::from([(3, 2)])));
        said("ip netns exec client ethtool -K eth0 tso off gso off");
        let by = within("client", move || [six, six, VIP].map(upload)).join().expect("uploads go through");
        assert_eq!(BTreeSet::from(by).len(), 3, "{by:?}");
        let download = |to| Download::begin(to).next(PIECE).unwrap();
        let by = within("client", move || [six, six, VIP].map(download)).join().unwrap();
        assert_eq!(BTreeSet::from(by).len(), 3, "{by:?}");
        for (section, server) in [("six", "s1"), ("six", "s2"), ("web", "s3")] {
            assert_eq!(director.stat(section, server, "status"), "UP", "{section}/{server}");
        }
    });
}

#[test]
fn servers_behind_tunnels_are_set_up_as_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/direct.md");
    let page = fs::read_to_string(page).expect("it is in the tree");
    for text in SET_UP.into_iter().chain(SET_UP_IPV6).map(|(_, commands)| commands).chain([SMALLER]) {
        assert!(page.contains(text), "docs/direct.md has not:\n{text}");
    }
}
