//! What may stand in `Host` and in the authority of a target: a host, perhaps with a port (RFC 9110 7.2, RFC 3986 3.2.2).
//!
//! HAProxy 2.6 looks at no byte of it. A value that the rules read in one way and the server in another (`a@b`, `a/b`, `a,b`)
//! sends a request past the rules about its host, so what is no host is refused, as RFC 9112 3.2 asks for.

use std::net::Ipv6Addr;

/// Whether `text` is a host with or without a port, or empty. `relaxed` (`option accept-invalid-http-request`) admits bytes
/// beyond ASCII.
pub(crate) fn is_host(text: &[u8], relaxed: bool) -> bool {
    let name = text.iter().position(|&byte| !NAME[byte as usize]).unwrap_or(text.len());
    match &text[name..] {
        [] => true,
        [b':', port @ ..] => name > 0 && is_port(port),
        [b'[', literal @ ..] if name == 0 => is_literal(literal),
        _ => is_unusual_name(text, relaxed),
    }
}

/// A name with percent-encoded bytes, or with bytes beyond ASCII.
fn is_unusual_name(mut text: &[u8], relaxed: bool) -> bool {
    let mut is_first = true;
    loop {
        text = match text {
            [] => return true,
            [b'%', a, b, rest @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => rest,
            [b':', port @ ..] => return !is_first && is_port(port),
            [byte, rest @ ..] if NAME[*byte as usize] || (relaxed && *byte > 0x7f) => rest,
            _ => return false,
        };
        is_first = false;
    }
}

/// What follows the opening bracket: an IPv6 address, perhaps with a zone (RFC 6874), the closing one, perhaps a port.
fn is_literal(text: &[u8]) -> bool {
    let Some(end) = text.iter().position(|&byte| byte == b']') else {
        return false;
    };
    let (inner, after) = (&text[..end], &text[end + 1..]);
    let (address, zone) = match inner.iter().position(|&byte| byte == b'%') {
        Some(percent) => (&inner[..percent], Some(&inner[percent + 1..])),
        None => (inner, None),
    };
    std::str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok())
        && zone.is_none_or(|zone| !zone.is_empty() && zone.iter().all(|&byte| NAME[byte as usize]))
        && match after {
            [] => true,
            [b':', port @ ..] => is_port(port),
            _ => false,
        }
}

/// Digits, perhaps none (RFC 3986 3.2.3).
fn is_port(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_digit)
}

/// The bytes of a registered name that stand for themselves, but for the comma: no host has one, and rules take a field
/// apart at it.
static NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~'
            | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'=');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::is_host;

    #[test]
    fn hosts_and_what_is_none() {
        let good = [
            "",
            "a",
            "a:",
            "a:80",
            "a.b-c_d.e",
            "A.",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "[::ffff:1.2.3.4]:",
            "*.a",
            "[fe80::1%25eth0]:80",
            "[fe80::1%eth0]",
            "a%20b",
            "xn--bcher-kva.de",
            "$a",
            "%c3%a4:1",
            "a:99999",
        ];
        for text in good {
            assert!(is_host(text.as_bytes(), false), "{text}");
        }
        let bad = [
            "a b", "a/b", "a@b", "a?b", "a#b", "a\\b", "a,b", ":80", "a:b", "a:80:80", "a:-1", "[::1", "::1", "[x]",
            "[]", "[::1]x", "[::1]:x", "[::1%]", "x[::1]", "a%2", "a%zz", "a\"b", "a<b", "a|b", "a{b}", "a^b", "a`b",
            "a\u{7f}", "a\x01", "http://a", "a\t", "%41:x",
        ];
        for text in bad {
            assert!(!is_host(text.as_bytes(), false), "{text}");
            assert!(!is_host(text.as_bytes(), true), "{text}");
        }
        assert!(!is_host("b\u{fc}cher.de".as_bytes(), false));
        assert!(is_host("b\u{fc}cher.de:80".as_bytes(), true));
    }

    #[test]
    fn every_byte_inside_of_a_name() {
        for byte in 0..=255u8 {
            let listed = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=".contains(&byte);
            assert_eq!(is_host(&[b'a', byte, b'b'], false), listed, "{byte:#x}");
        }
    }
}
