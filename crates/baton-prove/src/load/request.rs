//! A request as asked for, and as bytes ready to be sent.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;

/// One request and what a right answer to it is.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which of `LoadOptions::servers` it goes to, by its place.
    pub server: usize,
    /// The method; `HEAD` answers are expected without a body.
    pub method: String,
    /// The request target, usually a path.
    pub path: String,
    /// Headers besides `Host`, `Connection` and `Content-Length`, as name and value.
    pub headers: Vec<(String, String)>,
    /// The body; empty means none.
    pub body: Vec<u8>,
    /// Which status is right.
    pub status: StatusCheck,
    /// Which body is right.
    pub expect: BodyCheck,
}

/// Which status is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCheck {
    /// 200 to 299.
    Success,
    /// This one only.
    Exactly(u16),
    /// Any final one.
    Any,
}

/// Which body is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyCheck {
    /// Any that is whole.
    Any,
    /// One of so many bytes.
    Length(u64),
    /// One as long as that of the first right answer to the same request, over the whole load.
    SameLength,
    /// These bytes.
    Exactly(Arc<[u8]>),
}

impl Request {
    /// A GET that is right with any whole answer of status 200 to 299.
    pub fn get(path: impl Into<String>) -> Request {
        Request {
            server: 0,
            method: "GET".to_owned(),
            path: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
            status: StatusCheck::Success,
            expect: BodyCheck::Any,
        }
    }

    /// A POST of `body`, right as [`Request::get`] is.
    pub fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Request {
        Request { method: "POST".to_owned(), body: body.into(), ..Request::get(path) }
    }

    /// Sends the request to the server at this index of `LoadOptions::servers`.
    pub fn to(mut self, server: usize) -> Request {
        self.server = server;
        self
    }

    /// Expects this body.
    pub fn expect(mut self, expect: BodyCheck) -> Request {
        self.expect = expect;
        self
    }

    /// Expects this status.
    pub fn status(mut self, status: StatusCheck) -> Request {
        self.status = status;
        self
    }

    /// The bytes to send. An error says what cannot be sent.
    pub(super) fn prepare(
        &self,
        place: usize,
        host: &str,
        keep_alive: bool,
        http2: Option<Scheme>,
    ) -> Result<Prepared, &'static str> {
        let clean = |text: &str| !text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        if self.method.is_empty() || !clean(&self.method) || self.method.contains(' ') {
            return Err("the method is empty, or has a space, a line end or a zero byte in it");
        }
        if self.path.is_empty() || !clean(&self.path) || self.path.contains(' ') {
            return Err("the path is empty, or has a space, a line end or a zero byte in it");
        }
        if !clean(host) || !self.headers.iter().all(|(name, value)| !name.is_empty() && clean(name) && clean(value)) {
            return Err("a header is empty, or has a line end or a zero byte in it");
        }

        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        if !keep_alive {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        Ok(Prepared {
            length: AtomicU64::new(0),
            place,
            server: self.server,
            bytes,
            bodyless: self.method == "HEAD",
            status: self.status,
            expect: self.expect.clone(),
            http2: http2.map(|scheme| self.prepare_http2(host, scheme)).transpose()?,
        })
    }

    /// Head and body for HTTP/2, whose connections write them.
    fn prepare_http2(&self, host: &str, scheme: Scheme) -> Result<(http::Request<()>, Bytes), &'static str> {
        let named = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = named.map_or(host, |(_, value)| value);
        let scheme = match scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let uri = http::Uri::builder().scheme(scheme).authority(host).path_and_query(&*self.path).build();
        let uri = uri.map_err(|_| "the host or the path cannot be sent over HTTP/2")?;
        let mut head = http::Request::builder().version(http::Version::HTTP_2).method(&*self.method).uri(uri);
        for (name, value) in self.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            if OF_CONNECTION.iter().any(|of| name.eq_ignore_ascii_case(of)) {
                return Err("a header is about the connection, which HTTP/2 does not allow (RFC 9113 section 8.2.2)");
            }
            head = head.header(name.to_ascii_lowercase(), value);
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            head = head.header(http::header::CONTENT_LENGTH, self.body.len());
        }
        let head = head.body(()).map_err(|_| "the method or a header cannot be sent over HTTP/2")?;
        Ok((head, Bytes::copy_from_slice(&self.body)))
    }
}

/// Headers that no request has in HTTP/2.
const OF_CONNECTION: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// What a request's URL begins with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// A request as bytes, and its checks.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Its own place in the list.
    pub(super) place: usize,
    /// The server's place.
    pub(super) server: usize,
    pub(super) bytes: Vec<u8>,
    /// The answer has no body whatever its head says (HEAD).
    pub(super) bodyless: bool,
    pub(super) status: StatusCheck,
    pub(super) expect: BodyCheck,
    /// Head and body, if it is sent over HTTP/2.
    pub(super) http2: Option<(http::Request<()>, Bytes)>,
    /// For [`BodyCheck::SameLength`]: the first right answer's length and one more; 0 before there was one.
    length: AtomicU64,
}

impl Prepared {
    /// How long a right body is, when this one has `length` bytes.
    pub(super) fn right_length(&self, length: u64) -> u64 {
        match &self.expect {
            BodyCheck::Any => length,
            BodyCheck::Length(right) => *right,
            BodyCheck::Exactly(bytes) => bytes.len() as u64,
            BodyCheck::SameLength => match self.length.load(Ordering::Relaxed) {
                0 => {
                    let first = self.length.compare_exchange(0, length + 1, Ordering::Relaxed, Ordering::Relaxed);
                    first.map_or_else(|known| known - 1, |_| length)
                }
                known => known - 1,
            },
        }
    }
}

impl StatusCheck {
    pub(super) fn accepts(self, status: u16) -> bool {
        match self {
            StatusCheck::Success => (200..300).contains(&status),
            StatusCheck::Exactly(right) => status == right,
            StatusCheck::Any => true,
        }
    }
}

/// Whether `data` is what `right` has at `at`. Beyond its end nothing differs: the length tells that.
pub(super) fn matches(right: &[u8], at: u64, data: &[u8]) -> bool {
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(right.len());
    let length = data.len().min(right.len() - at);
    right[at..at + length] == data[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(request: Request, keep_alive: bool, expect: &str) {
        let text = match request.prepare(0, "h:1", keep_alive, None) {
            Ok(prepared) => String::from_utf8(prepared.bytes).expect("made of strings"),
            Err(text) => text.to_owned(),
        };
        assert!(text.contains(expect) && (expect.contains('\r') || !text.contains('\r')), "{text:?}");
    }

    #[test]
    fn requests_become_bytes() {
        check(Request::get("/a"), true, "GET /a HTTP/1.1\r\nHost: h:1\r\n\r\n");
        check(Request::get("/a"), false, "GET /a HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n");
        check(Request::post("/", "hi"), true, "POST / HTTP/1.1\r\nHost: h:1\r\nContent-Length: 2\r\n\r\nhi");
        let named = Request { headers: vec![("HOST".to_owned(), "x".to_owned())], ..Request::get("/") };
        check(named, true, "GET / HTTP/1.1\r\nHOST: x\r\n\r\n");
    }

    #[test]
    fn what_would_smuggle_is_refused() {
        check(Request::get("/ HTTP/1.1\r\nX: y"), true, "the path");
        check(Request::get(""), true, "the path");
        check(Request { method: "GE T".to_owned(), ..Request::get("/") }, true, "the method");
        let header = Request { headers: vec![("A".to_owned(), "b\nc".to_owned())], ..Request::get("/") };
        check(header, true, "a header");
    }
}
