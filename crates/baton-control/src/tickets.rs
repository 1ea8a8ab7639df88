//! Keys of session tickets in the life of a process: who rotates them, and where they go so that sessions outlive it.
//!
//! Keys of our own travel with the handover, and under `-W` the master keeps them for a worker that crashes. Keys of a file
//! (`tls-ticket-keys`) are read again by whoever comes after.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton_tls::tickets::TicketVault;
use zeroize::Zeroizing;

use crate::handover::memory::{MemoryKind, ProcessMemory, TicketKey};

/// Seconds since 1970.
pub fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The keys in use, for who looks at them: only who has the vault can change them.
#[derive(Clone, Copy, Debug)]
pub struct TicketView<'a>(&'a TicketVault);

impl<'a> TicketView<'a> {
    /// A view of these keys.
    pub(crate) fn of(tickets: &'a TicketVault) -> TicketView<'a> {
        TicketView(tickets)
    }

    /// What another process needs to open our tickets.
    pub(crate) fn remember(self) -> Vec<TicketKey> {
        self.0.own().keep().into_iter().map(TicketKey).collect()
    }

    /// When a new key has to seal.
    pub(crate) fn due(self) -> Option<Instant> {
        let left = self.0.own().due()?.saturating_sub(wall_seconds());
        Instant::now().checked_add(Duration::from_secs(left))
    }

    /// The keys as bytes, for the master to keep.
    pub(crate) fn to_keep(self) -> Option<Zeroizing<Vec<u8>>> {
        let memory = ProcessMemory { tickets: self.remember(), ..ProcessMemory::default() };
        memory.part(MemoryKind::TicketKeys).ok()
    }

    /// The files of keys, in the order by which operators number them.
    pub(crate) fn files(self) -> Vec<PathBuf> {
        self.0.files().into_iter().map(|(path, _)| path).collect()
    }

    /// The keys of the file at a place of [`TicketView::files`] as text, the oldest first.
    pub(crate) fn shown(self, place: usize) -> Vec<Zeroizing<String>> {
        self.0.files().get(place).map(|(_, keys)| keys.shown()).unwrap_or_default()
    }
}

/// Goes on with the keys of another process.
pub(crate) fn recall(tickets: &TicketVault, keys: &[TicketKey]) {
    let kept: Vec<_> = keys.iter().map(|key| key.0.clone()).collect();
    tickets.own().recall(&kept, wall_seconds());
}

/// Has a new key seal if it is time for one.
pub(crate) fn rotate(tickets: &TicketVault) {
    tickets.own().rotate(wall_seconds());
}
