//! `baton real-server`: words to `baton_direct::real_server`, and what it says to lines.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use baton_direct::real_server::check::{self, Answerer, Finding, Grade, Outside};
use baton_direct::real_server::{self, ArpMethod, RealServerOptions, RealServerReport, Tunnels};
use baton_prove::units;
use clap::{Args, Subcommand};

use super::{print_line, say_line};

/// Set up this machine as a real server of direct routing (direct server return), or check it.
///
/// Adds the virtual address to lo and suppresses ARP replies for it, so that clients only reach the director. `down` restores the
/// previous settings.
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

/// Set up virtual addresses; running the same command again changes nothing.
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
    /// Suppress ARP on these interfaces only [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    interface: Vec<String>,
    /// Method of suppressing ARP: sysctl (arp_ignore, arp_announce), filter (an nftables table), or auto
    #[arg(long, value_name = "METHOD", default_value_t)]
    method: ArpMethod,
    /// Also decapsulate tunnels: ipip
    #[arg(long, value_name = "KIND", value_parser = tunnel)]
    tunnel: Option<Tunnels>,
    /// Set them up again at each boot, by a systemd unit
    #[arg(long)]
    persistent: bool,
    /// Dry run: print the steps and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Remove virtual addresses and restore the previous settings.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton real-server down --vip 192.168.121.2
  baton real-server down --all --dry-run")]
struct DownCommand {
    /// The virtual addresses
    #[arg(long, value_name = "ADDRESS", required_unless_present = "all", value_delimiter = ',', value_parser = vip)]
    vip: Vec<IpAddr>,
    /// All virtual addresses that are set up
    #[arg(long, conflicts_with = "vip")]
    all: bool,
    /// Keep the systemd unit that sets them up at boot
    #[arg(long)]
    keep_unit: bool,
    /// Dry run: print the steps and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Check this machine as a real server; with --from, find which machines of the link respond for the address; exit code 1 if there
/// is a problem.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  baton real-server check --vip 192.168.121.2 --port 80
  baton real-server check --vip 192.168.121.2 --from eth0                              # on the director: no other machine may respond
  baton real-server check --vip 192.168.121.2 --from eth0 --director 192.168.121.1     # on any other machine of the link
  baton real-server check --vip 192.168.121.2 --from eth0 --server 192.168.121.141,192.168.121.13 --port 80")]
struct CheckCommand {
    /// The virtual addresses
    #[arg(long, value_name = "ADDRESS", required = true, value_delimiter = ',', value_parser = vip)]
    vip: Vec<IpAddr>,
    /// The interfaces that clients use [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "from")]
    interface: Vec<String>,
    /// TCP ports that must have a listener
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    port: Vec<u16>,
    /// Find out on this interface which machines respond for the address; nothing of this machine is checked
    #[arg(long, value_name = "INTERFACE")]
    from: Option<String>,
    /// The director's IP or MAC address, the only one that may respond
    #[arg(long, value_name = "ADDRESS", requires = "from")]
    director: Option<Answerer>,
    /// Real servers that must have the address, probed by MAC address (--port, or ICMP echo)
    #[arg(long, value_name = "ADDRESS", requires = "from", value_delimiter = ',')]
    server: Vec<IpAddr>,
    /// Timeout of each probe
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::time)]
    within: Duration,
}

/// A virtual address, also as `up` puts it on lo: with /32 or /128.
fn vip(text: &str) -> Result<IpAddr, String> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().map_err(|_| format!("'{text}' is not an address"))?;
    let whole = if address.is_ipv4() { "32" } else { "128" };
    match prefix {
        Some(prefix) if prefix != whole => {
            Err(format!("a virtual address of a real server has no prefix length: write {address}"))
        }
        Some(_) | None => Ok(address),
    }
}

fn tunnel(text: &str) -> Result<Tunnels, String> {
    match text {
        "ipip" => Ok(Tunnels::Ipip),
        other => Err(format!("unknown tunnel '{other}'; expected ipip")),
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
