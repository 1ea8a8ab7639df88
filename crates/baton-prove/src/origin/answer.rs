//! What a request asks of an origin, and the JSON of what was seen.

use std::{sync::atomic::Ordering, time::Duration};

use serde::Serialize;

use super::{OriginShared, fault::InjectedFault};
use crate::wire::RequestHead;

/// The largest body that can be asked for, in bytes.
const BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// The longest delay that can be asked for.
const DELAY_MAX: Duration = Duration::from_secs(600);

/// What a request's target asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) route: Route,
    /// How long to wait before the answer.
    pub(super) delay: Duration,
    pub(super) fault: Option<InjectedFault>,
}

/// What a request's path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The JSON of what was seen, with this status.
    Seen {
        status: u16,
    },
    /// So many bytes of the pattern.
    Bytes {
        length: u64,
        chunked: bool,
    },
    Echo,
    WebSocket,
    /// Nothing that can be done; the text says why.
    Bad(&'static str),
}

const BAD_NUMBER: &str = "the number in the path is invalid or out of range\n";
const BAD_DELAY: &str = "the delay is invalid (200ms, 1.5s) or longer than 10 minutes\n";
const BAD_FAULT: &str = "unknown failure\n";

impl Ask {
    pub(super) fn new(target: &[u8]) -> Ask {
        let mut ask = Ask { route: Route::Seen { status: 200 }, delay: Duration::ZERO, fault: None };
        if let Err(text) = ask.read(target) {
            ask.route = Route::Bad(text);
        }
        ask
    }

    fn read(&mut self, target: &[u8]) -> Result<(), &'static str> {
        let mut halves = target.splitn(2, |byte| *byte == b'?');
        let (path, query) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        let mut parts = path.splitn(3, |byte| *byte == b'/').skip(1);
        let (first, second) = (parts.next().unwrap_or_default(), text(parts.next().unwrap_or_default()));
        match first {
            b"bytes" => self.route = Route::Bytes { length: number(second, 0..=BYTES_MAX)?, chunked: false },
            b"chunked" => self.route = Route::Bytes { length: number(second, 0..=BYTES_MAX)?, chunked: true },
            b"status" => self.route = Route::Seen { status: number(second, 200..=599)? as u16 },
            b"delay" => self.delay = delay(second)?,
            b"fail" => self.fault = Some(second.parse().map_err(|_| BAD_FAULT)?),
            b"echo" => self.route = Route::Echo,
            b"ws" => self.route = Route::WebSocket,
            _ => {}
        }
        for field in query.split(|byte| *byte == b'&').map(text) {
            match field.split_once('=') {
                Some(("delay", value)) => self.delay = delay(value)?,
                Some(("fail", value)) => self.fault = Some(value.parse().map_err(|_| BAD_FAULT)?),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What is no text is no number and no name either.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("?")
}

fn number(text: &str, bounds: std::ops::RangeInclusive<u64>) -> Result<u64, &'static str> {
    text.parse().ok().filter(|number| bounds.contains(number)).ok_or(BAD_NUMBER)
}

/// `200ms`, `1.5s`, or milliseconds without a unit.
fn delay(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 0.001),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 0.001),
    };
    let seconds: f64 = number.parse().map_err(|_| BAD_DELAY)?;
    Duration::try_from_secs_f64(seconds * unit).ok().filter(|delay| *delay <= DELAY_MAX).ok_or(BAD_DELAY)
}

/// What the origin saw, as it answers it.
#[derive(Serialize)]
struct RequestReport<'a> {
    name: &'a str,
    /// `null` for a unix socket.
    port: Option<u16>,
    /// The number of this request among all of this origin's.
    requests: u64,
    /// The number of its connection among all of this origin's.
    connection: u64,
    method: &'a str,
    path: &'a str,
    version: &'static str,
    headers: Vec<(String, String)>,
}

/// The JSON of what was seen of an HTTP/1 request, as one line.
pub(super) fn seen(origin: &OriginShared, connection: u64, head: &RequestHead<'_>) -> Vec<u8> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = head.headers.clone().map(|(name, value)| (text(name), text(value))).collect();
    let version = if head.minor == 0 { "HTTP/1.0" } else { "HTTP/1.1" };
    seen_as(origin, connection, &text(head.method), &text(head.target), version, headers)
}

/// The JSON of what was seen of any request, as one line.
pub(super) fn seen_as(
    origin: &OriginShared,
    connection: u64,
    method: &str,
    path: &str,
    version: &'static str,
    headers: Vec<(String, String)>,
) -> Vec<u8> {
    let seen = RequestReport {
        name: &origin.name,
        port: origin.port,
        requests: origin.counts.requests.load(Ordering::Relaxed),
        connection,
        method,
        path,
        version,
        headers,
    };
    let mut json = serde_json::to_vec(&seen).expect("strings and numbers are always JSON");
    json.push(b'\n');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_say_what_is_answered() {
        let ask = |route, delay_ms, fault| Ask { route, delay: Duration::from_millis(delay_ms), fault };
        let check = |target: &str, expect: Ask| assert_eq!(Ask::new(target.as_bytes()), expect, "{target}");
        let seen = |status| Route::Seen { status };
        let bytes = |length, chunked| Route::Bytes { length, chunked };
        check("/", ask(seen(200), 0, None));
        check("*", ask(seen(200), 0, None));
        check("/a/b", ask(seen(200), 0, None));
        check("/delay/20?x", ask(seen(200), 20, None));
        check("/delay/200ms", ask(seen(200), 200, None));
        check("/delay/1.5s", ask(seen(200), 1500, None));
        check("/status/503", ask(seen(503), 0, None));
        check("/bytes/12", ask(bytes(12, false), 0, None));
        check("/chunked/0", ask(bytes(0, true), 0, None));
        check("/echo", ask(Route::Echo, 0, None));
        check("/ws?a=b", ask(Route::WebSocket, 0, None));
        check("/fail/half-head", ask(seen(200), 0, Some(InjectedFault::HalfHead)));
        check("/bytes/9?fail=drip&a&delay=1s", ask(bytes(9, false), 1000, Some(InjectedFault::Drip)));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let check = |target: &str, text: &'static str| {
            assert_eq!(Ask::new(target.as_bytes()).route, Route::Bad(text), "{target}")
        };
        for target in
            ["/bytes/", "/bytes/1/2", "/bytes/-1", "/bytes/99999999999999999", "/status/100", "/status/\u{e9}"]
        {
            check(target, BAD_NUMBER);
        }
        for target in ["/delay/", "/delay/1h", "/delay/601s", "/delay/-1", "/delay/NaN", "/delay/infs", "/?delay="] {
            check(target, BAD_DELAY);
        }
        check("/fail/", BAD_FAULT);
        check("/?fail=sometimes", BAD_FAULT);
    }
}
