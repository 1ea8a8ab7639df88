//! What comes to directories and leaves them while a configuration is being read. It may be in what was read or not, so it goes
//! over at the commit: a certificate that somebody has brought in between serves on, and one that is gone does not come back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Entries, Entry, Index, Store};

/// Names that are kept for a reading. Of what is beyond it the watching brings what changed once more.
const NAMES_MAX: usize = 65_536;

/// Configurations that are being read.
#[derive(Debug, Default)]
pub(super) struct Readings(Mutex<Vec<Weak<Meanwhile>>>);

/// What happened since one began to be read.
#[derive(Debug, Default)]
pub(super) struct Meanwhile(Mutex<BTreeSet<Touched>>);

/// A certificate that came to a directory or left it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Touched {
    pub(super) directory: PathBuf,
    pub(super) name: PathBuf,
}

impl Readings {
    /// What happens from now on is noted, as long as somebody keeps the note.
    pub(super) fn begin(&self) -> Arc<Meanwhile> {
        let meanwhile = Arc::new(Meanwhile::default());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&meanwhile));
        meanwhile
    }

    /// Notes what was put in use.
    pub(super) fn note(&self, touched: &[Touched]) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for meanwhile in all.iter().filter_map(Weak::upgrade) {
            let mut names = meanwhile.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = NAMES_MAX.saturating_sub(names.len());
            names.extend(touched.iter().take(room).cloned());
        }
    }
}

impl Meanwhile {
    /// Brings what was read, `entries` and `indexes`, in line with what happened to the store meanwhile. Nothing of either is in
    /// use yet.
    pub(super) fn carry_over(&self, store: &Store, entries: &mut Entries, indexes: &[Arc<Index>]) {
        let names = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if names.is_empty() {
            return;
        }
        let live = store.live_indexes();
        for Touched { directory, name } in names {
            let there = store.entry(&name).filter(|entry| live.iter().any(|index| index.uses(entry, &directory)));
            let wanting = indexes.iter().filter(|index| index.has_list(&directory));
            match there {
                Some(entry) => wanting.for_each(|index| come(index, &directory, &name, &entry, entries)),
                None => wanting.for_each(|index| leave(index, &directory, &name, entries)),
            }
        }
    }
}

fn come(index: &Index, directory: &Path, name: &Path, entry: &Arc<Entry>, entries: &mut Entries) {
    let read = entries.entry(name.into()).or_insert_with(|| entry.clone()).clone();
    let certificate = entry.certificate();
    if !Arc::ptr_eq(&read, entry) {
        // Both were read from the same files, and what is in use was asked for by somebody.
        let digest = entry.lock().digest;
        read.put(certificate.clone(), digest);
    }
    let is_used = index.uses(&read, directory);
    let mut change = index.change();
    change.replace(&read, &certificate);
    if !is_used {
        change.add_to(directory, &read, None, None);
    }
}

/// The default certificate of a `bind` stays all the same.
fn leave(index: &Index, directory: &Path, name: &Path, entries: &mut Entries) {
    let Some(read) = entries.get(name).cloned().filter(|read| !index.is_default(read)) else { return };
    index.change().remove(&read, directory, |_| true);
    if !read.origin.is_wanted && !index.is_used(&read) {
        entries.remove(name);
    }
}
