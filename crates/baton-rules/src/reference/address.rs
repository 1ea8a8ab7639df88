//! Patterns of addresses: networks, and IPv4 addresses under any mask.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::args::{prefix4, prefix6};

/// An address and which of its bits count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AddressPattern {
    V4 { address: u32, mask: u32 },
    V6 { address: u128, bits: u32 },
}

impl AddressPattern {
    /// Reads `A.B.C.D`, `A.B.C.D/24`, `A.B.C.D/255.255.255.0`, `::1` or `2001:db8::/32`.
    pub fn parse(text: &str) -> Option<AddressPattern> {
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask)),
            None => (text, None),
        };
        match (address.parse().ok()?, mask) {
            (IpAddr::V4(address), mask) => {
                let mask = match mask.map(|mask| (mask.parse::<u32>(), mask)) {
                    None => u32::MAX,
                    Some((Ok(bits), _)) if bits <= 32 => prefix4(bits),
                    Some((Err(_), mask)) => mask.parse::<Ipv4Addr>().ok()?.into(),
                    Some(_) => return None,
                };
                Some(AddressPattern::V4 { address: u32::from(address) & mask, mask })
            }
            (IpAddr::V6(address), mask) => {
                let bits = mask.map_or(Some(128), |mask| mask.parse().ok().filter(|bits| *bits <= 128))?;
                Some(AddressPattern::V6 { address: u128::from(address) & prefix6(bits), bits })
            }
        }
    }

    /// Whether `address` is in it. An IPv4 address that an IPv6 one embeds counts as itself, and the other way round.
    pub fn holds(&self, address: IpAddr) -> bool {
        match *self {
            AddressPattern::V4 { address: own, mask } => embedded(address).is_some_and(|other| other & mask == own),
            AddressPattern::V6 { address: own, bits } => widened(address) & prefix6(bits) == own,
        }
    }
}

/// An IPv4 address, also one that an IPv6 address maps (RFC 4291 2.5.5), or that 6to4 has in it (RFC 3056).
pub(super) fn embedded(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => Some(address.into()),
        IpAddr::V6(address) => embedded6(address),
    }
}

fn embedded6(address: Ipv6Addr) -> Option<u32> {
    let bits = u128::from(address);
    match (bits >> 112, bits >> 32) {
        (0x2002, _) => Some((bits >> 80) as u32),
        (_, 0 | 0xffff) => Some(bits as u32),
        _ => None,
    }
}

/// The address as an IPv6 one.
pub(super) fn widened(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => address.into(),
    }
}
