//! The arithmetic of rates: events of the current period, and of the whole one before it, weighted by how much of it is still in the
//! window that ends now.
//!
//! With `e` milliseconds since the current period began and a period of `P`:
//!
//! | | value |
//! |---|---|
//! | `e < P` | `current + previous * (P - e) / P` |
//! | `P <= e < 2P` | `current * (2P - e) / P` |
//! | later | 0 |
//!
//! As in HAProxy, a single event of the previous period is not weighted as long as there is none in the current one: it counts as 1.

/// What a rate has counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rate {
    /// When the current period began, in milliseconds; their lower half, as peers exchange it.
    pub(crate) start: u32,
    /// Events since then.
    pub(crate) current: u32,
    /// Events in the whole period before.
    pub(crate) previous: u32,
}

impl Rate {
    /// Nothing was counted ever: the first event begins a period.
    pub(crate) fn unused(now: u32, period: u32) -> Rate {
        let elapsed = period.saturating_mul(2).min(u32::MAX - SKEW);
        Rate { start: now.wrapping_sub(elapsed), current: 0, previous: 0 }
    }

    /// A rate as it is at `now`: periods that are over are behind it.
    #[inline]
    pub(crate) fn turned(self, now: u32, period: u32) -> Rate {
        let elapsed = self.elapsed(now);
        if elapsed < period {
            self
        } else if elapsed - period < period {
            Rate { start: self.start.wrapping_add(period), current: 0, previous: self.current }
        } else {
            Rate { start: now, current: 0, previous: 0 }
        }
    }

    /// Events over the period that ends at `now`. A single event counts until the period after its own has ended: a very low rate does not
    /// alternate between 1 and 0.
    #[inline]
    pub(crate) fn value(self, now: u32, period: u32) -> u64 {
        let turned = self.turned(now, period);
        let (current, previous) = (u64::from(turned.current), u64::from(turned.previous));
        if current == 0 && previous <= 1 {
            return previous;
        }
        let (elapsed, period) = (u64::from(turned.elapsed(now)), u64::from(period.max(1)));
        current + previous * period.saturating_sub(elapsed) / period
    }

    /// Milliseconds since the current period began. A clock that was read before another core's began it is at its beginning.
    #[inline]
    pub(crate) fn elapsed(self, now: u32) -> u32 {
        let elapsed = now.wrapping_sub(self.start);
        if elapsed > u32::MAX - SKEW { 0 } else { elapsed }
    }
}

/// Milliseconds by which one core's clock may be behind another's: each reads it once per turn.
const SKEW: u32 = 60_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rate that counts `events` (millisecond, amount) and is read at `now`.
    fn counted(events: &[(u32, u32)], now: u32, period: u32) -> u64 {
        let mut rate = Rate { start: events.first().map_or(0, |(at, _)| *at), current: 0, previous: 0 };
        for (at, amount) in events {
            rate = rate.turned(*at, period);
            rate.current += amount;
        }
        rate.value(now, period)
    }

    /// A rate as the manual defines it: where periods begin follows from the times alone.
    fn defined(events: &[(u32, u32)], now: u32, period: u32) -> u64 {
        let Some((mut start, _)) = events.first().copied() else { return 0 };
        let within = |from: u64, to: u64| -> u64 {
            let inside = events.iter().filter(|(at, _)| (from..to).contains(&u64::from(*at)));
            inside.map(|(_, amount)| u64::from(*amount)).sum()
        };
        // Periods follow each other until one of them and the next are without an event: then the next event begins one.
        for (at, _) in events {
            while *at >= start + period {
                start = if *at - start >= 2 * period { *at } else { start + period };
            }
        }
        let (start, now, period) = (u64::from(start), u64::from(now), u64::from(period));
        let before = events.iter().map(|(at, _)| u64::from(*at)).filter(|at| *at < start).max();
        let current = within(start, u64::MAX);
        let previous = if before.is_some() { within(start.saturating_sub(period), start) } else { 0 };
        let elapsed = now - start;
        match elapsed / period {
            0 if current == 0 && previous == 1 => 1,
            0 => current + previous * (period - elapsed) / period,
            1 if current == 1 => 1,
            1 => current * (2 * period - elapsed) / period,
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn the_value_is_that_of_the_sliding_window(
            steps in prop::collection::vec((0_u32..3000, 0_u32..5), 0..40),
            period in 1_u32..2000,
            later in 0_u32..5000,
        ) {
            let mut at = 1_000_000;
            let events: Vec<_> = steps.iter().map(|(step, amount)| { at += step; (at, *amount) }).collect();
            prop_assert_eq!(counted(&events, at + later, period), defined(&events, at + later, period));
        }

        #[test]
        fn the_clock_may_pass_the_end_of_its_range(steps in prop::collection::vec((0_u32..3000, 0_u32..5), 1..40), period in 1_u32..2000) {
            let value = |first: u32| {
                let mut at = first;
                let mut rate = Rate { start: first, ..Rate::default() };
                for (step, amount) in &steps {
                    at = at.wrapping_add(*step);
                    rate = rate.turned(at, period);
                    rate.current += amount;
                }
                rate.value(at, period)
            };
            prop_assert_eq!(value(u32::MAX - 5000), value(1000));
        }
    }

    #[test]
    fn a_rate_fades_over_two_periods() {
        let value = |elapsed, current, previous| {
            Rate { start: 5, current, previous }.value(5_u32.wrapping_add(elapsed), 10_000)
        };
        assert_eq!(value(2100, 4, 10), 11);
        assert_eq!(value(12_100, 4, 10), 3);
        assert_eq!(value(25_100, 4, 10), 0);
        assert_eq!(value(0, 4, 10), 14);
        assert_eq!(value(20_000, 4, 10), 0);
        assert_eq!((value(9999, 0, 1), value(19_999, 1, 10), value(20_000, 1, 10)), (1, 1, 0), "a single event");
        assert_eq!((value(9999, 0, 2), value(5000, 1, 1)), (0, 1));
        assert_eq!(value(u32::MAX - 4, 4, 10), 14, "a clock that is a little behind");
    }
}
