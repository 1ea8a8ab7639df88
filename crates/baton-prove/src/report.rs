//! A load's result as plain numbers: JSON for programs, a table for people.

use std::{collections::BTreeMap, fmt};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{
    failure::{Failure, FailureKind},
    load::LoadResult,
    table::Table,
};

/// The numbers of a load. The field names are the JSON's and stay as they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Requests begun; `completed` plus `failed`.
    pub requests: u64,
    /// Requests answered whole and right.
    pub completed: u64,
    /// Requests that failed in any way.
    pub failed: u64,
    /// Failed requests by kind; every kind is present.
    pub failures: BTreeMap<&'static str, u64>,
    /// From the start to the last end, in seconds.
    pub seconds: f64,
    /// Completed requests a second.
    pub requests_per_second: f64,
    /// Latency of the completed requests.
    pub latency_us: Latency,
    /// Latency of those that overlapped a change; `None` when none did.
    pub latency_us_during: Option<Latency>,
    /// Latency of the others; `None` when there are none.
    pub latency_us_outside: Option<Latency>,
    /// Connections established.
    pub connections: u64,
    /// Those of them on which TLS took up an earlier session.
    pub resumed: u64,
    /// Kept connections found closed before the next request went out; no failures.
    pub closed_idle: u64,
    /// HTTP/2 requests sent again, because the server had certainly not processed them; no failures.
    pub resent: u64,
    /// Requests that were due at a fixed rate and not begun, because all connections were busy.
    pub unsent: u64,
    /// Bytes of the answers' bodies.
    pub body_bytes: u64,
    /// Processor time of the load client itself, in seconds.
    pub cpu_seconds: f64,
    /// The first failures of each kind, with their instants, in the order of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_failures: Vec<Failure>,
    /// Why the load client itself ended early.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// How many failures of each kind a report shows singly.
const FIRST_FAILURES: usize = 10;

/// From which part of their time on the client's threads count as the bottleneck.
const BUSY: f64 = 0.9;

/// Seconds that a load must last before its processor time says anything: it is counted in ticks.
const BUSY_AFTER: f64 = 0.2;

/// What a user of the server felt by a failure of this kind, in a sentence.
pub fn meaning(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Refused => "The connection was refused: nothing listened.",
        FailureKind::TlsHandshake => "The connection was established, but the TLS handshake failed.",
        FailureKind::ResetBeforeFirstByte => {
            "A new connection was closed or reset before the first byte of a response."
        }
        FailureKind::Truncated => "The connection was closed or reset in the middle of a response.",
        FailureKind::ClosedOnReuse => {
            "A kept connection was closed just as the next request was sent, without a response to it."
        }
        FailureKind::TimeoutConnect => "The connection was not established in time.",
        FailureKind::TimeoutFirstByte => "The connection was established, but no byte of a response came in time.",
        FailureKind::TimeoutWhole => "The response was not complete in time.",
        FailureKind::WrongLength => "The response was complete, but its body had an unexpected length.",
        FailureKind::WrongBody => "The body had the expected length but unexpected bytes.",
        FailureKind::WrongStatus => "The response was complete, but had an unexpected status.",
        FailureKind::Malformed => "The response is not valid HTTP/1, or bytes followed its end.",
        FailureKind::Other => "Anything else, mostly a limit of the load generator's machine.",
    }
}

/// Latency in microseconds; all zero when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// The mean.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// What 90 of 100 stay within.
    pub p90: u64,
    /// What 99 of 100 stay within.
    pub p99: u64,
    /// What 999 of 1000 stay within.
    pub p999: u64,
    /// What 9,999 of 10,000 stay within.
    pub p9999: u64,
    /// What 99,999 of 100,000 stay within.
    pub p99999: u64,
    /// The longest, as exact as the histogram (three digits).
    pub max: u64,
}

impl Latency {
    /// The percentiles of a histogram of microseconds.
    pub fn new(histogram: &Histogram<u64>) -> Latency {
        // Above the longest value nothing was measured: the top of its bucket would be a number nobody saw.
        let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
        Latency {
            count: histogram.len(),
            mean: histogram.mean().round() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            p99999: at(0.99999),
            max: histogram.max(),
        }
    }

    fn some(histogram: &Histogram<u64>) -> Option<Latency> {
        (!histogram.is_empty()).then(|| Latency::new(histogram))
    }
}

impl Default for Report {
    /// The numbers of a load that asked nothing.
    fn default() -> Report {
        Report {
            requests: 0,
            completed: 0,
            failed: 0,
            failures: FailureKind::ALL.map(|kind| (kind.name(), 0)).into(),
            seconds: 0.0,
            requests_per_second: 0.0,
            latency_us: Latency::default(),
            latency_us_during: None,
            latency_us_outside: None,
            connections: 0,
            resumed: 0,
            closed_idle: 0,
            resent: 0,
            unsent: 0,
            body_bytes: 0,
            cpu_seconds: 0.0,
            first_failures: Vec::new(),
            errors: Vec::new(),
        }
    }
}

impl Report {
    /// The numbers of a result.
    pub fn new(result: &LoadResult) -> Report {
        let counts = &result.counts;
        let seconds = result.elapsed.as_secs_f64();
        Report {
            requests: counts.requests,
            completed: counts.completed,
            failed: counts.failed(),
            failures: FailureKind::ALL.map(|kind| (kind.name(), counts.count(kind))).into(),
            seconds,
            requests_per_second: if seconds > 0.0 { counts.completed as f64 / seconds } else { 0.0 },
            latency_us: Latency::new(&result.latency()),
            latency_us_during: Latency::some(&result.during),
            latency_us_outside: Latency::some(&result.outside),
            connections: result.connections,
            resumed: result.resumed,
            closed_idle: result.closed_idle,
            resent: result.resent,
            unsent: result.unsent,
            body_bytes: result.body_bytes,
            cpu_seconds: result.cpu.as_secs_f64(),
            first_failures: first_failures(&result.failures),
            errors: result.errors.clone(),
        }
    }

    /// Whether nothing failed, the load client included.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.errors.is_empty()
    }

    /// What makes the numbers doubtful, a sentence each; `threads` is how many the client had.
    pub fn warnings(&self, threads: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        let busy = if self.seconds > 0.0 { self.cpu_seconds / (self.seconds * threads as f64) } else { 0.0 };
        if busy > BUSY && self.seconds > BUSY_AFTER {
            warnings.push(format!(
                "the load generator's threads were busy {:.0} % of the time: it may have been the bottleneck; use more threads \
                 or a lower rate",
                100.0 * busy
            ));
        }
        if self.unsent > 0 {
            warnings.push(format!(
                "{} scheduled requests were not sent, because every connection was busy: the rate was not reached; more \
                 connections help only if the server can respond to that many at a time",
                self.unsent
            ));
        }
        warnings
    }

    /// The report as one JSON object, on several lines.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and strings are always JSON")
    }

    /// The failures' kinds that occurred, as `kind count, kind count`; `none` without failures.
    pub fn kinds(&self) -> String {
        let kinds = FailureKind::ALL.map(FailureKind::name);
        let seen: Vec<String> = kinds
            .into_iter()
            .filter_map(|kind| {
                let count = self.failures.get(kind).copied().filter(|count| *count > 0)?;
                Some(format!("{kind} {count}"))
            })
            .collect();
        if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
    }

    /// Several reports in one table, a row each, then a row for each one's latency during changes and outside of them.
    pub fn table<'a>(reports: impl IntoIterator<Item = (&'a str, &'a Report)> + Clone) -> String {
        let mut counts = Table::new(["load", "requests", "failed", "req/s", "failures"]);
        let mut latencies =
            Table::new(["latency", "requests", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max"]);
        for (name, report) in reports {
            counts.row([
                name.to_owned(),
                report.requests.to_string(),
                report.failed.to_string(),
                format!("{:.0}", report.requests_per_second),
                report.kinds(),
            ]);
            latencies.row(latency_row(name.to_owned(), &report.latency_us));
            if let Some(during) = &report.latency_us_during {
                latencies.row(latency_row("  during changes".to_owned(), during));
                let outside = report.latency_us_outside.unwrap_or_default();
                latencies.row(latency_row("  outside".to_owned(), &outside));
            }
        }
        format!("{counts}\n{latencies}")
    }
}

/// The first few of each kind: a thousand refused connections do not hide the one answer that was cut off.
fn first_failures(all: &[Failure]) -> Vec<Failure> {
    let mut taken = [0; FailureKind::ALL.len()];
    let mut first = |failure: &&Failure| {
        let taken = &mut taken[failure.kind.index()];
        *taken += 1;
        *taken <= FIRST_FAILURES
    };
    all.iter().filter(|failure| first(failure)).cloned().collect()
}

fn latency_row(name: String, latency: &Latency) -> [String; 9] {
    let Latency { count, p50, p90, p99, p999, p9999, p99999, max, .. } = *latency;
    let [p50, p90, p99, p999, p9999, p99999, max] = [p50, p90, p99, p999, p9999, p99999, max].map(time);
    [name, count.to_string(), p50, p90, p99, p999, p9999, p99999, max]
}

/// Microseconds as people read them: three digits and a unit.
pub fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..10_000 => format!("{:.2} ms", micros as f64 / 1e3),
        10_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Report::table([("all", self)]))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rare_kind_is_not_hidden_by_a_frequent_one() {
        let failure = |kind| Failure {
            at: Duration::ZERO,
            begun: Duration::ZERO,
            kind,
            request: 0,
            reused: 0,
            errno: None,
            status: None,
            reason: None,
        };
        let mut all = vec![failure(FailureKind::Refused); FIRST_FAILURES + 1];
        all.push(failure(FailureKind::Truncated));
        let first = first_failures(&all);
        assert_eq!(first.len(), FIRST_FAILURES + 1);
        assert_eq!(first.last().map(|failure| failure.kind), Some(FailureKind::Truncated));
    }

    #[test]
    fn what_makes_the_numbers_doubtful_is_said() {
        let report = |cpu_seconds, unsent| Report { seconds: 2.0, cpu_seconds, unsent, ..Report::default() };
        assert_eq!(report(1.7, 0).warnings(1), Vec::<String>::new());
        assert!(matches!(&report(1.9, 0).warnings(1)[..], [one] if one.contains("busy 95 % of the time")));
        assert_eq!(report(1.9, 0).warnings(2), Vec::<String>::new());
        assert!(
            matches!(&report(0.1, 7).warnings(1)[..], [one] if one.starts_with("7 scheduled requests were not sent"))
        );
    }

    #[test]
    fn percentiles_down_to_one_of_a_hundred_thousand() {
        let mut histogram = Histogram::<u64>::new(3).expect("three digits");
        histogram.record_n(100, 99_990).expect("it grows");
        histogram.record_n(900, 9).expect("it grows");
        histogram.record(5_000).expect("it grows");
        let Latency { count, mean, p50, p999, p9999, p99999, max, .. } = Latency::new(&histogram);
        assert_eq!((count, mean, p50, p999, p9999), (100_000, 100, 100, 100, 100));
        assert_eq!((p99999, max), (900, 5_003), "three digits");
        assert_eq!(Latency::new(&Histogram::new(3).expect("three digits")), Latency::default());
    }
}
