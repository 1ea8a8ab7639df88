//! Reads certificates again. Runs on a thread of its own; what is good, the change path puts in use.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{CrtSource, Model};
use baton_tls::store::{CertificateProblem, Report, StoreView, Transaction};

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

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// What is good, to be put in use.
    pub(crate) transaction: Transaction,
    /// What else there is to know.
    pub(crate) looked: CertificateFindings,
}

/// What was seen besides what is good.
#[derive(Debug)]
pub(crate) struct CertificateFindings {
    /// Directories that could not be read.
    pub(super) failed: Vec<Arc<CertificateProblem>>,
    /// Certificates that were looked at and are as they were.
    pub(super) unchanged: Vec<PathBuf>,
    /// Refused ones in place of which an older one serves.
    serving: HashSet<PathBuf>,
}

impl CertificateFindings {
    /// Whether an older certificate serves in place of this one.
    pub(super) fn serves(&self, problem: &CertificateProblem) -> bool {
        self.serving.contains(&problem.path)
    }
}

/// Looks; with `everything` also at certificates that are named by their files.
pub(super) fn look(store: &StoreView, outside: &Outside, work: &[Work], everything: bool) -> Found {
    let mut transaction = store.transaction();
    let (mut failed, mut unchanged) = (Vec::new(), Vec::new());
    for Work { directory, names } in work {
        let names: Option<Vec<OsString>> = match names {
            Names::These(names) => Some(names.iter().cloned().collect()),
            Names::All => None,
        };
        if let Err(problem) = transaction.refresh_directory(directory, names.as_deref(), outside) {
            failed.push(problem);
        }
        for name in names.into_iter().flatten().map(|name| directory.join(name)) {
            // A file may be a part of the certificate whose name it begins with.
            unchanged.push(name.with_extension(""));
            unchanged.push(name);
        }
    }
    if everything {
        let is_in = |path: &Path| work.iter().any(|work| path.parent() == Some(&work.directory));
        for entry in store.entries().iter().filter(|entry| entry.is_from_files() && !is_in(entry.path())) {
            // What is wrong is in the report.
            let _ = transaction.refresh(entry.path(), outside);
        }
    }
    let refused: HashSet<PathBuf> = transaction.report().refused.iter().map(|problem| problem.path.clone()).collect();
    unchanged.retain(|path| !refused.contains(path));
    let serving = refused.into_iter().filter(|path| store.entry(path).is_some()).collect();
    Found { transaction, looked: CertificateFindings { failed, unchanged, serving } }
}

/// Directories of certificates that are not watched.
pub(super) fn unwatched(model: &Model, watched: &[PathBuf], outside: &Outside) -> Vec<Work> {
    let binds = model.with_peers().filter(|proxy| !proxy.disabled).flat_map(|proxy| &proxy.binds);
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
