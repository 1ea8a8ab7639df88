//! What the driver of an interface says that it can do with XDP (`include/uapi/linux/netdev.h`).

use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::netlink::{Attributes, Generic, generic_attributes};

/// The family and its version, `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX` and `NETDEV_A_DEV_XDP_FEATURES`.
const FAMILY: (&str, u8) = ("netdev", 1);
const GET: u8 = 1;
const INTERFACE: u16 = 1;
const FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_BASIC` and `NETDEV_XDP_ACT_NDO_XMIT`.
const BASIC: u64 = 1;
const SENDS: u64 = 1 << 2;

/// What a driver can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// It runs programs.
    pub runs: bool,
    /// Frames that programs send by the interface leave. Of a veth: the other end takes them, as it does while it has an XDP program or
    /// GRO. Other drivers may say so only while they run a program.
    pub sends: bool,
}

/// What the driver of an interface says now; `None` where the kernel does not tell (before Linux 6.3) or there is no such interface.
pub fn driver(interface: u32) -> Option<Driver> {
    let mut family = Generic::open(FAMILY.0, FAMILY.1).ok()?;
    let replies = family.ask(GET, &Attributes::new().u32(INTERFACE, interface)).ok()?;
    let features = replies.iter().find_map(|reply| generic_attributes(reply).find(FEATURES)?.u64())?;
    Some(Driver { runs: features & BASIC != 0, sends: features & SENDS != 0 })
}

/// `SIOCETHTOOL` (`include/uapi/linux/sockios.h`), `ETHTOOL_GGRO`, `ETHTOOL_GFLAGS`, `ETH_FLAG_RXVLAN` and `struct ethtool_value`
/// (`ethtool.h`).
const ETHTOOL: libc::Ioctl = 0x8946;
const GET_GRO: u32 = 0x2b;
const GET_FLAGS: u32 = 0x25;
const STRIPS: u32 = 1 << 8;

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Whether packets of a connection that come one after the other are joined to larger ones on an interface (GRO); `None` where the
/// kernel does not tell or there is no such interface.
pub fn joins_packets(name: &str) -> Option<bool> {
    asked(name, GET_GRO).map(|joins| joins != 0)
}

/// Whether VLAN tags are taken off frames before the driver's program sees them (`rxvlan` of ethtool); `None` where the
/// kernel does not report it or there is no such interface.
pub fn strips_tags(name: &str) -> Option<bool> {
    asked(name, GET_FLAGS).map(|flags| flags & STRIPS != 0)
}

fn asked(name: &str, command: u32) -> Option<u32> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None).ok()?;
    let mut value = Value { command, data: 0 };
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut value).cast() };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: data };
    // The last byte stays 0.
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    // SAFETY: the kernel reads the request, which names the interface, and reads and writes the eight bytes of the value that it points
    // to; both live until it returns.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL, &raw mut request) };
    (done == 0).then_some(value.data)
}
