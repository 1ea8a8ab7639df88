//! What a server has responded to a check so far: `baton-http` reads heads and takes the framing off the body. Pure.
//!
//! ```text
//!   Awaited ── head ──▶ Length / Chunked / UntilClose ── all of it ──▶ Over
//!      │ ▲
//!      └─┘ an interim response (1xx): it is what is judged; one that came with it gives the body
//! ```
//!
//! As in HAProxy 2.6, an interim response is no reason to wait for another one.

use baton_http::{
    ChunkDecoder, ChunkStep, Field, Framing, Limits, Name, Parsed, ResponseHead, ResponseTo, is_only_ours,
};

/// The most of a response that is read (`tune.bufsize`).
pub const RESPONSE_BYTES_MAX: usize = 16 * 1024;

/// A response as far as it has come.
#[derive(Debug)]
pub struct Response {
    to: ResponseTo,
    bytes: Vec<u8>,
    /// Where the next head begins, or what was not looked at of the body.
    at: usize,
    /// The head that is judged: the first one.
    head: Option<Head>,
    parser: ResponseHead,
    /// The head that is judged, where another one was parsed after it.
    interim: Option<Box<ResponseHead>>,
    body: Body,
    /// The body without its framing.
    content: Vec<u8>,
    /// Names and values of trailers, of HTTP/2.
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What is judged of a head.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Names and values in order, without what is about the connection alone.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug)]
enum Body {
    Awaited,
    /// So many bytes are to come.
    Length(u64),
    Chunked(Box<ChunkDecoder>),
    UntilClose,
    Over,
}

/// It is no HTTP response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed;

impl Response {
    /// Nothing has come yet in response to such a request.
    pub fn new(to: ResponseTo) -> Response {
        // A check that sends `Upgrade` among its fields may expect 101.
        let to = ResponseTo { upgrade: true, ..to };
        let (head, parser) = (None, ResponseHead::new());
        Response {
            to,
            bytes: Vec::new(),
            at: 0,
            head,
            parser,
            interim: None,
            body: Body::Awaited,
            content: Vec::new(),
            trailers: Vec::new(),
        }
    }

    /// Whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many more bytes are looked at.
    pub fn room(&self) -> usize {
        RESPONSE_BYTES_MAX.saturating_sub(self.bytes.len())
    }

    /// The head, once it is complete.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// The parsed head that is judged, the bytes that it was parsed from, and what has come of the body.
    pub fn parts(&mut self) -> Option<(&mut ResponseHead, &[u8], &[u8])> {
        self.head.as_ref()?;
        let head = self.interim.as_deref_mut().unwrap_or(&mut self.parser);
        Some((head, &self.bytes, &self.content))
    }

    /// What has come of the body.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Whether nothing follows.
    pub fn is_complete(&self) -> bool {
        match self.body {
            Body::Over => true,
            Body::Awaited => self.head.is_some() && self.at == self.bytes.len(),
            Body::Length(_) | Body::Chunked(_) | Body::UntilClose => false,
        }
    }

    /// More has come.
    ///
    /// # Errors
    /// What has come is no HTTP response, or its chunks are malformed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.bytes.extend_from_slice(bytes);
        let limits = Limits { head_bytes: RESPONSE_BYTES_MAX, ..Limits::default() };
        while matches!(self.body, Body::Awaited) && self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            match self.parser.parse(rest, self.to, &limits).map_err(|_| Malformed)? {
                Parsed::Partial => return Ok(()),
                Parsed::Complete(length) => {
                    self.head.get_or_insert_with(|| Head::of(&self.parser, rest));
                    self.at += length;
                    if !self.parser.is_interim() {
                        self.body = Body::of(self.parser.framing, &limits);
                    } else if self.interim.is_none() {
                        self.interim = Some(Box::new(std::mem::replace(&mut self.parser, ResponseHead::new())));
                    }
                }
            }
        }
        self.take_body()
    }

    /// A head has come over HTTP/2.
    ///
    /// # Errors
    /// It is none of a valid response.
    pub fn take_head(&mut self, head: &baton_http2::Head, is_interim: bool) -> Result<(), Malformed> {
        if self.head.is_none() {
            let limits = Limits { head_bytes: RESPONSE_BYTES_MAX, ..Limits::default() };
            self.bytes.extend_from_slice(head.arena());
            head.to_response(&self.bytes, b"", &mut self.parser, self.to, &limits).map_err(|_| Malformed)?;
            self.head = Some(Head::of(&self.parser, &self.bytes));
        }
        self.at = self.bytes.len();
        if !is_interim {
            self.body = Body::UntilClose;
        }
        Ok(())
    }

    /// A part of the body has come over HTTP/2.
    pub fn take_content(&mut self, part: &[u8]) {
        // What is read is bounded by all of it.
        self.bytes.extend_from_slice(part);
        self.content.extend_from_slice(part);
        self.at = self.bytes.len();
    }

    /// Trailers have come over HTTP/2.
    pub fn take_trailers(&mut self, trailers: &baton_http2::Head) {
        self.trailers = trailers.pairs().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    }

    /// Nothing follows.
    pub fn end(&mut self) {
        self.body = Body::Over;
    }

    /// The trailers.
    pub fn trailers(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.trailers
    }

    fn take_body(&mut self) -> Result<(), Malformed> {
        loop {
            let rest = &self.bytes[self.at..];
            let (skip, length) = match &mut self.body {
                Body::Awaited | Body::Over => return Ok(()),
                Body::UntilClose => (0, rest.len()),
                Body::Length(left) => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= length as u64;
                    if *left == 0 {
                        self.body = Body::Over;
                    }
                    (0, length)
                }
                Body::Chunked(decoder) => match decoder.step(rest).map_err(|_| Malformed)? {
                    ChunkStep::Data { skip, len } => (skip, len),
                    ChunkStep::NeedMore { consumed } => (consumed, 0),
                    ChunkStep::Done { consumed } => {
                        self.body = Body::Over;
                        (consumed, 0)
                    }
                },
            };
            self.content.extend_from_slice(&rest[skip..skip + length]);
            self.at += skip + length;
            if length == 0 {
                return Ok(());
            }
        }
    }
}

impl Body {
    fn of(framing: Framing, limits: &Limits) -> Body {
        match framing {
            Framing::None | Framing::Length(0) => Body::Over,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Box::new(ChunkDecoder::of_server(limits))),
            Framing::UntilClose | Framing::Tunnel => Body::UntilClose,
        }
    }
}

impl Head {
    fn of(head: &ResponseHead, bytes: &[u8]) -> Head {
        // HAProxy has taken `close` and `keep-alive` out before it judges.
        let is_judged = |field: &Field<'_>| field.id != Name::Connection || !is_only_ours(field.value);
        let fields = head.headers.iter(bytes).filter(is_judged);
        Head {
            status: head.status,
            reason: String::from_utf8_lossy(head.reason(bytes)).into_owned(),
            fields: fields.map(|field| (field.name.to_vec(), field.value.to_vec())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_http::Method;

    use super::*;

    /// What comes of a response, whole and byte by byte: status, reason, body in brackets, and whether it is complete.
    fn check(text: &str, expect: &str) {
        let of = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let mut response = Response::new(ResponseTo::default());
            for piece in pieces {
                if response.push(piece).is_err() {
                    return "malformed".to_owned();
                }
            }
            let Some(Head { status, reason, .. }) = response.head() else { return "no head".into() };
            let content = String::from_utf8_lossy(response.content());
            format!("{status} {reason} [{content}] {}", if response.is_complete() { "complete" } else { "more" })
        };
        assert_eq!(of(&mut [text.as_bytes()].into_iter()), expect, "{text:?}");
        assert_eq!(of(&mut text.as_bytes().chunks(1)), expect, "{text:?} byte by byte");
    }

    #[test]
    fn the_body_is_without_its_framing() {
        let chunked = "HTTP/1.1 200 All fine\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{chunked}4\r\nwork\r\n3;x=y\r\ning\r\n0\r\nX-T: y\r\n\r\n"), "200 All fine [working] complete");
        check(&format!("{chunked}4\r\nwork\r\n3\r\nin"), "200 All fine [workin] more");
        check(&format!("{chunked}zz\r\n"), "malformed");
        check("HTTP/1.0 200\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "200  [a] complete");
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nworking", "200 OK [work] complete");
        check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nworking", "200 OK [working] more");
        check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx", "200 OK [] complete");
        check("HTTP/1.0 200 OK\n\nworking", "200 OK [working] more");
        check("HTTP/1.1 204 No\r\n\r\nx", "204 No [] complete");
    }

    #[test]
    fn an_interim_response_is_judged_as_it_is() {
        check("HTTP/1.1 100 Continue\r\n\r\n", "100 Continue [] complete");
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
        check(&format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwork"), "103 Early Hints [work] complete");
        check(&format!("{hints}nonsense\r\n"), "malformed");
        let upgraded = "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        check(upgraded, "101 S [] more");
    }

    #[test]
    fn what_is_no_response() {
        for text in [
            "hello\r\n\r\n",
            "SSH-2.0-x\r\n",
            "HTTP/1.0 20 OK\r\n\r\n",
            "HTTP/1.0 +20 OK\r\n\r\n",
            "HTTP/x 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nNoColon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ] {
            check(text, "malformed");
        }
        check("", "no head");
        check("HTTP/1.0 200 OK\r\n", "no head");
    }

    #[test]
    fn a_response_to_head_has_no_body() {
        let mut response = Response::new(ResponseTo { method: Method::Head, ..ResponseTo::default() });
        response.push(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n").unwrap();
        assert!(response.is_complete() && response.content().is_empty());
    }

    #[test]
    fn what_is_about_the_connection_is_not_judged() {
        let mut response = Response::new(ResponseTo::default());
        response.push(b"HTTP/1.1 200 OK\r\nConnection: close\r\nX-A: b\r\n\r\n").unwrap();
        assert_eq!(response.head().unwrap().fields, [(b"X-A".to_vec(), b"b".to_vec())]);
    }
}
