use super::*;
use crate::netns;

/// In a network of its own, if there is the right to one.
fn alone(test: impl FnOnce(&mut Traffic) + Send) {
    let inside = || test(&mut Traffic::of("lo").unwrap());
    if let Err(error) = netns::in_new(inside) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

#[test]
fn handles_are_written_as_tc_writes_them() {
    let prio = Handle::qdisc(0xba70);
    assert_eq!((prio.to_string(), prio.lane(4).to_string()), ("ba70:".into(), "ba70:4".into()));
    assert_eq!((Handle::ROOT.to_string(), prio.lane(4).major()), ("root".into(), 0xba70));
}

#[test]
fn the_kernels_own_choice_is_known() {
    alone(|traffic| {
        let all = traffic.qdiscs().unwrap();
        assert!(all.iter().all(Qdisc::is_default), "{all:?}");
        assert!(!traffic.delete_root(Handle::qdisc(0xba70)).unwrap(), "it is not there");
        assert_eq!(traffic.qdiscs().unwrap(), all);
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let fault = Traffic::of("baton-none").unwrap_err();
    assert_eq!(fault.to_string(), "there is no interface 'baton-none'");
    assert!(fault.remedy().unwrap().contains("ip link"));
}

#[test]
fn a_discipline_that_is_not_there_is_no_plug() {
    alone(|traffic| {
        let handle = Handle::qdisc(0xba7f);
        let fault = traffic.tell_plug(Handle::qdisc(0xba70).lane(4), handle, Plug::Buffer).unwrap_err();
        assert!(
            fault.to_string().starts_with("interface lo: qdisc change parent ba70:4 handle ba7f: plug Buffer"),
            "{fault}"
        );
    });
}

#[test]
fn a_kernel_without_the_discipline_is_told_by_the_modules_name() {
    alone(|traffic| {
        // Where the kernel has all of it, as it has in most distributions, it is there afterwards.
        let prio = Handle::qdisc(0xba70);
        let made = traffic.add_prio(prio, 4).and_then(|()| traffic.add_plug(prio.lane(4), Handle::qdisc(0xba7f), 1000));
        match made {
            Ok(()) => assert!(traffic.delete_root(prio).unwrap()),
            Err(QdiscError::NoModule { module, .. }) => {
                assert!(["sch_prio", "sch_plug"].contains(&module.as_str()), "{module}")
            }
            Err(other) => panic!("{other}"),
        }
    });
}
