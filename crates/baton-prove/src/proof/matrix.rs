//! The picture of what changes cost: a row for each server and way of changing it, a column for each kind of loss.

use crate::proof::Proof;
use crate::proof::draw::{Anchor, Svg};
use crate::proof::held::{self, COLUMNS, Grade, HeldRow};

/// Where the names of the servers end, and the widths of the columns behind them, in the order of [`held::heads`].
const NAMES: f64 = 216.0;
const WIDTHS: [f64; COLUMNS] = [100.0, 100.0, 100.0, 104.0, 96.0, 112.0, 142.0, 88.0, 108.0];
const WIDTH: f64 = NAMES + left_of(COLUMNS) + 16.0;
/// The heights of the head, a row, the space before Baton's rows, and the foot.
const HEAD: f64 = 92.0;
const ROW: f64 = 30.0;
const APART: f64 = 14.0;
const FOOT: f64 = 44.0;
/// The width of a letter of a column's head.
const LETTER: f64 = 8.2;

/// An opaque card, light or dark as the reader has it, so that it can stand on any page. Colour never stands alone: a loss is bold, too.
/// `bench/picture.py` uses it as well.
const STYLE: &str = concat!("\n", include_str!("matrix/style.css"));

/// The picture as an SVG file of its own. There is a row at least.
pub(super) fn standalone(proof: &Proof) -> String {
    let rows = held::rows(&proof.rows);
    let (others, ours): (Vec<&HeldRow<'_>>, Vec<&HeldRow<'_>>) = rows.iter().partition(|row| !row.is_ours);
    let gap = if others.is_empty() || ours.is_empty() { 0.0 } else { APART };
    let height = HEAD + (others.len() + ours.len()) as f64 * ROW + gap + FOOT;
    let title = "What a change costs";
    let mut svg = Svg::standalone(WIDTH, height, title, &description(&rows), STYLE);
    svg.rect("card", (0.5, 0.5), WIDTH - 1.0, height - 1.0);
    svg.text("title", Anchor::Start, (16.0, 28.0), title);
    heads(&mut svg, &rows);
    let mut y = HEAD;
    for row in &others {
        add(&mut svg, row, y);
        y += ROW;
    }
    y += gap;
    if !ours.is_empty() {
        svg.rect("ours", (8.0, y - 3.0), WIDTH - 16.0, ours.len() as f64 * ROW + 6.0);
    }
    for row in &ours {
        add(&mut svg, row, y);
        y += ROW;
    }
    legend(&mut svg, proof, &rows, height - 16.0);
    svg.finish()
}

fn heads(svg: &mut Svg, rows: &[HeldRow<'_>]) {
    for (number, head) in held::heads(rows).iter().enumerate() {
        let x = NAMES + left_of(number) + WIDTHS[number] / 2.0;
        for (line, text) in lines(head, letters(number)).iter().rev().enumerate() {
            svg.text("strong", Anchor::Middle, (x, HEAD - 14.0 - line as f64 * 16.0), text);
        }
    }
    svg.line("rule", (16.0, HEAD - 6.0), (WIDTH - 16.0, HEAD - 6.0));
}

/// How many letters of a head a column has room for in one line.
fn letters(column: usize) -> usize {
    (WIDTHS[column] / LETTER) as usize
}

/// How far right of the names a column begins.
const fn left_of(column: usize) -> f64 {
    let (mut x, mut before) = (0.0, 0);
    while before < column {
        x += WIDTHS[before];
        before += 1;
    }
    x
}

/// A head in lines of so many letters.
fn lines(head: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in head.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn add(svg: &mut Svg, row: &HeldRow<'_>, y: f64) {
    let name = if row.is_ours { "strong" } else { "label" };
    svg.text(name, Anchor::Start, (16.0, y + 20.0), &row.label);
    for (number, cell) in row.cells.iter().enumerate() {
        let (x, width) = (NAMES + left_of(number), WIDTHS[number]);
        let (class, text) = match cell.grade {
            Grade::Good => ("good", "label"),
            Grade::Bad => ("bad", "lost"),
            Grade::Plain => ("plain", "label"),
        };
        svg.rect(class, (x + 2.0, y + 2.0), width - 4.0, ROW - 4.0);
        svg.text(text, Anchor::Middle, (x + width / 2.0, y + 20.0), &cell.text);
    }
}

fn legend(svg: &mut Svg, proof: &Proof, rows: &[HeldRow<'_>], y: f64) {
    let waited = rows.first().map(|row| row.held.waited).unwrap_or_default().as_secs();
    svg.rect("good", (16.0, y - 12.0), 14.0, 14.0);
    svg.text("dim", Anchor::Start, (36.0, y), "nothing lost");
    svg.rect("bad", (126.0, y - 12.0), 14.0, 14.0);
    svg.text("dim", Anchor::Start, (146.0, y), "lost, or still there");
    let text = format!("Processes: before the changes, and {waited} s after the last one. Measured {}.", proof.started);
    svg.text("dim", Anchor::End, (WIDTH - 16.0, y), &text);
}

/// The picture in words: one sentence a row.
fn description(rows: &[HeldRow<'_>]) -> String {
    let heads = held::heads(rows);
    let sentence = |row: &HeldRow<'_>| {
        let cells: Vec<String> =
            heads.iter().zip(&row.cells).map(|(head, cell)| format!("{head}: {}", cell.text)).collect();
        format!("{}: {}.", row.label, cells.join("; "))
    };
    rows.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proof::{HeldCertificates, HeldResult, HeldSessions, Outcome, ProcessesSeen, samples};

    /// The sample proof, whose measured rows held connections: haproxy lost some, Baton none.
    fn proof() -> Proof {
        let mut proof = samples::proof();
        for row in &mut proof.rows {
            let is_baton = row.server == "baton";
            let Outcome::Measured(measured) = &mut row.outcome else { continue };
            let cut = if is_baton { 0 } else { 3 };
            let after = ProcessesSeen { count: 2 + cut as usize, memory_kib: Some(20_000) };
            measured.held = Some(HeldResult {
                websockets: Some(HeldSessions { opened: 10, cut }),
                keeps: [("counters".to_owned(), is_baton)].into(),
                in_effect: Some(Duration::from_millis(12)),
                certificates: Some(HeldCertificates {
                    count: 10_000,
                    in_effect: is_baton.then_some(Duration::from_millis(2_345)),
                    without_event: is_baton.then_some(Duration::from_millis(3)),
                    failed: (!is_baton).then(|| "the certificate of site-10000.example is not served".to_owned()),
                }),
                before: ProcessesSeen { count: 2, memory_kib: Some(10_000) },
                after,
                waited: Duration::from_secs(60),
                ..HeldResult::default()
            });
        }
        proof
    }

    #[test]
    fn losses_are_marked_and_ours_stand_last() {
        let picture = proof().picture();
        let xml = roxmltree::Document::parse(&picture).unwrap_or_else(|error| panic!("{error}: {picture}"));
        let texts = |class| {
            let nodes = xml.descendants().filter(move |node| node.attribute("class") == Some(class));
            nodes.filter_map(|node| node.text().map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(texts("lost"), ["130 of 1,000", "3 of 10", "2 → 5", "counters", "failed"]);
        assert!(picture.find("haproxy 2.6.12").unwrap() < picture.find("baton 0.1.0").unwrap());
        assert!(
            picture.contains("60 s after the last one")
                && picture.contains("2.3 s")
                && picture.contains("12 ms")
                && picture.contains("10 → 20 MB"),
            "{picture}"
        );
    }

    #[test]
    fn a_proof_of_other_experiments_too_is_drawn_as_bars_and_its_report_has_both() {
        let mut proof = proof();
        let Outcome::Measured(first) = &mut proof.rows[0].outcome else { panic!("a measured row") };
        first.held = None;
        assert!(proof.picture().contains("longest latency") && !proof.picture().contains("WebSockets"));
        let html = proof.to_html();
        assert!(html.contains("WebSockets cut") && html.contains("longest latency"), "{html}");
        assert!(html.contains(r#"<tr class="ours"><th scope="row">baton 0.1.0, restart</th>"#), "{html}");
    }

    #[test]
    fn every_form_of_the_proof_has_the_table() {
        let proof = proof();
        for text in [proof.table(), proof.to_markdown(), proof.to_html()] {
            assert!(text.contains("WebSockets cut") && text.contains("3 of 10"), "{text}");
            assert!(text.contains("in effect with 10,000 certificates") && text.contains("2.3 s"), "{text}");
            let [failed, live] =
                ["with 10,000 certificates: the certificate of", "without a reload: in effect after 3 ms"];
            assert!(text.contains(failed) && text.contains(live), "{text}");
        }
        let html = proof.to_html().replace("<!DOCTYPE html>", "");
        roxmltree::Document::parse(&html).unwrap_or_else(|error| panic!("{error}: {html}"));
        let json: serde_json::Value = serde_json::from_str(&proof.to_json()).unwrap();
        assert_eq!(json["rows"][0]["outcome"]["measured"]["held"]["websockets"]["cut"], 3);
        assert_eq!(json["rows"][1]["outcome"]["measured"]["held"]["in_effect_us"], 12_000);
        assert_eq!(json["rows"][1]["outcome"]["measured"]["held"]["certificates"]["in_effect_us"], 2_345_000);
    }

    #[test]
    fn heads_fit_their_columns() {
        let proof = proof();
        for (column, head) in held::heads(&held::rows(&proof.rows)).iter().enumerate() {
            let lines = lines(head, letters(column));
            assert!(lines.len() <= 3, "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= letters(column)), "{lines:?}");
            assert_eq!(lines.join(" "), *head);
        }
    }
}
