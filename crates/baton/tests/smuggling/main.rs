//! Request smuggling, enumerated: every byte at every place of framing and all combinations of lengths, through Baton, in front of an
//! origin whose parser is the test's own and takes one spelling only. After each input, two clients on new connections go through the
//! server connection that the input may have left in disorder, and must get their own answers.
//!
//! An input may be refused or forwarded. What is forwarded has one reading, and the origin reads as many requests as Baton did.

mod inputs;
mod judge;
mod lane;
mod origin;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lane::{Lane, POISONED};
use support::{Proxy, free_address};

/// Processes, of one thread each: so that the clients of a lane share its one server connection.
const PROCESSES: usize = 2;
/// Lanes of each process.
const LANES: usize = 8;
/// Inputs that a failure shows.
const SHOWN: usize = 10;

/// Runs all inputs over all lanes; gives how many were forwarded.
fn run(inputs: Vec<Vec<u8>>, one: impl Fn(&mut Lane, usize, &[u8]) -> Vec<String> + Sync) -> usize {
    let inputs = Arc::new(inputs);
    let mut lanes = Vec::new();
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let mut text = String::from(
            "global\n    nbthread 1\ndefaults\n    mode http\n    http-reuse always\n    retries 0\n    timeout connect 20s\n    timeout client 20s\n    timeout server 20s\n",
        );
        for number in 0..LANES {
            let (server, books) = origin::open(inputs.clone());
            let baton = free_address();
            _ = write!(text, "listen lane{number}\n    bind {baton}\n    server s {server} pool-max-conn 1\n");
            lanes.push(Lane { baton, books, forwarded: 0 });
        }
        processes.push(Proxy::start(&text));
    }
    let next = AtomicUsize::new(0);
    let mut wrong = thread::scope(|scope| {
        let work = |lane: &mut Lane| {
            let mut wrong = Vec::new();
            while let number = next.fetch_add(1, Ordering::Relaxed)
                && let Some(input) = inputs.get(number)
            {
                let found = one(lane, number, input);
                if !found.is_empty() {
                    wrong.push((number, found));
                }
            }
            wrong
        };
        let threads: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(move || work(lane))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a lane comes to its end")).collect::<Vec<_>>()
    });
    // Who was hurt first.
    wrong.sort_by_key(|(number, found)| (!found.iter().any(|text| text.starts_with(POISONED)), *number));
    let mut report = format!("{} of {} inputs:\n", wrong.len(), inputs.len());
    for (number, found) in wrong.iter().take(SHOWN) {
        _ = write!(report, "input {number}: \"{}\"\n    {}\n", inputs[*number].escape_ascii(), found.join("\n    "));
    }
    let said: String = processes.iter().map(Proxy::said).collect();
    assert!(wrong.is_empty(), "{report}{said}");
    let sum = |count: fn(&Lane) -> usize| lanes.iter().map(count).sum::<usize>();
    let connections = sum(|lane| lane.books.connections.load(Ordering::SeqCst));
    let requests = sum(|lane| lane.books.requests.load(Ordering::SeqCst));
    // Otherwise nobody would have gone where the input went.
    assert!(connections * 2 < requests, "server connections are kept: {connections} for {requests} requests");
    sum(|lane| lane.forwarded)
}

fn distinct(inputs: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut seen = BTreeSet::new();
    inputs.into_iter().filter(|input| seen.insert(input.clone())).collect()
}

#[test]
fn requests_poison_nobody() {
    let inputs = distinct(inputs::requests());
    let count = inputs.len();
    let forwarded = run(inputs, |lane, number, input| lane.request(number, input));
    eprintln!("{count} requests, {forwarded} of them forwarded");
    assert!(count >= 10_000, "{count} inputs");
    assert!(forwarded * 20 > count, "what is refused proves little: {forwarded} of {count} were forwarded");
}

#[test]
fn responses_poison_nobody() {
    let inputs = distinct(inputs::responses());
    let count = inputs.len();
    let forwarded = run(inputs, |lane, number, _| lane.response(number));
    eprintln!("{count} responses, {forwarded} of them passed on");
    assert!(count >= 5_000, "{count} inputs");
    assert!(forwarded * 20 > count, "what is refused proves little: {forwarded} of {count} were passed on");
}
