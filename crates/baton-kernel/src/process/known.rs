//! A process that is identified beyond its life: by its PID, which the kernel gives to another one later, and by the moment at which it
//! began, which distinguishes the two.
//!
//! It is for processes that are not our children. Those of other PID namespaces are not known here.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::procfs;

/// A process, running or ended. It may be stored and read by other processes until the machine restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its PID.
    pub pid: i32,
    /// Ticks of the clock from the boot to its begin (the 22nd word of `/proc/PID/stat`).
    began: u64,
}

impl ProcessId {
    /// The process that has this PID now; `None` when there is none.
    pub fn of(pid: i32) -> Option<ProcessId> {
        look(pid).map(|found| ProcessId { pid, began: found.began })
    }

    /// This process.
    pub fn own() -> Option<ProcessId> {
        i32::try_from(std::process::id()).ok().and_then(ProcessId::of)
    }

    /// Whether it runs. One that has ended and was not waited for does not.
    pub fn is_alive(self) -> bool {
        look(self.pid).is_some_and(|found| found.began == self.began && !found.is_zombie)
    }

    /// Whether it began before the other one, or at the same tick of the clock.
    pub fn is_older_than(self, other: ProcessId) -> bool {
        self.began <= other.began
    }

    /// Sends it a signal. One that does not run any more is no error; another process with its PID is left alone.
    ///
    /// # Errors
    /// Without the right to.
    pub fn signal(self, signal: Signal) -> io::Result<()> {
        let gone = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
        let process = match open(self.pid) {
            Err(error) if gone(&error) => return Ok(()),
            Ok(process) => Some(process),
            // Before Linux 5.3 the PID has to do.
            Err(_) => None,
        };
        if !self.is_alive() {
            return Ok(());
        }
        let sent = match &process {
            Some(process) => send(process, signal),
            None => nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), signal).map_err(io::Error::from),
        };
        sent.or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })
    }

    /// Ends it by SIGKILL and waits for its end, for so long at most. One that does not run is what is wanted; another process with
    /// its number is left alone.
    ///
    /// # Errors
    /// Without the right to, where the kernel has no pidfd_open(2) (Linux 5.3), and `TimedOut`.
    pub fn kill(self, patience: Duration) -> io::Result<()> {
        let process = match open(self.pid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            process => process?,
        };
        // Looked at now: the number was the opened process's before, and if it is ours now, it was ours then.
        if !self.is_alive() {
            return Ok(());
        }
        match send(&process, Signal::SIGKILL) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            sent => sent?,
        }
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        loop {
            match poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout) {
                Err(Errno::EINTR) => {}
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                ended => return ended.map(drop).map_err(io::Error::from),
            }
        }
    }
}

impl fmt::Display for ProcessId {
    /// As an argument for another process of ours.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}@{}", self.pid, self.began)
    }
}

impl FromStr for ProcessId {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<ProcessId> {
        let parsed = text
            .split_once('@')
            .and_then(|(pid, began)| Some(ProcessId { pid: pid.parse().ok()?, began: began.parse().ok()? }));
        parsed.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

struct ProcessStat {
    began: u64,
    is_zombie: bool,
}

fn look(pid: i32) -> Option<ProcessStat> {
    let stat = procfs::read(&format!("{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; behind it are the third word and all that follow.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_zombie = matches!(words.next()?, "Z" | "X");
    Some(ProcessStat { began: words.nth(18)?.parse().ok()?, is_zombie })
}

/// A descriptor of a process, close-on-exec: it means this process even when its PID is given to another one.
///
/// # Errors
/// `ESRCH` when there is none; `ENOSYS` before Linux 5.3.
pub(crate) fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
    Ok(pidfd_open(pid.ok_or(rustix::io::Errno::INVAL)?, PidfdFlags::empty())?)
}

fn send(process: &OwnedFd, signal: Signal) -> io::Result<()> {
    let signal = rustix::process::Signal::from_named_raw(signal as libc::c_int);
    Ok(pidfd_send_signal(process, signal.ok_or(rustix::io::Errno::INVAL)?)?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_signal_is_for_one_process_and_not_for_its_pid() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let known = ProcessId::of(child.id() as i32).unwrap();
        ProcessId { began: known.began + 1, ..known }.signal(Signal::SIGTERM).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it was not the one that was meant");
        assert!(ProcessId::own().unwrap().is_older_than(known));
        known.signal(Signal::SIGTERM).unwrap();
        assert!(!child.wait().unwrap().success());
        known.signal(Signal::SIGTERM).unwrap();
        let text = known.to_string();
        assert_eq!(text.parse::<ProcessId>().ok(), Some(known));
        assert!("12".parse::<ProcessId>().is_err());
    }

    #[test]
    fn one_with_another_beginning_is_another_one() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let known = ProcessId::of(child.id() as i32).unwrap();
        let other = ProcessId { began: known.began + 1, ..known };
        assert!(known.is_alive() && !other.is_alive());
        other.kill(Duration::from_secs(20)).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it was not the one that was meant");
        known.kill(Duration::from_secs(20)).unwrap();
        assert!(!known.is_alive(), "it is a zombie");
        assert!(!child.wait().unwrap().success());
        known.kill(Duration::ZERO).unwrap();
        assert_eq!(ProcessId::of(known.pid).filter(|found| *found == known), None);
        assert!(ProcessId::own().unwrap().is_alive());
    }
}
