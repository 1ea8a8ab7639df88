//! From a table to the one that replaces it with another layout: entries are moved when somebody asks for their key, and all others step by
//! step meanwhile. Values that both layouts have are the same afterwards.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use baton_model::{KeyType, StickTable};

use crate::key::{Key, OwnedKey};
use crate::record::{Record, Value};
use crate::store::{ALIVE, Fitted, Store, at};
use crate::table::Shared;

/// The table before, as long as there may be entries in it that were not moved.
#[derive(Debug, Default)]
pub(crate) struct Before {
    is_there: AtomicBool,
    table: RwLock<Option<Arc<Old>>>,
}

#[derive(Debug)]
struct Old {
    shared: Arc<Shared>,
    /// Which records were moved: each is once.
    moved: Vec<AtomicU64>,
    /// The next record to move.
    next: AtomicU32,
}

impl Before {
    /// From now on keys that are unknown are looked for there.
    pub(crate) fn set(&self, shared: Arc<Shared>) {
        let records = shared.store.layout.capacity as usize;
        let moved = (0..records.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let old = Arc::new(Old { shared, moved, next: AtomicU32::new(0) });
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Some(old);
        self.is_there.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    fn get(&self) -> Option<Arc<Old>> {
        if !self.is_there() {
            return None;
        }
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget(&self) {
        self.is_there.store(false, Ordering::Release);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Shared {
    /// Whether the table before has an entry of this key that was not moved.
    #[cold]
    pub(crate) fn is_before(&self, key: &Key<'_>, now: u64) -> bool {
        let Some(old) = self.before.get() else { return false };
        let fitted = old.shared.store.fit(key);
        let Some(index) = old.shared.store.find(&fitted, now) else { return false };
        old.shared.store.release(index);
        !old.is_moved(index)
    }

    /// Fills a record that is being created with what the table before has of its key.
    #[cold]
    pub(crate) fn fill_from_before(&self, key: &Key<'_>, record: u32, now: u64) {
        let Some(old) = self.before.get() else { return };
        let fitted = old.shared.store.fit(key);
        let Some(index) = old.shared.store.find(&fitted, now) else { return };
        if !old.set_moved(index) {
            let touched = old.shared.store.touched(index).load(Ordering::Acquire);
            self.store.touched(record).store(touched, Ordering::Relaxed);
            self.fill(record, &old.shared.record(index, now), now);
        }
        old.shared.store.release(index);
    }

    /// Moves the next entries, at most so many. `false`: there are no more.
    pub(crate) fn move_some(&self, most: usize, now: u64) -> bool {
        let Some(old) = self.before.get() else { return false };
        let store = &old.shared.store;
        let high = store.get(at::HIGH).min(store.layout.capacity) as u32;
        for _ in 0..most {
            let index = old.next.fetch_add(1, Ordering::AcqRel);
            if index >= high {
                self.before.forget();
                return false;
            }
            let is_alive = store.holds(index).load(Ordering::Acquire) & ALIVE != 0;
            if !is_alive || old.is_moved(index) || store.is_over(index, now) {
                continue;
            }
            let key = OwnedKey::of(store.layout.key, &store.key_bytes(index));
            let touched = store.touched(index).load(Ordering::Acquire);
            let fitted = self.store.fit(&key.as_key());
            // Newer ones do not make room for older ones.
            if self.store.get(at::USED) < self.store.get(at::SIZE)
                && let Some(record) = self.find_or_create(&key.as_key(), &fitted, touched)
            {
                self.store.release(record);
            }
        }
        true
    }

    /// Sets values of a record that this table has, too.
    pub(crate) fn fill(&self, record: u32, from: &Record, now: u64) {
        for (data, index, value) in &from.values {
            self.set_value(record, *data, *index, value, now);
        }
    }

    pub(crate) fn find_or_create(&self, key: &Key<'_>, fitted: &Fitted, now: u64) -> Option<u32> {
        self.store.find_or_create(fitted, now, |_: &Store, record| {
            if self.before.is_there() {
                self.fill_from_before(key, record, now);
            }
        })
    }
}

impl Old {
    fn is_moved(&self, index: u32) -> bool {
        self.moved[index as usize / 64].load(Ordering::Acquire) >> (index % 64) & 1 == 1
    }

    /// Gives whether it was already.
    fn set_moved(&self, index: u32) -> bool {
        let bit = 1 << (index % 64);
        self.moved[index as usize / 64].fetch_or(bit, Ordering::AcqRel) & bit != 0
    }
}

/// Whether keys of one type are keys of another one.
pub(crate) fn can_move(from: KeyType, to: KeyType) -> bool {
    match (from, to) {
        (KeyType::String { .. }, KeyType::String { .. }) | (KeyType::Binary { .. }, KeyType::Binary { .. }) => true,
        _ => from == to,
    }
}

/// What is lost of a table that is replaced, for messages.
pub(crate) fn losses(old: &Shared, new: &StickTable) -> Vec<String> {
    let name = &new.name;
    let used = old.store.get(at::USED);
    if used == 0 {
        return Vec::new();
    }
    let from = old.store.layout.key;
    if !can_move(from, new.key) {
        return vec![format!(
            "stick-table '{name}': its {used} entries are lost: 'type {from}' has become 'type {}'",
            new.key
        )];
    }
    let mut losses = Vec::new();
    if new.key.length() < from.length() {
        losses.push(format!("stick-table '{name}': keys longer than {} bytes are cut; of those that are the same then, one entry is kept", new.key.length()));
    }
    for stored in &old.store.layout.stored {
        let name_of = stored.data.name();
        match new.stored(stored.data) {
            None => {
                losses.push(format!("stick-table '{name}': values of '{name_of}' are lost: it is no longer stored"))
            }
            Some(of) if of.elements < stored.elements => losses.push(format!(
                "stick-table '{name}': elements of '{name_of}' from {} on are lost: it has {} of {} now",
                of.elements, of.elements, stored.elements
            )),
            Some(_) => (),
        }
    }
    losses
}

/// What is lost because a size is smaller now.
pub(crate) fn surplus(old: &Shared, new: &StickTable) -> Option<String> {
    let used = old.store.get(at::USED);
    let less = used.checked_sub(new.size).filter(|less| *less > 0)?;
    Some(format!("stick-table '{}': {less} of {used} entries are lost: its size is {} now", new.name, new.size))
}

impl Shared {
    pub(crate) fn set_value(&self, record: u32, data: baton_model::DataType, index: u8, value: &Value, now: u64) {
        use crate::layout::Form;
        use crate::rate::Rate;
        let Some(slot) = self.store.layout.slot(data, index) else { return };
        match (value, slot.form) {
            (Value::Rate { elapsed_ms, current, previous }, Form::Rate) => {
                let start = (now as u32).wrapping_sub(*elapsed_ms);
                self.store.rate(record, slot).set(Rate { start, current: *current, previous: *previous });
            }
            (Value::ServerKey(Some(name)), Form::Name { .. }) => {
                if let Some(place) = self.names.place(&self.store, name) {
                    self.set_name(record, slot, place);
                }
            }
            (Value::Number(number), Form::Whole | Form::Half { .. } | Form::Lanes) => {
                self.set_number(record, slot, *number, now);
            }
            _ => (),
        }
    }
}
