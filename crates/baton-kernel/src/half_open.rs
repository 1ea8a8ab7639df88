//! Counting TCP handshakes under way at a listening address: SYN received, last ACK not yet.
//!
//! The kernel is asked by sock_diag(7), which walks its tables and sends only what matches; where that is not
//! available, `/proc/net/tcp` and `tcp6` are read, which list every connection of the machine as text, in pieces
//! while connections come and go, so that their count may be off by some.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};

use crate::Listening;
use crate::listen::netns_of;
use crate::namespace;
use crate::process::procfs;

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const DIAG_BY_FAMILY: u16 = 20;
/// `TCP_SYN_RECV`, and the state of the small sockets that stand for handshakes, `TCP_NEW_SYN_RECV`.
const STATES: u32 = (1 << 3) | (1 << 12);
/// Length of struct nlmsghdr.
const HEADER: usize = 16;
/// Length of a whole request: nlmsghdr and inet_diag_req_v2.
const REQUEST: usize = HEADER + 56;
/// One read of a dump; the kernel's messages stay below this.
const BUFFER: usize = 32 * 1024;

/// How many handshakes are under way at the address of a listening socket, in the network namespace of that; 0 if it is
/// no TCP socket. The count is per address: the sockets of a `SO_REUSEPORT` group are not told apart, and a wildcard
/// address counts every local address of its port.
///
/// # Errors
/// When neither sock_diag nor `/proc/net` answers, or the socket's namespace is another one that may not be entered
/// (CAP_SYS_ADMIN and CAP_NET_ADMIN).
pub fn count(listening: &Listening) -> io::Result<usize> {
    Ok(clients(listening)?.len())
}

/// The other ends of the handshakes that are under way at the address of a listening socket; see [`count`].
///
/// # Errors
/// As [`count`].
pub fn clients(listening: &Listening) -> io::Result<Vec<SocketAddr>> {
    let Some(local) = listening.local().inet() else { return Ok(Vec::new()) };
    namespace::where_it_is(listening, || clients_here(local))?
}

/// Handshakes under way at many addresses: the kernel, which walks all connections for one address as for all, is asked once for each
/// network namespace.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// By the namespace's cookie.
    seen: HashMap<Option<u64>, Result<Seen, io::ErrorKind>>,
}

/// Those of one namespace.
#[derive(Debug, Default)]
struct Seen {
    by_address: HashMap<(i32, SocketAddr), usize>,
    by_port: HashMap<(i32, u16), usize>,
}

impl Handshakes {
    /// How many were under way at the address of a listening socket when somebody first asked for one of its namespace; as [`count`].
    ///
    /// # Errors
    /// As [`count`].
    pub fn at(&mut self, listening: &Listening) -> io::Result<usize> {
        let Some(local) = listening.local().inet() else { return Ok(0) };
        let seen = self.seen.entry(netns_of(listening));
        let seen = seen.or_insert_with(|| Seen::now(listening).map_err(|error| error.kind()));
        seen.as_ref().map(|seen| seen.count(local)).map_err(|kind| (*kind).into())
    }

    /// How many namespaces the kernel was asked about.
    pub fn asked(&self) -> usize {
        self.seen.len()
    }
}

impl Seen {
    /// Of the namespace of a socket.
    fn now(listening: &Listening) -> io::Result<Seen> {
        namespace::where_it_is(listening, || {
            let mut seen = Seen::default();
            for family in [libc::AF_INET, libc::AF_INET6] {
                let ends = diag_all(family, 0).or_else(|_| proc_net_all(family))?;
                for (local, _) in ends {
                    *seen.by_address.entry((family, canonical(local))).or_default() += 1;
                    *seen.by_port.entry((family, local.port())).or_default() += 1;
                }
            }
            Ok(seen)
        })?
    }

    fn count(&self, listened: SocketAddr) -> usize {
        let of = |family: &i32| match canonical(listened) {
            any if any.ip().is_unspecified() => self.by_port.get(&(*family, any.port())).copied(),
            one => self.by_address.get(&(*family, one)).copied(),
        };
        families(listened).iter().filter_map(of).sum()
    }
}

/// An address without what tells two of one IP address and port apart for nobody here: IPv4 in IPv6, flow and scope.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The clients with an unfinished handshake at an address of this network namespace.
fn clients_here(local: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    diag(local).or_else(|_| proc_net(local))
}

fn families(local: SocketAddr) -> &'static [i32] {
    match local {
        SocketAddr::V4(_) => &[libc::AF_INET],
        SocketAddr::V6(_) => &[libc::AF_INET6, libc::AF_INET],
    }
}

/// Whether a connection to `found` may have come in by a socket listening on `listened`. IPv4 connections
/// counted for an IPv6 wildcard may belong to an IPv4 listener of the port; that errs on the safe side.
fn matches(listened: SocketAddr, found: SocketAddr) -> bool {
    let (listened_ip, found_ip) = (listened.ip().to_canonical(), found.ip().to_canonical());
    listened.port() == found.port() && (listened_ip.is_unspecified() || listened_ip == found_ip)
}

fn diag(local: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    let mut clients = Vec::new();
    for &family in families(local) {
        let ends = diag_all(family, local.port())?;
        clients.extend(ends.into_iter().filter(|(found, _)| matches(local, *found)).map(|(_, client)| client));
    }
    Ok(clients)
}

/// Both ends of all handshakes of one family at a local port, or at all (0).
fn diag_all(family: i32, port: u16) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    let netlink =
        socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    let request = request(family as u8, port);
    sendto(netlink.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut ends = Vec::new();
    dump(&netlink, &mut ends)?;
    Ok(ends)
}

/// A dump of the TCP connections of one family in our states with our local port, or with any (0).
fn request(family: u8, port: u16) -> [u8; REQUEST] {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut bytes = [0; REQUEST];
    bytes[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
    bytes[16] = family;
    bytes[17] = libc::IPPROTO_TCP as u8;
    bytes[20..24].copy_from_slice(&STATES.to_ne_bytes());
    bytes[24..26].copy_from_slice(&port.to_be_bytes());
    bytes
}

fn dump(netlink: &OwnedFd, ends: &mut Vec<(SocketAddr, SocketAddr)>) -> io::Result<()> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "sock_diag: a message cut short");
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..length];
        while rest.len() >= HEADER {
            let message_length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let message = rest.get(HEADER..message_length).ok_or_else(malformed)?;
            match i32::from(u16::from_ne_bytes([rest[4], rest[5]])) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => {
                    let code = message.get(..4).ok_or_else(malformed)?;
                    let code = i32::from_ne_bytes([code[0], code[1], code[2], code[3]]);
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                _ => ends.push(diag_ends(message).ok_or_else(malformed)?),
            }
            rest = rest.get(message_length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Both ends in struct inet_diag_msg, ours first: family, three bytes, both ports, both addresses.
fn diag_ends(message: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let end = |port_at: usize, address_at: usize| {
        let port = u16::from_be_bytes([*message.get(port_at)?, *message.get(port_at + 1)?]);
        let address: [u8; 16] = message.get(address_at..address_at + 16)?.try_into().ok()?;
        let ip = match i32::from(message[0]) {
            libc::AF_INET => IpAddr::from([address[0], address[1], address[2], address[3]]),
            _ => IpAddr::from(address).to_canonical(),
        };
        Some(SocketAddr::new(ip, port))
    };
    Some((end(4, 8)?, end(6, 24)?))
}

fn proc_net(local: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    let mut clients = Vec::new();
    for &family in families(local) {
        let ends = proc_net_all(family)?.into_iter();
        clients.extend(ends.filter(|(found, _)| matches(local, *found)).map(|(_, client)| client));
    }
    Ok(clients)
}

fn proc_net_all(family: i32) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    // Of this thread: the namespace of the process's first thread may be another one.
    let file = if family == libc::AF_INET { "thread-self/net/tcp" } else { "thread-self/net/tcp6" };
    Ok(procfs::read(file)?.lines().filter_map(half_open_line).collect())
}

/// Both ends in a line of `/proc/net/tcp` in state 03, ours first: `1: 0100007F:1F90 0200007F:A001 03 …`.
fn half_open_line(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, client) = (words.next()?, words.next()?);
    if words.next()? != "03" {
        return None;
    }
    Some((proc_end(local)?, proc_end(client)?))
}

/// An address as hexadecimal words in the machine's byte order, and a port: `0100007F:1F90`.
fn proc_end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word =
        |at: usize| -> Option<[u8; 4]> { Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes()) };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests;
