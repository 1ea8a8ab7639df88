//! For which MAC addresses the program takes packets.

use baton_kernel::bpf::direct::OwnMac;
use baton_kernel::route::Link;

use super::place::is_veth;

/// MAC addresses that packets are taken for, at most: those of the interfaces, and of what stands on them.
const MACS_MAX: usize = 256;

/// The MAC addresses of interfaces and of all that stands on them, such as VLANs and the MACVLAN of a virtual router. A frame is
/// seen on the interface below, and of a bond in its driver on the interface that is bonded.
pub(super) fn macs(links: &[Link], tied: &[u32]) -> Vec<OwnMac> {
    let mut macs = Vec::new();
    for interface in tied {
        let own = standing(links, *interface);
        let is_bond = links.iter().any(|link| link.index == *interface && is_bond(link));
        let bonded = links.iter().filter(|link| is_bond && link.master == Some(*interface)).map(|link| link.index);
        for seen in [*interface].into_iter().chain(bonded) {
            let of = links.iter().filter(|link| own.contains(&link.index)).filter_map(|link| link.mac);
            for mac in of.map(|mac| OwnMac { interface: seen, address: mac.0, zero: 0 }) {
                if !macs.contains(&mac) {
                    macs.push(mac);
                }
            }
        }
    }
    macs.truncate(MACS_MAX);
    macs
}

/// An interface and all that stands on it.
fn standing(links: &[Link], interface: u32) -> Vec<u32> {
    let mut own = vec![interface];
    let mut at = 0;
    while let Some(below) = own.get(at).copied().filter(|_| own.len() < MACS_MAX) {
        // A veth's peer is not on it.
        let stands = |link: &&Link| link.lower == Some(below) && !is_veth(link) && !own.contains(&link.index);
        let more: Vec<u32> = links.iter().filter(stands).map(|link| link.index).collect();
        own.extend(more);
        at += 1;
    }
    own
}

/// Whether other interfaces are bonded in it. A program in its driver is in theirs, and sees theirs as where packets come in.
pub(super) fn is_bond(link: &Link) -> bool {
    link.kind.as_deref() == Some("bond")
}

#[cfg(test)]
mod tests {
    use baton_kernel::route::Mac;

    use super::*;
    use crate::xdp::way::testing::link;

    #[test]
    fn bonded_interfaces_take_what_is_for_the_bond() {
        let mac = |number: u8| Some(Mac([2, 0, 0, 0, 0, number]));
        let bond = Link { kind: Some("bond".into()), mac: mac(1), ..link(1, None) };
        let slave = |index| Link { master: Some(1), mac: mac(1), ..link(index, None) };
        let vlan = Link { mac: mac(4), ..link(4, Some((10, 1))) };
        let bridge = Link { kind: Some("bridge".into()), mac: mac(5), ..link(5, None) };
        let port = Link { master: Some(5), mac: mac(6), ..link(6, None) };
        let links = [bond, slave(2), slave(3), vlan, bridge, port];
        let taken = |tied: &[u32]| {
            let mut taken: Vec<(u32, u8)> =
                macs(&links, tied).iter().map(|mac| (mac.interface, mac.address[5])).collect();
            taken.sort_unstable();
            taken
        };
        assert_eq!(taken(&[1]), [(1, 1), (1, 4), (2, 1), (2, 4), (3, 1), (3, 4)]);
        assert_eq!(taken(&[5]), [(5, 5)], "of a bridge, frames are seen on itself");
        assert_eq!(taken(&[2]), [(2, 1)]);
    }
}
