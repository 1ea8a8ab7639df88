//! Health checks of all kinds: the same scripted servers are checked by Debian's haproxy and by Baton, once each. What the servers
//! receive, what is logged, and what `show stat` has must be equal.

mod flapping;
mod real;
mod relay;
mod servers;
mod socks;
mod steps;
mod stopped;

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::peers::socat;
use crate::support::haproxy::Haproxy;
use crate::support::{PATIENCE, Proxy};
use crate::table::{cell, table};

use servers::{Act, Scripted};

/// One backend with one server.
struct Case {
    name: &'static str,
    /// Lines of the backend. `@P` is the server's port, `@G` one that nobody listens on, `@D` a folder with the program `slow`.
    lines: Vec<&'static str>,
    /// What stands on the server's line beside its address.
    words: &'static str,
    /// What the server does; `None`: nobody is there.
    script: Option<Vec<Act>>,
    /// A server that runs already.
    port: Option<u16>,
}

fn case(name: &'static str, lines: &[&'static str], script: &[Act]) -> Case {
    Case { name, lines: lines.to_vec(), words: "", script: Some(script.to_vec()), port: None }
}

fn gone(name: &'static str, lines: &[&'static str]) -> Case {
    Case { name, lines: lines.to_vec(), words: "", script: None, port: None }
}

/// What a program made of a case: the line that it logged, the columns of statistics, and what the server received.
#[derive(Debug, Eq, PartialEq)]
struct Outcome {
    line: String,
    columns: [String; 3],
    received: String,
}

fn config(cases: &[(&Case, u16)], folder: &Path, log: u16, gone: u16) -> String {
    let mut text = format!(
        "global\n nbthread 1\n node testnode\n stats socket {folder}/admin.sock level admin\n log 127.0.0.1:{log} local0\n \
         max-spread-checks 20ms\n external-check\n insecure-fork-wanted\n\
         defaults\n log global\n mode tcp\n timeout connect 3s\n timeout client 3s\n timeout server 3s\n timeout check 700ms\n \
         option log-health-checks\n\
         frontend f\n bind {folder}/front.sock\n default_backend {first}\n",
        folder = folder.display(),
        first = cases[0].0.name,
    );
    for (case, port) in cases {
        text += &format!("backend {}\n", case.name);
        for line in &case.lines {
            text += &format!(
                " {}\n",
                line.replace("@P", &port.to_string())
                    .replace("@G", &gone.to_string())
                    .replace("@D", &folder.display().to_string())
            );
        }
        let words = case.words.replace("@P", &port.to_string());
        text += &format!(" server s1 127.0.0.1:{port} check inter 60s fall 1 {words}\n");
    }
    text
}

/// Runs a program until it has checked each server once.
fn outcomes(
    cases: &[Case],
    start: impl FnOnce(&str, &Path) -> Box<dyn std::any::Any>,
) -> BTreeMap<&'static str, Outcome> {
    let log = UdpSocket::bind("127.0.0.1:0").expect("a port");
    log.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket takes it");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let slow = folder.path().join("slow");
    fs::write(&slow, "#!/bin/sh\nexec /bin/sleep 60\n").expect("the folder is ours");
    fs::set_permissions(&slow, PermissionsExt::from_mode(0o755)).expect("the file is ours");
    let gone = Scripted::nobody();
    let servers: Vec<_> = cases.iter().map(|case| case.script.clone().map(Scripted::start)).collect();
    let nobody: Vec<_> = cases.iter().map(|_| Scripted::nobody()).collect();
    let with_ports: Vec<(&Case, u16)> = cases
        .iter()
        .enumerate()
        .map(|(at, case)| {
            (case, case.port.or(servers[at].as_ref().map(|server| server.port)).unwrap_or(nobody[at].port))
        })
        .collect();
    let log_port = log.local_addr().expect("it is bound").port();
    let text = config(&with_ports, folder.path(), log_port, gone.port);
    let program = start(&text, folder.path());
    let lines = first_lines(cases, &log);
    let stats = table(&socat(&folder.path().join("admin.sock"), "show stat\n"));
    drop(program);
    with_ports
        .iter()
        .enumerate()
        .map(|(at, (case, port))| {
            let columns =
                ["check_status", "check_code", "last_chk"].map(|name| cell(&stats, case.name, "s1", name).into());
            let received = servers[at].as_ref().map(Scripted::received).unwrap_or_default();
            let received = without_ports(&received, *port);
            let line = lines.get(case.name).cloned().unwrap_or_else(|| format!("no line; {stats:?}"));
            (case.name, Outcome { line, columns, received })
        })
        .collect()
}

/// The first line about each server's check, without what differs between two runs.
fn first_lines(cases: &[Case], log: &UdpSocket) -> BTreeMap<&'static str, String> {
    let mut lines = BTreeMap::new();
    let end = Instant::now() + PATIENCE;
    let mut packet = [0; 4096];
    while lines.len() < cases.len() && Instant::now() < end {
        let Ok(length) = log.recv(&mut packet) else { continue };
        let text = String::from_utf8_lossy(&packet[..length]).into_owned();
        let Some((_, line)) = text.split_once("Health check for server ") else { continue };
        let Some((name, told)) = line.trim_end().split_once("/s1 ") else { continue };
        let Some(case) = cases.iter().find(|case| case.name == name) else { continue };
        let told = match told.split_once(", check duration: ") {
            Some((before, after)) => format!("{before}{}", after.split_once("ms").map_or("", |(_, rest)| rest)),
            None => told.to_owned(),
        };
        lines.entry(case.name).or_insert(told);
    }
    lines
}

/// Ports differ between two runs.
fn without_ports(text: &str, port: u16) -> String {
    let text = text.replace(&port.to_string(), "PORT");
    match text.split_once("PROXY TCP4 127.0.0.1 127.0.0.1 ") {
        Some((before, rest)) => {
            let after = rest.split_once(' ').map_or("", |(_, after)| after);
            format!("{before}PROXY TCP4 127.0.0.1 127.0.0.1 OWN {after}")
        }
        None => text,
    }
}

/// Checks all servers by both programs.
fn compare(cases: &[Case]) {
    let reference = outcomes(cases, |text, folder| Box::new(Haproxy::start(text, &folder.join("admin.sock"))));
    let ours = outcomes(cases, |text, _| Box::new(Proxy::start(text)));
    let mut faults = Vec::new();
    for (name, expect) in &reference {
        let seen = &ours[name];
        if seen != expect {
            faults.push(format!("{name}:\n  haproxy {expect:?}\n  baton   {seen:?}"));
        }
    }
    assert!(faults.is_empty(), "{} of {} differ\n{}", faults.len(), cases.len(), faults.join("\n"));
}
