//! Capabilities: the pieces that root's rights are made of (capabilities(7)).

use std::io;

pub use caps::Capability;
use caps::{CapSet, CapsHashSet};

/// Of `wanted`, those that the calling thread could not have: they are not in its permitted set.
pub fn missing(wanted: &[Capability]) -> io::Result<Vec<Capability>> {
    let permitted = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    Ok(wanted.iter().copied().filter(|capability| !permitted.contains(capability)).collect())
}

/// Gives up all capabilities of the calling thread except `wanted`, and puts those in force that it has. Threads that it
/// starts inherit that, so it belongs before the first one. There is no way back.
pub fn reduce_to(wanted: &[Capability]) -> io::Result<()> {
    let set = |which, capabilities: &CapsHashSet| caps::set(None, which, capabilities).map_err(io::Error::other);
    let permitted = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let kept: CapsHashSet = wanted.iter().copied().filter(|capability| permitted.contains(capability)).collect();
    let inheritable = caps::read(None, CapSet::Inheritable).map_err(io::Error::other)?;
    // What is in force must be permitted, at each step.
    set(CapSet::Effective, &CapsHashSet::new())?;
    set(CapSet::Permitted, &kept)?;
    set(CapSet::Inheritable, &inheritable.intersection(&kept).copied().collect())?;
    set(CapSet::Effective, &kept)
}

/// The capability of this name, such as `CAP_NET_RAW`; `None` when there is none.
pub fn named(name: &str) -> Option<Capability> {
    name.to_ascii_uppercase().parse().ok()
}

/// Lets the calling thread keep what it may have when the user of the process changes to another one than root: it is not in
/// force then, until [`reduce_to`] puts a part of it in force. Other threads are not concerned.
pub fn keep_over_user_change() -> io::Result<()> {
    Ok(nix::sys::prctl::set_keepcaps(true)?)
}
