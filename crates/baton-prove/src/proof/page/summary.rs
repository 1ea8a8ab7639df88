//! The table of all rows.

use std::fmt::Write;

use crate::{
    proof::{
        Figures, Measured, Outcome, Proof, Row,
        draw::escape,
        held,
        words::{count, rate, told, verdict},
    },
    report::{Latency, time},
};

/// Cells after the first two, which name experiment and server.
const CELLS: usize = 13;

pub(super) fn add(page: &mut String, proof: &Proof) {
    page.push_str(
        r#"<div class="wide">
<table class="all">
<caption>All rows. Latency of the completed requests: of those that overlapped a time with events, and of the others. What articles report of the same experiment is in italics.</caption>
<thead>
<tr><th scope="col" rowspan="2" class="words">experiment</th><th scope="col" rowspan="2" class="words">server</th>
<th scope="col" rowspan="2">requests</th><th scope="col" rowspan="2">failed</th><th scope="col" rowspan="2">events</th><th scope="col" rowspan="2">failed<br/>per event</th>
<th scope="colgroup" colspan="4" class="first">during events</th><th scope="colgroup" colspan="4" class="first">outside</th><th scope="col" rowspan="2" class="words first">expected</th></tr>
<tr><th scope="col" class="first">p50</th><th scope="col">p99</th><th scope="col">p99.9</th><th scope="col">longest</th><th scope="col" class="first">p50</th><th scope="col">p99</th><th scope="col">p99.9</th><th scope="col">longest</th></tr>
</thead>
<tbody>
"#,
    );
    let mut group = None;
    for (number, row) in proof.rows.iter().enumerate() {
        if row.group.as_ref() != group {
            group = row.group.as_ref();
            let name = escape(group.map_or("", String::as_str));
            let _ =
                writeln!(page, r#"<tr class="group"><th scope="rowgroup" colspan="{}">{name}</th></tr>"#, CELLS + 2);
        }
        add_row(page, row, number);
        for figures in &row.articles {
            add_article(page, figures);
        }
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
    add_held(page, proof);
}

/// What the events cost besides failed requests, where an experiment looked at it.
fn add_held(page: &mut String, proof: &Proof) {
    let rows = held::rows(&proof.rows);
    if rows.is_empty() {
        return;
    }
    let heads: String = held::heads(&rows).iter().map(|head| format!(r#"<th scope="col">{head}</th>"#)).collect();
    let _ = writeln!(
        page,
        r#"<div class="wide">
<table class="all">
<caption>What the changes cost: failed requests, sessions that were cut, processes that remained, and state that was lost. Green: nothing lost; red: lost, or still there.</caption>
<thead><tr><th scope="col" class="words">server</th>{heads}</tr></thead>
<tbody>"#
    );
    for row in rows {
        let class = if row.is_ours { r#" class="ours""# } else { "" };
        let _ = write!(page, r#"<tr{class}><th scope="row">{}</th>"#, escape(&row.label));
        for cell in row.cells {
            let class = match cell.grade {
                held::Grade::Good => r#" class="good""#,
                held::Grade::Bad => r#" class="bad""#,
                held::Grade::Plain => "",
            };
            let _ = write!(page, "<td{class}>{}</td>", escape(&cell.text));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
}

fn add_row(page: &mut String, row: &Row, number: usize) {
    let (experiment, server) = (escape(&row.experiment), escape(&row.server_version()));
    let _ = write!(
        page,
        r##"<tr><th scope="row"><a href="#row-{number}">{experiment}</a></th><td class="words">{server}</td>"##
    );
    let (kind, why) = match &row.outcome {
        Outcome::Measured(measured) => return add_measured(page, row, measured),
        Outcome::Absent(why) => ("absent", why),
        Outcome::Broken(why) => ("broken", why),
    };
    let _ = writeln!(page, r#"<td class="words" colspan="{CELLS}"><b>{kind}</b>: {}</td></tr>"#, escape(why));
}

fn add_measured(page: &mut String, row: &Row, measured: &Measured) {
    let report = &measured.report;
    let class = if report.failed > 0 { "bad" } else { "good" };
    let events = measured.events.len() as u64;
    let _ = write!(page, r#"<td>{}</td><td class="{class}">{}</td>"#, count(report.requests), count(report.failed));
    let per_event = measured.failed_per_event().map(rate).unwrap_or_default();
    let _ = write!(page, "<td>{}</td><td>{}</td>", count(events), escape(&per_event));
    add_latencies(page, report.latency_us_during.as_ref());
    add_latencies(page, report.latency_us_outside.as_ref());
    let class = if row.as_expected == Some(false) { "bad" } else { "good" };
    let said = verdict(row).unwrap_or_default();
    let _ =
        writeln!(page, r#"<td class="words first verdict"><span class="{class}">{}</span></td></tr>"#, escape(&said));
}

fn add_latencies(page: &mut String, latency: Option<&Latency>) {
    let values = latency.map(|latency| [latency.p50, latency.p99, latency.p999, latency.max].map(time));
    for (place, value) in values.unwrap_or_default().iter().enumerate() {
        let class = if place == 0 { r#" class="first""# } else { "" };
        let _ = write!(page, "<td{class}>{value}</td>");
    }
}

fn add_article(page: &mut String, figures: &Figures) {
    let (source, requests) = (escape(&figures.source), count(figures.requests));
    let failed = figures.failed.map(count).unwrap_or_default();
    let _ = writeln!(
        page,
        r#"<tr class="article"><th scope="row" colspan="2">{source}</th><td>{requests}</td><td>{failed}</td><td></td><td></td><td class="words first" colspan="{}">{}</td></tr>"#,
        CELLS - 4,
        escape(&told(figures))
    );
}
