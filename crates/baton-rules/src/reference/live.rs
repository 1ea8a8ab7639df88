//! The live contents of a pattern reference: what rules look up, and how it changes at run time.
//!
//! Readers take no lock: they load the indexes of the version in use, and look the sample up there. Whoever changes something holds the
//! lock of the reference for as long as one entry takes. What is long - reading a file, building a version - happens beside it, and comes
//! into use by the exchange of a pointer.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;

use super::entry::{ByKey, Entry};
use super::index::{Index, MatchSpec};
use crate::problem::RuleError;

/// Entries that are copied under one hold of the lock.
const ENTRIES_PER_HOLD: usize = 4096;

/// Entries that are added under one hold of the lock, and seen together.
const ENTRIES_PER_ADDITION: usize = 64;

/// Keys that are compared or copied under one hold of the lock.
const KEYS_PER_HOLD: usize = 256;

/// Changed keys that are noted one by one.
const NOTED_MAX: usize = 4096;

/// Bytes by which requests may let a file's entries grow. What an operator adds has no bound.
const GROWTH_BYTES_MAX: usize = 256 << 20;

type Indexes = Vec<Option<Arc<Index>>>;

/// Keys that changed while other contents were built.
type Journal = Mutex<Vec<Box<[u8]>>>;

/// A line of a file: its key and its value.
pub(super) type FileLine<'f> = (&'f [u8], Option<&'f [u8]>);

/// Contents that rules of all configurations since the first share.
#[derive(Debug)]
pub struct Live {
    /// Whether the contents were changed at run time, ever: until then, rules may use what they were compiled to.
    changed: AtomicBool,
    current: ArcSwap<Indexes>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<(MatchSpec, Weak<()>)>,
    /// As the file was loaded.
    base: Arc<Base>,
    contents: Contents,
    version: u32,
    last_version: u32,
    prepared: BTreeMap<u32, Contents>,
    last_number: u64,
    /// Exchanges of all entries at once.
    exchanges: u64,
    /// Whoever builds other contents from these learns here which keys have changed meanwhile.
    journals: Vec<Weak<Journal>>,
    differing: Differing,
    untold: Option<Noted>,
}

/// Keys that changed and of which nobody was told yet.
#[derive(Debug)]
enum Noted {
    Keys(HashSet<Box<[u8]>>),
    /// Too many to note, or all.
    Many,
}

impl Noted {
    fn note(&mut self, key: &[u8]) {
        match self {
            Noted::Keys(keys) if keys.len() < NOTED_MAX => _ = keys.insert(key.into()),
            Noted::Keys(_) => *self = Noted::Many,
            Noted::Many => {}
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Noted::Keys(keys) if keys.is_empty())
    }
}

impl Default for Noted {
    fn default() -> Noted {
        Noted::Keys(HashSet::new())
    }
}

/// Keys whose entries are not those of the file.
#[derive(Debug)]
enum Differing {
    Keys(BTreeSet<Box<[u8]>>),
    /// All entries were exchanged: they have to be compared.
    Unknown,
}

impl Default for Differing {
    fn default() -> Differing {
        Differing::Keys(BTreeSet::new())
    }
}

/// A file's entries.
#[derive(Debug, Default)]
pub(super) struct Base {
    digest: u64,
    entries: Vec<Arc<Entry>>,
    by_key: ByKey,
    /// What the entries take.
    bytes: usize,
}

/// One version's entries, with its indexes.
#[derive(Debug, Default)]
struct Contents {
    entries: BTreeMap<u64, Arc<Entry>>,
    by_key: ByKey,
    indexes: Indexes,
    /// What the entries take.
    bytes: usize,
}

/// The values of a key: `None` is a pattern without one.
pub type Values = Vec<Option<Vec<u8>>>;

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

/// Other contents, built beside those in use.
#[derive(Debug)]
pub(super) struct Update {
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

impl Contents {
    fn build(slots: &[(MatchSpec, Weak<()>)], entries: BTreeMap<u64, Arc<Entry>>) -> Contents {
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

    fn insert_all(&mut self, entries: Vec<Arc<Entry>>) {
        self.indexes.iter().flatten().for_each(|index| index.insert_all(&entries));
        for entry in entries {
            self.by_key.insert(&entry);
            self.bytes += entry.bytes();
            if let Some(before) = self.entries.insert(entry.number, entry) {
                self.bytes -= before.bytes();
            }
        }
    }

    fn remove_all(&mut self, numbers: &[u64]) {
        let entries: Vec<Arc<Entry>> = numbers.iter().filter_map(|number| self.entries.remove(number)).collect();
        self.bytes -= entries.iter().map(|entry| entry.bytes()).sum::<usize>();
        self.indexes.iter().flatten().for_each(|index| index.remove_all(&entries));
        // From the end, where nothing has to move up.
        entries.iter().rev().for_each(|entry| self.by_key.remove(entry));
    }

    fn values(&self, key: &[u8]) -> Values {
        let entries = self.by_key.get(key).iter().filter_map(|number| self.entries.get(number));
        entries.map(|entry| entry.value().map(<[u8]>::to_vec)).collect()
    }

    /// Makes these the entries of a key; new ones come last.
    fn put(&mut self, key: &[u8], values: &Values, last_number: &mut u64) {
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
    fn new(digest: u64, entries: Vec<Arc<Entry>>) -> Base {
        let by_key = ByKey::of(&entries);
        let bytes = entries.iter().map(|entry| entry.bytes()).sum();
        Base { digest, entries, by_key, bytes }
    }

    fn entry(&self, number: u64) -> Option<&Arc<Entry>> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        Some(&self.entries[at])
    }

    fn values(&self, key: &[u8]) -> Values {
        let entries = self.by_key.get(key).iter().filter_map(|number| self.entry(*number));
        entries.map(|entry| entry.value().map(<[u8]>::to_vec)).collect()
    }
}

impl State {
    fn touched(&mut self, key: &[u8]) {
        self.journals.retain(|journal| match journal.upgrade() {
            None => false,
            Some(journal) => {
                journal.lock().unwrap_or_else(PoisonError::into_inner).push(key.into());
                true
            }
        });
        if let Differing::Keys(keys) = &mut self.differing {
            match is_as_in_file(&self.contents, &self.base, key) {
                true => drop(keys.remove(key)),
                false => drop(keys.insert(key.into())),
            }
        }
        if let Some(untold) = &mut self.untold {
            untold.note(key);
        }
    }

    /// Other entries are in use, all at once.
    fn exchange(&mut self, contents: Contents) -> Contents {
        self.exchanges += 1;
        if let Some(untold) = &mut self.untold {
            *untold = Noted::Many;
        }
        self.differing = Differing::Unknown;
        std::mem::replace(&mut self.contents, contents)
    }

    fn differing(&mut self) -> &BTreeSet<Box<[u8]>> {
        if let Differing::Unknown = self.differing {
            let all = self.contents.by_key.keys().chain(self.base.by_key.keys());
            let differs = |key: &&[u8]| self.contents.values(key) != self.base.values(key);
            self.differing = Differing::Keys(all.filter(differs).map(Box::from).collect());
        }
        match &self.differing {
            Differing::Keys(keys) => keys,
            Differing::Unknown => unreachable!("it was compared above"),
        }
    }

    /// Adds entries up to one that is refused.
    fn add(&mut self, version: Option<u32>, lines: &[FileLine<'_>]) -> Result<(), PatternRefusal> {
        self.version(version)?;
        let judged: Vec<_> = lines.iter().map_while(|(key, value)| self.judge(key, *value).ok()).collect();
        let (good, rest) = lines.split_at(judged.len());
        let entries = good.iter().zip(self.last_number + 1..);
        let entries = entries.map(|((key, value), number)| Entry::new(number, key, *value)).collect();
        self.last_number += good.len() as u64;
        self.version(version)?.insert_all(entries);
        if version.is_none_or(|version| version == self.version) {
            good.iter().for_each(|(key, _)| self.touched(key));
        }
        rest.first().map_or(Ok(()), |(key, value)| self.judge(key, *value))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), PatternRefusal> {
        let numbers = self.contents.by_key.get(key).to_vec();
        if numbers.is_empty() {
            return Err(PatternRefusal::NotFound);
        }
        self.judge(key, Some(value))?;
        let entries = numbers.into_iter().map(|number| Entry::new(number, key, Some(value))).collect();
        self.contents.insert_all(entries);
        self.touched(key);
        Ok(())
    }

    /// Whether a request may add this.
    fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        let room = (self.base.bytes + GROWTH_BYTES_MAX).saturating_sub(self.contents.bytes);
        Entry::bytes_of(key.len() + value.len()) <= room
    }

    fn judge(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), PatternRefusal> {
        let mut used = self.slots.iter().filter(|(_, users)| users.strong_count() > 0);
        let judged: Result<(), RuleError> = used.try_for_each(|(spec, _)| spec.judge(key, value));
        judged.map_err(|error| PatternRefusal::Invalid(error.message))
    }

    fn version(&mut self, version: Option<u32>) -> Result<&mut Contents, PatternRefusal> {
        let version = version.unwrap_or(self.version);
        if version == self.version {
            return Ok(&mut self.contents);
        }
        if version > self.last_version {
            return Err(PatternRefusal::Version);
        }
        let slots = &self.slots;
        Ok(self.prepared.entry(version).or_insert_with(|| Contents::build(slots, BTreeMap::new())))
    }
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

    /// Builds what a changed file makes of the contents, or another index: beside those in use.
    pub(super) fn update(&self, digest: u64, lines: Option<&[FileLine<'_>]>) -> Update {
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
    pub(super) fn apply(&self, update: Update) {
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
        // Versions that were prepared lack an index of another way to match.
        let slots = state.slots.clone();
        for prepared in state.prepared.values_mut() {
            let entries = std::mem::take(&mut prepared.entries);
            *prepared = Contents::build(&slots, entries);
        }
        drop(state);
        drop(old);
    }
}

/// Whether a key has in use what the file has. Nothing is copied.
fn is_as_in_file(contents: &Contents, base: &Base, key: &[u8]) -> bool {
    let (live, file) = (contents.by_key.get(key), base.by_key.get(key));
    let live_value = |number| contents.entries.get(number).map(|entry| entry.value());
    let file_value = |number: &u64| base.entry(*number).map(|entry| entry.value());
    live.len() == file.len() && live.iter().zip(file).all(|(live, file)| live_value(live) == file_value(file))
}

fn changed(state: &State, key: Vec<u8>) -> ChangedKey {
    ChangedKey { file: state.base.values(&key), live: state.contents.values(&key), key }
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
