//! Listening TCP sockets of a port, whoever they belong to, and what is on its way into them: as sock_diag(7) tells, without any
//! right.

use std::net::{IpAddr, SocketAddr};

use crate::netlink::{Attributes, NetlinkError, Protocol, Reply, Request, Socket};

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `TCP_LISTEN`, and handshakes under way: `TCP_SYN_RECV`, `TCP_NEW_SYN_RECV` (net/tcp_states.h).
const LISTEN: u32 = 1 << 10;
const HALF_OPEN: u32 = (1 << 3) | (1 << 12);
/// Lengths of struct inet_diag_req_v2 and struct inet_diag_msg.
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// "Any cookie" (`INET_DIAG_NOCOOKIE`), twice.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listener {
    /// The kernel's number of the socket, which no other one has or will have.
    pub cookie: u64,
    /// Where it listens.
    pub local: SocketAddr,
    /// Complete connections that wait to be accepted.
    pub waiting: u32,
    /// Its number as a file, by which a process that has it open is found.
    pub inode: u32,
    /// Who opened it.
    pub user: u32,
}

/// The sockets that listen at a port, in the network namespace of this thread, in IPv4 and IPv6.
///
/// # Errors
/// When the kernel has no sock_diag for TCP, or refuses.
pub fn listening(port: u16) -> Result<Vec<Listener>, NetlinkError> {
    ask(port, LISTEN)
}

/// Our end of the handshakes under way at a port: SYN received, last ACK not yet. The kernel walks all of its connections
/// for it.
///
/// # Errors
/// As [`listening`].
pub fn half_open(port: u16) -> Result<Vec<SocketAddr>, NetlinkError> {
    Ok(ask(port, HALF_OPEN)?.iter().map(|handshake| handshake.local).collect())
}

fn ask(port: u16, states: u32) -> Result<Vec<Listener>, NetlinkError> {
    let mut socket = Socket::open(Protocol::SockDiag)?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = request(family as u8, port, states);
        let replies = socket.list(&Request::new(BY_FAMILY, 0, &request, &Attributes::new()))?;
        found.extend(replies.iter().filter_map(read));
    }
    Ok(found)
}

/// Sockets of one family in these states at a local port.
fn request(family: u8, port: u16, states: u32) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[0] = family;
    bytes[1] = libc::IPPROTO_TCP as u8;
    bytes[4..8].copy_from_slice(&states.to_ne_bytes());
    bytes[8..10].copy_from_slice(&port.to_be_bytes());
    bytes[48..56].copy_from_slice(&NO_COOKIE);
    bytes
}

/// What is told of one socket.
fn read(reply: &Reply) -> Option<Listener> {
    let bytes: &[u8; MESSAGE] = reply.body.first_chunk()?;
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let ip = match i32::from(bytes[0]) {
        libc::AF_INET => IpAddr::from([bytes[8], bytes[9], bytes[10], bytes[11]]),
        _ => IpAddr::from(*bytes[8..].first_chunk::<16>()?),
    };
    let local = SocketAddr::new(ip, u16::from_be_bytes([bytes[4], bytes[5]]));
    let cookie = u64::from(word(44)) | u64::from(word(48)) << 32;
    Some(Listener { cookie, local, waiting: word(56), user: word(64), inode: word(68) })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn listeners_and_what_waits_in_them() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let local = listener.local_addr().unwrap();
            let look = || {
                let listeners = listening(local.port()).unwrap();
                let mine: Vec<_> = listeners.into_iter().filter(|found| found.local == local).collect();
                assert_eq!(mine.len(), 1);
                mine[0]
            };
            let before = look();
            let _client = TcpStream::connect(local).unwrap();
            let with_one = look();
            assert_eq!((before.waiting, with_one.waiting), (0, 1));
            assert_eq!(before.cookie, with_one.cookie);
            assert_eq!(before.user, nix::unistd::geteuid().as_raw());
            let file = std::fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
            assert_eq!(file.to_str().unwrap(), format!("socket:[{}]", before.inode));
            drop(listener);
            assert!(listening(local.port()).unwrap().iter().all(|found| found.cookie != before.cookie));
        }
    }
}
