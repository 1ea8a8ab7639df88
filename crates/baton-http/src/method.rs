//! Request methods and protocol versions.

/// A request method (RFC 9110 9). Methods are case-sensitive; the text of one is in the head.
#[derive(Copy, Clone, Default, Eq, PartialEq, Hash, Debug)]
pub enum Method {
    /// `GET`
    #[default]
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `CONNECT`
    Connect,
    /// `OPTIONS`
    Options,
    /// `TRACE`
    Trace,
    /// `PATCH`
    Patch,
    /// Any other token.
    Other,
}

impl Method {
    /// The method written as `text`.
    #[inline]
    pub fn of(text: &[u8]) -> Method {
        match text {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }
}

/// A protocol version, as far as it makes a difference.
#[derive(Copy, Clone, Default, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub enum Version {
    /// HTTP/1.0, and anything below 1.1.
    Http10,
    /// HTTP/1.1. Like HAProxy 2.6 we take every higher `HTTP/D.D` as 1.1 too.
    #[default]
    Http11,
    /// HTTP/2: of requests that came by it. Servers that speak HTTP/1 get them as 1.1.
    Http2,
}

impl Version {
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`.
    pub fn text(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }

    /// What a message of this version is written as to a peer that speaks HTTP/1.
    pub fn as_http1(self) -> Version {
        self.min(Version::Http11)
    }

    /// The version written as `text`: `HTTP/`, a digit, a dot, a digit.
    #[inline]
    pub fn of(text: &[u8]) -> Option<Version> {
        match text {
            b"HTTP/1.1" => Some(Version::Http11),
            [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] => {
                Some(if (*major, *minor) < (b'1', b'1') { Version::Http10 } else { Version::Http11 })
            }
            _ => None,
        }
    }
}
