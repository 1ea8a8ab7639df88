//! This process: who it runs as, what it may open, on which processors, and how it leaves the terminal; and others that it knows.

pub mod activation;
pub mod capabilities;
pub mod cpus;
pub mod daemon;
pub mod known;
pub mod limits;
pub mod memory;
pub mod over_exec;
pub mod pid_file;
pub mod priority;
pub mod privileges;
pub mod procfs;
pub mod usage;
pub mod users;

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The name of this machine; empty if it is no text.
pub fn hostname() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
}

/// Time on the clock that all processes of the machine share and nobody sets (`CLOCK_MONOTONIC`).
pub fn uptime() -> Duration {
    // The kernel has this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// A number of the namespace in which this process's PID is one; `None`: it cannot be read, as in a root directory without /proc.
pub fn pid_namespace() -> Option<u32> {
    static NAMESPACE: OnceLock<Option<u32>> = OnceLock::new();
    let read = || nix::sys::stat::stat("/proc/self/ns/pid").ok().map(|namespace| namespace.st_ino as u32);
    *NAMESPACE.get_or_init(read)
}

/// Whether there is a process of this PID, in the namespace of this one.
pub fn runs(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}

/// Ignores SIGPIPE: writing to a closed connection is an error value then, not the end of the process. Rust's
/// start-up does so already; a program started in another way says it again.
pub fn ignore_sigpipe() -> io::Result<()> {
    ignore(Signal::SIGPIPE)
}

/// Ignores the signals by which HAProxy's processes ask each other to stop listening for a while and to go on (SIGTTOU,
/// SIGTTIN): where nothing follows them, their default would stop the whole process. A program started from here ignores
/// them until it says otherwise.
pub fn ignore_pauses() -> io::Result<()> {
    ignore(Signal::SIGTTOU)?;
    ignore(Signal::SIGTTIN)
}

fn ignore(ignored: Signal) -> io::Result<()> {
    // SAFETY: no handler function is installed, so nothing of ours runs in signal context.
    unsafe { signal(ignored, SigHandler::SigIgn) }?;
    Ok(())
}

/// Sees to it that no program started from here can gain rights, by a setuid bit or otherwise. There is no way back.
pub fn forbid_new_rights() -> io::Result<()> {
    Ok(prctl::set_no_new_privs()?)
}

/// Lets the kernel write a core file when this process ends by accident: the limits of core files and of files rise to what
/// they may, and the process is dumpable again after its user changed. Where the file goes, and whether it can be written
/// there, is up to the system (core(5)).
pub fn allow_core_files() -> io::Result<()> {
    for limit in [Resource::RLIMIT_CORE, Resource::RLIMIT_FSIZE] {
        let (_, hard) = getrlimit(limit)?;
        setrlimit(limit, hard, hard)?;
    }
    Ok(prctl::set_dumpable(true)?)
}

/// Waits for all children that have ended, whatever they ended with: for the first process of a PID namespace, which gets the
/// processes whose parent has ended, and has no other children.
pub fn reap_orphans() {
    while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {}
}

/// Ends this process by a signal as if nobody had listened to it, so that whoever waits for the process sees what ended it.
pub fn end_by(number: i32) -> ! {
    if let Ok(one) = Signal::try_from(number) {
        // SAFETY: no handler function is installed, so nothing of ours runs in signal context.
        let _ = unsafe { signal(one, SigHandler::SigDfl) };
        let _ = nix::sys::signal::raise(one);
    }
    // A signal that is blocked or ends nobody.
    std::process::exit(128 + number)
}
