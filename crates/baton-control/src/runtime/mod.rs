//! The runtime API: what the commands of operators over `stats socket` do (management guide, 9.3).
//!
//! `table` knows the commands: one is a row of it, and the files beside it hold what the rows do, one for each group. They are answered on
//! the thread of the change path, between two events; their sessions are [`operators`](crate::operators)'. A command that alters live state
//! makes a `Change` of its words and nothing else: what could alter it otherwise is not within its reach.

mod absent;
mod altering;
mod change_server;
mod cookies;
mod dynamic_server;
mod errors;
pub mod field;
mod frontends;
mod give;
pub(crate) mod info;
mod inside;
mod overridden;
mod patterns;
mod peers;
mod process;
mod resolvers;
pub(crate) mod schema;
mod servers;
mod sessions;
mod ssl;
pub(crate) mod stat;
mod table;
mod tables;
mod variables;
mod wait;

use altering::{Staging, alter};
use overridden::FileWork;

use std::fmt::Display;

use tokio::sync::oneshot;

use crate::apart::Apart;
use crate::control::Control;
use crate::operators::answer::CommandResponse;
use crate::operators::sessions::SessionListing;
use crate::operators::{Given, Question, Rest};
pub use info::spoken_version;
pub use table::commands;
use table::{Act, act_of};

/// Answers a session's command, between two events of the process.
pub(crate) async fn answer(control: &mut Control, question: Question) {
    let answer = match (act_of(&question), question.socket) {
        (Act::Ask(act), _) => Given::Whole(act(control, &question.call)),
        (Act::Long(begin), _) => match question.rest.map_or_else(|| begin(control, &question.call), again) {
            Ok(pieces) => next_of(control, pieces),
            Err(answer) => Given::Whole(answer),
        },
        (Act::Sessions(begin), _) => match begin(&question.call) {
            Ok(filter) => Given::Sessions(SessionListing::new(control.workers.sessions(), filter)),
            Err(answer) => Given::Whole(answer),
        },
        (Act::Wait(act), _) => act(control, &question.call, question.rest),
        (Act::Stage(act), _) => Given::Whole(act(&mut staging(control), &question.call)),
        (Act::Change(_), socket) if control.succession.is_giving() => {
            // What there is to know has gone to the other process already.
            return control.line.operators().postponed.push(Question { socket, ..question });
        }
        (Act::Change(act), _) => match control.succession.successor() {
            Some(pid) => {
                let text = format!("Process {pid} has taken over: run the command there.");
                Given::Whole(CommandResponse::error(text))
            }
            None => {
                let answer = match act(&mut staging(control), &question.call) {
                    Ok(altering) => alter(control, altering).await,
                    Err(answer) => answer,
                };
                // What is done outlives us, whenever we die.
                control.report_overrides().await;
                Given::Whole(answer)
            }
        },
        (Act::Write(act), _) => match act(control, &question.call) {
            Ok(work) => return write_apart(work, question.reply),
            Err(answer) => Given::Whole(answer),
        },
        (Act::Take(act), Some(socket)) => return act(control, socket),
        // The session answers these itself.
        (Act::Own(_), _) | (Act::Take(_), None) => return,
    };
    // Who left does not want it any more.
    let _ = question.reply.send(answer);
}

/// Writes a file on another thread; the session waits for it, and nobody else does.
fn write_apart(work: FileWork, reply: oneshot::Sender<Given>) {
    let lost = |reason: &dyn Display| CommandResponse::error(format!("The file is not written: {reason}."));
    let written = Apart::run(work);
    tokio::task::spawn_local(async move {
        let answer = match written {
            Ok(written) => written.await.unwrap_or_else(|ended| lost(&ended)),
            Err(error) => lost(&error),
        };
        // Who left does not want it any more.
        let _ = reply.send(Given::Whole(answer));
    });
}

/// An answer that is too long to be made at once.
trait Pieces {
    /// The next piece, of bounded length; `None`: there is none.
    fn next(&mut self, control: &Control) -> Option<String>;
}

/// A long answer that is begun, or one that is short.
type Begun = Result<Box<dyn Pieces>, CommandResponse>;

/// What a session kept of an answer.
fn again(rest: Rest) -> Begun {
    // A session gives back what it was given.
    rest.downcast::<Box<dyn Pieces>>().map(|pieces| *pieces).map_err(|_| CommandResponse::Done)
}

fn next_of(control: &Control, mut pieces: Box<dyn Pieces>) -> Given {
    match pieces.next(control) {
        Some(text) => Given::Piece(text, Some(Box::new(pieces))),
        None => Given::Piece(String::new(), None),
    }
}

fn staging(control: &mut Control) -> Staging<'_> {
    let is_stopping = control.is_stopping();
    Staging { line: &control.line, pending: &mut control.certificates.pending, is_stopping }
}

/// Answers what had to wait until it was clear who serves.
pub(crate) async fn answer_postponed(control: &mut Control) {
    if !control.succession.is_giving() {
        for question in std::mem::take(&mut control.line.operators().postponed) {
            answer(control, question).await;
        }
    }
}
