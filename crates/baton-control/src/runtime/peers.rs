//! `show peers`: what the thread of peers says of its sections.

use std::time::Duration;

use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use crate::control::Control;
use crate::operators::answer::CommandResponse;
use crate::operators::{Call, Given, Rest};

/// How soon it is looked whether the thread has answered.
const LOOK: Duration = Duration::from_millis(2);

/// What is waited for.
struct Shown(Receiver<Option<String>>);

/// `show peers [dict|-] [<section>]`.
pub(super) fn show(control: &Control, call: &Call, rest: Option<Rest>) -> Given {
    let missing = || Given::Whole(CommandResponse::error("No such peers"));
    let mut shown = match rest.map(|rest| rest.downcast::<Shown>()) {
        Some(Ok(shown)) => *shown,
        // A session gives back what it was given.
        Some(Err(_)) => return missing(),
        None => {
            let with_texts = call.arg(0) == "dict";
            let section = if with_texts || call.arg(0) == "-" { call.arg(1) } else { call.arg(0) };
            Shown(control.line.shown_peers(section, with_texts))
        }
    };
    match shown.0.try_recv() {
        Ok(Some(text)) => Given::Whole(CommandResponse::Data(text)),
        Ok(None) | Err(TryRecvError::Closed) => missing(),
        Err(TryRecvError::Empty) => Given::Later(LOOK, Box::new(shown)),
    }
}
