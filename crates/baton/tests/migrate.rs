//! From Debian's haproxy to Baton and back, with the commands of docs/migrate.md as they stand there, under load: no request
//! fails.
//!
//! Everything happens in a network namespace of its own, in which ports and abstract names are nobody else's.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use baton_kernel::netns;
use baton_prove::load::LoadHandle;
use baton_prove::origin::OriginKind;
use baton_prove::{Load, LoadOptions, LoadResult, Origin, OriginOptions, Request, Target};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{program, until};
use tempfile::TempDir;

/// How often the programs take turns.
const TURNS: usize = 12;

/// A machine with the folders of the guide, moved into a folder of the test.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// With this configuration, and `baton` where a shell finds it.
    fn new(config: &str) -> Machine {
        let machine = Machine { folder: tempfile::tempdir().expect("a folder for the test") };
        for name in ["etc/haproxy", "run/haproxy", "bin"] {
            fs::create_dir_all(machine.at(name)).expect("the folder is ours");
        }
        std::os::unix::fs::symlink(program(), machine.at("bin/baton")).expect("the folder is ours");
        let config = config.replace("/run/", &format!("{}/", machine.at("run").display()));
        fs::write(machine.at("etc/haproxy/haproxy.cfg"), config).expect("the folder is ours");
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pid_file(&self) -> PathBuf {
        self.at("run/haproxy.pid")
    }

    /// The process of the pid file.
    fn pid(&self) -> Option<i32> {
        fs::read_to_string(self.pid_file()).ok()?.lines().next()?.trim().parse().ok()
    }

    /// Runs a command line of the guide.
    #[track_caller]
    fn run(&self, line: &str) {
        let moved = |text: &str| format!("{}/", self.at(text).display());
        let line = line.replace("/etc/", &moved("etc")).replace("/run/", &moved("run"));
        let path = format!("{}:/usr/sbin:/usr/bin:/bin", self.at("bin").display());
        let said = self.at("said");
        let file = || Stdio::from(fs::File::options().create(true).append(true).open(&said).expect("it is ours"));
        let mut command = Command::new("sh");
        // A daemon would keep a pipe open.
        command.args(["-c", &line]).env("PATH", path).stdin(Stdio::null()).stdout(file()).stderr(file());
        let status = command.status().expect("every system has a shell");
        let said = fs::read_to_string(&said).unwrap_or_default();
        assert!(status.success(), "{line}: {status}\n{said}");
    }

    /// Which program the pid file names.
    fn serves(&self) -> String {
        let name = self.pid().and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        name.unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// The command lines of the guide that switch, in the order in which they are first given there: check, to Baton, status, back.
fn guide() -> [String; 4] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate.md");
    let text = fs::read_to_string(path).expect("the guide is part of the repository");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    let file = "-f /etc/haproxy/haproxy.cfg";
    [&format!("baton -c {file}"), &format!("baton -D {file}"), "baton status", &format!("haproxy -D {file}")].map(
        |begin| {
            let line = lines.iter().find(|line| line.starts_with(begin));
            line.unwrap_or_else(|| panic!("the guide has no command {begin}")).to_string()
        },
    )
}

/// The configuration of the guide, with this much to listen on.
fn config(binds: &str, origin: SocketAddr) -> String {
    format!(
        "global\n nbthread 2\n stats socket /run/haproxy/admin.sock mode 660 level admin expose-fd listeners\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 10s\n timeout server 10s\n\
         frontend web\n{binds} default_backend app\n\
         backend app\n server o {origin}\n"
    )
}

fn load(target: Target) -> LoadHandle {
    let options = LoadOptions {
        keep_alive: false,
        concurrency: 8,
        rate: Some(300.0),
        requests: vec![Request::get("/a"), Request::post("/echo", "x".repeat(3000))],
        ..LoadOptions::new(target)
    };
    Load::start(options).expect("the options are right")
}

#[track_caller]
fn assert_clean(what: &str, result: &LoadResult) {
    assert_eq!(result.counts.failed(), 0, "{what}: {:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 20, "{what}: only {} requests", result.counts.completed);
}

/// Runs `work` on a machine of its own with a runtime, or says that it may not.
fn apart<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send) {
    let inside = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(work());
    };
    if let Err(error) = netns::in_new(inside) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

/// Whether a process has not ended; who started it may not have looked yet.
fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Has the other program take over and waits for the end of the one before.
#[track_caller]
fn turn(machine: &Machine, line: &str) {
    let before = machine.pid().expect("somebody serves");
    machine.run(line);
    let to = line.split(' ').next().unwrap_or_default();
    assert_eq!(machine.serves(), to, "{line}");
    until("the one before has ended", || !lives(before));
}

#[test]
fn to_and_fro_by_the_guide_nobody_is_lost() {
    apart(async || {
        let origin = Origin::start(OriginOptions { kind: OriginKind::Http, ..OriginOptions::new("o") });
        let origin = origin.expect("a port of our own");
        let binds = " bind 127.0.0.1:80\n bind :::80 v6only\n bind 127.0.0.2:80 interface lo\n bind /run/web.sock\n \
                     bind abns@web\n";
        let machine = Machine::new(&config(binds, origin.address()));
        let [check, to_baton, status, to_haproxy] = &guide();
        machine.run("haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid");
        machine.run(check);
        let tcp =
            ["127.0.0.1:80", "[::1]:80", "127.0.0.2:80"].map(|address| Target::Tcp(address.parse().expect("one")));
        let targets = tcp.into_iter().chain([Target::Unix(machine.at("run/web.sock"))]);
        let loads: Vec<_> = targets.map(load).collect();
        for _ in 0..TURNS / 2 {
            turn(&machine, to_baton);
            machine.run(status);
            turn(&machine, to_haproxy);
        }
        for load in loads {
            let result = load.stop().await;
            assert_clean("a connection for each request", &result);
        }
        drop(origin);
    });
}

#[test]
fn haproxy_takes_one_of_several_sockets_and_nobody_is_lost() {
    apart(async || {
        let origin = Origin::start(OriginOptions { kind: OriginKind::Http, ..OriginOptions::new("o") });
        let origin = origin.expect("a port of our own");
        let guide = guide();
        for master in ["", " -W"] {
            let machine = Machine::new(&config(" bind 127.0.0.1:80\n bind :::80 v6only\n", origin.address()));
            machine.run(&format!("baton -D{master} -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid"));
            let tcp = ["127.0.0.1:80", "[::1]:80"].map(|address| Target::Tcp(address.parse().expect("one")));
            let loads = tcp.map(load);
            turn(&machine, &guide[3]);
            for load in loads {
                let result = load.stop().await;
                assert_clean(&format!("baton{master} to haproxy"), &result);
            }
        }
        drop(origin);
    });
}

#[test]
fn an_old_process_of_root_ends_although_its_successor_is_not_root() {
    apart(async || {
        let origin = Origin::start(OriginOptions { kind: OriginKind::Http, ..OriginOptions::new("o") });
        let origin = origin.expect("a port of our own");
        let machine = Machine::new(&config(" bind 127.0.0.1:80\n", origin.address()));
        let file = machine.at("etc/haproxy/haproxy.cfg");
        let as_root = fs::read_to_string(&file).expect("we wrote it");
        machine.run("haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid");
        fs::write(&file, as_root.replacen("global\n", "global\n user nobody\n", 1)).expect("the folder is ours");
        let load = load(Target::Tcp("127.0.0.1:80".parse().expect("an address")));
        turn(&machine, &guide()[1]);
        fs::write(&file, as_root).expect("the folder is ours");
        turn(&machine, &guide()[3]);
        assert_clean("as another user", &load.stop().await);
        drop(origin);
    });
}

#[test]
fn a_successor_that_fails_disturbs_nobody() {
    apart(async || {
        let origin = Origin::start(OriginOptions { kind: OriginKind::Http, ..OriginOptions::new("o") });
        let origin = origin.expect("a port of our own");
        let machine = Machine::new(&config(" bind 127.0.0.1:80\n", origin.address()));
        let guide = guide();
        let _taken = std::net::TcpListener::bind("127.0.0.1:81").expect("nobody else is here");
        let file = machine.at("etc/haproxy/haproxy.cfg");
        let right = fs::read_to_string(&file).expect("we wrote it");
        let wrong = right.replace("bind 127.0.0.1:80\n", "bind 127.0.0.1:80\n bind 127.0.0.1:81\n");
        machine.run("haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid");
        for (old, line) in [("haproxy", &guide[1]), ("baton", &guide[3])] {
            let load = load(Target::Tcp("127.0.0.1:80".parse().expect("an address")));
            fs::write(&file, &wrong).expect("the folder is ours");
            for _ in 0..3 {
                machine.run(&format!("! {line}"));
                assert_eq!(machine.serves(), old);
            }
            fs::write(&file, &right).expect("the folder is ours");
            turn(&machine, line);
            assert_clean(&format!("{old} goes on"), &load.stop().await);
        }
        drop(origin);
    });
}

/// Who serves at 127.0.0.1:80, by the name it was given in the configuration; `None` when nobody does.
fn answers() -> Option<String> {
    let mut stream = TcpStream::connect("127.0.0.1:80").ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.rsplit("\r\n").next().map(str::to_owned)
}

#[test]
fn an_old_process_that_gives_no_sockets_is_followed_by_signals() {
    apart(async || {
        let file = |global: &str, who: &str, more: &str| {
            format!(
                "global\n{global}defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
                 frontend f\n bind 127.0.0.1:80\n{more} http-request return status 200 content-type text/plain string {who}\n"
            )
        };
        // With SO_REUSEPORT the successor listens beside the old process; without it that has to stop listening first.
        for global in ["", " noreuseport\n"] {
            let machine = Machine::new(&file(global, "old", ""));
            machine.run("haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid");
            until("the old one serves", || answers().as_deref() == Some("old"));
            let start = "baton -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid -sf $(cat /run/haproxy.pid)";
            let config = machine.at("etc/haproxy/haproxy.cfg");

            let taken = std::net::TcpListener::bind("127.0.0.1:81").expect("nobody else is here");
            fs::write(&config, file("", "new", " bind 127.0.0.1:81\n")).expect("the folder is ours");
            machine.run(&format!("! {start}"));
            until("the old one serves on", || answers().as_deref() == Some("old"));
            drop(taken);

            fs::write(&config, file("", "new", "")).expect("the folder is ours");
            turn(&machine, start);
            assert_eq!(answers().as_deref(), Some("new"));
        }
    });
}

#[test]
fn a_haproxy_that_cannot_share_addresses_has_them_paused_and_given_back() {
    apart(async || {
        let file = |global: &str, who: &str, more: &str| {
            format!(
                "global\n{global}defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
                 frontend f\n bind 127.0.0.1:80\n{more} http-request return status 200 content-type text/plain string {who}\n"
            )
        };
        let machine = Machine::new(&file(" nbthread 2\n", "old", ""));
        let config = machine.at("etc/haproxy/haproxy.cfg");
        machine.run("baton -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid");
        let start = "haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid -sf $(cat /run/haproxy.pid)";

        // It has our address and cannot have the other one: it gives up after two seconds.
        let taken = std::net::TcpListener::bind("127.0.0.1:81").expect("nobody else is here");
        fs::write(&config, file(" noreuseport\n", "new", " bind 127.0.0.1:81\n")).expect("the folder is ours");
        machine.run(&format!("! {start}"));
        until("the old one serves on", || answers().as_deref() == Some("old"));
        assert_eq!(answers().as_deref(), Some("old"), "at all of its sockets");
        drop(taken);

        fs::write(&config, file(" noreuseport\n", "new", "")).expect("the folder is ours");
        turn(&machine, start);
        assert_eq!(answers().as_deref(), Some("new"));
    });
}
