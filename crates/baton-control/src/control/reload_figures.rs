//! What became of reloads, for metrics.

use std::time::Duration;

/// Reloads of this process so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadFigures {
    /// Those whose configuration came into use.
    pub applied: u64,
    /// The others.
    pub rejected: u64,
    /// How long all of them took, from the reading of the files on.
    pub spent: Duration,
    /// `None` before the first.
    pub last: Option<LastReload>,
}

/// The last one.
#[derive(Clone, Debug)]
pub(crate) struct LastReload {
    /// Its configuration came into use.
    pub is_applied: bool,
    /// How long it took.
    pub took: Duration,
    /// When it was over, in seconds since 1970.
    pub at: u64,
}

impl ReloadFigures {
    /// A reload is over.
    pub fn add(&mut self, is_applied: bool, took: Duration, at: u64) {
        match is_applied {
            true => self.applied += 1,
            false => self.rejected += 1,
        }
        self.spent += took;
        self.last = Some(LastReload { is_applied, took, at });
    }
}
