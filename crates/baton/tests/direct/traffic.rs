//! What kinds of services do with real clients: marks, UDP, clients that stay, limits, spare servers; and clients behind a link of a
//! smaller MTU, of which routers tell the virtual address.

use std::net::UdpSocket;

use super::*;

/// Behind the web of `PLAIN`.
const SECTIONS: &str = "
server s1 192.168.121.11
server s2 192.168.121.12

listen six
mode direct
bind [fd21::2]:80
balance roundrobin
server s1 [fd21::11]
server s2 [fd21::12]

listen marked
mode direct
bind fwmark@7
balance roundrobin
server s1 192.168.121.11
server s2 192.168.121.12

listen names
mode direct
bind udp@192.168.121.2:80
balance roundrobin
server s1 192.168.121.11
server s2 192.168.121.12

listen sticky
mode direct
bind 192.168.121.4:80
balance roundrobin
stick-table type ip size 1m expire 5m
stick on src
server s1 192.168.121.11
server s2 192.168.121.12

listen limited
mode direct
bind 192.168.121.5:80
balance roundrobin
server s1 192.168.121.11 maxconn 2 minconn 1
server s2 192.168.121.12

listen spare
mode direct
bind 192.168.121.6:80
balance roundrobin
server s1 192.168.121.11
server s2 192.168.121.12 backup
";

/// More virtual addresses, and a client behind a router with a link that takes less than an Ethernet.
const MORE: &str = "
    for vip in 3 4 5 6; do
        ip -n director address add 192.168.121.$vip/32 dev eth0
        for n in 1 2; do ip -n s$n address add 192.168.121.$vip/32 dev lo; done
    done
    ip netns exec director iptables-legacy -t mangle -A PREROUTING -d 192.168.121.3 -p tcp -j MARK --set-mark 7
    ip netns add router
    ip netns add far
    ip link add v-router type veth peer name eth0 netns router
    ip link set v-router master br0 up
    ip link add far type veth peer name eth0 netns far
    ip link set far netns router mtu 1300
    for name in router far; do
        ip netns exec $name sysctl -qw net.ipv6.conf.eth0.accept_dad=0
        ip -n $name link set eth0 up
    done
    ip netns exec router sysctl -qw net.ipv6.conf.far.accept_dad=0 net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip -n router link set far up
    ip -n router address add 192.168.121.254/24 dev eth0
    ip -n router address add fd21::fe/64 dev eth0 nodad
    ip -n router address add 10.7.0.1/24 dev far
    ip -n router address add fd07::1/64 dev far nodad
    ip -n far address add 10.7.0.2/24 dev eth0
    ip -n far address add fd07::2/64 dev eth0 nodad
    ip -n far route add default via 10.7.0.1
    ip -n far route add default via fd07::1
    for n in 1 2; do
        ip -n s$n route add 10.7.0.0/24 via 192.168.121.254
        ip -n s$n route add fd07::/64 via fd21::fe
    done";

#[test]
fn services_of_every_kind_serve_their_clients() {
    lab::inside(|| {
        begin();
        said(&format!("nsenter --net=/proc/1/ns/net sh -ec '{MORE}'"));
        let director = Director::start(&Text { servers: SECTIONS, ..PLAIN });
        let both = |to: &'static str| within("client", move || share(to, 4)).join().unwrap();
        assert_eq!(both("192.168.121.3:80"), BTreeMap::from([(1, 2), (2, 2)]), "marked");

        // A client of UDP stays as long as it has its port.
        let by = within("client", || {
            let ask = || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.set_read_timeout(Some(network::PATIENCE)).unwrap();
                [(); 3].map(|()| {
                    let mut answer = [0];
                    socket.send_to(b"?", VIP).unwrap();
                    socket.recv(&mut answer).unwrap();
                    answer[0]
                })
            };
            [ask(), ask()]
        });
        let mut by = by.join().unwrap();
        by.sort_unstable();
        assert_eq!(by, [[1; 3], [2; 3]]);

        // A client stays with its server until that is in maintenance.
        let stays = both("192.168.121.4:80");
        let (&by, 4) = stays.first_key_value().unwrap() else { panic!("{stays:?}") };
        director.tell(&format!("set server sticky/s{by} state maint"));
        until("it gets nothing new in the kernel", || {
            dump().contains(&format!("-a -t 192.168.121.4:80 -r 192.168.121.1{by}:80 -g -w 0"))
        });
        assert_eq!(both("192.168.121.4:80"), BTreeMap::from([(3 - by, 4)]));

        // A server with as many connections as it may have gets no more.
        let by = within("client", || {
            let mut held = [(); 6].map(|()| Download::begin("192.168.121.5:80"));
            held.each_mut().map(|download| download.next(1).unwrap())
        });
        let by = by.join().unwrap();
        assert_eq!(by.iter().filter(|by| **by == 1).count(), 2, "{by:?}");

        // A spare one serves while no other does, and what it has by then it keeps.
        let spare = "192.168.121.6:80";
        assert_eq!(both(spare), BTreeMap::from([(1, 4)]));
        director.tell("set server spare/s1 state maint");
        until("the spare one is in", || dump().contains(&format!("-a -t {spare} -r 192.168.121.12:80 -g -w 1")));
        assert_eq!(both(spare), BTreeMap::from([(2, 4)]));
        let mut held = within("client", move || Download::begin(spare)).join().unwrap();
        held.goes_on(2);
        director.tell("set server spare/s1 state ready");
        until("it is out again", || dump().contains(&format!("-a -t {spare} -r 192.168.121.12:80 -g -w 0")));
        assert_eq!(both(spare), BTreeMap::from([(1, 4)]));
        held.goes_on(2);

        // What a router tells the virtual address of a packet that is too large for the client's link comes to the server that sent it.
        let far = within("far", || {
            [VIP, VIP, network::VIP6, network::VIP6].map(|to| Download::begin(to).next(PIECE).unwrap())
        });
        let mut far = far.join().expect("downloads through the small link");
        far.sort_unstable();
        assert_eq!(far, [1, 1, 2, 2]);
        for server in ["s1", "s2"] {
            for client in ["10.7.0.2", "fd07::2"] {
                let known = said(&format!("ip -n {server} route get {client}"));
                assert!(known.contains("mtu 1300"), "{known}");
            }
        }
    });
}
