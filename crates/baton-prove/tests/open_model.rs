//! At a fixed rate nothing that the server does makes the client ask less: what is late is told, whatever the connections.

mod support;

use std::{net::SocketAddr, thread, time::Duration};

use baton_prove::{Load, LoadOptions, LoadResult};
use support::{hold, read_head, run, say, server};

/// How long the server freezes.
const FREEZE: Duration = Duration::from_millis(200);

/// From one request to the next.
const BETWEEN: Duration = Duration::from_millis(2);

/// Answers a request on each connection and closes it, one connection at a time; it sleeps before the answer of request
/// `frozen` (from 0), while all others wait to be accepted.
fn freezing(frozen: usize) -> SocketAddr {
    server(move |number, stream| {
        if read_head(stream) {
            if number == frozen {
                thread::sleep(FREEZE);
            }
            say(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        }
    })
}

fn load(options: LoadOptions) -> LoadResult {
    let result = run(async { Load::start(options).expect("started").wait().await });
    assert_eq!(result.counts.failed(), 0, "{}", result.counts);
    result
}

#[test]
fn with_a_connection_for_each_request_a_freeze_is_felt_by_all_who_came_during_it() {
    const FROZEN: usize = 20;
    // One place, whose requests all wait behind the frozen one, and more places than requests.
    for concurrency in [1, 7, 200] {
        let options = LoadOptions {
            rate: Some(1.0 / BETWEEN.as_secs_f64()),
            count: Some(150),
            keep_alive: false,
            concurrency,
            ..LoadOptions::new(freezing(FROZEN))
        };
        let result = load(options);
        assert_eq!((result.counts.completed, result.connections), (150, 150));
        // The server goes on at the end of the freeze, which began no earlier than the frozen request was due.
        let series = &result.series;
        let end = BETWEEN * FROZEN as u32 + FREEZE;
        assert_eq!(series.slots().len(), 30, "all were due within 300 ms, however late they were begun");
        let (mut waited, mut expected) = (0, 0);
        for (index, slot) in series.slots().iter().enumerate() {
            let begins = series.interval() * index as u32;
            assert_eq!(slot.completed, 5, "a request every 2 ms");
            if (FROZEN / 5..end.as_millis() as usize / 10).contains(&index) {
                // Those of a slot are due within 10 ms; which of them is served first, a busy machine decides.
                let least = (end - begins).as_micros() as u64 - 10_000;
                assert!(slot.max_us >= least, "slot {index} of {concurrency} places: {} < {least}", slot.max_us);
                waited += slot.sum_us;
                expected += 5 * least;
            }
        }
        // One that a busy machine lets overtake the frozen one is not late. They are few.
        assert!(waited >= expected / 10 * 9, "{waited} of {expected} us with {concurrency} places");
    }
}

#[test]
fn a_server_that_does_not_close_makes_no_request_late() {
    // It says that it closes, and leaves it to the client.
    let address = server(|_, stream| {
        let mut stream = stream.try_clone().expect("a socket");
        thread::spawn(move || {
            if read_head(&mut stream) {
                say(&mut stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
                hold(&mut stream);
            }
        });
    });
    let options = LoadOptions {
        rate: Some(400.0),
        count: Some(40),
        keep_alive: false,
        concurrency: 2,
        ..LoadOptions::new(address)
    };
    let result = load(options);
    assert_eq!(result.counts.completed, 40);
    // The client waits a second for a close: in their places 40 requests would take 19 seconds.
    assert!(result.elapsed < Duration::from_secs(15), "{:?}", result.elapsed);
}
