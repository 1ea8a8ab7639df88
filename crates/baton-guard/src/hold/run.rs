//! One run of `baton hold`: choose, claim, hold, run the command, let go, report.
//!
//! This process changes nothing itself; the [`guardian`] does. Where that is killed, what it did is undone here.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use baton_kernel::process::capabilities::{self, Capability};
use baton_kernel::process::over_exec;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::choose::{self, Choice};
use super::guardian::{self, Cause, Guardian, GuardianMessage};
use super::method::{self, HoldCounts, HoldOrder, MethodName};
use super::record::{Claimed, Refused, RunRecord};
use super::target::Targets;
use crate::KernelError;

/// Exit code when holding could not begin, and the command was not run.
pub const NOT_HELD: u8 = 125;
/// Exit code when the command is there and cannot be run.
pub const CANNOT_RUN: u8 = 126;
/// Exit code when there is no such command.
pub const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the command.
const SIGNALED: i32 = 128;
/// Signals that are passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// `si_code` of a signal that the kernel sent, such as the terminal's Ctrl-C: everybody in the foreground got it.
const FROM_KERNEL: i32 = 0x80;

/// What was asked for on the command line.
#[derive(Clone, Debug)]
pub struct HoldOptions {
    /// Whose new connections.
    pub targets: Targets,
    /// How; `None` lets us choose.
    pub method: Option<MethodName>,
    /// The deadline.
    pub max: Duration,
    /// SYNs held at most.
    pub limit: u32,
    /// How long the hold goes on after the command has ended.
    pub linger: Duration,
    /// Network interfaces; empty for the method's choice.
    pub interfaces: Vec<String>,
    /// The command and its arguments; not empty.
    pub command: Vec<OsString>,
    /// Wait for others that hold the same.
    pub wait: bool,
    /// Run the command even if connections cannot be held.
    pub anyway: bool,
}

/// What became of a run.
#[derive(Debug)]
pub struct HoldReport {
    /// What was held.
    pub targets: Targets,
    /// How; `None` when nothing was held.
    pub method: Option<MethodName>,
    /// What ended it; `None` when nothing was held.
    pub cause: Option<Cause>,
    /// How long new connections were held.
    pub held_for: Duration,
    /// What was done to them.
    pub held: HoldCounts,
    /// What went wrong. The command may have been run all the same.
    pub faults: Vec<KernelError>,
    /// The exit code: the command's, or one of ours.
    pub exit: u8,
}

/// How new connections to the targets would be held, and in which steps.
///
/// # Errors
/// When they cannot be.
pub fn plan(asked: &HoldOptions) -> Result<(Choice, String), KernelError> {
    has_right()?;
    let choice = choose::method(asked.method, &order(asked, MethodName::Drop))?;
    let steps = method::prepare(&order(asked, choice.method))?.plan();
    Ok((choice, steps.to_string()))
}

fn order(asked: &HoldOptions, method: MethodName) -> HoldOrder {
    HoldOrder {
        run: std::process::id(),
        method,
        targets: asked.targets.clone(),
        max: asked.max,
        limit: asked.limit,
        interfaces: asked.interfaces.clone(),
    }
}

/// Does it. `tell` is given sentences while it goes on.
pub fn run(asked: &HoldOptions, tell: &mut dyn FnMut(&str)) -> HoldReport {
    let mut report = HoldReport {
        targets: asked.targets.clone(),
        method: None,
        cause: None,
        held_for: Duration::ZERO,
        held: HoldCounts::default(),
        faults: Vec::new(),
        exit: NOT_HELD,
    };
    match begin(asked, tell) {
        Ok(holding) => holding.run(&asked.command, &mut report),
        Err(fault) => {
            report.faults.push(fault);
            if asked.anyway {
                report.exit = alone(&asked.command, &mut report.faults);
            }
        }
    }
    report
}

/// New connections are held when this returns.
fn begin(asked: &HoldOptions, tell: &mut dyn FnMut(&str)) -> Result<ActiveHold, KernelError> {
    has_right()?;
    let choice = choose::method(asked.method, &order(asked, MethodName::Drop))?;
    tell(&choice.to_string());
    let order = order(asked, choice.method);
    let claims = method::prepare(&order)?.claims();
    let words: Vec<_> = asked.command.iter().map(|word| word.to_string_lossy()).collect();
    let mut claimed = match Claimed::claim(RunRecord::new(order, claims, words.join(" "), asked.linger), asked.wait) {
        Ok(claimed) => claimed,
        Err(Refused::Fault(fault)) => return Err(fault),
        Err(Refused::Busy(other)) => {
            let who = format!(
                "process {} holds {} for {:?}, to run `{}`",
                other.order.run,
                other.order.targets,
                other.age(),
                other.command
            );
            return Err(KernelError::new(asked.targets.to_string(), who, "wait for it with --wait"));
        }
    };
    claimed.unreadable.iter().for_each(|file| tell(&file.fault.to_string()));
    match Guardian::start(&mut claimed) {
        Ok(guardian) => {
            Ok(ActiveHold { claimed: Some(claimed), guardian: Some(guardian), begun: Instant::now(), max: asked.max })
        }
        Err(fault) => {
            // It undid what it did; where it could not, or not even say so, its notes tell what there may be.
            Err(match claimed.undo() {
                Ok(()) => fault,
                Err(left) => {
                    let reason = format!("{}; and the first steps could not be undone: {left}", fault.reason);
                    KernelError { reason, remedy: "`baton hold release` tries again".into(), ..fault }
                }
            })
        }
    }
}

/// The one right that every method needs.
fn has_right() -> Result<(), KernelError> {
    let missing = capabilities::missing(&[Capability::CAP_NET_ADMIN]);
    match missing.map_err(|error| KernelError::io("reading our capabilities", &error))?.is_empty() {
        true => Ok(()),
        false => Err(KernelError::new(
            "holding new connections",
            "it needs CAP_NET_ADMIN, which this process does not have",
            "run it as root, in systemd with AmbientCapabilities=CAP_NET_ADMIN, or run the command without a hold with --anyway",
        )),
    }
}

/// New connections are held while this has its guardian.
struct ActiveHold {
    claimed: Option<Claimed>,
    guardian: Option<Guardian>,
    begun: Instant,
    max: Duration,
}

impl ActiveHold {
    fn run(mut self, command: &[OsString], report: &mut HoldReport) {
        report.method = self.claimed.as_ref().map(|claimed| claimed.record.order.method);
        let started = Signals::catch().and_then(|signals| Ok((spawn(command)?, signals)));
        match started.map(|(child, signals)| (self.watch(child, &signals, report), signals)) {
            Ok((Ok(status), signals)) => {
                report.exit = exit_code(status);
                // What was ended by a signal has nothing to wait for.
                if status.signal().is_none() {
                    self.settle(&signals, report);
                }
            }
            Ok((Err(error), _)) => report.faults.push(KernelError::io("waiting for the command", &error)),
            Err(error) => report.exit = not_run(command, &error, &mut report.faults),
        }
        self.let_go(report);
    }

    /// Waits for the command's end, passes signals on, and hears when the guardian lets go before.
    fn watch(&mut self, mut child: Child, signals: &Signals, report: &mut HoldReport) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let overdue = self.guardian.is_some().then(|| Guardian::overdue(self.begun, self.max));
            let mut fds = vec![PollFd::new(signals.0.as_fd(), PollFlags::POLLIN)];
            fds.extend(self.guardian.as_ref().map(|guardian| PollFd::new(guardian.said(), PollFlags::POLLIN)));
            guardian::wait(&mut fds, overdue)?;
            let is_said = fds.get(1).and_then(PollFd::any).unwrap_or_default();
            signals.pass_on(&child)?;
            if is_said {
                let word = self.guardian.as_mut().and_then(|guardian| guardian.listen(Instant::now()));
                self.ended(word, report);
            } else if overdue.is_some_and(|overdue| Instant::now() >= overdue) {
                self.ended(None, report);
            }
        }
    }

    /// After the command: gives the server time to settle. A signal ends that.
    fn settle(&mut self, signals: &Signals, report: &mut HoldReport) {
        let (Some(guardian), Some(claimed)) = (&mut self.guardian, &self.claimed) else { return };
        let until = Guardian::settled_by(claimed.record.linger, Guardian::overdue(self.begun, self.max));
        guardian.settle();
        while !signals.interrupted() && Instant::now() < until {
            let mut fds =
                [PollFd::new(guardian.said(), PollFlags::POLLIN), PollFd::new(signals.0.as_fd(), PollFlags::POLLIN)];
            if guardian::wait(&mut fds, Some(until)).is_err() {
                return;
            }
            if fds[0].any().unwrap_or_default() {
                let word = guardian.listen(Instant::now());
                return self.ended(word, report);
            }
        }
    }

    /// The guardian lets go, unless it has already.
    fn let_go(mut self, report: &mut HoldReport) {
        if let Some(mut guardian) = self.guardian.take() {
            let ended = guardian.end(Guardian::overdue(self.begun, self.max));
            self.guardian = Some(guardian);
            self.ended(ended.map(|(cause, held)| GuardianMessage::Ended { cause, held }), report);
        }
    }

    /// The guardian has let go; or it is gone or hangs, and what it did is undone here.
    fn ended(&mut self, word: Option<GuardianMessage>, report: &mut HoldReport) {
        let (Some(mut guardian), Some(claimed)) = (self.guardian.take(), self.claimed.take()) else { return };
        report.held_for = self.begun.elapsed();
        let forgotten = match word {
            Some(GuardianMessage::Ended { cause, held: Ok(held) }) => {
                (report.cause, report.held) = (Some(cause), held);
                guardian.wait();
                claimed.forget()
            }
            Some(GuardianMessage::Ended { cause, held: Err(fault) }) => {
                report.cause = Some(cause);
                report.faults.push(fault);
                guardian.wait();
                claimed.undo()
            }
            Some(GuardianMessage::Begun | GuardianMessage::Failed(_)) | None => {
                report.cause = Some(Cause::Killed);
                guardian.kill();
                claimed.undo()
            }
        };
        report.faults.extend(forgotten.err());
    }
}

/// Signals as something to read.
struct Signals(SignalFd);

impl Signals {
    /// From here on they wait.
    fn catch() -> io::Result<Signals> {
        let mut set: SigSet = PASSED_ON.into_iter().collect();
        set.add(Signal::SIGCHLD);
        set.thread_block()?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Takes what has come, and says whether one of them asks us to end.
    fn interrupted(&self) -> bool {
        let mut any = false;
        while let Ok(Some(info)) = self.0.read_signal() {
            any |= PASSED_ON.iter().any(|signal| *signal as u32 == info.ssi_signo);
        }
        any
    }

    fn pass_on(&self, child: &Child) -> io::Result<()> {
        while let Some(info) = self.0.read_signal()? {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
            let Some(signal) = signal.filter(|signal| PASSED_ON.contains(signal)) else { continue };
            if info.ssi_code != FROM_KERNEL {
                // Not waited for yet, so that the number is still its own.
                let _ = kill(Pid::from_raw(child.id() as i32), signal);
            }
        }
        Ok(())
    }
}

fn spawn(words: &[OsString]) -> io::Result<Child> {
    let (program, arguments) = words.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut waiting = PASSED_ON.to_vec();
    waiting.push(Signal::SIGCHLD);
    over_exec::spawn_letting_in(Command::new(program).args(arguments), &waiting)
}

/// The command without anything around it.
fn alone(words: &[OsString], faults: &mut Vec<KernelError>) -> u8 {
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return not_run(words, &error, faults),
    };
    let mut child = match spawn(words) {
        Ok(child) => child,
        Err(error) => return not_run(words, &error, faults),
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return exit_code(status),
            Ok(None) => {}
            Err(error) => return not_run(words, &error, faults),
        }
        let waited = guardian::wait(&mut [PollFd::new(signals.0.as_fd(), PollFlags::POLLIN)], None);
        if let Err(error) = waited.map_err(io::Error::from).and_then(|_| signals.pass_on(&child)) {
            return not_run(words, &error, faults);
        }
    }
}

fn not_run(words: &[OsString], error: &io::Error, faults: &mut Vec<KernelError>) -> u8 {
    let place = format!("running `{}`", words.first().map(|word| word.to_string_lossy()).unwrap_or_default());
    faults.push(KernelError::new(place, error.to_string(), ""));
    if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| SIGNALED + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}
