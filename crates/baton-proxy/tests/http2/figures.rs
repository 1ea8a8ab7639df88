//! What rules and the log know of both sides' streams and connections.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use baton_http2::{Config, ErrorCode, Settings};
use baton_model::{BindProtocol, LogFormat, Proxy, Rule, Ruleset, ServerProtocol, Source};
use socket2::SockRef;

use crate::client::{Peer, frame};
use crate::log_of;
use crate::server::ServerPeer;
use crate::servers::Setup as Servers;
use crate::support::{Served, listen};

fn add(proxy: &mut Proxy, ruleset: Ruleset, words: &[&str]) {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    proxy.rules.entry(ruleset).or_default().push(Rule { ruleset, words, source: Source::default() });
}

#[test]
fn connections_have_streams_limits_and_glitches() {
    let figures = "%[fc_nb_streams]/%[fc_setting_streams_limit]/%[fc_glitches] %[bc_nb_streams]/%[bc_setting_streams_limit]/%[bc_glitches]";
    let shows = |proxy: &mut Proxy| add(proxy, Ruleset::HttpResponse, &["set-header", "x-figures", figures]);
    let setup = Servers::new(Some(BindProtocol::H2), shows);
    let mut client = Peer::new(setup.served.connect());
    let (one, two) = (client.request("GET /one", true), client.request("GET /two", true));
    let settings = Settings { max_concurrent_streams: 7, ..Config::default().settings };
    let mut server = setup.server_with(Config { settings, ..Config::default() });
    server.until("3 end");
    server.respond(1, 204, &[], true);
    assert_eq!(client.response(), (one, "H204 x-figures:2/100/0 2/7/0E".to_owned()));
    // DATA that carries nothing: a glitch of the server's.
    server.respond(3, 200, &[], false);
    assert_eq!(client.next().map(|news| news.text), Some("200 x-figures:1/100/0 1/7/0".to_owned()));
    server.wire.socket.write_all(&frame(0, 0, 3, &[])).expect("room");
    server.data(3, b"x", true);
    assert_eq!(client.response(), (two, "|xE".to_owned()));
    let three = client.request("GET /three", true);
    server.until("5 end");
    server.respond(5, 204, &[], true);
    assert_eq!(client.response(), (three, "H204 x-figures:1/100/0 1/7/1E".to_owned()));
    setup.served.end();
}

#[test]
fn a_connection_with_http1_has_one_stream_and_no_glitches() {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut proxy = listen(baton_model::Mode::Http, listening.local_addr().expect("bound"));
    let figures = "%[fc_nb_streams]/%[fc_setting_streams_limit]/%[fc_glitches] %[bc_nb_streams]/%[bc_setting_streams_limit]/%[bc_glitches]";
    add(&mut proxy, Ruleset::HttpResponse, &["set-header", "x-figures", figures]);
    let served = Served::new(proxy);
    let mut client = served.connect();
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("room");
    let (mut server, _) = listening.accept().expect("the proxy connects");
    server.write_all(b"HTTP/1.0 204 No Content\r\n\r\n").expect("room");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("in time");
    assert!(response.contains("\r\nx-figures: 1/1/0 1/1/0\r\n"), "{response}");
    served.end();
}

/// How a request ends, by the log: who aborted it, and with which code.
struct Ends {
    setup: Servers,
    log: UdpSocket,
}

impl Ends {
    fn new(clients: BindProtocol, servers: ServerProtocol) -> Ends {
        let mut log = None;
        let setup = Servers::new(Some(clients), |proxy| {
            std::sync::Arc::make_mut(&mut proxy.servers[0]).proto = Some(servers);
            // Nothing ends by itself.
            proxy.timeouts.server = Some(Duration::from_secs(60));
            proxy.logging.format = LogFormat::Custom;
            log = Some(log_of(proxy));
            let line = "client %[fs.aborted] %[fs.rst_code] server %[bs.aborted] %[bs.rst_code]";
            add(proxy, Ruleset::LogFormat, &[line]);
            let of_server = "%[bs.aborted]/%[bs.rst_code]";
            add(proxy, Ruleset::HttpAfterResponse, &["set-header", "x-server", of_server]);
        });
        Ends { setup, log: log.expect("the proxy was changed") }
    }

    /// The end of a request by this.
    #[track_caller]
    fn line(&self) -> String {
        let mut line = [0; 2048];
        let count = self.log.recv(&mut line).expect("a line in time");
        let line = String::from_utf8_lossy(&line[..count]).into_owned();
        let at = line.find("client ").expect("the format");
        line[at..].trim_end().to_owned()
    }

    /// A request of HTTP/2 that is at a server of HTTP/2, its response begun or not.
    fn at_server(&self, is_begun: bool) -> (Peer, u32, ServerPeer) {
        let mut client = Peer::new(self.setup.served.connect());
        let stream = client.request("GET /", true);
        let mut server = self.setup.server();
        server.until("1 end");
        if is_begun {
            server.respond(1, 200, &[], false);
            server.data(1, b"x", false);
            while client.next().is_some_and(|news| news.kind != 'D') {}
        }
        (client, stream, server)
    }
}

#[test]
fn who_ended_a_stream_of_http2_and_with_which_code() {
    let ends = Ends::new(BindProtocol::H2, ServerProtocol::H2);
    let (mut client, stream, mut server) = ends.at_server(false);
    server.respond(1, 204, &[], true);
    assert_eq!(client.response(), (stream, "H204 x-server:0/E".to_owned()));
    assert_eq!(ends.line(), "client 0 - server 0 -");
    for is_begun in [false, true] {
        drop(server);
        (client, _, server) = ends.at_server(is_begun);
        client.reset(1);
        assert_eq!(ends.line(), "client 1 8 server 0 -");
        assert_eq!(server.next(), "1 reset CANCEL");
        drop(server);
        (client, _, server) = ends.at_server(is_begun);
        // With a reset: after a mere end it could read still.
        SockRef::from(&client.wire.socket).set_linger(Some(Duration::ZERO)).expect("open");
        drop(client);
        assert_eq!(ends.line(), "client 1 - server 0 -");
    }
    drop(server);
    (client, _, server) = ends.at_server(false);
    server.reset(1, ErrorCode::ENHANCE_YOUR_CALM);
    let response = client.response().1;
    assert!(response.starts_with("H502 ") && response.contains("x-server:1/11"), "{response}");
    assert_eq!(ends.line(), "client 0 - server 1 11");
    drop(server);
    (_, _, server) = ends.at_server(true);
    server.reset(1, ErrorCode::INTERNAL_ERROR);
    assert_eq!(ends.line(), "client 0 - server 1 2");
    drop(server);
    (client, _, server) = ends.at_server(true);
    drop(server);
    assert_eq!(ends.line(), "client 0 - server 1 -");
    // What is no HTTP/2 at all is no abort of the client's.
    let stream = client.request("POST /", false);
    let mut server = ends.setup.server();
    while !server.next().starts_with("1 POST") {}
    client.wire.socket.write_all(&frame(4, 0, stream, &[])).expect("room");
    assert_eq!(ends.line(), "client 0 - server 0 -");
    ends.setup.served.end();
}

#[test]
fn who_ended_a_request_of_http1() {
    let ends = Ends::new(BindProtocol::H1, ServerProtocol::H1);
    let exchange = |says: &[u8]| {
        let mut client = ends.setup.served.connect();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("room");
        let mut server = ends.setup.accept();
        server.write_all(says).expect("room");
        (client, server)
    };
    let (mut client, server) = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    drop(server);
    let mut response = String::new();
    client.read_to_string(&mut response).expect("in time");
    assert_eq!(ends.line(), "client 0 - server 1 -");
    let (mut client, server) = exchange(b"");
    drop(server);
    let mut head = [0; 512];
    let count = client.read(&mut head).expect("in time");
    let head = String::from_utf8_lossy(&head[..count]);
    assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("x-server: 1/"), "{head}");
    assert_eq!(ends.line(), "client 0 - server 1 -");
    let (client, mut server) = exchange(b"HTTP/1.1 200 OK\r\n\r\n");
    drop(client);
    // Until the proxy notices.
    while server.write_all(&[b'x'; 65_536]).is_ok() {}
    assert_eq!(ends.line(), "client 1 - server 0 -");
    ends.setup.served.end();
}
