//! Certificates as text.

use std::fmt::Write as _;

use baton_control::protocol::{CertificateFacts, Synced};
use baton_control::tickets::wall_seconds;

/// Seconds of a day.
const DAY_S: i64 = 24 * 3600;

/// A line for each, the first to expire first.
pub fn list(mut certificates: Vec<CertificateFacts>) -> String {
    certificates.sort_by(|one, other| (one.not_after, &one.path).cmp(&(other.not_after, &other.path)));
    let mut out = format!("{:<10}  {:<22}  {:<8}  {}\n", "expires", "", "key", "certificate");
    for facts in &certificates {
        let problem = if facts.problem.is_some() { "  (a newer one was rejected, see `certs show`)" } else { "" };
        let names = facts.names.join(" ");
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<10}  {:<22}  {:<8}  {}  {names}{problem}",
            day(facts.not_after),
            left(facts),
            facts.key,
            facts.path.display(),
        );
    }
    out
}

/// All of one.
pub fn details(facts: &CertificateFacts) -> String {
    let mut out = format!(
        "{}\n  names    {}\n  key      {}\n  valid    {} to {}, {}\n",
        facts.path.display(),
        facts.names.join(" "),
        facts.key,
        day(facts.not_before),
        day(facts.not_after),
        left(facts),
    );
    if let Some(problem) = &facts.problem {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  problem  {}: {}", problem.reason, problem.remedy);
    }
    out
}

/// What became of a look at the files.
pub fn synced(synced: &Synced) -> String {
    let mut out = String::new();
    for (word, paths) in [("added", &synced.added), ("replaced", &synced.replaced), ("removed", &synced.removed)] {
        for path in paths {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{word:<8}  {}", path.display());
        }
    }
    for refused in &synced.refused {
        let _ = writeln!(out, "refused   {}: {}", refused.reason, refused.remedy);
    }
    let changed = synced.added.len() + synced.replaced.len() + synced.removed.len();
    let _ = match changed {
        0 if synced.refused.is_empty() => writeln!(out, "Nothing to change: the certificates of the files are in use."),
        0 => writeln!(out, "Nothing changed: the certificates in use before stay in use."),
        count => writeln!(out, "{count} changed, in use after {} ms.", synced.duration_us.div_ceil(1000)),
    };
    out
}

fn left(facts: &CertificateFacts) -> String {
    let now = i64::try_from(wall_seconds()).unwrap_or(i64::MAX);
    match facts.not_after.saturating_sub(now) {
        _ if facts.not_before > now => "not valid yet".into(),
        left if left < 0 => "EXPIRED".into(),
        left if left < 2 * DAY_S => format!("in {} hours", left / 3600),
        left => format!("in {} days", left / DAY_S),
    }
}

fn day(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".into(), |time| time.strftime("%Y-%m-%d").to_string())
}
