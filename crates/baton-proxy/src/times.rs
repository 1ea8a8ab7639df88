//! How long requests took: sums and the longest, of which a reader makes averages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The times that are kept, in milliseconds, in the order of HAProxy's columns: `qtime`, `ctime`, `rtime`, `ttime`.
pub const TIMES: usize = 4;

/// One core's sums and maxima, [`TIMES`] of each. Added to by that core's thread alone.
#[derive(Clone, Copy, Debug)]
pub struct CoreTimes<'a> {
    pub(crate) sums: &'a [AtomicU64],
    pub(crate) longest: &'a [AtomicU64],
}

/// Sums and maxima over all cores.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Times {
    /// Milliseconds in all.
    pub sums: [u64; TIMES],
    /// The most milliseconds of one request.
    pub longest: [u64; TIMES],
}

impl CoreTimes<'_> {
    /// A request took this long in queues, to connect, to respond, and in all. Only for the thread whose core it is.
    #[inline]
    pub fn add(self, times: [Duration; TIMES]) {
        for ((sum, longest), time) in self.sums.iter().zip(self.longest).zip(times) {
            let ms = time.as_secs() * 1000 + u64::from(time.subsec_millis());
            if ms == 0 {
                continue;
            }
            sum.store(sum.load(Ordering::Relaxed).wrapping_add(ms), Ordering::Relaxed);
            if ms > longest.load(Ordering::Relaxed) {
                longest.store(ms, Ordering::Relaxed);
            }
        }
    }

    /// Adds this core's part to `times`.
    pub fn add_to(self, times: &mut Times) {
        for (sum, own) in times.sums.iter_mut().zip(self.sums) {
            *sum = sum.wrapping_add(own.load(Ordering::Relaxed));
        }
        for (longest, own) in times.longest.iter_mut().zip(self.longest) {
            *longest = (*longest).max(own.load(Ordering::Relaxed));
        }
    }

    /// Forgets the longest. A request that ends at this very moment may keep one alive.
    pub fn clear_longest(self) {
        self.longest.iter().for_each(|longest| longest.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_over_cores() {
        let cells = [const { [const { AtomicU64::new(0) }; 2 * TIMES] }; 2];
        let cores = cells.each_ref().map(|cells| {
            let (sums, longest) = cells.split_at(TIMES);
            CoreTimes { sums, longest }
        });
        let ms = |times: [u64; TIMES]| times.map(Duration::from_millis);
        cores[0].add(ms([0, 1, 5, 10]));
        cores[0].add(ms([2, 0, 3, 4]));
        cores[1].add(ms([1, 0, 9, 9]));
        let total = || {
            let mut times = Times::default();
            cores.into_iter().for_each(|core| core.add_to(&mut times));
            times
        };
        assert_eq!(total(), Times { sums: [3, 1, 17, 23], longest: [2, 1, 9, 10] });
        cores.into_iter().for_each(CoreTimes::clear_longest);
        assert_eq!(total(), Times { sums: [3, 1, 17, 23], longest: [0; TIMES] });
    }
}
