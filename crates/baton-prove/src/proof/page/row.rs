//! The part of the report about one row.

use std::{fmt::Write, io, time::Duration};

use crate::{
    failure::{Failure, FailureKind},
    proof::{
        Event, Figures, Measured, Outcome, Row, chart,
        columns::Columns,
        draw::escape,
        words::{count, plural, rate, remarks, told, verdict},
    },
    report::{meaning, time},
};

pub(super) fn add(page: &mut String, row: &Row, number: usize) {
    let name = format!("{} · {}", row.title, row.server_version());
    let _ = writeln!(page, "<section>\n<h2 id=\"row-{number}\">{}</h2>", escape(&name));
    let _ = writeln!(page, "<p>{}</p>", escape(&row.about));
    match &row.outcome {
        Outcome::Measured(measured) => add_measured(page, row, measured),
        Outcome::Absent(why) => {
            let _ = writeln!(page, "<p><b>Absent</b>: {}</p>", escape(why));
        }
        Outcome::Broken(why) => {
            let _ = writeln!(page, r#"<p class="bad">Broken: {}</p>"#, escape(why));
        }
    }
    add_articles(page, &row.articles);
    if !row.commands.is_empty() {
        let commands: Vec<String> = row.commands.iter().map(|command| escape(command)).collect();
        let _ = writeln!(page, "<h3>Exact commands</h3>\n<pre>{}</pre>", commands.join("\n"));
    }
    page.push_str("</section>\n");
}

fn add_measured(page: &mut String, row: &Row, measured: &Measured) {
    add_facts(page, row, measured);
    // What failed, the first remark, has a table of its own below.
    let said: Vec<String> = remarks(measured).into_iter().skip(usize::from(measured.report.failed > 0)).collect();
    if !said.is_empty() {
        let items: Vec<String> = said.iter().map(|said| format!("<li>{}</li>", escape(said))).collect();
        let _ = writeln!(page, "<ul>{}</ul>", items.join(""));
    }

    let name = format!("{}, {}", row.experiment, row.server_version());
    let drawing = chart::latency(measured, &name);
    let _ = writeln!(page, "<figure>{drawing}<figcaption>{}</figcaption></figure>", escape(&caption(measured)));
    page.push_str("<div class=\"pair\">\n");
    let caption = "Latency by share of the requests; each line ends at the longest request.";
    let _ =
        writeln!(page, "<figure>{}<figcaption>{caption}</figcaption></figure>", chart::percentiles(measured, &name));
    page.push_str("<div>\n");
    add_kinds(page, measured);
    page.push_str("</div>\n</div>\n");
    add_first_failures(page, measured);
}

fn add_facts(page: &mut String, row: &Row, measured: &Measured) {
    let report = &measured.report;
    let longest =
        |latency: Option<&crate::report::Latency>| latency.map(|latency| time(latency.max)).unwrap_or_default();
    let events = match measured.events_failed() {
        0 => count(measured.events.len() as u64),
        failed => format!("{} ({failed} failed)", count(measured.events.len() as u64)),
    };
    let busy = match report.seconds {
        seconds if seconds > 0.0 => format!("{:.0}%", 100.0 * report.cpu_seconds / seconds),
        _ => String::new(),
    };
    let facts = [
        ("requests", count(report.requests)),
        ("failed", count(report.failed)),
        ("events", events),
        ("failed per event", measured.failed_per_event().map(rate).unwrap_or_default()),
        ("longest during events", longest(report.latency_us_during.as_ref())),
        ("longest outside", longest(report.latency_us_outside.as_ref())),
        ("requests a second", count(report.requests_per_second.round() as u64)),
        ("connections", count(report.connections)),
        ("CPU time of the load generator", busy),
        ("expected", verdict(row).unwrap_or_default()),
    ];
    page.push_str("<dl class=\"facts\">\n");
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        let class = match *name {
            "failed" if report.failed > 0 => r#" class="bad""#,
            "failed" => r#" class="good""#,
            "expected" if row.as_expected == Some(false) => r#" class="bad""#,
            _ => "",
        };
        let _ = writeln!(page, "<div><dt>{name}</dt><dd{class}>{}</dd></div>", escape(value));
    }
    page.push_str("</dl>\n");
}

/// What the drawing of latency over time does not show.
fn caption(measured: &Measured) -> String {
    let columns = Columns::new(measured, chart::COLUMNS_MAX);
    let mut said = vec![
        "Each request is at its scheduled send time; the axes of latency and of failures are logarithmic.".to_owned(),
    ];
    if !columns.failures_by_instant {
        said.push(
            "There were too many failures to keep the time of each: they are at the send times of their requests."
                .to_owned(),
        );
    }
    let marks = chart::marks_of(measured);
    if marks < measured.events.len() {
        let events = plural(measured.events.len() as u64, "event");
        said.push(format!("{events} are drawn as {marks} marks: events that are too close together share one."));
    }
    said.join(" ")
}

fn add_kinds(page: &mut String, measured: &Measured) {
    let report = &measured.report;
    if report.failed == 0 {
        page.push_str("<h3>No request failed</h3>\n");
        return;
    }
    page.push_str(
        r#"<table>
<caption>Failures by kind</caption>
<thead><tr><th scope="col" class="words">kind</th><th scope="col">requests</th><th scope="col" class="words">share</th></tr></thead>
<tbody>
"#,
    );
    for kind in FailureKind::ALL {
        let failed = report.failures.get(kind.name()).copied().unwrap_or(0);
        if failed == 0 {
            continue;
        }
        let share = failed as f64 / report.failed as f64;
        let reason = measured
            .failures
            .iter()
            .filter(|failure| failure.kind == kind)
            .find_map(|failure| failure.reason.as_deref());
        let reason = reason.map(|reason| format!(" The first one: {reason}")).unwrap_or_default();
        let bar = (share * 160.0).max(1.5);
        let _ = writeln!(
            page,
            r#"<tr><th scope="row">{}</th><td>{}</td><td class="share"><svg class="share" viewBox="0 0 160 12" aria-hidden="true"><rect class="failed-bar" width="{bar:.1}" height="12"/></svg> {:.1}%</td></tr>
<tr><td class="words dim" colspan="3">{}</td></tr>"#,
            kind.name().replace('_', " "),
            count(failed),
            share * 100.0,
            escape(&format!("{}{reason}", meaning(kind)))
        );
    }
    page.push_str("</tbody>\n</table>\n");
}

fn add_first_failures(page: &mut String, measured: &Measured) {
    let first = &measured.report.first_failures;
    if first.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        r#"<details>
<summary>The first failures of each kind ({})</summary>
<table>
<thead><tr><th scope="col">at</th><th scope="col" class="words">kind</th><th scope="col">after its start</th><th scope="col">responses before</th><th scope="col" class="words">why</th><th scope="col">status</th><th scope="col" class="words">event before</th></tr></thead>
<tbody>"#,
        plural(first.len() as u64, "failure")
    );
    for failure in first {
        add_failure(page, failure, &measured.events);
    }
    page.push_str("</tbody>\n</table>\n</details>\n");
}

fn add_failure(page: &mut String, failure: &Failure, events: &[Event]) {
    let system = |number| io::Error::from_raw_os_error(number).to_string();
    let word = failure.reason.as_deref().map(str::to_owned).or_else(|| failure.errno.map(system)).unwrap_or_default();
    let status = failure.status.map(|status| status.to_string()).unwrap_or_default();
    let before = events.iter().rev().find(|event| event.at <= failure.at);
    let before = before.map(|event| format!("{} earlier: {}", micros(failure.at - event.at), event.what));
    let _ = writeln!(
        page,
        r#"<tr><td>{:.3} s</td><td class="words">{}</td><td>{}</td><td>{}</td><td class="words">{}</td><td>{status}</td><td class="words">{}</td></tr>"#,
        failure.at.as_secs_f64(),
        failure.kind.name().replace('_', " "),
        micros(failure.at.saturating_sub(failure.begun)),
        count(failure.reused),
        escape(&word),
        escape(&before.unwrap_or_default())
    );
}

fn add_articles(page: &mut String, articles: &[Figures]) {
    if articles.is_empty() {
        return;
    }
    page.push_str("<table>\n<caption>What articles report of the same experiment</caption>\n<thead><tr><th scope=\"col\" class=\"words\">article</th><th scope=\"col\">requests</th><th scope=\"col\">failed</th><th scope=\"col\" class=\"words\">latency and notes</th></tr></thead>\n<tbody>\n");
    for figures in articles {
        let _ = writeln!(
            page,
            r#"<tr><th scope="row">{}</th><td>{}</td><td>{}</td><td class="words">{}</td></tr>"#,
            escape(&figures.source),
            count(figures.requests),
            figures.failed.map(count).unwrap_or_default(),
            escape(&told(figures))
        );
    }
    page.push_str("</tbody>\n</table>\n");
}

fn micros(duration: Duration) -> String {
    time(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
