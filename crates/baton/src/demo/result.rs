//! What the demo measured: as a table for people, as JSON for programs, and as one yes or no.

use std::fmt;
use std::time::Duration;

use baton_control::protocol::Status;
use baton_prove::report::{Latency, time};
use baton_prove::table::Table;
use baton_prove::{Report, SessionsResult};
use serde::Serialize;

use super::certificates::Replaced;
use super::director::{CompletedStep, Verdict};

/// How many failed changes are kept in words; all are counted.
const FAILURES_KEPT_MAX: usize = 100;
/// How many answering times of changes are kept; further ones are not.
const TIMES_KEPT_MAX: usize = 100_000;

/// The changes of a demo, as they are made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Changes {
    /// Good files that were put in use.
    pub applied: u64,
    /// Broken files that were refused.
    pub rejected: u64,
    /// Changes that went wrong: a good file refused, a broken one accepted, no answer, or no effect.
    pub failed: u64,
    /// The failed ones in words, the first ones.
    pub failures: Vec<String>,
    /// How long the proxy took to answer, in microseconds.
    #[serde(skip)]
    times: Vec<u64>,
}

impl Changes {
    /// Counts one.
    pub fn add(&mut self, made: &CompletedStep) {
        match made.verdict {
            Verdict::Applied => self.applied += 1,
            Verdict::Rejected => self.rejected += 1,
            Verdict::Failed => {
                self.failed += 1;
                if self.failures.len() < FAILURES_KEPT_MAX {
                    self.failures.push(format!("{} {}", stamp(made.at), made.text));
                }
            }
        }
        if self.times.len() < TIMES_KEPT_MAX {
            self.times.push(u64::try_from(made.took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// The median and the longest time the proxy took to answer, in microseconds.
    fn answered_us(&self) -> (u64, u64) {
        let mut times = self.times.clone();
        times.sort_unstable();
        (times.get(times.len() / 2).copied().unwrap_or_default(), times.last().copied().unwrap_or_default())
    }
}

/// The keep-alive connections of the load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KeptConnections {
    /// Connections established.
    pub opened: u64,
    /// Those that the proxy did not close, between two requests or within one.
    pub survived: u64,
}

/// The proxy process before the changes and after them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DemoProcess {
    /// Number of the configuration in use.
    pub generation: u64,
    /// Files refused.
    pub refused: u64,
    /// Open descriptors; idle connections to servers, which are closed after a while, have one each.
    pub descriptors: u64,
    /// Memory in RAM, bytes.
    pub resident_bytes: u64,
}

impl From<&Status> for DemoProcess {
    fn from(status: &Status) -> DemoProcess {
        let Status { generation, refused, descriptors, resident_bytes, .. } = *status;
        DemoProcess { generation, refused, descriptors, resident_bytes }
    }
}

/// Everything that was measured. The field names are the JSON's.
#[derive(Clone, Debug, Serialize)]
pub struct DemoMeasurement {
    /// Whether nothing failed at all.
    pub clean: bool,
    /// Whether it was ended before its time by the user.
    pub interrupted: bool,
    /// How long there was load, in seconds.
    pub seconds: f64,
    /// Requests of all loads.
    pub requests: u64,
    /// Failed requests of all loads.
    pub failed: u64,
    /// Requests over connections that stay.
    pub keep_alive: Report,
    /// Requests with a connection each.
    pub connection_per_request: Report,
    /// Requests over TLS, with a connection and a whole handshake each.
    pub tls: Report,
    /// The certificate that they were shown, replaced again and again.
    pub certificate: Replaced,
    /// Connections of the first of them.
    pub keep_alive_connections: KeptConnections,
    /// WebSockets held open.
    pub websockets: SessionsResult,
    /// TCP tunnels held open.
    pub tunnels: SessionsResult,
    /// The changes.
    pub changes: Changes,
    /// Latency of all requests that overlapped a change, in microseconds.
    pub latency_us_during: Latency,
    /// Latency of all others, in microseconds.
    pub latency_us_outside: Latency,
    /// The proxy with the load running and before the first change.
    pub proxy_before: Option<DemoProcess>,
    /// The proxy after the last change, before the load ended.
    pub proxy_after: Option<DemoProcess>,
    /// What else went wrong, such as the end of the proxy.
    pub errors: Vec<String>,
}

impl DemoMeasurement {
    /// Says whether nothing failed, from everything else.
    pub fn judge(mut self) -> DemoMeasurement {
        self.clean = self.keep_alive.is_clean()
            && self.connection_per_request.is_clean()
            && self.tls.is_clean()
            && self.certificate.failed == 0
            && self.keep_alive_connections.survived == self.keep_alive_connections.opened
            && self.websockets.is_clean()
            && self.tunnels.is_clean()
            && self.changes.failed == 0
            && self.errors.is_empty();
        self
    }
}

impl fmt::Display for DemoMeasurement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut requests = Table::new(["requests", "sent", "failed", "a second", "failures by kind"]);
        let rows = [
            ("keep-alive", &self.keep_alive),
            ("connection per request", &self.connection_per_request),
            ("TLS handshake per request", &self.tls),
        ];
        for (name, report) in rows {
            let [sent, failed] = [report.requests, report.failed].map(|count| count.to_string());
            requests.row([name.into(), sent, failed, format!("{:.0}", report.requests_per_second), report.kinds()]);
        }
        let mut latency = Table::new(["latency", "requests", "p50", "p99", "max"]);
        let rows = [("during changes", &self.latency_us_during), ("outside of changes", &self.latency_us_outside)];
        for (name, Latency { count, p50, p99, max, .. }) in rows {
            latency.row([name.into(), count.to_string(), time(*p50), time(*p99), time(*max)]);
        }
        let mut held = Table::new(["held open", "opened", "survived", "lost by kind"]);
        let KeptConnections { opened, survived } = self.keep_alive_connections;
        let lost = match opened - survived {
            0 => "none".to_owned(),
            count => format!("closed {count}"),
        };
        held.row(["keep-alive connections".into(), opened.to_string(), survived.to_string(), lost]);
        for (name, group) in [("WebSockets", &self.websockets), ("TCP tunnels", &self.tunnels)] {
            held.row([name.into(), group.opened.to_string(), group.alive.to_string(), group.kinds()]);
        }
        let mut changes = Table::new(["changes", "applied", "rejected", "failed", "latency p50", "max"]);
        let Changes { applied, rejected, failed, .. } = self.changes;
        let (p50, max) = self.changes.answered_us();
        let counts = [applied, rejected, failed].map(|count| count.to_string());
        changes.row(["in one process".to_owned()].into_iter().chain(counts).chain([time(p50), time(max)]));
        write!(out, "{requests}\n{latency}\n{held}\n{changes}")?;
        let Replaced { replaced, failed, failure, shown_us, shown_us_max } = &self.certificate;
        let (median, longest) = (time(*shown_us), time(*shown_us_max));
        writeln!(
            out,
            "\ncertificate replaced {replaced} times: new one served after {median} (max {longest}), {failed} failed"
        )?;
        for error in failure.iter().chain(&self.errors) {
            writeln!(out, "\nFAILED: {error}")?;
        }
        let seconds = self.seconds;
        match self.clean {
            true => write!(out, "\n{} requests in {seconds:.1} s: nothing failed.", self.requests),
            false => write!(out, "\n{} requests in {seconds:.1} s: SOMETHING FAILED, see above.", self.requests),
        }
    }
}

/// A time since the start, as it stands at the beginning of a line.
pub fn stamp(at: Duration) -> String {
    format!("{:>6}", format!("+{:.1}s", at.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(verdict: Verdict, took_ms: u64) -> CompletedStep {
        CompletedStep {
            at: Duration::from_millis(1500),
            took: Duration::from_millis(took_ms),
            verdict,
            text: "why".into(),
        }
    }

    #[test]
    fn changes_are_counted_by_what_became_of_them() {
        let mut changes = Changes::default();
        for made in [made(Verdict::Applied, 3), made(Verdict::Rejected, 1), made(Verdict::Failed, 2)] {
            changes.add(&made);
        }
        assert_eq!((changes.applied, changes.rejected, changes.failed), (1, 1, 1));
        assert_eq!(changes.failures, [" +1.5s why"]);
        assert_eq!(changes.answered_us(), (2000, 3000));
        assert_eq!(Changes::default().answered_us(), (0, 0));
    }

    #[test]
    fn stamps_are_aligned() {
        let check = |ms, expect: &str| assert_eq!(stamp(Duration::from_millis(ms)), expect);
        check(500, " +0.5s");
        check(12_340, "+12.3s");
        check(100_000, "+100.0s");
    }
}
