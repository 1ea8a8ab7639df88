//! The connection of a check that speaks HTTP/2: its request, and what comes of the response. Pure: bytes in, bytes out.

use baton_http2::{Config, Connection, ErrorCode, Event, RequestPseudo, Role, Settings};

use crate::response::{Malformed, RESPONSE_BYTES_MAX, Response};

/// One side of a connection: ours.
#[derive(Debug)]
pub(crate) struct Http2 {
    connection: Connection,
    /// The request's.
    stream: u32,
    /// What the server's windows have had no room for.
    unsent: Vec<u8>,
    /// The beginning of a frame's header, whose rest is to come.
    rest: Vec<u8>,
}

/// A request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Http2Request {
    pub(crate) method: Vec<u8>,
    pub(crate) scheme: Vec<u8>,
    pub(crate) authority: Vec<u8>,
    pub(crate) path: Vec<u8>,
    /// Names in lower case.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Option<Vec<u8>>,
}

/// Why nothing more comes of a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// What came is no response.
    Malformed,
    /// The server has given the stream up, or does not speak HTTP/2.
    Ended(String),
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Failure {
        Failure::Malformed
    }
}

impl Http2 {
    /// A connection that begins with what is added to `out`.
    pub(crate) fn new(out: &mut Vec<u8>) -> Http2 {
        let bytes = u32::try_from(RESPONSE_BYTES_MAX).unwrap_or(u32::MAX);
        let settings = Settings { enable_push: false, max_header_list_size: bytes, ..Settings::default() };
        let config = Config { settings, head_bytes_max: bytes, connection_window: 0xffff, ..Config::default() };
        let mut connection = Connection::new(Role::Client, config);
        connection.open(out);
        Http2 { connection, stream: 0, unsent: Vec::new(), rest: Vec::new() }
    }

    /// Sends a request, as far as there is room.
    ///
    /// # Errors
    /// It cannot be sent, for this reason.
    pub(crate) fn send(&mut self, request: Http2Request, out: &mut Vec<u8>) -> Result<(), String> {
        let Http2Request { method, scheme, authority, path, fields, body } = &request;
        let is_odd = |text: &Vec<u8>| text.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
        if [method, scheme, authority, path].into_iter().any(is_odd) {
            return Err("the request has characters that HTTP/2 does not allow".into());
        }
        let pseudo = RequestPseudo { method, scheme, authority, path, protocol: None };
        let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
        let ends = body.as_ref().is_none_or(Vec::is_empty);
        let opened = self.connection.send_request(pseudo, fields, ends, out);
        self.stream = opened.map_err(|refusal| refusal.to_string())?;
        self.unsent = request.body.unwrap_or_default();
        self.send_rest(out);
        Ok(())
    }

    fn send_rest(&mut self, out: &mut Vec<u8>) {
        if !self.unsent.is_empty() {
            let sent = self.connection.send_data(self.stream, &self.unsent, true, out);
            self.unsent.drain(..sent);
        }
    }

    /// More has come; what is to be sent for it is added to `out`.
    ///
    /// # Errors
    /// Nothing more comes of the response.
    pub(crate) fn receive(&mut self, part: &[u8], response: &mut Response, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut input = std::mem::take(&mut self.rest);
        input.extend_from_slice(part);
        let mut at = 0;
        loop {
            let received = self.connection.receive(&input[at..], out);
            let received = received.map_err(|violation| Failure::Ended(violation.to_string()))?;
            at += received.consumed;
            let Some(event) = received.event else { break };
            self.take(event, response, out)?;
        }
        self.rest = input.split_off(at);
        Ok(())
    }

    fn take(&mut self, event: Event<'_>, response: &mut Response, out: &mut Vec<u8>) -> Result<(), Failure> {
        let ended = |code: ErrorCode, how: &str| Failure::Ended(format!("{how}: {code}"));
        match event {
            Event::Interim { stream } if stream == self.stream => response.take_head(self.connection.head(), true)?,
            Event::Head { stream, ends } if stream == self.stream => {
                response.take_head(self.connection.head(), false)?;
                if ends {
                    response.end();
                }
            }
            Event::HeadTooLarge { stream, .. } if stream == self.stream => return Err(Failure::Malformed),
            Event::Data { stream, bytes, ends } if stream == self.stream => {
                response.take_content(bytes);
                self.connection.consumed(stream, bytes.len(), out);
                if ends {
                    response.end();
                }
            }
            Event::Trailers { stream } if stream == self.stream => {
                response.take_trailers(self.connection.head());
                response.end();
            }
            Event::Reset { stream, code } if stream == self.stream => {
                return Err(ended(code, "the server has reset the stream"));
            }
            Event::Failed { stream, violation } if stream == self.stream => {
                return Err(Failure::Ended(violation.to_string()));
            }
            Event::GoAway { code, .. } if self.connection.is_unprocessed(self.stream) => {
                return Err(ended(code, "the server goes away"));
            }
            Event::Window { .. } | Event::Settings => self.send_rest(out),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use baton_http::ResponseTo;

    use super::*;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn get() -> Http2Request {
        Http2Request {
            method: b"GET".into(),
            scheme: b"http".into(),
            authority: b"a".into(),
            path: b"/".into(),
            fields: vec![(b"x".into(), b"y".into())],
            body: Some(b"body".into()),
        }
    }

    /// What comes of what the server does with the request: status, body, trailers; whole and byte by byte.
    fn check(serve: impl Fn(&mut Connection, u32, &mut Vec<u8>), expect: &str) {
        for piece in [usize::MAX, 1] {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            let (mut client, mut server) = (Http2::new(&mut up), Connection::new(Role::Server, Config::default()));
            client.send(get(), &mut up).unwrap();
            server.open(&mut down);
            let (mut input, mut asked) = (&up[..], Vec::new());
            loop {
                let received = server.receive(input, &mut down).unwrap();
                input = &input[received.consumed..];
                match received.event {
                    Some(Event::Head { stream, .. }) => asked = vec![stream],
                    Some(_) => {}
                    None => break,
                }
            }
            serve(&mut server, asked[0], &mut down);
            let mut response = Response::new(ResponseTo::default());
            let mut out = Vec::new();
            let result =
                down.chunks(piece.min(down.len())).try_for_each(|part| client.receive(part, &mut response, &mut out));
            let trailers: Vec<_> =
                response.trailers().iter().map(|(name, value)| [&name[..], b"=", value].concat()).collect();
            let seen = format!(
                "{} [{}] [{}] {}{}",
                response.head().map_or(0, |head| head.status),
                String::from_utf8_lossy(response.content()),
                String::from_utf8_lossy(&trailers.concat()),
                if response.is_complete() { "complete" } else { "more" },
                result.err().map(|failure| format!(" {failure:?}")).unwrap_or_default()
            );
            assert_eq!(seen, expect, "pieces of {piece}");
        }
    }

    fn head(server: &mut Connection, stream: u32, status: u16, fields: Fields<'_>, ends: bool, out: &mut Vec<u8>) {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        server.send_response(stream, status, fields, ends, out);
    }

    #[test]
    fn a_response_is_read() {
        check(|server, stream, out| head(server, stream, 204, &[], true, out), "204 [] [] complete");
        check(
            |server, stream, out| {
                head(server, stream, 200, &[("a", "b")], false, out);
                server.send_data(stream, b"work", false, out);
                server.send_data(stream, b"ing", false, out);
                server.send_trailers(stream, [(&b"t"[..], &b"u"[..])].into_iter(), out);
            },
            "200 [working] [t=u] complete",
        );
        check(
            |server, stream, out| {
                head(server, stream, 103, &[], false, out);
                head(server, stream, 200, &[], false, out);
                server.send_data(stream, b"x", true, out);
            },
            "103 [x] [] complete",
        );
        check(
            |server, stream, out| {
                head(server, stream, 200, &[("content-length", "1")], false, out);
                server.send_data(stream, b"x", false, out);
            },
            "200 [x] [] more",
        );
    }

    #[test]
    fn a_server_that_gives_up_is_a_failure() {
        check(
            |server, stream, out| server.reset(stream, ErrorCode::REFUSED_STREAM, out),
            "0 [] [] more Ended(\"the server has reset the stream: REFUSED_STREAM (0x7)\")",
        );
        check(
            |_, _, out| baton_http2::write_go_away(0, ErrorCode::NO_ERROR, "", out),
            "0 [] [] more Ended(\"the server goes away: NO_ERROR (0x0)\")",
        );
    }

    #[test]
    fn what_is_no_text_of_a_request_is_not_sent() {
        let (mut out, mut client) = (Vec::new(), Http2::new(&mut Vec::new()));
        let odd = Http2Request { path: b"/a\r\nb".into(), ..get() };
        assert!(client.send(odd, &mut out).is_err() && out.is_empty());
        let odd = Http2Request { fields: vec![(b"x".into(), b"a\r\nb: c".into())], ..get() };
        client.send(odd, &mut out).unwrap();
        assert!(!out.windows(2).any(|pair| pair == b"\r\n"));
    }

    #[test]
    fn a_long_body_waits_for_the_window() {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let (mut client, mut server) = (Http2::new(&mut up), Connection::new(Role::Server, Config::default()));
        let long = vec![b'x'; 100_000];
        client.send(Http2Request { body: Some(long.clone()), ..get() }, &mut up).unwrap();
        server.open(&mut down);
        let (mut came, mut ended, mut response) = (0, false, Response::new(ResponseTo::default()));
        for _ in 0..10 {
            let bytes = std::mem::take(&mut up);
            let mut input = &bytes[..];
            loop {
                let received = server.receive(input, &mut down).unwrap();
                input = &input[received.consumed..];
                match received.event {
                    Some(Event::Data { stream, bytes, ends }) => {
                        (came, ended) = (came + bytes.len(), ends);
                        server.consumed(stream, bytes.len(), &mut down);
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            client.receive(&std::mem::take(&mut down), &mut response, &mut up).unwrap();
        }
        assert_eq!((came, ended), (long.len(), true));
    }
}
