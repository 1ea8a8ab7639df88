//! What changed in a table, in the order in which peers are told: each change gives its entry the next number, so that an entry that changes
//! again before it is sent is sent once. Positions of peers are numbers of this log, across links.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Places of entries that have moved on, beside as many as there are entries.
const STALE_MAX: usize = 1024;

/// The changed entries of a table. `Id` is what the table calls an entry.
#[derive(Clone, Debug)]
pub struct UpdateLog<Id> {
    /// The number that was given last.
    last: u64,
    /// By number; an entry is at its latest number only, other places of it are stale.
    order: VecDeque<(u64, Id)>,
    latest: FxHashMap<Id, u64>,
}

impl<Id> Default for UpdateLog<Id> {
    fn default() -> UpdateLog<Id> {
        UpdateLog { last: 0, order: VecDeque::new(), latest: FxHashMap::default() }
    }
}

impl<Id: Copy + Eq + Hash> UpdateLog<Id> {
    /// The number that was given last.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Entries whose changes are kept.
    pub fn len(&self) -> usize {
        self.latest.len()
    }

    /// Whether no change is kept.
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// An entry changed.
    pub fn note(&mut self, id: Id) {
        self.last += 1;
        self.order.push_back((self.last, id));
        self.latest.insert(id, self.last);
        if self.order.len() > 2 * self.latest.len() + STALE_MAX {
            let latest = &self.latest;
            self.order.retain(|(number, id)| latest.get(id) == Some(number));
        }
    }

    /// The first change after a number.
    pub fn after(&self, number: u64) -> Option<(u64, Id)> {
        let start = self.order.partition_point(|(at, _)| *at <= number);
        self.order.range(start..).find(|(at, id)| self.latest.get(id) == Some(at)).copied()
    }

    /// The entries whose changes are kept, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Id)> {
        self.latest.iter().map(|(id, number)| (*number, *id))
    }

    /// Every peer has the changes up to this number: they are not kept.
    pub fn forget(&mut self, number: u64) {
        while let Some((at, id)) = self.order.front().copied().filter(|(at, _)| *at <= number) {
            self.order.pop_front();
            if self.latest.get(&id) == Some(&at) {
                self.latest.remove(&id);
            }
        }
    }

    /// Keeps only entries that are still there.
    pub fn retain(&mut self, mut is_there: impl FnMut(Id) -> bool) {
        self.latest.retain(|id, _| is_there(*id));
        let latest = &self.latest;
        self.order.retain(|(number, id)| latest.get(id) == Some(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &UpdateLog<char>, mut after: u64) -> String {
        let mut text = String::new();
        while let Some((number, id)) = log.after(after) {
            text += &format!("{id}{number} ");
            after = number;
        }
        text
    }

    #[test]
    fn changes_of_an_entry_merge() {
        let mut log = UpdateLog::default();
        "abcab".chars().for_each(|id| log.note(id));
        assert_eq!((all(&log, 0), all(&log, 4)), ("c3 a4 b5 ".into(), "b5 ".into()));
        assert_eq!((log.len(), log.last()), (3, 5));
        log.forget(3);
        assert_eq!(all(&log, 0), "a4 b5 ");
        log.retain(|id| id != 'a');
        assert_eq!(all(&log, 0), "b5 ");
        log.forget(9);
        assert!(log.is_empty() && log.last() == 5 && log.order.is_empty());
    }

    #[test]
    fn memory_is_bounded_by_the_entries() {
        let mut log = UpdateLog::default();
        for _ in 0..100_000 {
            "ab".chars().for_each(|id| log.note(id));
        }
        assert!(log.order.len() <= STALE_MAX + 5);
        assert_eq!(all(&log, 0), "a199999 b200000 ");
    }
}
