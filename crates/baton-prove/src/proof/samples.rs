//! Proofs that the tests of this module look at.

use std::time::{Duration, Instant};

use crate::{
    failure::{Failure, FailureKind},
    load::LoadResult,
    proof::{Event, Figures, Machine, Measured, Outcome, Proof, Row},
};

/// What a sample's load did: a request every `every` for `count` times, `latency` long; those at an event are `stall` longer.
pub(super) struct SampleLoad {
    pub(super) count: u64,
    pub(super) every: Duration,
    pub(super) latency: Duration,
    pub(super) stall: Duration,
}

/// A proof with a row of each outcome.
pub(super) fn proof() -> Proof {
    let load = SampleLoad {
        count: 1_000,
        every: Duration::from_millis(1),
        latency: Duration::from_micros(300),
        stall: Duration::from_millis(30),
    };
    let failures = [(FailureKind::Refused, 120), (FailureKind::ResetBeforeFirstByte, 10)];
    let mut hard = measured(&load, &events(5, Duration::from_millis(200)), &failures);
    hard.events[2].ok = false;
    hard.events[2].said = Some("cannot bind".into());
    hard.left_over.push("2 processes of the server still run".into());
    let mut rows = vec![
        row("hard-restart", "haproxy", "2.6.12", Outcome::Measured(Box::new(hard))),
        row("reload", "baton", "0.1.0", {
            Outcome::Measured(Box::new(measured(&load, &events(5, Duration::from_millis(200)), &[])))
        }),
        row("hold", "baton", "0.1.0", Outcome::Absent("`baton hold` is not there yet".into())),
        row("tableflip", "nginx", "", Outcome::Broken("nginx ended with 1: <no such file> & more".into())),
    ];
    rows[0].articles.push(Figures {
        source: "An article".into(),
        requests: 10_000,
        failed: Some(2_000),
        mean_us: Some(51_000),
        p99_us: Some(1_000_000),
        max_us: None,
        note: "restarts every 100 ms".into(),
    });
    Proof {
        title: "The articles' experiments".into(),
        command: "baton prove articles --scale 0.1".into(),
        started: "2026-11-21 10:00:00 UTC".into(),
        machine: Machine {
            kernel: "Linux 6.1.0".into(),
            cpu: "A processor".into(),
            cpus: 2,
            memory: Some(8 << 30),
            busy: Some(0.25),
            settings: vec![("net.ipv4.tcp_migrate_req".into(), "0".into())],
        },
        rows,
        interrupted: false,
    }
}

pub(super) fn row(experiment: &str, server: &str, version: &str, outcome: Outcome) -> Row {
    Row {
        experiment: experiment.into(),
        group: Some("10,000 requests, 200 users".into()),
        title: format!("The experiment {experiment}"),
        about: "Something is done to the server while it is under load.".into(),
        server: server.into(),
        version: version.into(),
        commands: vec![format!("{server} -f config"), "kill -9 1234 && echo '<script>alert(1)</script>'".into()],
        expected: "no failure".into(),
        as_expected: match &outcome {
            Outcome::Measured(measured) => Some(measured.report.failed == 0),
            Outcome::Absent(_) | Outcome::Broken(_) => None,
        },
        outcome,
        articles: Vec::new(),
    }
}

pub(super) fn events(count: u32, every: Duration) -> Vec<Event> {
    let event = |number| Event {
        at: every * number,
        took: Duration::from_millis(20),
        ok: true,
        what: "restart".into(),
        said: None,
    };
    (1..=count).map(event).collect()
}

/// What that load gave with these events, and so many failures of these kinds, spread over the events.
pub(super) fn measured(load: &SampleLoad, events: &[Event], failures: &[(FailureKind, u64)]) -> Measured {
    let mut result = LoadResult::empty(Instant::now());
    let failed: u64 = failures.iter().map(|(_, count)| count).sum();
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).expect("short");
    let mut next = events.iter().peekable();
    for number in 0..load.count - failed {
        let begun = load.every * u32::try_from(number).expect("few");
        while next.next_if(|event| event.at + event.took <= begun).is_some() {}
        let during = next.peek().is_some_and(|event| event.at <= begun);
        let stall = if during { micros(load.stall) } else { 0 };
        let latency = micros(load.latency) + number * 7919 % 97 + stall;
        result.series.complete(begun, latency);
        let into = if during { &mut result.during } else { &mut result.outside };
        into.saturating_record(latency);
    }
    for (kind, count) in failures {
        for number in 0..*count {
            let at = match events.is_empty() {
                true => load.every * u32::try_from(number).expect("few"),
                false => events[result.failures.len() % events.len()].at + Duration::from_micros(10 * number),
            };
            result.series.fail(at);
            result.failures.push(Failure {
                at,
                begun: at,
                kind: *kind,
                request: 0,
                reused: 0,
                errno: Some(111),
                status: None,
                reason: None,
            });
        }
        result.counts.failures[kind.index()] += count;
    }
    result.failures.sort_by_key(|failure| failure.at);
    result.counts.requests = load.count;
    result.counts.completed = load.count - failed;
    result.elapsed = load.every * u32::try_from(load.count).expect("few");
    Measured::new(result, events.to_vec(), None, Vec::new())
}
