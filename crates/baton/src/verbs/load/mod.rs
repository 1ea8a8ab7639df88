//! `baton load`: the load client of `baton-prove` on the command line.
//!
//! [`arguments`] is what can be asked for, [`plan`] what it means to the library, [`watch`] the run, [`outcome`] what is said of it.
//! Nothing is measured here.

mod arguments;
mod foreign;
mod outcome;
mod plan;
mod units;
mod url;
mod watch;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use baton_kernel::process::limits::OpenFiles;
use baton_prove::Progress;

pub use arguments::LoadCommand;
pub use plan::Plan;

use outcome::Outcome;
use watch::Ended;

/// The exit code of a load that could not begin.
pub const CANNOT_BEGIN: u8 = 2;

/// The exit code after a second Ctrl-C, as shells give it for the signal.
const INTERRUPTED: u8 = 130;

/// Descriptors besides connections: standard ones, runtimes, timers, files.
const DESCRIPTORS_BESIDES: u64 = 64;

/// Plays the load.
pub fn run(command: &LoadCommand) -> ExitCode {
    match prepare(command).and_then(|(plan, files)| play(command, plan, files)) {
        Ok(code) => code,
        Err(text) => {
            eprintln!("baton load: {text}");
            ExitCode::from(CANNOT_BEGIN)
        }
    }
}

/// Files that are written at the end, opened before anything is sent.
struct Files {
    json: Option<File>,
    series: Option<File>,
}

fn prepare(command: &LoadCommand) -> Result<(Plan, Files), String> {
    let plan = Plan::new(command)?;
    if plan.load.is_none() && command.output.series.is_some() {
        return Err("--series is about requests, and none of the URLs is asked any".into());
    }
    raise_descriptors(plan.connections() as u64 + DESCRIPTORS_BESIDES)?;
    let json = command.output.json.as_ref().and_then(Option::as_deref);
    Ok((plan, Files { json: create(json)?, series: create(command.output.series.as_deref())? }))
}

fn play(command: &LoadCommand, plan: Plan, files: Files) -> Result<ExitCode, String> {
    let output = &command.output;
    let mut progress = if output.quiet {
        Progress::new(Box::new(io::sink()) as Box<dyn Write>, false)
    } else {
        Progress::new(Box::new(io::stderr()) as Box<dyn Write>, io::IsTerminal::is_terminal(&io::stderr()))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot make a runtime: {error}"))?;
    let ended = runtime.block_on(watch::watch(&plan, &mut progress))?;
    progress.clear();
    let Ended::Measured(measured) = ended else { return Ok(ExitCode::from(INTERRUPTED)) };

    let outcome = Outcome::new(&plan, &measured);
    let text = match output.json {
        Some(None) => outcome.to_json(),
        _ => outcome.to_string(),
    };
    // Who does not read the result still gets the exit code.
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
    if let Some(file) = files.json {
        put(output.json.as_ref().and_then(Option::as_deref), file, &(outcome.to_json() + "\n"))?;
    }
    if let (Some(file), Some(path), Some(load)) = (files.series, &output.series, &measured.load) {
        let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        put(
            Some(path),
            file,
            &if json { outcome::series_json(&load.series) } else { outcome::series_csv(&load.series) },
        )?;
    }
    Ok(if outcome.clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn create(path: Option<&Path>) -> Result<Option<File>, String> {
    let told = |path: &Path, error| format!("cannot write {}: {error}", path.display());
    path.map(|path| File::create(path).map_err(|error| told(path, error))).transpose()
}

fn put(path: Option<&Path>, mut file: File, text: &str) -> Result<(), String> {
    let name = path.unwrap_or(Path::new("")).display();
    file.write_all(text.as_bytes()).map_err(|error| format!("cannot write {name}: {error}"))
}

/// Makes room for so many descriptors; the limit of a shell is usually 1024.
fn raise_descriptors(wanted: u64) -> Result<(), String> {
    let limit = OpenFiles::raise(wanted).map_err(|error| format!("cannot raise the limit of open files: {error}"))?;
    match limit.soft {
        soft if soft < wanted => Err(format!(
            "so many connections need {wanted} open files, and the limit is {soft}; raise it (ulimit -n {wanted}), or ask for fewer"
        )),
        _ => Ok(()),
    }
}
