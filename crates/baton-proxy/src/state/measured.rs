//! Rates that rules ask for: what an object counted in the last second. Requests pay nothing for it: the change path looks at the
//! counters once a second, and only while a rule asks for a rate.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is measured of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum MeasuredRate {
    /// Sessions that were begun.
    Sessions,
    /// Requests that were begun.
    Requests,
}

/// The rates of an object. Empty while no rule asks.
#[derive(Debug, Default)]
pub struct MeasuredRates(OnceLock<Box<[MeasuredSecond; 2]>>);

/// A counter at the end of a second, and what it counted in it. Written by one thread, and read by the others: two of these read at
/// the change of a second may not fit together, and the rate is then that of a moment before or after.
#[derive(Debug, Default)]
struct MeasuredSecond {
    total: AtomicU64,
    before: AtomicU64,
    at_ms: AtomicU64,
}

impl MeasuredRates {
    /// Begins to measure unless that was done: what was counted until now was not in the last second.
    pub fn begin(&self, totals: [u64; 2], now_ms: u64) {
        self.0.get_or_init(|| {
            let begin = |total| MeasuredSecond {
                total: AtomicU64::new(total),
                before: AtomicU64::default(),
                at_ms: AtomicU64::new(now_ms),
            };
            Box::new(totals.map(begin))
        });
    }

    /// A second is over, or however long it was. From one thread at a time.
    pub fn measure(&self, totals: [u64; 2], now_ms: u64) {
        // One that was not measured is new: it had counted nothing.
        for (measured, total) in self.0.get_or_init(Box::default).iter().zip(totals) {
            let elapsed_ms = now_ms.saturating_sub(measured.at_ms.swap(now_ms, Ordering::Relaxed));
            let events = total.saturating_sub(measured.total.swap(total, Ordering::Relaxed));
            measured.before.store(events.saturating_mul(1000) / elapsed_ms.max(1000), Ordering::Relaxed);
        }
    }

    /// Events in the last second, of which `total` were counted so far: those since the last [`measure`](MeasuredRates::measure), and
    /// the part of the second before that is not over a second ago.
    pub fn rate(&self, rate: MeasuredRate, total: u64, now_ms: u64) -> u64 {
        let Some(measured) = self.0.get() else { return total };
        let measured = &measured[rate as usize];
        let [last, before, at_ms] =
            [&measured.total, &measured.before, &measured.at_ms].map(|value| value.load(Ordering::Relaxed));
        let rest_ms = 1000_u64.saturating_sub(now_ms.saturating_sub(at_ms));
        total.saturating_sub(last) + before * rest_ms / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_rate_is_of_the_last_thousand_milliseconds() {
        let rates = MeasuredRates::default();
        let rate = |total, now_ms| rates.rate(MeasuredRate::Sessions, total, now_ms);
        assert_eq!(rate(3, 500), 3, "it is new: all were counted since it is there");
        rates.begin([2, 0], 0);
        assert_eq!(rate(3, 500), 1);
        rates.measure([10, 0], 1000);
        assert_eq!((rate(10, 1000), rate(12, 1000), rate(12, 1500), rate(12, 2000)), (8, 10, 6, 2));
        assert_eq!(rate(12, 9000), 2);
        rates.measure([30, 0], 3000);
        assert_eq!(rate(30, 3000), 10, "twenty in two seconds");
        rates.begin([0, 0], 4000);
        assert_eq!(rate(31, 3000), 11, "it was begun already");
        assert_eq!(rates.rate(MeasuredRate::Requests, 1, 3000), 1);
    }
}
