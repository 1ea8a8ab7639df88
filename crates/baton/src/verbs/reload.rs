//! `baton reload`: tells the running process to read its files again, waits, and prints what became of it.

use std::process::ExitCode;

use baton_control::plan::restart_pending;
use baton_control::protocol::{Outcome, Reply, Request};
use clap::Args;

use super::whom::TargetProcess;

/// Apply the current files to the running process.
///
/// Waits until the change is in effect and prints it; what did not change is not affected. If the files are invalid or an address cannot
/// be opened, nothing changes, the reasons are printed, and the exit code is 1.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  baton reload -p /run/haproxy.pid\n  baton reload --json | jq .accepted")]
pub struct Reload {
    #[command(flatten)]
    process: TargetProcess,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
pub fn run(command: &Reload) -> Result<ExitCode, String> {
    match command.process.ask(Request::Reload)? {
        Reply::Reload(outcome) => Ok(print(&outcome, command.json)),
        Reply::Failed { reason } => Err(reason),
        other => Err(format!("unexpected reply: {other:?}")),
    }
}

fn print(outcome: &Outcome, json: bool) -> ExitCode {
    let code = if outcome.accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if json {
        super::print_line(serde_json::to_string(outcome).unwrap_or_default());
        return code;
    }
    for message in &outcome.messages {
        super::say_text(&message.rendered);
    }
    if !outcome.accepted {
        super::say_line(format_args!("Rejected: configuration {} stays in use.", outcome.generation));
        return code;
    }
    for change in &outcome.plan.changes {
        super::print_line(&change.change);
    }
    outcome.plan.ended().into_iter().for_each(super::print_line);
    match outcome.plan.changes.len() {
        0 => super::print_line(format_args!("Configuration {} is in use: nothing changed.", outcome.generation)),
        1 => super::print_line(format_args!("Configuration {} is in use: 1 change.", outcome.generation)),
        count => super::print_line(format_args!("Configuration {} is in use: {count} changes.", outcome.generation)),
    }
    if let Some(pending) = restart_pending(&outcome.pending) {
        super::print_line(pending);
    }
    code
}
