//! Files of server states: what the real haproxy writes is what Baton starts with, and the other way round.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::haproxy::Haproxy;
use crate::support::{Proxy, free_address, program, until};

use super::overrides::shown;

/// A configuration that loads `states`, with a socket of its own; `weights` and `more` are those of the first and of the second server.
fn config(folder: &Path, socket: &str, weight: u32, more: &str) -> String {
    let folder = folder.display();
    format!(
        "global\n stats socket {folder}/{socket} level admin\n server-state-base {folder}\n server-state-file states\ndefaults\n \
         mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n load-server-state-from-file global\nfrontend web\n \
         bind {}\n default_backend app\nbackend app\n server s1 127.0.0.1:1 weight {weight}\n server s2 127.0.0.1:1 weight 10{more}\n \
         server s3 127.0.0.1:1 check inter 100ms fall 2\n server s4 127.0.0.1:1 weight 10\nbackend own\n \
         load-server-state-from-file local\n server-state-file-name mine\n server l1 127.0.0.1:1 weight 4\n",
        free_address()
    )
}

fn ask(folder: &Path, socket: &str, line: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(folder.join(socket)).expect("it listens");
    writeln!(stream, "{line}").expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it replies");
    reply
}

/// Of each server: administrative state, weight, configured weight, and whether it is up.
fn states(text: &str) -> BTreeMap<String, String> {
    let of = |line: &str| {
        let columns: Vec<&str> = line.split(' ').collect();
        let is_up = columns[5] != "0";
        (format!("{}/{}", columns[1], columns[3]), format!("{} {}/{} {is_up}", columns[6], columns[7], columns[8]))
    };
    text.lines().filter(|line| line.contains(" 127.0.0.1 ")).map(of).collect()
}

/// What operators do before the states are written down.
fn operate(folder: &Path, socket: &str) -> String {
    for command in [
        "set server app/s1 weight 3",
        "set server app/s1 state drain",
        "enable server app/s2",
        "set server app/s4 state maint",
        "set server own/l1 weight 2",
    ] {
        assert_eq!(ask(folder, socket, command), "\n", "{command}");
    }
    until("checks have found that a server is down", || {
        states(&ask(folder, socket, "show servers state")).get("app/s3").is_some_and(|state| state.ends_with("false"))
    });
    let all = ask(folder, socket, "show servers state");
    fs::write(folder.join("states"), &all).expect("the folder is ours");
    fs::write(folder.join("mine"), ask(folder, socket, "show servers state own")).expect("the folder is ours");
    all
}

#[test]
fn states_that_haproxy_wrote_are_those_that_baton_starts_with() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let folder = folder.path();
    let haproxy = Haproxy::start(&config(folder, "haproxy.sock", 10, " disabled"), &folder.join("haproxy.sock"));
    let written = operate(folder, "haproxy.sock");
    drop(haproxy);
    let proxy = Proxy::start(&config(folder, "baton.sock", 10, " disabled"));
    assert_eq!(states(&ask(folder, "baton.sock", "show servers state")), states(&written));
    assert!(proxy.said().contains("the states of 5 servers are those of the server state file"), "{}", proxy.said());
    let kept = shown(&proxy).1;
    assert!(kept.contains(&"server app/s1 weight 3 (file: 10)".to_owned()), "{kept:?}");
    let by = ask(folder, "baton.sock", "show overrides");
    assert!(by.contains(&format!("over server-state-file {}/states at ", folder.display())), "{by}");
    // They are overrides like the others.
    assert_eq!(ask(folder, "baton.sock", "clear overrides app/s4"), "\n");
    assert_eq!(shown(&proxy).0[3], "s4 no check");
    // Nobody reads the file again.
    proxy.reload();
    assert_eq!(shown(&proxy).0[3], "s4 no check");
    let next = proxy.replace(&[]);
    assert_eq!(shown(&next).0[3], "s4 no check", "what a process hands over is newer than the file");
}

#[test]
fn states_that_baton_wrote_are_those_that_haproxy_starts_with() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let folder = folder.path();
    let proxy = Proxy::start(&config(folder, "baton.sock", 10, " disabled"));
    assert!(proxy.said().contains("Can't open global server state file"), "{}", proxy.said());
    let written = operate(folder, "baton.sock");
    drop(proxy);
    let _haproxy = Haproxy::start(&config(folder, "haproxy.sock", 10, " disabled"), &folder.join("haproxy.sock"));
    assert_eq!(states(&ask(folder, "haproxy.sock", "show servers state")), states(&written));
}

#[test]
fn a_configuration_that_says_something_else_wins_as_in_haproxy() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let folder = folder.path();
    let haproxy = Haproxy::start(&config(folder, "haproxy.sock", 10, " disabled"), &folder.join("haproxy.sock"));
    operate(folder, "haproxy.sock");
    drop(haproxy);
    let haproxy = Haproxy::start(&config(folder, "haproxy.sock", 20, ""), &folder.join("haproxy.sock"));
    let theirs = states(&ask(folder, "haproxy.sock", "show servers state"));
    drop(haproxy);
    let _proxy = Proxy::start(&config(folder, "baton.sock", 20, ""));
    assert_eq!(states(&ask(folder, "baton.sock", "show servers state")), theirs);
    assert_eq!(theirs["app/s1"], "8 20/20 true", "the weight is the file's, the state is not changed by it");
}

/// Of each server of `show servers state`: address, name, port, whether TLS is on, and where it is checked.
fn places(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<&str>>());
    let lines = lines.filter(|columns| columns.len() > 22 && columns[1] == "app");
    lines.map(|columns| (columns[3].to_owned(), [4, 17, 18, 20, 21, 22].map(|at| columns[at]).join(" "))).collect()
}

#[test]
fn places_are_restored_as_by_haproxy() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let folder = folder.path();
    let config = |socket: &str, port: u16| {
        format!(
            "global\n stats socket {folder}/{socket} level admin\n server-state-file {folder}/states\n ssl-server-verify none\n\
             defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n \
             load-server-state-from-file global\nfrontend web\n bind {}\n default_backend app\nbackend app\n \
             server port 127.0.0.1:{port}\n server addr 127.0.0.1:1002\n server name localhost:1003\n \
             server libc localhost:1004 init-addr libc\n server tls 127.0.0.1:1005 ssl\n server ready 127.0.0.1:1006 ssl\n \
             server check 127.0.0.1:1007 check inter 1h port 9 addr 127.0.0.9\n server plain 127.0.0.1:1008\n",
            free_address(),
            folder = folder.display()
        )
    };
    let haproxy = Haproxy::start(&config("haproxy.sock", 1001), &folder.join("haproxy.sock"));
    for command in [
        "set server app/port addr 127.0.0.1 port 2001",
        "set server app/addr addr 127.0.0.5 port 2002",
        "set server app/name addr 127.0.0.6 port 2003",
        "set server app/libc addr 127.0.0.7",
        "set server app/tls ssl off",
        "set server app/check check-addr 127.0.0.8 port 77",
    ] {
        ask(folder, "haproxy.sock", command);
    }
    fs::write(folder.join("states"), ask(folder, "haproxy.sock", "show servers state")).expect("the folder is ours");
    drop(haproxy);

    // The port of the file counts, whatever the configuration says.
    let haproxy = Haproxy::start(&config("haproxy.sock", 3001), &folder.join("haproxy.sock"));
    let theirs = places(&ask(folder, "haproxy.sock", "show servers state"));
    drop(haproxy);
    let proxy = Proxy::start(&config("baton.sock", 3001));
    let ours = places(&ask(folder, "baton.sock", "show servers state"));
    // A name that was given another address is its name no more.
    let nameless = |places: BTreeMap<String, String>| -> BTreeMap<String, String> {
        places.into_iter().map(|(name, place)| (name, place.replace(" localhost ", " - "))).collect()
    };
    assert_eq!(nameless(ours), nameless(theirs.clone()));
    assert_eq!((&*theirs["port"], &*theirs["tls"]), ("127.0.0.1 - 2001 0 0 -", "127.0.0.1 - 1005 0 0 -"));
    let kept = shown(&proxy).1;
    assert!(kept.contains(&"server app/port addr 127.0.0.1:2001 (file: 127.0.0.1:3001)".to_owned()), "{kept:?}");
}

#[test]
fn a_check_of_the_configuration_warns_of_a_missing_file_as_haproxy_does() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("a.cfg");
    fs::write(&file, config(folder.path(), "x.sock", 10, "")).expect("the folder is ours");
    let warnings = |program: &Path| -> Vec<String> {
        let output = std::process::Command::new(program).arg("-c").arg("-f").arg(&file).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = said.lines().filter(|line| line.starts_with("[WARNING]")).filter_map(|line| line.split_once(" : "));
        text.map(|(_, text)| text.to_owned()).collect()
    };
    let theirs = warnings(Path::new("/usr/sbin/haproxy"));
    assert_eq!(warnings(program()), theirs);
    assert!(theirs.iter().any(|text| text.contains("Can't open global server state file")), "{theirs:?}");
}

#[test]
fn a_worker_after_a_crash_knows_better_than_the_file() {
    use nix::sys::signal::{Signal, kill};
    let folder = tempfile::tempdir().expect("a folder for the test");
    let folder = folder.path();
    let proxy = Proxy::start(&config(folder, "baton.sock", 10, " disabled"));
    operate(folder, "baton.sock");
    drop(proxy);
    let proxy = Proxy::start_with(&config(folder, "baton.sock", 10, " disabled"), &["-W"]);
    assert_eq!(shown(&proxy).0[3], "s4 MAINT");
    assert_eq!(ask(folder, "baton.sock", "clear overrides app/s4"), "\n");
    let crash = || {
        let worker = proxy.status().pid;
        kill(nix::unistd::Pid::from_raw(worker as i32), Signal::SIGKILL).expect("it lives");
        until("another worker serves", || {
            let asked = baton_control::ask::ask(
                baton_control::ask::Whom::Pid(proxy.pid()),
                baton_control::protocol::Request::Status,
            );
            matches!(asked, Ok(baton_control::protocol::Reply::Status(status)) if status.pid != worker)
        });
    };
    crash();
    let (states, overrides) = shown(&proxy);
    assert_eq!(states[3], "s4 no check");
    assert!(overrides.contains(&"server app/s1 weight 3 (file: 10)".to_owned()), "{overrides:?}");
    assert_eq!(ask(folder, "baton.sock", "clear overrides"), "\n");
    crash();
    assert_eq!(shown(&proxy).1, Vec::<String>::new(), "the file is not read again");
}
