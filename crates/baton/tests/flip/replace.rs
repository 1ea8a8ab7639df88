//! `flip init` with other addresses than before, under load and where it is refused in the middle.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::machine::*;

/// Other addresses of the same two: of one family or both, with and without the loopback's switch.
const SETTINGS: [&str; 4] = [
    "--blue 127.0.0.1:8000 --green 127.0.0.1:8001 --active green",
    "--blue 127.0.0.1:8010 --green 127.0.0.1:8011 --active blue",
    "--blue :8000 --green :8001 --active green",
    "--blue 127.0.0.1:8010 --blue [::1]:8010 --green :8001 --active blue",
];
/// Settings that are put in the place of others under load at least.
const CHANGES: usize = 8;

fn both() -> [Haproxy; 2] {
    let binds = |last: char| format!("*:800{last},*:801{last}\n bind :::800{last},:::801{last} v6only");
    [haproxy("blue", &binds('0')), haproxy("green", &binds('1'))]
}

#[test]
fn nobody_fails_while_other_addresses_are_set_up() {
    for method in METHODS {
        in_network(|machine| {
            let _both = both();
            let init = |at: usize| {
                let setting = SETTINGS[at % SETTINGS.len()];
                machine.does(&format!("init --listen :80 --method {method} {setting}"));
                let expected = if setting.ends_with("green") { "green" } else { "blue" };
                assert_eq!(who(FRONT), expected, "{method}: {setting}");
            };
            init(0);
            let (mut changes, mut asked) = (0, 0);
            while changes < CHANGES {
                asked += while_asked(|| {
                    changes += 1;
                    init(changes);
                });
            }
            println!("{method}: {changes} settings, {asked} requests, none failed");
            machine.does("status");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

#[test]
fn another_port_replaces_the_one_before() {
    for method in METHODS {
        in_network(|machine| {
            let _both = both();
            machine.does(&format!("init --listen :80 --method {method} {}", SETTINGS[0]));
            let other = "--blue 127.0.0.1:8010 --green 127.0.0.1:8011 --active blue";
            machine.does(&format!("init --listen 127.0.0.1:81 --method {method} {other}"));
            assert_eq!(who("127.0.0.1:81"), "blue", "{method}");
            assert!(TcpStream::connect(FRONT).is_err(), "{method}");
            machine.does("status");
            machine.does("to green");
            assert_eq!(who("127.0.0.1:81"), "green", "{method}");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

/// A program in the place of another one, which refuses the call of this number.
fn refusing(machine: &Machine, program: &str, call: usize) -> String {
    instead(machine, program, call, "echo not now >&2; exit 1;")
}

/// A program in the place of another one, which at the call of this number does something else before.
fn instead(machine: &Machine, program: &str, call: usize, before: &str) -> String {
    let folder = machine.run.path().join("refusing");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("a folder of ours");
    let real = shell(&format!("command -v {program}"));
    let text = format!(
        "#!/bin/sh\necho >> {calls}\n[ $(wc -l < {calls}) -eq {call} ] && {{ {before} }}\nexec {real} \"$@\"\n",
        calls = folder.join("calls").display(),
        real = real.trim(),
    );
    fs::write(folder.join(program), text).expect("a folder of ours");
    fs::set_permissions(folder.join(program), fs::Permissions::from_mode(0o755)).expect("a file of ours");
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn what_is_refused_in_the_middle_leaves_what_was_there() {
    // From what needs the loopback's switch to what does not, and back.
    for (method, [from, to]) in [("ipset", [3, 2]), ("iptables", [3, 2]), ("ipset", [2, 3]), ("iptables", [2, 3])] {
        in_network(|machine| {
            let _both = both();
            let [from, to] = [from, to].map(|at| format!("init --listen :80 --method {method} {}", SETTINGS[at]));
            machine.does(&from);
            let (before, was_open) = (rules(), localnet());
            let at = || [who(FRONT), who("[::1]:80")];
            let sent = at();
            let mut refused = 0;
            for program in ["iptables-restore", "ip6tables-restore"] {
                for call in 1.. {
                    let path = refusing(machine, program, call);
                    let output = machine.command(&to).env("PATH", path).output().expect("it starts");
                    if output.status.success() {
                        // There are no more calls that could be refused.
                        machine.does(&from);
                        assert_eq!(rules(), before);
                        break;
                    }
                    refused += 1;
                    assert!(words(&output).contains("not now"), "{method}: {}", words(&output));
                    if was_open == "1" && localnet() == "0" {
                        // What comes last, the removal of a guard that nobody needs, is told, and done again.
                        assert!(
                            words(&output).contains("done, web: new connections to :80 go to"),
                            "{}",
                            words(&output)
                        );
                        assert!(machine.refuses("status").contains("guard of other addresses is left"), "{method}");
                        assert!(machine.does(&to).contains("go to"), "{method}");
                        machine.does("status");
                        machine.does(&from);
                    }
                    assert_eq!(rules(), before, "call {call} of {program}: {to}");
                    assert_eq!((at(), localnet()), (sent.clone(), was_open.clone()), "call {call} of {program}: {to}");
                    machine.does("status");
                }
            }
            assert!(refused >= 2, "{method}: {refused}");
            println!("{method}: {refused} refusals");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

#[test]
fn a_change_that_was_broken_off_is_told_and_ended() {
    for (method, [from, to]) in [("ipset", [0, 1]), ("ipset", [3, 2]), ("iptables", [2, 3])] {
        in_network(|machine| {
            let _both = both();
            let [from, to] = [from, to].map(|at| format!("init --listen :80 --method {method} {}", SETTINGS[at]));
            machine.does(&from);
            let mut told = 0;
            for program in ["iptables-restore", "ip6tables-restore"] {
                for call in 1.. {
                    // It is done, and whoever asked for it is gone.
                    let path = instead(machine, program, call, "kill -KILL $PPID;");
                    let output = machine.command(&to).env("PATH", path).output().expect("it starts");
                    if output.status.success() {
                        machine.does(&from);
                        break;
                    }
                    // What it had started may be at its end only now.
                    super::support::until("it is told", || {
                        let said = words(&machine.flip("status"));
                        let is_served = said.contains(&format!("new connections to :80 go to {}", who(FRONT)));
                        is_served || said.contains("may still go to the previous addresses")
                    });
                    told += usize::from(words(&machine.flip("status")).contains("a change was interrupted"));
                    machine.does(&to);
                    machine.does("status");
                    machine.does(&from);
                }
            }
            assert!(told > 0, "{method}");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

#[test]
fn clients_from_elsewhere_do_not_wait_for_the_loopback() {
    for method in METHODS {
        in_network(|machine| {
            let _both = both();
            let elsewhere = Elsewhere::new();
            let [plain, loopback] = [2, 1].map(|at| format!("init --listen :80 --method {method} {}", SETTINGS[at]));
            machine.does(&plain);
            // A client is there, and its machine knows ours.
            assert!(
                elsewhere
                    .run("curl -sS --retry 20 --retry-all-errors --retry-delay 0 http://10.9.0.1/")
                    .starts_with("green")
            );
            let again = || elsewhere.run("nstat -saz TcpRetransSegs").split_whitespace().nth_back(1).map(str::to_owned);
            let before = again();
            let mut load = elsewhere.command("ab -q -r -c 4 -n 5000 http://10.9.0.1/");
            let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ab is there");
            machine.does(&loopback);
            let said = words(&load.wait_with_output().expect("it has ended"));
            assert!(
                said.contains("Complete requests:      5000") && said.contains("Failed requests:        0"),
                "{said}"
            );
            assert!(elsewhere.run("curl -sS http://10.9.0.1/").starts_with("blue"), "{method}");
            assert_eq!(again(), before, "{method}: a packet was dropped and sent again");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}
