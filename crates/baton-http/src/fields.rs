//! What kind of field a name stands for: for all recipients, or of a kind that has no place in a trailer section.

use crate::name::Name;

/// Beginnings of names of fields that are meant for all recipients.
const END_TO_END: &[&[u8]] = &[b"access-control-", b"content-", b"if-", b"sec-", b"x-forwarded-", b"x-real-ip"];

/// Whether a field is meant for all recipients of a message, so that no `Connection` may name it (RFC 9110 7.6.1): content,
/// framing, routing, conditions, credentials, and what intermediaries say about the client. Otherwise a client could take away what
/// another proxy in front of us has added. Of other names nobody but the sender knows.
pub(crate) fn is_end_to_end(name: &[u8]) -> bool {
    match Name::of(name) {
        Name::KeepAlive | Name::ProxyConnection | Name::Te | Name::Upgrade => false,
        Name::Other => begins_with_any(name, END_TO_END),
        _ => true,
    }
}

/// Names without a number of their own, or their beginnings, that a trailer must not have.
const NO_TRAILERS: &[&[u8]] = &[
    b"access-control-",
    b"content-disposition",
    b"content-location",
    b"content-range",
    b"http2-settings",
    b"if-",
    b"max-forwards",
    b"proxy-",
    b"retry-after",
    b"sec-",
    b"warning",
    b"www-authenticate",
    b"x-forwarded-",
    b"x-real-ip",
];

/// Whether a trailer with that name is dropped: framing, routing, the connection, conditions and other modifiers of requests,
/// credentials, control data and the format of the content (RFC 9110 6.5.1). A server that merges trailers into the head would
/// take them from a client behind the back of all rules. `ETag` is one of those that may be known only at the end.
pub(crate) fn is_no_trailer(id: Name, name: &[u8]) -> bool {
    match id {
        Name::Etag | Name::LastModified | Name::Server | Name::UserAgent | Name::XRequestId => false,
        Name::Other => begins_with_any(name, NO_TRAILERS),
        _ => true,
    }
}

fn begins_with_any(name: &[u8], beginnings: &[&[u8]]) -> bool {
    beginnings.iter().any(|start| name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_for_all_recipients() {
        for name in
            ["Host", "cookie", "Authorization", "X-Forwarded-For", "x-forwarded-port", "Content-MD5", "If-Match"]
        {
            assert!(is_end_to_end(name.as_bytes()), "{name}");
        }
        for name in ["Keep-Alive", "HTTP2-Settings", "TE", "Proxy-Connection", "X-A", "i", ""] {
            assert!(!is_end_to_end(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn trailers() {
        let check = |name: &str| is_no_trailer(Name::of(name.as_bytes()), name.as_bytes());
        for name in
            ["Content-Length", "Cookie", "Set-Cookie", "Proxy-Authenticate", "X-Forwarded-Proto", "If-Match", "Age"]
        {
            assert!(check(name), "{name}");
        }
        for name in
            ["grpc-status", "ETag", "Content-MD5", "Content-Digest", "Server-Timing", "x-amz-checksum-crc32", "X"]
        {
            assert!(!check(name), "{name}");
        }
    }
}
