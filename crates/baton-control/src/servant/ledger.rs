//! Which sockets the master holds for this process, as far as it was told: pure. Sockets go by the kernel's numbers (`SO_COOKIE`).

use std::collections::BTreeSet;

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Sockets that the master holds for us.
    held: BTreeSet<u64>,
    /// Sockets that the master gave us, until the first report.
    given: BTreeSet<u64>,
}

/// What to tell.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct SocketChanges {
    /// To be held from now on.
    pub hold: BTreeSet<u64>,
    /// Closed for good.
    pub release: Vec<u64>,
}

impl Ledger {
    /// Before the first report, when the master has given these.
    pub fn new(given: BTreeSet<u64>) -> Ledger {
        Ledger { held: BTreeSet::new(), given }
    }

    /// These are open now.
    pub fn step(&mut self, open: BTreeSet<u64>) -> SocketChanges {
        let hold = open.difference(&self.held).copied().collect();
        self.held.append(&mut self.given);
        let release = self.held.difference(&open).copied().collect();
        self.held = open;
        SocketChanges { hold, release }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_learns_what_changed() {
        let mut ledger = Ledger::new([1, 2].into());
        let mut check = |open: &[u64], hold: &[u64], release: &[u64]| {
            let expect = SocketChanges { hold: hold.iter().copied().collect(), release: release.to_vec() };
            assert_eq!(ledger.step(open.iter().copied().collect()), expect, "{open:?}");
        };
        // What it gave is told once, so that it knows which worker has it; what was not used is released.
        check(&[2, 3], &[2, 3], &[1]);
        check(&[2, 3], &[], &[]);
        check(&[3, 4], &[4], &[2]);
        check(&[], &[], &[3, 4]);
    }
}
