//! Frames: a class, a type, and for types from 128 on a payload with its length. The smallest parts of payloads are read here, too.

use crate::varint::{self, Varint};

/// Bytes of a payload, at most: more is refused, as by HAProxy with its usual `tune.bufsize`.
pub const PAYLOAD_MAX: usize = 16_384;
/// Bytes of a frame before its payload, at most: class, type, and a length of five bytes.
const HEAD_MAX: usize = 7;
/// Bytes of a frame, at most.
pub const FRAME_MAX: usize = HEAD_MAX + PAYLOAD_MAX;
/// Bytes of a length, at most.
const LENGTH_BYTES_MAX: usize = 5;
/// From this type on, frames of any class have a payload.
const WITH_PAYLOAD: u8 = 128;

/// Classes.
const CONTROL: u8 = 0;
const ERROR: u8 = 1;
const TABLES: u8 = 10;
const RESERVED: u8 = 255;

/// Types of class `TABLES`.
const UPDATE: u8 = 128;
const UPDATE_NEXT: u8 = 129;
const DEFINITION: u8 = 130;
const SWITCH: u8 = 131;
const ACKNOWLEDGEMENT: u8 = 132;
const TIMED: u8 = 133;
const TIMED_NEXT: u8 = 134;

/// Why a link ends: what its other side sent cannot be understood. The error frame says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Violation {
    /// Not the protocol.
    Protocol,
    /// A payload that is too long.
    Size,
}

/// A frame without a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// Teach me all you know.
    Request,
    /// The lesson is complete, and I know all that there is.
    Finished,
    /// The lesson is complete, but I may not know all.
    Partial,
    /// The end of a lesson has arrived.
    Confirm,
    /// I am alive.
    Heartbeat,
}

/// A frame that was received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frame<'a> {
    /// A frame without a payload.
    Control(Control),
    /// What an update is about.
    Definition(&'a [u8]),
    /// The number of a table that was defined before.
    Switch(&'a [u8]),
    /// An entry.
    Update {
        /// Its number and its life are sent with it, as this says.
        form: UpdateForm,
        /// All of it.
        payload: &'a [u8],
    },
    /// The last number that arrived.
    Acknowledgement(&'a [u8]),
    /// What is ignored: other classes and types, and errors, after which the sender closes.
    Other,
}

/// What an update begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UpdateForm {
    /// Its number. Without, it is the one after that of the update before.
    pub has_id: bool,
    /// The rest of the entry's life.
    pub is_timed: bool,
}

/// Takes the frame at the start of some bytes, with the number of its bytes; `None` if it is not whole yet.
///
/// # Errors
/// It is too long, or of the class that is reserved.
pub fn next(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Violation> {
    let &[class, kind, ref rest @ ..] = bytes else {
        return if bytes.first() == Some(&RESERVED) { Err(Violation::Protocol) } else { Ok(None) };
    };
    if class == RESERVED {
        return Err(Violation::Protocol);
    }
    if kind < WITH_PAYLOAD {
        let control = match kind {
            0 => Control::Request,
            1 => Control::Finished,
            2 => Control::Partial,
            3 => Control::Confirm,
            4 => Control::Heartbeat,
            _ => return Ok(Some((Frame::Other, 2))),
        };
        return Ok(Some((if class == CONTROL { Frame::Control(control) } else { Frame::Other }, 2)));
    }
    let (length, head) = match varint::read(&rest[..rest.len().min(LENGTH_BYTES_MAX)]) {
        Varint::Whole(length, head) => (length, head),
        Varint::Cut if rest.len() < LENGTH_BYTES_MAX => return Ok(None),
        Varint::Cut | Varint::TooLong => return Err(Violation::Protocol),
    };
    let length = usize::try_from(length).map_err(|_| Violation::Size)?;
    if length > PAYLOAD_MAX {
        return Err(Violation::Size);
    }
    let Some(payload) = rest.get(head..head + length) else { return Ok(None) };
    let update = |has_id, is_timed| Frame::Update { form: UpdateForm { has_id, is_timed }, payload };
    let frame = match (class, kind) {
        (TABLES, UPDATE) => update(true, false),
        (TABLES, UPDATE_NEXT) => update(false, false),
        (TABLES, TIMED) => update(true, true),
        (TABLES, TIMED_NEXT) => update(false, true),
        (TABLES, DEFINITION) => Frame::Definition(payload),
        (TABLES, SWITCH) => Frame::Switch(payload),
        (TABLES, ACKNOWLEDGEMENT) => Frame::Acknowledgement(payload),
        _ => Frame::Other,
    };
    Ok(Some((frame, 2 + head + length)))
}

/// Appends a frame without a payload.
pub fn write_control(out: &mut Vec<u8>, control: Control) {
    let kind = match control {
        Control::Request => 0,
        Control::Finished => 1,
        Control::Partial => 2,
        Control::Confirm => 3,
        Control::Heartbeat => 4,
    };
    out.extend_from_slice(&[CONTROL, kind]);
}

/// Appends the error after which a link is closed.
pub fn write_error(out: &mut Vec<u8>, violation: Violation) {
    let kind = match violation {
        Violation::Protocol => 0,
        Violation::Size => 1,
    };
    out.extend_from_slice(&[ERROR, kind]);
}

/// Appends a definition.
pub fn write_definition(out: &mut Vec<u8>, payload: &[u8]) {
    write(out, DEFINITION, payload);
}

/// Appends an update with its number, and with the rest of its entry's life in its payload if it is timed.
pub fn write_update(out: &mut Vec<u8>, is_timed: bool, payload: &[u8]) {
    write(out, if is_timed { TIMED } else { UPDATE }, payload);
}

/// Appends an acknowledgement of an update to the table that its sender calls by this number.
pub fn write_acknowledgement(out: &mut Vec<u8>, table: u64, update: u32) {
    let mut payload = Vec::with_capacity(varint::BYTES_MAX + 4);
    varint::write(&mut payload, table);
    payload.extend_from_slice(&update.to_be_bytes());
    write(out, ACKNOWLEDGEMENT, &payload);
}

fn write(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    debug_assert!(
        payload.len() <= PAYLOAD_MAX,
        "what is sent is bounded by the length of keys and by the types of data"
    );
    out.extend_from_slice(&[TABLES, kind]);
    varint::write(out, payload.len() as u64);
    out.extend_from_slice(payload);
}

/// Reads the fields of a payload, one after another.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// From its start.
    pub fn of(payload: &'a [u8]) -> Fields<'a> {
        Fields(payload)
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An integer of variable length.
    ///
    /// # Errors
    /// The payload is too short.
    pub fn varint(&mut self) -> Result<u64, Violation> {
        match varint::read(self.0) {
            Varint::Whole(value, length) => {
                self.0 = &self.0[length..];
                Ok(value)
            }
            Varint::Cut | Varint::TooLong => Err(Violation::Protocol),
        }
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Four bytes, the highest first.
    ///
    /// # Errors
    /// As above.
    pub fn u32(&mut self) -> Result<u32, Violation> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// So many bytes.
    ///
    /// # Errors
    /// As above.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Violation> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Violation::Protocol)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Bytes with their number before them.
    ///
    /// # Errors
    /// As above.
    pub fn counted(&mut self) -> Result<&'a [u8], Violation> {
        let count = self.varint()?;
        self.bytes(usize::try_from(count).map_err(|_| Violation::Protocol)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_taken_apart() {
        let check = |bytes: &[u8], expect| assert_eq!(next(bytes), expect, "{bytes:02x?}");
        check(&[], Ok(None));
        check(&[0], Ok(None));
        check(&[0, 0], Ok(Some((Frame::Control(Control::Request), 2))));
        check(&[0, 1], Ok(Some((Frame::Control(Control::Finished), 2))));
        check(&[0, 2], Ok(Some((Frame::Control(Control::Partial), 2))));
        check(&[0, 3], Ok(Some((Frame::Control(Control::Confirm), 2))));
        check(&[0, 4, 9], Ok(Some((Frame::Control(Control::Heartbeat), 2))));
        check(&[1, 0], Ok(Some((Frame::Other, 2))));
        check(&[0x0a, 0x83, 1, 10], Ok(Some((Frame::Switch(&[10]), 4))));
        check(&[0x0a, 0x84, 5, 2, 0, 0, 0, 8], Ok(Some((Frame::Acknowledgement(&[2, 0, 0, 0, 8]), 8))));
        let form = UpdateForm { has_id: false, is_timed: true };
        check(&[0x0a, 0x86, 2, 1, 2, 7], Ok(Some((Frame::Update { form, payload: &[1, 2] }, 5))));
    }

    #[test]
    fn unknown_frames_are_skipped() {
        for bytes in [&[7, 3][..], &[0, 99], &[0, 200, 2, 1, 1], &[10, 127], &[10, 140, 0], &[1, 200, 1, 1]] {
            assert_eq!(next(bytes), Ok(Some((Frame::Other, bytes.len()))), "{bytes:02x?}");
        }
    }

    #[test]
    fn long_and_reserved_frames_end_a_link() {
        let check = |bytes: &[u8], expect| assert_eq!(next(bytes), Err(expect), "{bytes:02x?}");
        check(&[255], Violation::Protocol);
        check(&[255, 1], Violation::Protocol);
        let mut long = vec![10, 128];
        varint::write(&mut long, 16_385);
        check(&long, Violation::Size);
        let mut longest = vec![99, 255];
        varint::write(&mut longest, (1 << 32) + 5);
        check(&longest, Violation::Size);
        check(&[10, 128, 0xff, 0xff, 0xff, 0xff, 0xff], Violation::Protocol);
        assert_eq!(next(&[10, 128, 0xff, 0xff, 0xff, 0xff]), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_alike_however_they_are_cut(bytes: Vec<u8>) {
            let whole = next(&bytes);
            if let Ok(Some((_, length))) = whole {
                for end in 0..length {
                    prop_assert_eq!(next(&bytes[..end]), Ok(None));
                }
            }
        }
    }
}
