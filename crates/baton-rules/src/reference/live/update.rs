//! What a changed file, or another way to match, makes of the contents: it is built beside those in use, and comes into use at once.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use super::super::entry::Entry;
use super::super::index::Index;
use super::Live;
use super::contents::{Base, Contents, FileLine, Values};
use super::state::{Differing, Journal};

/// Entries that are copied under one hold of the lock.
const ENTRIES_PER_HOLD: usize = 4096;

/// Other contents, built beside those in use.
#[derive(Debug)]
pub(in crate::reference) struct Update {
    base: Arc<Base>,
    contents: Contents,
    exchanges: u64,
    journal: Arc<Journal>,
    /// Keys that were changed at run time and are as in the file from now on.
    pub ended: Vec<Box<[u8]>>,
    /// Keys that stay changed; `None`: those that are.
    stay: Option<BTreeSet<Box<[u8]>>>,
    /// What the file changes of itself.
    pub edits: FileEdits,
}

/// By what a file differs from what it was.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FileEdits {
    /// Keys that are new.
    pub added: usize,
    /// Keys with other values.
    pub changed: usize,
    /// Keys that are gone.
    pub removed: usize,
    /// The first of them, in words.
    pub named: Vec<String>,
}

impl FileEdits {
    /// Keys that are named.
    const NAMED_MAX: usize = 8;

    fn between(old: &Base, new: &Base) -> FileEdits {
        let mut edits = FileEdits::default();
        for key in new.by_key.keys() {
            match (old.values(key), new.values(key)) {
                (was, is) if was == is => {}
                (was, _) if was.is_empty() => edits.note(key, "added", |edits| &mut edits.added),
                _ => edits.note(key, "changed", |edits| &mut edits.changed),
            }
        }
        for key in old.by_key.keys().filter(|key| new.by_key.get(key).is_empty()) {
            edits.note(key, "removed", |edits| &mut edits.removed);
        }
        edits.named.sort();
        edits
    }

    fn note(&mut self, key: &[u8], what: &str, count: fn(&mut FileEdits) -> &mut usize) {
        *count(self) += 1;
        if self.named.len() < FileEdits::NAMED_MAX {
            self.named.push(format!("{} {what}", String::from_utf8_lossy(key)));
        }
    }
}

impl Live {
    /// Builds what a changed file makes of the contents, or another index: beside those in use.
    pub(in crate::reference) fn update(&self, digest: u64, lines: Option<&[FileLine<'_>]>) -> Update {
        let journal = Arc::default();
        let (slots, base, exchanges) = {
            let mut state = self.writing();
            state.journals.push(Arc::downgrade(&journal));
            (state.slots.clone(), Arc::clone(&state.base), state.exchanges)
        };
        let mut live = BTreeMap::new();
        let mut after = 0;
        loop {
            let page = self.page(None, after, ENTRIES_PER_HOLD);
            let Some(last) = page.last() else { break };
            after = last.number;
            live.extend(page.into_iter().map(|entry| (entry.number, entry)));
        }
        let Some(lines) = lines else {
            let contents = Contents::build(&slots, live);
            return Update {
                base,
                contents,
                exchanges,
                journal,
                ended: Vec::new(),
                stay: None,
                edits: FileEdits::default(),
            };
        };
        let first = {
            let mut state = self.lock();
            let first = state.last_number + 1;
            state.last_number += lines.len() as u64;
            first
        };
        let file: Vec<Arc<Entry>> =
            lines.iter().zip(first..).map(|((key, value), number)| Entry::new(number, key, *value)).collect();
        let new = Arc::new(Base::new(digest, file));
        let live = Contents::build(&[], live);
        let mut merged: BTreeMap<u64, Arc<Entry>> =
            new.entries.iter().map(|entry| (entry.number, Arc::clone(entry))).collect();
        let mut ended = Vec::new();
        let mut restored: Vec<(&[u8], Values)> = Vec::new();
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let keys = live.by_key.keys().chain(base.by_key.keys());
        for key in keys.filter(|key| seen.insert(key)) {
            let (was, is) = (base.values(key), live.values(key));
            if was == is {
                continue;
            }
            match new.values(key) == was {
                true => restored.push((key, is)),
                false => ended.push(Box::from(key)),
            }
        }
        // New keys last, in their order.
        restored.sort_by_key(|(key, _)| live.by_key.get(key).first().copied());
        let stay = Some(restored.iter().map(|(key, _)| Box::from(*key)).collect());
        let mut state = self.lock();
        for (key, values) in restored {
            let numbers = new.by_key.get(key);
            for number in numbers.iter().skip(values.len()) {
                merged.remove(number);
            }
            for (at, value) in values.iter().enumerate() {
                let number = numbers.get(at).copied().unwrap_or_else(|| {
                    state.last_number += 1;
                    state.last_number
                });
                merged.insert(number, Entry::new(number, key, value.as_deref()));
            }
        }
        drop(state);
        let edits = FileEdits::between(&base, &new);
        Update { base: new, contents: Contents::build(&slots, merged), exchanges, journal, ended, stay, edits }
    }

    /// Uses what was built, with what changed meanwhile.
    pub(in crate::reference) fn apply(&self, update: Update) {
        let Update { base, mut contents, exchanges, journal, ended, stay, edits: _ } = update;
        let mut state = self.lock();
        let meanwhile = std::mem::take(&mut *journal.lock().unwrap_or_else(PoisonError::into_inner));
        let keys: BTreeSet<Box<[u8]>> = match exchanges == state.exchanges {
            true => meanwhile.into_iter().collect(),
            // All were exchanged.
            false => {
                let keys = state.contents.by_key.keys().chain(state.base.by_key.keys()).chain(contents.by_key.keys());
                keys.map(Box::from).collect()
            }
        };
        let mut last = state.last_number;
        let is_exchanged = exchanges != state.exchanges;
        let mut differing = match (stay, &mut state.differing) {
            (Some(stay), _) => stay,
            (None, Differing::Keys(keys)) => std::mem::take(keys),
            (None, Differing::Unknown) => BTreeSet::new(),
        };
        for key in keys {
            let values = match base.values(&key) == state.base.values(&key) {
                true => state.contents.values(&key),
                false => base.values(&key),
            };
            match values == base.values(&key) {
                true => drop(differing.remove(&key)),
                false => drop(differing.insert(key.clone())),
            }
            if contents.values(&key) != values {
                contents.put(&key, &values, &mut last);
            }
        }
        state.last_number = last;
        // A slot that came later than the contents were built.
        for slot in contents.indexes.len()..state.slots.len() {
            let (spec, users) = &state.slots[slot];
            let index = (users.strong_count() > 0).then(|| {
                let index = Index::new(*spec);
                index.insert_all(contents.entries.values());
                Arc::new(index)
            });
            contents.indexes.push(index);
        }
        if let Some(untold) = &mut state.untold {
            ended.iter().for_each(|key| untold.note(key));
        }
        self.current.store(Arc::new(contents.indexes.clone()));
        let old = (std::mem::replace(&mut state.contents, contents), std::mem::replace(&mut state.base, base));
        if is_exchanged || !matches!(state.differing, Differing::Unknown) {
            state.differing = Differing::Keys(differing);
        }
        // Versions that were prepared may lack the index of a new way to match.
        let slots = state.slots.clone();
        for prepared in state.prepared.values_mut().filter(|prepared| !prepared.is_indexed(&slots)) {
            let entries = std::mem::take(&mut prepared.entries);
            *prepared = Contents::build(&slots, entries);
        }
        drop(state);
        drop(old);
    }
}
