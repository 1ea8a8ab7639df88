//! The program on an interface, in the driver and in the stack.

use super::*;

#[test]
fn it_moves_between_the_driver_and_the_stack_and_stays_where_it_was_when_that_is_refused() {
    apart(|mounted| {
        let status = Command::new("ip").args(["link", "add", "left", "type", "veth", "peer", "name", "right"]).status();
        assert!(status.expect("the package iproute2 is installed").success());
        let mut routing = Routing::open().unwrap();
        let [left, right] = ["left", "right"].map(|name| routing.link(name).unwrap().index);
        [left, right].into_iter().for_each(|index| routing.set_up(index, true).unwrap());
        let mut direct = Direct::make(&mounted.join("baton-direct/1"), 1000).unwrap();
        direct.attach(left, "left", &[XdpMode::Native]).unwrap();
        direct.attach(1, "lo", &[XdpMode::Generic]).unwrap();
        for mode in [XdpMode::Generic, XdpMode::Generic, XdpMode::Native] {
            direct.move_to(left, "left", mode).unwrap();
            assert_eq!(direct.attached().unwrap(), [(1, XdpMode::Generic), (left, mode)]);
            assert!(direct.renew().unwrap().is_empty(), "the link ties it");
        }
        // The loopback has no driver.
        let refused = direct.move_to(1, "lo", XdpMode::Native).unwrap_err().to_string();
        assert!(refused.contains("interface lo: attaching the BPF program to its driver"), "{refused}");
        assert_eq!(direct.attached().unwrap(), [(1, XdpMode::Generic), (left, XdpMode::Native)]);
        assert!(direct.renew().unwrap().is_empty());
        if let Some(none) = driver(1) {
            assert_eq!(none, Driver { runs: false, sends: false });
            assert_eq!(driver(left), Some(Driver { runs: true, sends: false }), "nobody is at the other end");
            assert_eq!(driver(right), Some(Driver { runs: true, sends: true }), "a program is at the other end");
        }
        for (word, joins) in [("on", true), ("off", false)] {
            let set = Command::new("ethtool").args(["-K", "left", "gro", word, "rxvlan", word]).status();
            assert!(set.expect("the package ethtool is installed").success());
            assert_eq!((joins_packets("left"), strips_tags("left")), (Some(joins), Some(joins)));
        }
        assert_eq!((joins_packets("none"), strips_tags("none")), (None, None));
        direct.remove().unwrap();
    });
}

#[test]
fn where_frames_are_not_sent_back_they_are_redirected() {
    director(|direct| {
        let packet = frame(&[], &tcp(CLIENT, VIP, SYN));
        sends(direct, &packet, NEAR);
        let server = direct.server(NEAR).unwrap();
        direct.set_server(NEAR, &ServerSlot { leaves: REDIRECTED, ..server }).unwrap();
        assert_eq!(direct.run(&packet).unwrap(), (XdpAction::Redirect, to_server(&packet, NEAR, 1)));
    });
}
