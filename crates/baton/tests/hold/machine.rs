//! A machine of its own, and `baton hold` on it.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use baton_kernel::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::{program, until};

/// What is held where a test needs nobody to serve.
pub const WEB: &str = "127.0.0.1:80";

/// A machine of its own.
pub struct Machine {
    pub folder: TempDir,
}

impl Machine {
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `baton hold` with these words.
    pub fn hold(&self, words: &[&str]) -> Command {
        self.under(&[], words)
    }

    /// `baton hold` as the argument of another program.
    pub fn under(&self, wrapper: &[&str], words: &[&str]) -> Command {
        let program = program().display().to_string();
        let mut all = wrapper.iter().copied().chain([program.as_str(), "hold"]).chain(words.iter().copied());
        let mut command = Command::new(all.next().expect("at least Baton itself"));
        command.args(all).env("BATON_RUN_DIR", self.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[track_caller]
    pub fn run(&self, words: &[&str]) -> Output {
        self.hold(words).output().expect("the program was built")
    }

    /// Holds while a shell runs this, and waits until it has begun: at `BEGUN`, else at once.
    #[track_caller]
    pub fn start(&self, words: &[&str], script: &str) -> Running {
        let begun = self.at("begun");
        let script = if script.contains("BEGUN") { script.to_owned() } else { format!("BEGUN; {script}") };
        let script = script.replace("BEGUN", &format!("echo >{}", begun.display()));
        let child = self.hold(&[words, &["--", "sh", "-c", &script]].concat()).spawn().expect("the program was built");
        let running = Running(child);
        until("the command begins", || begun.exists());
        fs::remove_file(begun).expect("the folder is ours");
        running
    }

    /// The folder of state of this network namespace, once there is one.
    pub fn state(&self) -> PathBuf {
        let folders = fs::read_dir(self.folder.path()).expect("the folder is ours").flatten();
        let mut folders = folders.map(|entry| entry.path()).filter(|path| path.is_dir());
        folders.next().expect("something was held or asked for")
    }

    /// Nothing of ours is left.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(ours(), "");
        let left: Vec<_> = files(self.folder.path());
        assert!(left.iter().all(|name| !name.contains("hold-") || name.contains("gate")), "{left:?}");
        let status = self.run(&["status"]);
        assert!(status.status.success(), "{}", text(&status.stdout));
        assert_eq!(text(&status.stdout), "No active holds, no leftovers.\n");
    }
}

/// A `baton hold` that is under way; killed when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("our child lives until it is waited for");
    }

    /// Its children: the guardian and the command.
    pub fn guardian(&self) -> i32 {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).unwrap_or_default();
        let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
        let is_guardian = |pid: &i32| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains("guardian"))
        };
        pids.into_iter().find(is_guardian).expect("it has a guardian")
    }

    /// Exit code and standard error.
    pub fn wait(mut self) -> (i32, String) {
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
pub fn alone(test: impl FnOnce(&Machine) + Send) {
    let inside = || test(&Machine { folder: tempfile::tempdir().expect("a folder for the test") });
    if let Err(error) = netns::in_new(inside) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

pub fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    text(&output.unwrap_or_else(|error| panic!("{program} is installed by scripts/setup test: {error}")).stdout)
}

/// Tables and chains of ours.
pub fn ours() -> String {
    said("nft", &["list", "tables"]).lines().filter(|line| line.contains("baton")).collect()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        all.push(entry.file_name().to_string_lossy().into_owned());
        all.extend(files(&entry.path()));
    }
    all
}

/// Whether a new connection comes through within a fraction of the time after which a client sends its SYN again.
pub fn is_open() -> bool {
    let at: SocketAddr = WEB.parse().expect("an address");
    TcpStream::connect_timeout(&at, Duration::from_millis(300)).is_ok()
}

/// Each method leaves its mark.
#[track_caller]
pub fn assert_held(method: &str) {
    let expect = if method == "migrate" { (true, "1") } else { (false, "0") };
    assert_eq!((ours().is_empty(), migrate_setting().as_str()), expect, "{method}");
}

pub fn migrate_setting() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req").expect("Linux 5.14").trim().to_owned()
}
