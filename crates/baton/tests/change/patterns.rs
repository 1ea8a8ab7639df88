//! What was changed in maps and ACLs at run time stays until the file changes that very entry: over reloads, in a process that takes over,
//! and in the worker after one that crashed.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::overrides::Operated;
use super::{connect, exchange};
use crate::support::until;

const MAP: &str = "/a 1\n/b 2\n/c 3\n";

/// A process with a map.
struct Mapped {
    operated: Operated,
    text: String,
}

impl Mapped {
    fn start(arguments: &[&str]) -> Mapped {
        let operated = Operated::start_with(arguments);
        let map = operated.folder.path().join("hosts.map");
        std::fs::write(&map, MAP).expect("a file of the test");
        let rules = format!(
            " acl off path /off\n http-request deny if off\n http-request set-map({map}) %[req.hdr(k)] %[req.hdr(v)] if {{ path /set }}\n \
             http-request return status 200 content-type text/plain lf-string \"=%[path,map({map},none)]=\"\n",
            map = map.display()
        );
        let text = operated.text.replace("\n default_backend", &format!("\n{rules} default_backend"));
        operated.proxy.change(&text);
        Mapped { operated, text }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.operated.folder.path().join("hosts.map"), text).expect("a file of the test");
    }

    /// What the map has for each of these paths.
    fn values(&self, paths: &[&str]) -> Vec<String> {
        let value = |path: &&str| {
            let answer = exchange(&mut connect(self.operated.web), path, "close").expect("an answer");
            answer.split('=').nth_back(1).unwrap_or("denied").to_owned()
        };
        paths.iter().map(value).collect()
    }

    fn set_by_request(&self, key: &str) {
        let mut client = connect(self.operated.web);
        write!(client, "GET /set HTTP/1.1\r\nHost: test\r\nk: {key}\r\nv: by-request\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(self.values(&[key]), ["by-request"]);
    }

    /// Kills the worker and waits for the next one.
    fn crash(&self) {
        let proxy = &self.operated.proxy;
        let dead = proxy.status().pid;
        kill(Pid::from_raw(dead as i32), Signal::SIGKILL).expect("it is ours");
        until("another one serves", || match ask(Whom::Pid(proxy.pid()), Request::Status) {
            Ok(Reply::Status(status)) => status.pid != 0 && status.pid != dead,
            _ => false,
        });
    }

    fn set(&self) {
        let map = self.operated.folder.path().join("hosts.map");
        let lines = [
            format!("set map {} /a live", map.display()),
            format!("del map {} /b", map.display()),
            format!("add map {} /n new", map.display()),
        ];
        self.operated.set(&lines.each_ref().map(String::as_str));
        self.operated.set(&["add acl #0 /out"]);
    }
}

const PATHS: [&str; 5] = ["/a", "/b", "/c", "/n", "/out"];

#[test]
fn a_reload_takes_from_the_file_what_changed_in_it() {
    let mapped = Mapped::start(&[]);
    assert_eq!(mapped.values(&PATHS), ["1", "2", "3", "none", "none"]);
    mapped.set();
    let set = ["live", "none", "3", "new", "denied"];
    assert_eq!(mapped.values(&PATHS), set);
    let proxy = &mapped.operated.proxy;
    proxy.change(&mapped.text.replace("timeout client 30s", "timeout client 31s"));
    assert_eq!(mapped.values(&PATHS), set);
    mapped.write("/a 11\n/b 2\n/c 33\n/d 4\n");
    let planned = proxy.plan();
    let changes: Vec<&str> = planned.plan.changes.iter().map(|change| change.change.as_str()).collect();
    let expected = "hosts.map: 1 added, 2 changed, 0 removed (/a changed, /c changed, /d added)";
    assert!(changes.iter().any(|change| change.ends_with(expected)), "{changes:?}");
    let ended: Vec<String> = planned.plan.overrides.iter().map(ToString::to_string).collect();
    assert!(
        ended.len() == 1 && ended[0].ends_with("/a [\"live\"] (file: [\"1\"]) ends: the file changed this entry"),
        "{ended:?}"
    );
    assert_eq!(mapped.values(&PATHS), set, "a plan changes nothing");
    assert!(proxy.reload().accepted);
    assert_eq!(mapped.values(&PATHS), ["11", "none", "33", "new", "denied"]);
    // What the file names twice, or with a value that cannot be, is refused without a trace.
    let refused = mapped.text.replace(",none)", ",none)]%[path,map_str_int(").replace(
        "map_str_int(]",
        &format!("map_str_int({})]", mapped.operated.folder.path().join("hosts.map").display()),
    );
    mapped.write("/a word\n");
    assert!(!proxy.change_refused(&refused).is_empty());
    assert_eq!(mapped.values(&PATHS), ["11", "none", "33", "new", "denied"]);
}

#[test]
fn a_process_that_takes_over_goes_on_with_the_entries() {
    let mapped = Mapped::start(&[]);
    mapped.set();
    mapped.write("/a 1\n/b 2\n/c 3\n/n file\n");
    let _second = mapped.operated.proxy.replace(&[]);
    assert_eq!(mapped.values(&PATHS), ["live", "none", "3", "file", "denied"]);
}

#[test]
fn a_worker_after_a_crash_goes_on_with_the_entries() {
    let mapped = Mapped::start(&["-W"]);
    mapped.set_by_request("/r");
    // Whatever changed before a command is told to the master with it.
    mapped.set();
    mapped.crash();
    assert_eq!(mapped.values(&PATHS), ["live", "none", "3", "new", "denied"]);
    assert_eq!(mapped.values(&["/r"]), ["by-request"]);
    mapped.operated.set(&["clear acl #0"]);
    mapped.crash();
    assert_eq!(mapped.values(&["/out", "/n"]), ["none", "new"]);
}

#[test]
fn what_requests_change_is_told_to_the_master_in_time() {
    let mapped = Mapped::start(&["-W"]);
    let is_kept = (0..10).any(|attempt| {
        let path = format!("/r{attempt}");
        mapped.set_by_request(&path);
        let since = Instant::now();
        until("twice the time has passed", || since.elapsed() > Duration::from_secs(2));
        mapped.crash();
        mapped.values(&[&path]) == ["by-request"]
    });
    assert!(is_kept);
}
