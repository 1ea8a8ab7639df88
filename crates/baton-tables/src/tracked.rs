//! An entry that a connection or a request tracks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use baton_model::DataType;

use crate::cells::change_half;
use crate::key::OwnedKey;
use crate::layout::{Form, Slot};
use crate::now::Now;
use crate::record::Record;
use crate::shared::{Shared, Table, blocks};

/// An entry that somebody holds: it neither expires nor makes room for another one until this is dropped.
///
/// Where a reload replaces the table by one with another layout, this goes on with the entry of its key there.
#[derive(Debug)]
pub struct Tracked {
    table: Arc<Table>,
    index: u32,
    moved: OnceLock<Option<Box<Tracked>>>,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.table.shared.store.release(self.index);
    }
}

impl Tracked {
    /// Of a record that is held.
    pub(crate) fn new(table: Arc<Table>, index: u32) -> Tracked {
        Tracked { table, index, moved: OnceLock::new() }
    }

    /// The table that it is an entry of.
    pub fn table(&self) -> &Arc<Table> {
        &self.here().table
    }

    /// Its key.
    pub fn key(&self) -> OwnedKey {
        let (shared, index) = self.place();
        OwnedKey::of(shared.store.layout.key, &shared.store.key_bytes(index))
    }

    /// Whether a type of data is stored.
    pub fn has(&self, data: DataType) -> bool {
        self.here().table.shared.store.layout.slot(data, 0).is_some()
    }

    /// A number; of a rate, events over its period. `None`: it is not stored, or a text.
    #[inline]
    pub fn get(&self, data: DataType, index: u8, now: Now) -> Option<u64> {
        let here = self.here();
        let value = here.stored_here(data, index, now);
        match here.replaced_by() {
            None => value,
            Some(other) => other.get(data, index, now),
        }
    }

    fn stored_here(&self, data: DataType, index: u8, now: Now) -> Option<u64> {
        let store = &self.table.shared.store;
        let slot = store.layout.slot(data, index)?;
        let is_name = matches!(slot.form, Form::Name { .. });
        (!is_name).then(|| store.number(self.index, slot, now.as_millis()))
    }

    /// Counts: adds to a number, or events to a rate. `false`: it is not stored.
    #[inline]
    pub fn add(&self, data: DataType, index: u8, amount: u64, now: Now) -> bool {
        let here = self.here();
        let shared = &here.table.shared;
        let Some(slot) = shared.store.layout.slot(data, index) else { return false };
        let cell = shared.store.value(here.index, slot);
        match slot.form {
            Form::Whole => {
                cell.fetch_add(amount, Ordering::AcqRel);
            }
            Form::Half { upper, .. } => {
                change_half(cell, upper, |old| old.wrapping_add(amount as u32));
            }
            Form::Lanes => {
                change_half(cell, shared.store.lane == 1, |old| old.wrapping_add(amount as u32));
            }
            Form::Rate => {
                let amount = blocks(amount, slot);
                shared.store.rate(here.index, slot).add(amount, now.as_millis() as u32, slot.period);
            }
            Form::Name { .. } => (),
        }
        shared.note(here.index);
        if let Some(other) = here.replaced_by() {
            // It was moved before, or will be now, or by another one who counted here.
            let rest = shared.take_counted(here.index, (data, slot));
            return rest == 0 || other.add(data, index, rest, now);
        }
        true
    }

    /// Takes away from a number, down to 0: a connection that is counted as a current one has ended. `false`: it is not stored.
    pub fn subtract(&self, data: DataType, index: u8, amount: u64) -> bool {
        let here = self.here();
        let shared = &here.table.shared;
        let Some(slot) = shared.store.layout.slot(data, index) else { return false };
        let cell = shared.store.value(here.index, slot);
        let less = |old: u32| old.saturating_sub(u32::try_from(amount).unwrap_or(u32::MAX));
        let was = match slot.form {
            Form::Whole => {
                let less = |old: u64| Some(old.saturating_sub(amount));
                #[allow(deprecated, reason = "its new name, try_update, is younger than Rust 1.88")]
                let was = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
                was.unwrap_or_default()
            }
            Form::Half { upper, .. } => change_half(cell, upper, less).into(),
            Form::Lanes => change_half(cell, shared.store.lane == 1, less).into(),
            Form::Rate | Form::Name { .. } => amount,
        };
        shared.note(here.index);
        // What it was taken from may have been moved just before.
        let rest = amount.saturating_sub(was);
        match here.replaced_by() {
            Some(other) if rest > 0 => other.subtract(data, index, rest),
            _ => true,
        }
    }

    /// Sets a number, or the events of a rate's current period, which begins now. `false`: it is not stored.
    pub fn set(&self, data: DataType, index: u8, value: u64, now: Now) -> bool {
        self.change(data, index, |shared, record, slot| shared.set_number(record, slot, value, now.as_millis()))
    }

    /// Sets a number or a rate to 0; gives what it was.
    pub fn clear(&self, data: DataType, index: u8, now: Now) -> Option<u64> {
        let old = self.get(data, index, now)?;
        self.set(data, index, 0, now);
        Some(old)
    }

    /// The server that the key is bound to, by name or address.
    pub fn server_key(&self) -> Option<Arc<str>> {
        let (shared, record) = self.place();
        let slot = shared.store.layout.slot(DataType::ServerKey, 0)?;
        shared.names.name(&shared.store, shared.store.number(record, slot, 0) as u32)
    }

    /// Binds the key to a server. `false`: it is not stored, or there is no room for one more name.
    pub fn set_server_key(&self, server: &str) -> bool {
        self.change(DataType::ServerKey, 0, |shared, record, slot| {
            if let Some(place) = shared.names.place(&shared.store, server) {
                shared.set_name(record, slot, place);
            }
        }) && self.server_key().as_deref() == Some(server)
    }

    /// How many connections and requests track it, this one included.
    pub fn references(&self) -> u32 {
        let (shared, record) = self.place();
        shared.store.references(record)
    }

    /// Milliseconds until it expires, if it is not touched before; `None`: it does not expire.
    pub fn remaining(&self, now: Now) -> Option<u64> {
        let (shared, record) = self.place();
        shared.store.remaining(record, now.as_millis())
    }

    /// Milliseconds since it was touched.
    pub fn idle(&self, now: Now) -> u64 {
        let (shared, record) = self.place();
        now.as_millis().saturating_sub(shared.store.touched(record).load(Ordering::Acquire))
    }

    /// Its life begins anew.
    pub fn touch(&self, now: Now) {
        let (shared, record) = self.place();
        shared.store.touch(record, now.as_millis());
        shared.note(record);
    }

    /// All of it.
    pub fn record(&self, now: Now) -> Record {
        let (shared, record) = self.place();
        shared.record(record, now.as_millis())
    }

    fn change(&self, data: DataType, index: u8, change: impl Fn(&Shared, u32, Slot)) -> bool {
        let here = self.here();
        let shared = &here.table.shared;
        let Some(slot) = shared.store.layout.slot(data, index) else { return false };
        change(shared, here.index, slot);
        shared.note(here.index);
        if let Some(other) = here.replaced_by() {
            // It may have been moved before, and is not to be counted there by whoever comes later.
            shared.take_counted(here.index, (data, slot));
            return other.change(data, index, change);
        }
        true
    }

    /// Where its entry is, if this one's table has been replaced since it was looked for.
    #[inline]
    fn replaced_by(&self) -> Option<&Tracked> {
        let successor = self.table.shared.successor.get()?;
        let other = self.follow(successor);
        (!std::ptr::eq(self, other)).then_some(other)
    }

    /// Where the entry is now.
    #[inline]
    fn place(&self) -> (&Shared, u32) {
        let here = self.here();
        (&here.table.shared, here.index)
    }

    #[inline]
    fn here(&self) -> &Tracked {
        match self.table.shared.successor.get() {
            None => self,
            Some(successor) => self.follow(successor),
        }
    }

    /// The entry of the same key in the table that replaced this one; this one, if there is no room for it.
    #[cold]
    fn follow(&self, successor: &Arc<Shared>) -> &Tracked {
        let moved = self.moved.get_or_init(|| {
            let store = &self.table.shared.store;
            let key = OwnedKey::of(store.layout.key, &store.key_bytes(self.index));
            let touched = Now::from_millis(store.touched(self.index).load(Ordering::Acquire));
            let table = Arc::new(Table { shared: Arc::clone(successor) });
            table.track(&key.as_key(), touched).map(Box::new)
        });
        moved.as_deref().map_or(self, Tracked::here)
    }
}
