//! From Debian's haproxy to Baton and back, with the commands of docs/migrate.md as they stand there, under load: no request
//! fails.
//!
//! Everything happens in a network namespace of its own, in which ports and abstract names are nobody else's.

mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use baton_kernel::netns;
use baton_prove::load::LoadHandle;
use baton_prove::origin::OriginKind;
use baton_prove::{Load, LoadOptions, LoadResult, Origin, OriginOptions, Request};
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

/// The command lines in the code blocks of the guide that are to be run, in order.
fn guide() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate.md");
    let text = fs::read_to_string(path).expect("the guide is part of the repository");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
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

fn load(target: &str) -> LoadHandle {
    let options = LoadOptions {
        keep_alive: false,
        concurrency: 8,
        rate: Some(400.0),
        requests: vec![Request::get("/a"), Request::post("/echo", "x".repeat(3000))],
        ..LoadOptions::new(target.parse::<SocketAddr>().expect("an address"))
    };
    Load::start(options).expect("the options are right")
}

#[track_caller]
fn assert_clean(what: &str, result: &LoadResult) {
    assert_eq!(result.counts.failed(), 0, "{what}: {:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 100, "{what}: only {} requests", result.counts.completed);
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

#[test]
fn to_and_fro_under_load_nobody_is_lost() {
    apart(async || {
        let origin = Origin::start(OriginOptions { kind: OriginKind::Http, ..OriginOptions::new("o") });
        let origin = origin.expect("a port of our own");
        let binds = " bind 127.0.0.1:80\n bind :::80 v6only\n";
        let machine = Machine::new(&config(binds, origin.address()));
        let guide = guide();
        let line = |start: &str| {
            guide.iter().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("the guide has no {start}"))
        };
        machine.run("haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid");
        machine.run(line("baton -c"));
        let loads = [load("127.0.0.1:80"), load("[::1]:80")];
        for turn in 0..TURNS {
            let before = machine.pid().expect("somebody serves");
            let to = if turn % 2 == 0 { "baton" } else { "haproxy" };
            machine.run(line(&format!("{to} -D")));
            assert_eq!(machine.serves(), to, "turn {turn}");
            until("the one before has ended", || !Path::new(&format!("/proc/{before}")).exists());
        }
        for load in loads {
            assert_clean("a connection for each request", &load.stop().await);
        }
        drop(origin);
    });
}
