//! What is not as in the file: for whoever shows it, and for other processes and the master, which are told key by key.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use super::Live;
use super::contents::{Values, is_as_in_file};
use super::state::{Differing, Journal, Noted, State};

/// Keys that are compared or copied under one hold of the lock.
const KEYS_PER_HOLD: usize = 256;

/// A key whose entries were changed at run time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangedKey {
    /// The key.
    pub key: Vec<u8>,
    /// What the file has of it.
    pub file: Values,
    /// What is in use.
    pub live: Values,
}

impl Live {
    /// How many keys are not as in the file.
    pub fn changed_count(&self) -> usize {
        match self.is_changed() {
            true => {
                self.compare();
                self.lock().differing().len()
            }
            false => 0,
        }
    }

    /// Compares all entries with the file's after they were exchanged, a few under each hold of the lock that requests wait for.
    fn compare(&self) {
        let journal: Arc<Journal> = Arc::default();
        let (exchanges, base) = {
            let mut state = self.lock();
            if let Differing::Keys(_) = state.differing {
                return;
            }
            state.journals.push(Arc::downgrade(&journal));
            (state.exchanges, Arc::clone(&state.base))
        };
        let mut differing: BTreeSet<Box<[u8]>> = BTreeSet::new();
        let mut after = 0;
        loop {
            let page = self.page(None, after, KEYS_PER_HOLD);
            let Some(last) = page.last() else { break };
            after = last.number;
            let state = self.lock();
            // A key with many entries is compared once.
            let firsts = page.iter().filter(|one| state.contents.by_key.get(one.key()).first() == Some(&one.number));
            let keys = firsts.map(|one| one.key()).filter(|key| !is_as_in_file(&state.contents, &state.base, key));
            differing.extend(keys.map(Box::from));
        }
        for page in base.entries.chunks(KEYS_PER_HOLD) {
            let state = self.lock();
            let gone = page.iter().map(|one| one.key()).filter(|key| state.contents.by_key.get(key).is_empty());
            differing.extend(gone.map(Box::from));
        }
        let mut state = self.lock();
        if state.exchanges == exchanges && Arc::ptr_eq(&state.base, &base) {
            for key in std::mem::take(&mut *journal.lock().unwrap_or_else(PoisonError::into_inner)) {
                match is_as_in_file(&state.contents, &state.base, &key) {
                    true => drop(differing.remove(&key)),
                    false => drop(differing.insert(key)),
                }
            }
            state.differing = Differing::Keys(differing);
        }
    }

    /// All keys that are not as in the file.
    pub fn changes(&self) -> Vec<ChangedKey> {
        if !self.is_changed() {
            return Vec::new();
        }
        self.compare();
        let mut all = Vec::new();
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let mut state = self.lock();
            let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let rest = state.differing().range::<[u8], _>((from, Bound::Unbounded));
            let keys: Vec<Box<[u8]>> = rest.take(KEYS_PER_HOLD).cloned().collect();
            all.extend(keys.iter().map(|key| changed(&state, key.to_vec())));
            drop(state);
            match keys.into_iter().next_back() {
                Some(last) => after = Some(last),
                None => return all,
            }
        }
    }

    /// A key, as in the file and as it is in use.
    pub fn changed_key(&self, key: &[u8]) -> ChangedKey {
        changed(&self.lock(), key.to_vec())
    }

    /// Begins to note which keys are changed.
    pub fn note_changes(&self) {
        self.lock().untold.get_or_insert_default();
    }

    /// Whether something changed since [`Live::take_noted`].
    pub fn has_noted(&self) -> bool {
        self.is_changed() && self.lock().untold.as_ref().is_some_and(|untold| !untold.is_empty())
    }

    /// The keys that changed since the last time; those that are as in the file again are among them. `None`: more than are noted one by
    /// one, so that all of [`Live::changes`] are to be told.
    pub fn take_noted(&self) -> Option<Vec<ChangedKey>> {
        if !self.is_changed() {
            return Some(Vec::new());
        }
        let keys = match self.lock().untold.as_mut().map(std::mem::take) {
            None => return Some(Vec::new()),
            Some(Noted::Many) => return None,
            Some(Noted::Keys(keys)) => keys.into_iter().collect::<Vec<_>>(),
        };
        let page = |keys: &[Box<[u8]>]| {
            let state = self.lock();
            keys.iter().map(|key| changed(&state, key.to_vec())).collect::<Vec<_>>()
        };
        Some(keys.chunks(KEYS_PER_HOLD).flat_map(page).collect())
    }

    /// Makes a key as it was in another process, unless the file has another value for it by now. Whether that is so.
    pub fn restore(&self, change: &ChangedKey) -> bool {
        let mut state = self.writing();
        if state.base.values(&change.key) != change.file
            || change.live.iter().any(|value| state.judge(&change.key, value.as_deref()).is_err())
        {
            return false;
        }
        let mut last = state.last_number;
        state.contents.put(&change.key, &change.live, &mut last);
        state.last_number = last;
        state.touched(&change.key);
        true
    }
}

fn changed(state: &State, key: Vec<u8>) -> ChangedKey {
    ChangedKey { file: state.base.values(&key), live: state.contents.values(&key), key }
}
