//! Bytes of peers come in.

use baton_model::DataType;
use baton_tables::{Now, Value};

use super::{LastStatus, Life, LinkId, REDIAL_MS, REFUSED_MS, Section};
use crate::definition::Definition;
use crate::frame::{self, Control, Fields, Frame, UpdateForm, Violation};
use crate::hello::{self, Status};
use crate::link::{Lesson, Phase};
use crate::resync::{Resync, WAIT_MS};
use crate::update::{self, ReceivedKey};

/// Bytes of a peer that are kept until a frame is whole; the caller brings no more than this at a time.
pub const INPUT_MAX: usize = frame::FRAME_MAX;

/// Bytes that wait for a peer that does not read, at most: then its link is closed.
const OUTPUT_MAX: usize = 256 * 1024;

impl Section {
    /// Bytes arrived on a connection.
    pub fn receive(&mut self, id: LinkId, bytes: &[u8], now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now.as_millis();
        let mut input = std::mem::take(&mut link.input);
        input.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(count) = self.step(id, &input[used..], now) {
            used += count;
        }
        self.acknowledge(id);
        if self.links.get(&id).is_some_and(|link| link.output.len() > OUTPUT_MAX) {
            self.close(id, now.as_millis());
        }
        if let Some(link) = self.links.get_mut(&id).filter(|link| link.phase != Phase::Ending) {
            input.drain(..used);
            link.input = input;
        }
    }

    /// Takes what is whole at the start of some bytes. Gives how many bytes that was; `None`: there is nothing to do with them.
    fn step(&mut self, id: LinkId, bytes: &[u8], now: Now) -> Option<usize> {
        match self.links.get(&id)?.phase {
            Phase::Connecting | Phase::Ending => None,
            Phase::AwaitHello => match self.greet(id, bytes, now.as_millis()) {
                Ok(length) => length,
                Err(status) => {
                    let link = self.links.get_mut(&id)?;
                    link.output.extend_from_slice(status.line().as_bytes());
                    link.enter(Phase::Ending, now.as_millis());
                    None
                }
            },
            Phase::AwaitStatus => self.read_status(id, bytes, now.as_millis()),
            Phase::Open => match self.frame(id, bytes, now) {
                Ok(length) => length,
                Err(violation) => {
                    let link = self.links.get_mut(&id)?;
                    frame::write_error(&mut link.output, violation);
                    link.enter(Phase::Ending, now.as_millis());
                    let peer = link.peer?;
                    self.peers[peer].counted.violations += 1;
                    None
                }
            },
        }
    }

    /// Reads the lines of a dialler.
    fn greet(&mut self, id: LinkId, bytes: &[u8], now: u64) -> Result<Option<usize>, Status> {
        let peers = &self.settings.peers;
        let Some(hello) =
            hello::judge(bytes, &self.settings.local, |name| peers.iter().any(|peer| &*peer.name == name))?
        else {
            return Ok(None);
        };
        let place = peers.iter().position(|peer| *peer.name == *hello.sender).ok_or(Status::UnknownPeer)?;
        let older = self.peers[place].link;
        if place == self.local && older.is_some() {
            return Err(Status::TryAgain);
        }
        if let Some(older) = older {
            // The newer one wins, and the next dial is at random.
            self.peers[place].counted.collisions += 1;
            self.close(older, now);
            self.peers[place].redial_at = now + self.random_delay();
        }
        let Some(link) = self.links.get_mut(&id) else { return Ok(None) };
        link.peer = Some(place);
        link.session.minor = hello.minor;
        link.output.extend_from_slice(Status::Accepted.line().as_bytes());
        self.peers[place].counted.connections += 1;
        self.open(id, now);
        Ok(Some(hello.length))
    }

    /// Reads the line of an acceptor.
    fn read_status(&mut self, id: LinkId, bytes: &[u8], now: u64) -> Option<usize> {
        let peer = self.links.get(&id)?.peer?;
        let (code, length) = match hello::status(bytes) {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(_) => {
                self.close(id, now);
                return None;
            }
        };
        if code == Status::Accepted.code() {
            self.open(id, now);
            return Some(length);
        }
        let wait = match code {
            // A later version of the protocol may know the first one.
            502 if self.peers[peer].minor > 0 => {
                self.peers[peer].minor = 0;
                REDIAL_MS
            }
            300 => REDIAL_MS,
            _ => REFUSED_MS,
        };
        self.close(id, now);
        self.peers[peer].counted.status = Some(LastStatus::Code(code));
        self.peers[peer].redial_at = now + wait;
        None
    }

    fn frame(&mut self, id: LinkId, bytes: &[u8], now: Now) -> Result<Option<usize>, Violation> {
        let Some((frame, length)) = frame::next(bytes)? else { return Ok(None) };
        match frame {
            Frame::Control(control) => self.control(id, control, now),
            Frame::Definition(payload) => self.define(id, payload)?,
            Frame::Switch(payload) => {
                let table = Fields::of(payload).varint()?;
                if let Some(link) = self.links.get_mut(&id) {
                    // Updates after a number that nobody knows are of no table.
                    link.session.current_there = Some(table);
                }
            }
            Frame::Update { form, payload } => self.update(id, form, payload, now)?,
            Frame::Acknowledgement(payload) => {
                let mut fields = Fields::of(payload);
                let (table, update) = (fields.varint()?, fields.u32()?);
                self.acknowledged(id, table, update);
            }
            Frame::Other => {}
        }
        Ok(Some(length))
    }

    fn control(&mut self, id: LinkId, control: Control, now: Now) {
        let millis = now.as_millis();
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(peer) = link.peer else { return };
        match control {
            Control::Request => {
                self.drain(now);
                self.teach(id);
            }
            Control::Finished | Control::Partial => {
                frame::write_control(&mut link.output, Control::Confirm);
                self.learned(id, peer, control == Control::Finished, millis);
            }
            Control::Confirm => {
                let lesson = std::mem::take(&mut link.session.lesson);
                let Lesson::Sent { until } = lesson else {
                    // A lesson that still runs is not over by it.
                    link.session.lesson = lesson;
                    return;
                };
                // Who is taught has all up to the start of the lesson.
                for (progress, until) in self.peers[peer].progress.iter_mut().zip(until) {
                    progress.acknowledged = progress.acknowledged.max(until);
                    progress.pushed = progress.pushed.max(progress.acknowledged);
                }
                if peer == self.local && matches!(self.life, Life::Teaching { .. }) {
                    self.life = Life::Ended;
                    self.close(id, millis);
                }
            }
            Control::Heartbeat => {
                let counted = &mut self.peers[peer].counted;
                counted.heartbeats_received += 1;
                counted.heartbeat = Some(millis);
                self.peers[peer].redial_at = millis + REDIAL_MS;
            }
        }
    }

    /// A lesson is complete.
    fn learned(&mut self, id: LinkId, peer: usize, is_all: bool, now: u64) {
        let is_local = peer == self.local;
        match self.resync {
            Resync::Local { .. } if is_local && is_all => self.resync = Resync::Done,
            Resync::Local { .. } if is_local => self.resync = Resync::local(now),
            Resync::Remote { teacher: Some(teacher), .. } if teacher == id => {
                let shard = self.settings.peers[peer].shard;
                if !is_all {
                    self.peers[peer].is_partial = true;
                } else if shard != 0 && self.settings.shards > 1 {
                    // A peer of a shard has that one only.
                    self.shards_learned.push(shard);
                }
                let is_whole = is_all && (shard == 0 || self.settings.shards <= 1)
                    || (1..=self.settings.shards).all(|shard| self.shards_learned.contains(&shard))
                        && self.settings.shards > 1;
                self.resync =
                    if is_whole { Resync::Done } else { Resync::Remote { teacher: None, until: now + WAIT_MS } };
                self.settle_resync();
            }
            Resync::Local { .. } | Resync::Remote { .. } | Resync::Done => {}
        }
    }

    fn define(&mut self, id: LinkId, payload: &[u8]) -> Result<(), Violation> {
        let definition = Definition::read(payload)?;
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let session = &mut link.session;
        session.current_there = Some(definition.id);
        session.defined_there.remove(&definition.id);
        let Some(place) = self.tables.iter().position(|table| table.wire_name.as_bytes() == definition.name) else {
            return Ok(());
        };
        let Some(columns) = definition.columns(self.tables[place].table.key_type()) else { return Ok(()) };
        // A table has one number: so there are no more of them than tables.
        session.defined_there.retain(|_, (other, _)| *other != place);
        session.defined_there.insert(definition.id, (place, columns));
        (session.received[place].id, session.received[place].bits) = (definition.id, definition.bits());
        Ok(())
    }

    fn update(&mut self, id: LinkId, form: UpdateForm, payload: &[u8], now: Now) -> Result<(), Violation> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let session = &mut link.session;
        let current = session.current_there.and_then(|current| session.defined_there.get(&current));
        let Some((place, columns)) = current else { return Ok(()) };
        let (shared, received) = (&self.tables[*place], &mut session.received[*place]);
        let mut fields = Fields::of(payload);
        let number = if form.has_id { fields.u32()? } else { received.last.wrapping_add(1) };
        let life = if form.is_timed { Some(u64::from(fields.u32()?)) } else { None };
        let key = ReceivedKey::read(&mut fields, shared.table.key_type())?;
        let values = &mut self.values;
        update::read_values(&mut fields, columns, &mut session.received_texts, values)?;
        received.last = number;
        if shared.is_settled && (self.resync.teacher() == Some(id) || link.peer == Some(self.local)) {
            return Ok(());
        }
        // How many connections there are is each process's own.
        if !shared.is_received_only {
            values.retain(|(data, ..)| *data != DataType::ConnCur);
        }
        let expire = shared.table.expire().map(|expire| u64::try_from(expire.as_millis()).unwrap_or(u64::MAX));
        let life = life.zip(expire).map(|(life, expire)| life.min(expire));
        shared.table.learn(&key.as_key(), values, life, now);
        if let Some(copy) = &shared.write_to {
            values.retain(|(data, _, value)| is_copied(*data) && !matches!(value, Value::Rate { .. }));
            copy.learn(&key.as_key(), values, None, now);
        }
        Ok(())
    }

    /// Says which updates arrived.
    fn acknowledge(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.phase == Phase::Open) else { return };
        for received in &mut link.session.received {
            if received.last != received.acknowledged {
                received.acknowledged = received.last;
                frame::write_acknowledgement(&mut link.output, received.id, received.last);
            }
        }
    }

    /// The other side says which update arrived. One that cannot be is none: HAProxy 3.3 to 3.5 reverses the bytes of some.
    fn acknowledged(&mut self, id: LinkId, table: u64, update: u32) {
        let Some(link) = self.links.get(&id) else { return };
        if !matches!(link.session.lesson, Lesson::None) {
            return;
        }
        let place = usize::try_from(table).ok().and_then(|table| table.checked_sub(1));
        let progress = link.peer.zip(place).and_then(|(peer, place)| self.peers[peer].progress.get_mut(place));
        let Some(progress) = progress else { return };
        let ahead = u64::from(update.wrapping_sub(progress.acknowledged as u32));
        if ahead <= progress.pushed - progress.acknowledged {
            progress.acknowledged += ahead;
        }
    }
}

/// What `write-to` copies.
fn is_copied(data: DataType) -> bool {
    matches!(data, DataType::ServerId | DataType::ServerKey | DataType::Gpt0 | DataType::Gpt)
}
