//! HTTP/2 with third-party clients: requests, bodies, a browser, and changes under load.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use baton_http2::{Config, Settings};
use baton_prove::certificates::KeyKind;
use baton_prove::load::LoadHandle;
use baton_prove::{Load, LoadOptions, LoadResult, Origin, OriginOptions, Request};

use crate::peer::Peer;
use crate::support::{Proxy, free_address, until};
use crate::tool::Tool;
use crate::world::World;

/// Reloads of the test, unless BATON_HTTP2_RELOADS says how many.
const RELOADS: usize = 20;
/// Takeovers of the test, unless BATON_HTTP2_TAKEOVERS says how many.
const TAKEOVERS: usize = 6;
/// Less than an idle connection may wait for its next request.
const IN_TIME: Duration = Duration::from_secs(10);
/// The pause between two changes.
pub const EVERY: Duration = Duration::from_millis(50);

fn world() -> World {
    World::start(KeyKind::P256, "crt FOLDER/a.pem alpn h2,http/1.1")
}

#[test]
fn curl_asks_and_sends_over_http2() {
    let mut world = world();
    let shown = "%{http_code} %{http_version} %{size_download}";
    let mut curl = world.curl("www.a.example", "/bytes/300000", &["--http2"]);
    let said = curl.words(&["-o", "/dev/null", "-w", shown]).run();
    assert_eq!((said.code, said.out.as_str()), (Some(0), "200 2 300000"), "{said:?}");
    let said = world.curl("a.example", "/bytes/7", &["--http2", "--head", "-o", "/dev/null", "-w", shown]).run();
    assert_eq!((said.code, said.out.as_str()), (Some(0), "200 2 0"), "{said:?}");
    let sent: String = (0..200_000).map(|number| format!("{number:08}\n")).collect();
    world.write("sent", &sent);
    let file = format!("@{}", world.at("sent").display());
    let said = world.curl("a.example", "/echo", &["--http2", "--data-binary", &file]).run();
    assert!(said.code == Some(0) && said.out == sent, "{} bytes came back: {}", said.out.len(), said.err);
    world.serves();
}

#[test]
fn http2_is_not_offered_where_http1_is_spoken_whatever_comes() {
    let world = World::start(KeyKind::P256, "crt FOLDER/a.pem alpn h2,http/1.1 proto h1");
    let said = world
        .curl("a.example", "/bytes/7", &["--http2", "-o", "/dev/null", "-w", "%{http_code} %{http_version}"])
        .run();
    assert_eq!((said.code, said.out.as_str()), (Some(0), "200 1.1"), "{said:?}");
}

#[test]
fn nghttp_asks_many_times_at_once() {
    let world = world();
    let mut nghttp = Tool::new("nghttp", &["--null-out", "--stat", "--multiply=50"]);
    let said = nghttp.word(world.url("127.0.0.1", "/bytes/20000")).run();
    let responses = said.out.lines().filter(|line| line.contains(" 200 ") && line.contains("/bytes/20000")).count();
    assert_eq!((said.code, responses), (Some(0), 50), "{said:?}");
}

#[test]
fn a_browser_shows_the_page_over_http2() {
    let world = World::start(KeyKind::P256, "crt FOLDER/a.pem alpn h2");
    let profile = format!("--user-data-dir={}", world.at("profile").display());
    let mut chromium = Tool::new(
        "chromium",
        &["--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--disable-dev-shm-usage"],
    );
    let said = chromium.word(profile).word("--dump-dom").word(world.url("127.0.0.1", "/some/page")).run();
    said.says(&["/some/page"]);
}

#[test]
fn python_asks_many_times_at_once_and_sends_trailers() {
    let world = world();
    let mut python = Tool::new("/usr/bin/python3", &["-"]);
    let said = python.word(world.at("ca.pem")).word(world.web.port().to_string()).input(include_str!("http2.py")).run();
    said.says(&["httpx: 30 right of 30", "httpx: echo 200 True", "httpx: pieces 200 True"]);
    said.says(&["h2: [(1, '200'), (3, '200')] b'hello' 100000"]);
}

#[test]
fn node_asks_many_times_at_once() {
    let world = world();
    world.write("http2.js", include_str!("http2.js"));
    let mut node = Tool::new("node", &[]);
    let said = node.word(world.at("http2.js")).word(world.at("ca.pem")).word(world.url("127.0.0.1", "")).run();
    said.says(&["node: 30 right of 30", "node: echo 200 true"]);
}

/// A load of many requests at a time on few connections of HTTP/2.
fn load(web: SocketAddr) -> LoadHandle {
    let requests = vec![Request::get("/a"), Request::get("/bytes/20000"), Request::post("/echo", "x".repeat(3000))];
    let options = LoadOptions {
        keep_alive: true,
        streams: Some(8),
        concurrency: 32,
        threads: 1,
        rate: Some(800.0),
        requests,
        ..LoadOptions::new(web)
    };
    Load::start(options).expect("the options are right")
}

#[track_caller]
fn assert_clean(changes: usize, result: &LoadResult) {
    println!(
        "{changes} changes, {} requests on {} connections, {} sent again",
        result.counts.completed, result.connections, result.resent
    );
    assert_eq!(result.counts.failed(), 0, "{:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 100, "only {} requests", result.counts.completed);
}

/// How often a test changes something.
pub fn times(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn config(web: SocketAddr, origin: SocketAddr, number: usize, more: &str) -> String {
    format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\nfrontend web\n bind {web} proto h2\n{more} \
         http-request set-header x-number {number}\n default_backend app\nbackend app\n server s {origin}\n"
    )
}

#[tokio::test]
async fn reloads_lose_no_request() {
    let (web, second) = (free_address(), free_address());
    let origin = Origin::start(OriginOptions::new("o")).expect("a free port");
    let proxy = Proxy::start(&config(web, origin.address(), 0, &format!(" bind {second} proto h2\n")));
    let (kept, removed) = (load(web), load(second));
    let reloads = times("BATON_HTTP2_RELOADS", RELOADS);
    for number in 1..=reloads {
        let due = Instant::now() + EVERY;
        proxy.change(&config(web, origin.address(), number, &format!(" bind {second} proto h2\n")));
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
    }
    // In the end one of the addresses is removed under its clients: those of the other notice nothing.
    let removed = removed.stop().await;
    proxy.change(&config(web, origin.address(), reloads + 1, ""));
    let kept = kept.stop().await;
    assert_clean(reloads, &removed);
    assert_clean(reloads + 1, &kept);
    assert!(kept.connections <= 8, "{} connections: a reload is no reason for another", kept.connections);
}

#[tokio::test]
async fn takeovers_lose_no_request() {
    let (web, origin) = (free_address(), Origin::start(OriginOptions::new("o")).expect("a free port"));
    let mut now = Proxy::start(&config(web, origin.address(), 0, ""));
    let load = load(web);
    let takeovers = times("BATON_HTTP2_TAKEOVERS", TAKEOVERS);
    let mut before = Vec::new();
    for _ in 0..takeovers {
        let due = Instant::now() + EVERY;
        let next = now.replace(&[]);
        before.push(std::mem::replace(&mut now, next));
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
    }
    let result = load.stop().await;
    assert_clean(takeovers, &result);
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{status}:\n{said}");
    }
}

/// A client of an address, with a response on its way that waits for a window, is told that it ends: no sooner and no later than every stream has
/// ended. One that is idle is told at once.
fn is_told(web: SocketAddr, change: impl FnOnce()) {
    let mut idle = Peer::new(TcpStream::connect(web).expect("it listens"));
    idle.wire.socket.set_read_timeout(Some(IN_TIME)).expect("open");
    let only = idle.request("GET /bytes/10", true);
    while idle.next().expect("it serves").kind != 'E' {}
    let settings = Settings { initial_window_size: 1000, ..Config::default().settings };
    let socket = TcpStream::connect(web).expect("it listens");
    let mut peer = Peer::with(socket, Config { settings, ..Config::default() });
    peer.wire.takes_bodies = false;
    let first = peer.request("GET /bytes/20000", true);
    let mut sizes = std::collections::BTreeMap::from([(first, 0)]);
    let mut ended = Vec::new();
    let mut next = |peer: &mut Peer| {
        let news = peer.next()?;
        match news.kind {
            'D' => *sizes.entry(news.stream).or_default() += news.text.len(),
            'E' => ended.push(news.stream),
            'H' => assert!(news.text.starts_with("200"), "{news:?}"),
            _ => panic!("{news:?}"),
        }
        Some((news.stream, news.kind))
    };
    assert_eq!(next(&mut peer), Some((first, 'H')));
    change();
    // What it asks for before it has read that it should not is served.
    let second = peer.request("GET /bytes/10", true);
    assert_eq!(idle.next(), None, "it has asked for nothing since");
    assert_eq!(idle.last_streams, [(1 << 31) - 1, only]);
    while next(&mut peer).expect("it serves") != (second, 'E') {}
    // Nothing is reset: the response that waited goes on as the client takes it.
    peer.take(first, 1000);
    while let Some((stream, kind)) = next(&mut peer) {
        if (stream, kind) == (first, 'D') {
            peer.take(first, 1000);
        }
    }
    assert_eq!(sizes, [(first, 20_000), (second, 10)].into());
    assert_eq!(ended, [second, first]);
    assert_eq!(peer.last_streams, [(1 << 31) - 1, second]);
}

#[test]
fn clients_of_a_removed_address_are_told_and_every_stream_ends() {
    let [web, second] = [(); 2].map(|()| free_address());
    let origin = Origin::start(OriginOptions::new("o")).expect("a free port");
    let text = |more: &str| config(web, origin.address(), 0, more);
    let proxy = Proxy::start(&text(&format!(" bind {second} proto h2\n")));
    is_told(second, || drop(proxy.change(&text(""))));
    until("the address is closed", || TcpStream::connect(second).is_err());
}

#[test]
fn clients_of_an_address_that_the_next_process_has_not_are_told() {
    let [web, second] = [(); 2].map(|()| free_address());
    let origin = Origin::start(OriginOptions::new("o")).expect("a free port");
    let text = |more: &str| format!("global\n tune.handover off\n{}", config(web, origin.address(), 0, more));
    let now = Proxy::start(&text(&format!(" bind {second} proto h2\n")));
    let mut next = None;
    is_told(second, || {
        now.write(&text(""));
        next = Some(now.replace(&[]));
    });
    let (status, said) = now.wait();
    assert!(status.success(), "{status}:\n{said}");
}
