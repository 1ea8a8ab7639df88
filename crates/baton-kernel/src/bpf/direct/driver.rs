//! What the driver of an interface says that it can do with XDP (`include/uapi/linux/netdev.h`).

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
