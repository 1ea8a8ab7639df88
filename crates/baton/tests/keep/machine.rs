//! A running `baton keep`, programs for it, and who asks them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use baton_kernel::netns;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::{program, until};

/// Runs `work` where ports are nobody else's, or says that it may not.
pub fn apart(work: impl FnOnce() + Send) {
    if let Err(error) = netns::in_new(work) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

/// A running `baton keep`; it and all that it started are killed when dropped.
pub struct Keep {
    pub folder: TempDir,
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Keep {
    /// `baton keep WORDS` in a folder with these files; `FOLDER` in words and files becomes its path.
    #[track_caller]
    pub fn start(words: &[&str], files: &[(&str, &str)]) -> Keep {
        let keep = Keep::begin(words, files);
        until("the program serves", || keep.said().contains("instance 1 serves"));
        keep
    }

    #[track_caller]
    pub fn begin(words: &[&str], files: &[(&str, &str)]) -> Keep {
        Keep::begin_with(Command::new(program()), Stdio::null(), words, files)
    }

    /// Begins it by another program, with this standard input.
    #[track_caller]
    pub fn begin_with(mut command: Command, stdin: Stdio, words: &[&str], files: &[(&str, &str)]) -> Keep {
        let folder = tempfile::tempdir().expect("a folder for the test");
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let filled = |text: &str| text.replace("FOLDER", folder.path().to_str().unwrap());
        for (name, text) in files {
            fs::write(folder.path().join(name), filled(text)).expect("the folder is ours");
        }
        command.arg("keep").args(words.iter().map(|word| filled(word)));
        let mut child =
            command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it was built");
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("it is piped");
        std::thread::spawn({
            let said = said.clone();
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    said.push_str(&line);
                    said.push('\n');
                }
            }
        });
        Keep { folder, child, said }
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it lives until it is waited for");
    }

    /// The programs that it has started and that live.
    pub fn programs(&self) -> Vec<i32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.child.id())).unwrap_or_default();
        children.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Waits until something has been said so many times.
    #[track_caller]
    pub fn says(&self, words: &str, times: usize) {
        until(words, || self.said().matches(words).count() >= times);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        until("it ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// SIGTERM, and nothing is left.
    #[track_caller]
    pub fn stop(mut self) {
        let programs = self.programs();
        self.signal(Signal::SIGTERM);
        assert!(self.wait().success(), "{}", self.said());
        for pid in programs {
            assert!(kill(Pid::from_raw(pid), None).is_err(), "the program {pid} is left");
        }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        for pid in self.programs() {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

pub const HAPROXY: &str = "global\n nbthread 2\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server \
                       5s\nfrontend f\n bind \"fd@${BATON_FD_80}\"\n http-request return status 200 content-type \
                       text/plain string haproxy\n";

/// A server in Python that takes its socket as systemd's convention has it, and says who it is.
pub const PYTHON: &str = r#"
import os, signal, socket, sys
assert os.environ['LISTEN_PID'] == str(os.getpid())
count = int(os.environ['LISTEN_FDS'])
names = os.environ['LISTEN_FDNAMES'].split(':')
listeners = {name: socket.socket(fileno=3 + at) for at, name in enumerate(names)}
assert len(names) == count and all(int(os.environ['BATON_FD_' + name.upper()]) == listeners[name].fileno() for name in names)
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
version = open(sys.argv[1]).read().strip()
if version == 'broken':
    sys.exit('the new one is broken')
if version == 'hanging':
    signal.pause()
while True:
    stream, _ = listeners['web'].accept()
    with stream:
        asked = stream.recv(1000)
        if b'crash' in asked:
            os.abort()
        stream.sendall(b'HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n' + version.encode())
"#;

pub const HAPROXY_WORDS: [&str; 7] = ["--listen", "127.0.0.1:80", "--", "haproxy", "-db", "-f", "FOLDER/haproxy.cfg"];
pub const PYTHON_WORDS: [&str; 6] =
    ["--listen", "web=127.0.0.1:80", "--", "python3", "FOLDER/server.py", "FOLDER/version"];

/// A `baton keep` of the server in Python, with words before its own.
pub fn python(words: &[&str]) -> Keep {
    Keep::start(&[words, &PYTHON_WORDS].concat(), &[("server.py", PYTHON), ("version", "one")])
}

/// Restarts it so many times, one right after the other.
#[track_caller]
pub fn restart(keep: &Keep, times: usize) {
    for number in 2..2 + times {
        keep.signal(Signal::SIGHUP);
        keep.says(&format!("instance {number} serves; instance {} drains", number - 1), 1);
    }
}

/// The answer to some bytes.
pub fn question(export: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(export).expect("somebody listens");
    // Who is refused early cannot write all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}
