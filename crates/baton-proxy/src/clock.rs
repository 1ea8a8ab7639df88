//! The core's clock: read once per turn of the event loop, and again where a turn is long.
//!
//! Nothing else in this crate and in `baton-rules` reads the system's clock; the `clippy.toml` of both crates refuses it.

use std::cell::Cell;
use std::time::{Instant, SystemTime};

/// Looks at the clock after which it is read again. A loop that always finds more work does not come to the end of its
/// turn: without this the clock of a busy core would stand still, and with it every timeout.
const LOOKS_MAX: u32 = 64;

/// The time of this turn, on both of the system's clocks, so that asking for it is nearly free.
///
/// A refresh reads the monotonic clock, which every turn needs. The wall clock is read when a turn first asks for it (a
/// rule, a log line), and is the same until the next refresh: a system clock that is set is seen in the next turn.
#[derive(Debug)]
pub struct Clock {
    now: Cell<Instant>,
    wall: Cell<Option<SystemTime>>,
    looks: Cell<u32>,
    #[cfg(test)]
    reads: Cell<u32>,
}

impl Clock {
    /// A clock that shows the present.
    pub fn new() -> Clock {
        Clock {
            now: Cell::new(monotonic()),
            wall: Cell::new(None),
            looks: Cell::new(0),
            #[cfg(test)]
            reads: Cell::new(1),
        }
    }

    /// The instant of the last refresh, which is at most `LOOKS_MAX` looks ago.
    #[inline]
    pub fn now(&self) -> Instant {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        if looks > LOOKS_MAX {
            self.refresh();
        }
        self.now.get()
    }

    /// The date and time of this turn, for rules, cookies and log lines. Not for measuring: it follows whoever sets it.
    pub fn wall(&self) -> SystemTime {
        self.now();
        if let Some(wall) = self.wall.get() {
            return wall;
        }
        #[cfg(test)]
        self.reads.set(self.reads.get() + 1);
        let read = wall_clock();
        self.wall.set(Some(read));
        read
    }

    /// What the wall clock showed at an instant in the past, if nobody has set it since.
    pub fn wall_at(&self, then: Instant) -> SystemTime {
        self.wall() - self.now.get().saturating_duration_since(then)
    }

    /// Reads the system's clock.
    pub fn refresh(&self) {
        #[cfg(test)]
        self.reads.set(self.reads.get() + 1);
        self.looks.set(0);
        self.wall.set(None);
        self.now.set(monotonic());
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the request path reads the monotonic clock")]
fn monotonic() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the one place where the request path reads the wall clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn the_date_goes_on_without_the_end_of_a_turn() {
        let clock = Clock::new();
        let before = clock.wall();
        let start = Instant::now();
        while start.elapsed().is_zero() {}
        for _ in 0..LOOKS_MAX {
            clock.wall();
        }
        assert!(clock.wall() > before);
    }

    #[test]
    fn a_turn_reads_each_clock_at_most_once() {
        let clock = Clock::new();
        clock.refresh();
        assert_eq!(clock.reads.replace(0), 2, "the first reading and the turn's");
        let (now, wall) = (clock.now(), clock.wall());
        for _ in 0..10 {
            assert_eq!((clock.now(), clock.wall()), (now, wall));
            assert_eq!(clock.wall_at(now - Duration::from_secs(3)), wall - Duration::from_secs(3));
        }
        assert_eq!(clock.reads.replace(0), 1, "the wall clock, when it was first asked for");
        clock.refresh();
        assert_eq!(clock.reads.get(), 1, "a turn without rules and log lines does not read it");
    }
}
