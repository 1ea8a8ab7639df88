//! What operators set at run time stays until the file changes that very field: over reloads and in a process that takes over.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;

use baton_prove::OriginHandle;
use tempfile::TempDir;

use super::{assert_served, free_address, origin};
use crate::support::{Proxy, program, until};

/// A process with a socket of the runtime API, and the text that it began with.
pub struct Operated {
    pub proxy: Proxy,
    pub text: String,
    pub web: SocketAddr,
    pub folder: TempDir,
    pub origin: OriginHandle,
}

impl Operated {
    pub fn start() -> Operated {
        Operated::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Operated {
        let (origin, web) = (origin(), free_address());
        let folder = tempfile::tempdir().expect("a folder for the test");
        let socket = folder.path().join("baton.sock");
        let socket = socket.display();
        let servers: String =
            (1..=3).map(|number| format!(" server s{number} {} weight 10\n", origin.address())).collect();
        let text = format!(
            "global\n nbthread 2\n stats socket {socket} level admin\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
             timeout server 30s\nfrontend web\n bind {web}\n default_backend app\nbackend app\n{servers}"
        );
        Operated { proxy: Proxy::start_with(&text, arguments), text, web, folder, origin }
    }

    #[track_caller]
    pub fn command(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.folder.path().join("baton.sock")).expect("it listens");
        writeln!(stream, "{line}").expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it replies");
        reply
    }

    /// Sets things that are right.
    #[track_caller]
    pub fn set(&self, lines: &[&str]) {
        lines.iter().for_each(|line| assert_eq!(self.command(line), "\n", "{line}"));
    }
}

/// Of each server, its state and its override; of all, how often they were chosen.
#[track_caller]
pub fn shown(proxy: &Proxy) -> (Vec<String>, Vec<String>) {
    let status = proxy.status();
    let servers = status.backends[0].servers.iter().map(|server| format!("{} {}", server.name, server.status));
    (servers.collect(), status.overrides.iter().map(ToString::to_string).collect())
}

pub fn chosen(proxy: &Proxy, server: usize) -> u64 {
    proxy.status().backends[0].servers[server].counters.get("lbtot").copied().unwrap_or_default()
}

#[test]
fn a_reload_keeps_what_was_set_until_the_file_changes_that_field() {
    let operated = Operated::start();
    let Operated { proxy, text, web, .. } = &operated;
    operated.set(&["set server app/s1 state maint", "set weight app/s2 50%", "set server app/s3 state drain"]);
    operated.set(&["set server app/s3 weight 7", "set server app/s3 state ready"]);
    let states = ["s1 MAINT", "s2 no check", "s3 no check"].map(String::from).to_vec();
    let all = ["app/s1 state maint (file: ready)", "app/s2 weight 5 (file: 10)", "app/s3 weight 7 (file: 10)"];
    let all = all.map(|one| format!("server {one}")).to_vec();
    assert_eq!(shown(proxy), (states.clone(), all.clone()));

    let line = |number: u32, more: &str| format!(" server s{number} {} weight {more}\n", operated.origin.address());
    let with = |from: &str, to: &str| text.replace(from, to);
    let outcome = proxy.change(&with(&line(1, "10"), &line(1, "10 maxconn 9")));
    assert_eq!(outcome.plan.overrides.iter().filter(|one| one.ends.is_none()).count(), 3);
    assert_eq!(shown(proxy), (states.clone(), all.clone()));
    (0..6).for_each(|_| assert_served(*web));
    assert_eq!(chosen(proxy, 0), 0, "it is in maintenance");

    // The file changes one field, and takes one server away.
    let text = with(&line(2, "10"), &line(2, "20")).replace(&line(3, "10"), "");
    proxy.write(&text);
    let planned = proxy.plan();
    let says = [
        "server app/s1 state maint (file: ready) stays",
        "server app/s2 weight 5 (file: 10) ends: the file now has 20",
    ];
    let gone = "server app/s3 weight 7 (file: 10) ends: server app/s3 is no longer in the file";
    let told: Vec<String> = planned.plan.overrides.iter().map(ToString::to_string).collect();
    assert_eq!(told, [says[0], says[1], gone]);
    assert_eq!(proxy.reload().plan, planned.plan);
    until("it is printed", || proxy.said().contains(&format!("set at run time: {}", says[1])));
    assert_eq!(shown(proxy), (states[..2].to_vec(), all[..1].to_vec()));
    assert_eq!(operated.command("get weight app/s2"), "20 (initial 20)\n\n");

    // A section that takes no part for a while keeps it.
    proxy.change(&text.replace("\nbackend app\n", "\nbackend app\n disabled\n"));
    proxy.change(&text);
    assert_eq!(shown(proxy), (states[..2].to_vec(), all[..1].to_vec()));

    // What was taken away begins anew, and what the file says is no override.
    proxy.change(&operated.text);
    assert_eq!(
        (shown(proxy).1, operated.command("get weight app/s3")),
        (all[..1].to_vec(), "10 (initial 10)\n\n".into())
    );
    operated.set(&["enable server app/s1"]);
    assert_eq!(shown(proxy).1, Vec::<String>::new());
}

#[test]
fn a_process_that_takes_over_keeps_what_was_set() {
    let operated = Operated::start();
    let Operated { proxy, text, web, .. } = &operated;
    operated.set(&["set server app/s1 state maint", "disable server app/s3", "set weight app/s2 0"]);
    operated.set(&["set server app/s2 weight 3", "set server app/s3 state drain"]);
    let before = (shown(proxy), proxy.status().overrides);
    let second = proxy.replace(&[]);
    assert_eq!((shown(&second), second.status().overrides), before, "with who set it, and when");
    (0..6).for_each(|_| assert_served(*web));
    assert_eq!([0, 1, 2].map(|server| chosen(&second, server)), [0, 6, 0]);

    // The next one by a file that changes a field.
    proxy.write(&text.replacen("weight 10", "weight 10 disabled", 1));
    let mut third = proxy.spawn_beside(&["-sf", &second.pid().to_string()]);
    third.serves();
    let ended = "server app/s1 state maint, set at run time, ends: the file now has maint";
    until("it is printed", || third.said().contains(ended));
    let kept = ["server app/s2 weight 3 (file: 10)", "server app/s3 state drain (file: ready)"];
    assert_eq!(shown(&third).1, kept);
    assert_eq!(shown(&third).0, ["s1 MAINT", "s2 no check", "s3 DRAIN"]);
}

#[test]
fn who_set_what_and_when_is_shown() {
    let operated = Operated::start();
    let pid = operated.proxy.pid().to_string();
    operated.set(&["set server app/s1 state maint"]);
    let ask = |arguments: &[&str]| {
        let output = Command::new(program()).args(arguments).args(["--pid", &pid]).output().expect("it was built");
        String::from_utf8(output.stdout).expect("text")
    };
    let (uid, own) = (nix::unistd::geteuid(), std::process::id());
    let by = format!("by uid {uid} pid {own} over unix@{}/baton.sock at 2", operated.folder.path().display());
    let status = ask(&["status"]);
    assert!(status.contains(&format!("set at run time: server app/s1 state maint (file: ready) {by}")), "{status}");
    let json: serde_json::Value = serde_json::from_str(&ask(&["status", "--json"])).expect("JSON");
    let one = &json["overrides"][0];
    assert_eq!((&one["server"], &one["value"], &one["uid"]), (&"s1".into(), &"maint".into(), &uid.as_raw().into()));
    assert_eq!(ask(&["plan"]), "no changes\nset at run time:\n    server app/s1 state maint (file: ready) stays\n");
}
