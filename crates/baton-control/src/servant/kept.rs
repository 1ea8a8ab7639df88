//! Overrides that a master keeps for its worker, and for whoever comes after that.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use baton_kernel::process::over_exec::{memory_file, read_whole};
use baton_model::Overrides;
use zeroize::Zeroizing;

use crate::handover::memory::{MemoryKind, ProcessMemory};
use crate::overrides::{OverrideKey, OverrideRecord, records};

/// Bytes of all overrides that a master keeps.
const BYTES_MAX: u64 = 256 << 20;

/// All overrides of a worker, with its master.
#[derive(Debug, Default)]
pub struct KeptOverrides(BTreeMap<OverrideKey, OverrideRecord>);

impl KeptOverrides {
    /// An operator has set this.
    pub fn set(&mut self, set: OverrideRecord) {
        let OverrideRecord { backend, server, frontend, field, .. } = set.clone();
        self.0.insert(OverrideKey { backend, server, frontend, field }, set);
    }

    /// This is as in the file again.
    pub fn restored(&mut self, of: &OverrideKey) {
        self.0.remove(of);
    }

    /// As a memory file; `None` when there are none.
    pub fn to_file(&self) -> io::Result<Option<OwnedFd>> {
        let memory = ProcessMemory { overrides: self.0.values().cloned().collect(), ..ProcessMemory::default() };
        let file = || memory_file("baton-overrides", &memory.part(MemoryKind::Overrides)?);
        (!self.0.is_empty()).then(file).transpose()
    }

    /// Of such a file.
    pub fn of_file(file: OwnedFd) -> KeptOverrides {
        let mut kept = KeptOverrides::default();
        let mut memory = ProcessMemory::default();
        // What a master cannot read is nothing.
        let _ = read_whole(file, BYTES_MAX).map(|bytes| memory.join(MemoryKind::Overrides, &bytes));
        memory.overrides.into_iter().for_each(|set| kept.set(set));
        kept
    }
}

/// All overrides for a master to keep, changed entries of maps and ACLs among them.
pub(crate) fn overrides_to_bytes(
    overrides: &Overrides,
    entries: Vec<OverrideRecord>,
) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    let overrides = records(overrides).into_iter().chain(entries).collect();
    ProcessMemory { overrides, ..ProcessMemory::default() }.part(MemoryKind::Overrides)
}
