//! HTTP/2 with clients of other people: requests, bodies, a browser, and changes under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_prove::certificates::KeyKind;
use baton_prove::{Origin, OriginOptions};

use crate::support::{Proxy, free_address};
use crate::tool::{Said, Tool};
use crate::world::World;

/// Requests of each test under load, unless BATON_STREAMS says how many.
const REQUESTS: u64 = 6_000;
/// The pause between two reloads.
const EVERY: Duration = Duration::from_millis(50);

fn requests() -> u64 {
    std::env::var("BATON_STREAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(REQUESTS)
}

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
    said.says(&["h2: {1: '200', 3: '200'} b'hello' 100000"]);
}

#[test]
fn node_asks_many_times_at_once() {
    let world = world();
    world.write("http2.js", include_str!("http2.js"));
    let mut node = Tool::new("node", &[]);
    let said = node.word(world.at("http2.js")).word(world.at("ca.pem")).word(world.url("127.0.0.1", "")).run();
    said.says(&["node: 30 right of 30", "node: echo 200 true"]);
}

/// h2load while `change` is called again and again.
fn under_load(url: &str, mut change: impl FnMut()) -> Said {
    let (requests, is_over) = (requests().to_string(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let said = Tool::new("h2load", &["-c", "4", "-m", "16", "-n", &requests]).word(url).run();
            is_over.store(true, Ordering::Relaxed);
            said
        });
        while !is_over.load(Ordering::Relaxed) {
            let due = Instant::now() + EVERY;
            change();
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        loading.join().expect("h2load ends")
    })
}

#[test]
fn reloads_lose_no_request() {
    let (web, origin) = (free_address(), Origin::start(OriginOptions::new("o")).expect("a free port"));
    let text = |number: u32| {
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\nfrontend web\n bind {web} proto h2\n \
             http-request set-header x-number {number}\n default_backend app\nbackend app\n server s {}\n",
            origin.address()
        )
    };
    let proxy = Proxy::start(&text(0));
    let mut reloads = 0;
    let said = under_load(&format!("http://{web}/bytes/1000"), || {
        reloads += 1;
        proxy.change(&text(reloads));
    });
    said.says(&[&format!("{} succeeded, 0 failed, 0 errored", requests())]);
    assert!(reloads > 3, "{reloads} reloads");
}
