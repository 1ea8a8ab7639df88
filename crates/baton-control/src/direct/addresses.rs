//! Virtual addresses of this machine: where they are to be, which stay, and what would be done about them.

use baton_direct::KernelError;
use baton_direct::vip::{Vip, Vips};
use baton_kernel::route::Routing;

use super::keeper::Work;
use super::lower::Managed;

/// Those of ours that nobody asks for and something listens on.
pub(super) fn held(vips: &mut Vips, wanted: &[Vip], work: &Work) -> Vec<Vip> {
    let mut held = vips.ours().unwrap_or_default();
    held.retain(|vip| {
        work.listened.contains(&vip.address) && wanted.iter().all(|wanted| wanted.address != vip.address)
    });
    held
}

/// What work would change of virtual addresses, a sentence each.
pub(super) fn foresee(vips: &mut Vips, work: &Work) -> Vec<String> {
    let (wanted, lost) = places(&work.managed);
    let held = held(vips, &wanted, work);
    let ours = vips.ours().unwrap_or_default();
    let fresh =
        wanted.iter().filter(|vip| !ours.contains(vip)).map(|vip| format!("add virtual address {vip} if missing"));
    let gone = ours.iter().filter(|vip| !wanted.contains(vip) && !held.contains(vip));
    let gone = gone.map(|vip| format!("remove virtual address {vip}"));
    let held = held.iter().map(stays);
    fresh.chain(gone).chain(held).chain(lost.iter().map(ToString::to_string)).collect()
}

/// That an address stays though nobody asks for it.
pub(super) fn stays(vip: &Vip) -> String {
    format!(
        "virtual address {vip} is kept without `manage-vip`, because something listens on it: a reload with neither removes \
         it; otherwise remove it manually (ip address del {}/{} dev {})",
        vip.address, vip.prefix, vip.interface
    )
}

/// The interfaces of addresses that leave it open; what has no way is a fault.
pub(super) fn places(managed: &[Managed]) -> (Vec<Vip>, Vec<KernelError>) {
    let (mut vips, mut faults) = (Vec::new(), Vec::new());
    for one in managed {
        let place = || format!("virtual address {}", one.address);
        let interface = match &one.interface {
            Ok(name) => Ok(name.clone()),
            Err(towards) => Routing::open().and_then(|mut routing| {
                let route = routing.route_to(*towards)?.map(|route| route.interface);
                let link = route.map(|index| routing.link_by_index(index)).transpose()?.flatten();
                link.map(|link| link.name).ok_or_else(|| {
                    KernelError::new(
                        place(),
                        format!("there is no route to {towards}"),
                        "set the interface: 'manage-vip interface NAME'",
                    )
                })
            }),
        };
        match interface {
            Ok(interface) => vips.push(Vip { address: one.address, interface, prefix: one.prefix }),
            Err(fault) => faults.push(fault),
        }
    }
    (vips, faults)
}
