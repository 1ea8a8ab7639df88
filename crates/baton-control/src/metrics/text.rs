//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use crate::runtime::field::Value;

/// What stands in front of the series of a family.
pub fn head(out: &mut String, prefix: &str, name: &str, help: &str, metric_type: &str) {
    let _ = writeln!(out, "# HELP {prefix}{name} {}", escaped_help(help));
    let _ = writeln!(out, "# TYPE {prefix}{name} {metric_type}");
}

/// A label with its value.
pub fn label(out: &mut String, name: &str, value: &Value) {
    match value {
        Value::Text(text) => label_text(out, name, text),
        value => label_text(out, name, &value.to_string()),
    }
}

/// A label with a text as its value: backslashes, quotes and ends of lines are escaped.
pub fn label_text(out: &mut String, name: &str, text: &str) {
    out.push_str(name);
    out.push_str("=\"");
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            char => out.push(char),
        }
    }
    out.push('"');
}

/// A series: its name in two parts, its labels, of which there may be none, and its value.
pub fn series(out: &mut String, prefix: &str, name: &str, labels: &[&str], value: f64, is_exact: bool) {
    out.push_str(prefix);
    out.push_str(name);
    let mut labels = labels.iter().filter(|label| !label.is_empty());
    if let Some(first) = labels.next() {
        out.push('{');
        out.push_str(first);
        for label in labels {
            out.push(',');
            out.push_str(label);
        }
        out.push('}');
    }
    out.push(' ');
    number(out, value, is_exact);
    out.push('\n');
}

/// A number: with microseconds where it is a time, else as short as it can be.
fn number(out: &mut String, value: f64, is_exact: bool) {
    // Writing to a string cannot fail.
    let _ = match (value.is_nan(), is_exact) {
        (true, _) => out.write_str("NaN"),
        (false, true) => write!(out, "{value:.6}"),
        (false, false) => write!(out, "{value}"),
    };
}

fn escaped_help(help: &str) -> String {
    help.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_are_labels() {
        let check = |name: &str, expect: &str| {
            let mut out = String::new();
            label_text(&mut out, "proxy", name);
            assert_eq!(out, expect);
        };
        check("app", r#"proxy="app""#);
        check("t\"w\\x\ny", r#"proxy="t\"w\\x\ny""#);
        check("ä{}", "proxy=\"ä{}\"");
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let check = |value: f64, is_exact, expect: &str| {
            let mut out = String::new();
            series(&mut out, "a_", "b", &["", "c=\"d\"", ""], value, is_exact);
            assert_eq!(out, format!("a_b{{c=\"d\"}} {expect}\n"));
        };
        check(0.0, false, "0");
        check(-1.0, false, "-1");
        check(9_007_199_254_740_991.0, false, "9007199254740991");
        check(0.012, true, "0.012000");
        check(1.5, false, "1.5");
        check(f64::NAN, true, "NaN");
        let mut out = String::new();
        series(&mut out, "a_", "b", &[], 1.0, false);
        assert_eq!(out, "a_b 1\n");
    }
}
