//! How many connections this network namespace has at a local address.
//!
//! The kernel is asked by sock_diag(7), which sends only what is at the port; nothing is changed, and nothing is known of whose
//! the connections are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::netlink::{Attributes, NetlinkError, Protocol, Request, Socket};

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const DIAG_BY_FAMILY: u16 = 20;
/// `TCP_ESTABLISHED`, `TCP_SYN_RECV`, `TCP_CLOSE_WAIT`: both sides may still have something to say, or this one has.
const STATES: u32 = 1 << 1 | 1 << 3 | 1 << 8;
/// Bytes of `struct inet_diag_req_v2`, and where the local port is in it.
const QUESTION: usize = 56;
const QUESTION_PORT: usize = 8;
/// Where the local port and the local address are in `struct inet_diag_msg`.
const PORT: usize = 4;
const ADDRESS: usize = 8;

/// Counts the TCP connections that are open at a local port, of one local address or of all. A connection that waits to be
/// accepted is open.
///
/// # Errors
/// When the kernel cannot be asked (`CONFIG_INET_DIAG`).
pub fn count(address: Option<IpAddr>, port: u16) -> Result<usize, NetlinkError> {
    let mut socket = Socket::open(Protocol::SockDiag)?;
    let mut count = 0;
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut question = [0; QUESTION];
        question[0] = family as u8;
        question[1] = libc::IPPROTO_TCP as u8;
        question[4..8].copy_from_slice(&STATES.to_ne_bytes());
        question[QUESTION_PORT..][..2].copy_from_slice(&port.to_be_bytes());
        let found = socket.list(&Request::new(DIAG_BY_FAMILY, 0, &question, &Attributes::new()))?;
        let is_meant = |body: &[u8]| {
            let local = local(body)?;
            Some(local.1 == port && address.is_none_or(|address| address == local.0))
        };
        count += found.iter().filter(|reply| is_meant(&reply.body) == Some(true)).count();
    }
    Ok(count)
}

/// The local address and port of a connection; those of IPv4 in an IPv6 socket as IPv4's.
fn local(body: &[u8]) -> Option<(IpAddr, u16)> {
    let port = u16::from_be_bytes(*body.get(PORT..)?.first_chunk()?);
    let bytes: [u8; 16] = *body.get(ADDRESS..)?.first_chunk()?;
    let address = match i32::from(*body.first()?) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        _ => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::testing::{LOOPBACKS, address, listener};

    #[test]
    fn connections_are_counted_at_the_listening_end() {
        for text in LOOPBACKS {
            let listening = listener(text);
            let at = address(&listening);
            assert_eq!(count(Some(at.ip()), at.port()).unwrap(), 0);
            let clients = [(); 3].map(|()| TcpStream::connect(at).unwrap());
            assert_eq!(count(Some(at.ip()), at.port()).unwrap(), 3);
            assert_eq!(count(None, at.port()).unwrap(), 3);
            assert_eq!(count(Some("10.9.8.7".parse().unwrap()), at.port()).unwrap(), 0);
            drop(clients);
            assert_eq!(count(None, at.port()).map(|open| open <= 3).ok(), Some(true));
        }
    }
}
