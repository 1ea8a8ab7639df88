//! Keys of session tickets in the life of a process: who rotates them, and where they go so that sessions outlive it.
//!
//! Keys of our own travel with the handover, and under `-W` the master keeps them for a worker that crashes. Keys of a file
//! (`tls-ticket-keys`) are read again by whoever comes after.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton_tls::tickets::TicketVault;
use zeroize::Zeroizing;

use crate::control::Control;
use crate::handover::message::TicketKey;

/// Seconds since 1970.
pub fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What another process needs to open our tickets.
pub(crate) fn remember(tickets: &TicketVault) -> Vec<TicketKey> {
    tickets.own().keep().into_iter().map(TicketKey).collect()
}

/// Goes on with the keys of another process.
pub(crate) fn recall(tickets: &TicketVault, keys: &[TicketKey]) {
    let kept: Vec<_> = keys.iter().map(|key| key.0.clone()).collect();
    tickets.own().recall(&kept, wall_seconds());
}

/// Goes on with what a master kept (`Control::keep_tickets`); with new keys when that is nothing.
pub fn recall_kept(tickets: &TicketVault, kept: Vec<u8>) {
    let kept = Zeroizing::new(kept);
    recall(tickets, &serde_json::from_slice::<Vec<TicketKey>>(&kept).unwrap_or_default());
}

impl Control {
    /// Has a new key seal if it is time for one.
    pub(crate) async fn rotate_tickets(&mut self) {
        if self.line.tickets.own().rotate(wall_seconds()) {
            self.keep_tickets().await;
        }
    }

    /// When that is.
    pub(crate) fn tickets_due(&self) -> Option<Instant> {
        let left = self.line.tickets.own().due()?.saturating_sub(wall_seconds());
        Instant::now().checked_add(Duration::from_secs(left))
    }

    /// The keys as bytes, for the master to keep.
    pub(crate) fn tickets_to_keep(&self) -> Option<Zeroizing<Vec<u8>>> {
        serde_json::to_vec(&remember(&self.line.tickets)).ok().map(Zeroizing::new)
    }
}
