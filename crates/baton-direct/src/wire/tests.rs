use proptest::prelude::*;

use super::*;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn path(source: &str, destination: &str) -> Path {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    Path { from: OWN, to: OTHER, source, destination, hops: 1 }
}

/// The paths of both families.
fn paths() -> [Path; 2] {
    [path("192.0.2.1", "192.0.2.7"), path("2001:db8::1", "2001:db8::7")]
}

/// A TCP segment back to where a path came from.
fn back(path: &Path, payload: Vec<u8>, protocol: u8, sum_at: usize) -> Vec<u8> {
    let back = Path { from: path.to, to: path.from, source: path.destination, destination: path.source, hops: 64 };
    frame(&back, protocol, payload, sum_at)
}

#[test]
fn the_checksum_is_that_of_the_rfc() {
    // RFC 1071 3.
    assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
    assert_eq!(checksum(&[&[0xff; 9]]), !0xff00);
}

#[test]
fn what_is_made_is_read_again() {
    for path in paths() {
        let ports = tcp::Ports { source: 4711, destination: 80 };
        let made = tcp::syn(&path, ports, 7);
        let read = packet(&made).unwrap();
        assert_eq!((read.mac, read.source, read.destination, read.hops), (OWN, path.source, path.destination, 1));
        let pseudo = pseudo_header(path.source, path.destination, TCP, read.payload.len());
        assert_eq!(checksum(&[&pseudo, read.payload]), 0);
        assert_eq!(tcp::answer(&read, path.destination, ports, 7), None, "a question is no answer");
    }
    let of_ipv4 = tcp::syn(&paths()[0], tcp::Ports { source: 1, destination: 2 }, 7);
    assert_eq!(checksum(&[&of_ipv4[ETHERNET..ETHERNET + IPV4]]), 0);
}

#[test]
fn answers_to_a_syn_are_told_apart() {
    let ports = tcp::Ports { source: 4711, destination: 80 };
    for path in paths() {
        let answered = |flags: u8, acknowledged: u32, from_port: u16| {
            let mut bytes = [from_port.to_be_bytes(), 4711u16.to_be_bytes()].concat();
            bytes.extend(99u32.to_be_bytes());
            bytes.extend(acknowledged.to_be_bytes());
            bytes.extend([0x50, flags, 4, 0, 0, 0, 0, 0]);
            let made = back(&path, bytes, TCP, 16);
            tcp::answer(&packet(&made).unwrap(), path.destination, ports, u32::MAX)
        };
        assert_eq!(answered(0x12, 0, 80), Some(tcp::SynReply::Listens(0)));
        assert_eq!(answered(0x14, 0, 80), Some(tcp::SynReply::Refuses));
        assert_eq!(answered(0x12, 1, 80), None, "another number");
        assert_eq!(answered(0x12, 0, 81), None, "another port");
        assert_eq!(answered(0x10, 0, 80), None, "neither");
    }
}

#[test]
fn an_echo_and_a_router_that_refuses_are_known() {
    for path in paths() {
        let is_ipv4 = path.source.is_ipv4();
        let protocol = if is_ipv4 { ICMP } else { ICMPV6 };
        let asked = echo::request(&path, 0xdead_beef);
        let mut reply = packet(&asked).unwrap().payload.to_vec();
        assert!(!echo::is_reply(&packet(&asked).unwrap(), path.destination, 0xdead_beef));
        reply[0] = if is_ipv4 { 0 } else { 129 };
        let reply = back(&path, reply, protocol, 2);
        assert!(echo::is_reply(&packet(&reply).unwrap(), path.destination, 0xdead_beef));
        assert!(!echo::is_reply(&packet(&reply).unwrap(), path.destination, 1));
        assert!(!echo::is_reply(&packet(&reply).unwrap(), path.source, 0xdead_beef));
        let mut exceeded = vec![if is_ipv4 { 11 } else { 3 }, 0, 0, 0, 0, 0, 0, 0];
        exceeded.extend(&asked[ETHERNET..]);
        let exceeded = back(&path, exceeded, protocol, 2);
        assert!(echo::is_exceeded(&packet(&exceeded).unwrap(), path.destination));
        assert!(!echo::is_exceeded(&packet(&exceeded).unwrap(), path.source));
    }
}

#[test]
fn arp_is_asked_and_answered() {
    let (own, vip) = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
    let asked = arp::read(&arp::request(OWN, own, vip)).unwrap();
    assert_eq!(asked, arp::Arp { is_reply: false, mac: OWN, sender: own, target: vip });
    let said = arp::read(&arp::announcement(OWN, vip)).unwrap();
    assert_eq!((said.is_reply, said.sender, said.target), (false, vip, vip));
    assert!(arp::read(&arp::unasked_reply(OWN, vip)).unwrap().is_reply);
    let mut wrong = arp::announcement(OWN, vip);
    for length in 0..wrong.len() {
        assert_eq!(arp::read(&wrong[..length]), None, "cut off after {length}");
    }
    wrong[ETHERNET + 4] = 8;
    assert_eq!(arp::read(&wrong), None, "hardware addresses of eight bytes");
    assert_eq!(arp::read(&arp::announcement(Mac::BROADCAST, vip)), None, "nobody is everybody");
}

#[test]
fn advertisements_are_believed_as_the_rfc_says() {
    let vip: Ipv6Addr = "2001:db8::7".parse().unwrap();
    let made = ndp::announcement(OWN, vip, false);
    let said = ndp::read(&made).unwrap();
    assert_eq!((said.mac, said.target, said.is_solicited, said.is_override), (OWN, vip, false, true));
    assert_eq!(made[..6], [0x33, 0x33, 0, 0, 0, 1]);
    for length in 0..made.len() {
        assert_eq!(ndp::read(&made[..length]), None, "cut off after {length}");
    }
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut other = made.clone();
        change(&mut other);
        ndp::read(&other)
    };
    assert_eq!(with(&|bytes| bytes[ETHERNET + 7] = 254), None, "a router carried it");
    assert_eq!(with(&|bytes| bytes[ETHERNET + IPV6 + 1] = 1), None, "another code");
    assert_eq!(with(&|bytes| bytes[ETHERNET + IPV6 + 30] ^= 1), None, "a wrong checksum");
    assert_eq!(with(&|bytes| bytes[ETHERNET + IPV6 + 25] = 0), None, "an option without a length");
    assert_eq!(with(&|bytes| bytes[ETHERNET + IPV6 + 25] = 200), None, "an option that is too long");
    let asked = ndp::solicitation(OWN, Ipv6Addr::UNSPECIFIED, "2001:db8::1:203:405".parse().unwrap());
    assert_eq!(asked[..6], [0x33, 0x33, 0xff, 3, 4, 5]);
    assert_eq!(asked.len(), ETHERNET + IPV6 + 24, "from nobody there is no hardware address in it");
    assert_eq!(ndp::read(&asked), None);
}

proptest! {
    #[test]
    fn whatever_comes_is_data(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..4usize) {
        let mut frame = bytes;
        // Most random bytes are of no kind that is looked at.
        if let (Some(there), Some(kind)) = (frame.get_mut(12..14), [[8, 6], [8, 0], [0x86, 0xdd]].get(kind)) {
            there.copy_from_slice(kind);
        }
        let _ = arp::read(&frame);
        let _ = ndp::read(&frame);
        if let Some(packet) = packet(&frame) {
            let ports = tcp::Ports { source: 1, destination: 2 };
            let _ = tcp::answer(&packet, packet.source, ports, 3);
            let _ = echo::is_reply(&packet, packet.source, 3);
            let _ = echo::is_exceeded(&packet, packet.destination);
        }
    }
}
