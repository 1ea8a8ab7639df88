//! An origin that stands still for a while, and remembers exactly when.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The longest freeze.
pub const FREEZE_MAX: Duration = Duration::from_secs(60);

/// The most freezes whose instants one origin keeps.
pub const FREEZES_KEPT_MAX: usize = 10_000;

/// A time in which the origin did nothing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// Nothing was read, accepted or answered from here on,
    pub began: Instant,
    /// until here.
    pub ended: Instant,
}

impl Freeze {
    /// Freezes the calling thread.
    pub(super) fn now(time: Duration) -> Freeze {
        let began = Instant::now();
        // On purpose not the runtime's sleep: the whole thread is to stand still.
        thread::sleep(time);
        Freeze { began, ended: Instant::now() }
    }
}
