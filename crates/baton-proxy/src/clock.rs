//! The core's clock: read once per turn of the event loop.

use std::cell::Cell;
use std::time::Instant;

/// An instant that is refreshed when the core wakes up, so that asking for it is free.
#[derive(Debug)]
pub struct Clock(Cell<Instant>);

impl Clock {
    /// A clock that shows the present.
    pub fn new() -> Clock {
        Clock(Cell::new(Instant::now()))
    }

    /// The instant of the last refresh.
    #[inline]
    pub fn now(&self) -> Instant {
        self.0.get()
    }

    /// Reads the system's clock.
    pub fn refresh(&self) {
        self.0.set(Instant::now());
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}
