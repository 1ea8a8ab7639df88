//! A request's body as rules see it.

use std::borrow::Cow;

use baton_http::{ChunkDecoder, ChunkStep, Framing};

/// As much of a request's body as is in the read buffer. Chunks are decoded when a rule asks for them.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// The bytes themselves.
    Plain(&'a [u8]),
    /// The bytes as they came, and the decoder that stands before the first one.
    Chunked(&'a [u8], &'a ChunkDecoder),
}

impl Body<'static> {
    /// No body, or one that is of no interest any more.
    pub const NONE: Body<'static> = Body::Plain(&[]);
}

impl<'a> Body<'a> {
    /// What belongs to the body of `input`, the bytes behind the head: they may reach into the next request.
    pub fn of(framing: Framing, input: &'a [u8], decoder: &'a ChunkDecoder) -> Body<'a> {
        match framing {
            Framing::Length(length) => {
                Body::Plain(&input[..usize::try_from(length).unwrap_or(usize::MAX).min(input.len())])
            }
            Framing::Chunked => Body::Chunked(input, decoder),
            Framing::UntilClose => Body::Plain(input),
            Framing::None | Framing::Tunnel => Body::NONE,
        }
    }

    /// The bytes; copied only if they came in several chunks.
    pub fn bytes(self) -> Cow<'a, [u8]> {
        let mut bytes = Cow::Borrowed(&[][..]);
        self.each(|piece| {
            if bytes.is_empty() {
                bytes = Cow::Borrowed(piece);
            } else {
                bytes.to_mut().extend_from_slice(piece);
            }
        });
        bytes
    }

    /// How many there are.
    pub fn length(self) -> usize {
        let mut length = 0;
        self.each(|piece| length += piece.len());
        length
    }

    /// Calls `take` with each piece in order.
    fn each(self, mut take: impl FnMut(&'a [u8])) {
        let (mut input, mut decoder) = match self {
            Body::Plain(bytes) => return take(bytes),
            Body::Chunked(input, decoder) => (input, decoder.clone()),
        };
        // What follows a malformed chunk belongs to no body.
        while let Ok(ChunkStep::Data { skip, len }) = decoder.step(input) {
            take(&input[skip..skip + len]);
            input = &input[skip + len..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_body_is_seen_decoded() {
        let check = |framing, input: &str, expect: &str| {
            let decoder = ChunkDecoder::default();
            let body = Body::of(framing, input.as_bytes(), &decoder);
            assert_eq!(String::from_utf8_lossy(&body.bytes()), expect, "{input:?}");
            assert_eq!(body.length(), expect.len(), "{input:?}");
        };
        check(Framing::None, "GET / HTTP/1.1", "");
        check(Framing::UntilClose, "ev", "ev");
        check(Framing::Length(4), "ev", "ev");
        check(Framing::Length(4), "evilGET / HTTP/1.1", "evil");
        check(Framing::Chunked, "2\r\nev\r\n3;a\r\nil!\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.1", "evil!");
        check(Framing::Chunked, "2\r\nev\r\n3\r\nil", "evil");
        check(Framing::Chunked, "4\r\nevil\r\n0\r\n\r\n", "evil");
        check(Framing::Chunked, "2\r\nev\r\n?\r\nil", "ev");
        check(Framing::Chunked, "", "");
    }
}
