//! What has no place to rest goes to the new process all the same: a request whose head has begun to come, and bytes that nobody takes.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baton_control::handover::kinds::{MoveKind, MoveKinds};
use baton_control::handover::record::FORMAT;

use crate::peers::Taker;
use crate::support::{PATIENCE, Proxy, free_address, frontend_counter, until};
use crate::tls::{Secure, VERSIONS, certificate};
use crate::tunnels::{connect, replaced};
use crate::{Client, in_flight, origins};

/// Takeovers one after the other.
const TAKEOVERS: usize = 3;
/// Bytes that are sent while nobody reads them: more than all buffers take.
const LARGE: u64 = 32 << 20;

/// Nothing waits for anything, and the log has how long a head took.
fn config(web: SocketAddr, servers: &[SocketAddr]) -> String {
    crate::config(web, servers)
        .replace(" nbthread 2\n", " nbthread 1\n tune.handover.patience 0\n log stderr format raw local0\n")
        .replace(" mode http\n", " mode http\n log global\n log-format \"head %TR of %HU by %ci, %ST\"\n")
}

/// Sends the first part of a head, which is read.
fn begin(client: &mut Client, web: SocketAddr, part: &str) {
    client.0.write_all(part.as_bytes()).expect("it is open");
    // Whoever answers this has read that.
    Client::connect(web).get("/other");
}

#[test]
fn a_head_goes_with_every_takeover_as_far_as_it_has_come() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let mut now = Proxy::start(&config(web, &servers));
    let (mut first, mut later, mut silent) = (Client::connect(web), Client::connect(web), Client::connect(web));
    later.get("/once");
    begin(&mut first, web, "GET /first HT");
    begin(&mut later, web, "GET /later HTTP/1.1\r\nho");
    begin(&mut silent, web, "\r\n");
    let begun = Instant::now();
    let before = replaced(&mut now, TAKEOVERS);
    let waited = begun.elapsed();
    for (client, rest) in [(&mut first, "TP/1.1\r\nhost: test\r\n\r\n"), (&mut later, "st: test\r\n\r\n")] {
        client.0.write_all(rest.as_bytes()).expect("it is open");
        let answer = client.answer();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        client.get("/again");
    }
    silent.get("/silent");
    for path in ["/first", "/later"] {
        let logged = || {
            let said = now.said();
            let line = said.lines().find(|line| line.contains(&format!(" of {path} by 127.0.0.1, 200")));
            line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok())
        };
        until("it is logged", || logged().is_some());
        // The time on the way between processes is not counted.
        let took = Duration::from_millis(logged().unwrap_or_default());
        assert!(2 * took >= waited, "{path} began {waited:?} ago, and took {took:?}");
    }
    until("all have gone over three connections", || {
        let status = now.status();
        (status.connections, status.connections_arrived) == (3, 3)
    });
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success() && !said.contains(" of /first ") && !said.contains("<BADREQ>"), "{said}");
    }
}

#[test]
fn a_head_that_takes_too_long_is_late_in_the_new_process() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let limit = Duration::from_millis(1500);
    let text = config(web, &servers).replace(" timeout client ", " timeout http-request 1500ms\n timeout client ");
    let mut now = Proxy::start(&text);
    let mut client = Client::connect(web);
    let began = Instant::now();
    begin(&mut client, web, "GET /late HT");
    let old = replaced(&mut now, 1);
    let moved = began.elapsed();
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).expect("it is told");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // It would have had all of the time again.
    assert!(began.elapsed() >= limit && (moved < Duration::from_millis(200) || began.elapsed() < limit + moved));
    old.into_iter().for_each(|old| assert!(old.wait().0.success()));
}

#[test]
fn a_process_that_takes_no_heads_gets_the_connection_later() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    let mut client = Client::connect(web);
    begin(&mut client, web, "GET / HT");
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    client.0.write_all(b"TP/1.1\r\nhost: test\r\n\r\n").expect("it is open");
    assert!(client.answer().starts_with("http/1.1 200"));
    let offer = taker.hear_offer();
    assert_eq!((offer.connections.len(), offer.connections[0].needs), (1, MoveKinds::default()));
    drop((taker, client));
    assert!(old.wait().0.success());
}

/// A server that sends numbered bytes, and is told what comes. How many it has sent, and what it was told in the end.
fn talking() -> (SocketAddr, Arc<AtomicU64>, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (sent, is_told): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
    let shown = (sent.clone(), is_told.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (sent, is_told) = (sent.clone(), is_told.clone());
            std::thread::spawn(move || {
                let (mut stream, mut at) = (stream, 0);
                while at < LARGE {
                    let block = in_flight::numbered(at, 64 << 10);
                    if stream.write_all(&block).is_err() {
                        return;
                    }
                    at += block.len() as u64;
                    sent.store(at, Ordering::Relaxed);
                }
                let _ = stream.shutdown(Shutdown::Write);
                let mut told = String::new();
                is_told.store(stream.read_to_string(&mut told).is_ok() && told == "first, last", Ordering::Relaxed);
            });
        }
    });
    (address, shown.0, shown.1)
}

/// In `mode tcp`, by these words of `defaults` and `bind`.
fn tcp(front: SocketAddr, server: SocketAddr, more: &str, bind: &str) -> String {
    format!(
        "global\n nbthread 1\n tune.handover.patience 0\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n \
         timeout server 60s\n{more}frontend front\n bind {front} {bind}\n default_backend back\nbackend back\n server s0 {server}\n"
    )
}

/// Waits until nothing is taken any more.
fn wait_until_stuck(sent: &AtomicU64) {
    let (mut before, mut since) = (0, Instant::now());
    until("nothing goes on", || {
        let now = sent.load(Ordering::Relaxed);
        if std::mem::replace(&mut before, now) != now {
            since = Instant::now();
        }
        now > 0 && since.elapsed() > Duration::from_millis(500)
    });
    assert!(before < LARGE, "buffers are smaller");
}

/// Takeovers of a session whose client reads nothing; then it reads all.
#[track_caller]
fn stuck<S: Read + Write>(more: &str, bind: &str, connect: impl FnOnce(SocketAddr) -> S, end: impl FnOnce(&mut S)) {
    let (front, (server, sent, is_told)) = (free_address(), talking());
    let mut now = Proxy::start(&tcp(front, server, more, bind));
    let mut client = connect(front);
    client.write_all(b"first, ").expect("it is open");
    client.flush().expect("it is open");
    wait_until_stuck(&sent);
    let ended = replaced(&mut now, TAKEOVERS);
    client.write_all(b"last").expect("it is open");
    end(&mut client);
    let (mut read, mut all) = (0, vec![0; 64 << 10]);
    while read < LARGE {
        client.read_exact(&mut all).expect("it goes on");
        assert!(all == in_flight::numbered(read, 64 << 10), "in order, at {read}");
        read += all.len() as u64;
    }
    assert_eq!(client.read(&mut all).expect("the end"), 0);
    drop(client);
    until("the server has all", || is_told.load(Ordering::Relaxed));
    until("it has ended", || now.status().connections == 0);
    let counted = |name: &str| frontend_counter(&now.status(), "front", name);
    assert_eq!(["bin", "bout", "stot"].map(counted), [11, LARGE, 1]);
    ended.into_iter().for_each(|old| assert!(old.wait().0.success()));
}

#[test]
fn bytes_that_a_client_does_not_read_go_with_every_takeover() {
    let end = |stream: &mut TcpStream| stream.shutdown(Shutdown::Write).expect("it is open");
    stuck("", "", connect, end);
    stuck(" option splice-auto\n", "", connect, end);
    let folder = tempfile::tempdir().expect("a folder");
    let bind = format!("ssl crt {}", certificate(folder.path()));
    for version in VERSIONS {
        let end = |client: &mut Secure| {
            client.0.conn.send_close_notify();
            client.0.flush().expect("it is open");
        };
        stuck("", &bind, |front| Secure::connect_for(front, version, &[]), end);
    }
}

#[test]
fn a_process_that_takes_no_bytes_gets_the_session_later() {
    let (front, (server, sent, _)) = (free_address(), talking());
    let old = Proxy::start(&tcp(front, server, "", ""));
    let client = connect(front);
    wait_until_stuck(&sent);
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_with(FORMAT, [MoveKind::Requests].into_iter().collect());
    until("it is said", || old.status().connections_staying == [("in-flight".to_owned(), 1)].into());
    let mut reader = BufReader::new(client.try_clone().expect("a descriptor"));
    reader.get_ref().set_read_timeout(Some(PATIENCE)).expect("a timeout");
    reader.read_exact(&mut vec![0; LARGE as usize]).expect("the old one serves it");
    let offer = taker.hear_offer();
    assert_eq!((offer.connections.len(), offer.connections[0].needs), (1, MoveKinds::default()));
    drop((taker, client, reader));
    assert!(old.wait().0.success());
}
