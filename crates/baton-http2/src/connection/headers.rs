//! Whole field blocks: whose they are, and whether they may be.

use super::{Connection, Event, OpenBlock, Role};
use crate::error::Violation;
use crate::head::{Expect, HeadKind};
use crate::hpack::BlockError;
use crate::stream::{Half, ResetBy};

/// Decoded bytes of a block, compared with the largest encoded one: text in Huffman code grows to eight fifths, and entries
/// of the table are repeated.
const EXPANSION_MAX: usize = 8;

/// What a field block is.
enum Purpose {
    /// A new request of the peer's.
    Request,
    /// A response to one of ours, interim or final.
    Response,
    Trailers,
    /// Of a stream that we are done with: only the table of the decoder has to follow.
    Nothing,
    Violation(Violation),
}

impl Connection {
    pub(super) fn end_block<'i>(
        &mut self,
        block: OpenBlock,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'i>>, Violation> {
        let OpenBlock { stream, ends_stream: ends, depends_on_itself, .. } = block;
        let purpose = self.purpose(stream)?;
        let kind = match purpose {
            Purpose::Response => HeadKind::Response,
            Purpose::Trailers => HeadKind::Trailers,
            Purpose::Request | Purpose::Nothing | Purpose::Violation(_) => HeadKind::Request,
        };
        self.head.begin(Expect {
            kind,
            bytes_max: self.config.head_bytes_max as usize,
            fields_max: self.config.head_fields_max as usize,
            allows_protocol: self.config.settings.enable_connect_protocol,
        });
        let bytes_max = self.config.block_bytes_max as usize * EXPANSION_MAX;
        let decoded = self.decoder.decode(bytes, bytes_max, &mut self.head.arena, &mut self.head.list);
        decoded.map_err(|error| match error {
            BlockError::Invalid => Violation::Compression,
            BlockError::TooLarge => Violation::BlockTooLarge,
        })?;
        let event = match purpose {
            Purpose::Nothing => return Ok(None),
            Purpose::Violation(violation) => Err(violation),
            Purpose::Request => self.take_request(stream, ends, depends_on_itself),
            Purpose::Response => self.take_response(stream, ends),
            Purpose::Trailers => self.take_trailers(stream, ends),
        };
        match event {
            Ok(event) => {
                self.budget.useful(&self.config);
                Ok(event)
            }
            Err(violation) => self.fail_stream(stream, violation, out).map(Some),
        }
    }

    fn purpose(&self, stream: u32) -> Result<Purpose, Violation> {
        Ok(match self.streams.get(stream) {
            None if self.role == Role::Server && stream > self.last_peer => Purpose::Request,
            None if self.forgiven.has(stream) || self.is_beyond_last(stream) => Purpose::Nothing,
            None => return Err(Violation::StreamClosedHead),
            Some(at) => match (at.reset, at.receiving) {
                (Some(ResetBy::Us), _) => Purpose::Nothing,
                (Some(ResetBy::Peer), _) => return Err(Violation::StreamClosedHead),
                (None, Half::Ended) => Purpose::Violation(Violation::StreamHalfClosed),
                (None, Half::Body) => Purpose::Trailers,
                (None, Half::Head) => Purpose::Response,
            },
        })
    }

    fn take_request<'i>(
        &mut self,
        stream: u32,
        ends: bool,
        depends_on_itself: bool,
    ) -> Result<Option<Event<'i>>, Violation> {
        self.last_peer = stream;
        if self.is_beyond_last(stream) {
            return Ok(None);
        }
        let limit = self.config.settings.max_concurrent_streams as usize;
        if self.streams.len() >= limit && self.streams.open() >= limit {
            return Err(Violation::TooManyStreams);
        }
        if depends_on_itself {
            return Err(Violation::SelfDependency);
        }
        if let Some(violation) = self.head.judge() {
            return Err(violation);
        }
        let length = self.head.content_length();
        if ends && length.is_some_and(|length| length > 0) {
            return Err(Violation::ContentLengthDiffers);
        }
        let at = self.add_stream(stream, if ends { Half::Ended } else { Half::Body }, Half::Head);
        at.expected = length;
        let is_too_large = self.head.is_too_large();
        Ok(Some(if is_too_large { Event::HeadTooLarge { stream, ends } } else { Event::Head { stream, ends } }))
    }

    fn take_response<'i>(&mut self, stream: u32, ends: bool) -> Result<Option<Event<'i>>, Violation> {
        if let Some(violation) = self.head.judge() {
            return Err(violation);
        }
        let (status, length) = (self.head.status(), self.head.content_length());
        let Some(at) = self.streams.get_mut(stream) else { return Ok(None) };
        if (100..200).contains(&status) {
            return if ends { Err(Violation::InterimEnd) } else { Ok(Some(Event::Interim { stream })) };
        }
        // Its length is that of another response (RFC 9110 8.6).
        let has_no_body = at.is_head || matches!(status, 204 | 304);
        at.expected = if has_no_body { Some(0) } else { length };
        if ends && at.expected.is_some_and(|length| length > 0) {
            return Err(Violation::ContentLengthDiffers);
        }
        at.receiving = if ends { Half::Ended } else { Half::Body };
        let is_too_large = self.head.is_too_large();
        Ok(Some(if is_too_large { Event::HeadTooLarge { stream, ends } } else { Event::Head { stream, ends } }))
    }

    fn take_trailers<'i>(&mut self, stream: u32, ends: bool) -> Result<Option<Event<'i>>, Violation> {
        if !ends {
            return Err(Violation::TrailersNoEnd);
        }
        if let Some(violation) = self.head.judge() {
            return Err(violation);
        }
        let Some(at) = self.streams.get_mut(stream) else { return Ok(None) };
        if at.expected.is_some_and(|bytes| bytes > 0) {
            return Err(Violation::ContentLengthDiffers);
        }
        at.receiving = Half::Ended;
        Ok(Some(Event::Trailers { stream }))
    }
}
