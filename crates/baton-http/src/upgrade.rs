//! The `Upgrade` field: which protocols a tunnel may be asked for (RFC 9110 7.8).

use crate::connection;
use crate::headers::Headers;
use crate::name::Name;
use crate::values::values;

/// Whether behind the switch to this protocol there would be requests again: `h2c`, `HTTP/2.0`, `TLS/1.2` (RFC 2817). They would
/// pass no rule and no log, so that it is not passed on. RFC 9113 3.1 has given up `h2c`.
pub(crate) fn carries_requests(protocol: &[u8]) -> bool {
    let begins = |start: &[u8]| protocol.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
    let is_h2 = matches!(protocol, [b'h' | b'H', b'2' | b'3', ..]);
    // No protocol has a quote in its name: others may see two of them.
    is_h2
        || protocol.contains(&b'"')
        || [&b"http"[..], b"tls", b"ssl"].into_iter().any(|name| begins(name) && is_end(protocol.get(name.len())))
}

/// Whether a protocol's name is over: its version follows, or nothing.
fn is_end(byte: Option<&u8>) -> bool {
    byte.is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

/// Takes such protocols out of the `Upgrade` fields, and what belongs to them. False: nothing is left to switch to.
pub(crate) fn remove_protocols(headers: &mut Headers, buf: &[u8]) -> bool {
    let mut is_left = false;
    for index in 0..headers.slots() {
        if let Some((Name::Upgrade, text)) = headers.slot(index) {
            connection::retain(headers, buf, (index, text), |protocol| {
                !protocol.is_empty() && !carries_requests(protocol)
            });
            is_left |= headers.slot(index).is_some();
        }
    }
    headers.remove(buf, b"http2-settings");
    is_left
}

/// Whether one of the `Upgrade` fields names such a protocol.
pub(crate) fn names_requests(headers: &Headers, buf: &[u8]) -> bool {
    headers.all_known(buf, Name::Upgrade).any(|field| values(field.value).any(carries_requests))
}

#[cfg(test)]
mod tests {
    use super::carries_requests;

    #[test]
    fn protocols() {
        for name in ["h2c", "H2C", "h2", "h2c-14", "HTTP/2.0", "http", "TLS/1.2", "tls", "ssl/3", "h3", "\"a, h2c"] {
            assert!(carries_requests(name.as_bytes()), "{name}");
        }
        for name in ["websocket", "WebSocket", "", "foo", "h", "httpx", "tlsx", "connect-udp", "IRC/6.9", "SPDY"] {
            assert!(!carries_requests(name.as_bytes()), "{name}");
        }
    }
}
