//! A table: finds and creates entries, removes them, and shows them to commands and peers.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_model::{DataType, KeyType, ServerKey, StickTable, Stored};

use crate::key::Key;
use crate::layout::Layout;
use crate::now::Now;
use crate::record::{Record, Value};
use crate::shared::{Shared, Table};
use crate::store::{KEY_MAX, Store, at};
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

/// An entry of a table, as long as it is one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct EntryId(u32);

/// How far a reader of all entries has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    next: u32,
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
        let failed = |reason: String| TableError { table: Arc::clone(&settings.name), reason };
        if settings.key.length() as usize > KEY_MAX {
            return Err(failed(format!("keys have at most {KEY_MAX} bytes")));
        }
        // Room for a larger size, which a later configuration may have: it costs address space only.
        let layout =
            Layout::new(settings.key, (&settings.stored, settings.bytes_factor), settings.size.saturating_mul(2));
        let seed = || RandomState::new().build_hasher().finish();
        let store = Store::create(layout, &settings.name, (seed(), seed()));
        let store = store.map_err(|error| failed(error.to_string()))?;
        store.set_settings(settings.size, settings.expire, settings.no_purge);
        Ok(Table::of(store, settings.clone()))
    }

    /// The table of another process ([`Table::file`]), or what is left of it: both count in the same memory. Settings are those of that
    /// process, until others are put into use.
    ///
    /// # Errors
    /// It is no such file, or one of another version of the program, whose contents cannot be read.
    pub fn open(name: &str, file: OwnedFd) -> io::Result<Arc<Table>> {
        let store = Store::open(file)?;
        let mut settings = StickTable::new(name, store.layout.key, store.get(at::SIZE));
        settings.expire = store.expire().map(Duration::from_millis);
        settings.no_purge = store.get(at::NO_PURGE) != 0;
        settings.bytes_factor = store.layout.bytes_factor;
        settings.stored.clone_from(&store.layout.stored);
        Ok(Table::of(store, settings))
    }

    fn of(store: Store, settings: StickTable) -> Arc<Table> {
        Arc::new(Table { shared: Arc::new(Shared::new(store, settings)) })
    }

    /// Another handle of this table, for one core: entries that are tracked count who holds it, and two cores that count in one place
    /// slow each other down.
    pub fn own(&self) -> Arc<Table> {
        Arc::new(Table { shared: Arc::clone(&self.shared) })
    }

    /// The memory of all entries, for another process ([`Table::open`]).
    pub fn file(&self) -> BorrowedFd<'_> {
        self.shared.store.file()
    }

    /// Makes sure that other processes know that this one uses the table, and forgets what processes held that have ended without giving
    /// it back, as in a crash: their references and current connections. Gives whether there are other processes; then it is to be
    /// called again from time to time.
    pub fn look_after_processes(&self) -> bool {
        self.shared.store.stay();
        self.shared.store.look_after_others()
    }

    /// Another process that used this table has ended: what it held is held no longer, and its current connections are none.
    pub fn process_ended(&self, pid: u32) {
        self.shared.store.process_ended(pid);
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
        self.shared.store.layout.key
    }

    /// What is stored with each entry.
    pub fn stored(&self) -> &[Stored] {
        &self.shared.store.layout.stored
    }

    /// The number that a value of a record stands for, as [`Tracked::get`] gives it. `None`: it is a text.
    pub fn number(&self, data: DataType, value: &Value) -> Option<u64> {
        let slot = self.shared.store.layout.slot(data, 0)?;
        Some(value.number(slot.period)? * u64::from(slot.block))
    }

    /// The configuration's settings, as they are now.
    pub fn settings(&self) -> StickTable {
        self.shared.settings().clone()
    }

    /// Most entries.
    pub fn size(&self) -> u64 {
        self.shared.store.get(at::SIZE)
    }

    /// How long an entry lives since it was last touched; `None`: it does not expire.
    pub fn expire(&self) -> Option<Duration> {
        self.shared.store.expire().map(Duration::from_millis)
    }

    /// What a server is in its entries.
    pub fn server_key(&self) -> ServerKey {
        self.shared.settings().server_key
    }

    /// How many entries there are. Those that have expired do not count from [`Table::sweep`] on.
    pub fn used(&self) -> u64 {
        self.shared.store.get(at::USED)
    }

    /// Finds or creates an entry, refreshes its life and holds it. `None`: the table is full.
    #[inline]
    pub fn track(self: &Arc<Table>, key: &Key<'_>, now: Now) -> Option<Tracked> {
        let shared = &self.shared;
        if let Some(successor) = shared.successor.get() {
            return Table { shared: Arc::clone(successor) }.own().track(key, now);
        }
        let fitted = shared.store.fit(key);
        let record = shared.find_or_create(key, &fitted, now.as_millis())?;
        if shared.before.is_there() {
            // One that was moved has the life of the table before.
            shared.store.touch(record, now.as_millis());
        }
        shared.note(record);
        Some(Tracked::new(Arc::clone(self), record))
    }

    /// Finds an entry and holds it; its life is not refreshed.
    #[inline]
    pub fn find(self: &Arc<Table>, key: &Key<'_>, now: Now) -> Option<Tracked> {
        let shared = &self.shared;
        if let Some(successor) = shared.successor.get() {
            return Table { shared: Arc::clone(successor) }.own().find(key, now);
        }
        let fitted = shared.store.fit(key);
        let mut found = shared.store.find(&fitted, now.as_millis());
        if found.is_none() && shared.before.is_there() && shared.is_before(key, now.as_millis()) {
            found = shared.find_or_create(key, &fitted, 0);
        }
        found.map(|record| Tracked::new(Arc::clone(self), record))
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
    pub fn remove(self: &Arc<Table>, key: &Key<'_>) -> Removed {
        if self.shared.before.is_there() {
            // What was not moved yet would be.
            drop(self.find(key, Now::from_millis(0)));
        }
        match self.shared.store.remove(&self.shared.store.fit(key)) {
            None => Removed::Unknown,
            Some(true) => Removed::Gone,
            Some(false) => Removed::InUse,
        }
    }

    /// The next entries, at most so many, in no particular order. Those that are created meanwhile may be missing. There may be none, and
    /// more to come.
    pub fn page(&self, cursor: &mut Cursor, most: usize, now: Now) -> Vec<Record> {
        if self.shared.before.is_there() && self.shared.move_some(most, now.as_millis()) {
            return Vec::new();
        }
        let store = &self.shared.store;
        let high = store.get(at::HIGH).min(store.layout.capacity) as u32;
        let mut page = Vec::new();
        // Places without an entry count as well: a page takes a bounded time.
        for _ in 0..most.saturating_mul(4) {
            if cursor.next >= high {
                cursor.done = true;
                break;
            }
            page.extend(self.read(EntryId(cursor.next), now));
            cursor.next += 1;
            if page.len() == most {
                break;
            }
        }
        page
    }

    /// Removes entries that have expired, looking at no more than about `most`. Gives when to come again: `None`: nothing will expire.
    pub fn sweep(&self, most: usize, now: Now) -> Option<Now> {
        if self.shared.before.is_there() && self.shared.move_some(most, now.as_millis()) {
            return Some(now);
        }
        self.shared.store.sweep(most, now.as_millis()).map(Now::from_millis)
    }

    /// From now on changed entries are noted, for the one who calls [`Table::take_changed`].
    pub fn follow_changes(&self) {
        self.shared.store.head(at::FOLLOWED).store(1, Ordering::Release);
    }

    /// Entries that were changed since they were last taken, at most so many.
    pub fn take_changed(&self, most: usize) -> Vec<EntryId> {
        let store = &self.shared.store;
        let mut taken = Vec::new();
        if store.head(at::ANY_CHANGED).swap(0, Ordering::AcqRel) == 0 {
            return taken;
        }
        let high = store.get(at::HIGH).min(store.layout.capacity) as u32;
        for word in 0..high.div_ceil(64) {
            let cell = store.cell(store.layout.changed + word as usize);
            if cell.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if taken.len() >= most {
                store.head(at::ANY_CHANGED).store(1, Ordering::Release);
                break;
            }
            let mut bits = cell.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let index = word * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if taken.len() < most {
                    taken.push(EntryId(index));
                } else {
                    self.shared.note(index);
                }
            }
        }
        taken
    }

    /// Notes an entry as changed once more: what was taken reached not everybody, and somebody else takes it from now on.
    pub fn give_back(&self, id: EntryId) {
        self.shared.note(id.0);
    }

    /// An entry that was changed; `None`: it is gone.
    pub fn read(&self, id: EntryId, now: Now) -> Option<Record> {
        let store = &self.shared.store;
        let is_held = store.hold(id.0)?;
        let is_over = !is_held && store.is_over(id.0, now.as_millis());
        let record = (!is_over).then(|| self.shared.record(id.0, now.as_millis()));
        store.release(id.0);
        record.map(|record| Record { references: record.references.saturating_sub(1), ..record })
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
        let shared = &self.shared;
        let is_learned = shared.successor.get().is_none() && shared.learn(key, values, life, now.as_millis());
        match shared.successor.get() {
            Some(successor) => Table { shared: Arc::clone(successor) }.own().learn(key, values, life, now),
            None => is_learned,
        }
    }

    /// Whether a configuration's table can use this memory.
    pub(crate) fn fits(&self, settings: &StickTable) -> bool {
        let layout = &self.shared.store.layout;
        let same = (layout.key, &layout.stored, layout.bytes_factor);
        same == (settings.key, &settings.stored, settings.bytes_factor) && settings.size <= layout.capacity
    }
}

impl Shared {
    fn learn(&self, key: &Key<'_>, values: &[(DataType, u8, Value)], life: Option<u64>, now: u64) -> bool {
        let Some(record) = self.find_or_create(key, &self.store.fit(key), now) else { return false };
        if let (Some(life), Some(expire)) = (life, self.store.expire()) {
            self.store.touched(record).store((now + life).saturating_sub(expire), Ordering::Release);
        }
        for (data, index, value) in values {
            self.set_value(record, *data, *index, value, now);
        }
        self.store.release(record);
        true
    }
}
