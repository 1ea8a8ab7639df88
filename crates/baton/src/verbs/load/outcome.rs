//! What is said of a load at its end: text for people, JSON for programs, and the series as a file.

use std::fmt::{self, Write};
use std::time::Duration;

use baton_prove::load::{BodyCheck, Series};
use baton_prove::report::{meaning, time};
use baton_prove::sessions::Loss;
use baton_prove::table::Table;
use baton_prove::{Failure, FailureKind, LoadResult, Report, SessionsResult};
use serde::Serialize;

use super::plan::Plan;
use super::watch::LoadMeasurement;

/// How many failures of a kind, and how many lost sessions of a URL, the text shows singly.
const SHOWN: usize = 3;

/// How many of the URLs the text begins with.
const URLS_SHOWN: usize = 5;

/// The result. The field names are the JSON's and stay as they are.
#[derive(Serialize)]
pub struct Outcome {
    /// Whether nothing failed and no session was lost.
    pub clean: bool,
    /// Whether the user ended it.
    interrupted: bool,
    /// Where requests went; a failure's `request` is an index into it.
    urls: Vec<String>,
    /// How requests were sent; `None` when there were none to send.
    options: Option<RequestOutcome>,
    #[serde(flatten)]
    report: Report,
    /// What was held open.
    sessions: Vec<SessionGroup>,
    /// What makes the numbers doubtful.
    warnings: Vec<String>,
    #[serde(skip)]
    result: Option<LoadResult>,
}

/// How requests were made.
#[derive(Serialize)]
struct RequestOutcome {
    concurrency: usize,
    keep_alive: bool,
    /// Of HTTP/2, on each connection.
    streams: Option<usize>,
    threads: usize,
    /// Requests per second; `None`: each connection sent the next request as soon as it had the response.
    rate: Option<f64>,
}

/// The sessions of one URL.
#[derive(Serialize)]
struct SessionGroup {
    url: String,
    #[serde(flatten)]
    result: SessionsResult,
}

impl Outcome {
    /// Judges what was measured.
    pub fn new(plan: &Plan, measured: &LoadMeasurement) -> Outcome {
        let report = measured.load.as_ref().map(Report::new).unwrap_or_default();
        let urls = plan.sessions.iter().map(|(url, _)| url.clone());
        let sessions: Vec<SessionGroup> =
            urls.zip(measured.sessions.iter().cloned()).map(|(url, result)| SessionGroup { url, result }).collect();
        let how = plan.load.as_ref().map(|options| RequestOutcome {
            concurrency: options.concurrency,
            keep_alive: options.keep_alive,
            streams: options.streams,
            threads: options.threads.min(options.concurrency / options.streams.unwrap_or(1)),
            rate: options.rate,
        });
        let mut warnings = report.warnings(how.as_ref().map_or(1, |how| how.threads));
        warnings.extend(differing_lengths(plan, measured).map(str::to_owned));
        Outcome {
            clean: report.is_clean() && sessions.iter().all(|held| held.result.is_clean()),
            interrupted: measured.interrupted,
            urls: plan.asked.clone(),
            warnings,
            options: how,
            report,
            sessions,
            result: measured.load.clone(),
        }
    }

    /// One JSON object, on several lines.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    fn requests(&self, options: &RequestOutcome, result: &LoadResult, out: &mut impl Write) -> fmt::Result {
        let report = &self.report;
        let threads = options.threads;
        for url in self.urls.iter().take(URLS_SHOWN) {
            writeln!(out, "{url}")?;
        }
        if self.urls.len() > URLS_SHOWN {
            writeln!(out, "and {} more", self.urls.len() - URLS_SHOWN)?;
        }
        writeln!(out, "{options}")?;
        let per = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let busy = 100.0 * per(report.cpu_seconds, report.seconds * threads as f64);
        let each = 1e6 * per(report.cpu_seconds, report.requests as f64);
        let mebibytes = report.body_bytes as f64 / f64::from(1 << 20);
        let rows = [
            ("requests", report.requests.to_string(), format!("in {:.2} s", report.seconds)),
            ("completed", report.completed.to_string(), format!("{:.1} per second", report.requests_per_second)),
            ("failed", report.failed.to_string(), String::new()),
            ("bodies", format!("{mebibytes:.1} MiB"), format!("{:.1} MiB per second", per(mebibytes, report.seconds))),
            ("connections", report.connections.to_string(), connections(report)),
            (
                "client",
                format!("{:.2} s CPU", report.cpu_seconds),
                format!("{busy:.0} % of its {}, {each:.1} us per request", numbered(threads as u64, "thread")),
            ),
        ];
        let width = rows.iter().map(|(_, value, _)| value.len()).max().unwrap_or_default();
        for (name, value, more) in rows {
            writeln!(out, "{}", format!("  {name:<12}{value:>width$}   {more}").trim_end())?;
        }
        let latency = &report.latency_us;
        let mut table = Table::new(["latency", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max"]);
        let values = [
            latency.mean,
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            latency.p9999,
            latency.p99999,
            latency.max,
        ];
        table.row([format!("{} completed", latency.count)].into_iter().chain(values.map(time)));
        if latency.count > 0 {
            write!(out, "\n{table}")?;
        }
        self.failures(result, out)
    }

    fn failures(&self, result: &LoadResult, out: &mut impl Write) -> fmt::Result {
        for kind in FailureKind::ALL {
            let count = result.counts.count(kind);
            let kept = || result.failures.iter().filter(|failure| failure.kind == kind);
            if count == 0 {
                continue;
            }
            let [first, last] = [kept().next(), kept().next_back()].map(|failure| failure.map(|one| stamp(one.at)));
            let span = match (first, last) {
                (Some(first), Some(last)) if first != last => format!(", from {first} to {last}"),
                (Some(first), _) => format!(", at {first}"),
                (None, _) => String::new(),
            };
            writeln!(out, "\n{}: {}{span}\n  {}", kind.name(), numbered(count, "request"), meaning(kind))?;
            for failure in kept().take(SHOWN) {
                writeln!(out, "  {}", self.one(failure))?;
            }
        }
        Ok(())
    }

    /// One failure on a line.
    fn one(&self, failure: &Failure) -> String {
        let mut line = format!("{}  {}", stamp(failure.at), self.urls.get(failure.request).map_or("", String::as_str));
        let waited = failure.at.saturating_sub(failure.begun);
        // Writing into a string does not fail.
        let _ = write!(line, "  after {}", time(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX)));
        if let Some(status) = failure.status {
            let _ = write!(line, ", status {status}");
        }
        match (&failure.reason, failure.errno) {
            (Some(reason), _) => line.extend([", ", reason.as_ref()]),
            (None, Some(errno)) => line.extend([", ", &std::io::Error::from_raw_os_error(errno).to_string()]),
            (None, None) => {}
        }
        if failure.reused > 0 {
            let _ = write!(line, ", on a connection with {} before it", numbered(failure.reused, "response"));
        }
        line
    }

    fn held(&self, out: &mut impl Write) -> fmt::Result {
        let mut table = Table::new(["sessions", "requested", "opened", "alive at the end", "messages", "lost"]);
        for SessionGroup { url, result } in &self.sessions {
            let counts = [result.sessions, result.opened, result.alive, result.messages];
            table.row([url.clone()].into_iter().chain(counts.map(|count| count.to_string())).chain([result.kinds()]));
        }
        write!(out, "{table}")?;
        for SessionGroup { url, result } in &self.sessions {
            for Loss { session, at, kind, messages } in result.losses.iter().take(SHOWN) {
                let messages = numbered(*messages, "message");
                writeln!(out, "  {}  {url}  session {session}: {}, after {messages}", stamp(*at), kind.name())?;
            }
        }
        Ok(())
    }
}

/// What to do when responses failed for no other reason than that they differ in length.
fn differing_lengths(plan: &Plan, measured: &LoadMeasurement) -> Option<&'static str> {
    let expected = plan.load.as_ref()?.requests.iter().any(|request| request.expect == BodyCheck::SameLength);
    let met = measured.load.as_ref()?.counts.count(FailureKind::WrongLength) > 0;
    (expected && met).then_some(
        "--same-length expects every response to be as long as the first one of its URL; without it lengths may vary",
    )
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(options), Some(result)) = (&self.options, &self.result) {
            self.requests(options, result, out)?;
        }
        if !self.sessions.is_empty() {
            if self.result.is_some() {
                writeln!(out)?;
            }
            self.held(out)?;
        }
        for error in &self.report.errors {
            writeln!(out, "\nThe load generator ended early: {error}")?;
        }
        for warning in &self.warnings {
            writeln!(out, "\nWarning: {warning}")?;
        }
        let interrupted = if self.interrupted { "Interrupted. " } else { "" };
        let verdict = if self.clean { "Nothing failed." } else { "SOMETHING FAILED, see above." };
        write!(out, "\n{interrupted}{verdict}")
    }
}

impl fmt::Display for RequestOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = numbered((self.concurrency / self.streams.unwrap_or(1)) as u64, "connection");
        let kept = match self.streams {
            Some(streams) => format!("HTTP/2, {} each", numbered(streams as u64, "stream")),
            None if self.keep_alive => "kept open".to_owned(),
            None => "a new one per request".to_owned(),
        };
        write!(out, "{connections} ({kept}), {}: ", numbered(self.threads as u64, "thread"))?;
        match self.rate {
            Some(rate) => write!(out, "{rate} requests per second, latency from the scheduled send time"),
            None => write!(out, "each sends the next request as soon as it has the response"),
        }
    }
}

/// What became of the connections besides carrying requests.
fn connections(report: &Report) -> String {
    let counts = [
        (report.resumed, "resumed a TLS session"),
        (report.closed_idle, "closed by the server while idle"),
        (report.resent, "requests sent again that the server had not processed"),
    ];
    let said = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    said.collect::<Vec<_>>().join(", ")
}

fn numbered(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

fn stamp(at: Duration) -> String {
    format!("+{:.3}s", at.as_secs_f64())
}

/// A line for each slot, the first one naming the columns.
pub fn series_csv(series: &Series) -> String {
    let mut text = String::from("at_ms,completed,failed,mean_us,max_us\n");
    for (index, slot) in series.slots().iter().enumerate() {
        let at = series.interval().as_millis() * index as u128;
        let mean = slot.mean_us().map(|mean| mean.to_string()).unwrap_or_default();
        // Writing into a string does not fail.
        let _ = writeln!(text, "{at},{},{},{mean},{}", slot.completed, slot.failed, slot.max_us);
    }
    text
}

/// A time series as JSON, with the sum instead of the mean.
pub fn series_json(series: &Series) -> String {
    #[derive(Serialize)]
    struct Whole {
        interval_ms: u64,
        slots: Vec<One>,
    }
    #[derive(Serialize)]
    struct One {
        completed: u32,
        failed: u32,
        sum_us: u64,
        max_us: u64,
    }
    let one = |slot: &baton_prove::load::Slot| One {
        completed: slot.completed,
        failed: slot.failed,
        sum_us: slot.sum_us,
        max_us: slot.max_us,
    };
    // An interval is 10 ms, doubled a few times.
    let interval_ms = series.interval().as_millis() as u64;
    let whole = Whole { interval_ms, slots: series.slots().iter().map(one).collect() };
    serde_json::to_string(&whole).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_as_a_file() {
        let mut series = Series::new();
        series.complete(Duration::ZERO, 100);
        series.complete(Duration::from_millis(9), 301);
        series.fail(Duration::from_millis(25));
        assert_eq!(series_csv(&series), "at_ms,completed,failed,mean_us,max_us\n0,2,0,200,301\n10,0,0,,0\n20,0,1,,0\n");
        let expect = concat!(
            r#"{"interval_ms":10,"slots":[{"completed":2,"failed":0,"sum_us":401,"max_us":301},"#,
            r#"{"completed":0,"failed":0,"sum_us":0,"max_us":0},{"completed":0,"failed":1,"sum_us":0,"max_us":0}]}"#,
            "\n"
        );
        assert_eq!(series_json(&series), expect);
    }
}
