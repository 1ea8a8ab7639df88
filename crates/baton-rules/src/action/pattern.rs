//! Actions that change a map or a file of patterns: `set-map`, `del-map`, `add-acl`, `del-acl`. A format lets no line break through.

use std::sync::Arc;

use super::{Action, Row, RuleArguments, sets, with_text};
use crate::context::Context;
use crate::format::Format;
use crate::problem::{LocatedError, RuleError};
use crate::reference::NamedReference;

const ANY: u8 = sets::HTTP | sets::CONNECTION | sets::SESSION | sets::CONTENT | sets::TCP_RESPONSE;

pub(super) const ROWS: &[Row] = &[
    Row { name: "set-map", sets: ANY, parse: set_map, doc: "Sets the value of a key of a map, or adds it." },
    Row { name: "del-map", sets: ANY, parse: |words| one(words, PatternEdit::Delete), doc: "Deletes a key of a map." },
    Row {
        name: "add-acl",
        sets: ANY,
        parse: |words| one(words, PatternEdit::Add),
        doc: "Adds a pattern to a file of patterns.",
    },
    Row {
        name: "del-acl",
        sets: ANY,
        parse: |words| one(words, PatternEdit::Delete),
        doc: "Deletes a pattern of a file of patterns.",
    },
];

/// A compiled edit.
#[derive(Clone, Debug)]
pub(crate) enum PatternEdit {
    Set(Arc<NamedReference>, Format, Format),
    Add(Arc<NamedReference>, Format),
    Delete(Arc<NamedReference>, Format),
}

fn reference(words: &RuleArguments<'_, '_>) -> Result<Arc<NamedReference>, LocatedError> {
    let Some(name) = words.argument.filter(|name| !name.is_empty()) else {
        let fault = RuleError::new("the name of the file is missing");
        return Err(
            words.blame(fault.hint("write it in parentheses, as rules name it: set-map(/etc/haproxy/hosts.map)"))
        );
    };
    Ok(NamedReference::new(name, words.around.files))
}

fn set_map(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let reference = reference(words)?;
    let (key, value) = (words.format("a key")?, words.format("a value")?);
    Ok(Action::Pattern(Box::new(PatternEdit::Set(reference, key, value))))
}

fn one(
    words: &mut RuleArguments<'_, '_>,
    edit: fn(Arc<NamedReference>, Format) -> PatternEdit,
) -> Result<Action, LocatedError> {
    let reference = reference(words)?;
    Ok(Action::Pattern(Box::new(edit(reference, words.format("a key")?))))
}

impl PatternEdit {
    pub fn run(&self, cx: &mut Context<'_>) {
        let is_kept = match self {
            PatternEdit::Set(reference, key, value) => {
                let Some(live) = reference.live() else { return };
                with_text(key, cx, |cx, key| with_text(value, cx, |_, value| live.set_or_add(key, value)))
            }
            PatternEdit::Add(reference, key) => {
                let Some(live) = reference.live() else { return };
                with_text(key, cx, |_, key| live.add_once(key))
            }
            PatternEdit::Delete(reference, key) => {
                let Some(live) = reference.live() else { return };
                with_text(key, cx, |_, key| _ = live.delete(key));
                true
            }
        };
        cx.failed_rewrites += u32::from(!is_kept);
    }
}
