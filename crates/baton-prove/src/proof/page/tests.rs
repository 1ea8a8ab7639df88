//! The report of every kind of proof is well-formed, whole and small.

use std::time::Duration;

use roxmltree::{Document, ParsingOptions};

use crate::{
    failure::FailureKind,
    load::{FAILURES_KEPT_MAX, Series},
    proof::{Measured, Outcome, Proof, samples},
};

/// Judges the report's form and gives it to `look`.
fn read(proof: &Proof, look: impl FnOnce(&str, &Document<'_>)) {
    let html = proof.to_html();
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let xml = Document::parse_with_options(&html, options).unwrap_or_else(|error| panic!("{error}"));
    assert!(xml.descendants().all(|node| !node.has_tag_name("script") && !node.has_tag_name("link")));
    for attribute in xml.descendants().flat_map(|node| node.attributes()) {
        let fetches = matches!(attribute.name(), "src" | "href") && !attribute.value().starts_with('#');
        assert!(!fetches && !attribute.name().starts_with("on"), "{attribute:?}");
        assert!(!attribute.value().contains("NaN") && !attribute.value().contains("inf"), "{attribute:?}");
    }
    assert!(!html.contains("url(") && !html.contains("@import"));
    for drawing in elements(&xml, "svg", |node| node.attribute("aria-hidden").is_none()) {
        assert!(drawing.attribute("aria-label").is_some_and(|label| !label.is_empty()));
        assert!(drawing.children().any(|child| child.has_tag_name("desc")));
    }
    look(&html, &xml);
}

fn elements<'a>(
    xml: &'a Document<'a>,
    name: &'static str,
    of: impl Fn(&roxmltree::Node<'a, 'a>) -> bool,
) -> Vec<roxmltree::Node<'a, 'a>> {
    xml.descendants().filter(|node| node.has_tag_name(name) && of(node)).collect()
}

fn class<'a>(xml: &'a Document<'a>, name: &'static str, class: &str) -> Vec<roxmltree::Node<'a, 'a>> {
    elements(xml, name, |node| node.attribute("class") == Some(class))
}

/// A proof of that one row.
fn of(measured: Measured) -> Proof {
    let mut proof = samples::proof();
    proof.rows = vec![samples::row("one", "server", "1", Outcome::Measured(Box::new(measured)))];
    proof
}

fn load(count: u64, every: Duration) -> samples::SampleLoad {
    samples::SampleLoad { count, every, latency: Duration::from_micros(300), stall: Duration::from_millis(40) }
}

#[test]
fn every_row_has_its_part_its_marks_and_its_commands() {
    let proof = samples::proof();
    read(&proof, |html, xml| {
        assert_eq!(elements(xml, "section", |_| true).len(), proof.rows.len());
        assert_eq!(elements(xml, "svg", |node| node.attribute("role") == Some("img")).len(), 1 + 2 * 2);
        assert_eq!(class(xml, "path", "event").len(), 4 + 5 + 2, "each event, and the sign of both legends");
        assert_eq!(class(xml, "path", "event bad").len(), 1 + 1, "the event that failed, and its sign");
        assert_eq!(class(xml, "path", "mean").len(), 2);
        for text in ["26.0", "130", "absent", "the first: cannot bind", "2 processes", "tcp_migrate_req", "An article"]
        {
            assert!(html.contains(text), "{text}");
        }
        assert!(html.contains("nothing listened"), "what the kind means");
        assert!(html.contains("&lt;no such file&gt; &amp; more"), "why a row is broken");
    });
}

#[test]
fn what_others_wrote_stays_text() {
    let mut proof = samples::proof();
    let evil = "<script>alert('x')</script>\u{0}\u{1b}]]>&amp;<!-- Grüße 日本 🦀";
    let row = &mut proof.rows[0];
    for text in
        [&mut proof.title, &mut proof.command, &mut proof.started, &mut row.title, &mut row.about, &mut row.version]
    {
        *text = evil.to_owned();
    }
    row.commands = vec![evil.to_owned()];
    row.articles[0].note = evil.to_owned();
    row.expected = evil.to_owned();
    row.group = Some(evil.to_owned());
    if let Outcome::Measured(measured) = &mut row.outcome {
        measured.events[2].said = Some(evil.to_owned());
        measured.events[2].what = evil.to_owned();
        measured.left_over = vec![evil.to_owned()];
    }
    read(&proof, |html, xml| {
        assert!(!html.contains("<script"));
        let shown = evil.replace(['\u{0}', '\u{1b}'], "\u{fffd}");
        let commands = elements(xml, "pre", |_| true);
        assert_eq!(commands.iter().filter(|pre| pre.text() == Some(shown.as_str())).count(), 2, "{commands:?}");
        assert_eq!(elements(xml, "h1", |_| true)[0].text(), Some(shown.as_str()));
    });
}

#[test]
fn a_proof_of_nothing_is_a_report() {
    let mut proof = of(samples::measured(&load(0, Duration::from_millis(1)), &[], &[]));
    read(&proof, |html, _| {
        assert!(html.contains("no request was completed") && html.contains("no request failed"));
        assert!(html.contains("no event"));
    });
    proof.rows.clear();
    proof.interrupted = true;
    read(&proof, |html, _| assert!(html.contains("Interrupted")));
}

#[test]
fn a_single_slot_and_enormous_values_are_drawn() {
    read(&of(samples::measured(&load(1, Duration::from_millis(1)), &[], &[])), |_, xml| {
        assert_eq!(class(xml, "path", "band").len(), 1);
    });
    let mut measured =
        samples::measured(&load(10, Duration::from_secs(86_400)), &samples::events(3, Duration::MAX / 4), &[]);
    let mut series = Series::new();
    series.complete(Duration::ZERO, u64::MAX);
    series.complete(Duration::from_millis(15), u64::MAX);
    series.complete(Duration::from_millis(25), 0);
    measured.series = series;
    read(&of(measured), |_, xml| assert_eq!(class(xml, "path", "event").len(), 3 + 1));
}

#[test]
fn a_million_requests_and_many_events_are_a_small_report() {
    let events = samples::events(1_500, Duration::from_millis(100));
    let failures = [(FailureKind::Refused, 30_000), (FailureKind::Truncated, 5_000), (FailureKind::TimeoutWhole, 1)];
    let measured = samples::measured(&load(1_000_000, Duration::from_micros(150)), &events, &failures);
    assert!(measured.failures.len() < FAILURES_KEPT_MAX);
    let mut proof = of(measured);
    read(&proof, |html, xml| {
        assert!(html.len() < 160_000, "{}", html.len());
        let marks = class(xml, "path", "event");
        assert!((100..=230).contains(&marks.len()), "{}", marks.len());
        assert!(html.contains("1,500 events are drawn as"));
    });
    let row = proof.rows[0].clone();
    proof.rows.resize(12, row);
    assert!(proof.to_html().len() < 1_500_000);
}
