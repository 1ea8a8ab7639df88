//! Reads certificates again and puts what is good in use. Runs on a thread of its own.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_model::{CrtSource, Model};
use baton_tls::store::{Problem, Report, Store};

use super::batches::Names;
use crate::environment::Outside;

/// Names that a message lists.
const LISTED_MAX: usize = 5;

/// What to look at.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) directory: PathBuf,
    pub(super) names: Names,
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(super) report: Report,
    /// Directories that could not be read.
    pub(super) failed: Vec<Arc<Problem>>,
    /// Certificates that were looked at and are as they were.
    pub(super) unchanged: Vec<PathBuf>,
    /// Refused ones in place of which an older one serves.
    serving: HashSet<PathBuf>,
}

impl Looked {
    /// Whether an older certificate serves in place of this one.
    pub(super) fn serves(&self, problem: &Problem) -> bool {
        self.serving.contains(&problem.path)
    }
}

/// Whether what a look has read may still be put in use. A look that was given up must not meet a change of the configuration.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<Passage>);

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Passage {
    #[default]
    Open,
    /// What was read is in use.
    Passed,
    Closed,
}

impl Gate {
    /// Nothing is put in use from now on; false when it is in use already.
    pub(super) fn close(&self) -> bool {
        let mut passage = self.passage();
        if *passage == Passage::Open {
            *passage = Passage::Closed;
        }
        *passage == Passage::Closed
    }

    /// Puts something in use if that may still be.
    fn pass<T>(&self, put: impl FnOnce() -> T) -> Option<T> {
        let mut passage = self.passage();
        if *passage == Passage::Closed {
            return None;
        }
        *passage = Passage::Passed;
        Some(put())
    }

    fn passage(&self) -> MutexGuard<'_, Passage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks; with `everything` also at certificates that are named by their files. `None` when it was given up meanwhile.
pub(super) fn look(
    store: &Arc<Store>,
    outside: &Outside,
    work: &[Work],
    everything: bool,
    gate: &Gate,
) -> Option<Looked> {
    let mut looked = Looked::default();
    let mut transaction = store.transaction();
    for Work { directory, names } in work {
        let names: Option<Vec<OsString>> = match names {
            Names::These(names) => Some(names.iter().cloned().collect()),
            Names::All => None,
        };
        if let Err(problem) = transaction.refresh_directory(directory, names.as_deref(), outside) {
            looked.failed.push(problem);
        }
        for name in names.into_iter().flatten().map(|name| directory.join(name)) {
            // A file may be a part of the certificate whose name it begins with.
            looked.unchanged.push(name.with_extension(""));
            looked.unchanged.push(name);
        }
    }
    if everything {
        let is_in = |path: &Path| work.iter().any(|work| path.parent() == Some(&work.directory));
        for entry in store.entries().iter().filter(|entry| entry.is_from_files() && !is_in(entry.path())) {
            // What is wrong is in the report.
            let _ = transaction.refresh(entry.path(), outside);
        }
    }
    looked.report = gate.pass(|| transaction.commit())?;
    let refused: HashSet<&PathBuf> = looked.report.refused.iter().map(|problem| &problem.path).collect();
    looked.unchanged.retain(|path| !refused.contains(path));
    looked.serving = refused.into_iter().filter(|path| store.entry(path).is_some()).cloned().collect();
    Some(looked)
}

/// Directories of certificates that are not watched.
pub(super) fn unwatched(model: &Model, watched: &[PathBuf], outside: &Outside) -> Vec<Work> {
    let binds = model.proxies.iter().filter(|proxy| !proxy.disabled).flat_map(|proxy| &proxy.binds);
    let mut all: Vec<Work> = Vec::new();
    for source in binds.filter_map(|bind| bind.options.tls.as_ref()).flat_map(|tls| &tls.certificates) {
        if let CrtSource::Crt { path, .. } = source
            && !watched.contains(path)
            && !all.iter().any(|work| work.directory == *path)
            && outside.open_directory(path).is_ok()
        {
            all.push(Work { directory: path.clone(), names: Names::All });
        }
    }
    all
}

/// What was changed, in a sentence.
pub(super) fn summary(report: &Report) -> Option<String> {
    let part = |paths: &[PathBuf], word: &str| {
        let names: Vec<String> = paths.iter().take(LISTED_MAX).map(|path| path.display().to_string()).collect();
        let more = if paths.len() > LISTED_MAX { ", …" } else { "" };
        (!paths.is_empty()).then(|| format!("{} {word} ({}{more})", paths.len(), names.join(", ")))
    };
    let parts = [part(&report.added, "added"), part(&report.replaced, "replaced"), part(&report.removed, "removed")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("Certificates: {}.", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_not_put_in_use() {
        let given_up = Gate::default();
        assert!(given_up.close() && given_up.pass(|| ()).is_none());
        let in_use = Gate::default();
        assert!(in_use.pass(|| ()).is_some() && !in_use.close());
    }
}
