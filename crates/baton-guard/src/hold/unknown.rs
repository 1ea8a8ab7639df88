//! Undoing a run of which nothing is known but its number: its file cannot be read. All that it may have made bears that number, or
//! belongs to no living run.

use nix::net::if_::if_nameindex;

use super::{migrate, plug, queue};
use crate::KernelError;
use crate::iptables::{Family, Iptables};

/// Removes its table of nftables and its chains of iptables, puts the kernel's setting back if nobody needs it, and unless a
/// living run has a plug, opens and removes the lanes of runs. What is not there is what is wanted.
///
/// # Errors
/// What could not be undone.
pub(super) fn undo(run: u32, has_plug: bool) -> Result<(), KernelError> {
    queue::rules::wipe(run)?;
    for family in [Family::Ipv4, Family::Ipv6] {
        // Without the programs there are no rules of theirs.
        let Ok(iptables) = Iptables::find(family) else { continue };
        for chain in queue::rules::chains(run)? {
            iptables.remove(&chain)?;
        }
    }
    migrate::put_back()?;
    if has_plug {
        return Ok(());
    }
    let all =
        if_nameindex().map_err(|errno| KernelError::io("the interfaces of this network namespace", &errno.into()))?;
    all.iter().filter_map(|interface| interface.name().to_str().ok()).try_for_each(plug::forget)
}
