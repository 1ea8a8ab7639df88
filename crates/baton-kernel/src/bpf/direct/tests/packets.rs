//! Packets as fixtures, byte by byte.

pub(super) const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];

pub(super) const SYN: u8 = 0x02;
pub(super) const ACK: u8 = 0x10;
pub(super) const FIN: u8 = 0x01;
pub(super) const RST: u8 = 0x04;

pub(super) type End = (&'static str, u16);

/// The frame around an IP packet, with VLAN tags from the outside in.
pub(super) fn frame(tags: &[(u16, u16)], packet: &[u8]) -> Vec<u8> {
    let mut frame = [OURS, ROUTER].concat();
    for (protocol, number) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(number.to_be_bytes());
    }
    frame.extend(if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    frame.extend(packet);
    frame
}

pub(super) fn tcp(from: End, to: End, flags: u8) -> Vec<u8> {
    let mut segment = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    segment.extend([0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 0xff, 0xff, 0xde, 0xad, 0, 0]);
    segment.extend(b"hello");
    ip(from.0, to.0, 6, &segment)
}

pub(super) fn udp(from: End, to: End) -> Vec<u8> {
    let mut datagram = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    datagram.extend([0, 13, 0xde, 0xad]);
    datagram.extend(b"hello");
    ip(from.0, to.0, 17, &datagram)
}

/// An ICMP error from a router about a packet.
pub(super) fn error(router: &str, to: &str, kind: (u8, u8), quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind.0, kind.1, 0xde, 0xad, 0, 0, 5, 0];
    message.extend(quoted);
    ip(router, to, if router.contains(':') { 58 } else { 1 }, &message)
}

/// An IP packet with a checksum that is wrong: nobody here looks at it.
pub(super) fn ip(from: &str, to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (from.parse().unwrap(), to.parse().unwrap()) {
        (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
            let length = (20 + payload.len()) as u16;
            let mut packet = vec![0x45, 0];
            packet.extend(length.to_be_bytes());
            packet.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0xba, 0xd0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            packet.extend(payload);
            packet
        }
        (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) => {
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            packet.extend(payload);
            packet
        }
        _ => panic!("two families"),
    }
}

/// A packet with some bytes replaced.
pub(super) fn with(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}
