//! Actions that end the evaluation: allow, accept, deny, tarpit, reject, return.

use super::{Action, Row, RuleArguments, sets};
use crate::context::Context;
use crate::format::Format;
use crate::nearest::suggestion;
use crate::problem::{LocatedError, RuleError};
use crate::reply::{PAGES, Reply};
use crate::rules::Denial;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "allow",
        sets: sets::HTTP | sets::STATS,
        parse: |_| Ok(Action::Allow),
        doc: "Ends the evaluation of this set of rules.",
    },
    Row {
        name: "accept",
        sets: sets::CONNECTION | sets::SESSION | sets::CONTENT | sets::TCP_RESPONSE,
        parse: |_| Ok(Action::Allow),
        doc: "Ends the evaluation of this set of rules.",
    },
    Row {
        name: "reject",
        sets: sets::REQUEST | sets::CONNECTION | sets::SESSION | sets::CONTENT | sets::TCP_RESPONSE,
        parse: |_| Ok(Action::Reject),
        doc: "Closes the connection without a response.",
    },
    Row {
        name: "deny",
        sets: sets::REQUEST | sets::RESPONSE | sets::STATS,
        parse: deny,
        doc: "Returns an error response.",
    },
    Row {
        name: "tarpit",
        sets: sets::REQUEST,
        parse: tarpit,
        doc: "Waits `timeout tarpit`, then returns an error response.",
    },
    Row {
        name: "return",
        sets: sets::REQUEST | sets::RESPONSE,
        parse: return_,
        doc: "Returns a response with the given content.",
    },
];

/// What `deny` and `tarpit` answer.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    /// The proxy's error page of that status.
    Standard(u16),
    /// What the rule says.
    Own(ResponseContent),
}

/// What a response consists of.
#[derive(Clone, Debug)]
pub(crate) struct ResponseContent {
    status: u16,
    headers: Vec<(Vec<u8>, Format)>,
    content_type: Option<Vec<u8>>,
    body: Option<Format>,
}

impl Page {
    pub fn make(&self, cx: &Context<'_>) -> Denial {
        match self {
            Page::Standard(status) => Denial { status: *status, reply: None },
            Page::Own(content) => Denial { status: content.status, reply: Some(content.make(cx)) },
        }
    }
}

impl ResponseContent {
    pub fn make(&self, cx: &Context<'_>) -> Reply {
        let text = |format: &Format| {
            let mut out = Vec::new();
            format.write(cx, &mut out);
            out
        };
        let body = self.body.as_ref().map(text).unwrap_or_default();
        Reply {
            status: self.status,
            headers: self.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            content_type: self.content_type.clone().filter(|_| !body.is_empty()),
            body,
        }
    }
}

fn deny(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let status = if words.set == sets::RESPONSE { 502 } else { 403 };
    page(words, status).map(Action::Deny)
}

fn tarpit(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    page(words, 500).map(Action::Tarpit)
}

fn return_(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let (content, standard) = content(words, 200)?;
    Ok(match standard {
        true => Action::Deny(standard_page(words, content.status)?),
        false => Action::Return(content),
    })
}

/// Without anything, or with `deny_status` alone, the answer is the proxy's own page.
fn page(words: &mut RuleArguments<'_, '_>, status: u16) -> Result<Page, LocatedError> {
    let start = words.at;
    let (content, standard) = content(words, status)?;
    let only_status = words.at == start || (words.at == start + 2 && words.words[start] == "deny_status");
    if only_status || standard {
        return standard_page(words, content.status);
    }
    Ok(Page::Own(content))
}

fn standard_page(words: &RuleArguments<'_, '_>, status: u16) -> Result<Page, LocatedError> {
    match PAGES.contains(&status) {
        true => Ok(Page::Standard(status)),
        false => Err(words.blame(
            RuleError::new(format!("there is no standard page for status {status}"))
                .hint("give 'content-type' and 'string', or 'status' instead of 'deny_status'"),
        )),
    }
}

/// What `return` and `deny` take.
const ARGUMENTS: [&str; 11] = [
    "status",
    "deny_status",
    "content-type",
    "string",
    "lf-string",
    "file",
    "lf-file",
    "hdr",
    "default-errorfiles",
    "if",
    "unless",
];

/// The arguments `return` and `deny` share; true: `default-errorfiles`.
fn content(words: &mut RuleArguments<'_, '_>, status: u16) -> Result<(ResponseContent, bool), LocatedError> {
    let mut content = ResponseContent { status, headers: Vec::new(), content_type: None, body: None };
    let mut standard = false;
    while let Some(word) = words.peek() {
        match word {
            "status" | "deny_status" => {
                words.at += 1;
                let text = words.take("a status")?;
                content.status = match text.parse() {
                    Ok(status @ 200..=599) => status,
                    _ => {
                        return Err(words.blame(RuleError::new(format!("'{text}' is not a status from 200 to 599"))));
                    }
                };
            }
            "content-type" => {
                words.at += 1;
                content.content_type = Some(words.take("a content type")?.as_bytes().to_vec());
            }
            "string" | "lf-string" => {
                words.at += 1;
                let text = words.take("the content")?;
                content.body = Some(body(words, text, word == "lf-string")?);
            }
            "file" | "lf-file" => {
                words.at += 1;
                let path = words.take("a file")?;
                let bytes = words
                    .around
                    .files
                    .read(path)
                    .map_err(|error| words.blame(RuleError::new(format!("cannot read '{path}': {error}"))))?;
                content.body = Some(match word {
                    "lf-file" => body(words, &String::from_utf8_lossy(&bytes), true)?,
                    _ => Format::verbatim(&bytes),
                });
            }
            "hdr" => {
                words.at += 1;
                let name = super::header::name(words)?;
                let value = words.line("the header's value")?;
                content.headers.push((name, value));
            }
            "default-errorfiles" => {
                words.at += 1;
                standard = true;
            }
            "errorfile" | "errorfiles" => {
                words.at += 1;
                return Err(words.blame(RuleError::new(format!("'{word}' is not supported here yet"))));
            }
            _ => match suggestion(word, ARGUMENTS) {
                Some(hint) => {
                    let fault = RuleError::new(format!("unexpected argument '{word}'")).hint(hint);
                    return Err(fault.at(words.at));
                }
                None => break,
            },
        }
    }
    let empty = content.body.as_ref().is_none_or(|body| body.constant().is_some_and(<[u8]>::is_empty));
    if !empty && content.content_type.is_none() {
        return Err(words.blame(RuleError::new("a body needs a content type").hint("add 'content-type text/plain'")));
    }
    Ok((content, standard))
}

fn body(words: &RuleArguments<'_, '_>, text: &str, is_format: bool) -> Result<Format, LocatedError> {
    match is_format {
        true => Format::compile_lines(text, words.around.place, words.around.files).map_err(|fault| words.blame(fault)),
        false => Ok(Format::verbatim(text.as_bytes())),
    }
}
