use std::process::{Command, Stdio};

use serde_json::Value;

use super::*;
use crate::netns;

/// In a network of its own, if there is the right to one.
fn alone(test: impl FnOnce(&mut Routing) + Send) {
    if let Err(error) = netns::in_new(|| test(&mut Routing::open().unwrap())) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

/// `ip` with these words.
fn ip_program(words: &str) -> String {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("the program ip (iproute2)");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What `ip -json` shows.
fn shown(words: &str) -> Value {
    serde_json::from_str(&ip_program(&format!("-json {words}"))).unwrap()
}

/// Two ends of a cable, both up.
fn cable() {
    ip_program("link add one type veth peer name two");
    ip_program("link set one up");
    ip_program("link set two up");
}

#[test]
fn links_are_those_that_ip_shows() {
    alone(|routing| {
        cable();
        ip_program("link set one mtu 1400");
        ip_program("link add br0 type bridge");
        ip_program("link set two master br0");
        let tagged = "link add link one name tagged type vlan id 7";
        let has_vlan = Command::new("ip").args(tagged.split(' ')).stderr(Stdio::null()).status();
        let links = routing.links().unwrap();
        let shown = shown("-details link show");
        let shown = shown.as_array().unwrap();
        assert_eq!(links.len(), shown.len());
        for link in &links {
            let other = shown.iter().find(|other| other["ifname"] == link.name.as_str()).expect(&link.name);
            assert_eq!(other["ifindex"], link.index);
            assert_eq!(other["mtu"], link.mtu);
            assert_eq!(other["address"], link.mac.unwrap().to_string());
            let flags: Vec<&str> = other["flags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert_eq!(flags.contains(&"UP"), link.is_up, "{link:?}");
            assert_eq!(flags.contains(&"LOWER_UP"), link.has_carrier, "{link:?}");
            assert_eq!(flags.contains(&"LOOPBACK"), link.is_loopback, "{link:?}");
            assert_eq!(other["linkinfo"]["info_kind"].as_str(), link.kind.as_deref());
            let master = link.master.map(|index| routing.link_by_index(index).unwrap().unwrap().name);
            assert_eq!(other["master"].as_str(), master.as_deref());
        }
        let one = routing.link("one").unwrap();
        assert_eq!(Some(&one), links.iter().find(|link| link.name == "one"));
        assert_eq!(routing.link_by_index(one.index).unwrap(), Some(one.clone()));
        assert_eq!(one.kind.as_deref(), Some("veth"));
        if has_vlan.unwrap().success() {
            let tagged = routing.link("tagged").unwrap();
            let tag = Vlan { number: 7, protocol: [0x81, 0x00] };
            assert_eq!((tagged.vlan, tagged.lower), (Some(tag), Some(one.index)));
        } else {
            eprintln!("SKIPPED: the kernel has no VLAN");
        }
    });
}

#[test]
fn links_are_set_up_made_and_removed() {
    alone(|routing| {
        ip_program("link add one type veth peer name two");
        let one = routing.link("one").unwrap();
        assert!(!one.is_up);
        for up in [true, true, false] {
            routing.set_up(one.index, up).unwrap();
            assert_eq!(routing.link("one").unwrap().is_up, up);
        }
        assert!(routing.add_link("bridge0", "bridge").unwrap());
        assert!(!routing.add_link("bridge0", "bridge").unwrap(), "it is there");
        let fault = routing.add_link("strange", "there-is-no-such-kind").unwrap_err();
        assert!(fault.remedy.contains("modprobe"), "{fault}");
        assert!(routing.set_up(u32::from(u16::MAX), true).is_err());
    });
}

#[test]
fn a_link_that_is_not_there_is_named() {
    alone(|routing| {
        for name in ["baton-none", "", "a-name-that-is-longer-than-any"] {
            assert_eq!(routing.find_link(name).unwrap(), None);
        }
        let fault = routing.link("baton-none").unwrap_err();
        assert!(fault.to_string().contains("interface baton-none: there is no such interface"), "{fault}");
        assert!(fault.remedy.contains("ip link"));
        assert_eq!(routing.link_by_index(9999).unwrap(), None);
    });
}

#[test]
fn addresses_are_added_listed_and_removed() {
    alone(|routing| {
        cable();
        let one = routing.link("one").unwrap();
        let lo = routing.link("lo").unwrap();
        let mut vip = Address::single(one.index, "192.0.2.7".parse().unwrap());
        vip.label = Some("one:vip".into());
        vip.protocol = 0xba;
        let mut vip6 = Address::single(lo.index, "2001:db8::7".parse().unwrap());
        (vip6.without_detection, vip6.without_route, vip6.is_deprecated) = (true, true, true);
        vip6.protocol = 0xba;
        let net = Address::within(one.index, "198.51.100.1".parse().unwrap(), 24);
        for address in [&vip, &vip6, &net] {
            assert!(routing.add_address(address).unwrap());
            assert!(!routing.add_address(address).unwrap(), "it is there");
        }
        let all = routing.addresses().unwrap();
        let find = |address: &Address| all.iter().find(|known| known.address == address.address).cloned().unwrap();
        assert_eq!(find(&vip), vip);
        assert_eq!(find(&vip6), vip6);
        assert_eq!(find(&net).prefix, 24);
        assert_eq!(find(&net).label.as_deref(), Some("one"));
        assert_eq!(find(&Address::single(lo.index, "127.0.0.1".parse().unwrap())).scope, Scope::Host);
        let of_one = shown("address show dev one");
        let of_one = of_one[0]["addr_info"].as_array().unwrap();
        let seen = of_one.iter().find(|seen| seen["local"] == "192.0.2.7").unwrap();
        assert_eq!((&seen["prefixlen"], &seen["label"]), (&32.into(), &"one:vip".into()));
        let of_lo = shown("address show dev lo").to_string();
        assert!(["2001:db8::7", "nodad", "deprecated"].iter().all(|word| of_lo.contains(word)), "{of_lo}");
        // Another prefix is another address.
        assert!(!routing.remove_address(&Address { prefix: 24, ..vip.clone() }).unwrap());
        for address in [&vip, &vip6, &net] {
            assert!(routing.remove_address(address).unwrap());
            assert!(!routing.remove_address(address).unwrap());
        }
        let fault = routing.add_address(&Address::single(9999, "192.0.2.7".parse().unwrap())).unwrap_err();
        assert!(fault.to_string().contains("192.0.2.7/32 on interface 9999"), "{fault}");
    });
}

#[test]
fn neighbours_answer_and_fail() {
    alone(|routing| {
        cable();
        ip_program("address add 192.0.2.1/24 dev one");
        ip_program("neighbour add 192.0.2.9 lladdr 02:00:00:00:00:09 dev one nud permanent");
        ip_program("-6 neighbour add 2001:db8::9 lladdr 02:00:00:00:00:69 dev one nud stale");
        let one = routing.link("one").unwrap().index;
        let (known, known6) = ("192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap());
        let of = |reachability, address, mac: &str| Neighbour {
            interface: one,
            address,
            mac: Some(mac.parse().unwrap()),
            reachability,
        };
        let (permanent, stale) = (
            of(Reachability::Permanent, known, "02:00:00:00:00:09"),
            of(Reachability::Stale, known6, "02:00:00:00:00:69"),
        );
        assert_eq!(routing.neighbour(one, known).unwrap(), Some(permanent.clone()));
        assert_eq!(routing.neighbour(one, known6).unwrap(), Some(stale.clone()));
        let all = routing.neighbours().unwrap();
        assert!(all.contains(&permanent) && all.contains(&stale), "{all:?}");
        assert!(permanent.usable().is_some() && stale.usable().is_some());

        let nobody = "192.0.2.77".parse().unwrap();
        assert_eq!(routing.neighbour(one, nobody).unwrap(), None);
        routing.resolve_neighbour(one, nobody).unwrap();
        let asked = routing.neighbour(one, nobody).unwrap().unwrap();
        assert!(matches!(asked.reachability, Reachability::Incomplete | Reachability::Failed), "{asked:?}");
        assert_eq!(asked.usable(), None);
        assert!(shown("neighbour show dev one").to_string().contains("192.0.2.77"));
        routing.resolve_neighbour(one, known).unwrap();
        assert_eq!(routing.neighbour(one, known).unwrap(), Some(permanent));
        assert!(routing.resolve_neighbour(9999, nobody).is_err());
    });
}

#[test]
fn ways_are_those_that_the_kernel_takes() {
    alone(|routing| {
        cable();
        ip_program("address add 192.0.2.1/24 dev one");
        ip_program("-6 address add 2001:db8::1/64 dev one nodad");
        ip_program("route add 198.51.100.0/24 via 192.0.2.254 mtu 1300");
        ip_program("route add 203.0.113.0/24 via inet6 2001:db8::fe dev one");
        ip_program("-6 route add 2001:db8:1::/64 via 2001:db8::fe");
        ip_program("route add blackhole 192.88.99.0/24");
        let one = routing.link("one").unwrap().index;
        let mut way = |to: &str| routing.route_to(to.parse().unwrap()).unwrap();
        let direct = way("192.0.2.5").unwrap();
        assert_eq!((direct.kind, direct.interface, direct.via), (RouteKind::Unicast, one, None));
        assert_eq!(direct.source, Some("192.0.2.1".parse().unwrap()));
        let far = way("198.51.100.7").unwrap();
        assert_eq!((far.interface, far.via, far.mtu), (one, Some("192.0.2.254".parse().unwrap()), Some(1300)));
        assert_eq!(way("203.0.113.7").unwrap().via, Some("2001:db8::fe".parse().unwrap()));
        assert_eq!(way("2001:db8:1::7").unwrap().via, Some("2001:db8::fe".parse().unwrap()));
        assert_eq!(way("2001:db8::5").unwrap().interface, one);
        assert_eq!(way("192.0.2.1").unwrap().kind, RouteKind::Local);
        assert_eq!(way("127.0.0.1").unwrap().kind, RouteKind::Local);
        for nowhere in ["192.88.99.1", "8.8.8.8", "2600::1"] {
            assert!(way(nowhere).is_none_or(|way| way.kind == RouteKind::Refused), "{nowhere}");
        }
    });
}
