use std::time::Duration;

use baton_model::Address;

use super::super::memory::{ProxyCounts, ServerCounts};
use super::*;

/// Reports go nowhere; a process before this one is sent on by its PID.
type Numbers = Succession<(), u32>;

fn place(number: i32) -> Place {
    Place { address: Address::Fd(number), interface: None, namespace: None }
}

fn hello() -> Hello {
    Hello { versions: VERSIONS.to_vec(), pid: 7, ..Hello::default() }
}

fn ready(taken: &[u32], stop: Stop) -> Ready {
    Ready { pid: 8, taken: taken.to_vec(), stop, ..Ready::default() }
}

/// One server of one backend with so many sessions.
fn counts(server: &str, open: u32) -> Counts {
    let figures = ServerCounts { open, ..ServerCounts::default() };
    let servers = [(server.into(), figures)].into_iter().collect();
    let backends = [("b".into(), ProxyCounts { servers, ..ProxyCounts::default() })].into_iter().collect();
    Counts { backends, ..Counts::default() }
}

/// Effects as words in their order.
fn words(effects: &[SuccessionEffect<u32>]) -> String {
    let word = |effect: &SuccessionEffect<u32>| match effect {
        SuccessionEffect::Log(Said::News(text) | Said::Trouble(text)) => format!("'{text}'"),
        SuccessionEffect::Log(other) => format!("{other:?}"),
        SuccessionEffect::TakeSocketsBack => "take back".into(),
        SuccessionEffect::SoftStop => "stop".into(),
        SuccessionEffect::ReadAgain => "read".into(),
        SuccessionEffect::RestDirect => "rest".into(),
        SuccessionEffect::HandOver(place) => format!("over {}", place.address),
        SuccessionEffect::KeepOffered => "keep".into(),
        SuccessionEffect::Drain => "drain".into(),
        SuccessionEffect::Redirect(pid, to) => format!("{pid} to {}", to.pid),
        SuccessionEffect::TellMaster(pid) => format!("master {pid}"),
        SuccessionEffect::RefuseWaiting(reason) => format!("refuse '{reason}'"),
        SuccessionEffect::CountElsewhere { server, open, .. } => format!("{server} {open}"),
    };
    effects.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn given(stop: Stop) -> (Numbers, Instant) {
    let (mut succession, now) = (Numbers::default(), Instant::now());
    succession.offer(7, Vec::new(), counts("s", 1));
    succession.ready(&ready(&[], stop), WireVersion::Frames, (), now);
    (succession, now)
}

#[test]
fn who_may_take_over_and_when() {
    let check = |succession: &Numbers, hello: &Hello, is_stopping, expect: Result<(), (RefusedKind, &str)>| {
        let found = succession.judge(5, true, hello, is_stopping);
        match expect {
            Ok(()) => assert!(found.is_ok(), "{found:?}"),
            Err((kind, text)) => {
                assert!(found.as_ref().is_err_and(|no| no.kind == kind && no.reason.contains(text)), "{found:?}");
            }
        }
    };
    let serving = Numbers::default();
    check(&serving, &hello(), false, Ok(()));
    assert_eq!(serving.judge(5, false, &hello(), false).unwrap_err().kind, RefusedKind::Never);
    check(&serving, &Hello { versions: vec![0], ..hello() }, false, Err((RefusedKind::Never, "of the handover")));
    let after = Hello { after: Some(6), ..hello() };
    check(&serving, &after, false, Err((RefusedKind::Never, "did not take over from process 6")));
    serving.took_over(vec![6]);
    check(&serving, &after, false, Ok(()));
    check(&serving, &hello(), true, Err((RefusedKind::Stopping, "it is stopping")));
    let mut giving = serving;
    giving.offer(9, Vec::new(), Counts::default());
    check(&giving, &hello(), false, Err((RefusedKind::Busy, "process 9 is taking over")));
    check(&giving, &hello(), true, Err((RefusedKind::Stopping, "it is stopping")));
    let (given, _) = given(Stop::Soft);
    check(&given, &hello(), true, Err((RefusedKind::Stopping, "process 8 has taken over already")));
    assert_eq!(given.judge(5, true, &hello(), true).unwrap_err().successor, Some(8));
}

#[test]
fn one_that_fails_changes_nothing_and_what_waited_is_done() {
    let mut succession = Numbers::default();
    assert!(!succession.defer_stop());
    succession.offer(7, vec![place(1)], Counts::default());
    assert_eq!(
        words(&succession.failed("it ended")),
        "'Process 7 did not take over: it ended. This process keeps serving.', take back, read"
    );
    succession.offer(7, vec![place(1)], Counts::default());
    assert!(succession.is_giving() && succession.defer_stop());
    assert!(words(&succession.failed("it ended")).ends_with("take back, stop, read"));
    assert_eq!(words(&succession.failed("again")), "");
    succession.offer(7, vec![place(1)], Counts::default());
    assert_eq!(words(&succession.withdraw()), "take back");
    assert!(!succession.is_giving() && succession.withdraw().is_empty());
}

#[test]
fn one_that_serves_gets_what_it_took_and_this_process_ends() {
    let (mut succession, now) = (Numbers::default(), Instant::now());
    assert!(succession.ready(&ready(&[], Stop::Soft), WireVersion::Frames, (), now).is_empty());
    succession.expect_reports(3, 3);
    succession.offer(7, vec![place(1), place(2), place(2)], Counts::default());
    let effects = succession.ready(&ready(&[0, 1], Stop::Soft), WireVersion::Frames, (), now);
    assert_eq!(
        words(&effects),
        "rest, over fd@1, keep, drain, 3 to 8, 'Process 8 has taken over.', master 8, refuse 'process 8 has taken over'"
    );
    assert_eq!((succession.successor(), succession.is_giving(), succession.is_cut()), (Some(8), false, false));
    // Nothing that comes late makes it serve again.
    assert!(succession.failed("late").is_empty() && succession.withdraw().is_empty() && !succession.defer_stop());
    assert_eq!(succession.successor(), Some(8));
    assert!(given(Stop::Now).0.is_cut());
}

#[test]
fn what_is_new_is_reported_now_and_then_and_the_last_time_always() {
    let (mut succession, now) = given(Stop::Soft);
    assert!(succession.is_due(now) && !Numbers::default().is_due(now));
    let report = |succession: &mut Numbers, connections, now| {
        let report = succession.report(counts("s", 1), connections, BTreeMap::new(), now);
        report.map(|(_, report)| (report.connections, report.last))
    };
    // The first one says how many connections are left, whatever was counted.
    assert_eq!(report(&mut succession, 2, now), Some((2, false)));
    assert!(!succession.is_due(now) && succession.is_due(now + report::EVERY));
    assert_eq!(report(&mut succession, 2, now + report::EVERY), None);
    assert_eq!(report(&mut succession, 1, now + 2 * report::EVERY), Some((1, false)));
    let last = succession.report_last(&counts("s", 1)).map(|(_, report)| (report.connections, report.last));
    assert_eq!(last, Some((0, true)));
    assert!(succession.report_last(&counts("s", 1)).is_none() && !succession.is_due(now + Duration::from_secs(9)));
    assert_eq!(succession.successor(), Some(8));
}

#[test]
fn sessions_of_all_processes_before_are_one_number() {
    let mut succession = Numbers::default();
    succession.expect_reports(3, 3);
    succession.expect_reports(4, 4);
    assert_eq!(words(&succession.reported(3, &counts("s", 2))), "s 2");
    assert_eq!(words(&succession.reported(4, &counts("s", 5))), "s 7");
    assert_eq!(words(&succession.reported(3, &counts("s", 0))), "s 5");
    assert_eq!(words(&succession.left(4)), "s 0");
    assert_eq!(words(&succession.left(4)), "");
    assert!(succession.has_predecessors());
    assert_eq!(words(&succession.left(3)), "");
    assert!(!succession.has_predecessors());
}

#[test]
fn one_before_this_process_is_listened_to_and_sent_on_and_a_stranger_is_not() {
    let joined = |succession: &mut Numbers, from, is_older| {
        succession.joined(from, is_older, from).map(|effects| words(&effects))
    };
    let mut succession = Numbers::default();
    succession.took_over(vec![3]);
    assert_eq!(joined(&mut succession, 2, true), None);
    assert_eq!(joined(&mut succession, 3, false), None);
    assert!(!succession.has_predecessors());
    assert_eq!(joined(&mut succession, 3, true), Some(String::new()));
    assert!(succession.has_predecessors());
    let (mut succession, _) = given(Stop::Soft);
    succession.took_over(vec![3]);
    assert_eq!(joined(&mut succession, 3, true), Some("3 to 8".into()));
}

#[test]
fn the_youngest_processes_before_are_remembered() {
    let succession = Numbers::default();
    succession.took_over((0..100).collect());
    assert_eq!(succession.lineage().pids(), (36..100).collect::<Vec<_>>());
}

#[test]
fn a_place_is_taken_with_all_of_its_sockets() {
    let (one, other) = (place(1), place(2));
    let places = [one.clone(), one.clone(), other.clone(), other.clone()];
    let check = |taken: &[u32], expect: &[&Place]| {
        assert_eq!(taken_whole(&places, taken), expect.iter().copied().collect());
    };
    check(&[0, 1, 2, 3], &[&one, &other]);
    check(&[3, 2, 0], &[&other]);
    check(&[1, 7], &[]);
    check(&[], &[]);
}
