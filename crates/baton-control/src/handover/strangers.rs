//! Processes that are to end once we serve and with which there is no conversation: HAProxy. They are told by signals, as
//! one HAProxy tells another (management manual, 4): SIGTTOU stops listening for a while, SIGTTIN resumes, SIGUSR1
//! finishes, SIGTERM ends.

use std::fs;

use baton_kernel::holders::{self, Holders};
use baton_model::Address;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How a process must be called to be sent a signal: a number from an old pid file may be anybody's by now, and a signal
/// would end it.
const CALLED: [&str; 2] = ["haproxy", "baton"];

/// Old processes that know signals only. Dropped while they are paused, it resumes them.
#[derive(Debug, Default)]
pub struct Strangers {
    pids: Vec<u32>,
    is_paused: bool,
}

impl Strangers {
    /// One more of them.
    pub fn add(&mut self, pid: u32) {
        self.pids.push(pid);
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    /// Whether they are who listens at the address, as far as that can be told.
    pub fn may_hold(&self, address: &Address) -> bool {
        let Address::Inet(address) = address else { return true };
        let Ok(sockets) = holders::listening_at_port(address.port()) else { return true };
        let holders = Holders::look_at(&sockets, &self.pids);
        sockets.into_iter().any(|socket| holders.holds(socket) != Some(false))
    }

    /// Whether they were told to stop listening.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Tells them to stop listening, once, so that their addresses become free. Clients that come meanwhile are refused:
    /// for addresses that cannot be had otherwise.
    pub fn pause(&mut self) {
        if !std::mem::replace(&mut self.is_paused, true) {
            self.signal(Signal::SIGTTOU);
        }
    }

    /// Tells them to end, since we serve. Gives what there is to say.
    pub fn end(mut self, signal: Signal) -> Vec<String> {
        self.is_paused = false;
        self.signal(signal)
    }

    fn signal(&self, signal: Signal) -> Vec<String> {
        self.pids.iter().filter_map(|&pid| tell(pid, signal).err()).collect()
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        if self.is_paused {
            self.signal(Signal::SIGTTIN);
        }
    }
}

/// Signals a process if it is what it is believed to be; one that has gone is no error.
fn tell(pid: u32, signal: Signal) -> Result<(), String> {
    let called = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if !called.is_empty() && !CALLED.iter().any(|name| called.starts_with(name)) {
        return Err(format!("Process {pid} is '{}', not a load balancer: not told to end.", called.trim_end()));
    }
    let Ok(number) = i32::try_from(pid) else { return Ok(()) };
    match kill(Pid::from_raw(number), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(format!("Process {pid} cannot be told to end: {error}.")),
    }
}
