//! Log lines of state changes, as HAProxy writes them.

use baton_proxy::balance::{HealthState, Transition};

use crate::health::Verdict;
use crate::{Report, Status};

/// Why a state changed.
#[derive(Clone, Copy, Debug)]
pub enum Why<'a> {
    /// A check of its own; with `option log-health-checks` the reason has a line of its own.
    Check(&'a Report, LogChecks),
    /// The server it tracks, as `backend/server`.
    Tracked(&'a str),
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

/// `Server app/s1 is DOWN, reason: …`.
pub fn state_line(backend: &str, server: &str, state: HealthState, why: Why<'_>, left: &Transition) -> String {
    let word = match state {
        HealthState::Up => "UP",
        HealthState::Stopping => "stopping",
        HealthState::Down => "DOWN",
    };
    let why = match why {
        Why::Check(report, LogChecks::Off) => format!(", {}", report.reason()),
        Why::Check(_, LogChecks::On) => String::new(),
        Why::Tracked(server) => format!(" via {server}"),
    };
    let Transition { active, backups, sessions, requeued, remaining } = left;
    let counts = match state {
        HealthState::Down => format!(
            "{active} active and {backups} backup servers left.{} {sessions} sessions active, {requeued} requeued, \
             {remaining} remaining in queue.",
            running_on_backup(left)
        ),
        HealthState::Up | HealthState::Stopping => format!(
            "{active} active and {backups} backup servers online.{} {requeued} sessions requeued, {remaining} total in queue.",
            running_on_backup(left)
        ),
    };
    format!("Server {backend}/{server} is {word}{why}. {counts}")
}

/// `Health check for server app/s1 succeeded, reason: …, status: 3/3 UP.`
pub fn check_line(backend: &str, server: &str, report: &Report, words: &str) -> String {
    let result = match report.status.verdict() {
        Verdict::Passed => "succeeded",
        Verdict::Conditional => "conditionally succeeded",
        Verdict::Failed => "failed",
    };
    format!("Health check for server {backend}/{server} {result}, {}, status: {words}.", report.reason())
}

/// `Agent check for server app/s1 succeeded, reason: …, status: 1/1 UP.`
pub fn agent_line(backend: &str, server: &str, report: &Report, health: u32) -> String {
    let result = if matches!(report.status, Status::L7Ok | Status::Checked) { "succeeded" } else { "failed" };
    let word = if health > 0 { "UP" } else { "DOWN" };
    format!("Agent check for server {backend}/{server} {result}, {}, status: {health}/1 {word}.", report.reason())
}

/// `backend app has no server available!`; a `listen` section is called a proxy.
pub fn no_server_line(backend: &str, is_listen: bool) -> String {
    let word = if is_listen { "proxy" } else { "backend" };
    format!("{word} {backend} has no server available!")
}

fn running_on_backup(left: &Transition) -> &'static str {
    if left.active == 0 && left.backups > 0 { " Running on backup." } else { "" }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(status: Status, code: Option<u16>, info: &str) -> Report {
        Report { code, duration: Some(Duration::ZERO), ..Report::new(status) }.info(info)
    }

    fn check(state: HealthState, why: Why<'_>, left: Transition, expect: &str) {
        assert_eq!(state_line("app", "s1", state, why, &left), expect);
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
        let line = check_line("app", "s1", &report(Status::L7Status, Some(404), "Not Found"), "0/2 DOWN");
        assert_eq!(
            line,
            "Health check for server app/s1 failed, reason: Layer7 wrong status, code: 404, info: \"Not Found\", \
             check duration: 0ms, status: 0/2 DOWN."
        );
        let line = agent_line("app", "s1", &report(Status::L7Status, Some(0), "via agent : down (x)"), 0);
        assert_eq!(
            line,
            "Agent check for server app/s1 failed, reason: Layer7 wrong status, code: 0, info: \"via agent : down (x)\", \
             check duration: 0ms, status: 0/1 DOWN."
        );
    }
}
