//! What commands that change something have at hand, and how what they want is done: a command reads its words and looks at what is in
//! use; a [`Change`] of them goes down the change path, and the reply says what came of it.

use crate::certificates::Pending;
use crate::control::Control;
use crate::operators::answer::CommandResponse;
use crate::reload::{Change, ChangeLine, Changed};

/// What a command that changes something has at hand.
pub(super) struct Staging<'a> {
    /// What is in use, to be looked at.
    pub(super) line: &'a ChangeLine,
    /// What was set for a `commit` later. It touches no live state, so it is no [`Change`]: it goes with the process.
    pub(super) pending: &'a mut Pending,
    /// A graceful stop is in progress.
    pub(super) is_stopping: bool,
}

/// A change that a command asks for.
pub(super) struct Altering {
    change: Change,
    /// What is changed besides, once that is done.
    also: Option<Change>,
    /// What is replied when it is done.
    done: CommandResponse,
}

impl Altering {
    /// A change after which there is something to say.
    pub(super) fn new(change: Change, done: CommandResponse) -> Altering {
        Altering { change, also: None, done }
    }

    /// With another change after it.
    pub(super) fn and(self, change: Change) -> Altering {
        Altering { also: Some(change), ..self }
    }
}

impl From<Change> for Altering {
    fn from(change: Change) -> Altering {
        Altering { change, also: None, done: CommandResponse::Done }
    }
}

/// Does what a command asks for, and says what came of it.
pub(super) async fn alter(control: &mut Control, Altering { change, also, done }: Altering) -> CommandResponse {
    match control.take(change).await {
        Changed::Done | Changed::Discovered(_) | Changed::Certificates(_) | Changed::Reload(_) => {}
        Changed::Version(version) => return CommandResponse::info(format!("New version created: {version}")),
        Changed::Refused(reason) => return CommandResponse::error(reason),
    }
    match also {
        None => done,
        Some(change) => match control.take(change).await {
            Changed::Done
            | Changed::Discovered(_)
            | Changed::Version(_)
            | Changed::Certificates(_)
            | Changed::Reload(_) => done,
            Changed::Refused(reason) => CommandResponse::error(reason),
        },
    }
}
