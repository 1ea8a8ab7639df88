//! Handshakes that fail with a server: which of them are worth a word.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ServerState;

/// Why there was no handshake, as it was told last.
pub(super) struct Complaint {
    reason: Box<str>,
    told: Instant,
}

/// So long another reason is not told: servers behind one address may fail by turns.
const CHANGES_APART: Duration = Duration::from_secs(10);
/// So long the same reason is not told again, though handshakes succeeded meanwhile.
const REPEATS_APART: Duration = Duration::from_secs(60);

impl ServerState {
    /// A handshake with it failed. Whether that is to be told: the reason is another one than before, or it is back.
    pub fn handshake_failed(&self, reason: &str, now: Instant) -> bool {
        let was_refusing = self.is_refusing.swap(true, Ordering::Relaxed);
        self.is_news(reason, was_refusing, now)
    }

    /// A connection to it was not even begun. Whether that is to be told.
    pub fn not_connected(&self, reason: &str, now: Instant) -> bool {
        self.is_news(reason, false, now)
    }

    fn is_news(&self, reason: &str, was_refusing: bool, now: Instant) -> bool {
        let mut notes = self.notes();
        let is_known = notes.complaint.as_ref().is_some_and(|before| {
            let ago = now.saturating_duration_since(before.told);
            match *before.reason == *reason {
                true => was_refusing || ago < REPEATS_APART,
                false => ago < CHANGES_APART,
            }
        });
        if !is_known {
            notes.complaint = Some(Box::new(Complaint { reason: reason.into(), told: now }));
        }
        !is_known
    }

    /// A handshake with it succeeded.
    pub fn handshake_done(&self) {
        if self.is_refusing.load(Ordering::Relaxed) {
            self.is_refusing.store(false, Ordering::Relaxed);
        }
    }
}
