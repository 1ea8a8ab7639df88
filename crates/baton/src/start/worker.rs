//! What is different for a worker: its master says by which text it works, and when nobody listens to its words.

use baton_control::master::Summons;
use baton_control::{Messages, Outside};

/// How a worker sees the files at its start: as they were when they were last in use, if the master says so, or as they are,
/// remembering them for the master.
pub(super) fn view(outside: &Outside, summons: Option<&Summons>, messages: &Messages) -> Outside {
    let Some(summons) = summons else { return outside.view() };
    let Some(text) = &summons.text else { return outside.recording() };
    outside.recalling(text).unwrap_or_else(|error| {
        messages.warning(&format!("the text that was in use is lost ({error}); the files are read."));
        outside.recording()
    })
}
