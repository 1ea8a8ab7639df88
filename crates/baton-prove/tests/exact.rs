//! An origin fails as scripted, and the client counts exactly that: over kept connections and a connection each, with one
//! and several threads, in a closed loop and at a rate.
//!
//! The origin's own counters say what it did; nothing here depends on time but the timeouts that are asked for.

mod support;

use std::{sync::Arc, time::Duration};

use baton_prove::{
    FailureKind, Load, LoadOptions, LoadResult, Origin, OriginHandle, OriginOptions, Request,
    load::BodyCheck,
    origin::{Faults, InjectedFault, pattern},
};
use proptest::{
    collection::vec,
    prelude::{Just, ProptestConfig, Strategy, any, prop_oneof},
    proptest,
    sample::select,
};
use support::{run, shape::Shape};

/// What a request asks for.
const LENGTH: usize = 20;

/// The failures that take no time.
const QUICK: [InjectedFault; 12] = [
    InjectedFault::Reset,
    InjectedFault::Close,
    InjectedFault::HalfHead,
    InjectedFault::HalfBody,
    InjectedFault::ResetBody,
    InjectedFault::WrongLength,
    InjectedFault::WrongBody,
    InjectedFault::WrongStatus,
    InjectedFault::TooLong,
    InjectedFault::Malformed,
    InjectedFault::CloseAfter,
    InjectedFault::ResetAfter,
];

/// Asks as many requests as the script has entries.
fn ask(
    shape: Shape,
    script: &[Option<InjectedFault>],
    set: impl FnOnce(&mut LoadOptions),
) -> (OriginHandle, LoadResult) {
    let faults = Faults::Script(script.to_vec());
    let origin = Origin::start(OriginOptions { faults, ..OriginOptions::new("faulty") }).expect("started");
    let expect = BodyCheck::Exactly(Arc::from(pattern(LENGTH)));
    let mut options = shape.of(LoadOptions {
        requests: vec![Request::get(format!("/bytes/{LENGTH}")).expect(expect)],
        count: Some(script.len() as u64),
        ..LoadOptions::new(origin.address())
    });
    set(&mut options);
    let result = run(async { Load::start(options).expect("started").wait().await });
    (origin, result)
}

/// The kinds that the client has to count, from what the origin did.
fn expected(origin: &OriginHandle, asked: u64) -> Vec<(FailureKind, u64)> {
    let did = |fault| origin.committed(fault).total();
    let instead = [origin.committed(InjectedFault::Reset), origin.committed(InjectedFault::Close)];
    // Requests that went into a connection just when the origin ended it after an answer: it never saw them.
    let unseen = asked - origin.requests();
    let counts = |kind| match kind {
        FailureKind::ResetBeforeFirstByte => instead[0].fresh + instead[1].fresh,
        FailureKind::ClosedOnReuse => instead[0].reused + instead[1].reused + unseen,
        FailureKind::Truncated => {
            did(InjectedFault::HalfHead) + did(InjectedFault::HalfBody) + did(InjectedFault::ResetBody)
        }
        FailureKind::TimeoutFirstByte => did(InjectedFault::Silence),
        FailureKind::TimeoutWhole => did(InjectedFault::Stall),
        FailureKind::WrongLength => did(InjectedFault::WrongLength),
        FailureKind::WrongBody => did(InjectedFault::WrongBody),
        FailureKind::WrongStatus => did(InjectedFault::WrongStatus),
        FailureKind::Malformed => did(InjectedFault::Malformed) + did(InjectedFault::TooLong),
        _ => 0,
    };
    FailureKind::ALL.into_iter().map(|kind| (kind, counts(kind))).collect()
}

fn check(shape: Shape, script: &[Option<InjectedFault>], set: impl FnOnce(&mut LoadOptions)) {
    let (origin, result) = ask(shape, script, set);
    let (counts, asked) = (result.counts, script.len() as u64);
    assert_eq!(counts.requests, asked, "{shape:?}");
    assert_eq!(counts.completed + counts.failed(), asked, "every request has one end, {shape:?}");
    for (kind, expect) in expected(&origin, asked) {
        assert_eq!(counts.count(kind), expect, "{} of {counts}, {shape:?} {script:?}", kind.name());
    }

    // The origin did as scripted, for as many requests as it saw.
    let seen = &script[..origin.requests() as usize];
    for fault in InjectedFault::ALL {
        let scripted = seen.iter().filter(|entry| **entry == Some(fault)).count() as u64;
        assert_eq!(origin.committed(fault).total(), scripted, "{fault} {shape:?}");
    }
    // A connection that ends after its answer is found closed, or costs the request that came too early, or had no further one.
    let after =
        origin.committed(InjectedFault::CloseAfter).total() + origin.committed(InjectedFault::ResetAfter).total();
    let (unseen, noticed) = (asked - origin.requests(), result.closed_idle);
    if shape.keep_alive {
        assert!(unseen + noticed <= after && after <= unseen + noticed + shape.concurrency as u64, "{shape:?}");
    } else {
        assert_eq!((unseen, noticed, origin.connections()), (0, 0, asked), "{shape:?}");
    }
    assert_eq!(result.connections, origin.connections(), "{shape:?}");
    assert!(result.failures.iter().all(|failure| shape.keep_alive || failure.reused == 0), "{shape:?}");
}

/// A third of the requests fail, in every way, and no two neighbours of one kind of failure are alike.
fn mixed(length: usize) -> Vec<Option<InjectedFault>> {
    (0..length).map(|number| (number * 7 % 3 == 1).then(|| QUICK[(number / 3 + number / 36) % QUICK.len()])).collect()
}

#[test]
fn every_kind_is_counted_exactly_in_every_shape() {
    let script = mixed(360);
    assert!(QUICK.iter().all(|fault| script.iter().filter(|entry| **entry == Some(*fault)).count() == 10));
    for shape in Shape::all() {
        check(shape, &script, |_| {});
    }
}

#[test]
fn one_kind_alone_is_counted_exactly_in_every_shape() {
    for fault in QUICK {
        for shape in Shape::all() {
            check(shape, &[Some(fault); 12], |_| {});
        }
    }
}

#[test]
fn a_request_that_is_not_answered_in_time_is_counted_as_such() {
    let short = Duration::from_millis(30);
    for shape in Shape::all() {
        // Every request is too late: however slow the machine, none of them can be anything else.
        check(shape, &[Some(InjectedFault::Silence); 14], |options| options.timeouts.first_byte = short);
    }
    for shape in Shape::all() {
        check(shape, &[Some(InjectedFault::Stall); 14], |options| options.timeouts.whole = short);
    }
}

#[test]
fn timeouts_among_right_answers_are_told_apart() {
    let script: Vec<Option<InjectedFault>> = (0..40)
        .map(|number| match number % 20 {
            3 => Some(InjectedFault::Silence),
            11 => Some(InjectedFault::Stall),
            17 => Some(InjectedFault::Reset),
            _ => None,
        })
        .collect();
    for keep_alive in [true, false] {
        let shape = Shape { keep_alive, threads: 2, concurrency: 8, rate: None };
        // Long enough that a right answer is in time on any machine; the late ones wait side by side.
        check(shape, &script, |options| {
            options.timeouts.first_byte = Duration::from_secs(4);
            options.timeouts.whole = Duration::from_secs(5);
        });
    }
}

#[test]
fn a_slow_drip_is_an_answer_like_another() {
    let shape = Shape { keep_alive: true, threads: 1, concurrency: 4, rate: None };
    check(shape, &[None, Some(InjectedFault::Drip), None, Some(InjectedFault::Drip)], |_| {});
}

fn scripts() -> impl Strategy<Value = Vec<Option<InjectedFault>>> {
    // From nearly clean to nothing but failures.
    (1..10_u32).prop_flat_map(|weight| {
        vec(prop_oneof![(10 - weight) => Just(None), weight => select(&QUICK[..]).prop_map(Some)], 1..60)
    })
}

fn shapes() -> impl Strategy<Value = Shape> {
    (any::<bool>(), 1..4_usize, 1..9_usize, any::<bool>()).prop_map(|(keep_alive, threads, concurrency, paced)| Shape {
        keep_alive,
        threads,
        concurrency,
        rate: paced.then_some(20_000.0),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_script_is_counted_exactly(script in scripts(), shape in shapes()) {
        check(shape, &script, |_| {});
    }
}
