//! Sections that speak with each other over connections in memory, on a virtual clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_model::{DataType, KeyType, StickTable};
use baton_tables::{Cursor, Key, Now, Table};

use super::{Effect, LinkId, PeerSettings, Produced, Section, SectionSettings, TableSettings};
use crate::definition::tests::{hex, table};
use crate::frame::{self, Control, Frame};
use crate::resync::{Resync, Start};

/// Nodes, and the connections between them.
struct Net {
    now: u64,
    nodes: Vec<Option<Node>>,
    /// Each end, and the other one.
    wires: BTreeMap<(usize, LinkId), (usize, LinkId)>,
    /// Nodes between which nothing is connected.
    cut: Vec<(usize, usize)>,
}

struct Node {
    name: &'static str,
    section: Section,
    tables: Vec<Arc<Table>>,
}

fn tables() -> Vec<StickTable> {
    let key = KeyType::String { length: 20 };
    vec![
        table(
            "backend",
            key,
            Some(600_000),
            "server_id gpc0 conn_cur http_req_rate(10000) bytes_in_cnt server_key gpc_rate(3,5000)",
        ),
        table("mp/t1", KeyType::Ip, None, "gpt(3) gpc0_rate(1000)"),
    ]
}

fn settings(local: &str, names: &[&'static str]) -> SectionSettings {
    let peer = |name: &&'static str| PeerSettings { name: (*name).into(), address: "127.0.0.1:1".into(), shard: 0 };
    SectionSettings {
        name: "mp".into(),
        local: local.into(),
        pid: 7,
        peers: names.iter().map(peer).collect(),
        shards: 0,
        seed: local.len() as u64 + u64::from(local.as_bytes()[0]),
    }
}

fn shared(tables: &[Arc<Table>]) -> Vec<TableSettings> {
    tables.iter().map(|table| TableSettings { table: table.clone(), write_to: None, is_continued: false }).collect()
}

/// Those of the process before.
fn continued(tables: &[Arc<Table>]) -> Vec<TableSettings> {
    shared(tables).into_iter().map(|table| TableSettings { is_continued: true, ..table }).collect()
}

impl Net {
    fn new(names: &[&'static str]) -> Net {
        let mut net = Net { now: 1_000_000, nodes: Vec::new(), wires: BTreeMap::new(), cut: Vec::new() };
        for name in names {
            let tables: Vec<_> = tables().iter().map(|table| Table::new(table).expect("memory")).collect();
            let section = Section::new(settings(name, names), shared(&tables), Start::Fresh, net.now()).expect("local");
            net.nodes.push(Some(Node { name, section, tables }));
        }
        net
    }

    fn now(&self) -> Now {
        Now::from_millis(self.now)
    }

    fn node(&mut self, at: usize) -> &mut Node {
        self.nodes[at].as_mut().expect("alive")
    }

    /// Lets time pass, a tenth of a second at a time.
    fn run(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds;
        while self.now < end {
            self.now += 100;
            for at in 0..self.nodes.len() {
                let now = self.now();
                if let Some(node) = &mut self.nodes[at] {
                    node.section.drain(now);
                    node.section.tick(now);
                }
            }
            self.settle();
        }
    }

    /// Carries bytes until there are none.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.carry() {
                return;
            }
        }
        panic!("they do not come to an end");
    }

    fn carry(&mut self) -> bool {
        let mut did = false;
        let now = self.now();
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else { continue };
            for effect in node.section.effects() {
                did = true;
                match effect {
                    Effect::Close(link) => self.hang_up((at, link)),
                    Effect::Dial { link, peer } => self.connect(at, link, peer),
                }
            }
        }
        for (from, to) in self.wires.clone() {
            if !self.wires.contains_key(&from) {
                continue;
            }
            let mut bytes = Vec::new();
            let produced = self.node(from.0).section.produce(from.1, &mut bytes, now);
            did |= !bytes.is_empty() || produced == Produced::Last;
            // In pieces of odd sizes.
            for piece in bytes.chunks(1 + (self.now as usize / 100) % 97) {
                self.node(to.0).section.receive(to.1, piece, now);
            }
            if produced == Produced::Last {
                self.hang_up(from);
            }
        }
        did
    }

    fn connect(&mut self, at: usize, link: LinkId, peer: usize) {
        let now = self.now();
        let is_cut = self.cut.contains(&(at.min(peer), at.max(peer)));
        match &mut self.nodes[peer] {
            Some(other) if !is_cut => {
                let there = other.section.accepted(now);
                self.wires.insert((at, link), (peer, there));
                self.wires.insert((peer, there), (at, link));
                self.node(at).section.connected(link, now);
            }
            _ => self.node(at).section.closed(link, now),
        }
    }

    /// Closes a connection on both ends.
    fn hang_up(&mut self, end: (usize, LinkId)) {
        let now = self.now();
        let Some(other) = self.wires.remove(&end) else { return };
        self.wires.remove(&other);
        for (at, link) in [end, other] {
            if let Some(node) = &mut self.nodes[at] {
                node.section.closed(link, now);
            }
        }
    }

    /// Ends a node as a crash does.
    fn kill(&mut self, at: usize) -> Node {
        let ends: Vec<_> = self.wires.keys().filter(|(node, _)| *node == at).copied().collect();
        let node = self.nodes[at].take().expect("alive");
        ends.into_iter().for_each(|end| self.hang_up(end));
        node
    }

    fn count(&mut self, at: usize, key: &str, amount: u64) {
        let now = self.now();
        let tracked = self.node(at).tables[0].track(&Key::from_string(key.as_bytes()), now).expect("room");
        tracked.add(DataType::Gpc0, 0, amount, now);
        tracked.add(DataType::ConnCur, 0, 1, now);
        tracked.add(DataType::GpcRate, 1, amount, now);
        tracked.set_server_key("s1");
    }

    fn value(&mut self, at: usize, key: &str, data: DataType, index: u8) -> Option<u64> {
        let now = self.now();
        self.node(at).tables[0].find(&Key::from_string(key.as_bytes()), now)?.get(data, index, now)
    }

    fn gpc0(&mut self, at: usize, key: &str) -> Option<u64> {
        self.value(at, key, DataType::Gpc0, 0)
    }

    fn resync(&mut self, at: usize) -> Resync {
        self.node(at).section.resync
    }
}

#[test]
fn changes_reach_the_others() {
    let mut net = Net::new(&["a", "b", "c"]);
    net.run(1000);
    net.count(0, "k", 5);
    net.run(100);
    for at in 1..3 {
        assert_eq!(net.gpc0(at, "k"), Some(5), "{at}");
        assert_eq!(net.value(at, "k", DataType::ConnCur, 0), Some(0), "connections are each one's own");
        assert_eq!(net.value(at, "k", DataType::GpcRate, 1), Some(5));
    }
    let now = net.now();
    let tracked = net.node(2).tables[0].find(&Key::from_string(b"k"), now).expect("learned");
    assert_eq!(tracked.server_key().as_deref(), Some("s1"));
    drop(tracked);
    // The last writer wins.
    net.count(1, "k", 2);
    net.run(100);
    assert_eq!([0, 1, 2].map(|at| net.gpc0(at, "k")), [Some(7); 3]);
    // What was acknowledged is not kept.
    net.run(200);
    let node = net.node(0);
    assert!(node.section.tables.iter().all(|table| table.log.is_empty()));
    assert_eq!(node.section.peers[1].progress[0].acknowledged, node.section.tables[0].log.last());
}

#[test]
fn fresh_nodes_are_done_after_five_seconds() {
    let mut net = Net::new(&["a", "b"]);
    net.run(1000);
    assert!(matches!(net.resync(0), Resync::Remote { teacher: None, .. }));
    net.run(5500);
    assert_eq!([0, 1].map(|at| net.resync(at)), [Resync::Done; 2]);
}

#[test]
fn who_comes_later_is_taught() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    let mut gone = net.kill(1);
    for number in 0..3000 {
        net.count(0, &format!("key-{number}"), number);
    }
    net.run(100);
    let tables: Vec<_> = tables().iter().map(|table| Table::new(table).expect("memory")).collect();
    gone.section =
        Section::new(settings(gone.name, &["a", "b"]), shared(&tables), Start::Fresh, net.now()).expect("local");
    gone.tables = tables;
    net.nodes[1] = Some(gone);
    net.run(3000);
    assert_eq!(net.resync(1), Resync::Done);
    assert_eq!(net.node(1).tables[0].used(), 3000);
    assert_eq!(net.gpc0(1, "key-2999"), Some(2999));
    // What was learned is not sent on as a change, and both are equal.
    net.run(500);
    let all = |node: &Node, now| {
        let mut cursor = Cursor::default();
        let mut records: Vec<_> = node.tables[0]
            .page(&mut cursor, 10_000, now)
            .into_iter()
            .map(|record| (record.key, record.expires_ms))
            .collect();
        records.sort();
        records
    };
    let now = net.now();
    let (one, other) = (all(net.node(0), now), all(net.node(1), now));
    assert_eq!(one, other);
    assert_eq!(net.node(1).section.tables[0].log.last(), 0);
}

#[test]
fn a_cut_link_goes_on_where_it_was() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    net.count(0, "k", 1);
    net.run(100);
    net.cut.push((0, 1));
    let ends: Vec<_> = net.wires.keys().copied().collect();
    ends.into_iter().for_each(|end| net.hang_up(end));
    net.count(0, "k", 1);
    net.count(0, "l", 1);
    net.count(1, "m", 1);
    net.run(3000);
    assert_eq!(net.gpc0(1, "k"), Some(1));
    net.cut.clear();
    net.run(8000);
    assert_eq!((net.gpc0(1, "k"), net.gpc0(1, "l"), net.gpc0(0, "m")), (Some(2), Some(1), Some(1)));
    assert_eq!(net.resync(1), Resync::Done);
}

#[test]
fn a_silent_link_is_closed_and_dialled_again() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    // b no longer reads nor writes.
    let stuck = net.nodes[1].take();
    net.wires.clear();
    net.run(5500);
    let links = net.node(0).section.links.values().filter(|link| link.phase == crate::link::Phase::Open).count();
    assert_eq!((links, net.node(0).section.peers[1].counted.silences), (0, 1));
    net.nodes[1] = stuck;
    net.run(12_000);
    net.count(0, "k", 1);
    net.run(300);
    assert_eq!(net.gpc0(1, "k"), Some(1));
}

#[test]
fn the_process_before_teaches_the_next_one() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    net.count(0, "k", 4);
    net.run(100);
    // The next process, with the same name; node 2 is reached where node 0 was.
    let tables: Vec<_> = tables().iter().map(|table| Table::new(table).expect("memory")).collect();
    let next = Section::new(settings("a", &["a", "b"]), shared(&tables), Start::AfterOther, net.now()).expect("local");
    let mut old = net.nodes[0].replace(Node { name: "a", section: next, tables }).expect("alive");
    net.wires.clear();
    let now = net.now();
    old.section.end(true, now);
    old.section.effects();
    net.nodes.push(Some(old));
    let (dialled, there) =
        (*net.node(2).section.links.keys().next_back().expect("dialled"), net.node(0).section.accepted(now));
    net.wires.insert((2, dialled), (0, there));
    net.wires.insert((0, there), (2, dialled));
    net.node(2).section.connected(dialled, now);
    net.settle();
    assert_eq!((net.resync(0), net.gpc0(0, "k")), (Resync::Done, Some(4)));
    net.run(600);
    assert!(net.node(2).section.is_ended());
}

#[test]
fn who_ends_sends_what_changed() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    net.count(0, "k", 3);
    let now = net.now();
    // Nobody takes over.
    net.cut.push((0, 0));
    net.node(0).section.end(true, now);
    net.settle();
    assert_eq!(net.gpc0(1, "k"), Some(3));
    assert!(!net.node(0).section.is_ended());
    net.run(2500);
    assert!(net.node(0).section.is_ended());
}

#[test]
fn the_next_process_sends_what_was_not_heard() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    net.count(0, "k", 1);
    net.run(300);
    // The peer is away.
    net.cut.push((0, 1));
    let ends: Vec<_> = net.wires.keys().copied().collect();
    ends.into_iter().for_each(|end| net.hang_up(end));
    net.count(0, "l", 2);
    net.run(100);
    let now = net.now();
    let node = net.node(0);
    node.section.end(false, now);
    node.section.give_back();
    let tables = node.tables.clone();
    node.section = Section::new(settings("a", &["a", "b"]), continued(&tables), Start::AfterOther, now).expect("local");
    assert_eq!(net.resync(0), Resync::Done);
    net.count(0, "m", 3);
    net.cut.clear();
    net.run(9000);
    assert_eq!((net.gpc0(1, "l"), net.gpc0(1, "m")), (Some(2), Some(3)));
    assert_eq!(net.node(0).section.tables[0].log.last(), 2, "nothing else was sent again");
}

#[test]
fn a_changed_section_goes_on_with_what_peers_have() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    net.count(0, "k", 1);
    net.run(200);
    net.count(0, "l", 1);
    let now = net.now();
    let tables = net.node(0).tables.clone();
    let next = Section::new(settings("a", &["a", "b"]), continued(&tables), Start::Fresh, now).expect("local");
    let mut old = std::mem::replace(&mut net.node(0).section, next);
    old.drain(now);
    old.close_all(now);
    let ends: Vec<_> = net.wires.keys().filter(|(node, _)| *node == 1).copied().collect();
    net.wires.clear();
    for (_, link) in ends {
        net.node(1).section.closed(link, now);
    }
    net.node(0).section.succeed(old, now);
    assert_eq!(net.resync(0), Resync::Done);
    assert_eq!(net.node(0).section.tables[0].log.last(), 2);
    net.run(6000);
    assert_eq!(net.gpc0(1, "l"), Some(1));
}

/// A section that speaks with a peer of bytes.
struct Alone {
    section: Section,
    link: LinkId,
    table: Arc<Table>,
    now: Now,
}

impl Alone {
    fn new(hello: &str) -> Alone {
        Alone::of(&table("t", KeyType::Ip, Some(60_000), "gpc0 conn_cur server_key"), hello)
    }

    fn of(table: &StickTable, hello: &str) -> Alone {
        let now = Now::from_millis(5_000_000);
        let table = Table::new(table).expect("memory");
        let tables = continued(std::slice::from_ref(&table));
        let mut section = Section::new(settings("hA", &["hA", "hB", "hC"]), tables, Start::Fresh, now).expect("local");
        let link = section.accepted(now);
        section.receive(link, hello.as_bytes(), now);
        Alone { section, link, table, now }
    }

    fn opened() -> Alone {
        let mut alone = Alone::new("HAProxyS 2.1\nhA\nhB 1 1\n");
        assert_eq!(alone.sent(), (b"200\n\0\x04".to_vec(), Produced::All));
        alone
    }

    fn sent(&mut self) -> (Vec<u8>, Produced) {
        let mut out = Vec::new();
        let produced = self.section.produce(self.link, &mut out, self.now);
        (out, produced)
    }

    fn hears(&mut self, bytes: &str) -> &mut Alone {
        self.section.receive(self.link, &hex(bytes), self.now);
        self
    }

    fn gpc0(&self) -> Option<u64> {
        self.table.find(&Key::from_ip([127, 0, 0, 1].into()), self.now)?.get(DataType::Gpc0, 0, self.now)
    }
}

#[test]
fn a_dialler_is_answered_as_by_haproxy() {
    let check = |hello: &str, answer: &str, produced| {
        let mut alone = Alone::new(hello);
        let (bytes, end) = alone.sent();
        assert_eq!((String::from_utf8_lossy(&bytes).as_ref(), end), (answer, produced), "{hello:?}");
    };
    check("HAProxyS 2.1\nhA\nhB 1 1\n", "200\n\0\x04", Produced::All);
    check("HAProxyS 2.1\nhB\n", "503\n", Produced::Last);
    check("HAProxyS 2.1\nhA\nhX 1 1\n", "504\n", Produced::Last);
    check("HAProxyS 2.2\n", "502\n", Produced::Last);
    check("x\n", "501\n", Produced::Last);
    check("HAProxyS 2.1\nhA\n", "", Produced::All);
}

#[test]
fn updates_are_taken_and_acknowledged() {
    let mut alone = Alone::opened();
    // gpc0 alone: definition without a time.
    alone.hears("0a8206 09 0174 0404 04").hears("0a8009 00000007 7f000001 05");
    assert_eq!(alone.gpc0(), Some(5));
    assert_eq!(alone.sent().0, hex("0a8405 09 00000007"));
    // The next one, and a lower number.
    alone.hears("0a8105 7f000001 06");
    assert_eq!(alone.sent().0, hex("0a8405 09 00000008"));
    alone.hears("0a8009 00000002 7f000001 08");
    assert_eq!((alone.gpc0(), alone.sent().0), (Some(8), hex("0a8405 09 00000002")));
    // Timed: no longer than the table's own time.
    alone.hears("0a850d 00000003 3b9aca00 7f000001 09");
    let expires = alone
        .table
        .find(&Key::from_ip([127, 0, 0, 1].into()), alone.now)
        .and_then(|tracked| tracked.remaining(alone.now));
    assert_eq!((alone.gpc0(), expires), (Some(9), Some(60_000)));
    // Another table, then a switch back.
    let _ = alone.sent();
    alone.hears("0a8206 05 0175 0404 04").hears("0a8009 00000009 7f000001 44");
    assert_eq!((alone.gpc0(), alone.sent().0), (Some(9), Vec::new()));
    alone.hears("0a8301 09").hears("0a8009 00000009 7f000001 45");
    assert_eq!((alone.gpc0(), alone.sent().0), (Some(0x45), hex("0a8405 09 00000009")));
    // A switch to a number that was never defined, and an update before any definition.
    alone.hears("0a8301 33").hears("0a8009 0000000a 7f000001 46");
    assert_eq!(alone.gpc0(), Some(0x45));
    let mut fresh = Alone::opened();
    fresh.hears("0a8009 0000000a 7f000001 46");
    assert_eq!((fresh.gpc0(), fresh.sent()), (None, (Vec::new(), Produced::All)));
}

#[test]
fn what_breaks_the_rules_ends_the_link() {
    let check = |bytes: &str, error: &str| {
        let mut alone = Alone::opened();
        alone.hears("0a8206 09 0174 0404 04").hears(bytes);
        assert_eq!(alone.sent(), (hex(error), Produced::Last), "{bytes}");
        // Nothing of what follows is read.
        alone.hears("0a8009 00000007 7f000001 05");
        assert_eq!(alone.gpc0(), None);
    };
    check("ff01", "0100");
    check("0a80 f1f107", "0101");
    check("0a80 ffffffffff", "0100");
    check("0a8007 00000007 7f0000", "0100");
    check("0a8202 0100", "0100");
    check("0a8300", "0100");
    check("0a8401 01", "0100");
    let skipped = |bytes: &str| {
        let mut alone = Alone::opened();
        alone.hears(bytes);
        assert_eq!(alone.sent(), (Vec::new(), Produced::All), "{bytes}");
    };
    skipped("0100");
    skipped("0063");
    skipped("07c8 02 0000");
    skipped("0a8405 07 00000001");
}

#[test]
fn a_peer_that_does_not_read_is_closed() {
    let mut alone = Alone::opened();
    for _ in 0..200_000 {
        alone.hears("0001");
    }
    assert_eq!(alone.section.effects(), [Effect::Close(alone.link)]);
}

#[test]
fn dictionary_numbers_are_bounded() {
    let mut alone = Alone::opened();
    let definition = {
        let mut out = Vec::new();
        let table = table("t", KeyType::Ip, None, "gpc0 server_key");
        frame::write_definition(&mut out, &crate::definition::payload(9, "t", &table));
        out
    };
    let (link, now) = (alone.link, alone.now);
    alone.section.receive(link, &definition, now);
    alone.hears("0a800e 00000001 7f000001 05 04 01 02 7331");
    let key = |alone: &Alone| alone.table.find(&Key::from_ip([127, 0, 0, 1].into()), alone.now)?.server_key();
    assert_eq!(key(&alone).as_deref(), Some("s1"));
    // A number without a text: what is there stays.
    alone.hears("0a800b 00000002 7f000001 05 01 07");
    assert_eq!(key(&alone).as_deref(), Some("s1"));
    let _ = alone.sent();
    alone.hears("0a800e 00000003 7f000001 05 04 81 02 7332");
    assert_eq!(alone.sent().0, hex("0100"));
}

#[test]
fn acknowledgements_out_of_range_are_none() {
    let mut alone = Alone::opened();
    for last in 1..=6 {
        let tracked = alone.table.track(&Key::from_ip([10, 0, 0, last].into()), alone.now).expect("room");
        tracked.add(DataType::Gpc0, 0, 1, alone.now);
    }
    alone.section.drain(alone.now);
    let bytes = alone.sent().0;
    assert!(bytes.len() > 6 * 10);
    let acknowledged = |alone: &Alone| alone.section.peers[1].progress[0].acknowledged;
    alone.hears("0a8405 01 06000000");
    assert_eq!(acknowledged(&alone), 0);
    alone.hears("0a8405 01 00000005");
    assert_eq!(acknowledged(&alone), 5);
    alone.hears("0a8405 01 00000003");
    assert_eq!(acknowledged(&alone), 5);
    // The rest goes over the next link.
    let (link, now) = (alone.link, alone.now);
    alone.section.closed(link, now);
    alone.link = alone.section.accepted(now);
    alone.section.receive(alone.link, b"HAProxyS 2.1\nhA\nhB 1 1\n", now);
    let bytes = alone.sent().0;
    assert_eq!(frames(&bytes[4..]), ["heartbeat", "definition", "update 6"]);
}

fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((frame, length)) = frame::next(bytes).expect("ours") {
        all.push(match frame {
            Frame::Control(Control::Heartbeat) => "heartbeat".into(),
            Frame::Control(Control::Finished) => "finished".into(),
            Frame::Control(control) => format!("{control:?}"),
            Frame::Definition(_) => "definition".into(),
            Frame::Update { form, payload } => {
                let number = u32::from_be_bytes(payload[..4].try_into().expect("four"));
                format!("{} {number}", if form.is_timed { "timed" } else { "update" })
            }
            Frame::Acknowledgement(_) => "ack".into(),
            Frame::Switch(_) | Frame::Other => "?".into(),
        });
        bytes = &bytes[length..];
    }
    all
}

#[test]
fn a_lesson_is_taught_and_confirmed() {
    let check = |minor: u8, update: &str| {
        let mut alone = Alone::new(&format!("HAProxyS 2.{minor}\nhA\nhB 1 1\n"));
        let _ = alone.sent();
        let count = |alone: &Alone, last| {
            let tracked = alone.table.track(&Key::from_ip([10, 0, 0, last].into()), alone.now).expect("room");
            tracked.add(DataType::Gpc0, 0, 1, alone.now);
        };
        count(&alone, 1);
        count(&alone, 2);
        alone.hears("0000");
        let update = format!("{update} {}", (1_u32 << 31) + 2);
        assert_eq!(frames(&alone.sent().0), ["definition", &update, &update, "finished"]);
        // Live updates wait for the confirmation, and what was taught is not sent again.
        count(&alone, 3);
        alone.section.drain(alone.now);
        assert_eq!(alone.sent().0, b"");
        alone.hears("0003");
        assert_eq!(frames(&alone.sent().0), ["update 3"]);
    };
    check(1, "timed");
    check(0, "update");
}

#[test]
fn what_is_only_received_is_not_sent() {
    let mut settings = table("t", KeyType::Ip, None, "gpc0 conn_cur");
    settings.recv_only = true;
    let mut alone = Alone::of(&settings, "HAProxyS 2.1\nhA\nhB 1 1\n");
    let _ = alone.sent();
    alone.hears("0a8206 09 0174 0404 44").hears("0a800a 00000001 7f000001 05 09");
    let tracked = alone.table.find(&Key::from_ip([127, 0, 0, 1].into()), alone.now).expect("learned");
    assert_eq!(tracked.get(DataType::ConnCur, 0, alone.now), Some(9));
    tracked.add(DataType::Gpc0, 0, 1, alone.now);
    drop(tracked);
    alone.section.drain(alone.now);
    alone.hears("0000");
    assert_eq!(frames(&alone.sent().0), ["ack", "finished"]);
}

#[test]
fn peers_of_a_shard_get_their_keys() {
    let mut alone = Alone::opened();
    alone.section.settings.shards = 3;
    alone.section.settings.peers[1].shard = 2;
    for last in 0..60 {
        let tracked = alone.table.track(&Key::from_ip([10, 0, 0, last].into()), alone.now).expect("room");
        tracked.add(DataType::Gpc0, 0, 1, alone.now);
    }
    alone.section.drain(alone.now);
    let sent = frames(&alone.sent().0).len() - 1;
    assert!((5..40).contains(&sent), "{sent}");
    // What HAProxy 3.5 pushed to shard 2 of 3 is not known here; the sum over all shards is all.
    let mut all = sent;
    for shard in [1, 3] {
        let mut other = Alone::opened();
        other.section.settings.shards = 3;
        other.section.settings.peers[1].shard = shard;
        for last in 0..60 {
            other.table.track(&Key::from_ip([10, 0, 0, last].into()), other.now).expect("room").add(
                DataType::Gpc0,
                0,
                1,
                other.now,
            );
        }
        other.section.drain(other.now);
        all += frames(&other.sent().0).len() - 1;
    }
    assert_eq!(all, 60);
}

#[test]
fn write_to_copies_tags_and_servers() {
    let now = Now::from_millis(9_000_000);
    let main = Table::new(&table("t", KeyType::Ip, None, "gpt0 gpc0")).expect("memory");
    let copy = Table::new(&table("u", KeyType::Ip, None, "gpt0 gpc0")).expect("memory");
    let tables = vec![TableSettings { table: main.clone(), write_to: Some(copy.clone()), is_continued: true }];
    let mut section = Section::new(settings("hA", &["hA", "hB"]), tables, Start::Fresh, now).expect("local");
    let link = section.accepted(now);
    section.receive(link, b"HAProxyS 2.1\nhA\nhB 1 1\n", now);
    section.receive(link, &hex("0a8206 09 0174 0404 06 0a800a 00000001 7f000001 05 09"), now);
    let value = |table: &Arc<Table>, data| table.find(&Key::from_ip([127, 0, 0, 1].into()), now)?.get(data, 0, now);
    assert_eq!((value(&main, DataType::Gpt0), value(&main, DataType::Gpc0)), (Some(5), Some(9)));
    assert_eq!((value(&copy, DataType::Gpt0), value(&copy, DataType::Gpc0)), (Some(5), Some(0)));
}

#[test]
fn a_refused_hello_is_tried_again() {
    let now = Now::from_millis(1_000_000);
    let mut section = Section::new(settings("a", &["a", "b"]), Vec::new(), Start::Fresh, now).expect("local");
    section.tick(now);
    let dialled = |section: &mut Section| match section.effects()[..] {
        [Effect::Dial { link, peer: 1 }] => link,
        ref other => panic!("{other:?}"),
    };
    let link = dialled(&mut section);
    section.connected(link, now);
    let mut out = Vec::new();
    section.produce(link, &mut out, now);
    assert_eq!(out, b"HAProxyS 2.1\nb\na 7 1\n");
    section.receive(link, b"502\n", now);
    assert_eq!(section.effects(), [Effect::Close(link)]);
    // An older version.
    let later = Now::from_millis(1_005_000);
    section.tick(later);
    let link = dialled(&mut section);
    section.connected(link, later);
    let mut out = Vec::new();
    section.produce(link, &mut out, later);
    assert!(out.starts_with(b"HAProxyS 2.0\n"));
    section.receive(link, b"503\n", later);
    let _ = section.effects();
    section.tick(Now::from_millis(1_019_999));
    assert_eq!(section.effects(), []);
    section.tick(Now::from_millis(1_020_000));
    dialled(&mut section);
}

#[test]
fn operators_see_all_of_it() {
    let mut net = Net::new(&["a", "b"]);
    net.run(7000);
    net.count(0, "k", 1);
    net.run(100);
    let now = net.now();
    let shown = super::Shown { date: "27/Nov/2026:10:56:21", with_texts: true, place: 0 };
    let text = net.node(0).section.show(shown, now);
    let has = |part: &str| assert!(text.contains(part), "{part}: {text}");
    has("0x1000000: [27/Nov/2026:10:56:21] id=mp disabled=0 flags=0x11 resync_timeout=<PAST> task_calls=");
    has("id=b(remote,active) addr=127.0.0.1:1 last_status=ESTA last_hdshk=");
    has("id=a(local,inactive) addr=127.0.0.1:1 last_status=NONE last_hdshk=<NEVER>");
    has("last_acked=1 last_pushed=1 last_get=0 teaching_origin=0 update=0");
    has("id=backend update=1 localupdate=1 commitupdate=1 refcnt=1");
    has("            1 -> s1\n");
    has("            0 -> -    1 -> -    2 -> -    3 -> -\n");
}
