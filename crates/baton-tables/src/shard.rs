//! A shard: the part of a table's entries that one lock protects. It finds records by key and keeps them in the order in which they expire.
//!
//! **Index.** Buckets are chains of records. There is a bucket for each entry: with the entry that is one too many, one bucket is split
//! (linear hashing), so that no growth takes longer than another. Readers take no lock: they may miss a record whose chain is being changed, but
//! then the shard's sequence number tells them so, which is odd during a change. What they find they hold first, and look at its key again.
//!
//! **Queue.** A heap by the time at which a record was touched, as of when it was put there. A touch does not move it: a record that comes to
//! the top and was touched since goes back with its new time.
//!
//! **Repair.** Index, queue, free records and counts follow from the records that are alive. Where a process died in the middle of a change
//! (the sequence number is odd, and nobody holds the lock), they are built again of them. So they are where they lead to what cannot be, in
//! memory that another process has damaged.

use std::sync::atomic::{Ordering, fence};

use baton_kernel::shared_memory::SharedLock;

use crate::cells::{half, set_half};
use crate::layout::{BUCKETS_MIN, Part, SHARDS, WHOLE};
use crate::store::{ALIVE, Fitted, SHARD_BUCKETS, SHARD_ENTRIES, SHARD_LATEST, SHARD_SEQUENCE, Store, at};

/// The longest chain that a reader follows without the lock: it may have been led astray.
const CHAIN_MAX: u64 = 64;
/// How often a reader looks again before it takes the lock.
const TRIES: usize = 4;
/// How often a record is looked at that somebody may hold for a moment only.
const SPINS: usize = 200;

/// A shard whose lock is held.
pub(crate) struct Shard<'a> {
    store: &'a Store,
    number: usize,
    /// It was found to be damaged.
    broken: bool,
    _lock: SharedLock<'a>,
}

/// What became of the first of the queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum First {
    /// It is gone.
    Removed,
    /// It has another place: it was touched meanwhile, or is held.
    Moved,
    /// There is none before the time.
    None,
}

impl Drop for Shard<'_> {
    fn drop(&mut self) {
        // After a panic it stays odd, and whoever comes next repairs it.
        if !self.broken && !std::thread::panicking() {
            self.store.shard_cell(self.number, SHARD_SEQUENCE).fetch_add(1, Ordering::Release);
        }
    }
}

impl Store {
    /// The shard of a key.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        hash as usize % SHARDS
    }

    /// Waits for the lock of a shard.
    pub(crate) fn shard(&self, number: usize) -> Shard<'_> {
        loop {
            let lock = self.lock(number);
            let sequence = self.shard_cell(number, SHARD_SEQUENCE);
            if sequence.load(Ordering::Acquire).is_multiple_of(2) {
                sequence.fetch_add(1, Ordering::AcqRel);
                fence(Ordering::SeqCst);
                return Shard { store: self, number, broken: false, _lock: lock };
            }
            drop(lock);
            self.repair();
        }
    }

    /// Looks for a record without a lock. `Err`: it may be there, but the index is being changed.
    #[inline]
    pub(crate) fn look(&self, key: &Fitted) -> Result<Option<u32>, ()> {
        let shard = self.shard_of(key.hash);
        let sequence = self.shard_cell(shard, SHARD_SEQUENCE);
        for _ in 0..TRIES {
            let before = sequence.load(Ordering::Acquire);
            if let Some(index) = self.seek(shard, key, CHAIN_MAX) {
                return Ok(Some(index));
            }
            fence(Ordering::SeqCst);
            if before.is_multiple_of(2) && sequence.load(Ordering::Acquire) == before {
                return Ok(None);
            }
            std::hint::spin_loop();
        }
        Err(())
    }

    /// Holds a record, if there is an entry. Gives whether somebody held it already.
    #[inline]
    pub(crate) fn hold(&self, index: u32) -> Option<bool> {
        let before = self.holds(index).fetch_add(self.one, Ordering::AcqRel);
        if before & ALIVE == 0 {
            self.release(index);
            return None;
        }
        Some(before != ALIVE)
    }

    #[inline]
    pub(crate) fn release(&self, index: u32) {
        self.holds(index).fetch_sub(self.one, Ordering::AcqRel);
    }

    /// When the first of a shard's queue was touched, as of when it came there; more than any time, if it is empty.
    pub(crate) fn first_time(&self, shard: usize) -> u64 {
        if self.shard_cell(shard, SHARD_ENTRIES).load(Ordering::Acquire) == 0 {
            return u64::MAX;
        }
        self.cell(self.layout.times + shard).load(Ordering::Acquire)
    }

    #[inline]
    fn seek(&self, shard: usize, key: &Fitted, most: u64) -> Option<u32> {
        let buckets = self.buckets(shard);
        let bucket = bucket_of((key.hash >> 32) as u32, buckets);
        let mut next = half(self.bucket(shard, bucket), bucket % 2 == 1);
        for _ in 0..most {
            let index = self.valid(next)?;
            let link = self.link(index).load(Ordering::Acquire);
            if self.has_key(index, link, key) {
                return Some(index);
            }
            next = link as u32;
        }
        None
    }

    #[inline]
    fn buckets(&self, shard: usize) -> u64 {
        let buckets = self.shard_cell(shard, SHARD_BUCKETS).load(Ordering::Acquire);
        buckets.clamp(BUCKETS_MIN, self.layout.buckets_max())
    }

    #[inline]
    fn bucket(&self, shard: usize, bucket: u64) -> &std::sync::atomic::AtomicU64 {
        self.cell(self.layout.buckets + bucket as usize / 2 * SHARDS + shard)
    }

    /// The part of a record's hash that chooses its bucket.
    fn spread(&self, index: u32) -> u32 {
        if self.layout.key_cells == 0 {
            (self.hash_of(index) >> 32) as u32
        } else {
            (self.link(index).load(Ordering::Relaxed) >> 32) as u32
        }
    }

    /// Builds again what follows from the records.
    fn repair(&self) {
        let _whole = self.lock(WHOLE);
        let locks: Vec<_> = (0..SHARDS).map(|shard| self.lock(shard)).collect();
        let sequence = |shard| self.shard_cell(shard, SHARD_SEQUENCE);
        if (0..SHARDS).all(|shard| sequence(shard).load(Ordering::Acquire).is_multiple_of(2)) {
            return;
        }
        for shard in 0..SHARDS {
            sequence(shard).fetch_or(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        let high = self.get(at::HIGH).min(self.layout.capacity) as u32;
        let mut entries = [0_u64; SHARDS];
        let is_alive = |index| self.holds(index).load(Ordering::Acquire) & ALIVE != 0;
        for index in (0..high).filter(|index| is_alive(*index)) {
            entries[self.shard_of(self.hash_of(index))] += 1;
        }
        let mut shards: Vec<Shard<'_>> = locks
            .into_iter()
            .enumerate()
            .map(|(number, lock)| Shard { store: self, number, broken: false, _lock: lock })
            .collect();
        for (shard, entries) in shards.iter_mut().zip(entries) {
            shard.empty(entries);
        }
        self.head(at::FREE).store(0, Ordering::Release);
        self.head(at::USED).store(0, Ordering::Release);
        for index in 0..high {
            if is_alive(index) {
                // What does not fit, because memory is missing, is lost.
                let shard = &mut shards[self.shard_of(self.hash_of(index))];
                if shard.enqueue(index, self.touched(index).load(Ordering::Acquire)) {
                    shard.link(index);
                    self.head(at::USED).fetch_add(1, Ordering::AcqRel);
                    continue;
                }
                self.holds(index).fetch_and(!ALIVE, Ordering::AcqRel);
            }
            self.give_record(index);
        }
        // Those that were being changed and those that were not are even after this.
        drop(shards);
    }
}

/// The bucket of a hash, of so many buckets.
#[inline]
fn bucket_of(hash: u32, buckets: u64) -> u64 {
    let mask = buckets.next_power_of_two() - 1;
    let bucket = u64::from(hash) & mask;
    if bucket < buckets { bucket } else { bucket & mask >> 1 }
}

impl Shard<'_> {
    /// The record of a key.
    pub(crate) fn find(&self, key: &Fitted) -> Option<u32> {
        self.store.seek(self.number, key, self.entries().saturating_add(1))
    }

    /// Makes an entry, whose values `fill` sets before anybody sees them, and holds it. `None`: there is no memory. Its place in `used` is
    /// the caller's.
    pub(crate) fn insert(&mut self, key: &Fitted, now: u64, fill: impl FnOnce(&Store, u32)) -> Option<u32> {
        let store = self.store;
        let index = store.take_record()?;
        store.link(index).store(u64::from(key.tag) << 32, Ordering::Relaxed);
        store.clear_record(index, key, now);
        fill(store, index);
        if !self.enqueue(index, store.touched(index).load(Ordering::Relaxed)) {
            store.give_record(index);
            return None;
        }
        store.holds(index).fetch_add(ALIVE + store.one, Ordering::AcqRel);
        self.link(index);
        self.split();
        Some(index)
    }

    /// Removes an entry that nobody holds, or only for a moment. `false`: it is held.
    pub(crate) fn remove(&mut self, index: u32) -> bool {
        for _ in 0..SPINS {
            if self.kill(index) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Looks at the first of the queue, if it came there touched at `time` or before.
    pub(crate) fn first(&mut self, time: u64, later: u64) -> First {
        if self.store.first_time(self.number) > time {
            return First::None;
        }
        let Some(index) = self.queued(0) else { return First::None };
        let touched = self.store.touched(index).load(Ordering::Acquire);
        if touched > self.time(0) {
            self.requeue(0, touched);
            First::Moved
        } else if self.kill(index) {
            First::Removed
        } else {
            self.requeue(0, later.max(touched));
            First::Moved
        }
    }

    fn kill(&mut self, index: u32) -> bool {
        if self.store.holds(index).compare_exchange(ALIVE, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.unlink(index);
        self.dequeue(index);
        self.store.give_record(index);
        let less = |used: u64| used.checked_sub(1);
        #[allow(deprecated, reason = "its new name, try_update, is younger than Rust 1.88")]
        let _ = self.store.head(at::USED).fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        true
    }

    // Index

    fn buckets(&self) -> u64 {
        self.store.buckets(self.number)
    }

    fn chain(&self, bucket: u64) -> u32 {
        half(self.store.bucket(self.number, bucket), bucket % 2 == 1)
    }

    fn set_chain(&self, bucket: u64, next: u32) {
        set_half(self.store.bucket(self.number, bucket), bucket % 2 == 1, next);
    }

    fn set_next(&self, index: u32, next: u32) {
        set_half(self.store.link(index), false, next);
    }

    fn link(&mut self, index: u32) {
        let bucket = bucket_of(self.store.spread(index), self.buckets());
        self.set_next(index, self.chain(bucket));
        self.set_chain(bucket, index + 1);
    }

    fn unlink(&mut self, index: u32) {
        let next_of = |index: u32| half(self.store.link(index), false);
        let bucket = bucket_of(self.store.spread(index), self.buckets());
        let mut at = self.chain(bucket);
        if at == index + 1 {
            self.set_chain(bucket, next_of(index));
            return;
        }
        for _ in 0..=self.entries() {
            let Some(before) = self.store.valid(at) else { break };
            at = next_of(before);
            if at == index + 1 {
                self.set_next(before, next_of(index));
                return;
            }
        }
        self.broken = true;
    }

    /// One bucket more, if there are more entries than buckets.
    fn split(&mut self) {
        let buckets = self.buckets();
        let enough = buckets >= self.entries() || buckets >= self.store.layout.shard_capacity;
        let cells = (buckets as usize / 2 + 1) * SHARDS;
        if enough || self.store.commit(Part::Buckets, cells).is_err() {
            return;
        }
        let old = buckets ^ (1 << buckets.ilog2());
        self.set_chain(buckets, 0);
        let mut next = self.chain(old);
        self.set_chain(old, 0);
        self.store.shard_cell(self.number, SHARD_BUCKETS).store(buckets + 1, Ordering::Release);
        let mut left = self.entries();
        while let Some(index) = self.store.valid(next) {
            next = half(self.store.link(index), false);
            self.link(index);
            if left == 0 {
                self.broken = true;
                return;
            }
            left -= 1;
        }
    }

    // Queue

    fn entries(&self) -> u64 {
        let entries = self.store.shard_cell(self.number, SHARD_ENTRIES).load(Ordering::Relaxed);
        entries.min(self.store.layout.shard_capacity)
    }

    fn set_entries(&self, entries: u64) {
        self.store.shard_cell(self.number, SHARD_ENTRIES).store(entries, Ordering::Release);
    }

    fn time(&self, place: u64) -> u64 {
        self.store.cell(self.store.layout.times + place as usize * SHARDS + self.number).load(Ordering::Relaxed)
    }

    /// What is at a place of the queue. `None`: no record can be.
    fn queued(&mut self, place: u64) -> Option<u32> {
        let index = self.queued_at(place);
        let is_record = u64::from(index) < self.store.layout.capacity;
        self.broken |= !is_record;
        is_record.then_some(index)
    }

    fn queued_at(&self, place: u64) -> u32 {
        let cell = self.store.layout.queue + place as usize / 2 * SHARDS + self.number;
        half(self.store.cell(cell), place % 2 == 1)
    }

    fn put(&self, place: u64, index: u32, time: u64) {
        let times = self.store.layout.times + place as usize * SHARDS + self.number;
        let queue = self.store.layout.queue + place as usize / 2 * SHARDS + self.number;
        self.store.cell(times).store(time, Ordering::Release);
        set_half(self.store.cell(queue), place % 2 == 1, index);
        self.store.place(index).store(place, Ordering::Relaxed);
    }

    /// `false`: there is no memory for it.
    fn enqueue(&mut self, index: u32, time: u64) -> bool {
        let place = self.entries();
        let store = self.store;
        let fits = place < store.layout.shard_capacity
            && store.commit(Part::Times, (place as usize + 1) * SHARDS).is_ok()
            && store.commit(Part::Queue, (place as usize / 2 + 1) * SHARDS).is_ok();
        if fits {
            self.set_entries(place + 1);
            self.put(place, index, time);
            // What was touched just now belongs behind all others: where they are need not be looked at.
            if !self.is_latest(time) {
                self.rise(place);
            }
        }
        fits
    }

    /// Whether no time in the queue is later; from now on none is later than this one, or the one that was.
    fn is_latest(&self, time: u64) -> bool {
        let latest = self.store.shard_cell(self.number, SHARD_LATEST);
        let is_latest = time >= latest.load(Ordering::Relaxed);
        if is_latest {
            latest.store(time, Ordering::Relaxed);
        }
        is_latest
    }

    fn dequeue(&mut self, index: u32) {
        let place = self.store.place(index).load(Ordering::Relaxed);
        let Some(last) = self.entries().checked_sub(1).filter(|last| place <= *last) else {
            self.broken = true;
            return;
        };
        self.set_entries(last);
        if place < last {
            let time = self.time(last);
            if let Some(moved) = self.queued(last) {
                self.put(place, moved, time);
                self.sink(place);
                self.rise(self.store.place(moved).load(Ordering::Relaxed).min(last));
            }
        }
    }

    fn requeue(&mut self, place: u64, time: u64) {
        if let Some(index) = self.queued(place) {
            self.is_latest(time);
            self.put(place, index, time);
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: u64) {
        let time = self.time(place);
        let Some(index) = self.queued(place) else { return };
        while place > 0 {
            let parent = (place - 1) / 2;
            let above = self.time(parent);
            if above <= time {
                break;
            }
            let Some(lower) = self.queued(parent) else { return };
            self.put(place, lower, above);
            place = parent;
        }
        self.put(place, index, time);
    }

    fn sink(&mut self, mut place: u64) {
        let (time, entries) = (self.time(place), self.entries());
        let Some(index) = self.queued(place) else { return };
        loop {
            let left = 2 * place + 1;
            if left >= entries {
                break;
            }
            let right = left + 1;
            let child = if right < entries && self.time(right) < self.time(left) { right } else { left };
            if self.time(child) >= time {
                break;
            }
            let Some(upper) = self.queued(child) else { return };
            self.put(place, upper, self.time(child));
            place = child;
        }
        self.put(place, index, time);
    }

    /// Without entries, with buckets for `expected` ones.
    fn empty(&mut self, expected: u64) {
        let mut buckets = expected.clamp(BUCKETS_MIN, self.store.layout.shard_capacity.max(BUCKETS_MIN));
        if self.store.commit(Part::Buckets, (buckets as usize / 2 + 1) * SHARDS).is_err() {
            buckets = BUCKETS_MIN;
        }
        (0..buckets).for_each(|bucket| self.set_chain(bucket, 0));
        self.store.shard_cell(self.number, SHARD_BUCKETS).store(buckets, Ordering::Release);
        self.set_entries(0);
        self.store.shard_cell(self.number, SHARD_LATEST).store(0, Ordering::Release);
    }

    /// Leaves the index and the free records as a death in the middle of a change might, for tests.
    #[cfg(test)]
    pub(crate) fn break_off(&mut self) {
        (0..self.buckets()).for_each(|bucket| self.set_chain(bucket, 0));
        self.set_entries(self.entries() / 2);
        let _ = self.store.take_record();
    }

    /// Whether index, queue and count agree, for tests.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) -> u64 {
        let (entries, buckets) = (self.entries(), self.buckets());
        let mut linked = 0;
        for bucket in 0..buckets {
            let mut next = self.chain(bucket);
            while let Some(index) = next.checked_sub(1) {
                linked += 1;
                assert!(linked <= entries, "a chain without an end");
                assert_eq!(bucket_of(self.store.spread(index), buckets), bucket);
                assert_eq!(self.store.shard_of(self.store.hash_of(index)), self.number);
                assert_ne!(self.store.holds(index).load(Ordering::Acquire) & ALIVE, 0);
                let place = self.store.place(index).load(Ordering::Relaxed);
                assert_eq!(self.queued_at(place), index);
                next = half(self.store.link(index), false);
            }
        }
        assert_eq!(linked, entries);
        for place in 1..entries {
            assert!(self.time((place - 1) / 2) <= self.time(place), "the queue's order at {place}");
        }
        entries
    }
}
