//! Any damage to the memory of a stick table that another process hands over: it is refused, or used without a panic and in bounded time.
//!
//! The input is changes: which cell (32 bits, of which the upper two choose the part of the memory), and its new value (64 bits).
#![no_main]

use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_kernel::shared_memory::SharedMemory;
use baton_model::{DataType, KeyType, StickTable, Stored};
use baton_tables::{Cursor, Key, Now, Table};
use libfuzzer_sys::fuzz_target;

/// Changes of one input.
const CHANGES_MAX: usize = 64;
/// Cells of the header, and about as many as the rest of a small table has in each of its parts.
const HEADER: usize = 512;

fn table() -> StickTable {
    let stored = |data| Stored { data, elements: 1, period: None };
    let rate = Stored { period: Some(Duration::from_secs(10)), ..stored(DataType::HttpReqRate) };
    StickTable {
        expire: Some(Duration::from_secs(1)),
        stored: vec![stored(DataType::Gpc0), stored(DataType::ConnCur), rate, stored(DataType::ServerKey)],
        ..StickTable::new("t", KeyType::String { length: 12 }, 60)
    }
}

fuzz_target!(|input: &[u8]| {
    let table = Table::new(&table()).expect("there is memory");
    let now = Now::from_millis(1_000_000);
    let names: Vec<String> = (0..60).map(|number| format!("key-{number}")).collect();
    for name in &names[..40] {
        let tracked = table.track(&Key::from_string(name.as_bytes()), now).expect("there is room");
        tracked.add(DataType::HttpReqRate, 0, 1, now);
        tracked.set_server_key("s1");
    }
    let file = || table.file().try_clone_to_owned().expect("a descriptor is left");
    let memory = SharedMemory::open(file(), 1).expect("it is a table's");
    let cells = memory.cells();
    for change in input.chunks_exact(12).take(CHANGES_MAX) {
        let (place, value) = change.split_at(4);
        let place = u32::from_le_bytes(place.try_into().expect("four bytes"));
        // The header, or what is used first of index, queue and times, or the end with the records, or anything.
        let (from, count) = match place >> 30 {
            0 => (0, HEADER),
            1 => (HEADER, 20_000),
            2 => (cells.len().saturating_sub(4096), 4096),
            _ => (0, cells.len()),
        };
        let at = (from + place as usize % (1 << 30) % count).min(cells.len() - 1);
        let value = u64::from_le_bytes(value.try_into().expect("eight bytes"));
        cells[at].store(value, Ordering::Relaxed);
    }
    let Ok(again) = Table::open("t", file()) else { return };
    let mut later = now;
    for (step, name) in names.iter().cycle().take(150).enumerate() {
        later = Now::from_millis(later.as_millis() + 12);
        let key = Key::from_string(name.as_bytes());
        match step % 5 {
            0 => drop(again.remove(&key)),
            1 => drop(again.find(&key, later).map(|entry| entry.record(later))),
            2 => drop(again.sweep(10, later)),
            _ => {
                if let Some(tracked) = again.track(&key, later) {
                    tracked.add(DataType::HttpReqRate, 0, 1, later);
                    tracked.add(DataType::Gpc0, 0, 1, later);
                    let _ = (tracked.get(DataType::HttpReqRate, 0, later), tracked.server_key());
                    tracked.set_server_key("s2");
                }
            }
        }
    }
    let mut cursor = Cursor::default();
    for _ in 0..20 {
        drop(again.page(&mut cursor, 50, later));
    }
    again.look_after_processes();
});
