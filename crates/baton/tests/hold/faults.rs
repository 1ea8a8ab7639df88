//! Whatever is killed, hangs or is refused: traffic flows, and nothing is left.

use std::fs;
use std::net::TcpListener;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::{Running, WEB, alone, assert_held, files, is_open, migrate_setting, ours, said, text};
use crate::support::until;

#[test]
fn killed_by_9_the_guardian_lets_go() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        for method in ["drop", "migrate", "queue"] {
            let running = machine.start(&["--to", WEB, "--method", method, "--max", "60s"], "exec sleep 0.5");
            assert_held(method);
            running.signal(Signal::SIGKILL);
            until("the guardian lets go", || ours().is_empty() && migrate_setting() == "0");
            until("its file is gone", || machine.run(&["status"]).status.success() && is_open());
            drop(running);
            until("nothing is left", || files(machine.folder.path()).iter().all(|name| !name.ends_with(".json")));
            machine.assert_clean();
        }
    });
}

#[test]
fn a_killed_guardian_is_noticed_and_undone() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        for method in ["drop", "migrate", "queue"] {
            let running = machine.start(&["--to", WEB, "--method", method, "--max", "60s"], "exec sleep 60");
            kill(Pid::from_raw(running.guardian()), Signal::SIGKILL).expect("it lives");
            until("it is undone", || ours().is_empty() && migrate_setting() == "0");
            assert!(is_open());
            running.signal(Signal::SIGTERM);
            let (code, said) = running.wait();
            assert_eq!(code, 143, "{said}");
            assert!(said.contains("the guardian process was killed"), "{said}");
            machine.assert_clean();
        }
    });
}

/// Kills a hold and its guardian at the same moment: stopped, neither sees the other's end.
fn kill_both(running: &Running) {
    let guardian = running.guardian();
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for pid in [guardian, running.pid()] {
            kill(Pid::from_raw(pid), signal).expect("it lives");
        }
    }
}

#[test]
fn with_both_killed_the_kernel_lets_go_and_release_cleans_up() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        let running = machine.start(&["--to", WEB, "--method", "drop", "--max", "1s"], "exec sleep 0.1");
        kill_both(&running);
        drop(running);
        until("the elements of the set end", is_open);
        assert!(ours().contains("baton-hold-"), "an empty table is left");
        let status = machine.run(&["status"]);
        assert_eq!(status.status.code(), Some(1));
        assert!(text(&status.stdout).contains("127.0.0.1:80 (drop"), "{}", text(&status.stdout));
        let released = machine.run(&["release"]);
        assert!(released.status.success() && text(&released.stdout).contains("released 127.0.0.1:80"), "{released:?}");
        machine.assert_clean();
    });
}

#[test]
fn the_next_run_cleans_up_after_a_dead_one() {
    alone(|machine| {
        for method in ["drop", "migrate", "queue"] {
            let running = machine.start(&["--to", WEB, "--method", method, "--max", "60s"], "exec sleep 0.1");
            kill_both(&running);
            drop(running);
            assert_held(method);
            let next = machine.run(&["--to", WEB, "--method", "drop", "--", "true"]);
            assert!(next.status.success(), "{}", text(&next.stderr));
            assert_eq!(migrate_setting(), "0");
            machine.assert_clean();
        }
    });
}

#[test]
fn the_deadline_holds_for_a_command_that_hangs_and_for_a_guardian_that_does() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        for stopped in [false, true] {
            let running = machine.start(&["--to", WEB, "--method", "migrate", "--max", "200ms"], "exec sleep 60");
            if stopped {
                kill(Pid::from_raw(running.guardian()), Signal::SIGSTOP).expect("it lives");
            }
            until("the deadline", || migrate_setting() == "0");
            running.signal(Signal::SIGTERM);
            let (code, said) = running.wait();
            assert_eq!(code, 143, "{said}");
            let expect = if stopped { "was killed or hung" } else { "the limit (--max) was reached before" };
            assert!(said.contains(expect), "{said}");
            machine.assert_clean();
        }
    });
}

#[test]
fn a_guardian_that_hangs_is_helped_when_it_is_overdue_though_the_command_has_ended() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        // The command ends after the deadline, and before somebody looks after the guardian.
        let running = machine.start(&["--to", WEB, "--method", "migrate", "--max", "200ms"], "sleep 1");
        kill(Pid::from_raw(running.guardian()), Signal::SIGSTOP).expect("it lives");
        let (code, said) = running.wait();
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("was killed or hung"), "{said}");
        assert_eq!(migrate_setting(), "0");
        machine.assert_clean();
    });
}

#[test]
fn what_is_no_file_is_told_and_removed() {
    alone(|machine| {
        machine.run(&["status"]);
        let place = machine.state().join("hold-4242.json");
        let at = place.display().to_string();
        for program in ["mkfifo", "mkdir"] {
            said(program, &[&at]);
            let status = machine.run(&["status"]);
            assert_eq!(status.status.code(), Some(1));
            assert!(text(&status.stdout).contains("hold-4242.json: is not a file"), "{}", text(&status.stdout));
            let held = machine.run(&["--to", WEB, "--method", "drop", "--", "true"]);
            assert!(held.status.success(), "{program}: {}", text(&held.stderr));
            let released = machine.run(&["release"]);
            assert!(released.status.success(), "{program}: {}", text(&released.stderr));
            machine.assert_clean();
        }
        fs::create_dir_all(place.join("something")).expect("the folder is ours");
        let refused = machine.run(&["release"]);
        let told = text(&refused.stderr);
        assert!(!refused.status.success() && told.contains(&format!("rm -r {at}")), "{told}");
        fs::remove_dir_all(&place).expect("the folder is ours");
        machine.assert_clean();
    });
}

#[test]
fn a_daemon_that_the_command_leaves_behind_does_not_keep_the_hold() {
    alone(|machine| {
        let pid = machine.at("pid");
        // It keeps whatever it inherits but standard output and error, on which we wait.
        let script = format!("sleep 300 >/dev/null 2>&1 & echo $! >{}", pid.display());
        let output = machine.run(&["--to", WEB, "--method", "drop", "--max", "60s", "--", "sh", "-c", &script]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        machine.assert_clean();
        let again = machine.run(&["--to", WEB, "--method", "drop", "--", "true"]);
        assert!(again.status.success(), "{}", text(&again.stderr));
        let pid = fs::read_to_string(pid).expect("it was written").trim().parse().expect("a number");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it goes on");
    });
}

#[test]
fn without_the_right_the_capability_is_named_and_the_command_not_run() {
    alone(|machine| {
        let drop_right = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
        let ran = machine.at("ran");
        let touch = ran.display().to_string();
        for method in ["auto", "drop", "migrate"] {
            let words = ["--to", WEB, "--method", method, "--", "touch", &touch];
            let output = machine.under(&drop_right, &words).output().expect("setpriv is there");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{said}");
            assert!(said.contains("CAP_NET_ADMIN") && said.contains("the command was not run"), "{said}");
            assert!(!ran.exists());
            // Its plan is refused where it would be.
            let words = ["--to", WEB, "--method", method, "--dry-run"];
            let planned = machine.under(&drop_right, &words).output().expect("setpriv is there");
            assert_eq!(planned.status.code(), Some(125), "{}", text(&planned.stderr));
        }
        let words = ["--to", WEB, "--anyway", "--", "sh", "-c", "exit 9"];
        let output = machine.under(&drop_right, &words).output().expect("setpriv is there");
        assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
        machine.assert_clean();
    });
}

#[test]
fn what_the_kernel_refuses_leaves_nothing() {
    alone(|machine| {
        // Root in a user namespace has the capability, but not over this network.
        for method in ["drop", "queue"] {
            let words = ["--to", WEB, "--method", method, "--", "echo", "ran"];
            let output =
                machine.under(&["unshare", "--user", "--map-root-user"], &words).output().expect("unshare is there");
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""), "{said}");
            assert!(said.contains("CAP_NET_ADMIN") && said.contains("the command was not run"), "{said}");
            machine.assert_clean();
        }
    });
}

#[test]
fn what_the_kernel_refuses_in_the_middle_leaves_nothing() {
    /// Calls of one process at most: more than any of them makes.
    const CALLS_MAX: usize = 200;
    alone(|machine| {
        said("nft", &["add table inet mine { chain c { type filter hook input priority 0; tcp dport 22 accept; }; }"]);
        said("iptables", &["-w", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"]);
        let rules = || [said("nft", &["list", "ruleset"]), said("iptables", &["-S"])];
        let before = rules();
        let log = machine.at("log");
        for method in ["drop", "queue"] {
            let (mut refused, mut ran) = (0, 0);
            for number in 1.. {
                assert!(number < CALLS_MAX, "{method}: there is no end");
                // Of each process, so many messages to the kernel are sent as they are, and the next one is refused.
                let fault = format!("inject=sendto:error=EPERM:when={number}");
                let strace =
                    ["strace", "-f", "-qq", "-o", log.to_str().expect("text"), "-e", "trace=sendto", "-e", &fault];
                let words = ["--to", WEB, "--to", "10.9.0.9:81", "--method", method, "--", "echo", "it was run"];
                let output = machine.under(&strace, &words).output().expect("strace is installed");
                let said = text(&output.stderr);
                assert_eq!(rules(), before, "{method}, call {number}: {said}");
                match (output.status.code(), text(&output.stdout).as_str()) {
                    (Some(125), "") => {
                        assert!(said.contains("the command was not run"), "{said}");
                        refused += 1;
                    }
                    (Some(0), "it was run\n") => ran += 1,
                    other => panic!("{method}, call {number}: {other:?} {said}"),
                }
                let status = machine.run(&["status"]);
                assert!(status.status.success(), "{method}, call {number}: {}{said}", text(&status.stdout));
                if !fs::read_to_string(&log).expect("strace wrote it").contains("INJECTED") {
                    break;
                }
            }
            assert!(refused > 0 && ran > 0, "{method}: {refused} refused, {ran} run");
        }
    });
}

#[test]
fn an_interface_that_is_not_there_is_refused() {
    alone(|machine| {
        let check = |method: &str, interface: &str, expect: &str| {
            let words = ["--to", WEB, "--method", method, "--interface", interface, "--", "echo", "ran"];
            let output = machine.run(&words);
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""), "{method}: {said}");
            assert!(said.contains(expect), "{method}: {said}");
        };
        for method in ["auto", "migrate", "queue", "drop"] {
            check(method, "nowhere0", "--interface nowhere0: there is no such interface");
        }
        check("migrate", "lo", "not to an interface");
        machine.assert_clean();
    });
}

#[test]
fn a_file_that_cannot_be_read_is_in_nobodys_way() {
    alone(|machine| {
        machine.run(&["status"]);
        let file = machine.state().join("hold-4242.json");
        for content in ["half of a", "{}"] {
            fs::write(&file, content).expect("the folder is ours");
            said(
                "nft",
                &[
                    "add table inet baton-hold-4242 { chain syn { type filter hook prerouting priority -300; tcp dport 1 drop; }; }",
                ],
            );
            let words = ["--to", WEB, "--method", "drop", "--", "echo", "it was run"];
            let output = machine.run(&words);
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "it was run\n"), "{said}");
            assert!(said.contains("hold-4242.json") && said.contains("`baton hold release` removes it"), "{said}");
            let status = machine.run(&["status"]);
            let told = text(&status.stdout);
            assert_eq!(status.status.code(), Some(1), "{told}");
            assert!(told.contains("hold-4242.json") && told.contains("`baton hold release`"), "{told}");
            let released = machine.run(&["release"]);
            let told = text(&released.stdout);
            assert!(released.status.success() && told.contains("hold-4242.json"), "{told}");
            machine.assert_clean();
        }
    });
}

#[test]
fn a_guardian_that_hangs_after_its_run_was_killed_is_ended() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        let hang = |method: &str| {
            let running = machine.start(&["--to", WEB, "--method", method, "--max", "60s"], "exec sleep 0.1");
            let guardian = running.guardian();
            kill(Pid::from_raw(guardian), Signal::SIGSTOP).expect("it lives");
            running.signal(Signal::SIGKILL);
            drop(running);
            assert_held(method);
            guardian
        };
        for method in ["drop", "migrate", "queue"] {
            let guardian = hang(method);
            let status = machine.run(&["status"]);
            assert_eq!(status.status.code(), Some(1));
            assert!(text(&status.stdout).contains("ending  127.0.0.1:80"), "{}", text(&status.stdout));
            let released = machine.run(&["release"]);
            let told = text(&released.stdout);
            assert!(released.status.success(), "{told}{}", text(&released.stderr));
            assert!(told.contains(&format!("ended the hung guardian process {guardian}")), "{told}");
            assert!(told.contains("released 127.0.0.1:80"), "{told}");
            assert!(is_open() && migrate_setting() == "0");
            machine.assert_clean();
        }
        for wait in [&["--wait"][..], &[]] {
            hang("drop");
            let words = [&["--to", WEB, "--method", "drop"], wait, &["--", "echo", "it was run"]].concat();
            let output = machine.run(&words);
            assert_eq!(text(&output.stdout), "it was run\n", "{}", text(&output.stderr));
            machine.assert_clean();
        }
    });
}

#[test]
fn what_another_boot_or_namespace_left_is_forgotten() {
    alone(|machine| {
        let running = machine.start(&["--to", WEB, "--method", "migrate", "--max", "60s"], "exec sleep 0.1");
        kill_both(&running);
        let run = running.pid();
        drop(running);
        // As if this were another namespace with the same number: the value from before is not its own.
        for name in [format!("hold-{run}.json"), "sysctl-tcp_migrate_req.json".to_owned()] {
            let file = machine.state().join(name);
            let record = fs::read_to_string(&file).expect("it was left");
            assert!(record.contains("\"netns\":"), "{record}");
            fs::write(&file, record.replace("\"netns\":", "\"netns\":9")).expect("the folder is ours");
        }
        let status = machine.run(&["status"]);
        assert!(text(&status.stdout).contains("of an earlier boot or network namespace"), "{status:?}");
        let released = machine.run(&["release"]);
        assert!(text(&released.stdout).contains("removed the record of 127.0.0.1:80 (migrate"), "{released:?}");
        assert_eq!(migrate_setting(), "1", "nobody here switched it on");
        let next = machine.run(&["--to", WEB, "--method", "migrate", "--", "true"]);
        assert!(next.status.success(), "{}", text(&next.stderr));
        assert_eq!(migrate_setting(), "1");
        machine.assert_clean();
    });
}

#[test]
fn rules_and_disciplines_of_others_stay_as_they_are() {
    alone(|machine| {
        let nft = "add table inet mine { set s { type inet_service; elements = { 22, 80 }; }; chain c { type filter hook prerouting \
                   priority -300; tcp dport @s counter accept; }; }";
        said("nft", &[nft]);
        said("iptables", &["-w", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"]);
        said("ip6tables-legacy", &["-w", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"]);
        let all = || {
            [
                said("nft", &["list", "ruleset"]),
                said("iptables", &["-S"]),
                said("ip6tables-legacy", &["-S"]),
                said("tc", &["qdisc", "show"]),
            ]
        };
        let before = all();
        assert!(before[0].contains("table inet mine") && before[2].contains("80"), "{before:?}");
        for method in ["drop", "migrate", "queue"] {
            let output = machine.run(&["--to", ":80", "--method", method, "--", "true"]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!(all(), before);
            let running = machine.start(&["--to", ":80", "--method", method, "--max", "60s"], "exec sleep 0.1");
            kill_both(&running);
            drop(running);
            until("it is released", || machine.run(&["release"]).status.success() && ours().is_empty());
            assert_eq!(all(), before);
        }
    });
}
