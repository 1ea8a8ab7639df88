//! `baton real-server`: words to `baton_direct::real_server`, and what it says to lines.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use baton_direct::real_server::check::{self, Answerer, Finding, Grade, Outside};
use baton_direct::real_server::{self, ArpMethod, RealServerOptions, RealServerReport, Tunnels};
use baton_prove::units;
use clap::{Args, Subcommand};

use super::{print_line, say_line};

/// Set this machine up as a real server of direct routing: it gets the virtual address, and keeps quiet about it.
///
/// The address goes on lo, and the machine answers no ARP for it, so that clients find the director alone. What was set before is
/// put back by `down`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton real-server up --vip 192.168.121.2
  baton real-server up --vip 192.168.121.2,2001:db8::2 --persistent
  baton real-server check --vip 192.168.121.2 --port 80
  baton real-server check --vip 192.168.121.2 --from eth0 --server 192.168.121.141    # from another machine
  baton real-server down --vip 192.168.121.2

More: docs/real-server.md")]
pub struct RealServerCommand {
    #[command(subcommand)]
    what: RealServerAction,
}

#[derive(Debug, Subcommand)]
enum RealServerAction {
    Up(UpCommand),
    Down(DownCommand),
    Check(CheckCommand),
}

/// Set virtual addresses up. The same command again changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton real-server up --vip 192.168.121.2
  baton real-server up --vip 192.168.121.2 --interface eth0 --method filter
  baton real-server up --vip 192.168.121.2 --persistent
  baton real-server up --vip 192.168.121.2 --dry-run")]
struct UpCommand {
    /// The virtual addresses, IPv4 or IPv6
    #[arg(long, value_name = "ADDRESS", required = true, value_delimiter = ',', value_parser = vip)]
    vip: Vec<IpAddr>,
    /// Keep quiet on these interfaces alone, instead of on all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    interface: Vec<String>,
    /// How to keep quiet: sysctl (arp_ignore, arp_announce), filter (a table of nftables), or auto
    #[arg(long, value_name = "METHOD", default_value_t)]
    method: ArpMethod,
    /// Take packets out of tunnels too: ipip
    #[arg(long, value_name = "KIND", value_parser = tunnel)]
    tunnel: Option<Tunnels>,
    /// At each boot too, by a unit of systemd
    #[arg(long)]
    persistent: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Take virtual addresses down, and put back what was there before.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton real-server down --vip 192.168.121.2
  baton real-server down --all --dry-run")]
struct DownCommand {
    /// The virtual addresses
    #[arg(long, value_name = "ADDRESS", required_unless_present = "all", value_delimiter = ',', value_parser = vip)]
    vip: Vec<IpAddr>,
    /// All that are up
    #[arg(long, conflicts_with = "vip")]
    all: bool,
    /// Leave the unit that sets them up at the next boot
    #[arg(long)]
    keep_unit: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Say what is wrong with this machine as a real server; with --from, ask the link who answers for the address. Exit code 1 when something
/// is wrong.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton real-server check --vip 192.168.121.2 --port 80
  baton real-server check --vip 192.168.121.2 --from eth0                              # on the director: nobody else may answer
  baton real-server check --vip 192.168.121.2 --from eth0 --director 192.168.121.1     # on any other machine of the link
  baton real-server check --vip 192.168.121.2 --from eth0 --server 192.168.121.141,192.168.121.13 --port 80")]
struct CheckCommand {
    /// The virtual addresses
    #[arg(long, value_name = "ADDRESS", required = true, value_delimiter = ',', value_parser = vip)]
    vip: Vec<IpAddr>,
    /// The interfaces by which clients come, instead of all
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "from")]
    interface: Vec<String>,
    /// TCP ports on which somebody shall listen
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    port: Vec<u16>,
    /// Ask on this interface who answers for the address, and look at nothing of this machine
    #[arg(long, value_name = "INTERFACE")]
    from: Option<String>,
    /// Who may answer: the director's address or hardware address
    #[arg(long, value_name = "ADDRESS", requires = "from")]
    director: Option<Answerer>,
    /// Real servers that shall have the address, asked by their hardware address (of --port, or by an echo)
    #[arg(long, value_name = "ADDRESS", requires = "from", value_delimiter = ',')]
    server: Vec<IpAddr>,
    /// How long answers are waited for, for each question
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::time)]
    within: Duration,
}

/// A virtual address, also as `up` puts it on lo: with /32 or /128.
fn vip(text: &str) -> Result<IpAddr, String> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().map_err(|_| format!("'{text}' is no address"))?;
    let whole = if address.is_ipv4() { "32" } else { "128" };
    match prefix {
        Some(prefix) if prefix != whole => {
            Err(format!("on a real server a virtual address has no network around it: write {address}"))
        }
        Some(_) | None => Ok(address),
    }
}

fn tunnel(text: &str) -> Result<Tunnels, String> {
    match text {
        "ipip" => Ok(Tunnels::Ipip),
        other => Err(format!("there is no tunnel '{other}'; there is ipip")),
    }
}

/// Does it.
pub fn run(command: &RealServerCommand) -> Result<ExitCode, String> {
    match &command.what {
        RealServerAction::Up(command) => {
            let asked = RealServerOptions {
                vips: command.vip.clone(),
                interfaces: command.interface.clone(),
                method: command.method,
                tunnel: command.tunnel,
                is_persistent: command.persistent,
            };
            let report = real_server::up(&asked, command.dry_run).map_err(|fault| fault.to_string())?;
            tell(&report, command.dry_run);
            Ok(ExitCode::SUCCESS)
        }
        RealServerAction::Down(command) => {
            let done = real_server::down(&command.vip, command.keep_unit, command.dry_run);
            tell(&done.map_err(|fault| fault.to_string())?, command.dry_run);
            Ok(ExitCode::SUCCESS)
        }
        RealServerAction::Check(command) => check(command),
    }
}

fn tell(report: &RealServerReport, is_dry: bool) {
    for step in &report.steps {
        print_line(if is_dry { format!("would {step}") } else { step.clone() });
    }
    if report.steps.is_empty() {
        print_line("nothing to do");
    }
    for remark in &report.remarks {
        say_line(format_args!("baton: {remark}"));
    }
}

fn check(command: &CheckCommand) -> Result<ExitCode, String> {
    let findings = match &command.from {
        None => check::here(&command.vip, &command.interface, &command.port),
        Some(interface) => check::outside(&Outside {
            vips: command.vip.clone(),
            interface: interface.clone(),
            director: command.director,
            servers: command.server.clone(),
            ports: command.port.clone(),
            within: command.within,
        }),
    };
    let findings = findings.map_err(|fault| fault.to_string())?;
    findings.iter().for_each(print_line);
    let is_wrong = |finding: &Finding| finding.grade == Grade::Wrong;
    Ok(if findings.iter().any(is_wrong) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
