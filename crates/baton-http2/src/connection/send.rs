//! Calls in: messages to frames.
//!
//! What HTTP/2 has no place for is left out: fields about the connection, and `host` beside `:authority`. Field names are written in lower case.

use std::fmt;

use baton_http::Name;
use serde::{Deserialize, Serialize};

use super::{Connection, Role};
use crate::frame::{self, FRAME_HEADER_LEN, FrameType, MAX_31, flag};
use crate::stream::Half;

/// Streams that may be open before the peer's SETTINGS say how many: what RFC 9113 6.5.2 recommends as the least.
const STREAMS_UNKNOWN: u32 = 100;

/// Bytes of a body in a frame that the windows have made shorter than it could be, from which on it counts as of use.
const USEFUL_MIN: usize = 512;

/// Why no stream can be opened now.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub enum NotOpened {
    /// As many streams are open as the peer allows: another one can be once one has ended.
    Full,
    /// One side has announced the end, or identifiers are exhausted: a new connection is needed.
    Ending,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotOpened::Full => "as many streams are open as the peer allows",
            NotOpened::Ending => "the connection takes no new streams",
        })
    }
}

impl std::error::Error for NotOpened {}

/// What a request has instead of a request line.
#[derive(Copy, Clone, Default, Debug)]
pub struct RequestPseudo<'a> {
    /// `:method`
    pub method: &'a [u8],
    /// `:scheme`; left out if empty, as CONNECT wants it.
    pub scheme: &'a [u8],
    /// `:authority`; left out if empty.
    pub authority: &'a [u8],
    /// `:path`; left out if empty, as CONNECT wants it.
    pub path: &'a [u8],
    /// `:protocol` of extended CONNECT (RFC 8441): only where the peer's settings allow it.
    pub protocol: Option<&'a [u8]>,
}

/// The header of a DATA frame whose payload the caller writes behind it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct DataFrame {
    /// The header.
    pub header: [u8; FRAME_HEADER_LEN],
    /// Bytes of payload: the first of those that were offered.
    pub len: usize,
}

impl Connection {
    /// Whether a stream can be opened.
    pub fn may_open(&self) -> Result<(), NotOpened> {
        if !self.may_go_on() {
            return Err(NotOpened::Ending);
        }
        let limit = self.streams_max();
        let has_room = self.streams.len() < limit || self.streams.open() < limit;
        if has_room { Ok(()) } else { Err(NotOpened::Full) }
    }

    /// Whether streams can be opened, now or once others have ended: neither side has announced the end, and identifiers are left.
    pub fn may_go_on(&self) -> bool {
        !self.is_draining() && self.failed.is_none() && self.peer_last.is_none() && self.next_own <= MAX_31
    }

    /// Streams that the peer allows to be open at a time.
    pub fn streams_max(&self) -> usize {
        if self.has_settings { self.peer.max_concurrent_streams as usize } else { STREAMS_UNKNOWN as usize }
    }

    /// Sends a request, which ends with its head if `ends`. Returns its stream, to be given back by [`release`](Self::release).
    pub fn send_request<'a>(
        &mut self,
        pseudo: RequestPseudo<'_>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Result<u32, NotOpened> {
        debug_assert_eq!(self.role, Role::Client);
        self.may_open()?;
        let stream = self.next_own;
        self.next_own += 2;
        let at = self.add_stream(stream, Half::Head, if ends { Half::Ended } else { Half::Body });
        at.is_head = pseudo.method == b"HEAD";
        let start = self.begin_block(out);
        self.encoder.field(b":method", pseudo.method, out);
        for (name, value) in [
            (&b":scheme"[..], pseudo.scheme),
            (b":authority", pseudo.authority),
            (b":path", pseudo.path),
            (b":protocol", pseudo.protocol.unwrap_or_default()),
        ] {
            if !value.is_empty() {
                self.encoder.field(name, value, out);
            }
        }
        let has_authority = !pseudo.authority.is_empty();
        self.encode(fields.filter(|(name, _)| !(has_authority && Name::of(name) == Name::Host)), out);
        self.end_block_out(start, stream, ends, out);
        Ok(stream)
    }

    /// Sends the head of a response, interim (1xx) or final, which ends with it if `ends`. Nothing is sent on a stream that was reset.
    pub fn send_response<'a>(
        &mut self,
        stream: u32,
        status: u16,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        ends: bool,
        out: &mut Vec<u8>,
    ) {
        let is_final = !(100..200).contains(&status);
        let Some(at) = self.streams.get_mut(stream) else { return };
        if at.reset.is_some() || at.sending != Half::Head {
            return;
        }
        if is_final {
            at.sending = if ends { Half::Ended } else { Half::Body };
        }
        let start = self.begin_block(out);
        self.encoder.status(status, out);
        self.encode(fields, out);
        self.end_block_out(start, stream, ends && is_final, out);
    }

    /// Sends trailers, perhaps none, which end the message.
    pub fn send_trailers<'a>(
        &mut self,
        stream: u32,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        out: &mut Vec<u8>,
    ) {
        if self.sending_body(stream).is_none() {
            return;
        }
        let start = self.begin_block(out);
        let before = out.len();
        self.encode(fields, out);
        if out.len() == before {
            out.truncate(start);
            self.send_data(stream, &[], true, out);
            return;
        }
        self.end_sending(stream);
        self.end_block_out(start, stream, true, out);
    }

    /// Bytes of a body that may be sent now on a stream: those that its window and the connection's have room for, at most those of a frame.
    pub fn sendable(&self, stream: u32) -> usize {
        let Some(at) = self.streams.get(stream).filter(|at| at.reset.is_none() && at.sending == Half::Body) else {
            return 0;
        };
        at.send_window.left().min(self.send_window.left()).min(self.peer.max_frame_size as usize)
    }

    /// Whether the connection's window has no room for any stream.
    #[inline]
    pub fn is_window_closed(&self) -> bool {
        self.send_window.left() == 0
    }

    /// Whether a stream has a window, and only the connection's has no room.
    pub fn is_held_up(&self, stream: u32) -> bool {
        self.is_window_closed() && self.streams.get(stream).is_some_and(|at| at.send_window.left() > 0)
    }

    /// The header for as many of `len` bytes of a body as may be sent in one frame; `ends`: they are the last, if all are taken. The caller
    /// writes the header and these bytes, nothing between. `None`: nothing may be sent now; [`Event::Window`](super::Event::Window) tells
    /// when. (An end without bytes is always sent.)
    pub fn data_frame(&mut self, stream: u32, len: usize, ends: bool) -> Option<DataFrame> {
        let frame_max = self.peer.max_frame_size as usize;
        let room = self.send_window.left();
        let at = self.sending_body(stream)?;
        let taken = len.min(frame_max).min(at.send_window.left()).min(room);
        if taken < len.min(frame_max) {
            // Whatever is left has to wait for the one that is smaller.
            let own_waits = at.send_window.left() <= room;
            at.send_window.is_awaited |= own_waits;
            self.send_window.is_awaited |= !own_waits;
        }
        if taken == 0 && (len > 0 || !ends) {
            return None;
        }
        let ends = ends && taken == len;
        if let Some(at) = self.sending_body(stream) {
            at.send_window.spend(taken);
        }
        self.send_window.spend(taken);
        if ends {
            self.end_sending(stream);
        }
        // A client that opens its windows by a few bytes at a time does not pay for its frames with ours.
        if taken == len.min(frame_max) || taken >= USEFUL_MIN {
            self.budget.useful(&self.config);
        }
        let flags = if ends { flag::END_STREAM } else { 0 };
        Some(DataFrame { header: frame::header(FrameType::Data, flags, stream, taken).bytes(), len: taken })
    }

    /// Sends as many of `bytes` as windows have room for, in as many frames as it takes; returns how many. `ends`: they are the last, if
    /// all are taken.
    pub fn send_data(&mut self, stream: u32, bytes: &[u8], ends: bool, out: &mut Vec<u8>) -> usize {
        let mut sent = 0;
        loop {
            let rest = &bytes[sent..];
            let Some(frame) = self.data_frame(stream, rest.len(), ends) else { return sent };
            out.extend_from_slice(&frame.header);
            out.extend_from_slice(&rest[..frame.len]);
            sent += frame.len;
            if sent == bytes.len() {
                return sent;
            }
        }
    }

    fn sending_body(&mut self, stream: u32) -> Option<&mut crate::stream::Stream> {
        self.streams.get_mut(stream).filter(|at| at.reset.is_none() && at.sending == Half::Body)
    }

    fn end_sending(&mut self, stream: u32) {
        if let Some(at) = self.streams.get_mut(stream) {
            at.sending = Half::Ended;
        }
    }

    /// Leaves room for the header of the frame; where it is.
    fn begin_block(&mut self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER_LEN]);
        self.encoder.begin(out);
        start
    }

    fn encode<'a>(&mut self, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>, out: &mut Vec<u8>) {
        for (name, value) in fields {
            if is_sent(name, value) {
                self.encoder.field(name, value, out);
            }
        }
    }

    /// Writes the frame's header in front of the block, and splits it where it is longer than a frame of the peer's.
    fn end_block_out(&mut self, start: usize, stream: u32, ends: bool, out: &mut Vec<u8>) {
        self.budget.useful(&self.config);
        let frame_max = self.peer.max_frame_size as usize;
        let len = out.len() - start - FRAME_HEADER_LEN;
        let (first, end_flag) = (len.min(frame_max), if ends { flag::END_STREAM } else { 0 });
        let flags = end_flag | if first == len { flag::END_HEADERS } else { 0 };
        let header = frame::header(FrameType::Headers, flags, stream, first).bytes();
        out[start..start + FRAME_HEADER_LEN].copy_from_slice(&header);
        if first == len {
            return;
        }
        let rest = out.split_off(start + FRAME_HEADER_LEN + first);
        let last = (rest.len() - 1) / frame_max;
        for (at, part) in rest.chunks(frame_max).enumerate() {
            let flags = if at == last { flag::END_HEADERS } else { 0 };
            out.extend_from_slice(&frame::header(FrameType::Continuation, flags, stream, part.len()).bytes());
            out.extend_from_slice(part);
        }
    }
}

/// Whether a field has a place in HTTP/2 (RFC 9113 8.2.2), and cannot be read as more than one. What is neither was let through by nobody.
fn is_sent(name: &[u8], value: &[u8]) -> bool {
    let is_of_connection = match Name::of(name) {
        Name::Connection | Name::KeepAlive | Name::ProxyConnection | Name::TransferEncoding | Name::Upgrade => true,
        Name::Te => !value.eq_ignore_ascii_case(b"trailers"),
        _ => name.is_empty() || name[0] == b':',
    };
    let is_clean = value.iter().fold(true, |clean, &byte| clean & (byte != b'\r') & (byte != b'\n') & (byte != 0));
    !is_of_connection && is_clean
}
