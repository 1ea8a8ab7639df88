//! Clients that mean harm: each is disconnected, or held within bounds, and others are served meanwhile. What they cost is measured by
//! `bench/hostile-http2`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use baton_http2::PREFACE;

use crate::client::{frame, raw_head, read_frame};
use crate::{OK, Setup};

/// ENHANCE_YOUR_CALM.
const CALM: u32 = 11;
const USUAL: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")];
/// A flood that goes on for so long is bounded by nothing.
const FLOOD_MAX: Duration = Duration::from_secs(20);
/// Bytes that are sent in one piece.
const PIECE: usize = 4096;

/// A client that was greeted.
fn greeted(setup: &Setup, settings: &[u8]) -> TcpStream {
    let mut socket = setup.served.connect();
    socket.write_all(&[&PREFACE[..], &frame(4, 0, 0, settings), &frame(4, 1, 0, &[])].concat()).expect("room");
    socket
}

/// Sends pieces until the proxy closes the connection; the code of its GOAWAY.
fn flood(mut socket: TcpStream, mut piece: impl FnMut() -> Vec<u8>) -> Option<u32> {
    let mut reading = socket.try_clone().expect("another descriptor");
    let reader = std::thread::spawn(move || {
        let mut code = None;
        while let Some((kind, _, _, payload)) = read_frame(&mut reading) {
            if kind == 7 {
                code = payload[4..8].try_into().ok().map(u32::from_be_bytes);
            }
        }
        code
    });
    let begun = Instant::now();
    while socket.write_all(&piece()).is_ok() {
        assert!(begun.elapsed() < FLOOD_MAX, "the flood has no end");
    }
    reader.join().expect("it reads to the end")
}

/// Somebody else is served.
fn serves_others(setup: &Setup) {
    let mut peer = setup.peer();
    let stream = peer.request("GET /other", true);
    loop {
        let mut request = setup.request();
        if request.head.starts_with("GET /other ") {
            request.answer(&format!("{OK}yes"));
            break;
        }
    }
    assert_eq!(peer.response(), (stream, "H200 content-length:3 x-by:origin|yesE".to_owned()));
}

/// Frames for one stream after the other, in pieces.
fn by_stream(mut make: impl FnMut(u32) -> Vec<u8>) -> impl FnMut() -> Vec<u8> {
    let mut stream = 1;
    move || {
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            piece.extend(make(stream));
            stream += 2;
        }
        piece
    }
}

/// One frame over and over, in pieces.
fn again(frame: Vec<u8>) -> impl FnMut() -> Vec<u8> {
    let piece = frame.repeat(PIECE.div_ceil(frame.len()));
    move || piece.clone()
}

/// `start`, then one frame over and over.
fn after(start: Vec<u8>, frame: Vec<u8>) -> impl FnMut() -> Vec<u8> {
    let (mut start, mut more) = (Some(start), again(frame));
    move || start.take().unwrap_or_else(&mut more)
}

#[test]
fn requests_that_are_reset_at_once_end_the_connection_and_reach_no_server() {
    let setup = Setup::new(&[]);
    let rapid = by_stream(|stream| [raw_head(stream, &USUAL, true), frame(3, 0, stream, &[0, 0, 0, 8])].concat());
    assert_eq!(flood(greeted(&setup, &[]), rapid), Some(CALM));
    // One whose reset came in another piece than its head may have gone on.
    let reached = setup.requests.try_iter().count();
    assert!(reached <= 100, "{reached} requests at the server");
    serves_others(&setup);
    setup.served.end();
}

#[test]
fn requests_that_the_proxy_is_made_to_reset_end_the_connection() {
    let setup = Setup::new(&[]);
    let window = by_stream(|stream| [raw_head(stream, &USUAL, true), frame(8, 0, stream, &[0; 4])].concat());
    assert_eq!(flood(greeted(&setup, &[]), window), Some(CALM), "windows that grow by nothing");
    let overflow =
        by_stream(|stream| [raw_head(stream, &USUAL, true), frame(8, 0, stream, &[0x7f, 255, 255, 255])].concat());
    assert_eq!(flood(greeted(&setup, &[]), overflow), Some(CALM), "windows above the largest");
    let half_closed = by_stream(|stream| [raw_head(stream, &USUAL, true), frame(0, 0, stream, b"x")].concat());
    assert_eq!(flood(greeted(&setup, &[]), half_closed), Some(CALM), "bodies behind the end");
    let malformed = by_stream(|stream| raw_head(stream, &[&USUAL[..], &[("X", "1")]].concat(), true));
    assert_eq!(flood(greeted(&setup, &[]), malformed), Some(CALM), "malformed requests");
    let reached = setup.requests.try_iter().count();
    assert!(reached <= 300, "{reached} requests at the server");
    serves_others(&setup);
    setup.served.end();
}

#[test]
fn field_blocks_without_end_and_those_that_grow_end_the_connection() {
    let setup = Setup::new(&[]);
    let head = frame(1, 1, 1, &[0x82, 0x86, 0x84]);
    for more in [&b""[..], b"\x00\x01x\x01y", &[b"\x00\x01x\x7f\xff\x00", &[b'y'; 254][..]].concat()] {
        let continuations = after(head.clone(), frame(9, 0, 1, more));
        assert_eq!(flood(greeted(&setup, &[]), continuations), Some(CALM), "{} bytes each", more.len());
    }
    // A large entry of the table, and as many references to it as a frame has room for.
    let entry = [b"\x82\x86\x84\x40\x01x\x7f\xa1\x1e", &[b'y'; 4000][..]].concat();
    let bomb = by_stream(move |stream| {
        let block = [&entry[..], &[0xbe; 10_000]].concat();
        frame(1, 5, stream, &block)
    });
    assert_eq!(flood(greeted(&setup, &[]), bomb), Some(CALM));
    serves_others(&setup);
    setup.served.end();
}

#[test]
fn frames_that_carry_nothing_end_the_connection() {
    let setup = Setup::new(&[]);
    let post = [(":method", "POST"), USUAL[1], USUAL[2], USUAL[3]];
    for (what, start, piece) in [
        ("empty DATA", raw_head(1, &post, false), frame(0, 0, 1, &[])),
        ("padding alone", raw_head(1, &post, false), frame(0, 8, 1, &[10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("SETTINGS", Vec::new(), frame(4, 0, 0, &[])),
        ("PING", Vec::new(), frame(6, 0, 0, &[0; 8])),
        ("PRIORITY", Vec::new(), frame(2, 0, 1, &[0, 0, 0, 0, 15])),
        ("WINDOW_UPDATE", Vec::new(), frame(8, 0, 0, &[0, 0, 0, 1])),
        ("RST_STREAM of what is over", raw_head(1, &USUAL[..3], true), frame(3, 0, 1, &[0; 4])),
        ("an unknown type", Vec::new(), frame(0xfa, 0, 0, &[1, 2, 3])),
    ] {
        assert_eq!(flood(greeted(&setup, &[]), after(start, piece)), Some(CALM), "{what}");
    }
    serves_others(&setup);
    setup.served.end();
}

#[test]
fn windows_that_are_opened_by_a_byte_at_a_time_end_the_connection() {
    let setup = Setup::new(&[]);
    let closed = [0, 4, 0, 0, 0, 0];
    let mut socket = greeted(&setup, &closed);
    let streams = || (1..=41u32).step_by(2);
    streams().for_each(|stream| socket.write_all(&raw_head(stream, &USUAL, true)).expect("room"));
    let body = "x".repeat(15_000);
    let waiting: Vec<_> = streams()
        .map(|_| {
            let mut request = setup.request();
            request.answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: 15000\r\n\r\n{body}"));
            request
        })
        .collect();
    let drip: Vec<u8> = streams().flat_map(|stream| frame(8, 0, stream, &[0, 0, 0, 1])).collect();
    assert_eq!(flood(socket, again(drip)), Some(CALM));
    drop(waiting);
    serves_others(&setup);
    setup.served.end();
}

#[test]
fn windows_that_stay_closed_hold_a_response_as_long_as_its_timeout_says() {
    let setup = Setup::limited(|proxy| proxy.timeouts.client = Some(Duration::from_millis(300)));
    let mut socket = greeted(&setup, &[0, 4, 0, 0, 0, 0]);
    socket.write_all(&raw_head(1, &USUAL, true)).expect("room");
    let mut request = setup.request();
    request.answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n{}", "x".repeat(1000)));
    let reset = std::iter::from_fn(|| read_frame(&mut socket)).find(|(kind, ..)| *kind == 3).expect("a reset");
    assert_eq!((reset.2, &reset.3[..]), (1, &[0, 0, 0, 8][..]), "CANCEL");
    assert!(setup.line().contains(" 200 "), "the log has what was begun");
    serves_others(&setup);
    setup.served.end();
}

#[test]
fn bodies_that_are_half_sent_on_many_streams_are_bounded_and_end_in_time() {
    let setup = Setup::limited(|proxy| proxy.timeouts.client = Some(Duration::from_millis(500)));
    let mut socket = greeted(&setup, &[]);
    let post = [(":method", "POST"), USUAL[1], USUAL[2], USUAL[3], ("content-length", "1000")];
    for stream in (1..=199).step_by(2) {
        socket.write_all(&raw_head(stream, &post, false)).expect("room");
        socket.write_all(&frame(0, 0, stream, &[b'x'; 500])).expect("room");
    }
    // One more than may be open is refused, and changes nothing.
    socket.write_all(&raw_head(201, &post, false)).expect("room");
    let mut ended = std::collections::BTreeSet::new();
    let mut refused = 0;
    while ended.len() < 100 {
        let (kind, flags, stream, payload) = read_frame(&mut socket).expect("the connection stays");
        if kind == 3 && payload == [0, 0, 0, 7] {
            assert_eq!(stream, 201);
            refused += 1;
        } else if kind == 3 || kind <= 1 && flags & 1 == 1 {
            ended.insert(stream);
        }
    }
    assert_eq!((refused, ended.contains(&201)), (1, false));
    // What goes beyond the connection's window is the end of it: so much is all that can ever wait.
    let mut socket = greeted(&setup, &[]);
    let post = &post[..4];
    let mut sent = 0;
    'sending: for stream in (1..=199).step_by(2) {
        let mut bytes = raw_head(stream, post, false);
        bytes.extend(frame(0, 0, stream, &[b'x'; 16_384]).repeat(3));
        if socket.write_all(&bytes).is_err() {
            break 'sending;
        }
        sent += 3 * 16_384;
    }
    let mut end = Vec::new();
    match socket.read_to_end(&mut end) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert!(sent > 0);
    serves_others(&setup);
    setup.served.end();
}
