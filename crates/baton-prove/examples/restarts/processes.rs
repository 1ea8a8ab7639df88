//! The processes that follow each other: how one is started after another, and what became of them all.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::Failed;

/// How long the first process may take to listen, and the old ones to end after the load.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a process takes over from the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// `-sf PID`, at once: a Baton waits for one that has only begun to start.
    Signal,
    /// `-x SOCKET -sf PID`, as a daemon, the next one when the command has ended: what HAProxy asks for.
    Transfer,
}

/// Everything that was started and has not ended; killed when this is dropped.
pub struct Processes {
    way: Way,
    folder: PathBuf,
    config: PathBuf,
    /// In the order of their starts; the last one serves, or is about to.
    all: Vec<Pid>,
}

impl Processes {
    /// Starts `program` as the first one, in a folder that holds its configuration, and waits until it listens.
    pub fn start(way: Way, program: &str, folder: &Path, config: &Path, web: SocketAddr) -> Result<Processes, Failed> {
        // Daemons become our children when who started them ends: how they end is to be seen.
        prctl::set_child_subreaper(true)?;
        let (folder, config) = (folder.to_owned(), config.to_owned());
        let mut processes = Processes { way, folder, config, all: Vec::new() };
        processes.restart(program)?;
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(web).is_err() {
            if Instant::now() > end {
                return Err("the first process does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(processes)
    }

    /// The socket over which HAProxy's transfer goes.
    pub fn stats_socket(folder: &Path) -> PathBuf {
        folder.join("admin.sock")
    }

    /// Starts a program after the one that serves. What that one answers meanwhile is its own.
    pub fn restart(&mut self, program: &str) -> Result<(), Failed> {
        let mut command = Command::new(program);
        command.arg("-f").arg(&self.config).stdin(Stdio::null());
        if let Some(pid) = self.all.last() {
            if self.way == Way::Transfer {
                command.arg("-x").arg(Processes::stats_socket(&self.folder));
            }
            command.arg("-sf").arg(pid.to_string());
        }
        let failed = |error: std::io::Error| format!("{program}: {error}");
        let pid = match self.way {
            Way::Signal => Pid::from_raw(command.arg("-db").spawn().map_err(failed)?.id().try_into()?),
            Way::Transfer => {
                let file = self.folder.join("pid");
                let status = command.arg("-D").arg("-p").arg(&file).status().map_err(failed)?;
                if !status.success() {
                    return Err(format!("{program} ended with {status} instead of taking over").into());
                }
                let text = fs::read_to_string(&file)?;
                Pid::from_raw(text.lines().next().unwrap_or_default().trim().parse()?)
            }
        };
        self.all.push(pid);
        Ok(())
    }

    /// Forgets those that have ended, well; the last one serves.
    ///
    /// # Errors
    /// When one ended otherwise.
    pub fn reap(&mut self) -> Result<(), Failed> {
        let serving = self.all.pop();
        let mut left = Vec::new();
        for pid in self.all.drain(..) {
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => left.push(pid),
                Ok(WaitStatus::Exited(_, 0)) => {}
                Ok(status) => return Err(format!("process {pid} ended badly: {status:?}").into()),
                // A daemon whose starter has not ended yet.
                Err(Errno::ECHILD) if kill(pid, None).is_ok() => left.push(pid),
                Err(error) => return Err(format!("process {pid}: {error}").into()),
            }
        }
        self.all = left;
        self.all.extend(serving);
        Ok(())
    }

    /// Waits until all but the one that serves have ended, well.
    ///
    /// # Errors
    /// When one ended otherwise, or does not end.
    pub fn settle(&mut self) -> Result<(), Failed> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.reap()?;
            match self.all.len() - 1 {
                0 => return Ok(()),
                left if Instant::now() > end => return Err(format!("{left} old processes are left over").into()),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for &pid in &self.all {
            // Gone already is as good.
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
        }
    }
}
