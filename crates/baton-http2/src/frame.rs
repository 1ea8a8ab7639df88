//! Frames (RFC 9113 4 and 6): their header, their flags, and how ours are written.

use crate::error::ErrorCode;
use crate::settings::Setting;

/// Bytes of a frame's header.
pub const FRAME_HEADER_LEN: usize = 9;
/// What a client's connection begins with (RFC 9113 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The smallest, and initial, SETTINGS_MAX_FRAME_SIZE.
pub const FRAME_SIZE_MIN: u32 = 1 << 14;
/// The largest SETTINGS_MAX_FRAME_SIZE.
pub const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;
/// The highest stream identifier, and the largest window.
pub const MAX_31: u32 = (1 << 31) - 1;

/// A frame's type.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[repr(u8)]
pub enum FrameType {
    /// Bytes of a body.
    Data = 0x0,
    /// A field section, or its beginning.
    Headers = 0x1,
    /// Deprecated advice.
    Priority = 0x2,
    /// The end of a stream.
    RstStream = 0x3,
    /// Parameters of a connection.
    Settings = 0x4,
    /// A pushed request.
    PushPromise = 0x5,
    /// A question whether the peer is there.
    Ping = 0x6,
    /// The end of a connection.
    GoAway = 0x7,
    /// More of a window.
    WindowUpdate = 0x8,
    /// More of a field section.
    Continuation = 0x9,
}

impl FrameType {
    /// The type of that number; `None`: such frames are ignored (RFC 9113 5.5).
    pub const fn of(number: u8) -> Option<FrameType> {
        Some(match number {
            0x0 => FrameType::Data,
            0x1 => FrameType::Headers,
            0x2 => FrameType::Priority,
            0x3 => FrameType::RstStream,
            0x4 => FrameType::Settings,
            0x5 => FrameType::PushPromise,
            0x6 => FrameType::Ping,
            0x7 => FrameType::GoAway,
            0x8 => FrameType::WindowUpdate,
            0x9 => FrameType::Continuation,
            _ => return None,
        })
    }
}

/// Flags of frames.
pub mod flag {
    /// SETTINGS, PING: the acknowledgement of one.
    pub const ACK: u8 = 0x1;
    /// DATA, HEADERS: nothing follows on the stream.
    pub const END_STREAM: u8 = 0x1;
    /// HEADERS, CONTINUATION: the field section is complete.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS: the payload is padded.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: five bytes about priority come first.
    pub const PRIORITY: u8 = 0x20;
}

/// A frame's header.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct FrameHeader {
    /// Bytes of payload.
    pub len: u32,
    /// The type's number.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// The header at the start of `input`, if it is complete. The reserved bit is ignored.
    #[inline]
    pub fn parse(input: &[u8]) -> Option<FrameHeader> {
        let &[a, b, c, kind, flags, s0, s1, s2, s3] = input.first_chunk::<FRAME_HEADER_LEN>()?;
        Some(FrameHeader {
            len: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_31,
        })
    }

    /// Whether it has all bits of `flag`.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// Its nine bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; FRAME_HEADER_LEN] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s0, s1, s2, s3]
    }
}

/// The header of a frame of ours.
#[inline]
pub(crate) fn header(kind: FrameType, flags: u8, stream: u32, len: usize) -> FrameHeader {
    debug_assert!(len <= FRAME_SIZE_MAX as usize);
    FrameHeader { len: len as u32, kind: kind as u8, flags, stream }
}

fn write(kind: FrameType, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&header(kind, flags, stream, payload.len()).bytes());
    out.extend_from_slice(payload);
}

/// Appends RST_STREAM.
pub fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write(FrameType::RstStream, 0, stream, &code.0.to_be_bytes(), out);
}

/// Appends SETTINGS.
pub fn write_settings(settings: impl Iterator<Item = (Setting, u32)>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&header(FrameType::Settings, 0, 0, 0).bytes());
    for (setting, value) in settings {
        out.extend_from_slice(&(setting as u16).to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
    let len = out.len() - start - FRAME_HEADER_LEN;
    out[start..start + FRAME_HEADER_LEN].copy_from_slice(&header(FrameType::Settings, 0, 0, len).bytes());
}

/// Appends the acknowledgement of SETTINGS.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    write(FrameType::Settings, flag::ACK, 0, &[], out);
}

/// Appends PING or its acknowledgement.
pub fn write_ping(payload: [u8; 8], is_ack: bool, out: &mut Vec<u8>) {
    write(FrameType::Ping, if is_ack { flag::ACK } else { 0 }, 0, &payload, out);
}

/// Appends GOAWAY. `text` is for whoever debugs the peer.
pub fn write_go_away(last_stream: u32, code: ErrorCode, text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(FrameType::GoAway, 0, 0, 8 + text.len()).bytes());
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends WINDOW_UPDATE.
pub fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    debug_assert!((1..=MAX_31).contains(&increment));
    write(FrameType::WindowUpdate, 0, stream, &increment.to_be_bytes(), out);
}
