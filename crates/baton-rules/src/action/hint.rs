//! `early-hint`: fields of a 103 response before any other (RFC 8297).

use super::header;
use super::{Action, Row, RuleArguments, sets, with_text};
use crate::context::Context;
use crate::format::Format;
use crate::problem::LocatedError;

pub(super) const ROWS: &[Row] = &[Row {
    name: "early-hint",
    sets: sets::REQUEST,
    parse,
    doc: "Sends a header in a 103 response, with those of the rules after it that have no condition.",
}];

/// A field of the 103 response.
#[derive(Clone, Debug)]
pub(crate) struct Hint {
    name: Box<[u8]>,
    value: Format,
}

fn parse(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let name = header::name(words)?.to_ascii_lowercase().into();
    Ok(Action::Hint(Hint { name, value: words.line("the header's value")? }))
}

impl Hint {
    /// Appends the field. What would end the line is left out.
    pub fn write(&self, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name);
        out.extend_from_slice(b": ");
        with_text(&self.value, cx, |_, text| {
            out.extend(text.iter().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
        });
        out.extend_from_slice(b"\r\n");
    }
}
