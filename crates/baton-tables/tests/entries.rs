//! What tables promise their callers, whatever is inside.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use baton_model::{DataType, KeyType, StickTable, Stored};
use baton_tables::{Cursor, Key, Now, OwnedKey, Record, Removed, Table, Tables, Tracked, Value};

fn stored(data: DataType) -> Stored {
    Stored { data, elements: 1, period: None }
}

fn rate(data: DataType, millis: u64) -> Stored {
    Stored { data, elements: 1, period: Some(Duration::from_millis(millis)) }
}

fn settings(key: KeyType, size: u64, expire_ms: u64, stored: Vec<Stored>) -> StickTable {
    let expire = (expire_ms > 0).then(|| Duration::from_millis(expire_ms));
    StickTable { expire, stored, ..StickTable::new("t", key, size) }
}

fn table(key: KeyType, size: u64, expire_ms: u64, stored: Vec<Stored>) -> Arc<Table> {
    Table::new(&settings(key, size, expire_ms, stored)).unwrap()
}

fn at(millis: u64) -> Now {
    Now::from_millis(1_000_000 + millis)
}

fn all(table: &Table, now: Now) -> Vec<Record> {
    let (mut cursor, mut all) = (Cursor::default(), Vec::new());
    while !cursor.is_done() {
        all.extend(table.page(&mut cursor, 3, now));
    }
    all.sort_by(|one, other| one.key.cmp(&other.key));
    all
}

fn integers(table: &Table, now: Now) -> Vec<u32> {
    let number = |record: Record| match record.key {
        OwnedKey::Integer(number) => number,
        other => panic!("{other:?}"),
    };
    all(table, now).into_iter().map(number).collect()
}

#[test]
fn numbers_are_counted_set_and_cleared() {
    let kinds = [DataType::ServerId, DataType::Gpc0, DataType::ConnCur, DataType::BytesInCnt];
    let mut stored: Vec<_> = kinds.into_iter().map(stored).collect();
    stored.push(Stored { data: DataType::Gpt, elements: 3, period: None });
    let table = table(KeyType::Ip, 10, 0, stored);
    let key = Key::from_ip(Ipv4Addr::new(192, 0, 2, 1));
    let tracked = table.track(&key, at(0)).unwrap();
    assert_eq!(tracked.get(DataType::Gpc0, 0, at(0)), Some(0));
    assert!(tracked.add(DataType::Gpc0, 0, 3, at(0)) && tracked.add(DataType::BytesInCnt, 0, 1 << 40, at(0)));
    assert!(tracked.set(DataType::Gpt, 2, 7, at(0)) && !tracked.set(DataType::Gpt, 3, 7, at(0)));
    assert!(!tracked.add(DataType::Gpc1, 0, 1, at(0)) && !tracked.has(DataType::Gpc1));
    assert!(tracked.add(DataType::ConnCur, 0, 2, at(0)) && tracked.subtract(DataType::ConnCur, 0, 1));
    assert!(tracked.set(DataType::ServerId, 0, -5_i64 as u64, at(0)));
    let get = |data, index| tracked.get(data, index, at(0));
    assert_eq!((get(DataType::Gpc0, 0), get(DataType::Gpt, 2), get(DataType::Gpt, 1)), (Some(3), Some(7), Some(0)));
    assert_eq!((get(DataType::BytesInCnt, 0), get(DataType::ConnCur, 0)), (Some(1 << 40), Some(1)));
    assert_eq!(get(DataType::ServerId, 0), Some(-5_i64 as u64));
    assert_eq!(tracked.clear(DataType::Gpc0, 0, at(0)), Some(3));
    assert_eq!((get(DataType::Gpc0, 0), get(DataType::Gpc1, 0)), (Some(0), None));
    // Numbers of 32 bits end at 2^32, and their neighbours do not see it.
    tracked.set(DataType::Gpc0, 0, u64::from(u32::MAX), at(0));
    tracked.add(DataType::Gpc0, 0, 2, at(0));
    tracked.set(DataType::Gpt, 1, u64::MAX, at(0));
    assert_eq!((get(DataType::Gpc0, 0), get(DataType::ServerId, 0)), (Some(1), Some(-5_i64 as u64)));
    assert_eq!(
        (get(DataType::Gpt, 0), get(DataType::Gpt, 1), get(DataType::Gpt, 2)),
        (Some(0), Some(0xffff_ffff), Some(7))
    );
    tracked.subtract(DataType::ConnCur, 0, 5);
    assert_eq!(get(DataType::ConnCur, 0), Some(0));
}

#[test]
fn rates_follow_the_sliding_window() {
    let table = table(KeyType::Integer, 10, 0, vec![rate(DataType::HttpReqRate, 10_000)]);
    let tracked = table.track(&Key::from_integer(1), at(0)).unwrap();
    let get = |millis| tracked.get(DataType::HttpReqRate, 0, at(millis)).unwrap();
    // The first event begins the period, whenever the entry was created.
    for millis in [5000, 5000, 6000, 14_999] {
        tracked.add(DataType::HttpReqRate, 0, 1, at(millis));
    }
    assert_eq!((get(14_999), get(15_000), get(20_000), get(24_999), get(25_000)), (4, 4, 2, 0, 0));
    tracked.add(DataType::HttpReqRate, 0, 1, at(20_000));
    assert_eq!((get(20_000), get(25_000)), (3, 1));
    let value = |millis| all(&table, at(millis))[0].values.clone();
    let expect = Value::Rate { elapsed_ms: 5000, current: 1, previous: 4 };
    assert_eq!(value(20_000), [(DataType::HttpReqRate, 0, expect)]);
    assert_eq!(tracked.clear(DataType::HttpReqRate, 0, at(20_000)), Some(3));
    assert_eq!(get(20_001), 0);
}

#[test]
fn keys_are_cut_and_padded_as_their_type_wants() {
    let table_of = |key| table(key, 10, 0, vec![stored(DataType::Gpc0)]);
    let (text, binary) = (table_of(KeyType::String { length: 5 }), table_of(KeyType::Binary { length: 6 }));
    for long in [&b"abcdefg"[..], b"abcdezzz", b"abcde\0x"] {
        text.track(&Key::from_string(long), at(0)).unwrap().add(DataType::Gpc0, 0, 1, at(0));
    }
    for short in [&b"7A"[..], b"7A\0", b"7A\0\0\0\0beyond"] {
        binary.track(&Key::from_binary(short), at(0)).unwrap().add(DataType::Gpc0, 0, 1, at(0));
    }
    let three = vec![(DataType::Gpc0, 0, Value::Number(3))];
    let texts = all(&text, at(0));
    assert_eq!((&texts[0].key, &texts[0].values), (&OwnedKey::String((*b"abcde").into()), &three));
    let binaries = all(&binary, at(0));
    assert_eq!((&binaries[0].key, &binaries[0].values), (&OwnedKey::Binary((*b"7A\0\0\0\0").into()), &three));
    for table in [&text, &binary] {
        let key = all(table, at(0))[0].key.clone();
        assert!(table.find(&key.as_key(), at(0)).is_some());
        assert_eq!((table.used(), table.remove(&key.as_key()), table.used()), (1, Removed::Gone, 0));
    }
    let empty = text.track(&Key::from_string(b""), at(0)).unwrap();
    assert_eq!(empty.key(), OwnedKey::String([].into()));
}

#[test]
fn an_entry_lives_until_it_was_not_touched_for_as_long_as_expire_says() {
    let table = table(KeyType::Integer, 10, 1000, vec![stored(DataType::Gpc0)]);
    let key = Key::from_integer(1);
    drop(table.track(&key, at(0)));
    table.track(&key, at(600)).unwrap().add(DataType::Gpc0, 0, 1, at(600));
    let found = table.find(&key, at(1599)).unwrap();
    assert_eq!((found.remaining(at(1599)), found.idle(at(1599)), found.references()), (Some(1), 999, 1));
    // It does not expire while it is tracked.
    assert_eq!(found.get(DataType::Gpc0, 0, at(5000)), Some(1));
    assert_eq!(table.find(&key, at(5000)).unwrap().references(), 2);
    assert_eq!(table.remove(&key), Removed::InUse);
    drop(found);
    assert!(table.find(&key, at(5000)).is_none());
    assert_eq!(integers(&table, at(5000)), [0_u32; 0]);
    table.sweep(10, at(5000));
    assert_eq!(table.used(), 0);
    // Whoever comes again begins at zero.
    table.track(&key, at(5001)).unwrap().add(DataType::Gpc0, 0, 1, at(5001));
    let again = table.track(&key, at(6001)).unwrap();
    assert_eq!((again.get(DataType::Gpc0, 0, at(6001)), table.used()), (Some(0), 1));
}

#[test]
fn a_sweep_reports_when_to_come_again() {
    let table = table(KeyType::Integer, 10_000, 1000, vec![]);
    assert_eq!(table.sweep(10, at(0)), None);
    for number in 0..1000 {
        drop(table.track(&Key::from_integer(number), at(u64::from(number))));
    }
    assert_eq!(table.sweep(100, at(999)), Some(at(1000)));
    let mut turns = 0;
    while table.sweep(100, at(1499)).is_some_and(|next| next <= at(1499)) {
        turns += 1;
    }
    assert_eq!((table.used(), integers(&table, at(1499))[0]), (500, 500));
    assert!((4..=20).contains(&turns), "{turns}");
}

#[test]
fn a_full_table_forgets_the_oldest_or_refuses() {
    for no_purge in [false, true] {
        let settings = StickTable { no_purge, ..settings(KeyType::Integer, 10, 100_000, vec![]) };
        let table = Table::new(&settings).unwrap();
        let held = table.track(&Key::from_integer(0), at(0)).unwrap();
        for number in 1..10 {
            drop(table.track(&Key::from_integer(number), at(u64::from(number))));
        }
        drop(table.track(&Key::from_integer(1), at(20)));
        assert_eq!((table.used(), table.size()), (10, 10));
        let new = table.track(&Key::from_integer(10), at(30));
        assert_eq!(new.is_none(), no_purge);
        let expect = if no_purge { vec![0, 1, 2] } else { vec![0, 1, 3] };
        assert_eq!((table.used(), &integers(&table, at(30))[..3]), (10, &expect[..]));
        drop((held, new));
    }
    // All are tracked: there is no room.
    let table = table(KeyType::Integer, 2, 0, vec![]);
    let held: Vec<_> = (0..2).map(|number| table.track(&Key::from_integer(number), at(0))).collect();
    assert!(table.track(&Key::from_integer(2), at(5)).is_none());
    drop(held);
    assert!(table.track(&Key::from_integer(2), at(5)).is_some());
}

#[test]
fn changes_are_noted_once_and_lessons_are_not() {
    let table = table(KeyType::Integer, 100, 10_000, vec![stored(DataType::Gpc0), stored(DataType::ServerKey)]);
    drop(table.track(&Key::from_integer(1), at(0)));
    assert!(table.take_changed(10).is_empty());
    table.follow_changes();
    let tracked = table.track(&Key::from_integer(2), at(0)).unwrap();
    tracked.add(DataType::Gpc0, 0, 1, at(0));
    assert!(tracked.set_server_key("s1"));
    let lesson = [(DataType::Gpc0, 0, Value::Number(5)), (DataType::HttpReqCnt, 0, Value::Number(5))];
    table.learn(&Key::from_integer(3), &lesson, Some(4000), at(0));
    let changed = table.take_changed(10);
    let read: Vec<_> = changed.iter().filter_map(|id| table.read(*id, at(0))).collect();
    assert_eq!((changed.len(), &read[0].key), (1, &OwnedKey::Integer(2)));
    assert_eq!(read[0].value(DataType::ServerKey, 0), Some(&Value::ServerKey(Some("s1".into()))));
    assert!(table.take_changed(10).is_empty());
    tracked.add(DataType::Gpc0, 0, 1, at(0));
    assert_eq!(table.take_changed(10), changed);
    let learned = table.find(&Key::from_integer(3), at(0)).unwrap();
    assert_eq!((learned.get(DataType::Gpc0, 0, at(0)), learned.remaining(at(0))), (Some(5), Some(4000)));
    drop((learned, tracked));
    assert_eq!(table.remove(&Key::from_integer(2)), Removed::Gone);
    assert!(table.read(changed[0], at(0)).is_none());
}

#[test]
fn a_lesson_replaces_what_both_have() {
    let stored = vec![rate(DataType::HttpReqRate, 10_000), stored(DataType::Gpc0), stored(DataType::ServerKey)];
    let table = table(KeyType::String { length: 8 }, 10, 0, stored);
    let key = Key::from_string(b"alpha");
    table.track(&key, at(0)).unwrap().add(DataType::Gpc0, 0, 9, at(0));
    let rate = Value::Rate { elapsed_ms: 2000, current: 4, previous: 10 };
    let name = Value::ServerKey(Some("s2".into()));
    table.learn(&key, &[(DataType::HttpReqRate, 0, rate), (DataType::ServerKey, 0, name)], None, at(100));
    let tracked = table.find(&key, at(200)).unwrap();
    assert_eq!(tracked.get(DataType::HttpReqRate, 0, at(200)), Some(11));
    assert_eq!((tracked.get(DataType::Gpc0, 0, at(200)), tracked.server_key().as_deref()), (Some(9), Some("s2")));
    assert_eq!((tracked.remaining(at(200)), tracked.record(at(200)).expires_ms), (None, None));
    // No name yet is no news.
    table.learn(&key, &[(DataType::ServerKey, 0, Value::ServerKey(None))], None, at(300));
    assert_eq!(tracked.server_key().as_deref(), Some("s2"));
}

#[test]
fn tables_of_the_same_layout_go_on_over_a_reload() {
    let tables = Tables::new();
    let first = settings(KeyType::Integer, 10, 1000, vec![stored(DataType::Gpc0)]);
    tables.commit(tables.prepare(std::slice::from_ref(&first)).unwrap());
    let table = tables.get("t").unwrap();
    let tracked = table.track(&Key::from_integer(1), at(0)).unwrap();
    tracked.add(DataType::Gpc0, 0, 1, at(0));
    let second = StickTable { size: 20, expire: Some(Duration::from_secs(5)), ..first };
    tables.commit(tables.prepare(&[second]).unwrap());
    let same = tables.get("t").unwrap();
    assert!(same.is(&table) && same.own().is(&table));
    assert_eq!((same.size(), tracked.remaining(at(0))), (20, Some(5000)));
    assert!(tables.get("other").is_none() && tables.all().len() == 1);
}

#[test]
fn rates_of_bytes_count_blocks() {
    let stored =
        vec![stored(DataType::BytesInCnt), rate(DataType::BytesInRate, 10_000), rate(DataType::HttpReqRate, 10_000)];
    let first = StickTable { bytes_factor: 1024, ..settings(KeyType::Integer, 10, 60_000, stored) };
    let tables = Tables::new();
    tables.commit(tables.prepare(std::slice::from_ref(&first)).unwrap());
    let table = tables.get("t").unwrap();
    let tracked = table.track(&Key::from_integer(1), at(0)).unwrap();
    for data in [DataType::BytesInCnt, DataType::BytesInRate, DataType::HttpReqRate] {
        tracked.add(data, 0, 10_000_000_000, at(0));
    }
    let get = |tracked: &Tracked, data| tracked.get(data, 0, at(5));
    assert_eq!(get(&tracked, DataType::BytesInRate), Some(10_000_000_000));
    assert_eq!(get(&tracked, DataType::BytesInCnt), Some(10_000_000_000));
    assert_eq!(get(&tracked, DataType::HttpReqRate), Some(10_000_000_000 % (1 << 32)));
    let record = tracked.record(at(5));
    let value = record.value(DataType::BytesInRate, 0).unwrap();
    assert_eq!(*value, Value::Rate { elapsed_ms: 5, current: 9_765_625, previous: 0 });
    assert_eq!(table.number(DataType::BytesInRate, value), Some(10_000_000_000));
    // A part of a block is one.
    tracked.set(DataType::BytesInRate, 0, 1500, at(5));
    assert_eq!(get(&tracked, DataType::BytesInRate), Some(2048));
    // With other blocks the rate goes on.
    let second = StickTable { bytes_factor: 256, ..first };
    tables.commit(tables.prepare(&[second]).unwrap());
    let other = tables.get("t").unwrap();
    assert!(!other.is(&table));
    assert_eq!(get(&other.track(&Key::from_integer(1), at(5)).unwrap(), DataType::BytesInRate), Some(2048));
    assert_eq!(get(&tracked, DataType::BytesInRate), Some(2048));
}

/// What a client's rate is by the formula of the manual, whenever it comes, whatever else is done with the table in between.
#[test]
fn rates_of_entries_follow_the_window_on_a_virtual_clock() {
    let mut runner = proptest::test_runner::TestRunner::default();
    let steps = proptest::collection::vec((0_u64..2500, 0_u64..4), 1..60);
    let checked = runner.run(&(steps, 1_u64..1500), |(steps, period)| {
        let table = table(KeyType::Integer, 100, 3_600_000, vec![rate(DataType::HttpReqRate, period)]);
        let (mut now, mut events) = (1_000_000, Vec::<(u64, u64)>::new());
        let mut start: Option<u64> = None;
        for (step, amount) in steps {
            now += step;
            let tracked = table.track(&Key::from_integer(7), at(now)).unwrap();
            tracked.add(DataType::HttpReqRate, 0, amount, at(now));
            events.push((now, amount));
            // Periods follow each other until two of them have passed without an event.
            let began = start.get_or_insert(now);
            if now >= *began + 2 * period {
                *began = now;
            } else if now >= *began + period {
                *began += period;
            }
            let (began, within) = (*began, |from: u64, to: u64| -> u64 {
                events.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, amount)| amount).sum()
            });
            for later in [0, period / 3, period, period * 3 / 2, 2 * period] {
                let read = tracked.get(DataType::HttpReqRate, 0, at(now + later)).unwrap();
                let (current, previous) = (within(began, u64::MAX), within(began.saturating_sub(period), began));
                let elapsed = now + later - began;
                let expected = match elapsed / period {
                    0 if current == 0 && previous == 1 => 1,
                    0 => current + previous * (period - elapsed) / period,
                    1 if current == 1 => 1,
                    1 => current * (2 * period - elapsed) / period,
                    _ => 0,
                };
                proptest::prop_assert_eq!(read, expected, "{} ms later, period {}", later, period);
            }
        }
        Ok(())
    });
    checked.unwrap();
}
