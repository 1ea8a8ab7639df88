//! Messages as bytes, and back: the one place where versions of the handover are told apart.
//!
//! Version 1 is a length of four bytes (big endian) and then a message as JSON, however long that becomes. A conversation begins in it,
//! and stays in it when the other side knows no other one.
//!
//! Version 2, which both sides speak from behind `welcome`, is frames: a head of [`HEAD_BYTES`] and a body of at most
//! [`FRAME_BYTES_MAX`]. The head has the body's length, the number of the frame in its direction from 0, how many descriptors come with
//! it, and its kind. A kind is the name of a message, and the body is that message as version 1 writes it; or it is a part of what is
//! remembered ([`MemoryKind`]), and the body is a piece of that. Pieces come before the message that they belong to (`state`,
//! `report`), which has the rest. A kind that is unknown here is skipped and counted ([`Incoming::skipped`]); everything else that is
//! not as described ends the conversation.
//!
//! Nothing in here waits: [`super::channel`] does.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::take;

use zeroize::Zeroizing;

use super::memory::{MemoryKind, ProcessMemory};
use super::message::Message;
use super::wiped::Wiped;

/// The versions this program speaks, the best one first.
pub const VERSIONS: &[u32] = &[WireVersion::Frames.number(), WireVersion::Messages.number()];

/// Bytes of the head of a frame.
pub const HEAD_BYTES: usize = 32;
/// The longest body of a frame.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// The longest message of version 1.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The most bytes of pieces that are put together to one thing. With a million entries of a table there is still room.
pub const PIECES_BYTES_MAX: usize = 1 << 30;
/// The most kinds that are remembered as skipped.
const SKIPPED_MAX: usize = 16;

/// Bytes before a message of version 1.
const LENGTH_BYTES: usize = 4;
/// Bytes of a kind, filled up with zeroes.
const KIND_BYTES: usize = HEAD_BYTES - 10;

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WireVersion {
    /// As whole messages.
    #[default]
    Messages,
    /// In frames.
    Frames,
}

impl WireVersion {
    /// Its number between processes.
    pub const fn number(self) -> u32 {
        match self {
            WireVersion::Messages => 1,
            WireVersion::Frames => 2,
        }
    }

    /// The version of that number; `None` when it is unknown here.
    pub fn of(number: u32) -> Option<WireVersion> {
        [WireVersion::Messages, WireVersion::Frames].into_iter().find(|version| version.number() == number)
    }

    /// The best version that both sides speak.
    pub fn common(theirs: &[u32]) -> Option<WireVersion> {
        VERSIONS.iter().find(|version| theirs.contains(version)).and_then(|number| WireVersion::of(*number))
    }

    /// What to speak to a process that is said to speak the version of that number.
    pub fn at_most(number: u32) -> WireVersion {
        WireVersion::of(number).unwrap_or(if number == 0 { WireVersion::Messages } else { WireVersion::Frames })
    }
}

/// Bytes that are no messages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn malformed(what: impl fmt::Display) -> Malformed {
    Malformed(what.to_string())
}

/// Bytes to be sent, which are wiped behind it: keys are among them.
#[derive(Debug)]
pub struct Part {
    /// What is sent.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Whether the message's descriptors go with them.
    pub has_descriptors: bool,
}

/// Pieces of what is remembered, one after the other.
type Pieces = Box<dyn Iterator<Item = serde_json::Result<(MemoryKind, Vec<u8>)>> + Send>;

/// A message on its way out, made up frame by frame.
pub struct Outgoing {
    message: Message,
    pieces: Option<Pieces>,
    is_done: bool,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.message.name())
    }
}

/// What writes messages down.
#[derive(Debug, Default)]
pub struct Encoder {
    version: WireVersion,
    /// Frames that were sent.
    sent: u32,
}

impl Encoder {
    /// Goes on in that version.
    pub fn speak(&mut self, version: WireVersion) {
        *self = Encoder { version, sent: 0 };
    }

    /// The version that is spoken.
    pub fn version(&self) -> WireVersion {
        self.version
    }

    /// Prepares a message.
    pub fn message(&self, mut message: Message) -> Outgoing {
        let memory = match (self.version, &mut message) {
            (WireVersion::Messages, _) => None,
            (WireVersion::Frames, Message::State(memory)) => Some(memory.into_pieces()),
            (WireVersion::Frames, Message::Report(report)) => {
                let mut memory = ProcessMemory { counts: take(&mut report.counts), ..ProcessMemory::default() };
                Some(memory.into_pieces())
            }
            (WireVersion::Frames, _) => None,
        };
        let pieces = memory.map(|pieces| Box::new(pieces) as _);
        Outgoing { message, pieces, is_done: false }
    }

    /// The next bytes of it; `None` after the last.
    ///
    /// # Errors
    /// It is too long.
    pub fn next(&mut self, message: &mut Outgoing, descriptors: usize) -> Result<Option<Part>, Malformed> {
        if message.is_done {
            return Ok(None);
        }
        if let Some(piece) = message.pieces.as_mut().and_then(Iterator::next) {
            let (kind, body) = piece.map_err(malformed)?;
            let bytes = self.frame(kind.word(), &Zeroizing::new(body), 0)?;
            return Ok(Some(Part { bytes, has_descriptors: false }));
        }
        message.is_done = true;
        let mut body = Wiped::default();
        serde_json::to_writer(&mut body, &message.message).map_err(malformed)?;
        let bytes = match self.version {
            WireVersion::Frames => self.frame(message.message.name(), &body, descriptors)?,
            WireVersion::Messages if body.len() > MESSAGE_BYTES_MAX => {
                return Err(malformed(format!("of {} bytes; the maximum is {MESSAGE_BYTES_MAX}", body.len())));
            }
            WireVersion::Messages => {
                let mut bytes = Zeroizing::new(Vec::with_capacity(LENGTH_BYTES + body.len()));
                bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&body);
                bytes
            }
        };
        Ok(Some(Part { bytes, has_descriptors: true }))
    }

    fn frame(&mut self, kind: &str, body: &[u8], descriptors: usize) -> Result<Zeroizing<Vec<u8>>, Malformed> {
        if body.len() > FRAME_BYTES_MAX {
            return Err(malformed(format!("{kind} of {} bytes; the maximum is {FRAME_BYTES_MAX}", body.len())));
        }
        let descriptors = u16::try_from(descriptors).map_err(malformed)?;
        debug_assert!(kind.len() <= KIND_BYTES, "{kind}");
        let mut bytes = Zeroizing::new(Vec::with_capacity(HEAD_BYTES + body.len()));
        bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&self.sent.to_be_bytes());
        bytes.extend_from_slice(&descriptors.to_be_bytes());
        bytes.extend_from_slice(kind.as_bytes());
        bytes.resize(HEAD_BYTES, 0);
        bytes.extend_from_slice(body);
        self.sent = self.sent.wrapping_add(1);
        Ok(bytes)
    }
}

/// What arrived, as far as it is understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// The message; `None` when it was a piece, or skipped.
    pub message: Option<Message>,
    /// How many descriptors came with it.
    pub descriptors: usize,
}

/// Bytes that have arrived, and what is being put together of them.
#[derive(Debug, Default)]
pub struct Incoming {
    version: WireVersion,
    bytes: Wiped,
    /// Frames that were received.
    received: u32,
    /// Pieces that wait for their message, and their bytes.
    memory: ProcessMemory,
    pieces_bytes: usize,
    /// Frames of kinds that are unknown here.
    skipped: BTreeMap<String, u64>,
}

/// The head of a frame.
struct Head {
    length: usize,
    number: u32,
    descriptors: usize,
    kind: String,
}

impl Incoming {
    /// In that version from its first byte.
    pub fn of(version: WireVersion) -> Incoming {
        Incoming { version, ..Incoming::default() }
    }

    /// Goes on in that version with the next byte.
    pub fn speak(&mut self, version: WireVersion) {
        (self.version, self.received) = (version, 0);
    }

    /// Where bytes that arrive are added at the end.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Where bytes that arrive are added, with room for so many, which then need no other memory: what has arrived has keys among it.
    pub fn bytes_with_room(&mut self, more: usize) -> &mut Vec<u8> {
        self.bytes.reserve(more);
        &mut self.bytes
    }

    /// Whether nothing of the next message is here.
    pub fn is_between_frames(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Kinds that are unknown here and were skipped since this was asked, with the number of their frames.
    pub fn skipped(&mut self) -> Vec<(String, u64)> {
        take(&mut self.skipped).into_iter().collect()
    }

    /// Takes what is whole; `None`: more bytes are needed.
    ///
    /// # Errors
    /// They are no messages. The conversation is over then.
    pub fn arrival(&mut self) -> Result<Option<Arrival>, Malformed> {
        match self.version {
            WireVersion::Messages => self.whole_message(),
            WireVersion::Frames => self.frame(),
        }
    }

    fn whole_message(&mut self) -> Result<Option<Arrival>, Malformed> {
        let Some(head) = self.bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(malformed(format!("of {length} bytes; the maximum is {MESSAGE_BYTES_MAX}")));
        }
        let Some(body) = self.bytes.get(LENGTH_BYTES..LENGTH_BYTES + length) else { return Ok(None) };
        // At once, which is faster than word by word.
        let body = str::from_utf8(body).map_err(malformed)?;
        let mut message: Message = serde_json::from_str(body).map_err(malformed)?;
        message.escape();
        self.bytes.consume(LENGTH_BYTES + length);
        let descriptors = message.descriptors();
        Ok(Some(Arrival { message: Some(message), descriptors }))
    }

    fn frame(&mut self) -> Result<Option<Arrival>, Malformed> {
        let Some(head) = self.bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let Head { length, number, descriptors, kind } = Head::read(head)?;
        if number != self.received {
            return Err(malformed(format!("received frame {number} ({kind}), expected frame {}", self.received)));
        }
        let end = HEAD_BYTES + length;
        let Some(body) = self.bytes.get(HEAD_BYTES..end) else { return Ok(None) };
        let refused = |error: &dyn fmt::Display| malformed(format!("frame {number} ({kind}): {error}"));
        let mut message = None;
        if let Some(part) = MemoryKind::of_word(&kind) {
            self.pieces_bytes += length;
            if self.pieces_bytes > PIECES_BYTES_MAX {
                return Err(refused(&format!("more than {PIECES_BYTES_MAX} bytes are pending")));
            }
            self.memory.join(part, body).map_err(|error| refused(&error))?;
        } else {
            let body = str::from_utf8(body).map_err(|error| refused(&error))?;
            message = Message::read(&kind, body).map_err(|error| refused(&error))?;
            match &mut message {
                Some(message) => {
                    self.complete(message).map_err(|what| refused(&what))?;
                    message.escape();
                }
                None => {
                    let is_known = self.skipped.contains_key(&kind);
                    if is_known || self.skipped.len() < SKIPPED_MAX {
                        *self.skipped.entry(kind).or_default() += 1;
                    }
                }
            }
        }
        self.bytes.consume(end);
        self.received = self.received.wrapping_add(1);
        Ok(Some(Arrival { message, descriptors }))
    }

    /// Gives a message the pieces that came before it.
    fn complete(&mut self, message: &mut Message) -> Result<(), &'static str> {
        match message {
            Message::State(state) => {
                let rest = std::mem::replace(&mut **state, take(&mut self.memory));
                state.join_rest(rest);
            }
            Message::Report(report) => {
                let rest = ProcessMemory { counts: take(&mut report.counts), ..ProcessMemory::default() };
                self.memory.join_rest(rest);
                report.counts = take(&mut self.memory).counts;
            }
            _ if self.pieces_bytes > 0 => return Err("it follows pieces of another message"),
            _ => {}
        }
        self.pieces_bytes = 0;
        Ok(())
    }
}

impl Head {
    fn read(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Malformed> {
        let number_at = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (length, number) = (number_at(0) as usize, number_at(4));
        let descriptors = u16::from_be_bytes([bytes[8], bytes[9]]).into();
        let kind = &bytes[HEAD_BYTES - KIND_BYTES..];
        let end = kind.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        let kind = Some(&kind[..end]).filter(|kind| !kind.is_empty() && kind.iter().all(is_word));
        let kind = kind.ok_or_else(|| malformed("not the head of a frame"))?;
        let kind = String::from_utf8_lossy(kind).into_owned();
        if length > FRAME_BYTES_MAX {
            return Err(malformed(format!(
                "frame {number} ({kind}) of {length} bytes; the maximum is {FRAME_BYTES_MAX}"
            )));
        }
        Ok(Head { length, number, descriptors, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::message::{NAMES, Ready, SOCKETS_MAX};

    fn frames() -> Encoder {
        Encoder { version: WireVersion::Frames, sent: 0 }
    }

    /// What a process remembers with so many servers, of which there is something to say.
    fn state(servers: usize) -> Message {
        let server = |number: usize| (format!("s{number}").into(), Default::default());
        let figures =
            crate::handover::memory::ProxyCounts { servers: (0..servers).map(server).collect(), ..Default::default() };
        let mut memory = ProcessMemory { quiet_ms: 7, ..ProcessMemory::default() };
        memory.counts.backends = [("app".into(), figures)].into_iter().collect();
        Message::State(Box::new(memory))
    }

    #[test]
    fn no_kind_is_longer_than_a_head_has_room_for() {
        let parts = MemoryKind::ALL.iter().map(|(_, word)| *word);
        for kind in NAMES.into_iter().chain(parts) {
            assert!(kind.len() <= KIND_BYTES, "{kind}");
        }
    }

    #[test]
    fn much_comes_in_frames_of_bounded_size_and_is_the_same_however_it_is_cut() {
        let (mut encoder, message) = (frames(), state(20_000));
        let mut outgoing = encoder.message(message.clone());
        let (mut all, mut count) = (Vec::new(), 0);
        while let Some(Part { bytes, .. }) = encoder.next(&mut outgoing, 0).unwrap() {
            assert!(bytes.len() < 100_000, "{}", bytes.len());
            all.extend_from_slice(&bytes);
            count += 1;
        }
        assert!(count > 3, "{count}");
        for cut in [7, 4096, all.len()] {
            let mut incoming = Incoming::of(WireVersion::Frames);
            let mut messages = Vec::new();
            for some in all.chunks(cut) {
                incoming.bytes().extend_from_slice(some);
                while let Some(arrival) = incoming.arrival().unwrap() {
                    messages.extend(arrival.message);
                }
            }
            assert!(incoming.is_between_frames());
            assert_eq!(messages, std::slice::from_ref(&message));
        }
    }

    /// What is said of these bytes, in frames.
    fn refused(bytes: &[u8]) -> String {
        let mut incoming = Incoming::of(WireVersion::Frames);
        incoming.bytes().extend_from_slice(bytes);
        loop {
            match incoming.arrival() {
                Ok(Some(_)) => {}
                Ok(None) => return "more is needed".into(),
                Err(Malformed(what)) => return what,
            }
        }
    }

    fn frame(number: u32, kind: &str, body: &str) -> Vec<u8> {
        let mut encoder = Encoder { version: WireVersion::Frames, sent: number };
        encoder.frame(kind, body.as_bytes(), 0).unwrap().to_vec()
    }

    #[test]
    fn what_is_not_as_described_is_refused() {
        let check = |frames: &[Vec<u8>], expect: &str| assert_eq!(refused(&frames.concat()), expect);
        let send = |number| frame(number, "send", "{}");
        check(&[send(0), send(1)], "more is needed");
        check(&[send(0)[..20].to_vec()], "more is needed");
        check(&[send(0)[..33].to_vec()], "more is needed");
        check(&[send(1)], "received frame 1 (send), expected frame 0");
        check(&[send(0), send(0)], "received frame 0 (send), expected frame 1");
        check(&[send(0), send(2)], "received frame 2 (send), expected frame 1");
        check(&[vec![0; 32]], "not the head of a frame");
        check(&[frame(0, "Send", "{}")], "not the head of a frame");
        check(&[frame(0, "send\0er", "{}")], "not the head of a frame");
        let mut long = send(0);
        long[..4].copy_from_slice(&(FRAME_BYTES_MAX as u32 + 1).to_be_bytes());
        check(&[long], "frame 0 (send) of 4194305 bytes; the maximum is 4194304");
        check(&[frame(0, "send", "{} x")], "frame 0 (send): trailing characters at line 1 column 4");
        check(&[frame(0, "abort", "{}")], "frame 0 (abort): missing field `reason` at line 1 column 2");
        check(
            &[frame(0, "frontends", "[]")],
            "frame 0 (frontends): invalid type: sequence, expected things by name at line 1 column 0",
        );
        check(
            &[frame(0, "quiet", "{}"), frame(1, "ready", "{}")],
            "frame 1 (ready): it follows pieces of another message",
        );
        check(&[frame(0, "quiet", "{}"), frame(1, "state", "{}"), frame(2, "ready", "{}")], "more is needed");
    }

    #[test]
    fn a_kind_that_is_unknown_is_skipped_whatever_is_in_it() {
        let mut incoming = Incoming::of(WireVersion::Frames);
        let kinds = (0..20)
            .map(|number| frame(number, &format!("kind-{number}"), "\u{1}\u{2}"))
            .chain([frame(20, "kind-0", "")]);
        incoming.bytes().extend(kinds.chain([frame(21, "ready", r#"{"pid":7}"#)]).flatten());
        let mut messages = Vec::new();
        while let Some(arrival) = incoming.arrival().unwrap() {
            messages.extend(arrival.message);
        }
        assert_eq!(messages, [Message::Ready(Ready { pid: 7, ..Ready::default() })]);
        let skipped = incoming.skipped();
        assert_eq!(skipped.len(), SKIPPED_MAX, "not as many as another process likes");
        assert_eq!(skipped[0], ("kind-0".into(), 2));
    }

    #[test]
    fn the_best_version_that_both_speak_is_spoken() {
        let check = |theirs: &[u32], expect| assert_eq!(WireVersion::common(theirs), expect);
        check(&[1], Some(WireVersion::Messages));
        check(&[1, 2], Some(WireVersion::Frames));
        check(&[7, 2, 1], Some(WireVersion::Frames));
        check(&[7], None);
        assert_eq!([0, 1, 2, 3].map(WireVersion::at_most).map(WireVersion::number), [1, 1, 2, 2]);
    }

    #[test]
    fn what_is_too_long_for_a_frame_is_not_sent() {
        let mut encoder = frames();
        let mut message =
            encoder.message(Message::Ready(Ready { taken: (0..SOCKETS_MAX).collect(), ..Ready::default() }));
        assert!(encoder.next(&mut message, 0).is_ok(), "as many sockets as there may be");
        let mut message = encoder.message(Message::Abort { reason: "x".repeat(FRAME_BYTES_MAX) });
        let Malformed(what) = encoder.next(&mut message, 0).unwrap_err();
        assert_eq!(what, "abort of 4194331 bytes; the maximum is 4194304");
    }
}
