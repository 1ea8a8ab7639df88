//! Any bytes of a peer: no panic, the same however they are cut, no more tables, texts and output than there may be.
#![no_main]

use std::sync::Arc;

use baton_model::{DataType, KeyType, StickTable, Stored};
use baton_peers::{PeerSettings, Produced, Section, SectionSettings, Start, TableSettings};
use baton_tables::{Cursor, Now, Table};
use libfuzzer_sys::fuzz_target;

/// Bytes that a section may have to send for a byte that it received.
const AMPLIFIED_MAX: usize = 512;

fn table(name: &str, key: KeyType, data: &[(DataType, u8)]) -> StickTable {
    let mut table = StickTable::new(name, key, 100);
    let period = |data: DataType| data.name().contains("_rate").then(|| std::time::Duration::from_secs(10));
    table.stored = data
        .iter()
        .map(|(data, elements)| Stored { data: *data, elements: *elements, period: period(*data) })
        .collect();
    table
}

/// What a peer of these bytes gets, and what is learned from it.
fn hear(input: &[u8], piece: usize) -> (Vec<u8>, Vec<String>, bool) {
    let now = Now::from_millis(1_000_000);
    let settings = [
        table(
            "t",
            KeyType::String { length: 8 },
            &[(DataType::ServerId, 1), (DataType::Gpc0Rate, 1), (DataType::ServerKey, 1)],
        ),
        table("mp/u", KeyType::Ip, &[(DataType::Gpc0, 1), (DataType::Gpt, 3), (DataType::GpcRate, 2)]),
    ];
    let tables: Vec<Arc<Table>> = settings.iter().map(|table| Table::new(table).expect("memory")).collect();
    let peer = |name: &str| PeerSettings { name: name.into(), address: String::new(), shard: 0 };
    let settings = SectionSettings {
        name: "mp".into(),
        local: "a".into(),
        pid: 1,
        peers: vec![peer("a"), peer("b")],
        shards: 0,
        seed: 1,
    };
    let shared = tables
        .iter()
        .map(|table| TableSettings { table: table.clone(), write_to: None, is_continued: false })
        .collect();
    let mut section = Section::new(settings, shared, Start::Fresh, now).expect("it has a local peer");
    let link = section.accepted(now);
    let (mut out, mut is_last) = (Vec::new(), false);
    // The first byte decides whether the lines of the beginning are there.
    let (hello, rest) = match input.split_first() {
        Some((first, rest)) if first % 2 == 0 => (&b"HAProxyS 2.1\na\nb 1 1\n"[..], rest),
        _ => (&b""[..], input),
    };
    section.receive(link, hello, now);
    for bytes in rest.chunks(piece) {
        section.receive(link, bytes, now);
    }
    while !is_last {
        match section.produce(link, &mut out, now) {
            Produced::More => {}
            Produced::All => break,
            Produced::Last => is_last = true,
        }
    }
    let mut learned = Vec::new();
    for table in &tables {
        let page = table.page(&mut Cursor::default(), 1000, now);
        learned.extend(page.into_iter().map(|record| format!("{:?} {:?}", record.key, record.values)));
    }
    learned.sort();
    (out, learned, is_last)
}

fuzz_target!(|input: &[u8]| {
    let whole = hear(input, input.len().max(1));
    assert!(whole.0.len() <= 1024 + input.len() * AMPLIFIED_MAX);
    for piece in [1, 3, 7] {
        let cut = hear(input, piece);
        assert_eq!((&cut.1, cut.2), (&whole.1, whole.2), "cut in pieces of {piece}");
    }
});
