//! Servers that speak HTTP/2, behind clients of either version.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use baton_http2::{Config, ErrorCode, Settings};
use baton_model::{BindOptions, BindProtocol, Mode, Proxy, Reuse, Rule, Ruleset, ServerProtocol, Source};
use baton_proxy::Counter;

use crate::client::Peer;
use crate::server::ServerPeer;
use crate::support::{Served, listen, server};

/// A proxy in front of one server, which the test is.
pub struct Setup {
    pub served: Served,
    proxy: Proxy,
    listening: TcpListener,
}

impl Setup {
    pub fn new(proto: Option<BindProtocol>, change: impl FnOnce(&mut Proxy)) -> Setup {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
        Arc::make_mut(&mut proxy.servers[0]).proto = Some(ServerProtocol::H2);
        proxy.http.reuse = Reuse::Always;
        proxy.timeouts.server = Some(Duration::from_secs(10));
        change(&mut proxy);
        let options = BindOptions { proto, ..BindOptions::default() };
        let served = Served::start(proxy.clone(), 16384, None, options);
        Setup { served, proxy, listening }
    }

    /// Clients of HTTP/1.
    fn http1() -> Setup {
        Setup::new(Some(BindProtocol::H1), |_| {})
    }

    /// Clients of HTTP/2.
    fn http2() -> Setup {
        Setup::new(Some(BindProtocol::H2), |_| {})
    }

    fn client(&self) -> Http1Client {
        let socket = self.served.connect();
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        Http1Client(BufReader::new(socket))
    }

    pub fn server(&self) -> ServerPeer {
        self.server_with(Config::default())
    }

    pub fn server_with(&self, config: Config) -> ServerPeer {
        ServerPeer::accept(&self.listening, config)
    }

    /// The next connection of the proxy's, on which no HTTP/2 is spoken.
    pub fn accept(&self) -> TcpStream {
        let (socket, _) = self.listening.accept().expect("the proxy connects");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        socket
    }

    fn server_total(&self, counter: Counter) -> u64 {
        let now = std::time::Instant::now();
        let (_, backend) = self.served.registry.backend(&Arc::new(self.proxy.clone()), now);
        backend.counters.total(counter)
    }
}

/// A client of HTTP/1.
struct Http1Client(BufReader<TcpStream>);

impl Http1Client {
    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("the proxy reads");
    }

    /// What comes until the end of this.
    fn until(&mut self, end: &str) -> String {
        let mut got = Vec::new();
        while !got.ends_with(end.as_bytes()) {
            let mut byte = [0];
            let count = self.0.read(&mut byte).expect("in time");
            assert_eq!(count, 1, "closed after {}", String::from_utf8_lossy(&got));
            got.push(byte[0]);
        }
        String::from_utf8(got).expect("text")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("in time");
        line.trim_end().to_owned()
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn requests_of_http1_clients_share_one_connection() {
    let setup = Setup::http1();
    let (mut one, mut other) = (setup.client(), setup.client());
    one.send("GET /one?x HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nTE: gzip, trailers\r\n\r\n");
    let mut server = setup.server();
    assert_eq!(server.until("1 end"), ["1 GET https x /one?x te:trailers", "1 end"]);
    other.send("POST /two HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(server.until("3 end"), ["3 POST https x /two content-length:5", "3 \"hello\"", "3 end"]);
    server.respond(3, 200, &[("content-length", "3")], false);
    server.data(3, b"yes", true);
    assert_eq!(other.until("yes"), "HTTP/1.1 200 \r\ncontent-length: 3\r\n\r\nyes");
    // A body of unknown length, with trailers.
    server.respond(1, 200, &[("x-a", "1")], false);
    server.data(1, b"abc", false);
    server.trailers(1, &[("x-t", "2")]);
    let response = "HTTP/1.1 200 \r\nx-a: 1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-t: 2\r\n\r\n";
    assert_eq!(one.until("x-t: 2\r\n\r\n"), response);
    // Both clients go on.
    for (client, stream) in [(&mut one, 5), (&mut other, 7)] {
        client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        server.until(&format!("{stream} end"));
        server.respond(stream, 200, &[("content-length", "9")], true);
        assert_eq!(client.until("\r\n\r\n"), "HTTP/1.1 200 \r\ncontent-length: 9\r\n\r\n");
    }
    assert_eq!([Counter::Http2Connections, Counter::Http2Streams].map(|counter| setup.server_total(counter)), [1, 4]);
    setup.served.end();
}

#[test]
fn chunks_become_frames_and_interim_responses_pass() {
    let setup = Setup::http1();
    let mut client = setup.client();
    client.send("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    let mut server = setup.server();
    assert_eq!(server.next(), "1 PUT https x / expect:100-continue");
    server.respond(1, 100, &[], false);
    assert_eq!(client.until("\r\n\r\n"), "HTTP/1.1 100 \r\n\r\n");
    client.send("3\r\nabc\r\n");
    assert_eq!(server.next(), "1 \"abc\"");
    client.send("2\r\nde\r\n0\r\nx-sum: 5\r\n\r\n");
    assert_eq!(server.until("1 end x-sum:5"), ["1 \"de\"", "1 end x-sum:5"]);
    server.respond(1, 103, &[("link", "</a>")], false);
    server.respond(1, 204, &[], true);
    assert_eq!(client.until("\r\n\r\n"), "HTTP/1.1 103 \r\nlink: </a>\r\n\r\n");
    assert_eq!(client.until("\r\n\r\n"), "HTTP/1.1 204 \r\n\r\n");
    setup.served.end();
}

#[test]
fn servers_of_both_versions_take_turns() {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = plain.local_addr().expect("bound");
    let setup = Setup::new(Some(BindProtocol::H1), |proxy| proxy.servers.push(server("s2", address)));
    let (mut client, mut servers) = (setup.client(), None);
    let bodies = [
        ("content-length: 5", "hello", "\"hello\"", "end"),
        ("transfer-encoding: chunked", "3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n", "\"abc\"", "end x-t:1"),
    ];
    // Each request finds another version than the one before, for which it was composed.
    for (turn, (field, body, as_data, end)) in bodies.into_iter().enumerate() {
        let request = format!("POST /{turn} HTTP/1.1\r\nhost: x\r\n{field}\r\n\r\n{body}");
        client.send(&request);
        let (http2, http1) = servers.get_or_insert_with(|| (setup.server(), None));
        let stream = 2 * turn as u32 + 1;
        let seen = http2.until(&format!("{stream} {end}"));
        assert!(seen[0].starts_with(&format!("{stream} POST https x /{turn}")), "{seen:?}");
        assert_eq!(seen[1..], [format!("{stream} {as_data}"), format!("{stream} {end}")]);
        http2.respond(stream, 204, &[], true);
        assert_eq!(client.until("\r\n\r\n"), "HTTP/1.1 204 \r\n\r\n");
        client.send(&request);
        let http1 = http1.get_or_insert_with(|| {
            let (socket, _) = plain.accept().expect("the proxy connects");
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            Http1Client(BufReader::new(socket))
        });
        assert_eq!(http1.until(body), request);
        http1.send("HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(client.until("\r\n\r\n"), "HTTP/1.1 204 No Content\r\n\r\n");
    }
    setup.served.end();
}

#[test]
fn both_sides_speak_http2() {
    let setup = Setup::http2();
    let mut client = Peer::new(setup.served.connect());
    let call = client.request("POST /call\nte:trailers\ncontent-type:application/grpc", false);
    client.data(call, b"ping", true);
    let mut server = setup.server();
    let seen = ["1 POST http x /call te:trailers content-type:application/grpc", "1 \"ping\"", "1 end"];
    assert_eq!(server.until("1 end"), seen);
    // A response that is nothing but trailers stays one frame.
    server.respond(1, 200, &[("grpc-status", "5")], true);
    assert_eq!(client.response(), (call, "H200 grpc-status:5E".to_owned()));
    let stream = client.request("POST /stream", false);
    assert_eq!(server.next(), "3 POST http x /stream");
    server.respond(3, 200, &[], false);
    for word in ["one", "two"] {
        client.data(stream, word.as_bytes(), false);
        assert_eq!(server.next(), format!("3 {word:?}"));
        server.data(3, word.as_bytes(), false);
    }
    client.trailers(stream, "x-end", "1");
    assert_eq!(server.next(), "3 end x-end:1");
    server.trailers(3, &[("grpc-status", "0")]);
    assert_eq!(client.response(), (stream, "H200 |onetwoEgrpc-status:0".to_owned()));
    setup.served.end();
}

#[test]
fn rules_know_both_streams() {
    let tells = |proxy: &mut Proxy| {
        let words = ["set-header", "x-ids", "%[fs.id]/%[bs.id]"].map(str::to_owned).to_vec();
        let ruleset = Ruleset::HttpResponse;
        proxy.rules.entry(ruleset).or_default().push(Rule { ruleset, words, source: Source::default() });
    };
    let setup = Setup::new(Some(BindProtocol::H1), tells);
    let mut client = setup.client();
    client.send(GET);
    let mut server = setup.server();
    for ids in ["1/1", "2/3"] {
        let stream = ids.rsplit('/').next().and_then(|id| id.parse().ok()).expect("a number");
        server.until(&format!("{stream} end"));
        server.respond(stream, 204, &[], true);
        assert_eq!(client.until("\r\n\r\n"), format!("HTTP/1.1 204 \r\nx-ids: {ids}\r\n\r\n"));
        client.send(GET);
    }
    setup.served.end();
    let setup = Setup::new(Some(BindProtocol::H2), tells);
    let (mut one, mut other) = (Peer::new(setup.served.connect()), Peer::new(setup.served.connect()));
    one.request("GET /", true);
    let mut server = setup.server();
    server.until("1 end");
    server.respond(1, 204, &[], true);
    assert_eq!(one.response(), (1, "H204 x-ids:1/1E".to_owned()));
    one.request("GET /", true);
    server.until("3 end");
    server.respond(3, 204, &[], true);
    assert_eq!(one.response(), (3, "H204 x-ids:3/3E".to_owned()));
    other.request("GET /", true);
    server.until("5 end");
    server.respond(5, 204, &[], true);
    assert_eq!(other.response(), (1, "H204 x-ids:1/5E".to_owned()));
    setup.served.end();
}

#[test]
fn a_request_that_was_certainly_not_processed_is_sent_again() {
    let setup = Setup::http1();
    let (mut one, mut other) = (setup.client(), setup.client());
    one.send(GET);
    let mut server = setup.server();
    server.until("1 end");
    other.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    server.until("3 end");
    // The first one is finished, the other one is sent to where requests are taken.
    server.go_away(1);
    let mut next = setup.server();
    assert_eq!(next.until("1 end"), ["1 POST https x / content-length:3", "1 \"abc\"", "1 end"]);
    next.respond(1, 201, &[], true);
    assert_eq!(other.line(), "HTTP/1.1 201");
    server.respond(1, 200, &[], true);
    assert_eq!(one.line(), "HTTP/1.1 200");
    assert_eq!(server.next(), "closed");
    // It was refused: not processed either.
    let mut third = setup.client();
    third.send(GET);
    next.until("3 end");
    next.reset(3, ErrorCode::REFUSED_STREAM);
    assert_eq!(next.until("5 end"), ["5 GET https x /", "5 end"]);
    next.respond(5, 200, &[], true);
    assert_eq!(third.line(), "HTTP/1.1 200");
    setup.served.end();
}

#[test]
fn a_server_that_refuses_everything_is_not_asked_for_ever() {
    let setup = Setup::http1();
    let mut client = setup.client();
    client.send(GET);
    let mut server = setup.server();
    for stream in [1, 3, 5, 7, 9] {
        server.until(&format!("{stream} end"));
        server.reset(stream, ErrorCode::REFUSED_STREAM);
    }
    assert_eq!(client.line(), "HTTP/1.1 502 Bad Gateway");
    setup.served.end();
}

#[test]
fn a_reset_of_either_side_reaches_the_other() {
    let setup = Setup::http2();
    let mut client = Peer::new(setup.served.connect());
    let stream = client.request("POST /", false);
    let mut server = setup.server();
    server.next();
    client.reset(stream);
    assert_eq!(server.next(), "1 reset CANCEL");
    // Before the response, and within it.
    let stream = client.request("GET /", true);
    server.until("3 end");
    server.reset(3, ErrorCode::INTERNAL_ERROR);
    let (found, response) = client.response();
    assert!(found == stream && response.starts_with("H502 "), "{response}");
    let stream = client.request("GET /", true);
    server.until("5 end");
    server.respond(5, 200, &[("content-length", "9")], false);
    server.data(5, b"abc", false);
    server.reset(5, ErrorCode::INTERNAL_ERROR);
    let mut seen = String::new();
    while !seen.ends_with("CANCEL") {
        let news = client.next().expect("the connection stays");
        assert_eq!(news.stream, stream);
        seen.push_str(&format!("{}{}", news.kind, news.text));
    }
    assert_eq!(seen, "H200 content-length:9DabcRCANCEL");
    setup.served.end();
}

#[test]
fn what_is_no_http2_is_a_bad_gateway() {
    let setup = Setup::http1();
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let mut client = setup.client();
        client.send(GET);
        let (mut socket, _) = setup.listening.accept().expect("the proxy connects");
        socket.write_all(bytes).expect("the proxy reads");
        drop(socket);
        assert_eq!(client.line(), "HTTP/1.1 502 Bad Gateway", "{bytes:?}");
    }
    setup.served.end();
}

#[test]
fn a_server_sends_no_more_than_its_client_takes() {
    const LONG: usize = 4_000_000;
    let setup = Setup::http2();
    let mut client = Peer::new(setup.served.connect());
    client.wire.takes_bodies = false;
    let slow = client.request("GET /slow", true);
    let mut server = setup.server();
    server.until("1 end");
    server.respond(1, 200, &[], false);
    let long = vec![b'x'; LONG];
    let mut sent = 0;
    // Another request passes meanwhile: nothing of the slow one fills the connection.
    client.request("GET /fast", true);
    while !server.wire.protocol.is_reset(1) {
        sent += server.data(1, &long[sent..], false);
        if server.next() == "3 end" {
            break;
        }
    }
    server.respond(3, 200, &[("content-length", "3")], false);
    server.data(3, b"yes", true);
    let mut seen = (0, String::new());
    while !seen.1.ends_with("yes") {
        let news = client.next().expect("the connection stays");
        match (news.stream == slow, news.kind) {
            (true, 'D') => seen.0 += news.text.len(),
            (false, 'D') => seen.1.push_str(&news.text),
            _ => {}
        }
    }
    sent += server.data(1, &long[sent..], false);
    assert!(sent < 400_000, "{sent} bytes are on their way to a client that has opened a window of 65,535");
    assert!(seen.0 <= 65_535, "{} bytes", seen.0);
    setup.served.end();
}

#[test]
fn as_many_streams_as_the_server_allows() {
    let setup = Setup::http2();
    let mut client = Peer::new(setup.served.connect());
    client.request("GET /one", true);
    let settings = Settings { max_concurrent_streams: 2, ..Config::default().settings };
    let mut server = setup.server_with(Config { settings, ..Config::default() });
    server.until("1 end");
    // The settings have been read once this one is there.
    let two = client.request("GET /two", true);
    server.until("3 end");
    server.respond(3, 200, &[], true);
    server.wire.protocol.release(3, &mut Vec::new());
    assert_eq!(client.response(), (two, "H200 E".to_owned()));
    client.request("GET /three", true);
    server.until("5 end");
    let four = client.request("GET /four", true);
    let mut other = setup.server();
    other.until("1 end");
    other.respond(1, 200, &[], true);
    assert_eq!(client.response(), (four, "H200 E".to_owned()));
    setup.served.end();
}

#[test]
fn a_session_has_its_connection_for_itself_where_reuse_is_safe() {
    let setup = Setup::new(Some(BindProtocol::H2), |proxy| proxy.http.reuse = Reuse::Safe);
    let (mut one, mut other) = (Peer::new(setup.served.connect()), Peer::new(setup.served.connect()));
    one.request("GET /one", true);
    let mut first = setup.server();
    first.until("1 end");
    one.request("GET /two", true);
    first.until("3 end");
    other.request("GET /three", true);
    let mut second = setup.server();
    second.until("1 end");
    setup.served.end();
}

#[test]
fn a_websocket_of_an_http1_client_is_extended_connect() {
    let setup = Setup::http1();
    let mut client = setup.client();
    client.send(
        "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: \
         dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    let settings = Settings { enable_connect_protocol: true, ..Config::default().settings };
    let mut server = setup.server_with(Config { settings, ..Config::default() });
    assert_eq!(server.next(), "1 CONNECT https x /ws :protocol:websocket sec-websocket-version:13");
    server.respond(1, 200, &[], false);
    let head = client.until("\r\n\r\n");
    let accept = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n") && head.contains(accept), "{head}");
    client.send("up");
    assert_eq!(server.next(), "1 \"up\"");
    server.data(1, b"down", false);
    assert_eq!(client.until("down"), "down");
    client.0.get_ref().shutdown(std::net::Shutdown::Write).expect("open");
    assert_eq!(server.next(), "1 end");
    setup.served.end();
}

#[test]
fn a_websocket_is_refused_where_the_server_takes_none() {
    let setup = Setup::http2();
    let mut client = Peer::new(setup.served.connect());
    let stream = client.request("WEBSOCKET /ws", false);
    let mut server = setup.server();
    let (found, response) = client.response();
    assert!(found == stream && response.starts_with("H502 "), "{response}");
    let connect = client.request("CONNECT a:80", false);
    assert_eq!(server.next(), "1 CONNECT  a:80 ");
    server.respond(1, 200, &[], false);
    client.data(connect, b"up", false);
    assert_eq!(server.next(), "1 \"up\"");
    setup.served.end();
}
