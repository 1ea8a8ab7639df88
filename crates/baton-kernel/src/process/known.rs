//! A process that is known beyond its life: by its number, which the kernel gives to another one later, and by the moment at which it
//! began, which tells the two apart.
//!
//! It is for processes that are not our children. Those of other PID namespaces are not known here.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::procfs;

/// A process, or one that was. It may be written down and read by others, as long as the machine is not booted anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Known {
    /// Its number.
    pub pid: i32,
    /// Ticks of the clock from the boot to its begin (the 22nd word of `/proc/PID/stat`).
    began: u64,
}

impl Known {
    /// The process that has this number now; `None` when there is none.
    pub fn of(pid: i32) -> Option<Known> {
        look(pid).map(|found| Known { pid, began: found.began })
    }

    /// This process.
    pub fn own() -> Option<Known> {
        i32::try_from(std::process::id()).ok().and_then(Known::of)
    }

    /// Whether it runs. One that has ended and was not waited for does not.
    pub fn is_alive(self) -> bool {
        look(self.pid).is_some_and(|found| found.began == self.began && !found.is_zombie)
    }

    /// Whether it began before the other one, or at the same tick of the clock.
    pub fn is_older_than(self, other: Known) -> bool {
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
            Some(process) => send(process, signal as libc::c_int),
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
        match send(&process, libc::SIGKILL) {
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

impl fmt::Display for Known {
    /// As an argument for another process of ours.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}@{}", self.pid, self.began)
    }
}

impl FromStr for Known {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Known> {
        let parsed = text
            .split_once('@')
            .and_then(|(pid, began)| Some(Known { pid: pid.parse().ok()?, began: began.parse().ok()? }));
        parsed.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

struct Found {
    began: u64,
    is_zombie: bool,
}

fn look(pid: i32) -> Option<Found> {
    let stat = procfs::read(&format!("{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; behind it are the third word and all that follow.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_zombie = matches!(words.next()?, "Z" | "X");
    Some(Found { began: words.nth(18)?.parse().ok()?, is_zombie })
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two numbers and gives a descriptor or -1.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us (close-on-exec); nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number as libc::c_int) })
}

fn send(process: &OwnedFd, signal: libc::c_int) -> io::Result<()> {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: pidfd_send_signal(2) takes an open descriptor, numbers, and a null pointer for "as kill(2) does".
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, nothing, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_signal_is_for_one_process_and_not_for_its_pid() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let known = Known::of(child.id() as i32).unwrap();
        Known { began: known.began + 1, ..known }.signal(Signal::SIGTERM).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it was not the one that was meant");
        assert!(Known::own().unwrap().is_older_than(known));
        known.signal(Signal::SIGTERM).unwrap();
        assert!(!child.wait().unwrap().success());
        known.signal(Signal::SIGTERM).unwrap();
        let text = known.to_string();
        assert_eq!(text.parse::<Known>().ok(), Some(known));
        assert!("12".parse::<Known>().is_err());
    }

    #[test]
    fn one_with_another_beginning_is_another_one() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let known = Known::of(child.id() as i32).unwrap();
        let other = Known { began: known.began + 1, ..known };
        assert!(known.is_alive() && !other.is_alive());
        other.kill(Duration::from_secs(20)).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it was not the one that was meant");
        known.kill(Duration::from_secs(20)).unwrap();
        assert!(!known.is_alive(), "it is a zombie");
        assert!(!child.wait().unwrap().success());
        known.kill(Duration::ZERO).unwrap();
        assert_eq!(Known::of(known.pid).filter(|found| *found == known), None);
        assert!(Known::own().unwrap().is_alive());
    }
}
