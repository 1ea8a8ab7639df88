//! One direction of an exchange: a message that is composed, written and read on until it is passed on whole.

mod splicing;
mod state;

use std::task::{Context, Poll, ready};
use std::time::Instant;

use baton_http::{ChunkDecoder, ChunkStep, Framing, Headers, write_chunk_header, write_last_chunk};

use crate::buffer::{Buffer, BufferPool};
use crate::pipes::Splicer;
use crate::transport::Transport;

pub use state::FlowState;

/// Reads and writes of one direction before other connections get their turn.
const ROUNDS_PER_TURN: usize = 16;
/// No more is read ahead of a server once so many bytes are composed for it.
const COMPOSED_AHEAD_MAX: usize = 16 * 1024;

/// What is left of a body.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Body {
    /// Nothing.
    #[default]
    Done,
    /// That many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// All until the sender ends.
    UntilClose,
}

impl Body {
    /// The body a head announces.
    pub fn of(framing: Framing) -> Body {
        match framing {
            Framing::None | Framing::Length(0) | Framing::Tunnel => Body::Done,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked,
            Framing::UntilClose => Body::UntilClose,
        }
    }
}

/// Why a direction stopped early.
#[derive(Debug)]
pub enum Stopped {
    /// The reading side ended or broke.
    Source,
    /// The writing side broke.
    Sink,
    /// The body's framing is wrong.
    Malformed,
}

/// The two ends of a direction and the memory between them.
pub struct FlowEnds<'a> {
    /// The reading end.
    pub from: Transport<'a>,
    /// The writing end.
    pub to: Transport<'a>,
    /// What was received and not composed yet.
    pub input: &'a mut Buffer,
    /// The place in a chunked body.
    pub decoder: &'a mut ChunkDecoder,
    /// The composed bytes.
    pub out: &'a mut Vec<u8>,
    /// For more room, if the input is short.
    pub buffers: &'a BufferPool,
}

/// One direction of an exchange.
#[derive(Debug, Default, PartialEq)]
pub struct Flow {
    /// What is left.
    pub body: Body,
    /// A body of unknown length is passed on as chunks. Otherwise the receiver's protocol has an end of its own.
    pub as_chunks: bool,
    /// How much of the composed bytes is written.
    pub sent: usize,
    /// Body bytes received, counted as HAProxy counts them: the framing left out, one for the end of a chunked body, names
    /// and values of its trailers.
    pub moved: u64,
    /// The composed bytes still hold everything since the head: another attempt can begin again.
    pub replayable: bool,
    /// Everything was written.
    pub finished: bool,
    /// Leave to splice, for a long body.
    pub splicer: Option<Box<Splicer>>,
    /// Fields after the body, of a stream, for another stream.
    trailers: Option<Box<Headers>>,
}

impl Flow {
    /// A direction whose composed bytes begin with a head, followed by what is there of the body.
    pub fn start(
        body: Body,
        as_chunks: bool,
        input: &mut Buffer,
        decoder: &mut ChunkDecoder,
        out: &mut Vec<u8>,
    ) -> Result<Flow, Stopped> {
        let mut flow = Flow { body, as_chunks, replayable: true, ..Flow::default() };
        flow.compose(input, decoder, out)?;
        Ok(flow)
    }

    /// Goes back to the first composed byte. Only for a flow that is replayable.
    pub fn restart(&mut self) {
        debug_assert!(self.replayable);
        self.sent = 0;
        self.finished = false;
    }

    /// Whether bytes wait for the receiver to take them: the sender is not waited for then.
    pub fn is_blocked(&self, input: &Buffer, out: &[u8]) -> bool {
        let held = || self.splicer.as_ref().is_some_and(|splicer| splicer.held() > 0);
        let waits = self.sent < out.len() || matches!(self.body, Body::Length(_)) && !input.is_empty() || held();
        !self.finished && waits
    }

    /// Moves body bytes from the input to the composed ones, framed for the receiver.
    fn compose(&mut self, input: &mut Buffer, decoder: &mut ChunkDecoder, out: &mut Vec<u8>) -> Result<(), Stopped> {
        loop {
            match self.body {
                Body::Done => return Ok(()),
                Body::Length(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    out.extend_from_slice(&input[..count]);
                    input.consume(count);
                    self.moved += count as u64;
                    let left = left - count as u64;
                    self.body = if left == 0 { Body::Done } else { Body::Length(left) };
                    return Ok(());
                }
                Body::UntilClose => {
                    self.write_data(input, out);
                    self.moved += input.len() as u64;
                    input.consume(input.len());
                    return Ok(());
                }
                Body::Chunked => {
                    if input.is_empty() {
                        return Ok(());
                    }
                    match decoder.step(input).map_err(|_| Stopped::Malformed)? {
                        ChunkStep::Data { skip, len } => {
                            self.write_data(&input[skip..skip + len], out);
                            self.moved += len as u64;
                            input.consume(skip + len);
                        }
                        ChunkStep::NeedMore { consumed } => input.consume(consumed),
                        ChunkStep::Done { consumed } => {
                            input.consume(consumed);
                            let (trailers, bytes) = decoder.trailers();
                            if self.as_chunks {
                                write_last_chunk(out, bytes, trailers);
                            }
                            let named: usize =
                                trailers.iter(bytes).map(|field| field.name.len() + field.value.len()).sum();
                            self.moved += 1 + named as u64;
                            self.body = Body::Done;
                        }
                    }
                }
            }
        }
    }

    /// A body that its source ends is whole.
    fn end(&mut self, from: Transport<'_>, out: &mut Vec<u8>) {
        let trailers = from.take_trailers();
        self.moved += if trailers.is_empty() { 0 } else { trailers.bytes() as u64 + 1 };
        if self.as_chunks {
            write_last_chunk(out, &[], &trailers);
        } else if !trailers.is_empty() {
            self.set_trailers(trailers);
        }
        self.body = Body::Done;
    }

    /// Takes what is there already of a body that its source ends: one that is whole so early can be sent again.
    pub fn read_ahead(
        &mut self,
        from: Transport<'_>,
        input: &mut Buffer,
        decoder: &mut ChunkDecoder,
        out: &mut Vec<u8>,
    ) {
        while self.body == Body::UntilClose {
            let room = input.room();
            if room.is_empty() || out.len() >= COMPOSED_AHEAD_MAX {
                return;
            }
            match from.read(room) {
                Some(0) => self.end(from, out),
                Some(count) => {
                    input.filled(count);
                    // Bytes of no framing cannot be malformed.
                    let _ = self.compose(input, decoder, out);
                }
                None => return,
            }
            if self.body == Body::UntilClose && from.is_read() {
                self.end(from, out);
            }
        }
    }

    /// The fields that follow the body, as far as they are known, with the bytes that they lie in.
    pub fn trailers<'a>(&'a self, decoder: &'a ChunkDecoder) -> (&'a Headers, &'a [u8]) {
        match &self.trailers {
            Some(trailers) => (trailers, &[]),
            None => decoder.trailers(),
        }
    }

    /// Whether fields follow the body.
    pub fn has_trailers(&self, decoder: &ChunkDecoder) -> bool {
        !self.trailers(decoder).0.is_empty()
    }

    /// These fields follow the body.
    pub fn set_trailers(&mut self, trailers: Headers) {
        self.trailers = Some(Box::new(trailers));
    }

    fn write_data(&self, data: &[u8], out: &mut Vec<u8>) {
        if !self.as_chunks {
            out.extend_from_slice(data);
        } else if !data.is_empty() {
            write_chunk_header(out, data.len());
            out.extend_from_slice(data);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes what is composed and reads more until the message is passed on whole (`Ready(Ok)`).
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        way: FlowEnds<'_>,
        active: &mut Active,
        now: Instant,
    ) -> Poll<Result<(), Stopped>> {
        let FlowEnds { from, to, input, decoder, out, buffers } = way;
        if self.finished {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS_PER_TURN {
            if self.sent < out.len() {
                let is_last = self.body == Body::Done && !self.has_trailers(decoder);
                let count = ready!(to.poll_write(cx, &out[self.sent..], is_last)).map_err(|_| Stopped::Sink)?;
                self.sent += count;
                active.to = now;
                continue;
            }
            if let Some(splicer) = &mut self.splicer
                && splicer.held() > 0
                && let Some(to) = to.connection()
            {
                ready!(splicer.poll_drain(cx, to)).map_err(|_| Stopped::Sink)?;
                active.to = now;
                continue;
            }
            if self.body == Body::Done {
                self.finished = true;
                let (trailers, bytes) = self.trailers(decoder);
                to.finish(trailers, bytes);
                return Poll::Ready(Ok(()));
            }
            out.clear();
            self.sent = 0;
            self.replayable = false;
            if let Body::Length(left) = self.body
                && !input.is_empty()
            {
                // Plain bytes go out of the buffer they came in.
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let is_last = most as u64 == left;
                let count = ready!(to.poll_write(cx, &input[..most], is_last)).map_err(|_| Stopped::Sink)?;
                input.consume(count);
                active.to = now;
                let left = left - count as u64;
                self.body = if left == 0 { Body::Done } else { Body::Length(left) };
                continue;
            }
            if self.splicer.is_some()
                && let Some(count) = ready!(self.splice(cx, from, to)?)
            {
                active.from = now;
                self.moved += count as u64;
                continue;
            }
            buffers.see_to_room(input, from.unread());
            match ready!(from.poll_read(cx, input.room())) {
                Ok(0) if self.body == Body::UntilClose => self.end(from, out),
                Ok(0) => return Poll::Ready(Err(Stopped::Source)),
                Ok(count) => {
                    input.filled(count);
                    active.from = now;
                    match self.body {
                        Body::Length(left) => self.moved += left.min(count as u64),
                        _ => self.compose(input, decoder, out)?,
                    }
                    if self.body == Body::UntilClose && from.is_read() {
                        self.end(from, out);
                    }
                }
                Err(_) => return Poll::Ready(Err(Stopped::Source)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads the rest of the message and drops it.
    pub fn discard(
        &mut self,
        cx: &mut Context<'_>,
        way: FlowEnds<'_>,
        active: &mut Active,
        now: Instant,
    ) -> Poll<Result<(), Stopped>> {
        let FlowEnds { from, input, decoder, out, .. } = way;
        loop {
            out.clear();
            self.compose(input, decoder, out)?;
            if self.body == Body::Done {
                out.clear();
                self.finished = true;
                return Poll::Ready(Ok(()));
            }
            match ready!(from.poll_read(cx, input.room())) {
                Ok(count) if count > 0 => {
                    input.filled(count);
                    active.from = now;
                }
                _ => return Poll::Ready(Err(Stopped::Source)),
            }
        }
    }
}

/// When the two ends of a flow last did something.
#[derive(Clone, Copy, Debug)]
pub struct Active {
    /// The reading end.
    pub from: Instant,
    /// The writing end.
    pub to: Instant,
}
