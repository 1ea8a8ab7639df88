//! Every violation that there is: frames that commit it, and what the peer is sent for it.

use baton_http2::hpack::{Encoder, Indexing};
use baton_http2::{
    Config, Connection, Event, FrameHeader, FrameType, PREFACE, RequestPseudo, Role, Scope, Settings, Violation, flag,
};

/// A frame.
fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { len: payload.len() as u32, kind: kind as u8, flags, stream };
    [&header.bytes()[..], payload].concat()
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let payload = pairs.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
    frame(FrameType::Settings, 0, 0, &payload.collect::<Vec<_>>())
}

/// A field block that leaves tables as they are.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    for (name, value) in fields {
        encoder.lower(name.as_bytes(), value.as_bytes(), Indexing::Without, &mut out);
    }
    out
}

const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")];
const POST: [(&str, &str); 4] = [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a")];

fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(FrameType::Headers, flags | flag::END_HEADERS, stream, &block(fields))
}

/// The fields of `base`, and more.
fn with<'a>(base: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [base, more].concat()
}

/// A whole request with one more field.
fn field(name: &str, value: &str) -> Vec<u8> {
    headers(1, flag::END_STREAM, &with(&GET, &[(name, value)]))
}

fn get(stream: u32) -> Vec<u8> {
    headers(stream, flag::END_STREAM, &GET)
}

fn post(stream: u32) -> Vec<u8> {
    headers(stream, 0, &POST)
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(FrameType::Data, flags, stream, bytes)
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(FrameType::WindowUpdate, 0, stream, &increment.to_be_bytes())
}

fn reset(stream: u32) -> Vec<u8> {
    frame(FrameType::RstStream, 0, stream, &[0; 4])
}

fn go_away(last: u32) -> Vec<u8> {
    frame(FrameType::GoAway, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

fn config() -> Config {
    let settings = Settings { max_concurrent_streams: 10, enable_push: false, ..Settings::default() };
    Config {
        settings,
        connection_window: 65_535,
        head_bytes_max: 8 << 10,
        block_bytes_max: 32 << 10,
        continuations_max: 8,
        resets_max: 20,
        control_frames_max: 100,
        ..Config::default()
    }
}

/// What came of some input: the violations on streams, the one of the connection, the number of heads, and what was sent.
#[derive(Default)]
struct Outcome {
    failed: Vec<(u32, Violation)>,
    ended: Option<Violation>,
    heads: usize,
    out: Vec<u8>,
}

impl Outcome {
    /// Whether a frame of that kind was sent with that code at that place of its payload.
    fn has_sent(&self, kind: FrameType, stream: u32, at: usize, code: u32) -> bool {
        let mut rest = &self.out[..];
        while let Some(header) = FrameHeader::parse(rest) {
            let end = 9 + header.len as usize;
            let sent = rest.get(9 + at..9 + at + 4) == Some(&code.to_be_bytes()[..]);
            if (header.kind, header.stream) == (kind as u8, stream) && sent {
                return true;
            }
            rest = &rest[end..];
        }
        false
    }
}

/// Feeds `input` in pieces of `piece` bytes.
fn feed(connection: &mut Connection, input: &[u8], piece: usize) -> Outcome {
    let (mut outcome, mut waiting) = (Outcome::default(), Vec::new());
    for part in input.chunks(piece) {
        waiting.extend_from_slice(part);
        let mut taken = 0;
        loop {
            match connection.receive(&waiting[taken..], &mut outcome.out) {
                Ok(received) => {
                    taken += received.consumed;
                    match received.event {
                        Some(Event::Failed { stream, violation }) => outcome.failed.push((stream, violation)),
                        Some(Event::Head { .. }) => outcome.heads += 1,
                        Some(_) => {}
                        None => break,
                    }
                }
                Err(violation) => {
                    outcome.ended = Some(violation);
                    return outcome;
                }
            }
        }
        waiting.drain(..taken);
        assert!(waiting.len() < 26, "all but the fixed part of a frame is taken");
    }
    outcome
}

fn server() -> Connection {
    let mut connection = Connection::new(Role::Server, config());
    connection.open(&mut Vec::new());
    connection
}

fn client() -> Connection {
    let mut connection = Connection::new(Role::Client, config());
    connection.open(&mut Vec::new());
    for method in [&b"GET"[..], b"HEAD"] {
        let pseudo =
            RequestPseudo { method, scheme: b"https", authority: b"a", path: b"/", ..RequestPseudo::default() };
        connection.send_request(pseudo, std::iter::empty(), true, &mut Vec::new()).expect("a stream");
    }
    connection
}

/// What comes first of a peer in that role.
fn greeting(role: Role) -> Vec<u8> {
    let hello = [settings(&[]), frame(FrameType::Settings, flag::ACK, 0, &[])].concat();
    if role == Role::Server { [&PREFACE[..], &hello].concat() } else { hello }
}

/// What commits each violation, behind the greeting; `None`: the greeting itself does.
fn cases() -> Vec<(Violation, Role, Vec<u8>)> {
    use FrameType as F;
    use Violation as V;
    let large = vec![0; 16_385];
    let full = vec![0; 16_384];
    let mut cases = Vec::new();
    let mut server = |violation, frames: &[Vec<u8>]| cases.push((violation, Role::Server, frames.concat()));

    server(V::FrameTooLarge, &[post(1), data(1, 0, &large)]);
    server(V::FrameTooLarge, &[frame(F::Ping, 0, 0, &large)]);
    server(V::FrameLength, &[frame(F::Ping, 0, 0, &[0; 7])]);
    server(V::FrameLength, &[frame(F::WindowUpdate, 0, 0, &[0; 3])]);
    server(V::FrameLength, &[get(1), frame(F::RstStream, 0, 1, &[0; 5])]);
    server(V::FrameLength, &[frame(F::GoAway, 0, 0, &[0; 7])]);
    server(V::FrameLength, &[frame(F::Settings, 0, 0, &[0; 5])]);
    server(V::FrameLength, &[post(1), frame(F::Data, flag::PADDED, 1, &[])]);
    server(V::FrameLength, &[frame(F::Headers, flag::PRIORITY, 1, &[0; 4])]);
    server(V::PriorityLength, &[get(1), frame(F::Priority, 0, 1, &[0; 6])]);
    server(V::PriorityLength, &[get(1), frame(F::Priority, 0, 1, &[0; 3])]);
    server(V::Padding, &[post(1), frame(F::Data, flag::PADDED, 1, &[2, 0])]);
    server(V::Padding, &[frame(F::Headers, flag::PADDED | flag::END_HEADERS, 1, &[9, 0x82])]);
    for kind in [F::Data, F::Headers, F::Priority, F::RstStream] {
        let len = if kind == F::Priority { 5 } else { 4 };
        server(V::StreamZero, &[frame(kind, 0, 0, &vec![0; len])]);
    }
    server(V::StreamZero, &[frame(F::Headers, 0, 1, &block(&GET)), frame(F::Continuation, 0, 0, &[])]);
    for (kind, len) in [(F::Settings, 0), (F::Ping, 8), (F::GoAway, 8)] {
        server(V::NotStreamZero, &[frame(kind, 0, 1, &vec![0; len])]);
    }
    let open = || frame(F::Headers, 0, 1, &block(&GET));
    server(V::BlockInterrupted, &[open(), frame(F::Ping, 0, 0, &[0; 8])]);
    server(V::BlockInterrupted, &[open(), frame(F::Continuation, 0, 3, &[])]);
    server(V::BlockInterrupted, &[open(), vec![0, 0, 0, 0x99, 0, 0, 0, 0, 0]]);
    server(V::ContinuationUnexpected, &[get(1), frame(F::Continuation, flag::END_HEADERS, 1, &[])]);
    server(V::StreamIdParity, &[get(2)]);
    server(V::StreamIdle, &[data(1, 0, b"x")]);
    server(V::StreamIdle, &[reset(1)]);
    server(V::StreamIdle, &[window(1, 1)]);
    server(V::StreamIdle, &[window(2, 1)]);
    server(V::StreamClosed, &[get(3), data(1, 0, b"x")]);
    server(V::StreamClosed, &[post(1), reset(1), data(1, 0, b"x")]);
    server(V::StreamClosedHead, &[get(3), get(1)]);
    server(V::StreamClosedHead, &[post(1), reset(1), get(1)]);
    server(V::StreamHalfClosed, &[get(1), data(1, 0, b"x")]);
    server(V::StreamHalfClosed, &[get(1), get(1)]);
    let on_itself = [&[0, 0, 0, 1, 7][..], &block(&GET)].concat();
    server(V::SelfDependency, &[frame(F::Headers, flag::END_HEADERS | flag::PRIORITY, 1, &on_itself)]);
    server(V::SelfDependency, &[get(1), frame(F::Priority, 0, 1, &[0, 0, 0, 1, 7])]);
    server(V::PushPromise, &[get(1), frame(F::PushPromise, flag::END_HEADERS, 1, &[0, 0, 0, 2])]);
    server(V::SettingsAckLength, &[frame(F::Settings, flag::ACK, 0, &[0; 6])]);
    server(V::SettingsAckUnexpected, &[frame(F::Settings, flag::ACK, 0, &[])]);
    for (id, value) in [(2, 2), (5, 16_383), (5, 1 << 24), (8, 2)] {
        server(V::SettingsValue, &[settings(&[(id, value)])]);
    }
    server(V::SettingsValue, &[settings(&[(8, 1), (8, 0)])]);
    server(V::SettingsWindow, &[settings(&[(4, 1 << 31)])]);
    server(V::SettingsWindowOverflow, &[get(1), window(1, 1), settings(&[(4, (1 << 31) - 1)])]);
    server(V::WindowZero, &[get(1), window(1, 0)]);
    server(V::ConnectionWindowZero, &[window(0, 0)]);
    server(V::WindowOverflow, &[get(1), window(1, (1 << 31) - 1)]);
    server(V::ConnectionWindowOverflow, &[window(0, (1 << 31) - 1)]);
    server(V::GoAwayIncreased, &[go_away(3), go_away(5)]);
    server(V::Compression, &[frame(F::Headers, flag::END_HEADERS, 1, &[0xff, 0xff, 0xff])]);
    server(V::Compression, &[frame(F::Headers, flag::END_HEADERS, 1, &[0x3f, 0xe2, 0x1f])]);
    server(V::Compression, &[frame(F::Headers, flag::END_HEADERS, 1, &[0x82, 0x20])]);
    server(V::TooManyStreams, &(0..11).map(|at| post(at * 2 + 1)).collect::<Vec<_>>());
    for name in ["X-Upper", "", "a b", "a\r\nb", "a:b", "\u{e9}", "a\0"] {
        server(V::FieldName, &[field(name, "v")]);
    }
    for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", " a", "a ", "\ta", " "] {
        server(V::FieldValue, &[field("x", value)]);
        server(V::FieldValue, &[headers(1, flag::END_STREAM, &with(&GET[..3], &[(":authority", value)]))]);
    }
    for (name, value) in [
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ] {
        server(V::ConnectionField, &[field(name, value)]);
        server(V::ConnectionField, &[post(1), headers(1, flag::END_STREAM, &[(name, value)])]);
    }
    let request = |fields: &[(&str, &str)]| headers(1, flag::END_STREAM, fields);
    server(V::PseudoUnknown, &[request(&with(&GET, &[(":new", "x")]))]);
    server(V::PseudoUnknown, &[request(&with(&GET, &[(":status", "200")]))]);
    server(V::PseudoUnknown, &[request(&with(&GET, &[(":", "x")]))]);
    server(V::PseudoOrder, &[request(&[GET[0], GET[1], GET[2], ("x", "y"), GET[3]])]);
    server(V::PseudoOrder, &[request(&[("host", "a"), GET[0], GET[1], GET[2]])]);
    for at in 0..4 {
        server(V::PseudoRepeated, &[request(&with(&GET, &GET[at..=at]))]);
        let missing: Vec<_> =
            GET.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, field)| *field).collect();
        server(V::PseudoMissing, &[request(&missing)]);
    }
    for (at, value) in [
        (0, ""),
        (0, "G T"),
        (0, "G/1"),
        (1, ""),
        (1, "1a"),
        (1, "ht tp"),
        (1, "http://b/?"),
        (2, ""),
        (2, "x"),
        (2, "*"),
        (2, "/a b"),
        (2, "/#a"),
        (2, "http://b/"),
        (3, ""),
        (3, "u@a"),
        (3, "a b"),
    ] {
        let mut fields = GET;
        fields[at].1 = value;
        server(V::PseudoInvalid, &[request(&fields)]);
    }
    server(V::PseudoTrailer, &[post(1), headers(1, flag::END_STREAM, &[(":method", "GET")])]);
    server(V::AuthorityHost, &[field("host", "b")]);
    server(V::AuthorityHost, &[field("host", "")]);
    server(V::AuthorityHost, &[request(&with(&GET[..3], &[("host", "a"), ("host", "b")]))]);
    let connect = (":method", "CONNECT");
    server(V::ConnectFields, &[request(&[connect, GET[1], GET[3]])]);
    server(V::ConnectFields, &[request(&[connect, GET[2], GET[3]])]);
    server(V::ConnectFields, &[request(&[connect])]);
    server(V::ProtocolField, &[field(":protocol", "websocket")]);
    for value in ["", "x", "-1", "+1", "1,1", "9223372036854775808", "99999999999999999999"] {
        server(V::ContentLength, &[headers(1, 0, &with(&POST, &[("content-length", value)]))]);
    }
    server(V::ContentLength, &[headers(1, 0, &with(&POST, &[("content-length", "1"), ("content-length", "2")]))]);
    server(V::ContentLength, &[post(1), headers(1, flag::END_STREAM, &[("content-length", "1")])]);
    let announced = |length| headers(1, 0, &with(&POST, &[("content-length", length)]));
    server(V::ContentLengthDiffers, &[field("content-length", "1")]);
    server(V::ContentLengthDiffers, &[announced("1"), data(1, 0, b"xy")]);
    server(V::ContentLengthDiffers, &[announced("3"), data(1, 0, b"xy"), data(1, flag::END_STREAM, b"")]);
    server(V::ContentLengthDiffers, &[announced("3"), data(1, 0, b"xy"), headers(1, flag::END_STREAM, &[("x", "y")])]);
    server(V::ContentLengthDiffers, &[announced("0"), frame(F::Data, flag::PADDED, 1, &[1, b'x', 0])]);
    server(V::TrailersNoEnd, &[post(1), headers(1, 0, &[("x", "y")])]);
    let part = vec![b'x'; 16_000];
    let fourth = frame(F::Continuation, 0, 1, &part);
    server(V::BlockTooLarge, &[frame(F::Headers, 0, 1, &part), fourth.clone(), fourth]);
    let few = frame(F::Continuation, 0, 1, &[]);
    server(V::TooManyContinuations, &[open(), few.repeat(9)]);
    server(V::TooManyResets, &(0..21).map(|at| [post(at * 2 + 1), reset(at * 2 + 1)].concat()).collect::<Vec<_>>());
    // Made to reset by us (CVE-2025-8671).
    server(V::TooManyResets, &(0..21).map(|at| [post(at * 2 + 1), window(at * 2 + 1, 0)].concat()).collect::<Vec<_>>());
    server(V::TooManyResets, &(0..21).map(|at| headers(at * 2 + 1, 0, &[])).collect::<Vec<_>>());
    for flood in [
        frame(F::Ping, 0, 0, &[0; 8]),
        settings(&[]),
        frame(F::Priority, 0, 99, &[0, 0, 0, 1, 7]),
        window(0, 1),
        vec![0, 0, 0, 0x99, 0, 0, 0, 0, 0],
    ] {
        server(V::TooManyControlFrames, &[flood.repeat(101)]);
    }
    server(V::TooManyControlFrames, &[post(1), data(1, 0, b"").repeat(101)]);
    // Twice as much as a window, on two streams; four frames of it fit.
    let fill = |stream| data(stream, 0, &full[..16_383]).repeat(4);
    server(V::ConnectionWindowExceeded, &[post(1), post(3), fill(1), data(1, 0, b"xxx"), data(3, 0, b"x")]);

    let mut client = |violation, frames: &[Vec<u8>]| cases.push((violation, Role::Client, frames.concat()));
    let response = [(":status", "200")];
    client(V::StreamIdle, &[headers(2, 0, &response)]);
    client(V::StreamIdle, &[headers(5, 0, &response)]);
    client(V::PushPromise, &[frame(F::PushPromise, flag::END_HEADERS, 1, &[0, 0, 0, 2])]);
    client(V::SettingsValue, &[settings(&[(2, 1)])]);
    client(V::PseudoMissing, &[headers(1, 0, &[("x", "y")])]);
    client(V::PseudoUnknown, &[headers(1, 0, &with(&response, &[(":path", "/")]))]);
    client(V::PseudoRepeated, &[headers(1, 0, &with(&response, &response))]);
    for status in ["", "20", "2000", "abc", "+20", "099", "101"] {
        client(V::PseudoInvalid, &[headers(1, 0, &[(":status", status)])]);
    }
    client(V::InterimEnd, &[headers(1, flag::END_STREAM, &[(":status", "103")])]);
    client(V::DataBeforeHead, &[data(1, 0, b"x")]);
    client(V::DataBeforeHead, &[headers(1, 0, &[(":status", "103")]), data(1, 0, b"x")]);
    client(V::ContentLengthDiffers, &[headers(1, flag::END_STREAM, &with(&response, &[("content-length", "1")]))]);
    client(V::ContentLengthDiffers, &[headers(3, 0, &with(&response, &[("content-length", "1")])), data(3, 0, b"x")]);
    client(V::ConnectionField, &[headers(1, 0, &with(&response, &[("transfer-encoding", "chunked")]))]);
    cases
}

fn check(violation: Violation, role: Role, input: &[u8]) {
    for piece in [1, 7, 1000, usize::MAX] {
        let mut connection = if role == Role::Server { server() } else { client() };
        let outcome = feed(&mut connection, input, piece.min(input.len()));
        let code = violation.code().0;
        let text = format!("{violation:?}, pieces of {piece}: {:?} {:?}", outcome.failed, outcome.ended);
        if let Some(ended) = outcome.ended {
            assert_eq!(ended, violation, "{text}");
            assert!(outcome.has_sent(FrameType::GoAway, 0, 4, code), "{text}");
            let again = connection.receive(b"", &mut Vec::new());
            assert_eq!(again, Err(violation), "nothing more is received");
            continue;
        }
        assert_eq!(violation.scope(), Scope::Stream, "{text}");
        let (stream, last) = *outcome.failed.last().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(last, violation, "{text}");
        if violation != Violation::StreamClosed {
            assert!(outcome.has_sent(FrameType::RstStream, stream, 0, code), "{text}");
        }
        // The connection is as good as before.
        for id in (1..40).step_by(2) {
            connection.release(id, &mut Vec::new());
        }
        if role == Role::Server {
            let after = feed(&mut connection, &get(101), 1000);
            assert_eq!((after.heads, after.failed.len(), after.ended), (1, 0, None), "{text}");
        }
    }
}

#[test]
fn every_violation_has_its_code() {
    for (violation, role, frames) in cases() {
        check(violation, role, &[greeting(role), frames].concat());
    }
}

#[test]
fn the_first_frames_are_checked() {
    check(Violation::Preface, Role::Server, b"GET / HTTP/1.1\r\n\r\n");
    check(Violation::Preface, Role::Server, b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
    check(Violation::NoSettings, Role::Server, &[&PREFACE[..], &get(1)].concat());
    let ack = frame(FrameType::Settings, flag::ACK, 0, &[]);
    check(Violation::NoSettings, Role::Server, &[&PREFACE[..], &ack].concat());
    check(Violation::NoSettings, Role::Client, &frame(FrameType::Ping, 0, 0, &[0; 8]));
    check(Violation::NoSettings, Role::Client, b"HTTP/1.1 400 Bad Request\r\n\r\n");
}

#[test]
fn a_window_of_a_stream_is_smaller_than_that_of_the_connection() {
    let settings = Settings { initial_window_size: 10, ..config().settings };
    let mut connection = Connection::new(Role::Server, Config { settings, ..config() });
    connection.open(&mut Vec::new());
    let input = [greeting(Role::Server), post(1), data(1, 0, &[0; 11])].concat();
    let outcome = feed(&mut connection, &input, 1000);
    assert_eq!(outcome.failed, [(1, Violation::WindowExceeded)]);
    // Before the acknowledgement the initial window of the RFC applies.
    let mut connection = Connection::new(Role::Server, Config { settings, ..config() });
    connection.open(&mut Vec::new());
    let early = [&PREFACE[..], &self::settings(&[]), &post(1), &data(1, 0, &[0; 11])].concat();
    assert_eq!(feed(&mut connection, &early, 1000).failed, []);
}

#[test]
fn glitches_end_a_connection_where_they_are_limited() {
    let odd = (0..5).map(|at| headers(at * 2 + 1, flag::END_STREAM, &[])).collect::<Vec<_>>().concat();
    let input = [greeting(Role::Server), odd].concat();
    for (glitches_max, expected) in [(0, None), (4, Some(Violation::TooManyGlitches)), (5, None)] {
        let mut connection = Connection::new(Role::Server, Config { glitches_max, ..config() });
        connection.open(&mut Vec::new());
        assert_eq!(feed(&mut connection, &input, 1000).ended, expected);
        assert_eq!(connection.glitches(), 5);
    }
}

#[test]
fn time_forgives_what_carries_nothing() {
    let mut connection = server();
    feed(&mut connection, &greeting(Role::Server), 1000);
    for _ in 0..1000 {
        let pings = frame(FrameType::Ping, 0, 0, &[0; 8]).repeat(90);
        assert_eq!(feed(&mut connection, &pings, 4096).ended, None);
        connection.refill();
    }
}

#[test]
fn every_violation_is_in_a_test() {
    let tested: Vec<_> = cases().into_iter().map(|(violation, ..)| violation).collect();
    let elsewhere = [Violation::Preface, Violation::NoSettings, Violation::WindowExceeded, Violation::TooManyGlitches];
    for violation in Violation::ALL {
        assert!(tested.contains(violation) || elsewhere.contains(violation), "{violation:?}");
    }
}

#[test]
fn bombs_are_not_unpacked() {
    // A field of 4,000 bytes, then as many references to it as a frame holds: 65 MB.
    let mut bomb = vec![0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
    bomb.extend_from_slice(&[b'y'; 4000]);
    bomb.extend_from_slice(&[0xbe; 12_000]);
    let mut connection = server();
    let input = [greeting(Role::Server), frame(FrameType::Headers, flag::END_HEADERS, 1, &bomb)].concat();
    assert_eq!(feed(&mut connection, &input, usize::MAX).ended, Some(Violation::BlockTooLarge));
    assert!(connection.head().arena().len() < 16 << 10);
}

#[test]
fn a_head_beyond_the_limit_is_told_and_the_connection_stays() {
    let long = "y".repeat(9000);
    let mut connection = server();
    let input = [greeting(Role::Server), field("x", &long)].concat();
    let mut out = Vec::new();
    let (mut rest, mut seen) = (&input[..], None);
    while let received = connection.receive(rest, &mut out).expect("no violation")
        && let Some(event) = received.event
    {
        rest = &rest[received.consumed..];
        seen = Some(event);
    }
    assert_eq!(seen, Some(Event::HeadTooLarge { stream: 1, ends: true }));
    assert_eq!(connection.head().path(), b"/");
    connection.send_response(1, 431, std::iter::empty(), true, &mut out);
    connection.release(1, &mut out);
    assert_eq!(feed(&mut connection, &get(3), 1000).heads, 1);
}
