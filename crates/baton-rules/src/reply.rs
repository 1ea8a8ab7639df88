//! Answers that rules give themselves, and their bytes as HAProxy 2.6 writes them.

use std::io::Write;
use std::sync::Arc;

/// What `deny`, `tarpit`, `return` and `http-error` respond with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleResponse {
    /// The status. A file may have another one in it: then this one is only logged.
    pub status: u16,
    /// Where the response comes from.
    pub source: ResponseSource,
}

/// Where the response of a rule comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ResponseSource {
    /// The proxy's error page of the status.
    ErrorPage,
    /// A file with a whole response; an empty one closes the connection without a response.
    File(Arc<[u8]>),
    /// The rule itself.
    Composed(Reply),
}

/// A response composed by a rule.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// `hdr`: names and values, before all others.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// `content-type`, when there is a body.
    pub content_type: Option<Vec<u8>>,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer made by `redirect`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// Where to.
    pub location: Vec<u8>,
    /// The value of `Set-Cookie`, from `set-cookie` or `clear-cookie`.
    pub cookie: Option<Vec<u8>>,
}

impl Reply {
    /// Appends the head. `close`: the connection ends after it. The body follows unless the request was a HEAD.
    pub fn write_head(&self, close: bool, out: &mut Vec<u8>) {
        status_line(self.status, out);
        for (name, value) in &self.headers {
            out.extend(name.iter().map(u8::to_ascii_lowercase));
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        if !matches!(self.status, 100..=199 | 304) {
            let _ = write!(out, "content-length: {}\r\n", self.body.len());
        }
        if let Some(content_type) = &self.content_type {
            field("content-type", content_type, out);
        }
        end(close, out);
    }
}

impl Redirect {
    /// Appends the head, which is the whole answer. `close`: the connection ends after it.
    pub fn write_head(&self, close: bool, out: &mut Vec<u8>) {
        // A redirect has the phrase of RFC 9110 where others have an older one.
        let phrase = if self.status == 302 { "Found" } else { reason(self.status) };
        let _ = write!(out, "HTTP/1.1 {} {phrase}\r\n", self.status);
        out.extend_from_slice(b"content-length: 0\r\n");
        field("location", &self.location, out);
        if !matches!(self.status, 301 | 308) {
            field("cache-control", b"no-cache", out);
        }
        if let Some(cookie) = &self.cookie {
            field("set-cookie", cookie, out);
        }
        end(close, out);
    }
}

fn status_line(status: u16, out: &mut Vec<u8>) {
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", reason(status));
}

fn field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn end(close: bool, out: &mut Vec<u8>) {
    if close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// The statuses for which HAProxy has an error page of its own, which `deny_status` needs.
pub(crate) const PAGES: &[u16] =
    &[200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504];

/// The reason phrase HAProxy 2.6 writes for a status.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Time-out",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Requested range unsatisfiable",
        417 => "Expectation failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Method failure",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        449 => "Retry With",
        450 => "Blocked by Windows Parental Controls",
        451 => "Unavailable For Legal Reasons",
        499 => "client has closed connection",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway or Proxy Error",
        503 => "Service Unavailable",
        504 => "Gateway Time-out",
        505 => "HTTP Version not supported",
        506 => "Variant also negotiate",
        507 => "Insufficient storage",
        508 => "Loop detected",
        509 => "Bandwidth Limit Exceeded",
        510 => "Not extended",
        511 => "Network authentication required",
        _ => class(status),
    }
}

/// The phrase for a status without one of its own.
fn class(status: u16) -> &'static str {
    match status / 100 {
        1 => "Informational",
        2 => "Success",
        3 => "Redirection",
        4 => "Client Error",
        5 => "Server Error",
        _ => "Other",
    }
}
