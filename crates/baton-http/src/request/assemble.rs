//! A request whose parts came one by one, as those of HTTP/2 do (RFC 9113 8.3.1), as a head like all others.
//!
//! It is written as HAProxy 2.6 has it: `Host` in front, from the authority, and all cookies in one field at the end (RFC 9113 8.2.3). Rules
//! see the target in absolute form, and a server gets it in origin form.

use super::{RequestHead, is_scheme_of_http};
use crate::assemble::FieldParts;
use crate::error::{HeadError, HeadErrorKind};
use crate::method::{Method, Version};
use crate::name::Name;
use crate::scan::{Limits, Phase};
use crate::span::{Span, Text};
use crate::target::{self, TargetForm};

/// The parts of a request that are no fields. The caller answers for their being what they are called; that they mean something
/// together is judged here.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The scheme; empty for CONNECT.
    pub scheme: &'a [u8],
    /// Host and port; empty where only `Host` says them.
    pub authority: &'a [u8],
    /// Path and query, or `*`; empty for CONNECT.
    pub path: &'a [u8],
    /// The request is for a WebSocket (RFC 8441): it becomes an upgrade (RFC 6455 4.1) with this key.
    pub websocket_key: Option<&'a [u8]>,
}

impl RequestHead {
    /// Takes a request, of whose fields the names, in lower case, and the values lie in `arena`. All of it is written to `room`, of which the
    /// head takes so many bytes: they are the buffer of all methods.
    ///
    /// # Errors
    /// It makes no sense, or it does not fit.
    pub fn assemble(
        &mut self,
        parts: &RequestParts<'_>,
        arena: &[u8],
        fields: impl Iterator<Item = FieldParts>,
        room: &mut [u8],
        limits: &Limits,
    ) -> Result<usize, HeadError> {
        self.clear();
        self.scan.phase = Phase::Done;
        self.version = Version::Http2;
        self.is_assembled = true;
        self.is_clear = parts.authority.is_empty() && parts.scheme.eq_ignore_ascii_case(b"http");
        let bytes = room.len().min(limits.head_bytes);
        let room = &mut room[..bytes];
        let mut line = Line { room, len: 0 };
        self.method = if parts.websocket_key.is_some() { Method::Get } else { Method::of(parts.method) };
        let method: &[u8] = if parts.websocket_key.is_some() { b"GET" } else { parts.method };
        self.method_text = line.put(&[method])?;
        line.put(&[b" "])?;
        let host = self.put_target(parts, &mut line)?;
        line.put(&[b" "])?;
        self.version_text = line.put(&[self.version.text().as_bytes()])?;
        line.put(&[b"\r\n"])?;
        let shift = line.len;
        line.put(&[arena])?;
        let Line { room, len } = line;
        let buf = &room[..len];
        // Cookies that come in crumbs are one field of what is written.
        self.put_fields(buf, (host, parts.authority), fields.take(2 * limits.headers + 1), shift);
        if self.headers.slots() >= 2 * limits.headers {
            return HeadError::new(HeadErrorKind::TooManyHeaders, shift);
        }
        self.scan.line = len;
        self.judge(buf, limits)?;
        if let Some(key) = parts.websocket_key {
            self.ask_for_websocket(key);
        }
        Ok(len)
    }

    /// The target: its text, and that of `Host`.
    fn put_target(&mut self, parts: &RequestParts<'_>, line: &mut Line<'_>) -> Result<Option<Text>, HeadError> {
        let RequestParts { method, scheme, authority, path, .. } = *parts;
        let at = line.len;
        let mut host = None;
        if !authority.is_empty() {
            if !scheme.is_empty() {
                line.put(&[scheme, b"://"])?;
            }
            let from = line.len;
            line.put(&[authority])?;
            if !scheme.is_empty() {
                // As HAProxy writes it, without a port that its scheme says already.
                line.len -= target::default_port(TargetForm::Absolute, &line.room[at..line.len]);
            }
            host = Some(Text::Read(Span::new(from, line.len)));
        }
        if path != b"*" || authority.is_empty() {
            line.put(&[path])?;
        }
        let target = &line.room[at..line.len];
        let is_for_all = path == b"*" && method != b"OPTIONS";
        match target::form(self.method, target, false) {
            Some(form) if target.iter().all(|&byte| target::is_byte(byte)) && !is_for_all => self.form = form,
            _ => return HeadError::new(HeadErrorKind::Target, at),
        }
        // Rules that change it look at it among what was added.
        self.target = self.headers.keep(&line.room[at..line.len]);
        Ok(host)
    }

    /// The fields, which lie `shift` bytes further than they say: `Host` first, the cookies last.
    fn put_fields(
        &mut self,
        buf: &[u8],
        (host, authority): (Option<Text>, &[u8]),
        fields: impl Iterator<Item = FieldParts>,
        shift: usize,
    ) {
        let text = |span: Span| Text::Read(Span::new(span.start as usize + shift, span.end as usize + shift));
        if let Some(host) = host {
            let name = self.headers.keep(b"host");
            self.headers.push(Name::Host, name, host);
        }
        let (mut first, mut cookies) = (None, None);
        for (id, name, value) in fields {
            let (name, value) = (text(name), text(value));
            match (id, first, cookies) {
                (Name::Cookie, None, _) => first = Some((name, value)),
                (Name::Cookie, Some((_, one)), None) => {
                    let start = self.headers.added().len();
                    self.headers.append(buf, one);
                    self.headers.keep(b"; ");
                    self.headers.append(buf, value);
                    cookies = Some(start);
                }
                (Name::Cookie, Some(_), Some(_)) => {
                    self.headers.keep(b"; ");
                    self.headers.append(buf, value);
                }
                // Said twice, it is written once; a host that differs is found when all is judged.
                (Name::Host, ..) if value.of(buf, &[]).eq_ignore_ascii_case(authority) => {}
                _ => self.headers.push(id, name, value),
            }
        }
        if let Some((name, value)) = first {
            let value = cookies.map_or(value, |start| self.headers.added_since(start));
            self.headers.push(Name::Cookie, name, value);
        }
    }

    /// Asks an HTTP/1 server for what extended CONNECT asks for (RFC 8441 5).
    fn ask_for_websocket(&mut self, key: &[u8]) {
        self.headers.remove_known(Name::SecWebsocketKey);
        self.headers.add(b"upgrade", b"websocket");
        self.headers.add(b"connection", b"upgrade");
        self.headers.add(b"sec-websocket-key", key);
        self.connection.upgrade = true;
        self.upgrade = true;
        self.websocket = true;
    }

    /// The target as a server that speaks HTTP/1 gets it: HTTP/2 has no other form than the absolute one, and HTTP/1 has the
    /// origin form for all but proxies.
    pub(super) fn target_for_http1<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        let target = self.target(buf);
        let is_usual = self.is_assembled && self.form == TargetForm::Absolute;
        if !is_usual || !is_scheme_of_http(target::scheme(target)) {
            return target;
        }
        match (self.path_and_query(buf), self.method) {
            (b"", Method::Options) => b"*",
            (b"", _) => b"/",
            (path, _) => path,
        }
    }
}

/// The start of a buffer that is being written.
struct Line<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Line<'_> {
    fn put(&mut self, pieces: &[&[u8]]) -> Result<Text, HeadError> {
        let start = self.len;
        for piece in pieces {
            let end = self.len + piece.len();
            match self.room.get_mut(self.len..end) {
                Some(room) => room.copy_from_slice(piece),
                None => return HeadError::new(HeadErrorKind::TooLong, self.len),
            }
            self.len = end;
        }
        Ok(Text::Read(Span::new(start, self.len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ForUpstream, Framing};

    /// Method, scheme, authority and path, then a line for each field. What a server gets, with what the log has before it; or the error.
    fn check(parts: [&str; 4], fields: &[(&str, &str)], expect: Result<&str, HeadErrorKind>) {
        let mut arena = Vec::new();
        let mut put = |text: &str| {
            let start = arena.len();
            arena.extend_from_slice(text.as_bytes());
            Span::new(start, arena.len())
        };
        let spans: Vec<_> =
            fields.iter().map(|(name, value)| (Name::of(name.as_bytes()), put(name), put(value))).collect();
        let [method, scheme, authority, path] = parts.map(str::as_bytes);
        let is_websocket = method == b"WEBSOCKET";
        let parts = RequestParts {
            method: if is_websocket { b"CONNECT" } else { method },
            scheme,
            authority,
            path,
            websocket_key: is_websocket.then_some(b"dGhlIHNhbXBsZSBub25jZQ=="),
        };
        let mut head = RequestHead::new();
        let mut room = [0; 512];
        let got = head.assemble(&parts, &arena, spans.into_iter(), &mut room, &Limits::default()).map(|len| {
            let buf = &room[..len];
            let mut text =
                crate::RequestView::new(&head, buf).received().split(|byte| *byte == b'\r').next().unwrap().to_vec();
            text.push(b'|');
            head.for_upstream(buf, ForUpstream { keep_alive: true });
            head.write(buf, &mut text);
            String::from_utf8(text).unwrap().replace("\r\n", "|")
        });
        assert_eq!(got.as_deref().map_err(|error| error.kind), expect, "{parts:?} {fields:?}");
    }

    #[test]
    fn a_request_is_put_together_as_haproxy_does() {
        let got = "GET https://a.org/x?y HTTP/2.0|GET /x?y HTTP/1.1|host: a.org||";
        check(["GET", "https", "a.org", "/x?y"], &[], Ok(got));
        let fields = [("cookie", "a=b"), ("x-a", "1"), ("cookie", "c"), ("te", "trailers"), ("cookie", "d=e")];
        let got = "GET http://a/ HTTP/2.0|GET / HTTP/1.1|host: a|x-a: 1|te: trailers|cookie: a=b; c; d=e||";
        check(["GET", "http", "a", "/"], &fields, Ok(got));
        check(
            ["GET", "http", "a", "/"],
            &fields[..2],
            Ok("GET http://a/ HTTP/2.0|GET / HTTP/1.1|host: a|x-a: 1|cookie: a=b||"),
        );
        check(["GET", "http", "", "/y"], &[("host", "b")], Ok("GET /y HTTP/2.0|GET /y HTTP/1.1|host: b||"));
        check(["GET", "http", "b", "/y"], &[("host", "B")], Ok("GET http://b/y HTTP/2.0|GET /y HTTP/1.1|host: b||"));
        let got = "POST http://a/ HTTP/2.0|POST / HTTP/1.1|host: a|content-length: 5||";
        check(["POST", "http", "a", "/"], &[("content-length", "5")], Ok(got));
        let got = "GET https://a/ HTTP/2.0|GET / HTTP/1.1|host: a||";
        check(["GET", "https", "a:443", "/"], &[("host", "a:443")], Ok(got));
        check(["GET", "http", "a:8080", "/"], &[], Ok("GET http://a:8080/ HTTP/2.0|GET / HTTP/1.1|host: a:8080||"));
        check(["OPTIONS", "http", "a", "*"], &[], Ok("OPTIONS http://a HTTP/2.0|OPTIONS * HTTP/1.1|host: a||"));
        check(["GET", "ftp", "a", "/"], &[], Ok("GET ftp://a/ HTTP/2.0|GET ftp://a/ HTTP/1.1|host: a||"));
        check(["CONNECT", "", "a:80", ""], &[], Ok("CONNECT a:80 HTTP/2.0|CONNECT a:80 HTTP/1.1|host: a:80||"));
        let got = "GET https://a/ws HTTP/2.0|GET /ws HTTP/1.1|host: a|x: y|upgrade: websocket|connection: upgrade|\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==||";
        check(["WEBSOCKET", "https", "a", "/ws"], &[("sec-websocket-key", "z"), ("x", "y")], Ok(got));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        use HeadErrorKind::{Host, Target, TooLong};
        for (authority, kind) in [("a b", Target), ("a@b", Target), ("a/b", Host), ("a\\b", Target), ("a,b", Target)] {
            check(["GET", "http", authority, "/"], &[], Err(kind));
        }
        check(["GET", "http", "a", "/"], &[("host", "b")], Err(Host));
        check(["GET", "http", "", "/"], &[("host", "a"), ("host", "b")], Err(Host));
        check(["GET", "http", "", "/"], &[("host", "a b")], Err(Host));
        for path in ["", "x", "*", "/a b", "/a\tb", "/a#b", "/a\rb", "/\u{e9}"] {
            check(["GET", "http", "", path], &[("host", "a")], Err(Target));
        }
        check(["CONNECT", "", "a", ""], &[], Err(Target));
        check(["CONNECT", "", "", ""], &[], Err(Target));
        check(["GET", "http", "a", &format!("/{}", "x".repeat(512))], &[], Err(TooLong));
        check(["POST", "http", "a", "/"], &[("content-length", "5, 6")], Err(HeadErrorKind::ContentLength));
    }

    #[test]
    fn rules_see_an_absolute_target_and_may_change_it() {
        let (mut head, mut room) = (RequestHead::new(), [0; 128]);
        let parts =
            RequestParts { method: b"GET", scheme: b"https", authority: b"a", path: b"/p?q", websocket_key: None };
        let made = head.assemble(&parts, &[], std::iter::empty(), &mut room, &Limits::default());
        let buf = &room[..made.expect("a request")];
        assert_eq!((head.target(buf), head.path(buf)), (&b"https://a/p?q"[..], &b"/p"[..]));
        let written = |head: &RequestHead| {
            let mut out = Vec::new();
            head.write(buf, &mut out);
            String::from_utf8(out).expect("text").split("\r\n").next().map(str::to_owned).unwrap_or_default()
        };
        // Another path of the same host stays in origin form, another host does not.
        assert!(head.set_target(b"https://a/other"));
        assert_eq!(written(&head), "GET /other HTTP/1.1");
        head.headers.set(buf, b"host", b"b");
        assert!(head.follow_host(buf));
        assert_eq!((head.target(buf), written(&head)), (&b"https://b/other"[..], "GET /other HTTP/1.1".to_owned()));
        assert!(head.set_target(b"http://c/x"));
        assert_eq!(written(&head), "GET http://c/x HTTP/1.1");
    }

    #[test]
    fn the_scheme_is_known_without_an_authority() {
        let check = |parts: [&str; 3], expect: &str| {
            let [scheme, authority, path] = parts.map(str::as_bytes);
            let (mut head, mut room) = (RequestHead::new(), [0; 64]);
            let parts = RequestParts { method: b"GET", scheme, authority, path, websocket_key: None };
            let made = head.assemble(&parts, &[], std::iter::empty(), &mut room, &Limits::default());
            let buf = &room[..made.expect("a request")];
            assert_eq!(String::from_utf8_lossy(head.scheme(buf)), expect);
        };
        check(["http", "a", "/"], "http");
        check(["https", "a", "/"], "https");
        check(["http", "", "/"], "http");
        check(["https", "", "/"], "");
    }

    #[test]
    fn a_body_without_a_length_is_not_announced() {
        let mut head = RequestHead::new();
        let parts = RequestParts { method: b"POST", scheme: b"http", authority: b"a", path: b"/", websocket_key: None };
        head.assemble(&parts, &[], std::iter::empty(), &mut [0; 64], &Limits::default()).expect("a request");
        assert_eq!((head.framing, head.version, head.keep_alive()), (Framing::None, Version::Http2, true));
    }
}
