//! Heads that came in parts instead of lines, as HTTP/2 sends them: they become what a parsed head is, and are judged as strictly.
//!
//! The texts of the fields lie in one buffer, which plays the part of the read buffer. The caller has judged what is the protocol's own
//! (pseudo-header fields, fields about the connection).

use crate::error::{HeadError, HeadErrorKind};
use crate::headers::Headers;
use crate::method::Version;
use crate::name::Name;
use crate::request::{RequestHead, ResponseTo};
use crate::response::ResponseHead;
use crate::scan::{Limits, Phase};
use crate::span::{Span, Text};
use crate::target;

/// What a request has instead of a request line. What it does not have is empty.
#[derive(Copy, Clone, Debug)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The scheme; empty for CONNECT.
    pub scheme: &'a [u8],
    /// The authority, which `Host` repeats if it is there.
    pub authority: &'a [u8],
    /// Path and query, or `*`; empty for CONNECT.
    pub path: &'a [u8],
    /// The version, for logs and rules. What is forwarded is HTTP/1.1.
    pub version: &'a [u8],
}

/// The known name, and where name and value are in the buffer.
pub type FieldParts = (Name, Span, Span);

impl RequestHead {
    /// Makes the head of a request of its parts. As in HAProxy 2.6, the target is absolute for rules and logs, and written in origin
    /// form; without `Host`, one comes first that repeats the authority; and `Cookie` fields become one, at the end.
    ///
    /// # Errors
    /// What [`parse`](Self::parse) would refuse in the same request, and fields beyond the limits.
    pub fn assemble(
        &mut self,
        buf: &[u8],
        parts: RequestParts<'_>,
        fields: impl Iterator<Item = FieldParts> + Clone,
        limits: &Limits,
    ) -> Result<(), HeadError> {
        self.clear();
        self.scan.phase = Phase::Done;
        let RequestParts { method, scheme, authority, path, version } = parts;
        if buf.len() > limits.head_bytes {
            return HeadError::new(HeadErrorKind::TooLong, limits.head_bytes);
        }
        self.scan.line = buf.len();
        self.version = Version::Http11;
        self.version_text = self.headers.keep(version);
        self.set_method(method);
        let start = self.headers.added().len();
        if !(path.is_empty() || path == b"*") {
            self.headers.keep(scheme);
            self.headers.keep(b"://");
            self.headers.keep(authority);
        }
        self.headers.keep(if path.is_empty() { authority } else { path });
        self.target = self.headers.added_since(start);
        let target = self.headers.text(&[], self.target);
        let is_clean = target.iter().all(|&byte| target::is_byte(byte) || limits.relaxed && byte > 0x7f);
        self.form = match target::form(self.method, target, limits.relaxed) {
            Some(form) if is_clean => form,
            _ => return HeadError::new(HeadErrorKind::Target, 0),
        };
        self.is_assembled = true;
        if !authority.is_empty() && !fields.clone().any(|(id, ..)| id == Name::Host) {
            self.headers.add(b"host", authority);
        }
        push_fields(&mut self.headers, fields.clone().filter(|(id, ..)| *id != Name::Cookie), limits)?;
        push_cookies(&mut self.headers, buf, fields.filter(|(id, ..)| *id == Name::Cookie));
        self.judge(buf, limits.relaxed)
    }
}

impl ResponseHead {
    /// Makes the head of a response of its parts. `reason` is what HTTP/1 clients are sent.
    ///
    /// # Errors
    /// What [`parse`](Self::parse) would refuse in the same response, and fields beyond the limits.
    pub fn assemble(
        &mut self,
        buf: &[u8],
        status: u16,
        reason: &[u8],
        fields: impl Iterator<Item = FieldParts>,
        to: ResponseTo,
        limits: &Limits,
    ) -> Result<(), HeadError> {
        self.clear();
        self.scan.phase = Phase::Done;
        if buf.len() > limits.head_bytes {
            return HeadError::new(HeadErrorKind::TooLong, limits.head_bytes);
        }
        self.scan.line = buf.len();
        self.version = Version::Http11;
        self.set_status(status, reason);
        if !(100..1000).contains(&status) || status == 101 {
            return HeadError::new(HeadErrorKind::Status, 0);
        }
        push_fields(&mut self.headers, fields, limits)?;
        // An upgrade is not known there: 101 was refused.
        let to = ResponseTo { upgrade: false, websocket: false, ..to };
        self.judge(buf, to)
    }
}

fn push_fields(
    headers: &mut Headers,
    fields: impl Iterator<Item = FieldParts>,
    limits: &Limits,
) -> Result<(), HeadError> {
    for (id, name, value) in fields {
        if headers.slots() + 1 >= limits.headers {
            return HeadError::new(HeadErrorKind::TooManyHeaders, name.start as usize);
        }
        headers.push(id, Text::Read(name), Text::Read(value));
    }
    Ok(())
}

/// Several `Cookie` fields are pieces of one (RFC 9113 8.2.3).
fn push_cookies(headers: &mut Headers, buf: &[u8], mut cookies: impl Iterator<Item = FieldParts>) {
    let Some((id, name, first)) = cookies.next() else { return };
    let Some((_, _, second)) = cookies.next() else {
        return headers.push(id, Text::Read(name), Text::Read(first));
    };
    let start = headers.added().len();
    headers.keep(first.of(buf));
    for value in std::iter::once(second).chain(cookies.map(|(_, _, value)| value)) {
        headers.keep(b"; ");
        headers.keep(value.of(buf));
    }
    let value = headers.added_since(start);
    headers.push(id, Text::Read(name), value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Framing;
    use crate::method::Method;
    use crate::target::TargetForm;

    /// The head of a request with these lines of fields.
    fn assemble(method: &str, url: (&str, &str, &str), fields: &str) -> Result<(RequestHead, String), HeadError> {
        let mut spans = Vec::new();
        for line in fields.lines() {
            let start = line.as_ptr() as usize - fields.as_ptr() as usize;
            let colon = line.find(':').expect("a colon");
            let name = Span::new(start, start + colon);
            spans.push((Name::of(name.of(fields.as_bytes())), name, Span::new(start + colon + 1, start + line.len())));
        }
        let parts = RequestParts {
            method: method.as_bytes(),
            scheme: url.0.as_bytes(),
            authority: url.1.as_bytes(),
            path: url.2.as_bytes(),
            version: b"HTTP/2.0",
        };
        let mut head = RequestHead::new();
        head.assemble(fields.as_bytes(), parts, spans.into_iter(), &Limits::default())?;
        let mut out = Vec::new();
        head.write(fields.as_bytes(), &mut out);
        Ok((head, String::from_utf8(out).expect("text")))
    }

    fn check(method: &str, url: (&str, &str, &str), fields: &str, expected: Result<&str, HeadErrorKind>) {
        let written = assemble(method, url, fields);
        let lines = written.map(|(_, text)| text.replace("\r\n", "|")).map_err(|error| error.kind);
        assert_eq!(lines.as_deref().map_err(|kind| *kind), expected);
    }

    #[test]
    fn a_request_is_written_as_haproxy_writes_it() {
        let url = ("https", "a:8443", "/p?q=1");
        check("GET", url, "x:y", Ok("GET /p?q=1 HTTP/1.1|host: a:8443|x: y||"));
        check("GET", url, "x:y\nhost:A:8443", Ok("GET /p?q=1 HTTP/1.1|x: y|host: A:8443||"));
        check(
            "GET",
            url,
            "cookie:a=1\nx:y\ncookie:b=2\ncookie:c=3",
            Ok("GET /p?q=1 HTTP/1.1|host: a:8443|x: y|cookie: a=1; b=2; c=3||"),
        );
        check("OPTIONS", ("https", "a", "*"), "", Ok("OPTIONS * HTTP/1.1|host: a||"));
        check("CONNECT", ("", "a:443", ""), "", Ok("CONNECT a:443 HTTP/1.1|host: a:443||"));
        check("POST", url, "content-length:5\nx:y", Ok("POST /p?q=1 HTTP/1.1|host: a:8443|content-length: 5|x: y||"));
    }

    #[test]
    fn what_a_parser_refuses_is_refused() {
        check("GET", ("http", "a b", "/"), "", Err(HeadErrorKind::Target));
        check("GET", ("http", "u@a", "/"), "", Err(HeadErrorKind::Target));
        check("GET", ("http", "", "/"), "", Err(HeadErrorKind::Target));
        check("GET", ("http", "a", "/ x"), "", Err(HeadErrorKind::Target));
        check("GET", ("http", "a", "/\r\nx:y"), "", Err(HeadErrorKind::Target));
        check("GET", ("http", "a", "/"), "host:a/b", Err(HeadErrorKind::Host));
        check("GET", ("http", "a", "/"), "content-length:x", Err(HeadErrorKind::ContentLength));
        check("CONNECT", ("", "a", ""), "", Err(HeadErrorKind::Target));
        let many = "x:y\n".repeat(200);
        check("GET", ("http", "a", "/"), &many, Err(HeadErrorKind::TooManyHeaders));
        let long = format!("x:{}", "y".repeat(16_000));
        check("GET", ("http", "a", "/"), &long, Err(HeadErrorKind::TooLong));
    }

    #[test]
    fn rules_see_an_absolute_target_and_may_change_it() {
        let (mut head, _) = assemble("GET", ("https", "a", "/p?q"), "content-length:3").expect("a request");
        assert_eq!((head.target(b""), head.form()), (&b"https://a/p?q"[..], TargetForm::Absolute));
        assert_eq!((head.path(b""), head.version_text(b"")), (&b"/p"[..], &b"HTTP/2.0"[..]));
        assert_eq!(head.framing, Framing::Length(3));
        let written = |head: &RequestHead| {
            let mut out = Vec::new();
            head.write(b"content-length:3", &mut out);
            String::from_utf8(out).expect("text").split("\r\n").next().map(str::to_owned).unwrap_or_default()
        };
        // Another path of the same host stays in origin form, another host does not.
        assert!(head.set_target(b"https://a/other"));
        assert_eq!(written(&head), "GET /other HTTP/1.1");
        head.headers.set(b"", b"host", b"b");
        assert!(head.follow_host(b""));
        assert_eq!((head.target(b""), written(&head)), (&b"https://b/other"[..], "GET /other HTTP/1.1".to_owned()));
        assert!(head.set_target(b"http://c/x"));
        assert_eq!(written(&head), "GET http://c/x HTTP/1.1");
    }

    #[test]
    fn a_response_has_the_framing_of_its_fields() {
        let buf = b"content-length5";
        let field = (Name::ContentLength, Span::new(0, 14), Span::new(14, 15));
        let check = |status, method, expected| {
            let mut head = ResponseHead::new();
            let to = ResponseTo { method, ..ResponseTo::default() };
            let made = head.assemble(buf, status, b"", [field].into_iter(), to, &Limits::default());
            assert_eq!(made.map(|()| head.framing).map_err(|error| error.kind), expected, "{status}");
        };
        check(200, Method::Get, Ok(Framing::Length(5)));
        check(200, Method::Head, Ok(Framing::None));
        check(200, Method::Connect, Ok(Framing::Tunnel));
        check(103, Method::Get, Ok(Framing::None));
        check(304, Method::Get, Ok(Framing::None));
        check(101, Method::Get, Err(HeadErrorKind::Status));
        check(99, Method::Get, Err(HeadErrorKind::Status));
    }
}
