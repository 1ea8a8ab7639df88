//! Entries of maps and ACLs that were changed at run time, as [`OverrideRecord`]s: by them, they reach other processes, and stay with the master.
//!
//! The backend of such a record is the file, or the line of an ACL; its server is the key, and its values are JSON lists, in which `null`
//! is a pattern without a value. Bytes that are no UTF-8 are written as `\\xHH`.

use baton_rules::{ChangedKey, Values};

use super::{OverrideKey, OverrideRecord};

/// The field of an entry.
pub const ENTRY: &str = "entry";

/// A change as a record. Who made it, and when, is not known: requests change entries, too.
pub fn record(title: &str, change: &ChangedKey) -> OverrideRecord {
    OverrideRecord {
        backend: title.to_owned(),
        server: escaped(&change.key),
        field: ENTRY.into(),
        value: list(&change.live),
        file: list(&change.file),
        ..OverrideRecord::default()
    }
}

/// The key under which it is kept.
pub fn key(title: &str, change: &ChangedKey) -> OverrideKey {
    OverrideKey {
        backend: title.to_owned(),
        server: escaped(&change.key),
        field: ENTRY.into(),
        ..OverrideKey::default()
    }
}

/// What a record says, with the title; `None` of another field, or if it is malformed.
pub fn read(record: &OverrideRecord) -> Option<(&str, ChangedKey)> {
    (record.field == ENTRY).then_some(())?;
    let values = |text: &str| -> Option<Values> {
        let list: Vec<Option<String>> = serde_json::from_str(text).ok()?;
        Some(list.into_iter().map(|value| value.map(|text| bytes(&text))).collect())
    };
    let change = ChangedKey { key: bytes(&record.server), file: values(&record.file)?, live: values(&record.value)? };
    Some((&record.backend, change))
}

fn list(values: &Values) -> String {
    let list: Vec<Option<String>> = values.iter().map(|value| value.as_deref().map(escaped)).collect();
    // A list of texts can be written.
    serde_json::to_string(&list).unwrap_or_default()
}

/// As text; bytes that are no UTF-8, and backslashes, as `\\xHH`.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&chunk.valid().replace('\\', "\\x5c"));
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

/// What [`escaped`] wrote.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let digits = match tail {
            [b'x', high, low, ..] if *byte == b'\\' => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok())
            }
            _ => None,
        };
        out.push(digits.unwrap_or(*byte));
        rest = if digits.is_some() { &tail[3..] } else { tail };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_these_records_for_ever() {
        let check = |key: &[u8], live: &[Option<&[u8]>], server: &str, value: &str| {
            let own = |list: &[Option<&[u8]>]| list.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
            let change = ChangedKey { key: key.to_vec(), file: own(&[None]), live: own(live) };
            let record = record("/etc/hosts.map", &change);
            assert_eq!(
                (record.server.as_str(), record.value.as_str(), record.file.as_str()),
                (server, value, "[null]")
            );
            assert_eq!((record.backend.as_str(), record.field.as_str()), ("/etc/hosts.map", "entry"));
            assert_eq!(read(&record), Some(("/etc/hosts.map", change)));
        };
        check(b"a.example", &[Some(b"one two"), Some(b"")], "a.example", "[\"one two\",\"\"]");
        check(b"caf\xe9 \xc3\xa9 \\", &[], "caf\\xe9 \u{e9} \\x5c", "[]");
        check(b"\n\"", &[Some(b"\r\"\\x41")], "\n\"", "[\"\\r\\\"\\\\x5cx41\"]");
        assert_eq!(read(&OverrideRecord { field: "weight".into(), ..OverrideRecord::default() }), None);
        assert_eq!(read(&OverrideRecord { field: ENTRY.into(), value: "x".into(), ..OverrideRecord::default() }), None);
    }
}
