//! `baton demo`, short: nothing fails, files are applied and refused, and the exit code says so; also when something fails.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.arg("demo").args(arguments);
    command
}

#[test]
fn a_short_demo_is_clean() {
    let output = demo(&["--for", "4", "--rate", "200", "--json"]).output().expect("the program was built");
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{said}"));
    let count = |pointer: &str| result.pointer(pointer).and_then(Value::as_u64).expect("a number of the result");

    assert!(output.status.success(), "{text}\n{said}");
    assert_eq!(result["clean"], true);
    assert_eq!((count("/failed"), count("/changes/failed")), (0, 0));
    assert!(count("/changes/applied") > 5 && count("/changes/rejected") > 0, "{text}");
    assert!(count("/keep_alive/completed") > 0 && count("/connection_per_request/completed") > 0, "{text}");
    assert!(count("/tls/completed") > 0 && count("/certificate/replaced") > 2, "{text}");
    assert_eq!(count("/certificate/failed"), 0, "{text}");
    assert_eq!((count("/websockets/alive"), count("/tunnels/alive")), (4, 4));
}

/// A demo under way, up to its first change.
struct Running {
    demo: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The proxy's configuration.
    cfg: std::path::PathBuf,
}

impl Running {
    fn start() -> Running {
        let mut demo =
            demo(&["--for", "60", "--rate", "50"]).stdout(Stdio::piped()).spawn().expect("the program was built");
        let mut lines = BufReader::new(demo.stdout.take().expect("it is piped")).lines();
        let mut next = || lines.next().expect("the demo goes on").expect("it writes text");
        let first = next();
        let (_, cfg) = first.split_once(", ").expect("the first line names the file");
        let cfg = cfg.trim_end_matches(':').into();
        while !next().contains("server three added") {}
        Running { demo, lines, cfg }
    }

    fn signal(&self, pid: u32, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(pid).expect("a process number")), signal).expect("it lives");
    }

    /// How it ended, and what it said from then on.
    fn end(mut self) -> (ExitStatus, String) {
        let rest: Vec<String> = self.lines.by_ref().map(|line| line.expect("it writes text")).collect();
        assert!(!self.cfg.exists(), "temporary files stay behind");
        (self.demo.wait().expect("it is our child"), rest.join("\n"))
    }
}

#[test]
fn ctrl_c_ends_it_with_what_was_measured() {
    let running = Running::start();
    running.signal(running.demo.id(), Signal::SIGINT);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("TCP tunnels") && said.contains("nothing failed."), "{said}");
}

#[test]
fn the_end_of_the_proxy_is_a_failure() {
    let running = Running::start();
    let mut pid = String::new();
    let file = std::fs::File::open(running.cfg.with_file_name("pid"));
    file.expect("the proxy wrote it").read_to_string(&mut pid).expect("it is text");
    running.signal(pid.trim().parse().expect("a number"), Signal::SIGKILL);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the proxy ended (signal: 9") && said.contains("SOMETHING FAILED"), "{said}");
}
