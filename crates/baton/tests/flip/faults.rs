//! What may go wrong: an end at any moment, two at once, a right or a file that is missing.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use super::machine::*;
use super::support::until;

#[test]
fn killed_at_any_moment_it_leaves_one_or_the_other() {
    for method in METHODS {
        in_network(|machine| {
            let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
            machine.init(&format!("--method {method}"));
            for turn in 0..20 {
                let to = if turn % 2 == 0 { "green" } else { "blue" };
                let mut child = machine.command(&format!("to {to}")).stdout(Stdio::null()).spawn().expect("it starts");
                // Each time a little later, over all that it does.
                std::thread::sleep(Duration::from_millis(2 * turn));
                let _ = child.kill();
                let _ = child.wait();
                let at = who(FRONT);
                // The program of iptables that it had started may be at its end only now.
                until("what is told is true", || {
                    let told = machine.does("status");
                    told.contains(&format!("go to {}", who(FRONT)))
                });
                assert!(["blue", "green"].contains(&at.as_str()), "{at}");
            }
            machine.does("to green");
            assert_eq!(who(FRONT), "green");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

#[test]
fn two_at_once_exclude_each_other() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let gate = machine.run.path().join("gate");
        shell(&format!("mkfifo {}", gate.display()));
        let reload = format!("echo begun; read line < {}", gate.display());
        let mut child = machine.command(&format!("run --reload-blue true --reload-green '{reload}'"));
        let mut child = child.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it speaks");
        assert_eq!(line, "begun\n");
        assert!(machine.refuses("to green").contains("another `baton flip` is changing it"));
        fs::write(&gate, "go\n").expect("somebody reads");
        let mut rest = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut rest).expect("it speaks");
        assert!(child.wait().expect("it ends").success(), "{rest}");
        machine.does("to blue");
        machine.does("remove");
    });
}

#[test]
fn what_is_refused_in_the_middle_leaves_nothing() {
    in_network(|machine| {
        let _blue = haproxy("blue", BLUE);
        for method in METHODS {
            let init = format!("init --listen :80 --blue {BLUE} --green {GREEN} --method {method}");
            let denied = machine.wrapped(&["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"], &init);
            assert!(denied.contains("CAP_NET_ADMIN") || denied.contains("root"), "{method}: {denied}");
            machine.is_as_before();
            // The rules are made, and then the kernel's switch cannot be.
            let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$@\"";
            let denied = machine.wrapped(&["unshare", "-m", "sh", "-c", read_only, "sh"], &init);
            assert!(denied.contains("route_localnet"), "{method}: {denied}");
            machine.is_as_before();
        }
        assert!(machine.does("status").contains("There is no flip"));
    });
}

#[test]
fn without_rights_nobody_says_that_there_is_nothing() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        let drop = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
        for method in METHODS {
            machine.init(&format!("--method {method}"));
            let made = rules();
            for line in ["status", "remove", "remove --dry-run", "to green"] {
                let said = machine.wrapped(&drop, line);
                assert!(said.contains("CAP_NET_ADMIN"), "{method}: {line}: {said}");
            }
            // Also where nobody remembers it.
            shell(&format!("find {} -name 'flip-*.json' -delete", machine.run.path().display()));
            for line in ["status", "remove"] {
                let said = machine.wrapped(&drop, line);
                assert!(said.contains("CAP_NET_ADMIN"), "{method}: {line}: {said}");
            }
            assert_eq!(rules(), made);
            machine.does("remove");
            shell(&format!("echo 0 > {LOCALNET}"));
            machine.is_as_before();
        }
    });
}

#[test]
fn two_names_for_one_address_are_refused() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let made = rules();
        for (listen, at) in [(":80", "127.0.0.1"), ("127.0.0.1:80", "127.0.0.1")] {
            let line = format!("init --name other --listen {listen} --blue {at}:8000 --green {at}:8001 --force");
            for line in [line.clone(), format!("{line} --method iptables"), format!("{line} --dry-run")] {
                let said = machine.refuses(&line);
                assert!(said.contains("the flip web already uses :80"), "{said}");
            }
        }
        assert_eq!(rules(), made);
        // Of another family, nothing is hidden.
        machine.does("init --name six --listen :80 --blue [::1]:8000 --green [::1]:8001 --force");
        machine.does("remove --name six");
        assert_eq!(rules(), made);
        machine.does("remove");
        machine.is_as_before();
    });
}

#[test]
fn no_name_is_taken_for_another() {
    for method in METHODS {
        in_network(|machine| {
            let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
            let names = ["trial", "trial-of-baton", "FLIP-a", "a-FLIP-b", "SWAP-a", "a-blue", "a"];
            for (at, name) in names.iter().enumerate() {
                let listen = 81 + at;
                let line = format!("init --name {name} --listen :{listen} --blue {BLUE} --green {GREEN}");
                machine.does(&format!("{line} --method {method}"));
                assert!(machine.does(&line).contains("set up already"), "{method}: {name}");
                machine.does(&format!("to green --name {name}"));
            }
            assert_eq!(machine.does("status").matches("go to green").count(), names.len(), "{method}");
            for name in names {
                assert!(machine.does(&format!("remove --name {name}")).contains("is removed"), "{method}: {name}");
                assert!(machine.does(&format!("remove --name {name}")).contains("nothing"), "{method}: {name}");
            }
            machine.is_as_before();
        });
    }
}

#[test]
fn a_guard_that_somebody_changed_is_told_and_mended() {
    for (method, break_it) in [
        ("iptables", "iptables -t raw -D BATON-FLIP-web 1"),
        ("ipset", "iptables -t raw -F BATON-SWAP-web"),
        ("ipset", "iptables -t raw -D PREROUTING -j BATON-SWAP-web"),
        ("nft", "nft flush chain inet baton-flip-web guard"),
    ] {
        in_network(|machine| {
            let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
            machine.init(&format!("--method {method}"));
            let made = rules();
            shell(break_it);
            let said = machine.refuses("status");
            assert!(said.contains("rules"), "{break_it}: {said}");
            machine.init("");
            assert_eq!(rules(), made, "{break_it}");
            machine.does("status");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

/// The files of flips of this network namespace.
fn files(machine: &Machine) -> Vec<String> {
    let list = shell(&format!("find {} -type f -printf '%f\\n' | sort", machine.run.path().display()));
    list.lines().map(str::to_owned).collect()
}

#[test]
fn the_loopback_is_not_opened_in_silence_when_all_files_are_lost() {
    for method in METHODS {
        in_network(|machine| {
            let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
            for is_made_again in [false, true] {
                machine.init(&format!("--method {method}"));
                shell(&format!("rm -rf {}/*/*", machine.run.path().display()));
                if is_made_again {
                    machine.init(&format!("--method {method}"));
                }
                for line in ["remove --dry-run", "remove"] {
                    let said = machine.does(line);
                    assert!(said.contains("route_localnet stays on"), "{method}: {line}: {said}");
                    assert!(said.contains("sysctl -w net.ipv4.conf.all.route_localnet=0"), "{said}");
                }
                shell(&format!("echo 0 > {LOCALNET}"));
                machine.is_as_before();
            }
            machine.init("");
            assert!(!machine.does("remove").contains("route_localnet"), "there is nothing to be told of");
        });
    }
}

#[test]
fn a_file_that_cannot_be_read_hides_no_other_flip() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let six = "--listen :81 --blue [::1]:8000 --green [::1]:8001 --force";
        machine.does(&format!("init --name six {six}"));
        let folder = shell(&format!("echo {}/*", machine.run.path().display()));
        let folder = folder.trim();
        // A pipe is not waited for, and a folder that is empty is removed.
        for break_it in ["echo {} >", "rm -f $0; mkfifo", "rm -f $0; mkdir"] {
            shell(&format!("set -- {folder}/flip-six.json; {} $1", break_it.replace("$0", "$1")));
            let said = machine.refuses("status");
            assert!(said.contains("go to blue") && said.contains("flip-six.json"), "{break_it}: {said}");
            assert!(said.contains("baton flip remove --name six"), "{said}");
            let said = machine.does("remove --name six");
            assert!(said.contains("flip-six.json") && said.contains("unreadable file"), "{break_it}: {said}");
            assert!(machine.does("status").contains("go to blue"));
        }
        fs::write(format!("{folder}/flip-six.json"), "x").expect("a folder of ours");
        assert!(machine.does("remove --name six").contains("only an unreadable file of six"));
        machine.does("remove");
        machine.is_as_before();
    });
}

#[test]
fn what_is_refused_or_only_planned_leaves_no_file() {
    in_network(|machine| {
        let init = format!("init --listen :80 --blue {BLUE} --green {GREEN}");
        machine.does(&format!("{init} --dry-run --force"));
        machine.does("status");
        machine.does("remove --dry-run");
        assert_eq!(fs::read_dir(machine.run.path()).expect("a folder of ours").count(), 0);
        machine.refuses(&format!("{init} --name two"));
        machine.refuses("to green --name nosuch");
        machine.does("remove --name nosuch");
        assert_eq!(files(machine), [""; 0]);
        let _blue = haproxy("blue", BLUE);
        machine.does(&init);
        machine.does("remove");
        assert_eq!(files(machine), [""; 0]);
        machine.is_as_before();
    });
}
