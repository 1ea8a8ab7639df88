//! A proof as tables in Markdown, to be put into a document.

use std::fmt::Write;

use crate::{
    proof::{
        Outcome, Proof, Row, held,
        words::{articles_notes, count, rate, remarks, verdict},
    },
    report::{Latency, time},
};

/// The lines of a document between which [`Proof::in_document`] writes.
pub const BEGIN: &str = "<!-- measured: begin -->";
/// The end of that part.
pub const END: &str = "<!-- measured: end -->";

impl Proof {
    /// The figures as Markdown: when and where, the command, a table for each group of rows, and what is to be said besides.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("{}. {}.\n", safe(&self.started), safe(&self.machine.line()));
        if !self.machine.settings.is_empty() {
            let settings: Vec<String> =
                self.machine.settings.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
            let _ = writeln!(text, "Kernel settings: {}.", settings.join(", "));
        }
        if let Some(doubt) = self.machine.doubt() {
            let _ = writeln!(text, "{doubt}");
        }
        if self.interrupted {
            text.push_str("\n**Interrupted**: the figures cover the time until then.\n");
        }
        if !self.command.is_empty() {
            let _ = writeln!(text, "\n    {}", self.command.replace(['\n', '\r'], " "));
        }
        for rows in self.rows.chunk_by(|one, other| one.group == other.group) {
            if let Some(group) = &rows[0].group {
                let _ = writeln!(text, "\n### {}", safe(group));
            }
            add_held(&mut text, rows);
            add_table(&mut text, rows);
            add_notes(&mut text, rows);
        }
        text
    }

    /// That document with the figures between its lines [`BEGIN`] and [`END`], in place of what is there; `None` when it has not
    /// exactly one such part.
    pub fn in_document(&self, document: &str) -> Option<String> {
        let (before, after) = around(document)?;
        Some(format!("{before}{BEGIN}\n\n{}\n{END}{after}", self.to_markdown()))
    }
}

/// Whether a document has the part that [`Proof::in_document`] writes, so that one can know before measuring.
pub fn is_marked(document: &str) -> bool {
    around(document).is_some()
}

/// What of a document stands before and after the marked part; `None` when it has not exactly one. Text may name the marks: lines count.
fn around(document: &str) -> Option<(&str, &str)> {
    let (mut begin, mut end) = (None, None);
    let mut at = 0;
    for line in document.split_inclusive('\n') {
        let place = match line.trim_end() {
            BEGIN => &mut begin,
            END => &mut end,
            _ => {
                at += line.len();
                continue;
            }
        };
        if place.replace(at).is_some() {
            return None;
        }
        at += line.len();
    }
    let (begin, end) = begin.zip(end).filter(|(begin, end)| begin < end)?;
    Some((&document[..begin], &document[end + END.len()..]))
}

fn add_table(text: &mut String, rows: &[Row]) {
    text.push_str("\n| experiment | server | requests | failed | events | per event | p50 | p99 | p99.9 | longest | longest during events | |\n");
    text.push_str("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n");
    for row in rows {
        let (experiment, server) = (safe(&row.experiment), safe(&row.server_version()));
        let _ = match &row.outcome {
            Outcome::Measured(measured) => {
                let report = &measured.report;
                let cells = [
                    count(report.requests),
                    format!("**{}**", count(report.failed)),
                    count(measured.events.len() as u64),
                    safe(&measured.failed_per_event().map(rate).unwrap_or_default()),
                    latencies(&report.latency_us).join(" | "),
                    report.latency_us_during.map(|during| time(during.max)).unwrap_or_default(),
                    safe(&verdict(row).unwrap_or_default()),
                ];
                writeln!(text, "| {experiment} | {server} | {} |", cells.join(" | "))
            }
            Outcome::Absent(_) => writeln!(text, "| {experiment} | {server} | | absent | | | | | | | | |"),
            Outcome::Broken(_) => writeln!(text, "| {experiment} | {server} | | broken | | | | | | | | |"),
        };
        for figures in &row.articles {
            let failed = figures.failed.map(count).unwrap_or_default();
            let told = |micros: Option<u64>| micros.map(time).unwrap_or_default();
            let (source, all) = (safe(&figures.source), count(figures.requests));
            let mean = figures.mean_us.map(|mean| format!("mean {}", time(mean))).unwrap_or_default();
            let (p99, max) = (told(figures.p99_us), told(figures.max_us));
            let _ = writeln!(text, "| | *{source}* | {all} | {failed} | | | {mean} | {p99} | | {max} | | |");
        }
    }
}

/// What the events cost besides failed requests, where an experiment looked at it.
fn add_held(text: &mut String, rows: &[Row]) {
    let rows = held::rows(rows);
    if rows.is_empty() {
        return;
    }
    let heads = held::heads(&rows);
    let _ = writeln!(text, "\n| server | {} |\n|---|{}", heads.join(" | "), "---:|".repeat(heads.len()));
    for row in rows {
        let mark = |cell: held::Cell| match cell.grade {
            held::Grade::Bad => format!("**{}**", safe(&cell.text)),
            held::Grade::Good | held::Grade::Plain => safe(&cell.text),
        };
        let _ = writeln!(text, "| {} | {} |", safe(&row.label), row.cells.map(mark).join(" | "));
    }
}

/// What the tables have no room for, as a list.
fn add_notes(text: &mut String, rows: &[Row]) {
    let mut notes = String::new();
    for row in rows {
        let said = match &row.outcome {
            Outcome::Measured(measured) => remarks(measured),
            Outcome::Absent(why) => vec![format!("absent: {why}")],
            Outcome::Broken(why) => vec![format!("broken: {why}")],
        };
        for said in said {
            let _ = writeln!(notes, "- {}, {}: {}", safe(&row.experiment), safe(&row.server), safe(&said));
        }
    }
    for note in articles_notes(rows) {
        let _ = writeln!(notes, "- {}", safe(&note));
    }
    if !notes.is_empty() {
        let _ = write!(text, "\n{notes}");
    }
}

fn latencies(latency: &Latency) -> [String; 4] {
    match latency.count {
        0 => Default::default(),
        _ => [latency.p50, latency.p99, latency.p999, latency.max].map(time),
    }
}

/// Text that is nothing but text in a cell of a table: without line ends, and what Markdown or HTML would read is escaped.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => safe.extend(['\\', character]),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            _ if character.is_control() => safe.push(' '),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::samples;

    #[test]
    fn every_row_is_a_line_with_as_many_cells() {
        let mut proof = samples::proof();
        proof.rows[0].server = "a|b\n<i>".into();
        let text = proof.to_markdown();
        let cells: Vec<usize> = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.replace("\\|", "").matches('|').count())
            .collect();
        assert_eq!(cells, [13; 7], "two of the head, four rows, one article: {text}");
        assert!(text.contains("a\\|b &lt;i&gt;") && text.contains("| **130** |"), "{text}");
        assert!(text.contains("- hold, baton: absent: \\`baton hold\\` is not there yet"), "{text}");
        assert!(text.contains("    baton prove articles --scale 0.1\n"), "{text}");
    }

    #[test]
    fn only_the_marked_part_of_a_document_changes() {
        let proof = samples::proof();
        let document = format!("# Proof\n\n{BEGIN}\nstale\n{END}\n\nafter `{BEGIN}`\n");
        let once = proof.in_document(&document).expect("one part");
        assert!(
            once.starts_with("# Proof\n\n<!--")
                && once.ends_with("-->\n\nafter `<!-- measured: begin -->`\n")
                && !once.contains("stale"),
            "{once}"
        );
        assert_eq!(proof.in_document(&once).as_deref(), Some(once.as_str()), "doing it twice changes nothing");
        for without in ["", BEGIN, END, &format!("{END}{BEGIN}"), &format!("{document}{document}")] {
            assert_eq!(proof.in_document(without), None, "{without}");
        }
    }
}
