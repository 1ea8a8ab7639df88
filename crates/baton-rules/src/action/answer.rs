//! Actions that end the evaluation: allow, accept, deny, tarpit, reject, return. What the last ones respond with, and `http-error`, is
//! read in `response.rs`.

use super::response::{self, ResponseRule};
use super::{Action, Row, RuleArguments, sets};
use crate::problem::{LocatedError, RuleError};

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
        name: "close",
        sets: sets::TCP_RESPONSE,
        parse: |_| Ok(Action::Close),
        doc: "Closes the server's connection.",
    },
    Row {
        name: "silent-drop",
        sets: sets::REQUEST | sets::RESPONSE | sets::CONNECTION | sets::SESSION | sets::CONTENT | sets::TCP_RESPONSE,
        parse: silent_drop,
        doc: "Forgets the client's connection without telling the client.",
    },
    Row {
        name: "switch-mode",
        sets: sets::CONTENT,
        parse: switch_mode,
        doc: "Serves a connection of a frontend in `mode tcp` as HTTP.",
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
        parse: |words| denial(words, 500).map(Action::Tarpit),
        doc: "Waits `timeout tarpit`, then returns an error response.",
    },
    Row {
        name: "return",
        sets: sets::REQUEST | sets::RESPONSE,
        parse: |words| response::read(words, 200).map(|(rule, _)| Action::Return(rule)),
        doc: "Returns a response with the given content.",
    },
];

/// `rst-ttl` is of HAProxy 3.x: the client's side is told by a reset that does not get far.
fn silent_drop(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    match words.peek() {
        None => Ok(Action::SilentDrop(None)),
        Some("rst-ttl") => {
            words.at += 1;
            let text = words.take("a TTL from 1 to 255")?;
            match text.parse() {
                Ok(ttl @ 1..) => Ok(Action::SilentDrop(Some(ttl))),
                _ => Err(words.blame(RuleError::new(format!("'{text}' is not a TTL from 1 to 255")))),
            }
        }
        Some(other) => {
            let fault = RuleError::new(format!("unexpected argument '{other}'"));
            Err(fault.suggest(other, ["rst-ttl", "if", "unless"]).at(words.at))
        }
    }
}

fn switch_mode(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    match words.take("'http'")? {
        "http" => {}
        other => {
            let fault = RuleError::new(format!("expected 'http', found '{other}'"));
            return Err(words.blame(fault.suggest(other, ["http"])));
        }
    }
    if words.peek() == Some("proto") {
        words.at += 1;
        match words.take("a protocol")? {
            "h1" => {}
            "h2" => return Err(words.blame(RuleError::new("HTTP/2 is not supported yet").hint("use 'h1'"))),
            other => {
                let fault = RuleError::new(format!("unknown protocol '{other}'"));
                return Err(words.blame(fault.suggest(other, ["h1"])));
            }
        }
    }
    Ok(Action::SwitchMode)
}

fn deny(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let status = if words.set == sets::RESPONSE { 502 } else { 403 };
    denial(words, status).map(Action::Deny)
}

/// Without anything, or with `deny_status` alone, the response is the proxy's own page.
fn denial(words: &mut RuleArguments<'_, '_>, status: u16) -> Result<ResponseRule, LocatedError> {
    let start = words.at;
    let (rule, _) = response::read(words, status)?;
    let only_status = words.at == start || (words.at == start + 2 && words.words[start] == "deny_status");
    if only_status { rule.into_error_page(words) } else { Ok(rule) }
}
