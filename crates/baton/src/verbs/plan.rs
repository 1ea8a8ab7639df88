//! `baton plan`: what a reload would do to which object, and whom it would disturb.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baton_config::Options;
use baton_control::direct::Foresight;
use baton_control::listeners::named_twice;
use baton_control::plan::{Plan, PlanSummary, restart_pending};
use baton_control::protocol::{Message, Outcome, Reply, Request};
use baton_control::{Outside, ask, encryption, reload};
use baton_model::{Address, Model};
use baton_proxy::Refused;
use clap::Args;
use serde::Serialize;

use super::whom::TargetProcess;

/// Exit code with `--detailed-exitcode` when there are changes.
const CHANGES: u8 = 2;

/// Show what a reload would change, and which connections it would affect.
///
/// A dry run: nothing is changed. The files are compared with the configuration of the running process, with other files (--from), or
/// with nothing if no process runs.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit code: 0 a reload would be accepted, 1 it would be rejected, or there is an error; with --detailed-exitcode 0 \
                        means no changes, and 2 changes\n\nExample:\n  baton plan -f new.cfg\n  baton plan --from old.cfg -f new.cfg\n  \
                        baton plan --detailed-exitcode >/dev/null || baton reload"
)]
pub struct PlanCommand {
    /// File or directory to compare (repeatable) [default: the files the process was started with]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Compare with this file or directory instead of a running process
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "pid_file"], requires = "files")]
    from: Vec<PathBuf>,
    #[command(flatten)]
    process: TargetProcess,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
    /// Exit with 2 if there are changes, and with 0 only if there are none
    #[arg(long)]
    detailed_exitcode: bool,
}

/// A plan for scripts.
#[derive(Serialize)]
struct Document<'o> {
    #[serde(flatten)]
    outcome: &'o Outcome,
    summary: PlanSummary,
}

/// Asks the running process, or compares here, and prints.
pub fn run(command: &PlanCommand) -> Result<ExitCode, String> {
    let outcome = if !command.from.is_empty() {
        compare(&command.from, &command.files)?
    } else if command.files.is_empty() || command.process.is_named() || is_any_running() {
        from_process(command)?
    } else {
        from_nothing(&command.files)?
    };
    let summary = outcome.plan.summary(outcome.pending.len());
    let is_change = !outcome.plan.is_empty() || !outcome.plan.ended().is_empty();
    let code = match outcome.accepted {
        true if command.detailed_exitcode && is_change => ExitCode::from(CHANGES),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    if command.json {
        let document = Document { outcome: &outcome, summary };
        super::print_line(serde_json::to_string(&document).unwrap_or_default());
        return Ok(code);
    }
    for message in &outcome.messages {
        super::say_text(&message.rendered);
    }
    match (outcome.accepted, outcome.plan.is_empty()) {
        (false, _) => super::say_line("A reload would be rejected; nothing would change."),
        (true, true) => super::print_text(format_args!("no changes\n{}", outcome.plan)),
        (true, false) => super::print_text(outcome.plan),
    }
    if outcome.accepted {
        if let Some(pending) = restart_pending(&outcome.pending) {
            super::print_line(pending);
        }
        if summary != PlanSummary::default() {
            super::print_line(summary);
        }
    }
    Ok(code)
}

fn is_any_running() -> bool {
    ask::running().is_ok_and(|pids| !pids.is_empty())
}

fn from_process(command: &PlanCommand) -> Result<Outcome, String> {
    let absolute = |file: &PathBuf| std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()));
    let files = command.files.iter().map(absolute).collect::<Result<_, _>>()?;
    match command.process.ask(Request::Plan { files })? {
        Reply::Plan(outcome) => Ok(outcome),
        Reply::Failed { reason } => Err(reason),
        other => Err(format!("unexpected reply: {other:?}")),
    }
}

fn compare(old: &[PathBuf], new: &[PathBuf]) -> Result<Outcome, String> {
    let old = read(old)?;
    let Some(model) = &old.model else {
        let pid = std::process::id();
        let messages = old.diagnostics.iter().map(|diagnostic| Message::of(diagnostic, pid)).collect();
        return Ok(Outcome { messages, ..Outcome::default() });
    };
    let new = read(new)?;
    let twice = new.model.as_ref().map(named_twice).unwrap_or_default();
    Ok(refused(reload::foresee(new, model, 0, certificates, &Foresight::default()), &twice))
}

fn from_nothing(new: &[PathBuf]) -> Result<Outcome, String> {
    let loaded = read(new)?;
    let plan = loaded.model.as_ref().map(Plan::from_nothing).unwrap_or_default();
    let mut against = loaded.model.as_ref().map(named_twice).unwrap_or_default();
    against.extend(loaded.model.as_ref().map(held_by_others).unwrap_or_default());
    let outcome = reload::foresee(loaded, &Default::default(), 0, certificates, &Foresight::default());
    let plan = Plan { kernel: outcome.plan.kernel.clone(), ..plan };
    Ok(refused(Outcome { plan, ..outcome }, &against))
}

/// An outcome that these reasons refuse, if there are any.
fn refused(mut outcome: Outcome, reasons: &[Refused]) -> Outcome {
    let pid = std::process::id();
    outcome.accepted &= reasons.is_empty();
    outcome.messages.extend(reasons.iter().map(|reason| Message::refused(reason, pid)));
    outcome
}

/// Addresses that another program holds, as a start would find. What only root could find is not known here.
fn held_by_others(model: &Model) -> Vec<Refused> {
    let mut held = Vec::new();
    for proxy in model.proxies.iter().filter(|proxy| !proxy.disabled) {
        for bind in &proxy.binds {
            let Address::Inet(address) = bind.address else { continue };
            if bind.options.namespace.is_none() && bind.options.interface.is_none() && is_held(address) {
                held.push(Refused {
                    object: format!("{} {}", proxy.role.word(), proxy.name),
                    reason: format!("{} is used by another program: stop it, or use another address", bind.place()),
                    source: bind.source.clone(),
                });
            }
        }
    }
    held
}

/// Whether another program listens there. The socket that finds out is closed at once.
fn is_held(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Reads what a model names, as far as this user can.
fn certificates(model: &Model) -> Result<Vec<PathBuf>, Vec<Refused>> {
    let directory = std::env::current_dir().unwrap_or_default();
    match Outside::new(directory, None) {
        Ok(outside) => encryption::judge(model, &outside).map(|_| Vec::new()),
        // Said by `read` before.
        Err(_) => Ok(Vec::new()),
    }
}

fn read(files: &[PathBuf]) -> Result<baton_config::Loaded, String> {
    let directory = std::env::current_dir().map_err(|error| error.to_string())?;
    let outside = Outside::new(directory, None).map_err(|error| error.to_string())?;
    if files.iter().any(|file| file == Path::new("-")) {
        return Err("standard input cannot be used as a file here".into());
    }
    Ok(reload::read(&Options { files: files.to_vec(), ..Options::default() }, &outside))
}
