//! Metrics that HAProxy does not have: a row each, with what reads its values.

use std::sync::atomic::Ordering;
use std::time::Instant;

use baton_config::condition::COMPATIBLE_VERSION;
use baton_kernel::output::losses;
use baton_kernel::panics;
use baton_proxy::moving::MoveCount;

use super::exposition::PIECE_BYTES;
use super::parts::Part;
use super::rows::MetricType::{self, Counter, Gauge};
use super::text;
use crate::control::Control;

/// Labels as they are written, and the value.
type OwnSeries = Vec<(Box<str>, f64)>;

/// A metric.
pub struct OwnMetric {
    /// Its name, behind `baton_`.
    pub name: &'static str,
    pub metric_type: MetricType,
    /// Its labels, for the manual.
    #[cfg_attr(not(test), expect(dead_code, reason = "the manual is made of it, by a test"))]
    pub labels: &'static str,
    pub help: &'static str,
    /// Shown with microseconds.
    is_time: bool,
    read: fn(&Control, Instant) -> OwnSeries,
}

const fn row(
    name: &'static str,
    metric_type: MetricType,
    labels: &'static str,
    help: &'static str,
    read: fn(&Control, Instant) -> OwnSeries,
) -> OwnMetric {
    OwnMetric { name, metric_type, labels, help, is_time: false, read }
}

const fn seconds(row: OwnMetric) -> OwnMetric {
    OwnMetric { is_time: true, ..row }
}

/// The metric whose values are [added](OwnValues::add_certificates).
const CERTIFICATES: &str = "certificate_expiry_timestamp_seconds";

/// All of them, in the order of the exposition.
pub static OWN: &[OwnMetric] = &[
    row(
        "build_info",
        Gauge,
        "version, compatible",
        "Version of the program, and HAProxy's that it is compatible with",
        |control, _| {
            let version = &*control.settings.version;
            vec![(labels(&[("version", version), ("compatible", COMPATIBLE_VERSION)]), 1.0)]
        },
    ),
    row(
        "configuration_generation",
        Gauge,
        "",
        "Number of the configuration in use; the first of a process is 1",
        |control, _| one(control.line.number() as f64),
    ),
    row("reloads_total", Counter, "result", "Reloads, applied or rejected", |control, _| {
        let results = [("applied", control.line.reloads().applied), ("rejected", control.line.reloads().rejected)];
        results.into_iter().map(|(result, count)| (labels(&[("result", result)]), count as f64)).collect()
    }),
    seconds(row(
        "reload_seconds_total",
        Counter,
        "",
        "Duration of all reloads, from the reading of the files on",
        |control, _| one(control.line.reloads().spent.as_secs_f64()),
    )),
    seconds(row(
        "last_reload_duration_seconds",
        Gauge,
        "",
        "Duration of the last reload, from the reading of the files on",
        |control, _| control.line.reloads().last.as_ref().map_or(Vec::new(), |last| one(last.took.as_secs_f64())),
    )),
    row(
        "last_reload_successful",
        Gauge,
        "",
        "1 when the last reload was applied, 0 when it was rejected",
        |control, _| {
            control.line.reloads().last.as_ref().map_or(Vec::new(), |last| one(f64::from(u8::from(last.is_applied))))
        },
    ),
    row(
        "last_reload_timestamp_seconds",
        Gauge,
        "",
        "When the last reload was over, in seconds since 1970",
        |control, _| control.line.reloads().last.as_ref().map_or(Vec::new(), |last| one(last.at as f64)),
    ),
    row("overrides", Gauge, "", "Settings that operators changed at run time", |control, _| {
        one(control.line.registry().overrides().len() as f64)
    }),
    row("handovers", Gauge, "", "Processes before this one, each of which handed its work over", |control, _| {
        one(control.succession.lineage().pids().len() as f64)
    }),
    row(
        "predecessors",
        Gauge,
        "",
        "Processes that this one took over from and that still have connections",
        |control, _| one(control.succession.predecessors().count() as f64),
    ),
    row(
        "predecessor_connections",
        Gauge,
        "",
        "Client connections of those processes, as they last reported",
        |control, _| {
            let reported = control.succession.predecessors().filter_map(|(_, connections)| connections);
            one(reported.sum::<u64>() as f64)
        },
    ),
    row(
        "connections_moved_total",
        Counter,
        "direction",
        "Established connections of clients that came from the process before, or went to the next one; takeovers do not reset it",
        |control, _| moved(control, MoveCount::ClientsIn, MoveCount::ClientsOut),
    ),
    row(
        "server_connections_moved_total",
        Counter,
        "direction",
        "Idle connections to servers that came from the process before, or went to the next one; takeovers do not reset it",
        |control, _| moved(control, MoveCount::ServersIn, MoveCount::ServersOut),
    ),
    row(
        "connections_staying",
        Gauge,
        "reason",
        "Connections of clients that stay with this process or one before it, although another one took over",
        |control, _| {
            let staying = control.staying().into_iter();
            staying.map(|(reason, count)| (labels(&[("reason", &reason)]), count as f64)).collect()
        },
    ),
    row(
        "draining_addresses",
        Gauge,
        "",
        "Addresses that were removed and whose queue is being emptied",
        |control, _| one(control.line.listeners().leaving_count() as f64),
    ),
    row(
        "old_configuration_connections",
        Gauge,
        "",
        "Client connections of frontends that the configuration in use does not have",
        |control, _| one(old_connections(control) as f64),
    ),
    seconds(row(
        "event_loop_latency_seconds",
        Gauge,
        "thread",
        "The longest time that the event loop of a thread took to get to a command since the scrape before, of one command a second",
        |control, now| {
            let latencies = control.workers.latencies(now).into_iter().enumerate();
            let series =
                latencies.map(|(at, latency)| (labels(&[("thread", &(at + 1).to_string())]), latency.as_secs_f64()));
            series.collect()
        },
    )),
    row("dropped_log_lines_total", Counter, "target", "Lost lines of a log target", |_, _| {
        let targets = losses::all().into_iter();
        targets.map(|losses| (labels(&[("target", losses.name())]), losses.lost() as f64)).collect()
    }),
    row(
        "nameserver_events_total",
        Counter,
        "resolvers, nameserver, event",
        "Queries to a name server and its responses, by the names of show resolvers",
        |control, _| {
            let sections = control.line.names().sections();
            let servers = sections.flat_map(|(section, counters)| {
                section.servers.iter().zip(counters).map(|(server, counters)| (&section.name, &server.name, counters))
            });
            let series = servers.flat_map(|(section, server, counters)| {
                // Responses with aliases are counted by what they lead to.
                counters.named().into_iter().filter(|(event, _)| *event != "cname").map(move |(event, count)| {
                    let names = [("resolvers", &**section), ("nameserver", &**server), ("event", event)];
                    (labels(&names), count as f64)
                })
            });
            series.collect()
        },
    ),
    row("panics_total", Counter, "", "Internal errors that ended a connection or a task", |_, _| {
        one(panics::count() as f64)
    }),
    row(CERTIFICATES, Gauge, "file", "When a certificate expires, in seconds since 1970", |_, _| Vec::new()),
];

/// The values of a scrape: for each row its series.
#[derive(Debug)]
pub struct OwnValues(Vec<OwnSeries>);

/// A certificate's name, and when it ends, in seconds since 1970.
pub type CertificateEnd = (String, i64);

impl OwnValues {
    /// As they are now, but for those of certificates.
    pub fn read(control: &Control, now: Instant) -> OwnValues {
        OwnValues(OWN.iter().map(|metric| (metric.read)(control, now)).collect())
    }

    /// Adds when certificates end.
    pub fn add_certificates(&mut self, ends: Vec<CertificateEnd>) {
        let series = ends.into_iter().map(|(name, until)| (labels(&[("file", &name)]), until as f64)).collect();
        if let Some(at) = OWN.iter().position(|metric| metric.name == CERTIFICATES) {
            self.0[at] = series;
        }
    }

    /// Writes what fits, from the series at `at` on, counted over all metrics; whether that was all.
    pub fn write(&self, at: &mut usize, out: &mut String) -> bool {
        let prefix = Part::Own.prefix();
        let mut before = 0;
        for (metric, series) in OWN.iter().zip(&self.0) {
            for (place, (labels, value)) in series.iter().enumerate().skip(at.saturating_sub(before)) {
                if out.len() >= PIECE_BYTES {
                    return false;
                }
                if place == 0 {
                    text::head(out, prefix, metric.name, metric.help, metric.metric_type.word());
                }
                text::series(out, prefix, metric.name, &[labels], *value, metric.is_time);
                *at = before + place + 1;
            }
            before += series.len();
        }
        true
    }
}

/// Connections of frontends that are not in use any more.
fn old_connections(control: &Control) -> u64 {
    let open = control.line.registry().open.load(Ordering::Relaxed);
    let Some(generation) = control.line.generation() else { return 0 };
    let current: i64 = generation.frontends.iter().map(|plan| plan.state.open.load(Ordering::Relaxed)).sum();
    // Connections come and go while they are added up.
    u64::try_from(open - current).unwrap_or_default()
}

/// A series without labels.
/// What came and what went.
fn moved(control: &Control, came: MoveCount, went: MoveCount) -> OwnSeries {
    let figures = &control.line.registry().moves;
    [("in", came), ("out", went)]
        .map(|(direction, moved)| (labels(&[("direction", direction)]), figures.total(moved) as f64))
        .into()
}

fn one(value: f64) -> OwnSeries {
    vec![("".into(), value)]
}

fn labels(labels: &[(&str, &str)]) -> Box<str> {
    let mut out = String::new();
    for (name, value) in labels {
        if !out.is_empty() {
            out.push(',');
        }
        text::label_text(&mut out, name, value);
    }
    out.into()
}
