//! `baton status`: how the running process is.

use std::process::ExitCode;
use std::time::Duration;

use baton_control::plan::restart_pending;
use baton_control::protocol::{Expiring, Figures, Reply, Request, Status};
use clap::Args;

use super::whom::TargetProcess;

/// Show the running process: configuration, listeners, connections, counters.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  baton status\n  baton status --json | jq '.backends[].servers[] | {name, status}'")]
pub struct StatusCommand {
    #[command(flatten)]
    process: TargetProcess,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
pub fn run(command: &StatusCommand) -> Result<ExitCode, String> {
    match command.process.ask(Request::Status)? {
        Reply::Status(status) if command.json => {
            super::print_line(serde_json::to_string(&status).unwrap_or_default());
        }
        Reply::Status(status) => super::print_text(text(&status)),
        Reply::Failed { reason } => return Err(reason),
        other => return Err(format!("unexpected reply: {other:?}")),
    }
    Ok(ExitCode::SUCCESS)
}

fn text(status: &Status) -> String {
    let uptime = Duration::from_secs(status.uptime_ms / 1000);
    let stopping = if status.stopping { ", stopping" } else { "" };
    let mut out = format!(
        "baton {}, PID {}, up {}s{stopping}\nconfiguration {} ({} refused), {} threads\n\
         {} of {} connections, {} descriptors, {} KiB\n",
        status.version,
        status.pid,
        uptime.as_secs(),
        status.generation,
        status.refused,
        status.cores,
        status.connections,
        status.maxconn,
        status.descriptors,
        status.resident_bytes / 1024,
    );
    if let Some(pending) = restart_pending(&status.pending) {
        out.push_str(&format!("{pending}\n"));
    }
    for one in &status.overrides {
        out.push_str(&format!("set at run time: {one} by {} at {}\n", one.by(), one.at()));
    }
    if status.certificates.all > 0 {
        out.push_str(&certificates(&status.certificates));
    }
    for (address, sockets) in &status.listeners {
        out.push_str(&format!("listening on {address} ({sockets} sockets)\n"));
    }
    if status.listeners_leaving > 0 {
        out.push_str(&format!("{} removed addresses are being drained\n", status.listeners_leaving));
    }
    for target in &status.log_targets {
        out.push_str(&format!("log target {}: {} lost ({})\n", target.target, target.lost, target.reason));
    }
    if status.panics > 0 {
        out.push_str(&format!(
            "{} internal errors (panics): see standard error, and please report them\n",
            status.panics
        ));
    }
    for figures in &status.frontends {
        out.push_str(&row("frontend", figures));
    }
    for figures in &status.backends {
        out.push_str(&row("backend", figures));
        for server in &figures.servers {
            out.push_str(&row("  server", server));
        }
    }
    out
}

/// How many certificates there are, and which need somebody.
fn certificates(counts: &Expiring) -> String {
    let parts = [
        (counts.expired, "expired or not yet valid"),
        (counts.within_7_days, "expire within 7 days"),
        (counts.within_30_days, "expire within 30 days"),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}")).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{} {}{parts}\n", counts.all, if counts.all == 1 { "certificate" } else { "certificates" })
}

fn row(word: &str, figures: &Figures) -> String {
    let count = |name: &str| figures.counters.get(name).copied().unwrap_or_default();
    format!(
        "{word} {} {}: {} open (peak {}), {} sessions, {} requests, {} bytes in, {} out\n",
        figures.name,
        figures.status,
        figures.open,
        figures.open_max,
        count("stot").max(count("conn_tot")),
        count("req_tot"),
        count("bin"),
        count("bout"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_need_somebody_are_counted() {
        let good = Expiring { all: 1, ..Expiring::default() };
        assert_eq!(certificates(&good), "1 certificate\n");
        let some = Expiring { all: 9, expired: 2, within_7_days: 0, within_30_days: 3 };
        assert_eq!(certificates(&some), "9 certificates: 2 expired or not yet valid, 3 expire within 30 days\n");
        assert!(!text(&Status::default()).contains("certificate"));
    }
}
