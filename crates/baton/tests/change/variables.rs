//! Variables of the process stay until the file changes the lines that set them: over reloads, in a process that takes over, and in the worker
//! after one that crashed. So do the last changes that the process remembers.

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::overrides::Operated;
use super::{connect, exchange};
use crate::support::until;

/// A process with variables.
struct Variables {
    operated: Operated,
    text: String,
}

impl Variables {
    fn start(arguments: &[&str]) -> Variables {
        let operated = Operated::start_with(arguments);
        let rules = " http-request set-var(proc.path) path if { path_beg /set }\n http-request return status 200 content-type text/plain \
                     lf-string \"=%[var(proc.a)] %[var(proc.b)] %[var(proc.path)]=\"\n";
        let text = operated.text.replace("\n default_backend", &format!("\n{rules} default_backend"));
        let text = text.replace("global\n", "global\n set-var proc.a int(1)\n set-var-fmt proc.b b%[var(proc.a)]\n");
        operated.proxy.change(&text);
        Variables { operated, text }
    }

    /// What a request sees.
    #[track_caller]
    fn check(&self, target: &str, expect: &str) {
        let answer = exchange(&mut connect(self.operated.web), target, "close").expect("an answer");
        assert_eq!(answer.split('=').nth_back(1), Some(expect), "{answer}");
    }

    #[track_caller]
    fn set(&self, name: &str, expression: &str) {
        let reply = self.operated.command(&format!("experimental-mode on; set var {name} {expression}"));
        assert_eq!(reply.trim(), "", "{name} {expression}");
    }

    fn get(&self, name: &str) -> String {
        self.operated.command(&format!("get var {name}")).trim().to_owned()
    }

    /// What the page shows of the last changes, without those of the start.
    fn changes(&self) -> Vec<String> {
        let status = self.operated.proxy.status();
        status.changes.iter().map(|change| format!("{} by {}", change.what, change.by)).collect()
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
}

#[test]
fn a_reload_sets_what_its_lines_changed_and_nothing_else() {
    let all = Variables::start(&[]);
    all.check("/", "1 b1 ");
    all.check("/set", "1 b1 /set");
    all.set("proc.a", "int(7)");
    all.set("proc.new", "fmt x%[var(proc.a)]");
    all.check("/", "7 b1 /set");

    let proxy = &all.operated.proxy;
    proxy.change(&all.text.replace("timeout client 30s", "timeout client 31s"));
    all.check("/", "7 b1 /set");
    assert_eq!(all.get("proc.new"), "proc.new: type=str value=<x7>");

    let outcome = proxy.change(&all.text.replace("b%[var(proc.a)]", "c%[var(proc.a)]"));
    let changes: Vec<&str> = outcome.plan.changes.iter().map(|change| change.change.as_str()).collect();
    assert!(changes.iter().any(|change| change.contains("set-var")), "{changes:?}");
    all.check("/", "7 c7 /set");

    proxy.change(&all.text.replace(" set-var proc.a int(1)\n", " set-var proc.a int(2)\n"));
    all.check("/", "2 b2 /set");
    proxy.change(&all.text.replace(" set-var proc.a int(1)\n", ""));
    all.check("/", " b2 /set");
    let refused = proxy.change_refused(&all.text.replace("int(1)", "src"));
    assert!(refused.contains("'src' cannot be used here"), "{refused}");
    all.check("/", " b2 /set");
}

#[test]
fn a_process_that_takes_over_goes_on_with_the_variables_and_the_last_changes() {
    let all = Variables::start(&[]);
    all.check("/set", "1 b1 /set");
    all.set("proc.a", "int(7)");
    let before = all.changes();
    assert!(before.iter().any(|change| change.starts_with("variable proc.a set by operator")), "{before:?}");
    let operated = &all.operated;
    operated.proxy.write(&all.text.replace("b%[var(proc.a)]", "c%[var(proc.a)]"));
    let second = operated.proxy.replace(&[]);
    all.check("/", "7 c7 /set");
    let after = second.status().changes;
    assert_eq!(after.iter().map(|change| format!("{} by {}", change.what, change.by)).collect::<Vec<_>>(), before);
}

#[test]
fn a_worker_after_a_crash_goes_on_with_the_variables_and_the_last_changes() {
    let all = Variables::start(&["-W"]);
    all.set("proc.a", "str(a\\ \\\\\\x41)");
    let set = all.get("proc.a");
    // Whatever requests set before a command is told to the master with it.
    all.check(
        "/set-1",
        &format!("{} b1 /set-1", set.trim_start_matches("proc.a: type=str value=<").trim_end_matches('>')),
    );
    all.set("proc.new", "bool(true)");
    let before = all.changes();
    all.crash();
    assert_eq!(all.get("proc.a"), set);
    assert_eq!(all.get("proc.path"), "proc.path: type=str value=</set-1>");
    assert_eq!(all.get("proc.new"), "proc.new: type=bool value=<1>");
    assert_eq!(all.changes(), before);

    // What only requests have set, the master learns within a second or so: until then they set it again.
    let mut number = 0;
    until("a variable outlives the worker", || {
        number += 1;
        let target = format!("/set-again-{number}");
        exchange(&mut connect(all.operated.web), &target, "close").expect("an answer");
        std::thread::sleep(std::time::Duration::from_millis(1500));
        all.crash();
        all.get("proc.path") == format!("proc.path: type=str value=<{target}>")
    });
}
