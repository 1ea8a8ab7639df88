//! The tables as a list, for help texts and manuals.

use crate::{action, converter, fetch};

/// A word of the rule language.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Keyword {
    /// `sample fetch`, `converter` or `action`.
    pub kind: &'static str,
    /// The word; the first one where there are several.
    pub name: &'static str,
    /// What it gives or does, in a sentence.
    pub doc: &'static str,
}

/// All words that are supported.
pub fn keywords() -> impl Iterator<Item = Keyword> {
    let fetches = fetch::rows().map(|row| Keyword { kind: "sample fetch", name: row.names[0], doc: row.doc });
    let converters = converter::rows().map(|row| Keyword { kind: "converter", name: row.name, doc: row.doc });
    let actions = action::rows().map(|row| Keyword { kind: "action", name: row.name, doc: row.doc });
    fetches.chain(converters).chain(actions)
}
