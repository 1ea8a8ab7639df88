//! When changes of files are looked at: soon, but together. Pure: what happened and the time come in, names come out.
//!
//! A change waits for [`QUIET`] without another one, so that a certificate and its key, or a thousand files, are one batch,
//! and never longer than [`LONGEST`]. What was refused, or was seen while it was being written, is looked at once more
//! [`LATER`], for the event that would tell of its end may be one that nobody sends.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How long nothing may happen before a batch is taken: the time between two files of one certificate that a program writes.
pub(super) const QUIET: Duration = Duration::from_millis(8);
/// How long a batch may grow.
pub(super) const LONGEST: Duration = Duration::from_millis(200);
/// When to look once more.
pub(super) const LATER: Duration = Duration::from_secs(1);
/// Names in a batch; beyond that the whole directory is looked at, which costs less.
pub(super) const NAMES_MAX: usize = 8192;

/// What is to be looked at in a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Names {
    /// These files.
    These(BTreeSet<OsString>),
    /// Whatever is there.
    All,
}

/// Changes that wait, by the number of the directory.
#[derive(Debug, Default)]
pub(super) struct Batches {
    waiting: BTreeMap<usize, Names>,
    /// When the first of them happened, and the last.
    since: Option<(Instant, Instant)>,
    later: BTreeMap<(usize, OsString), Instant>,
}

impl Batches {
    /// Something happened under a name.
    pub(super) fn changed(&mut self, directory: usize, name: OsString, now: Instant) {
        self.later.remove(&(directory, name.clone()));
        let names = self.waiting.entry(directory).or_insert_with(|| Names::These(BTreeSet::new()));
        if let Names::These(some) = names {
            some.insert(name);
            if some.len() > NAMES_MAX {
                *names = Names::All;
            }
        }
        self.touch(now);
    }

    /// Anything may have happened.
    pub(super) fn all(&mut self, directory: usize, now: Instant) {
        self.waiting.insert(directory, Names::All);
        self.later.retain(|(other, _), _| *other != directory);
        self.touch(now);
    }

    /// Looks at a name once more, unless something happens to it before.
    pub(super) fn later(&mut self, directory: usize, name: OsString, now: Instant) {
        if self.later.len() < NAMES_MAX {
            self.later.entry((directory, name)).or_insert(now + LATER);
        }
    }

    /// When to [`take`](Batches::take).
    pub(super) fn due(&self) -> Option<Instant> {
        let soon = self.since.map(|(first, last)| (first + LONGEST).min(last + QUIET));
        soon.into_iter().chain(self.later.values().min().copied()).min()
    }

    /// What it is time for.
    pub(super) fn take(&mut self, now: Instant) -> Vec<(usize, Names)> {
        let due: Vec<_> = self.later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        let is_due = self.due().is_some_and(|due| due <= now);
        for (directory, name) in due {
            self.changed(directory, name, now);
        }
        if !is_due {
            return Vec::new();
        }
        self.since = None;
        std::mem::take(&mut self.waiting).into_iter().collect()
    }

    fn touch(&mut self, now: Instant) {
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn these(names: &[&str]) -> Names {
        Names::These(names.iter().map(OsString::from).collect())
    }

    #[test]
    fn changes_close_together_are_one_batch() {
        let (mut batches, start) = (Batches::default(), Instant::now());
        assert_eq!(batches.due(), None);
        batches.changed(0, "a.pem".into(), start);
        batches.changed(0, "a.pem.key".into(), start + QUIET / 2);
        batches.changed(1, "b.pem".into(), start + QUIET / 2);
        assert_eq!(batches.take(start + QUIET), []);
        let due = start + QUIET / 2 + QUIET;
        assert_eq!(batches.due(), Some(due));
        assert_eq!(batches.take(due), [(0, these(&["a.pem", "a.pem.key"])), (1, these(&["b.pem"]))]);
        assert_eq!((batches.due(), batches.take(due + LATER)), (None, vec![]));
    }

    #[test]
    fn a_storm_does_not_put_a_batch_off() {
        let (mut batches, start) = (Batches::default(), Instant::now());
        let mut now = start;
        while batches.due().is_none_or(|due| due > now) {
            batches.changed(0, format!("{}.pem", now.duration_since(start).as_micros()).into(), now);
            now += QUIET / 2;
        }
        assert!(now >= start + LONGEST && now < start + LONGEST + QUIET);
        assert_eq!(batches.take(now).len(), 1);
    }

    #[test]
    fn many_names_are_the_whole_directory() {
        let (mut batches, start) = (Batches::default(), Instant::now());
        (0..=NAMES_MAX).for_each(|number| batches.changed(0, number.to_string().into(), start));
        batches.changed(0, "more".into(), start);
        assert_eq!(batches.take(start + QUIET), [(0, Names::All)]);
    }

    #[test]
    fn what_was_refused_is_looked_at_once_more() {
        let (mut batches, start) = (Batches::default(), Instant::now());
        batches.later(0, "a.pem".into(), start);
        batches.later(0, "b.pem".into(), start);
        batches.changed(0, "b.pem".into(), start + LATER / 2);
        assert_eq!(batches.take(start + LATER / 2 + QUIET), [(0, these(&["b.pem"]))]);
        assert_eq!(batches.due(), Some(start + LATER));
        assert_eq!(batches.take(start + LATER), [(0, these(&["a.pem"]))]);
        assert_eq!(batches.due(), None);
    }

    #[test]
    fn due_is_never_before_a_take_that_gives_nothing() {
        let (mut batches, start) = (Batches::default(), Instant::now());
        batches.changed(0, "a".into(), start);
        batches.later(0, "b".into(), start);
        let due = batches.due().unwrap();
        assert_eq!(batches.take(due), [(0, these(&["a"]))]);
        let due = batches.due().unwrap();
        assert_eq!(batches.take(due), [(0, these(&["b"]))]);
    }
}
