//! From a table to the one that replaces it with another layout: entries are moved when somebody asks for their key, and all others step by
//! step meanwhile. Values that both layouts have are the same afterwards.
//!
//! Nothing that is counted at that moment is lost or counted twice: what is moved is *taken out* of the old record, in one step for each
//! counter. Whoever counts there and finds afterwards that the table was replaced takes out what is in it then, and counts it in the new one
//! ([`crate::Tracked`]). The table of another process, which goes on with it, is only read.

use std::sync::atomic::Ordering;

use baton_model::{DataType, KeyType, StickTable};

use crate::cells::change_half;
use crate::key::{Key, OwnedKey};
use crate::layout::{Form, Layout, Slot};
use crate::record::Value;
use crate::shared::{Old, Shared};
use crate::store::{ALIVE, Fitted, Store, at};

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
            self.fill(record, &old, index, now);
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

    /// Fills a record with what the table before has in one of its own, as far as this table has it, too.
    fn fill(&self, record: u32, old: &Old, index: u32, now: u64) {
        let blocks = (&old.shared.store.layout, &self.store.layout);
        for (data, element, slot) in old.shared.store.layout.slots() {
            if let Some(value) = old.take(index, (data, slot), now) {
                self.set_value(record, data, element, &in_blocks(value, data, blocks), now);
            }
        }
    }

    /// Takes out what a counter of a record counts; 0 remains. A tag, or what is no counter otherwise, stays as it is, and 0 is given. A rate
    /// gives its events.
    pub(crate) fn take_counted(&self, record: u32, (data, slot): (DataType, Slot)) -> u64 {
        let cell = self.store.value(record, slot);
        match slot.form {
            Form::Whole => cell.swap(0, Ordering::AcqRel),
            Form::Half { upper, .. } if is_counter(data) => change_half(cell, upper, |_| 0).into(),
            Form::Lanes => change_half(cell, self.store.lane == 1, |_| 0).into(),
            Form::Rate => {
                let rate = self.store.rate(record, slot).take();
                (u64::from(rate.current) + u64::from(rate.previous)) * u64::from(slot.block)
            }
            Form::Half { .. } | Form::Name { .. } => 0,
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
    /// A value for the table that replaces this one. `None`: it is none of that.
    fn take(&self, index: u32, (data, slot): (DataType, Slot), now: u64) -> Option<Value> {
        let (shared, store) = (&self.shared, &self.shared.store);
        Some(match slot.form {
            Form::Rate => {
                let rate = store.rate(index, slot);
                let rate = if self.is_ours { rate.take() } else { rate.load() };
                Value::Rate { elapsed_ms: rate.elapsed(now as u32), current: rate.current, previous: rate.previous }
            }
            Form::Name { .. } => Value::ServerKey(shared.names.name(store, store.number(index, slot, now) as u32)),
            // Those of another process end there.
            Form::Lanes if !self.is_ours => return None,
            Form::Lanes => Value::Number(shared.take_counted(index, (data, slot))),
            Form::Whole | Form::Half { .. } if self.is_ours && is_counter(data) => {
                Value::Number(shared.take_counted(index, (data, slot)))
            }
            Form::Whole | Form::Half { .. } => Value::Number(store.number(index, slot, now)),
        })
    }
}

/// Whether it is counted, and not only set.
fn is_counter(data: DataType) -> bool {
    !matches!(data, DataType::ServerId | DataType::Gpt0 | DataType::Gpt)
}

/// A rate of bytes in the blocks of another layout.
fn in_blocks(value: Value, data: DataType, (from, to): (&Layout, &Layout)) -> Value {
    let (was, is) = (u64::from(from.bytes_factor), u64::from(to.bytes_factor));
    match value {
        Value::Rate { elapsed_ms, current, previous } if was != is && data.is_bytes_rate() => {
            let blocks = |count: u32| u32::try_from((u64::from(count) * was).div_ceil(is)).unwrap_or(u32::MAX);
            Value::Rate { elapsed_ms, current: blocks(current), previous: blocks(previous) }
        }
        value => value,
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

/// What is not counted of a process that goes on with a table that is replaced here.
pub(crate) fn left_behind(old: &Shared, new: &StickTable) -> Option<String> {
    let is_left =
        !old.in_use.load(Ordering::Acquire) && can_move(old.store.layout.key, new.key) && old.store.has_others();
    let name = &new.name;
    is_left.then(|| {
        format!(
            "stick-table '{name}': what is stored has changed: what the process before counts from now on until it ends is not counted here"
        )
    })
}

/// What is lost because a size is smaller now.
pub(crate) fn surplus(old: &Shared, new: &StickTable) -> Option<String> {
    let used = old.store.get(at::USED);
    let less = used.checked_sub(new.size).filter(|less| *less > 0)?;
    Some(format!("stick-table '{}': {less} of {used} entries are lost: its size is {} now", new.name, new.size))
}
