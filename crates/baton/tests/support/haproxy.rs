//! Debian's haproxy, to compare with and to hand over to and from.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{PATIENCE, until};

/// It runs in the foreground; ended, with its worker if it is a master, when dropped.
pub struct Haproxy {
    child: Child,
    _folder: TempDir,
}

impl Haproxy {
    /// Starts it with this text and waits until its stats socket answers: it does after everything else is bound.
    #[track_caller]
    pub fn start(text: &str, socket: &Path) -> Haproxy {
        Haproxy::start_with(text, socket, &[])
    }

    /// Starts haproxy with more arguments.
    #[track_caller]
    pub fn start_with(text: &str, socket: &Path, arguments: &[&OsStr]) -> Haproxy {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let config = folder.path().join("test.cfg");
        fs::write(&config, text).expect("the folder is ours");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&config).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("haproxy is installed by scripts/setup test");
        let haproxy = Haproxy { child, _folder: folder };
        until("haproxy answers", || answers(socket));
        haproxy
    }

    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to finish, and waits for its end.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::SIGUSR1);
        until("haproxy has ended", || self.child.try_wait().expect("it is our child").is_some());
    }

    fn signal(&self, signal: Signal) {
        // One that has ended has what is wanted.
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }
}

/// Whether a stats socket answers a command.
fn answers(socket: &Path) -> bool {
    let ask = || -> io::Result<usize> {
        let mut stream = UnixStream::connect(socket)?;
        // One that is bound and not yet looked at takes a question, and answers when it serves.
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"show version\n")?;
        stream.read(&mut [0; 64])
    };
    ask().is_ok_and(|length| length > 0)
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.signal(Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}
