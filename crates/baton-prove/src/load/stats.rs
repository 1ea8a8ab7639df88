//! What a load counts, while it runs and at its end.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::{
    failure::{Failure, FailureKind},
    load::{FAILURES_KEPT_MAX, series::Series},
};

/// The longest latency that is told apart, in microseconds (an hour); longer ones count as this.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// Counters shown while the load runs. Written by one load thread, read by anybody.
#[derive(Debug, Default)]
pub(super) struct LoadCounters {
    requests: AtomicU64,
    completed: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
}

impl LoadCounters {
    /// With a single writer, load and store do without a locked instruction.
    fn bump(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn begin(&self) {
        LoadCounters::bump(&self.requests);
    }

    pub(super) fn complete(&self) {
        LoadCounters::bump(&self.completed);
    }

    pub(super) fn fail(&self, kind: FailureKind) {
        LoadCounters::bump(&self.failures[kind.index()]);
    }

    pub(super) fn add_to(&self, sum: &mut LoadProgress) {
        sum.requests += self.requests.load(Ordering::Relaxed);
        sum.completed += self.completed.load(Ordering::Relaxed);
        for (sum, count) in sum.failures.iter_mut().zip(&self.failures) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
}

/// Counts of a load that may still run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// Requests begun.
    pub requests: u64,
    /// Requests answered whole and right.
    pub completed: u64,
    /// Failed requests by kind, in the order of [`FailureKind::ALL`].
    pub failures: [u64; FailureKind::ALL.len()],
}

impl LoadProgress {
    /// Failed requests of all kinds.
    pub fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Failed requests of one kind.
    pub fn count(&self, kind: FailureKind) -> u64 {
        self.failures[kind.index()]
    }
}

/// What a load measured. `requests == completed + failed` always holds: a request is counted until its end is known.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// When the load started.
    pub started: Instant,
    /// From the start to the end of the last request.
    pub elapsed: Duration,
    /// The counts.
    pub counts: LoadProgress,
    /// The failures in the order of their instants; at most [`FAILURES_KEPT_MAX`], the first ones.
    pub failures: Vec<Failure>,
    /// Connections established.
    pub connections: u64,
    /// Those of them on which TLS took up an earlier session.
    pub resumed: u64,
    /// Kept connections that were found closed before the next request went out. No failures: the request takes a new one.
    pub closed_idle: u64,
    /// HTTP/2 requests that were sent again on another connection, because the server had certainly not processed them. No failures.
    pub resent: u64,
    /// In the open model, requests that were due before the end and were not begun, because all connections were busy.
    pub unsent: u64,
    /// Bytes of answers' bodies.
    pub body_bytes: u64,
    /// Latencies in microseconds of completed requests that overlapped a change.
    pub during: Histogram<u64>,
    /// Latencies in microseconds of the other completed requests.
    pub outside: Histogram<u64>,
    /// What happened when, by the instants in which the requests began by plan.
    pub series: Series,
    /// Processor time of the load's own threads, user and system.
    pub cpu: Duration,
    /// Why threads of the load itself ended early; empty normally.
    pub errors: Vec<String>,
}

impl LoadResult {
    pub(crate) fn empty(started: Instant) -> LoadResult {
        LoadResult {
            started,
            elapsed: Duration::ZERO,
            counts: LoadProgress::default(),
            failures: Vec::new(),
            connections: 0,
            resumed: 0,
            closed_idle: 0,
            resent: 0,
            unsent: 0,
            body_bytes: 0,
            during: histogram(),
            outside: histogram(),
            series: Series::new(),
            cpu: Duration::ZERO,
            errors: Vec::new(),
        }
    }

    /// Latencies in microseconds of all completed requests.
    pub fn latency(&self) -> Histogram<u64> {
        let mut all = self.outside.clone();
        add(&mut all, &self.during);
        all
    }

    /// Counts a completed request that began at `begun` by plan.
    pub(super) fn complete(&mut self, begun: Instant, latency: Duration, during: bool) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        let into = if during { &mut self.during } else { &mut self.outside };
        into.saturating_record(micros);
        self.series.complete(begun.saturating_duration_since(self.started), micros);
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.series.fail(failure.begun);
        if self.failures.len() < FAILURES_KEPT_MAX {
            self.failures.push(failure);
        }
    }

    /// Adds what another thread of the same load measured.
    pub(super) fn merge(&mut self, other: LoadResult) {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.counts.requests += other.counts.requests;
        self.counts.completed += other.counts.completed;
        for (sum, count) in self.counts.failures.iter_mut().zip(other.counts.failures) {
            *sum += count;
        }
        self.failures.extend(other.failures);
        self.connections += other.connections;
        self.resumed += other.resumed;
        self.closed_idle += other.closed_idle;
        self.resent += other.resent;
        self.unsent += other.unsent;
        self.body_bytes += other.body_bytes;
        add(&mut self.during, &other.during);
        add(&mut self.outside, &other.outside);
        self.series.merge(other.series);
        self.cpu += other.cpu;
        self.errors.extend(other.errors);
    }

    /// Brings the merged parts in order.
    pub(super) fn close(&mut self) {
        self.failures.sort_by_key(|failure| failure.at);
        self.failures.truncate(FAILURES_KEPT_MAX);
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_US_MAX, 3).expect("the bounds are constants that the histogram accepts")
}

fn add(into: &mut Histogram<u64>, from: &Histogram<u64>) {
    into.add(from).expect("all histograms here have the same bounds");
}
