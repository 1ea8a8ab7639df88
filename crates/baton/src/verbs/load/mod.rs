//! `baton load`: the load client of `baton-prove` on the command line.
//!
//! [`arguments`] is what can be asked for, [`plan`] what it means to the library, [`watch`] the run, [`outcome`] what is said of it.
//! Nothing is measured here.

mod arguments;
mod foreign;
mod outcome;
mod plan;
mod url;
mod watch;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use baton_kernel::process::limits::OpenFiles;
use baton_prove::{LoadResult, Progress};

pub use arguments::LoadCommand;
pub use foreign::translate;
pub use plan::Plan;

use outcome::Outcome;
use watch::LoadEnd;

/// The exit code of a load that could not begin.
pub const CANNOT_BEGIN: u8 = 2;

/// The exit code after a second Ctrl-C, as shells give it for the signal.
const INTERRUPTED: u8 = 130;

/// Descriptors besides connections: standard ones, runtimes, timers, files.
const DESCRIPTORS_BESIDES: u64 = 64;

/// Plays the load.
pub fn run(command: &LoadCommand) -> ExitCode {
    match prepare(command).and_then(|(plan, files)| play(command, &plan, files)) {
        Ok(code) => code,
        Err(text) => {
            super::say_line(format_args!("baton load: {text}"));
            ExitCode::from(CANNOT_BEGIN)
        }
    }
}

/// Files that are written at the end, opened before anything is sent.
struct OutputFiles {
    json: Option<OutputFile>,
    series: Option<OutputFile>,
}

/// A file to be written, and its name.
struct OutputFile {
    path: PathBuf,
    file: File,
}

impl OutputFile {
    fn open(path: Option<&PathBuf>) -> Result<Option<OutputFile>, String> {
        let open = |path: &PathBuf| match File::create(path) {
            Ok(file) => Ok(OutputFile { path: path.clone(), file }),
            Err(error) => Err(format!("cannot write {}: {error}", path.display())),
        };
        path.map(open).transpose()
    }

    fn write(mut self, text: &str) -> Result<(), String> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

fn prepare(command: &LoadCommand) -> Result<(Plan, OutputFiles), String> {
    let plan = Plan::new(command)?;
    if plan.load.is_none() && command.output.series.is_some() {
        return Err("--series applies to http:// and https:// URLs, and there are none".into());
    }
    raise_descriptors(plan.connections() as u64 + DESCRIPTORS_BESIDES)?;
    let json = OutputFile::open(command.output.json.as_ref().and_then(Option::as_ref))?;
    Ok((plan, OutputFiles { json, series: OutputFile::open(command.output.series.as_ref())? }))
}

fn play(command: &LoadCommand, plan: &Plan, files: OutputFiles) -> Result<ExitCode, String> {
    let output = &command.output;
    let (err, terminal): (Box<dyn Write>, bool) = match output.quiet {
        true => (Box::new(io::sink()), false),
        false => (Box::new(io::stderr()), io::stderr().is_terminal()),
    };
    let mut progress = Progress::new(err, terminal);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot make a runtime: {error}"))?;
    let ended = runtime.block_on(watch::watch(plan, &mut progress))?;
    progress.clear();
    let measured = match ended {
        LoadEnd::Measured(measured) => measured,
        LoadEnd::AtOnce(counts) => {
            super::say_line(format_args!(
                "baton load: ended immediately; until the first Ctrl-C: {counts}, {} completed",
                counts.completed
            ));
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };

    let outcome = Outcome::new(plan, &measured);
    let text = match output.json {
        Some(None) => outcome.to_json(),
        _ => outcome.to_string(),
    };
    // Who does not read the result still gets the exit code.
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
    let written = write(files, &outcome, measured.load.as_ref());
    if let Err(text) = &written {
        super::say_line(format_args!("baton load: {text}"));
    }
    Ok(if outcome.clean && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(files: OutputFiles, outcome: &Outcome, load: Option<&LoadResult>) -> Result<(), String> {
    if let Some(file) = files.json {
        file.write(&(outcome.to_json() + "\n"))?;
    }
    if let (Some(file), Some(load)) = (files.series, load) {
        let is_json = file.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        file.write(&if is_json { outcome::series_json(&load.series) } else { outcome::series_csv(&load.series) })?;
    }
    Ok(())
}

/// Raises the limit of open files to so many; the limit of a shell is usually 1024.
fn raise_descriptors(wanted: u64) -> Result<(), String> {
    let limit = OpenFiles::raise(wanted).map_err(|error| format!("cannot raise the limit of open files: {error}"))?;
    match limit.soft {
        soft if soft < wanted => Err(format!(
            "these connections need {wanted} open files, and the limit is {soft}; raise it (ulimit -n {wanted}) or use fewer \
             connections"
        )),
        _ => Ok(()),
    }
}
