//! What a request pays for a stick table: to find an entry and hold it, to count in a rate and read it, and to let go (`bench/tables`).

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use baton_model::{DataType, KeyType, StickTable, Stored};
use baton_tables::{Key, Now, Table};

const KEYS: u32 = 100_000;
const LASTS: Duration = Duration::from_millis(400);
const ROUNDS: usize = 7;

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn now() -> Instant {
    Instant::now()
}

fn table(size: u64, stored: &[Stored]) -> Arc<Table> {
    let settings = StickTable {
        expire: Some(Duration::from_secs(60)),
        stored: stored.to_vec(),
        ..StickTable::new("t", KeyType::Ip, size)
    };
    Table::new(&settings).expect("there is memory")
}

/// Operations of a thread until the time is over: nanoseconds for each, with so much other work in between.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn work(table: &Arc<Table>, keys: u32, seed: u32, pause: u32, ended: &AtomicBool) -> f64 {
    let (began, mut number, mut count) = (now(), seed, 0_u64);
    while !ended.load(Ordering::Relaxed) {
        for _ in 0..64 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = Now::from_millis(1_000_000 + count / 10_000);
            let tracked = table.track(&Key::from_integer((number >> 8) % keys), at).expect("there is room");
            tracked.add(DataType::HttpReqRate, 0, 1, at);
            std::hint::black_box(tracked.get(DataType::HttpReqRate, 0, at));
            for _ in 0..pause {
                std::hint::spin_loop();
            }
            count += 1;
        }
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

/// The median of some rounds, of as many threads.
fn measured(threads: usize, keys: u32, pause: u32) -> f64 {
    let rate = Stored { data: DataType::HttpReqRate, elements: 1, period: Some(Duration::from_secs(10)) };
    let table = table(1 << 20, &[rate]);
    for key in 0..keys {
        drop(table.track(&Key::from_integer(key), Now::from_millis(1_000_000)));
    }
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&table, threads, keys, pause)).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn round(table: &Table, threads: usize, keys: u32, pause: u32) -> f64 {
    let (ended, sum) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..threads as u32 {
            let (table, ended, sum) = (table.own(), &ended, &sum);
            scope.spawn(move || {
                let each = work(&table, keys, seed * 77 + 1, pause, ended);
                sum.fetch_add((each * 100.0) as u64, Ordering::Relaxed);
            });
        }
        thread::sleep(LASTS);
        ended.store(true, Ordering::Relaxed);
    });
    sum.into_inner() as f64 / 100.0 / threads as f64
}

/// A number on a cache line of its own.
#[repr(align(128))]
struct Alone(AtomicU64);

/// Nanoseconds of one addition to a number that as many threads add to, and do nothing else: below that nothing that is shared can be counted exactly.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn added(threads: usize) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (ended, number, sum) = (AtomicBool::new(false), Alone(AtomicU64::new(0)), AtomicU64::new(0));
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let (began, mut count) = (now(), 0_u64);
                        while !ended.load(Ordering::Relaxed) {
                            for _ in 0..64 {
                                number.0.fetch_add(1, Ordering::Relaxed);
                            }
                            count += 64;
                        }
                        let each = began.elapsed().as_nanos() as f64 / count as f64;
                        sum.fetch_add((each * 100.0) as u64, Ordering::Relaxed);
                    });
                }
                thread::sleep(LASTS / 4);
                ended.store(true, Ordering::Relaxed);
            });
            sum.into_inner() as f64 / 100.0 / threads as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Nanoseconds to create an entry, of the first so many of a table.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn created(entries: u32) -> f64 {
    let rate = Stored { data: DataType::HttpReqRate, elements: 1, period: Some(Duration::from_secs(10)) };
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let table = table(200_000, &[rate]);
            let began = now();
            for key in 0..entries {
                let at = Now::from_millis(1_000_000 + u64::from(key / 100));
                let tracked =
                    table.track(&Key::from_integer(key.wrapping_mul(2_654_435_761)), at).expect("there is room");
                tracked.add(DataType::HttpReqRate, 0, 1, at);
            }
            began.elapsed().as_nanos() as f64 / f64::from(entries)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn memory() -> Vec<String> {
    let stored = |data| Stored { data, elements: 1, period: None };
    let rate = Stored { period: Some(Duration::from_secs(10)), ..stored(DataType::HttpReqRate) };
    let gpc0 = stored(DataType::Gpc0);
    let sets: [(&str, Vec<Stored>); 4] = [
        ("nothing", vec![]),
        ("http_req_rate", vec![rate]),
        ("gpc0,http_req_rate", vec![gpc0, rate]),
        ("gpc0,conn_cur,http_req_rate", vec![gpc0, stored(DataType::ConnCur), rate]),
    ];
    let mut lines = Vec::new();
    for (name, stored) in sets {
        for entries in [10, 100_000, 1_000_000] {
            let table = table(1 << 20, &stored);
            for key in 0..entries {
                drop(table.track(&Key::from_integer(key), Now::from_millis(1_000_000)));
            }
            let file = std::fs::File::from(table.file().try_clone_to_owned().expect("a descriptor is left"));
            let blocks = file.metadata().map(|data| std::os::unix::fs::MetadataExt::blocks(&data)).unwrap_or_default();
            let each = blocks * 512 / u64::from(entries);
            lines.push(format!("{name:30} {entries:>9} entries {:>8} KB {each:>6} bytes each", blocks / 2));
        }
    }
    lines
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("create") {
        let _ = created(KEYS);
        return;
    }
    let mut out = std::io::stdout().lock();
    let mut say = |text: String| drop(writeln!(out, "{text}"));
    say(format!("one thread, {KEYS} keys: {:.1} ns", measured(1, KEYS, 0)));
    say(format!("{KEYS} entries are created: {:.1} ns each", created(KEYS)));
    say(format!("two threads, {KEYS} keys: {:.1} ns", measured(2, KEYS, 0)));
    say(format!("one thread, one key: {:.1} ns", measured(1, 1, 0)));
    say(format!("two threads, one key: {:.1} ns", measured(2, 1, 0)));
    let (one, two) = (added(1), added(2));
    say(format!("one addition to one number: one thread {one:.1} ns, two threads {two:.1} ns, ratio {:.3}", two / one));
    // A request is some 20 us of other work.
    let (one, two) = (measured(1, 1, 400), measured(2, 1, 400));
    say(format!("with other work in between: one thread {one:.1} ns, two threads {two:.1} ns, ratio {:.3}", two / one));
    memory().into_iter().for_each(say);
}
