//! What is different for a worker: its master says by which text it works, and when nobody listens to its words.

use std::sync::Arc;

use baton_config::Options;
use baton_control::listeners::{Inherited, with_unfinished};
use baton_control::servant::Summons;
use baton_control::{Messages, Outside, reload};
use baton_model::Model;

/// How files are seen at a start: each is read once, for it may be a pipe. A worker sees them as they were when they were last in use,
/// if its master says so; the master keeps what was read.
pub(super) fn view(outside: &Outside, summons: Option<&Summons>, messages: &Messages) -> Outside {
    let Some(text) = summons.and_then(|summons| summons.text.as_ref()) else { return outside.recording() };
    outside.recalling(text).unwrap_or_else(|error| {
        messages.warning(&format!("the configuration that was in use is lost ({error}); the files are read instead."));
        outside.recording()
    })
}

/// The configuration to begin with, if the worker before died while it was emptying addresses: with these, by the texts that
/// named them.
pub(super) fn with_addresses_before(
    model: &Model,
    earlier: &[Vec<u8>],
    held: &Inherited,
    options: &Options,
    outside: &Outside,
) -> Option<Arc<Model>> {
    let read = |text: &Vec<u8>| reload::read(options, &outside.recalling(text).ok()?).model;
    let earlier: Vec<Model> = earlier.iter().filter_map(read).collect();
    with_unfinished(model, &earlier, held).map(Arc::new)
}
