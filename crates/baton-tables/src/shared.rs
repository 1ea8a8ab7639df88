//! A table's handle, and what all its handles share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use baton_model::{DataType, StickTable};

use crate::cells::{change_half, half};
use crate::key::OwnedKey;
use crate::layout::{Form, Slot};
use crate::names::Names;
use crate::rate::Rate;
use crate::record::{Record, Value};
use crate::store::{Store, at};

/// A table. Each core has one of its own ([`Table::own`]) of what all share, so that cores do not wait for each other to count who holds it.
#[derive(Debug)]
pub struct Table {
    pub(crate) shared: Arc<Shared>,
}

/// What all users of a table in this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    pub(crate) store: Store,
    pub(crate) names: Names,
    settings: RwLock<StickTable>,
    /// Whether this process has used it: all who count in it here know of its successor.
    pub(crate) in_use: AtomicBool,
    /// The table that has replaced this one.
    pub(crate) successor: OnceLock<Arc<Shared>>,
    pub(crate) before: Before,
}

/// The table before, as long as there may be entries in it that were not moved.
#[derive(Debug, Default)]
pub(crate) struct Before {
    is_there: AtomicBool,
    table: RwLock<Option<Arc<Old>>>,
}

/// A table that was replaced.
#[derive(Debug)]
pub(crate) struct Old {
    pub(crate) shared: Arc<Shared>,
    /// Whether it was this process's: otherwise another one goes on with it, and finds it as it was.
    pub(crate) is_ours: bool,
    /// Which records were moved: each is once.
    moved: Vec<AtomicU64>,
    /// The next record to move.
    pub(crate) next: AtomicU32,
}

impl Before {
    /// From now on keys that are unknown are looked for there.
    pub(crate) fn set(&self, shared: Arc<Shared>) {
        let records = shared.store.layout.capacity as usize;
        let moved = (0..records.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let is_ours = shared.in_use.load(Ordering::Acquire);
        let old = Arc::new(Old { shared, is_ours, moved, next: AtomicU32::new(0) });
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Some(old);
        self.is_there.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self) -> Option<Arc<Old>> {
        if !self.is_there() {
            return None;
        }
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn forget(&self) {
        self.is_there.store(false, Ordering::Release);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Old {
    pub(crate) fn is_moved(&self, index: u32) -> bool {
        self.moved[index as usize / 64].load(Ordering::Acquire) >> (index % 64) & 1 == 1
    }

    /// Gives whether it was already.
    pub(crate) fn set_moved(&self, index: u32) -> bool {
        let bit = 1 << (index % 64);
        self.moved[index as usize / 64].fetch_or(bit, Ordering::AcqRel) & bit != 0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Whoever tracks an entry keeps this, so nothing is held.
        self.store.detach();
    }
}

impl Shared {
    pub(crate) fn new(store: Store, settings: StickTable) -> Shared {
        Shared {
            name: Arc::clone(&settings.name),
            store,
            names: Names::default(),
            settings: RwLock::new(settings),
            in_use: AtomicBool::new(false),
            successor: OnceLock::new(),
            before: Before::default(),
        }
    }

    pub(crate) fn settings(&self) -> RwLockReadGuard<'_, StickTable> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts settings into use, with the table.
    pub(crate) fn change_settings(&self, settings: StickTable) {
        self.store.set_settings(settings.size, settings.expire, settings.no_purge);
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        self.in_use.store(true, Ordering::Release);
    }

    /// Notes that an entry was changed, if somebody asked for that.
    #[inline]
    pub(crate) fn note(&self, record: u32) {
        let followed = self.store.head(at::FOLLOWED);
        if followed.load(Ordering::Relaxed) != 0 {
            let cell = self.store.cell(self.store.layout.changed + record as usize / 64);
            let bit = 1 << (record % 64);
            if cell.load(Ordering::Acquire) & bit == 0 {
                cell.fetch_or(bit, Ordering::AcqRel);
            }
            let any = self.store.head(at::ANY_CHANGED);
            if any.load(Ordering::Acquire) == 0 {
                any.store(1, Ordering::Release);
            }
        }
    }

    /// A record as a value, with the references of whoever reads it.
    pub(crate) fn record(&self, record: u32, now: u64) -> Record {
        let store = &self.store;
        let value = |slot: Slot| match slot.form {
            Form::Rate => {
                let rate = store.rate(record, slot).load();
                Value::Rate { elapsed_ms: rate.elapsed(now as u32), current: rate.current, previous: rate.previous }
            }
            Form::Name { .. } => Value::ServerKey(self.names.name(store, store.number(record, slot, now) as u32)),
            Form::Whole | Form::Half { .. } | Form::Lanes => Value::Number(store.number(record, slot, now)),
        };
        Record {
            key: OwnedKey::of(store.layout.key, &store.key_bytes(record)),
            expires_ms: store.remaining(record, now),
            references: store.references(record),
            values: store.layout.slots().map(|(data, index, slot)| (data, index, value(slot))).collect(),
        }
    }

    /// Sets a number of a record, or what a rate counts from now on.
    pub(crate) fn set_number(&self, record: u32, slot: Slot, value: u64, now: u64) {
        let cell = self.store.value(record, slot);
        match slot.form {
            Form::Whole => cell.store(value, Ordering::Release),
            Form::Half { upper, .. } => {
                change_half(cell, upper, |_| value as u32);
            }
            Form::Lanes => {
                let own = self.store.lane == 1;
                let other = half(cell, !own);
                change_half(cell, own, |_| (value as u32).wrapping_sub(other));
            }
            Form::Rate => {
                let current = blocks(value, slot);
                self.store.rate(record, slot).set(Rate { start: now as u32, current, previous: 0 });
            }
            Form::Name { .. } => (),
        }
    }

    pub(crate) fn set_name(&self, record: u32, slot: Slot, place: u32) {
        if let Form::Name { upper } = slot.form {
            change_half(self.store.value(record, slot), upper, |_| place);
        }
    }

    /// Sets a value of a record, if it is stored.
    pub(crate) fn set_value(&self, record: u32, data: DataType, index: u8, value: &Value, now: u64) {
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

/// Events of a rate; of bytes, the blocks that they begin.
#[inline]
pub(crate) fn blocks(amount: u64, slot: Slot) -> u32 {
    if slot.block == 1 { amount as u32 } else { amount.div_ceil(slot.block.into()) as u32 }
}
