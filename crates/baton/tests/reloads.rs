//! A thousand reloads, each with real changes, under keep-alive, connection-per-request, WebSocket and tunnel load: nothing
//! fails, nobody is disconnected, nothing leaks, no counter jumps.

mod support;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use baton_prove::load::LoadHandle;
use baton_prove::origin::OriginKind;
use baton_prove::sessions::SessionKind;
use baton_prove::{
    Load, LoadOptions, LoadResult, Origin, OriginHandle, OriginOptions, Request, SessionOptions, Sessions,
    SessionsHandle,
};
use support::{Proxy, free_address, frontend_counter, until, within_patience};

/// Reloads of the whole test, unless BATON_RELOADS says how many; every [`BROKEN_EVERY`]th is a broken file besides.
const RELOADS: usize = 1000;
const BROKEN_EVERY: usize = 50;
/// A step without health checks: those have descriptors of their own from the first one on.
const QUIET: usize = 7;
/// Before memory is looked at for the first time.
const WARM_UP: usize = 300;
/// How often memory is told, which `--nocapture` shows.
const TELL_EVERY: usize = 100;
/// Memory may grow by this while it settles; a leak of one kilobyte a reload would be seen.
const GROWTH_BYTES_MAX: u64 = 4 << 20;

/// Where things are.
struct Places {
    web: SocketAddr,
    second: SocketAddr,
    extra: SocketAddr,
    tunnel: SocketAddr,
    origins: Vec<SocketAddr>,
    echo: SocketAddr,
}

/// The configuration of a step: each differs from its neighbours in servers, weights, addresses, frontends, timeouts and rules.
fn config(places: &Places, step: usize) -> String {
    let mut text = String::from("global\n nbthread 2\n maxconn 500\n");
    let _ = write!(
        text,
        "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server {}s\n timeout tunnel 1h\n retries {}\n",
        30 + step % 7,
        3 + step % 2,
    );
    let _ = write!(text, "frontend web\n bind {}\n default_backend app\n", places.web);
    if step % 4 < 2 {
        let _ = writeln!(text, " bind {}", places.second);
    }
    let _ = writeln!(text, " http-request set-header X-Step {step}\n http-response set-header X-Step {step}");
    if step.is_multiple_of(2) {
        let _ = write!(text, "frontend extra\n bind {}\n default_backend app\n", places.extra);
    }
    let balance = ["roundrobin", "leastconn", "random", "static-rr", "uri"][step % 5];
    let _ = write!(text, "backend app\n balance {balance}\n default-server pool-purge-delay 500ms\n");
    for (number, origin) in places.origins.iter().enumerate() {
        // The first is always there, each other comes and goes in a rhythm of its own.
        if number == 0 || !(step / number).is_multiple_of(3) {
            let weight = 1 + (step + number) % 9;
            let check = if (step + number).is_multiple_of(6) { " check inter 1s" } else { "" };
            let _ = writeln!(text, " server o{number} {origin} weight {weight}{check}");
        }
    }
    let _ = write!(text, "listen tunnel\n mode tcp\n bind {}\n server e1 {} weight 1\n", places.tunnel, places.echo);
    // The tunnels of a removed server live on.
    if !step.is_multiple_of(3) {
        let _ = writeln!(text, " server e2 {} weight {}", places.echo, 1 + step % 5);
    }
    text
}

fn origin(name: &str, kind: OriginKind) -> OriginHandle {
    Origin::start(OriginOptions { kind, ..OriginOptions::new(name) }).expect("loopback has a free port")
}

fn load(target: SocketAddr, keep_alive: bool, concurrency: usize, rate: f64) -> LoadHandle {
    let options = LoadOptions {
        keep_alive,
        concurrency,
        threads: 1,
        rate: Some(rate),
        requests: vec![Request::get("/a"), Request::get("/bytes/20000"), Request::post("/echo", "x".repeat(3000))],
        ..LoadOptions::new(target)
    };
    Load::start(options).expect("the options are right")
}

fn sessions(target: SocketAddr, kind: SessionKind, count: usize) -> SessionsHandle {
    let interval = Some(Duration::from_millis(200));
    let options = SessionOptions { count, interval, ..SessionOptions::new(target, kind) };
    Sessions::start(options).expect("the options are right")
}

#[track_caller]
fn assert_clean(what: &str, result: &LoadResult) {
    assert_eq!(result.counts.failed(), 0, "{what}: {:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 500, "{what}: only {} requests", result.counts.completed);
}

#[tokio::test]
async fn a_thousand_reloads_are_not_felt() {
    let reloads =
        std::env::var("BATON_RELOADS").ok().and_then(|count| count.parse().ok()).unwrap_or(RELOADS).max(RELOADS);
    let origins: Vec<_> = (0..4).map(|number| origin(&format!("o{number}"), OriginKind::Http)).collect();
    let echo = origin("echo", OriginKind::TcpEcho);
    let places = Places {
        web: free_address(),
        second: free_address(),
        extra: free_address(),
        tunnel: free_address(),
        origins: origins.iter().map(OriginHandle::address).collect(),
        echo: echo.address(),
    };
    let proxy = Proxy::start(&config(&places, QUIET));
    let descriptors = proxy.status().descriptors;
    let open = proxy.open_files();

    let keep_alive = load(places.web, true, 8, 200.0);
    let each_its_own = load(places.web, false, 4, 100.0);
    let websockets = sessions(places.web, SessionKind::WebSocket { path: "/ws".into() }, 5);
    let tunnels = sessions(places.tunnel, SessionKind::Tunnel, 5);
    tokio::join!(websockets.ready(), tunnels.ready());

    let mut resident = 0;
    let mut requests_seen = 0;
    for step in 1..=reloads {
        let outcome = proxy.change(&config(&places, step));
        assert!(!outcome.plan.is_empty(), "step {step} changes something");
        if step.is_multiple_of(BROKEN_EVERY) {
            let reasons = proxy.change_refused(&config(&places, step).replace("balance", "blance"));
            assert!(reasons.contains("did you mean 'balance'"), "{reasons}");
            let status = proxy.status();
            let requests = frontend_counter(&status, "web", "req_tot");
            assert!(requests >= requests_seen, "the counter went back from {requests_seen} to {requests}");
            assert!(frontend_counter(&status, "tunnel", "conn_tot") >= 5, "tunnels were counted once and for all");
            requests_seen = requests;
        }
        if step.is_multiple_of(TELL_EVERY) {
            let now = proxy.status().resident_bytes;
            println!("{step} reloads: {} KiB", now >> 10);
            if step == WARM_UP {
                resident = now;
            }
        }
        // Lets the load's threads in on a machine with few processors.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let grown = proxy.status().resident_bytes.saturating_sub(resident);

    let (websockets, tunnels) = tokio::join!(websockets.stop(), tunnels.stop());
    let (keep_alive, each_its_own) = tokio::join!(keep_alive.stop(), each_its_own.stop());
    assert!(websockets.is_clean(), "WebSockets: {}", websockets.kinds());
    assert!(tunnels.is_clean(), "tunnels: {}", tunnels.kinds());
    assert_clean("keep-alive", &keep_alive);
    assert_clean("a connection for each request", &each_its_own);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more after {} reloads", reloads - WARM_UP);

    proxy.change(&config(&places, QUIET));
    until("nobody is connected", || proxy.status().connections == 0);
    let status = proxy.status();
    assert_eq!(
        frontend_counter(&status, "web", "req_tot"),
        keep_alive.counts.completed + each_its_own.counts.completed + websockets.opened,
        "every request was counted once, over all configurations"
    );
    assert_eq!(status.refused, (reloads / BROKEN_EVERY) as u64);
    assert_eq!(status.generation, reloads as u64 + 2);
    let are_back = || {
        let status = proxy.status();
        status.listeners_leaving == 0 && status.descriptors <= descriptors
    };
    assert!(within_patience(are_back), "more is open than at first ({open:#?}): {:#?}", proxy.open_files());
    drop((origins, echo));
}
