//! The exposition of values that were made up, and the manual's list.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use baton_model::{Mode, Proxy, Role};

use super::exposition::{Exposition, PIECE_BYTES};
use super::own::OWN;
use super::parts::Part;
use super::query::ScrapeQuery;
use super::rows::{CHECKS, MetricForm, PROCESS, metrics_of, states_of};
use super::scrape::{Scrape, ServerCensus};
use crate::runtime::field::Value;
use crate::runtime::stat::columns::Column;
use crate::runtime::stat::{ObjectKind, StatRow};

fn scrape(query: &str) -> Scrape {
    Scrape::of_nothing(ScrapeQuery::parse(query.as_bytes()).unwrap())
}

fn proxy(name: &str, mode: Mode) -> Proxy {
    Proxy { mode, ..Proxy::new(name, Role::Backend) }
}

fn row(kind: ObjectKind, proxy: &Proxy, name: &str, values: &[(Column, Value)]) -> StatRow {
    let mut row = StatRow::new(kind, proxy, name, 1);
    values.iter().for_each(|(column, value)| row.set(*column, value.clone()));
    row
}

fn text(scrape: Scrape) -> String {
    let mut exposition = Exposition::new(scrape);
    let mut out = String::new();
    while let Some(piece) = exposition.next_piece() {
        assert!(!piece.is_empty() && piece.len() < 2 * PIECE_BYTES && piece.ends_with('\n'));
        out.push_str(&piece);
    }
    assert!(exposition.next_piece().is_none());
    out
}

/// The series of a metric, without its name.
fn series<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    text.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with([' ', '{'])).collect()
}

#[test]
fn a_server_is_shown_by_its_columns() {
    let mut scrape = scrape("scope=server&scope=backend");
    let (web, tcp) = (proxy("we\"b", Mode::Http), proxy("tcp", Mode::Tcp));
    let up = [
        (Column::Status, Value::text("UP 1/3")),
        (Column::CheckStatus, Value::text("* L7STS")),
        (Column::CheckDuration, Value::U64(12)),
        (Column::CheckCode, Value::U32(503)),
        (Column::Lastsess, Value::S32(-1)),
        (Column::Hrsp2xx, Value::U64(7)),
        (Column::Qtime, Value::U32(1500)),
        (Column::Slim, Value::U32(30)),
    ];
    let kind = ObjectKind::Server;
    scrape.objects[kind as usize].push(&row(kind, &web, "a", &up));
    scrape.objects[kind as usize].push(&row(kind, &tcp, "b", &[(Column::Status, Value::text("MAINT (via c)"))]));
    let census = ServerCensus { states: [0, 1, 0, 0, 0], ..ServerCensus::default() };
    let kind = ObjectKind::Backend;
    for (proxy, census) in [(&web, census), (&tcp, ServerCensus::default())] {
        scrape.objects[kind as usize].push(&row(kind, proxy, "BACKEND", &[(Column::Status, Value::text("DOWN"))]));
        scrape.objects[kind as usize].servers.push(census);
    }
    let text = text(scrape);
    let check = |name: &str, expect: &[&str]| assert_eq!(series(&text, name), expect, "{name}");
    check(
        "haproxy_server_status",
        &[
            r#"{proxy="we\"b",server="a",state="DOWN"} 0"#,
            r#"{proxy="we\"b",server="a",state="UP"} 1"#,
            r#"{proxy="we\"b",server="a",state="MAINT"} 0"#,
            r#"{proxy="we\"b",server="a",state="DRAIN"} 0"#,
            r#"{proxy="we\"b",server="a",state="NOLB"} 0"#,
            r#"{proxy="tcp",server="b",state="DOWN"} 0"#,
            r#"{proxy="tcp",server="b",state="UP"} 0"#,
            r#"{proxy="tcp",server="b",state="MAINT"} 1"#,
            r#"{proxy="tcp",server="b",state="DRAIN"} 0"#,
            r#"{proxy="tcp",server="b",state="NOLB"} 0"#,
        ],
    );
    check("haproxy_server_check_code", &[r#"{proxy="we\"b",server="a"} 503"#]);
    check("haproxy_server_check_duration_seconds", &[r#"{proxy="we\"b",server="a"} 0.012000"#]);
    let last = [r#"{proxy="we\"b",server="a"} -1"#, r#"{proxy="tcp",server="b"} NaN"#];
    check("haproxy_server_last_session_seconds", &last);
    let limit = [r#"{proxy="we\"b",server="a"} 30"#, r#"{proxy="tcp",server="b"} NaN"#];
    check("haproxy_server_limit_sessions", &limit);
    let average = [r#"{proxy="we\"b",server="a"} 1.500000"#, r#"{proxy="tcp",server="b"} NaN"#];
    check("haproxy_server_queue_time_average_seconds", &average);
    assert_eq!(series(&text, "haproxy_server_http_responses_total")[1], r#"{proxy="we\"b",server="a",code="2xx"} 7"#);
    assert_eq!(series(&text, "haproxy_server_http_responses_total").len(), 6, "not of mode tcp");
    let results = series(&text, "haproxy_server_check_status");
    assert_eq!((results.len(), results.iter().filter(|series| series.ends_with(" 1")).count()), (CHECKS.len(), 1));
    assert_eq!(series(&text, "haproxy_backend_agg_server_status").len(), 5, "a backend without servers has none");
    assert_eq!(text.matches("# TYPE haproxy_server_http_responses_total counter\n").count(), 1);
    assert!(!text.contains("haproxy_frontend") && !text.contains("baton_") && !text.contains("# HELP haproxy_process"));
}

#[test]
fn ten_thousand_servers_come_in_small_pieces_with_each_series_once() {
    let mut scrape = scrape("scope=server");
    let app = proxy("app", Mode::Http);
    let up = [(Column::Status, Value::text("UP")), (Column::CheckStatus, Value::text("L4OK"))];
    let kind = ObjectKind::Server;
    for number in 0..10_000 {
        scrape.objects[kind as usize].push(&row(kind, &app, &format!("s{number}"), &up));
    }
    let text = text(scrape);
    let (mut names, mut families, mut family) = (HashSet::new(), HashSet::new(), "");
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            family = head.split_once(' ').unwrap().0;
            assert!(families.insert(family), "{family} is in two places");
        } else if !line.starts_with('#') {
            let name = line.rsplit_once(' ').unwrap().0;
            assert!(name.strip_prefix(family).is_some_and(|labels| labels.starts_with('{')), "{line}");
            assert!(names.insert(name), "{name} is there twice");
        }
    }
    assert!(names.len() > 500_000, "{}", names.len());
}

const MARK: &str = "<!-- metrics -->\n";

/// The lists of the manual.
fn lists() -> String {
    let mut out = String::new();
    let mut section = |title: &str, rows: &mut dyn Iterator<Item = [String; 4]>| {
        let _ = writeln!(out, "\n### {title}\n\n| metric | type | labels | what it is |\n|---|---|---|---|");
        for [name, metric_type, labels, help] in rows {
            let _ = writeln!(out, "| `{name}` | {metric_type} | {labels} | {help} |");
        }
    };
    let own = Part::Own.prefix();
    let rows = OWN.iter();
    let row = |row: &super::own::OwnMetric| {
        [format!("{own}{}", row.name), row.metric_type.word().into(), code(row.labels), row.help.into()]
    };
    section("Baton's own (`scope=baton`)", &mut rows.map(row));
    let process = Part::Process.prefix();
    let row = |row: &super::rows::ProcessMetric| {
        let line = row.line.map_or("not a number".into(), |line| format!("`{line}` of `show info`"));
        let labels = if row.name == "build_info" { "`version`" } else { "" };
        [format!("{process}{}", row.name), row.metric_type.word().into(), labels.into(), line]
    };
    section("The process (`scope=global`)", &mut PROCESS.iter().map(row));
    for (kind, title, labels) in [
        (ObjectKind::Frontend, "Frontends (`scope=frontend`)", "proxy"),
        (ObjectKind::Listener, "Sockets of frontends with `option socket-stats` (`scope=listener`)", "proxy, listener"),
        (ObjectKind::Backend, "Backends (`scope=backend`)", "proxy"),
        (ObjectKind::Server, "Servers (`scope=server`)", "proxy, server"),
    ] {
        let prefix = Part::Objects(kind).prefix();
        let mut metrics: Vec<_> = metrics_of(kind).collect();
        metrics.dedup_by_key(|metric| metric.name);
        let row = |metric: &&super::rows::Metric| {
            let more = match metric.form {
                MetricForm::Number | MetricForm::Seconds | MetricForm::CheckCode => "",
                MetricForm::Class(_) => ", code",
                MetricForm::State | MetricForm::Check | MetricForm::Servers | MetricForm::Checks => ", state",
            };
            let name = format!("{prefix}{}", metric.name);
            [name, metric.metric_type.word().into(), code(&format!("{labels}{more}")), metric.help()]
        };
        section(title, &mut metrics.iter().map(row));
    }
    let states = |kind| states_of(kind).join(", ");
    let _ = writeln!(
        out,
        "\nStates: {} of frontends and backends, {} of sockets, {} of servers. Results of checks: {}.",
        states(ObjectKind::Backend),
        states(ObjectKind::Listener),
        states(ObjectKind::Server),
        CHECKS.join(", ")
    );
    out
}

fn code(labels: &str) -> String {
    let labels: Vec<String> =
        labels.split(", ").filter(|label| !label.is_empty()).map(|label| format!("`{label}`")).collect();
    labels.join(", ")
}

/// With `BATON_UPDATE=1` the lists are written.
#[test]
fn the_manual_lists_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let manual = std::fs::read_to_string(&path).unwrap();
    let (before, _) = manual.split_once(MARK).unwrap();
    let expected = format!("{before}{MARK}{}", lists());
    if std::env::var_os("BATON_UPDATE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected, "BATON_UPDATE=1 writes it");
}
