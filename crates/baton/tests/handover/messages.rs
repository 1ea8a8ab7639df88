//! A sample of each message of each version, kept for ever: what one version wrote is understood by all later ones.

use std::fs;
use std::path::Path;

use baton_control::handover::message::{Message, VERSIONS};

/// Where the samples are: a folder for each version, a line for each message.
fn samples(version: u32) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/handover/samples/{version}.jsonl"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn samples_of_every_version_are_understood() {
    for version in 1..=*VERSIONS.iter().max().expect("one at least") {
        for line in samples(version).lines() {
            let message: Message = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_ne!(message, Message::Unknown, "{line}");
        }
    }
}

#[test]
fn the_first_version_is_written_as_it_ever_was() {
    for line in samples(1).lines() {
        let message: Message = serde_json::from_str(line).expect("tried above");
        let written = serde_json::to_value(&message).expect("a message can be written");
        let sample: serde_json::Value = serde_json::from_str(line).expect("tried above");
        assert_eq!(written, sample);
    }
}

#[test]
fn what_a_later_version_adds_is_ignored() {
    let check = |line: &str, expect: &str| {
        let message: Message = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(serde_json::to_string(&message).expect("it can be written"), expect);
    };
    check(
        r#"{"say":"hello","versions":[1],"pid":7,"mood":{"good":true}}"#,
        r#"{"say":"hello","versions":[1],"pid":7,"program":""}"#,
    );
    check(r#"{"say":"send","more":1}"#, r#"{"say":"send"}"#);
    check(r#"{"say":"sing","song":"x"}"#, r#"{"say":"unknown"}"#);
    check(
        r#"{"say":"refused","kind":"sulking","reason":"x"}"#,
        r#"{"say":"refused","kind":"never","reason":"x","successor":null}"#,
    );
    check(r#"{"say":"ready","stop":"tomorrow"}"#, r#"{"say":"ready","pid":0,"taken":[],"stop":"soft"}"#);
}
