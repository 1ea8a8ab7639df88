use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::netns;
use crate::route::Routing;

/// Where the kind of a frame and ARP's operation are.
const KIND: u32 = 12;
const OPERATION: u32 = 20;

/// Two ends of a cable in a network of its own, if there is the right to one.
fn with_cable(test: impl FnOnce(u32, u32) + Send) {
    let inside = || {
        for words in ["link add one type veth peer name two", "link set one up", "link set two up"] {
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
        }
        let mut routing = Routing::open().unwrap();
        test(routing.link("one").unwrap().index, routing.link("two").unwrap().index);
    };
    if let Err(error) = netns::in_new(inside) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A frame of ARP with this operation and so many bytes.
fn frame(operation: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend(EtherType::Arp.number().to_be_bytes());
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    frame.resize(length, operation);
    frame
}

#[test]
fn frames_come_through_the_filter() {
    with_cable(|one, two| {
        let replies =
            FrameFilter::new().half(KIND, EtherType::Arp.number()).half(OPERATION, 2).byte(30, 2).bits(31, 3, 2);
        let receiver = PacketSocket::open(two, EtherType::Arp, &replies.bytes(34, &[2; 4])).unwrap();
        let sender = PacketSocket::open(one, EtherType::Arp, &FrameFilter::new()).unwrap();
        // Another operation, one that is too short for the filter, and those that are meant.
        for sent in [frame(1, 60), frame(2, 36), frame(2, 60), frame(2, 1500)] {
            sender.send(&sent).unwrap();
        }
        assert_eq!(receiver.receive(soon()).unwrap(), Some(frame(2, 60)));
        assert_eq!(receiver.receive(soon()).unwrap(), Some(frame(2, 1500)));
        assert_eq!(receiver.receive(Instant::now()).unwrap(), None);
        assert_eq!(receiver.receive(Instant::now() + Duration::from_millis(2)).unwrap(), None);
        let either = FrameFilter::new().half(OPERATION, 3).or().half(OPERATION, 5).byte(30, 5).or().half(OPERATION, 4);
        let receiver = PacketSocket::open(two, EtherType::Arp, &either).unwrap();
        for operation in 1..=6 {
            sender.send(&frame(operation, 60)).unwrap();
        }
        for operation in 3..=5 {
            assert_eq!(receiver.receive(soon()).unwrap(), Some(frame(operation, 60)));
        }
        assert_eq!(receiver.receive(Instant::now()).unwrap(), None);
        // What we send does not come back to us.
        assert_eq!(sender.receive(Instant::now()).unwrap(), None);
    });
}

#[test]
fn an_interface_that_is_not_there_or_goes_down_is_an_error() {
    with_cable(|one, _| {
        let fault = PacketSocket::open(9999, EtherType::Ipv4, &FrameFilter::new()).unwrap_err();
        assert!(fault.to_string().contains("packet socket on interface 9999"), "{fault}");
        assert!(PacketSocket::open(u32::MAX, EtherType::Ipv4, &FrameFilter::new()).is_err());
        let socket = PacketSocket::open(one, EtherType::Ipv4, &FrameFilter::new()).unwrap();
        Routing::open().unwrap().set_up(one, false).unwrap();
        assert!(socket.receive(soon()).is_err() || socket.send(&frame(1, 60)).is_err());
    });
}

#[test]
fn a_missing_right_is_named() {
    let without = || {
        crate::process::capabilities::reduce_to(&[]).unwrap();
        PacketSocket::open(1, EtherType::Arp, &FrameFilter::new())
    };
    let fault = std::thread::spawn(without).join().unwrap().unwrap_err();
    assert!(fault.remedy.contains("CAP_NET_RAW"), "{fault}");
}

#[test]
fn a_reserved_port_is_nobody_elses() {
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)] {
        let port = ReservedPort::tcp(address).unwrap();
        assert!(TcpListener::bind((address, port.number())).is_err());
        let number = port.number();
        drop(port);
        TcpListener::bind((address, number)).unwrap();
    }
    assert!(ReservedPort::tcp("192.0.2.1".parse().unwrap()).is_err());
}
