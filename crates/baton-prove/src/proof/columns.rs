//! A load over time in as many columns as a drawing has room for: maxima and failures are kept, means stay means.

use std::time::Duration;

use crate::{
    load::Slot,
    proof::{Event, Measured},
};

/// One column: the requests that began in its time, and the failures that occurred in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) completed: u64,
    pub(super) sum_us: u64,
    pub(super) max_us: u64,
    pub(super) failed: u64,
}

impl Column {
    /// The mean latency in microseconds; `None` when no request was completed.
    pub(super) fn mean_us(&self) -> Option<u64> {
        self.sum_us.checked_div(self.completed)
    }

    fn add(&mut self, slot: &Slot) {
        self.completed += u64::from(slot.completed);
        self.sum_us = self.sum_us.saturating_add(slot.sum_us);
        self.max_us = self.max_us.max(slot.max_us);
    }
}

/// The whole time of a load, in columns of the same length.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// The length of each column.
    pub(super) length: Duration,
    /// At least one, at most as many as were asked for.
    pub(super) list: Vec<Column>,
    /// Whether failures stand where they occurred; otherwise there were too many to keep each one's instant, and they stand
    /// where their requests began.
    pub(super) failures_by_instant: bool,
}

impl Columns {
    /// At most `most` columns from the start of the load to the last thing known of it.
    pub(super) fn new(measured: &Measured, most: usize) -> Columns {
        let interval = measured.series.interval();
        let slots = measured.series.slots();
        let count = end(measured).as_nanos().div_ceil(interval.as_nanos()).max(slots.len() as u128).max(1);
        let each = count.div_ceil(most.max(1) as u128);
        let length = Duration::from_nanos(u64::try_from(interval.as_nanos() * each).unwrap_or(u64::MAX));
        let mut list = vec![Column::default(); usize::try_from(count.div_ceil(each)).unwrap_or(most)];

        let failures_by_instant = measured.failures.len() as u64 == measured.report.failed;
        for (index, slot) in slots.iter().enumerate() {
            // Both counts come from the same interval, so the place is within the list.
            let column = &mut list[(index as u128 / each) as usize];
            column.add(slot);
            if !failures_by_instant {
                column.failed += u64::from(slot.failed);
            }
        }
        let last = list.len() - 1;
        if failures_by_instant {
            for failure in &measured.failures {
                list[place(failure.at, length).min(last)].failed += 1;
            }
        }
        Columns { length, list, failures_by_instant }
    }

    /// The whole time, which the columns cover.
    pub(super) fn time(&self) -> Duration {
        self.length.saturating_mul(u32::try_from(self.list.len()).unwrap_or(u32::MAX))
    }
}

/// The last instant known of a load: its own end, or that of an event or a failure after it.
fn end(measured: &Measured) -> Duration {
    let load = Duration::try_from_secs_f64(measured.report.seconds).unwrap_or_default();
    let events = measured.events.iter().map(|event| event.at.saturating_add(event.took));
    let failures = measured.failures.iter().map(|failure| failure.at);
    events.chain(failures).fold(load, Duration::max)
}

fn place(at: Duration, length: Duration) -> usize {
    usize::try_from(at.as_nanos() / length.as_nanos().max(1)).unwrap_or(usize::MAX)
}

/// Events that are drawn as one mark, because they are too close to be told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// When the first one began.
    pub(super) at: Duration,
    /// The end of the last one.
    pub(super) end: Duration,
    /// The events' places in the list: from this one …
    pub(super) first: usize,
    /// … so many.
    pub(super) count: usize,
    /// How many of them did not succeed.
    pub(super) failed: usize,
}

/// The marks of these events, which are in the order of their instants: one for each `closest` of time at most.
pub(super) fn marks(events: &[Event], closest: Duration) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let end = event.at.saturating_add(event.took);
        match marks.last_mut() {
            Some(mark) if event.at < mark.at.saturating_add(closest) => {
                mark.end = mark.end.max(end);
                mark.count += 1;
                mark.failed += usize::from(!event.ok);
            }
            _ => marks.push(Mark { at: event.at, end, first: index, count: 1, failed: usize::from(!event.ok) }),
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failure::FailureKind, proof::samples};

    fn load(count: u64) -> samples::SampleLoad {
        samples::SampleLoad {
            count,
            every: Duration::from_millis(1),
            latency: Duration::from_micros(300),
            stall: Duration::from_millis(30),
        }
    }

    fn failed(columns: &Columns) -> u64 {
        columns.list.iter().map(|column| column.failed).sum()
    }

    #[test]
    fn fewer_columns_keep_every_failure_every_request_and_the_maximum() {
        let events = samples::events(70, Duration::from_millis(100));
        let mut measured = samples::measured(&load(7_777), &events, &[(FailureKind::Refused, 333)]);
        let max = measured.series.slots().iter().map(|slot| slot.max_us).max();
        for by_instant in [true, false] {
            for most in [1, 7, 100, 777, 1_200] {
                let columns = Columns::new(&measured, most);
                assert!((1..=most).contains(&columns.list.len()), "{most} {}", columns.list.len());
                assert_eq!((failed(&columns), columns.failures_by_instant), (333, by_instant), "{most}");
                assert_eq!(columns.list.iter().map(|column| column.max_us).max(), max, "{most}");
                assert_eq!(columns.list.iter().map(|column| column.completed).sum::<u64>(), 7_777 - 333);
                assert!(columns.time() >= Duration::from_millis(7_777), "{most}");
            }
            measured.failures.truncate(10);
        }
    }

    #[test]
    fn a_load_of_nothing_is_one_empty_column() {
        let columns = Columns::new(&samples::measured(&load(0), &[], &[]), 100);
        assert_eq!(columns.list, [Column::default()]);
        assert_eq!(columns.list[0].mean_us(), None);
    }

    #[test]
    fn what_happened_after_the_last_request_is_within_the_time() {
        let events = samples::events(10, Duration::from_secs(1));
        let columns = Columns::new(&samples::measured(&load(100), &events, &[(FailureKind::TimeoutWhole, 10)]), 50);
        assert!(columns.time() >= Duration::from_secs(10) && columns.list.len() <= 50);
        assert_eq!(failed(&columns), 10);
    }

    #[test]
    fn marks_merge_only_what_is_close() {
        let events = samples::events(100, Duration::from_millis(10));
        let all = marks(&events, Duration::from_millis(10));
        assert_eq!(all.len(), 100);
        let few = marks(&events, Duration::from_millis(95));
        assert_eq!(few.len(), 10);
        assert_eq!(few.iter().map(|mark| mark.count).sum::<usize>(), 100);
        assert_eq!((few[1].first, few[1].count, few[1].failed), (10, 10, 0));
        assert_eq!(few[0].end, events[9].at + events[9].took);
    }
}
