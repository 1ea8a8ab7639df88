//! A sample of each message of each version, kept for ever: what one version wrote is understood by all later ones. Version 1 is lines
//! of JSON, version 2 the same messages in frames, as they are between processes. A line that is added comes last; `BATON_UPDATE=1` then adds its
//! frame.

use std::fs;
use std::path::{Path, PathBuf};

use baton_control::handover::message::Message;
use baton_control::handover::wire::{Encoder, Incoming, WireVersion};
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/handover/samples").join(name)
}

fn sample(name: &str) -> Vec<u8> {
    let path = path(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A line for each message of the first version.
fn lines() -> Vec<String> {
    String::from_utf8(sample("1.jsonl")).expect("text").lines().map(str::to_owned).collect()
}

/// Messages of the first version.
fn messages() -> Vec<Message> {
    let message = |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    lines().iter().map(message).collect()
}

#[test]
fn samples_of_the_first_version_are_understood() {
    for (message, line) in messages().iter().zip(lines()) {
        assert_ne!(*message, Message::Unknown, "{line}");
    }
}

#[test]
fn samples_of_the_second_version_are_understood_and_written_as_they_ever_were() {
    let sample = sample("2.frames");
    let mut incoming = Incoming::of(WireVersion::Frames);
    incoming.bytes().extend_from_slice(&sample);
    let mut understood = Vec::new();
    while let Some(arrival) = incoming.arrival().expect("they were written by us") {
        understood.extend(arrival.message);
    }
    assert!(incoming.is_between_frames() && incoming.skipped().is_empty());
    let written = written(messages());
    if std::env::var_os("BATON_UPDATE").is_some() {
        // What was written once stays.
        assert!(written.starts_with(&sample));
        fs::write(path("2.frames"), &written).expect("the tree can be written");
        return;
    }
    assert_eq!(understood, messages());
    assert_eq!(written, sample);
}

/// These messages in frames.
fn written(messages: Vec<Message>) -> Vec<u8> {
    let (mut encoder, mut written) = (Encoder::default(), Vec::new());
    encoder.speak(WireVersion::Frames);
    for message in messages {
        let descriptors = match &message {
            Message::Sockets(sockets) => sockets.sockets.len(),
            Message::Tables(tables) => tables.tables.len(),
            Message::Give(give) => give.descriptors as usize,
            Message::Servers(servers) => servers.servers.len(),
            _ => 0,
        };
        let mut message = encoder.message(message);
        while let Some(part) = encoder.next(&mut message, descriptors).expect("it is short") {
            written.extend_from_slice(&part.bytes);
        }
    }
    written
}

/// Without the fields that are as in a process that has just begun, which may be written or left out.
fn sparse(value: Value) -> Value {
    let is_something = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(is_set) => *is_set,
        Value::Number(number) => number.as_u64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, sparse(value)));
            Value::Object(fields.filter(|(_, value)| is_something(value)).collect())
        }
        other => other,
    }
}

#[test]
fn the_first_version_is_written_as_it_ever_was() {
    for line in &lines() {
        let message: Message = serde_json::from_str(line).expect("tried above");
        let written = serde_json::to_value(&message).expect("a message can be written");
        let sample: Value = serde_json::from_str(line).expect("tried above");
        assert_eq!(sparse(written), sparse(sample));
    }
}

#[test]
fn what_is_as_at_the_start_is_left_out() {
    let check = |line: &str, expect: &str| {
        let message: Message = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(serde_json::to_string(&message).expect("it can be written"), expect);
        assert_eq!(serde_json::from_str::<Message>(expect).expect("it was written by us"), message);
    };
    let said = r#"{"say":"state","counts":{"frontends":{},"backends":{"b":{"counters":{"stot":0,"nosuch":1},"open_max":0,"servers":{"s":{"counters":{"lbtot":2},"open":0}}}}},"backends":{"b":{"waiting_max":0,"active":{"position":0,"places":{}},"servers":{"s":{"health":"down","since_ms":0,"downs":0,"warming_ms":null,"check":{"status":"","rise":2}}}}}}"#;
    let short = r#"{"say":"state","counts":{"frontends":{},"backends":{"b":{"servers":{"s":{"counters":{"lbtot":2}}}}}},"backends":{"b":{"servers":{"s":{"health":"down","check":{"rise":2}}}}}}"#;
    check(said, short);
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
    check(r#"{"to":7,"more":{"x":1},"say":"moved"}"#, r#"{"say":"moved","to":7}"#);
    check(r#"{"say":"send","more":1}"#, r#"{"say":"send"}"#);
    check(r#"{"say":"sing","song":"x"}"#, r#"{"say":"unknown"}"#);
    check(
        r#"{"say":"refused","kind":"sulking","reason":"x"}"#,
        r#"{"say":"refused","kind":"never","reason":"x","successor":null}"#,
    );
    check(r#"{"say":"ready","stop":"tomorrow"}"#, r#"{"say":"ready","pid":0,"taken":[],"stop":"soft"}"#);
}
