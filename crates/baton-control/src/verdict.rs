//! Whether everything is all right with a process, and what is not: pure, from its [`Status`].
//!
//! What an operator wants to be so (maintenance, draining) is no problem, unless nothing is left to serve.

use serde::{Deserialize, Serialize};

use crate::plan::restart_pending;
use crate::protocol::{Figures, Status};

/// Problems of one kind that are named one by one.
const NAMED_MAX: usize = 20;

/// How things are, all in all; the worst of the problems.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Nothing is wrong.
    #[default]
    Ok,
    /// Everything is served, and something needs attention.
    Degraded,
    /// Something is not served.
    Down,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// How bad it is.
    pub health: Health,
    /// What it is, in a sentence without its end.
    pub problem: String,
}

/// All problems of a process.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// All in all.
    pub health: Health,
    /// The worst first.
    pub problems: Vec<Problem>,
}

impl Health {
    /// In messages.
    pub fn word(self) -> &'static str {
        match self {
            Health::Ok => "OK",
            Health::Degraded => "DEGRADED",
            Health::Down => "DOWN",
        }
    }
}

impl Verdict {
    /// Of a process.
    pub fn of(status: &Status) -> Verdict {
        let mut problems = Vec::new();
        let mut degraded = |problem: String| problems.push(Problem { health: Health::Degraded, problem });
        if let Some(reason) = &status.last_refused {
            degraded(format!("the last reload was rejected: {reason}"));
        }
        if let Some(pending) = restart_pending(&status.pending) {
            degraded(pending);
        }
        let certificates = &status.certificates;
        if certificates.expired > 0 {
            degraded(format!("{} certificates are expired or not yet valid", certificates.expired));
        }
        if certificates.within_7_days > 0 {
            degraded(format!("{} certificates expire within 7 days", certificates.within_7_days));
        }
        for target in &status.log_targets {
            degraded(format!("log target {}: {} lines lost ({})", target.target, target.lost, target.reason));
        }
        if status.panics > 0 {
            degraded(format!("{} internal errors (panics)", status.panics));
        }
        if status.stopping {
            degraded("the process is stopping".into());
        }
        let is_down = |figures: &&Figures| figures.status == "DOWN";
        let servers = status.backends.iter().flat_map(|backend| backend.servers.iter().map(move |one| (backend, one)));
        let down: Vec<String> = servers
            .filter(|(_, server)| is_down(server))
            .map(|(backend, server)| format!("server {}/{} is down{}", backend.name, server.name, told(server)))
            .collect();
        problems.extend(some(down, Health::Degraded, "servers are down"));
        let down = status.backends.iter().filter(is_down);
        let down =
            down.map(|backend| format!("backend {} is down{}: it has no usable server", backend.name, since(backend)));
        problems.extend(some(down.collect(), Health::Down, "backends are down"));
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.health));
        let health = problems.first().map_or(Health::Ok, |problem| problem.health);
        Verdict { health, problems }
    }
}

/// The first of very many, and how many more there are.
fn some(mut all: Vec<String>, health: Health, what: &str) -> Vec<Problem> {
    let more = all.len().saturating_sub(NAMED_MAX);
    all.truncate(NAMED_MAX);
    if more > 0 {
        all.push(format!("{more} more {what}"));
    }
    all.into_iter().map(|problem| Problem { health, problem }).collect()
}

/// Since when, and why.
fn told(figures: &Figures) -> String {
    let reason = if figures.reason.is_empty() { String::new() } else { format!(": {}", figures.reason) };
    format!("{}{reason}", since(figures))
}

fn since(figures: &Figures) -> String {
    figures.since_s.map(|seconds| format!(" for {}", duration(seconds))).unwrap_or_default()
}

/// A time in its two largest units: `3d 4h`, `5m 0s`, `12s`.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PendingSetting;
    use crate::protocol::{Expiring, LossyTarget};

    fn figures(name: &str, status: &str, servers: Vec<Figures>) -> Figures {
        Figures { name: name.into(), status: status.into(), servers, ..Figures::default() }
    }

    #[track_caller]
    fn check(status: Status, health: Health, expect: &[&str]) {
        let verdict = Verdict::of(&status);
        let problems: Vec<&str> = verdict.problems.iter().map(|problem| &*problem.problem).collect();
        assert_eq!((verdict.health, problems), (health, expect.to_vec()));
    }

    #[test]
    fn what_an_operator_wants_is_no_problem() {
        check(Status::default(), Health::Ok, &[]);
        let servers = vec![figures("s1", "MAINT", Vec::new()), figures("s2", "DRAIN", Vec::new())];
        let backends = vec![figures("app", "UP", servers)];
        let certificates = Expiring { all: 3, within_30_days: 1, ..Expiring::default() };
        check(Status { backends, certificates, refused: 4, ..Status::default() }, Health::Ok, &[]);
    }

    #[test]
    fn a_server_that_is_down_degrades_and_a_backend_is_down() {
        let reason = "Layer4 connection problem (Connection refused)";
        let down = Figures { reason: reason.into(), since_s: Some(65), ..figures("s1", "DOWN", Vec::new()) };
        let up = figures("s2", "UP", Vec::new());
        let says = format!("server app/s1 is down for 1m 5s: {reason}");
        let backends = vec![figures("app", "UP", vec![down.clone(), up])];
        check(Status { backends, ..Status::default() }, Health::Degraded, &[&says]);
        let backends = vec![Figures { since_s: Some(3), ..figures("app", "DOWN", vec![down]) }];
        let all = ["backend app is down for 3s: it has no usable server", &says];
        check(Status { backends, ..Status::default() }, Health::Down, &all);
    }

    #[test]
    fn other_problems_degrade() {
        let pending = vec![PendingSetting { setting: "nbthread".into(), from: "1".into(), to: "2".into() }];
        check(
            Status { pending, ..Status::default() },
            Health::Degraded,
            &["Restart pending: nbthread 1 -> 2 (start-up settings take effect in the next process)."],
        );
        let last_refused = Some("a.cfg:3: no".into());
        check(
            Status { last_refused, ..Status::default() },
            Health::Degraded,
            &["the last reload was rejected: a.cfg:3: no"],
        );
        let target = LossyTarget { target: "stdout".into(), lost: 3, reason: "full".into() };
        check(
            Status { log_targets: vec![target], ..Status::default() },
            Health::Degraded,
            &["log target stdout: 3 lines lost (full)"],
        );
        let certificates = Expiring { all: 2, expired: 1, within_7_days: 1, within_30_days: 0 };
        let all = ["1 certificates are expired or not yet valid", "1 certificates expire within 7 days"];
        check(Status { certificates, ..Status::default() }, Health::Degraded, &all);
        let many = (0..30).map(|number| figures(&format!("s{number}"), "DOWN", Vec::new())).collect();
        let verdict = Verdict::of(&Status { backends: vec![figures("app", "UP", many)], ..Status::default() });
        assert_eq!(verdict.problems.len(), NAMED_MAX + 1);
        assert_eq!(verdict.problems.last().map(|last| &*last.problem), Some("10 more servers are down"));
    }

    #[test]
    fn durations_have_two_units() {
        let check = |seconds, expect: &str| assert_eq!(duration(seconds), expect);
        check(0, "0s");
        check(61, "1m 1s");
        check(3600, "1h 0m");
        check(273_600, "3d 4h");
    }
}
