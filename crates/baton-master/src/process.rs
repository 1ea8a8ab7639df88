//! Starting workers, and learning how they ended.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use baton_control::early_signals;
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use socket2::Socket;

use crate::supervisor::Ended;

/// The first argument of a worker. Its standard input is the line to its master.
pub const WORKER_ARGUMENT: &str = "--worker";

/// Variables that are about the master only.
const MASTERS_OWN: &[&str] =
    &["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "FDSTORE"];

/// The running program, even when its file has been replaced since.
const SAME_PROGRAM: &str = "/proc/self/exe";

/// How the program was started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name it was called by.
    pub called: OsString,
    /// Its arguments, without ours.
    pub arguments: Vec<OsString>,
    /// Where it is on disk.
    pub path: PathBuf,
    /// The file it was started from.
    pub file: Option<FileIdentity>,
}

/// What tells a file from the one that was at the same path before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl FileIdentity {
    /// Of what is at the path now.
    pub fn of(path: &Path) -> io::Result<FileIdentity> {
        let found = fs::metadata(path)?;
        Ok(FileIdentity {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified_s: found.mtime(),
            modified_ns: found.mtime_nsec(),
        })
    }
}

impl Program {
    /// This program.
    pub fn this(called: OsString, arguments: Vec<OsString>) -> Program {
        let path = std::env::current_exe().unwrap_or_else(|_| SAME_PROGRAM.into());
        // Of the running file: the one at its path may be another by now.
        let file = FileIdentity::of(Path::new(SAME_PROGRAM)).ok();
        Program { called, arguments, path, file }
    }

    /// Where it is on disk.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it was called with.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Whether another file is at the path than the one we were started from. A path without a file is no change: perhaps
    /// it is being replaced right now.
    pub fn has_changed(&self) -> bool {
        match (self.file, FileIdentity::of(&self.path)) {
            (Some(ours), Ok(found)) => ours != found,
            _ => false,
        }
    }

    /// Starts a worker with its end of the line; gives its process id. `is_new`: from the file on disk instead of the
    /// running program.
    ///
    /// # Errors
    /// The system's: no such file, not executable, no process or descriptor left.
    pub fn spawn(&self, line: Socket, is_new: bool) -> io::Result<i32> {
        let path = if is_new { &self.path } else { Path::new(SAME_PROGRAM) };
        let mut command = Command::new(path);
        command.arg0(&self.called).arg(WORKER_ARGUMENT).args(&self.arguments);
        command.stdin(Stdio::from(OwnedFd::from(line))).env("HAPROXY_MWORKER", "1");
        for name in MASTERS_OWN {
            command.env_remove(name);
        }
        // It begins with what waits here.
        early_signals::wait()?;
        let child = command.spawn();
        early_signals::come()?;
        let child = child?;
        i32::try_from(child.id()).map_err(io::Error::other)
    }
}

/// Children that have ended since the last call: ours, and as the first process of a container everybody's.
pub fn reap() -> Vec<(i32, Ended)> {
    let mut ended = Vec::new();
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => ended.push((pid.as_raw(), Ended::Exited(code))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => ended.push((pid.as_raw(), Ended::Signaled(signal as i32))),
            Err(Errno::EINTR) => {}
            // Stopped and continued children are not waited for; no child is left, or none has ended.
            Ok(_) | Err(_) => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, "one").unwrap();
        let file = FileIdentity::of(&path).ok();
        let program = Program { called: "x".into(), arguments: Vec::new(), path: path.clone(), file };
        assert!(!program.has_changed());
        fs::rename(&path, folder.path().join("old")).unwrap();
        assert!(!program.has_changed(), "nothing is there");
        fs::write(&path, "two").unwrap();
        assert!(program.has_changed());
        fs::rename(folder.path().join("old"), &path).unwrap();
        assert!(!program.has_changed());
    }
}
