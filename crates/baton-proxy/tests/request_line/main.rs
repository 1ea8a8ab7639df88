//! Whole requests through one core, against an origin that does what the test says.

#![allow(clippy::disallowed_methods, reason = "a test is outside of the event loop and has its own time")]

mod endings;
#[path = "../support/mod.rs"]
mod support;
mod waiting;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{Mode, Model, Rule, Ruleset, Source};
use baton_proxy::Generation;
use baton_rules::{CompiledRules, Files, NoFiles};
use baton_tls::Connectors;

use support::{Served, listen, server};

/// An origin that answers each request head it reads with `answer`, on one connection after the other.
fn origin(answer: &'static str, connections: usize) -> (SocketAddr, std::thread::JoinHandle<Vec<String>>) {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    let thread = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for _ in 0..connections {
            let (mut stream, _) = listening.accept().expect("the proxy connects");
            while let Some(head) = read_head(&mut stream) {
                heads.push(head);
                stream.write_all(answer.as_bytes()).expect("the proxy reads");
            }
        }
        heads
    });
    (address, thread)
}

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn read_exactly(stream: &mut TcpStream, expect: &str) {
    let mut bytes = vec![0; expect.len()];
    stream.read_exact(&mut bytes).expect("a whole response");
    assert_eq!(String::from_utf8_lossy(&bytes), expect);
}

/// Listens with so little room that a large request is not taken before it is read.
fn narrow_listener() -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    socket.listen(8).expect("listening");
    socket.into()
}

/// Of `http-send-name-header` and `option forwarded`: the name of each attempt's server, and the addresses of the connection.
#[test]
fn servers_learn_their_name_and_the_client() {
    let (address, thread) = origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 1);
    let mut proxy = listen(Mode::Http, address);
    proxy.http.send_name_header = Some("X-Server".into());
    let words = ["proto", "host", "for", "by"].map(str::to_owned).to_vec();
    let rule = Rule { ruleset: Ruleset::Forwarded, words, source: Source::default() };
    proxy.rules.insert(Ruleset::Forwarded, vec![rule]);
    let served = Served::new(proxy);
    let mut client = served.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nForwarded: for=_a\r\nX-Server: b\r\n\r\n").expect("sent");
    read_exactly(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    served.end();
    let head = "GET / HTTP/1.1\r\nhost: x\r\nforwarded: for=_a\r\n\
                forwarded: proto=http;host=\"x\";by=127.0.0.1;for=127.0.0.1\r\nx-server: s1\r\n\r\n";
    assert_eq!(thread.join().expect("the origin ends"), [head]);
}

#[test]
fn a_switch_before_the_whole_request_was_taken_loses_none_of_it() {
    let listening = narrow_listener();
    let address = listening.local_addr().expect("bound");
    let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: foo\r\n\r\n";
    let served = Served::with_buffers(listen(Mode::Http, address), 16 << 20);
    let mut client = served.connect();
    // More than the kernel takes on the way to the origin.
    let head = format!(
        "GET / HTTP/1.1\r\nhost: x\r\nx-long: {}\r\nconnection: Upgrade\r\nupgrade: foo\r\n\r\n",
        "0123456789".repeat(1 << 20)
    );
    client.write_all(head.as_bytes()).expect("the proxy reads");
    client.write_all(b"tunnel").expect("the proxy reads");
    let (mut origin, _) = listening.accept().expect("the proxy connects");
    origin.write_all(answer.as_bytes()).expect("the proxy reads");
    read_exactly(&mut client, answer);
    client.shutdown(std::net::Shutdown::Write).expect("open");
    let mut got = Vec::new();
    origin.read_to_end(&mut got).expect("no reset");
    assert!(got.starts_with(b"GET / HTTP/1.1\r\n"));
    assert!(got.ends_with(b"\r\n\r\ntunnel"), "the head and what follows it arrive whole: {} bytes", got.len());
    assert_eq!(got.len(), head.len() + "tunnel".len());
    drop(origin);
    served.end();
}

#[test]
fn two_requests_share_both_connections() {
    let (address, thread) = origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 1);
    let served = Served::new(listen(Mode::Http, address));
    let mut client = served.connect();
    for path in ["/a", "/b"] {
        write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        read_exactly(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    }
    served.end();
    let heads = thread.join().expect("the origin ends");
    assert_eq!(heads, ["GET /a HTTP/1.1\r\nhost: x\r\n\r\n", "GET /b HTTP/1.1\r\nhost: x\r\n\r\n"]);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (address, thread) = origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 1);
    let served = Served::new(listen(Mode::Http, address));
    let mut client = served.connect();
    let requests: String = (0..50).map(|at| format!("GET /{at} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
    client.write_all(requests.as_bytes()).expect("sent");
    for _ in 0..50 {
        read_exactly(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    }
    served.end();
    let heads = thread.join().expect("the origin ends");
    assert!(heads.iter().enumerate().all(|(at, head)| head.starts_with(&format!("GET /{at} "))));
}

#[test]
fn a_tunnel_outlives_generations() {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listening.accept().expect("the proxy connects");
        let mut bytes = [0; 4];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes).expect("the proxy reads");
        }
    });
    let mut served = Served::new(listen(Mode::Tcp, address));
    let mut client = served.connect();
    for round in 0..10 {
        let text = format!("{round:04}");
        client.write_all(text.as_bytes()).expect("sent");
        read_exactly(&mut client, &text);
        let mut changed = listen(Mode::Tcp, address);
        changed.retries = round;
        served.apply(changed);
    }
    drop(client);
    echo.join().expect("the end of the stream reaches the origin");
    served.end();
}

#[test]
fn a_refused_connection_is_answered_with_503() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let mut proxy = listen(Mode::Http, gone);
    proxy.retries = 0;
    let served = Served::new(proxy);
    let mut client = served.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    assert!(read_head(&mut client).expect("an answer").starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    served.end();
}

#[test]
fn a_server_that_does_not_read_a_body_does_not_hold_up_the_core() {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
    proxy.timeouts.client = Some(Duration::from_millis(50));
    let served = Served::new(proxy);
    let mut stuck = served.connect();
    stuck.set_write_timeout(Some(Duration::from_millis(400))).expect("a timeout");
    stuck.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").expect("sent");
    let chunk = [b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat();
    while stuck.write_all(&chunk).is_ok() {}
    let mut other = served.connect();
    other.write_all(b"nonsense\r\n\r\n").expect("sent");
    assert!(read_head(&mut other).expect("an answer").starts_with("HTTP/1.1 400 Bad request\r\n"));
    served.end();
}

/// A client that stops reading for longer than `timeout server` gets all the same what the server had to say.
fn check_slow_reader(mode: Mode) {
    const BODY: usize = 64 << 20;
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    let (stalled, is_stalled) = std::sync::mpsc::channel();
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listening.accept().expect("the proxy connects");
        read_head(&mut stream).expect("a request");
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").expect("sent");
        let body = vec![b'x'; BODY];
        // Gives up after that time without room, and says how much was taken.
        stream.set_write_timeout(Some(Duration::from_millis(2500))).expect("a timeout");
        let sent = stream.write(&body).expect("some of it");
        assert!(sent < BODY);
        stalled.send(()).expect("the test waits");
        stream.set_write_timeout(None).expect("no timeout");
        stream.write_all(&body[sent..])
    });
    let mut proxy = listen(mode, address);
    proxy.timeouts.server = Some(Duration::from_secs(2));
    let served = Served::new(proxy);
    let mut client = served.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    is_stalled.recv().expect("the origin comes to a stop");
    let mut body = vec![0; BODY];
    read_head(&mut client).expect("an answer");
    client.read_exact(&mut body).expect("the whole body");
    origin.join().expect("the origin ends").expect("all is taken");
    served.end();
}

#[test]
fn a_client_that_reads_slowly_is_not_the_servers_silence() {
    std::thread::scope(|scope| {
        [Mode::Http, Mode::Tcp].map(|mode| scope.spawn(move || check_slow_reader(mode))).map(drop)
    });
}

#[test]
fn a_request_meets_a_closed_connection_once_however_many_there_are() {
    const KEPT: usize = 8;
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
    proxy.http.reuse = baton_model::Reuse::Always;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let origin = std::thread::spawn(move || {
        let mut kept: Vec<_> = (0..KEPT).map(|_| listening.accept().expect("the proxy connects").0).collect();
        for stream in &mut kept {
            read_head(stream).expect("a request");
        }
        for stream in &mut kept {
            stream.write_all(answer).expect("the proxy reads");
        }
        // Each of them closes when it is used again; a new one is served.
        let closing = kept.into_iter().map(|mut stream| std::thread::spawn(move || read_head(&mut stream)));
        let closing: Vec<_> = closing.collect();
        let (mut stream, _) = listening.accept().expect("the proxy connects anew");
        read_head(&mut stream).expect("the request again");
        stream.write_all(answer).expect("the proxy reads");
        (closing, stream)
    });
    let served = Served::new(proxy);
    let mut clients: Vec<_> = (0..KEPT).map(|_| served.connect()).collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    }
    let expect = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    for client in &mut clients {
        read_exactly(client, expect);
    }
    clients[0].write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    read_exactly(&mut clients[0], expect);
    served.end();
    let (closing, _stream) = origin.join().expect("the origin ends");
    let met = closing.into_iter().filter_map(|thread| thread.join().expect("it ends")).count();
    assert_eq!(met, 1);
}

#[test]
fn a_last_response_arrives_whole_though_another_request_is_on_its_way() {
    const BODY: usize = 8 << 20;
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut proxy = listen(Mode::Http, listening.local_addr().expect("bound"));
    proxy.http.connection = baton_model::ConnectionMode::Close;
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listening.accept().expect("the proxy connects");
        read_head(&mut stream).expect("a request");
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").expect("sent");
        stream.write_all(&vec![b'x'; BODY]).expect("all is taken");
    });
    let served = Served::new(proxy);
    let mut client = served.connect();
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    assert!(read_head(&mut client).expect("an answer").ends_with("connection: close\r\n\r\n"));
    client.write_all(b"GET /2 HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut body = Vec::new();
    client.read_to_end(&mut body).expect("no reset");
    assert_eq!(body.len(), BODY);
    origin.join().expect("the origin ends");
    served.end();
}

#[test]
fn idle_connections_and_counters_end_with_their_backend() {
    let (address, thread) = origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 1);
    let mut proxy = listen(Mode::Http, address);
    proxy.http.reuse = baton_model::Reuse::Always;
    let mut served = Served::new(proxy);
    let mut client = served.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    read_exactly(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    let state = served.registry.backend_state("web").and_then(|backend| backend.server("s1"));
    let state = Arc::downgrade(&state.expect("in use"));
    let mut other = listen(Mode::Http, address);
    other.name = "other".into();
    served.apply(other);
    drop(client);
    thread.join().expect("the origin reads the end of its only connection");
    let patience = Instant::now() + Duration::from_secs(10);
    while state.upgrade().is_some() {
        assert!(Instant::now() < patience, "the server's state is kept");
        std::thread::yield_now();
    }
    served.end();
}

#[test]
fn a_preparation_that_is_given_up_leaves_no_counters() {
    let (address, _) = dead_end();
    let served = Served::new(listen(Mode::Http, address));
    let mut proxy = listen(Mode::Http, address);
    proxy.servers.push(server("s2", address));
    let model = Arc::new(Model { proxies: vec![Arc::new(proxy)], ..Model::default() });
    let prepare = || {
        let now = Instant::now();
        let asked = (model.clone(), &CompiledRules::default());
        let files = (&NoFiles as &dyn Files, Connectors::default());
        Generation::prepare(None, asked, 1000, &served.registry, files, now).expect("valid")
    };
    let counters = |generation: &Generation, name| Arc::downgrade(&generation.backends["web"].servers[name].counters);
    let given_up = prepare();
    let (of_old, of_new) = (counters(&given_up, "s1"), counters(&given_up, "s2"));
    drop(given_up);
    assert!(of_old.upgrade().is_some(), "the counters in use stay");
    assert!(of_new.upgrade().is_none(), "those of a server that never was are gone");
    let committed = prepare().commit(None, &served.registry, Instant::now());
    let again = prepare();
    for name in ["s1", "s2"] {
        assert!(counters(&again, name).ptr_eq(&counters(&committed, name)), "{name} goes on counting");
    }
    served.end();
}

/// An address that accepts and says nothing.
fn dead_end() -> (SocketAddr, TcpListener) {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    (listening.local_addr().expect("bound"), listening)
}

#[test]
fn a_connection_whose_server_took_only_a_part_of_a_body_is_not_used_again() {
    const BODY: usize = 1 << 20;
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    let (has_response, answered) = std::sync::mpsc::channel();
    let (resets, reset) = std::sync::mpsc::channel();
    let origin = std::thread::spawn(move || {
        let (mut first, _) = listening.accept().expect("the proxy connects");
        read_head(&mut first).expect("a request");
        first.write_all(answer.as_bytes()).expect("the proxy reads");
        // Bytes of the body lie unread: this resets the connection, and would take the response with it if that was not read.
        answered.recv().expect("the client has its response");
        drop(first);
        resets.send(()).expect("the client waits");
        let (mut second, _) = listening.accept().expect("the proxy connects again");
        let head = read_head(&mut second).expect("another request");
        let mut body = [0; 3];
        second.read_exact(&mut body).expect("its body");
        second.write_all(answer.as_bytes()).expect("the proxy reads");
        (head, body)
    });
    let mut proxy = listen(Mode::Http, address);
    proxy.http.reuse = baton_model::Reuse::Always;
    let served = Served::new(proxy);
    let mut client = served.connect();
    write!(client, "POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\nbegun").expect("sent");
    read_exactly(&mut client, answer);
    has_response.send(()).expect("the origin waits");
    reset.recv().expect("the origin has closed");
    client.write_all(&vec![b'x'; BODY - "begun".len()]).expect("the proxy takes the rest");
    client.write_all(b"POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc").expect("sent");
    read_exactly(&mut client, answer);
    let (head, body) = origin.join().expect("the origin ends");
    assert!(head.starts_with("POST /2 "), "{head}");
    assert_eq!(&body, b"abc");
    served.end();
}
