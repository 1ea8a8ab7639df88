//! Two verbs that count the same failures from both ends: `baton origin` commits them, `baton load` feels them.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{file, load_json};

/// A `baton origin --json` that fails at these rates.
struct Faulty {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Faulty {
    fn start(rates: &str) -> Faulty {
        let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
        command.args(["origin", "--json", "--fail", rates]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program was built");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let first = next(&mut lines);
        Faulty { child, lines, url: first["url"].as_str().expect("where it listens").to_owned() }
    }

    /// Ends it; gives the failures that it committed, by name.
    fn end(mut self) -> Value {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("our child lives until it is waited for");
        next(&mut self.lines)["failures"].take()
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = lines.next().expect("it goes on").expect("it writes text");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn both_ends_count_the_same() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let right: String = ('a'..='z').cycle().take(500).collect();
    let right = file(folder.path(), "right", right);
    let rates = "reset=1%,half-body=2%,reset-body=1%,wrong-length=1%,wrong-body=3%,wrong-status=1%,malformed=1/50";
    for manner in ["-k -c 7", "-c 4", "-k -c 3 --rate 5000"] {
        let origin = Faulty::start(rates);
        let said = load_json(&format!("-n 2000 {manner} --expect-body {right} {}/bytes/500", origin.url));
        let (felt, committed) = (said.json(), origin.end());
        let felt = |kind: &str| felt["failures"][kind].as_u64().expect("a count for every kind");
        let committed = |name: &str| committed[name].as_u64().unwrap_or_else(|| panic!("{name}: {committed}"));
        let all = ["reset", "half-body", "reset-body", "wrong-length", "wrong-body", "wrong-status", "malformed"];
        let all: u64 = all.into_iter().map(&committed).sum();
        assert!(all > 200, "{manner}: {all}");
        assert_eq!(said.counts(), (Some(1), 2000, 2000 - all, all), "{manner}: {said:?}");
        assert_eq!(felt("reset_before_first_byte") + felt("closed_on_reuse"), committed("reset"), "{manner}");
        assert_eq!(felt("truncated"), committed("half-body") + committed("reset-body"), "{manner}");
        for (kind, name) in [
            ("wrong_length", "wrong-length"),
            ("wrong_body", "wrong-body"),
            ("wrong_status", "wrong-status"),
            ("malformed", "malformed"),
        ] {
            assert_eq!(felt(kind), committed(name), "{manner}: {name}");
        }
    }
}
