//! A whole baton process for tests: a configuration in a folder of its own, its messages, and questions to it.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

pub mod clients;
#[path = "../../../../tests/free_address.rs"]
mod free_address;
pub mod haproxy;
pub mod lab;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Outcome, Reply, Request, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

pub use free_address::free_address;

/// How long anything may take before a test gives it up. Far more than it ever takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_baton"))
}

/// Looks until it is so.
#[track_caller]
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(within_patience(is_so), "{what}: not within {PATIENCE:?}");
}

/// Looks until it is so, and gives up at last.
pub fn within_patience(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A running process; killed when dropped.
pub struct Proxy {
    pub folder: TempDir,
    pub config: PathBuf,
    child: Child,
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts `baton -db -f FILE` with this text and waits until it serves.
    #[track_caller]
    pub fn start(text: &str) -> Proxy {
        Proxy::start_with(text, &[])
    }

    /// Starts Baton with more arguments.
    #[track_caller]
    pub fn start_with(text: &str, arguments: &[&str]) -> Proxy {
        Proxy::start_under(&[], text, arguments)
    }

    /// Starts Baton as the argument of a program that executes it in the end.
    #[track_caller]
    pub fn start_under(wrapper: &[&str], text: &str, arguments: &[&str]) -> Proxy {
        let mut proxy = Proxy::begin(wrapper, text, arguments);
        proxy.serves();
        proxy
    }

    /// Starts Baton without waiting until it serves.
    #[track_caller]
    pub fn begin(wrapper: &[&str], text: &str, arguments: &[&str]) -> Proxy {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let config = folder.path().join("test.cfg");
        fs::write(&config, text).expect("the folder is ours");
        Proxy::spawn(wrapper, folder, config, arguments)
    }

    /// Starts another process with the file of this one, and does not wait.
    #[track_caller]
    pub fn spawn_beside(&self, arguments: &[&str]) -> Proxy {
        let folder = tempfile::tempdir().expect("a folder for the test");
        Proxy::spawn(&[], folder, self.config.clone(), arguments)
    }

    /// Starts another process with the file of this one that takes over from this one, and waits until it serves.
    #[track_caller]
    pub fn replace(&self, arguments: &[&str]) -> Proxy {
        let pid = self.pid().to_string();
        let mut next = self.spawn_beside(&[&["-sf", &pid], arguments].concat());
        next.serves();
        next
    }

    fn spawn(wrapper: &[&str], folder: TempDir, config: PathBuf, arguments: &[&str]) -> Proxy {
        let mut words = wrapper.iter().map(OsStr::new).chain([program().as_os_str()]);
        let mut child = Command::new(words.next().expect("at least Baton itself"))
            .args(words)
            .arg("-db")
            .arg("-f")
            .arg(&config)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("it is piped");
        let listener = std::thread::spawn({
            let said = said.clone();
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    said.push_str(&line);
                    said.push('\n');
                }
            }
        });
        Proxy { folder, config, child, said, listener: Some(listener) }
    }

    /// Waits until it serves.
    #[track_caller]
    pub fn serves(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !matches!(ask(Whom::Pid(self.pid()), Request::Status), Ok(Reply::Status(_))) {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("ended with {status}:\n{}", self.said());
            }
            assert!(Instant::now() < end, "does not serve:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it wrote to standard error until now.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another text into its file, at once as an editor would.
    pub fn write(&self, text: &str) {
        let aside = self.config.with_extension("new");
        fs::write(&aside, text).and_then(|()| fs::rename(&aside, &self.config)).expect("the folder is ours");
    }

    #[track_caller]
    fn ask(&self, request: Request) -> Reply {
        ask(Whom::Pid(self.pid()), request).unwrap_or_else(|error| panic!("{error}\n{}", self.said()))
    }

    /// `baton reload`.
    #[track_caller]
    pub fn reload(&self) -> Outcome {
        match self.ask(Request::Reload) {
            Reply::Reload(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// Changes to this text, which is right.
    #[track_caller]
    pub fn change(&self, text: &str) -> Outcome {
        self.write(text);
        let outcome = self.reload();
        assert!(outcome.accepted, "{:#?}", outcome.messages);
        outcome
    }

    /// Tries to change to this text, which is refused; gives the reasons as printed.
    #[track_caller]
    pub fn change_refused(&self, text: &str) -> String {
        self.write(text);
        let outcome = self.reload();
        assert!(!outcome.accepted, "{:#?}", outcome.plan);
        outcome.messages.iter().map(|message| message.rendered.as_str()).collect()
    }

    /// `baton plan`, of the text that is in the file now.
    #[track_caller]
    pub fn plan(&self) -> Outcome {
        match self.ask(Request::Plan { files: Vec::new() }) {
            Reply::Plan(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// `baton status`.
    #[track_caller]
    pub fn status(&self) -> Status {
        match self.ask(Request::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// What each of its open descriptors leads to; of a socket also its addresses and state, as `ss` says them.
    pub fn open_files(&self) -> Vec<String> {
        let sockets = Command::new("ss").args(["-Hanoe"]).output().map(|output| output.stdout).unwrap_or_default();
        let sockets = String::from_utf8_lossy(&sockets).into_owned();
        let entries = fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten().flatten();
        let targets = entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()));
        targets
            .map(|target| {
                let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
                let line = inode
                    .and_then(|inode| sockets.lines().find(|line| line.split([' ', ':']).any(|word| word == inode)));
                line.map_or(target.clone(), |line| format!("{target} {line}"))
            })
            .collect()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("our child lives until it is waited for");
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // Until it is waited for, it is a zombie.
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
    }

    /// Waits for its end; gives how it ended and everything it said.
    #[track_caller]
    pub fn wait(mut self) -> (ExitStatus, String) {
        let mut ended = None;
        until("the end of the process", || {
            ended = self.child.try_wait().expect("it is our child");
            ended.is_some()
        });
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        (ended.expect("looked at above"), self.said())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The workers of a master first: they would live on without it.
        let workers = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.child.id()));
        let _ = self.child.kill();
        for pid in workers.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Lets every user read the files of a process, for one that becomes another.
pub fn readable(proxy: &Proxy) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(proxy.folder.path(), PermissionsExt::from_mode(0o755)).expect("the folder is ours");
}

/// One counter of a frontend.
pub fn frontend_counter(status: &Status, name: &str, counter: &str) -> u64 {
    let frontend = status.frontends.iter().find(|figures| figures.name == name);
    frontend.and_then(|figures| figures.counters.get(counter)).copied().unwrap_or_default()
}
