//! The runtime API: what the commands of operators over `stats socket` do (management guide, 9.3).
//!
//! `table` knows the commands: one is a row of it, and the files beside it hold what the rows do, one for each group. They are answered on
//! the thread of the change path, between two events; their sessions are [`operators`](crate::operators)'. A command that alters live state
//! makes a `Change` of its words and nothing else: what could alter it otherwise is not within its reach.

mod altering;
mod change_server;
mod dynamic_server;
pub mod field;
mod give;
mod info;
mod overridden;
mod process;
mod servers;
mod ssl;
pub(crate) mod stat;
mod table;

use altering::{Staging, alter};
use overridden::FileWork;

use std::fmt::Display;

use tokio::sync::oneshot;

use crate::apart::Apart;
use crate::control::Control;
use crate::operators::Question;
use crate::operators::answer::CommandResponse;
pub use info::spoken_version;
pub use table::commands;
use table::{Act, act_of};

/// Answers a session's command, between two events of the process.
pub(crate) async fn answer(control: &mut Control, question: Question) {
    let answer = match (act_of(&question), question.socket) {
        (Act::Ask(act), _) => act(control, &question.call),
        (Act::Stage(act), _) => act(&mut staging(control), &question.call),
        (Act::Change(_), socket) if control.succession.is_giving() => {
            // What there is to know has gone to the other process already.
            return control.line.operators().postponed.push(Question { socket, ..question });
        }
        (Act::Change(act), _) => match control.succession.successor() {
            Some(pid) => CommandResponse::error(format!("Process {pid} has taken over: run the command there.")),
            None => {
                let answer = match act(&mut staging(control), &question.call) {
                    Ok(altering) => alter(control, altering).await,
                    Err(answer) => answer,
                };
                // What is done outlives us, whenever we die.
                control.report_overrides().await;
                answer
            }
        },
        (Act::Write(act), _) => match act(control, &question.call) {
            Ok(work) => return write_apart(work, question.reply),
            Err(answer) => answer,
        },
        (Act::Take(act), Some(socket)) => return act(control, socket),
        // The session answers these itself.
        (Act::Own(_), _) | (Act::Take(_), None) => return,
    };
    // Who left does not want it any more.
    let _ = question.reply.send(answer);
}

/// Writes a file on another thread; the session waits for it, and nobody else does.
fn write_apart(work: FileWork, reply: oneshot::Sender<CommandResponse>) {
    let lost = |reason: &dyn Display| CommandResponse::error(format!("The file is not written: {reason}."));
    let written = Apart::run(work);
    tokio::task::spawn_local(async move {
        let answer = match written {
            Ok(written) => written.await.unwrap_or_else(|ended| lost(&ended)),
            Err(error) => lost(&error),
        };
        // Who left does not want it any more.
        let _ = reply.send(answer);
    });
}

fn staging(control: &mut Control) -> Staging<'_> {
    Staging { line: &control.line, pending: &mut control.certificates.pending }
}

/// Answers what had to wait until it was clear who serves.
pub(crate) async fn answer_postponed(control: &mut Control) {
    if !control.succession.is_giving() {
        for question in std::mem::take(&mut control.line.operators().postponed) {
            answer(control, question).await;
        }
    }
}
