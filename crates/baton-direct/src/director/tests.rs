use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use baton_kernel::state::State;
use proptest::prelude::*;

use super::*;
use crate::testing::{MemoryEngine, services, sorted};

/// A director of a kernel in memory whose record is in a folder.
fn director(memory: &MemoryEngine, folder: &tempfile::TempDir, owner: &str) -> Director {
    let settings = DirectorSettings { owner: owner.into(), ..DirectorSettings::default() };
    let record = EngineRecord::open_in(State::open_at(folder.path()).unwrap(), "memory", &settings);
    Director::with(Box::new(memory.clone()), "it is a test".into(), &settings, record).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Killed after any step, the next director makes it what is asked for then, and what is others' is as it was.
    #[test]
    fn killed_between_steps_nothing_of_ours_is_orphaned(
        foreign in services(), first in services(), second in services(), steps in 0..12usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let memory = MemoryEngine::of(foreign.clone());
        director(&memory, &folder, "").reconcile(&first).unwrap();
        let between = [&first[..], &second].concat();
        *memory.dies_after.lock().unwrap() = Some(steps);
        let killed = catch_unwind(AssertUnwindSafe(|| director(&memory, &folder, "").reconcile(&second)));
        drop(killed);
        *memory.dies_after.lock().unwrap() = None;
        let is_asked = |key: &ServiceKey| between.iter().any(|service| service.key == *key);
        director(&memory, &folder, "").reconcile(&[]).unwrap();
        let left = foreign.iter().filter(|service| !is_asked(&service.key)).cloned();
        prop_assert_eq!(memory.services(), sorted(left));
        prop_assert!(std::fs::read_dir(State::open_at(folder.path()).unwrap().folder()).unwrap().all(|entry| {
            entry.unwrap().file_name().to_str().unwrap().ends_with(".lock")
        }), "an empty record is none");
    }
}

#[test]
fn two_owners_do_not_touch_each_others_services() {
    let folder = tempfile::tempdir().unwrap();
    let memory = MemoryEngine::default();
    let (one, other) = (crate::testing::service(80), crate::testing::service(81));
    director(&memory, &folder, "one").reconcile(std::slice::from_ref(&one)).unwrap();
    let both = [one.clone(), other.clone()];
    let report = director(&memory, &folder, "other").reconcile(&both).unwrap();
    assert_eq!(report.refused.len(), 1, "{report:?}");
    assert!(report.refused[0].why.contains("`one`"), "{report:?}");
    assert_eq!(memory.services(), both);
    let mut last = director(&memory, &folder, "other");
    assert_eq!(last.figures().unwrap().len(), 1, "figures are of its own services");
    assert!(last.leave(OnExit::Keep).unwrap().is_empty());
    assert_eq!(memory.services(), both);
    last.leave(OnExit::Flush).unwrap();
    assert_eq!(memory.services(), [one]);
}

#[test]
fn a_record_that_is_lost_is_said_and_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let memory = MemoryEngine::default();
    let services = [crate::testing::service(80), crate::testing::service(81)];
    let mut first = director(&memory, &folder, "");
    first.reconcile(&services).unwrap();
    std::fs::write(first.record.path(), "{").unwrap();
    let mut next = director(&memory, &folder, "");
    assert!(next.look_around().is_err(), "one at a time directs");
    first.rest();
    assert!(next.look_around().is_ok());
    let report = next.reconcile(&services[1..]).unwrap();
    assert_eq!(report.taken_over, [services[1].key]);
    assert!(report.done.is_empty());
    let remark = &report.remarks[0];
    assert!(remark.contains(&next.record.path()) && remark.contains("are not removed: tcp 10.0.0.1:80"), "{remark}");
    assert_eq!(memory.services(), services);
    assert!(next.reconcile(&services[1..]).unwrap().is_empty(), "it is whole again");
}

#[test]
fn what_the_kernel_refuses_is_reported_and_the_rest_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let services = [crate::testing::service(80), crate::testing::service(81)];
    let memory = MemoryEngine { refuses: Some(services[0].key), ..MemoryEngine::default() };
    let mut director = director(&memory, &folder, "");
    let report = director.reconcile(&services).unwrap();
    assert_eq!((report.failed.len(), report.done.len()), (1, 2), "{report:?}");
    assert_eq!(memory.services(), services[1..]);
    assert!(director.plan(&services).unwrap().taken_over.is_empty());
}

#[test]
fn another_engine_takes_over_before_the_former_one_lets_go() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let services = [crate::testing::service(80), crate::testing::service(81)];
    let [old, mut new] = [MemoryEngine::default(), MemoryEngine::default()];
    director(&old, &folders[0], "").reconcile(&services).unwrap();
    new.refuses = Some(services[0].key);
    let mut next = director(&new, &folders[1], "");
    next.former = Some(Ok(Box::new(director(&old, &folders[0], ""))));
    let plan = next.plan(&services).unwrap().to_string();
    assert!(plan.contains("engine memory, afterwards: remove service tcp 10.0.0.1:80"), "{plan}");
    assert_eq!(next.reconcile(&services).unwrap().failed.len(), 1);
    assert_eq!(old.services(), services, "it is needed still");
    let report = next.reconcile(&services[1..]).unwrap();
    assert_eq!(report.done.len(), 2, "{report:?}");
    assert_eq!((old.services(), new.services()), (vec![], services[1..].to_vec()));
    assert!(next.reconcile(&services[1..]).unwrap().is_empty());
    next.former = Some(Err(KernelError::new("engine xdp", "it is not there", "")));
    for _ in 0..2 {
        assert!(next.reconcile(&services[1..]).unwrap().remarks[0].contains("it is not there"));
    }
}

#[test]
fn nothing_of_ours_stays_in_either_engine() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let services = [crate::testing::service(80), crate::testing::service(81)];
    let [old, new] = [MemoryEngine::default(), MemoryEngine::default()];
    director(&old, &folders[0], "").reconcile(&services).unwrap();
    director(&new, &folders[1], "").reconcile(&services[..1]).unwrap();
    // Nothing is asked for, by a program that gives up root between the two.
    let mut next = director(&new, &folders[1], "");
    next.former = Some(Ok(Box::new(director(&old, &folders[0], ""))));
    let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    next.give_to(user, group).unwrap();
    assert!([&old, &new].iter().all(|memory| memory.is_given.load(Ordering::Relaxed)));
    // What the former engine refuses is said, and tried again.
    old.is_silent.store(true, Ordering::Relaxed);
    assert_eq!(next.leave(OnExit::Flush).unwrap().failed.len(), 1);
    old.is_silent.store(false, Ordering::Relaxed);
    assert_eq!(next.leave(OnExit::Flush).unwrap().done.len(), 2);
    assert_eq!((old.services(), new.services()), (vec![], vec![]));
}

#[test]
fn a_plan_by_other_settings_leaves_those_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut director = director(&MemoryEngine::default(), &folder, "");
    let own = director.settings.clone();
    let other = DirectorSettings { sloppy_tcp: Some(true), ..own.clone() };
    assert_eq!(
        director.plan_by(&other, &[crate::testing::service(80)]).unwrap().steps.len(),
        1 + crate::testing::service(80).destinations.len()
    );
    assert_eq!(director.settings, own);
}

#[test]
fn a_change_of_engine_is_never_silent() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let services = [crate::testing::service(80)];
    let [old, new] = [MemoryEngine::default(), MemoryEngine::default()];
    director(&old, &folders[0], "").reconcile(&services).unwrap();
    let mut next = director(&new, &folders[1], "");
    next.former = Some(Ok(Box::new(director(&old, &folders[0], ""))));
    let is_said = |said: &[String]| said.iter().any(|text| text.contains("the engine changes from memory to memory"));
    assert!(is_said(&next.plan(&services).unwrap().warnings));
    assert!(is_said(&next.reconcile(&services).unwrap().remarks));
    assert_eq!(next.reconcile(&services).unwrap(), DirectorReport::default());
    // Where nothing is asked for, nothing changes its engine.
    next.former = Some(Ok(Box::new(director(&old, &folders[0], ""))));
    assert!(!is_said(&next.plan(&[]).unwrap().warnings));
}

#[test]
fn what_somebody_else_removes_is_seen_in_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (one, refused) = (crate::testing::service(80), crate::testing::service(81));
    let mut impossible = crate::testing::service(82);
    impossible.one_packet = true;
    let memory = MemoryEngine { refuses: Some(refused.key), ..MemoryEngine::default() };
    let mut director = director(&memory, &folder, "");
    let is_lost = |director: &mut Director| {
        let figures = director.figures().unwrap();
        director.has_lost(&figures)
    };
    assert!(!is_lost(&mut director), "nothing is asked for yet");
    let desired = [one.clone(), refused, impossible];
    let remove: [fn(&mut Vec<crate::Observed>); 2] =
        [|services| services.clear(), |services| services[0].service.destinations.clear()];
    for remove in remove {
        director.reconcile(&desired).unwrap();
        assert!(!is_lost(&mut director), "what the kernel or the engine refuses is not lost");
        remove(&mut memory.services.lock().unwrap());
        assert!(is_lost(&mut director));
    }
    director.reconcile(&[]).unwrap();
    assert!(!is_lost(&mut director));
}
