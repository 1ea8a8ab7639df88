//! The lab of the other tests (`support/lab`): that it is what it says.

mod support;

use std::fs;
use std::process::Command;

use support::lab;

#[test]
fn a_script_runs_as_root_with_its_own_kernel() {
    let script = "echo out; echo err >&2; id -u; uname -r; cat /sys/class/net/lo/operstate; exit 7";
    let Some(done) = lab::run(script) else { return };
    let lines: Vec<&str> = done.output.lines().collect();
    let kernel = Command::new("linux.uml").arg("--version").output().expect("it ran a moment ago");
    assert_eq!(lines[..3], ["out", "err", "0"], "{done:?}");
    assert_eq!(lines[3], String::from_utf8_lossy(&kernel.stdout).trim());
    assert_eq!(done.status, 7);
}

#[test]
fn a_lab_that_does_not_power_off_keeps_its_result() {
    let script = "echo output; printf 'the lab ends with 3\n'; exec sleep 600";
    let Some(done) = lab::run(script) else { return };
    assert_eq!((done.output.as_str(), done.status), ("output\n", 3));
}

#[test]
fn modules_come_when_they_are_asked_for() {
    let script = "set -e\ntc qdisc add dev lo root handle 7: prio\ntc qdisc add dev lo parent 7:3 plug\ntc qdisc show dev lo\n\
        modprobe dummy\nip link add dummy7 type dummy\nip -6 address show dev lo\n\
        iptables-legacy -A OUTPUT -j NFQUEUE --queue-num 5 --queue-bypass\nip6tables-legacy -t mangle -A OUTPUT -j MARK --set-mark 7\n\
        iptables-legacy-save\nip6tables-legacy-save";
    let Some(done) = lab::run(script) else { return };
    assert_eq!(done.status, 0, "{}", done.output);
    let expected = ["qdisc prio 7:", "qdisc plug", "inet6 ::1/128", "--queue-num 5 --queue-bypass", "--set-xmark 0x7"];
    assert!(expected.iter().all(|text| done.output.contains(text)), "{}", done.output);
}

#[test]
fn a_test_runs_inside_and_leaves_no_file() {
    lab::inside(|| {
        let folder = tempfile::tempdir().expect("a folder for the test");
        assert!(folder.path().starts_with("/run/tmp"), "{folder:?}");
        assert!(!fs::read_to_string("/proc/modules").expect("a kernel with modules").contains("sch_plug"));
        assert_eq!(std::env::var("HOME").as_deref(), Ok("/run"));
        let address = support::free_address();
        let listener = std::net::TcpListener::bind(address).expect("it was free a moment ago");
        std::net::TcpStream::connect(address).expect("loopback is up");
        drop(listener);
    });
}

#[test]
fn what_fails_inside_fails() {
    if std::env::var_os("BATON_LAB").is_some() {
        return lab::inside(|| panic!("on purpose"));
    }
    let failed = std::panic::catch_unwind(|| lab::inside(|| unreachable!("it runs in the lab")));
    let Err(reason) = failed else {
        // No lab here, which was said.
        assert!(lab::run("true").is_none(), "a failure inside is a failure");
        return;
    };
    let reason = reason.downcast_ref::<String>().expect("a text");
    assert!(reason.contains("on purpose"), "{reason}");
}
