//! ICMP's echo (RFC 792, RFC 4443), and what a router says of a packet that it may not carry on.

use std::net::IpAddr;

use super::{ICMP, ICMPV6, Packet, Path, frame};

/// Types: request, reply and "time exceeded", of IPv4 and of IPv6.
const REQUEST: (u8, u8) = (8, 128);
const REPLY: (u8, u8) = (0, 129);
const EXCEEDED: (u8, u8) = (11, 3);

/// "Are you there?", with a number to know the answer by.
pub fn request(path: &Path, number: u32) -> Vec<u8> {
    let (protocol, kind) = if path.destination.is_ipv4() { (ICMP, REQUEST.0) } else { (ICMPV6, REQUEST.1) };
    let mut message = vec![kind, 0, 0, 0];
    message.extend(number.to_be_bytes());
    frame(path, protocol, message, 2)
}

/// Whether a packet answers our request to `asked` with this number.
pub fn is_reply(packet: &Packet<'_>, asked: IpAddr, number: u32) -> bool {
    kind(packet) == Some(if asked.is_ipv4() { REPLY.0 } else { REPLY.1 })
        && packet.source == asked
        && packet.payload.get(4..8) == Some(&number.to_be_bytes()[..])
}

/// Whether a packet says that one to `asked` had no hops left: who sends it does not have the address, and is a router.
pub fn is_exceeded(packet: &Packet<'_>, asked: IpAddr) -> bool {
    let (wanted, at, octets) = match asked {
        IpAddr::V4(address) => (EXCEEDED.0, 16, address.octets().to_vec()),
        IpAddr::V6(address) => (EXCEEDED.1, 24, address.octets().to_vec()),
    };
    // Behind eight bytes of its own is the packet that it speaks of.
    let destination = packet.payload.get(8 + at..8 + at + octets.len());
    kind(packet) == Some(wanted) && destination == Some(&octets[..])
}

/// The type, where it is ICMP of the packet's family.
fn kind(packet: &Packet<'_>) -> Option<u8> {
    let wanted = if packet.source.is_ipv4() { ICMP } else { ICMPV6 };
    packet.payload.first().copied().filter(|_| packet.protocol == wanted)
}
