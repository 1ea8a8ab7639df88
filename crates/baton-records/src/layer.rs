//! One end of a connection: both directions, what came of a message that is not complete, and what the peer is owed.

use std::fmt;
use std::ops::{AddAssign, Range};

use crate::direction::{Cipher, Direction, EXPLICIT_NONCE, Keys, Placed, Protocol, Secret, TAG};
use crate::violation::Violation;

/// Plain bytes of a record (RFC 8446 5.1).
pub const PLAIN_MAX: usize = 1 << 14;
/// Bytes in front of a record that tell its type and its length.
const HEADER: usize = 5;
/// The longest record of any version, in bytes (RFC 5246 6.2.3).
pub const RECORD_MAX: usize = HEADER + PLAIN_MAX + 2048;
/// What a record of TLS 1.3 may have beside its plain bytes (RFC 8446 5.2).
const EXPANSION_MAX: usize = 256;
/// The most that one record has beside its plain bytes, of those that we make.
const OVERHEAD: usize = HEADER + EXPLICIT_NONCE + 1 + TAG;
/// More than all records that are owed take, with a KeyUpdate of our own.
const OWED_MAX: usize = 3 * (OVERHEAD + KEY_UPDATE.len());
/// The longest message that may come behind a handshake, in bytes. As for rustls.
const MESSAGE_MAX: usize = 0xffff;
/// Bytes in front of a message: its type and its length.
const MESSAGE_HEADER: usize = 4;
/// A KeyUpdate that asks for none in return (RFC 8446 4.6.3).
const KEY_UPDATE: [u8; 5] = [message::KEY_UPDATE, 0, 0, 1, 0];

/// Empty records in a row. The bounds are those of rustls, but for KeyUpdates.
const EMPTY_MAX: u8 = 32;
/// KeyUpdates without data between them. Java sends one for each record that it reads, from the limit of a key on until ours has come: as many
/// as there are records in the buffers of the sockets between.
const UPDATES_MAX: u16 = 4096;
/// KeyUpdates in one step of a handshake.
const HANDSHAKE_UPDATES_MAX: u8 = 32;
/// Warnings.
const WARNINGS_MAX: u8 = 4;
/// Attempts to begin another handshake.
const RENEGOTIATIONS_MAX: u8 = 1;

/// Types of records.
mod kind {
    pub(super) const ALERT: u8 = 21;
    pub(super) const HANDSHAKE: u8 = 22;
    pub(super) const DATA: u8 = 23;
}

/// Types of handshake messages.
mod message {
    pub(super) const HELLO_REQUEST: u8 = 0;
    pub(super) const CLIENT_HELLO: u8 = 1;
    pub(super) const NEW_SESSION_TICKET: u8 = 4;
    pub(super) const KEY_UPDATE: u8 = 24;
}

/// Alerts.
mod alert {
    pub(super) const WARNING: u8 = 1;
    pub(super) const FATAL: u8 = 2;
    pub(super) const CLOSE_NOTIFY: u8 = 0;
    pub(super) const USER_CANCELED: u8 = 90;
    pub(super) const NO_RENEGOTIATION: u8 = 100;
}

/// Which end this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// It began the handshake.
    Client,
    /// It answered.
    Server,
}

/// One end of a connection, behind its handshake.
pub struct Layer {
    pub(crate) role: Role,
    pub(crate) sealing: Direction,
    pub(crate) opening: Direction,
    /// Plain bytes of each record that is made.
    pub(crate) record_len: u16,
    /// The start of a handshake message whose end has not come.
    pub(crate) message: Vec<u8>,
    pub(crate) owed: Owed,
    pub(crate) seen: Seen,
}

/// What the peer gets in front of the next bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Owed {
    /// A KeyUpdate.
    pub(crate) key_update: bool,
    /// A warning that there is no other handshake.
    pub(crate) no_renegotiation: bool,
}

/// What has come of what is limited.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) empty: u8,
    pub(crate) updates: u16,
    pub(crate) warnings: u8,
    pub(crate) renegotiations: u8,
}

/// A record that was opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Opened {
    /// Its bytes, all of which are used up.
    pub used: usize,
    /// What was in it.
    pub content: Content,
}

/// What was in a record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// So many bytes, which are in the reader's room.
    InRoom(usize),
    /// Bytes, which are here in the input.
    InPlace(Range<usize>),
    /// Nothing for a reader.
    Control,
    /// The peer has said all (close_notify). What comes behind it means nothing.
    End,
}

/// No record may be made any more: the key has sealed as many as it should, and TLS 1.2 has no other one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the TLS key has encrypted as many records as it may")
    }
}

impl std::error::Error for Exhausted {}

impl Layer {
    /// The end of a connection whose handshake is complete. It makes records of `record_len` plain bytes, at most [`PLAIN_MAX`]. `None`: these
    /// are no keys of this cipher, or of two versions, or one key for both directions, with which a number would be used twice.
    pub fn new(role: Role, cipher: Cipher, sealing: Keys, opening: Keys, record_len: usize) -> Option<Layer> {
        let (sealing, opening) = (Direction::new(cipher, sealing)?, Direction::new(cipher, opening)?);
        let record_len = u16::try_from(record_len.clamp(1, PLAIN_MAX)).ok()?;
        let are_two = sealing.protocol == opening.protocol && !sealing.is_same_key(&opening);
        are_two.then(|| Layer {
            role,
            sealing,
            opening,
            record_len,
            message: Vec::new(),
            owed: Owed::default(),
            seen: Seen::default(),
        })
    }

    /// The end of a connection of TLS 1.3, by the traffic secrets of the end of its handshake; keys may have been updated since. `sealing` and
    /// `opening` are updated until they give these keys and nonces, and then have these numbers. `None`: they never do.
    pub fn of_secrets(
        role: Role,
        cipher: Cipher,
        [sealing, opening]: [Secret; 2],
        [sealed, opened]: [(&[u8], &[u8], u64); 2],
        record_len: usize,
    ) -> Option<Layer> {
        let find = |secret: Secret, (key, iv, sequence): (&[u8], &[u8], u64)| {
            let mut direction = Direction::new(cipher, Keys::Tls13(secret, 0))?;
            for _ in 0..=HANDSHAKE_UPDATES_MAX {
                if direction.has(key, iv) {
                    let Keys::Tls13(secret, _) = direction.into_keys() else { return None };
                    return Some(Keys::Tls13(secret, sequence));
                }
                direction.update()?;
            }
            None
        };
        Layer::new(role, cipher, find(sealing, sealed)?, find(opening, opened)?, record_len)
    }

    /// Whether a layer can have come to this: nothing is owed that its version does not have, no more was seen than is let through, and of a
    /// message only a start is held, of one that the peer may send.
    pub(crate) fn is_possible(&self) -> bool {
        let Owed { key_update, no_renegotiation } = self.owed;
        let owes_what_there_is = match self.protocol() {
            Protocol::Tls12 => !key_update,
            Protocol::Tls13 => !no_renegotiation,
        };
        let Seen { empty, updates, warnings, renegotiations } = self.seen;
        let is_bounded = empty <= EMPTY_MAX
            && updates <= UPDATES_MAX
            && warnings <= WARNINGS_MAX
            && renegotiations <= RENEGOTIATIONS_MAX;
        let is_start = match self.message.first_chunk::<MESSAGE_HEADER>() {
            None => true,
            Some(&[kind, high, middle, low]) => {
                let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.may_come(kind) && length <= MESSAGE_MAX && self.message.len() < MESSAGE_HEADER + length
            }
        };
        owes_what_there_is && is_bounded && is_start
    }

    /// The version.
    pub fn protocol(&self) -> Protocol {
        self.sealing.protocol
    }

    /// Which end it is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Opens the first record of `records`, into `room` if it fits: `None` when it has not come to its end. `tickets` gets the content of each
    /// NewSessionTicket that a server sends in TLS 1.3, and tells whether it is one.
    ///
    /// # Errors
    /// The connection is over.
    pub fn open(
        &mut self,
        records: &mut [u8],
        room: &mut [u8],
        tickets: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Option<Opened>, Violation> {
        let Some(&header) = records.first_chunk::<HEADER>() else { return Ok(None) };
        let length = self.judge_header(header)?;
        let used = HEADER + length;
        let Some(sealed) = records.get_mut(HEADER..used) else { return Ok(None) };
        let placed = self.opening.open(header[0], header, sealed, room).ok_or(Violation::BadRecord)?;
        let (plain, start) = match placed {
            Placed::InRoom(count) => (&room[..count], None),
            Placed::InPlace(at, count) => (&sealed[at..at + count], Some(HEADER + at)),
        };
        let (kind, plain) = match self.protocol() {
            Protocol::Tls12 => (header[0], plain),
            Protocol::Tls13 => unpadded(plain)?,
        };
        if plain.len() > PLAIN_MAX {
            return Err(Violation::Overflow);
        }
        self.count_empty(plain.is_empty())?;
        if !self.message.is_empty() && kind != kind::HANDSHAKE {
            return Err(Violation::Unexpected);
        }
        let content = match kind {
            kind::DATA => {
                if !plain.is_empty() {
                    self.seen.updates = 0;
                }
                match start {
                    None => Content::InRoom(plain.len()),
                    Some(start) => Content::InPlace(start..start + plain.len()),
                }
            }
            kind::ALERT => self.take_alert(plain)?,
            kind::HANDSHAKE => {
                self.take_messages(plain, tickets)?;
                Content::Control
            }
            _ => return Err(Violation::Unexpected),
        };
        Ok(Some(Opened { used, content }))
    }

    /// The length of the payload of a record.
    fn judge_header(&self, [kind, major, minor, high, low]: [u8; HEADER]) -> Result<usize, Violation> {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let is_type = match self.protocol() {
            // All that is encrypted looks like data (RFC 8446 5.2), and nothing is in the clear any more.
            Protocol::Tls13 => kind == kind::DATA,
            Protocol::Tls12 => (kind::ALERT..=kind::DATA).contains(&kind),
        };
        let most = match self.protocol() {
            Protocol::Tls13 => PLAIN_MAX + EXPANSION_MAX,
            Protocol::Tls12 => RECORD_MAX - HEADER,
        };
        if !is_type {
            return Err(Violation::Unexpected);
        }
        // In TLS 1.3 it means nothing (RFC 8446 5.1).
        if self.protocol() == Protocol::Tls12 && (major, minor) != (3, 3) {
            return Err(Violation::Version);
        }
        if length > most { Err(Violation::Overflow) } else { Ok(length) }
    }

    fn count_empty(&mut self, is_empty: bool) -> Result<(), Violation> {
        if !is_empty {
            self.seen.empty = 0;
            return Ok(());
        }
        count(&mut self.seen.empty, EMPTY_MAX)
    }

    fn take_alert(&mut self, plain: &[u8]) -> Result<Content, Violation> {
        let &[level, description] = plain else { return Err(Violation::Malformed) };
        match (level, description) {
            (alert::WARNING | alert::FATAL, alert::CLOSE_NOTIFY) => Ok(Content::End),
            // All others of TLS 1.3 are errors, whatever they say of themselves (RFC 8446 6.2).
            (alert::WARNING, _) if self.protocol() == Protocol::Tls13 && description != alert::USER_CANCELED => {
                Err(Violation::Told(description))
            }
            (alert::WARNING, _) => {
                count(&mut self.seen.warnings, WARNINGS_MAX)?;
                Ok(Content::Control)
            }
            (alert::FATAL, _) => Err(Violation::Told(description)),
            _ => Err(Violation::Illegal),
        }
    }

    fn take_messages(&mut self, plain: &[u8], tickets: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Violation> {
        // RFC 8446 5.1.
        if plain.is_empty() && self.protocol() == Protocol::Tls13 {
            return Err(Violation::Unexpected);
        }
        if self.message.is_empty() {
            let used = self.take_whole_messages(plain, tickets)?;
            self.message.extend_from_slice(&plain[used..]);
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.message);
        bytes.extend_from_slice(plain);
        let used = self.take_whole_messages(&bytes, tickets)?;
        if used < bytes.len() {
            bytes.drain(..used);
            self.message = bytes;
        }
        Ok(())
    }

    /// Takes the messages whose end has come, and tells how many bytes they are.
    fn take_whole_messages(
        &mut self,
        bytes: &[u8],
        tickets: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<usize, Violation> {
        let mut used = 0;
        while let Some(&[kind, high, middle, low]) = bytes[used..].first_chunk::<MESSAGE_HEADER>() {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if !self.may_come(kind) {
                return Err(Violation::Unexpected);
            }
            if length > MESSAGE_MAX {
                return Err(Violation::Malformed);
            }
            let Some(body) = bytes[used + MESSAGE_HEADER..].get(..length) else { break };
            used += MESSAGE_HEADER + length;
            match kind {
                message::KEY_UPDATE => self.take_key_update(body, used == bytes.len())?,
                message::NEW_SESSION_TICKET if tickets(body) => {}
                message::NEW_SESSION_TICKET => return Err(Violation::Malformed),
                _ => {
                    count(&mut self.seen.renegotiations, RENEGOTIATIONS_MAX)?;
                    self.owed.no_renegotiation = true;
                }
            }
        }
        Ok(used)
    }

    /// Whether the peer may send a message of this type.
    fn may_come(&self, kind: u8) -> bool {
        match (self.protocol(), self.role) {
            (Protocol::Tls12, Role::Client) => kind == message::HELLO_REQUEST,
            (Protocol::Tls12, Role::Server) => kind == message::CLIENT_HELLO,
            (Protocol::Tls13, Role::Client) => matches!(kind, message::NEW_SESSION_TICKET | message::KEY_UPDATE),
            (Protocol::Tls13, Role::Server) => kind == message::KEY_UPDATE,
        }
    }

    /// The peer's next record is made with its next key: this was the last message of its record (RFC 8446 5.1).
    fn take_key_update(&mut self, body: &[u8], is_last: bool) -> Result<(), Violation> {
        if !is_last {
            return Err(Violation::Unexpected);
        }
        count(&mut self.seen.updates, UPDATES_MAX)?;
        match body {
            [0] => {}
            // However many ask for one, one is enough.
            [1] => self.owed.key_update = true,
            [_] => return Err(Violation::Illegal),
            _ => return Err(Violation::Malformed),
        }
        self.opening.update().ok_or(Violation::Exhausted)
    }

    /// The room that records of so many bytes need, with all that goes in front of them.
    pub fn sealed_len(&self, plain: usize) -> usize {
        let records = plain.div_ceil(self.record_len.into());
        plain + records * OVERHEAD + OWED_MAX
    }

    /// How many plain bytes may be sealed from now on. With TLS 1.2 that is what is left for its only key: once it is nothing, the connection
    /// ends, for which there is a number ([`seal_end`](Self::seal_end)).
    pub fn left(&self) -> u64 {
        match self.protocol() {
            Protocol::Tls12 => self.sealing.left().saturating_mul(self.record_len.into()),
            Protocol::Tls13 => u64::MAX,
        }
    }

    /// Makes records of `plain`, and of what is owed in front of them: how many bytes they are. `out` has at least
    /// [`sealed_len`](Self::sealed_len).
    ///
    /// # Errors
    /// These are more than may be sealed ([`left`](Self::left)): no number was used.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, Exhausted> {
        if plain.len() as u64 > self.left() {
            return Err(Exhausted);
        }
        let mut written = self.seal_owed(out)?;
        for piece in plain.chunks(self.record_len.into()) {
            // A key that has sealed enough is followed by the next, where there is one.
            if self.sealing.left() == 0 && self.protocol() == Protocol::Tls13 {
                written += self.update_key(&mut out[written..])?;
            }
            written += self.seal_one(kind::DATA, piece, &mut out[written..])?;
        }
        Ok(written)
    }

    /// Whether something is to be sent, whatever else is.
    pub fn owes(&self) -> bool {
        self.owed != Owed::default()
    }

    /// Makes records of what is owed alone. As [`seal`](Self::seal).
    ///
    /// # Errors
    /// Nothing may be sealed any more.
    pub fn seal_owed(&mut self, out: &mut [u8]) -> Result<usize, Exhausted> {
        let Owed { key_update, no_renegotiation } = std::mem::take(&mut self.owed);
        let mut written = 0;
        if no_renegotiation {
            written += self.seal_one(kind::ALERT, &[alert::WARNING, alert::NO_RENEGOTIATION], out)?;
        }
        if key_update {
            written += self.update_key(&mut out[written..])?;
        }
        Ok(written)
    }

    #[cold]
    fn update_key(&mut self, out: &mut [u8]) -> Result<usize, Exhausted> {
        let written = self.seal_one(kind::HANDSHAKE, &KEY_UPDATE, out)?;
        self.sealing.update().ok_or(Exhausted)?;
        Ok(written)
    }

    /// Says that we have said all (close_notify). As [`seal`](Self::seal), and nothing is to be sealed behind it.
    ///
    /// # Errors
    /// Nothing may be sealed any more.
    pub fn seal_end(&mut self, out: &mut [u8]) -> Result<usize, Exhausted> {
        let written = self.seal_owed(out)?;
        Ok(written + self.seal_one(kind::ALERT, &[alert::WARNING, alert::CLOSE_NOTIFY], &mut out[written..])?)
    }

    /// Tells the peer what it did; nothing, if it knows. As [`seal`](Self::seal), and nothing is to be sealed behind it.
    ///
    /// # Errors
    /// Nothing may be sealed any more.
    pub fn seal_refusal(&mut self, violation: Violation, out: &mut [u8]) -> Result<usize, Exhausted> {
        match violation.alert() {
            Some(description) => self.seal_one(kind::ALERT, &[alert::FATAL, description], out),
            None => Ok(0),
        }
    }

    /// Makes one record.
    fn seal_one(&mut self, kind: u8, plain: &[u8], out: &mut [u8]) -> Result<usize, Exhausted> {
        let explicit_len = self.sealing.explicit_len();
        let (shown, end_len) = match self.protocol() {
            Protocol::Tls12 => (kind, TAG),
            Protocol::Tls13 => (kind::DATA, 1 + TAG),
        };
        let length = explicit_len + plain.len() + end_len;
        let [.., high, low] = length.to_be_bytes();
        let header = [shown, 3, 3, high, low];
        let record = out.get_mut(..HEADER + length).ok_or(Exhausted)?;
        let (front, rest) = record.split_at_mut(HEADER);
        front.copy_from_slice(&header);
        let (explicit, rest) = rest.split_at_mut(explicit_len);
        let (sealed, end) = rest.split_at_mut(plain.len());
        self.sealing.seal(kind, header, plain, explicit, sealed, end).ok_or(Exhausted)?;
        Ok(HEADER + length)
    }
}

/// What no honest end does.
#[cfg(any(test, feature = "fuzzing"))]
impl Layer {
    /// A record of any content.
    pub fn seal_any(&mut self, kind: u8, plain: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; plain.len() + OVERHEAD];
        let count = self.seal_one(kind, plain, &mut out).ok()?;
        out.truncate(count);
        Some(out)
    }

    /// Another key, without a word.
    pub fn update_sealing_key(&mut self) {
        let _: Option<()> = self.sealing.update();
    }
}

#[cfg(test)]
impl Layer {
    pub(crate) fn sealing_key(&self) -> (Vec<u8>, Vec<u8>) {
        self.sealing.key_and_nonce()
    }

    pub(crate) fn opening_key(&self) -> (Vec<u8>, Vec<u8>) {
        self.opening.key_and_nonce()
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Layer")
    }
}

/// One more of what is limited.
fn count<N: PartialOrd + AddAssign + From<u8>>(seen: &mut N, most: N) -> Result<(), Violation> {
    if *seen >= most {
        return Err(Violation::Flood);
    }
    *seen += 1.into();
    Ok(())
}

/// The type of a record of TLS 1.3, which stands behind its content and in front of zeros, and the content (RFC 8446 5.4).
fn unpadded(plain: &[u8]) -> Result<(u8, &[u8]), Violation> {
    if plain.len() > PLAIN_MAX + 1 {
        return Err(Violation::Overflow);
    }
    let end = plain.iter().rposition(|byte| *byte != 0).ok_or(Violation::Unexpected)?;
    Ok((plain[end], &plain[..end]))
}
