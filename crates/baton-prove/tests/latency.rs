//! Latency tells the truth: a stall is seen by every request that it delayed, and belongs to the change it overlapped.

mod support;

use std::{net::SocketAddr, thread, time::Duration};

use baton_prove::{Load, LoadHandle, LoadOptions, Origin, OriginOptions, Phase, Report};
use support::{read_head, run, say, server};

/// How long the server freezes.
const FREEZE: Duration = Duration::from_millis(200);

/// Answers at once, but sleeps before the answer of request `frozen` (from 0): the one thing under test is time itself.
fn freezing(frozen: usize) -> SocketAddr {
    server(move |_, stream| {
        let mut number = 0;
        while read_head(stream) {
            if number == frozen {
                thread::sleep(FREEZE);
            }
            say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            number += 1;
        }
    })
}

#[test]
fn at_a_fixed_rate_a_freeze_is_felt_by_all_who_came_during_it() {
    let options = LoadOptions { rate: Some(500.0), count: Some(150), ..LoadOptions::new(freezing(20)) };
    let result = run(async { Load::start(options).expect("started").wait().await });
    assert_eq!(result.counts.completed, 150);
    // 100 requests are due during the freeze, the first of them waits for all of it, half of them for half of it or more.
    let freeze = FREEZE.as_micros() as u64;
    let latency = result.latency();
    assert!(latency.max() >= freeze, "{}", latency.max());
    let half = latency.count_between(freeze / 2, latency.max());
    assert!(half >= 45, "{half} of 150 waited half the freeze");
    let failures_at = result.elapsed;
    assert!(failures_at >= Duration::from_millis(298), "the last request is not due earlier: {failures_at:?}");

    // Request 20 is due at 40 ms: its slot holds the whole freeze, and one due 100 ms later still half of it.
    let slots = result.series.slots();
    assert_eq!(slots.iter().map(|slot| u64::from(slot.completed)).sum::<u64>(), 150);
    assert_eq!(slots.len(), 30, "five requests in each 10 ms");
    assert!(slots.iter().all(|slot| slot.completed == 5 && slot.failed == 0), "{slots:?}");
    assert!(slots[4].max_us >= freeze && slots[14].max_us >= freeze / 2 - 1_000, "{slots:?}");
    assert!(slots[4].sum_us >= 5 * (freeze - 10_000), "{slots:?}");
}

#[test]
fn what_is_due_and_not_sent_is_told() {
    let options = LoadOptions {
        rate: Some(1000.0),
        duration: Some(Duration::from_millis(150)),
        ..LoadOptions::new(freezing(10))
    };
    let result = run(async { Load::start(options).expect("started").wait().await });
    assert_eq!(result.counts.failed(), 0, "{}", result.counts);
    assert_eq!(result.counts.requests + result.unsent, 150, "every request that was due is either begun or told");
    assert!(result.unsent > 0, "the freeze lasts longer than the load");
}

#[test]
fn an_old_deadline_sends_no_request_early() {
    let origin = Origin::start(OriginOptions::new("a")).expect("started");
    let mut options = LoadOptions { rate: Some(2.0), count: Some(2), ..LoadOptions::new(origin.address()) };
    // The first request's deadline passes while the connection waits for the second one's start.
    options.timeouts.first_byte = Duration::from_millis(250);
    let result = run(async { Load::start(options).expect("started").wait().await });
    assert_eq!(result.counts.completed, 2, "{}", result.counts);
    assert!(
        result.elapsed >= Duration::from_millis(500),
        "the second request is not due earlier: {:?}",
        result.elapsed
    );
}

#[test]
fn a_rate_is_kept_over_threads_and_connections() {
    let origin = Origin::start(OriginOptions::new("a")).expect("started");
    let options = LoadOptions { rate: Some(1000.0), count: Some(201), ..LoadOptions::new(origin.address()) };
    let result = run(async {
        Load::start(LoadOptions { threads: 2, concurrency: 6, ..options }).expect("started").wait().await
    });
    assert_eq!(result.counts.completed, 201);
    assert!(result.elapsed >= Duration::from_millis(200), "the last request is not due earlier: {:?}", result.elapsed);
}

/// Waits for so many completed requests.
async fn until(load: &LoadHandle, completed: u64) {
    while load.progress().completed < completed {
        tokio::task::yield_now().await;
    }
}

#[test]
fn latencies_are_sorted_by_the_phase() {
    run(async {
        let origin = Origin::start(OriginOptions::new("a")).expect("started");
        let phase = Phase::new();
        let start = || {
            let options = LoadOptions { concurrency: 2, phase: phase.clone(), ..LoadOptions::new(origin.address()) };
            Load::start(options).expect("started")
        };
        let load = start();
        until(&load, 20).await;
        let result = load.stop().await;
        assert_eq!((result.during.len(), result.outside.len()), (0, result.counts.completed));
        assert_eq!(Report::new(&result).latency_us_during, None);

        let change = phase.begin();
        let load = start();
        until(&load, 20).await;
        let before_end = load.progress().completed;
        drop(change);
        let at_end = load.progress().completed;
        until(&load, at_end + 20).await;
        let result = load.stop().await;
        assert!(result.during.len() >= before_end, "{} {before_end}", result.during.len());
        assert!(!result.outside.is_empty(), "after the change");
        assert_eq!(result.during.len() + result.outside.len(), result.counts.completed);
        let report = Report::new(&result);
        assert!(report.is_clean() && report.to_string().contains("during changes"), "{report}");
    });
}

#[test]
fn a_load_ends_when_told_to() {
    run(async {
        let origin = Origin::start(OriginOptions::new("a")).expect("started");
        for rate in [None, Some(0.5)] {
            let load = Load::start(LoadOptions { rate, concurrency: 3, ..LoadOptions::new(origin.address()) })
                .expect("started");
            until(&load, 1).await;
            assert!(!load.is_finished());
            let result = load.stop().await;
            assert_eq!((result.counts.failed(), result.counts.requests), (0, result.counts.completed));
        }
    });
}
