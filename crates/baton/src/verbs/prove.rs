//! `baton prove`: experiments on servers under load, shown as a table and as a report.
//!
//! [`choose`] finds out what is to be done to whom, [`watch`] does it and shows how it goes, [`words`] understands a load.

mod choose;
mod watch;
mod words;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use baton_prove::experiment::{self, Network, Setting, articles, built_in};
use baton_prove::proof::{Outcome, Proof, Row, markdown};
use baton_prove::units;
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use choose::ChosenExperiment;

/// Restart, reload or change a server under load, and count the failures of its clients.
///
/// An experiment is a server, a load, and an event that is repeated while the load runs. The built-in ones
/// are listed by `baton prove list`; each runs with Debian's haproxy, with Baton and where applicable with nginx. Your
/// own are files, or a few options. Each run has a private directory, its own network namespace if permitted, and
/// leaves nothing behind. Ctrl-C ends it and prints the results.
///
/// The exit code is 0 if all results are as expected (docs/prove.md), otherwise 1.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton prove list
  baton prove hard-restart legacy-reload --server haproxy --report proof.html
  baton prove articles --scale 0.1
  baton prove --server 'nginx -c /tmp/my.conf' --reload 'nginx -c /tmp/my.conf -s reload' --every 200ms \\
              --load '-c 20 http://127.0.0.1:8080/'")]
pub struct Prove {
    /// Experiments by name, `all`, `articles`, files (FILE.toml); or `list`; or `show NAME`
    #[arg(value_name = "NAME", required_unless_present = "reload")]
    names: Vec<String>,
    /// Only this server: haproxy, baton, nginx, all; with --reload, the command that starts your server
    #[arg(long, value_name = "NAME|CMD")]
    server: Option<String>,
    /// Command that reloads your server, repeated under load
    #[arg(long, value_name = "CMD", conflicts_with = "names")]
    reload: Option<String>,
    /// PID file of your server, if it runs in the background
    #[arg(long, value_name = "FILE", requires = "reload")]
    pid_file: Option<String>,
    /// Options and URLs of `baton load` that replace the experiment's load
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    load: Option<String>,
    /// Interval between events, such as 200ms
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    every: Option<Duration>,
    /// Minimum duration, such as 10s
    #[arg(long = "for", value_name = "TIME", value_parser = units::time)]
    time: Option<Duration>,
    /// Minimum number of requests
    #[arg(long, value_name = "N", value_parser = units::count)]
    requests: Option<u64>,
    /// Use TLS, with a certificate created for the run
    #[arg(long, conflicts_with = "reload")]
    tls: bool,
    /// Concurrent connections
    #[arg(short = 'c', long, value_name = "N")]
    concurrency: Option<usize>,
    /// Multiply durations and numbers of requests by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Use the network of the machine instead of a network namespace
    #[arg(long)]
    machine_network: bool,
    /// Write a report as one self-contained HTML file (docs/proof.md)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown; in an existing file they go between `<!-- measured: begin -->` and `… end -->`
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a chart of all experiments as an SVG file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

/// Plays the experiments.
///
/// # Errors
/// A sentence, when what was asked for cannot be understood, or a result cannot be written.
pub fn run(command: &Prove) -> Result<ExitCode, String> {
    match command.names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => return Ok(list()),
        ["show", name] => return show(name),
        _ => {}
    }
    let chosen = choose::choose(command)?;
    raise_descriptors();
    // Before measuring for minutes: whether the document takes the figures.
    let document = command.markdown.as_deref().map(marked).transpose()?.flatten();
    // Who stays in the machine's network also stays who they are: the reload of a real server may need that.
    let is_apart = |one: &ChosenExperiment| one.experiment.network != Network::Machine;
    let own_network = !command.machine_network && chosen.iter().any(is_apart) && are_networks_there();
    let setting = Setting {
        baton: std::env::current_exe().map_err(|error| format!("cannot find the file of this program: {error}"))?,
        every: command.every,
        time: command.time,
        requests: command.requests,
        concurrency: command.concurrency,
        scale: command.scale,
        own_network,
        load: &words::options,
    };
    let proof = watch::play(title(&chosen), &chosen, &setting)?;
    // Who does not read the table still gets the files and the exit code.
    super::print_text(proof.table());
    if let Some(file) = &command.report {
        put(file, &proof.to_html())?;
    }
    if let Some(file) = &command.json {
        put(file, &(proof.to_json() + "\n"))?;
    }
    if let Some(file) = &command.markdown {
        let text = document.and_then(|document| proof.in_document(&document));
        put(file, &text.unwrap_or_else(|| proof.to_markdown()))?;
    }
    if let Some(file) = &command.picture {
        put(file, &proof.picture())?;
    }
    Ok(if is_as_expected(&proof) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether something was measured, nothing is broken, and all of it came out as expected.
fn is_as_expected(proof: &Proof) -> bool {
    let is_wrong = |row: &Row| matches!(row.outcome, Outcome::Broken(_)) || row.as_expected == Some(false);
    proof.rows.iter().any(|row| row.measured().is_some()) && !proof.rows.iter().any(is_wrong)
}

/// The most open files that are asked for: clients, origins and what they lead to are one process here.
const DESCRIPTORS_MAX: u64 = 65_536;

/// Makes room for many connections, as far as this user may: the limit of a shell is usually 1024. Too little shows in the
/// failures, by its error number.
fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(DESCRIPTORS_MAX)), hard);
    }
}

/// Somebody who is not root becomes it inside, where the kernel allows it. Nothing has been started yet: one thread.
fn are_networks_there() -> bool {
    let _ = experiment::become_root_inside();
    experiment::own_networks()
}

fn title(chosen: &[ChosenExperiment]) -> String {
    match chosen {
        [one] => format!("{}: {}", one.experiment.title, one.server().name),
        all => format!("{} experiments", all.len()),
    }
}

/// The document that is to get the figures; `None` when there is none yet.
fn marked(file: &Path) -> Result<Option<String>, String> {
    match std::fs::read_to_string(file) {
        Ok(document) if markdown::is_marked(&document) => Ok(Some(document)),
        Ok(_) => Err(format!(
            "{} exists and has no place for the figures: a line '{}' followed by a line '{}'",
            file.display(),
            markdown::BEGIN,
            markdown::END
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

fn put(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn list() -> ExitCode {
    for experiment in built_in::all() {
        let servers: Vec<&str> = experiment.servers.iter().map(|server| server.name.as_str()).collect();
        super::print_line(format_args!(
            "{:16} {}\n{:16} {}",
            experiment.name,
            experiment.title,
            "",
            servers.join(", ")
        ));
    }
    super::print_line("\nTables of public articles ('articles' runs all of them, and 'cost'):");
    for (name, heading) in articles::list() {
        super::print_line(format_args!("{name:16} {heading}"));
    }
    ExitCode::SUCCESS
}

fn show(name: &str) -> Result<ExitCode, String> {
    let (_, text) = built_in::ALL.iter().find(|(known, _)| *known == name).ok_or_else(|| choose::unknown(name))?;
    super::print_text(text);
    Ok(ExitCode::SUCCESS)
}
