//! `baton origin` as its users meet it: through curl and behind Debian's haproxy.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{free_address, program, until};

/// A running `baton origin`; killed when dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    said: BufReader<ChildStderr>,
}

impl Running {
    /// Starts it on system-chosen places; gives the lines that say where they listen, too.
    fn start(arguments: &[&str], origins: usize) -> (Running, Vec<String>) {
        let mut child = Command::new(program())
            .arg("origin")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut running = Running { child, lines, said };
        let started = (0..origins).map(|_| running.line()).collect();
        (running, started)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it writes text");
        assert!(line.ends_with('\n'), "it ended: {:?}", self.rest());
        line.trim_end().to_owned()
    }

    fn rest(&mut self) -> String {
        let mut text = String::new();
        let _ = self.said.read_to_string(&mut text);
        text
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it lives");
    }

    /// Ends it as Ctrl-C does; gives everything it still says.
    fn end(mut self) -> String {
        self.signal(Signal::SIGINT);
        let mut text = String::new();
        self.lines.read_to_string(&mut text).expect("it writes text");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {}", self.rest());
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The place in a line `NAME URL`.
fn url<'a>(line: &'a str, name: &str) -> &'a str {
    let (said, url) = line.split_once(' ').expect("two words");
    assert_eq!(said, name);
    url
}

/// What curl wrote, and how it ended.
fn curl(arguments: &[&str]) -> (String, Option<i32>) {
    let output =
        Command::new("curl").args(["-s", "--max-time", "30"]).args(arguments).output().expect("curl is installed");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn each_place_has_an_origin_that_says_who_it_is_and_what_it_saw() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let socket = format!("sock={}", path.display());
    let (running, started) = Running::start(&["0", "left=127.0.0.1:0", &socket, "--name", "app"], 3);
    let (app, left) = (url(&started[0], "app1"), url(&started[1], "left"));
    assert_eq!(url(&started[2], "sock"), format!("unix:{}", path.display()));

    let seen = json(&curl(&["-H", "X-One: 1", &format!("{app}/some/where?a=b")]).0);
    assert_eq!((&seen["name"], &seen["requests"], &seen["method"]), (&"app1".into(), &1.into(), &"GET".into()));
    assert_eq!(seen["path"], "/some/where?a=b");
    assert!(app.ends_with(&format!(":{}", seen["port"])), "{app} {seen}");
    let headers = seen["headers"].as_array().expect("a list");
    assert!(headers.contains(&serde_json::json!(["X-One", "1"])), "{seen}");
    assert_eq!(json(&curl(&[left]).0)["name"], "left");
    let seen = json(&curl(&["--unix-socket", path.to_str().expect("text"), "http://localhost/"]).0);
    assert_eq!((&seen["name"], &seen["port"]), (&"sock".into(), &Value::Null));

    let said = running.end();
    let counts =
        "app1: 1 requests on 1 connections\nleft: 1 requests on 1 connections\nsock: 1 requests on 1 connections\n";
    assert_eq!(said, counts);
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn every_shape_of_answer_comes_to_curl() {
    let (_running, started) = Running::start(&[], 1);
    let origin = url(&started[0], "origin");
    let at = |path: &str| format!("{origin}{path}");
    assert_eq!(curl(&[&at("/bytes/30")]).0, "abcdefghijklmnopqrstuvwxyzabcd");
    assert_eq!(curl(&[&at("/chunked/30?delay=1ms")]).0, "abcdefghijklmnopqrstuvwxyzabcd");
    assert_eq!(curl(&["-o", "/dev/null", "-w", "%{size_download}", &at("/chunked/1000000")]).0, "1000000");
    assert_eq!(curl(&["-o", "/dev/null", "-w", "%{http_code}", &at("/status/503")]).0, "503");
    assert_eq!(curl(&["-d", "what comes back", &at("/echo")]).0, "what comes back");
    assert_eq!(
        curl(&["-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue", "-d", "x", &at("/echo")]).0,
        "x"
    );
    assert_eq!(json(&curl(&[&at("/delay/1ms")]).0)["path"], "/delay/1ms");
    let waited = curl(&["-o", "/dev/null", "-w", "%{time_starttransfer}", &at("/delay/0.1s")]).0;
    assert!(waited.parse::<f64>().expect("seconds") >= 0.1, "not answered earlier: {waited}");
    assert_eq!(curl(&["-o", "/dev/null", "-w", "%{http_code}", &at("/fail/nothing")]).0, "404");
}

#[test]
fn each_failure_is_what_its_name_says() {
    let (running, started) = Running::start(&["--json"], 1);
    let origin = json(&started[0]);
    let origin = origin["url"].as_str().expect("a place").to_owned();
    // curl's exit codes: 52 an empty answer, 56 a failed recv, 18 a part of it, 28 too late, 1 not HTTP, 22 status (-f).
    let check = |fault: &str, body: &str, code: i32| {
        let answer = curl(&["-f", "-m", "2", &format!("{origin}/bytes/20?fail={fault}")]);
        assert_eq!(answer, (body.to_owned(), Some(code)), "{fault}");
    };
    check("reset", "", 56);
    check("close", "", 52);
    check("half-body", "abcdefghij", 18);
    check("reset-body", "abcdefghij", 56);
    check("silence", "", 28);
    check("stall", "abcdefghij", 28);
    check("malformed", "", 1);
    check("wrong-status", "", 22);
    check("wrong-length", "abcdefghijklmnopqrs", 0);
    check("wrong-body", "abcdefghijjlmnopqrst", 0);
    check("too-long", "abcdefghijklmnopqrst", 0);
    check("close-after", "abcdefghijklmnopqrst", 0);
    check("reset-after", "abcdefghijklmnopqrst", 0);

    let counted = json(&running.end());
    assert_eq!((&counted["requests"], &counted["name"]), (&13.into(), &"origin".into()));
    let failures = counted["failures"].as_object().expect("an object");
    assert!(failures.len() == 13 && failures.values().all(|count| *count == 1), "{counted}");
}

#[test]
fn a_part_of_all_requests_fails_on_purpose() {
    let (running, started) = Running::start(&["--fail", "wrong-status=1/4,close=10%"], 1);
    let origin = url(&started[0], "origin").to_owned();
    let codes: Vec<Option<i32>> = (0..41).map(|_| curl(&["-f", "-o", "/dev/null", &origin]).1).collect();
    let count = |code: i32| codes.iter().filter(|one| **one == Some(code)).count();
    assert_eq!((count(22), count(52), count(0)), (10, 4, 27), "{codes:?}");
    assert_eq!(running.end(), "origin: 41 requests on 41 connections; failed on purpose: close 4, wrong-status 10\n");
    let output = Command::new(program()).args(["origin", "--fail", "rest=1%"]).output().expect("the program was built");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("half-head"));
}

#[test]
fn a_signal_freezes_it() {
    let (mut running, started) = Running::start(&["--freeze", "50ms"], 1);
    let origin = url(&started[0], "origin").to_owned();
    running.signal(Signal::SIGUSR1);
    let mut line = String::new();
    running.said.read_line(&mut line).expect("it writes text");
    assert_eq!(line, "baton: frozen for 50ms\n");
    assert_eq!(curl(&["-o", "/dev/null", &origin]).1, Some(0), "it goes on afterwards");
    assert_eq!(running.end(), "origin: 1 requests on 1 connections; freezes: 1\n");
}

#[test]
fn raw_tcp_comes_back() {
    let (running, started) = Running::start(&["--tcp", "--name", "echo"], 1);
    let address = url(&started[0], "echo").strip_prefix("tcp://").expect("a TCP place").to_owned();
    let output = Command::new("sh")
        .args(["-c", &format!("printf 'any\\0bytes' | socat -t 30 - TCP:{address}")])
        .output()
        .expect("a shell");
    assert_eq!(output.stdout, b"any\0bytes");
    assert_eq!(running.end(), "echo: 0 requests on 1 connections\n");
}

#[test]
fn a_place_that_is_taken_is_an_error_and_one_that_is_abandoned_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let text = path.to_str().expect("text");
    let (mut running, _) = Running::start(&[text], 1);
    let output = Command::new(program()).args(["origin", text]).output().expect("the program was built");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("cannot listen on {text}: ")));

    running.child.kill().expect("it lives");
    running.child.wait().expect("it is our child");
    assert!(path.exists(), "a kill leaves it behind");
    let (running, _) = Running::start(&[text], 1);
    assert_eq!(curl(&["--unix-socket", text, "http://localhost/bytes/3"]).0, "abc");
    running.end();
}

#[test]
fn haproxy_divides_requests_among_them() {
    let (running, started) = Running::start(&["left=0", "right=0"], 2);
    let at = |line: usize, name| url(&started[line], name).strip_prefix("http://").expect("a TCP place");
    let (folder, web) = (tempfile::tempdir().expect("a folder"), free_address());
    let config = folder.path().join("haproxy.cfg");
    let text = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\nlisten web\n bind {web}\n \
         option forwardfor\n server left {}\n server right {}\n",
        at(0, "left"),
        at(1, "right")
    );
    std::fs::write(&config, text).expect("the folder is ours");
    let haproxy = Command::new("haproxy").args(["-db", "-f"]).arg(&config).stderr(Stdio::null()).spawn();
    let _haproxy = Ended(haproxy.expect("haproxy is installed"));
    until("haproxy serves", || curl(&["-o", "/dev/null", &format!("http://{web}/bytes/1")]).1 == Some(0));

    let asked: Vec<Value> = (0..4).map(|_| json(&curl(&[&format!("http://{web}/")]).0)).collect();
    let names: Vec<&str> = asked.iter().map(|seen| seen["name"].as_str().expect("a name")).collect();
    assert!(names == ["left", "right", "left", "right"] || names == ["right", "left", "right", "left"], "{names:?}");
    let forwarded = serde_json::json!(["x-forwarded-for", "127.0.0.1"]);
    assert!(asked.iter().all(|seen| seen["headers"].as_array().is_some_and(|headers| headers.contains(&forwarded))));
    let status = curl(&["-o", "/dev/null", "-w", "%{http_code}", &format!("http://{web}/fail/malformed")]).0;
    assert_eq!(status, "502", "haproxy's word for it");
    assert!(running.end().contains("malformed 1"));
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_freezes_again_and_again_when_told_so() {
    let (mut running, _) = Running::start(&["--freeze", "1ms", "--freeze-every", "5ms"], 1);
    for _ in 0..3 {
        let mut line = String::new();
        running.said.read_line(&mut line).expect("it writes text");
        assert_eq!(line, "baton: frozen for 1ms\n");
    }
    assert!(running.end().contains("origin: 0 requests on 0 connections"));
}

#[test]
fn it_ends_by_itself_when_its_time_is_over() {
    let output = Command::new(program()).args(["origin", "--for", "10ms", "--json"]).output();
    let output = output.expect("the program was built");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().map(json).collect();
    assert!(output.status.success() && lines.len() == 2, "{text}");
    assert_eq!((&lines[0]["speaks"], &lines[1]["requests"]), (&"http".into(), &0.into()));
}
