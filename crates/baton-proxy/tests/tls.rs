//! TLS with clients: whole connections through one core.

#[path = "support/certificates.rs"]
mod certificates;
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_model::{BindOptions, Mode, Proxy};
use baton_proxy::Counter;
use baton_tls::Acceptor;
use baton_tls::rustls::pki_types::ServerName;
use baton_tls::rustls::version::{TLS12, TLS13};
use baton_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use certificates::{Ends, NAME};
use support::{Served, listen};

type Secure = StreamOwned<ClientConnection, TcpStream>;

/// What the tests look at after the connection: the proxy with TLS in front of `origin`.
struct Setting {
    served: Served,
    client: Arc<ClientConfig>,
}

impl Setting {
    fn new(proxy: Proxy, ends: Ends) -> Setting {
        Setting::with(proxy, ends, BindOptions::default())
    }

    fn with(proxy: Proxy, ends: Ends, options: BindOptions) -> Setting {
        let acceptor = Acceptor::always(Arc::new(ends.server));
        let served = Served::start(proxy, 16384, Some(Arc::new(acceptor)), options);
        Setting { served, client: Arc::new(ends.client) }
    }

    fn connect(&self) -> Secure {
        self.over(self.served.connect())
    }

    fn over(&self, socket: TcpStream) -> Secure {
        let name = ServerName::try_from(NAME).expect("a name");
        let connection = ClientConnection::new(self.client.clone(), name).expect("a client");
        StreamOwned::new(connection, socket)
    }

    fn count(&self, counter: Counter) -> u64 {
        self.served.registry.frontend(&"web".into()).counters.total(counter)
    }
}

/// Both versions, one after the other.
fn both(test: impl Fn(Ends)) {
    test(Ends::of(&[&TLS12]));
    test(Ends::of(&[&TLS13]));
}

/// An origin that answers each request head with what `answer` makes of it, on as many connections as come.
fn origin(answer: impl Fn(&str, &mut TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listening.incoming() {
            let (mut stream, answer) = (stream.expect("the proxy connects"), answer.clone());
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    answer(&head, &mut stream);
                }
            });
        }
    });
    address
}

/// Answers with the path.
fn echo(head: &str, stream: &mut TcpStream) {
    let path = head.split(' ').nth(1).unwrap_or_default();
    let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
}

fn read_head(stream: &mut impl Read) -> Option<String> {
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

fn expect(stream: &mut impl Read, expect: &str) {
    let mut bytes = vec![0; expect.len()];
    stream.read_exact(&mut bytes).expect("a whole response");
    assert_eq!(String::from_utf8_lossy(&bytes), expect);
}

fn echoed(path: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len())
}

/// Bytes that are not the same everywhere.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 9)) as u8).collect()
}

#[test]
fn a_connection_is_kept_for_requests_of_every_spelling() {
    both(|ends| {
        let setting = Setting::new(listen(Mode::Http, origin(echo)), ends);
        let mut client = setting.connect();
        for path in ["/one", "/two"] {
            write!(client, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
            expect(&mut client, &echoed(path));
        }
        // Several requests in one record.
        let requests: String = (0..40).map(|at| format!("GET /{at} HTTP/1.1\r\nhost: x\r\n\r\n")).collect();
        client.write_all(requests.as_bytes()).expect("sent");
        (0..40).for_each(|at| expect(&mut client, &echoed(&format!("/{at}"))));
        // One request in many records.
        for byte in b"GET /bytes HTTP/1.1\r\nhost: x\r\n\r\n" {
            client.write_all(&[*byte]).expect("sent");
            client.flush().expect("sent");
        }
        expect(&mut client, &echoed("/bytes"));
        assert_eq!((setting.count(Counter::TlsSessions), setting.count(Counter::TlsFailures)), (1, 0));
        assert_eq!(setting.served.registry.tls.open.load(Ordering::Relaxed), 1);
        // The end is answered by the end.
        client.conn.send_close_notify();
        client.flush().expect("sent");
        assert_eq!(client.read(&mut [0]).expect("the end, as it should be said"), 0);
        setting.served.end();
    });
}

/// What is over `maxsslconn` waits in the kernel's queue, and is served when there is room.
#[test]
fn connections_over_the_limit_of_tls_wait() {
    let proxy = listen(Mode::Http, origin(echo));
    let mut setting = Setting::new(proxy.clone(), Ends::of(&[&TLS13]));
    setting.served.maxsslconn = Some(1);
    setting.served.apply(proxy);
    let open = || setting.served.registry.tls.open.load(Ordering::Relaxed);
    let ask = |client: &mut Secure| {
        write!(client, "GET /x HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        expect(client, &echoed("/x"));
    };
    let mut first = setting.connect();
    ask(&mut first);
    // Connected, for the kernel does that, and not accepted: requests of the first go on meanwhile.
    let mut second = setting.connect();
    let waiting = std::thread::spawn(move || {
        ask(&mut second);
        second
    });
    (0..50).for_each(|_| ask(&mut first));
    assert_eq!((open(), setting.count(Counter::Connections)), (1, 1));
    drop(first);
    let second = waiting.join().expect("it is served when there is room");
    assert_eq!((open(), setting.count(Counter::Connections)), (1, 2));
    drop(second);
    setting.served.end();
}

#[test]
fn long_bodies_pass_both_ways() {
    const LENGTH: usize = 24 << 20;
    both(|ends| {
        let address = origin(|head, stream| {
            let mut body = vec![0; LENGTH];
            stream.read_exact(&mut body).expect("the whole body");
            assert!(body == pattern(LENGTH), "the body arrives as it was sent: {head}");
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n");
            let _ = stream.write_all(&body);
        });
        let setting = Setting::new(listen(Mode::Http, address), ends);
        let mut client = setting.connect();
        for _ in 0..2 {
            write!(client, "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n").expect("sent");
            client.write_all(&pattern(LENGTH)).expect("sent");
            expect(&mut client, &format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n"));
            let mut body = vec![0; LENGTH];
            client.read_exact(&mut body).expect("the whole body");
            assert!(body == pattern(LENGTH), "the answer arrives as it was sent");
        }
        setting.served.end();
    });
}

#[test]
fn short_records_pass_too() {
    both(|mut ends| {
        ends.server.max_fragment_size = Some(64);
        ends.client.max_fragment_size = Some(32);
        let setting = Setting::new(listen(Mode::Http, origin(echo)), ends);
        let mut client = setting.connect();
        for _ in 0..3 {
            let path = format!("/{}", "x".repeat(9000));
            write!(client, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
            expect(&mut client, &echoed(&path));
        }
        setting.served.end();
    });
}

#[test]
fn keys_may_change_in_the_middle() {
    let setting = Setting::new(listen(Mode::Http, origin(echo)), Ends::of(&[&TLS13]));
    let mut client = setting.connect();
    for at in 0..5 {
        let path = format!("/{at}");
        write!(client, "GET {path} HTTP/1.1\r\nho").expect("sent");
        client.conn.refresh_traffic_keys().expect("TLS 1.3");
        write!(client, "st: x\r\n\r\n").expect("sent");
        expect(&mut client, &echoed(&path));
    }
    setting.served.end();
}

#[test]
fn sessions_are_taken_up_again() {
    both(|ends| {
        let setting = Setting::new(listen(Mode::Http, origin(echo)), ends);
        for _ in 0..3 {
            let mut client = setting.connect();
            write!(client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
            expect(&mut client, &echoed("/"));
        }
        assert_eq!((setting.count(Counter::TlsSessions), setting.count(Counter::TlsResumed)), (3, 2));
        setting.served.end();
    });
}

#[test]
fn tcp_passes_with_each_direction_ending_by_itself() {
    both(|ends| {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let setting = Setting::new(listen(Mode::Tcp, listening.local_addr().expect("bound")), ends);
        let mut client = setting.connect();
        client.write_all(b"to the server").expect("sent");
        let (mut server, _) = listening.accept().expect("the proxy connects");
        expect(&mut server, "to the server");
        // The client says that it has said all; the server may still speak.
        client.conn.send_close_notify();
        client.flush().expect("sent");
        assert_eq!(server.read(&mut [0]).expect("the end"), 0);
        server.write_all(b"to the client").expect("sent");
        expect(&mut client, "to the client");
        drop(server);
        assert_eq!(client.read(&mut [0]).expect("the end, as it should be said"), 0);
        setting.served.end();
    });
}

#[test]
fn a_server_may_speak_first() {
    both(|ends| {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let setting = Setting::new(listen(Mode::Tcp, listening.local_addr().expect("bound")), ends);
        let mut client = setting.connect();
        client.flush().expect("the handshake");
        while client.conn.is_handshaking() {
            client.conn.complete_io(&mut client.sock).expect("the handshake");
        }
        let (mut server, _) = listening.accept().expect("the proxy connects");
        server.write_all(b"220 hello").expect("sent");
        expect(&mut client, "220 hello");
        // And it may end first.
        drop(server);
        assert_eq!(client.read(&mut [0]).expect("the end, as it should be said"), 0);
        setting.served.end();
    });
}

#[test]
fn a_proxy_header_comes_before_tls() {
    let options = BindOptions { accept_proxy: true, ..BindOptions::default() };
    let setting = Setting::with(listen(Mode::Http, origin(echo)), Ends::of(&[&TLS13]), options);
    let mut client = setting.served.connect();
    // The header and the hello in one segment, then one after the other.
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 5000 443\r\n";
    client.set_nodelay(true).expect("an option");
    let mut secure = setting.over(client.try_clone().expect("a descriptor"));
    let mut first = header.to_vec();
    secure.conn.write_tls(&mut first).expect("a hello");
    client.write_all(&first).expect("sent");
    write!(secure, "GET /a HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
    expect(&mut secure, &echoed("/a"));
    let mut client = setting.served.connect();
    client.write_all(header).expect("sent");
    let mut secure = setting.over(client);
    write!(secure, "GET /b HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
    expect(&mut secure, &echoed("/b"));
    setting.served.end();
}

#[test]
fn established_connections_do_not_notice_a_new_certificate() {
    both(|ends| {
        let address = origin(echo);
        let mut setting = Setting::new(listen(Mode::Http, address), ends);
        let mut before = setting.connect();
        write!(before, "GET /before HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        expect(&mut before, &echoed("/before"));
        let next = Ends::of(&[&TLS12, &TLS13]);
        setting.served.encrypt(Acceptor::always(Arc::new(next.server)));
        setting.served.apply(listen(Mode::Http, address));
        // A new connection does, for it trusts another one.
        let mut refused = setting.connect();
        refused.conn.complete_io(&mut refused.sock).expect_err("a certificate that it does not know");
        setting.client = Arc::new(next.client);
        let mut after = setting.connect();
        for at in 0..3 {
            for client in [&mut before, &mut after] {
                let path = format!("/{at}");
                write!(client, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
                expect(client, &echoed(&path));
            }
        }
        setting.served.end();
    });
}

#[test]
fn what_is_asked_to_be_spliced_is_copied() {
    both(|ends| {
        let address = origin(|_, stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 4 << 20);
            let _ = stream.write_all(&pattern(4 << 20));
        });
        let mut proxy = listen(Mode::Http, address);
        proxy.tcp.splice_auto = true;
        let setting = Setting::new(proxy, ends);
        let mut client = setting.connect();
        write!(client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        expect(&mut client, &format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 4 << 20));
        let mut body = vec![0; 4 << 20];
        client.read_exact(&mut body).expect("the whole body");
        assert!(body == pattern(4 << 20));
        setting.served.end();
    });
}

#[test]
fn a_switched_connection_is_a_tunnel() {
    both(|ends| {
        let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: foo\r\n\r\n";
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let setting = Setting::new(listen(Mode::Http, listening.local_addr().expect("bound")), ends);
        let mut client = setting.connect();
        write!(client, "GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: foo\r\n\r\n").expect("sent");
        let (mut server, _) = listening.accept().expect("the proxy connects");
        read_head(&mut server).expect("a request");
        server.write_all(answer.as_bytes()).expect("sent");
        expect(&mut client, answer);
        for round in 0..3 {
            write!(client, "up {round}").expect("sent");
            expect(&mut server, &format!("up {round}"));
            write!(server, "down {round}").expect("sent");
            expect(&mut client, &format!("down {round}"));
        }
        drop(server);
        assert_eq!(client.read(&mut [0]).expect("the end, as it should be said"), 0);
        setting.served.end();
    });
}

/// What a client gets that sends these bytes and no more, and what was counted.
fn answer_to(bytes: &[u8], close: bool, mut proxy: Proxy) -> (Vec<u8>, u64) {
    proxy.timeouts.client = Some(Duration::from_millis(if close { 20_000 } else { 50 }));
    let setting = Setting::new(proxy, Ends::of(&[&TLS12, &TLS13]));
    let mut client = setting.served.connect();
    client.write_all(bytes).expect("sent");
    if close {
        client.shutdown(Shutdown::Write).expect("open");
    }
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    let failures = setting.count(Counter::TlsFailures);
    setting.served.end();
    (answer, failures)
}

#[test]
fn what_is_no_tls_is_refused_by_an_alert_and_counted() {
    let proxy = || listen(Mode::Http, "127.0.0.1:9".parse().expect("an address"));
    let alert = |description: u8| vec![21, 3, 3, 0, 2, 2, description];
    let check = |bytes: &[u8], close: bool, expect: &[Vec<u8>]| {
        let (answer, failures) = answer_to(bytes, close, proxy());
        assert!(expect.contains(&answer), "{:?} to {}", answer, bytes.escape_ascii());
        assert_eq!(failures, 1, "{}", bytes.escape_ascii());
    };
    let protocol = [alert(50), alert(10), alert(70), alert(22)];
    check(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", true, &protocol);
    check(&[0x16, 3, 1, 0xff, 0xff, 1, 0, 0, 0], true, &protocol);
    check(&[0x16, 3, 1, 0, 4, 2, 0, 0, 0], true, &protocol);
    check(&[0x17, 3, 3, 0, 4, 1, 2, 3, 4], true, &protocol);
    // More than fits, with the alert not lost to what is unread.
    check(&[&[0x16, 3, 1, 0x7f, 0xff, 1, 0, 0x7f, 0xfb][..], &[b'x'; 32_000]].concat(), true, &protocol);
    // A hello of TLS 1.0.
    let mut old = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 1];
    old.extend([7; 32]);
    old.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    check(&old, true, &[alert(70)]);
    // Half a hello, then the end, or silence.
    let half = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    check(&half, true, &[vec![]]);
    check(&half, false, &[vec![]]);
    check(b"", true, &[vec![]]);
    check(b"", false, &[vec![]]);
}

#[test]
fn a_connection_that_breaks_the_protocol_ends() {
    both(|ends| {
        let setting = Setting::new(listen(Mode::Http, origin(echo)), ends);
        let mut client = setting.connect();
        write!(client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        expect(&mut client, &echoed("/"));
        // A record that nobody encrypted with these keys.
        client.sock.write_all(&[&[0x17, 3, 3, 0, 40][..], &[7; 40]].concat()).expect("sent");
        let error = client.read(&mut [0]).expect_err("an alert");
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        setting.served.end();
    });
}
