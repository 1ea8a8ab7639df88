//! What goes out to peers: lessons, and live updates. It is made when there is room for it, so that a peer that reads slowly costs no memory.

use baton_tables::{Now, OwnedKey, Record};
use twox_hash::XxHash64;

use super::{LinkId, Pushed, Section, SharedTable};
use crate::frame::{self, Control};
use crate::link::{Lesson, Link, Phase, Progress, Session};
use crate::resync::Resync;
use crate::update;

/// Bytes after which no more are made in one go.
const PRODUCED_MAX: usize = 64 * 1024;
/// Entries of a table that are read at a time.
const PAGE: usize = 128;
/// Updates of a table before it is another one's turn.
const TURN: usize = 200;
/// An update has no life of its own if the entry was touched within this time.
const FRESH_MS: u64 = 1000;

/// What there is to do with a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Produced {
    /// What was made is to be sent; there is more behind it.
    More,
    /// What was made, if anything, is all for now.
    All,
    /// What was made is the last: the connection is closed after it.
    Last,
}

impl Section {
    /// Appends what a connection is to send now, as far as it is no more than one bite.
    pub fn produce(&mut self, id: LinkId, out: &mut Vec<u8>, now: Now) -> Produced {
        let start = out.len();
        let Some(link) = self.links.get_mut(&id) else { return Produced::Last };
        out.append(&mut link.output);
        let mut writer =
            Writer { out, payload: &mut self.payload, room: start + PRODUCED_MAX, shards: self.settings.shards, now };
        let mut is_all = true;
        let mut is_last = link.phase == Phase::Ending;
        if let (Phase::Open, Some(peer)) = (link.phase, link.peer) {
            let shard = self.settings.peers[peer].shard;
            let is_taught = self.resync.teacher() == Some(id);
            match &link.session.lesson {
                Lesson::Running(_) => is_all = writer.lesson(link, &self.tables, shard, self.resync == Resync::Done),
                Lesson::Sent { .. } => {}
                // Who teaches us hears our own changes afterwards, and the process that teaches because it ends none.
                Lesson::None if is_taught || peer == self.local => {}
                Lesson::None => {
                    is_all = writer.live(&mut link.session, &self.tables, &mut self.peers[peer].progress, shard);
                    is_last |= is_all && self.flush_until.is_some();
                }
            }
        }
        if out.len() > start {
            link.said = now.as_millis();
        }
        match (is_all, is_last) {
            (_, true) => Produced::Last,
            (true, false) => Produced::All,
            (false, false) => Produced::More,
        }
    }

    /// Whether there is something to send.
    pub fn has_output(&self, id: LinkId) -> bool {
        self.links.get(&id).is_none_or(|link| !link.output.is_empty() || link.phase == Phase::Ending)
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    payload: &'a mut Vec<u8>,
    room: usize,
    shards: u32,
    now: Now,
}

impl Writer<'_> {
    fn is_full(&self) -> bool {
        self.out.len() >= self.room
    }

    /// Goes on with a lesson. `false`: there is more of it.
    fn lesson(&mut self, link: &mut Link, tables: &[SharedTable], shard: u32, knows_all: bool) -> bool {
        let session = &mut link.session;
        let Lesson::Running(mut progress) = std::mem::take(&mut session.lesson) else { return true };
        while let Some(shared) = tables.get(progress.table) {
            if self.is_full() {
                session.lesson = Lesson::Running(progress);
                return false;
            }
            if shared.is_received_only || !self.page(session, shared, &mut progress, shard) {
                let Progress { table, until, .. } = progress;
                progress = Progress { table: table + 1, is_defined: false, cursor: Default::default(), until };
            }
        }
        frame::write_control(self.out, if knows_all { Control::Finished } else { Control::Partial });
        session.lesson = Lesson::Sent { until: progress.until };
        true
    }

    /// Sends entries of a table; the definition is sent even if there are none. `false`: there are no more.
    fn page(&mut self, session: &mut Session, shared: &SharedTable, progress: &mut Progress, shard: u32) -> bool {
        if !std::mem::replace(&mut progress.is_defined, true) {
            frame::write_definition(self.out, &shared.definition);
            session.current_here = Some(progress.table);
        }
        // Far from the numbers of live updates, so that acknowledgements of the two cannot be mixed up.
        let number = (progress.until[progress.table] as u32).wrapping_add(1 << 31);
        for record in shared.table.page(&mut progress.cursor, PAGE, self.now) {
            if self.wants(shared, &record, shard) {
                self.entry(session, shared, number, &record, true);
            }
        }
        !progress.cursor.is_done()
    }

    /// Sends what changed. `false`: there is more.
    fn live(&mut self, session: &mut Session, tables: &[SharedTable], pushed: &mut [Pushed], shard: u32) -> bool {
        let mut idle = 0;
        while idle < tables.len() {
            let place = session.turn % tables.len();
            let (shared, pushed) = (&tables[place], &mut pushed[place]);
            let mut count = 0;
            while let Some((number, entry)) = shared.log.after(pushed.pushed) {
                if self.is_full() {
                    return false;
                }
                if count == TURN {
                    break;
                }
                pushed.pushed = number;
                let Some(record) = shared.table.read(entry, self.now) else { continue };
                if !self.wants(shared, &record, shard) {
                    continue;
                }
                if session.current_here != Some(place) {
                    frame::write_definition(self.out, &shared.definition);
                    session.current_here = Some(place);
                }
                self.entry(session, shared, number as u32, &record, false);
                count += 1;
            }
            idle = if count < TURN { idle + 1 } else { 0 };
            session.turn = place + 1;
        }
        true
    }

    /// Sends an entry, with the rest of its life if it is part of a lesson, or older than others of the same kind, and the other side takes it.
    fn entry(&mut self, session: &mut Session, shared: &SharedTable, number: u32, record: &Record, is_taught: bool) {
        let expire = shared.table.expire().map_or(0, |expire| expire.as_millis());
        let life = record.expires_ms.unwrap_or(0);
        let is_old = u128::from(life) + u128::from(FRESH_MS) < expire;
        let is_timed = session.minor > 0 && (is_taught || is_old);
        self.payload.clear();
        self.payload.extend_from_slice(&number.to_be_bytes());
        if is_timed {
            self.payload.extend_from_slice(&u32::try_from(life).unwrap_or(u32::MAX).to_be_bytes());
        }
        if update::write(self.payload, shared.table.stored(), record, &mut session.sent_texts) {
            frame::write_update(self.out, is_timed, self.payload);
        }
    }

    /// Whether a peer of a shard gets an entry.
    fn wants(&self, shared: &SharedTable, record: &Record, shard: u32) -> bool {
        if shard == 0 || self.shards <= 1 {
            return true;
        }
        let hash = |bytes: &[u8]| XxHash64::oneshot(shared.shard_seed, bytes);
        let hash = match &record.key {
            OwnedKey::Ip(address) => hash(&address.octets()),
            OwnedKey::Ipv6(address) => hash(&address.octets()),
            // As the machine has it.
            OwnedKey::Integer(number) => hash(&number.to_ne_bytes()),
            OwnedKey::String(bytes) | OwnedKey::Binary(bytes) => hash(bytes),
        };
        hash % u64::from(self.shards) + 1 == u64::from(shard)
    }
}
