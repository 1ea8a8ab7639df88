//! `http-check expect`: what an answer has to look like (configuration manual, 4.2).

use std::ops::RangeInclusive;

use regex::bytes::Regex;

use super::{Report, Status};

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
    Text(Vec<u8>),
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
    Exact(String),
    Begin(String),
    End(String),
    Inside(String),
    Regex(Regex),
}

/// An HTTP answer to a check.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer<'a> {
    /// Status code.
    pub code: u16,
    /// Reason phrase.
    pub reason: &'a str,
    /// Names and values in order.
    pub headers: Vec<(&'a str, &'a [u8])>,
    /// What came of the body.
    pub body: &'a [u8],
}

impl Expect {
    /// Compiles the words after `expect`; the error says what is wrong with them.
    pub fn compile(negated: bool, kind: &str, words: &[String]) -> Result<Expect, String> {
        let first = || words.first().map(String::as_str).ok_or(format!("'expect {kind}' needs a pattern"));
        let regex = |text: &str| Regex::new(text).map_err(|error| format!("'{text}': {error}"));
        let what = match kind {
            "status" => What::Status(first()?.split(',').map(status_range).collect::<Result<_, _>>()?),
            "rstatus" => What::StatusRegex(regex(first()?)?),
            "string" => What::Text(first()?.as_bytes().to_vec()),
            "rstring" => What::TextRegex(regex(first()?)?),
            "hdr" | "fhdr" => header(words, kind == "fhdr")?,
            other => return Err(format!("'{other}' is not known to 'http-check expect'")),
        };
        Ok(Expect { negated, what })
    }

    /// `status 200-399`: what is expected when nothing is said.
    pub fn usual() -> Expect {
        Expect { negated: false, what: What::Status(vec![200..=399]) }
    }

    /// Whether the body has to be read to judge.
    pub fn needs_body(&self) -> bool {
        matches!(self.what, What::Text(_) | What::TextRegex(_))
    }

    /// Judges: `None` is as expected.
    pub fn judge(&self, answer: &Answer<'_>) -> Option<Report> {
        if self.matches(answer) != self.negated {
            return None;
        }
        let report = match (self.needs_body(), self.negated) {
            (true, false) => Report::new(Status::L7Response).info("HTTP content check did not match"),
            (true, true) => Report::new(Status::L7Response).info("HTTP check matched unwanted content"),
            (false, _) => Report { code: Some(answer.code), ..Report::new(Status::L7Status).info(answer.reason) },
        };
        Some(report)
    }

    fn matches(&self, answer: &Answer<'_>) -> bool {
        match &self.what {
            What::Status(ranges) => ranges.iter().any(|range| range.contains(&answer.code)),
            What::StatusRegex(regex) => regex.is_match(answer.code.to_string().as_bytes()),
            What::Text(text) => contains(answer.body, text),
            What::TextRegex(regex) => regex.is_match(answer.body),
            What::Header { name, value, whole } => {
                let mut named =
                    answer.headers.iter().filter(|(header, _)| name.matches(header.as_bytes(), Case::Ignored));
                named.any(|(_, text)| match (value, whole) {
                    (None, _) => true,
                    (Some(value), true) => value.matches(text.trim_ascii(), Case::Counts),
                    (Some(value), false) => {
                        text.split(|byte| *byte == b',').any(|part| value.matches(part.trim_ascii(), Case::Counts))
                    }
                })
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Case {
    Counts,
    Ignored,
}

impl Pattern {
    fn compile(method: &str, text: &str) -> Result<Pattern, String> {
        Ok(match method {
            "str" => Pattern::Exact(text.into()),
            "beg" => Pattern::Begin(text.into()),
            "end" => Pattern::End(text.into()),
            "sub" => Pattern::Inside(text.into()),
            "reg" => Pattern::Regex(Regex::new(text).map_err(|error| format!("'{text}': {error}"))?),
            other => return Err(format!("'{other}' is not a matching method (str, beg, end, sub, reg)")),
        })
    }

    fn matches(&self, text: &[u8], case: Case) -> bool {
        let lower = |text: &[u8]| match case {
            Case::Counts => text.to_vec(),
            Case::Ignored => text.to_ascii_lowercase(),
        };
        let text = lower(text);
        match self {
            Pattern::Exact(wanted) => text == lower(wanted.as_bytes()),
            Pattern::Begin(wanted) => text.starts_with(&lower(wanted.as_bytes())),
            Pattern::End(wanted) => text.ends_with(&lower(wanted.as_bytes())),
            Pattern::Inside(wanted) => contains(&text, &lower(wanted.as_bytes())),
            Pattern::Regex(regex) => regex.is_match(&text),
        }
    }
}

impl<'a> Answer<'a> {
    /// Parses what was received. `None`: not an HTTP answer, or its head is not complete.
    pub fn parse(bytes: &'a [u8]) -> Option<Answer<'a>> {
        let (head, body) = split_head(bytes)?;
        let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let first = std::str::from_utf8(lines.next()?).ok()?;
        let mut words = first.splitn(3, ' ');
        let version = words.next()?.strip_prefix("HTTP/")?;
        let code = words.next().filter(|code| code.len() == 3 && is_number(code))?.parse().ok()?;
        if !version.as_bytes().first()?.is_ascii_digit() {
            return None;
        }
        let headers = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((std::str::from_utf8(&line[..colon]).ok()?, line[colon + 1..].trim_ascii()))
        });
        Some(Answer { code, reason: words.next().unwrap_or(""), headers: headers.collect(), body })
    }

    /// The length that `Content-Length` announces.
    pub fn length(&self) -> Option<usize> {
        let header = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
        std::str::from_utf8(header.1).ok().filter(|digits| is_number(digits))?.parse().ok()
    }
}

/// Digits alone: `parse` takes a sign too.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn split_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut start = 0;
    while let Some(at) = bytes[start..].iter().position(|byte| *byte == b'\n') {
        let line = &bytes[start..start + at];
        if start > 0 && (line.is_empty() || line == b"\r") {
            return Some((&bytes[..start - 1], &bytes[start + at + 1..]));
        }
        start += at + 1;
    }
    None
}

fn status_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("'{text}' is not a status code or a range of them")),
    }
}

/// `name [-m METHOD] NAME [value [-m METHOD] VALUE]`.
fn header(words: &[String], whole: bool) -> Result<What, String> {
    let mut words = words.iter().map(String::as_str).peekable();
    let mut part = |keyword: &str| -> Result<Option<Pattern>, String> {
        let Some(word) = words.next() else { return Ok(None) };
        if word != keyword {
            return Err(format!("'{keyword}' is missing before '{word}'"));
        }
        let method = if words.next_if_eq(&"-m").is_some() { words.next().unwrap_or("") } else { "str" };
        let text = words.next().ok_or(format!("'{keyword}' needs a pattern"))?;
        Pattern::compile(method, text).map(Some)
    };
    let name = part("name")?.ok_or("a header needs 'name'")?;
    Ok(What::Header { name, value: part("value")?, whole })
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || text.windows(wanted.len()).any(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 All fine\r\nX-A: b, c\r\nSet-Cookie: k=v\r\nContent-Length: 4\r\n\r\nbody";

    /// Words after `expect`, and how the answer above is judged: `ok`, or the status and the words.
    fn check(words: &str, expect: &str) {
        let mut parts = words.split_whitespace();
        let mut kind = parts.next().expect("a kind");
        let negated = kind == "!";
        if negated {
            kind = parts.next().expect("a kind");
        }
        let pattern: Vec<String> = parts.map(str::to_string).collect();
        let answer = Answer::parse(ANSWER).expect("an answer");
        let result = match Expect::compile(negated, kind, &pattern) {
            Err(error) => format!("error: {error}"),
            Ok(compiled) => match compiled.judge(&answer) {
                None => "ok".into(),
                Some(report) => format!("{} {}", report.status.word(), report.info),
            },
        };
        assert_eq!(result, expect, "{words}");
    }

    #[test]
    fn statuses() {
        check("status 200", "ok");
        check("status 404,200-299", "ok");
        check("status 404,500-501", "L7STS All fine");
        check("! status 200", "L7STS All fine");
        check("rstatus ^2", "ok");
        check("rstatus ^5", "L7STS All fine");
        check("status 2xx", "error: '2xx' is not a status code or a range of them");
        check("status", "error: 'expect status' needs a pattern");
    }

    #[test]
    fn contents() {
        check("string od", "ok");
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
        check("hdr name x-none", "L7STS All fine");
        check("! hdr name set-cookie value -m sub k=", "L7STS All fine");
        check("hdr x-a", "error: 'name' is missing before 'x-a'");
        check("hdr name -m nope x", "error: 'nope' is not a matching method (str, beg, end, sub, reg)");
        check("teapot 418", "error: 'teapot' is not known to 'http-check expect'");
    }

    #[test]
    fn answers() {
        let answer = Answer::parse(ANSWER).expect("an answer");
        assert_eq!(
            (answer.code, answer.reason, answer.body, answer.length()),
            (200, "All fine", &b"body"[..], Some(4))
        );
        assert_eq!(Answer::parse(b"HTTP/1.0 204\n\n").map(|answer| (answer.code, answer.reason)), Some((204, "")));
        for bad in [
            "",
            "hello\r\n\r\n",
            "HTTP/1.0 200 OK\r\n",
            "HTTP/1.0 20 OK\r\n\r\n",
            "HTTP/1.0 +20 OK\r\n\r\n",
            "HTTP/x 200 OK\r\n\r\n",
        ] {
            assert_eq!(Answer::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
