//! `baton hold`: new connections wait while a command runs.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use baton_guard::KernelError;
use baton_guard::hold::plug;
use baton_guard::hold::record::{self, Claimed, Refused, Released, RunRecord, UndoneRun};
use baton_guard::hold::run::{self, HoldOptions, HoldReport, NOT_HELD};
use baton_guard::hold::{HoldOrder, MethodName, Target, Targets};
use baton_kernel::output::{self, WriteMode};
use baton_kernel::process::known::ProcessId;
use baton_prove::units;
use clap::{Args, Subcommand};

/// The exit code of a command line that cannot be followed, and of a run that could not begin.
pub const CANNOT_BEGIN: u8 = NOT_HELD;
/// How many connections are held at the same time at most.
const LIMIT: u32 = 1000;
/// The word that lets us choose.
const AUTO: &str = "auto";

/// Hold new connections to another server while a command reloads or restarts it.
///
/// Works with any server. Open connections are not affected. Input, output, signals and exit code are those of the
/// command; messages go to standard error. Connections are released when the command ends, after --max, and if
/// this process is killed.
///
/// Needs CAP_NET_ADMIN. If connections cannot be held, the command is not run and the exit code is 125; 126 and 127 mean that the
/// command cannot be run, or was not found.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  baton hold --to :80 --to :443 -- systemctl reload haproxy
  baton hold --to 169.254.255.254:16000 --method queue --max 2s -- /etc/init.d/haproxy reload
  baton hold --to :443 --dry-run -- systemctl restart nginx
  baton hold setup --to 169.254.255.254:16000
  baton hold status")]
pub struct HoldCommand {
    #[command(subcommand)]
    action: Option<HoldAction>,
    // Brackets in a comment would be a link to rustdoc.
    #[arg(
        long = "to",
        value_name = "[ADDR]:PORT",
        required = true,
        help = "Destination of the new connections: ADDRESS:PORT, [ADDRESS]:PORT, or :PORT for all addresses (repeatable)"
    )]
    targets: Vec<Target>,
    /// Method: auto, migrate, queue, plug, drop (docs/hold.md)
    #[arg(long, value_name = "NAME", default_value = AUTO, value_parser = method)]
    method: HoldMethodName,
    /// Release the connections after this time, even if the command still runs: 300ms, 5s, 1m; a plain number means seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::time)]
    max: Duration,
    /// Maximum number of held connections; the rest pass (not used by migrate and drop, which
    /// hold none)
    #[arg(long, value_name = "N", default_value_t = LIMIT, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    limit: u32,
    /// Only on this network interface (repeatable; not with migrate)
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// Keep holding for this time after the command has ended, such as 300ms for one that only sends a signal; a plain number means
    /// seconds
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    linger: Option<Duration>,
    /// Dry run: print the steps and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait if another process holds the same connections
    #[arg(long)]
    wait: bool,
    /// Run the command even if connections cannot be held
    #[arg(long)]
    anyway: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    /// Print what was held as one line of JSON
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "dry_run")]
    command: Vec<OsString>,
}

#[derive(Subcommand, Debug)]
enum HoldAction {
    /// Show active holds and leftovers of killed runs; exit code 1 if there are leftovers
    Status,
    /// Undo the leftovers of killed runs, end hung guardian processes, remove unreadable files
    Release,
    /// Set up the queueing discipline of --method plug once, for example at boot; runs then only close and open it
    Setup(Setup),
    /// Remove the queueing discipline of --method plug
    Teardown {
        /// On this network interface (repeatable)
        #[arg(long, value_name = "NAME", default_value = "lo")]
        interface: Vec<String>,
    },
}

/// A lane that stands.
#[derive(Args, Debug)]
struct Setup {
    /// Destination of the new connections, as in the runs that use it (repeatable)
    #[arg(long = "to", value_name = "[ADDR]:PORT", required = true)]
    targets: Vec<Target>,
    /// On this outgoing network interface (repeatable)
    #[arg(long, value_name = "NAME", default_value = "lo")]
    interface: Vec<String>,
    /// Method: only plug needs a setup
    #[arg(long, value_name = "plug", default_value = "plug", value_parser = ["plug"])]
    method: String,
}

/// `None` is auto.
#[derive(Clone, Copy, Debug)]
struct HoldMethodName(Option<MethodName>);

fn method(text: &str) -> Result<HoldMethodName, String> {
    match text {
        AUTO => Ok(HoldMethodName(None)),
        other => other.parse().map(|name| HoldMethodName(Some(name))),
    }
}

/// Does it.
pub fn run(command: &HoldCommand) -> Result<ExitCode, String> {
    match &command.action {
        Some(HoldAction::Status) => status().map_err(text),
        Some(HoldAction::Release) => release().map_err(text),
        Some(HoldAction::Setup(setup)) => set_up(setup),
        Some(HoldAction::Teardown { interface, .. }) => take_down(interface),
        None => hold(command),
    }
}

fn hold(command: &HoldCommand) -> Result<ExitCode, String> {
    // Connections wait meanwhile: nothing waits long for whoever reads our output.
    output::set_mode(WriteMode::Brief);
    let asked = HoldOptions {
        targets: Targets::new(command.targets.clone())?,
        method: command.method.0,
        max: command.max,
        limit: command.limit,
        linger: command.linger.unwrap_or_default(),
        interfaces: command.interface.clone(),
        command: command.command.clone(),
        wait: command.wait,
        anyway: command.anyway,
    };
    if command.dry_run {
        return match run::plan(&asked) {
            Ok((choice, steps)) => {
                super::print_line(format_args!("{choice}\n{}", steps.to_string().trim_end()));
                Ok(ExitCode::SUCCESS)
            }
            Err(fault) => {
                super::say_line(format_args!("baton: {fault}"));
                Ok(ExitCode::from(NOT_HELD))
            }
        };
    }
    let is_talking = !command.quiet && !command.json;
    let report = run::run(&asked, &mut |sentence| {
        if is_talking {
            super::say_line(format_args!("baton: {sentence}"));
        }
    });
    tell(command, &report);
    Ok(ExitCode::from(report.exit))
}

fn tell(command: &HoldCommand, report: &HoldReport) {
    if command.json {
        super::say_line(report.json());
        return;
    }
    let is_wrong = !report.faults.is_empty();
    for sentence in report.sentences() {
        if is_wrong || !command.quiet {
            super::say_line(format_args!("baton: {sentence}"));
        }
    }
    if report.method.is_none() && is_wrong {
        super::say_line(format_args!(
            "baton: the command was {}",
            if command.anyway { "run without a hold (--anyway)" } else { "not run" }
        ));
    }
}

fn set_up(setup: &Setup) -> Result<ExitCode, String> {
    let order = HoldOrder {
        run: std::process::id(),
        method: MethodName::Plug,
        targets: Targets::new(setup.targets.clone())?,
        max: Duration::ZERO,
        limit: LIMIT,
        interfaces: setup.interface.clone(),
    };
    alone(order, plug::setup)
}

fn take_down(interfaces: &[String]) -> Result<ExitCode, String> {
    // Of no account but for messages: the interfaces are what others must leave alone meanwhile.
    let some = Target { address: None, port: u16::MAX };
    let order = HoldOrder {
        run: std::process::id(),
        method: MethodName::Plug,
        targets: Targets::new(vec![some])?,
        max: Duration::ZERO,
        limit: LIMIT,
        interfaces: interfaces.to_vec(),
    };
    alone(order, |order| plug::teardown(&order.interfaces))
}

/// Does something to lanes while no run uses them.
fn alone(
    order: HoldOrder,
    work: impl FnOnce(&HoldOrder) -> Result<Vec<String>, KernelError>,
) -> Result<ExitCode, String> {
    let claims = plug::claims(&order.interfaces);
    let claimed = Claimed::claim(RunRecord::new(order.clone(), claims, "a lane".into(), Duration::ZERO), true);
    let claimed = claimed.map_err(|refused| match refused {
        Refused::Busy(other) => format!("process {} holds {}", other.order.run, other.order.targets),
        Refused::Fault(fault) => text(fault),
    })?;
    let done = work(&order);
    claimed.forget().map_err(text)?;
    for sentence in done.map_err(text)? {
        super::print_line(sentence);
    }
    Ok(ExitCode::SUCCESS)
}

fn status() -> Result<ExitCode, KernelError> {
    let found = record::look()?;
    let line = |record: &RunRecord| {
        format!(
            "{} ({}, PID {}, for {:?}), to run `{}`",
            record.order.targets,
            record.order.method,
            record.order.run,
            record.age(),
            record.command
        )
    };
    for record in &found.living {
        super::print_line(format_args!("held    {}", line(record)));
    }
    for record in &found.orphaned {
        let and = "killed; its guardian process releases the connections; if it hangs, `baton hold release` ends it";
        super::print_line(format_args!("ending  {}: {and}", line(record)));
    }
    for record in &found.dead {
        let what = match record.is_here() {
            true => "killed; `baton hold release` undoes it",
            false => "of an earlier boot or network namespace; `baton hold release` removes the record",
        };
        super::print_line(format_args!("left    {}: {what}", line(record)));
    }
    for file in &found.unreadable {
        super::print_line(format_args!("left    {}", file.fault));
    }
    let lanes = plug::standing()?;
    for lane in lanes.iter().filter(|lane| lane.stays) {
        super::print_line(format_args!("lane    {lane}"));
    }
    if found.living.is_empty() && !found.is_left() && !lanes.iter().any(|lane| lane.stays) {
        super::print_line("No active holds, no leftovers.");
    }
    Ok(if found.is_left() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn release() -> Result<ExitCode, KernelError> {
    let Released { guardians, leftovers, unreadable } = record::release()?;
    if guardians.is_empty() && leftovers.is_empty() && unreadable.is_empty() {
        super::print_line("No leftovers.");
    }
    let mut is_whole = true;
    let mut told = |done: Result<String, String>| match done {
        Ok(sentence) => super::print_line(sentence),
        Err(sentence) => {
            is_whole = false;
            super::say_line(format_args!("baton: {sentence}"));
        }
    };
    for guardian in guardians {
        let ended = |guardian: ProcessId| format!("ended the hung guardian process {}", guardian.pid);
        told(guardian.map(ended).map_err(text));
    }
    for UndoneRun { record, outcome } in leftovers {
        let HoldOrder { run, method, targets, .. } = &record.order;
        let what = format!("{targets} ({method}, PID {run})");
        told(match outcome {
            Ok(()) if record.is_here() => Ok(format!("released {what}")),
            Ok(()) => Ok(format!("removed the record of {what}, of an earlier boot or network namespace")),
            Err(fault) => Err(format!("{what}: {fault}")),
        });
    }
    for (file, outcome) in unreadable {
        told(match outcome {
            Ok(()) => Ok(format!("removed the unreadable file {}", file.fault.place)),
            Err(fault) if fault.place == file.fault.place => Err(fault.to_string()),
            Err(fault) => Err(format!("{}: {fault}", file.fault.place)),
        });
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(fault: KernelError) -> String {
    fault.to_string()
}
