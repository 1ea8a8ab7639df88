//! Which certificates have ended, or will soon.

use std::path::PathBuf;
use std::sync::Arc;

use baton_model::Level;
use baton_tls::store::{Entry, StoreView};

pub(crate) use crate::tickets::wall_seconds;

/// Seconds of a day.
const DAY_S: i64 = 24 * 3600;
/// Names that a message lists.
const LISTED_MAX: usize = 10;

/// Certificates by how long they are good for. Each is counted once.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Census {
    /// All.
    pub(crate) all: usize,
    /// Their time has passed, or has not come.
    pub(crate) expired: Group,
    /// For 7 days at most.
    pub(crate) week: Group,
    /// For 30 days at most.
    pub(crate) month: Group,
}

/// Some of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Group {
    /// How many.
    pub(crate) count: usize,
    /// The first ones to end: when, in seconds since 1970, and what they are called.
    first: Vec<(i64, PathBuf)>,
}

/// A certificate that is not valid, or not for long.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ending {
    /// What it is called.
    pub(crate) name: String,
    /// When it ends, in seconds since 1970.
    pub(crate) until_s: i64,
    /// Whether it is valid now.
    pub(crate) is_valid: bool,
}

impl Ending {
    /// Those that end within so many days, or are not valid, at `now` in seconds since 1970: the first to end first.
    pub(crate) fn within(store: &StoreView, now: u64, days: i64) -> Vec<Ending> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let of = |entry: &Arc<Entry>| {
            let (from, until_s) = entry.certificate().validity();
            let is_valid = from <= now && now <= until_s;
            let is_soon = until_s.saturating_sub(now) <= days * DAY_S;
            (is_soon || !is_valid).then(|| Ending { name: entry.path().display().to_string(), until_s, is_valid })
        };
        let mut ending: Vec<Ending> = store.entries().iter().filter_map(of).collect();
        ending.sort_by(|one, other| (one.until_s, &one.name).cmp(&(other.until_s, &other.name)));
        ending
    }
}

impl Census {
    /// Of all certificates, at `now` in seconds since 1970.
    pub(crate) fn of(store: &StoreView, now: u64) -> Census {
        let mut census = Census::default();
        for entry in store.entries() {
            let (from, until) = entry.certificate().validity();
            census.add(entry.path().to_owned(), from, until, i64::try_from(now).unwrap_or(i64::MAX));
        }
        census
    }

    fn add(&mut self, path: PathBuf, from: i64, until: i64, now: i64) {
        self.all += 1;
        let left = until.saturating_sub(now);
        let group = match () {
            () if left < 0 || from > now => &mut self.expired,
            () if left <= 7 * DAY_S => &mut self.week,
            () if left <= 30 * DAY_S => &mut self.month,
            () => return,
        };
        group.count += 1;
        group.first.push((until, path));
        group.first.sort();
        group.first.truncate(LISTED_MAX);
    }

    /// What to say, with how serious it is.
    pub(super) fn lines(&self) -> Vec<(Level, String)> {
        let line = |group: &Group, level: u8, what: &str| {
            (group.count > 0).then(|| {
                let mut names: Vec<String> =
                    group.first.iter().map(|(until, path)| format!("{} ({})", path.display(), day(*until))).collect();
                if group.count > names.len() {
                    names.push("…".into());
                }
                (Level(level), format!("{} of {} certificates {what}: {}.", group.count, self.all, names.join(", ")))
            })
        };
        let lines = [
            line(&self.expired, 4, "are not valid at this time"),
            line(&self.week, 4, "expire within 7 days"),
            line(&self.month, 5, "expire within 30 days"),
        ];
        lines.into_iter().flatten().collect()
    }
}

/// A day as `2026-12-31`.
pub(crate) fn day(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".into(), |time| time.strftime("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_told_by_how_long_they_are_good_for() {
        let now = 1_800_000_000;
        let mut census = Census::default();
        let mut add = |name: &str, from: i64, until: i64| {
            census.add(name.into(), now + from * DAY_S, now + until * DAY_S, now);
        };
        add("over.pem", -90, -1);
        add("to-come.pem", 1, 90);
        add("soon.pem", -80, 7);
        add("sooner.pem", -80, 6);
        add("month.pem", -60, 30);
        add("fine.pem", -1, 31);
        let lines: Vec<String> =
            census.lines().into_iter().map(|(level, text)| format!("{} {text}", level.0)).collect();
        assert_eq!(
            lines,
            [
                "4 2 of 6 certificates are not valid at this time: over.pem (2027-01-14), to-come.pem (2027-04-15).",
                "4 2 of 6 certificates expire within 7 days: sooner.pem (2027-01-21), soon.pem (2027-01-22).",
                "5 1 of 6 certificates expire within 30 days: month.pem (2027-02-14).",
            ]
        );
    }
}
