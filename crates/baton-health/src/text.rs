//! Log lines of state changes, as HAProxy writes them.

use std::fmt;

use baton_proxy::balance::{Admin, HealthState, Transition};

use crate::health::Verdict;
use crate::{Report, Severity, Status};

/// A server as log lines name it: `Server app/s1`, `Backup Server app/s1`.
#[derive(Clone, Copy, Debug)]
pub struct LoggedServer<'a> {
    /// Its backend.
    pub backend: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `backup`.
    pub is_backup: bool,
}

impl LoggedServer<'_> {
    /// As it is named within a sentence: `server app/s1`, `backup server app/s1`.
    fn within(&self) -> String {
        let LoggedServer { backend, name, is_backup } = self;
        format!("{}server {backend}/{name}", if *is_backup { "backup " } else { "" })
    }
}

impl fmt::Display for LoggedServer<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoggedServer { backend, name, is_backup } = self;
        write!(out, "{}Server {backend}/{name}", if *is_backup { "Backup " } else { "" })
    }
}

/// Why a state changed.
#[derive(Clone, Copy, Debug)]
pub enum Why<'a> {
    /// A check of its own; with `option log-health-checks` the reason has a line of its own.
    Check(&'a Report, LogChecks),
    /// The server it tracks, as `backend/server`.
    Tracked(&'a str),
    /// An operator says so.
    Operator,
}

/// `option log-health-checks`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogChecks {
    /// Only changes of state are logged.
    #[default]
    Off,
    /// Each change of a check's result has its line.
    On,
}

/// Another administrative state of a server.
#[derive(Clone, Copy, Debug)]
pub struct AdminChange<'a> {
    /// As it was.
    pub before: Admin,
    /// As it is.
    pub after: Admin,
    /// Its checks say that it is down.
    pub is_down: bool,
    /// What followed.
    pub left: &'a Transition,
    /// The server that it tracks, as `backend/server`.
    pub tracked: Option<&'a str>,
    /// What DNS has to do with it.
    pub dns: Option<DnsNews<'a>>,
}

/// What DNS says of a server.
#[derive(Clone, Copy, Debug)]
pub enum DnsNews<'a> {
    /// It has no address any more, for this reason.
    Lost(&'a str),
    /// There is an address of this host.
    Found(&'a str),
}

/// A line about that.
#[derive(Debug, Eq, PartialEq)]
pub struct AdminLine {
    /// How serious it is.
    pub severity: Severity,
    /// The line.
    pub text: String,
    /// Whether it is mailed too.
    pub is_mailed: bool,
}

/// `Server app/s1 is DOWN, reason: …`.
pub fn state_line(server: LoggedServer<'_>, state: HealthState, why: Why<'_>, left: &Transition) -> String {
    let word = match state {
        HealthState::Up => "UP",
        HealthState::Stopping => "stopping",
        HealthState::Down => "DOWN",
    };
    let why = match why {
        Why::Check(report, LogChecks::Off) => format!(", {}", report.reason()),
        Why::Check(_, LogChecks::On) => String::new(),
        Why::Tracked(server) => format!(" via {server}"),
        Why::Operator => ", changed from CLI".into(),
    };
    let counts = match state {
        HealthState::Down => servers_left(left),
        HealthState::Up | HealthState::Stopping => servers_online(left),
    };
    format!("{server} is {word}{why}. {counts}")
}

/// What is said of another administrative state, in HAProxy's words and at its levels.
pub fn admin_lines(server: LoggedServer<'_>, change: &AdminChange<'_>) -> Vec<AdminLine> {
    let AdminChange { before, after, is_down, left, tracked, dns } = *change;
    let via = |is_inherited: bool| match tracked {
        Some(tracked) if is_inherited => format!(" via {tracked}"),
        Some(_) | None => String::new(),
    };
    let line = |severity, text| AdminLine { severity, text, is_mailed: false };
    let notice = |text| line(Severity::Notice, text);
    let word = if is_down { "DOWN" } else { "UP" };
    match (before.in_maintenance(), after.in_maintenance()) {
        (false, true) => {
            let via = via(after.maintenance_inherited && !after.maintenance);
            let why = match dns {
                Some(DnsNews::Lost(reason)) => format!(" ({reason}){via}"),
                Some(DnsNews::Found(_)) | None => via,
            };
            if is_down {
                return vec![notice(format!("{server} was DOWN and now enters maintenance{why}."))];
            }
            let severity = if before.is_draining() { Severity::Notice } else { Severity::Alert };
            vec![line(severity, format!("{server} is going DOWN for maintenance{why}. {}", servers_left(left)))]
        }
        (true, false) => {
            let forced = if before.maintenance { "forced " } else { "" };
            let mode = if after.is_draining() { "DRAIN" } else { "READY" };
            let first = notice(match dns {
                Some(DnsNews::Found(host)) => format!("{server} ('{host}') is {word}/{mode} (resolves again)."),
                Some(DnsNews::Lost(_)) | None => format!("{server} is {word}/{mode} (leaving {forced}maintenance)."),
            });
            let second = after.is_draining().then(|| notice(draining_line(server, after, tracked)));
            [Some(first), second].into_iter().flatten().collect()
        }
        (true, true) if before.maintenance && !after.maintenance => {
            let via = via(after.maintenance_inherited);
            vec![notice(format!("{server} is leaving forced maintenance but remains in maintenance{via}."))]
        }
        (true, true) if before.maintenance_inherited && !after.maintenance_inherited && after.maintenance => {
            vec![notice(format!("{server} remains in forced maintenance."))]
        }
        (true, true) => Vec::new(),
        (false, false) => match (before.is_draining(), after.is_draining()) {
            (false, true) => {
                let via = via(after.drain_inherited && !after.drain);
                let counts = if is_down { servers_left(left) } else { servers_online(left) };
                vec![AdminLine { is_mailed: true, ..notice(format!("{server} enters drain state{via}. {counts}")) }]
            }
            (true, false) => vec![notice(format!("{server} is {word} (leaving forced drain)."))],
            (true, true) => vec![notice(draining_line(server, after, tracked))],
            (false, false) => Vec::new(),
        },
    }
}

/// What is said of a server that goes on draining.
pub fn draining_line(server: LoggedServer<'_>, admin: Admin, tracked: Option<&str>) -> String {
    match tracked.filter(|_| !admin.drain) {
        Some(tracked) => format!("{server} is leaving forced drain but remains in drain mode via {tracked}."),
        None => format!("{server} remains in forced drain mode."),
    }
}

/// `Health check for server app/s1 succeeded, reason: …, status: 3/3 UP.`, of what [`check_result`] gives.
pub fn check_line(server: LoggedServer<'_>, result: &str) -> String {
    format!("Health check for {} {result}", server.within())
}

/// The part of [`check_line`] behind the server.
pub fn check_result(report: &Report, words: &str) -> String {
    let result = match report.status.verdict() {
        Verdict::Passed => "succeeded",
        Verdict::Conditional => "conditionally succeeded",
        Verdict::Failed => "failed",
    };
    format!("{result}, {}, status: {words}.", report.reason())
}

/// `Agent check for server app/s1 succeeded, reason: …, status: 1/1 UP.`
pub fn agent_line(server: LoggedServer<'_>, report: &Report, health: u32) -> String {
    let result = if matches!(report.status, Status::L7Ok | Status::Checked) { "succeeded" } else { "failed" };
    let word = if health > 0 { "UP" } else { "DOWN" };
    format!("Agent check for {} {result}, {}, status: {health}/1 {word}.", server.within(), report.reason())
}

/// `backend app has no server available!`; a `listen` section is called a proxy.
pub fn no_server_line(backend: &str, is_listen: bool) -> String {
    let word = if is_listen { "proxy" } else { "backend" };
    format!("{word} {backend} has no server available!")
}

/// What is left without the server.
pub fn servers_left(left: &Transition) -> String {
    let Transition { active, backups, sessions, requeued, remaining } = left;
    let by = running_on_backup(left);
    format!(
        "{active} active and {backups} backup servers left.{by} {sessions} sessions active, {requeued} requeued, \
         {remaining} remaining in queue."
    )
}

/// What there is with the server.
fn servers_online(left: &Transition) -> String {
    let Transition { active, backups, requeued, remaining, .. } = left;
    let by = running_on_backup(left);
    format!(
        "{active} active and {backups} backup servers online.{by} {requeued} sessions requeued, {remaining} total in queue."
    )
}

fn running_on_backup(left: &Transition) -> &'static str {
    if left.active == 0 && left.backups > 0 { " Running on backup." } else { "" }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const S1: LoggedServer<'_> = LoggedServer { backend: "app", name: "s1", is_backup: false };

    fn report(status: Status, code: Option<u16>, info: &str) -> Report {
        Report { code, duration: Some(Duration::ZERO), ..Report::new(status) }.info(info)
    }

    fn check(state: HealthState, why: Why<'_>, left: Transition, expect: &str) {
        assert_eq!(state_line(S1, state, why, &left), expect);
    }

    #[test]
    fn lines_are_haproxys() {
        let none = Transition::default();
        let one = Transition { active: 1, ..none };
        let refused = report(Status::L4Connection, None, "Connection refused");
        check(
            HealthState::Down,
            Why::Check(&refused, LogChecks::Off),
            one,
            "Server app/s1 is DOWN, reason: Layer4 connection problem, info: \"Connection refused\", check duration: 0ms. \
             1 active and 0 backup servers left. 0 sessions active, 0 requeued, 0 remaining in queue.",
        );
        check(
            HealthState::Down,
            Why::Check(&report(Status::L7Status, Some(500), "Oops err"), LogChecks::Off),
            none,
            "Server app/s1 is DOWN, reason: Layer7 wrong status, code: 500, info: \"Oops err\", check duration: 0ms. \
             0 active and 0 backup servers left. 0 sessions active, 0 requeued, 0 remaining in queue.",
        );
        check(
            HealthState::Stopping,
            Why::Check(&report(Status::L7Conditional, Some(404), ""), LogChecks::Off),
            none,
            "Server app/s1 is stopping, reason: Layer7 check conditionally passed, code: 404, check duration: 0ms. \
             0 active and 0 backup servers online. 0 sessions requeued, 0 total in queue.",
        );
        check(
            HealthState::Up,
            Why::Check(&report(Status::L7Ok, Some(200), ""), LogChecks::Off),
            one,
            "Server app/s1 is UP, reason: Layer7 check passed, code: 200, check duration: 0ms. \
             1 active and 0 backup servers online. 0 sessions requeued, 0 total in queue.",
        );
        check(
            HealthState::Down,
            Why::Check(&refused, LogChecks::On),
            none,
            "Server app/s1 is DOWN. 0 active and 0 backup servers left. 0 sessions active, 0 requeued, \
             0 remaining in queue.",
        );
        check(
            HealthState::Down,
            Why::Tracked("b_a/s1"),
            Transition { backups: 1, ..none },
            "Server app/s1 is DOWN via b_a/s1. 0 active and 1 backup servers left. Running on backup. \
             0 sessions active, 0 requeued, 0 remaining in queue.",
        );
        let line = check_line(S1, &check_result(&report(Status::L7Status, Some(404), "Not Found"), "0/2 DOWN"));
        assert_eq!(
            line,
            "Health check for server app/s1 failed, reason: Layer7 wrong status, code: 404, info: \"Not Found\", \
             check duration: 0ms, status: 0/2 DOWN."
        );
        let line = agent_line(S1, &report(Status::L7Status, Some(0), "via agent : down (x)"), 0);
        assert_eq!(
            line,
            "Agent check for server app/s1 failed, reason: Layer7 wrong status, code: 0, info: \"via agent : down (x)\", \
             check duration: 0ms, status: 0/1 DOWN."
        );
    }

    /// A state as letters: `m` maintenance, `M` inherited, `r` unresolved, `d` drain, `D` inherited.
    fn admin(letters: &str) -> Admin {
        let has = |letter| letters.contains(letter);
        Admin {
            maintenance: has('m'),
            maintenance_inherited: has('M'),
            unresolved: has('r'),
            drain: has('d'),
            drain_inherited: has('D'),
        }
    }

    #[test]
    fn administrative_states_are_said_with_their_reasons() {
        let left = Transition { active: 1, ..Transition::default() };
        let check = |change: &str, expect: &[&str]| {
            let (before, after) = change.split_once('>').unwrap();
            let is_down = after.contains('-');
            let dns = match (before.contains('r'), after.contains('r')) {
                (false, true) => Some(DnsNews::Lost("No IP")),
                (true, false) => Some(DnsNews::Found("a.test")),
                (false, false) | (true, true) => None,
            };
            let (before, after, backup) = (admin(before), admin(after), before.contains('b'));
            let change = AdminChange { before, after, is_down, left: &left, tracked: Some("b/t"), dns };
            let server = LoggedServer { is_backup: backup, ..S1 };
            let lines: Vec<String> = admin_lines(server, &change)
                .into_iter()
                .map(|line| {
                    let text =
                        line.text.split(" servers left").next().unwrap().split(" servers online").next().unwrap();
                    format!("{:?}{} {text}", line.severity, if line.is_mailed { "@" } else { "" })
                })
                .collect();
            assert_eq!(lines, expect, "{change:?}");
        };
        check(">m", &["Alert Server app/s1 is going DOWN for maintenance. 1 active and 0 backup"]);
        check("b>M", &["Alert Backup Server app/s1 is going DOWN for maintenance via b/t. 1 active and 0 backup"]);
        check("d>m", &["Notice Server app/s1 is going DOWN for maintenance. 1 active and 0 backup"]);
        check(">M-", &["Notice Server app/s1 was DOWN and now enters maintenance via b/t."]);
        check("m>mM", &[]);
        check("mM>M", &["Notice Server app/s1 is leaving forced maintenance but remains in maintenance via b/t."]);
        check("mM>m", &["Notice Server app/s1 remains in forced maintenance."]);
        check("m>", &["Notice Server app/s1 is UP/READY (leaving forced maintenance)."]);
        check("M>-", &["Notice Server app/s1 is DOWN/READY (leaving maintenance)."]);
        let remains = "Notice Server app/s1 remains in forced drain mode.";
        let inherits = "Notice Server app/s1 is leaving forced drain but remains in drain mode via b/t.";
        check("Md>d", &["Notice Server app/s1 is UP/DRAIN (leaving maintenance).", remains]);
        check("mD>D", &["Notice Server app/s1 is UP/DRAIN (leaving forced maintenance).", inherits]);
        check(">d", &["Notice@ Server app/s1 enters drain state. 1 active and 0 backup"]);
        check(">D-", &["Notice@ Server app/s1 enters drain state via b/t. 1 active and 0 backup"]);
        check("D>dD", &[remains]);
        check("dD>D", &[inherits]);
        check("d>", &["Notice Server app/s1 is UP (leaving forced drain)."]);
        check("r>rm", &[]);
        check(">r", &["Alert Server app/s1 is going DOWN for maintenance (No IP). 1 active and 0 backup"]);
        check("r>", &["Notice Server app/s1 ('a.test') is UP/READY (resolves again)."]);
        check("rd>d", &["Notice Server app/s1 ('a.test') is UP/DRAIN (resolves again).", remains]);
        check("mr>r", &["Notice Server app/s1 is leaving forced maintenance but remains in maintenance."]);
    }
}
