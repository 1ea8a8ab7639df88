//! What is behind the lock of a reference: the version in use and those that are prepared, and who wants to know what changes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::super::entry::Entry;
use super::super::index::MatchSpec;
use super::PatternRefusal;
use super::contents::{Base, Contents, FileLine, is_as_in_file};
use crate::problem::RuleError;

/// Bytes by which requests may let a file's entries grow. What an operator adds has no bound.
const GROWTH_BYTES_MAX: usize = 256 << 20;

/// Changed keys that are noted one by one.
const NOTED_MAX: usize = 4096;

/// Keys that changed while other contents were built.
pub(super) type Journal = Mutex<Vec<Box<[u8]>>>;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) slots: Vec<(MatchSpec, Weak<()>)>,
    /// As the file was loaded.
    pub(super) base: Arc<Base>,
    pub(super) contents: Contents,
    pub(super) version: u32,
    pub(super) last_version: u32,
    pub(super) prepared: BTreeMap<u32, Contents>,
    pub(super) last_number: u64,
    /// Exchanges of all entries at once.
    pub(super) exchanges: u64,
    /// Whoever builds other contents from these learns here which keys have changed meanwhile.
    pub(super) journals: Vec<Weak<Journal>>,
    pub(super) differing: Differing,
    pub(super) untold: Option<Noted>,
}

/// Keys that changed and of which nobody was told yet.
#[derive(Debug)]
pub(super) enum Noted {
    Keys(HashSet<Box<[u8]>>),
    /// Too many to note, or all.
    Many,
}

impl Noted {
    pub(super) fn note(&mut self, key: &[u8]) {
        match self {
            Noted::Keys(keys) if keys.len() < NOTED_MAX => _ = keys.insert(key.into()),
            Noted::Keys(_) => *self = Noted::Many,
            Noted::Many => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
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
pub(super) enum Differing {
    Keys(BTreeSet<Box<[u8]>>),
    /// All entries were exchanged: they have to be compared.
    Unknown,
}

impl Default for Differing {
    fn default() -> Differing {
        Differing::Keys(BTreeSet::new())
    }
}

impl State {
    pub(super) fn touched(&mut self, key: &[u8]) {
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
    pub(super) fn exchange(&mut self, contents: Contents) -> Contents {
        self.exchanges += 1;
        if let Some(untold) = &mut self.untold {
            *untold = Noted::Many;
        }
        self.differing = Differing::Unknown;
        std::mem::replace(&mut self.contents, contents)
    }

    pub(super) fn differing(&mut self) -> &BTreeSet<Box<[u8]>> {
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
    pub(super) fn add(&mut self, version: Option<u32>, lines: &[FileLine<'_>]) -> Result<(), PatternRefusal> {
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

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), PatternRefusal> {
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
    pub(super) fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        let room = (self.base.bytes + GROWTH_BYTES_MAX).saturating_sub(self.contents.bytes);
        Entry::bytes_of(key.len() + value.len()) <= room
    }

    pub(super) fn judge(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), PatternRefusal> {
        let mut used = self.slots.iter().filter(|(_, users)| users.strong_count() > 0);
        let judged: Result<(), RuleError> = used.try_for_each(|(spec, _)| spec.judge(key, value));
        judged.map_err(|error| PatternRefusal::Invalid(error.message))
    }

    pub(super) fn version(&mut self, version: Option<u32>) -> Result<&mut Contents, PatternRefusal> {
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
