//! The dynamic table (RFC 7541 2.3.2): the fields that were sent last, oldest first out.
//!
//! Entries lie one behind the other in an arena, name and value together; it is compacted when its end is reached, so that each byte is moved once
//! on average. An empty table has no memory.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::ENTRY_OVERHEAD;

#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Where its name begins in the arena.
    start: u32,
    name_len: u32,
    value_len: u32,
    /// Of name and value; 0 in a table that nothing is looked up in.
    hash: u32,
}

impl Entry {
    fn size(&self) -> usize {
        self.len() + ENTRY_OVERHEAD
    }

    fn len(&self) -> usize {
        (self.name_len + self.value_len) as usize
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Table {
    arena: Vec<u8>,
    /// The newest first.
    entries: VecDeque<Entry>,
    /// As RFC 7541 4.1 counts.
    size: usize,
    size_max: usize,
}

impl Table {
    pub fn new(size_max: usize) -> Table {
        Table { arena: Vec::new(), entries: VecDeque::new(), size: 0, size_max }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn size_max(&self) -> usize {
        self.size_max
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Changes the limit; entries that do not fit are dropped.
    pub fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.make_room(0);
    }

    /// Name and value of the entry at `index`, 0 being the newest.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        let bytes = self.arena.get(entry.start as usize..entry.start as usize + entry.len())?;
        bytes.split_at_checked(entry.name_len as usize)
    }

    /// Adds an entry, whose name takes the first `name_len` bytes of `bytes`, and drops those that have no room beside it. One that is larger
    /// than the table empties it (RFC 7541 4.4).
    pub fn insert(&mut self, bytes: &[u8], name_len: usize, hash: u32) {
        let size = bytes.len() + ENTRY_OVERHEAD;
        self.make_room(size);
        if size > self.size_max {
            return;
        }
        if self.arena.len() + bytes.len() > self.arena.capacity() {
            self.compact(bytes.len());
        }
        let entry = Entry {
            start: self.arena.len() as u32,
            name_len: name_len as u32,
            value_len: (bytes.len() - name_len) as u32,
            hash,
        };
        self.arena.extend_from_slice(bytes);
        self.size += size;
        self.entries.push_front(entry);
    }

    /// Where an entry with that hash and these bytes is.
    #[inline]
    pub fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let mut from = 0;
        let (front, back) = self.entries.as_slices();
        for part in [front, back] {
            for (at, entry) in part.iter().enumerate() {
                if entry.hash == hash && self.get(from + at) == Some((name, value)) {
                    return Some(from + at);
                }
            }
            from += part.len();
        }
        None
    }

    /// Where an entry with that name is.
    pub fn find_name(&self, name: &[u8]) -> Option<usize> {
        let same_len = self.entries.iter().enumerate().filter(|(_, entry)| entry.name_len as usize == name.len());
        same_len.map(|(at, _)| at).find(|&at| self.get(at).is_some_and(|(known, _)| known == name))
    }

    /// Whether the state is valid: that of another process need not be.
    pub fn is_sound(&self) -> bool {
        let mut end = self.arena.len() as u64;
        let mut size = 0;
        for entry in &self.entries {
            let len = u64::from(entry.name_len) + u64::from(entry.value_len);
            if u64::from(entry.start) + len > end {
                return false;
            }
            // Older ones lie before it.
            end = u64::from(entry.start);
            size += len + ENTRY_OVERHEAD as u64;
        }
        size == self.size as u64 && self.size <= self.size_max
    }

    /// Gives back memory beyond the entries.
    pub fn shrink(&mut self) {
        self.compact(0);
        self.arena.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    fn make_room(&mut self, size: usize) {
        while self.size + size > self.size_max {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.size -= oldest.size();
        }
        if self.entries.is_empty() {
            self.arena.clear();
        }
    }

    /// Moves the entries to the arena's start, and sees to room for `more` bytes behind them: for as many again, or few entries would be
    /// moved for each.
    #[cold]
    fn compact(&mut self, more: usize) {
        let start = self.entries.back().map_or(self.arena.len(), |oldest| oldest.start as usize);
        self.arena.drain(..start);
        for entry in &mut self.entries {
            entry.start -= start as u32;
        }
        if more > 0 {
            let room = (self.arena.len() + more).max(256).min(self.size_max);
            self.arena.reserve_exact(room.max(more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_in_order_and_bytes_stay_right() {
        let mut table = Table::new(200);
        for round in 0..1000u32 {
            let value = round.to_string();
            table.insert(format!("name{value}").as_bytes(), 4, round);
            let newest = table.get(0).expect("it was added");
            assert_eq!(newest, (&b"name"[..], value.as_bytes()));
            let last = table.len() - 1;
            let oldest = (round as usize - last).to_string();
            assert_eq!(table.get(last), Some((&b"name"[..], oldest.as_bytes())));
            assert!(table.size() <= 200 && table.get(table.len()).is_none());
            assert_eq!(table.find(round, b"name", value.as_bytes()), Some(0));
            assert_eq!(table.find_name(b"name"), Some(0));
            if round % 97 == 0 {
                table.shrink();
            }
        }
        assert!(table.arena.capacity() <= 1024, "{}", table.arena.capacity());
        table.insert(&[b'x'; 169], 1, 0);
        assert_eq!((table.len(), table.size()), (0, 0));
        table.insert(&[b'x'; 168], 1, 0);
        assert_eq!((table.len(), table.size()), (1, 200));
        table.set_size_max(0);
        assert_eq!((table.len(), table.size()), (0, 0));
    }
}
