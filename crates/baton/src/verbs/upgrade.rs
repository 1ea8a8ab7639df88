//! `baton upgrade`: the program on disk takes the place of the running one, master and worker.

use std::process::ExitCode;

use baton_control::protocol::{Reply, Request};
use clap::Args;

use super::whom::TargetProcess;

/// Replace the running program by the one on disk, without refusing or losing anybody.
///
/// Asks the master (`-W`, `-Ws`). A new worker is started from the file on disk and reads the configuration as it is now; it takes
/// sockets, counters and health states from the one before, which ends with its last connection. Then the master becomes the
/// new program too, with the same process id. If the new worker does not get ready, nothing changes, the reasons are printed,
/// and the exit code is 1. A process without a master is replaced by starting the new program with `-sf` and its number.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  baton upgrade -p /run/haproxy.pid")]
pub struct Upgrade {
    #[command(flatten)]
    process: TargetProcess,
}

/// Asks and prints.
pub fn run(command: &Upgrade) -> Result<ExitCode, String> {
    match command.process.ask(Request::Upgrade)? {
        Reply::Reload(outcome) => {
            for message in &outcome.messages {
                super::say_text(&message.rendered);
            }
            Ok(if outcome.accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Reply::Failed { reason } => Err(reason),
        other => Err(format!("unexpected answer: {other:?}")),
    }
}
