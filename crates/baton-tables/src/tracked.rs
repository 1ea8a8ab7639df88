//! An entry that a connection or a request tracks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_model::{DataKind, DataType};

use crate::key::OwnedKey;
use crate::now::Now;
use crate::rate::Rate;
use crate::record::Record;
use crate::table::{Entry, Kept, Slot, Table};

/// An entry that somebody holds: it neither expires nor makes room for another one until this is dropped.
#[derive(Debug)]
pub struct Tracked {
    pub(crate) table: Arc<Table>,
    pub(crate) entry: Arc<Entry>,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.entry.references.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Tracked {
    /// The table that it is an entry of.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Its key.
    pub fn key(&self) -> OwnedKey {
        self.table.key_of(&self.entry)
    }

    /// Whether a type of data is stored.
    pub fn has(&self, data: DataType) -> bool {
        self.table.slot(data, 0).is_some()
    }

    /// A number; of a rate, events over its period. `None`: it is not stored, or a text.
    pub fn get(&self, data: DataType, index: u8, now: Now) -> Option<u64> {
        let slot = self.table.slot(data, index)?;
        match &self.entry.kept()[slot.at] {
            Kept::Number(number) => Some(*number),
            Kept::Rate(rate) => Some(rate.value(now.as_millis() as u32, slot.period)),
            Kept::ServerKey(_) => None,
        }
    }

    /// Counts: adds to a number, or events to a rate. `false`: it is not stored.
    pub fn add(&self, data: DataType, index: u8, amount: u64, now: Now) -> bool {
        self.change(data, index, |kept, slot| match kept {
            Kept::Number(number) => *number = slot.cut(number.wrapping_add(amount)),
            Kept::Rate(rate) => {
                *rate = rate.turned(now.as_millis() as u32, slot.period);
                rate.current = rate.current.wrapping_add(amount as u32);
            }
            Kept::ServerKey(_) => (),
        })
    }

    /// Takes away from a number, down to 0: a connection that is counted as a current one has ended. `false`: it is not stored.
    pub fn subtract(&self, data: DataType, index: u8, amount: u64) -> bool {
        self.change(data, index, |kept, _| {
            if let Kept::Number(number) = kept {
                *number = number.saturating_sub(amount);
            }
        })
    }

    /// Sets a number, or the events of a rate's current period, which begins now. `false`: it is not stored.
    pub fn set(&self, data: DataType, index: u8, value: u64, now: Now) -> bool {
        self.change(data, index, |kept, slot| match kept {
            Kept::Number(number) => *number = slot.cut(value),
            Kept::Rate(rate) => {
                *rate = Rate { start: now.as_millis() as u32, current: value as u32, previous: 0 };
            }
            Kept::ServerKey(_) => (),
        })
    }

    /// Sets a number or a rate to 0; gives what it was.
    pub fn clear(&self, data: DataType, index: u8, now: Now) -> Option<u64> {
        let old = self.get(data, index, now)?;
        self.set(data, index, 0, now);
        Some(old)
    }

    /// The server that the key is bound to, by name or address.
    pub fn server_key(&self) -> Option<Arc<str>> {
        let slot = self.table.slot(DataType::ServerKey, 0)?;
        match &self.entry.kept()[slot.at] {
            Kept::ServerKey(key) => key.clone(),
            Kept::Number(_) | Kept::Rate(_) => None,
        }
    }

    /// Binds the key to a server. `false`: it is not stored.
    pub fn set_server_key(&self, server: &str) -> bool {
        self.change(DataType::ServerKey, 0, |kept, _| *kept = Kept::ServerKey(Some(server.into())))
    }

    /// How many connections and requests track it, this one included.
    pub fn references(&self) -> u32 {
        self.entry.references.load(Ordering::Acquire)
    }

    /// Milliseconds until it expires, if it is not touched before; `None`: it does not expire.
    pub fn remaining(&self, now: Now) -> Option<u64> {
        self.table.remaining(&self.entry, now)
    }

    /// Milliseconds since it was touched.
    pub fn idle(&self, now: Now) -> u64 {
        now.as_millis().saturating_sub(self.entry.touched.load(Ordering::Relaxed))
    }

    /// Its life begins anew.
    pub fn touch(&self, now: Now) {
        self.entry.touched.store(now.as_millis(), Ordering::Relaxed);
        self.table.note(&self.entry);
    }

    /// All of it.
    pub fn record(&self, now: Now) -> Record {
        self.table.record(&self.entry, now)
    }

    fn change(&self, data: DataType, index: u8, change: impl FnOnce(&mut Kept, &Slot)) -> bool {
        let Some(slot) = self.table.slot(data, index) else { return false };
        change(&mut self.entry.kept()[slot.at], &slot);
        self.table.note(&self.entry);
        true
    }
}

impl Slot {
    /// A number as it is kept.
    pub(crate) fn cut(&self, number: u64) -> u64 {
        match self.kind {
            DataKind::U64 => number,
            DataKind::I32 => i64::from(number as i32) as u64,
            _ => u64::from(number as u32),
        }
    }
}
