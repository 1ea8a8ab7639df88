//! The core's clock: read once per turn of the event loop, and again where a turn is long.

use std::cell::Cell;
use std::time::Instant;

/// Looks at the clock after which it is read again. A loop that always finds more work does not come to the end of its
/// turn: without this the clock of a busy core would stand still, and with it every timeout.
const LOOKS_MAX: u32 = 64;

/// An instant that is refreshed when the core wakes up, so that asking for it is nearly free.
#[derive(Debug)]
pub struct Clock {
    now: Cell<Instant>,
    looks: Cell<u32>,
}

impl Clock {
    /// A clock that shows the present.
    pub fn new() -> Clock {
        Clock { now: Cell::new(Instant::now()), looks: Cell::new(0) }
    }

    /// The instant of the last refresh, which is at most [`LOOKS_MAX`] looks ago.
    #[inline]
    pub fn now(&self) -> Instant {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        if looks > LOOKS_MAX {
            self.refresh();
        }
        self.now.get()
    }

    /// Reads the system's clock.
    pub fn refresh(&self) {
        self.looks.set(0);
        self.now.set(Instant::now());
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_without_the_end_of_a_turn() {
        let clock = Clock::new();
        let before = clock.now();
        let start = Instant::now();
        while start.elapsed().is_zero() {}
        for _ in 0..LOOKS_MAX {
            clock.now();
        }
        assert!(clock.now() > before);
    }
}
