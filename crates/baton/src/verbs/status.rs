//! `baton status`: whether everything is all right with the running process, and how it is.

use std::process::ExitCode;
use std::time::Duration;

use baton_control::plan::restart_pending;
use baton_control::protocol::{Expiring, Figures, Reply, Request, Status};
use baton_control::verdict::{Health, Verdict, duration};
use baton_proxy::moving::StayReason;
use clap::Args;
use serde::Serialize;

use super::whom::TargetProcess;

/// When a process that has measured no rates before has some.
const RATES_AFTER: Duration = Duration::from_millis(1100);

/// Changes that are shown to people.
const CHANGES_SHOWN: usize = 5;

/// Exit code when it is not known how things are: no process, no permission, or no reply.
pub const UNKNOWN: u8 = 3;

/// Show whether the running process is all right: problems, configuration, connections, servers.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit code: 0 all is well, 1 degraded (everything is served), 2 something is down, 3 unknown (no process, no \
                        permission, no reply)\n\nExample:\n  baton status\n  baton status --quiet || systemctl status baton\n  \
                        baton status --json | jq '.backends[].servers[] | {name, status, reason}'"
)]
pub struct StatusCommand {
    #[command(flatten)]
    process: TargetProcess,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Print problems only; nothing if there are none
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// Everything, for scripts.
#[derive(Serialize)]
struct Document<'s> {
    #[serde(flatten)]
    verdict: &'s Verdict,
    #[serde(flatten)]
    status: &'s Status,
}

/// Asks and prints.
pub fn run(command: &StatusCommand) -> ExitCode {
    let status = match ask(command) {
        Ok(status) => status,
        Err(reason) => {
            super::say_line(format_args!("baton: {reason}"));
            return ExitCode::from(UNKNOWN);
        }
    };
    let status = match command.quiet || has_rates(&status) {
        true => status,
        // They are measured since it was asked.
        false => {
            std::thread::sleep(RATES_AFTER);
            ask(command).unwrap_or(status)
        }
    };
    let verdict = Verdict::of(&status);
    if command.json {
        let document = Document { verdict: &verdict, status: &status };
        super::print_line(serde_json::to_string(&document).unwrap_or_default());
    } else if command.quiet {
        super::print_text(problems(&verdict));
    } else {
        super::print_text(format_args!("{}\n{}{}", verdict.health.word(), problems(&verdict), text(&status)));
    }
    ExitCode::from(match verdict.health {
        Health::Ok => 0,
        Health::Degraded => 1,
        Health::Down => 2,
    })
}

fn ask(command: &StatusCommand) -> Result<Box<Status>, String> {
    command.process.ask(Request::Status).and_then(|reply| match reply {
        Reply::Status(status) => Ok(status),
        Reply::Failed { reason } => Err(reason),
        other => Err(format!("unexpected reply: {other:?}")),
    })
}

/// Whether anything has a rate, if there is anything.
fn has_rates(status: &Status) -> bool {
    let mut all = status.frontends.iter().chain(&status.backends).peekable();
    all.peek().is_none() || all.any(|figures| figures.rate.is_some())
}

fn problems(verdict: &Verdict) -> String {
    verdict.problems.iter().map(|problem| format!("{}: {}\n", problem.health.word(), problem.problem)).collect()
}

fn text(status: &Status) -> String {
    let stopping = if status.stopping { ", stopping" } else { "" };
    let mut out = format!(
        "baton {}, PID {}, up {}{stopping}\nconfiguration {} ({} refused), {} threads\n\
         {} of {} connections, {} descriptors, {} KiB\n",
        status.version,
        status.pid,
        duration(status.uptime_ms / 1000),
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
    for change in status.changes.iter().take(CHANGES_SHOWN) {
        out.push_str(&format!("changed at {}: {} by {}\n", change.at(), change.what, change.by));
    }
    if status.certificates.all > 0 {
        out.push_str(&certificates(&status.certificates));
    }
    for (address, sockets) in &status.listeners {
        let sockets = if *sockets == 1 { "1 socket".to_owned() } else { format!("{sockets} sockets") };
        out.push_str(&format!("listening on {address} ({sockets})\n"));
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
    if status.connections_leaving > 0 {
        out.push_str(&format!("{} connections of frontends of an older configuration\n", status.connections_leaving));
    }
    if status.connections_arrived > 0 {
        out.push_str(&format!("{} connections came from the process before this one\n", status.connections_arrived));
    }
    if status.connections_departed > 0 {
        out.push_str(&format!("{} connections went to the process that took over\n", status.connections_departed));
    }
    if status.server_connections_arrived > 0 {
        let count = status.server_connections_arrived;
        out.push_str(&format!("{count} idle server connections came from the process before this one\n"));
    }
    if status.server_connections_departed > 0 {
        let count = status.server_connections_departed;
        out.push_str(&format!("{count} idle server connections went to the process that took over\n"));
    }
    for (reason, count) in &status.connections_staying {
        out.push_str(&format!("{count} connections do not move to the process that took over: {}\n", staying(reason)));
    }
    if status.sessions_elsewhere > 0 {
        out.push_str(&format!("{} sessions with servers are still in older processes\n", status.sessions_elsewhere));
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

/// Why connections stay.
fn staying(reason: &str) -> &str {
    match StayReason::of_word(reason) {
        StayReason::Tls => "they are encrypted, and it does not take such ones",
        StayReason::Http2 => "they are HTTP/2",
        StayReason::Variables => "rules have set variables of their sessions",
        StayReason::Tracked => "their sessions track entries of stick tables",
        StayReason::OwnServer => "each has an authenticated connection to a server",
        StayReason::Removed => "their frontend is no longer in the configuration",
        StayReason::NoListener => "it has no such frontend or address",
        StayReason::NoServer => "it has no such backend or server",
        StayReason::Queue => "requests wait for a slot of their server",
        StayReason::InFlight => "a request in flight waits, or bytes that a peer does not take",
        StayReason::Full => "it has no room for them (maxconn)",
        StayReason::NoReply => "it did not reply in time",
        StayReason::Descriptors => "there were no free descriptors",
        StayReason::Unknown => "it does not support that",
    }
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
    let since = figures.since_s.map(|seconds| format!(" for {}", duration(seconds))).unwrap_or_default();
    let reason = if figures.reason.is_empty() { String::new() } else { format!(" ({})", figures.reason) };
    let rate = figures.rate.map(|rate| format!(", {rate}/s")).unwrap_or_default();
    let troubles = [
        (u64::from(figures.queued), "queued"),
        (count("wretr"), "retries"),
        (count("hrsp_5xx"), "responses 5xx"),
        (count("econ"), "connect errors"),
        (count("eresp"), "response errors"),
    ];
    let troubles: String =
        troubles.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}")).collect();
    format!(
        "{word} {} {}{since}{reason}: {} open (peak {}), {} sessions{rate}, {} requests, {} bytes in, {} out{troubles}\n",
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

    #[test]
    fn a_line_says_why_since_when_and_what_goes_wrong() {
        let counters = [("wretr", 3), ("hrsp_5xx", 2), ("stot", 9)].map(|(name, count)| (name.to_owned(), count));
        let down = Figures {
            name: "s1".into(),
            status: "DOWN".into(),
            reason: "Layer4 timeout".into(),
            since_s: Some(61),
            rate: Some(4),
            queued: 1,
            counters: counters.into(),
            ..Figures::default()
        };
        let expect = "server s1 DOWN for 1m 1s (Layer4 timeout): 0 open (peak 0), 9 sessions, 4/s, 0 requests, 0 bytes in, 0 out, \
                      1 queued, 3 retries, 2 responses 5xx\n";
        assert_eq!(row("server", &down), expect);
    }
}
