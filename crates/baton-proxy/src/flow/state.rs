//! A direction of an exchange as plain data, for another process to go on with.

use std::io;

use baton_http::{ChunkDecoder, ChunkPosition};

use crate::buffer::Buffer;
use crate::flow::{Body, Flow};

/// A direction at any position: what is left of its body, and the bytes that were read and are not written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FlowState {
    /// What is left of the body.
    pub body: Body,
    /// A body of unknown length is passed on as chunks.
    pub as_chunks: bool,
    /// What was received and not composed yet.
    pub input: Vec<u8>,
    /// What is composed.
    pub out: Vec<u8>,
    /// How much of that is written.
    pub sent: usize,
    /// Body bytes received, as `Flow::moved` counts them.
    pub moved: u64,
    /// What is composed is everything since the head.
    pub replayable: bool,
    /// Everything was written.
    pub finished: bool,
    /// The place in a chunked body.
    pub chunks: Option<ChunkPosition>,
}

impl Flow {
    /// How many bytes go with it.
    pub fn held(&self, input: &Buffer, out: &[u8]) -> usize {
        let piped = self.splicer.as_ref().map_or(0, |splicer| splicer.held());
        input.len() + out.len() + piped
    }

    /// It as data. It can go on all the same: what was in a pipe is among the composed bytes from now on.
    ///
    /// # Errors
    /// A pipe does not give back what it holds.
    pub fn park(&mut self, input: &Buffer, decoder: &ChunkDecoder, out: &mut Vec<u8>) -> io::Result<FlowState> {
        if let Some(splicer) = &mut self.splicer {
            // It is filled when nothing else waits.
            splicer.unload(out)?;
        }
        let (out, sent) = match self.replayable {
            true => (out.clone(), self.sent),
            false => (out[self.sent.min(out.len())..].to_vec(), 0),
        };
        Ok(FlowState {
            body: self.body,
            as_chunks: self.as_chunks,
            input: input.to_vec(),
            out,
            sent,
            moved: self.moved,
            replayable: self.replayable,
            finished: self.finished,
            chunks: if self.body == Body::Chunked { decoder.position() } else { None },
        })
    }
}

impl FlowState {
    /// Whether a direction can be in this state.
    pub fn is_possible(&self) -> bool {
        self.sent <= self.out.len()
            && (self.body == Body::Chunked) == self.chunks.is_some()
            && self.chunks.as_ref().is_none_or(|position| ChunkDecoder::default().go_on_from(position))
            && (!self.finished || self.body == Body::Done && self.sent == self.out.len())
            && self.body != Body::Length(0)
    }

    /// The direction, continued from this state. The caller puts its input where it is read from. `None`: the state is invalid.
    pub fn resume(self, decoder: &mut ChunkDecoder, out: &mut Vec<u8>) -> Option<Flow> {
        let is_at_place = self.chunks.as_ref().is_none_or(|position| decoder.go_on_from(position));
        if !is_at_place || !self.is_possible() {
            return None;
        }
        let FlowState { body, as_chunks, sent, moved, replayable, finished, .. } = self;
        *out = self.out;
        Some(Flow { body, as_chunks, sent, moved, replayable, finished, ..Flow::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A direction of this body, of which `input` has come and so much was written; it goes on elsewhere with `rest`. All that is written.
    fn check(body: Body, input: &str, sent: usize, rest: &str, expect: &str) {
        let mut buffer = Buffer::new(1000);
        let arrives = |buffer: &mut Buffer, text: &str| {
            buffer.room()[..text.len()].copy_from_slice(text.as_bytes());
            buffer.filled(text.len());
        };
        arrives(&mut buffer, input);
        let (mut decoder, mut out) = (ChunkDecoder::default(), b"head ".to_vec());
        let mut flow = Flow::start(body, body == Body::Chunked, &mut buffer, &mut decoder, &mut out).unwrap();
        (flow.sent, flow.replayable) = (sent, sent == 0);
        let written = String::from_utf8(out[..sent].to_vec()).unwrap();
        let state = flow.park(&buffer, &decoder, &mut out).unwrap();
        assert!(state.is_possible(), "{state:?}");
        let (mut decoder, mut out) = (ChunkDecoder::default(), Vec::new());
        let mut buffer = Buffer::new(1000);
        buffer.room()[..state.input.len()].copy_from_slice(&state.input);
        buffer.filled(state.input.len());
        let mut flow = state.resume(&mut decoder, &mut out).unwrap();
        arrives(&mut buffer, rest);
        flow.compose(&mut buffer, &mut decoder, &mut out).unwrap();
        assert_eq!(written + &String::from_utf8(out).unwrap(), expect, "{body:?} {input} {sent} {rest}");
    }

    #[test]
    fn a_direction_goes_on_from_any_place() {
        check(Body::Length(7), "abc", 0, "defg next", "head abcdefg");
        check(Body::Length(7), "abc", 6, "defg next", "head abcdefg");
        check(Body::UntilClose, "abc", 3, "def", "head abcdef");
        let chunks = "3;ext=1\r\nabc\r\n10 \r\n0123456789abcdef\r\n0\r\nx-end: 1\r\nx-other: 2\r\n\r\n";
        for at in 0..chunks.len() {
            let (before, rest) = chunks.split_at(at);
            // How the data is cut into chunks is ours.
            let mut buffer = Buffer::new(1000);
            let (mut decoder, mut out) = (ChunkDecoder::default(), Vec::new());
            for text in [before, rest] {
                buffer.room()[..text.len()].copy_from_slice(text.as_bytes());
                buffer.filled(text.len());
                let mut flow = Flow { body: Body::Chunked, as_chunks: true, ..Flow::default() };
                flow.compose(&mut buffer, &mut decoder, &mut out).unwrap();
            }
            let expect = "head ".to_owned() + &String::from_utf8(out).unwrap();
            check(Body::Chunked, before, 0, rest, &expect);
            check(Body::Chunked, before, 5, rest, &expect);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |state: FlowState| {
            assert!(state.clone().resume(&mut ChunkDecoder::default(), &mut Vec::new()).is_none(), "{state:?}");
        };
        refused(FlowState { sent: 1, ..FlowState::default() });
        refused(FlowState { body: Body::Length(0), ..FlowState::default() });
        refused(FlowState { body: Body::Chunked, ..FlowState::default() });
        refused(FlowState { finished: true, out: vec![0], ..FlowState::default() });
        let at = |stage: &str, size| ChunkPosition { stage: stage.into(), size, ..ChunkPosition::default() };
        for position in [at("later", 1), at("data", 0), at("size", u64::MAX)] {
            refused(FlowState { body: Body::Chunked, chunks: Some(position), ..FlowState::default() });
        }
    }
}
