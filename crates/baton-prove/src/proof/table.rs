//! A proof as a table for a terminal.

use std::fmt::Write;

use crate::{
    proof::{
        Figures, Outcome, Proof, Row, held,
        words::{articles_notes, count, rate, remarks, verdict},
    },
    report::{Latency, time},
    table::Table,
};

/// The columns after the first, which names experiment and server.
const HEADS: [&str; 8] = ["requests", "failed", "events", "per event", "p50", "p99", "p99.9", "max"];

impl Proof {
    /// The proof as text: a table with a line for each row (under the name of its group), and under it its latency during events and outside of them and the
    /// articles' figures; below, a note for each row on what failed and why, or why it is absent.
    pub fn table(&self) -> String {
        let heads = ["experiment and server"].into_iter().chain(HEADS);
        let mut table = Table::new(heads);
        let width = self.rows.iter().map(|row| row.experiment.chars().count()).max().unwrap_or(0);
        let mut group = None;
        for row in &self.rows {
            if row.group.as_ref() != group {
                group = row.group.as_ref();
                table.row([group.map(|group| format!("{group}:")).unwrap_or_default()]);
            }
            add(&mut table, row, width);
        }
        let notes: Vec<String> = self.rows.iter().filter_map(note).collect();
        let articles = articles_notes(&self.rows);
        let mut text = format!("{}\n{}\n\n{table}", self.title, self.machine.line());
        if let Some(table) = self.held_table() {
            let _ = write!(text, "\n{table}");
        }
        if !notes.is_empty() {
            let _ = write!(text, "\n{}", notes.join(""));
        }
        if !articles.is_empty() {
            let _ = writeln!(text, "\n{}", articles.join("\n"));
        }
        if let Some(doubt) = self.machine.doubt() {
            let _ = writeln!(text, "\n{doubt}");
        }
        if self.interrupted {
            text.push_str("\nInterrupted: the figures cover the time until then.\n");
        }
        text
    }
}

impl Proof {
    /// What the events cost besides failed requests; `None` when no experiment looked.
    fn held_table(&self) -> Option<Table> {
        let rows = held::rows(&self.rows);
        let mut table = Table::new(["server".to_owned()].into_iter().chain(held::heads(&rows)));
        let is_empty = rows.is_empty();
        for row in rows {
            table.row([row.label].into_iter().chain(row.cells.map(|cell| cell.text)));
        }
        (!is_empty).then_some(table)
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
    said.extend(verdict(row));
    let name = format!("{} {}", row.experiment, row.server);
    (!said.is_empty()).then(|| said.iter().map(|said| format!("{name}: {said}\n")).collect())
}

#[cfg(test)]
mod tests {
    use crate::proof::samples;

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
        assert!(line("hard-restart haproxy: 1 of 5 events failed").ends_with("the first: cannot bind"), "{text}");
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
