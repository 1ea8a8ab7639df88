//! A packet read as the first one of a TCP connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `IPPROTO_TCP`
const TCP: u8 = 6;
/// Headers of IPv6 before that of TCP that are stepped over at most.
const EXTENSIONS_MAX: usize = 8;

/// Who wants to connect to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Syn {
    /// The client.
    pub from: SocketAddr,
    /// The address it dialled, behind what netfilter made of it so far.
    pub to: SocketAddr,
    /// The number of its first byte: that of one SYN sent twice is the same.
    pub sequence: u32,
}

impl Syn {
    /// Reads a packet from its IP header on. `None` for one that is not the first of a TCP connection, or cut off.
    pub fn read(packet: &[u8]) -> Option<Syn> {
        let (from, to, tcp) = match packet.first()? >> 4 {
            4 => ipv4(packet)?,
            6 => ipv6(packet)?,
            _ => return None,
        };
        let port = |at: usize| Some(u16::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        let sequence = u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?);
        let flags = *tcp.get(13)?;
        // SYN, and neither ACK, RST nor FIN.
        (flags & 0x17 == 0x02).then_some(())?;
        Some(Syn { from: SocketAddr::new(from, port(0)?), to: SocketAddr::new(to, port(2)?), sequence })
    }
}

fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let length = usize::from(packet[0] & 0x0f) * 4;
    (*packet.get(9)? == TCP).then_some(())?;
    let address = |at: usize| Some(IpAddr::from(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)));
    Some((address(12)?, address(16)?, packet.get(length..)?))
}

fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let address = |at: usize| Some(IpAddr::from(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?)));
    let mut next = *packet.get(6)?;
    let mut rest = packet.get(40..)?;
    for _ in 0..EXTENSIONS_MAX {
        // Hop-by-hop options, routing and destination options tell their length alike (RFC 8200, 4).
        let (0 | 43 | 60) = next else { break };
        let length = 8 * (usize::from(*rest.get(1)?) + 1);
        next = *rest.first()?;
        rest = rest.get(length..)?;
    }
    (next == TCP).then(|| Some((address(8)?, address(24)?, rest)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(flags: u8) -> Vec<u8> {
        let mut tcp = vec![0x9c, 0x40, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, flags];
        tcp.resize(20, 0);
        tcp
    }

    fn four(options: usize, tcp: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45 + options as u8, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend(vec![0; options * 4]);
        packet.extend(tcp);
        packet
    }

    fn six(tcp: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 20, 60, 64];
        packet.extend([Ipv6Addr::LOCALHOST.octets(), "fd00::2".parse::<Ipv6Addr>().unwrap().octets()].concat());
        packet.extend([6, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(tcp);
        packet
    }

    #[test]
    fn reads_both_families() {
        let expect =
            |from: &str, to: &str| Some(Syn { from: from.parse().unwrap(), to: to.parse().unwrap(), sequence: 7 });
        for options in [0, 2] {
            assert_eq!(Syn::read(&four(options, &tcp(0xc2))), expect("10.0.0.1:40000", "10.0.0.2:80"));
        }
        assert_eq!(Syn::read(&six(&tcp(2))), expect("[::1]:40000", "[fd00::2]:80"));
    }

    #[test]
    fn anything_else_is_none() {
        for flags in [0x12, 0x10, 0x04, 0x03, 0] {
            assert_eq!(Syn::read(&four(0, &tcp(flags))), None);
        }
        for whole in [four(3, &tcp(2)), six(&tcp(2))] {
            for length in 0..whole.len() - 6 {
                assert_eq!(Syn::read(&whole[..length]), None, "{length}");
            }
        }
        assert_eq!(Syn::read(&[0x60; 60]), None);
        assert_eq!(Syn::read(&[0; 60]), None);
    }
}
