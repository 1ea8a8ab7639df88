//! One entry of a pattern reference, and entries by key.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A pattern, or a key of a map with its value. Immutable: a changed value is another entry of the same number.
#[derive(Debug)]
pub struct Entry {
    /// What it is called by (`#REF`); a smaller one comes before.
    pub(crate) number: u64,
    /// The key, and the value behind it.
    text: Box<[u8]>,
    key_len: u32,
    has_value: bool,
}

impl Entry {
    pub(super) fn new(number: u64, key: &[u8], value: Option<&[u8]>) -> Arc<Entry> {
        let text = [key, value.unwrap_or_default()].concat().into();
        // A file has fewer bytes, and so has a line of the runtime API or a rule's text.
        let key_len = u32::try_from(key.len()).unwrap_or(u32::MAX);
        Arc::new(Entry { number, text, key_len, has_value: value.is_some() })
    }

    /// What an entry with so many bytes of text takes about, with its places in tables and indexes.
    pub(super) const fn bytes_of(text: usize) -> usize {
        text + 256
    }

    /// What it takes about.
    pub(super) fn bytes(&self) -> usize {
        Entry::bytes_of(self.text.len())
    }

    /// The pattern.
    pub fn key(&self) -> &[u8] {
        &self.text[..self.key_len as usize]
    }

    /// The value; `None` of a pattern of ACLs alone.
    pub fn value(&self) -> Option<&[u8]> {
        self.has_value.then(|| &self.text[self.key_len as usize..])
    }

    /// What it is called by in the runtime API.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Numbers of entries by key; nearly always one.
#[derive(Debug, Default)]
pub(super) struct ByKey(HashMap<KeyOf, Numbers>);

#[derive(Debug)]
struct KeyOf(Arc<Entry>);

#[derive(Debug)]
enum Numbers {
    One(u64),
    Many(Vec<u64>),
}

impl Hash for KeyOf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialEq for KeyOf {
    fn eq(&self, other: &KeyOf) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for KeyOf {}

impl Borrow<[u8]> for KeyOf {
    fn borrow(&self) -> &[u8] {
        self.0.key()
    }
}

impl Numbers {
    fn as_slice(&self) -> &[u64] {
        match self {
            Numbers::One(number) => std::slice::from_ref(number),
            Numbers::Many(numbers) => numbers,
        }
    }

    /// New entries have the highest numbers, so that this copies none of the others.
    fn add(&mut self, number: u64) {
        match self {
            Numbers::One(known) if *known == number => {}
            Numbers::One(known) => *self = Numbers::Many(vec![number.min(*known), number.max(*known)]),
            Numbers::Many(all) => {
                if let Err(at) = all.binary_search(&number) {
                    all.insert(at, number);
                }
            }
        }
    }
}

impl ByKey {
    pub fn with_capacity(capacity: usize) -> ByKey {
        ByKey(HashMap::with_capacity(capacity))
    }

    pub fn of(entries: &[Arc<Entry>]) -> ByKey {
        let mut all = ByKey::with_capacity(entries.len());
        entries.iter().for_each(|entry| all.insert(entry));
        all
    }

    /// Numbers of the entries with this key, in ascending order.
    pub fn get(&self, key: &[u8]) -> &[u64] {
        self.0.get(key).map_or(&[], Numbers::as_slice)
    }

    pub fn insert(&mut self, entry: &Arc<Entry>) {
        match self.0.get_mut(entry.key()) {
            None => drop(self.0.insert(KeyOf(Arc::clone(entry)), Numbers::One(entry.number))),
            Some(numbers) => numbers.add(entry.number),
        }
    }

    pub fn remove(&mut self, entry: &Entry) {
        let Some(numbers) = self.0.get_mut(entry.key()) else { return };
        match numbers {
            Numbers::One(number) if *number == entry.number => drop(self.0.remove(entry.key())),
            Numbers::One(_) => {}
            Numbers::Many(all) => {
                if let Ok(at) = all.binary_search(&entry.number) {
                    all.remove(at);
                }
                if let [one] = **all {
                    *numbers = Numbers::One(one);
                }
            }
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(|key| key.0.key())
    }
}
