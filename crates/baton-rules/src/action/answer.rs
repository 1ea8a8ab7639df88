//! Actions that end the evaluation: allow, accept, deny, tarpit, reject, return. What the last ones respond with, and `http-error`, is
//! read in `response.rs`.

use super::response::{self, ResponseRule};
use super::{Action, Row, RuleArguments, sets};
use crate::problem::LocatedError;

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
