//! Numbers and remarks as people read them, the same in every form of a proof.

use crate::proof::{Figures, Measured, Row, held};
use crate::report::time;

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

/// A number of things: `1 event`, `2,000 events`.
pub(super) fn plural(number: u64, thing: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{} {thing}{end}", count(number))
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

/// The latencies that an article tells, and its note: `mean 51.0 ms, p99 1.00 s; a note`.
pub(super) fn told(figures: &Figures) -> String {
    let parts = [("mean", figures.mean_us), ("p99", figures.p99_us), ("longest", figures.max_us)];
    let parts: Vec<String> = parts
        .into_iter()
        .filter_map(|(name, micros)| micros.map(|micros| format!("{name} {}", time(micros))))
        .collect();
    match (parts.is_empty(), figures.note.is_empty()) {
        (_, true) => parts.join(", "),
        (true, false) => figures.note.clone(),
        (false, false) => format!("{}; {}", parts.join(", "), figures.note),
    }
}

/// What the articles' figures of these rows need to be compared, each once.
pub(super) fn articles_notes(rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    for figures in rows.iter().flat_map(|row| &row.articles).filter(|figures| !figures.note.is_empty()) {
        let note = format!("{}: {}", figures.source, figures.note);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Whether a row came out as expected, in words; `None` when nothing was expected or nothing was measured.
pub(super) fn verdict(row: &Row) -> Option<String> {
    match row.as_expected? {
        true if row.expected.is_empty() => Some("✓ as expected".into()),
        true => Some(format!("✓ as expected: {}", row.expected)),
        false if row.expected.is_empty() => Some("✗ not as expected".into()),
        false => Some(format!("✗ not as expected: {}", row.expected)),
    }
}

/// What a reader of a measured row's figures must know besides: what failed, events that did not work, what was left over, and
/// whether the load client itself ended early.
pub(super) fn remarks(measured: &Measured) -> Vec<String> {
    let report = &measured.report;
    let mut said = Vec::new();
    if report.failed > 0 {
        said.push(format!("failed: {}", report.kinds()));
    }
    if let Some(kept) = measured.held.as_ref().and_then(|held| held.kept.as_ref()).filter(|kept| kept.failed > 0) {
        said.push(format!("failed over keep-alive connections: {}", kept.kinds()));
    }
    if let Some(certificates) = measured.held.as_ref().and_then(|held| held.certificates.as_ref()) {
        let many = plural(certificates.count as u64, "certificate");
        let reason = certificates.failed.as_ref().map(|reason| format!("with {many}: {reason}"));
        let live = certificates
            .without_event
            .map(|time| format!("one of {many}, replaced without a reload: in effect after {}", held::seconds(time)));
        said.extend(reason.into_iter().chain(live));
    }
    let failed = measured.events_failed();
    if failed > 0 {
        let first = measured.events.iter().find_map(|event| event.said.as_deref().filter(|_| !event.ok));
        let words = first.map(|said| format!(", the first: {said}")).unwrap_or_default();
        said.push(format!("{failed} of {} failed{words}", plural(measured.events.len() as u64, "event")));
    }
    if let Some(meter) = &measured.meter {
        let speed = report.body_bytes as f64 / 1000.0 / report.seconds.max(0.001);
        let share = match report.body_bytes {
            0 => "and no response".into(),
            body => format!("{} % of the responses", rate(meter.bytes as f64 * 100.0 / body as f64)),
        };
        let carried = (meter.bytes as f64 / 1000.0).round() as u64;
        said.push(format!(
            "{} KB/s of responses in {:.1} s; {} carried {} KB, {share}",
            count(speed.round() as u64),
            report.seconds,
            meter.what,
            count(carried),
        ));
    }
    if report.unsent > 0 {
        let unsent = plural(report.unsent, "request");
        said.push(format!("{unsent} scheduled but not sent, because all connections were busy"));
    }
    said.extend(measured.left_over.iter().map(|left| format!("left over: {left}")));
    said.extend(report.errors.iter().map(|error| format!("the load generator ended early: {error}")));
    said
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        experiment::Expect,
        proof::{Meter, samples},
    };

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.001, 0.5, 12.34, 1234.5].map(rate), ["0", "< 0.01", "0.50", "12.3", "1,235"]);
        assert_eq!([0, 1, 1_000].map(|number| plural(number, "event")), ["0 events", "1 event", "1,000 events"]);
    }

    #[test]
    fn what_something_carried_stands_beside_the_answers() {
        let load = samples::SampleLoad {
            count: 100,
            every: Duration::from_millis(10),
            latency: Duration::from_millis(1),
            stall: Duration::ZERO,
        };
        let mut measured = samples::measured(&load, &[], &[]);
        (measured.report.body_bytes, measured.report.seconds) = (4_580_000, 2.0);
        measured.meter = Some(Meter { what: "a link".into(), bytes: 91_600 });
        let said = remarks(&measured).join("\n");
        assert_eq!(said, "2,290 KB/s of responses in 2.0 s; a link carried 92 KB, 2.00 % of the responses");
        let body = std::mem::take(&mut measured.report.body_bytes);
        assert!(remarks(&measured).join("\n").ends_with("a link carried 92 KB, and no response"));
        measured.report.body_bytes = body;
        let judge = |measured: &Measured| Expect::Bypass.judge(measured, 1, false);
        assert_eq!(judge(&measured), Some(true));
        measured.meter = Some(Meter { what: "a link".into(), bytes: 458_000 });
        assert_eq!(judge(&measured), Some(false));
        measured.meter = None;
        assert_eq!(judge(&measured), Some(false));
    }

    #[test]
    fn an_article_tells_what_it_tells() {
        let mut figures = Figures { p99_us: Some(1_200_000), ..Figures::default() };
        assert_eq!(told(&figures), "p99 1.20 s");
        figures.note = "twice as often".into();
        assert_eq!(told(&figures), "p99 1.20 s; twice as often");
        figures.p99_us = None;
        assert_eq!(told(&figures), "twice as often");
        assert_eq!(told(&Figures::default()), "");
    }
}
