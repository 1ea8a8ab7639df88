//! `baton flip`: words to `baton_guard::flip`, and what it says to lines.

use std::process::ExitCode;
use std::time::Duration;

use baton_guard::flip::{
    Check, Colour, FlipCycle, FlipMethodKind, FlipReport, Flips, Init, Name, ProbeKind, Setting, Switch, place,
};
use baton_guard::hold::target::Target;
use baton_kernel::output::{self, WriteMode};
use baton_prove::units;
use clap::{Args, Subcommand};

/// Switch new connections between two instances of another server (blue/green).
///
/// For any server that cannot change without losing connections: change the idle instance, then switch. Open connections stay where
/// they are. Your own firewall rules are not touched; `baton flip remove` removes everything.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton flip init --listen :80 --blue 127.0.0.1:8000 --green 127.0.0.1:8001
  baton flip status
  baton flip to green --check /health
  baton flip run --reload-blue 'systemctl reload haproxy@blue' --reload-green 'systemctl reload haproxy@green'
  baton flip remove

More: docs/flip.md")]
pub struct FlipCommand {
    #[command(subcommand)]
    what: FlipAction,
}

#[derive(Debug, Subcommand)]
enum FlipAction {
    Init(InitCommand),
    Status(FlipStatusCommand),
    To(ToCommand),
    Run(RunCommand),
    Remove(RemoveCommand),
}

/// The name of a flip.
#[derive(Args, Debug)]
struct FlipName {
    /// Name of the flip, if there are several
    #[arg(long, value_name = "NAME", default_value = "web")]
    name: Name,
    /// Dry run: print the shell commands and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Set up a flip; running the same command again changes nothing.
///
/// New connections go to blue if it responds, otherwise to green.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton flip init --listen :80 --blue 127.0.0.1:8000 --green 127.0.0.1:8001
  baton flip init --name mail --listen 192.0.2.1:25 --blue 192.0.2.1:2025 --green 192.0.2.1:2026 --method ipset
  baton flip init --listen :80 --blue :8000 --green :8001 --dry-run")]
struct InitCommand {
    #[command(flatten)]
    named: FlipName,
    /// Address that clients connect to: ADDRESS:PORT, or `:PORT` for every address of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = place)]
    listen: Target,
    /// Address of the blue instance; repeat it for IPv6; `:PORT` if it listens on every address
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = place)]
    blue: Vec<Target>,
    /// Address of the green instance
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = place)]
    green: Vec<Target>,
    /// Method: auto, nft, ipset, iptables, sk_lookup
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = method)]
    method: FlipMethodName,
    /// Instance to make active [default: the active one, or the one that responds]
    #[arg(long, value_name = "COLOUR")]
    active: Option<Colour>,
    #[command(flatten)]
    checked: Checked,
}

/// Show every flip: active instance, health and connections of both; exit code 1 if there is a problem
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  baton flip status --json | jq -r '.[0].active'")]
struct FlipStatusCommand {
    /// Only this flip
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Send new connections to one of the two instances, if it responds.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton flip to green
  baton flip to blue --check /health
  baton flip to blue --check 'curl -fsS -H \"Host: shop\" http://$BATON_FLIP_ADDRESS/'")]
struct ToCommand {
    /// `blue` or `green`
    colour: Colour,
    #[command(flatten)]
    named: FlipName,
    #[command(flatten)]
    checked: Checked,
}

#[derive(Args, Debug)]
struct Checked {
    #[command(flatten)]
    ask: Ask,
    /// Do it even if the instance does not respond
    #[arg(long)]
    force: bool,
}

#[derive(Args, Debug)]
struct Ask {
    /// Health check: a path, a URL (http://…), or a command [default: a TCP connection]
    #[arg(long, value_name = "CHECK")]
    check: Option<ProbeKind>,
    /// Timeout of one check; a command that takes longer is killed, with its children
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::time)]
    check_limit: Duration,
}

impl Ask {
    fn check(self) -> Check {
        Check { how: self.check.unwrap_or(ProbeKind::Connect), limit: self.check_limit }
    }
}

/// Reload the idle instance, wait until it responds, make it active, and drain the other one.
///
/// Commands run in sh, with BATON_FLIP_COLOUR and BATON_FLIP_ADDRESS in their environment.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  baton flip run --reload-blue 'systemctl reload-or-restart haproxy@blue' \\
                 --reload-green 'systemctl reload-or-restart haproxy@green' --check /health --drain 60s")]
struct RunCommand {
    #[command(flatten)]
    named: FlipName,
    /// Command that reloads the blue instance
    #[arg(long, value_name = "CMD")]
    reload_blue: String,
    /// Command that reloads the green instance
    #[arg(long, value_name = "CMD")]
    reload_green: String,
    /// Timeout of a reload; after it the command is killed, with its children
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = units::time)]
    reload_limit: Duration,
    #[command(flatten)]
    ask: Ask,
    /// Timeout until the instance responds
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::time)]
    wait: Duration,
    /// How long to wait for the connections of the other instance to end; the rest stay open
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = patience)]
    drain: Duration,
}

/// Remove a flip and all its kernel state. New connections then go to the server that listens on the address
/// that clients connect to.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  baton flip remove --name mail")]
struct RemoveCommand {
    #[command(flatten)]
    named: FlipName,
}

/// `auto`, or one that is named.
#[derive(Clone, Copy, Debug)]
struct FlipMethodName(Option<FlipMethodKind>);

/// A time, which may be nothing at all.
fn patience(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s" | "0ms") { Ok(Duration::ZERO) } else { units::time(text) }
}

fn method(text: &str) -> Result<FlipMethodName, String> {
    if text == "auto" { Ok(FlipMethodName(None)) } else { text.parse().map(|kind| FlipMethodName(Some(kind))) }
}

/// Does it and prints what was done.
pub fn run(command: FlipCommand) -> Result<ExitCode, String> {
    let done = match command.what {
        FlipAction::Init(command) => init(command)?,
        FlipAction::Status(command) => return status(&command),
        FlipAction::To(ToCommand { colour, named, checked }) => {
            let flips = flips(named.dry_run)?;
            let Checked { ask, force } = checked;
            let switch = Switch { name: named.name, to: colour, check: ask.check(), force };
            if named.dry_run { flips.plan_switch(&switch) } else { flips.switch(&switch) }.map_err(words)?
        }
        FlipAction::Run(command) => {
            // One instance is being replaced meanwhile: nothing waits long for whoever reads our output.
            output::set_mode(WriteMode::Brief);
            cycle(command)?
        }
        FlipAction::Remove(RemoveCommand { named }) => {
            let flips = flips(named.dry_run)?;
            if named.dry_run { flips.plan_remove(&named.name) } else { flips.remove(&named.name) }.map_err(words)?
        }
    };
    for line in done.lines {
        super::print_line(line);
    }
    Ok(ExitCode::SUCCESS)
}

/// Those of this network namespace; who only looks leaves no folder where there was none.
fn flips(is_looking: bool) -> Result<Flips, String> {
    if is_looking { Flips::look_at() } else { Flips::open() }.map_err(words)
}

fn words(fault: baton_guard::KernelError) -> String {
    fault.to_string()
}

fn init(command: InitCommand) -> Result<FlipReport, String> {
    let InitCommand { named, listen, blue, green, method, active, checked } = command;
    let setting = Setting::new(named.name, listen, blue, green)?;
    let Checked { ask, force } = checked;
    let init = Init { setting, method: method.0, active, check: ask.check(), force };
    let flips = flips(named.dry_run)?;
    if named.dry_run { flips.plan_init(&init) } else { flips.init(&init) }.map_err(words)
}

fn cycle(command: RunCommand) -> Result<FlipReport, String> {
    let RunCommand { named, reload_blue, reload_green, reload_limit, ask, wait, drain } = command;
    let check = ask.check();
    let cycle = FlipCycle { name: named.name, reload_blue, reload_green, limit: reload_limit, check, wait, drain };
    let flips = flips(named.dry_run)?;
    if named.dry_run {
        return flips.plan_run(&cycle).map_err(words);
    }
    flips.run(&cycle, &mut |line| super::print_line(line)).map_err(words)?;
    Ok(FlipReport::default())
}

fn status(command: &FlipStatusCommand) -> Result<ExitCode, String> {
    let (mut all, mut unreadable) = flips(true)?.status().map_err(words)?;
    if let Some(name) = &command.name {
        all.retain(|status| status.name == *name);
        unreadable.retain(|(unreadable, _)| unreadable == name);
        if all.is_empty() && unreadable.is_empty() {
            return Err(format!("no flip is named {name}"));
        }
    }
    if command.json {
        super::print_line(serde_json::to_string_pretty(&all).unwrap_or_default());
    } else if all.is_empty() && unreadable.is_empty() {
        super::print_line("There is no flip.");
    }
    for status in all.iter().filter(|_| !command.json) {
        super::print_line(status.to_string().trim_end());
    }
    for (name, fault) in &unreadable {
        super::say_line(format_args!("baton: flip {name}: {fault}"));
    }
    let is_well = unreadable.is_empty() && all.iter().all(|status| status.problem.is_none());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
