//! A table: finds and creates entries, removes them, and shows them to commands and peers.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use baton_model::{DataKind, DataType, KeyType, ServerKey, StickTable, Stored};

use crate::key::{Key, OwnedKey};
use crate::now::Now;
use crate::rate::Rate;
use crate::record::{Record, Value};
use crate::tracked::Tracked;

/// Why there is no such table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableError {
    /// The table.
    pub table: Arc<str>,
    /// What the system reported.
    pub reason: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "stick-table '{}': no memory for its entries: {}", self.table, self.reason)
    }
}

impl std::error::Error for TableError {}

/// A table. Each core has one of its own ([`Table::own`]) of what all share, so that cores do not wait for each other to count who holds it.
#[derive(Debug)]
pub struct Table {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: Arc<str>,
    key: KeyType,
    stored: Vec<Stored>,
    settings: RwLock<StickTable>,
    entries: Mutex<Entries>,
    follows: AtomicBool,
    changed: Mutex<Vec<EntryId>>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Box<[u8]>, Arc<Entry>>,
    by_id: std::collections::BTreeMap<u64, Arc<Entry>>,
    next: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    id: u64,
    key: Box<[u8]>,
    pub(crate) references: AtomicU32,
    pub(crate) touched: AtomicU64,
    changed: AtomicBool,
    kept: Mutex<Vec<Kept>>,
}

impl Entry {
    pub(crate) fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Number(u64),
    Rate(Rate),
    ServerKey(Option<Arc<str>>),
}

/// Where a value is, and how it is kept.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) at: usize,
    pub(crate) kind: DataKind,
    pub(crate) period: u32,
}

/// An entry of a table, as long as it is one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct EntryId(u64);

/// How far a reader of all entries has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    next: u64,
    done: bool,
}

impl Cursor {
    /// Whether all entries were read.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

/// What became of an entry that was to be removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Removed {
    /// It is gone.
    Gone,
    /// It is tracked, and stays.
    InUse,
    /// There was none.
    Unknown,
}

impl Table {
    /// An empty table.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(settings: &StickTable) -> Result<Arc<Table>, TableError> {
        let shared = Shared {
            name: Arc::clone(&settings.name),
            key: settings.key,
            stored: settings.stored.clone(),
            settings: RwLock::new(settings.clone()),
            entries: Mutex::default(),
            follows: AtomicBool::new(false),
            changed: Mutex::default(),
        };
        Ok(Arc::new(Table { shared: Arc::new(shared) }))
    }

    /// The same table for a core of its own: entries that are tracked count who holds the table, and cores had better not count in the
    /// same place.
    pub fn own(&self) -> Arc<Table> {
        Arc::new(Table { shared: Arc::clone(&self.shared) })
    }

    /// Whether both are the same table.
    pub fn is(&self, other: &Table) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The name by which rules, commands and peers know it.
    pub fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    /// What its keys are.
    pub fn key_type(&self) -> KeyType {
        self.shared.key
    }

    /// What is stored with each entry.
    pub fn stored(&self) -> &[Stored] {
        &self.shared.stored
    }

    /// The configuration's settings, as they are now.
    pub fn settings(&self) -> StickTable {
        self.shared.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Most entries.
    pub fn size(&self) -> u64 {
        self.shared.settings.read().unwrap_or_else(PoisonError::into_inner).size
    }

    /// How long an entry lives since it was last touched; `None`: it does not expire.
    pub fn expire(&self) -> Option<Duration> {
        self.shared.settings.read().unwrap_or_else(PoisonError::into_inner).expire
    }

    /// What a server is in its entries.
    pub fn server_key(&self) -> ServerKey {
        self.shared.settings.read().unwrap_or_else(PoisonError::into_inner).server_key
    }

    /// How many entries there are. Those that have expired do not count from [`Table::sweep`] on.
    pub fn used(&self) -> u64 {
        self.entries().by_key.len() as u64
    }

    /// Finds or creates an entry, refreshes its life and holds it. `None`: the table is full.
    pub fn track(self: &Arc<Table>, key: &Key<'_>, now: Now) -> Option<Tracked> {
        let key = self.fitted(key);
        let entry = self.entry(&mut self.entries(), key, now)?;
        entry.touched.store(now.as_millis(), Ordering::Relaxed);
        self.note(&entry);
        Some(Tracked { table: Arc::clone(self), entry })
    }

    /// Finds an entry and holds it; its life is not refreshed.
    pub fn find(self: &Arc<Table>, key: &Key<'_>, now: Now) -> Option<Tracked> {
        let key = self.fitted(key);
        let entries = self.entries();
        let entry = entries.by_key.get(&key).filter(|entry| !self.is_over(entry, now))?;
        entry.references.fetch_add(1, Ordering::AcqRel);
        Some(Tracked { table: Arc::clone(self), entry: Arc::clone(entry) })
    }

    /// Finds or creates an entry and sets values of it, as an operator does. `false`: the table is full.
    pub fn set(self: &Arc<Table>, key: &Key<'_>, values: &[(DataType, u8, u64)], now: Now) -> bool {
        let Some(tracked) = self.track(key, now) else { return false };
        for (data, index, value) in values {
            tracked.set(*data, *index, *value, now);
        }
        true
    }

    /// Removes an entry that nobody tracks.
    pub fn remove(&self, key: &Key<'_>) -> Removed {
        let key = self.fitted(key);
        let mut entries = self.entries();
        match entries.by_key.get(&key) {
            None => Removed::Unknown,
            Some(entry) if entry.references.load(Ordering::Acquire) > 0 => Removed::InUse,
            Some(entry) => {
                let id = entry.id;
                entries.by_id.remove(&id);
                entries.by_key.remove(&key);
                Removed::Gone
            }
        }
    }

    /// The next entries, at most so many, in no particular order. Those that are created meanwhile may be missing.
    pub fn page(&self, cursor: &mut Cursor, most: usize, now: Now) -> Vec<Record> {
        let entries = self.entries();
        let page: Vec<_> = entries.by_id.range(cursor.next..).take(most).collect();
        match page.last() {
            Some((id, _)) => cursor.next = **id + 1,
            None => cursor.done = true,
        }
        page.into_iter()
            .filter(|(_, entry)| !self.is_over(entry, now))
            .map(|(_, entry)| self.record(entry, now))
            .collect()
    }

    /// Removes entries that have expired, looking at no more than `most`. Gives when to come again: `None`: nothing will expire.
    pub fn sweep(&self, most: usize, now: Now) -> Option<Now> {
        let mut entries = self.entries();
        let over: Vec<_> =
            entries.by_id.values().filter(|entry| self.is_over(entry, now)).take(most).cloned().collect();
        for entry in over {
            entries.by_id.remove(&entry.id);
            entries.by_key.remove(&entry.key);
        }
        let next = entries.by_id.values().filter_map(|entry| self.remaining(entry, now)).min()?;
        Some(Now::from_millis(now.as_millis() + next))
    }

    /// From now on changed entries are noted, for the one who calls [`Table::take_changed`].
    pub fn follow_changes(&self) {
        self.shared.follows.store(true, Ordering::Relaxed);
    }

    /// Entries that were changed since they were last taken, at most so many.
    pub fn take_changed(&self, most: usize) -> Vec<EntryId> {
        let mut changed = self.shared.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let count = changed.len().min(most);
        let taken: Vec<EntryId> = changed.drain(..count).collect();
        let entries = self.entries();
        for id in &taken {
            if let Some(entry) = entries.by_id.get(&id.0) {
                entry.changed.store(false, Ordering::Release);
            }
        }
        taken
    }

    /// An entry that was changed; `None`: it is gone.
    pub fn read(&self, id: EntryId, now: Now) -> Option<Record> {
        let entry = Arc::clone(self.entries().by_id.get(&id.0)?);
        (!self.is_over(&entry, now)).then(|| self.record(&entry, now))
    }

    /// Takes what a peer knows of an entry: its values replace ours, and its life, in milliseconds, is that of the peer (`None`: it begins
    /// anew). This is not noted as a change. `false`: the table is full.
    pub fn learn(
        self: &Arc<Table>,
        key: &Key<'_>,
        values: &[(DataType, u8, Value)],
        life: Option<u64>,
        now: Now,
    ) -> bool {
        let key = self.fitted(key);
        let Some(entry) = self.entry(&mut self.entries(), key, now) else { return false };
        let expire = self.expire().map(|expire| expire.as_millis() as u64);
        let touched = match (life, expire) {
            (Some(life), Some(expire)) => (now.as_millis() + life).saturating_sub(expire),
            _ => now.as_millis(),
        };
        entry.touched.store(touched, Ordering::Relaxed);
        for (data, index, value) in values {
            let Some(slot) = self.slot(*data, *index) else { continue };
            let kept = &mut entry.kept()[slot.at];
            match (value, &mut *kept) {
                (Value::Number(number), Kept::Number(kept)) => *kept = slot.cut(*number),
                (Value::Rate { elapsed_ms, current, previous }, Kept::Rate(rate)) => {
                    let start = (now.as_millis() as u32).wrapping_sub(*elapsed_ms);
                    *rate = Rate { start, current: *current, previous: *previous };
                }
                (Value::ServerKey(Some(key)), Kept::ServerKey(kept)) => *kept = Some(Arc::clone(key)),
                _ => (),
            }
        }
        entry.references.fetch_sub(1, Ordering::AcqRel);
        true
    }

    pub(crate) fn fits(&self, settings: &StickTable) -> bool {
        (self.shared.key, &self.shared.stored) == (settings.key, &settings.stored)
    }

    pub(crate) fn change_settings(&self, settings: StickTable) {
        *self.shared.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    pub(crate) fn slot(&self, data: DataType, index: u8) -> Option<Slot> {
        let mut at = 0;
        for stored in &self.shared.stored {
            if stored.data == data {
                let period = stored.period.unwrap_or_default().as_millis() as u32;
                let slot = Slot { at: at + usize::from(index), kind: data.kind(), period };
                return (index < stored.elements.max(1)).then_some(slot);
            }
            at += usize::from(stored.elements.max(1));
        }
        None
    }

    pub(crate) fn note(&self, entry: &Entry) {
        if self.shared.follows.load(Ordering::Relaxed) && !entry.changed.swap(true, Ordering::AcqRel) {
            self.shared.changed.lock().unwrap_or_else(PoisonError::into_inner).push(EntryId(entry.id));
        }
    }

    pub(crate) fn remaining(&self, entry: &Entry, now: Now) -> Option<u64> {
        let end = entry.touched.load(Ordering::Relaxed) + self.expire()?.as_millis() as u64;
        Some(end.saturating_sub(now.as_millis()))
    }

    pub(crate) fn key_of(&self, entry: &Entry) -> OwnedKey {
        OwnedKey::of(self.shared.key, &entry.key)
    }

    pub(crate) fn record(&self, entry: &Entry, now: Now) -> Record {
        let kept = entry.kept();
        let mut values = Vec::with_capacity(kept.len());
        for stored in &self.shared.stored {
            for index in 0..stored.elements.max(1) {
                let Some(slot) = self.slot(stored.data, index) else { continue };
                let value = match &kept[slot.at] {
                    Kept::Number(number) => Value::Number(*number),
                    Kept::Rate(rate) => Value::Rate {
                        elapsed_ms: rate.elapsed(now.as_millis() as u32),
                        current: rate.current,
                        previous: rate.previous,
                    },
                    Kept::ServerKey(key) => Value::ServerKey(key.clone()),
                };
                values.push((stored.data, index, value));
            }
        }
        Record {
            key: self.key_of(entry),
            expires_ms: self.remaining(entry, now),
            references: entry.references.load(Ordering::Acquire),
            values,
        }
    }

    fn is_over(&self, entry: &Entry, now: Now) -> bool {
        entry.references.load(Ordering::Acquire) == 0 && self.remaining(entry, now) == Some(0)
    }

    /// The entry of a key, with one more reference.
    fn entry(&self, entries: &mut Entries, key: Box<[u8]>, now: Now) -> Option<Arc<Entry>> {
        if let Some(entry) = entries.by_key.get(&key) {
            if !self.is_over(entry, now) {
                entry.references.fetch_add(1, Ordering::AcqRel);
                return Some(Arc::clone(entry));
            }
            let id = entry.id;
            entries.by_id.remove(&id);
            entries.by_key.remove(&key);
        }
        let settings = self.settings();
        if entries.by_key.len() as u64 >= settings.size {
            let free = entries.by_id.values().filter(|entry| entry.references.load(Ordering::Acquire) == 0);
            let oldest = free.min_by_key(|entry| entry.touched.load(Ordering::Relaxed)).cloned();
            let oldest = oldest.filter(|oldest| !settings.no_purge || self.is_over(oldest, now))?;
            entries.by_id.remove(&oldest.id);
            entries.by_key.remove(&oldest.key);
        }
        let empty = |stored: &Stored| match stored.data.kind() {
            DataKind::Rate | DataKind::ArrayOfRates => {
                let period = stored.period.unwrap_or_default().as_millis() as u32;
                Kept::Rate(Rate::unused(now.as_millis() as u32, period))
            }
            DataKind::Dictionary => Kept::ServerKey(None),
            DataKind::I32 | DataKind::U32 | DataKind::U64 | DataKind::Array => Kept::Number(0),
        };
        let each = |stored: &Stored| vec![empty(stored); usize::from(stored.elements.max(1))];
        entries.next += 1;
        let entry = Arc::new(Entry {
            id: entries.next,
            key: key.clone(),
            references: AtomicU32::new(1),
            touched: AtomicU64::new(now.as_millis()),
            changed: AtomicBool::new(false),
            kept: Mutex::new(self.shared.stored.iter().flat_map(each).collect()),
        });
        entries.by_id.insert(entry.id, Arc::clone(&entry));
        entries.by_key.insert(key, Arc::clone(&entry));
        Some(entry)
    }

    /// A key as this table has it.
    fn fitted(&self, key: &Key<'_>) -> Box<[u8]> {
        let mut bytes = key.bytes().to_vec();
        bytes.resize(self.shared.key.length() as usize, 0);
        bytes.into()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
