//! HTTP/2 through the whole request path: several exchanges of one connection at a time.

#![allow(clippy::disallowed_methods, reason = "a test is outside of the event loop and has its own time")]

mod client;
mod figures;
mod hostile;
mod server;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use baton_http2::{Config, PREFACE};
use baton_model::{
    BindOptions, BindProtocol, Facility, Level, LogAddress, LogFormat, LogTarget, Mode, Proxy, Rule, Ruleset, Source,
};
use baton_proxy::{Command, Counter, CounterBlock};

use client::{Peer, frame, raw_head, read_frame};
use support::{Served, listen};

/// A proxy whose clients speak HTTP/2, its origin, and where it logs.
struct Setup {
    served: Served,
    proxy: Proxy,
    requests: Receiver<Received>,
    log: UdpSocket,
}

/// Where the proxy logs from now on.
fn log_of(proxy: &mut Proxy) -> UdpSocket {
    let log = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    log.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    proxy.logging.targets.push(LogTarget {
        address: LogAddress::Udp(log.local_addr().expect("bound")),
        len: 1024,
        format: "raw".to_owned(),
        facility: Facility(16),
        max: Level(7),
        min: Level(0),
        sample: None,
    });
    log
}

/// A request at the origin, which waits for its answer.
struct Received {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Received {
    fn answer(&mut self, response: &str) {
        self.stream.get_mut().write_all(response.as_bytes()).expect("the proxy reads");
    }

    /// What comes of the body until it ends so.
    fn read_until(&mut self, end: &str) -> String {
        let mut body = Vec::new();
        while !body.ends_with(end.as_bytes()) {
            let mut byte = [0];
            assert_eq!(self.stream.read(&mut byte).expect("in time"), 1, "{}", String::from_utf8_lossy(&body));
            body.push(byte[0]);
        }
        String::from_utf8(body).expect("text")
    }

    /// Whether the proxy closes the connection, in whatever way.
    fn is_given_up(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

impl Setup {
    fn new(rules: &[&str]) -> Setup {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
        for line in rules {
            let words = line.split(' ').map(str::to_owned).collect();
            let ruleset = Ruleset::HttpRequest;
            proxy.rules.entry(ruleset).or_default().push(Rule { ruleset, words, source: Source::default() });
        }
        Setup::with(proxy, listening)
    }

    /// With other limits.
    fn limited(limit: impl FnOnce(&mut Proxy)) -> Setup {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
        limit(&mut proxy);
        Setup::with(proxy, listening)
    }

    fn with(proxy: Proxy, listening: TcpListener) -> Setup {
        Setup::speaking(proxy, listening, Some(BindProtocol::H2))
    }

    fn speaking(mut proxy: Proxy, listening: TcpListener, proto: Option<BindProtocol>) -> Setup {
        proxy.logging.format = LogFormat::Http;
        let log = log_of(&mut proxy);
        let (found, requests) = channel();
        // Ends with the test.
        std::thread::spawn(move || {
            for stream in listening.incoming() {
                let stream = stream.expect("the proxy connects");
                stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
                let mut stream = BufReader::new(stream);
                let found = found.clone();
                std::thread::spawn(move || {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if stream.read_line(&mut head).expect("a head") == 0 {
                            return;
                        }
                    }
                    let _ = found.send(Received { stream, head });
                });
            }
        });
        let options = BindOptions { proto, ..BindOptions::default() };
        let served = Served::start(proxy.clone(), 16384, None, options);
        Setup { served, proxy, requests, log }
    }

    fn peer(&self) -> Peer {
        Peer::new(self.served.connect())
    }

    /// The next request at the origin, in whatever order they come.
    fn request(&self) -> Received {
        self.requests.recv_timeout(Duration::from_secs(10)).expect("a request at the origin")
    }

    /// Two requests at the origin, the one with this in its head first.
    fn two_requests(&self, first: &str) -> (Received, Received) {
        let (one, other) = (self.request(), self.request());
        if one.head.contains(first) { (one, other) } else { (other, one) }
    }

    /// The next log line: server, status, bytes, termination state and request line.
    fn line(&self) -> String {
        let mut line = [0; 2048];
        let count = self.log.recv(&mut line).expect("a line in time");
        let line = String::from_utf8_lossy(&line[..count]).into_owned();
        let (front, request) = line.trim_end().split_once('"').expect("a request line");
        // From the end: what stands before the frontend depends on how a line begins.
        let words: Vec<&str> = front.split_whitespace().rev().collect();
        format!("{} {} {} {} {}", words[8], words[6], words[5], words[2], request.trim_end_matches('"'))
    }

    fn counters(&self, check: impl Fn(&CounterBlock, &CounterBlock, &CounterBlock)) {
        let frontend = self.served.registry.frontend(&self.proxy.name);
        let (_, backend) = self.served.registry.backend(&Arc::new(self.proxy.clone()), Instant::now());
        check(&frontend.counters, &backend.counters, &backend.server("s1"));
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\nX-By: origin\r\n\r\n";

#[test]
fn two_requests_of_a_connection_are_in_flight_and_answered_out_of_order() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let (slow_stream, fast_stream) = (peer.request("GET /slow", true), peer.request("GET /fast", true));
    let (mut slow, mut fast) = setup.two_requests("/slow");
    assert_eq!(slow.head, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n");
    fast.answer(&format!("{OK}two"));
    assert_eq!(peer.response(), (fast_stream, "H200 content-length:3 x-by:origin|twoE".to_owned()));
    assert_eq!(setup.line(), "web/s1 200 62 ---- GET http://x/fast HTTP/2.0");
    slow.answer(&format!("{OK}one"));
    assert_eq!(peer.response(), (slow_stream, "H200 content-length:3 x-by:origin|oneE".to_owned()));
    assert_eq!(setup.line(), "web/s1 200 62 ---- GET http://x/slow HTTP/2.0");
    setup.counters(|frontend, backend, server| {
        for block in [frontend, backend, server] {
            let total = |counter| block.total(counter);
            assert_eq!([Counter::Sessions, Counter::Requests, Counter::Responses2xx].map(total), [2; 3]);
            assert_eq!(total(Counter::BytesOut), 124);
        }
        let counters = [Counter::Connections, Counter::Http2Connections, Counter::Http2Streams, Counter::Http2Headers];
        assert_eq!(counters.map(|counter| frontend.total(counter)), [1, 1, 2, 2]);
        assert_eq!(server.total(Counter::Chosen), 2);
    });
    setup.served.end();
}

#[test]
fn rules_judge_each_exchange_and_share_the_session() {
    let setup = Setup::new(&[
        "set-var(sess.first) path if !{ var(sess.first) -m found }",
        "set-var(txn.first) path if !{ var(txn.first) -m found }",
        "deny if { path /denied }",
        "set-header x-session %[var(sess.first)]",
        "set-header x-exchange %[var(txn.first),concat(,txn.none,)]-%[fc_http_major]-%[req.ver]",
    ]);
    let mut peer = setup.peer();
    peer.request("GET /one", true);
    let mut one = setup.request();
    assert!(one.head.ends_with("x-session: /one\r\nx-exchange: /one-2-2.0\r\n\r\n"), "{}", one.head);
    let (denied_stream, three_stream) = (peer.request("GET /denied", true), peer.request("GET /three", true));
    let mut three = setup.request();
    assert!(three.head.ends_with("x-session: /one\r\nx-exchange: /three-2-2.0\r\n\r\n"), "{}", three.head);
    let (stream, denied) = peer.response();
    let is_page = denied.starts_with("H403 content-length:") && denied.ends_with("</html>\nE");
    assert!(stream == denied_stream && is_page && !denied.contains("connection"), "{denied}");
    let line = setup.line();
    assert!(line.starts_with("web/<NOSRV> 403 ") && line.ends_with(" PR-- GET http://x/denied HTTP/2.0"), "{line}");
    for (received, stream) in [(&mut three, three_stream), (&mut one, 1)] {
        received.answer(&format!("{OK}yes"));
        assert_eq!(peer.response().0, stream);
    }
    setup.counters(|frontend, _, server| {
        assert_eq!(frontend.total(Counter::DeniedRequests), 1);
        let total = |counter| [frontend.total(counter), server.total(counter)];
        assert_eq!([Counter::Responses4xx, Counter::Responses2xx].map(total), [[1, 0], [2, 2]]);
    });
    setup.served.end();
}

#[test]
fn a_rejected_client_is_closed_as_haproxy_closes_it() {
    let setup = Setup::new(&["reject if { path /rejected }"]);
    let mut peer = setup.peer();
    let stream = peer.request("GET /rejected", true);
    assert_eq!(peer.response(), (stream, "RENHANCE_YOUR_CALM".to_owned()));
    assert_eq!(peer.next(), None);
    assert_eq!(peer.last_streams, [stream]);
    setup.served.end();
}

#[test]
fn bodies_pass_in_both_directions_with_their_trailers() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let long_stream = peer.request("POST /long\ncookie:a=b\nx-a:1\ncookie:c=d", false);
    let short_stream = peer.request("PUT /short\ncontent-length:5", false);
    let (mut long, mut short) = setup.two_requests("/long");
    let head = "POST /long HTTP/1.1\r\nhost: x\r\nx-a: 1\r\ncookie: a=b; c=d\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(long.head, head);
    assert_eq!(short.head, "PUT /short HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n");
    peer.data(long_stream, b"to the ", false);
    peer.data(short_stream, b"hello", true);
    assert_eq!(short.read_until("hello"), "hello");
    assert_eq!(long.read_until("to the \r\n"), "7\r\nto the \r\n");
    short.answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (short_stream, "H200 content-length:3 x-by:origin|yesE".to_owned()));
    peer.data(long_stream, b"origin", false);
    peer.trailers(long_stream, "x-sum", "13");
    assert_eq!(long.read_until("\r\n\r\n"), "6\r\norigin\r\n0\r\nx-sum: 13\r\n\r\n");
    long.answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nto \r\n6\r\nclient\r\n0\r\nX-Sum: 9\r\n\r\n",
    );
    assert_eq!(peer.response(), (long_stream, "H200 |to clientEx-sum:9".to_owned()));
    setup.counters(|frontend, _, _| assert_eq!(frontend.total(Counter::Responses2xx), 2));
    setup.served.end();
}

#[test]
fn a_body_larger_than_what_may_wait_arrives_whole() {
    const LONG: usize = 300_000;
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let stream = peer.request("POST /", false);
    let mut received = setup.request();
    let sender = std::thread::spawn(move || {
        peer.data(stream, &[b'x'; LONG], true);
        peer
    });
    let body = received.read_until("0\r\n\r\n");
    assert_eq!(body.matches('x').count(), LONG);
    let mut peer = sender.join().expect("all is sent");
    let long = "x".repeat(LONG);
    received.answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{long}", long.len()));
    let (_, response) = peer.response();
    assert_eq!(response.matches('x').count(), LONG);
    setup.served.end();
}

#[test]
fn a_client_sends_no_more_than_its_server_takes_and_a_window_allows() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    // Nothing is read from it, so that the window stays as it is once the kernel's buffers are full.
    let (stalled, other) = (peer.request("POST /stalled", false), peer.request("POST /other", false));
    let (mut stalled_at, mut other_at) = setup.two_requests("/stalled");
    stalled_at.stream.get_mut().set_nonblocking(false).expect("a socket");
    peer.data(other, b"a", false);
    assert_eq!(other_at.read_until("a\r\n"), "1\r\na\r\n");
    let mut sent = 0;
    while peer.sendable(stalled) > 0 {
        let room = peer.sendable(stalled);
        peer.data(stalled, &vec![b'y'; room], false);
        sent += room;
        // Each round takes in what the proxy has said meanwhile.
        peer.data(other, b"b", false);
        other_at.read_until("b\r\n");
        assert!(sent < 64 << 20, "there is a bound");
    }
    other_at.answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (other, "H200 content-length:3 x-by:origin|yesE".to_owned()));
    let mut taken = 0;
    while taken < sent {
        let body = stalled_at.read_until("\r\n");
        taken += body.matches('y').count();
    }
    peer.data(stalled, b"the end", true);
    stalled_at.read_until("0\r\n\r\n");
    setup.served.end();
}

#[test]
fn a_response_waits_for_its_window_and_no_other_one_with_it() {
    let setup = Setup::new(&[]);
    let mut config = Config::default();
    config.settings.initial_window_size = 10;
    let mut peer = Peer::with(setup.served.connect(), config);
    peer.wire.takes_bodies = false;
    let first = peer.request("GET /first", true);
    setup.request().answer("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n0123456789abcde");
    assert_eq!(peer.next().map(|news| news.kind), Some('H'));
    assert_eq!(peer.next().map(|news| news.text).as_deref(), Some("0123456789"));
    let second = peer.request("GET /second", true);
    setup.request().answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (second, "H200 content-length:3 x-by:origin|yesE".to_owned()));
    peer.take(first, 10);
    assert_eq!(peer.response(), (first, "|abcdeE".to_owned()));
    setup.served.end();
}

#[test]
fn a_body_is_buffered_before_rules_when_they_are_to_see_it() {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
    proxy.http.buffer_request = true;
    let words = "set-header x-body %[req.body]".split(' ').map(str::to_owned).collect();
    let ruleset = Ruleset::HttpRequest;
    proxy.rules.insert(ruleset, vec![Rule { ruleset, words, source: Source::default() }]);
    let setup = Setup::with(proxy, listening);
    let mut peer = setup.peer();
    let stream = peer.request("POST /", false);
    peer.data(stream, b"a+", false);
    peer.data(stream, b"b", true);
    let mut received = setup.request();
    assert!(received.head.ends_with("x-body: a+b\r\ntransfer-encoding: chunked\r\n\r\n"), "{}", received.head);
    assert_eq!(received.read_until("0\r\n\r\n"), "3\r\na+b\r\n0\r\n\r\n");
    received.answer(&format!("{OK}yes"));
    assert_eq!(peer.response().0, stream);
    setup.served.end();
}

#[test]
fn interim_responses_and_those_without_a_body_pass() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let stream = peer.request("GET /hints", true);
    let ok = format!("{OK}yes");
    setup.request().answer(&format!("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n{ok}"));
    assert_eq!(peer.response(), (stream, "H103 link:</a>H200 content-length:3 x-by:origin|yesE".to_owned()));
    let stream = peer.request("HEAD /", true);
    setup.request().answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(peer.response(), (stream, "H200 content-length:3E".to_owned()));
    let stream = peer.request("PUT /\nexpect:100-continue\ncontent-length:3", false);
    let mut received = setup.request();
    assert!(received.head.contains("expect: 100-continue"), "{}", received.head);
    received.answer("HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(peer.next().map(|news| news.text).as_deref(), Some("100 "));
    peer.data(stream, b"abc", true);
    received.read_until("abc");
    received.answer("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(peer.response(), (stream, "H204 E".to_owned()));
    setup.served.end();
}

#[test]
fn a_websocket_and_a_tunnel_pass_bytes_both_ways() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    // It is known to be allowed once the proxy's settings came.
    let stream = peer.request("GET /", true);
    setup.request().answer(&format!("{OK}yes"));
    assert_eq!(peer.response().0, stream);
    for (request, head, answer) in [
        (
            "WEBSOCKET /ws\nsec-websocket-version:13",
            "GET /ws HTTP/1.1\r\nhost: x\r\n",
            "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: z",
        ),
        ("CONNECT x:80", "CONNECT x:80 HTTP/1.1\r\nhost: x:80\r\n", "200 OK"),
    ] {
        let stream = peer.request(request, false);
        let mut received = setup.request();
        assert!(received.head.starts_with(head), "{}", received.head);
        received.answer(&format!("HTTP/1.1 {answer}\r\n\r\nhello"));
        assert_eq!(peer.next().map(|news| news.text).as_deref(), Some("200 "));
        assert_eq!(peer.next().map(|news| news.text).as_deref(), Some("hello"));
        peer.data(stream, b"to the origin", false);
        assert_eq!(received.read_until("origin"), "to the origin");
        drop(received);
        assert_eq!(peer.next().map(|news| news.kind), Some('E'));
        assert_eq!(peer.next().map(|news| news.text).as_deref(), Some("NO_ERROR"), "nothing more is to be sent");
    }
    setup.served.end();
}

#[test]
fn an_exchange_that_is_given_up_does_not_harm_another_one() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let (given_up_stream, other_stream) = (peer.request("GET /given-up", true), peer.request("GET /other", true));
    let (mut given_up, mut other) = setup.two_requests("/given-up");
    peer.reset(given_up_stream);
    assert!(given_up.is_given_up(), "its server is not to work for nobody");
    assert_eq!(setup.line(), "web/s1 -1 0 CD-- GET http://x/given-up HTTP/2.0");
    other.answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (other_stream, "H200 content-length:3 x-by:origin|yesE".to_owned()));
    assert_eq!(setup.line(), "web/s1 200 62 ---- GET http://x/other HTTP/2.0");
    setup.counters(|frontend, backend, server| {
        for block in [frontend, backend, server] {
            assert_eq!(block.total(Counter::ClientAborts), 1);
            assert_eq!(block.total(Counter::Sessions), 2);
        }
    });
    setup.served.end();
}

#[test]
fn a_response_that_breaks_resets_its_stream_alone() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let (broken_stream, other_stream) = (peer.request("GET /broken", true), peer.request("GET /other", true));
    let (mut broken, mut other) = setup.two_requests("/broken");
    broken.answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    drop(broken);
    assert_eq!(peer.response(), (broken_stream, "H200 content-length:10|abcRCANCEL".to_owned()));
    other.answer(&format!("{OK}yes"));
    assert_eq!(peer.response().0, other_stream);
    setup.served.end();
}

#[test]
fn a_malformed_request_costs_its_stream_and_malformed_frames_the_connection() {
    const USUAL: [(&str, &str); 4] = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")];
    let setup = Setup::new(&[]);
    let mut socket = setup.served.connect();
    socket.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()).expect("room");
    let malformed = [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("host", "y"),
        ("x y", "z"),
        ("X", "z"),
        ("x", "a\rb"),
        ("x", "a\nb: c"),
        ("x", "a\0b"),
        ("x:y", "z"),
        (":path", "/other"),
        (":status", "200"),
        ("content-length", "+5"),
        ("content-length", "5, 6"),
    ];
    let mut stream = 1;
    let mut refused = |socket: &mut TcpStream, fields: &[(&str, &str)]| {
        socket.write_all(&raw_head(stream, fields, false)).expect("room");
        loop {
            let (kind, _, at, payload) = read_frame(socket).expect("the connection stays");
            if kind == 3 {
                assert_eq!((at, &payload[..]), (stream, &[0, 0, 0, 1][..]), "{fields:?}");
                break;
            }
            assert!(matches!(kind, 4 | 6 | 8), "{fields:?} is answered with a frame of type {kind}");
        }
        stream += 2;
    };
    for field in malformed {
        refused(&mut socket, &[&USUAL[..], &[field]].concat());
        let line = setup.line();
        assert_eq!(line, "<NOSRV> 0 0 PR-- <BADREQ>".replace("<NOSRV>", "web/<NOSRV>"), "{field:?}");
    }
    for missing in 0..3 {
        let mut fields = USUAL.to_vec();
        fields.remove(missing);
        refused(&mut socket, &fields);
    }
    for (at, value) in [(2, "x"), (2, "*"), (2, ""), (2, "/a b"), (2, "/a#b"), (3, "u@x"), (3, "x y"), (0, "GET /")] {
        let mut fields = USUAL.to_vec();
        fields[at].1 = value;
        refused(&mut socket, &fields);
    }
    // What is announced is what comes (RFC 9113 8.1.1).
    let with_length = [&USUAL[..], &[("content-length", "5")]].concat();
    let stream = 99;
    socket.write_all(&[raw_head(stream, &with_length, false), frame(0, 1, stream, b"abc")].concat()).expect("room");
    while let Some((kind, _, at, _)) = read_frame(&mut socket) {
        if kind == 3 {
            assert_eq!(at, stream);
            break;
        }
    }
    setup.counters(|frontend, _, _| assert!(frontend.total(Counter::RequestErrors) >= 15));
    // DATA on stream 0 ends the connection.
    socket.write_all(&frame(0, 0, 0, b"x")).expect("room");
    let mut kinds = std::iter::from_fn(|| read_frame(&mut socket)).map(|(kind, ..)| kind);
    assert!(kinds.any(|kind| kind == 7), "it is said why");
    setup.served.end();
}

#[test]
fn a_soft_stop_lets_exchanges_finish_and_takes_no_more() {
    let setup = Setup::new(&[]);
    let (mut peer, mut idle) = (setup.peer(), setup.peer());
    let first = idle.request("GET /first", true);
    setup.request().answer(&format!("{OK}yes"));
    assert_eq!(idle.response().0, first);
    let stream = peer.request("GET /last", true);
    let mut last = setup.request();
    let drain = Command::Drain { spread: Some(Duration::ZERO) };
    setup.served.runtime.block_on(setup.served.workers.command(drain));
    assert_eq!(idle.next(), None, "nothing is in work on it");
    assert_eq!(idle.last_streams, [i32::MAX as u32, first], "it is told twice");
    last.answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (stream, "H200 content-length:3 x-by:origin|yesE".to_owned()));
    assert_eq!(peer.next(), None);
    assert_eq!(peer.last_streams, [i32::MAX as u32, stream]);
    setup.served.end();
}

/// Idle clients, one of which has never asked for anything, are told twice when this happens, and closed.
fn idle_clients_are_told(setup: &mut Setup, happens: impl FnOnce(&mut Setup)) {
    let (mut used, mut unused) = (setup.peer(), setup.peer());
    let first = used.request("GET /first", true);
    setup.request().answer(&format!("{OK}yes"));
    assert_eq!(used.response().0, first);
    let frontend = setup.served.registry.frontend(&setup.proxy.name);
    support::until("both are there", || frontend.http2_open.load(Ordering::Relaxed) == 2);
    happens(setup);
    for (client, last) in [(&mut used, first), (&mut unused, 0)] {
        assert_eq!(client.next(), None, "nothing is in work on it");
        assert_eq!(client.last_streams, [i32::MAX as u32, last]);
    }
}

#[test]
fn idle_clients_need_no_time_of_a_soft_stop_to_be_told() {
    let mut setup = Setup::new(&[]);
    idle_clients_are_told(&mut setup, |setup| {
        setup.served.runtime.block_on(setup.served.workers.command(Command::Drain { spread: None }));
    });
    setup.served.end();
}

#[test]
fn idle_clients_of_a_removed_frontend_are_told() {
    let mut setup = Setup::new(&[]);
    idle_clients_are_told(&mut setup, |setup| {
        setup.served.apply(Proxy { name: "other".into(), ..setup.proxy.clone() });
    });
    setup.served.end();
}

#[test]
fn a_reload_that_keeps_the_address_tells_idle_clients_nothing() {
    let mut setup = Setup::new(&[]);
    let mut peer = setup.peer();
    for path in ["/one", "/two"] {
        let stream = peer.request(&format!("GET {path}"), true);
        setup.request().answer(&format!("{OK}yes"));
        assert_eq!(peer.response().0, stream);
        setup.served.apply(Proxy { maxconn: Some(99), ..setup.proxy.clone() });
    }
    assert!(peer.last_streams.is_empty(), "{:?}", peer.last_streams);
    setup.served.end();
}

#[test]
fn an_immediate_stop_is_logged_by_each_exchange() {
    let mut setup = Setup::new(&[]);
    let mut peer = setup.peer();
    peer.request("GET /one", true);
    peer.request("GET /two", true);
    let _in_flight = [setup.request(), setup.request()];
    setup.served.runtime.block_on(setup.served.workers.command(Command::Abort));
    setup.served.workers.join();
    let mut lines = [setup.line(), setup.line()];
    lines.sort();
    assert_eq!(lines, ["one", "two"].map(|path| format!("web/s1 -1 0 KH-- GET http://x/{path} HTTP/2.0")));
}

#[test]
fn exchanges_end_when_their_client_goes() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let stream = peer.request("POST /half", false);
    peer.data(stream, b"half", false);
    let mut received = setup.request();
    assert_eq!(received.read_until("half\r\n"), "4\r\nhalf\r\n");
    // A frame of the connection on a stream.
    peer.wire.socket.write_all(&frame(4, 0, 1, &[])).expect("room");
    assert!(received.is_given_up(), "its server is not to work for nobody");
    let line = setup.line();
    assert!(line.starts_with("web/s1 ") && line.ends_with(" CD-- POST http://x/half HTTP/2.0"), "{line}");
    setup.served.end();
}

#[test]
fn rules_know_how_odd_a_client_is() {
    let setup = Setup::new(&["return status 200 hdr x-glitches %[fc_glitches]"]);
    let mut peer = Peer::new(setup.served.connect());
    peer.request("GET /", true);
    assert_eq!(peer.response().1, "H200 x-glitches:0 content-length:0E");
    // DATA that carries nothing. The next request comes behind it.
    let stream = peer.request("POST /", false);
    peer.wire.socket.write_all(&frame(0, 0, stream, &[])).expect("room");
    peer.data(stream, b"x", true);
    let next = peer.request("GET /", true);
    let response = std::iter::from_fn(|| Some(peer.response())).find(|(stream, _)| *stream == next);
    assert_eq!(response, Some((next, "H200 x-glitches:1 content-length:0E".to_owned())));
    setup.served.end();
}

#[test]
fn a_connection_that_begins_as_http1_goes_on_as_http2_by_its_preface() {
    for (proto, disabled, expect) in [(None, false, true), (None, true, false), (Some(BindProtocol::H1), false, false)]
    {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
        proxy.http.disable_h2_upgrade = disabled;
        let setup = Setup::speaking(proxy, listening, proto);
        if expect {
            let mut peer = setup.peer();
            let stream = peer.request("GET /", true);
            setup.request().answer(&format!("{OK}yes"));
            assert_eq!(peer.response(), (stream, "H200 content-length:3 x-by:origin|yesE".to_owned()));
            assert_eq!(setup.line(), "web/s1 200 62 ---- GET http://x/ HTTP/2.0");
            setup.counters(|frontend, _, _| assert_eq!(frontend.total(Counter::Sessions), 1));
        } else {
            let mut socket = setup.served.connect();
            socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("room");
            let mut response = [0; 12];
            socket.read_exact(&mut response).expect("a response");
            assert_eq!(&response, b"HTTP/1.1 400");
        }
        if expect {
            // In pieces, each of which may be read alone.
            for cut in 1..PREFACE.len() {
                let mut socket = setup.served.connect();
                socket.set_nodelay(true).expect("a TCP socket");
                socket.write_all(&PREFACE[..cut]).expect("room");
                std::thread::sleep(Duration::from_millis(1));
                socket.write_all(&PREFACE[cut..]).expect("room");
                let mut frame = [0; 9];
                socket.read_exact(&mut frame).expect("settings");
                assert_eq!(frame[3], 4, "type of the first frame: {frame:?}");
            }
        }
        // The first line alone does not make it.
        for other in
            ["PRI * HTTP/2.0\r\nhost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nGET /"]
        {
            let mut socket = setup.served.connect();
            socket.write_all(other.as_bytes()).expect("room");
            let mut response = [0; 12];
            socket.read_exact(&mut response).expect("a response");
            assert_eq!(&response, b"HTTP/1.1 400", "{other}");
        }
        // HTTP/1 is spoken all the same.
        let mut socket = setup.served.connect();
        socket.write_all(b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\n").expect("room");
        setup.request().answer(&format!("{OK}yes"));
        let mut response = [0; 12];
        socket.read_exact(&mut response).expect("a response");
        assert_eq!(&response, b"HTTP/1.1 200");
        setup.served.end();
    }
}
