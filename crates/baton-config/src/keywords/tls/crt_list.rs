//! `crt-list` files (configuration manual, 5.1): a line for each certificate, `FILE [options] filters`.

use std::ops::Range;
use std::sync::Arc;

use baton_model::{CrtLine, CrtSource, Source};
use baton_rules::nearest;

use super::{FilePaths, ParameterNote, bind, options};
use crate::diagnostic::Severity;
use crate::lower::{Call, DefaultPath};
use crate::syntax::Line;

/// Most words of a line.
pub const MAX_LIST_WORDS: usize = 2048;

/// A line of a `crt-list` that is rejected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CrtListError {
    /// The bytes of the line that are at fault.
    pub at: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A line of a `crt-list` that is taken.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CrtListLine {
    /// What it says.
    pub line: CrtLine,
    /// What there is to say about words without an effect, and about what is left out.
    pub remarks: Vec<String>,
}

/// Reads one line, as it comes by the runtime API (`add ssl crt-list`). `None` when it says nothing.
///
/// # Errors
/// Why it is rejected.
pub fn crt_list_line(
    text: &str,
    source: Source,
    global: &baton_model::GlobalTls,
) -> Result<Option<CrtListLine>, CrtListError> {
    let bases = super::BaseDirectories::of(global);
    let places = FilePaths { bases: &bases, base: &DefaultPath::Current, config: "" };
    let parsed = line(text, source, &places)?;
    let said = |remark| match remark {
        ParameterNote::Nothing => None,
        ParameterNote::Notice(text) | ParameterNote::Warning(text) => Some(text),
    };
    Ok(parsed.map(|(line, remarks)| CrtListLine { line, remarks: remarks.into_iter().filter_map(said).collect() }))
}

/// Reads the file that word `at` of a line names, and says all that is wrong with it.
pub(super) fn read(name: &str, call: &mut Call<'_, '_>, at: usize) -> Option<CrtSource> {
    let path = call.context.path(&call.line.file, name);
    let content = match call.context.env.read(&path) {
        Ok(content) => content,
        Err(error) => {
            let message = format!("cannot open file '{name}' : {}", crate::environment::reason(&error));
            call.error(at, "cannot-open", message);
            return None;
        }
    };
    let Ok(text) = std::str::from_utf8(&content) else {
        call.error(at, "bad-value", format!("'{name}' is not valid UTF-8"));
        return None;
    };
    let file: Arc<str> = Arc::from(path.display().to_string());
    let mut list = Vec::new();
    for (number, text) in (1..).zip(text.split_inclusive('\n')) {
        if call.context.report.is_full() {
            return None;
        }
        let source = Source { file: file.clone(), line: number };
        let say = |call: &mut Call<'_, '_>, severity, id, at: Range<usize>, message: String, hint| {
            let place = Line::alone(file.clone(), number, text.trim_end());
            let mut diagnostic = place.marked(severity, id, at, message);
            diagnostic.hint = hint;
            call.context.report.add(diagnostic);
        };
        let Some(whole) = text.strip_suffix('\n') else {
            let message = "Missing LF on last line, file might have been truncated".to_string();
            say(call, Severity::Alert, "missing-lf", text.len()..text.len() + 1, message, None);
            break;
        };
        let parsed = line(whole, source, &call.context.places(&call.line.file));
        match parsed {
            Ok(None) => {}
            Ok(Some((line, remarks))) => {
                list.push(line);
                for remark in remarks {
                    let (severity, id, message) = match remark {
                        ParameterNote::Nothing => continue,
                        ParameterNote::Notice(message) => (Severity::Notice, "no-effect", message),
                        ParameterNote::Warning(message) => (Severity::Warning, "left-out", message),
                    };
                    // What a thousand lines have in common is said of the first.
                    if call.context.told.insert(((0, file.clone()), message.clone())) {
                        say(call, severity, id, 0..0, message, None);
                    }
                }
            }
            Err(fault) => say(call, Severity::Alert, "bad-crt-list", fault.at, fault.message, fault.hint),
        }
    }
    Some(CrtSource::List { path, lines: list.into() })
}

/// A word and where it stands; brackets are words of their own.
struct CrtListToken<'t> {
    text: &'t str,
    at: Range<usize>,
}

/// Words, up to a comment.
fn tokens(text: &str) -> Vec<CrtListToken<'_>> {
    let mut list = Vec::new();
    let mut start = None;
    let mut end = |start: &mut Option<usize>, at: usize| {
        if let Some(from) = start.take() {
            list.push(CrtListToken { text: &text[from..at], at: from..at });
        }
    };
    let mut brackets = Vec::new();
    let mut stop = text.len();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'#' if start.is_none() => {
                stop = at;
                break;
            }
            b'[' | b']' => {
                end(&mut start, at);
                brackets.push(CrtListToken { text: &text[at..at + 1], at: at..at + 1 });
            }
            byte if byte.is_ascii_whitespace() => end(&mut start, at),
            _ => {
                start.get_or_insert(at);
            }
        }
    }
    end(&mut start, stop);
    list.append(&mut brackets);
    list.sort_by_key(|token| token.at.start);
    list
}

/// Whether words are read as options or as filters.
enum CrtListPart {
    Certificate,
    Options,
    Filters { options: bool },
}

fn line(
    text: &str,
    source: Source,
    places: &FilePaths<'_>,
) -> Result<Option<(CrtLine, Vec<ParameterNote>)>, CrtListError> {
    let mut line = CrtLine { source, ..CrtLine::default() };
    let mut remarks = Vec::new();
    let mut part = CrtListPart::Certificate;
    let fault = |at: &Range<usize>, message: String| CrtListError { at: at.clone(), message, hint: None };
    let list = tokens(text);
    if list.len() > MAX_LIST_WORDS {
        return Err(fault(&(0..text.len()), format!("the line has more than {MAX_LIST_WORDS} arguments")));
    }
    let mut words = list.into_iter();
    let mut last = 0..0;
    while let Some(CrtListToken { text: word, at }) = words.next() {
        last = at.clone();
        part = match (part, word) {
            (CrtListPart::Certificate, "[" | "]") => {
                return Err(fault(&at, "the line must start with a certificate".into()));
            }
            (CrtListPart::Certificate, name) => {
                line.crt = places.crt(name);
                CrtListPart::Filters { options: false }
            }
            (CrtListPart::Filters { options: false }, "[") => {
                if !line.filters.is_empty() {
                    let text = "filters can't be between filename and options: write them after ']'";
                    remarks.push(ParameterNote::Warning(text.into()));
                }
                CrtListPart::Options
            }
            (CrtListPart::Filters { options: true } | CrtListPart::Options, "[") => {
                return Err(fault(&at, "too many '['".into()));
            }
            (CrtListPart::Options, "]") => CrtListPart::Filters { options: true },
            (CrtListPart::Filters { options: true }, "]") => return Err(fault(&at, "too many ']'".into())),
            (CrtListPart::Filters { options: false }, "]") => return Err(fault(&at, "missing '['".into())),
            (CrtListPart::Filters { options }, filter) => {
                line.filters.push(filter.into());
                CrtListPart::Filters { options }
            }
            (CrtListPart::Options, word) => {
                let Some(row) = options::find(word) else { return Err(unknown(word, &at)) };
                let value = match row.args {
                    0 => "",
                    _ => match words.next() {
                        Some(CrtListToken { text, .. }) if !matches!(text, "[" | "]") => text,
                        _ => return Err(fault(&at, format!("'{word}' : missing {}", bind::missing(word)))),
                    },
                };
                let remark = (row.apply)(&mut line.options, value, places);
                let remark = remark.map_err(|wrong| CrtListError {
                    at: at.start..at.end + if row.args > 0 { value.len() + 1 } else { 0 },
                    message: format!("'{word}' : {}", wrong.message),
                    hint: wrong.hint,
                })?;
                if remark != ParameterNote::Nothing {
                    remarks.push(remark);
                }
                CrtListPart::Options
            }
        };
    }
    match part {
        CrtListPart::Certificate => Ok(None),
        CrtListPart::Options => Err(fault(&last, "the options are not closed: missing ']'".into())),
        CrtListPart::Filters { .. } => Ok(Some((line, remarks))),
    }
}

fn unknown(word: &str, at: &Range<usize>) -> CrtListError {
    let on_bind = bind::ROWS.iter().any(|row| row.name == word);
    let guess = nearest(word, options::words()).map(|name| format!("; did you mean '{name}' maybe ?"));
    CrtListError {
        at: at.clone(),
        message: format!("unknown ssl keyword '{word}'{}", guess.unwrap_or_default()),
        hint: on_bind.then(|| format!("'{word}' belongs on the 'bind' line, as it applies to all its certificates")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_model::GlobalTls;

    fn check(text: &str, expect: Result<&str, &str>) {
        let global = GlobalTls { crt_base: Some("/crt".into()), ..GlobalTls::default() };
        let shown = match crt_list_line(text, Source::default(), &global) {
            Ok(None) => Ok(String::new()),
            Ok(Some(CrtListLine { line, remarks })) => Ok(format!(
                "{} {:?} {} {}",
                line.crt.display(),
                line.options.alpn.unwrap_or_default(),
                line.filters.join(","),
                remarks.join("; ")
            )),
            Err(fault) => Err(format!("{} at {:?}", fault.message, fault.at)),
        };
        match (shown, expect) {
            (Ok(shown), Ok(expect)) => assert_eq!(shown.trim_end(), expect, "{text}"),
            (Err(shown), Err(expect)) => assert_eq!(shown, expect, "{text}"),
            (shown, expect) => panic!("{text}: {shown:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn lines() {
        check("", Ok(""));
        check("  # a.pem", Ok(""));
        check("a.pem", Ok("/crt/a.pem []"));
        check("/x/a.pem *.a !b.a # c", Ok("/x/a.pem [] *.a,!b.a"));
        check("a.pem[alpn a,b]x ", Ok(r#"/crt/a.pem ["a", "b"] x"#));
        check("@s/a [] *", Ok("@s/a [] *"));
        check("a.pem\r", Ok("/crt/a.pem []"));
        let remark = "filters can't be between filename and options: write them after ']'";
        check("a.pem x [alpn a]", Ok(&format!(r#"/crt/a.pem ["a"] x {remark}"#)));
    }

    #[test]
    fn faults() {
        check("[alpn a]", Err("the line must start with a certificate at 0..1"));
        check("a [alpn a", Err("the options are not closed: missing ']' at 3..7"));
        check("a [alpn] x", Err("'alpn' : missing the comma-delimited ALPN protocol suite at 3..7"));
        check("a [foo] x", Err("unknown ssl keyword 'foo' at 3..6"));
        check("a [vreify none]", Err("unknown ssl keyword 'vreify'; did you mean 'verify' maybe ? at 3..9"));
        check("a [] []", Err("too many '[' at 5..6"));
        check("a [[alpn a]]", Err("too many '[' at 3..4"));
        check("a x]", Err("missing '[' at 3..4"));
        check("a [] x]", Err("too many ']' at 6..7"));
        check(&"a ".repeat(MAX_LIST_WORDS + 1), Err("the line has more than 2048 arguments at 0..4098"));
    }

    #[test]
    fn words_of_bind_lines_are_told_apart() {
        let fault = crt_list_line("a [strict-sni]", Source::default(), &GlobalTls::default()).expect_err("unknown");
        assert!(fault.hint.is_some_and(|hint| hint.contains("bind")));
    }
}
