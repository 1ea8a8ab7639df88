//! The program: HAProxy's command line, and Baton's own verbs.
//!
//! Called as `haproxy` it behaves the same. The first argument decides: a dash is HAProxy's command line, a word is a verb.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]

mod arguments;
mod demo;
mod interrupt;
mod start;
mod texts;
mod verbs;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use arguments::{Invocation, Wrong};
use baton_config::condition;
use baton_control::Messages;
use baton_control::early_signals;
use baton_control::handover::strangers::{self, MESSENGER_ARGUMENT};
use baton_control::servant::Summons;
use baton_guard::hold::guardian::{GUARDIAN_ARGUMENT, be_guardian};
use baton_kernel::output::{self, FLUSHED_WITHIN};
use baton_kernel::panics;
use baton_master::Resumed;
use baton_master::process::{Program, WORKER_ARGUMENT};
use baton_master::state::STATE_ARGUMENT;
use start::Origin;

/// Objects of one size side by side, also those that must be aligned, as tokio's are to cache lines: with the C library's
/// allocator an idle connection takes a fifth more (docs/performance.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit code of `-cc` when the condition cannot be evaluated.
const BAD_CONDITION: u8 = 2;

fn main() -> ExitCode {
    panics::report();
    let code = run();
    output::flush(FLUSHED_WITHIN);
    code
}

fn run() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let called = if arguments.is_empty() { OsString::from("baton") } else { arguments.remove(0) };
    let program =
        Path::new(&called).file_name().map_or_else(|| "baton".into(), |name| name.to_string_lossy().into_owned());
    if arguments.first().is_some_and(verbs::is_verb) {
        return verbs::run(&called, &arguments);
    }
    if arguments.first().is_some_and(|first| first == MESSENGER_ARGUMENT) {
        return strangers::carry(&arguments[1..]).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if arguments.first().is_some_and(|first| first == GUARDIAN_ARGUMENT) {
        return ExitCode::from(be_guardian(&arguments[1..]));
    }
    // Where this fails, early signals end us as they would any other program.
    let _ = early_signals::wait();
    let summons = is_worker(&mut arguments).then(Summons::receive).transpose();
    let resumed = resumed_state(&mut arguments).map(|number| Resumed::from_argument(&number)).transpose();
    let (summons, resumed) = match summons.and_then(|summons| Ok((summons, resumed?))) {
        Ok(both) => both,
        Err(text) => {
            Messages::new(&program, texts::VERSION, false).alert(&text);
            return ExitCode::FAILURE;
        }
    };
    match arguments::parse(&arguments) {
        Ok(Invocation::Version { with_options: false }) => print(&texts::version()),
        Ok(Invocation::Version { with_options: true }) => print(&texts::version_and_options()),
        Ok(Invocation::Condition(text)) => evaluate(&program, &text),
        Ok(Invocation::Run(run)) => {
            start::run(&program, *run, Origin { program: Program::this(called, arguments), summons, resumed })
        }
        Err(Wrong::Alert(text)) => {
            Messages::new(&program, texts::VERSION, false).alert(&text);
            ExitCode::FAILURE
        }
        Err(Wrong::Usage(text)) => {
            print(&texts::version());
            if let Some(text) = text {
                Messages::new(&program, texts::VERSION, false).alert(&text);
            }
            output::print_error(&texts::usage(&program));
            ExitCode::FAILURE
        }
    }
}

/// Takes the argument by which a master that becomes a new binary tells what it was.
fn resumed_state(arguments: &mut Vec<OsString>) -> Option<String> {
    let number = arguments.first()?.to_str()?.strip_prefix(STATE_ARGUMENT)?.to_owned();
    arguments.remove(0);
    Some(number)
}

/// Takes the argument by which a master tells its worker what it is.
fn is_worker(arguments: &mut Vec<OsString>) -> bool {
    let is_worker = arguments.first().is_some_and(|first| first == WORKER_ARGUMENT);
    if is_worker {
        arguments.remove(0);
    }
    is_worker
}

/// `-cc`: 0 is true, 1 is false, 2 cannot be told.
fn evaluate(program: &str, text: &str) -> ExitCode {
    match condition::evaluate(text, &|name| std::env::var_os(name).is_some()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let text = format!("config : Failed to evaluate condition: {error}");
            Messages::new(program, texts::VERSION, false).alert(&text);
            ExitCode::from(BAD_CONDITION)
        }
    }
}

fn print(text: &str) -> ExitCode {
    output::print(text);
    ExitCode::SUCCESS
}
