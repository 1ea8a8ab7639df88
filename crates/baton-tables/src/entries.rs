//! Finding, creating and removing entries; and making room for them.

use std::sync::atomic::Ordering;

use crate::layout::SHARDS;
use crate::shard::First;
use crate::store::{Fitted, Store, at};

/// Records that are looked at for one to remove, at most, before a table counts as full.
const LOOKS_MAX: usize = 512;
/// Records that are looked at under one lock.
const LOOKS_LOCKED: usize = 64;
/// Expired entries that whoever creates one removes, at most.
const SWEPT: usize = 2;
/// How often it is tried to make room for one entry: others may take it.
const TRIES: usize = 4;

impl Store {
    /// Whether an entry's life is over, unless somebody holds it.
    #[inline]
    pub(crate) fn is_over(&self, index: u32, now: u64) -> bool {
        self.remaining(index, now) == Some(0)
    }

    /// Milliseconds until an entry expires.
    #[inline]
    pub(crate) fn remaining(&self, index: u32, now: u64) -> Option<u64> {
        let end = self.touched(index).load(Ordering::Acquire).saturating_add(self.expire()?);
        Some(end.saturating_sub(now))
    }

    #[inline]
    pub(crate) fn touch(&self, index: u32, now: u64) {
        let touched = self.touched(index);
        // Most are touched several times in a millisecond, or not by this core alone.
        if touched.load(Ordering::Relaxed) < now {
            touched.store(now, Ordering::Release);
        }
    }

    /// Finds an entry and holds it.
    #[inline]
    pub(crate) fn find(&self, key: &Fitted, now: u64) -> Option<u32> {
        match self.hold_found(key) {
            Some(Some(index)) if !self.is_over(index, now) => Some(index),
            Some(None) => None,
            Some(Some(index)) => {
                self.release(index);
                self.find_locked(key, now)
            }
            None => self.find_locked(key, now),
        }
    }

    /// Finds or creates an entry, holds it and refreshes its life. `fill` sets the values of one that is created, and may set when it was
    /// touched.
    #[inline]
    pub(crate) fn find_or_create(&self, key: &Fitted, now: u64, fill: impl FnMut(&Store, u32)) -> Option<u32> {
        if let Some(Some(index)) = self.hold_found(key) {
            if !self.is_over(index, now) {
                self.touch(index, now);
                return Some(index);
            }
            self.release(index);
        }
        self.create_locked(key, now, fill)
    }

    /// Removes an entry. `None`: there is none; `Some(false)`: it is held.
    pub(crate) fn remove(&self, key: &Fitted) -> Option<bool> {
        let mut shard = self.shard(self.shard_of(key.hash));
        let index = shard.find(key)?;
        Some(shard.remove(index))
    }

    /// Removes what has expired, and what a smaller size has no room for. Gives when the next entry may expire.
    pub(crate) fn sweep(&self, most: usize, now: u64) -> Option<u64> {
        let mut left = most;
        while self.get(at::USED) > self.get(at::SIZE) && left > 0 {
            left -= 1;
            if !self.evict(1, now) {
                break;
            }
        }
        let expire = self.expire()?;
        for shard in 0..SHARDS {
            left = left.saturating_sub(self.sweep_shard(shard, left, now, expire));
        }
        let first = (0..SHARDS).map(|shard| self.first_time(shard)).min()?;
        (first < u64::MAX).then(|| first.saturating_add(expire).max(if left == 0 { now } else { now + 1 }))
    }

    /// `None`: whether there is one is known under the lock only.
    #[inline]
    fn hold_found(&self, key: &Fitted) -> Option<Option<u32>> {
        let Some(index) = self.look(key).ok()? else { return Some(None) };
        self.hold(index)?;
        // It may have become another one before it was held.
        if self.has_key(index, self.link(index).load(Ordering::Acquire), key) {
            return Some(Some(index));
        }
        self.release(index);
        None
    }

    #[cold]
    fn find_locked(&self, key: &Fitted, now: u64) -> Option<u32> {
        let mut shard = self.shard(self.shard_of(key.hash));
        let index = shard.find(key)?;
        if self.is_over(index, now) && shard.remove(index) {
            return None;
        }
        self.hold(index)?;
        Some(index)
    }

    #[cold]
    fn create_locked(&self, key: &Fitted, now: u64, mut fill: impl FnMut(&Store, u32)) -> Option<u32> {
        for _ in 0..TRIES {
            let mut shard = self.shard(self.shard_of(key.hash));
            if let Some(index) = shard.find(key)
                && !(self.is_over(index, now) && shard.remove(index))
            {
                self.hold(index)?;
                self.touch(index, now);
                return Some(index);
            }
            if let Some(expire) = self.expire() {
                let over = now.saturating_sub(expire);
                let has_more = |first| first != First::None;
                let _ = (now >= expire) && (0..SWEPT).all(|_| has_more(shard.first(over, look_again(now, expire))));
            }
            let size = self.get(at::SIZE);
            let one_more = |used: u64| (used < size).then_some(used + 1);
            let used = self.head(at::USED);
            #[allow(deprecated, reason = "its new name, try_update, is younger than Rust 1.88")]
            let has_room = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok();
            if has_room {
                if let Some(index) = shard.insert(key, now, &mut fill) {
                    return Some(index);
                }
                used.fetch_sub(1, Ordering::AcqRel);
            }
            drop(shard);
            if !self.make_room(now) {
                return None;
            }
        }
        None
    }

    /// Removes some entries of a full table: those that have expired, or else the oldest ones, about one of 256.
    fn make_room(&self, now: u64) -> bool {
        if let Some(expire) = self.expire() {
            let swept: usize = (0..SHARDS).map(|shard| self.sweep_shard(shard, SWEPT, now, expire)).sum();
            if swept > 0 && self.get(at::USED) < self.get(at::SIZE) {
                return true;
            }
        }
        self.get(at::NO_PURGE) == 0 && self.evict(self.get(at::SIZE) / 256 + 1, now)
    }

    /// Removes the oldest entries that nobody holds. `false`: none was found among those that were looked at.
    fn evict(&self, count: u64, now: u64) -> bool {
        let (mut removed, mut looks) = (0, 0);
        while removed < count && looks < LOOKS_MAX {
            let times: [u64; SHARDS] = std::array::from_fn(|shard| self.first_time(shard));
            let Some((oldest, time)) = times.iter().enumerate().min_by_key(|(_, time)| **time) else { break };
            if *time == u64::MAX {
                break;
            }
            let others = times.iter().enumerate().filter(|(shard, _)| *shard != oldest).map(|(_, time)| *time);
            let until = others.min().unwrap_or(u64::MAX).max(*time).min(u64::MAX - 1);
            let mut shard = self.shard(oldest);
            for _ in 0..LOOKS_LOCKED {
                looks += 1;
                // One that is held goes behind those that were touched just now.
                match shard.first(until, now + 1) {
                    First::Removed => removed += 1,
                    First::Moved => (),
                    First::None => break,
                }
                if removed == count || looks >= LOOKS_MAX {
                    break;
                }
            }
        }
        removed > 0
    }

    /// Removes entries of a shard that have expired; gives how many were looked at.
    fn sweep_shard(&self, shard: usize, most: usize, now: u64, expire: u64) -> usize {
        let Some(over) = now.checked_sub(expire) else { return 0 };
        let mut looked = 0;
        while looked < most && self.first_time(shard) <= over {
            let mut shard = self.shard(shard);
            for _ in 0..LOOKS_LOCKED.min(most - looked) {
                if shard.first(over, look_again(now, expire)) == First::None {
                    break;
                }
                looked += 1;
            }
        }
        looked
    }
}

/// When an entry counts as touched that has expired and is held: it is looked at again after an eighth of its life.
fn look_again(now: u64, expire: u64) -> u64 {
    (now + (expire / 8).clamp(1, 60_000)).saturating_sub(expire)
}
