//! A limit of requests by key holds exactly, however often the configuration is changed and the process is replaced meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Proxy, free_address};

/// Reloads, restarts and keys of the test, unless the environment has others: `bench/limits` has those of the whole one.
const RELOADS: (&str, usize) = ("BATON_LIMIT_RELOADS", 50);
const RESTARTS: (&str, usize) = ("BATON_LIMIT_RESTARTS", 5);
const KEYS: (&str, usize) = ("BATON_LIMIT_KEYS", 2000);
/// Requests of a key that are permitted, and those that are made, within the limit's period.
const PERMITTED: u64 = 10;
const MADE: u64 = 12;
/// Keys of a client at a time.
const AT_ONCE: usize = 10;
/// A client that took longer has seen another period.
const WITHIN: Duration = Duration::from_secs(9);
const CLIENTS: usize = 4;

fn number((name, usual): (&str, usize)) -> usize {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// The configuration of a step: others differ in the size of the table, timeouts and rules.
fn config(web: SocketAddr, step: usize) -> String {
    format!(
        "global\n nbthread 2\n maxconn 2000\ndefaults\n mode http\n timeout connect 5s\n timeout client {}s\n \
         timeout server 30s\nfrontend web\n bind {web}\n http-request track-sc0 path table limits\n \
         http-request deny deny_status 429 if {{ sc0_http_req_rate(limits) gt {PERMITTED} }}\n \
         http-request set-header x-step {step}\n \
         http-request return status 200 content-type text/plain lf-string %[sc0_http_req_cnt(limits)]\n\
         backend limits\n stick-table type string len 24 size {}k expire 10m store http_req_cnt,http_req_rate(10s)\n",
        30 + step % 7,
        400 + step % 2,
    )
}

/// One request on a connection of its own: the status, and how many of its key there were.
fn ask(web: SocketAddr, path: &str) -> (u16, u64) {
    let mut stream = TcpStream::connect(web).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{path}: {text:?}"));
    let count = text.rsplit("\r\n\r\n").next().and_then(|body| body.parse().ok()).unwrap_or_default();
    (status, count)
}

/// What clients saw.
#[derive(Debug, Default)]
struct Seen {
    judged: AtomicU64,
    late: AtomicU64,
}

/// Makes requests until the end, some keys at a time, and judges each response.
fn client(web: SocketAddr, name: usize, ended: &AtomicBool, seen: &Seen) {
    for cohort in 0.. {
        if ended.load(Ordering::Acquire) {
            return;
        }
        let began = Instant::now();
        let paths: Vec<String> = (0..AT_ONCE).map(|key| format!("/{name}/{cohort}/{key}")).collect();
        let rounds: Vec<Vec<(u16, u64)>> =
            (0..MADE).map(|_| paths.iter().map(|path| ask(web, path)).collect()).collect();
        let is_late = began.elapsed() > WITHIN;
        for (made, round) in (1..).zip(rounds) {
            for ((status, count), path) in round.into_iter().zip(&paths) {
                if made <= PERMITTED {
                    assert_eq!((status, count), (200, made), "request {made} of {path}");
                } else if !is_late {
                    assert_eq!(status, 429, "request {made} of {path}");
                }
            }
        }
        seen.judged.fetch_add(if is_late { 0 } else { AT_ONCE as u64 }, Ordering::Relaxed);
        seen.late.fetch_add(if is_late { AT_ONCE as u64 } else { 0 }, Ordering::Relaxed);
    }
}

#[test]
fn a_limit_holds_over_reloads_and_restarts() {
    let (reloads, restarts, keys) = (number(RELOADS), number(RESTARTS), number(KEYS));
    let web = free_address();
    let mut now = Proxy::start(&config(web, 0));
    let fill = |count: u64| {
        thread::scope(|threads| {
            for part in 0..CLIENTS {
                threads.spawn(move || {
                    for key in (part..keys).step_by(CLIENTS) {
                        assert_eq!(ask(web, &format!("/kept/{key}")), (200, count));
                    }
                });
            }
        });
    };
    fill(1);
    let (ended, seen) = (AtomicBool::new(false), Seen::default());
    let began = Instant::now();
    thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|name| {
                threads.spawn({
                    let (ended, seen) = (&ended, &seen);
                    move || client(web, name, ended, seen)
                })
            })
            .collect();
        let mut old: Vec<Proxy> = Vec::new();
        let every = reloads / restarts.max(1);
        for step in 1..=reloads {
            now.change(&config(web, step));
            if step.is_multiple_of(every) {
                let next = now.replace(&[]);
                old.push(std::mem::replace(&mut now, next));
            }
            if clients.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        ended.store(true, Ordering::Release);
        for client in clients {
            client.join().expect("a client saw what must not be");
        }
        for old in old {
            let (status, said) = old.wait();
            assert!(status.success(), "{said}");
        }
    });
    let took = began.elapsed();
    // What was there before all this is there still, and was counted once.
    fill(2);
    let (judged, late) = (seen.judged.into_inner(), seen.late.into_inner());
    println!(
        "{reloads} reloads and {restarts} restarts in {took:?}: {judged} keys with {MADE} requests each, {late} late"
    );
    assert!(judged > 0, "all clients were too slow");
}
