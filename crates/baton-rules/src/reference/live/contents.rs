//! The entries of a file, and those of a version with its indexes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::super::entry::{ByKey, Entry};
use super::super::index::{Index, MatchSpec};

pub(super) type Indexes = Vec<Option<Arc<Index>>>;

/// A line of a file: its key and its value.
pub(in crate::reference) type FileLine<'f> = (&'f [u8], Option<&'f [u8]>);

/// The values of a key: `None` is a pattern without one.
pub type Values = Vec<Option<Vec<u8>>>;

/// A file's entries.
#[derive(Debug, Default)]
pub(in crate::reference) struct Base {
    pub(super) digest: u64,
    pub(super) entries: Vec<Arc<Entry>>,
    pub(super) by_key: ByKey,
    /// What the entries take.
    pub(super) bytes: usize,
}

/// One version's entries, with its indexes.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) entries: BTreeMap<u64, Arc<Entry>>,
    pub(super) by_key: ByKey,
    pub(super) indexes: Indexes,
    /// What the entries take.
    pub(super) bytes: usize,
}

impl Contents {
    pub(super) fn build(slots: &[(MatchSpec, Weak<()>)], entries: BTreeMap<u64, Arc<Entry>>) -> Contents {
        let mut by_key = ByKey::with_capacity(entries.len());
        entries.values().for_each(|entry| by_key.insert(entry));
        let index = |(spec, users): &(MatchSpec, Weak<()>)| {
            (users.strong_count() > 0).then(|| {
                let index = Index::new(*spec);
                index.insert_all(entries.values());
                Arc::new(index)
            })
        };
        let indexes = slots.iter().map(index).collect();
        let bytes = entries.values().map(|entry| entry.bytes()).sum();
        Contents { entries, by_key, indexes, bytes }
    }

    /// Whether it has an index for each way to match that is in use.
    pub(super) fn is_indexed(&self, slots: &[(MatchSpec, Weak<()>)]) -> bool {
        let has = |slot| self.indexes.get(slot).is_some_and(Option::is_some);
        slots.iter().enumerate().all(|(slot, (_, users))| users.strong_count() == 0 || has(slot))
    }

    pub(super) fn insert_all(&mut self, entries: Vec<Arc<Entry>>) {
        self.indexes.iter().flatten().for_each(|index| index.insert_all(&entries));
        for entry in entries {
            self.by_key.insert(&entry);
            self.bytes += entry.bytes();
            if let Some(before) = self.entries.insert(entry.number, entry) {
                self.bytes -= before.bytes();
            }
        }
    }

    pub(super) fn remove_all(&mut self, numbers: &[u64]) {
        let entries: Vec<Arc<Entry>> = numbers.iter().filter_map(|number| self.entries.remove(number)).collect();
        self.bytes -= entries.iter().map(|entry| entry.bytes()).sum::<usize>();
        self.indexes.iter().flatten().for_each(|index| index.remove_all(&entries));
        // From the end, where nothing has to move up.
        entries.iter().rev().for_each(|entry| self.by_key.remove(entry));
    }

    pub(super) fn values(&self, key: &[u8]) -> Values {
        let entries = self.by_key.get(key).iter().filter_map(|number| self.entries.get(number));
        entries.map(|entry| entry.value().map(<[u8]>::to_vec)).collect()
    }

    /// Makes these the entries of a key; new ones come last.
    pub(super) fn put(&mut self, key: &[u8], values: &Values, last_number: &mut u64) {
        let numbers = self.by_key.get(key).to_vec();
        self.remove_all(&numbers);
        let entries = values.iter().zip(*last_number + 1..);
        let entries: Vec<Arc<Entry>> =
            entries.map(|(value, number)| Entry::new(number, key, value.as_deref())).collect();
        *last_number += entries.len() as u64;
        self.insert_all(entries);
    }
}

impl Base {
    pub(super) fn new(digest: u64, entries: Vec<Arc<Entry>>) -> Base {
        let by_key = ByKey::of(&entries);
        let bytes = entries.iter().map(|entry| entry.bytes()).sum();
        Base { digest, entries, by_key, bytes }
    }

    pub(super) fn entry(&self, number: u64) -> Option<&Arc<Entry>> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        Some(&self.entries[at])
    }

    pub(super) fn values(&self, key: &[u8]) -> Values {
        let entries = self.by_key.get(key).iter().filter_map(|number| self.entry(*number));
        entries.map(|entry| entry.value().map(<[u8]>::to_vec)).collect()
    }
}

/// Whether a key has in use what the file has. Nothing is copied.
pub(super) fn is_as_in_file(contents: &Contents, base: &Base, key: &[u8]) -> bool {
    let (live, file) = (contents.by_key.get(key), base.by_key.get(key));
    let live_value = |number| contents.entries.get(number).map(|entry| entry.value());
    let file_value = |number: &u64| base.entry(*number).map(|entry| entry.value());
    live.len() == file.len() && live.iter().zip(file).all(|(live, file)| live_value(live) == file_value(file))
}
