//! One start of the program: its process group, and what it says of itself.

use std::collections::HashSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Instant;

use baton_kernel::process::activation::{Launch, PassedSockets};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::readiness::{AUTO_AFTER, NotifySocket, Readiness, members, waits};
use super::supervisor::{Event, Number};

/// A process that was started from here, the leader of its group.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) number: Number,
    child: Child,
    pid: Pid,
    since: Instant,
    ear: Option<NotifySocket>,
    /// How it ended. As long as it is not waited for, its number and its group's are nobody else's.
    how: Option<String>,
}

impl Instance {
    /// Starts one; `launch` lacks only where to say that it serves.
    pub(super) fn start(number: Number, seats: &PassedSockets, mut launch: Launch) -> io::Result<Instance> {
        let ear = NotifySocket::open()?;
        launch.variables.push(("NOTIFY_SOCKET".into(), ear.name()?.into()));
        let child = seats.start(&launch)?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Instance { number, child, pid, since: Instant::now(), ear: Some(ear), how: None })
    }

    /// Whether it serves by now.
    pub(super) fn serves(&self, readiness: &Readiness, sockets: &HashSet<u64>) -> bool {
        let is_heard = || self.ear.as_ref().is_some_and(|ear| ear.heard_ready(self.pid.as_raw()));
        match readiness {
            Readiness::Notify => is_heard(),
            Readiness::After(time) => self.since.elapsed() >= *time,
            // Whoever asks it knows.
            Readiness::Probe(_) => false,
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

    /// What has become of it since the last look. What it leaves behind in its group, such as workers without their master, is told to
    /// finish by `drain`.
    pub(super) fn ended(&mut self, drain: Signal) -> Option<Event> {
        let is_first = self.how.is_none();
        if is_first {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            let raw = match waitid(Id::Pid(self.pid), flags) {
                Ok(WaitStatus::Exited(_, code)) => code << 8,
                Ok(WaitStatus::Signaled(_, signal, has_core)) => signal as i32 | i32::from(has_core) << 7,
                Ok(_) | Err(Errno::EINTR) => return None,
                // Nobody else waits for it; but if somebody did, it has ended.
                Err(_) => 0,
            };
            self.how = Some(ExitStatus::from_raw(raw).to_string());
            let _ = killpg(self.pid, drain);
        }
        let how = self.how.clone()?;
        if members(self.pid.as_raw()).next().is_some() {
            return is_first.then_some(Event::Orphaned(self.number, how));
        }
        // From here on the number may become somebody else's.
        let _ = self.child.try_wait();
        Some(Event::Ended(self.number, how))
    }

    /// Whether it has ended and something that it started is left, of whose end nobody tells us.
    pub(super) fn has_orphans(&self) -> bool {
        self.how.is_some()
    }

    /// Its number as a process.
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }
}
