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

/// [`Outages`] as another process goes on from them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutageMemory {
    /// For how long it has been up or down.
    pub since: Duration,
    /// How often it went down.
    pub downs: u64,
    /// How long it was down, without the outage that lasts.
    pub down_time: Duration,
    /// Whether it is up.
    pub is_up: bool,
}

impl Outages {
    /// A backend that begins, and is up.
    pub fn begin(now: Instant) -> Outages {
        Outages { changed: now, downs: 0, down_time: Duration::ZERO, is_up: true }
    }

    /// What another process goes on from, at `now`; `None` while there was no outage.
    pub fn remember(self, now: Instant) -> Option<OutageMemory> {
        let Outages { changed, downs, down_time, is_up } = self;
        let since = now.saturating_duration_since(changed);
        (downs > 0 || !is_up).then_some(OutageMemory { since, downs, down_time, is_up })
    }

    /// Goes on from there at `now`.
    pub fn recall(kept: &OutageMemory, now: Instant) -> Outages {
        let OutageMemory { since, downs, down_time, is_up } = *kept;
        Outages { changed: now.checked_sub(since).unwrap_or(now), downs, down_time, is_up }
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
        let kept = outages.remember(at(30)).expect("it was down");
        let later = start + Duration::from_secs(1000);
        let mut other = Outages::recall(&kept, later);
        other.look(true, later + Duration::from_secs(5));
        assert_eq!((seen(other), other.changed), ((2, 19), later + Duration::from_secs(5)));
        assert_eq!(Outages::begin(start).remember(at(30)), None);
        outages.clear();
        assert_eq!(seen(outages), (0, 0));
    }
}
