//! Addresses of interfaces.

use std::net::IpAddr;

use nix::errno::Errno;

use super::{Routing, bits, byte, family, ip, is_refused, octets, word};
use crate::KernelError;
use crate::netlink::{Attributes, Reply, Request};

/// Messages (`RTM_…ADDR`).
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
/// Bytes of `struct ifaddrmsg`.
const IFADDR: usize = 8;
/// Attributes (`IFA_…`).
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const LABEL: u16 = 3;
const LIFETIMES: u16 = 6;
const FLAGS: u16 = 8;
const PROTOCOL: u16 = 11;
/// Flags (`IFA_F_…`).
const NO_DETECTION: u32 = 0x02;
const DETECTION_FAILED: u32 = 0x08;
const DEPRECATED: u32 = 0x20;
const TENTATIVE: u32 = 0x40;
const PERMANENT: u32 = 0x80;
const NO_PREFIX_ROUTE: u32 = 0x200;

/// How far an address is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everywhere.
    #[default]
    Global,
    /// In this site (IPv6, deprecated by RFC 3879).
    Site,
    /// On this link.
    Link,
    /// On this machine.
    Host,
    /// Another number of the kernel's.
    Other(u8),
}

impl Scope {
    fn number(self) -> u8 {
        match self {
            Scope::Global => 0,
            Scope::Site => 200,
            Scope::Link => 253,
            Scope::Host => 254,
            Scope::Other(number) => number,
        }
    }

    fn from_number(number: u8) -> Scope {
        match number {
            0 => Scope::Global,
            200 => Scope::Site,
            253 => Scope::Link,
            254 => Scope::Host,
            other => Scope::Other(other),
        }
    }
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface's number.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// How many of its bits are its network's.
    pub prefix: u8,
    /// How far it is valid. The kernel decides for IPv6.
    pub scope: Scope,
    /// What `ifconfig` shows for it (IPv4): the interface's name, or that, a colon and a word. At most 15 bytes.
    pub label: Option<String>,
    /// Who put it there, a number that the kernel keeps for others to see (`IFA_PROTO`, Linux 5.18). 0: not said, or an older
    /// kernel.
    pub protocol: u8,
    /// No route to its network comes with it.
    pub without_route: bool,
    /// IPv6: it is not asked whether another machine has it (duplicate address detection).
    pub without_detection: bool,
    /// IPv6: connections of this machine begin under another address, where there is one (RFC 6724 5, rule 3).
    pub is_deprecated: bool,
    /// IPv6: that is still being asked, and it cannot be used yet.
    pub is_tentative: bool,
    /// IPv6: another machine has it.
    pub is_duplicate: bool,
}

impl Address {
    /// An address alone, without a network around it.
    pub fn single(interface: u32, address: IpAddr) -> Address {
        Address::within(interface, address, bits(address))
    }

    /// An address with its network.
    pub fn within(interface: u32, address: IpAddr, prefix: u8) -> Address {
        Address {
            interface,
            address,
            prefix,
            scope: Scope::Global,
            label: None,
            protocol: 0,
            without_route: false,
            without_detection: false,
            is_deprecated: false,
            is_tentative: false,
            is_duplicate: false,
        }
    }

    fn place(&self) -> String {
        format!("address {}/{} on interface {}", self.address, self.prefix, self.interface)
    }

    /// `struct ifaddrmsg`.
    fn message(&self) -> Vec<u8> {
        let flags = (self.flags() & 0xff) as u8;
        let mut bytes = vec![family(self.address), self.prefix, flags, self.scope.number()];
        bytes.extend(self.interface.to_ne_bytes());
        bytes
    }

    fn flags(&self) -> u32 {
        let mut flags = PERMANENT;
        if self.without_route {
            flags |= NO_PREFIX_ROUTE;
        }
        if self.without_detection {
            flags |= NO_DETECTION;
        }
        flags
    }
}

impl Routing {
    /// The addresses of all interfaces.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn addresses(&mut self) -> Result<Vec<Address>, KernelError> {
        let request = Request::new(GET_ADDRESS, 0, &[0; IFADDR], &Attributes::new());
        Ok(self.list("list of addresses", &request)?.iter().filter_map(address).collect())
    }

    /// Adds an address. Gives whether it was added: the interface may have had it.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the interface is not there.
    pub fn add_address(&mut self, address: &Address) -> Result<bool, KernelError> {
        let value = octets(address.address);
        let mut attributes = Attributes::new().raw(LOCAL, &value).raw(ADDRESS, &value).u32(FLAGS, address.flags());
        if let (Some(label), IpAddr::V4(_)) = (&address.label, address.address) {
            attributes = attributes.text(LABEL, label);
        }
        if address.protocol != 0 {
            attributes = attributes.u8(PROTOCOL, address.protocol);
        }
        if address.is_deprecated && address.address.is_ipv6() {
            // `struct ifa_cacheinfo`: preferred for no time, valid for ever, and two times that are the kernel's.
            attributes = attributes.raw(LIFETIMES, &[0, u32::MAX, 0, 0].map(u32::to_ne_bytes).concat());
        }
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let done = self.0.ask(&Request::new(NEW_ADDRESS, flags, &address.message(), &attributes));
        if is_refused(&done, Errno::EEXIST) {
            return Ok(false);
        }
        done.map(|_| true).map_err(|fault| KernelError::netlink(address.place(), &fault))
    }

    /// Removes an address with this prefix from its interface. Gives whether it was there.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN.
    pub fn remove_address(&mut self, address: &Address) -> Result<bool, KernelError> {
        let value = octets(address.address);
        let attributes = Attributes::new().raw(LOCAL, &value).raw(ADDRESS, &value);
        let done = self.0.ask(&Request::new(DELETE_ADDRESS, 0, &address.message(), &attributes));
        if is_refused(&done, Errno::EADDRNOTAVAIL) || is_refused(&done, Errno::ENODEV) {
            return Ok(false);
        }
        done.map(|_| true).map_err(|fault| KernelError::netlink(format!("removal of {}", address.place()), &fault))
    }
}

fn address(reply: &Reply) -> Option<Address> {
    let attributes = reply.attributes(IFADDR);
    // Of a point-to-point link, ADDRESS is the other end's.
    let own = attributes.find(LOCAL).or_else(|| attributes.find(ADDRESS))?;
    let flags = attributes.find(FLAGS).and_then(|found| found.u32());
    let flags = flags.or_else(|| byte(reply, 2).map(u32::from)).unwrap_or_default();
    Some(Address {
        interface: word(reply, 4)?,
        address: ip(own)?,
        prefix: byte(reply, 1)?,
        scope: Scope::from_number(byte(reply, 3)?),
        label: attributes.find(LABEL).and_then(|found| found.text()).map(str::to_owned),
        protocol: attributes.find(PROTOCOL).and_then(|found| found.value.first().copied()).unwrap_or_default(),
        without_route: flags & NO_PREFIX_ROUTE != 0,
        without_detection: flags & NO_DETECTION != 0,
        is_deprecated: flags & DEPRECATED != 0,
        is_tentative: flags & TENTATIVE != 0,
        is_duplicate: flags & DETECTION_FAILED != 0,
    })
}
