//! A protocol that is not HTTP/1 through the whole request path: several exchanges of one connection at a time.

#![allow(clippy::disallowed_methods, reason = "a test is outside of the event loop and has its own time")]

mod protocol;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use baton_model::{Facility, Level, LogAddress, LogFormat, LogTarget, Mode, Proxy, Rule, Ruleset, Source};
use baton_proxy::{Command, Counter, CounterBlock};

use protocol::{Lines, Peer};
use support::{Served, listen};

/// A proxy whose clients speak [`Lines`], its origin, and where it logs.
struct Setup {
    served: Served,
    proxy: Proxy,
    requests: Receiver<Received>,
    log: UdpSocket,
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

    fn with(mut proxy: Proxy, listening: TcpListener) -> Setup {
        let log = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        log.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        proxy.logging.format = LogFormat::Http;
        proxy.logging.targets.push(LogTarget {
            address: LogAddress::Udp(log.local_addr().expect("bound")),
            len: 1024,
            format: "raw".to_owned(),
            facility: Facility(16),
            max: Level(7),
            min: Level(0),
            sample: None,
        });
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
        let mut served = Served::new(proxy.clone());
        served.mux = Some(Arc::new(Lines));
        served.apply(proxy.clone());
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
    peer.send(&[(1, 'h', "GET /slow\nhost:x"), (7, 'h', "GET /fast\nhost:x")]);
    let (mut slow, mut fast) = setup.two_requests("/slow");
    assert_eq!(slow.head, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n");
    fast.answer(&format!("{OK}two"));
    assert_eq!(peer.response(), (7, "H200 content-length:3 x-by:origin |twoE".to_owned()));
    assert_eq!(setup.line(), "web/s1 200 62 ---- GET /fast HTTP/1.1");
    slow.answer(&format!("{OK}one"));
    assert_eq!(peer.response(), (1, "H200 content-length:3 x-by:origin |oneE".to_owned()));
    assert_eq!(setup.line(), "web/s1 200 62 ---- GET /slow HTTP/1.1");
    setup.counters(|frontend, backend, server| {
        for block in [frontend, backend, server] {
            let total = |counter| block.total(counter);
            assert_eq!([Counter::Sessions, Counter::Requests, Counter::Responses2xx].map(total), [2; 3]);
            assert_eq!(total(Counter::BytesOut), 124);
        }
        assert_eq!(frontend.total(Counter::Connections), 1);
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
        "set-header x-exchange %[var(txn.first)]",
    ]);
    let mut peer = setup.peer();
    peer.send(&[(1, 'h', "GET /one\nhost:x")]);
    let mut one = setup.request();
    assert!(one.head.ends_with("x-session: /one\r\nx-exchange: /one\r\n\r\n"), "{}", one.head);
    peer.send(&[(2, 'h', "GET /denied\nhost:x"), (3, 'h', "GET /three\nhost:x")]);
    let mut three = setup.request();
    assert!(three.head.ends_with("x-session: /one\r\nx-exchange: /three\r\n\r\n"), "{}", three.head);
    let (stream, denied) = peer.response();
    assert!(stream == 2 && denied.starts_with("H403 content-length:") && denied.ends_with("</html>\nE"), "{denied}");
    assert!(!denied.contains("connection"), "{denied}");
    let line = setup.line();
    assert!(line.starts_with("web/<NOSRV> 403 ") && line.ends_with(" PR-- GET /denied HTTP/1.1"), "{line}");
    for (received, stream) in [(&mut three, 3), (&mut one, 1)] {
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
fn bodies_pass_in_both_directions_with_their_trailers() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    peer.send(&[(1, 'H', "POST /long\nhost:x"), (2, 'H', "PUT /short\nhost:x\ncontent-length:5")]);
    let (mut long, mut short) = setup.two_requests("/long");
    assert_eq!(long.head, "POST /long HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(short.head, "PUT /short HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n");
    peer.send(&[(1, 'D', "to the "), (2, 'D', "hello"), (2, 'E', "")]);
    assert_eq!(short.read_until("hello"), "hello");
    assert_eq!(long.read_until("to the \r\n"), "7\r\nto the \r\n");
    short.answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (2, "H200 content-length:3 x-by:origin |yesE".to_owned()));
    peer.send(&[(1, 'D', "origin"), (1, 'E', "x-sum:13\n")]);
    assert_eq!(long.read_until("\r\n\r\n"), "6\r\norigin\r\n0\r\nx-sum: 13\r\n\r\n");
    long.answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nto \r\n6\r\nclient\r\n0\r\nX-Sum: 9\r\n\r\n",
    );
    assert_eq!(peer.response(), (1, "H200 |to clientEx-sum:9 ".to_owned()));
    setup.counters(|frontend, _, _| assert_eq!(frontend.total(Counter::Responses2xx), 2));
    setup.served.end();
}

#[test]
fn a_body_larger_than_what_may_wait_arrives_whole() {
    const PIECES: usize = 200;
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let piece = "0123456789abcdef".repeat(64);
    peer.send(&[(1, 'H', "POST /\nhost:x")]);
    let mut received = setup.request();
    let sender = std::thread::spawn(move || {
        (0..PIECES).for_each(|_| peer.send(&[(1, 'D', &piece)]));
        peer.send(&[(1, 'E', "")]);
        peer
    });
    let body = received.read_until("0\r\n\r\n");
    let data: usize = body.split("\r\n").skip(1).step_by(2).map(str::len).sum();
    assert_eq!(data, PIECES * 1024);
    let mut peer = sender.join().expect("all is sent");
    // Larger than what may wait for the client.
    let long = "x".repeat(300_000);
    received.answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{long}", long.len()));
    let (_, response) = peer.response();
    assert_eq!(response.matches('x').count(), long.len());
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
    peer.send(&[(1, 'H', "POST /\nhost:x"), (1, 'D', "a+"), (1, 'D', "b"), (1, 'E', "")]);
    let mut received = setup.request();
    assert!(received.head.ends_with("x-body: a+b\r\ntransfer-encoding: chunked\r\n\r\n"), "{}", received.head);
    assert_eq!(received.read_until("0\r\n\r\n"), "3\r\na+b\r\n0\r\n\r\n");
    received.answer(&format!("{OK}yes"));
    assert_eq!(peer.response().0, 1);
    setup.served.end();
}

#[test]
fn an_exchange_that_is_given_up_does_not_harm_another_one() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    peer.send(&[(1, 'h', "GET /given-up\nhost:x"), (2, 'h', "GET /other\nhost:x")]);
    let (mut given_up, mut other) = setup.two_requests("/given-up");
    peer.send(&[(1, 'R', "")]);
    assert!(given_up.is_given_up(), "its server is not to work for nobody");
    assert_eq!(setup.line(), "web/s1 -1 0 CD-- GET /given-up HTTP/1.1");
    other.answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (2, "H200 content-length:3 x-by:origin |yesE".to_owned()));
    assert_eq!(setup.line(), "web/s1 200 62 ---- GET /other HTTP/1.1");
    peer.send(&[(3, 'h', "GET /next\nhost:x")]);
    setup.request().answer("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(peer.response(), (3, "H204 E".to_owned()));
    setup.counters(|frontend, backend, server| {
        for block in [frontend, backend, server] {
            assert_eq!(block.total(Counter::ClientAborts), 1);
            assert_eq!(block.total(Counter::Sessions), 3);
        }
    });
    setup.served.end();
}

#[test]
fn a_response_that_breaks_resets_its_stream_alone() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    peer.send(&[(1, 'h', "GET /broken\nhost:x"), (2, 'h', "GET /other\nhost:x")]);
    let (mut broken, mut other) = setup.two_requests("/broken");
    broken.answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    drop(broken);
    assert_eq!(peer.response(), (1, "H200 content-length:10 |abcR".to_owned()));
    other.answer(&format!("{OK}yes"));
    assert_eq!(peer.response().0, 2);
    setup.served.end();
}

#[test]
fn a_malformed_head_costs_its_stream_and_malformed_frames_the_connection() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    let heads = [
        "GET /\nhost:x\nconnection:close",
        "GET /\nhost:x\ntransfer-encoding:chunked",
        "GET / HTTP/1.1\nhost:x",
        "GET /\nhost:x\nx y:z",
        "GET /\nhost:x\nx:a\rb",
        "CONNECT x:80\nhost:x",
    ];
    for (head, stream) in heads.into_iter().zip(1..) {
        peer.send(&[(stream, 'h', head)]);
        assert_eq!(peer.frame(), Some((stream, 'R', String::new())), "{head:?}");
    }
    // The body of a request that is in work is none of theirs.
    let malformed = (11, 'h', "GET /\nhost:x\nx y:z");
    peer.send(&[(10, 'H', "POST /\nhost:x"), (10, 'D', "x"), malformed, (10, 'E', "")]);
    assert_eq!(peer.frame(), Some((11, 'R', String::new())));
    let mut received = setup.request();
    assert_eq!(received.read_until("0\r\n\r\n"), "1\r\nx\r\n0\r\n\r\n");
    received.answer(&format!("{OK}yes"));
    assert_eq!(peer.response().0, 10);
    // What only the line itself can judge is answered by it.
    peer.send(&[(7, 'h', "GET nonsense\nhost:x")]);
    assert!(peer.response().1.starts_with("H400 "));
    peer.send(&[(8, 'h', "GET /\nhost:x")]);
    setup.request().answer(&format!("{OK}yes"));
    assert_eq!(peer.response().0, 8);
    peer.send(&[(9, '?', "")]);
    assert_eq!(peer.frame(), None, "the connection is closed");
    setup.served.end();
}

#[test]
fn a_soft_stop_lets_exchanges_finish_and_takes_no_more() {
    let setup = Setup::new(&[]);
    let (mut peer, mut idle) = (setup.peer(), setup.peer());
    idle.send(&[(1, 'N', "")]);
    peer.send(&[(1, 'h', "GET /last\nhost:x")]);
    let mut last = setup.request();
    let drain = Command::Drain { spread: Some(Duration::ZERO) };
    setup.served.runtime.block_on(setup.served.workers.command(drain));
    assert_eq!(idle.frame(), None, "nothing is in work on it");
    peer.send(&[(2, 'h', "GET /late\nhost:x")]);
    assert_eq!(peer.frame(), Some((2, 'R', String::new())));
    last.answer(&format!("{OK}yes"));
    assert_eq!(peer.response(), (1, "H200 content-length:3 x-by:origin |yesE".to_owned()));
    assert_eq!(peer.frame(), None);
    setup.served.end();
}

#[test]
fn an_immediate_stop_is_logged_by_each_exchange() {
    let mut setup = Setup::new(&[]);
    let mut peer = setup.peer();
    peer.send(&[(1, 'h', "GET /one\nhost:x"), (2, 'h', "GET /two\nhost:x")]);
    let _in_flight = [setup.request(), setup.request()];
    setup.served.runtime.block_on(setup.served.workers.command(Command::Abort));
    setup.served.workers.join();
    let mut lines = [setup.line(), setup.line()];
    lines.sort();
    assert_eq!(lines, ["one", "two"].map(|path| format!("web/s1 -1 0 KH-- GET /{path} HTTP/1.1")));
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let setup = Setup::new(&[]);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.connect(&setup.served.address.into()).expect("the proxy listens");
    let mut peer = Peer::new(socket.into());
    let many: Vec<_> = (0..1000).map(|_| (1, 'h', "CONNECT x:80\nhost:x")).collect();
    // Each head is answered with a reset. What waits for the client is bounded, and the kernel takes little for it.
    assert!(peer.send_until_held(&many), "the proxy takes everything");
    setup.served.end();
}

#[test]
fn exchanges_end_when_their_client_goes() {
    let setup = Setup::new(&[]);
    let mut peer = setup.peer();
    peer.send(&[(1, 'H', "POST /half\nhost:x"), (1, 'D', "half")]);
    let mut received = setup.request();
    assert_eq!(received.read_until("half\r\n"), "4\r\nhalf\r\n");
    peer.send(&[(1, '?', "")]);
    assert!(received.is_given_up(), "its server is not to work for nobody");
    let line = setup.line();
    assert!(line.starts_with("web/s1 ") && line.ends_with(" CD-- POST /half HTTP/1.1"), "{line}");
    setup.served.end();
}
