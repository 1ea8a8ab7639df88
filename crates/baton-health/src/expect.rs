//! `http-check expect`: what a response has to look like (configuration manual, 4.2).

use std::borrow::Cow;
use std::ops::RangeInclusive;

use baton_rules::{Files, Format, check_format};
use regex::bytes::Regex;

use crate::response::Head;
use crate::{Report, Status};

/// One expectation, compiled.
#[derive(Clone, Debug)]
pub struct Expect {
    negated: bool,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Status(Vec<RangeInclusive<u16>>),
    StatusRegex(Regex),
    Text(Needle),
    TextRegex(Regex),
    /// `whole`: `fhdr`, a value with commas is one.
    Header {
        name: Pattern,
        value: Option<Pattern>,
        whole: bool,
    },
}

/// `-m METHOD PATTERN` of a header's name or value.
#[derive(Clone, Debug)]
enum Pattern {
    Exact(Needle),
    Begin(Needle),
    End(Needle),
    Inside(Needle),
    Regex(Regex),
}

/// A text that is looked for.
#[derive(Clone, Debug)]
enum Needle {
    Plain(Vec<u8>),
    Format(Format),
}

/// Writes the text of a format.
pub type Render<'a> = dyn FnMut(&Format) -> Vec<u8> + 'a;

impl Needle {
    fn text<'n>(&'n self, render: &mut Render<'_>) -> Cow<'n, [u8]> {
        match self {
            Needle::Plain(text) => Cow::Borrowed(text),
            Needle::Format(format) => Cow::Owned(render(format)),
        }
    }
}

/// How an expectation stands to what has come of a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Judgement {
    /// It is met.
    Met,
    /// What is still to come decides.
    Pending,
    /// It is not met.
    Failed(Report),
}

impl Expect {
    /// Compiles the words after `expect`; the error says what is wrong with them.
    pub fn compile(negated: bool, kind: &str, words: &[String], files: &dyn Files) -> Result<Expect, String> {
        let first = || words.first().map(String::as_str).ok_or(format!("'expect {kind}' needs a pattern"));
        let regex = |text: &str| Regex::new(text).map_err(|error| format!("'{text}': {error}"));
        let what = match kind {
            "status" => What::Status(first()?.split(',').map(status_range).collect::<Result<_, _>>()?),
            "rstatus" => What::StatusRegex(regex(first()?)?),
            "string" => What::Text(Needle::Plain(first()?.as_bytes().to_vec())),
            "string-lf" => What::Text(needle_format(first()?, files)?),
            "rstring" => What::TextRegex(regex(first()?)?),
            "hdr" | "fhdr" => header(words, kind == "fhdr", files)?,
            other => return Err(format!("unknown type '{other}' of 'http-check expect'")),
        };
        Ok(Expect { negated, what })
    }

    /// `status 200-399`: what is expected when nothing is said.
    pub fn usual() -> Expect {
        Expect { negated: false, what: What::Status(vec![200..=399]) }
    }

    /// Whether formats are, or may be, a part of it.
    pub(crate) fn evaluates(&self) -> bool {
        match self.what {
            What::Status(_) | What::StatusRegex(_) | What::Text(Needle::Plain(_)) | What::TextRegex(_) => false,
            What::Text(Needle::Format(_)) | What::Header { .. } => true,
        }
    }

    /// Judges what has come: its `head`, and of its body so much `content`. `is_over`: nothing follows. A pattern is looked for in what
    /// is there, so that what is found is decided before the body ends.
    pub fn judge(&self, head: &Head, content: &[u8], is_over: bool, render: &mut Render<'_>) -> Judgement {
        let is_met = match &self.what {
            What::Status(ranges) => ranges.iter().any(|range| range.contains(&head.status)),
            What::StatusRegex(regex) => regex.is_match(head.status.to_string().as_bytes()),
            What::Header { name, value, whole } => has_field(head, name, value.as_ref(), *whole, render),
            What::Text(text) => {
                let text = text.text(render);
                return self.judge_body(content, is_over, |content| contains(content, &text));
            }
            What::TextRegex(regex) => return self.judge_body(content, is_over, |content| regex.is_match(content)),
        };
        if is_met != self.negated {
            return Judgement::Met;
        }
        let report = Report::new(Status::L7Status).info(head.reason.as_str());
        Judgement::Failed(Report { code: Some(head.status), ..report })
    }

    fn judge_body(&self, content: &[u8], is_over: bool, is_in: impl Fn(&[u8]) -> bool) -> Judgement {
        let failed = |info| Judgement::Failed(Report::new(Status::L7Response).info(info));
        match (content.is_empty(), is_in(content), is_over) {
            (true, _, true) => failed("HTTP content check could not find a response body"),
            (true, _, false) | (false, false, false) => Judgement::Pending,
            (false, is_found, _) if is_found != self.negated => Judgement::Met,
            (false, true, _) => failed("HTTP check matched unwanted content"),
            (false, false, true) => failed("HTTP content check did not match"),
        }
    }
}

fn has_field(head: &Head, name: &Pattern, value: Option<&Pattern>, whole: bool, render: &mut Render<'_>) -> bool {
    head.fields.iter().any(|(field, text)| {
        name.matches(field, Case::Ignored, render)
            && match (value, whole) {
                (None, _) => true,
                (Some(value), true) => value.matches(text.trim_ascii(), Case::Counts, render),
                (Some(value), false) => {
                    text.split(|byte| *byte == b',').any(|part| value.matches(part.trim_ascii(), Case::Counts, render))
                }
            }
    })
}

#[derive(Clone, Copy)]
enum Case {
    Counts,
    Ignored,
}

impl Pattern {
    fn compile(method: &str, text: &str, format: Option<&dyn Files>) -> Result<Pattern, String> {
        let needle = || match format {
            Some(files) => needle_format(text, files),
            None => Ok(Needle::Plain(text.into())),
        };
        Ok(match method {
            "str" => Pattern::Exact(needle()?),
            "beg" => Pattern::Begin(needle()?),
            "end" => Pattern::End(needle()?),
            "sub" => Pattern::Inside(needle()?),
            "reg" if format.is_some() => return Err("a regular expression cannot be a log-format string".into()),
            "reg" => Pattern::Regex(Regex::new(text).map_err(|error| format!("'{text}': {error}"))?),
            other => return Err(format!("'{other}' is not a matching method (str, beg, end, sub, reg)")),
        })
    }

    fn matches(&self, text: &[u8], case: Case, render: &mut Render<'_>) -> bool {
        let lower = |text: &[u8]| match case {
            Case::Counts => text.to_vec(),
            Case::Ignored => text.to_ascii_lowercase(),
        };
        let text = lower(text);
        match self {
            Pattern::Exact(wanted) => text == lower(&wanted.text(render)),
            Pattern::Begin(wanted) => text.starts_with(&lower(&wanted.text(render))),
            Pattern::End(wanted) => text.ends_with(&lower(&wanted.text(render))),
            Pattern::Inside(wanted) => contains(&text, &lower(&wanted.text(render))),
            Pattern::Regex(regex) => regex.is_match(&text),
        }
    }
}

fn status_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("'{text}' is not a status code or a range of status codes")),
    }
}

fn needle_format(text: &str, files: &dyn Files) -> Result<Needle, String> {
    check_format(text, files).map(Needle::Format).map_err(|error| error.to_string())
}

/// `name|name-lf [-m METHOD] NAME [value|value-lf [-m METHOD] VALUE]`.
fn header(words: &[String], whole: bool, files: &dyn Files) -> Result<What, String> {
    let mut words = words.iter().map(String::as_str).peekable();
    let mut part = |keyword: &str| -> Result<Option<Pattern>, String> {
        let Some(word) = words.next() else { return Ok(None) };
        let format = word.strip_suffix("-lf") == Some(keyword);
        if word != keyword && !format {
            return Err(format!("'{keyword}' is missing before '{word}'"));
        }
        let method = if words.next_if_eq(&"-m").is_some() { words.next().unwrap_or("") } else { "str" };
        let text = words.next().ok_or(format!("'{keyword}' needs a pattern"))?;
        Pattern::compile(method, text, format.then_some(files)).map(Some)
    };
    let name = part("name")?.ok_or("a header needs 'name'")?;
    Ok(What::Header { name, value: part("value")?, whole })
}

pub(crate) fn contains(text: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || text.windows(wanted.len()).any(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use baton_rules::NoFiles;

    use super::*;

    fn head() -> Head {
        let field = |name: &str, value: &str| (name.into(), value.into());
        let fields = vec![field("x-a", "b, c"), field("set-cookie", "k=v"), field("content-length", "4")];
        Head { status: 200, reason: "All fine".into(), fields }
    }

    /// How words after `expect` judge a response with that head and `content`: `ok`, `pending`, or the status and the words.
    fn judged(words: &str, content: &str, is_over: bool) -> String {
        let mut parts = words.split_whitespace();
        let mut kind = parts.next().expect("a kind");
        let negated = kind == "!";
        if negated {
            kind = parts.next().expect("a kind");
        }
        let pattern: Vec<String> = parts.map(str::to_string).collect();
        match Expect::compile(negated, kind, &pattern, &NoFiles) {
            Err(error) => format!("error: {error}"),
            Ok(compiled) => match compiled.judge(&head(), content.as_bytes(), is_over, &mut |format| {
                format.constant().unwrap_or_default().to_vec()
            }) {
                Judgement::Met => "ok".into(),
                Judgement::Pending => "pending".into(),
                Judgement::Failed(report) => format!("{} {}", report.status.word(), report.info),
            },
        }
    }

    fn check(words: &str, expect: &str) {
        assert_eq!(judged(words, "body", true), expect, "{words}");
    }

    #[test]
    fn statuses() {
        check("status 200", "ok");
        check("status 404,200-299", "ok");
        check("status 404,500-501", "L7STS All fine");
        check("! status 200", "L7STS All fine");
        check("rstatus ^2", "ok");
        check("rstatus ^5", "L7STS All fine");
        check("status 2xx", "error: '2xx' is not a status code or a range of status codes");
        check("status", "error: 'expect status' needs a pattern");
    }

    #[test]
    fn contents() {
        check("string od", "ok");
        check("string-lf od", "ok");
        check("string none", "L7RSP HTTP content check did not match");
        check("! string body", "L7RSP HTTP check matched unwanted content");
        check("rstring ^bo.y$", "ok");
        check("rstring z$", "L7RSP HTTP content check did not match");
    }

    #[test]
    fn headers() {
        check("hdr name x-a", "ok");
        check("hdr name x-a value c", "ok");
        check("fhdr name x-a value c", "L7STS All fine");
        check("fhdr name x-a value -m end c", "ok");
        check("hdr name -m beg x- value -m reg ^[ab]$", "ok");
        check("hdr name-lf X-A value-lf -m sub c", "ok");
        check("hdr name-lf -m reg x", "error: a regular expression cannot be a log-format string");
        check("hdr name x-none", "L7STS All fine");
        check("! hdr name set-cookie value -m sub k=", "L7STS All fine");
        check("hdr x-a", "error: 'name' is missing before 'x-a'");
        check("hdr name -m nope x", "error: 'nope' is not a matching method (str, beg, end, sub, reg)");
        check("teapot 418", "error: unknown type 'teapot' of 'http-check expect'");
    }

    #[test]
    fn what_is_found_is_decided_before_the_end() {
        let check = |words: &str, content: &str, expect: [&str; 2]| {
            assert_eq!([false, true].map(|is_over| judged(words, content, is_over)), expect, "{words} {content:?}");
        };
        check("string od", "body", ["ok", "ok"]);
        check("string od", "bo", ["pending", "L7RSP HTTP content check did not match"]);
        check("rstring ^bo$", "bo", ["ok", "ok"]);
        check("! string od", "bo", ["pending", "ok"]);
        let unwanted = "L7RSP HTTP check matched unwanted content";
        check("! string od", "body", [unwanted, unwanted]);
        // Without a body nothing is as expected.
        let none = "L7RSP HTTP content check could not find a response body";
        check("string od", "", ["pending", none]);
        check("! string od", "", ["pending", none]);
        check("rstring ^$", "", ["pending", none]);
        check("status 200", "", ["ok", "ok"]);
    }
}
