//! What one request needs in memory, taken from the core's pool when its first byte arrives and given back when it is
//! answered: an idle connection holds none of it.

use baton_http::{ChunkDecoder, Framing, RequestHead, ResponseHead};

use crate::buffer::Buffer;
use crate::core::Core;

/// Room for a composed head and a short body, in bytes; grows where that is not enough.
const COMPOSED_USUAL: usize = 4096;

/// The memory of a request in work. All parts keep what they have grown to.
#[derive(Debug)]
pub struct Work {
    /// From the client; the head is pinned in it while the request lasts.
    pub input: Buffer,
    /// The request's head.
    pub request: RequestHead,
    /// Walks through a chunked request body.
    pub request_chunks: ChunkDecoder,
    /// Towards the server.
    pub up: Vec<u8>,
    /// From the server.
    pub received: Buffer,
    /// The response's head.
    pub response: ResponseHead,
    /// Walks through a chunked response body.
    pub response_chunks: ChunkDecoder,
    /// Towards the client.
    pub down: Vec<u8>,
    /// `Some` once the body was begun to be passed on: whether all of it was taken from the input.
    pub composed: Option<bool>,
    /// The request line as received, kept only where it is logged.
    pub line: Vec<u8>,
}

impl Work {
    /// Memory with buffers of `bufsize` bytes.
    pub fn new(bufsize: usize) -> Box<Work> {
        Box::new(Work {
            input: Buffer::new(bufsize),
            request: RequestHead::new(),
            request_chunks: ChunkDecoder::default(),
            up: Vec::with_capacity(COMPOSED_USUAL),
            received: Buffer::new(bufsize),
            response: ResponseHead::new(),
            response_chunks: ChunkDecoder::default(),
            down: Vec::with_capacity(COMPOSED_USUAL),
            composed: None,
            line: Vec::new(),
        })
    }

    /// Gives the buffers to the core for the time of a tunnel, which may be days; what was in them is lost.
    pub fn lend(&mut self, core: &Core) {
        for buffer in [&mut self.input, &mut self.received] {
            core.buffers.give(std::mem::replace(buffer, Buffer::new(0)));
        }
        for vector in [&mut self.up, &mut self.down] {
            *vector = Vec::new();
        }
    }

    /// Whether the buffers were given away: not to be used again.
    pub fn is_lent(&self, bufsize: usize) -> bool {
        self.input.capacity() < bufsize || self.received.capacity() < bufsize
    }

    /// Ready for the next request; bytes of it that are there already stay.
    pub fn next(&mut self) {
        self.input.unpin();
        if self.request.framing == Framing::Chunked {
            self.request_chunks.clear();
        }
        if self.response.framing == Framing::Chunked {
            self.response_chunks.clear();
        }
        self.request.clear();
        self.up.clear();
        self.received.clear();
        self.response.clear();
        self.down.clear();
        self.composed = None;
        self.line.clear();
    }
}
