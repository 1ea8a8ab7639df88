//! A composed request in the form of either version. It is composed for HTTP/1, because which version a server speaks is only known when there
//! is a connection to it, and another attempt may find another version.

use baton_http::{ChunkDecoder, ChunkStep, Framing, Headers, write_chunk_header, write_last_chunk};
use baton_model::HeaderCases;

use crate::flow::Body;
use crate::header_case;
use crate::messages::Messages;

impl Messages {
    /// The composed request as HTTP/1 has it: a head with names in these spellings, and chunks around a body of unknown length.
    #[inline]
    pub fn compose_for_http1(&mut self, cases: Option<&HeaderCases>) {
        if self.up_head == 0 {
            self.frame_again(cases);
        }
    }

    #[cold]
    fn frame_again(&mut self, cases: Option<&HeaderCases>) {
        let Messages { input, request, request_chunks, up, up_head, server_line, upload, .. } = self;
        debug_assert_eq!(upload.sent, 0);
        let body = std::mem::take(up);
        request.write(input.pinned(), up);
        if let Some(cases) = cases {
            header_case::adjust(cases, up);
        }
        *server_line = up.len() - 2..up.len() - 2;
        *up_head = up.len();
        upload.as_chunks = matches!(request.framing, Framing::Chunked | Framing::UntilClose);
        if !upload.as_chunks {
            return up.extend_from_slice(&body);
        }
        if !body.is_empty() {
            write_chunk_header(up, body.len());
            up.extend_from_slice(&body);
            up.extend_from_slice(b"\r\n");
        }
        if upload.body == Body::Done {
            let (trailers, bytes) = upload.trailers(request_chunks);
            write_last_chunk(up, bytes, trailers);
        }
    }

    /// The composed request as HTTP/2 has it: the body alone, whose head is sent in another way.
    pub fn compose_for_http2(&mut self) {
        if self.up_head > 0 {
            self.strip_framing();
        }
    }

    fn strip_framing(&mut self) {
        let Messages { request, up, up_head, upload, .. } = self;
        debug_assert_eq!(upload.sent, 0);
        let head = std::mem::take(up_head);
        if !std::mem::take(&mut upload.as_chunks) {
            up.drain(..head);
            return;
        }
        let framed = std::mem::take(up);
        let (mut rest, mut decoder) = (&framed[head..], ChunkDecoder::default());
        // We have written them: they cannot be malformed.
        while let Ok(ChunkStep::Data { skip, len }) = decoder.step(rest) {
            up.extend_from_slice(&rest[skip..skip + len]);
            rest = &rest[skip + len..];
        }
        let (trailers, bytes) = decoder.trailers();
        if request.framing == Framing::UntilClose && !trailers.is_empty() {
            let mut own = Headers::new();
            trailers.iter(bytes).for_each(|field| own.add(field.name, field.value));
            upload.set_trailers(own);
        }
    }
}
