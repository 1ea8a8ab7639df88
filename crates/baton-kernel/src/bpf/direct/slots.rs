//! What is in the maps: the structures of `maps.h`, field by field. Addresses and ports are in the network's byte order.

use std::net::{IpAddr, SocketAddr};

use aya::Pod;

/// Entries of a table: a prime, as Maglev wants it. `TABLE` of maps.h.
pub const TABLE: usize = 16_381;
/// An entry of a table that stands for nobody.
pub const NOBODY: u16 = 0xffff;

/// The hash table of a service: numbers of servers' slots.
pub type LookupTable = [u16; TABLE];

/// TCP's and UDP's numbers.
pub const TCP: u8 = libc::IPPROTO_TCP as u8;
/// UDP's protocol number.
pub const UDP: u8 = libc::IPPROTO_UDP as u8;

/// Flags of a service.
pub const HASH_PORT: u32 = 1;
/// A client's later connections go where its first one went.
pub const STICK: u32 = 2;
/// No connection is remembered.
pub const ONE_PACKET: u32 = 4;

/// Of a server: its packets leave by a redirection also where they came in, as the driver of a veth needs it.
pub const REDIRECTED: u16 = 1;
/// Of a server: its `mtu` holds for packets that leave by another interface than they came in by.
pub const FITTING: u16 = 2;

/// A virtual address, protocol and port: the key of a service (`struct place`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VirtualAddressKey {
    /// `AF_INET` or `AF_INET6`.
    pub family: u8,
    /// [`TCP`] or [`UDP`]; 0, with port 0, for the address itself.
    pub protocol: u8,
    /// 0: every port.
    pub port: [u8; 2],
    /// The first four bytes for IPv4.
    pub address: [u8; 16],
}

/// A virtual service.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceSlot {
    /// 1, or 0 for a free slot.
    pub is_used: u32,
    /// Which of the tables.
    pub table: u32,
    /// [`HASH_PORT`] and so on.
    pub flags: u32,
    /// How long a client sticks, seconds.
    pub timeout: u32,
    /// The bits of a client's address that count.
    pub mask: [u8; 16],
    /// What comes for it.
    pub place: VirtualAddressKey,
    /// The agent's own.
    pub settings: u32,
}

/// A real server of a service.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSlot {
    /// Counts the uses of this slot, from 1, so that what is remembered of one use is not taken for the next; 0 for a free one.
    pub generation: u32,
    /// The slot of its service.
    pub service: u32,
    /// By which interface it is reached; 0 as long as its MAC address is unknown.
    pub interface: u32,
    /// Its share; 0: nothing new.
    pub weight: u32,
    /// Bytes of the interface's largest packet; 0: any.
    pub mtu: u32,
    /// Its MAC address.
    pub to: [u8; 6],
    /// The interface's MAC address.
    pub from: [u8; 6],
    /// How many VLAN tags its packets get.
    pub tags: u16,
    /// How its packets leave: [`REDIRECTED`], [`FITTING`].
    pub leaves: u16,
    /// Their protocols, the outer one first.
    pub protocols: [[u8; 2]; 2],
    /// Their VLANs' numbers.
    pub numbers: [u16; 2],
    /// Its port, for the agent.
    pub port: u32,
    /// `AF_INET` or `AF_INET6`, for the agent.
    pub family: u32,
    /// Its own address, for the agent.
    pub address: [u8; 16],
    /// Of a free slot: the generation of its last use.
    pub last: u32,
}

/// A connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The client's address.
    pub client: [u8; 16],
    /// The slot of its service.
    pub service: u32,
    /// The client's port. With `to` 0 as well: all connections of a client that sticks.
    pub from: [u8; 2],
    /// The virtual port.
    pub to: [u8; 2],
}

/// What is remembered of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The slot of its server.
    pub server: u32,
    /// The slot's generation.
    pub generation: u32,
    /// When its last packet came, seconds of the machine's uptime.
    pub seen: u32,
    /// 1: the client has closed it.
    pub state: u32,
}

/// A MAC address that an interface takes packets for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnMac {
    /// The interface.
    pub interface: u32,
    /// The MAC address.
    pub address: [u8; 6],
    /// 0.
    pub zero: u16,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounters {
    /// Connections that were given to a server.
    pub connections: u64,
    /// Packets from clients.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// Why packets were not just forwarded: the `enum reason` of maps.h, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// To a virtual address, but to no port of a service: to the network stack.
    NoService,
    /// A fragment: to the network stack.
    Fragment,
    /// IPv4 options or IPv6 extension headers: to the network stack.
    Options,
    /// Neither TCP nor UDP, and no ICMP error of a connection: to the network stack.
    Protocol,
    /// Headers cut short or contradictory: to the network stack.
    Malformed,
    /// More VLAN tags than two: to the network stack.
    Tags,
    /// To another MAC address: to the network stack.
    NotOurs,
    /// No server takes new connections: to the network stack, which refuses them.
    NoServer,
    /// The connection's server has no MAC address: dropped.
    NoMac,
    /// Too large for the interface of the server: dropped.
    TooBig,
    /// No room before the packet for another VLAN tag: dropped.
    NoRoom,
    /// The connection's server was removed, another one was chosen: forwarded.
    Gone,
    /// The connection could not be remembered: forwarded.
    Unremembered,
    /// An ICMP error about a connection: forwarded.
    Errors,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 14] = [
        Reason::NoService,
        Reason::Fragment,
        Reason::Options,
        Reason::Protocol,
        Reason::Malformed,
        Reason::Tags,
        Reason::NotOurs,
        Reason::NoServer,
        Reason::NoMac,
        Reason::TooBig,
        Reason::NoRoom,
        Reason::Gone,
        Reason::Unremembered,
        Reason::Errors,
    ];
}

// SAFETY: a C structure of integers and arrays of integers without padding (the test `nothing_is_padded`), so that every byte is
// initialized and every pattern of bytes is a value.
unsafe impl Pod for VirtualAddressKey {}
// SAFETY: integers without padding, by the test `nothing_is_padded`.
unsafe impl Pod for ServiceSlot {}
// SAFETY: integers without padding, by the test `nothing_is_padded`.
unsafe impl Pod for ServerSlot {}
// SAFETY: integers without padding, by the test `nothing_is_padded`.
unsafe impl Pod for FlowKey {}
// SAFETY: integers without padding, by the test `nothing_is_padded`.
unsafe impl Pod for Flow {}
// SAFETY: integers without padding, by the test `nothing_is_padded`.
unsafe impl Pod for OwnMac {}
// SAFETY: integers without padding, by the test `nothing_is_padded`.
unsafe impl Pod for Layout {}

/// Which structures these are, and whose.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) version: u32,
    pub(super) zero: u32,
    /// The network namespace: its folder's number is given again after its end.
    pub(super) namespace: u64,
}

/// An address as the maps have it: its family, and its bytes.
pub fn bytes_of(address: IpAddr) -> (u8, [u8; 16]) {
    match address {
        IpAddr::V4(four) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&four.octets());
            (libc::AF_INET as u8, bytes)
        }
        IpAddr::V6(six) => (libc::AF_INET6 as u8, six.octets()),
    }
}

/// The address of such bytes.
pub fn address_of(family: u8, bytes: [u8; 16]) -> IpAddr {
    if i32::from(family) == libc::AF_INET {
        IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])
    } else {
        IpAddr::from(bytes)
    }
}

impl VirtualAddressKey {
    /// Of a service.
    pub fn new(protocol: u8, at: SocketAddr) -> VirtualAddressKey {
        let (family, address) = bytes_of(at.ip());
        VirtualAddressKey { family, protocol, port: at.port().to_be_bytes(), address }
    }

    /// The address alone, for whatever it is used.
    pub fn address_alone(self) -> VirtualAddressKey {
        VirtualAddressKey { protocol: 0, port: [0; 2], ..self }
    }

    /// Its address and port.
    pub fn socket_address(&self) -> SocketAddr {
        SocketAddr::new(address_of(self.family, self.address), u16::from_be_bytes(self.port))
    }
}

impl ServerSlot {
    /// A slot that is free after these uses.
    pub fn freed(last: u32) -> ServerSlot {
        ServerSlot { last, ..ServerSlot::default() }
    }

    /// The generation of the next use of a free slot.
    pub fn next_generation(&self) -> u32 {
        self.last.wrapping_add(1).max(1)
    }

    /// Its own address and port.
    pub fn socket_address(&self) -> SocketAddr {
        SocketAddr::new(address_of(self.family as u8, self.address), self.port as u16)
    }
}
