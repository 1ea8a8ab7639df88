//! What a load measured over time: one slot for every 10 ms.
//!
//! A request belongs to the slot in which it began by plan, wherever it ended. In the open model a server that freezes for
//! 200 ms so shows as what it is: a ramp that begins at 200 ms and falls to nothing while the freeze lasts.

use std::time::Duration;

/// The length of a slot, as long as the load is short enough for it.
pub const SLOT: Duration = Duration::from_millis(10);

/// The most slots of a series (eleven minutes of 10 ms). A longer load has longer slots: neighbours are put together, and their
/// length doubles.
pub const SLOTS_MAX: usize = 65_536;

/// The slots of a load, the first one beginning with it. There are as many as needed for the last request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    interval: Duration,
    slots: Vec<Slot>,
    /// The slot of the last request, because the next one is usually in the same.
    last: usize,
    /// When that slot begins, in nanoseconds after the start of the load.
    last_begins: u64,
}

/// The requests that began by plan within one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Requests answered whole and right.
    pub completed: u32,
    /// Requests that failed.
    pub failed: u32,
    /// The latencies of the completed requests together, in microseconds.
    pub sum_us: u64,
    /// The longest latency of a completed request, in microseconds.
    pub max_us: u64,
}

impl Slot {
    /// The mean latency in microseconds; `None` when no request was completed.
    pub fn mean_us(&self) -> Option<u64> {
        self.sum_us.checked_div(u64::from(self.completed))
    }

    fn add(&mut self, other: &Slot) {
        self.completed = self.completed.saturating_add(other.completed);
        self.failed = self.failed.saturating_add(other.failed);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
    }
}

impl Default for Series {
    fn default() -> Series {
        Series::new()
    }
}

impl Series {
    /// A series without slots.
    pub fn new() -> Series {
        Series { interval: SLOT, slots: Vec::new(), last: 0, last_begins: 0 }
    }

    /// The length of each slot: [`SLOT`], doubled as often as the load's length asked for.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The slots; the one at `index` begins `index * interval` after the load.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Counts a completed request that began at `begun` after the start of the load.
    pub fn complete(&mut self, begun: Duration, latency_us: u64) {
        let slot = self.slot_at(begun);
        slot.completed = slot.completed.saturating_add(1);
        slot.sum_us = slot.sum_us.saturating_add(latency_us);
        slot.max_us = slot.max_us.max(latency_us);
    }

    /// Counts a failed request that began at `begun` after the start of the load.
    pub fn fail(&mut self, begun: Duration) {
        let slot = self.slot_at(begun);
        slot.failed = slot.failed.saturating_add(1);
    }

    /// Adds another series of the same load, slot by slot; the longer interval of the two is kept.
    pub fn merge(&mut self, mut other: Series) {
        while self.interval < other.interval {
            self.double();
        }
        while other.interval < self.interval {
            other.double();
        }
        if self.slots.len() < other.slots.len() {
            self.slots.resize(other.slots.len(), Slot::default());
        }
        for (slot, other) in self.slots.iter_mut().zip(&other.slots) {
            slot.add(other);
        }
    }

    fn slot_at(&mut self, begun: Duration) -> &mut Slot {
        let begun = nanos(begun);
        let within = begun.wrapping_sub(self.last_begins) < nanos(self.interval);
        if !within || self.slots.is_empty() {
            self.go_to(begun);
        }
        &mut self.slots[self.last]
    }

    fn go_to(&mut self, begun: u64) {
        while begun / nanos(self.interval) >= SLOTS_MAX as u64 {
            self.double();
        }
        // Below `SLOTS_MAX`, as the loop above says.
        self.last = (begun / nanos(self.interval)) as usize;
        self.last_begins = self.last as u64 * nanos(self.interval);
        if self.last >= self.slots.len() {
            self.slots.resize(self.last + 1, Slot::default());
        }
    }

    /// Puts each two neighbours together.
    fn double(&mut self) {
        self.interval *= 2;
        let half = self.slots.len().div_ceil(2);
        for index in 0..half {
            let mut both = self.slots[2 * index];
            if let Some(second) = self.slots.get(2 * index + 1) {
                both.add(second);
            }
            self.slots[index] = both;
        }
        self.slots.truncate(half);
        self.last /= 2;
        self.last_begins = self.last as u64 * nanos(self.interval);
    }
}

fn nanos(duration: Duration) -> u64 {
    // 2^64 ns are 584 years.
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A series of requests that began at these milliseconds, each with a latency of as many microseconds.
    fn series(begun: &[u64]) -> Series {
        let mut series = Series::new();
        for &begun in begun {
            series.complete(ms(begun), begun);
        }
        series
    }

    fn counts(series: &Series) -> Vec<u32> {
        series.slots().iter().map(|slot| slot.completed).collect()
    }

    #[test]
    fn each_request_is_in_the_slot_of_its_beginning() {
        let mut series = series(&[0, 9, 10, 35, 12, 39, 0]);
        series.fail(ms(20));
        assert_eq!(counts(&series), [3, 2, 0, 2]);
        assert_eq!(series.slots()[2].failed, 1);
        assert_eq!(series.slots()[3], Slot { completed: 2, failed: 0, sum_us: 74, max_us: 39 });
        assert_eq!((series.slots()[3].mean_us(), series.slots()[2].mean_us()), (Some(37), None));
        assert_eq!(series.interval(), SLOT);
    }

    #[test]
    fn a_long_load_has_longer_slots_and_loses_nothing() {
        let end = SLOTS_MAX as u64 * 10;
        let mut series = series(&[0, 10, 25, end - 1]);
        assert_eq!((series.interval(), series.slots().len()), (SLOT, SLOTS_MAX));
        series.complete(ms(end), 7);
        assert_eq!((series.interval(), series.slots().len()), (SLOT * 2, SLOTS_MAX / 2 + 1));
        series.complete(ms(5 * end), 7);
        series.complete(ms(1), 7);
        assert_eq!(series.interval(), SLOT * 8);
        assert_eq!(series.slots()[0].completed, 4);
        assert_eq!(counts(&series).iter().sum::<u32>(), 7);
        assert_eq!(series.slots()[end as usize / 80 - 1].max_us, end - 1);
        assert!(series.slots().len() <= SLOTS_MAX);
    }

    #[test]
    fn series_of_different_lengths_and_intervals_merge() {
        let long = series(&[0, SLOTS_MAX as u64 * 10]);
        let short = series(&[5, 10, 25]);
        let mut one = long.clone();
        one.merge(short.clone());
        let mut other = short;
        other.merge(long);
        assert_eq!((one.interval(), one.slots()), (other.interval(), other.slots()));
        assert_eq!(counts(&one)[..2], [3, 1]);
        let mut empty = Series::new();
        empty.merge(Series::new());
        assert_eq!(empty.slots(), []);
    }
}
