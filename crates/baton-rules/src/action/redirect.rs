//! `redirect`, as an action and as a keyword of its own (configuration manual 4.2 `redirect`).

use super::{Action, Row, RuleArguments, sets};
use crate::context::Context;
use crate::format::Format;
use crate::problem::{LocatedError, RuleError};
use crate::reply::Redirect;

pub(super) const ROWS: &[Row] = &[Row {
    name: "redirect",
    sets: sets::REQUEST | sets::RESPONSE,
    parse: |words| RedirectRule::parse(words, Value::Format).map(|rule| Action::Redirect(Box::new(rule))),
    doc: "Returns a redirect.",
}];

/// A compiled `redirect`.
#[derive(Clone, Debug)]
pub(crate) struct RedirectRule {
    kind: RedirectKind,
    target: Format,
    status: u16,
    cookie: Option<Vec<u8>>,
    drop_query: bool,
    append_slash: bool,
    ignore_empty: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RedirectKind {
    Location,
    Prefix,
    Scheme,
}

/// How a target is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Value {
    /// As a format: in `http-request redirect` and `http-response redirect`.
    Format,
    /// As it stands: in `redirect`.
    Plain,
}

impl Value {
    fn read(self, words: &mut RuleArguments<'_, '_>, what: &str) -> Result<Format, LocatedError> {
        if self == Value::Format {
            return words.line(what);
        }
        let text = words.take(what)?;
        match text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            true => Err(words.blame(RuleError::new(format!("{what} must be a single line")))),
            false => Ok(Format::verbatim(text.as_bytes())),
        }
    }
}

impl RedirectRule {
    /// Reads the words up to the condition.
    pub fn parse(words: &mut RuleArguments<'_, '_>, value: Value) -> Result<RedirectRule, LocatedError> {
        let mut to = None;
        let mut status = 302;
        let mut cookie = None;
        let (mut drop_query, mut append_slash, mut ignore_empty) = (false, false, false);
        while let Some(word) = words.peek() {
            words.at += 1;
            match word {
                "location" => to = Some((RedirectKind::Location, value.read(words, "the location")?)),
                "prefix" => to = Some((RedirectKind::Prefix, value.read(words, "the prefix")?)),
                "scheme" => to = Some((RedirectKind::Scheme, value.read(words, "the scheme")?)),
                "code" => {
                    let text = words.take("a status")?;
                    status = match text.parse() {
                        Ok(code @ (301 | 302 | 303 | 307 | 308)) => code,
                        _ => {
                            let fault = RuleError::new(format!("'{text}' is not a redirect status"));
                            return Err(words.blame(fault.hint("use 301, 302, 303, 307 or 308")));
                        }
                    };
                }
                "set-cookie" => cookie = Some(format!("{}; path=/;", read_cookie(words)?).into_bytes()),
                "clear-cookie" => {
                    cookie = Some(format!("{}; path=/; Max-Age=0;", read_cookie(words)?).into_bytes());
                }
                "drop-query" => drop_query = true,
                "append-slash" => append_slash = true,
                "ignore-empty" => ignore_empty = true,
                _ => {
                    const KNOWN: [&str; 9] = [
                        "location",
                        "prefix",
                        "scheme",
                        "code",
                        "set-cookie",
                        "clear-cookie",
                        "drop-query",
                        "append-slash",
                        "ignore-empty",
                    ];
                    return Err(words.blame(RuleError::unknown("redirect argument", word, &[], KNOWN.into_iter())));
                }
            }
        }
        let Some((kind, target)) = to else {
            return Err(RuleError::new("the redirect target is missing")
                .hint("add 'location', 'prefix' or 'scheme' with a value")
                .at(words.at));
        };
        if kind != RedirectKind::Location && words.set != sets::REQUEST {
            return Err(words.blame(RuleError::new("a response can only be redirected with 'location'")));
        }
        Ok(RedirectRule { kind, target, status, cookie, drop_query, append_slash, ignore_empty })
    }

    /// Whether it never passes.
    pub fn always(&self) -> bool {
        !self.ignore_empty
    }

    /// The answer; `None` when `ignore-empty` makes the rule pass.
    pub fn make(&self, cx: &Context<'_>) -> Option<Redirect> {
        let mut location = Vec::new();
        match self.kind {
            RedirectKind::Location => self.target.write(cx, &mut location),
            RedirectKind::Prefix => {
                self.target.write(cx, &mut location);
                // A prefix "/" alone adds nothing, so that the target is only normalised.
                if location == b"/" {
                    location.clear();
                }
                self.write_path(cx, &mut location);
            }
            RedirectKind::Scheme => {
                self.target.write(cx, &mut location);
                location.extend_from_slice(b"://");
                if let Some(request) = &cx.request {
                    location.extend_from_slice(request.head.view().host().unwrap_or(&[]));
                }
                self.write_path(cx, &mut location);
            }
        }
        if self.ignore_empty && location.is_empty() {
            return None;
        }
        Some(Redirect { status: self.status, location, cookie: self.cookie.clone() })
    }

    fn write_path(&self, cx: &Context<'_>, location: &mut Vec<u8>) {
        let Some(request) = &cx.request else {
            return;
        };
        let whole = request.head.view().path_and_query();
        let path = match self.drop_query {
            true => &whole[..memchr::memchr(b'?', whole).unwrap_or(whole.len())],
            false => whole,
        };
        location.extend_from_slice(if path.is_empty() { b"/" } else { path });
        if self.append_slash && !location.ends_with(b"/") {
            location.push(b'/');
        }
    }
}

/// A cookie's name, or name and value.
fn read_cookie<'a>(words: &mut RuleArguments<'a, '_>) -> Result<&'a str, LocatedError> {
    let text = words.take("a cookie")?;
    match text.bytes().find(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        Some(_) => Err(words.blame(RuleError::new("a cookie must be a single line"))),
        None => Ok(text),
    }
}
