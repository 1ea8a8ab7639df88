//! Encrypted connections go to the new process as they are: on both sides, in both versions, in the middle of a record, with keys that change
//! in between.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use baton_control::handover::kinds::MoveKinds;
use baton_control::handover::message::{Message, Take};
use baton_control::handover::record::FORMAT;
use baton_prove::certificates::{Authority, CertificateSpec};
use baton_prove::stream::AnyServer;
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion, version};

use crate::origins;
use crate::peers::Taker;
use crate::support::{PATIENCE, Proxy, free_address, until};
use crate::tunnels::{echo, replaced};

/// Takeovers one after the other.
const TAKEOVERS: usize = 4;
/// Connections of each version.
const EACH: usize = 20;
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

/// A client's connection.
pub struct Secure(pub StreamOwned<ClientConnection, TcpStream>);

impl Read for Secure {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for Secure {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Secure {
    #[track_caller]
    fn connect(address: SocketAddr, version: &'static SupportedProtocolVersion) -> Secure {
        Secure::connect_for(address, version, &[])
    }

    /// Offers these protocols.
    #[track_caller]
    pub fn connect_for(address: SocketAddr, version: &'static SupportedProtocolVersion, alpn: &[&str]) -> Secure {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).expect("a version");
        let mut config = builder.dangerous().with_custom_certificate_verifier(AnyServer::new()).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tls =
            ClientConnection::new(Arc::new(config), "a.example".try_into().expect("a name")).expect("it is right");
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Secure(StreamOwned::new(tls, stream))
    }

    /// Sends a numbered message through an echo, and gets it back.
    #[track_caller]
    fn exchange(&mut self, number: usize) {
        let message = format!("message {number:09} {}\n", "x".repeat(number * 3701 % 40_000));
        self.0.write_all(message.as_bytes()).expect("it is open");
        let mut reply = vec![0; message.len()];
        self.0.read_exact(&mut reply).expect("the same comes back");
        assert!(reply == message.as_bytes(), "{number}: {}", String::from_utf8_lossy(&reply));
    }

    /// The next key, where there is one, and the same from the other end.
    #[track_caller]
    pub fn update_key(&mut self) {
        if self.0.conn.protocol_version() == Some(version::TLS13.version) {
            self.0.conn.refresh_traffic_keys().expect("there is a next key");
        }
    }

    /// Asks, and is answered well; the fields of the response that are about TLS.
    #[track_caller]
    fn get(&mut self) -> String {
        self.0.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").expect("it is open");
        self.answer()
    }

    #[track_caller]
    fn answer(&mut self) -> String {
        let mut all = String::new();
        loop {
            if let Some((head, body)) = all.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.expect("our origins say it").parse::<usize>().expect("a number") {
                    assert!(head.starts_with("http/1.1 200"), "{head}");
                    let known = head.lines().find(|line| line.starts_with("x-known: "));
                    return known.expect("it is set").to_owned()
                        + head.rsplit_once("connection: ").map_or("", |_| " closed");
                }
            }
            let mut some = [0; 4096];
            let count = self.0.read(&mut some).expect("an answer in time");
            assert!(count > 0, "closed after {all:?}");
            all += &String::from_utf8_lossy(&some[..count]).to_ascii_lowercase();
        }
    }

    /// What it would send now, as records.
    fn records(&mut self, plain: &[u8]) -> Vec<u8> {
        self.0.conn.writer().write_all(plain).expect("memory");
        let mut bytes = Vec::new();
        while self.0.conn.wants_write() {
            self.0.conn.write_tls(&mut bytes).expect("memory");
        }
        bytes
    }
}

/// A certificate with its key, in a file.
pub fn certificate(folder: &Path) -> String {
    let authority = Authority::new("Test").expect("an authority");
    let issued = authority.issue(&CertificateSpec::server(["a.example"])).expect("a certificate");
    let path = folder.join("a.pem");
    std::fs::write(&path, issued.bundle_pem()).expect("a file");
    path.display().to_string()
}

const KNOWN: &str = "%[ssl_fc_protocol],%[ssl_fc_cipher],%[ssl_fc_sni],%[ssl_fc_is_resumed],%[ssl_fc_has_crt],%[ssl_f_serial,hex],%[ssl_f_sha1,hex]";

/// HTTP over TLS, and in `mode tcp` TLS on both sides of what goes to an echo: `tcp` encrypts towards `inner`.
fn config(folder: &Path, [web, tcp, inner]: [SocketAddr; 3], servers: &[SocketAddr]) -> String {
    let pem = certificate(folder);
    let (server, echo) = (servers[0], echo());
    format!(
        "global\n nbthread 2\n maxconn 2000\n log stderr format raw local0\ndefaults\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
         frontend web\n mode http\n bind {web} ssl crt {pem}\n http-response set-header x-known {KNOWN}\n default_backend app\n\
         backend app\n mode http\n server s0 {server}\n\
         frontend tcp\n log global\n log-format \"%[ssl_fc_protocol] %[ssl_fc_cipher] %B\"\n bind {tcp} ssl crt {pem}\n default_backend to-inner\n\
         backend to-inner\n server s0 {inner} ssl verify none\n\
         frontend inner\n bind {inner} ssl crt {pem}\n default_backend to-echo\n\
         backend to-echo\n server s0 {echo}\n"
    )
}

fn all_end_well(before: Vec<Proxy>) {
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
}

fn addresses() -> [SocketAddr; 3] {
    [free_address(), free_address(), free_address()]
}

#[test]
fn kept_connections_and_sessions_go_with_every_takeover() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_origins, servers) = origins(1);
    let places @ [web, tcp, _] = addresses();
    let mut now = Proxy::start(&config(folder.path(), places, &servers));
    let connect = |address| -> Vec<Secure> {
        let versions = VERSIONS.into_iter().flat_map(|version| [version; EACH]);
        versions.map(|version| Secure::connect(address, version)).collect()
    };
    let (mut kept, mut sessions) = (connect(web), connect(tcp));
    let known: Vec<String> = kept.iter_mut().map(Secure::get).collect();
    assert!(known[0].contains("tlsv1.2,ecdhe-") && known[EACH].contains("tlsv1.3,tls_"), "{known:?}");
    let mut number = 0;
    let mut talk = |kept: &mut Vec<Secure>, sessions: &mut Vec<Secure>| {
        for (client, known) in kept.iter_mut().zip(&known) {
            client.update_key();
            assert_eq!(client.get(), *known);
        }
        for session in sessions.iter_mut() {
            number += 1;
            session.exchange(number);
            session.update_key();
            session.exchange(number + 1000);
        }
    };
    talk(&mut kept, &mut sessions);
    // The first one has the file.
    let mut before = Vec::new();
    for _ in 0..TAKEOVERS {
        before.extend(replaced(&mut now, 1));
        talk(&mut kept, &mut sessions);
        assert_eq!(now.status().connections_staying, Default::default());
    }
    all_end_well(before);
    // Each session is two: from the client to itself, and to the echo.
    until("all have come", || now.status().connections == 2 * EACH + 2 * 2 * EACH);
    for mut session in sessions {
        session.0.conn.send_close_notify();
        session.0.flush().expect("it is open");
        assert_eq!(session.0.read(&mut [0; 10]).expect("the end is said"), 0);
    }
    until("each is logged with what was agreed on", || {
        let said = now.said();
        ["TLSv1.3 TLS_", "TLSv1.2 ECDHE-"].map(|text| said.matches(text).count()) == [EACH; 2]
    });
}

#[test]
fn half_a_record_goes_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_origins, servers) = origins(1);
    let places @ [web, tcp, _] = addresses();
    let mut now = Proxy::start(&config(folder.path(), places, &servers));
    let mut before = Vec::new();
    for version in VERSIONS {
        let (mut kept, mut session) = (Secure::connect(web, version), Secure::connect(tcp, version));
        let known = kept.get();
        session.exchange(1);
        let request = kept.records(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        let message = session.records(&[7; 30_000]);
        // What was read of a record is in the old process's memory, at every length of it.
        for (part, next) in [(0, 3), (3, 20), (20, request.len())] {
            kept.0.sock.write_all(&request[part..next]).expect("it is open");
            session.0.sock.write_all(&message[part..next]).expect("it is open");
            if next < request.len() {
                before.extend(replaced(&mut now, 1));
            }
        }
        session.0.sock.write_all(&message[request.len()..]).expect("it is open");
        assert_eq!(kept.answer(), known);
        let mut back = vec![0; 30_000];
        session.0.read_exact(&mut back).expect("the same comes back");
        assert!(back.iter().all(|byte| *byte == 7));
    }
    all_end_well(before);
}

#[test]
fn websockets_over_tls_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let servers = [listener.local_addr().expect("bound")];
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).is_err() {
                        return;
                    }
                    head.push(byte[0]);
                }
                let response = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                                sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
                let mut some = [0; 65536];
                let mut written = stream.write_all(response.as_bytes());
                while written.is_ok()
                    && let Ok(count @ 1..) = stream.read(&mut some)
                {
                    written = stream.write_all(&some[..count]);
                }
            });
        }
    });
    let places @ [web, ..] = addresses();
    let mut now = Proxy::start(&config(folder.path(), places, &servers));
    let open = |version| {
        let mut client = Secure::connect(web, version);
        let request = "GET /chat HTTP/1.1\r\nhost: a.example\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
        client.0.write_all(request.as_bytes()).expect("it is open");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.0.read_exact(&mut byte).expect("a response");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        client
    };
    let mut clients: Vec<Secure> = VERSIONS.iter().map(|version| open(version)).collect();
    let mut before = Vec::new();
    for number in 0..3 {
        clients.iter_mut().for_each(|client| client.exchange(number));
        before.extend(replaced(&mut now, 1));
        clients.iter_mut().for_each(Secure::update_key);
    }
    clients.iter_mut().for_each(|client| client.exchange(9));
    all_end_well(before);
}

/// Bytes of a download.
const LENGTH: usize = 12 << 20;

/// The byte at this place of a download.
fn byte_at(place: usize) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

#[test]
fn downloads_go_on_whose_clients_are_slow() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let servers = [listener.local_addr().expect("bound")];
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut stream = stream;
                stream.read_exact(&mut [0; 16]).expect("a request");
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n");
                let body: Vec<u8> = (0..LENGTH).map(byte_at).collect();
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
                let _ = stream.read(&mut [0; 1000]);
            });
        }
    });
    let places @ [web, ..] = addresses();
    let text = config(folder.path(), places, &servers).replacen("global\n", "global\n tune.handover.patience 0\n", 1);
    let mut now = Proxy::start(&text);
    let begin = |version| {
        let mut client = Secure::connect(web, version);
        client.0.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").expect("it is open");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.0.read_exact(&mut byte).expect("a response");
            head.push(byte[0]);
        }
        (client, 0)
    };
    let mut clients: Vec<(Secure, usize)> = VERSIONS.iter().map(|version| begin(version)).collect();
    let read = |(client, got): &mut (Secure, usize), most: usize| {
        let mut some = vec![0; most.min(LENGTH - *got)];
        client.0.read_exact(&mut some).expect("it goes on");
        assert!((*got..).zip(&some).all(|(place, byte)| byte_at(place) == *byte), "in order, behind {got}");
        *got += some.len();
    };
    let mut before = Vec::new();
    for round in 0..4 {
        // Most waits for the client: in sockets, and encrypted in the process's memory.
        clients.iter_mut().for_each(|client| read(client, 100_000 + round * 7));
        before.extend(replaced(&mut now, 1));
    }
    clients.iter_mut().for_each(|client| read(client, LENGTH));
    assert!(clients.iter().all(|(_, got)| *got == LENGTH));
    all_end_well(before);
}

/// An old process with a kept connection and a session, of which it told one that takes over.
fn offered(
    kinds: &str,
    expect: usize,
) -> (tempfile::TempDir, Vec<baton_prove::OriginHandle>, Proxy, Taker, [Secure; 2], u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let (origins, servers) = origins(1);
    let places @ [web, _, inner] = addresses();
    let text = config(folder.path(), places, &servers).replace(" nbthread 2\n", " nbthread 1\n");
    let old = Proxy::start(&text);
    let mut clients = [web, inner].map(|address| Secure::connect(address, &version::TLS13));
    clients[0].get();
    clients[1].exchange(1);
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    let kinds: MoveKinds = serde_json::from_str(kinds).expect("words");
    taker.ready_with(FORMAT, kinds);
    let mut batch = 0;
    if expect > 0 {
        let offer = taker.hear_offer();
        assert_eq!(offer.connections.len(), expect);
        assert!(offer.connections.iter().all(|record| record.tls.is_some()));
        batch = offer.batch;
    }
    (folder, origins, old, taker, clients, batch)
}

#[test]
fn a_process_that_does_not_know_tls_gets_none() {
    let (_folder, _origins, old, taker, [mut kept, mut session], _) = offered("[]", 0);
    until("they stay", || old.status().connections_staying == [("tls".to_owned(), 2)].into());
    session.exchange(2);
    assert!(kept.get().ends_with(" closed"), "the old process has it still");
    drop((taker, session));
    assert!(old.wait().0.success());
}

#[test]
fn the_new_process_is_killed_after_an_offer_and_keys_come_back() {
    let (_folder, _origins, old, taker, [mut kept, mut session], _) = offered(r#"["tls"]"#, 2);
    drop(taker);
    session.exchange(2);
    session.update_key();
    session.exchange(3);
    assert!(kept.get().ends_with(" closed"), "the old process has it still");
    drop(session);
    assert!(old.wait().0.success());
}

#[test]
fn a_connection_that_was_given_is_not_touched_by_the_old_process() {
    let (_folder, _origins, old, mut taker, [mut kept, session], batch) = offered(r#"["tls"]"#, 2);
    taker.say(Message::Take(Take { batch, staying: Vec::new() }));
    assert!(matches!(taker.hear_no_report(), Message::Give(give) if give.descriptors == 3), "both of the session");
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    // Not even its end was said: whoever has the socket is the only one to say anything.
    kept.0.sock.set_nonblocking(true).expect("a socket");
    let silence = kept.0.sock.peek(&mut [0]).expect_err("nothing came");
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    drop(taker);
    kept.0.sock.set_nonblocking(false).expect("a socket");
    assert_eq!(kept.0.sock.read(&mut [0; 100]).unwrap_or(0), 0, "those that were given are lost with it");
    drop(session);
}
