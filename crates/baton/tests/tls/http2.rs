//! HTTP/2 with clients of other people: requests, bodies, a browser, and changes under load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use baton_prove::certificates::KeyKind;
use baton_prove::load::LoadHandle;
use baton_prove::{Load, LoadOptions, LoadResult, Origin, OriginOptions, Request};

use crate::support::{Proxy, free_address};
use crate::tool::Tool;
use crate::world::World;

/// Reloads of the test, unless BATON_HTTP2_RELOADS says how many.
const RELOADS: usize = 20;
/// Takeovers of the test, unless BATON_HTTP2_TAKEOVERS says how many.
const TAKEOVERS: usize = 6;
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
