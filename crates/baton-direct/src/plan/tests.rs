use proptest::prelude::*;

use super::*;
use crate::testing::{MemoryEngine, REMOVAL, services, sorted};
use crate::{Engine, Scheduler};

fn plan(memory: &mut MemoryEngine, desired: &[Service], ours: &BTreeSet<ServiceKey>) -> Plan {
    let owners = Owners { ours: ours.clone(), others: BTreeMap::new() };
    Plan::new(&memory.observe().unwrap(), desired, &owners, |_| Vec::new(), REMOVAL)
}

fn service(port: u16, weights: &[(u8, u32)]) -> Service {
    let destination = |&(last, weight): &(u8, u32)| Destination {
        address: ([10, 0, 1, last], port).into(),
        forwarding: Forwarding::Direct,
        weight,
        upper: 0,
        lower: 0,
    };
    Service { destinations: weights.iter().map(destination).collect(), ..crate::testing::service(port) }
}

proptest! {
    /// Whatever is there and whatever is asked for: afterwards ours are what is asked for, others' are as they were, and there is
    /// nothing left to do. No destination is touched that did not change.
    #[test]
    fn a_plan_leads_there_and_nowhere_else(before in services(), desired in services(), all_ours: bool) {
        let mut memory = MemoryEngine::of(before.clone());
        let keys: BTreeSet<ServiceKey> = before.iter().map(|service| service.key).collect();
        let ours: BTreeSet<ServiceKey> = if all_ours { keys.clone() } else { keys.into_iter().step_by(2).collect() };
        let plan = plan(&mut memory, &desired, &ours);
        for planned in &plan.steps {
            let old = before.iter().find(|service| service.key == planned.step.key());
            let new = desired.iter().find(|service| service.key == planned.step.key());
            prop_assert!(old != new, "{}", planned.sentence);
            if let KernelChange::EditDestination(_, changed) = &planned.step {
                let is_there = old.unwrap().destinations.contains(changed);
                prop_assert!(!is_there, "{}", planned.sentence);
            }
            memory.take(&planned.step).unwrap();
        }
        let is_desired = |key: &ServiceKey| desired.iter().any(|service| service.key == *key);
        let foreign = before.iter().filter(|service| !ours.contains(&service.key) && !is_desired(&service.key));
        prop_assert_eq!(memory.services(), sorted(foreign.cloned().chain(desired.clone())));

        let now = ours.into_iter().filter(is_desired).chain(desired.iter().map(|service| service.key)).collect();
        let again = super::tests::plan(&mut memory, &desired, &now);
        prop_assert!(again.is_empty() && again.taken_over.is_empty(), "{}", again);
    }
}

#[test]
fn whoever_has_a_server_keeps_one_at_every_step() {
    let mut memory = MemoryEngine::of([service(80, &[(1, 1), (2, 0), (3, 5)])]);
    let desired = [service(80, &[(1, 0), (2, 1), (4, 1)])];
    let ours = BTreeSet::from([desired[0].key]);
    let plan = plan(&mut memory, &desired, &ours);
    let printed = plan.to_string();
    let expected = [
        "add server 10.0.1.4:80 to tcp 10.0.0.1:80: direct, weight 1",
        "change server 10.0.1.2:80 of tcp 10.0.0.1:80: direct, weight 1, until now direct, weight 0",
        "change server 10.0.1.1:80 of tcp 10.0.0.1:80: direct, weight 0, until now direct, weight 1",
        "remove server 10.0.1.3:80 of tcp 10.0.0.1:80: its connections end",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    for planned in &plan.steps {
        memory.take(&planned.step).unwrap();
        assert!(memory.services()[0].destinations.iter().any(|destination| destination.weight > 0));
    }
}

#[test]
fn what_is_there_under_a_key_of_ours_is_taken_over_as_a_whole() {
    let theirs = Service { scheduler: Scheduler::LeastConn, ..service(80, &[(1, 1), (9, 1)]) };
    let observed = [Observed { service: theirs, beyond: vec!["scheduler lc".into()] }];
    let desired = [service(80, &[(1, 1)])];
    let plan = Plan::new(&observed, &desired, &Owners::default(), |_| Vec::new(), REMOVAL);
    assert_eq!(plan.taken_over, [desired[0].key]);
    let expected = [
        "take over service tcp 10.0.0.1:80, which exists in the kernel without a record",
        "change service tcp 10.0.0.1:80: wrr, until now scheduler lc",
        "change server 10.0.1.1:80 of tcp 10.0.0.1:80: direct, weight 1, until now direct, weight 1",
        "remove server 10.0.1.9:80 of tcp 10.0.0.1:80: its connections end",
    ];
    assert_eq!(plan.to_string().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_cannot_be_done_is_left_out_and_left_as_it_is() {
    let there = service(80, &[(1, 1)]);
    let asked = [service(80, &[(2, 1)]), service(81, &[(1, 1)]), service(81, &[]), service(82, &[(1, 1), (1, 2)])];
    let mut owners = Owners { ours: BTreeSet::from([there.key, service(90, &[]).key]), ..Owners::default() };
    owners.others.insert(service(83, &[]).key, "other".into());
    let asked: Vec<Service> = asked.into_iter().chain([service(83, &[])]).collect();
    let judge = |service: &Service| match service.destinations.first() {
        Some(first) if first.address.ip().to_string() == "10.0.1.2" => vec!["it is the wrong one".to_owned()],
        _ => Vec::new(),
    };
    let plan = Plan::new(&[there.into()], &asked, &owners, judge, REMOVAL);
    let expected = [
        "skip service tcp 10.0.0.1:80: it is the wrong one",
        "skip service tcp 10.0.0.1:81: it is configured twice",
        "skip service tcp 10.0.0.1:82: it has the server 10.0.1.1:82 twice",
        "skip service tcp 10.0.0.1:83: it belongs to `other`, which has it in its record",
        "add service tcp 10.0.0.1:81: wrr",
        "add server 10.0.1.1:81 to tcp 10.0.0.1:81: direct, weight 1",
    ];
    assert_eq!(plan.to_string().lines().collect::<Vec<_>>(), expected);
    assert_eq!(plan.gone, BTreeSet::from([service(90, &[]).key]));
}
