//! Interfaces, addresses, neighbours and the way to an address, by routing netlink: looked at and, where it is ours to do, changed.
//!
//! [`Routing`] asks one thing at a time in the network namespace of the thread that opened it. Looking takes no right, changing
//! takes CAP_NET_ADMIN. What others put there is never changed but by the name of the very thing. Routes are asked for, not made.
//!
//! Numbers and structures are those of Linux' `include/uapi/linux/rtnetlink.h`, `if_link.h`, `if_addr.h` and `neighbour.h`
//! (rtnetlink(7)).

mod address;
mod link;
mod mac;
mod neighbour;
mod path;
mod promotion;

pub use address::{Address, Scope};
pub use link::{Link, Vlan};
pub use mac::Mac;
pub use neighbour::{Neighbour, Reachability};
pub use path::{Route, RouteKind};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::KernelError;
use crate::netlink::{self, Attribute, Protocol, Reply, Request, Socket};

/// Questions and changes, in one network namespace.
#[derive(Debug)]
pub struct Routing(Socket);

impl Routing {
    /// Opens it in the network namespace of this thread.
    ///
    /// # Errors
    /// Of the system.
    pub fn open() -> Result<Self, KernelError> {
        Socket::open(Protocol::Route).map(Self).map_err(|error| KernelError::io("routing netlink", &error))
    }

    fn ask(&mut self, place: &str, request: &Request) -> Result<Vec<Reply>, KernelError> {
        self.0.ask(request).map_err(|fault| KernelError::netlink(place, &fault))
    }

    fn list(&mut self, place: &str, request: &Request) -> Result<Vec<Reply>, KernelError> {
        self.0.list(request).map_err(|fault| KernelError::netlink(place, &fault))
    }
}

/// Whether the kernel refused for this reason.
fn is_refused<T>(done: &Result<T, netlink::NetlinkError>, reason: nix::errno::Errno) -> bool {
    matches!(done, Err(fault) if fault.errno() == Some(reason))
}

/// The number of an address' family.
fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// An address as the kernel has it.
fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Bits of an address of this family.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address of an attribute. Its length says its family.
fn ip(attribute: Attribute<'_>) -> Option<IpAddr> {
    match attribute.value.len() {
        4 => attribute.value.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes).into()),
        16 => attribute.value.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into()),
        _ => None,
    }
}

/// The byte at a place of a message's fixed part.
fn byte(reply: &Reply, at: usize) -> Option<u8> {
    reply.body.get(at).copied()
}

/// The number of two bytes there.
fn half(reply: &Reply, at: usize) -> Option<u16> {
    reply.body.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The number of four bytes there.
fn word(reply: &Reply, at: usize) -> Option<u32> {
    reply.body.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests;
