//! Packets as bytes: those that are asked with, and what is answered. Nothing here sends or waits.
//!
//! What comes from a network is data: whatever is cut off, too long or has wrong numbers is read as nothing.

pub mod arp;
pub mod echo;
pub mod ndp;
pub mod tcp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use baton_kernel::packet::EtherType;
use baton_kernel::route::Mac;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Bytes of an IPv4 header without options (RFC 791 3.1) and of an IPv6 header (RFC 8200 3).
const IPV4: usize = 20;
const IPV6: usize = 40;
/// Protocols (IANA).
pub const ICMP: u8 = 1;
const TCP: u8 = 6;
pub const ICMPV6: u8 = 58;

/// A packet in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The hardware address it came from.
    pub mac: Mac,
    /// Source.
    pub source: IpAddr,
    /// Destination.
    pub destination: IpAddr,
    /// What it carries.
    pub protocol: u8,
    /// Hops that it had left.
    pub hops: u8,
    /// What it carries, from that header on.
    pub payload: &'a [u8],
}

/// Who sends to whom, on the wire and above.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The sender's hardware address.
    pub from: Mac,
    /// The receiver's.
    pub to: Mac,
    /// Source.
    pub source: IpAddr,
    /// Destination, of the same family.
    pub destination: IpAddr,
    /// How many hops it may go; with 1 no router carries it on.
    pub hops: u8,
}

/// The Ethernet header.
fn ethernet(to: Mac, from: Mac, kind: EtherType) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.number().to_be_bytes()].concat()
}

/// A whole frame with this inside. Where the payload has a checksum over the addresses, `checksum_at` says where.
fn frame(path: &Path, protocol: u8, mut payload: Vec<u8>, checksum_at: usize) -> Vec<u8> {
    let mut frame = ethernet(path.to, path.from, EtherType::of(path.destination));
    let pseudo = pseudo_header(path.source, path.destination, protocol, payload.len());
    let sum = match protocol {
        // ICMP alone leaves the addresses out (RFC 792).
        ICMP => checksum(&[&payload]),
        _ => checksum(&[&pseudo, &payload]),
    };
    payload[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    match (path.source, path.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = (IPV4 + payload.len()) as u16;
            let mut header = vec![0x45, 0];
            header.extend(length.to_be_bytes());
            // No identification is needed for what is never cut in pieces (RFC 6864 4.1): the flag "don't fragment".
            header.extend([0, 0, 0x40, 0, path.hops, protocol, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        }
        (source, destination) => {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((payload.len() as u16).to_be_bytes());
            frame.extend([protocol, path.hops]);
            frame.extend(octets(source));
            frame.extend(octets(destination));
        }
    }
    frame.extend(payload);
    frame
}

/// The packet in a frame; `None` for anything but a whole one, or the first bytes of one, of IPv4 or of IPv6 without extension headers.
pub fn packet(frame: &[u8]) -> Option<Packet<'_>> {
    let mac = Mac(*frame.get(6..)?.first_chunk()?);
    let kind = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    let bytes = frame.get(ETHERNET..)?;
    if kind == EtherType::Ipv4.number() {
        let header = usize::from(bytes.first()? & 0x0f) * 4;
        let length = usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?));
        let is_piece = u16::from_be_bytes(*bytes.get(6..)?.first_chunk()?) & 0x3fff != 0;
        if bytes.first()? >> 4 != 4 || header < IPV4 || length < header || is_piece {
            return None;
        }
        // A short frame is filled up; what is above the length is not part of it.
        let end = length.min(bytes.len());
        Some(Packet {
            mac,
            source: Ipv4Addr::from(*bytes.get(12..)?.first_chunk::<4>()?).into(),
            destination: Ipv4Addr::from(*bytes.get(16..)?.first_chunk::<4>()?).into(),
            protocol: *bytes.get(9)?,
            hops: *bytes.get(8)?,
            payload: bytes.get(header..end)?,
        })
    } else if kind == EtherType::Ipv6.number() {
        let length = usize::from(u16::from_be_bytes(*bytes.get(4..)?.first_chunk()?));
        if bytes.first()? >> 4 != 6 {
            return None;
        }
        let end = (IPV6 + length).min(bytes.len());
        Some(Packet {
            mac,
            source: Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
            destination: Ipv6Addr::from(*bytes.get(24..)?.first_chunk::<16>()?).into(),
            protocol: *bytes.get(6)?,
            hops: *bytes.get(7)?,
            payload: bytes.get(IPV6..end)?,
        })
    } else {
        None
    }
}

/// What TCP's, UDP's and ICMPv6's checksums cover besides the packet (RFC 9293 3.1, RFC 8200 8.1).
fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    let mut bytes = octets(source);
    bytes.extend(octets(destination));
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// An address as it is in packets.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The Internet's checksum (RFC 1071) of parts, each but the last one of an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        let (pairs, rest) = part.as_chunks::<2>();
        sum += pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum::<u32>();
        sum += rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
