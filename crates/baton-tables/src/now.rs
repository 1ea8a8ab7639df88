//! The time of tables: milliseconds of the system's monotonic clock, on which all processes of a machine agree.

use std::time::{Duration, Instant};

/// A point in time, as the caller read it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Now(u64);

impl Now {
    /// Milliseconds of CLOCK_MONOTONIC.
    pub const fn from_millis(millis: u64) -> Now {
        Now(millis)
    }

    /// Milliseconds of CLOCK_MONOTONIC.
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// Makes [`Now`] of an [`Instant`], which does not say what the clock showed.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    instant: Instant,
    shown: Duration,
}

impl Timeline {
    /// Of a moment that was read as `instant` and as `shown` (`baton_kernel::process::uptime`).
    pub fn new(instant: Instant, shown: Duration) -> Timeline {
        Timeline { instant, shown }
    }

    /// What the clock showed at `instant`.
    #[inline]
    pub fn at(&self, instant: Instant) -> Now {
        let shown = match instant.checked_duration_since(self.instant) {
            Some(since) => self.shown + since,
            None => self.shown.saturating_sub(self.instant.duration_since(instant)),
        };
        Now(shown.as_millis() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn instants_before_and_after_are_on_the_same_line() {
        let instant = Instant::now();
        let line = Timeline::new(instant, Duration::from_micros(5_000_700));
        assert_eq!(line.at(instant).as_millis(), 5000);
        assert_eq!(line.at(instant + Duration::from_micros(300)).as_millis(), 5001);
        assert_eq!(line.at(instant - Duration::from_micros(701)).as_millis(), 4999);
    }
}
