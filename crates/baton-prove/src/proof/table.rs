//! A proof as a table for a terminal.

use std::fmt::Write;

use crate::{
    proof::{Figures, Measured, Outcome, Proof, Row},
    report::{Latency, time},
    table::Table,
};

/// The columns after the first, which names experiment and server.
const HEADS: [&str; 8] = ["requests", "failed", "events", "per event", "p50", "p99", "p99.9", "max"];

impl Proof {
    /// The proof as text: a table with a line for each row, and under it its latency during events and outside of them and the
    /// articles' figures; below, a note for each row on what failed and why, or why it is absent.
    pub fn table(&self) -> String {
        let heads = ["experiment and server"].into_iter().chain(HEADS);
        let mut table = Table::new(heads);
        let width = self.rows.iter().map(|row| row.experiment.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            add(&mut table, row, width);
        }
        let notes: Vec<String> = self.rows.iter().filter_map(note).collect();
        let mut text = format!("{}\n{}\n\n{table}", self.title, self.machine.line());
        if !notes.is_empty() {
            let _ = write!(text, "\n{}", notes.join(""));
        }
        if self.interrupted {
            text.push_str("\nInterrupted: the figures are of what was measured until then.\n");
        }
        text
    }
}

fn add(table: &mut Table, row: &Row, width: usize) {
    let name = format!("{:width$}  {}", row.experiment, row.server_version());
    match &row.outcome {
        Outcome::Measured(measured) => {
            let report = &measured.report;
            let counts = [
                count(report.requests),
                count(report.failed),
                count(measured.events.len() as u64),
                measured.failed_per_event().map(rate).unwrap_or_default(),
            ];
            table.row([name].into_iter().chain(counts).chain(latencies(&report.latency_us)));
            if let Some(during) = &report.latency_us_during {
                table.row(part("  during events", during));
                table.row(part("  outside", &report.latency_us_outside.unwrap_or_default()));
            }
        }
        Outcome::Absent(_) => {
            table.row([name, "absent".into()]);
        }
        Outcome::Broken(_) => {
            table.row([name, "broken".into()]);
        }
    }
    for figures in &row.articles {
        table.row(article(figures));
    }
}

fn part(name: &str, latency: &Latency) -> Vec<String> {
    let head = [name.to_owned(), count(latency.count), String::new(), String::new(), String::new()];
    head.into_iter().chain(latencies(latency)).collect()
}

fn latencies(latency: &Latency) -> [String; 4] {
    match latency.count {
        0 => Default::default(),
        _ => [latency.p50, latency.p99, latency.p999, latency.max].map(time),
    }
}

fn article(figures: &Figures) -> [String; 9] {
    let told = |micros: Option<u64>| micros.map(time).unwrap_or_default();
    [
        format!("  {}", figures.source),
        count(figures.requests),
        figures.failed.map(count).unwrap_or_default(),
        String::new(),
        String::new(),
        figures.mean_us.map(|mean| format!("mean {}", time(mean))).unwrap_or_default(),
        told(figures.p99_us),
        String::new(),
        told(figures.max_us),
    ]
}

/// What is to be said of a row besides its figures: lines, or nothing.
fn note(row: &Row) -> Option<String> {
    let mut said = match &row.outcome {
        Outcome::Measured(measured) => remarks(measured),
        Outcome::Absent(why) => vec![format!("absent: {why}")],
        Outcome::Broken(why) => vec![format!("broken: {why}")],
    };
    let notes = row.articles.iter().filter(|figures| !figures.note.is_empty());
    said.extend(notes.map(|figures| format!("{}: {}", figures.source, figures.note)));
    let name = format!("{} {}", row.experiment, row.server);
    (!said.is_empty()).then(|| said.iter().map(|said| format!("{name}: {said}\n")).collect())
}

/// What a reader of a measured row's figures must know besides: what failed, events that did not work, what was left over, and
/// whether the load client itself ended early.
pub(super) fn remarks(measured: &Measured) -> Vec<String> {
    let report = &measured.report;
    let mut said = Vec::new();
    if report.failed > 0 {
        said.push(format!("failed: {}", report.kinds()));
    }
    let failed = measured.events_failed();
    if failed > 0 {
        let first = measured.events.iter().find(|event| !event.ok && event.said.is_some());
        let words = first.and_then(|event| event.said.as_deref()).map(|said| format!(", the first said: {said}"));
        said.push(format!("{failed} of {} events failed{}", measured.events.len(), words.unwrap_or_default()));
    }
    if report.unsent > 0 {
        said.push(format!("{} requests were due and not begun, because all connections were busy", report.unsent));
    }
    said.extend(measured.left_over.iter().map(|left| format!("left over: {left}")));
    said.extend(report.errors.iter().map(|error| format!("the load client ended early: {error}")));
    said
}

/// A number with a comma before each three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Failed requests for each event, with as many digits as mean something.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".into(),
        ..0.01 => "< 0.01".into(),
        ..10.0 => format!("{rate:.2}"),
        ..100.0 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::samples;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.001, 0.5, 12.34, 1234.5].map(rate), ["0", "< 0.01", "0.50", "12.3", "1,235"]);
    }

    #[test]
    fn the_table_holds_every_row_and_says_why_one_is_absent() {
        let text = samples::proof().table();
        let line = |start: &str| {
            text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"))
        };
        let hard: Vec<&str> = line("hard-restart  haproxy 2.6.12").split_whitespace().collect();
        assert_eq!(hard[3..7], ["1,000", "130", "5", "26.0"], "{text}");
        assert!(line("hold          baton 0.1.0").ends_with("absent"), "{text}");
        assert!(line("hold baton: absent: ").contains("not there yet"), "{text}");
        assert!(line("hard-restart haproxy: failed: ").contains("refused 120"), "{text}");
        assert!(line("hard-restart haproxy: 1 of 5 events failed").ends_with("said: cannot bind"), "{text}");
        assert!(line("  An article").contains("2,000"), "{text}");
        assert!(text.contains("during events") && text.contains("left over: 2 processes"), "{text}");
        assert!(!text.contains("Interrupted"), "{text}");
    }

    #[test]
    fn a_proof_without_rows_is_a_table_too() {
        let mut proof = samples::proof();
        proof.rows.clear();
        proof.interrupted = true;
        let text = proof.table();
        assert!(text.contains("requests") && text.contains("Interrupted"), "{text}");
    }
}
