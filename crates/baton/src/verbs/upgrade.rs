//! `baton upgrade`: the program on disk takes the place of the running one, master and worker.

use std::process::ExitCode;

use baton_control::protocol::{Reply, Request};
use clap::Args;

use super::whom::TargetProcess;

/// Replace the running program with the one on disk, without dropping connections.
///
/// Needs a master (`-W`, `-Ws`). A new worker starts from the file on disk, reads the current configuration and takes over
/// sockets, counters and health states; the old worker stops gracefully. Then the master becomes the new program too, and keeps
/// its PID. If the new worker does not become ready, nothing changes, the reasons are printed, and the exit code is 1. For a
/// process without a master, the command that replaces it is printed instead.
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
        other => Err(format!("unexpected reply: {other:?}")),
    }
}
