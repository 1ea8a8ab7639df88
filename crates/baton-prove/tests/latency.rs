//! Latency tells the truth: a stall is seen by every request that it delayed, and belongs to the change it overlapped.
//!
//! The frozen server writes down what it does by the same clock ([`support::timed`]). Its instants bound each latency from
//! below (the answer had not gone out yet) and from above (the client had asked again), and the client's count must lie between.
//! On an idle machine both are the same number; on a busy one they part by what the machine did, and by nothing else.

mod support;

use std::time::{Duration, Instant};

use baton_prove::{Load, LoadHandle, LoadOptions, LoadResult, Origin, OriginOptions, Phase, Report};
use support::{
    run,
    timed::{Freezes, Seen, Timed, in_time, slower},
};

/// How long the server freezes.
const FREEZE: Duration = Duration::from_millis(200);

/// Requests a second of the open model.
const RATE: f64 = 500.0;

/// Latencies that the counts are compared at.
const TIMES_MS: [u64; 9] = [10, 20, 40, 60, 80, 100, 120, 160, 190];

fn load(server: &Timed, set: impl FnOnce(&mut LoadOptions)) -> LoadResult {
    let mut options = LoadOptions::new(server.address);
    set(&mut options);
    let result = run(async { Load::start(options).expect("started").wait().await });
    assert_eq!(result.counts.failed(), 0, "{}", result.counts);
    assert_eq!(result.counts.completed as usize, server.seen().len());
    result
}

/// A freeze before each of these answers.
fn freezing(before: &[usize]) -> Timed {
    Timed::start(Freezes { before: before.to_vec(), time: FREEZE, with: 1 })
}

/// When request number `number` is to begin.
fn planned(result: &LoadResult, number: usize) -> Instant {
    result.started + Duration::from_secs_f64(number as f64 / RATE)
}

fn count(times: impl Iterator<Item = Duration>, from: Duration) -> usize {
    times.filter(|time| *time >= from).count()
}

/// The instants from which on the client cannot have been without the answer to each request of one connection at a time:
/// it had asked the next one.
fn known(seen: &[Seen], result: &LoadResult) -> Vec<Instant> {
    let next = seen.iter().skip(1).map(|next| next.read);
    next.chain([result.started + result.elapsed]).collect()
}

#[test]
fn at_a_fixed_rate_a_freeze_is_felt_by_all_who_came_during_it_and_by_nobody_else() {
    for keep_alive in [true, false] {
        let server = freezing(&[20, 220]);
        let result = load(&server, |options| {
            options.keep_alive = keep_alive;
            (options.rate, options.count) = (Some(RATE), Some(400));
        });
        let (seen, frozen) = (server.seen(), server.frozen());
        let known = known(&seen, &result);
        assert_eq!((seen.len(), frozen.len()), (400, 2));
        for time in TIMES_MS.map(Duration::from_millis) {
            let (slow, from) = slower(&result, time);
            // One connection asks in the order of the plan.
            let at_least = count((0..400).map(|number| seen[number].answered - planned(&result, number)), from);
            let at_most = count((0..400).map(|number| known[number] - planned(&result, number)), from);
            assert!(at_least <= slow && slow <= at_most, "{time:?}: {at_least} <= {slow} <= {at_most}");
            // Everybody who was due during a freeze waited for its end.
            let due = |number: &usize| {
                let start = planned(&result, *number);
                frozen.iter().any(|freeze| freeze.began <= start && start + from <= freeze.ended)
            };
            let by_arithmetic = (0..400).filter(due).count();
            assert!(by_arithmetic <= at_least, "{time:?}: {by_arithmetic} of {at_least}");
            let is_whole = server.frozen().iter().any(|freeze| freeze.ended <= planned(&result, 400));
            assert!(!is_whole || time >= FREEZE / 2 || by_arithmetic >= 50, "long enough to be seen: {by_arithmetic}");
        }
        let longest =
            |ends: &[Instant]| ends.iter().enumerate().map(|(number, end)| *end - planned(&result, number)).max();
        let answered: Vec<Instant> = seen.iter().map(|one| one.answered).collect();
        let most = Duration::from_micros(result.latency().max());
        let (at_least, at_most) = (longest(&answered).expect("some"), longest(&known).expect("some"));
        // The histogram's three digits.
        let grain = most.mul_f64(0.001);
        assert!(at_least <= most + grain && most <= at_most + grain, "{at_least:?} <= {most:?} <= {at_most:?}");
        assert!(at_least >= FREEZE);
    }
}

#[test]
fn every_10_ms_show_what_those_felt_who_were_due_in_them() {
    let server = freezing(&[20]);
    let result = load(&server, |options| (options.rate, options.count) = (Some(RATE), Some(200)));
    let (seen, known) = (server.seen(), known(&server.seen(), &result));
    let slots = result.series.slots();
    assert_eq!((slots.len(), result.series.interval()), (40, Duration::from_millis(10)));
    let mut ramp = 0;
    for (index, slot) in slots.iter().enumerate() {
        // Two milliseconds from one request to the next: five in each.
        let numbers = index * 5..index * 5 + 5;
        assert_eq!((slot.completed, slot.failed), (5, 0), "slot {index}");
        let micros =
            |end: &dyn Fn(usize) -> Instant, number| (end(number) - planned(&result, number)).as_micros() as u64;
        let (low, high) = (
            |number| micros(&|number| seen[number].answered, number),
            |number| micros(&|number| known[number], number),
        );
        let bounds = |of: &dyn Fn(usize) -> u64| {
            let values = numbers.clone().map(of);
            (values.clone().max().expect("five"), values.sum::<u64>())
        };
        let ((low_max, low_sum), (high_max, high_sum)) = (bounds(&low), bounds(&high));
        assert!(
            (low_max..=high_max).contains(&slot.max_us),
            "slot {index}: {low_max} <= {} <= {high_max}",
            slot.max_us
        );
        // Each of the five is cut to whole microseconds.
        assert!(
            (low_sum..=high_sum + 5).contains(&slot.sum_us),
            "slot {index}: {low_sum} <= {} <= {high_sum}",
            slot.sum_us
        );
        let freeze = server.frozen()[0];
        if freeze.began <= planned(&result, numbers.start) && planned(&result, numbers.end) <= freeze.ended {
            ramp += 1;
            let left = (freeze.ended - planned(&result, numbers.start)).as_micros() as u64;
            assert!(slot.max_us >= left, "slot {index} is part of the ramp: {} of {left}", slot.max_us);
        }
    }
    let is_whole = server.frozen()[0].ended <= planned(&result, 200);
    assert!(!is_whole || ramp >= 18, "the ramp is 200 ms long: {ramp}");
}

#[test]
fn several_connections_feel_a_freeze_as_one_does() {
    for keep_alive in [true, false] {
        let server = freezing(&[20, 220]);
        let result = load(&server, |options| {
            options.keep_alive = keep_alive;
            (options.concurrency, options.threads) = (7, 2);
            (options.rate, options.count) = (Some(RATE), Some(400));
        });
        for time in TIMES_MS.map(Duration::from_millis) {
            let (slow, from) = slower(&result, time);
            let due = |number: &usize| {
                let start = planned(&result, *number);
                server.frozen().iter().any(|freeze| freeze.began <= start && start + from <= freeze.ended)
            };
            let by_arithmetic = (0..400).filter(due).count();
            assert!(by_arithmetic <= slow, "{time:?}: {by_arithmetic} of {slow}");
            let is_whole = server.frozen().iter().any(|freeze| freeze.ended <= planned(&result, 400));
            assert!(!is_whole || time >= FREEZE / 2 || by_arithmetic >= 50, "long enough to be seen: {by_arithmetic}");
        }
    }
}

#[test]
fn in_a_closed_loop_a_freeze_is_one_slow_request_of_each_connection() {
    const CONNECTIONS: usize = 5;
    for keep_alive in [true, false] {
        // It holds until every connection has asked, and for the whole time from then on.
        let server = Timed::start(Freezes { before: vec![40, 120], time: FREEZE, with: CONNECTIONS });
        let result = load(&server, |options| {
            options.keep_alive = keep_alive;
            (options.concurrency, options.threads, options.count) = (CONNECTIONS, 2, Some(250));
        });
        let seen = server.seen();
        for time in TIMES_MS.map(Duration::from_millis) {
            let (slow, from) = slower(&result, time);
            let at_least = count(seen.iter().map(|one| one.answered - one.read), from);
            assert!(at_least <= slow && at_least >= 2 * CONNECTIONS, "{time:?}: {at_least} <= {slow}");
            if keep_alive {
                // It asked after the answer before had gone out, and was answered before it asked again.
                let end = result.started + result.elapsed;
                let slowest = (0..CONNECTIONS).flat_map(|connection| {
                    let own: Vec<&Seen> = seen.iter().filter(|one| one.connection == connection).collect();
                    let spans = (0..own.len()).map(|number| {
                        let began = if number == 0 { result.started } else { own[number - 1].answered };
                        own.get(number + 1).map_or(end, |next| next.read) - began
                    });
                    spans.collect::<Vec<Duration>>()
                });
                let at_most = count(slowest, from);
                assert!(slow <= at_most, "{time:?}: {slow} <= {at_most}");
            }
        }
    }
}

#[test]
fn what_is_due_and_not_sent_is_told() {
    let server = freezing(&[10]);
    let result = load(&server, |options| {
        (options.rate, options.duration) = (Some(1000.0), Some(Duration::from_millis(150)));
    });
    assert_eq!(result.counts.requests + result.unsent, 150, "every request that was due is either begun or told");
    assert!(result.unsent > 0, "the freeze lasts longer than the load");
}

#[test]
fn an_old_deadline_sends_no_request_early() {
    let (first_byte, between) = (Duration::from_millis(150), Duration::from_millis(300));
    let result = in_time(|| {
        let server = freezing(&[]);
        let mut options = LoadOptions::new(server.address);
        (options.rate, options.count) = (Some(1.0 / between.as_secs_f64()), Some(2));
        // The first request's deadline passes while the connection waits for the second one's start.
        options.timeouts.first_byte = first_byte;
        let result = run(async { Load::start(options).expect("started").wait().await });
        let is_in_time =
            |(number, seen): (usize, &Seen)| seen.sent - (result.started + between * number as u32) < first_byte;
        server.seen().iter().enumerate().all(is_in_time).then_some(result)
    });
    assert_eq!(result.counts.completed, 2, "{}", result.counts);
    assert!(result.elapsed >= between, "the second request is not due earlier: {:?}", result.elapsed);
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
