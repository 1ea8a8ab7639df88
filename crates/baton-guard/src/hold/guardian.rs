//! The guardian: a process in a session of its own that changes the kernel and undoes it. It ends the hold when it is asked to, when
//! the process that it guards is gone, when it is told to end, and at the deadline; whichever comes first.
//!
//! It is the same program, started anew with [`GUARDIAN_ARGUMENT`]. The two speak in lines of JSON over its standard input and output.
//! That the other one is gone shows as the end of the line, so that nobody needs to watch.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use baton_kernel::output::{self, WriteMode};
use baton_kernel::process::over_exec;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::setsid;
use serde::{Deserialize, Serialize};

use super::method::{self, HoldCounts, HoldMethod, HoldOrder, MethodName};
use super::record::{Claimed, File, RunRecord};
use super::settle::PreviousListeners;
use crate::KernelError;

/// The first argument of a process that is to be a guardian; the second one is the number of the lock's descriptor.
pub const GUARDIAN_ARGUMENT: &str = "--hold-guardian";
/// How long the kernel's changes may take before the command is given up.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// How long the guardian may take to undo them, and how much later than the deadline it may be, before it is helped.
const END_MAX: Duration = Duration::from_secs(2);
/// Bytes of one line between the two.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long connections that came before are waited for.
const DRAIN_MAX: Duration = Duration::from_millis(500);
/// How long old sockets and missing ones are waited for, after the command.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// How long the kernel may take to move what waits in a socket that it does not list any more: it is closed first, and what waits in
/// it looked through afterwards, by a process that others may interrupt. Nobody waits meanwhile.
const MOVE_MAX: Duration = Duration::from_millis(200);
/// How often it is looked, where nobody is held, whether somebody listens.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What asks the guardian to end the hold: when the server has settled, or at once. One byte tells them apart.
const SETTLE: &[u8] = b"settle\n";
const NOW: &[u8] = b"now\n";

/// What ended a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The command ended.
    Command,
    /// The deadline.
    Deadline,
    /// The process that started it is gone.
    Orphaned,
    /// The guardian was told to end, by a signal.
    Signal,
    /// The guardian is gone, and somebody else undid it.
    Killed,
}

/// A message of a guardian.
#[derive(Debug, Serialize, Deserialize)]
pub enum GuardianMessage {
    /// New connections are held from here on.
    Begun,
    /// They are not, and all is as it was.
    Failed(KernelError),
    /// They were let go.
    Ended {
        /// Why now.
        cause: Cause,
        /// What was held; or what could not be undone.
        held: Result<HoldCounts, KernelError>,
    },
}

/// The guardian as its parent sees it.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    ask: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Guardian {
    /// Starts one that holds what was claimed, and waits until it does.
    ///
    /// # Errors
    /// When it cannot; then all is as it was.
    pub fn start(claimed: &mut Claimed) -> Result<Guardian, KernelError> {
        let wrong = |error: io::Error| KernelError::io("starting the guardian process", &error);
        let lock = claimed.lock.file();
        let number = over_exec::keep(lock).map_err(wrong)?;
        let spawned = Command::new("/proc/self/exe")
            .arg(GUARDIAN_ARGUMENT)
            .arg(number.to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        over_exec::keep_no_more(lock).map_err(wrong)?;
        let mut child = spawned.map_err(wrong)?;
        let (ask, said) = (child.stdin.take(), child.stdout.take());
        let mut guardian = Guardian { child, ask, said: BufReader::new(said.expect("it is piped")) };
        let written = claimed.guarded_by(guardian.child.id());
        match written.and_then(|()| guardian.begin(&claimed.record)) {
            Ok(()) => Ok(guardian),
            Err(fault) => {
                guardian.kill();
                Err(fault)
            }
        }
    }

    fn begin(&mut self, record: &RunRecord) -> Result<(), KernelError> {
        let line =
            serde_json::to_string(record).map_err(|error| KernelError::new("the order", error.to_string(), ""))?;
        self.tell(format!("{line}\n").as_bytes());
        match self.listen(Instant::now() + BEGIN_MAX) {
            Some(GuardianMessage::Begun) => Ok(()),
            Some(GuardianMessage::Failed(fault)) => Err(fault),
            Some(GuardianMessage::Ended { .. }) | None => {
                let reason = format!("did not confirm within {BEGIN_MAX:?} that it holds new connections");
                Err(KernelError::new("the guardian process", reason, "see above, or try --method drop"))
            }
        }
    }

    /// What becomes readable when it has something to say.
    pub fn said(&self) -> BorrowedFd<'_> {
        self.said.get_ref().as_fd()
    }

    /// Its next word, when it comes before `until`; `None` when it does not, or the guardian is gone.
    pub fn listen(&mut self, until: Instant) -> Option<GuardianMessage> {
        if self.said.buffer().is_empty() && !readable(&self.said.get_ref(), until) {
            return None;
        }
        let mut line = String::new();
        let mut said = (&mut self.said).take(LINE_BYTES_MAX);
        said.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Asks it to let go when the server has settled, which it says when it has.
    pub fn settle(&mut self) {
        self.tell(SETTLE);
    }

    /// When it must have said so, with the time that was asked for besides.
    pub fn settled_by(linger: Duration, overdue: Instant) -> Instant {
        overdue.min(Instant::now() + linger + SETTLE_MAX + END_MAX)
    }

    /// Asks it to let go now, and waits for what it did, but not beyond `overdue`. `None` when it is gone, or hangs.
    pub fn end(&mut self, overdue: Instant) -> Option<(Cause, Result<HoldCounts, KernelError>)> {
        self.tell(NOW);
        match self.listen(overdue.min(Instant::now() + END_MAX))? {
            GuardianMessage::Ended { cause, held } => Some((cause, held)),
            GuardianMessage::Begun | GuardianMessage::Failed(_) => None,
        }
    }

    /// When another process must end it: it should have let go before.
    pub fn overdue(begun: Instant, max: Duration) -> Instant {
        begun + max + END_MAX
    }

    /// Ends it without asking.
    pub fn kill(&mut self) {
        // It is our child: the number is its own until it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end, after it said that it let go.
    pub fn wait(mut self) {
        drop(self.ask.take());
        if !readable(&self.said.get_ref(), Instant::now() + END_MAX) {
            self.kill();
        }
        let _ = self.child.wait();
    }

    fn tell(&mut self, line: &[u8]) {
        // One that is gone is found out by its silence.
        if let Some(ask) = &mut self.ask {
            let _ = ask.write_all(line).and_then(|()| ask.flush());
        }
    }
}

/// Waits until there is something to read, or an end.
fn readable(fd: &impl AsFd, until: Instant) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    wait(&mut fds, Some(until)).is_ok_and(|ready| ready > 0)
}

/// poll(2) until a point in time, over interruptions.
pub(super) fn wait(fds: &mut [PollFd], until: Option<Instant>) -> nix::Result<i32> {
    loop {
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            // Up to the next millisecond, so that nobody looks a moment too early.
            let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            PollTimeout::try_from(left.min(i32::MAX as u128) as i32).unwrap_or(PollTimeout::MAX)
        });
        match poll(fds, timeout) {
            Err(Errno::EINTR) => {}
            done => return done,
        }
    }
}

/// The guardian's own life, from its arguments to its exit code.
pub fn be_guardian(arguments: &[OsString]) -> u8 {
    // It has one thread, and what it holds matters more than its words.
    output::set_mode(WriteMode::Brief);
    let lock = arguments.first().and_then(|number| number.to_str()?.parse::<RawFd>().ok());
    let lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput)).and_then(over_exec::take);
    match lock.and_then(|lock| live().map(|()| lock)) {
        Ok(_lock) => 0,
        Err(error) => {
            complain(format_args!("the guardian of `baton hold`: {error}"));
            1
        }
    }
}

fn live() -> io::Result<()> {
    // Started as /proc/self/exe, it would be called `exe`. Without the name it does its work too.
    let _ = fs::write("/proc/self/comm", "baton");
    // Ctrl-C in the terminal is meant for the command. One that leads its group already stays in it.
    let _ = setsid();
    let told: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    told.thread_block()?;
    let signals = SignalFd::with_flags(&told, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    // Without the buffer that the standard library keeps for standard input: what lies in one is not readable any more.
    let mut input = BufReader::new(fs::File::from(over_exec::take_standard_input()?));
    let mut line = String::new();
    (&mut input).take(LINE_BYTES_MAX).read_line(&mut line)?;
    let record: RunRecord = serde_json::from_str(&line).map_err(io::Error::other)?;
    let order = record.order.clone();
    let mut file = match File::open(record) {
        Ok(file) => file,
        Err(fault) => return say(&GuardianMessage::Failed(fault)),
    };
    // What cannot be seen is not waited for.
    let before = PreviousListeners::look(&order.targets).ok();
    let mut method = match begin(&order, &mut file) {
        Ok(method) => method,
        Err(fault) => return say(&GuardianMessage::Failed(fault)),
    };
    let deadline = Instant::now() + order.max;
    let does_wait = order.method != MethodName::Migrate;
    if let Some(before) = before.as_ref().filter(|_| does_wait) {
        let _ = before.drained(DRAIN_MAX.min(order.max));
    }
    // Who is not heard is gone, which is seen next.
    let _ = say(&GuardianMessage::Begun);
    let mut watch = Watch { before: before.as_ref().filter(|_| !does_wait), is_gone: false };
    let cause = match cause(&input, &signals, deadline, &mut watch) {
        (Cause::Command, true) => {
            watch.look();
            let linger = deadline.min(Instant::now() + file.record().linger);
            match self::cause(&input, &signals, linger, &mut watch) {
                (Cause::Deadline, _) => {
                    // What cannot be seen is not waited for.
                    let left = deadline.saturating_duration_since(Instant::now());
                    let _ = before.as_ref().map(|before| before.replaced(SETTLE_MAX.min(left)));
                    if !does_wait {
                        thread::sleep(MOVE_MAX.min(deadline.saturating_duration_since(Instant::now())));
                    }
                    Cause::Command
                }
                // Told to hurry, or alone.
                (cause, _) => cause,
            }
        }
        (cause, _) => cause,
    };
    let mut held = method.end().or_else(|_| {
        // What it could not undo with what it had may be undone with what it wrote down.
        method::undo(&order, &file.record().notes).map(|()| HoldCounts::default())
    });
    if let Ok(held) = &mut held {
        held.remarks.extend(watch.remark(&order));
        let _ = file.clear();
    }
    match (cause, &held) {
        (Cause::Orphaned, Ok(_)) => {
            complain(format_args!("`baton hold` was killed: new connections to {} are released", order.targets));
        }
        (Cause::Orphaned, Err(fault)) => complain(format_args!("{fault}; see `baton hold status`")),
        _ => {}
    }
    match say(&GuardianMessage::Ended { cause, held }) {
        Err(error) if cause != Cause::Orphaned => Err(error),
        _ => Ok(()),
    }
}

/// All or nothing: of what could not begin nothing is left. What could not be undone either stays in the file, for others to
/// undo.
fn begin(order: &HoldOrder, file: &mut File) -> Result<Box<dyn HoldMethod>, KernelError> {
    let mut method = match method::prepare(order) {
        Ok(method) => method,
        Err(fault) => {
            let _ = file.clear();
            return Err(fault);
        }
    };
    let Err(fault) = method.begin(file) else { return Ok(method) };
    // What one try has not undone, another one by what was written down may.
    let undone = method.end().map(drop).or_else(|_| method::undo(order, &file.record().notes));
    if undone.is_ok() {
        let _ = file.clear();
    }
    Err(fault)
}

/// Looks, where nobody is held, whether somebody listens all the time.
struct Watch<'a> {
    before: Option<&'a PreviousListeners>,
    is_gone: bool,
}

impl Watch<'_> {
    fn look(&mut self) {
        self.is_gone = self.is_gone || self.before.is_some_and(PreviousListeners::is_gone);
    }

    /// When to look next, if ever.
    fn next(&self) -> Option<Instant> {
        self.before.filter(|before| before.is_served() && !self.is_gone).map(|_| Instant::now() + LOOK_EVERY)
    }

    fn remark(&self, order: &HoldOrder) -> Option<String> {
        self.is_gone.then(|| {
            format!(
                "the server stopped in between: nothing listened on {} for a while, and new connections were refused; use \
                 --method queue for a command that stops the server before it starts it again",
                order.targets
            )
        })
    }
}

/// Waits for what ends the hold, or `deadline`; and whether the server may settle before.
fn cause(input: &BufReader<fs::File>, signals: &SignalFd, deadline: Instant, watch: &mut Watch<'_>) -> (Cause, bool) {
    let asked = input.get_ref();
    let mut fds = [PollFd::new(asked.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    loop {
        match wait(&mut fds, Some(watch.next().map_or(deadline, |next| next.min(deadline)))) {
            Ok(1..) => break,
            Ok(_) if Instant::now() < deadline => watch.look(),
            // Better too early than never.
            Ok(_) | Err(_) => return (Cause::Deadline, false),
        }
    }
    let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
    if !is_ready(&fds[0]) {
        return (Cause::Signal, false);
    }
    let mut line = [0; SETTLE.len()];
    match nix::unistd::read(asked, &mut line) {
        Ok(1..) => (Cause::Command, line[0] == SETTLE[0]),
        Ok(0) | Err(_) => (Cause::Orphaned, false),
    }
}

/// Says it on standard error, if anybody reads there.
fn complain(text: fmt::Arguments) {
    output::print_error(&format!("baton: {text}\n"));
}

fn say(word: &GuardianMessage) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
