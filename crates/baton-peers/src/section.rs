//! A `peers` section at work: its peers, its tables, the links between them, and what is waited for. Without I/O and clock: the caller opens
//! and closes connections as the [`Effect`]s say, brings bytes and time, and takes bytes away.
//!
//! `receive` is what comes in, `produce` what goes out, `show` what operators see.

mod produce;
mod receive;
mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_model::DataType;
use baton_tables::{EntryId, Now, Table, Value};
use twox_hash::XxHash64;

use crate::definition;
use crate::frame::{self, Control};
use crate::hello::MINOR_MAX;
use crate::link::{Lesson, Link, Phase, Progress};
use crate::log::UpdateLog;
use crate::resync::{Resync, Start};

pub use self::produce::Produced;
pub use self::receive::INPUT_MAX;
pub use self::show::Shown;

/// Silence after which a heartbeat is sent.
const HEARTBEAT_MS: u64 = 3000;
/// Silence after which the other side is taken for dead.
const SILENCE_MS: u64 = 5000;
/// How long lines of the beginning may take.
const GREETING_MS: u64 = 5000;
/// A peer is dialled again so long after it was dialled, or its last heartbeat.
const REDIAL_MS: u64 = 5000;
/// After a refusal that will not go away by itself.
const REFUSED_MS: u64 = 15_000;
/// After a link was replaced or died: at random, so that two sides do not dial at the same time for ever.
const REDIAL_RANDOM_MS: (u64, u64) = (50, 2050);
/// The process that takes over is dialled again after this.
const SUCCESSOR_MS: u64 = 500;
/// And for so long, if it does not answer.
const SUCCESSOR_FOR_MS: u64 = 2500;
/// Peers that do not take what changed until the end within this time do not get it.
const FLUSH_MS: u64 = 500;
/// Nobody is dialled so long by a process whose tables are those of one before, which sends what is left meanwhile.
const PREDECESSOR_MS: u64 = 700;
/// Changes of a table that are looked at in one go.
const CHANGES_MAX: usize = 16_384;
/// Changes that are kept without a look at whether their entries are still there.
const CHANGES_UNCHECKED: usize = 65_536;

/// A connection, for as long as it lives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub u64);

/// What a section begins with.
#[derive(Clone, Debug)]
pub struct SectionSettings {
    /// Its name.
    pub name: Arc<str>,
    /// This process's name in it, which is one of the peers'.
    pub local: Arc<str>,
    /// The PID that other peers see.
    pub pid: u32,
    /// All its peers, the local one too, in the order of the configuration.
    pub peers: Vec<PeerSettings>,
    /// `shards`: 0 where entries are not spread.
    pub shards: u32,
    /// For delays at random.
    pub seed: u64,
}

/// A peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerSettings {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is, for operators.
    pub address: String,
    /// `shard`: it gets these entries only; 0: all.
    pub shard: u32,
}

/// A table that is shared.
#[derive(Clone, Debug)]
pub struct TableSettings {
    /// Its contents.
    pub table: Arc<Table>,
    /// `write-to`: this one takes what peers send, too.
    pub write_to: Option<Arc<Table>>,
    /// Its contents are those of the process before: nothing of it has to be learned.
    pub is_continued: bool,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Open a connection to this peer, by its place among [`SectionSettings::peers`].
    Dial {
        /// Its name from now on.
        link: LinkId,
        /// The peer.
        peer: usize,
    },
    /// Close a connection at once; it is not known any more.
    Close(LinkId),
}

/// A `peers` section as a state machine: links, lessons and live updates, without I/O and without a clock.
#[derive(Debug)]
pub struct Section {
    settings: SectionSettings,
    local: usize,
    peers: Vec<Peer>,
    tables: Vec<SharedTable>,
    links: BTreeMap<LinkId, Link>,
    link_last: u64,
    resync: Resync,
    /// Shards of which a peer has taught all that it has.
    shards_learned: Vec<u32>,
    life: Life,
    /// Links with other peers are closed then, of a process that ends.
    flush_until: Option<u64>,
    effects: Vec<Effect>,
    random: u64,
    /// How often it was looked at whether time alone makes something happen.
    ticks: u64,
    /// Memory for values that are read, and for payloads that are written.
    values: Vec<(DataType, u8, Value)>,
    payload: Vec<u8>,
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Life {
    Serving,
    /// Nobody is dialled before this.
    Waiting {
        until: u64,
    },
    /// Another program's process takes over: it is dialled, and taught.
    Teaching {
        /// Not longer than this without a connection.
        until: u64,
        dial_at: u64,
    },
    /// Nothing is done any more.
    Ended,
}

/// A peer, across links.
#[derive(Debug)]
struct Peer {
    link: Option<LinkId>,
    /// It knows the protocol up to this.
    minor: u32,
    redial_at: u64,
    /// It has taught, and said that it may not know all.
    is_partial: bool,
    /// By table.
    progress: Vec<Pushed>,
    counted: Counted,
}

/// How far a peer is with the changes of a table.
#[derive(Clone, Copy, Debug, Default)]
struct Pushed {
    acknowledged: u64,
    pushed: u64,
}

/// For operators.
#[derive(Clone, Debug, Default)]
struct Counted {
    status: Option<LastStatus>,
    handshake: Option<u64>,
    heartbeat: Option<u64>,
    heartbeats_sent: u64,
    heartbeats_received: u64,
    silences: u64,
    connections: u64,
    violations: u64,
    collisions: u64,
}

/// What became of the last attempt to open a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LastStatus {
    Connecting,
    Code(u32),
    /// It ended before the acceptor's line.
    NoStatus,
    Established,
    Lost,
}

#[derive(Debug)]
struct SharedTable {
    table: Arc<Table>,
    write_to: Option<Arc<Table>>,
    /// Its name for other peers.
    wire_name: String,
    /// Its definition under its number, which is its place and one.
    definition: Vec<u8>,
    log: UpdateLog<EntryId>,
    /// What decides about shards besides keys.
    shard_seed: u64,
    /// `recv-only`.
    is_received_only: bool,
    /// Its contents are those of before: lessons do not replace them.
    is_settled: bool,
    /// The next look at which changed entries are still there.
    checked_at: usize,
}

impl SharedTable {
    fn new(settings: TableSettings, section: &str, place: usize) -> SharedTable {
        let TableSettings { table, write_to, is_continued } = settings;
        let configured = table.settings();
        let name = configured.name.clone();
        let own = name.strip_prefix(section).filter(|rest| rest.starts_with('/'));
        let wire_name = own.map_or_else(|| name.to_string(), str::to_owned);
        table.follow_changes();
        SharedTable {
            definition: definition::payload(place as u64 + 1, &wire_name, &configured),
            wire_name,
            log: UpdateLog::default(),
            shard_seed: XxHash64::oneshot(0, name.as_bytes()),
            is_received_only: configured.recv_only,
            is_settled: is_continued,
            checked_at: CHANGES_UNCHECKED,
            table,
            write_to,
        }
    }
}

impl Section {
    /// A section that begins now. `None`: it has no peer of the local name.
    pub fn new(settings: SectionSettings, tables: Vec<TableSettings>, start: Start, now: Now) -> Option<Section> {
        let now = now.as_millis();
        let local = settings.peers.iter().position(|peer| peer.name == settings.local)?;
        let shared = |(place, table)| SharedTable::new(table, &settings.name, place);
        let tables: Vec<_> = tables.into_iter().enumerate().map(shared).collect();
        let peer = |_| Peer {
            link: None,
            minor: MINOR_MAX,
            redial_at: now,
            is_partial: false,
            progress: vec![Pushed::default(); tables.len()],
            counted: Counted::default(),
        };
        // Contents that are all there need no teacher. The process before has its links for a moment still.
        let is_continued = !tables.is_empty() && tables.iter().all(|table| table.is_settled);
        let life = if is_continued { Life::Waiting { until: now + PREDECESSOR_MS } } else { Life::Serving };
        let mut section = Section {
            local,
            peers: settings.peers.iter().map(peer).collect(),
            links: BTreeMap::new(),
            link_last: 0,
            resync: if is_continued { Resync::Done } else { Resync::new(start, now) },
            shards_learned: Vec::new(),
            life,
            flush_until: None,
            effects: Vec::new(),
            random: settings.seed,
            ticks: 0,
            values: Vec::new(),
            payload: Vec::new(),
            settings,
            tables,
        };
        section.settle_resync();
        Some(section)
    }

    /// Goes on from a section whose configuration this one replaces: what peers have of its tables, and what it has learned, stays. Links of the
    /// old one are closed by the caller.
    pub fn succeed(&mut self, before: Section, now: Now) {
        let Section { settings, peers, tables, resync, .. } = before;
        let same_peer = |peer: &PeerSettings| settings.peers.iter().position(|other| other.name == peer.name);
        let same_peers: Vec<_> = self.settings.peers.iter().map(same_peer).collect();
        for (place, table) in tables.into_iter().enumerate() {
            let Some(at) = self.tables.iter().position(|own| own.table.is(&table.table)) else { continue };
            for (peer, other) in self.peers.iter_mut().zip(&same_peers) {
                if let Some(known) = other.and_then(|other| peers[other].progress.get(place)) {
                    peer.progress[at] = Pushed { pushed: known.acknowledged, ..*known };
                }
            }
            self.tables[at].log = table.log;
            self.tables[at].is_settled = resync == Resync::Done;
        }
        let is_all_known = self.tables.iter().all(|table| table.is_settled);
        self.resync = if is_all_known { Resync::Done } else { Resync::remote(now.as_millis()) };
        self.settle_resync();
    }

    /// What it was made of.
    pub fn settings(&self) -> &SectionSettings {
        &self.settings
    }

    /// Gives changes that did not reach every peer back to the tables, for the process that has them from now on. A peer that never was there
    /// begins with a lesson.
    pub fn give_back(&mut self) {
        for (place, shared) in self.tables.iter_mut().enumerate() {
            let known = self.peers.iter().map(|peer| peer.progress[place].acknowledged).filter(|number| *number > 0);
            let Some(least) = known.min() else { continue };
            for (_, id) in shared.log.entries().filter(|(number, _)| *number > least) {
                shared.table.give_back(id);
            }
        }
    }

    /// Whether anything is shared.
    pub fn shares_anything(&self) -> bool {
        !self.tables.is_empty()
    }

    /// Whether these are its tables, with the settings that they have now.
    pub fn has_tables(&self, tables: &[TableSettings]) -> bool {
        let is_same = |one: &Option<Arc<Table>>, other: &Option<Arc<Table>>| match (one, other) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let pairs = self.tables.iter().zip(tables).enumerate();
        let all_same = |(place, (shared, settings)): (usize, (&SharedTable, &TableSettings))| {
            let configured = settings.table.settings();
            shared.table.is(&settings.table)
                && is_same(&shared.write_to, &settings.write_to)
                && shared.is_received_only == configured.recv_only
                && shared.definition == definition::payload(place as u64 + 1, &shared.wire_name, &configured)
        };
        self.tables.len() == tables.len() && pairs.into_iter().all(all_same)
    }

    /// Peers with a connection, in whatever state, and those with a session.
    pub fn sessions(&self) -> (usize, usize) {
        let of_peers = self.links.values().filter(|link| link.peer.is_some());
        let open = of_peers.clone().filter(|link| link.phase == Phase::Open);
        (of_peers.count(), open.count())
    }

    /// What has to be done since the last call.
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A connection was accepted.
    pub fn accepted(&mut self, now: Now) -> LinkId {
        let link = Link::new(None, Phase::AwaitHello, self.tables.len(), now.as_millis());
        self.add(link)
    }

    /// A connection that was dialled is open.
    pub fn connected(&mut self, id: LinkId, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(peer) = link.peer else { return };
        link.enter(Phase::AwaitStatus, now.as_millis());
        let target = &self.settings.peers[peer].name;
        link.session.minor = self.peers[peer].minor;
        let SectionSettings { local, pid, .. } = &self.settings;
        let hello = crate::hello::hello(self.peers[peer].minor, target, local, *pid);
        link.output.extend_from_slice(hello.as_bytes());
    }

    /// A connection ended, or could not be opened.
    pub fn closed(&mut self, id: LinkId, now: Now) {
        self.forget(id, now.as_millis());
    }

    /// Whether all is done that [`Section::end`] leaves to do.
    pub fn is_ended(&self) -> bool {
        self.life == Life::Ended && self.links.is_empty()
    }

    /// The process ends. What changed until now is sent to other peers, and their links are closed. If it `teaches`, and another process listens
    /// at its address under its name, that one is taught all there is; otherwise the tables themselves go to the next process.
    pub fn end(&mut self, teaches: bool, now: Now) {
        self.drain(now);
        let now = now.as_millis();
        let is_done = self.resync == Resync::Done && !self.tables.is_empty();
        self.life = match teaches && is_done {
            true => Life::Teaching { until: now + SUCCESSOR_FOR_MS, dial_at: now },
            false => Life::Ended,
        };
        self.flush_until = Some(now + FLUSH_MS);
        self.close_if(now, |link, local| link.phase != Phase::Open || link.peer == Some(local));
        self.tick_at(now);
    }

    /// Closes all links at once.
    pub fn close_all(&mut self, now: Now) {
        self.close_all_at(now.as_millis());
    }

    fn close_all_at(&mut self, now: u64) {
        self.close_if(now, |_, _| true);
    }

    fn close_if(&mut self, now: u64, is_over: impl Fn(&Link, usize) -> bool) {
        let over = self.links.iter().filter(|(_, link)| is_over(link, self.local));
        let over: Vec<LinkId> = over.map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.close(id, now));
    }

    /// Takes notice of changed entries. Gives whether there were any.
    pub fn drain(&mut self, now: Now) -> bool {
        if matches!(self.life, Life::Teaching { .. } | Life::Ended) {
            // It is another process's business by now.
            return false;
        }
        let mut is_changed = false;
        for (place, shared) in self.tables.iter_mut().enumerate() {
            let changed = shared.table.take_changed(CHANGES_MAX);
            if !shared.is_received_only {
                is_changed |= !changed.is_empty();
                changed.into_iter().for_each(|id| shared.log.note(id));
            }
            let remote = self.peers.iter().enumerate().filter(|(at, _)| *at != self.local);
            let least = remote.map(|(_, peer)| peer.progress[place].acknowledged).min();
            shared.log.forget(least.unwrap_or(u64::MAX));
            if shared.log.len() > shared.checked_at {
                shared.log.retain(|id| shared.table.read(id, now).is_some());
                shared.checked_at = 2 * shared.log.len() + CHANGES_UNCHECKED;
            }
        }
        is_changed
    }

    /// When time alone makes something happen; see [`Section::tick`].
    pub fn due(&self) -> u64 {
        let links = self.links.values().map(|link| match link.phase {
            Phase::Open if Some(self.local) == link.peer => link.heard + 2 * SILENCE_MS,
            Phase::Open => (link.heard + SILENCE_MS).min(link.said + HEARTBEAT_MS),
            Phase::Connecting => u64::MAX,
            Phase::AwaitHello | Phase::AwaitStatus | Phase::Ending => link.since + GREETING_MS,
        });
        let dials = self.peers.iter().enumerate().filter(|(at, peer)| *at != self.local && peer.link.is_none());
        let dials = dials.map(|(_, peer)| peer.redial_at).min();
        let life = match self.life {
            Life::Serving => dials.into_iter().chain(self.resync.due()).min(),
            Life::Waiting { until } => Some(until),
            Life::Teaching { until, dial_at } => {
                Some(if self.peers[self.local].link.is_none() { until.min(dial_at) } else { u64::MAX })
            }
            Life::Ended => None,
        };
        links.chain(life).chain(self.flush_until).min().unwrap_or(u64::MAX)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.tick_at(now.as_millis());
    }

    fn tick_at(&mut self, now: u64) {
        self.ticks += 1;
        self.watch_links(now);
        if self.flush_until.is_some_and(|until| until <= now) {
            self.flush_until = None;
            self.close_if(now, |link, local| link.peer != Some(local));
        }
        match self.life {
            Life::Waiting { until } if until <= now => self.life = Life::Serving,
            Life::Teaching { until, .. } if until <= now && self.peers[self.local].link.is_none() => {
                self.life = Life::Ended
            }
            Life::Teaching { until, dial_at } if dial_at <= now && self.peers[self.local].link.is_none() => {
                self.life = Life::Teaching { until, dial_at: now + SUCCESSOR_MS };
                self.dial(self.local, now);
            }
            Life::Waiting { .. } | Life::Teaching { .. } | Life::Serving | Life::Ended => {}
        }
        if self.life != Life::Serving {
            return;
        }
        for peer in 0..self.peers.len() {
            if peer != self.local && self.peers[peer].link.is_none() && self.peers[peer].redial_at <= now {
                self.peers[peer].redial_at = now + REDIAL_MS;
                self.dial(peer, now);
            }
        }
        let next = self.resync.tick(now);
        if next != self.resync {
            self.resync = next;
            self.settle_resync();
        }
    }

    /// Heartbeats, and links that are silent.
    fn watch_links(&mut self, now: u64) {
        let mut dead = Vec::new();
        for (id, link) in &mut self.links {
            let is_local = link.peer == Some(self.local);
            match link.phase {
                Phase::Open if link.heard + SILENCE_MS * (1 + u64::from(is_local)) <= now => dead.push(*id),
                Phase::Open if !is_local && link.said + HEARTBEAT_MS <= now => {
                    frame::write_control(&mut link.output, Control::Heartbeat);
                    link.said = now;
                    if let Some(peer) = link.peer {
                        self.peers[peer].counted.heartbeats_sent += 1;
                    }
                }
                Phase::AwaitHello | Phase::AwaitStatus | Phase::Ending if link.since + GREETING_MS <= now => {
                    dead.push(*id)
                }
                Phase::Open | Phase::Connecting | Phase::AwaitHello | Phase::AwaitStatus | Phase::Ending => {}
            }
        }
        for id in dead {
            let link = self.links.get(&id);
            let peer = link.filter(|link| link.phase == Phase::Open).and_then(|link| link.peer);
            self.close(id, now);
            if let Some(peer) = peer {
                self.peers[peer].counted.silences += 1;
                self.peers[peer].redial_at = now + self.random_delay();
            }
        }
    }

    fn dial(&mut self, peer: usize, now: u64) {
        let id = self.add(Link::new(Some(peer), Phase::Connecting, self.tables.len(), now));
        self.peers[peer].link = Some(id);
        self.peers[peer].counted.status = Some(LastStatus::Connecting);
        self.peers[peer].counted.handshake = Some(now);
        self.peers[peer].counted.connections += 1;
        self.effects.push(Effect::Dial { link: id, peer });
    }

    fn add(&mut self, link: Link) -> LinkId {
        self.link_last += 1;
        let id = LinkId(self.link_last);
        self.links.insert(id, link);
        id
    }

    /// Closes a connection at once.
    fn close(&mut self, id: LinkId, now: u64) {
        if self.links.contains_key(&id) {
            self.effects.push(Effect::Close(id));
            self.forget(id, now);
        }
    }

    /// A connection is gone.
    fn forget(&mut self, id: LinkId, now: u64) {
        let Some(link) = self.links.remove(&id) else { return };
        let Some(peer) = link.peer.filter(|peer| self.peers[*peer].link == Some(id)) else { return };
        let known = &mut self.peers[peer];
        known.link = None;
        // What was not acknowledged is sent again over the next link.
        for progress in &mut known.progress {
            progress.pushed = progress.acknowledged;
        }
        match link.phase {
            Phase::Open => known.counted.status = Some(LastStatus::Lost),
            Phase::AwaitStatus => known.counted.status = Some(LastStatus::NoStatus),
            Phase::Connecting | Phase::AwaitHello | Phase::Ending => {}
        }
        match (self.life, &mut self.resync) {
            (Life::Serving | Life::Waiting { .. }, Resync::Local { until }) if peer == self.local => {
                *until = now + crate::resync::WAIT_MS
            }
            (Life::Serving | Life::Waiting { .. }, Resync::Remote { teacher, until }) if *teacher == Some(id) => {
                *teacher = None;
                *until = now + crate::resync::WAIT_MS;
                self.settle_resync();
            }
            _ => {}
        }
    }

    /// Asks somebody to teach, if somebody is to be asked. Without another peer there is nobody to learn from.
    fn settle_resync(&mut self) {
        let Resync::Remote { teacher: None, until } = self.resync else { return };
        if self.peers.len() == 1 {
            self.resync = Resync::Done;
            return;
        }
        let candidates = self.links.iter_mut().filter(|(_, link)| link.phase == Phase::Open);
        let of_peers = candidates.filter_map(|(id, link)| Some((*id, link.peer?, link)));
        let local = self.local;
        let (peers, learned) = (&self.peers, &self.shards_learned);
        let shards = &self.settings.peers;
        let found = of_peers
            .into_iter()
            .find(|(_, peer, _)| *peer != local && !peers[*peer].is_partial && !learned.contains(&shards[*peer].shard));
        if let Some((id, _, link)) = found {
            frame::write_control(&mut link.output, Control::Request);
            self.resync = Resync::Remote { teacher: Some(id), until };
        }
    }

    /// A session began.
    fn open(&mut self, id: LinkId, now: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(peer) = link.peer else { return };
        link.enter(Phase::Open, now);
        link.said = now;
        let known = &mut self.peers[peer];
        known.link = Some(id);
        known.counted.status = Some(LastStatus::Established);
        known.counted.handshake = Some(now);
        if peer != self.local {
            // An acceptor that was dialling drops a link over which nothing comes.
            frame::write_control(&mut link.output, Control::Heartbeat);
            known.counted.heartbeats_sent += 1;
            return self.settle_resync();
        }
        if link.is_dialled {
            self.teach(id);
        }
    }

    /// Begins a lesson, from the start.
    fn teach(&mut self, id: LinkId) {
        let until = self.tables.iter().map(|table| table.log.last()).collect();
        if let Some(link) = self.links.get_mut(&id) {
            link.session.lesson =
                Lesson::Running(Progress { table: 0, is_defined: false, cursor: Default::default(), until });
        }
    }

    /// A delay before the next dial, at random.
    fn random_delay(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.random;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let (least, most) = REDIAL_RANDOM_MS;
        least + (value ^ (value >> 31)) % (most - least)
    }
}
