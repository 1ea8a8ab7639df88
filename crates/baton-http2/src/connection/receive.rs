//! Bytes in: frames, in whatever pieces they arrive.
//!
//! Only the fixed part of a frame has to be in the input at once, at most 17 bytes. Bodies are handed out as they arrive, field blocks are
//! decoded in place when they are whole, and gathered when they are not.

use super::{Connection, DRAIN_PING, Drain, Event, OpenBlock, Reading, Received, Role};
use crate::error::{ErrorCode, Violation};
use crate::frame::{self, FRAME_HEADER_LEN, FrameHeader, FrameType, MAX_31, PREFACE, flag};
use crate::stream::{DataTaken, Half, ResetBy};

/// What became of a frame whose beginning is in the input.
enum Begun<'i> {
    /// Its fixed part is not complete.
    NeedMore,
    /// It is done, or is being read.
    Going,
    /// It is done, or is being read, and something happened.
    Event(Event<'i>),
}

impl Connection {
    /// Takes what is at the start of `input`, up to the next event. What we answer by ourselves is appended to `out`. Call it again
    /// with the rest, as long as there are events.
    ///
    /// # Errors
    /// The connection cannot go on; GOAWAY is in `out`.
    pub fn receive<'i>(&mut self, input: &'i [u8], out: &mut Vec<u8>) -> Result<Received<'i>, Violation> {
        if let Some(violation) = self.failed {
            return Err(violation);
        }
        let mut rest = input;
        match self.take(&mut rest, out) {
            Ok(event) => Ok(Received { consumed: input.len() - rest.len(), event }),
            Err(violation) => {
                self.fail(violation, out);
                Err(violation)
            }
        }
    }

    fn take<'i>(&mut self, rest: &mut &'i [u8], out: &mut Vec<u8>) -> Result<Option<Event<'i>>, Violation> {
        loop {
            match self.reading {
                Reading::Header => match self.begin(rest, out)? {
                    Begun::NeedMore => return Ok(None),
                    Begun::Going => {}
                    Begun::Event(event) => return Ok(Some(event)),
                },
                Reading::Data { stream, left, padding, ends } => {
                    if rest.is_empty() && left > 0 {
                        return Ok(None);
                    }
                    if self.is_reset(stream) {
                        // It was given up, or back, in the middle of a frame.
                        self.reading = Reading::Skip { left: left + padding };
                        continue;
                    }
                    let bytes = split(rest, left);
                    let left = left - bytes.len() as u32;
                    self.reading = match left {
                        0 => Reading::Skip { left: padding },
                        _ => Reading::Data { stream, left, padding, ends },
                    };
                    let ends = ends && left == 0;
                    return Ok(Some(Event::Data { stream, bytes, ends }));
                }
                Reading::Block { left, padding } => {
                    if rest.is_empty() && left > 0 {
                        return Ok(None);
                    }
                    if let Some(event) = self.take_block(rest, left, padding, out)? {
                        return Ok(Some(event));
                    }
                }
                Reading::Settings { left: 0, window_before } => {
                    self.reading = Reading::Header;
                    self.settle(window_before, out)?;
                    return Ok(Some(Event::Settings));
                }
                Reading::Settings { left, window_before } => {
                    let Some((&[a, b, c, d, e, f], after)) = rest.split_first_chunk::<6>() else { return Ok(None) };
                    *rest = after;
                    let (id, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
                    self.peer.apply(id, value, self.role == Role::Client)?;
                    if id == 1 {
                        // Each value counts, the smallest above all (RFC 7541 4.2).
                        self.encoder.set_limit(value);
                    }
                    self.reading = Reading::Settings { left: left - 6, window_before };
                }
                Reading::Skip { left } => {
                    let left = left - split(rest, left).len() as u32;
                    self.reading = if left == 0 { Reading::Header } else { Reading::Skip { left } };
                    if left > 0 {
                        return Ok(None);
                    }
                }
                Reading::Preface { seen } => {
                    let wanted = &PREFACE[usize::from(seen)..];
                    let bytes = split(rest, wanted.len() as u32);
                    if !wanted.starts_with(bytes) {
                        return Err(Violation::Preface);
                    }
                    if bytes.len() < wanted.len() {
                        self.reading = Reading::Preface { seen: seen + bytes.len() as u8 };
                        return Ok(None);
                    }
                    self.reading = Reading::Header;
                }
            }
        }
    }

    /// Takes a frame's header and the fixed part behind it.
    fn begin<'i>(&mut self, rest: &mut &'i [u8], out: &mut Vec<u8>) -> Result<Begun<'i>, Violation> {
        let Some(header) = FrameHeader::parse(rest) else { return Ok(Begun::NeedMore) };
        let kind = FrameType::of(header.kind);
        if !self.has_settings && (kind != Some(FrameType::Settings) || header.has(flag::ACK)) {
            return Err(Violation::NoSettings);
        }
        if header.len > self.obeyed.max_frame_size.max(self.config.settings.max_frame_size) {
            return Err(Violation::FrameTooLarge);
        }
        match (&self.block, kind) {
            (None, Some(FrameType::Continuation)) => return Err(Violation::ContinuationUnexpected),
            (Some(_), kind) if kind != Some(FrameType::Continuation) => return Err(Violation::BlockInterrupted),
            _ => {}
        }
        let Some(kind) = kind else {
            self.budget.control()?;
            *rest = &rest[FRAME_HEADER_LEN..];
            self.reading = Reading::Skip { left: header.len };
            return Ok(Begun::Going);
        };
        let fixed = fixed_len(kind, &header)?;
        let payload = &rest[FRAME_HEADER_LEN..];
        let Some((fixed, after)) = payload.split_at_checked(fixed as usize) else { return Ok(Begun::NeedMore) };
        let in_input = *rest;
        *rest = after;
        self.count(kind);
        let begun = match kind {
            FrameType::Data => self.begin_data(header, fixed, out),
            FrameType::Headers => self.begin_headers(header, fixed),
            FrameType::Continuation => self.begin_continuation(header),
            FrameType::Priority => self.take_priority(header, fixed, out),
            FrameType::RstStream => self.take_reset(header, fixed),
            FrameType::Settings => self.begin_settings(header),
            FrameType::Ping => self.take_ping(header, fixed, out),
            FrameType::GoAway => self.begin_go_away(header, fixed),
            FrameType::WindowUpdate => self.take_window_update(header, fixed, out),
            FrameType::PushPromise => Err(Violation::PushPromise),
        };
        if begun.is_err() {
            *rest = in_input;
        }
        begun
    }

    fn count(&mut self, kind: FrameType) {
        let counts = &mut self.counts;
        match kind {
            FrameType::Headers => counts.headers += 1,
            FrameType::Data => counts.data += 1,
            FrameType::Settings => counts.settings += 1,
            FrameType::RstStream => counts.resets += 1,
            FrameType::GoAway => counts.go_aways += 1,
            FrameType::Priority
            | FrameType::PushPromise
            | FrameType::Ping
            | FrameType::WindowUpdate
            | FrameType::Continuation => {}
        }
    }

    fn begin_data<'i>(&mut self, header: FrameHeader, fixed: &[u8], out: &mut Vec<u8>) -> Result<Begun<'i>, Violation> {
        let FrameHeader { len, stream, .. } = header;
        not_zero(stream)?;
        let (left, padding) = unpadded(len, fixed)?;
        let ends = header.has(flag::END_STREAM);
        if self.is_idle(stream) {
            return Err(Violation::StreamIdle);
        }
        if !self.receive_window.charge(len) {
            return Err(Violation::ConnectionWindowExceeded);
        }
        if left == 0 && !ends {
            self.budget.control()?;
            self.budget.glitch(&self.config)?;
        } else {
            self.budget.useful(&self.config);
        }
        let is_forgiven = self.forgiven.has(stream) || self.is_beyond_last(stream);
        let violation = match self.streams.get_mut(stream).map(|at| at.take_data(len, left, ends)) {
            None if is_forgiven => None,
            None => Some(Violation::StreamClosed),
            Some(DataTaken::Ignored) => None,
            Some(DataTaken::Violation(violation)) => Some(violation),
            Some(DataTaken::Taken) => {
                self.reading = match left {
                    0 if !ends => Reading::Skip { left: padding },
                    _ => Reading::Data { stream, left, padding, ends },
                };
                // Padding is taken as soon as it is announced.
                if len > left {
                    self.consumed(stream, (len - left) as usize, out);
                }
                return Ok(Begun::Going);
            }
        };
        self.reading = Reading::Skip { left: len - fixed.len() as u32 };
        self.take_from_connection(len, out);
        match violation {
            Some(violation) => self.stream_failed(stream, violation, out),
            None => Ok(Begun::Going),
        }
    }

    fn begin_headers<'i>(&mut self, header: FrameHeader, fixed: &[u8]) -> Result<Begun<'i>, Violation> {
        let FrameHeader { len, stream, .. } = header;
        not_zero(stream)?;
        let is_peers = (stream % 2 == 1) == (self.role == Role::Server);
        if self.role == Role::Server && !is_peers {
            return Err(Violation::StreamIdParity);
        }
        if self.role == Role::Client && self.is_idle(stream) {
            return Err(Violation::StreamIdle);
        }
        let (pad, priority) = if header.has(flag::PADDED) { fixed.split_at(1) } else { (&fixed[..0], fixed) };
        let (left, padding) = unpadded(len - priority.len() as u32, pad)?;
        let depends_on_itself =
            priority.first_chunk::<4>().is_some_and(|on| u32::from_be_bytes(*on) & MAX_31 == stream);
        self.block_bytes.clear();
        self.block = Some(OpenBlock {
            stream,
            ends_stream: header.has(flag::END_STREAM),
            is_last: header.has(flag::END_HEADERS),
            continuations: 0,
            depends_on_itself,
        });
        self.reading = Reading::Block { left, padding };
        Ok(Begun::Going)
    }

    fn begin_continuation<'i>(&mut self, header: FrameHeader) -> Result<Begun<'i>, Violation> {
        let Some(block) = &mut self.block else { return Err(Violation::ContinuationUnexpected) };
        if header.stream != block.stream {
            return Err(if header.stream == 0 { Violation::StreamZero } else { Violation::BlockInterrupted });
        }
        block.continuations += 1;
        block.is_last = header.has(flag::END_HEADERS);
        if block.continuations > self.config.continuations_max {
            return Err(Violation::TooManyContinuations);
        }
        if header.len == 0 && !block.is_last {
            self.budget.glitch(&self.config)?;
        }
        self.reading = Reading::Block { left: header.len, padding: 0 };
        Ok(Begun::Going)
    }

    /// Takes bytes of a field block, and the whole when it is complete.
    fn take_block<'i>(
        &mut self,
        rest: &mut &'i [u8],
        left: u32,
        padding: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'i>>, Violation> {
        let Some(block) = self.block else {
            self.reading = Reading::Header;
            return Ok(None);
        };
        let bytes = split(rest, left);
        let left = left - bytes.len() as u32;
        if self.block_bytes.len() + bytes.len() + left as usize > self.config.block_bytes_max as usize {
            return Err(Violation::BlockTooLarge);
        }
        let is_whole = left == 0 && block.is_last;
        if is_whole && self.block_bytes.is_empty() {
            self.reading = Reading::Skip { left: padding };
            self.block = None;
            return self.end_block(block, bytes, out);
        }
        self.block_bytes.extend_from_slice(bytes);
        self.reading = match left {
            0 => Reading::Skip { left: padding },
            _ => Reading::Block { left, padding },
        };
        if !is_whole {
            return Ok(None);
        }
        self.block = None;
        let gathered = std::mem::take(&mut self.block_bytes);
        let event = self.end_block(block, &gathered, out);
        self.block_bytes = gathered;
        self.block_bytes.clear();
        event
    }

    fn take_priority<'i>(
        &mut self,
        header: FrameHeader,
        fixed: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Begun<'i>, Violation> {
        not_zero(header.stream)?;
        self.budget.control()?;
        let violation = match fixed.first_chunk::<4>() {
            Some(on) if header.len == 5 && u32::from_be_bytes(*on) & MAX_31 != header.stream => {
                return Ok(Begun::Going);
            }
            Some(_) if header.len == 5 => Violation::SelfDependency,
            _ => Violation::PriorityLength,
        };
        self.reading = Reading::Skip { left: header.len - fixed.len() as u32 };
        if self.streams.get(header.stream).is_none() {
            // A stream that does not exist cannot be reset.
            return Err(violation);
        }
        self.stream_failed(header.stream, violation, out)
    }

    fn take_reset<'i>(&mut self, header: FrameHeader, fixed: &[u8]) -> Result<Begun<'i>, Violation> {
        let stream = header.stream;
        not_zero(stream)?;
        if self.is_idle(stream) {
            return Err(Violation::StreamIdle);
        }
        let code = ErrorCode(number(fixed));
        match self.streams.get_mut(stream).filter(|at| at.reset.is_none()) {
            Some(at) => {
                let was_open = at.is_open();
                at.reset = Some(ResetBy::Peer);
                at.is_unprocessed |= self.role == Role::Client && code == ErrorCode::REFUSED_STREAM;
                // A server that has responded may end the request so (RFC 9113 8.1).
                let is_answered = self.role == Role::Client && at.receiving == Half::Ended;
                if was_open && self.role == Role::Server {
                    self.budget.reset()?;
                }
                if is_answered && code == ErrorCode::NO_ERROR {
                    at.sending = Half::Ended;
                }
                Ok(Begun::Event(Event::Reset { stream, code }))
            }
            None => {
                self.budget.control()?;
                Ok(Begun::Going)
            }
        }
    }

    fn begin_settings<'i>(&mut self, header: FrameHeader) -> Result<Begun<'i>, Violation> {
        if header.stream != 0 {
            return Err(Violation::NotStreamZero);
        }
        self.budget.control()?;
        if header.has(flag::ACK) {
            if header.len != 0 {
                return Err(Violation::SettingsAckLength);
            }
            self.unacknowledged = self.unacknowledged.checked_sub(1).ok_or(Violation::SettingsAckUnexpected)?;
            let (from, to) = (self.obeyed.initial_window_size, self.config.settings.initial_window_size);
            for stream in self.streams.iter_mut() {
                stream.receive_window.resize(from, to);
            }
            self.obeyed = self.config.settings;
            self.decoder.set_limit(self.obeyed.header_table_size);
            return Ok(Begun::Going);
        }
        if !header.len.is_multiple_of(6) {
            return Err(Violation::FrameLength);
        }
        self.reading = Reading::Settings { left: header.len, window_before: self.peer.initial_window_size };
        Ok(Begun::Going)
    }

    /// All settings of a frame are taken.
    fn settle(&mut self, window_before: u32, out: &mut Vec<u8>) -> Result<(), Violation> {
        self.has_settings = true;
        let change = i64::from(self.peer.initial_window_size) - i64::from(window_before);
        if change != 0 {
            for stream in self.streams.iter_mut() {
                if !stream.send_window.add(change) {
                    return Err(Violation::SettingsWindowOverflow);
                }
            }
        }
        frame::write_settings_ack(out);
        Ok(())
    }

    fn take_ping<'i>(&mut self, header: FrameHeader, fixed: &[u8], out: &mut Vec<u8>) -> Result<Begun<'i>, Violation> {
        if header.stream != 0 {
            return Err(Violation::NotStreamZero);
        }
        self.budget.control()?;
        let payload = *fixed.first_chunk::<8>().ok_or(Violation::FrameLength)?;
        if !header.has(flag::ACK) {
            frame::write_ping(payload, true, out);
            return Ok(Begun::Going);
        }
        if payload == DRAIN_PING && self.drain == Drain::Announced {
            self.end_drain(out);
        }
        Ok(Begun::Event(Event::Pong { payload }))
    }

    fn begin_go_away<'i>(&mut self, header: FrameHeader, fixed: &[u8]) -> Result<Begun<'i>, Violation> {
        if header.stream != 0 {
            return Err(Violation::NotStreamZero);
        }
        self.budget.control()?;
        let (last, code) = (number(fixed) & MAX_31, ErrorCode(number(&fixed[4..])));
        if self.peer_last.is_some_and(|before| last > before) {
            return Err(Violation::GoAwayIncreased);
        }
        self.peer_last = Some(last);
        if self.role == Role::Client {
            for stream in self.streams.iter_mut().filter(|stream| stream.id > last && stream.reset.is_none()) {
                stream.reset = Some(ResetBy::Peer);
                stream.is_unprocessed = true;
            }
        }
        self.reading = Reading::Skip { left: header.len - fixed.len() as u32 };
        Ok(Begun::Event(Event::GoAway { last, code }))
    }

    fn take_window_update<'i>(
        &mut self,
        header: FrameHeader,
        fixed: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Begun<'i>, Violation> {
        let stream = header.stream;
        let increment = number(fixed) & MAX_31;
        self.budget.control()?;
        if stream == 0 {
            if increment == 0 {
                return Err(Violation::ConnectionWindowZero);
            }
            if !self.send_window.add(i64::from(increment)) {
                return Err(Violation::ConnectionWindowOverflow);
            }
            let wakes = self.send_window.wakes();
            return Ok(if wakes { Begun::Event(Event::Window { stream }) } else { Begun::Going });
        }
        if self.is_idle(stream) {
            return Err(Violation::StreamIdle);
        }
        let Some(at) = self.streams.get_mut(stream).filter(|at| at.reset.is_none()) else { return Ok(Begun::Going) };
        if increment == 0 {
            return self.stream_failed(stream, Violation::WindowZero, out);
        }
        if !at.send_window.add(i64::from(increment)) {
            return self.stream_failed(stream, Violation::WindowOverflow, out);
        }
        let wakes = at.send_window.wakes();
        Ok(if wakes { Begun::Event(Event::Window { stream }) } else { Begun::Going })
    }

    /// Resets a stream on which the peer violated the protocol.
    fn stream_failed<'i>(
        &mut self,
        stream: u32,
        violation: Violation,
        out: &mut Vec<u8>,
    ) -> Result<Begun<'i>, Violation> {
        self.fail_stream(stream, violation, out).map(Begun::Event)
    }

    pub(super) fn fail_stream<'i>(
        &mut self,
        stream: u32,
        violation: Violation,
        out: &mut Vec<u8>,
    ) -> Result<Event<'i>, Violation> {
        self.counts.stream_errors += 1;
        self.budget.glitch(&self.config)?;
        // Whoever makes us reset streams is bounded like one that resets them (CVE-2025-8671).
        self.budget.reset()?;
        match self.streams.get_mut(stream) {
            Some(at) if at.reset == Some(ResetBy::Us) => {}
            Some(at) if at.reset == Some(ResetBy::Peer) => {
                // It goes on after its own RST_STREAM, and is told so once.
                at.reset = Some(ResetBy::Us);
                self.counts.resets_sent += 1;
                frame::write_reset(stream, violation.code(), out);
            }
            Some(_) => self.reset(stream, violation.code(), out),
            None => {
                self.forgiven.add(stream);
                self.counts.resets_sent += 1;
                frame::write_reset(stream, violation.code(), out);
            }
        }
        Ok(Event::Failed { stream, violation })
    }
}

/// Bytes behind the header that are taken together with it. An invalid length of the frame is found here.
fn fixed_len(kind: FrameType, header: &FrameHeader) -> Result<u32, Violation> {
    let exactly = |len| if header.len == len { Ok(len) } else { Err(Violation::FrameLength) };
    let at_least = |len| if header.len >= len { Ok(len) } else { Err(Violation::FrameLength) };
    match kind {
        FrameType::Data => at_least(u32::from(header.has(flag::PADDED))),
        FrameType::Headers => {
            let priority = if header.has(flag::PRIORITY) { 5 } else { 0 };
            at_least(u32::from(header.has(flag::PADDED)) + priority)
        }
        // Another length ends the stream only.
        FrameType::Priority => Ok(header.len.min(5)),
        FrameType::RstStream | FrameType::WindowUpdate => exactly(4),
        FrameType::Ping => exactly(8),
        FrameType::GoAway => at_least(8),
        FrameType::Settings | FrameType::PushPromise | FrameType::Continuation => Ok(0),
    }
}

/// The payload without padding, and the padding; `pad` is the byte that tells its length, if there is one.
fn unpadded(len: u32, pad: &[u8]) -> Result<(u32, u32), Violation> {
    let Some(&padding) = pad.first() else { return Ok((len, 0)) };
    let padding = u32::from(padding);
    let left = (len - 1).checked_sub(padding).ok_or(Violation::Padding)?;
    Ok((left, padding))
}

fn not_zero(stream: u32) -> Result<(), Violation> {
    if stream == 0 { Err(Violation::StreamZero) } else { Ok(()) }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Splits up to `len` bytes off.
fn split<'i>(rest: &mut &'i [u8], len: u32) -> &'i [u8] {
    let (bytes, after) = rest.split_at(rest.len().min(len as usize));
    *rest = after;
    bytes
}
