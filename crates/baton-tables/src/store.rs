//! The memory of a table: its header, and its records by index. [`crate::shard`] finds records by key and orders them by their expiry.
//!
//! A record is four cells, its key if that is longer than four bytes, and its values:
//!
//! | cell | lower half | upper half |
//! |---|---|---|
//! | holds | bit 0: there is an entry; references of processes of lane 0, in units of 2 | of lane 1 |
//! | touched | when it was touched, in milliseconds | |
//! | link | the next record of its bucket, or the next free one; 0: none | its key, or of a longer one 32 bits of its hash |
//! | place | its place in the queue of its shard | |

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baton_kernel::shared_memory::SharedMemory;
use baton_model::{DataType, KeyType, StickTable, Stored};
use siphasher::sip::SipHasher13;

use crate::cells::{self, RateCells};
use crate::key::Key;
use crate::layout::{BUCKETS_MIN, Form, LOCKS, Layout, NAMES, Part, SHARDS, Slot};
use crate::rate::Rate;

/// There is an entry.
pub(crate) const ALIVE: u64 = 1;
/// What a table's memory begins with. Another arrangement has another number.
const MAGIC: u64 = 0x6261_746f_6e54_0001;
/// The most bytes of a key.
pub(crate) const KEY_MAX: usize = 1 << 16;
/// Records that may be taken at the same time, before there is memory for them.
const TAKEN_AT_ONCE: u64 = 4096;
/// Cells that are committed at a time, at least and at most.
const COMMIT: (usize, usize) = (512, 32_768);

/// Cells of the header.
pub(crate) mod at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const KEY: usize = 1;
    pub(crate) const RECORDS: usize = 2;
    pub(crate) const SEED: usize = 3;
    pub(crate) const SIZE: usize = 5;
    pub(crate) const EXPIRE: usize = 6;
    pub(crate) const NO_PURGE: usize = 7;
    /// Whether changed entries are noted.
    pub(crate) const FOLLOWED: usize = 8;
    /// Whether there may be any.
    pub(crate) const ANY_CHANGED: usize = 9;
    /// Bytes of a block, for rates of bytes; 0 is 1.
    pub(crate) const BYTES_FACTOR: usize = 10;
    /// What follows is changed with each entry that is created.
    pub(crate) const USED: usize = 16;
    pub(crate) const FREE: usize = 17;
    pub(crate) const HIGH: usize = 18;
    pub(crate) const NAMES_END: usize = 19;
    pub(crate) const COMMITTED: usize = 24;
    pub(crate) const STORED: usize = 32;
    pub(crate) const PROCESSES: usize = 64;
    /// Eight cells for each shard.
    pub(crate) const SHARDS: usize = 128;
}

/// A table's memory.
#[derive(Debug)]
pub(crate) struct Store {
    memory: SharedMemory,
    pub(crate) layout: Layout,
    seed: (u64, u64),
    /// One reference of this process, in the cell that holds references, see [`crate::processes`].
    pub(crate) one: u64,
    pub(crate) lane: usize,
}

/// A key as this table has it, with its hash.
pub(crate) struct Fitted {
    bytes: Bytes,
    pub(crate) hash: u64,
    /// What the record's head has of it.
    pub(crate) tag: u32,
}

/// The cells of a key.
enum Bytes {
    Short([u64; 8], u8),
    Long(Box<[u64]>),
}

impl Store {
    /// Memory for a table of this layout.
    pub(crate) fn create(layout: Layout, name: &str, seed: (u64, u64)) -> io::Result<Store> {
        let short: String = name.chars().filter(char::is_ascii_graphic).take(100).collect();
        let memory = SharedMemory::create(&format!("baton-table-{short}"), LOCKS, layout.cells)?;
        memory.commit(0, crate::layout::HEADER)?;
        let set = |at: usize, value: u64| memory.cells()[at].store(value, Ordering::Relaxed);
        set(at::KEY, key_to_cell(layout.key));
        set(at::RECORDS, layout.capacity);
        set(at::BYTES_FACTOR, layout.bytes_factor.into());
        set(at::SEED, seed.0);
        set(at::SEED + 1, seed.1);
        for (place, stored) in layout.stored.iter().enumerate() {
            set(at::STORED + place, stored_to_cell(stored));
        }
        set(at::NAMES_END, 1);
        memory.cells()[at::MAGIC].store(MAGIC, Ordering::Release);
        let mut store = Store { memory, layout, seed, one: 0, lane: 0 };
        for part in [Part::Buckets, Part::Times, Part::Queue, Part::Changed, Part::Records] {
            store.commit(part, 1)?;
        }
        for shard in 0..SHARDS {
            store.shard_cell(shard, SHARD_BUCKETS).store(BUCKETS_MIN, Ordering::Relaxed);
        }
        store.commit(Part::Buckets, BUCKETS_MIN as usize / 2 * SHARDS)?;
        store.attach();
        Ok(store)
    }

    /// The memory of a table that another process made, or this one.
    pub(crate) fn open(file: OwnedFd) -> io::Result<Store> {
        let memory = SharedMemory::open(file, LOCKS)?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let layout = read_layout(memory.cells()).ok_or_else(invalid)?;
        if memory.cells().len() < layout.cells {
            return Err(invalid());
        }
        let get = |at: usize| memory.cells()[at].load(Ordering::Acquire);
        let seed = (get(at::SEED), get(at::SEED + 1));
        let mut store = Store { memory, layout, seed, one: 0, lane: 0 };
        if !store.is_sound() {
            return Err(invalid());
        }
        store.attach();
        Ok(store)
    }

    /// Whether the numbers of the header can be those of this layout, for which another process may create entries at the same time. What
    /// is behind the header is judged when it is used: what cannot be is built again from the records ([`crate::shard`]).
    fn is_sound(&self) -> bool {
        let layout = &self.layout;
        let is_within = |at: usize, most: u64| self.get(at) <= most;
        let committed = |part: Part| self.get(at::COMMITTED + part as usize);
        let parts = [Part::Buckets, Part::Times, Part::Queue, Part::Changed, Part::Names, Part::Records];
        let free = self.get(at::FREE) as u32;
        let is_shard_sound = |shard: usize| {
            let get = |at: usize| self.shard_cell(shard, at).load(Ordering::Acquire);
            (BUCKETS_MIN..=layout.buckets_max()).contains(&get(SHARD_BUCKETS))
                && get(SHARD_ENTRIES) <= layout.shard_capacity
        };
        parts.into_iter().all(|part| {
            let (from, end) = layout.part(part);
            committed(part) <= (end - from) as u64
        }) && is_within(at::HIGH, layout.capacity.min(committed(Part::Records) / layout.record as u64 + TAKEN_AT_ONCE))
            && is_within(at::SIZE, layout.capacity)
            && is_within(at::USED, layout.capacity)
            && is_within(at::HIGH, layout.capacity)
            && u64::from(free) <= self.get(at::HIGH)
            && (1..=NAMES as u64).contains(&self.get(at::NAMES_END))
            && (0..SHARDS).all(is_shard_sound)
    }

    /// The file, for another process.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    #[inline]
    pub(crate) fn head(&self, at: usize) -> &AtomicU64 {
        &self.memory.cells()[at]
    }

    #[inline]
    pub(crate) fn cell(&self, at: usize) -> &AtomicU64 {
        &self.memory.cells()[at]
    }

    /// A number of the header.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> u64 {
        self.head(at).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn shard_cell(&self, shard: usize, at: usize) -> &AtomicU64 {
        self.head(at::SHARDS + shard * 8 + at)
    }

    pub(crate) fn lock(&self, lock: usize) -> baton_kernel::shared_memory::SharedLock<'_> {
        self.memory.lock(lock)
    }

    /// How long entries live, in milliseconds.
    #[inline]
    pub(crate) fn expire(&self) -> Option<u64> {
        self.get(at::EXPIRE).checked_sub(1)
    }

    /// Puts settings into use, for all processes.
    pub(crate) fn set_settings(&self, size: u64, expire: Option<Duration>, no_purge: bool) {
        let expire = expire.map_or(0, |expire| expire.as_millis() as u64 + 1);
        self.head(at::SIZE).store(size.min(self.layout.capacity), Ordering::Release);
        self.head(at::EXPIRE).store(expire, Ordering::Release);
        self.head(at::NO_PURGE).store(u64::from(no_purge), Ordering::Release);
    }

    // Records

    /// A record as chains and queues name it: 0 is none, and so is what there is no room for.
    #[inline]
    pub(crate) fn valid(&self, link: u32) -> Option<u32> {
        link.checked_sub(1).filter(|index| u64::from(*index) < self.layout.capacity)
    }

    /// A record's cells.
    #[inline]
    pub(crate) fn record(&self, index: u32) -> &[AtomicU64] {
        let from = self.layout.records + index as usize * self.layout.record;
        &self.memory.cells()[from..from + self.layout.record]
    }

    #[inline]
    pub(crate) fn holds(&self, index: u32) -> &AtomicU64 {
        &self.record(index)[0]
    }

    #[inline]
    pub(crate) fn touched(&self, index: u32) -> &AtomicU64 {
        &self.record(index)[1]
    }

    #[inline]
    pub(crate) fn link(&self, index: u32) -> &AtomicU64 {
        &self.record(index)[2]
    }

    #[inline]
    pub(crate) fn place(&self, index: u32) -> &AtomicU64 {
        &self.record(index)[3]
    }

    /// Whether a record has this key. The record may change meanwhile; it cannot while it is held.
    #[inline]
    pub(crate) fn has_key(&self, index: u32, link: u64, key: &Fitted) -> bool {
        if (link >> 32) as u32 != key.tag {
            return false;
        }
        let head = crate::layout::RECORD_HEAD;
        let cells = &self.record(index)[head..head + self.layout.key_cells];
        cells.iter().zip(key.cells()).all(|(cell, part)| cell.load(Ordering::Relaxed) == *part)
    }

    /// The bytes of a record's key.
    pub(crate) fn key_bytes(&self, index: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.key_into(index, &mut bytes);
        bytes
    }

    fn key_into(&self, index: u32, bytes: &mut Vec<u8>) {
        if self.layout.key_cells == 0 {
            bytes.extend(((self.link(index).load(Ordering::Acquire) >> 32) as u32).to_be_bytes());
        } else {
            let head = crate::layout::RECORD_HEAD;
            for cell in &self.record(index)[head..head + self.layout.key_cells] {
                bytes.extend(cell.load(Ordering::Relaxed).to_le_bytes());
            }
        }
        bytes.truncate(self.layout.key.length() as usize);
    }

    /// The hash of a record's key.
    pub(crate) fn hash_of(&self, index: u32) -> u64 {
        if self.layout.key_cells == 0 {
            self.hash(&[(self.link(index).load(Ordering::Acquire) >> 32) & 0xffff_ffff])
        } else {
            let head = crate::layout::RECORD_HEAD;
            let cells = &self.record(index)[head..head + self.layout.key_cells];
            let cells: Vec<u64> = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
            self.hash(&cells)
        }
    }

    /// Makes a record that nobody knows yet one of this key, without values.
    pub(crate) fn clear_record(&self, index: u32, key: &Fitted, now: u64) {
        self.touched(index).store(now, Ordering::Relaxed);
        let head = crate::layout::RECORD_HEAD;
        let cells = &self.record(index)[head..];
        let (key_cells, values) = cells.split_at(self.layout.key_cells);
        key_cells.iter().zip(key.cells()).for_each(|(cell, part)| cell.store(*part, Ordering::Relaxed));
        values.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
        for (_, _, slot) in self.layout.slots() {
            if slot.form == Form::Rate {
                self.rate(index, slot).set(Rate::unused(now as u32, slot.period));
            }
        }
    }

    #[inline]
    pub(crate) fn value(&self, index: u32, slot: Slot) -> &AtomicU64 {
        &self.record(index)[slot.cell as usize]
    }

    #[inline]
    pub(crate) fn rate(&self, index: u32, slot: Slot) -> RateCells<'_> {
        let record = self.record(index);
        RateCells::new(&record[slot.cell as usize], &record[slot.cell as usize + 1])
    }

    /// A number; of a rate, its value now; of a name, where it is.
    #[inline]
    pub(crate) fn number(&self, index: u32, slot: Slot, now: u64) -> u64 {
        let cell = self.value(index, slot);
        match slot.form {
            Form::Whole => cell.load(Ordering::Acquire),
            Form::Half { upper, signed: false } | Form::Name { upper } => u64::from(cells::half(cell, upper)),
            Form::Half { upper, signed: true } => i64::from(cells::half(cell, upper) as i32) as u64,
            Form::Lanes => {
                let both = cell.load(Ordering::Acquire);
                u64::from((both as u32).wrapping_add((both >> 32) as u32))
            }
            Form::Rate => self.rate(index, slot).load().value(now as u32, slot.period) * u64::from(slot.block),
        }
    }

    // Memory

    /// Makes sure that the first `cells` cells of a part can be used.
    pub(crate) fn commit(&self, part: Part, cells: usize) -> io::Result<()> {
        let (from, end) = self.layout.part(part);
        let committed = self.head(at::COMMITTED + part as usize);
        let has = committed.load(Ordering::Acquire) as usize;
        if cells <= has {
            return Ok(());
        }
        // Two that do this at the same time do the same.
        let more = (has / 8).clamp(COMMIT.0, COMMIT.1).max(cells - has).min(end - from - has);
        self.memory.commit(from + has, more)?;
        committed.fetch_max((has + more) as u64, Ordering::AcqRel);
        Ok(())
    }

    /// A record that nobody uses, if there is memory. Under the lock of a shard.
    pub(crate) fn take_record(&self) -> Option<u32> {
        let free = self.head(at::FREE);
        let mut head = free.load(Ordering::Acquire);
        while let Some(index) = self.valid(head as u32) {
            let next = self.link(index).load(Ordering::Acquire) & 0xffff_ffff;
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            match free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
        let high = self.head(at::HIGH);
        let take = |high: u64| (high < self.layout.capacity).then_some(high + 1);
        #[allow(deprecated, reason = "its new name, try_update, is younger than Rust 1.88")]
        let index = high.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        let fits = self.commit(Part::Records, (index as usize + 1) * self.layout.record);
        let fits = fits.and_then(|()| self.commit(Part::Changed, index as usize / 64 + 1));
        // Without memory it waits for whoever comes later.
        match fits {
            Ok(()) => Some(index as u32),
            Err(_) => {
                let _ = high.compare_exchange(index + 1, index, Ordering::AcqRel, Ordering::Relaxed);
                None
            }
        }
    }

    /// A record is free again. Under the lock of a shard.
    pub(crate) fn give_record(&self, index: u32) {
        let free = self.head(at::FREE);
        let mut head = free.load(Ordering::Acquire);
        loop {
            cells::change_half(self.link(index), false, |_| head as u32);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
            match free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    // Keys

    /// A key as this table has it: cut, or padded with zeros.
    #[inline]
    pub(crate) fn fit(&self, key: &Key<'_>) -> Fitted {
        let length = self.layout.key.length() as usize;
        let bytes = key.bytes();
        let bytes = &bytes[..bytes.len().min(length)];
        if self.layout.key_cells == 0 {
            let mut four = [0; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            let tag = u32::from_be_bytes(four);
            return Fitted { bytes: Bytes::Short([0; 8], 0), hash: self.hash(&[u64::from(tag)]), tag };
        }
        let fill = |cells: &mut [u64]| {
            for (cell, part) in cells.iter_mut().zip(bytes.chunks(8)) {
                let mut eight = [0; 8];
                eight[..part.len()].copy_from_slice(part);
                *cell = u64::from_le_bytes(eight);
            }
        };
        let count = self.layout.key_cells;
        let bytes = if count <= 8 {
            let mut cells = [0; 8];
            fill(&mut cells[..count]);
            Bytes::Short(cells, count as u8)
        } else {
            let mut cells = vec![0; count].into_boxed_slice();
            fill(&mut cells);
            Bytes::Long(cells)
        };
        let mut fitted = Fitted { bytes, hash: 0, tag: 0 };
        fitted.hash = self.hash(fitted.cells());
        fitted.tag = (fitted.hash >> 32) as u32;
        fitted
    }

    /// The hash of a key's cells. It has a secret, so that no client can choose keys that meet.
    #[inline]
    fn hash(&self, cells: &[u64]) -> u64 {
        use std::hash::Hasher;
        if let [cell] = cells {
            return hash_of_cell(self.seed, *cell);
        }
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        cells.iter().for_each(|cell| hasher.write_u64(*cell));
        hasher.finish()
    }
}

/// SipHash-1-3 of eight bytes, which addresses are: what [`SipHasher13`] gives, in half the time, because no bytes have to be collected.
#[inline]
fn hash_of_cell(seed: (u64, u64), cell: u64) -> u64 {
    let mut v = [
        seed.0 ^ 0x736f_6d65_7073_6575,
        seed.1 ^ 0x646f_7261_6e64_6f6d,
        seed.0 ^ 0x6c79_6765_6e65_7261,
        seed.1 ^ 0x7465_6462_7974_6573,
    ];
    let round = |v: &mut [u64; 4]| {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    };
    // The key, and then how many bytes it has.
    for word in [cell, 8 << 56] {
        v[3] ^= word;
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// Cells of a shard's part of the header.
pub(crate) const SHARD_SEQUENCE: usize = 0;
pub(crate) const SHARD_BUCKETS: usize = 1;
pub(crate) const SHARD_ENTRIES: usize = 2;
/// No time in the queue is later.
pub(crate) const SHARD_LATEST: usize = 3;

impl Fitted {
    #[inline]
    fn cells(&self) -> &[u64] {
        match &self.bytes {
            Bytes::Short(cells, count) => &cells[..usize::from(*count)],
            Bytes::Long(cells) => cells,
        }
    }
}

fn key_to_cell(key: KeyType) -> u64 {
    let kind = match key {
        KeyType::Ip => 1,
        KeyType::Ipv6 => 2,
        KeyType::Integer => 3,
        KeyType::String { .. } => 4,
        KeyType::Binary { .. } => 5,
    };
    kind << 32 | u64::from(key.length())
}

fn key_of_cell(cell: u64) -> Option<KeyType> {
    let length = cell as u32;
    let key = match cell >> 32 {
        1 => KeyType::Ip,
        2 => KeyType::Ipv6,
        3 => KeyType::Integer,
        4 => KeyType::String { length },
        5 => KeyType::Binary { length },
        _ => return None,
    };
    (key.length() == length && (1..=KEY_MAX as u32).contains(&length)).then_some(key)
}

/// Bit 63 says that there is one.
fn stored_to_cell(stored: &Stored) -> u64 {
    let period = stored.period.unwrap_or_default().as_millis() as u32;
    1 << 63 | u64::from(stored.data.bit()) << 40 | u64::from(stored.elements) << 32 | u64::from(period)
}

fn stored_of_cell(cell: u64) -> Option<Stored> {
    let data = *DataType::ALL.get((cell >> 40 & 0xff) as usize)?;
    let period = Duration::from_millis(cell & 0xffff_ffff);
    let period = (!period.is_zero()).then_some(period);
    let elements = (cell >> 32) as u8;
    (1..=Stored::ELEMENTS_MAX).contains(&elements).then_some(Stored { data, elements, period })
}

fn read_layout(cells: &[AtomicU64]) -> Option<Layout> {
    let get = |at: usize| cells.get(at).map_or(0, |cell| cell.load(Ordering::Acquire));
    if get(at::MAGIC) != MAGIC {
        return None;
    }
    let cells = (0..DataType::ALL.len()).map(|place| get(at::STORED + place)).take_while(|cell| *cell >> 63 == 1);
    let stored: Vec<Stored> = cells.map(stored_of_cell).collect::<Option<_>>()?;
    if !stored.is_sorted_by(|one, other| one.data < other.data) {
        return None;
    }
    let factor = u16::try_from(get(at::BYTES_FACTOR)).ok().filter(|factor| *factor <= StickTable::BYTES_FACTOR_MAX)?;
    Some(Layout::new(key_of_cell(get(at::KEY))?, (&stored, factor.max(1)), get(at::RECORDS)))
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Processes of other builds find the entries.
        #[test]
        fn a_cell_has_the_hash_that_the_library_gives(seed: (u64, u64), cell: u64) {
            let mut hasher = SipHasher13::new_with_keys(seed.0, seed.1);
            hasher.write_u64(cell);
            prop_assert_eq!(hash_of_cell(seed, cell), hasher.finish());
        }
    }
}
