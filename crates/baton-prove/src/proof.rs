//! A finished proof: everything that experiments measured, and how it is shown.
//!
//! A [`Proof`] is plain data. Who ran the experiments fills it; here it becomes a table for a terminal ([`Proof::table`]), JSON
//! for programs ([`Proof::to_json`]), a report to read ([`Proof::to_html`]), tables for a document ([`Proof::to_markdown`]) and a
//! picture ([`Proof::picture`]). Nothing here measures, waits or writes a file.

mod chart;
mod columns;
mod draw;
mod held;
mod json;
mod machine;
pub mod markdown;
mod matrix;
mod page;
mod picture;
mod table;
mod words;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

pub use held::{HeldCertificates, HeldResult, HeldSessions, ProcessesSeen};
pub use machine::Machine;

use crate::{
    failure::Failure,
    load::{LoadResult, Series},
    report::Report,
};

/// Everything measured in one call of `prove`.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    /// What was proved, as a heading.
    pub title: String,
    /// The exact command that began it; running it again is the whole repetition.
    pub command: String,
    /// When it began, as people of that place write it.
    pub started: String,
    /// Where it ran.
    pub machine: Machine,
    /// The experiments, in the order in which they ran.
    pub rows: Vec<Row>,
    /// Whether it was ended early; the rows then hold what was measured until that moment.
    pub interrupted: bool,
}

/// One experiment done to one server.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The experiment's short name, such as `hard-restart`.
    pub experiment: String,
    /// The heading under which it stands together with its neighbours of the same group, such as the size of the load.
    pub group: Option<String>,
    /// Its name for a heading.
    pub title: String,
    /// What is done and why, in a sentence.
    pub about: String,
    /// The server's short name: `haproxy`, `baton`, `nginx`, or what the user called it.
    pub server: String,
    /// The server's version as it says it itself; empty when it says none.
    pub version: String,
    /// The exact commands, in their order. No secrets: they are printed.
    pub commands: Vec<String>,
    /// What came of it.
    pub outcome: Outcome,
    /// What is expected, in a few words such as `no failure`; empty when nothing is.
    pub expected: String,
    /// Whether it came out as expected; `None` when nothing is expected or nothing was measured.
    pub as_expected: Option<bool>,
    /// What articles report of the same experiment.
    pub articles: Vec<Figures>,
}

/// What came of a row.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran, at least in part.
    Measured(Box<Measured>),
    /// It did not run, because something is not there yet or this machine lacks it; the text says what.
    Absent(String),
    /// It could not be run to its end, and what was measured means nothing; the text says why.
    Broken(String),
}

/// What the load and the events of a row gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The load's numbers.
    pub report: Report,
    /// The load over time.
    pub series: Series,
    /// Latencies in microseconds of the completed requests that overlapped an event.
    pub during: Histogram<u64>,
    /// Latencies in microseconds of the other completed requests.
    pub outside: Histogram<u64>,
    /// The failures in the order of their instants. There may be fewer than `report.failed`: a load keeps the first
    /// [`FAILURES_KEPT_MAX`](crate::load::FAILURES_KEPT_MAX).
    pub failures: Vec<Failure>,
    /// What was done to the server, in the order of the instants.
    pub events: Vec<Event>,
    /// What something besides the load carried meanwhile.
    pub meter: Option<Meter>,
    /// What was open besides the load, and what was left afterwards; `None` when the load was all.
    pub held: Option<HeldResult>,
    /// What was there at the end and should not have been, such as processes that did not end; a sentence each.
    pub left_over: Vec<String>,
}

/// What something carried while the load ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meter {
    /// What carried it, in a few words: `the director's link`.
    pub what: String,
    /// How many bytes.
    pub bytes: u64,
}

/// One thing done to the server under load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When it began, counted from the start of the load. JSON: microseconds, `at_us`.
    #[serde(rename = "at_us", serialize_with = "crate::failure::micros")]
    pub at: Duration,
    /// How long it took. JSON: microseconds, `took_us`.
    #[serde(rename = "took_us", serialize_with = "crate::failure::micros")]
    pub took: Duration,
    /// Whether what was done succeeded, by its own account (exit status, answer).
    pub ok: bool,
    /// What was done, in a word or two: `restart`, `reload`.
    pub what: String,
    /// What it said when it did not succeed: the first line.
    pub said: Option<String>,
}

/// What an article reports of an experiment. `None` is what it does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The article's short name.
    pub source: String,
    /// Requests of its run.
    pub requests: u64,
    /// Failed requests.
    pub failed: Option<u64>,
    /// Mean latency in microseconds.
    pub mean_us: Option<u64>,
    /// What 99 of 100 requests stayed within, in microseconds.
    pub p99_us: Option<u64>,
    /// The longest latency in microseconds.
    pub max_us: Option<u64>,
    /// What must be known to compare, such as another rate of events; empty when nothing.
    pub note: String,
}

impl Row {
    /// The server and its version, as one name.
    pub fn server_version(&self) -> String {
        match self.version.as_str() {
            "" => self.server.clone(),
            version => format!("{} {version}", self.server),
        }
    }

    /// What was measured, if the row ran.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Absent(_) | Outcome::Broken(_) => None,
        }
    }
}

impl Measured {
    /// What a load gave, and what was done meanwhile.
    pub fn new(result: LoadResult, events: Vec<Event>, meter: Option<Meter>, left_over: Vec<String>) -> Measured {
        Measured {
            report: Report::new(&result),
            series: result.series,
            during: result.during,
            outside: result.outside,
            failures: result.failures,
            events,
            meter,
            held: None,
            left_over,
        }
    }

    /// How many events did not succeed.
    pub fn events_failed(&self) -> usize {
        self.events.iter().filter(|event| !event.ok).count()
    }

    /// Failed requests for each event; `None` without events.
    pub fn failed_per_event(&self) -> Option<f64> {
        (!self.events.is_empty()).then(|| self.report.failed as f64 / self.events.len() as f64)
    }
}

#[cfg(test)]
mod samples;
