//! The client IP header of NetScaler (netscaler-client-ip-insertion-protocol.txt of the package `haproxy-doc`): the IP and TCP headers of
//! the client's packet, before the first bytes of its connection. Pure functions on bytes.
//!
//! HAProxy 2.6 wants it whole in the first segment, and reads ports beyond a header that is too short; here it may come in pieces, and
//! such a header is invalid.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::proxy_protocol::{Addresses, Header, Malformed};

/// Magic number and length.
const FIXED: usize = 8;
/// Type and length of the headers, in the format of NetScaler 10.5 and newer.
const STANDARD: usize = 4;
/// The longest headers. Those of IP and TCP with all options are 120 bytes.
const HEADERS_MAX: usize = 512;
const IPV4_MIN: usize = 20;
const IPV6: usize = 40;
const PORTS: usize = 4;
const TCP: u8 = 6;

/// The log's words.
pub fn text(fault: Malformed) -> &'static str {
    match fault {
        Malformed::NotProxy => "Received an invalid NetScaler Client IP magic number",
        Malformed::Protocol => "Received an unhandled protocol in the NetScaler Client IP header",
        Malformed::Invalid => "Received an invalid NetScaler Client IP header",
        Malformed::Truncated => "Truncated NetScaler Client IP header received",
        Malformed::Closed => "Connection closed while waiting for NetScaler Client IP header",
        Malformed::Late => "Timeout while waiting for a NetScaler Client IP header",
    }
}

/// Reads a header that begins with this number, of either format.
pub fn parse(bytes: &[u8], magic: u32) -> Result<Header, Malformed> {
    let magic = magic.to_be_bytes();
    let start = &bytes[..bytes.len().min(magic.len())];
    if start != &magic[..start.len()] {
        return Err(Malformed::NotProxy);
    }
    let Some(&[_, _, _, _, l1, l2, l3, l4, first]) = bytes.first_chunk() else { return Ok(Header::Partial) };
    // The first byte behind the length is that of an IP header, or of the type 1.
    let (from, length) = match first >> 4 {
        4 | 6 => (FIXED, usize::try_from(u32::from_be_bytes([l1, l2, l3, l4])).unwrap_or(usize::MAX)),
        0 => match bytes.get(FIXED..FIXED + STANDARD) {
            None => return Ok(Header::Partial),
            Some(fixed) => (FIXED + STANDARD, usize::from(u16::from_be_bytes([fixed[2], fixed[3]]))),
        },
        _ => return Err(Malformed::Protocol),
    };
    if length > HEADERS_MAX {
        return Err(Malformed::Invalid);
    }
    let len = from + length;
    let Some(headers) = bytes.get(from..len) else { return Ok(Header::Partial) };
    Ok(Header::Complete { len, addresses: Some(addresses(headers)?) })
}

fn addresses(headers: &[u8]) -> Result<Addresses, Malformed> {
    let first = *headers.first().ok_or(Malformed::Protocol)?;
    let (protocol, ip_len, source, destination): (u8, usize, IpAddr, IpAddr) = match first >> 4 {
        4 => {
            let fixed: &[u8; IPV4_MIN] = headers.first_chunk().ok_or(Malformed::Invalid)?;
            let ip = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]).into();
            (fixed[9], usize::from(first & 15) * 4, ip(12), ip(16))
        }
        6 => {
            let fixed: &[u8; IPV6] = headers.first_chunk().ok_or(Malformed::Invalid)?;
            let ip = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&fixed[at..at + 16]);
                Ipv6Addr::from(octets).into()
            };
            (fixed[6], IPV6, ip(8), ip(24))
        }
        _ => return Err(Malformed::Protocol),
    };
    if protocol != TCP {
        return Err(Malformed::Protocol);
    }
    let ports = headers.get(ip_len..ip_len + PORTS).filter(|_| ip_len >= IPV4_MIN).ok_or(Malformed::Invalid)?;
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Ok(Addresses {
        source: Some(SocketAddr::new(source, port(0))),
        destination: Some(SocketAddr::new(destination, port(2))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: u32 = 0x0012_d687;

    fn ipv4(words: u8, protocol: u8) -> Vec<u8> {
        let mut header = vec![0x40 | words, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        header.resize(20.max(usize::from(words) * 4), 0);
        header
    }

    fn ipv6() -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
        for last in [1, 2] {
            header.extend_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        header
    }

    fn with_tcp(ip: Vec<u8>) -> Vec<u8> {
        [ip, vec![4, 87, 8, 174], vec![0; 16]].concat()
    }

    fn legacy(headers: &[u8]) -> Vec<u8> {
        [&MAGIC.to_be_bytes(), &(headers.len() as u32).to_be_bytes(), headers].concat()
    }

    fn standard(headers: &[u8]) -> Vec<u8> {
        let length = (headers.len() as u32 + 12).to_be_bytes();
        [&MAGIC.to_be_bytes(), &length, &[0, 1][..], &(headers.len() as u16).to_be_bytes(), headers].concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], expect: &str) {
        let text = match parse(bytes, MAGIC) {
            Err(fault) => format!("{fault:?}"),
            Ok(Header::Partial) => "partial".to_owned(),
            Ok(Header::Complete { len, addresses }) => {
                let Addresses { source, destination } = addresses.expect("there are always some");
                let (source, destination) = (source.expect("one"), destination.expect("one"));
                format!("{len} of {} {source} {destination}", bytes.len())
            }
        };
        assert_eq!(text, expect, "{}", bytes.escape_ascii());
    }

    #[test]
    fn both_formats() {
        check(&legacy(&with_tcp(ipv4(5, TCP))), "48 of 48 1.2.3.4:1111 5.6.7.8:2222");
        check(&legacy(&with_tcp(ipv4(7, TCP))), "56 of 56 1.2.3.4:1111 5.6.7.8:2222");
        check(&legacy(&with_tcp(ipv6())), "68 of 68 [2001:db8::1]:1111 [2001:db8::2]:2222");
        check(&standard(&with_tcp(ipv4(5, TCP))), "52 of 52 1.2.3.4:1111 5.6.7.8:2222");
        check(&standard(&with_tcp(ipv6())), "72 of 72 [2001:db8::1]:1111 [2001:db8::2]:2222");
        check(&[legacy(&with_tcp(ipv4(5, TCP))), b"GET".to_vec()].concat(), "48 of 51 1.2.3.4:1111 5.6.7.8:2222");
        check(&[standard(&with_tcp(ipv4(5, TCP))), b"GET".to_vec()].concat(), "52 of 55 1.2.3.4:1111 5.6.7.8:2222");
    }

    #[test]
    fn each_part_of_a_header_is_waited_for() {
        for header in [legacy(&with_tcp(ipv6())), standard(&with_tcp(ipv4(5, TCP)))] {
            for end in 0..header.len() {
                check(&header[..end], "partial");
            }
        }
    }

    #[test]
    fn malformed_headers() {
        check(b"\0\x12\xd6\x88", "NotProxy");
        check(b"G", "NotProxy");
        check(&legacy(&with_tcp(ipv4(5, 17))), "Protocol");
        check(&standard(&with_tcp(ipv4(5, 17))), "Protocol");
        check(&legacy(&[0x50; 40]), "Protocol");
        check(&standard(&[0x50; 40]), "Protocol");
        check(&standard(b""), "Protocol");
        check(&legacy(&with_tcp(ipv4(4, TCP))), "Invalid");
        check(&legacy(&ipv4(5, TCP)), "Invalid");
        check(&legacy(&ipv4(5, TCP)[..19]), "Invalid");
        check(&legacy(&ipv6()[..39]), "Invalid");
        check(&legacy(&[0x45; 513]), "Invalid");
        check(&standard(&[0x45; 513])[..12], "Invalid");
        check(b"\0\x12\xd6\x87\xff\xff\xff\xff\x45", "Invalid");
    }
}
