//! Neighbour discovery for IPv6 (RFC 4861): the question who has an address, and the answer.

use std::net::Ipv6Addr;

use baton_kernel::packet::FrameFilter;
use baton_kernel::route::Mac;

use super::{ETHERNET, ICMPV6, IPV6, Packet, Path, checksum, frame, packet, pseudo_header};

/// Types of ICMPv6.
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Options: the sender's and the target's hardware address.
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
/// Flags of an advertisement: from a router, asked for, and to be taken instead of what was known.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// No router carried it: the only number of hops that is believed (RFC 4861 7.1).
const HOPS: u8 = 255;
/// Bytes of both messages without options.
const MESSAGE: usize = 24;
/// Where things are in a frame.
const PROTOCOL_AT: u32 = ETHERNET as u32 + 6;
const TYPE_AT: u32 = (ETHERNET + IPV6) as u32;
const TARGET_AT: u32 = TYPE_AT + 8;
/// All nodes of the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Who has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The hardware address: what the message says, or else where it came from.
    pub mac: Mac,
    /// The address.
    pub target: Ipv6Addr,
    /// Whether it answers a question.
    pub is_solicited: bool,
    /// Whether it takes the place of what was known.
    pub is_override: bool,
}

/// "Who has `target`? Tell `source`." From `::` it asks without teaching anybody anything (RFC 4862 5.4).
pub fn solicitation(own: Mac, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    // The group of those whose addresses end with the same 24 bits (RFC 4291 2.7.1).
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c));
    let mut message = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    if !source.is_unspecified() {
        message.extend([SOURCE_MAC, 1]);
        message.extend(own.0);
    }
    frame(&to_group(own, source, group), ICMPV6, message, 2)
}

/// "I have `address`", to everybody (RFC 4861 7.2.6).
pub fn announcement(own: Mac, address: Ipv6Addr, is_router: bool) -> Vec<u8> {
    let flags = OVERRIDE | if is_router { ROUTER } else { 0 };
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    message.extend(address.octets());
    message.extend([TARGET_MAC, 1]);
    message.extend(own.0);
    frame(&to_group(own, address, ALL_NODES), ICMPV6, message, 2)
}

/// Frames in which somebody says to have this address.
pub fn claims(address: Ipv6Addr) -> FrameFilter {
    all_claims().bytes(TARGET_AT, &address.octets())
}

/// Frames in which somebody says to have any address.
pub fn all_claims() -> FrameFilter {
    FrameFilter::new().byte(PROTOCOL_AT, ICMPV6).byte(TYPE_AT, ADVERTISEMENT)
}

/// A packet to a group, whose hardware address is made of its last four bytes (RFC 2464 7).
fn to_group(own: Mac, source: Ipv6Addr, group: Ipv6Addr) -> Path {
    let [.., a, b, c, d] = group.octets();
    Path { from: own, to: Mac([0x33, 0x33, a, b, c, d]), source: source.into(), destination: group.into(), hops: HOPS }
}

/// What a frame says; `None` when it is no advertisement that is to be believed (RFC 4861 7.1.2).
pub fn read(bytes: &[u8]) -> Option<Advertisement> {
    let Packet { mac, source, destination, protocol, hops, payload } = packet(bytes)?;
    let [kind, code, _, _, flags, ..] = *payload.first_chunk::<MESSAGE>()?;
    if (protocol, hops, kind, code) != (ICMPV6, HOPS, ADVERTISEMENT, 0) {
        return None;
    }
    if checksum(&[&pseudo_header(source, destination, ICMPV6, payload.len()), payload]) != 0 {
        return None;
    }
    let target = Ipv6Addr::from(*payload.get(8..)?.first_chunk::<16>()?);
    let mut mac = mac;
    let mut options = payload.get(MESSAGE..)?;
    while let [kind, units, ..] = *options {
        let length = usize::from(units) * 8;
        if length == 0 || length > options.len() {
            return None;
        }
        let (option, rest) = options.split_at(length);
        if kind == TARGET_MAC {
            mac = Mac(*option.get(2..)?.first_chunk()?);
        }
        options = rest;
    }
    if mac.is_group() || mac.is_zero() {
        return None;
    }
    Some(Advertisement { mac, target, is_solicited: flags & SOLICITED != 0, is_override: flags & OVERRIDE != 0 })
}
