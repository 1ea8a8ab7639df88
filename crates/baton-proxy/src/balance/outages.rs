//! When a backend had no usable server. Pure: told of every look, it counts the changes.

use std::time::{Duration, Instant};

/// HAProxy's `lastchg`, `chkdown` and `downtime` of a backend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outages {
    /// When it last went up or down; at first, when it began.
    pub changed: Instant,
    /// How often it went down.
    pub downs: u64,
    /// How long it was down, without the outage that lasts.
    pub down_time: Duration,
    is_up: bool,
}

impl Outages {
    /// A backend that begins, and is up.
    pub fn begin(now: Instant) -> Outages {
        Outages { changed: now, downs: 0, down_time: Duration::ZERO, is_up: true }
    }

    /// It is up or down at `now`.
    pub fn look(&mut self, is_up: bool, now: Instant) {
        match (self.is_up, is_up) {
            (true, false) => self.downs += 1,
            (false, true) => self.down_time = self.until(now).down_time,
            (true, true) | (false, false) => return,
        }
        (self.is_up, self.changed) = (is_up, now);
    }

    /// With the time of the outage that lasts at `now`.
    pub fn until(self, now: Instant) -> Outages {
        let current = if self.is_up { Duration::ZERO } else { now.saturating_duration_since(self.changed) };
        Outages { down_time: self.down_time + current, ..self }
    }

    /// Counts anew.
    pub fn clear(&mut self) {
        (self.downs, self.down_time) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_are_counted_and_timed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outages = Outages::begin(start);
        for (second, is_up) in [(1, true), (5, false), (6, false), (9, true), (20, false)] {
            outages.look(is_up, at(second));
        }
        let seen = |outages: Outages| (outages.downs, outages.down_time.as_secs());
        assert_eq!((seen(outages), seen(outages.until(at(30)))), ((2, 4), (2, 14)));
        assert_eq!(outages.changed, at(20));
        outages.clear();
        assert_eq!(seen(outages), (0, 0));
    }
}
