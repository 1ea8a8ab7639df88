//! Sets and maps: their types, and their elements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::numbers;
use crate::netlink::{Attribute, Attributes};

/// How many bits of the number of a type that is put together are one part's (`TYPE_BITS` of `nft`).
const PART_BITS: u32 = 6;
/// What parts of a value that is put together are aligned to.
const PART: usize = 4;

/// What a set has, or what a map gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A port of TCP or UDP.
    Port,
    /// A mark.
    Mark,
    /// An IPv4 address and a port.
    Ipv4Port,
    /// An IPv6 address and a port.
    Ipv6Port,
}

impl DataType {
    /// The number by which `nft` knows what to show.
    fn number(self) -> u32 {
        match self {
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Port => 13,
            Self::Mark => 19,
            Self::Ipv4Port => Self::Ipv4.number() << PART_BITS | Self::Port.number(),
            Self::Ipv6Port => Self::Ipv6.number() << PART_BITS | Self::Port.number(),
        }
    }

    /// Bytes of a value.
    fn length(self) -> u32 {
        match self {
            Self::Port => 2,
            Self::Ipv4 | Self::Mark => 4,
            Self::Ipv4Port => 8,
            Self::Ipv6 => 16,
            Self::Ipv6Port => 20,
        }
    }
}

/// A set, or a map when it has a type of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name in its table.
    pub name: String,
    /// What is in it.
    pub key: DataType,
    /// What it gives for a key. `None`: it is a set.
    pub data: Option<DataType>,
    /// Whether elements may end by themselves: only of such a set can elements be [lasting](Element::lasting).
    pub timeouts: bool,
}

impl Set {
    /// A set.
    pub fn new(name: impl Into<String>, key: DataType) -> Self {
        Self { name: name.into(), key, data: None, timeouts: false }
    }

    /// A map.
    pub fn map(name: impl Into<String>, key: DataType, data: DataType) -> Self {
        Self { name: name.into(), key, data: Some(data), timeouts: false }
    }

    /// Lets elements have a timeout.
    #[must_use]
    pub fn with_timeouts(mut self) -> Self {
        self.timeouts = true;
        self
    }

    /// What a message about it carries, besides where it belongs. The identity is its number in its transaction.
    pub(super) fn attributes(&self, attributes: Attributes, identity: u32) -> Attributes {
        let mut flags = 0;
        if self.data.is_some() {
            flags |= libc::NFT_SET_MAP as u32;
        }
        if self.timeouts {
            flags |= libc::NFT_SET_TIMEOUT as u32;
        }
        let attributes = attributes
            .u32_be(numbers::set::FLAGS, flags)
            .u32_be(numbers::set::KEY_TYPE, self.key.number())
            .u32_be(numbers::set::KEY_LENGTH, self.key.length());
        let attributes = match self.data {
            Some(data) => attributes
                .u32_be(numbers::set::DATA_TYPE, data.number())
                .u32_be(numbers::set::DATA_LENGTH, data.length()),
            None => attributes,
        };
        attributes.u32_be(numbers::set::ID, identity)
    }
}

/// An element of a set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    key: Vec<u8>,
    data: Option<Vec<u8>>,
    /// How long it lasts from when it is added. `None`: until it is removed.
    pub timeout: Option<Duration>,
    /// Of one that was read: how long it still lasts.
    pub expires: Option<Duration>,
}

impl Element {
    fn new(key: Vec<u8>) -> Self {
        Self { key, data: None, timeout: None, expires: None }
    }

    /// A port.
    pub fn port(port: u16) -> Self {
        Self::new(port.to_be_bytes().to_vec())
    }

    /// An address.
    pub fn address(address: IpAddr) -> Self {
        Self::new(address_bytes(address))
    }

    /// An address and a port.
    pub fn socket_address(address: SocketAddr) -> Self {
        Self::new(socket_address_bytes(address))
    }

    /// Maps the element to an address and a port.
    #[must_use]
    pub fn to(mut self, address: SocketAddr) -> Self {
        self.data = Some(socket_address_bytes(address));
        self
    }

    /// Maps the element to a port.
    #[must_use]
    pub fn to_port(mut self, port: u16) -> Self {
        self.data = Some(port.to_be_bytes().to_vec());
        self
    }

    /// Gives the element a timeout, after which the kernel removes it. Its clock has milliseconds.
    #[must_use]
    pub fn lasting(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The port that its key is, if it is one.
    pub fn as_port(&self) -> Option<u16> {
        as_port(&self.key)
    }

    /// The address that its key is, if it is one.
    pub fn as_address(&self) -> Option<IpAddr> {
        as_address(&self.key)
    }

    /// The address and the port that its key is, if it is that.
    pub fn as_socket_address(&self) -> Option<SocketAddr> {
        as_socket_address(&self.key)
    }

    /// The address and the port that it gives, if it gives that.
    pub fn gives(&self) -> Option<SocketAddr> {
        as_socket_address(self.data.as_deref()?)
    }

    /// As an element of a list.
    pub(super) fn attributes(&self) -> Attributes {
        let value = |bytes: &[u8]| Attributes::new().raw(numbers::data::VALUE, bytes);
        let attributes = Attributes::new().nest(numbers::set::ELEMENT_KEY, &value(&self.key));
        let attributes = match &self.data {
            Some(data) => attributes.nest(numbers::set::ELEMENT_DATA, &value(data)),
            None => attributes,
        };
        match self.timeout {
            // Less than the clock's unit would mean no end at all.
            Some(timeout) => attributes.u64_be(numbers::set::ELEMENT_TIMEOUT, (timeout.as_millis() as u64).max(1)),
            None => attributes,
        }
    }

    /// Reads one of a list.
    pub(super) fn read(attribute: Attribute<'_>) -> Option<Self> {
        let found = attribute.nested();
        let value = |kind| Some(found.find(kind)?.nested().find(numbers::data::VALUE)?.value.to_vec());
        let time = |kind| Some(Duration::from_millis(found.find(kind)?.u64_be()?));
        let flags = found.find(numbers::set::ELEMENT_FLAGS).and_then(Attribute::u32_be).unwrap_or(0);
        if flags & numbers::set::INTERVAL_END != 0 {
            return None;
        }
        Some(Self {
            key: value(numbers::set::ELEMENT_KEY)?,
            data: value(numbers::set::ELEMENT_DATA),
            timeout: time(numbers::set::ELEMENT_TIMEOUT),
            expires: time(numbers::set::ELEMENT_EXPIRATION),
        })
    }
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The address, then the port, which is filled up with zeros.
fn socket_address_bytes(address: SocketAddr) -> Vec<u8> {
    let mut bytes = address_bytes(address.ip());
    bytes.extend_from_slice(&address.port().to_be_bytes());
    bytes.resize(bytes.len().next_multiple_of(PART), 0);
    bytes
}

fn as_port(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn as_address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(octets).into());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
}

fn as_socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let (address, port) = bytes.split_at_checked(bytes.len().checked_sub(PART)?)?;
    Some(SocketAddr::new(as_address(address)?, as_port(&port[..2])?))
}
