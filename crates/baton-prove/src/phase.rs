//! Whether a change is going on, shared between who makes changes and who measures.
//!
//! A request belongs to the changes it overlaps: from its intended start to its last byte. Looking at a flag at either end would
//! miss a request that waited through a whole change, so the phase also remembers when the last change ended.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

/// The shared flag "during a change". Clones are the same flag.
///
/// Written by whoever makes changes ([`Phase::begin`]), read by load threads at the end of each request.
#[derive(Clone, Debug)]
pub struct Phase {
    shared: Arc<PhaseShared>,
}

#[derive(Debug)]
struct PhaseShared {
    /// What instants are counted from.
    base: Instant,
    /// How many changes go on at this moment.
    active: AtomicU32,
    /// How many changes have begun so far.
    begun: AtomicU64,
    /// When the last change ended, in nanoseconds after `base`, plus one; 0 when none has.
    last_end: AtomicU64,
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::new()
    }
}

impl Phase {
    /// A phase outside of any change.
    pub fn new() -> Phase {
        let shared = PhaseShared {
            base: Instant::now(),
            active: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            last_end: AtomicU64::new(0),
        };
        Phase { shared: Arc::new(shared) }
    }

    /// A change begins; it ends when the guard is dropped. Changes may overlap.
    #[must_use = "the change ends when the guard is dropped"]
    pub fn begin(&self) -> PhaseGuard {
        self.shared.begun.fetch_add(1, Ordering::Relaxed);
        self.shared.active.fetch_add(1, Ordering::SeqCst);
        PhaseGuard { phase: self.clone() }
    }

    /// How many changes have begun so far.
    pub fn begun(&self) -> u64 {
        self.shared.begun.load(Ordering::Relaxed)
    }

    /// Whether a change goes on at this moment.
    pub fn active(&self) -> bool {
        self.shared.active.load(Ordering::SeqCst) > 0
    }

    /// Whether something that lasted from `start` until this moment overlapped a change.
    pub fn overlapped(&self, start: Instant) -> bool {
        // `end` stores `last_end` before it lowers `active`, so that a change which ends between the two loads is seen.
        if self.active() {
            return true;
        }
        let last_end = self.shared.last_end.load(Ordering::SeqCst);
        last_end > 0 && last_end > self.nanos(start)
    }

    fn end(&self) {
        self.shared.last_end.fetch_max(self.nanos(Instant::now()) + 1, Ordering::SeqCst);
        self.shared.active.fetch_sub(1, Ordering::SeqCst);
    }

    fn nanos(&self, at: Instant) -> u64 {
        // 2^64 ns are 584 years.
        at.saturating_duration_since(self.shared.base).as_nanos() as u64
    }
}

/// One change going on; dropping it ends the change.
#[derive(Debug)]
pub struct PhaseGuard {
    phase: Phase,
}

impl Drop for PhaseGuard {
    fn drop(&mut self) {
        self.phase.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_belongs_to_every_change_it_overlaps() {
        let phase = Phase::new();
        let before = Instant::now();
        assert!(!phase.overlapped(before), "no change yet");

        let first = phase.begin();
        assert!(phase.overlapped(before), "ends during a change");
        let inside = Instant::now();
        let second = phase.begin();
        drop(first);
        assert!(phase.overlapped(Instant::now()), "another change still goes on");
        drop(second);

        assert!(phase.overlapped(before), "waited through the whole change");
        assert!(phase.overlapped(inside), "began during the change");
        assert!(!phase.overlapped(Instant::now()), "began after the change");
        assert_eq!(phase.begun(), 2);
    }
}
