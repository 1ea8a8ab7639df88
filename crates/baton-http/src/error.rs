//! Why a head was refused, where, and which status answers it.

use std::fmt;

/// What is wrong with a head.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum HeadErrorKind {
    /// The head is longer than [`Limits::head_bytes`](crate::Limits::head_bytes).
    TooLong,
    /// The head has [`Limits::headers`](crate::Limits::headers) fields or more.
    TooManyHeaders,
    /// A carriage return that no line feed follows (RFC 9112 2.2).
    BareCr,
    /// A NUL byte (RFC 9110 5.5 forbids to forward it).
    Nul,
    /// The method is not a token, or is `PRI`, which RFC 9113 keeps for itself.
    Method,
    /// The target has a byte that is not allowed there, or none of the forms of RFC 9112 3.2.
    Target,
    /// The version is missing or is not `HTTP/D.D`.
    Version,
    /// The bytes `PRI * HTTP/2.0`, the start of HTTP/2's preface (RFC 9113 3.4).
    Http2Preface,
    /// The status code is not three digits from 100 to 999.
    Status,
    /// A field line without a colon, with an empty name or with a byte in it that no token has.
    HeaderName,
    /// `Content-Length` is not a number below 2^63, or the values differ.
    ContentLength,
    /// `Transfer-Encoding` does not end in one `chunked`.
    TransferEncoding,
    /// A transfer coding before `chunked`, which we cannot undo.
    UnknownCoding,
    /// Two `Host` fields that differ, one that differs from the target's authority, or one that is no host.
    Host,
    /// `Connection` has more options than any client has a use for.
    Connection,
    /// A body in an HTTP/1.0 GET, HEAD or DELETE, whose peers may not expect one.
    BodyNotAllowed,
    /// `Upgrade: websocket` without a `Sec-WebSocket-Key` of 24 bytes.
    WebsocketKey,
    /// Status 101 although the request asked for no upgrade, without `Connection: upgrade`, or to a protocol that carries
    /// requests again.
    Upgrade,
}

/// A refused head: what is wrong and at which byte of the buffer.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct HeadError {
    /// What is wrong.
    pub kind: HeadErrorKind,
    /// Offset in the buffer passed to `parse`, of the byte or of the field at fault.
    pub at: usize,
}

impl HeadError {
    pub(crate) fn new<T>(kind: HeadErrorKind, at: usize) -> Result<T, HeadError> {
        Err(HeadError { kind, at })
    }

    /// The status with which HAProxy 2.6 answers such a request: 400, 413 or 422. For a bad response it is always 502.
    pub fn request_status(&self) -> u16 {
        match self.kind {
            HeadErrorKind::BodyNotAllowed => 413,
            HeadErrorKind::UnknownCoding => 422,
            _ => 400,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            HeadErrorKind::TooLong => "head too long",
            HeadErrorKind::TooManyHeaders => "too many header fields",
            HeadErrorKind::BareCr => "carriage return without line feed",
            HeadErrorKind::Nul => "NUL byte",
            HeadErrorKind::Method => "invalid method",
            HeadErrorKind::Target => "invalid request target",
            HeadErrorKind::Version => "invalid HTTP version",
            HeadErrorKind::Http2Preface => "HTTP/2 preface on an HTTP/1 connection",
            HeadErrorKind::Status => "invalid status code",
            HeadErrorKind::HeaderName => "invalid header name",
            HeadErrorKind::ContentLength => "invalid or conflicting Content-Length",
            HeadErrorKind::TransferEncoding => "Transfer-Encoding does not end in one chunked",
            HeadErrorKind::UnknownCoding => "unsupported transfer coding",
            HeadErrorKind::Host => "invalid or conflicting Host or authority",
            HeadErrorKind::Connection => "too many options in Connection",
            HeadErrorKind::BodyNotAllowed => "body not allowed in this HTTP/1.0 request",
            HeadErrorKind::WebsocketKey => "websocket upgrade without Sec-WebSocket-Key",
            HeadErrorKind::Upgrade => "unexpected 101 response",
        };
        write!(f, "{what} at byte {}", self.at)
    }
}

impl std::error::Error for HeadError {}
