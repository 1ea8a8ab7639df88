//! How many connections are remembered, and how they are divided.

use super::{Direct, fault, refused};
use crate::KernelError;

/// Processors that the machine can have, each of which remembers its share of connections: those that are there, and those for which the
/// kernel keeps room (`/sys/devices/system/cpu/possible`). 1 where it does not say.
pub fn processors() -> usize {
    aya::util::nr_cpus().unwrap_or(1).max(1)
}

/// Bytes of memory that the machine has; 0 where the kernel does not say.
pub fn memory() -> u64 {
    nix::sys::sysinfo::sysinfo().map_or(0, |system| system.ram_total())
}

impl Direct {
    /// How many connections are remembered at most, by all processors together.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn remembered(&self) -> Result<u32, KernelError> {
        let flows = self.maps.iter().find(|(name, _)| *name == "flows");
        let Some((_, map)) = flows else { return Ok(0) };
        map.info().map(|info| info.max_entries()).map_err(refused("the connections")).map_err(fault)
    }
}
