//! How long requests took: sums and the longest, of which a reader makes averages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The times that are kept, in milliseconds, in the order of HAProxy's columns: `qtime`, `ctime`, `rtime`, `ttime`.
pub const TIMES: usize = 4;

/// One core's sums and maxima. Added to by that core's thread alone.
#[derive(Debug, Default)]
pub struct CoreTimes {
    sums: [AtomicU64; TIMES],
    longest: [AtomicU64; TIMES],
}

/// Sums and maxima over all cores.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Times {
    /// Milliseconds in all.
    pub sums: [u64; TIMES],
    /// The most milliseconds of one request.
    pub longest: [u64; TIMES],
}

impl CoreTimes {
    /// A request took this long in queues, to connect, to respond, and in all. Only for the thread whose core it is.
    #[inline]
    pub fn add(&self, times: [Duration; TIMES]) {
        for (at, time) in times.into_iter().enumerate() {
            let ms = time.as_secs() * 1000 + u64::from(time.subsec_millis());
            if ms == 0 {
                continue;
            }
            let sum = &self.sums[at];
            sum.store(sum.load(Ordering::Relaxed).wrapping_add(ms), Ordering::Relaxed);
            if ms > self.longest[at].load(Ordering::Relaxed) {
                self.longest[at].store(ms, Ordering::Relaxed);
            }
        }
    }

    /// Adds this core's part to `times`.
    pub fn add_to(&self, times: &mut Times) {
        for at in 0..TIMES {
            times.sums[at] = times.sums[at].wrapping_add(self.sums[at].load(Ordering::Relaxed));
            times.longest[at] = times.longest[at].max(self.longest[at].load(Ordering::Relaxed));
        }
    }

    /// Forgets the longest. A request that ends at this very moment may keep one alive.
    pub fn clear_longest(&self) {
        self.longest.iter().for_each(|longest| longest.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_over_cores() {
        let cores = [CoreTimes::default(), CoreTimes::default()];
        let ms = |times: [u64; TIMES]| times.map(Duration::from_millis);
        cores[0].add(ms([0, 1, 5, 10]));
        cores[0].add(ms([2, 0, 3, 4]));
        cores[1].add(ms([1, 0, 9, 9]));
        let total = || {
            let mut times = Times::default();
            cores.iter().for_each(|core| core.add_to(&mut times));
            times
        };
        assert_eq!(total(), Times { sums: [3, 1, 17, 23], longest: [2, 1, 9, 10] });
        cores.iter().for_each(CoreTimes::clear_longest);
        assert_eq!(total(), Times { sums: [3, 1, 17, 23], longest: [0; TIMES] });
    }
}
