//! WebSocket as the demo origin and the held-open sessions need it (RFC 6455): the accept key and frames over byte slices.
//!
//! No I/O, no extensions, no subprotocols.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use sha1::{Digest, Sha1};

/// The most payload a frame or a message may have here.
pub const MESSAGE_MAX: usize = 1024 * 1024;

/// The longest head of a frame: two bytes, a 64-bit length and a mask.
#[cfg(test)]
const FRAME_HEAD_MAX: usize = 14;

/// What a server answers to `Sec-WebSocket-Key` in `Sec-WebSocket-Accept` (RFC 6455 section 4.2.2).
pub fn accept_key(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64.encode(hash.finalize())
}

/// A fresh `Sec-WebSocket-Key`.
pub(crate) fn new_key() -> String {
    BASE64.encode([random().to_ne_bytes(), random().to_ne_bytes()].concat())
}

/// A fresh mask.
pub(crate) fn new_mask() -> [u8; 4] {
    (random() as u32).to_ne_bytes()
}

/// Random enough against confused intermediaries, which is all that keys and masks of a test client are for.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What a frame is (RFC 6455 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn new(code: u8) -> Option<Opcode> {
        Some(match code {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    fn code(self) -> u8 {
        match self {
            Opcode::Continuation => 0,
            Opcode::Text => 1,
            Opcode::Binary => 2,
            Opcode::Close => 8,
            Opcode::Ping => 9,
            Opcode::Pong => 10,
        }
    }

    pub(crate) fn is_control(self) -> bool {
        self.code() >= 8
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Whether it is the last of its message.
    pub(crate) last: bool,
    pub(crate) opcode: Opcode,
    pub(crate) mask: Option<[u8; 4]>,
    /// The payload's length in bytes, at most [`MESSAGE_MAX`].
    pub(crate) length: usize,
}

/// The peer sent something that is no frame, or one larger than [`MESSAGE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFrame;

impl Frame {
    /// Reads a frame's head from the start of `bytes`: the head and its length, or `None` when more bytes are needed.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Frame, usize)>, BadFrame> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let opcode = Opcode::new(first & 0x0f).ok_or(BadFrame)?;
        let (last, masked) = (first & 0x80 != 0, second & 0x80 != 0);
        let (length, mut used) = match (second & 0x7f, rest) {
            (126, [a, b, ..]) => (u64::from(u16::from_be_bytes([*a, *b])), 4),
            (127, [a, b, c, d, e, f, g, h, ..]) => (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), 10),
            (126 | 127, _) => return Ok(None),
            (length, _) => (u64::from(length), 2),
        };
        let length = usize::try_from(length).map_err(|_| BadFrame)?;
        // No extension was agreed on, so the reserved bits are zero; control frames are short and whole (section 5.5).
        if first & 0x70 != 0 || length > MESSAGE_MAX || (opcode.is_control() && (length > 125 || !last)) {
            return Err(BadFrame);
        }
        let mask = match (masked, bytes.get(used..used + 4)) {
            (false, _) => None,
            (true, None) => return Ok(None),
            (true, Some(mask)) => {
                used += 4;
                Some([mask[0], mask[1], mask[2], mask[3]])
            }
        };
        Ok(Some((Frame { last, opcode, mask, length }, used)))
    }

    /// Appends this frame's head and `payload` (masked if the frame is) to `out`. `payload` has the frame's length.
    pub(crate) fn write(&self, payload: &[u8], out: &mut Vec<u8>) {
        debug_assert_eq!(self.length, payload.len());
        out.push(self.opcode.code() | if self.last { 0x80 } else { 0 });
        let masked = if self.mask.is_some() { 0x80 } else { 0 };
        match u16::try_from(payload.len()) {
            Ok(length) if length < 126 => out.push(masked | length as u8),
            Ok(length) => {
                out.push(masked | 126);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                out.push(masked | 127);
                out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
            }
        }
        if let Some(mask) = self.mask {
            out.extend_from_slice(&mask);
        }
        let start = out.len();
        out.extend_from_slice(payload);
        self.unmask(&mut out[start..]);
    }

    /// Takes this frame's mask off `payload`, or puts it on.
    pub(crate) fn unmask(&self, payload: &mut [u8]) {
        if let Some(mask) = self.mask {
            for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
                *byte ^= mask;
            }
        }
    }
}

/// What a server sent, put together from its frames.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The message, as far as it has come; the owner empties it after [`ReceivedFrame::Message`].
    pub(crate) message: Vec<u8>,
    /// Whether a message has begun and not ended.
    begun: bool,
}

/// The next thing that a server said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReceivedFrame {
    /// A binary message is whole, in [`Incoming::message`].
    Message,
    /// A text frame.
    Text,
    Ping(Vec<u8>),
    Close,
}

impl Incoming {
    /// Takes what is whole from the start of `input`; `None` when more bytes are needed. Pongs are passed over.
    pub(crate) fn next(&mut self, input: &mut Vec<u8>) -> Result<Option<ReceivedFrame>, BadFrame> {
        loop {
            let Some((frame, head)) = Frame::read(input)? else { return Ok(None) };
            // RFC 6455 section 5.1: what a server sends is not masked.
            if frame.mask.is_some() || self.message.len() + frame.length > MESSAGE_MAX {
                return Err(BadFrame);
            }
            let end = head + frame.length;
            if input.len() < end {
                return Ok(None);
            }
            let payload = &input[head..end];
            let came = match frame.opcode {
                Opcode::Ping => Some(ReceivedFrame::Ping(payload.to_vec())),
                Opcode::Pong => None,
                Opcode::Close => Some(ReceivedFrame::Close),
                Opcode::Text => Some(ReceivedFrame::Text),
                // Section 5.4: the first frame of a message names its kind, the others continue it.
                Opcode::Binary if self.begun => return Err(BadFrame),
                Opcode::Continuation if !self.begun => return Err(BadFrame),
                Opcode::Binary | Opcode::Continuation => {
                    self.message.extend_from_slice(payload);
                    self.begun = !frame.last;
                    frame.last.then_some(ReceivedFrame::Message)
                }
            };
            input.drain(..end);
            if came.is_some() {
                return Ok(came);
            }
        }
    }

    /// Whether a message has begun and not ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        // RFC 6455 section 1.3.
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(new_key().len(), 24);
        assert_ne!(new_key(), new_key());
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        for length in [0, 1, 125, 126, 65_535, 65_536, MESSAGE_MAX] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let frame = Frame { last: true, opcode: Opcode::Binary, mask, length };
                let mut bytes = Vec::new();
                frame.write(&payload, &mut bytes);
                let (read, used) = Frame::read(&bytes).expect("a frame").expect("whole");
                assert_eq!(read, frame);
                assert!(used <= FRAME_HEAD_MAX);
                assert_eq!(Frame::read(&bytes[..used - 1]), Ok(None), "a part of a head");
                read.unmask(&mut bytes[used..]);
                assert!(bytes[used..] == payload, "length {length}");
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let check = |bytes: &[u8]| assert_eq!(Frame::read(bytes), Err(BadFrame), "{bytes:?}");
        check(&[0x83, 0]);
        check(&[0xc1, 0]);
        check(&[0x09, 0]);
        check(&[0x89, 126, 0, 126]);
        check(&[0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest::proptest! {
        /// Whatever a peer sends: no panic, and every bound holds.
        #[test]
        fn any_bytes_are_a_frame_or_none(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..20)) {
            if let Ok(Some((frame, used))) = Frame::read(&bytes) {
                proptest::prop_assert!(used <= bytes.len().min(FRAME_HEAD_MAX) && frame.length <= MESSAGE_MAX);
            }
        }
    }
}
