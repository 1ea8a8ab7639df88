//! One start of the program: its process group, and what it says of itself.

use std::collections::HashSet;
use std::io;
use std::process::Child;
use std::time::Instant;

use baton_kernel::process::activation::{Launch, Seats};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::readiness::{AUTO_AFTER, Ear, Readiness, waits};
use super::supervisor::Number;

/// A process that was started from here, the leader of its group.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) number: Number,
    child: Child,
    pid: Pid,
    since: Instant,
    ear: Option<Ear>,
}

impl Instance {
    /// Starts one; `launch` lacks only where to say that it serves.
    pub(super) fn start(number: Number, seats: &Seats, mut launch: Launch) -> io::Result<Instance> {
        let ear = Ear::open()?;
        launch.variables.push(("NOTIFY_SOCKET".into(), ear.name()?.into()));
        let child = seats.start(&launch)?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Instance { number, child, pid, since: Instant::now(), ear: Some(ear) })
    }

    /// Whether it serves by now.
    pub(super) fn serves(&self, readiness: &Readiness, sockets: &HashSet<u64>) -> bool {
        let is_heard = || self.ear.as_ref().is_some_and(|ear| ear.heard_ready(self.pid.as_raw()));
        match readiness {
            Readiness::Notify => is_heard(),
            Readiness::After(time) => self.since.elapsed() >= *time,
            Readiness::Auto => is_heard() || waits(self.pid.as_raw(), sockets) || self.since.elapsed() >= AUTO_AFTER,
        }
    }

    /// It serves: nothing that it says counts any more, and nothing may wait for us to read it.
    pub(super) fn hear_no_more(&mut self) {
        self.ear = None;
    }

    /// Tells the process itself, as its manual says; what it has started is its business.
    pub(super) fn signal(&self, signal: Signal) {
        // One that has ended has what is wanted. Its number is nobody else's: it was not waited for.
        let _ = kill(self.pid, signal);
    }

    /// Kills it and all that is in its group.
    pub(super) fn kill(&self) {
        let _ = killpg(self.pid, Signal::SIGKILL);
    }

    /// How it ended, if it has. What it leaves behind in its group, such as workers without their master, is told to finish by
    /// `drain`.
    pub(super) fn ended(&mut self, drain: Signal) -> Option<String> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => return None,
            // As long as it is not waited for, the group's number is its own.
            _ => drop(killpg(self.pid, drain)),
        }
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}
