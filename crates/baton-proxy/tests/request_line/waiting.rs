//! Rules that wait in the middle of their set, and what happens to them meanwhile.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_model::{Mode, Proxy, Rule, Ruleset, Source};

use super::support::{Served, listen};
use super::{origin, read_exactly};

/// So long that a test that waited for it would fail.
const FOREVER: &str = "1h";

/// Adds rules to a section.
fn with_rules(mut proxy: Proxy, ruleset: Ruleset, lines: &[&str]) -> Proxy {
    let rule = |line: &&str| {
        let words = line.split(' ').map(str::to_owned).collect();
        Rule { ruleset, words, source: Source::default() }
    };
    proxy.rules.insert(ruleset, lines.iter().map(rule).collect());
    proxy
}

/// Waits until the core has no connection left.
fn until_empty(served: &Served) {
    let due = Instant::now() + Duration::from_secs(10);
    while served.registry.open.load(Ordering::Relaxed) > 0 {
        assert!(Instant::now() < due, "the connection is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn requests_and_responses_pause_and_go_on_with_the_rules_of_their_beginning() {
    let (address, thread) = origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 1);
    let rules = ["set-header x-a 1", "pause 150", "set-header x-b 2"];
    let proxy = with_rules(listen(Mode::Http, address), Ruleset::HttpRequest, &rules);
    let rules = ["pause res.hdr(none),add(1)", "pause int(100)", "set-header x-c 3"];
    let mut served = Served::new(with_rules(proxy, Ruleset::HttpResponse, &rules));
    let mut client = served.connect();
    let began = Instant::now();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    // A connection that is served after the request began to wait: the change below comes later still.
    let mut other = served.connect();
    other.write_all(b"nonsense\r\n\r\n").expect("sent");
    other.read_exact(&mut [0]).expect("an answer");
    served.apply(listen(Mode::Http, address));
    read_exactly(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-c: 3\r\n\r\nhi");
    assert!(began.elapsed() >= Duration::from_millis(250));
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    read_exactly(&mut client, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    served.end();
    let heads = thread.join().expect("the origin ends");
    assert_eq!(heads, ["GET / HTTP/1.1\r\nhost: x\r\nx-a: 1\r\nx-b: 2\r\n\r\n", "GET / HTTP/1.1\r\nhost: x\r\n\r\n"]);
}

#[test]
fn a_client_that_breaks_off_and_an_immediate_stop_end_a_pause() {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    let pause = format!("pause {FOREVER}");
    for set in [Ruleset::HttpRequest, Ruleset::HttpResponse] {
        let served = Served::new(with_rules(listen(Mode::Http, address), set, &[&pause]));
        let mut held = Vec::new();
        let mut begin = || {
            let mut client = served.connect();
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            if set == Ruleset::HttpResponse {
                let (mut stream, _) = listening.accept().expect("the proxy connects");
                super::read_head(&mut stream).expect("a request");
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("the proxy reads");
                held.push(stream);
            }
            client
        };
        let broken = begin();
        socket2::SockRef::from(&broken).set_linger(Some(Duration::ZERO)).expect("a socket");
        drop(broken);
        until_empty(&served);
        let mut stopped = begin();
        served.end();
        assert_eq!(stopped.read(&mut [0]).unwrap_or(0), 0, "no response");
    }
    assert!(listening.set_nonblocking(true).is_ok() && listening.accept().is_err(), "no other request arrived");
}
