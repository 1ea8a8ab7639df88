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

/// Do something to a server under load, again and again, and count what its clients felt.
///
/// An experiment is a server, a load, and something that is done to the server while the load runs. Those that come with the
/// program are named by `baton prove list`; each is done to Debian's haproxy, to Baton and where it makes sense to nginx. Your
/// own are files, or a few options. Each run has a private directory, a network of its own where the rights suffice, and
/// leaves nothing behind. Ctrl-C ends it with what was measured until then.
///
/// The exit code is 0 when everything that was measured is as the experiment expects (docs/prove.md), else 1.
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
    /// Only this server: haproxy, baton, nginx, all; with --reload, the command that starts yours
    #[arg(long, value_name = "NAME|CMD")]
    server: Option<String>,
    /// What is done to your server again and again
    #[arg(long, value_name = "CMD", conflicts_with = "names")]
    reload: Option<String>,
    /// File with the number of your server's process, when it goes into the background
    #[arg(long, value_name = "FILE", requires = "reload")]
    pid_file: Option<String>,
    /// Other load than the experiment's, in the words of `baton load`
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    load: Option<String>,
    /// Time from one event to the next, such as 200ms
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    every: Option<Duration>,
    /// Run for at least so long, such as 10s
    #[arg(long = "for", value_name = "TIME", value_parser = units::time)]
    time: Option<Duration>,
    /// Make at least so many requests
    #[arg(long, value_name = "N", value_parser = units::count)]
    requests: Option<u64>,
    /// Speak TLS with the servers, with a certificate made for the run
    #[arg(long, conflicts_with = "reload")]
    tls: bool,
    /// How many connections ask at the same time
    #[arg(short = 'c', long, value_name = "N")]
    concurrency: Option<usize>,
    /// Make times and numbers of requests so many times as large
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Stay in the machine's network
    #[arg(long)]
    machine_network: bool,
    /// Write a report to read: one HTML file that needs nothing else (docs/proof.md)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the proof as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables in Markdown; a file that is there gets them between its lines `<!-- measured: begin -->` and `… end -->`
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write one picture of all experiments, an SVG file
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
        baton: std::env::current_exe().map_err(|error| format!("where this program is cannot be told: {error}"))?,
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
            "{} is there and has no place for the figures: one line '{}' and after it one '{}'",
            file.display(),
            markdown::BEGIN,
            markdown::END
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
    }
}

fn put(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))
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
    super::print_line("\nTables of articles, all of them by the name 'articles':");
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
