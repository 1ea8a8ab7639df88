//! What a reading of the files is waiting for, for whoever waits for the reading.
//!
//! Reading takes as long as it takes: fifty thousand certificates are no fault. What is one is a file system or a name service that does
//! not respond, which shows as one and the same call that does not return.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Calls under way, of any thread of one reading.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    /// In the order in which they began.
    open: BTreeMap<u64, (Instant, Call)>,
}

/// What a reading waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    /// A file or directory.
    File(PathBuf),
    /// The addresses of a host.
    Host(String),
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::File(path) => write!(out, "reading '{}'", path.display()),
            Call::Host(name) => write!(out, "resolving '{name}'"),
        }
    }
}

/// A call under way; dropped when it has returned.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    progress: &'a Progress,
    number: u64,
}

impl Progress {
    /// A call at a path begins.
    pub(crate) fn file(&self, path: &Path) -> Open<'_> {
        self.begin(Call::File(path.to_owned()))
    }

    /// A question to the name service begins.
    pub(crate) fn host(&self, name: &str) -> Open<'_> {
        self.begin(Call::Host(name.to_owned()))
    }

    /// The call that has been under way longest, and for how long.
    pub(crate) fn longest(&self, now: Instant) -> Option<(Duration, Call)> {
        let calls = self.calls();
        let (begun, call) = calls.open.values().next()?;
        Some((now.saturating_duration_since(*begun), call.clone()))
    }

    fn begin(&self, call: Call) -> Open<'_> {
        let mut calls = self.calls();
        calls.last += 1;
        let number = calls.last;
        calls.open.insert(number, (Instant::now(), call));
        Open { progress: self, number }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.progress.calls().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_call_is_shown_until_it_returns() {
        let progress = Progress::default();
        let first = progress.file(Path::new("/etc/a.map"));
        let second = progress.host("db.example");
        let later = Instant::now() + Duration::from_secs(3);
        let (time, call) = progress.longest(later).unwrap();
        assert!(time >= Duration::from_secs(2));
        assert_eq!(call.to_string(), "reading '/etc/a.map'");
        drop(first);
        assert_eq!(progress.longest(later).unwrap().1.to_string(), "resolving 'db.example'");
        drop(second);
        assert_eq!(progress.longest(later), None);
    }
}
