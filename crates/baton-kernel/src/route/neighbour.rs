//! Neighbours: which hardware address belongs to an address, as far as the kernel knows (ARP, and RFC 4861 for IPv6).

use std::net::IpAddr;

use nix::errno::Errno;

use super::{Mac, Routing, family, half, ip, is_refused, octets, word};
use crate::KernelError;
use crate::netlink::{Attributes, Reply, Request};

/// Messages (`RTM_…NEIGH`).
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;
/// Bytes of `struct ndmsg`.
const NDMSG: usize = 12;
/// Attributes (`NDA_…`).
const DESTINATION: u16 = 1;
const HARDWARE: u16 = 2;
/// "As if a packet was to be sent there" (`NTF_USE`).
const USE: u8 = 1;

/// What the kernel knows of a neighbour (`NUD_…`, RFC 4861 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reachability {
    /// It is being asked for, and nobody has answered yet.
    Incomplete,
    /// It answered a moment ago.
    Reachable,
    /// It answered once; the hardware address is used until that turns out to be wrong.
    Stale,
    /// It answered once, its address is in use, and it is asked again soon.
    Delay,
    /// It is asked again now.
    Probe,
    /// It did not answer.
    Failed,
    /// No question is needed, as for groups.
    NoArp,
    /// An operator said so.
    Permanent,
    /// Nothing.
    None,
}

impl Reachability {
    fn from_number(number: u16) -> Reachability {
        match number {
            0x01 => Reachability::Incomplete,
            0x02 => Reachability::Reachable,
            0x04 => Reachability::Stale,
            0x08 => Reachability::Delay,
            0x10 => Reachability::Probe,
            0x20 => Reachability::Failed,
            0x40 => Reachability::NoArp,
            0x80 => Reachability::Permanent,
            _ => Reachability::None,
        }
    }

    /// Whether the kernel sends to its hardware address (`NUD_VALID`).
    pub fn is_usable(self) -> bool {
        match self {
            Reachability::Reachable
            | Reachability::Stale
            | Reachability::Delay
            | Reachability::Probe
            | Reachability::NoArp
            | Reachability::Permanent => true,
            Reachability::Incomplete | Reachability::Failed | Reachability::None => false,
        }
    }
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The number of the interface on which it is.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address, as far as it is known.
    pub mac: Option<Mac>,
    /// What is known.
    pub reachability: Reachability,
}

impl Neighbour {
    /// Where to send to: the hardware address, when it is one to rely on.
    pub fn usable(&self) -> Option<Mac> {
        self.mac.filter(|_| self.reachability.is_usable())
    }
}

impl Routing {
    /// All neighbours of all interfaces.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, KernelError> {
        let request = Request::new(GET_NEIGHBOUR, 0, &[0; NDMSG], &Attributes::new());
        Ok(self.list("list of neighbours", &request)?.iter().filter_map(neighbour).collect())
    }

    /// A neighbour; `None` when the kernel has not heard of it.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn neighbour(&mut self, interface: u32, address: IpAddr) -> Result<Option<Neighbour>, KernelError> {
        let attributes = Attributes::new().raw(DESTINATION, &octets(address));
        let asked = self.0.ask(&Request::new(GET_NEIGHBOUR, 0, &message(interface, address, 0), &attributes));
        if is_refused(&asked, Errno::ENOENT) {
            return Ok(None);
        }
        if is_refused(&asked, Errno::EOPNOTSUPP) || is_refused(&asked, Errno::EINVAL) {
            // Before Linux 5.0 there is only the list.
            let is_it = |known: &Neighbour| known.interface == interface && known.address == address;
            return Ok(self.neighbours()?.into_iter().find(is_it));
        }
        let replies = asked.map_err(|fault| KernelError::netlink(format!("neighbour {address}"), &fault))?;
        Ok(replies.iter().find_map(neighbour))
    }

    /// Has the kernel ask for a neighbour, as if a packet was to be sent to it, and comes back at once: whether it answered is
    /// seen in [`neighbour`](Self::neighbour) later. One that is reachable or permanent is left as it is.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the interface is not there.
    pub fn resolve_neighbour(&mut self, interface: u32, address: IpAddr) -> Result<(), KernelError> {
        // The kernel would forget that an operator said so.
        let is_settled =
            |state| matches!(state, Reachability::Permanent | Reachability::NoArp | Reachability::Reachable);
        if self.neighbour(interface, address)?.is_some_and(|known| is_settled(known.reachability)) {
            return Ok(());
        }
        let attributes = Attributes::new().raw(DESTINATION, &octets(address));
        let flags = libc::NLM_F_CREATE as u16;
        let request = Request::new(NEW_NEIGHBOUR, flags, &message(interface, address, USE), &attributes);
        self.ask(&format!("neighbour {address} on interface {interface}"), &request).map(drop)
    }
}

/// `struct ndmsg`.
fn message(interface: u32, address: IpAddr, flags: u8) -> Vec<u8> {
    let mut bytes = vec![family(address), 0, 0, 0];
    bytes.extend(interface.to_ne_bytes());
    bytes.extend([0, 0, flags, 0]);
    bytes
}

fn neighbour(reply: &Reply) -> Option<Neighbour> {
    let attributes = reply.attributes(NDMSG);
    Some(Neighbour {
        interface: word(reply, 4)?,
        address: ip(attributes.find(DESTINATION)?)?,
        mac: attributes.find(HARDWARE).and_then(|found| Mac::read(found.value)),
        reachability: Reachability::from_number(half(reply, 8)?),
    })
}
