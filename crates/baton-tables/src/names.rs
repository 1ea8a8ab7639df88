//! Names of servers, for all entries that are bound to one: each is in the table's memory once, and is never removed.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use crate::layout::{NAMES, NAMING, Part};
use crate::store::{Store, at};

/// The longest name in bytes.
const NAME_MAX: usize = 1024;

/// The names that a user of a table has met.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_place: RwLock<HashMap<u32, Arc<str>>>,
    places: RwLock<HashMap<Arc<str>, u32>>,
}

impl Names {
    /// The name at a place.
    pub(crate) fn name(&self, store: &Store, place: u32) -> Option<Arc<str>> {
        if place == 0 {
            return None;
        }
        if let Some(name) = self.by_place.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return Some(Arc::clone(name));
        }
        let name: Arc<str> = read(store, place as usize)?.into();
        self.by_place.write().unwrap_or_else(PoisonError::into_inner).insert(place, Arc::clone(&name));
        Some(name)
    }

    /// The place of a name; `None`: there is no room for it.
    pub(crate) fn place(&self, store: &Store, name: &str) -> Option<u32> {
        if let Some(place) = self.places.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Some(*place);
        }
        let place = find_or_write(store, name)?;
        self.places.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), place);
        Some(place)
    }
}

/// A name is a cell with its length, and its bytes in those behind.
fn read(store: &Store, place: usize) -> Option<String> {
    let cell = |at: usize| store.cell(store.layout.names + at).load(Ordering::Acquire);
    let end = (store.get(at::NAMES_END) as usize).min(NAMES);
    let length = if place < end { cell(place) as usize } else { 0 };
    if length > NAME_MAX || place + 1 + length.div_ceil(8) > end {
        return None;
    }
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|part| cell(place + 1 + part).to_le_bytes()).collect();
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

fn find_or_write(store: &Store, name: &str) -> Option<u32> {
    if name.len() > NAME_MAX {
        return None;
    }
    let _naming = store.lock(NAMING);
    let end = (store.get(at::NAMES_END) as usize).clamp(1, NAMES);
    let mut place = 1;
    while place < end {
        let other = read(store, place)?;
        if other == name {
            return Some(place as u32);
        }
        place += 1 + other.len().div_ceil(8);
    }
    let next = end + 1 + name.len().div_ceil(8);
    if next > NAMES || store.commit(Part::Names, next).is_err() {
        return None;
    }
    let set = |at: usize, value: u64| store.cell(store.layout.names + at).store(value, Ordering::Release);
    set(end, name.len() as u64);
    for (part, bytes) in name.as_bytes().chunks(8).enumerate() {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        set(end + 1 + part, u64::from_le_bytes(eight));
    }
    // Last, so that a process that dies before has written nothing.
    store.head(at::NAMES_END).store(next as u64, Ordering::Release);
    Some(end as u32)
}
