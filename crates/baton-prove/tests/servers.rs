//! One load on several servers, and from several addresses of the client's own.

mod support;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
};

use baton_prove::{
    Load, LoadOptions, LoadResult, Origin, OriginOptions, Request, ServerEndpoint, Target, load::BodyCheck,
};
use support::{read_head, reset, run, say, server};

fn load(options: LoadOptions) -> LoadResult {
    run(async { Load::start(options).expect("started").wait().await })
}

/// A server that says its name to all that a connection asks.
fn named(name: &'static str) -> ServerEndpoint {
    let address = server(move |_, stream| {
        while read_head(stream) {
            say(stream, format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
        }
    });
    address.into()
}

fn expect(name: &'static str) -> Request {
    Request::get("/").expect(BodyCheck::Exactly(name.as_bytes().into()))
}

#[test]
fn each_request_goes_to_its_server_over_a_kept_connection() {
    let requests = vec![expect("one"), expect("two").to(1), expect("one"), expect("three").to(2)];
    let servers = vec![named("one"), named("two"), named("three")];
    let options = LoadOptions { count: Some(400), servers, requests, ..LoadOptions::new(named("unused")) };
    let result = load(options);
    assert_eq!((result.counts.completed, result.counts.failed()), (400, 0), "{}", result.counts);
    assert_eq!(result.connections, 3, "one to each");
    assert_eq!(result.closed_idle, 0);
}

#[test]
fn a_failing_server_does_not_hurt_the_connections_to_others() {
    let faulty = server(|_, stream| {
        read_head(stream);
        reset(stream);
    });
    let origin = run(async { Origin::start(OriginOptions::new("a")) }).expect("started");
    let options = LoadOptions {
        count: Some(20),
        servers: vec![origin.address().into(), faulty.into()],
        requests: vec![Request::get("/"), Request::get("/").to(1)],
        ..LoadOptions::new(faulty)
    };
    let result = load(options);
    assert_eq!((result.counts.completed, result.counts.failed()), (10, 10), "{}", result.counts);
    assert!(result.failures.iter().all(|failure| failure.request == 1));
    assert_eq!(result.connections, 11, "one kept, and one for each failure");
}

#[test]
fn hosts_are_the_servers_own() {
    let seen = Arc::new(Mutex::new(String::new()));
    let sees = seen.clone();
    let address = server(move |_, stream| {
        let head = support::head(stream);
        sees.lock().expect("no panic").push_str(&head);
        say(stream, "HTTP/1.1 204 No Content\r\n\r\n");
    });
    let servers = vec![address.into(), ServerEndpoint { host: Some("example.org".to_owned()), ..address.into() }];
    let requests = vec![Request::get("/0"), Request::get("/1").to(1)];
    let result =
        load(LoadOptions { count: Some(2), keep_alive: false, servers, requests, ..LoadOptions::new(address) });
    assert_eq!(result.counts.completed, 2, "{}", result.counts);
    let seen = seen.lock().expect("no panic");
    assert!(seen.contains(&format!("GET /0 HTTP/1.1\r\nHost: {address}\r\n")), "{seen}");
    assert!(seen.contains("GET /1 HTTP/1.1\r\nHost: example.org\r\n"), "{seen}");
}

#[test]
fn connections_come_from_the_addresses_asked_for() {
    let sources: Vec<IpAddr> = ["127.0.0.2", "127.0.0.3"].map(|text| text.parse().expect("an address")).into();
    let peers = Arc::new(Mutex::new(Vec::new()));
    let sees = peers.clone();
    let address = server(move |_, stream| {
        sees.lock().expect("no panic").push(stream.peer_addr().expect("connected").ip());
        read_head(stream);
        say(stream, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    });
    let options = LoadOptions { count: Some(8), sources: sources.clone(), ..LoadOptions::new(address) };
    let result = load(LoadOptions { concurrency: 2, ..options });
    assert_eq!(result.counts.completed, 8, "{}", result.counts);
    let peers = peers.lock().expect("no panic");
    assert!(sources.iter().all(|source| peers.contains(source)), "{peers:?}");
    assert!(peers.iter().all(|peer| sources.contains(peer)), "{peers:?}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let check = |options: LoadOptions, words: &str| {
        let error = Load::start(options).map(drop).expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    let options = || LoadOptions::new(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
    check(LoadOptions { requests: vec![Request::get("/").to(1)], ..options() }, "names an unknown server");
    check(LoadOptions { servers: Vec::new(), ..options() }, "the number of servers");
    let v6: IpAddr = "::1".parse().expect("an address");
    check(LoadOptions { sources: vec![v6], ..options() }, "IPv4, IPv6 and unix differ");
    let unix = LoadOptions::new(Target::Unix("x".into()));
    check(LoadOptions { sources: vec![v6], ..unix }, "IPv4, IPv6 and unix differ");
    // Of a block for documentation (RFC 5737).
    let nobodys: IpAddr = "192.0.2.1".parse().expect("an address");
    check(LoadOptions { sources: vec![nobodys], ..options() }, "cannot connect from 192.0.2.1");
}
