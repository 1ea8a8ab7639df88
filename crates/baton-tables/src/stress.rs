//! Tests with threads and with processes: whatever happens at the same time, index, queue and counts agree, and nothing that was counted is
//! lost or counted twice.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use baton_model::{DataType, KeyType, StickTable, Stored};

use crate::layout::SHARDS;
use crate::store::{ALIVE, at};
use crate::{Cursor, Key, Now, Table, Tables, Tracked, Value};

/// In the environment of a process that a test starts: the table's file, and what to do.
const CHILD: &str = "BATON_TABLES_CHILD";

fn settings(size: u64, expire_ms: u64) -> StickTable {
    let stored = |data| Stored { data, elements: 1, period: None };
    let rate = Stored { period: Some(Duration::from_secs(3600)), ..stored(DataType::HttpReqRate) };
    StickTable {
        expire: (expire_ms > 0).then(|| Duration::from_millis(expire_ms)),
        stored: vec![stored(DataType::Gpc0), stored(DataType::ConnCur), rate],
        ..StickTable::new("t", KeyType::Integer, size)
    }
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Checks a table that nobody changes; gives the number of its entries.
fn check(table: &Table) -> u64 {
    let store = &table.shared.store;
    let entries: u64 = (0..SHARDS).map(|shard| store.shard(shard).check_invariants()).sum();
    let mut free = 0;
    let mut next = store.get(at::FREE) as u32;
    while let Some(index) = next.checked_sub(1) {
        assert_eq!(store.holds(index).load(Ordering::Acquire) & ALIVE, 0);
        free += 1;
        next = store.link(index).load(Ordering::Acquire) as u32;
    }
    assert_eq!((entries + free, entries), (store.get(at::HIGH), table.used()), "no record is lost");
    entries
}

fn records(table: &Table, now: Now) -> Vec<crate::Record> {
    let (mut cursor, mut all) = (Cursor::default(), Vec::new());
    while !cursor.is_done() {
        all.extend(table.page(&mut cursor, 100, now));
    }
    all
}

/// Threads track, count, remove, sweep and read at once, in a table that is too small for all keys.
#[test]
fn whatever_happens_at_once_a_table_stays_whole() {
    for (keys, size, expire) in [(2000, 500, 40), (300, 1000, 5), (50, 20, 0), (5000, 5000, 1000)] {
        let table = Table::new(&settings(size, expire)).unwrap();
        let clock = AtomicU64::new(1_000_000);
        let done = AtomicBool::new(false);
        table.follow_changes();
        thread::scope(|threads| {
            let workers: Vec<_> = (1..4_u64)
                .map(|seed| {
                    let (table, clock) = (table.own(), &clock);
                    threads.spawn(move || {
                        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                        let mut held: Vec<(u32, Tracked)> = Vec::new();
                        for step in 0..60_000_u64 {
                            let now = Now::from_millis(clock.load(Ordering::Relaxed));
                            let number = numbers.below(keys) as u32;
                            let key = Key::from_integer(number);
                            match numbers.below(20) {
                                0..12 => {
                                    if let Some(tracked) = table.track(&key, now) {
                                        tracked.add(DataType::Gpc0, 0, 1, now);
                                        tracked.add(DataType::HttpReqRate, 0, 1, now);
                                        held.push((number, tracked));
                                    }
                                }
                                12..15 => {
                                    if let Some(found) = table.find(&key, now) {
                                        assert_eq!(found.key().as_key().bytes(), number.to_be_bytes());
                                    }
                                }
                                15..17 => drop(table.remove(&key)),
                                17 => drop(table.sweep(50, now)),
                                18 => drop(table.take_changed(10)),
                                _ => {
                                    clock.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            // What is held stays what it is.
                            if held.len() > 5 || step % 100 == 0 {
                                for (number, tracked) in held.drain(..) {
                                    assert_eq!(tracked.key().as_key().bytes(), number.to_be_bytes());
                                    assert!(tracked.get(DataType::Gpc0, 0, now) >= Some(1));
                                }
                            }
                            assert!(table.used() <= size);
                        }
                    })
                })
                .collect();
            threads.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let now = Now::from_millis(clock.load(Ordering::Relaxed));
                    assert!(records(&table, now).iter().all(|record| record.values.len() == 3));
                }
            });
            let failed = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            done.store(true, Ordering::Release);
            assert_eq!(failed, 0, "threads that panicked");
        });
        let now = Now::from_millis(clock.load(Ordering::Relaxed));
        assert!(check(&table) > 0);
        assert!(records(&table, now).iter().all(|record| record.references == 0), "{keys} {size}");
        if expire > 0 {
            let later = Now::from_millis(now.as_millis() + expire);
            while table.sweep(100, later).is_some() {}
            assert_eq!(check(&table), 0);
        }
    }
}

/// Two threads count the same few keys, which nothing removes: the sums are exact.
#[test]
fn nothing_is_counted_twice_or_lost() {
    let table = Table::new(&settings(100, 0)).unwrap();
    let now = Now::from_millis(5000);
    thread::scope(|threads| {
        for _ in 0..3 {
            let table = table.own();
            threads.spawn(move || {
                for step in 0..50_000 {
                    let tracked = table.track(&Key::from_integer(step % 5), now).unwrap();
                    tracked.add(DataType::Gpc0, 0, 1, now);
                    tracked.add(DataType::HttpReqRate, 0, 1, now);
                    tracked.add(DataType::ConnCur, 0, 1, now);
                    tracked.subtract(DataType::ConnCur, 0, 1);
                }
            });
        }
    });
    assert_eq!(check(&table), 5);
    for record in records(&table, now) {
        assert_eq!(record.value(DataType::Gpc0, 0), Some(&Value::Number(30_000)));
        assert_eq!(record.value(DataType::ConnCur, 0), Some(&Value::Number(0)));
        assert!(matches!(record.value(DataType::HttpReqRate, 0), Some(Value::Rate { current: 30_000, .. })));
    }
}

#[test]
fn many_entries_are_found_and_their_memory_follows_their_number() {
    let table = Table::new(&settings(1 << 20, 0)).unwrap();
    let file = File::from(table.file().try_clone_to_owned().unwrap());
    let kilobytes = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) / 2;
    let now = Now::from_millis(5000);
    for number in 0..10 {
        drop(table.track(&Key::from_integer(number), now));
    }
    assert!(kilobytes() <= 64, "{} KB for 10 entries", kilobytes());
    for number in 0..100_000 {
        drop(table.track(&Key::from_integer(number), now));
    }
    let each = kilobytes() * 1024 / 100_000;
    assert!(each <= 100, "{each} bytes for each of 100,000 entries");
    assert_eq!(check(&table), 100_000);
    let mut numbers = Numbers(7);
    for _ in 0..10_000 {
        let number = numbers.below(200_000) as u32;
        assert_eq!(table.find(&Key::from_integer(number), now).is_some(), number < 100_000);
    }
}

/// What a process does that a test has started: it counts in the table of the test, until it has done its work or is killed.
#[test]
fn the_work_of_another_process() {
    let Ok(work) = std::env::var(CHILD) else { return };
    let (file, work) = work.split_once(' ').unwrap();
    let file = File::options().read(true).write(true).open(file).unwrap();
    let table = Table::open("t", file.into()).unwrap();
    let now = Now::from_millis(1_000_000);
    match work {
        "count" => {
            for step in 0..100_000 {
                let tracked = table.track(&Key::from_integer(step % 10), now).unwrap();
                tracked.add(DataType::Gpc0, 0, 1, now);
                tracked.add(DataType::HttpReqRate, 0, 1, now);
            }
        }
        _ => {
            let mut numbers = Numbers(work.parse().unwrap());
            let mut held = Vec::new();
            for step in 0.. {
                let now = Now::from_millis(now.as_millis() + step / 1000);
                let key = Key::from_integer(numbers.below(3000) as u32);
                if let Some(tracked) = table.track(&key, now) {
                    tracked.add(DataType::ConnCur, 0, 1, now);
                    held.push(tracked);
                }
                if held.len() > 50 {
                    held.clear();
                    table.sweep(100, now);
                }
                let _ = table.remove(&Key::from_integer(numbers.below(3000) as u32));
            }
        }
    }
}

fn start(table: &Table, work: &str) -> std::process::Child {
    let file = format!("/proc/{}/fd/{}", std::process::id(), table.file().as_raw_fd());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stress::the_work_of_another_process", "--test-threads=1"])
        .env(CHILD, format!("{file} {work}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_count_in_the_same_table() {
    let table = Table::new(&settings(100, 0)).unwrap();
    let now = Now::from_millis(1_000_000);
    let mut other = start(&table, "count");
    for step in 0..100_000 {
        let tracked = table.track(&Key::from_integer(step % 10), now).unwrap();
        tracked.add(DataType::Gpc0, 0, 1, now);
        tracked.add(DataType::HttpReqRate, 0, 1, now);
    }
    assert!(other.wait().unwrap().success());
    assert_eq!(check(&table), 10);
    for record in records(&table, now) {
        assert_eq!(record.value(DataType::Gpc0, 0), Some(&Value::Number(20_000)));
        assert!(matches!(record.value(DataType::HttpReqRate, 0), Some(Value::Rate { current: 20_000, .. })));
    }
}

/// A process is killed wherever it is: the table is whole for the others, who hold what they held, and what it held is forgotten.
#[test]
fn a_process_that_is_killed_leaves_a_table_that_is_whole() {
    let table = Table::new(&settings(1000, 10_000)).unwrap();
    let now = Now::from_millis(1_000_000);
    let own = table.track(&Key::from_integer(1_000_000), now).unwrap();
    own.add(DataType::ConnCur, 0, 1, now);
    for seed in 1..=25_u64 {
        let mut other = start(&table, &seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string());
        // It works as soon as there are more or fewer entries than before; then it is killed, wherever it is.
        let before = table.used();
        while table.used() == before && other.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        for number in 0..seed * 50 {
            drop(table.track(&Key::from_integer(5000 + number as u32), now));
        }
        other.kill().unwrap();
        other.wait().unwrap();
        table.process_ended(other.id());
        assert!(check(&table) <= 1000);
        for record in records(&table, now) {
            let is_own = record.key == own.key();
            let current = record.value(DataType::ConnCur, 0);
            assert_eq!((record.references, current), (u32::from(is_own), Some(&Value::Number(u64::from(is_own)))));
        }
    }
}

/// Somebody dies in the middle of a change, and half of what follows from the records is gone: it is built again.
#[test]
fn a_death_in_the_middle_of_a_change_is_repaired() {
    let table = Table::new(&settings(10_000, 0)).unwrap();
    let now = Now::from_millis(1_000_000);
    for number in 0..5000 {
        drop(table.track(&Key::from_integer(number), now));
    }
    let held = table.track(&Key::from_integer(7), now).unwrap();
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut shard = table.shared.store.shard(3);
            shard.break_off();
            std::mem::forget(shard);
        });
    });
    assert!(table.shared.store.lock(3).holder_died());
    table.shared.store.head(at::USED).store(17, Ordering::Release);
    for number in 0..5000 {
        assert!(table.find(&Key::from_integer(number), now).is_some(), "{number}");
        drop(table.track(&Key::from_integer(number), now));
    }
    assert_eq!((check(&table), held.references()), (5000, 1));
}

/// A reload replaces the table by one with another layout while it is used.
#[test]
fn entries_go_on_in_a_table_of_another_layout() {
    let tables = crate::Tables::new();
    let first = settings(50_000, 0);
    tables.commit(tables.prepare(std::slice::from_ref(&first)).unwrap());
    let old = tables.get("t").unwrap();
    let now = Now::from_millis(1_000_000);
    for number in 0..30_000 {
        let tracked = old.track(&Key::from_integer(number), now).unwrap();
        tracked.add(DataType::HttpReqRate, 0, u64::from(number), now);
    }
    let held = old.track(&Key::from_integer(5), now).unwrap();
    held.add(DataType::ConnCur, 0, 1, now);
    let mut second = settings(20_000, 0);
    second.stored.remove(0);
    second.stored.push(Stored { data: DataType::Gpc1, elements: 1, period: None });
    let prepared = tables.prepare(std::slice::from_ref(&second)).unwrap();
    assert_eq!(
        prepared.losses(),
        [
            "stick-table 't': values of 'gpc0' are lost: it is no longer stored",
            "stick-table 't': 10000 of 30000 entries are lost: its size is 20000 now",
        ]
    );
    tables.commit(prepared);
    let new = tables.get("t").unwrap();
    assert!(!new.is(&old));
    // Each of them, old handle or new one, finds what was counted, before and after all were moved.
    let rate = |tracked: &Tracked| tracked.get(DataType::HttpReqRate, 0, now).unwrap();
    assert_eq!(rate(&new.find(&Key::from_integer(700), now).unwrap()), 700);
    let later = old.track(&Key::from_integer(800), now).unwrap();
    later.add(DataType::HttpReqRate, 0, 1, now);
    assert_eq!((rate(&later), held.get(DataType::Gpc0, 0, now), held.has(DataType::Gpc1)), (801, None, true));
    assert!(held.subtract(DataType::ConnCur, 0, 1) && held.table().is(&new));
    while tables.sweep(1000, now).is_some() {}
    let found = new.find(&Key::from_integer(5), now).unwrap();
    assert_eq!((rate(&found), held.references()), (5, 2));
    drop(found);
    assert_eq!(held.get(DataType::ConnCur, 0, now), Some(0));
    drop((held, later));
    assert_eq!((check(&new), Arc::strong_count(&old.shared)), (20_000, 1));
    assert_eq!(rate(&new.find(&Key::from_integer(800), now).unwrap()), 801);
}

/// Threads count in entries that they hold and in those that they look up, while reloads replace the table again and again by one that stores
/// something else: all that was counted is in the last one.
#[test]
fn nothing_is_lost_when_a_reload_changes_what_is_stored() {
    const RELOADS: usize = 40;
    const KEYS: u64 = 7;
    let stored = |data| Stored { data, elements: 1, period: None };
    let rate = Stored { period: Some(Duration::from_secs(3600)), ..stored(DataType::HttpReqRate) };
    let counted = [stored(DataType::ConnCur), stored(DataType::HttpReqCnt), stored(DataType::BytesInCnt), rate];
    let settings = |more: Option<DataType>| {
        let mut all: Vec<Stored> = counted.iter().copied().chain(more.map(stored)).collect();
        all.sort_by_key(|stored| stored.data);
        StickTable {
            expire: Some(Duration::from_secs(3600)),
            stored: all,
            ..StickTable::new("t", KeyType::Integer, 100)
        }
    };
    let tables = Tables::new();
    let now = Now::from_millis(5_000_000);
    tables.commit(tables.prepare(&[settings(None)]).unwrap());
    let (done, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        for seed in 1..4_u64 {
            let (tables, done, steps) = (&tables, &done, &steps);
            threads.spawn(move || {
                let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                // As a core, which learns of a new table some time after it is in use.
                let mut table = tables.get("t").unwrap().own();
                let mut held: Vec<Tracked> = Vec::new();
                let mut step = 0;
                while !done.load(Ordering::Acquire) {
                    if step % 200 == 0 {
                        table = tables.get("t").unwrap().own();
                    }
                    let key = Key::from_integer(numbers.below(KEYS) as u32);
                    let tracked = table.track(&key, now).unwrap();
                    tracked.add(DataType::ConnCur, 0, 1, now);
                    held.push(tracked);
                    step += 1;
                    let entry = &held[numbers.below(held.len() as u64) as usize];
                    entry.add(DataType::HttpReqCnt, 0, 1, now);
                    entry.add(DataType::HttpReqRate, 0, 1, now);
                    entry.add(DataType::BytesInCnt, 0, 3, now);
                    if held.len() > 20 {
                        let ended = held.swap_remove(numbers.below(20) as usize);
                        assert!(ended.subtract(DataType::ConnCur, 0, 1));
                    }
                }
                held.iter().for_each(|entry| assert!(entry.subtract(DataType::ConnCur, 0, 1)));
                steps.fetch_add(step, Ordering::Release);
            });
        }
        for reloads in 0..RELOADS {
            let more = [None, Some(DataType::Gpc0), Some(DataType::Gpt0)][reloads % 3];
            tables.commit(tables.prepare(&[settings(more)]).unwrap());
            if reloads % 2 == 0 {
                tables.sweep(3, now);
            }
            thread::yield_now();
        }
        done.store(true, Ordering::Release);
    });
    let table = tables.get("t").unwrap();
    let (mut sums, mut cursor) = ([0; 4], Cursor::default());
    while !cursor.is_done() {
        for record in table.page(&mut cursor, 10, now) {
            let data = [DataType::HttpReqCnt, DataType::HttpReqRate, DataType::BytesInCnt, DataType::ConnCur];
            for (sum, data) in sums.iter_mut().zip(data) {
                *sum += table.number(data, record.value(data, 0).unwrap()).unwrap();
            }
        }
    }
    let steps = steps.load(Ordering::Acquire);
    assert_eq!(sums, [steps, steps, 3 * steps, 0]);
    assert!(steps > 0);
}

/// Whatever is in a table's memory that another process has damaged: it is refused, or what is asked of it is answered or not, and built
/// again from the records.
#[test]
fn damaged_memory_is_refused_or_repaired() {
    let (mut refused, mut used) = (0, 0);
    for seed in 1..=600_u64 {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let table = Table::new(&settings(60, 1000)).unwrap();
        let now = Now::from_millis(1_000_000);
        for key in 0..40 {
            let tracked = table.track(&Key::from_integer(key), now).unwrap();
            tracked.add(DataType::HttpReqRate, 0, 1, now);
        }
        let store = &table.shared.store;
        let layout = &store.layout;
        for _ in 0..=numbers.below(6) {
            let part = [
                (0, crate::layout::HEADER),
                (at::SHARDS, at::SHARDS + 8 * SHARDS),
                (layout.buckets, layout.buckets + 100),
                (layout.queue, layout.queue + 100),
                (layout.times, layout.times + 100),
                (layout.records, layout.records + 60 * layout.record),
            ][numbers.below(6) as usize];
            let cell = part.0 + numbers.below((part.1 - part.0) as u64) as usize;
            let value = [0, 1, 7, 1 << 32, u64::MAX, numbers.0, store.get(cell) ^ 1 << numbers.below(64)];
            store.head(cell).store(value[numbers.below(7) as usize], Ordering::Relaxed);
        }
        let file = table.file().try_clone_to_owned().unwrap();
        let Ok(again) = Table::open("t", file) else {
            refused += 1;
            continue;
        };
        used += 1;
        for step in 0..200 {
            let key = Key::from_integer(numbers.below(80) as u32);
            let now = Now::from_millis(1_000_000 + step * 10);
            match numbers.below(5) {
                0 => drop(again.remove(&key)),
                1 => drop(again.sweep(10, now)),
                2 => drop(again.find(&key, now).map(|entry| entry.record(now))),
                _ => {
                    if let Some(tracked) = again.track(&key, now) {
                        tracked.add(DataType::HttpReqRate, 0, 1, now);
                        tracked.get(DataType::HttpReqRate, 0, now);
                        tracked.subtract(DataType::ConnCur, 0, 1);
                    }
                }
            }
        }
        again.look_after_processes();
        let mut cursor = Cursor::default();
        for _ in 0..100 {
            again.page(&mut cursor, 10, now);
        }
    }
    assert!(refused > 50 && used > 200, "{refused} refused, {used} used");
}
