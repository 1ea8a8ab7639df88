//! What belongs to the process rather than to its traffic: rights, limits, processors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Settings of the process besides its user and its root directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Process {
    /// `strict-limits`, on by default: a limit that cannot be had ends the start.
    pub strict_limits: bool,
    /// `fd-hard-limit`: most open files, whatever the system allows.
    pub fd_hard_limit: Option<u64>,
    /// `cpu-map`: the processors that a thread may use, by the thread's number from 1. Threads that are not in it may use
    /// any.
    pub cpu_map: CpuMap,
    /// `setcap`: rights that survive the change of the user.
    pub capabilities: BTreeSet<Capability>,
    /// `set-dumpable`: a core file is written when the process ends by accident.
    pub dumpable: bool,
    /// `insecure-setuid-wanted`: programs started from here may gain rights.
    pub may_gain_rights: bool,
}

/// Processors by thread.
pub type CpuMap = BTreeMap<u32, BTreeSet<u32>>;

impl Default for Process {
    fn default() -> Process {
        Process {
            strict_limits: true,
            fd_hard_limit: None,
            cpu_map: CpuMap::new(),
            capabilities: BTreeSet::new(),
            dumpable: false,
            may_gain_rights: false,
        }
    }
}

/// A right of Linux (capabilities(7)) that `setcap` can name.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Capability {
    /// Transparent sockets and network settings.
    NetAdmin,
    /// Ports below 1024.
    NetBindService,
    /// Transparent sockets and raw packets.
    NetRaw,
    /// Network namespaces.
    SysAdmin,
}

impl Capability {
    /// All of them, by name.
    pub const ALL: [Capability; 4] =
        [Capability::NetAdmin, Capability::NetBindService, Capability::NetRaw, Capability::SysAdmin];

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "cap_net_admin",
            Capability::NetBindService => "cap_net_bind_service",
            Capability::NetRaw => "cap_net_raw",
            Capability::SysAdmin => "cap_sys_admin",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
