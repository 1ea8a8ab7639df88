//! The live contents of a pattern reference: what rules look up, and how it changes at run time.
//!
//! Readers take no lock: they load the indexes of the version in use, and look the sample up there. Whoever changes something holds the
//! lock of the reference for as long as one entry takes. What is long - reading a file, building a version - happens beside it, and comes
//! into use by the exchange of a pointer.

mod contents;
mod differences;
mod state;
mod update;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;

use self::contents::{Base, Contents, Indexes};
use self::state::State;
use super::entry::Entry;
use super::index::{Index, MatchSpec};

pub(super) use self::contents::FileLine;
pub use self::contents::Values;
pub use self::differences::ChangedKey;
pub use self::update::FileEdits;
pub(super) use self::update::Update;

/// Entries that are added under one hold of the lock, and seen together.
const ENTRIES_PER_ADDITION: usize = 64;

/// Contents that rules of all configurations since the first share.
#[derive(Debug)]
pub struct Live {
    /// Whether the contents were changed at run time, ever: until then, rules may use what they were compiled to.
    changed: AtomicBool,
    current: ArcSwap<Indexes>,
    state: Mutex<State>,
}

/// A change at run time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PatternChange {
    /// Adds entries, one after the other up to one that is refused; to the version in use unless another is given.
    Add {
        /// To which version.
        version: Option<u32>,
        /// Keys with their values.
        entries: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    },
    /// Sets the value of all entries of a key.
    Set(Vec<u8>, Vec<u8>),
    /// Sets the value of one entry.
    SetNumber(u64, Vec<u8>),
    /// Deletes all entries of a key.
    Delete(Vec<u8>),
    /// Deletes one entry.
    DeleteNumber(u64),
    /// Empties a version.
    Clear(Option<u32>),
    /// Begins another version.
    Prepare,
    /// Uses a version from now on.
    Commit(u32),
}

/// Why a change at run time was refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PatternRefusal {
    /// There is no such entry.
    NotFound,
    /// A version that was not prepared.
    Version,
    /// A pattern or a value that cannot be used.
    Invalid(String),
}

impl Live {
    /// Of a file that was read, or of what a rule has in its line. `changed`: rules have nothing else to look at.
    pub(super) fn new(specs: Vec<(MatchSpec, Weak<()>)>, digest: u64, lines: &[FileLine<'_>], changed: bool) -> Live {
        let entries: Vec<Arc<Entry>> =
            lines.iter().zip(1..).map(|((key, value), number)| Entry::new(number, key, *value)).collect();
        let last_number = entries.len() as u64;
        let contents = match changed {
            true => Contents::build(&specs, entries.iter().map(|entry| (entry.number, Arc::clone(entry))).collect()),
            // Built when it is wanted.
            false => Contents::default(),
        };
        let current = ArcSwap::from_pointee(contents.indexes.clone());
        let base = Arc::new(Base::new(digest, entries));
        let state = State { slots: specs, base, contents, last_number, ..State::default() };
        Live { changed: AtomicBool::new(changed), current, state: Mutex::new(state) }
    }

    /// Whether rules must look here.
    #[inline]
    pub(super) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Gives `with` the index of a slot.
    #[inline]
    pub(super) fn with_index<T>(&self, slot: usize, with: impl FnOnce(&Index) -> T) -> Option<T> {
        self.current.load().get(slot)?.as_deref().map(with)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a change at run time.
    fn writing(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        self.build(&mut state);
        state
    }

    /// Builds what rules look at from now on, where a line's patterns change for the first time.
    fn build(&self, state: &mut State) {
        if !self.is_changed() {
            let entries = state.base.entries.iter().map(|entry| (entry.number, Arc::clone(entry))).collect();
            state.contents = Contents::build(&state.slots, entries);
            self.current.store(Arc::new(state.contents.indexes.clone()));
            self.changed.store(true, Ordering::Release);
        }
    }

    /// The digest of the file in use.
    pub(super) fn digest(&self) -> u64 {
        self.lock().base.digest
    }

    /// The slot of a way to match; it is `new` when there is no index for it yet.
    pub(super) fn slot(&self, spec: MatchSpec, users: &Arc<()>) -> (usize, Arc<()>, bool) {
        let mut state = self.lock();
        let known = state.slots.iter().position(|(known, _)| *known == spec);
        match known {
            Some(slot) => match state.slots[slot].1.upgrade() {
                Some(users) => {
                    let is_new = self.is_changed() && state.contents.indexes.get(slot).is_none_or(Option::is_none);
                    (slot, users, is_new)
                }
                None => {
                    state.slots[slot].1 = Arc::downgrade(users);
                    (slot, Arc::clone(users), self.is_changed())
                }
            },
            None => {
                state.slots.push((spec, Arc::downgrade(users)));
                (state.slots.len() - 1, Arc::clone(users), self.is_changed())
            }
        }
    }

    /// Changes it. Gives the version that was begun.
    pub fn change_patterns(&self, change: PatternChange) -> Result<Option<u32>, PatternRefusal> {
        match change {
            PatternChange::Add { version, entries } => {
                for piece in entries.chunks(ENTRIES_PER_ADDITION) {
                    let piece: Vec<FileLine<'_>> =
                        piece.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
                    self.writing().add(version, &piece)?;
                }
            }
            PatternChange::Set(key, value) => self.set(&key, &value)?,
            PatternChange::SetNumber(number, value) => self.set_number(number, &value)?,
            PatternChange::Delete(key) => self.delete(&key)?,
            PatternChange::DeleteNumber(number) => self.delete_number(number)?,
            PatternChange::Clear(version) => self.clear(version),
            PatternChange::Prepare => return Ok(Some(self.prepare())),
            PatternChange::Commit(version) => self.commit(version)?,
        }
        Ok(None)
    }

    /// Adds an entry, to a version or to the one in use.
    pub fn add(&self, version: Option<u32>, key: &[u8], value: Option<&[u8]>) -> Result<(), PatternRefusal> {
        self.writing().add(version, &[(key, value)])
    }

    /// Sets the value of all entries of a key.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), PatternRefusal> {
        self.writing().set(key, value)
    }

    /// Sets the value of one entry.
    pub fn set_number(&self, number: u64, value: &[u8]) -> Result<(), PatternRefusal> {
        let mut state = self.writing();
        let entry = state.contents.entries.get(&number).cloned().ok_or(PatternRefusal::NotFound)?;
        state.judge(entry.key(), Some(value))?;
        state.contents.insert_all(vec![Entry::new(number, entry.key(), Some(value))]);
        state.touched(entry.key());
        Ok(())
    }

    /// What `set-map` does: sets the value, or adds the key. False: requests have added too much already.
    pub(crate) fn set_or_add(&self, key: &[u8], value: &[u8]) -> bool {
        let mut state = self.writing();
        if !state.has_room(key, value) {
            return false;
        }
        // A value that cannot be used changes nothing, as in HAProxy.
        if state.set(key, value) == Err(PatternRefusal::NotFound) {
            let _ = state.add(None, &[(key, Some(value))]);
        }
        true
    }

    /// What `add-acl` does: adds a pattern that is not there. False: requests have added too much already.
    pub(crate) fn add_once(&self, key: &[u8]) -> bool {
        let mut state = self.lock();
        if self.has(&state, key) {
            return true;
        }
        self.build(&mut state);
        let has_room = state.has_room(key, &[]);
        if has_room {
            let _ = state.add(None, &[(key, None)]);
        }
        has_room
    }

    /// Deletes all entries of a key.
    pub fn delete(&self, key: &[u8]) -> Result<(), PatternRefusal> {
        let mut state = self.writing();
        let numbers = state.contents.by_key.get(key).to_vec();
        if numbers.is_empty() {
            return Err(PatternRefusal::NotFound);
        }
        state.contents.remove_all(&numbers);
        state.touched(key);
        Ok(())
    }

    /// Deletes one entry.
    pub fn delete_number(&self, number: u64) -> Result<(), PatternRefusal> {
        let mut state = self.writing();
        let entry = state.contents.entries.get(&number).cloned().ok_or(PatternRefusal::NotFound)?;
        state.contents.remove_all(&[number]);
        state.touched(entry.key());
        Ok(())
    }

    /// Empties a version, or the one in use.
    pub fn clear(&self, version: Option<u32>) {
        let mut state = self.writing();
        let old = match version {
            Some(version) if version != state.version => state.prepared.remove(&version),
            _ => {
                let empty = Contents::build(&state.slots, BTreeMap::new());
                self.current.store(Arc::new(empty.indexes.clone()));
                Some(state.exchange(empty))
            }
        };
        drop(state);
        drop(old);
    }

    /// Begins another version; gives its number.
    pub fn prepare(&self) -> u32 {
        let mut state = self.writing();
        state.last_version += 1;
        state.last_version
    }

    /// Uses a prepared version from now on.
    pub fn commit(&self, version: u32) -> Result<(), PatternRefusal> {
        let mut state = self.writing();
        if version <= state.version || version > state.last_version {
            return Err(PatternRefusal::Version);
        }
        let contents = match state.prepared.remove(&version) {
            Some(contents) => contents,
            None => Contents::build(&state.slots, BTreeMap::new()),
        };
        self.current.store(Arc::new(contents.indexes.clone()));
        let old = state.exchange(contents);
        state.version = version;
        let kept = state.prepared.split_off(&version);
        let older = std::mem::replace(&mut state.prepared, kept);
        drop(state);
        drop((old, older));
        Ok(())
    }

    /// The version in use, the last one that was begun, and how many entries all have.
    pub fn versions(&self) -> (u32, u32, usize) {
        let state = self.lock();
        let count = match self.is_changed() {
            true => state.contents.entries.len(),
            false => state.base.entries.len(),
        };
        let prepared: usize = state.prepared.values().map(|contents| contents.entries.len()).sum();
        (state.version, state.last_version, count + prepared)
    }

    /// Some entries of a version, after the one with the number `after`.
    pub fn page(&self, version: Option<u32>, after: u64, most: usize) -> Vec<Arc<Entry>> {
        let state = self.lock();
        if !self.is_changed() {
            let all =
                state.base.entries.iter().filter(|entry| entry.number > after && version.is_none_or(|it| it == 0));
            return all.take(most).cloned().collect();
        }
        let contents = match version {
            Some(version) if version != state.version => state.prepared.get(&version),
            _ => Some(&state.contents),
        };
        let entries = contents.into_iter().flat_map(|contents| contents.entries.range(after + 1..));
        entries.map(|(_, entry)| Arc::clone(entry)).take(most).collect()
    }

    /// Whether the version in use has this key.
    pub fn has_key(&self, key: &[u8]) -> bool {
        self.has(&self.lock(), key)
    }

    fn has(&self, state: &State, key: &[u8]) -> bool {
        match self.is_changed() {
            true => !state.contents.by_key.get(key).is_empty(),
            false => !state.base.by_key.get(key).is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cannot_fill_the_memory_but_operators_may() {
        let live = Live::new(Vec::new(), 0, &[(b"in the file", Some(b"1"))], true);
        let value = vec![b'x'; 4 << 20];
        let key = |number: usize| format!("k{number}").into_bytes();
        let added = (0..100).take_while(|number| live.set_or_add(&key(*number), &value)).count();
        assert_eq!(added, 63, "the 64th would be more than 256 MiB");
        assert!(live.add_once(b"short") && live.add_once(b"in the file"));
        assert!(!live.set_or_add(b"in the file", &value), "a longer value counts, too");
        live.delete(&key(0)).unwrap();
        assert!(live.set_or_add(&key(100), &value) && !live.set_or_add(&key(101), &value));
        live.add(None, b"by an operator", Some(&value)).unwrap();
        live.clear(None);
        assert!(live.set_or_add(&key(0), &value));
    }
}
