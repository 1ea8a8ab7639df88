//! `show schema json`: a schema (draft 4) of what `show info json` and `show stat json` print, with the titles and definitions of HAProxy's.
//! Unlike HAProxy's it accepts the output: a row of `show stat` is a list of its values.

use serde_json::{Value, json};

use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// `show schema json`.
pub(super) fn show(_: &Control, _: &Call) -> CommandResponse {
    CommandResponse::Data(text())
}

/// The schema on a line.
pub(crate) fn text() -> String {
    format!("{}\n", schema())
}

fn schema() -> Value {
    let item = |own: &[(&str, Value)]| {
        let common = ["field", "processNum", "tags"].map(|name| (name, reference(name)));
        let value = [("value", reference("typedValue"))];
        let all: Vec<_> = own.iter().cloned().chain(common).chain(value).collect();
        let required: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let properties: serde_json::Map<String, Value> =
            all.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        json!({"title": "InfoItem", "type": "object", "properties": properties, "required": required})
    };
    let natural = json!({"type": "integer", "minimum": 0});
    let kinds = json!({"enum": ["Frontend", "Backend", "Listener", "Server", "Unknown"]});
    let row = item(&[("objType", kinds), ("proxyId", natural.clone()), ("id", natural.clone())]);
    json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "oneOf": [
            {"title": "Info", "type": "array", "items": item(&[])},
            {"title": "Stat", "type": "array", "items": {"type": "array", "items": row}},
            {
                "title": "Error",
                "type": "object",
                "properties": {"errorStr": {"type": "string"}},
                "required": ["errorStr"],
            },
        ],
        "definitions": {
            "field": object(&[("pos", natural), ("name", json!({"type": "string"}))]),
            "processNum": {"type": "integer", "minimum": 1},
            "tags": object(&[
                ("origin", words(&["Metric", "Status", "Key", "Config", "Product", "Unknown"])),
                ("nature", words(&[
                    "Gauge", "Limit", "Min", "Max", "Rate", "Counter", "Duration", "Age", "Time", "Name", "Output", "Avg", "Unknown",
                ])),
                ("scope", words(&["Cluster", "Process", "Service", "System", "Unknown"])),
            ]),
            "typedValue": {
                "type": "object",
                "oneOf": [
                    value("s32", json!({"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX})),
                    value("u32", json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})),
                    value("u64", json!({"type": "integer", "minimum": 0})),
                    value("flt", json!({"type": "number"})),
                    value("str", json!({"type": "string"})),
                ],
            },
        },
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

fn words(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

fn object(fields: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn value(kind: &str, value: Value) -> Value {
    object(&[("type", words(&[kind])), ("value", value)])
}
