//! `set server … fqdn`, and what files of server states say of names. Compared with haproxy.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::name_server::{Knot, Manner, Scripted};
use super::{config, servers};
use crate::peers::{Both, socat};
use crate::support::{PATIENCE, Proxy, free_address, until};

const BACKENDS: &str = "backend app\n default-server init-addr none resolve-prefer ipv4\n server s1 a.test:80 resolvers r\n \
     server s2 127.0.0.9:80 resolvers r\n server s3 _app._tcp.test resolvers r\n server s4 127.0.0.9:80\n";

/// A text with an `N` for each number that stands alone.
fn shape(text: &str) -> String {
    let mut out = String::new();
    for token in text.split_inclusive([',', ':', '}', '\n']) {
        let (word, end) = token.split_at(token.len() - 1);
        let is_number = !word.trim().is_empty() && word.trim().bytes().all(|byte| byte.is_ascii_digit());
        out.push_str(if is_number { "N" } else { word });
        out.push_str(end);
    }
    out
}

#[test]
fn names_that_operators_set_are_looked_up_as_haproxy_does() {
    let knot = Knot::start("a A 127.0.0.91\nb A 127.0.0.92\n_app._tcp SRV 1 10 8001 t\nt A 127.0.0.93");
    let (ours, theirs, address) = (free_address(), free_address(), knot.address);
    let both = Both::start_each(
        |folder| config(folder, ours, address, BACKENDS),
        |folder| config(folder, theirs, address, BACKENDS),
    );
    let sockets = [both.baton("admin.sock"), both.haproxy("admin.sock")];
    let settle = |what: &str, row: &str| {
        until(&format!("{what}: {row}"), || {
            let [ours, theirs] = [0, 1].map(|at| servers(&sockets[at]));
            ours == theirs && ours.iter().any(|one| one == row)
        });
    };
    let type_in = |line: &str| {
        let [ours, theirs] = [0, 1].map(|at| socat(&sockets[at], format!("{line}\n")));
        assert_eq!(ours, theirs, "{line}");
        ours
    };
    for line in [
        "show resolvers",
        "show resolvers r",
        "show resolvers none",
        "show stat domain resolvers",
        "show stat domain resolvers 1 2 3",
        "show stat domain resolvers typed",
        "show stat domain resolvers json",
        "show stat domain dns",
        "show stat domain",
    ] {
        let [ours, theirs] = [0, 1].map(|at| socat(&sockets[at], format!("{line}\n")));
        // HAProxy's JSON lacks the commas between name servers.
        assert_eq!(shape(&ours), shape(&theirs.replace("}][{", "}],[{")), "{line}");
    }
    settle("the beginning", "app s1 127.0.0.91 2 0 1 1 a.test 80 -");
    settle("the beginning", "app s3 127.0.0.93 2 64 1 1 t.test 8001 _app._tcp.test");
    let long = format!("set server app/s1 fqdn {}", "a..".repeat(80));
    for refused in [
        "set server app/s1 fqdn",
        "set server app/s1 fqdn a*b",
        "set server app/s1 fqdn a..test",
        "set server app/s1 fqdn a/b",
        "set server app/s1 fqdn a.test",
        "set server app/s3 fqdn b.test",
        "set server app/s4 fqdn b.test",
        "set server app/none fqdn b.test",
        &long,
    ] {
        type_in(&format!("set severity-output number; {refused}"));
    }
    settle("nothing changed", "app s1 127.0.0.91 2 0 1 1 a.test 80 -");
    type_in("set severity-output number; set server app/s1 fqdn nx.test");
    settle("a name without addresses", "app s1 - 0 96 1 1 nx.test 80 -");
    type_in("set server app/s1 fqdn b.test");
    settle("another name", "app s1 127.0.0.92 2 64 1 1 b.test 80 -");
    // A literal address becomes one that is looked up. Whether an operator named the host, haproxy shows after another change of the state.
    type_in("set server app/s2 fqdn a.test");
    for socket in &sockets {
        until("it has the address of the name", || servers(socket)[1].starts_with("app s2 127.0.0.91 2 "));
        assert!(servers(socket)[1].ends_with(" 1 1 a.test 80 -"));
    }
    knot.change("b A 127.0.0.94\n_app._tcp SRV 1 10 8001 t\nt A 127.0.0.93");
    settle("its address changes", "app s1 127.0.0.94 2 64 1 1 b.test 80 -");
    knot.change("a A 127.0.0.91\nb A 127.0.0.94\n_app._tcp SRV 1 10 8001 t\nt A 127.0.0.93");
    settle("and comes back", "app s2 127.0.0.91 2 64 1 1 a.test 80 -");
}

/// Waits until servers are so.
#[track_caller]
fn settle(socket: &Path, expect: &[&str]) {
    let end = Instant::now() + PATIENCE;
    while servers(socket) != expect {
        assert!(Instant::now() < end, "{:#?}", servers(socket));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_name_that_an_operator_set_outlives_reloads_crashes_and_takeovers() {
    let dns = Scripted::start();
    dns.addresses("a.test", &["127.0.0.96"]);
    // Nothing but the name changes: both have one address.
    dns.addresses("b.test", &["127.0.0.96"]);
    dns.addresses("c.test", &["127.0.0.97"]);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend = "backend app\n server s1 a.test:80 resolvers r init-addr none resolve-prefer ipv4\n";
    let text = config(folder.path(), web, dns.address, backend).replace("300ms", "1h");
    let mut proxy = Proxy::begin(&[], &text, &["-W"]);
    proxy.serves();
    let socket = folder.path().join("admin.sock");
    let has = |row: &str| servers(&socket) == [row];
    until("it has an address", || has("app s1 127.0.0.96 2 0 1 1 a.test 80 -"));
    dns.behave(Manner::Silent);
    socat(&socket, "set server app/s1 fqdn b.test\n");
    const NAMED: &str = "app s1 127.0.0.96 2 64 1 1 b.test 80 -";
    assert!(has(NAMED), "it keeps its address until there is a response");
    proxy.change(&text.replace("timeout client 30s", "timeout client 31s"));
    assert!(has(NAMED), "after a reload: {:?}", servers(&socket));
    let worker = || {
        let text = socat(&socket, "show info\n");
        text.lines().find_map(|line| line.strip_prefix("Pid: ")).and_then(|pid| pid.parse::<i32>().ok())
    };
    let first = worker().expect("a worker");
    kill(Pid::from_raw(first), Signal::SIGKILL).expect("it runs");
    until("there is another worker", || worker().is_some_and(|pid| pid != first));
    assert!(has(NAMED), "after a crash: {:?}", servers(&socket));
    dns.behave(Manner::Good);
    dns.addresses("b.test", &["127.0.0.98"]);
    until("the name is asked for", || has("app s1 127.0.0.98 2 64 1 1 b.test 80 -"));
    // Without the override it has its address until the name of the file has one.
    dns.behave(Manner::Silent);
    socat(&socket, "clear overrides app/s1 fqdn\n");
    assert!(has("app s1 127.0.0.98 2 0 1 1 a.test 80 -"), "{:?}", servers(&socket));
    dns.behave(Manner::Good);
    until("the file's name counts", || has("app s1 127.0.0.96 2 0 1 1 a.test 80 -"));
    socat(&socket, "set server app/s1 fqdn b.test\n");
    until("again", || has("app s1 127.0.0.98 2 64 1 1 b.test 80 -"));
    // With another name in the file, that counts.
    proxy.change(&text.replace("a.test:80", "c.test:80"));
    until("the file's name counts", || has("app s1 127.0.0.97 2 0 1 1 c.test 80 -"));
}

#[test]
fn names_go_to_the_next_process_and_through_files_of_states() {
    let dns = Scripted::start();
    dns.addresses("a.test", &["127.0.0.96"]);
    dns.addresses("b.test", &["127.0.0.97"]);
    dns.addresses("t.test", &["127.0.0.98"]);
    dns.services("_app._tcp.test", vec![(300, 8001, "t.test".to_owned())]);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let saved = folder.path().join("states");
    let backend = "backend app\n load-server-state-from-file global\n default-server resolvers r init-addr last,none resolve-prefer ipv4\n \
                   server s1 a.test:80\n server s2 a.test:81\n server s3 _app._tcp.test\n";
    let text = config(folder.path(), web, dns.address, backend).replace("300ms", "1h");
    let text = text.replacen("global\n", &format!("global\n server-state-file {}\n", saved.display()), 1);
    let expect = [
        "app s1 127.0.0.97 2 64 1 1 b.test 80 -",
        "app s2 127.0.0.96 2 0 1 1 a.test 81 -",
        "app s3 127.0.0.98 2 64 2 1 t.test 8001 _app._tcp.test",
    ];
    let socket = folder.path().join("admin.sock");
    {
        let proxy = Proxy::start(&text);
        until("all have addresses", || servers(&socket).iter().all(|row| row.contains(" 127.0.0.9")));
        socat(&socket, "set server app/s1 fqdn b.test\n");
        settle(&socket, &expect);
        dns.behave(Manner::Silent);
        let next = proxy.replace(&[]);
        settle(&socket, &expect);
        fs::write(&saved, socat(&socket, "show servers state\n")).expect("the folder is ours");
        drop(next);
    }
    let proxy = Proxy::start(&text);
    assert_eq!(servers(&socket), expect, "{}", proxy.said());
    dns.behave(Manner::Good);
    dns.addresses("b.test", &["127.0.0.99"]);
    until("they are looked up all the same", || servers(&socket)[0] == "app s1 127.0.0.99 2 64 1 1 b.test 80 -");
}
