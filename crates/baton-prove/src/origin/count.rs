//! What an origin counts. Written by its thread, read by anybody.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use super::{
    fault::InjectedFault,
    freeze::{FREEZES_KEPT_MAX, Freeze},
};

/// Counters of an origin; they go on being readable when it has ended.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) requests: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
    /// Failures on purpose, by [`InjectedFault::index`]: on fresh connections, and on those that had carried an answer.
    faults: [[AtomicU64; 2]; InjectedFault::ALL.len()],
    freezes: Mutex<Vec<Freeze>>,
}

impl Counts {
    /// Requests whose heads were read.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Connections accepted.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections open at this moment.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn commit(&self, fault: InjectedFault, reused: bool) {
        self.faults[fault.index()][usize::from(reused)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many times it failed in this way on purpose.
    pub fn committed(&self, fault: InjectedFault) -> Committed {
        let [fresh, reused] = &self.faults[fault.index()];
        Committed { fresh: fresh.load(Ordering::Relaxed), reused: reused.load(Ordering::Relaxed) }
    }

    pub(super) fn froze(&self, freeze: Freeze) {
        let mut freezes = self.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        if freezes.len() < FREEZES_KEPT_MAX {
            freezes.push(freeze);
        }
    }

    /// The freezes that are over, the first [`FREEZES_KEPT_MAX`].
    pub fn freezes(&self) -> Vec<Freeze> {
        self.freezes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How many times an origin failed in one way on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// On a connection that had carried no answer before.
    pub fresh: u64,
    /// On a connection that had carried a whole answer before.
    pub reused: u64,
}

impl Committed {
    /// On any connection.
    pub fn total(self) -> u64 {
        self.fresh + self.reused
    }
}

/// Counts one open connection for as long as it lives.
pub(super) struct Open(Arc<Counts>);

impl Open {
    /// Its number among the origin's connections, from 1.
    pub(super) fn new(counts: &Arc<Counts>) -> (u64, Open) {
        counts.open.fetch_add(1, Ordering::Relaxed);
        (counts.connections.fetch_add(1, Ordering::Relaxed) + 1, Open(counts.clone()))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
