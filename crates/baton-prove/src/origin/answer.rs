//! What an origin answers: the path as a [`Route`], and answers as bytes.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::Shared;
use crate::wire::RequestHead;

/// The largest body that can be asked for, in bytes.
const BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// The longest delay that can be asked for, in milliseconds.
const DELAY_MS_MAX: u64 = 600_000;

/// What a request's path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The JSON of what was seen, with this status, after so many milliseconds.
    Seen {
        status: u16,
        delay_ms: u64,
    },
    /// So many bytes of the pattern.
    Bytes {
        length: u64,
        chunked: bool,
    },
    Echo,
    WebSocket,
    /// A number that is none or too large.
    Bad,
}

impl Route {
    pub(super) fn new(target: &[u8]) -> Route {
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let mut parts = path.splitn(3, |byte| *byte == b'/').skip(1);
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let number = |max: u64| {
            let text = std::str::from_utf8(second.unwrap_or_default()).ok()?;
            text.parse().ok().filter(|number| *number <= max)
        };
        let bytes = |chunked| number(BYTES_MAX).map(|length| Route::Bytes { length, chunked });
        let route = match first {
            b"bytes" => bytes(false),
            b"chunked" => bytes(true),
            b"delay" => number(DELAY_MS_MAX).map(|delay_ms| Route::Seen { status: 200, delay_ms }),
            b"status" => {
                number(599).filter(|code| *code >= 200).map(|code| Route::Seen { status: code as u16, delay_ms: 0 })
            }
            b"echo" => Some(Route::Echo),
            b"ws" => Some(Route::WebSocket),
            _ => Some(Route::Seen { status: 200, delay_ms: 0 }),
        };
        route.unwrap_or(Route::Bad)
    }
}

/// What the origin saw, as it answers it.
#[derive(Serialize)]
struct Seen<'a> {
    name: &'a str,
    port: u16,
    /// The number of this request among all of this origin's.
    requests: u64,
    /// The number of its connection among all of this origin's.
    connection: u64,
    method: &'a str,
    path: &'a str,
    version: &'static str,
    headers: Vec<(String, String)>,
}

/// The JSON of what was seen, as one line.
pub(super) fn seen(origin: &Shared, connection: u64, head: &RequestHead<'_>) -> Vec<u8> {
    let headers = head.headers.clone().map(|(name, value)| (text(name), text(value))).collect();
    let seen = Seen {
        name: &origin.name,
        port: origin.port,
        requests: origin.counts.requests.load(Ordering::Relaxed),
        connection,
        method: &text(head.method),
        path: &text(head.target),
        version: if head.minor == 0 { "HTTP/1.0" } else { "HTTP/1.1" },
        headers,
    };
    let mut json = serde_json::to_vec(&seen).expect("strings and numbers are always JSON");
    json.push(b'\n');
    json
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Appends a head. `length` of `None` means chunked.
pub(super) fn head(status: u16, length: Option<u64>, kind: &str, close: bool, out: &mut Vec<u8>) {
    let reason = reason(status);
    let framing = match length {
        Some(length) => format!("Content-Length: {length}"),
        None => "Transfer-Encoding: chunked".to_owned(),
    };
    let connection = if close { "Connection: close\r\n" } else { "" };
    out.extend_from_slice(
        format!("HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n{framing}\r\n{connection}\r\n").as_bytes(),
    );
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        413 => "Content Too Large",
        426 => "Upgrade Required",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Other",
    }
}

/// The letters that [`pattern`] repeats.
const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// The first `length` bytes of what `/bytes` and `/chunked` answer: the alphabet again and again, so that a byte lost or doubled
/// anywhere shows.
pub fn pattern(length: usize) -> Vec<u8> {
    LETTERS.iter().copied().cycle().take(length).collect()
}

/// Whole alphabets, to be sent again and again.
pub(super) fn pattern_block() -> Vec<u8> {
    pattern(LETTERS.len() * 630)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_is_answered() {
        let check = |path: &str, expect: Route| assert_eq!(Route::new(path.as_bytes()), expect, "{path}");
        check("/", Route::Seen { status: 200, delay_ms: 0 });
        check("*", Route::Seen { status: 200, delay_ms: 0 });
        check("/a/b", Route::Seen { status: 200, delay_ms: 0 });
        check("/delay/20?x", Route::Seen { status: 200, delay_ms: 20 });
        check("/status/503", Route::Seen { status: 503, delay_ms: 0 });
        check("/status/100", Route::Bad);
        check("/bytes/12", Route::Bytes { length: 12, chunked: false });
        check("/chunked/0", Route::Bytes { length: 0, chunked: true });
        check("/bytes/", Route::Bad);
        check("/bytes/1/2", Route::Bad);
        check("/bytes/99999999999999999", Route::Bad);
        check("/echo", Route::Echo);
        check("/ws?a=b", Route::WebSocket);
    }
}
