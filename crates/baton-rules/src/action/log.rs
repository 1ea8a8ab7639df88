//! Actions about log lines: what is captured for them, and lines between.

use super::{Action, Row, RuleArguments, sets};
use crate::capture::CaptureSide;
use crate::context::Context;
use crate::expr::Expr;
use crate::problem::{LocatedError, RuleError};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "capture",
        sets: sets::REQUEST | sets::RESPONSE | sets::AFTER | sets::CONTENT,
        parse: capture,
        doc: "Captures an expression's value for the log.",
    },
    Row {
        name: "do-log",
        sets: sets::HTTP | sets::CONNECTION | sets::SESSION | sets::CONTENT | sets::TCP_RESPONSE,
        parse: |_| Ok(Action::Log(LogAction::WriteLine)),
        doc: "Writes a log line now, besides that of the end (as in HAProxy 3.1).",
    },
];

/// A compiled action.
#[derive(Clone, Debug)]
pub(crate) enum LogAction {
    Capture { expr: Box<Expr>, side: CaptureSide, index: usize },
    WriteLine,
}

/// `capture EXPRESSION len N`, in a frontend, or `capture EXPRESSION id N`.
fn capture(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let mut text = words.take("an expression")?.to_owned();
    while text.ends_with(',') {
        text.push_str(words.take("a converter")?);
    }
    let expr = Expr::compile(&text, words.around.place, words.around.files).map_err(|fault| words.blame(fault))?;
    let is_response = matches!(words.set, sets::RESPONSE | sets::AFTER);
    let side = if is_response { CaptureSide::Response } else { CaptureSide::Request };
    let slots = words.around.slots;
    let keyword = words.take("'len' or 'id'")?;
    let value = words.take("a number")?;
    let is_valid_len = || value.parse::<usize>().is_ok_and(|len| len > 0);
    let index = match (keyword, value.parse::<usize>()) {
        ("len", _) if side == CaptureSide::Response => {
            words.at -= 1;
            let fault = RuleError::new("expects 'id', found 'len'");
            return Err(words.blame(fault.hint("'declare capture response' makes a slot; the first one has the id 0")));
        }
        ("len", _) if !slots.is_frontend() => {
            return Err(words.blame(
                RuleError::new("'len' makes a slot, which only a frontend has")
                    .hint("use 'declare capture' in the frontend, and 'id' here"),
            ));
        }
        ("len", _) if !is_valid_len() => {
            return Err(words.blame(RuleError::new(format!("'{value}' is not a length of at least 1"))));
        }
        ("len", _) => slots.made_at(words.around.source, side).unwrap_or(usize::MAX),
        ("id", _) if words.set == sets::CONTENT => {
            return Err(words.blame(RuleError::new("'tcp-request content capture' takes 'len' only")));
        }
        ("id", Ok(index)) if slots.has(side, index) => index,
        ("id", Ok(index)) => {
            return Err(words.blame(
                RuleError::new(format!("unable to find capture id '{index}' referenced by a capture rule"))
                    .hint("'declare capture' makes a slot; the first one has the id 0"),
            ));
        }
        ("id", Err(_)) => return Err(words.blame(RuleError::new(format!("'{value}' is not an id")))),
        (other, _) => {
            words.at -= 1;
            let fault = RuleError::new(format!("expected 'len' or 'id', found '{other}'"));
            return Err(words.blame(fault.suggest(other, ["len", "id"])));
        }
    };
    Ok(Action::Log(LogAction::Capture { expr: Box::new(expr), side, index }))
}

impl LogAction {
    pub fn run(&self, cx: &Context<'_>) {
        match self {
            LogAction::WriteLine => cx.log.write_line(cx),
            LogAction::Capture { expr, side, index } => {
                if let (Some(sample), Some(captures)) = (expr.eval(cx), cx.captures) {
                    let text = sample.into_text();
                    captures.borrow_mut().set(*side, *index, &text);
                }
            }
        }
    }
}
