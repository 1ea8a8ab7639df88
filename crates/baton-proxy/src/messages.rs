//! The messages of an exchange: a request, head and body, and its response.
//!
//! Their memory is taken from the core's pools when the first byte arrives and given back when the request is answered: an idle
//! connection holds none of it, and a head that is not complete only what it was read into.

mod versions;

use std::ops::Range;

use baton_http::{
    ChunkDecoder, ChunkStep, Framing, Limits, Parsed, RequestHead, RequestMut, RequestView, ResponseHead, ResponseMut,
    ResponseTo, ResponseView,
};
use baton_model::HeaderCases;
use baton_rules::{Captures, TrackedCounters, Variables};

use crate::body::{Arrived, BodyState};
use crate::buffer::{Buffer, BufferPool};
use crate::flow::{Body, Flow};

/// Room for a composed head, in bytes; grows where that is not enough.
const COMPOSED_USUAL: usize = 512;
/// More room than this for composed bytes is not kept for the next request: a body that passed whole in one go was large.
const COMPOSED_KEPT_MAX: usize = 40 * 1024;

/// A request and its response. All parts but the two buffers, which have a pool of their own, keep the memory that they have grown to.
#[derive(Debug, PartialEq)]
pub struct Messages {
    /// From the client; the head is pinned in it while the request lasts.
    pub input: Buffer,
    /// The request's head.
    pub request: RequestHead,
    /// Walks through a chunked request body.
    pub request_chunks: ChunkDecoder,
    /// How far its body is in the input.
    pub body: BodyState,
    /// Towards the server.
    pub up: Vec<u8>,
    /// Bytes of its head at the front of it, as HTTP/1 has it; 0: it is composed for HTTP/2, the body alone.
    pub up_head: usize,
    /// Where the line with the server's name is in it (`http-send-name-header`), or is put.
    pub server_line: Range<usize>,
    /// From the server; without room until something comes from there.
    pub received: Buffer,
    /// The response's head.
    pub response: ResponseHead,
    /// Walks through a chunked response body.
    pub response_chunks: ChunkDecoder,
    /// Towards the client.
    pub down: Vec<u8>,
    /// The request on its way to the server.
    pub upload: Flow,
    /// The body was begun to be passed on: what is left of it is in `upload`.
    pub composed: bool,
    /// It is no request, but the beginning of HTTP/2.
    pub is_http2: bool,
    /// Room for the request line as received, lent to the log's facts.
    pub line: Vec<u8>,
    /// Room for entries of stick tables that the exchange tracks, lent to it.
    pub tracked: TrackedCounters,
    /// Room for variables of the rules, lent to the exchange.
    pub variables: Variables,
    /// Room for what is captured, lent to the exchange.
    pub captures: Captures,
}

impl Messages {
    /// Memory for a request that is read into `input`.
    pub fn new(input: Buffer) -> Messages {
        Messages {
            input,
            request: RequestHead::new(),
            request_chunks: ChunkDecoder::default(),
            body: BodyState::default(),
            up: Vec::new(),
            up_head: 0,
            server_line: 0..0,
            received: Buffer::new(0),
            response: ResponseHead::new(),
            response_chunks: ChunkDecoder::of_server(&Limits::default()),
            down: Vec::new(),
            upload: Flow::default(),
            composed: false,
            is_http2: false,
            line: Vec::new(),
            tracked: TrackedCounters::default(),
            variables: Variables::new(),
            captures: Captures::default(),
        }
    }

    /// What the request's head says.
    pub fn request(&self) -> RequestView<'_> {
        RequestView::new(&self.request, self.input.pinned())
    }

    /// The request's head, to be changed.
    pub fn request_mut(&mut self) -> RequestMut<'_> {
        RequestMut::new(&mut self.request, self.input.pinned())
    }

    /// What the head of the server's response says.
    pub fn response(&self) -> ResponseView<'_> {
        ResponseView::new(&self.response, &self.received)
    }

    /// The request, which its server sees so, and the head of a response to it, to be changed: of the server's, or of our own that
    /// was read from `page`.
    pub fn both_mut<'m>(
        &'m mut self,
        page: Option<&'m [u8]>,
    ) -> (RequestMut<'m>, ResponseMut<'m>, baton_rules::Body<'m>) {
        let Messages { request, response, input, received, response_chunks, .. } = self;
        let bytes = page.unwrap_or(received);
        let behind_head = bytes.get(response.received_len()..).unwrap_or_default();
        let body = baton_rules::Body::of(response.framing, behind_head, response_chunks);
        (RequestMut::new(request, input.pinned()), ResponseMut::new(response, bytes), body)
    }

    /// The head of a response of our own: its length in `page`. `None`: there is none, or it is malformed.
    pub fn read_page(&mut self, page: &[u8]) -> Option<usize> {
        self.response.clear();
        let limits = Limits { head_bytes: page.len().max(1), ..Limits::default() };
        match self.response.parse(page, ResponseTo::default(), &limits) {
            Ok(Parsed::Complete(len)) => Some(len),
            Ok(Parsed::Partial) | Err(_) => None,
        }
    }

    /// The request's body as far as it is in the input; of a chunked one the first chunk.
    pub fn body_begun(&self) -> &[u8] {
        match self.request.framing {
            Framing::Chunked => match self.request_chunks.clone().step(&self.input) {
                Ok(ChunkStep::Data { skip, len }) => &self.input[skip..skip + len],
                Ok(ChunkStep::Done { .. } | ChunkStep::NeedMore { .. }) | Err(_) => &[],
            },
            Framing::Length(length) => {
                &self.input[..usize::try_from(length).unwrap_or(usize::MAX).min(self.input.len())]
            }
            Framing::UntilClose => &self.input,
            Framing::None | Framing::Tunnel => &[],
        }
    }

    /// Bytes of the request's body that are in the input, decoded.
    pub fn body_received(&self) -> u64 {
        self.body.data_len(self.request.framing, &self.input)
    }

    /// Takes the memory that only a request to a server needs.
    pub fn prepare_exchange(&mut self) {
        self.up.reserve(COMPOSED_USUAL);
    }

    /// Writes the name of the server into the composed request, of which nothing is sent yet, in the place of another's.
    pub fn name_server(&mut self, header: &str, name: &str, cases: Option<&HeaderCases>) {
        debug_assert_eq!(self.upload.sent, 0);
        self.compose_for_http1(cases);
        let header = header.to_ascii_lowercase();
        let spelling = cases.and_then(|cases| cases.spelling(header.as_bytes())).unwrap_or(header.as_bytes());
        let line = [spelling, b": ", name.as_bytes(), b"\r\n"].concat();
        let start = self.server_line.start;
        self.up.splice(self.server_line.clone(), line.iter().copied());
        self.up_head = self.up_head - self.server_line.len() + line.len();
        self.server_line = start..start + line.len();
    }

    /// Another attempt begins: the request is sent from its first byte.
    pub fn begin_again(&mut self) {
        self.upload.restart();
        // The next server may speak another version, which wants another buffer.
        self.received = Buffer::default();
        self.response.clear();
    }

    /// Whether all of the request's body was taken from the input, or is in it: another request may follow.
    pub fn has_whole_body(&self) -> bool {
        if self.composed { self.upload.body == Body::Done } else { self.body.arrived() == Arrived::Whole }
    }

    /// Drops a body that is whole in the input and was not begun to be passed on: the answer does not need it.
    pub fn skip_body(&mut self) {
        if !self.composed {
            self.input.consume(self.body.len());
        }
    }

    /// Gives the memory for bytes back, for the time of a tunnel, which may be days; what was in it is lost.
    pub fn lend(&mut self, buffers: &BufferPool) {
        for buffer in [&mut self.input, &mut self.received] {
            buffers.give(std::mem::take(buffer));
        }
        for composed in [&mut self.up, &mut self.down] {
            *composed = Vec::new();
        }
    }

    /// Makes everything new for another request, whatever this one ended with, and gives the buffers back. Bytes of the
    /// next request that are in the input already are returned in it.
    ///
    /// A field that is not made new is an unused variable here.
    pub fn clear(&mut self, buffers: &BufferPool) -> Option<Buffer> {
        let Messages {
            input,
            request,
            request_chunks,
            body,
            up,
            up_head,
            server_line,
            received,
            response,
            response_chunks,
            down,
            upload,
            composed,
            is_http2,
            line,
            tracked,
            variables,
            captures,
        } = self;
        request.clear();
        request_chunks.clear();
        body.clear();
        response.clear();
        response_chunks.clear();
        tracked.clear();
        variables.clear();
        captures.clear();
        for bytes in [up, down, line] {
            bytes.clear();
            bytes.shrink_to(COMPOSED_KEPT_MAX);
        }
        *upload = Flow::default();
        *composed = false;
        *is_http2 = false;
        (*up_head, *server_line) = (0, 0..0);
        buffers.give(std::mem::take(received));
        let mut input = std::mem::take(input);
        input.unpin();
        debug_assert!(*self == Messages::new(Buffer::default()), "pooled memory is as new: {self:?}");
        if input.is_empty() {
            buffers.give(input);
            return None;
        }
        Some(input)
    }
}
