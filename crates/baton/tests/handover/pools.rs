//! Idle connections to servers go to the new process: a takeover opens none, and none is used that was opened by other settings.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use baton_control::handover::kinds::{MoveKind, MoveKinds};
use baton_control::handover::message::Message;
use baton_control::handover::record::FORMAT;
use baton_control::protocol::Status;
use baton_prove::OriginHandle;
use baton_prove::certificates::{Authority, CertificateSpec};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion, version};

use crate::peers::Taker;
use crate::support::{Proxy, free_address, until};
use crate::tls::VERSIONS;
use crate::tunnels::replaced;
use crate::{Client, config, origins};

/// Takeovers one after the other.
const TAKEOVERS: usize = 4;
/// Clients that ask all the time.
const CLIENTS: usize = 8;
/// Connections to a server: as many as there are requests at once, and one for each takeover, since on busy CPUs a request may come before an idle
/// connection does. Without moves there would be one for each client and takeover.
const CONNECTIONS_MAX: usize = CLIENTS + TAKEOVERS;

/// One thread, so that what is idle is there for every request.
fn one_thread(web: SocketAddr, servers: &[SocketAddr]) -> String {
    config(web, servers).replace(" nbthread 2\n", " nbthread 1\n")
}

/// An old process with one idle connection to its server, and the client that it was opened for.
fn kept() -> (OriginHandle, SocketAddr, Proxy, Client) {
    let (mut origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&one_thread(web, &servers));
    let mut client = Client::connect(web);
    client.get("/");
    (origins.remove(0), web, old, client)
}

/// A server with TLS. It ends with the test.
struct SecureOrigin {
    address: SocketAddr,
    /// Handshakes that it has made, requests, and connections that are open.
    counts: Arc<[AtomicUsize; 3]>,
    /// Responses to `/poll`, and the second half of those to `/half`, come from then on.
    is_over: Arc<AtomicBool>,
}

impl SecureOrigin {
    fn start(authority: &Authority, version: &'static SupportedProtocolVersion) -> SecureOrigin {
        let issued = authority.issue(&CertificateSpec::server(["a.example"])).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
        let builder = builder.expect("a version").with_no_client_auth();
        let config = Arc::new(builder.with_single_cert(issued.chain(), issued.key()).expect("a key that fits"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counts: Arc<[AtomicUsize; 3]> = Arc::default();
        let is_over: Arc<AtomicBool> = Arc::default();
        let all = (counts.clone(), is_over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, (counts, is_over)) = (config.clone(), all.clone());
                std::thread::spawn(move || {
                    let tls = ServerConnection::new(config).expect("it is right");
                    counts[2].fetch_add(1, Ordering::Relaxed);
                    let _ = SecureOrigin::serve(StreamOwned::new(tls, stream), &counts, &is_over);
                    counts[2].fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        SecureOrigin { address, counts, is_over }
    }

    /// Serves to the end of the connection. Behind each response comes what belongs to TLS alone: a connection is idle with it unread.
    fn serve(
        mut stream: StreamOwned<ServerConnection, TcpStream>,
        counts: &[AtomicUsize; 3],
        is_over: &AtomicBool,
    ) -> std::io::Result<()> {
        let wait = || {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        counts[0].fetch_add(1, Ordering::Relaxed);
        let (mut request, mut some) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut some)?;
            if count == 0 {
                return Ok(());
            }
            request.extend_from_slice(&some[..count]);
            if request.ends_with(b"\r\n\r\n") {
                counts[1].fetch_add(1, Ordering::Relaxed);
                if request.starts_with(b"GET /poll ") {
                    wait();
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")?;
                if request.starts_with(b"GET /half ") {
                    wait();
                }
                stream.write_all(b"k")?;
                request.clear();
                if stream.conn.protocol_version() == Some(version::TLS13.version) {
                    stream.conn.refresh_traffic_keys().map_err(std::io::Error::other)?;
                    stream.flush()?;
                }
            }
        }
    }

    fn handshakes(&self) -> usize {
        self.counts[0].load(Ordering::Relaxed)
    }

    fn requests(&self) -> usize {
        self.counts[1].load(Ordering::Relaxed)
    }

    fn open(&self) -> usize {
        self.counts[2].load(Ordering::Relaxed)
    }
}

/// As [`one_thread`], by TLS to a server that is verified by this file.
fn secure(web: SocketAddr, servers: &[SocketAddr], authority: &Path) -> String {
    let text = one_thread(web, servers);
    let words = format!("ssl verify required ca-file {} sni str(a.example) pool-purge-delay 10m", authority.display());
    servers.iter().fold(text, |text, server| text.replace(&format!("{server}\n"), &format!("{server} {words}\n")))
}

/// Takes over several times while clients ask: what the last process says of itself.
fn taken_over_under_load(web: SocketAddr, text: &str, requests: impl Fn() -> u64) -> Status {
    let mut now = Proxy::start(text);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = (0..CLIENTS).map(|_| {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let mut client = Client::connect(web);
            while !is_over.load(Ordering::Relaxed) {
                client.get("/");
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    until("all have asked", || requests() > 1000);
    let before = replaced(&mut now, TAKEOVERS);
    let (status, so_far) = (now.status(), requests());
    until("they go on", || requests() > so_far + 500);
    is_over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("no request failed"));
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
    status
}

#[test]
fn a_takeover_under_load_opens_hardly_a_connection_to_a_server() {
    let (origins, servers) = origins(1);
    let web = free_address();
    // None is purged while others run.
    let text = one_thread(web, &servers).trim_end().to_owned() + " pool-purge-delay 10m\n";
    let status = taken_over_under_load(web, &text, || origins[0].requests());
    assert!(origins[0].connections() <= CONNECTIONS_MAX as u64, "{}", origins[0].connections());
    assert!(status.server_connections_arrived > 0, "they came");
}

#[test]
fn a_takeover_under_load_makes_hardly_a_handshake_with_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("Test").expect("an authority");
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, authority.root_pem()).expect("a file");
    let origins = VERSIONS.map(|version| SecureOrigin::start(&authority, version));
    let servers = origins.each_ref().map(|origin| origin.address);
    let web = free_address();
    let requests = || origins.iter().map(|origin| origin.requests() as u64).sum();
    let status = taken_over_under_load(web, &secure(web, &servers, &file), requests);
    for origin in &origins {
        assert!((1..=CONNECTIONS_MAX).contains(&origin.handshakes()), "{}", origin.handshakes());
    }
    assert!(status.server_connections_arrived > 0, "they came");
}

#[test]
fn a_connection_that_was_verified_by_something_else_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let [authority, other] = ["Test", "Other"].map(|name| Authority::new(name).expect("an authority"));
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, authority.root_pem()).expect("a file");
    for version in VERSIONS {
        let origin = SecureOrigin::start(&authority, version);
        let web = free_address();
        let mut now = Proxy::start(&secure(web, &[origin.address], &file));
        let mut client = Client::connect(web);
        client.get("/");
        let mut before = replaced(&mut now, 2);
        client.get("/");
        assert_eq!((origin.handshakes(), now.status().server_connections_arrived), (1, 1));
        // It is the same file, and whom it trusted it trusts still.
        std::fs::write(&file, authority.root_pem() + &other.root_pem()).expect("a file");
        before.extend(replaced(&mut now, 1));
        until("it is closed", || origin.open() == 0);
        assert_eq!(now.status().server_connections_arrived, 0);
        client.get("/");
        assert_eq!(origin.handshakes(), 2);
        std::fs::write(&file, authority.root_pem()).expect("a file");
        before.into_iter().for_each(|old| assert!(old.wait().0.success()));
    }
}

#[test]
fn a_connection_whose_request_has_moved_is_used_again_where_it_is_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let [authority, other] = ["Test", "Other"].map(|name| Authority::new(name).expect("an authority"));
    let file = folder.path().join("authority.pem");
    let check = |path: &str, version, trusts_more: bool, handshakes: usize| {
        std::fs::write(&file, authority.root_pem()).expect("a file");
        let origin = SecureOrigin::start(&authority, version);
        let web = free_address();
        let text = secure(web, &[origin.address], &file);
        let mut now = Proxy::start(&text.replace("global\n", "global\n tune.handover.patience 0\n"));
        let mut client = Client::connect(web);
        client.ask(path);
        until("it is at the server", || origin.requests() == 1);
        if trusts_more {
            std::fs::write(&file, authority.root_pem() + &other.root_pem()).expect("a file");
        }
        let before = replaced(&mut now, 1);
        origin.is_over.store(true, Ordering::Relaxed);
        assert!(client.answer().starts_with("http/1.1 200"));
        client.get("/");
        assert_eq!(origin.handshakes(), handshakes, "{path} {trusts_more}");
        before.into_iter().for_each(|old| assert!(old.wait().0.success()));
    };
    check("/poll", &version::TLS13, false, 1);
    check("/half", &version::TLS12, false, 1);
    check("/poll", &version::TLS12, true, 2);
    check("/half", &version::TLS13, true, 2);
}

#[test]
fn a_process_that_takes_no_tls_gets_none_to_servers() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("Test").expect("an authority");
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, authority.root_pem()).expect("a file");
    let origin = SecureOrigin::start(&authority, &version::TLS13);
    let web = free_address();
    let old = Proxy::start(&secure(web, &[origin.address], &file));
    Client::connect(web).get("/");
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_with(FORMAT, [MoveKind::ServerPools].into_iter().collect());
    assert!(old.wait().0.success());
    until("it is closed", || origin.open() == 0);
    assert!(taker.given.is_empty());
}

#[test]
fn a_connection_goes_with_what_it_has_carried() {
    let (origins, servers) = origins(1);
    let web = free_address();
    let mut now = Proxy::start(&(one_thread(web, &servers).trim_end().to_owned() + " max-reuse 3\n"));
    let mut client = Client::connect(web);
    // The first process has the file.
    let mut before = Vec::new();
    for count in 1..=9_u64 {
        client.get("/");
        // Four requests go over each.
        assert_eq!(origins[0].connections(), count.div_ceil(4), "{count}");
        before.extend(replaced(&mut now, usize::from(count.is_multiple_of(2))));
    }
}

#[test]
fn a_reload_closes_no_connection_to_a_server_whose_checks_alone_have_tls() {
    let (origins, servers) = origins(1);
    let web = free_address();
    let text = one_thread(web, &servers).trim_end().to_owned() + " check-ssl verify none pool-purge-delay 10m\n";
    let proxy = Proxy::start(&text);
    let mut client = Client::connect(web);
    client.get("/");
    proxy.change(&text.replace("timeout connect 5s", "timeout connect 6s"));
    client.get("/");
    assert_eq!(origins[0].connections(), 1, "it is used again");
}

#[test]
fn the_page_shows_what_has_moved() {
    let (_origins, servers) = origins(1);
    let (web, page) = (free_address(), free_address());
    let text = one_thread(web, &servers) + &format!("listen page\n bind {page}\n stats enable\n stats uri /\n");
    let old = Proxy::start(&text);
    let mut client = Client::connect(web);
    client.get("/");
    let new = old.replace(&[]);
    until("both have moved", || {
        let status = new.status();
        (status.connections_arrived, status.server_connections_arrived) == (1, 1)
    });
    let mut events = Client::connect(page);
    events.ask("/;events");
    let mut shown = String::new();
    while !shown.contains("\"moved\":") {
        let mut some = [0; 4096];
        let count = events.0.read(&mut some).expect("it goes on");
        assert!(count > 0, "{shown}");
        shown += &String::from_utf8_lossy(&some[..count]);
    }
    let moved = shown.split("\"moved\":").nth(1).unwrap_or_default();
    assert!(moved.starts_with("{\"arrived\":1,\"departed\":0,\"servers_arrived\":1,"), "{moved}");
}

#[test]
fn a_connection_that_was_opened_by_other_settings_is_closed() {
    let (origin, web, old, mut client) = kept();
    old.write(&(one_thread(web, &[origin.address()]).trim_end().to_owned() + " source 127.0.0.1\n"));
    let new = old.replace(&[]);
    assert!(old.wait().0.success());
    until("it is closed", || origin.open() == 0);
    assert_eq!(new.status().server_connections_arrived, 0);
    client.get("/");
    assert_eq!(origin.connections(), 2);
}

#[test]
fn the_new_process_has_the_connection_alone_and_takes_it_along_when_it_dies() {
    let (origin, _, old, _client) = kept();
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    let pools: MoveKinds = [MoveKind::ServerPools].into_iter().collect();
    taker.ready_with(FORMAT, pools);
    let Message::Servers(servers) = taker.hear_no_report() else { panic!("servers come before clients") };
    let [record] = &servers.servers[..] else { panic!("{servers:?}") };
    assert_eq!((&*record.backend, &*record.server, record.requests), ("app", "s0", 1));
    until("it is counted", || old.status().server_connections_departed == 1);
    let mut stream = TcpStream::from(taker.given.remove(0));
    stream.set_nonblocking(false).expect("a socket");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is open");
    let mut response = [0; 12];
    stream.read_exact(&mut response).expect("a response");
    assert_eq!(&response, b"HTTP/1.1 200");
    assert_eq!((origin.connections(), origin.open()), (1, 1));
    drop((stream, taker));
    until("nobody has it any more", || origin.open() == 0);
}

#[test]
fn a_process_that_does_not_take_them_gets_none() {
    let (origin, _, old, mut client) = kept();
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    taker.hear_offer();
    drop(taker);
    client.get("/");
    assert_eq!(origin.connections(), 1, "the old process has it still");
    assert!(old.wait().0.success());
}
