//! Ctrl-C: once ends the load with what was measured, twice at once.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::command;
use super::nginx::Nginx;

/// A load under way: it has shown a first line of progress.
pub struct Running {
    child: Child,
    err: BufReader<ChildStderr>,
}

impl Running {
    pub fn start(arguments: &[&str]) -> Running {
        let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it was built");
        let mut running = Running { err: BufReader::new(child.stderr.take().expect("it is piped")), child };
        running.hears("+");
        running
    }

    #[track_caller]
    fn hears(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.err.read_line(&mut line).expect("it writes text") > 0, "it ended without saying {words:?}");
        }
    }

    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("our child lives until it is waited for");
    }

    /// Its exit code, and what it wrote to standard output.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut out = String::new();
        self.child.stdout.take().expect("it is piped").read_to_string(&mut out).expect("it writes text");
        (self.child.wait().expect("it is our child").code(), out)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn once_ends_it_with_what_was_measured() {
    let nginx = Nginx::start(r#"location /a { return 200 "a"; }"#);
    let before = nginx.seen().1;
    let mut running = Running::start(&["-t", "1h", "--rate", "500", "-k", "--json", &nginx.url("/a")]);
    // Each question is a request, too.
    let asked = (1..).find(|questions| nginx.seen().1 > before + questions);
    assert!(asked.is_some());
    running.interrupt();
    let (code, out) = running.end();
    let result: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    assert_eq!((code, &result["interrupted"], &result["clean"]), (Some(0), &true.into(), &true.into()), "{result}");
    assert!(result["completed"].as_u64() > Some(0) && result["completed"] == result["requests"], "{result}");
}

#[test]
fn twice_ends_it_at_once() {
    // Accepts by its backlog, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let url = format!("http://{}/", silent.local_addr().expect("it is bound"));
    let mut running = Running::start(&["-n", "10", "--timeout", "1h", "--timeout-first-byte", "1h", &url]);
    running.interrupt();
    running.hears("Ctrl-C again");
    running.interrupt();
    running.hears("ended immediately; until the first Ctrl-C: 1 requests, 0 failed, 0 completed");
    assert_eq!(running.end(), (Some(130), String::new()));
}
