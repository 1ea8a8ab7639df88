//! Processes that are to end once we serve and with which there is no conversation: HAProxy. They are told by signals, as
//! one HAProxy tells another (management manual, 4): SIGTTOU stops listening for a while, SIGTTIN resumes, SIGUSR1
//! finishes, SIGTERM ends.
//!
//! They are told to end once we serve, and by then we may have given up the right to signal them. So a messenger is sent out
//! before: this program once more, which keeps the right, waits for the word, passes it on and ends.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};

use baton_kernel::holders::{self, Holders};
use baton_kernel::namespace;
use baton_kernel::process::known::ProcessId;
use baton_model::Address;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::listeners::Place;
use crate::printable;

/// How a process must be called to be sent a signal: a number from an old pid file may be anybody's by now, and a signal
/// would end it.
const CALLED: [&str; 2] = ["haproxy", "baton"];

/// The argument by which this program is a messenger; processes follow.
pub const MESSENGER_ARGUMENT: &str = "--messenger";
/// This program as it is running, even if its file was replaced since.
const SAME_PROGRAM: &str = "/proc/self/exe";
/// The longest word for a messenger.
const WORD_BYTES_MAX: u64 = 16;
/// The most that a messenger may have to say.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// A process to signal.
#[derive(Clone, Copy, Debug)]
struct Target {
    pid: u32,
    /// Which one it was when it was named; `None` without `/proc`.
    known: Option<ProcessId>,
}

/// Old processes that know signals only. Dropped while they are paused, it resumes them.
#[derive(Debug, Default)]
pub struct Strangers {
    pids: Vec<u32>,
    /// Which processes these are, where the system says so.
    known: Vec<Target>,
    is_paused: bool,
    messenger: Option<Child>,
}

impl Strangers {
    /// One more of them.
    pub fn add(&mut self, pid: u32) {
        self.pids.push(pid);
        let known = i32::try_from(pid).ok().and_then(ProcessId::of);
        self.known.push(Target { pid, known });
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    /// Whether they are who listens at the address, as far as that can be told.
    pub fn may_hold(&self, place: &Place) -> bool {
        let Address::Inet(address) = place.address else { return true };
        let look = || holders::listening_at_port(address.port());
        let Ok(Ok(sockets)) = namespace::inside(place.namespace.as_deref(), look) else { return true };
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

    /// Keeps the right to tell them what is still to be told, although this process is about to give it up.
    ///
    /// # Errors
    /// When no messenger can be started.
    pub fn keep_right(&mut self) -> io::Result<()> {
        let mut command = Command::new(SAME_PROGRAM);
        command.arg(MESSENGER_ARGUMENT).args(self.known.iter().map(Target::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.messenger = Some(command.spawn()?);
        Ok(())
    }

    /// Tells them to end, since we serve. Gives what there is to say.
    pub fn end(mut self, signal: Signal) -> Vec<String> {
        self.is_paused = false;
        self.signal(signal)
    }

    fn signal(&mut self, signal: Signal) -> Vec<String> {
        match self.messenger.take() {
            Some(messenger) => send(messenger, signal)
                .unwrap_or_else(|error| vec![format!("The processes {:?} cannot be stopped: {error}.", self.pids)]),
            None => tell_all(&self.known, signal),
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        if self.is_paused {
            self.signal(Signal::SIGTTIN);
        }
        if let Some(mut messenger) = self.messenger.take() {
            // Without a word it ends.
            drop(messenger.stdin.take());
            let _ = messenger.wait();
        }
    }
}

/// Gives a messenger its word; what it has to say.
fn send(mut messenger: Child, signal: Signal) -> io::Result<Vec<String>> {
    if let Some(mut stdin) = messenger.stdin.take() {
        writeln!(stdin, "{signal}")?;
    }
    let mut said = String::new();
    if let Some(stdout) = messenger.stdout.take() {
        stdout.take(ANSWER_BYTES_MAX).read_to_string(&mut said)?;
    }
    messenger.wait()?;
    Ok(said.lines().map(str::to_owned).collect())
}

/// What this program is as a messenger to these processes: waits for a signal's name on standard input, sends it, and says
/// what went wrong. Without a word, when who started it has ended or changed its mind, it does nothing.
///
/// # Errors
/// When standard input cannot be read, or standard output not written.
pub fn carry(pids: &[OsString]) -> io::Result<()> {
    let mut word = String::new();
    io::stdin().lock().take(WORD_BYTES_MAX).read_to_string(&mut word)?;
    let known = [Signal::SIGUSR1, Signal::SIGTERM, Signal::SIGTTIN];
    let Some(signal) = known.into_iter().find(|signal| word.trim_end() == signal.as_str()) else { return Ok(()) };
    let targets: Vec<Target> = pids.iter().filter_map(|pid| Target::of_argument(pid.to_str()?)).collect();
    for problem in tell_all(&targets, signal) {
        writeln!(io::stdout(), "{problem}")?;
    }
    Ok(())
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.known {
            Some(known) => write!(out, "{known}"),
            None => write!(out, "{}", self.pid),
        }
    }
}

impl Target {
    fn of_argument(text: &str) -> Option<Target> {
        match text.parse::<ProcessId>() {
            Ok(known) => Some(Target { pid: u32::try_from(known.pid).ok()?, known: Some(known) }),
            Err(_) => Some(Target { pid: text.parse().ok()?, known: None }),
        }
    }
}

fn tell_all(targets: &[Target], signal: Signal) -> Vec<String> {
    targets.iter().filter_map(|&target| tell(target, signal).err()).collect()
}

/// Signals a process if it is what it is believed to be; one that has gone is no error, and another one that has its PID by now is
/// left alone.
fn tell(Target { pid, known }: Target, signal: Signal) -> Result<(), String> {
    let called = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if !called.is_empty() && !CALLED.iter().any(|name| called.starts_with(name)) {
        let called = printable::line(called.trim_end()).into_owned();
        return Err(format!("Process {pid} is '{called}', not a load balancer: not stopped."));
    }
    let Ok(number) = i32::try_from(pid) else { return Ok(()) };
    let sent = match known {
        Some(known) => known.signal(signal),
        None => kill(Pid::from_raw(number), signal).map_err(io::Error::from),
    };
    match sent {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(()),
        Err(error) => Err(format!("Process {pid} cannot be stopped: {error}.")),
    }
}
