//! Text of another process, before it is shown on a terminal or written to a log.
//!
//! Control characters move a terminal's cursor, change its title or clear what stood there, and characters that turn the direction of
//! writing make a line look like another one. They are shown as escapes.

use std::borrow::Cow;

use baton_config::is_unprintable;
use serde_json::Value;

/// The text on one line: everything that is not to be shown as it is becomes `\n`, `\u{1b}` and the like.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Escapes text of several lines: ends of lines and tabulators stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |character| matches!(character, '\n' | '\t'))
}

/// Every text in a JSON value, as [`lines`].
pub(crate) fn value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(escaped) = lines(text) {
                *text = escaped;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(self::value),
        Value::Object(fields) => {
            let odd: Vec<String> = fields.keys().filter(|key| matches!(lines(key), Cow::Owned(_))).cloned().collect();
            for key in odd {
                if let Some(value) = fields.remove(&key) {
                    fields.insert(lines(&key).into_owned(), value);
                }
            }
            fields.values_mut().for_each(self::value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a JSON text may hold something that [`value`] would change. It may say so without need.
pub(crate) fn is_suspicious(json: &str) -> bool {
    json.contains("\\u")
        || json.contains("\\b")
        || json.contains("\\f")
        || json.contains("\\r")
        || json.chars().any(|character| !matches!(character, '\n' | '\t') && is_unprintable(character))
}

fn escape(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|character| is_unprintable(character) && !is_kept(character)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match is_unprintable(character) && !is_kept(character) {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_steered() {
        let check = |text: &str, one: &str, several: &str| {
            assert_eq!((&*line(text), &*lines(text)), (one, several));
        };
        check("no such file: /é", "no such file: /é", "no such file: /é");
        check("a\nb\tc", "a\\nb\\tc", "a\nb\tc");
        check("\u{1b}[2Jgone\r", "\\u{1b}[2Jgone\\r", "\\u{1b}[2Jgone\\r");
        check("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}", "\\u{9b}2J\\u{7f}");
        check("x\u{202e}txt.exe", "x\\u{202e}txt.exe", "x\\u{202e}txt.exe");
    }

    #[test]
    fn every_text_of_an_answer_is_looked_at() {
        let json = r#"{"a":["\u001b[31m",{"k\u0007":"x"}],"n":1,"ok":"two\nlines"}"#;
        assert!(is_suspicious(json) && !is_suspicious(r#"{"ok":"two\nlines"}"#));
        let mut found: Value = serde_json::from_str(json).unwrap();
        value(&mut found);
        let expect = serde_json::json!({"a": ["\\u{1b}[31m", {"k\\u{7}": "x"}], "n": 1, "ok": "two\nlines"});
        assert_eq!(found, expect);
    }
}
