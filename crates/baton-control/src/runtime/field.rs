//! Values with a name and a meaning, and the forms in which they are printed: plain, typed and JSON (management guide, 9.2).

use std::fmt::{self, Write as _};

/// What is known of a value whoever has it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Origin, nature and scope, one letter each.
    pub tag: &'static str,
    /// What it is, in a few words.
    pub doc: &'static str,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// There is none: an empty cell, and no line in the other forms.
    #[default]
    None,
    /// A number below 2^32.
    U32(u32),
    /// A number.
    U64(u64),
    /// A number that may be negative.
    S32(i32),
    /// A fraction, seconds mostly.
    Float(f64),
    /// A text.
    Text(String),
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// A number that is cut to 32 bits.
    pub fn count(number: u64) -> Value {
        Value::U32(u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// A gauge, which another thread may just be changing: never below zero.
    pub fn gauge(number: i64) -> Value {
        Value::count(u64::try_from(number).unwrap_or_default())
    }

    /// The number; `None` for a text, and when there is none.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::None | Value::Text(_) => None,
            Value::U32(number) => Some((*number).into()),
            Value::U64(number) => Some(*number as f64),
            Value::S32(number) => Some((*number).into()),
            Value::Float(number) => Some(*number),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Value::None => "",
            Value::U32(_) => "u32",
            Value::U64(_) => "u64",
            Value::S32(_) => "s32",
            Value::Float(_) => "flt",
            Value::Text(_) => "str",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => Ok(()),
            Value::U32(number) => write!(out, "{number}"),
            Value::U64(number) => write!(out, "{number}"),
            Value::S32(number) => write!(out, "{number}"),
            // Microseconds, without zeros that say nothing.
            Value::Float(number) => {
                let text = format!("{number:.6}");
                out.write_str(text.trim_end_matches('0').trim_end_matches('.'))
            }
            // A line is a line, whatever a server sent.
            Value::Text(text) => {
                text.chars().try_for_each(|char| out.write_char(if char == '\n' { ' ' } else { char }))
            }
        }
    }
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Format {
    /// Which form.
    pub form: Form,
    /// `desc`: what it is stands behind each value.
    pub described: bool,
    /// `float`: fractions where there are any.
    pub exact: bool,
}

/// The form of an output.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Form {
    /// Lines or a table for people and old tools.
    #[default]
    Plain,
    /// One value on each line, with its type.
    Typed,
    /// JSON.
    Json,
}

impl Format {
    /// What the words of a command ask for. The last word that names a form wins; other words are none of ours.
    pub fn of(words: &[String]) -> Format {
        let mut format = Format::default();
        for word in words {
            match word.as_str() {
                "typed" => format.form = Form::Typed,
                "json" => format.form = Form::Json,
                "desc" => format.described = true,
                "float" => format.exact = true,
                _ => {}
            }
        }
        format
    }
}

/// One value in the typed form: `whose` stands in front of its position.
pub fn typed(out: &mut String, whose: &str, at: usize, field: &Field, tag: &str, value: &Value, described: bool) {
    let (name, kind) = (field.name, value.kind());
    // Writing to a string cannot fail, here and below.
    let _ = write!(out, "{whose}{at}.{name}.1:{tag}:{kind}:{value}");
    describe(out, field, described);
}

/// The words behind a value, if they are wanted, and the end of the line.
pub fn describe(out: &mut String, field: &Field, described: bool) {
    if described {
        let _ = write!(out, ":\"{}\"", field.doc);
    }
    out.push('\n');
}

/// One value as JSON: `whose` stands before its name.
pub fn json(out: &mut String, whose: &str, at: usize, field: &Field, tag: &str, value: &Value) {
    let word = |at: usize| words_of(tag.as_bytes().get(at).copied().unwrap_or_default(), at);
    let _ = write!(
        out,
        "{{{whose}\"field\":{{\"pos\":{at},\"name\":\"{}\"}},\"processNum\":1,\"tags\":{{\"origin\":\"{}\",\"nature\":\"{}\",\
         \"scope\":\"{}\"}},\"value\":{{\"type\":\"{}\",\"value\":",
        field.name,
        word(0),
        word(1),
        word(2),
        value.kind(),
    );
    match value {
        Value::Text(text) => out.push_str(&serde_json::Value::from(text.as_str()).to_string()),
        value => drop(write!(out, "{value}")),
    }
    out.push_str("}}");
}

/// The word for a letter of a tag, by its place.
fn words_of(letter: u8, place: usize) -> &'static str {
    match (place, letter) {
        (0, b'M') => "Metric",
        (0, b'S') => "Status",
        (0, b'K') => "Key",
        (0, b'C') => "Config",
        (0, b'P') => "Product",
        (1, b'A') => "Age",
        (1, b'a') => "Avg",
        (1, b'C') => "Counter",
        (1, b'D') => "Duration",
        (1, b'G') => "Gauge",
        (1, b'L') => "Limit",
        (1, b'M') => "Max",
        (1, b'm') => "Min",
        (1, b'N') => "Name",
        (1, b'O') => "Output",
        (1, b'R') => "Rate",
        (1, b'T') => "Time",
        (2, b'C') => "Cluster",
        (2, b'P') => "Process",
        (2, b'S') => "Service",
        (2, b's') => "System",
        _ => "Unknown",
    }
}

/// A cell of a CSV table: quoted where it would be misread.
pub fn csv(out: &mut String, value: &Value) {
    match value {
        Value::Text(text) if text.contains([',', '"', '\n']) => {
            out.push('"');
            out.push_str(&Value::text(text.replace('"', "\"\"")).to_string());
            out.push('"');
        }
        value => drop(write!(out, "{value}")),
    }
    out.push(',');
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: Field = Field { name: "qcur", tag: "MGP", doc: "waiting" };

    #[test]
    fn one_value_in_three_forms() {
        let check = |value: Value, expect_typed: &str, expect_json: &str, expect_csv: &str| {
            let (mut line, mut object, mut cell) = (String::new(), String::new(), String::new());
            typed(&mut line, "B.3.0.", 2, &FIELD, FIELD.tag, &value, true);
            assert_eq!(line, format!("B.3.0.2.qcur.1:MGP:{expect_typed}:\"waiting\"\n"));
            json(&mut object, "\"id\":0,", 2, &FIELD, FIELD.tag, &value);
            let read: serde_json::Value = serde_json::from_str(&object).expect(&object);
            assert_eq!(read["value"]["value"].to_string(), expect_json);
            assert_eq!((&read["tags"]["nature"], &read["id"]), (&"Gauge".into(), &0.into()));
            csv(&mut cell, &value);
            assert_eq!(cell, expect_csv);
        };
        check(Value::U32(7), "u32:7", "7", "7,");
        check(Value::S32(-1), "s32:-1", "-1", "-1,");
        check(Value::Float(1.5), "flt:1.5", "1.5", "1.5,");
        check(Value::Float(0.0), "flt:0", "0", "0,");
        check(Value::text("a,\"b\"\nc"), "str:a,\"b\" c", r#""a,\"b\"\nc""#, "\"a,\"\"b\"\" c\",");
    }

    #[test]
    fn the_last_form_wins() {
        let check = |words: &str, form: Form, described, exact| {
            let words: Vec<String> = words.split_whitespace().map(String::from).collect();
            assert_eq!(Format::of(&words), Format { form, described, exact });
        };
        check("", Form::Plain, false, false);
        check("typed desc", Form::Typed, true, false);
        check("typed json float up", Form::Json, false, true);
    }
}
