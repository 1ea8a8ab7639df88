//! The engine `xdp`: a BPF program that sees packets before the kernel's network stack does.
//!
//! The program is `baton-kernel`'s, as are its maps and how they outlive us; here is what is put into them.
//! [`crate::maglev`] makes the tables.

#[cfg(feature = "bpf")]
mod aside;
#[cfg(feature = "bpf")]
mod engine;
#[cfg(feature = "bpf")]
mod gate;
#[cfg(feature = "bpf")]
mod interfaces;
mod judge;
#[cfg(feature = "bpf")]
mod macs;
#[cfg(feature = "bpf")]
mod memory;
#[cfg(feature = "bpf")]
mod place;
#[cfg(feature = "bpf")]
mod slots;
#[cfg(feature = "bpf")]
mod steps;
#[cfg(feature = "bpf")]
mod way;
#[cfg(feature = "bpf")]
mod words;

use crate::{Engine, KernelError};

pub(crate) use judge::{advise, judge};

/// What an operator decides about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpSettings {
    /// Where clients' packets come in. Empty: the interfaces through which destinations are reached.
    pub interfaces: Vec<String>,
    /// Connections that are remembered at most, in all; those unused for longest make room. `None` goes by the machine.
    pub connections: Option<u32>,
    /// Where the program sees packets of an interface.
    pub place: XdpHook,
}

/// Where the program sees packets of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpHook {
    /// In the driver where that can do it, else in the stack. In the stack of a veth: what its driver sends back reaches the other end
    /// only while that has an XDP program or GRO, and vanishes else.
    #[default]
    Best,
    /// In the driver, of a veth too, or nowhere.
    Driver,
    /// In the stack, also where the driver can do it.
    Stack,
}

/// Opens it for the network namespace of this thread. Nothing is changed before the first step is taken.
///
/// # Errors
/// That this program was built without it.
#[cfg(not(feature = "bpf"))]
pub fn open(_settings: &XdpSettings) -> Result<Box<dyn Engine>, KernelError> {
    Err(KernelError::new(
        "engine xdp",
        "this program was built without it",
        "install clang and build it with `make build` (cargo feature bpf), or use the engine ipvs",
    ))
}

/// Opens it for the network namespace of this thread. Nothing is changed before the first step is taken.
///
/// # Errors
/// What is missing here, with what helps.
#[cfg(feature = "bpf")]
pub fn open(settings: &XdpSettings) -> Result<Box<dyn Engine>, KernelError> {
    Ok(Box::new(engine::Xdp::open(settings)?))
}

/// What became of packets that were not just forwarded, to be read after their number.
#[cfg(feature = "bpf")]
fn reason(reason: baton_kernel::bpf::direct::Reason) -> &'static str {
    use baton_kernel::bpf::direct::Reason;
    match reason {
        Reason::NoService => "to other ports of a virtual address",
        Reason::Fragment => "passed as fragments",
        Reason::Options => "passed for IP options",
        Reason::Protocol => "passed that are neither TCP nor UDP",
        Reason::Malformed => "passed as malformed",
        Reason::Tags => "passed with too many VLAN tags",
        Reason::NotOurs => "to other MAC addresses",
        Reason::NoServer => "passed because no server accepts new connections",
        Reason::NoMac => "dropped because the server has no MAC address",
        Reason::TooBig => "dropped as too big for the server's interface",
        Reason::NoRoom => "dropped without room for a VLAN tag",
        Reason::Gone => "of connections whose server was removed",
        Reason::Unremembered => "of connections that the connection table has no room for",
        Reason::Errors => "ICMP errors forwarded to servers",
    }
}
