//! Restarts again and again, under load and without.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use baton_prove::load::LoadHandle;
use baton_prove::{Load, LoadOptions, LoadResult, Request};

use crate::support::{Proxy, free_address, frontend_counter, until};
use crate::{config, get, origins};

/// Restarts under load.
const RESTARTS: usize = 60;
/// Restarts after which nothing may be left over.
const RESTARTS_WITHOUT_LOAD: usize = 200;
/// The article's pause between two restarts.
const EVERY: Duration = Duration::from_millis(100);

fn load(target: SocketAddr, keep_alive: bool, concurrency: usize, rate: Option<f64>) -> LoadHandle {
    let requests = vec![Request::get("/a"), Request::get("/bytes/20000"), Request::post("/echo", "x".repeat(3000))];
    let options = LoadOptions { keep_alive, concurrency, threads: 1, rate, requests, ..LoadOptions::new(target) };
    Load::start(options).expect("the options are right")
}

#[track_caller]
fn assert_clean(what: &str, result: &LoadResult) {
    assert_eq!(result.counts.failed(), 0, "{what}: {:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 100, "{what}: only {} requests", result.counts.completed);
}

/// Replaces the process again and again, and gives the last one; all others have ended well by then.
async fn restart(mut now: Proxy, times: usize, every: Duration) -> Proxy {
    let mut before = Vec::new();
    for _ in 0..times {
        let started = Instant::now();
        let next = now.replace(&[]);
        before.push(std::mem::replace(&mut now, next));
        tokio::time::sleep(every.saturating_sub(started.elapsed())).await;
    }
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{status}:\n{said}");
    }
    now
}

#[tokio::test]
async fn restarts_are_not_felt_and_every_request_is_counted_once() {
    let (_origins, servers) = origins(2);
    let web = free_address();
    let first = Proxy::start(&config(web, &servers));
    let each_its_own = load(web, false, 10, None);
    let keep_alive = load(web, true, 10, Some(200.0));
    let crowd = load(web, true, 200, Some(400.0));
    let last = restart(first, RESTARTS, EVERY).await;
    let (each_its_own, keep_alive, crowd) = tokio::join!(each_its_own.stop(), keep_alive.stop(), crowd.stop());
    assert_clean("a connection for each request", &each_its_own);
    assert_clean("keep-alive", &keep_alive);
    assert_clean("200 users", &crowd);
    until("nobody is connected", || last.status().connections == 0);
    let requests = [&each_its_own, &keep_alive, &crowd].iter().map(|result| result.counts.completed).sum::<u64>();
    // What the last but one reported may be on its way still.
    until("every request is counted", || frontend_counter(&last.status(), "web", "req_tot") >= requests);
    let status = last.status();
    assert_eq!(frontend_counter(&status, "web", "req_tot"), requests, "{status:#?}");
    let chosen: u64 = status.backends[0].servers.iter().map(|server| server.counters["lbtot"]).sum();
    assert_eq!(chosen, requests, "servers were chosen as often");
}

#[tokio::test]
async fn nothing_is_left_over_after_many_restarts() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let first = Proxy::start(&config(web, &servers));
    get(web);
    let second = first.replace(&[]);
    get(web);
    until("the connection is closed", || second.status().connections == 0);
    let descriptors = second.status().descriptors;
    until("the first one has ended", || first.has_ended());
    let last = restart(second, RESTARTS_WITHOUT_LOAD, Duration::ZERO).await;
    get(web);
    until("the connection is closed", || last.status().connections == 0);
    until("descriptors are back where they were", || last.status().descriptors <= descriptors);
    assert_eq!(frontend_counter(&last.status(), "web", "req_tot"), 3, "counters went through all hands");
}
