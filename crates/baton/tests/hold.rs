//! `baton hold` as a whole: what it passes through, what it leaves behind when something is killed, and what clients feel when
//! Debian's haproxy is reloaded under it.
//!
//! Each test has a network namespace and a folder of state of its own. Without the right to one, the tests say so.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use baton_kernel::{namespace, netns};
use baton_prove::load::LoadHandle;
use baton_prove::{Load, LoadOptions, LoadResult, Request, Target};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{program, until};
use tempfile::TempDir;

/// What is held where a test needs nobody to serve.
const WEB: &str = "127.0.0.1:80";

/// A machine of its own.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `baton hold` with these words.
    fn hold(&self, words: &[&str]) -> Command {
        self.under(&[], words)
    }

    /// The same as an argument of another program.
    fn under(&self, wrapper: &[&str], words: &[&str]) -> Command {
        let program = program().display().to_string();
        let mut all = wrapper.iter().copied().chain([program.as_str(), "hold"]).chain(words.iter().copied());
        let mut command = Command::new(all.next().expect("at least Baton itself"));
        command.args(all).env("BATON_RUN_DIR", self.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Output {
        self.hold(words).output().expect("the program was built")
    }

    /// Holds while a shell runs this, and waits until it has begun: at `BEGUN`, else at once.
    #[track_caller]
    fn start(&self, words: &[&str], script: &str) -> Running {
        let begun = self.at("begun");
        let script = if script.contains("BEGUN") { script.to_owned() } else { format!("BEGUN; {script}") };
        let script = script.replace("BEGUN", &format!("echo >{}", begun.display()));
        let child = self.hold(&[words, &["--", "sh", "-c", &script]].concat()).spawn().expect("the program was built");
        let running = Running(child);
        until("the command begins", || begun.exists());
        fs::remove_file(begun).expect("the folder is ours");
        running
    }

    /// Nothing of ours is left.
    #[track_caller]
    fn assert_clean(&self) {
        assert_eq!(ours(), "");
        let left: Vec<_> = files(self.folder.path());
        assert!(left.iter().all(|name| !name.contains("hold-") || name.contains("gate")), "{left:?}");
        let status = self.run(&["status"]);
        assert!(status.status.success(), "{}", text(&status.stdout));
        assert_eq!(text(&status.stdout), "Nothing is held, and nothing is left.\n");
    }
}

/// A `baton hold` that is under way; killed when dropped.
struct Running(Child);

impl Running {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("our child lives until it is waited for");
    }

    /// Its children: the guardian and the command.
    fn guardian(&self) -> i32 {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).unwrap_or_default();
        let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
        let is_guardian = |pid: &i32| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains("guardian"))
        };
        pids.into_iter().find(is_guardian).expect("it has a guardian")
    }

    /// Exit code and standard error.
    fn wait(mut self) -> (i32, String) {
        let status = self.0.wait().expect("it is our child");
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        (status.code().unwrap_or(-1), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a test on a machine of its own, if there is the right to.
fn alone(test: impl FnOnce(&Machine) + Send) {
    let inside = || test(&Machine { folder: tempfile::tempdir().expect("a folder for the test") });
    if let Err(error) = netns::in_new(inside) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    text(&output.unwrap_or_else(|error| panic!("{program} is installed by scripts/setup test: {error}")).stdout)
}

/// Tables and chains of ours.
fn ours() -> String {
    said("nft", &["list", "tables"]).lines().filter(|line| line.contains("baton")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        all.push(entry.file_name().to_string_lossy().into_owned());
        all.extend(files(&entry.path()));
    }
    all
}

/// Whether a new connection comes through within a fraction of the time after which a client sends its SYN again.
fn is_open() -> bool {
    let at: SocketAddr = WEB.parse().expect("an address");
    TcpStream::connect_timeout(&at, Duration::from_millis(300)).is_ok()
}

/// Each method leaves its mark.
#[track_caller]
fn assert_held(method: &str) {
    let expect = if method == "migrate" { (true, "1") } else { (false, "0") };
    assert_eq!((ours().is_empty(), migrate_setting().as_str()), expect, "{method}");
}

fn migrate_setting() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req").expect("Linux 5.14").trim().to_owned()
}

#[test]
fn input_output_and_exit_code_are_the_commands() {
    alone(|machine| {
        for method in ["drop", "migrate"] {
            let words = ["--to", WEB, "--method", method, "--quiet", "--", "sh", "-c", "cat; echo wrong >&2; exit 7"];
            let mut child = machine.hold(&words).stdin(Stdio::piped()).spawn().expect("the program was built");
            child.stdin.take().expect("asked for").write_all(b"in and out").expect("it reads");
            let output = child.wait_with_output().expect("it is our child");
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "in and out"));
            assert_eq!(text(&output.stderr), "wrong\n", "--quiet says nothing more");
            machine.assert_clean();
        }
        let output = machine.run(&["--to", WEB, "--method", "drop", "--", "true"]);
        let said = text(&output.stderr);
        assert!(
            said.contains("method drop, as asked for") && said.contains("0 SYNs to 127.0.0.1:80 dropped"),
            "{said}"
        );
        let output = machine.run(&["--to", WEB, "--method", "drop", "--json", "--", "true"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one line of JSON");
        assert_eq!(
            (json["method"].as_str(), json["ended_by"].as_str(), json["exit"].as_u64()),
            (Some("drop"), Some("command"), Some(0))
        );
    });
}

#[test]
fn a_command_that_is_not_there_or_ends_by_a_signal_has_its_usual_code() {
    alone(|machine| {
        let check = |command: &[&str], expect: i32| {
            let output = machine.run(&[&["--to", WEB, "--method", "drop", "--"], command].concat());
            assert_eq!(output.status.code(), Some(expect), "{command:?}: {}", text(&output.stderr));
            machine.assert_clean();
        };
        check(&["no-such-command-anywhere"], 127);
        check(&["/etc/passwd"], 126);
        check(&["false"], 1);
        check(&["sh", "-c", "kill -KILL $$"], 137);
        let wrong = machine.run(&["--to", "nowhere", "--", "true"]);
        assert_eq!(wrong.status.code(), Some(125));
        assert!(text(&wrong.stderr).contains("the port is missing"), "{}", text(&wrong.stderr));
    });
}

#[test]
fn signals_are_passed_on_and_then_traffic_flows() {
    alone(|machine| {
        for (signal, trap) in [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT"), (Signal::SIGUSR1, "USR1")] {
            let script = format!("trap 'echo {trap}; exit 3' {trap}; BEGUN; while :; do sleep 0.01; done");
            let mut running = machine.start(&["--to", WEB, "--method", "drop", "--max", "60s"], &script);
            assert!(!ours().is_empty());
            let mut out = running.0.stdout.take().expect("asked for");
            running.signal(signal);
            let (code, said) = running.wait();
            let mut heard = String::new();
            out.read_to_string(&mut heard).expect("text");
            assert_eq!((code, heard.trim()), (3, trap), "{said}");
            machine.assert_clean();
        }
    });
}

#[test]
fn new_connections_wait_and_established_ones_do_not() {
    alone(|machine| {
        let server = TcpListener::bind(WEB).expect("nobody else is here");
        let mut client = TcpStream::connect(WEB).expect("somebody listens");
        let (mut served, _) = server.accept().expect("it is there");
        let running =
            machine.start(&["--to", ":80", "--to", "[::1]:81", "--method", "drop", "--max", "60s"], "exec sleep 60");
        client.write_all(b"still here").expect("it is connected");
        let mut heard = [0; 10];
        served.read_exact(&mut heard).expect("nobody touched it");
        assert!(!is_open(), "new ones are held");
        let six = TcpListener::bind("[::1]:81").expect("nobody else is here");
        let dial = |at: &str| TcpStream::connect_timeout(&at.parse().expect("an address"), Duration::from_millis(300));
        assert!(dial("[::1]:81").is_err());
        let other = TcpListener::bind("[::1]:82").expect("nobody else is here");
        assert!(dial("[::1]:82").is_ok(), "of others nothing is held");
        drop((six, other));
        running.signal(Signal::SIGTERM);
        let (_, said) = running.wait();
        assert!(is_open(), "{said}");
        assert!(said.contains("SYNs to :80, [::1]:81 dropped"), "{said}");
    });
}

#[test]
fn killed_by_9_the_guardian_lets_go() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        for method in ["drop", "migrate", "queue"] {
            let running = machine.start(&["--to", WEB, "--method", method, "--max", "60s"], "exec sleep 0.5");
            assert_held(method);
            running.signal(Signal::SIGKILL);
            until("the guardian lets go", || ours().is_empty() && migrate_setting() == "0");
            until("its file is gone", || machine.run(&["status"]).status.success() && is_open());
            drop(running);
            until("nothing is left", || files(machine.folder.path()).iter().all(|name| !name.ends_with(".json")));
            machine.assert_clean();
        }
    });
}

#[test]
fn a_killed_guardian_is_noticed_and_undone() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        for method in ["drop", "migrate", "queue"] {
            let running = machine.start(&["--to", WEB, "--method", method, "--max", "60s"], "exec sleep 60");
            kill(Pid::from_raw(running.guardian()), Signal::SIGKILL).expect("it lives");
            until("it is undone", || ours().is_empty() && migrate_setting() == "0");
            assert!(is_open());
            running.signal(Signal::SIGTERM);
            let (code, said) = running.wait();
            assert_eq!(code, 143, "{said}");
            assert!(said.contains("the guardian process was killed"), "{said}");
            machine.assert_clean();
        }
    });
}

/// Kills a hold and its guardian at the same moment: stopped, neither sees the other's end.
fn kill_both(running: &Running) {
    let guardian = running.guardian();
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for pid in [guardian, running.pid()] {
            kill(Pid::from_raw(pid), signal).expect("it lives");
        }
    }
}

#[test]
fn with_both_killed_the_kernel_lets_go_and_release_cleans_up() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        let running = machine.start(&["--to", WEB, "--method", "drop", "--max", "1s"], "exec sleep 0.1");
        kill_both(&running);
        drop(running);
        until("the elements of the set end", is_open);
        assert!(ours().contains("baton-hold-"), "an empty table is left");
        let status = machine.run(&["status"]);
        assert_eq!(status.status.code(), Some(1));
        assert!(text(&status.stdout).contains("127.0.0.1:80 by drop"), "{}", text(&status.stdout));
        let released = machine.run(&["release"]);
        assert!(released.status.success() && text(&released.stdout).contains("released 127.0.0.1:80"), "{released:?}");
        machine.assert_clean();
    });
}

#[test]
fn the_next_run_cleans_up_after_a_dead_one() {
    alone(|machine| {
        for method in ["drop", "migrate", "queue"] {
            let running = machine.start(&["--to", WEB, "--method", method, "--max", "60s"], "exec sleep 0.1");
            kill_both(&running);
            drop(running);
            assert_held(method);
            let next = machine.run(&["--to", WEB, "--method", "drop", "--", "true"]);
            assert!(next.status.success(), "{}", text(&next.stderr));
            assert_eq!(migrate_setting(), "0");
            machine.assert_clean();
        }
    });
}

#[test]
fn the_deadline_holds_for_a_command_that_hangs_and_for_a_guardian_that_does() {
    alone(|machine| {
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        for stopped in [false, true] {
            let running = machine.start(&["--to", WEB, "--method", "migrate", "--max", "200ms"], "exec sleep 60");
            if stopped {
                kill(Pid::from_raw(running.guardian()), Signal::SIGSTOP).expect("it lives");
            }
            until("the deadline", || migrate_setting() == "0");
            running.signal(Signal::SIGTERM);
            let (code, said) = running.wait();
            assert_eq!(code, 143, "{said}");
            let expect = if stopped { "was killed or hung" } else { "the deadline (--max) came before" };
            assert!(said.contains(expect), "{said}");
            machine.assert_clean();
        }
    });
}

#[test]
fn a_daemon_that_the_command_leaves_behind_does_not_keep_the_hold() {
    alone(|machine| {
        let pid = machine.at("pid");
        // It keeps whatever it inherits but standard output and error, on which we wait.
        let script = format!("sleep 300 >/dev/null 2>&1 & echo $! >{}", pid.display());
        let output = machine.run(&["--to", WEB, "--method", "drop", "--max", "60s", "--", "sh", "-c", &script]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        machine.assert_clean();
        let again = machine.run(&["--to", WEB, "--method", "drop", "--", "true"]);
        assert!(again.status.success(), "{}", text(&again.stderr));
        let pid = fs::read_to_string(pid).expect("it was written").trim().parse().expect("a number");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it goes on");
    });
}

#[test]
fn without_the_right_the_capability_is_named_and_the_command_not_run() {
    alone(|machine| {
        let drop_right = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
        let ran = machine.at("ran");
        let touch = ran.display().to_string();
        for method in ["auto", "drop", "migrate"] {
            let words = ["--to", WEB, "--method", method, "--", "touch", &touch];
            let output = machine.under(&drop_right, &words).output().expect("setpriv is there");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{said}");
            assert!(said.contains("CAP_NET_ADMIN") && said.contains("the command was not run"), "{said}");
            assert!(!ran.exists());
        }
        let words = ["--to", WEB, "--anyway", "--", "sh", "-c", "exit 9"];
        let output = machine.under(&drop_right, &words).output().expect("setpriv is there");
        assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
        machine.assert_clean();
    });
}

#[test]
fn what_the_kernel_refuses_leaves_nothing() {
    alone(|machine| {
        // Root in a user namespace has the capability, but not over this network.
        for method in ["drop", "queue"] {
            let words = ["--to", WEB, "--method", method, "--", "echo", "ran"];
            let output =
                machine.under(&["unshare", "--user", "--map-root-user"], &words).output().expect("unshare is there");
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""), "{said}");
            assert!(said.contains("CAP_NET_ADMIN") && said.contains("the command was not run"), "{said}");
            machine.assert_clean();
        }
    });
}

#[test]
fn rules_and_disciplines_of_others_stay_as_they_are() {
    alone(|machine| {
        let nft = "add table inet mine { set s { type inet_service; elements = { 22, 80 }; }; chain c { type filter hook prerouting \
                   priority -300; tcp dport @s counter accept; }; }";
        said("nft", &[nft]);
        said("iptables", &["-w", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"]);
        said("ip6tables-legacy", &["-w", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"]);
        let all = || {
            [
                said("nft", &["list", "ruleset"]),
                said("iptables", &["-S"]),
                said("ip6tables-legacy", &["-S"]),
                said("tc", &["qdisc", "show"]),
            ]
        };
        let before = all();
        assert!(before[0].contains("table inet mine") && before[2].contains("80"), "{before:?}");
        for method in ["drop", "migrate", "queue"] {
            let output = machine.run(&["--to", ":80", "--method", method, "--", "true"]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!(all(), before);
            let running = machine.start(&["--to", ":80", "--method", method, "--max", "60s"], "exec sleep 0.1");
            kill_both(&running);
            drop(running);
            until("it is released", || machine.run(&["release"]).status.success() && ours().is_empty());
            assert_eq!(all(), before);
        }
    });
}

#[test]
fn two_runs_exclude_each_other_by_address() {
    alone(|machine| {
        let first = machine.start(&["--to", WEB, "--method", "drop", "--max", "60s"], "exec sleep 60");
        let second = machine.run(&["--to", ":80", "--method", "drop", "--", "echo", "ran"]);
        let said = text(&second.stderr);
        assert_eq!((second.status.code(), text(&second.stdout).as_str()), (Some(125), ""), "{said}");
        assert!(
            said.contains(&format!("process {} holds 127.0.0.1:80", first.pid())) && said.contains("--wait"),
            "{said}"
        );
        let status = text(&machine.run(&["status"]).stdout);
        assert!(status.contains("held    127.0.0.1:80 by drop"), "{status}");
        let other = machine.run(&["--to", "127.0.0.2:80", "--to", ":81", "--method", "drop", "--", "true"]);
        assert!(other.status.success(), "{}", text(&other.stderr));

        let waiting = machine.hold(&["--to", WEB, "--method", "drop", "--wait", "--", "echo", "ran"]).spawn();
        let waiting = waiting.expect("the program was built");
        first.signal(Signal::SIGTERM);
        first.wait();
        let waited = waiting.wait_with_output().expect("it is our child");
        assert_eq!(
            (waited.status.code(), text(&waited.stdout).as_str()),
            (Some(0), "ran\n"),
            "{}",
            text(&waited.stderr)
        );
        machine.assert_clean();
    });
}

#[test]
fn the_last_of_several_runs_puts_the_setting_back() {
    alone(|machine| {
        for value in ["0", "1"] {
            fs::write("/proc/sys/net/ipv4/tcp_migrate_req", value).expect("it is our namespace");
            let first = machine.start(&["--to", ":80", "--method", "migrate", "--max", "60s"], "exec sleep 60");
            let second = machine.start(&["--to", ":81", "--method", "migrate", "--max", "60s"], "exec sleep 60");
            first.signal(Signal::SIGTERM);
            first.wait();
            assert_eq!(migrate_setting(), "1", "the second one needs it");
            second.signal(Signal::SIGTERM);
            second.wait();
            assert_eq!(migrate_setting(), value);
            machine.assert_clean();
        }
    });
}

#[test]
fn a_dry_run_prints_the_plan_and_does_nothing() {
    alone(|machine| {
        for (method, expect) in
            [("drop", "table inet baton-hold-"), ("migrate", "net.ipv4.tcp_migrate_req = 1 (now 0)")]
        {
            let output = machine.run(&["--to", WEB, "--method", method, "--dry-run"]);
            let plan = text(&output.stdout);
            assert!(output.status.success() && plan.contains(expect) && plan.contains("after it:"), "{plan}");
        }
        machine.assert_clean();
    });
}

/// Debian's haproxy in the background; its last process is ended when this is dropped.
struct Haproxy<'a>(&'a Machine);

impl Haproxy<'_> {
    /// Starts it where `bind` says.
    fn start<'a>(machine: &'a Machine, bind: &str) -> Haproxy<'a> {
        let text = format!(
            "global\n nbthread 1\ndefaults\n mode http\n timeout connect 5s\n timeout client 10s\n timeout server 10s\n\
             frontend f\n bind {bind}\n http-request return status 200 content-type text/plain string served\n"
        );
        fs::write(machine.at("haproxy.cfg"), text).expect("the folder is ours");
        let haproxy = Haproxy(machine);
        assert!(haproxy.command("haproxy -D -f haproxy.cfg -p pid").status().expect("a shell").success());
        haproxy
    }

    /// The reload that loses connections.
    const RELOAD: &'static str = "haproxy -D -f haproxy.cfg -p pid -sf $(cat pid)";

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.0.folder.path()).env("BATON_RUN_DIR", self.0.folder.path());
        // A daemon would keep a pipe open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    #[track_caller]
    fn reload(&self) {
        assert!(self.command(Self::RELOAD).status().expect("a shell").success());
    }

    /// The same while new connections to port 80 are held.
    #[track_caller]
    fn reload_held(&self, method: &str) {
        let words = ["--to", ":80", "--method", method, "--max", "20s", "--", "sh", "-c", Self::RELOAD];
        let mut command = self.0.hold(&words);
        let said = self.0.at("said");
        let file = fs::File::create(&said).expect("the folder is ours");
        command.current_dir(self.0.folder.path()).stdout(Stdio::null()).stderr(file);
        let status = command.status().expect("the program was built");
        assert!(status.success(), "{}", fs::read_to_string(said).unwrap_or_default());
    }
}

impl Drop for Haproxy<'_> {
    fn drop(&mut self) {
        let pids = fs::read_to_string(self.0.at("pid")).unwrap_or_default();
        for pid in pids.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Ten clients without a pause, with a connection for each request, as `ab -c 10`.
fn load(to: &str) -> LoadHandle {
    let target = Target::Tcp(to.parse().expect("an address"));
    let options = LoadOptions {
        keep_alive: false,
        concurrency: 10,
        requests: vec![Request::get("/")],
        ..LoadOptions::new(target)
    };
    Load::start(options).expect("the options are right")
}

fn end(load: LoadHandle) -> LoadResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(load.stop())
}

/// Reloads under load until a failure is seen: without that, a test without failures proves nothing.
#[track_caller]
fn assert_this_load_sees_resets(haproxy: &Haproxy, start: impl Fn() -> LoadHandle) {
    /// Rounds of ten reloads.
    const ROUNDS_MAX: usize = 30;
    for _ in 0..ROUNDS_MAX {
        let load = start();
        (0..10).for_each(|_| haproxy.reload());
        if end(load).counts.failed() > 0 {
            return;
        }
    }
    panic!("no request failed in {ROUNDS_MAX} rounds of reloads without a hold");
}

#[track_caller]
fn assert_nobody_fails(what: &str, result: &LoadResult) {
    assert_eq!(result.counts.failed(), 0, "{what}: {:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 20, "{what}: only {} requests", result.counts.completed);
}

/// By method, how often haproxy is reloaded; clients of `drop` stand still for a second at each one.
const RELOADS: [(&str, usize); 3] = [("migrate", 20), ("queue", 20), ("drop", 3)];

#[test]
fn reloads_that_reset_connections_do_not_when_held() {
    alone(|machine| {
        let haproxy = Haproxy::start(machine, ":::80 v4v6");
        assert_this_load_sees_resets(&haproxy, || load(WEB));
        for (method, reloads) in RELOADS {
            let loads = [WEB, "[::1]:80"].map(load);
            (0..reloads).for_each(|_| haproxy.reload_held(method));
            for load in loads {
                assert_nobody_fails(method, &end(load));
            }
            machine.assert_clean();
        }
    });
}

/// A network namespace with a name and a line to ours; both go with the test.
struct Neighbour(String);

impl Neighbour {
    /// We are 10.9.0.1 there.
    fn new() -> Neighbour {
        let neighbour = Neighbour(format!("baton-hold-{}", std::process::id()));
        let name = neighbour.0.as_str();
        for line in [
            format!("ip netns add {name}"),
            format!("ip link add to-them type veth peer name to-us netns {name}"),
            "ip address add 10.9.0.1/24 dev to-them".to_owned(),
            "ip link set to-them up".to_owned(),
            format!("ip -n {name} address add 10.9.0.2/24 dev to-us"),
            format!("ip -n {name} link set to-us up"),
            format!("ip -n {name} link set lo up"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(
                Command::new(words[0]).args(&words[1..]).status().expect("iproute2 is installed").success(),
                "{line}"
            );
        }
        neighbour
    }

    fn load(&self) -> LoadHandle {
        namespace::inside(Some(&self.0), || load("10.9.0.1:80")).expect("it is there")
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn clients_of_another_machine_are_held_too() {
    alone(|machine| {
        let neighbour = Neighbour::new();
        let haproxy = Haproxy::start(machine, "10.9.0.1:80");
        assert_this_load_sees_resets(&haproxy, || neighbour.load());
        for (method, reloads) in RELOADS {
            let load = neighbour.load();
            (0..reloads).for_each(|_| haproxy.reload_held(method));
            assert_nobody_fails(method, &end(load));
            machine.assert_clean();
        }
    });
}

#[test]
fn auto_says_what_it_chose_and_why() {
    alone(|machine| {
        let haproxy = Haproxy::start(machine, "127.0.0.1:80");
        let plan = machine.run(&["--to", ":80", "--dry-run"]);
        let plan = text(&plan.stdout);
        assert!(
            plan.starts_with("method migrate: 1 listening socket at :80 shares the address (SO_REUSEPORT"),
            "{plan}"
        );
        drop(haproxy);
        until("it is gone", || TcpStream::connect(WEB).is_err());
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        let plan = machine.run(&["--to", ":80", "--dry-run"]);
        let plan = text(&plan.stdout);
        assert!(
            !plan.starts_with("method migrate") && plan.contains("does not share its address (no SO_REUSEPORT)"),
            "{plan}"
        );
    });
}
