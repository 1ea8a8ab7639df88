//! This machine on a link: the interface by which neighbours are asked, and what we are called there.

use std::net::IpAddr;

use baton_kernel::KernelError;
use baton_kernel::route::{Address, Link, Mac, Routing};

/// An interface that has neighbours, with our addresses on it.
#[derive(Clone, Debug)]
pub struct Station {
    /// The interface.
    pub link: Link,
    /// Its hardware address.
    pub mac: Mac,
    addresses: Vec<Address>,
}

impl Station {
    /// The interface with this name.
    ///
    /// # Errors
    /// When it is not there, down, or has no neighbours that could be asked.
    pub fn of(routing: &mut Routing, interface: &str) -> Result<Station, KernelError> {
        let link = routing.link(interface)?;
        Station::on(routing, link)
    }

    /// The interface with this number.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn by_index(routing: &mut Routing, index: u32) -> Result<Station, KernelError> {
        match routing.link_by_index(index)? {
            Some(link) => Station::on(routing, link),
            None => Err(KernelError::new(format!("interface {index}"), "the interface no longer exists", "")),
        }
    }

    fn on(routing: &mut Routing, link: Link) -> Result<Station, KernelError> {
        let place = format!("interface {}", link.name);
        let mac = match link.mac {
            Some(mac) if !link.is_loopback && link.has_neighbours && !mac.is_zero() => mac,
            _ => {
                let reason = "has no neighbours with MAC addresses";
                return Err(KernelError::new(place, reason, "use the interface that clients come from, such as eth0"));
            }
        };
        if !link.is_up {
            return Err(KernelError::new(place, "is down", format!("ip link set {} up", link.name)));
        }
        let all = routing.addresses()?;
        let addresses = all.into_iter().filter(|address| address.interface == link.index).collect();
        Ok(Station { link, mac, addresses })
    }

    /// Under which address of our own a neighbour is asked for `asked`: one of its network, or else any of its family that can be
    /// used, and never `asked` itself.
    pub fn own_address(&self, asked: IpAddr) -> Option<IpAddr> {
        let usable = |known: &&Address| {
            known.address.is_ipv4() == asked.is_ipv4() && known.address != asked && !known.is_tentative
        };
        let is_near = |known: &&Address| is_within(asked, known.address, known.prefix);
        let usable = || self.addresses.iter().filter(usable);
        usable().find(is_near).or_else(|| usable().next()).map(|known| known.address)
    }
}

/// Whether the first `prefix` bits of two addresses are the same.
pub(crate) fn is_within(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            (address.to_bits() ^ network.to_bits()) & mask == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            (address.to_bits() ^ network.to_bits()) & mask == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses() {
        let is = |address: &str, network: &str, prefix| {
            is_within(address.parse().unwrap(), network.parse().unwrap(), prefix)
        };
        assert!(is("192.0.2.7", "192.0.2.250", 24) && !is("192.0.3.7", "192.0.2.250", 24));
        assert!(is("192.0.2.7", "8.8.8.8", 0) && is("::1", "2001::", 0));
        assert!(is("192.0.2.7", "192.0.2.7", 32) && !is("192.0.2.6", "192.0.2.7", 32));
        assert!(is("2001:db8::7", "2001:db8::1", 64) && !is("2001:db8:0:1::7", "2001:db8::1", 64));
        assert!(!is("192.0.2.7", "2001:db8::1", 0));
    }
}
