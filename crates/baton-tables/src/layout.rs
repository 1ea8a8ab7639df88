//! Where everything of a table is in its memory: a header, the index, the order of expiry, which entries were changed, names, and the
//! records. All sizes are in cells of eight bytes.
//!
//! ```text
//! header │ buckets │ times │ queue │ changed │ names │ records
//! ```
//!
//! Each part is used from its beginning on, so that a table's memory follows its use, however large `size` is.

use baton_model::{DataKind, DataType, KeyType, Stored};

/// Parts of a table that are changed independently of each other, each with its lock.
pub(crate) const SHARDS: usize = 16;
/// The lock for what is none of a shard. The locks of shards may be taken under it.
pub(crate) const WHOLE: usize = SHARDS;
/// The lock for names, under which no other one is taken.
pub(crate) const NAMING: usize = SHARDS + 1;
/// Locks of a table.
pub(crate) const LOCKS: usize = SHARDS + 2;
/// Buckets of an empty shard.
pub(crate) const BUCKETS_MIN: u64 = 4;
/// Cells of the header.
pub(crate) const HEADER: usize = 512;
/// Cells of a record before its key.
pub(crate) const RECORD_HEAD: usize = 4;
/// Cells for names of servers.
pub(crate) const NAMES: usize = 1 << 19;
/// Fewest records of a table, whatever its size.
const RECORDS_MIN: u64 = 16;
/// Most records of a table.
const RECORDS_MAX: u64 = 1 << 31;

/// Parts of the memory that grow with use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Buckets,
    Times,
    Queue,
    Changed,
    Names,
    Records,
}

/// Where a value of a record is, and how it is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    /// Its cell, from the record's beginning on.
    pub(crate) cell: u32,
    /// How it is there.
    pub(crate) form: Form,
    /// Of a rate, in milliseconds.
    pub(crate) period: u32,
    /// Of a rate, what one event stands for: 1, or a block of bytes.
    pub(crate) block: u16,
}

/// How a value is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// A cell.
    Whole,
    /// The lower or the upper half of a cell.
    Half { upper: bool, signed: bool },
    /// Two halves, each counted by other processes; the value is their sum.
    Lanes,
    /// Two cells.
    Rate,
    /// Half a cell, which leads to a name.
    Name { upper: bool },
}

/// The places of a table's parts and values.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) key: KeyType,
    pub(crate) stored: Vec<Stored>,
    /// Bytes of a block, for rates of bytes.
    pub(crate) bytes_factor: u16,
    /// Most records.
    pub(crate) capacity: u64,
    /// Most entries of a shard.
    pub(crate) shard_capacity: u64,
    pub(crate) buckets: usize,
    pub(crate) times: usize,
    pub(crate) queue: usize,
    pub(crate) changed: usize,
    pub(crate) names: usize,
    pub(crate) records: usize,
    /// Of all parts.
    pub(crate) cells: usize,
    /// Cells of a record.
    pub(crate) record: usize,
    /// Cells of a key; 0: it is in the record's head.
    pub(crate) key_cells: usize,
    /// Where the values of each type begin; the next elements of an array follow.
    slots: [Option<(Slot, u8)>; DataType::ALL.len()],
}

impl Layout {
    /// The layout of a table for so many records, whose rates of bytes count blocks.
    pub(crate) fn new(key: KeyType, (stored, bytes_factor): (&[Stored], u16), records: u64) -> Layout {
        let length = key.length() as usize;
        let key_cells = if length <= 4 { 0 } else { length.div_ceil(8) };
        let mut end = RECORD_HEAD + key_cells;
        let mut slots = [None; DataType::ALL.len()];
        let period = |stored: &Stored| stored.period.unwrap_or_default().as_millis() as u32;
        // What takes whole cells comes first, so that halves have no gaps.
        for stored in stored {
            let (form, cells) = match (stored.data, stored.data.kind()) {
                (_, DataKind::Rate | DataKind::ArrayOfRates) => (Form::Rate, 2),
                (_, DataKind::U64) => (Form::Whole, 1),
                (DataType::ConnCur, _) => (Form::Lanes, 1),
                _ => continue,
            };
            let block = if stored.data.is_bytes_rate() { bytes_factor } else { 1 };
            let slot = Slot { cell: end as u32, form, period: period(stored), block };
            slots[stored.data as usize] = Some((slot, stored.elements.max(1)));
            end += cells * usize::from(stored.elements.max(1));
        }
        let mut halves = end * 2;
        for stored in stored {
            let form = match (stored.data, stored.data.kind()) {
                (DataType::ConnCur, _) | (_, DataKind::Rate | DataKind::ArrayOfRates | DataKind::U64) => continue,
                (_, DataKind::Dictionary) => Form::Name { upper: halves % 2 == 1 },
                (_, kind) => Form::Half { upper: halves % 2 == 1, signed: kind == DataKind::I32 },
            };
            let slot = Slot { cell: (halves / 2) as u32, form, period: 0, block: 1 };
            slots[stored.data as usize] = Some((slot, stored.elements.max(1)));
            halves += usize::from(stored.elements.max(1));
        }
        // A small record is in one cache line; a larger one begins at half of one.
        let used = halves.div_ceil(2);
        let record = if used <= 4 {
            4
        } else if used <= 8 {
            8
        } else {
            used.next_multiple_of(4)
        };

        let capacity = records.clamp(RECORDS_MIN, RECORDS_MAX);
        let fair = capacity.div_ceil(SHARDS as u64);
        // Keys are spread by their hashes: a shard has little more than its share. Of a small table it may have all.
        let shard_capacity = capacity.min(fair + fair / 4 + 1024);
        let halves = (shard_capacity as usize).div_ceil(2) * SHARDS;
        let buckets = HEADER;
        let times = buckets + halves;
        let queue = times + shard_capacity as usize * SHARDS;
        let changed = queue + halves;
        let names = (changed + (capacity as usize).div_ceil(64)).next_multiple_of(8);
        let records = (names + NAMES).next_multiple_of(8);
        let cells = records + capacity as usize * record;
        let stored = stored.to_vec();
        Layout {
            key,
            stored,
            bytes_factor,
            capacity,
            shard_capacity,
            buckets,
            times,
            queue,
            changed,
            names,
            records,
            cells,
            record,
            key_cells,
            slots,
        }
    }

    /// Where a part begins and ends.
    pub(crate) fn part(&self, part: Part) -> (usize, usize) {
        match part {
            Part::Buckets => (self.buckets, self.times),
            Part::Times => (self.times, self.queue),
            Part::Queue => (self.queue, self.changed),
            Part::Changed => (self.changed, self.names),
            Part::Names => (self.names, self.names + NAMES),
            Part::Records => (self.records, self.cells),
        }
    }

    /// Most buckets of a shard.
    #[inline]
    pub(crate) fn buckets_max(&self) -> u64 {
        self.shard_capacity.max(BUCKETS_MIN)
    }

    /// Where a value is; `None`: it is not stored.
    #[inline]
    pub(crate) fn slot(&self, data: DataType, index: u8) -> Option<Slot> {
        let (mut slot, elements) = self.slots[data as usize]?;
        if index >= elements {
            return None;
        }
        match slot.form {
            Form::Rate => slot.cell += 2 * u32::from(index),
            Form::Whole | Form::Lanes => slot.cell += u32::from(index),
            Form::Half { upper, signed } => {
                let half = u32::from(upper) + u32::from(index);
                slot.cell += half / 2;
                slot.form = Form::Half { upper: half % 2 == 1, signed };
            }
            Form::Name { .. } => (),
        }
        Some(slot)
    }

    /// All values of a record, by ascending type and index.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (DataType, u8, Slot)> {
        self.stored.iter().flat_map(move |stored| {
            let indexes = 0..stored.elements.max(1);
            indexes.filter_map(move |index| Some((stored.data, index, self.slot(stored.data, index)?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn all() -> Vec<Stored> {
        let of = |data: DataType| match data.kind() {
            DataKind::Rate => Stored { data, elements: 1, period: Some(Duration::from_secs(1)) },
            DataKind::ArrayOfRates => Stored { data, elements: 5, period: Some(Duration::from_secs(2)) },
            DataKind::Array => Stored { data, elements: 7, period: None },
            _ => Stored { data, elements: 1, period: None },
        };
        DataType::ALL.into_iter().map(of).collect()
    }

    #[test]
    fn no_two_values_share_a_place() {
        for key in [KeyType::Ip, KeyType::String { length: 31 }, KeyType::Binary { length: 5 }] {
            let layout = Layout::new(key, (&all(), 1), 1000);
            let mut places = Vec::new();
            for (data, index, slot) in layout.slots() {
                let first = slot.cell * 2;
                let halves = match slot.form {
                    Form::Half { upper, .. } | Form::Name { upper } => vec![first + u32::from(upper)],
                    Form::Whole | Form::Lanes => vec![first, first + 1],
                    Form::Rate => (first..first + 4).collect(),
                };
                assert!(halves.iter().all(|half| *half / 2 < layout.record as u32), "{data:?} {index}");
                places.extend(halves);
            }
            let count = places.len();
            places.sort_unstable();
            places.dedup();
            assert_eq!((places.len(), places[0] / 2), (count, (RECORD_HEAD + layout.key_cells) as u32));
        }
    }

    #[test]
    fn a_small_record_is_in_one_cache_line() {
        let rate = Stored { data: DataType::HttpReqRate, elements: 1, period: Some(Duration::from_secs(10)) };
        let counters = [DataType::ConnCur, DataType::Gpc0, DataType::HttpReqCnt];
        let counters = counters.map(|data| Stored { data, elements: 1, period: None });
        let layout = Layout::new(KeyType::Ip, (&[&counters[..], &[rate]].concat(), 1), 1000);
        assert_eq!((layout.record, layout.records % 8), (8, 0));
        assert_eq!(Layout::new(KeyType::Ip, (&[], 1), 1000).record, 4);
    }
}
