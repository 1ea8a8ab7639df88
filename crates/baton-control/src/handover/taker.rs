//! The new process's side: finds the old one by its number, takes what it has, and tells it when to end.
//!
//! [`take`] happens before anything of ours is opened, in a runtime of its own, for the process may still fork; what it gives
//! is carried over into the running process, which ends the handover by [`Taken::ready`]. That is the point of no return:
//! before it the old process goes on as if nothing had been; after it we serve whatever becomes of the old one.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::time::{Duration, Instant};

use baton_kernel::listen::SocketIdentity;
use baton_kernel::process::limits::OpenFiles;
use baton_kernel::process::usage;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::belief::{Belief, Believed};
use super::channel::{ANSWER_WITHIN, Broken, Channel, Parked};
use super::giver::Hearing;
use super::kinds::Takes;
use super::memory::ProcessMemory;
use super::message::{
    Hello, Message, Ready, Refused, RefusedKind, Released, SOCKETS_MAX, Stop, TABLES_MAX, TableNames, Welcome,
};
use super::strangers::Strangers;
use super::succession::LINEAGE_MAX;
use super::wire::{MESSAGE_BYTES_MAX, VERSIONS, WireVersion};
use crate::ask;
use crate::control_socket::find::{self, Reached, Where};
use crate::listeners::{Inherited, Known};
use crate::protocol::{Reply, Request};

/// How long to ask again while another handover or a reload is under way.
pub const BUSY_WITHIN: Duration = Duration::from_secs(20);
/// How often.
const BUSY_EVERY: Duration = Duration::from_millis(20);
/// How long a process of ours that does not listen may take to start, or to be gone.
const STARTING_WITHIN: Duration = Duration::from_secs(5);
/// How long a process that closed its end may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// How often to look.
const GONE_EVERY: Duration = Duration::from_millis(2);
/// How many processes are asked at most, successors included.
const ASKED_MAX: usize = 64;
/// Descriptors that a listening socket needs here: as it came, for the cores, and at least one core's.
const DESCRIPTORS_EACH: u64 = 3;
/// Descriptors kept back for everything else.
const DESCRIPTORS_RESERVED: u64 = 64;

/// What the command line asks for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TakeOver {
    /// The processes, as they were listed.
    pub pids: Vec<u32>,
    /// `-sf` or `-st`.
    pub stop: Stop,
    /// They are named by our master, whose workers they are.
    pub is_masters: bool,
}

/// Everything that was taken, and who has to be told.
#[derive(Debug, Default)]
pub struct Taken {
    givers: Vec<Giver>,
    /// Processes that are no Baton (or in another network namespace).
    pub strangers: Strangers,
    stop: Stop,
    /// States to go on from.
    pub states: Vec<(u32, ProcessMemory)>,
    /// The memory of stick tables, by name, until the tables are opened.
    pub tables: Vec<(String, OwnedFd)>,
    /// Listening sockets, until they are given to the listeners.
    pub sockets: Inherited,
    /// Whom the processes we take over from took over from, and they themselves.
    pub lineage: Vec<u32>,
    /// Whether a process ended while it was asked, or one before those is still ending: its addresses may need a moment to become free.
    pub is_somebody_ending: bool,
    /// What there is to say to a human.
    pub notices: Vec<String>,
}

/// A process that waits for us to be ready.
#[derive(Debug)]
struct Giver {
    pid: u32,
    channel: Parked,
    /// The kernel's numbers of the sockets that came, in their order; `None` of one that was not taken.
    sockets: Vec<Option<u64>>,
    hearing: Hearing,
}

/// How a handover was ended.
#[derive(Debug, Default)]
pub struct Concluded {
    /// Processes that report until they end, each with its channel.
    pub reporting: Vec<(u32, Channel, Hearing)>,
    /// What there is to say to a human.
    pub notices: Vec<String>,
}

/// Why a process cannot be talked to.
#[derive(Debug)]
pub enum Unreachable {
    /// There is no such process.
    Nobody,
    /// It is none of ours, or in another network namespace.
    Stranger,
    /// It ended while it was asked.
    Ended,
    /// It does not do what it should.
    Odd(String),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreachable::Nobody => write!(out, "there is no such process"),
            Unreachable::Stranger => write!(out, "it is not a running baton (in this network namespace)"),
            Unreachable::Ended => write!(out, "it ended"),
            Unreachable::Odd(reason) => write!(out, "{reason}"),
        }
    }
}

/// Asks each process, and those that took over from them since, also when it is gone by now. `program` is our version; `may_give` is
/// the `user` of our configuration, of whose processes sockets are taken that root or we opened.
///
/// # Errors
/// A sentence: somebody does not let us, and it would be wrong to go on without. All asked go on as before.
pub fn take(over: &TakeOver, program: &str, may_give: Option<u32>) -> Result<Taken, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot reach the running process: {error}"))?;
    runtime.block_on(async {
        let believed = match over.is_masters {
            true => Believed::everybody(),
            false => Believed::with_user(may_give),
        };
        let mut taken = Taken { stop: over.stop, ..Taken::default() };
        let mut left: VecDeque<GiverProcess> = over.pids.iter().map(|&pid| GiverProcess { pid, after: None }).collect();
        let mut asked = HashSet::new();
        while let Some(next) = left.pop_front() {
            if next.pid == std::process::id() || asked.len() >= ASKED_MAX || !asked.insert(next) {
                continue;
            }
            match taken.ask(next, program, &believed).await {
                Ok(GiverResponse::Everything | GiverResponse::Nothing) => {}
                Ok(GiverResponse::Successor(pid)) => left.extend([GiverProcess { pid, ..next }]),
                Ok(GiverResponse::Gone) => {
                    // Another process may have taken over from it since its number was read.
                    let after = next.after.or(Some(next.pid));
                    let heirs = find::running().into_iter().filter(|heir| believed.judge(heir.uid).is_ok());
                    left.extend(heirs.map(|heir| GiverProcess { pid: heir.pid, after }));
                }
                // Nobody named it, and it may be somebody else's.
                Err(reason) if next.after.is_some() => {
                    taken.notices.push(format!("No takeover from process {}: {reason}.", next.pid));
                }
                Err(reason) => {
                    return Err(format!("cannot take over from process {}: {reason}. It keeps serving.", next.pid));
                }
            }
        }
        let givers = taken.pids();
        let mut older = taken.lineage.iter().filter(|pid| !givers.contains(pid));
        taken.is_somebody_ending |= older.any(|pid| is_running(*pid));
        Ok(taken)
    })
}

/// A process to ask.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct GiverProcess {
    pid: u32,
    /// Only if it took over from this process, which is gone.
    after: Option<u32>,
}

/// What came of it.
enum GiverResponse {
    /// It gave what it has.
    Everything,
    /// It has nothing for us.
    Nothing,
    /// This one has taken over from it.
    Successor(u32),
    /// It is gone.
    Gone,
}

impl Taken {
    /// Takes what this process has.
    async fn ask(&mut self, asked: GiverProcess, program: &str, believed: &Believed) -> Result<GiverResponse, String> {
        let GiverProcess { pid, after } = asked;
        let end = Instant::now() + BUSY_WITHIN;
        // Since when it does not listen.
        let mut silent = None;
        loop {
            let (stream, belief) = match reach(pid, believed) {
                Ok(reached) => {
                    silent = None;
                    reached
                }
                Err(Unreachable::Nobody) => return Ok(GiverResponse::Gone),
                Err(Unreachable::Ended) => {
                    self.is_somebody_ending = true;
                    return Ok(GiverResponse::Gone);
                }
                // Its pid file was read before it listens, or it has closed everything and is gone in a moment.
                Err(Unreachable::Stranger)
                    if (is_starting(pid) || is_leaving(pid))
                        && silent.get_or_insert_with(Instant::now).elapsed() < STARTING_WITHIN =>
                {
                    tokio::time::sleep(BUSY_EVERY).await;
                    continue;
                }
                Err(Unreachable::Stranger) => {
                    if after.is_none() {
                        self.strangers.add(pid);
                    }
                    return Ok(GiverResponse::Nothing);
                }
                Err(Unreachable::Odd(reason)) => return Err(reason),
            };
            let mut channel = Parked::new(stream).resume().map_err(|error| error.to_string())?;
            let hello = Hello { versions: VERSIONS.to_vec(), pid: std::process::id(), program: program.into(), after };
            let before = self.sockets.len();
            match self.receive(pid, &mut channel, hello, belief).await {
                Ok(Received::All(sockets)) => {
                    let channel = channel.park().map_err(|error| error.to_string())?;
                    // Who passes a connection on says who the client is.
                    let hearing = match belief {
                        Belief::Whole => Hearing::Connections,
                        Belief::Bounded { .. } => Hearing::Reports,
                    };
                    self.givers.push(Giver { pid, channel, sockets, hearing });
                    return Ok(GiverResponse::Everything);
                }
                Ok(Received::Refused(refused)) => match refused.kind {
                    RefusedKind::Busy if Instant::now() < end => tokio::time::sleep(BUSY_EVERY).await,
                    RefusedKind::Busy => {
                        return Err(format!("{}, for {} s now", refused.reason, BUSY_WITHIN.as_secs()));
                    }
                    RefusedKind::Stopping => {
                        self.is_somebody_ending |= refused.successor.is_none();
                        return Ok(refused.successor.map_or(GiverResponse::Nothing, GiverResponse::Successor));
                    }
                    RefusedKind::Never if after.is_some() => return Ok(GiverResponse::Nothing),
                    RefusedKind::Never => return Err(refused.reason),
                },
                Err(Broken::Closed) if is_gone(pid) => {
                    self.notices.push(format!("Process {pid} ended in the middle of the handover."));
                    self.is_somebody_ending = true;
                    let is_all_ours = self.sockets.len() > before;
                    return Ok(if is_all_ours { GiverResponse::Nothing } else { GiverResponse::Gone });
                }
                Err(error) => {
                    let reason = error.to_string();
                    // It goes on anyway when we close.
                    let _ = channel.send(Message::Abort { reason: reason.clone() }, &[], ANSWER_WITHIN).await;
                    return Err(reason);
                }
            }
        }
    }

    /// Receives everything. What arrived before it broke off is kept: it may be all there is.
    async fn receive(
        &mut self,
        pid: u32,
        channel: &mut Channel,
        hello: Hello,
        belief: Belief,
    ) -> Result<Received, Broken> {
        channel.send(Message::Hello(hello), &[], ANSWER_WITHIN).await?;
        let welcome = match channel.receive(ANSWER_WITHIN).await? {
            Message::Welcome(welcome) => welcome,
            Message::Refused(refused) => return Ok(Received::Refused(refused)),
            other => return Err(unexpected(other)),
        };
        has_room(&welcome).map_err(Broken::Descriptors)?;
        let version = WireVersion::of(welcome.version).ok_or_else(|| {
            Broken::Malformed(format!("it chose version {}, which is not one of {VERSIONS:?}", welcome.version))
        })?;
        channel.speak(version);
        self.lineage.extend(welcome.lineage.iter().copied().chain([pid]).take(LINEAGE_MAX + 1));
        channel.send(Message::Send, &[], ANSWER_WITHIN).await?;
        let mut sockets: Vec<Option<u64>> = Vec::new();
        while sockets.len() < welcome.sockets as usize {
            let some = match channel.receive(ANSWER_WITHIN).await? {
                Message::Sockets(some) if !some.sockets.is_empty() => some.sockets,
                other => return Err(unexpected(other)),
            };
            let fds = channel.take_fds(some.len())?;
            for (socket, fd) in some.into_iter().zip(fds) {
                let added = belief.may_take(&fd).and_then(|()| {
                    let identity = SocketIdentity::of(&fd).ok().flatten();
                    let added = self.sockets.add_known(fd, socket.namespace, socket.number);
                    added.map(|()| identity.map(|identity| identity.socket)).map_err(|error| error.to_string())
                });
                sockets.push(added.unwrap_or_else(|reason| {
                    self.notices.push(format!("{} of process {pid} is not used: {reason}.", socket.address));
                    None
                }));
            }
        }
        if let Belief::Bounded { uid } = belief
            && !sockets.iter().any(Option::is_some)
        {
            let reason = format!(
                "it belongs to user {uid}, which opened its sockets and may have passed them to others; stop it first"
            );
            return Err(Broken::Said(reason));
        }
        channel.send(Message::Received, &[], ANSWER_WITHIN).await?;
        loop {
            match channel.receive(ANSWER_WITHIN).await? {
                Message::Tables(TableNames { tables }) if self.tables.len() + tables.len() <= TABLES_MAX => {
                    let fds = channel.take_fds(tables.len())?;
                    // Who shares a memory with us can write anything into it.
                    if belief == Belief::Whole {
                        self.tables.extend(tables.into_iter().zip(fds));
                    }
                }
                Message::State(mut state) => {
                    if belief != Belief::Whole {
                        // Who knows a key can read what it protects.
                        state.tickets = Vec::new();
                    }
                    self.states.push((pid, *state));
                    break;
                }
                other => return Err(unexpected(other)),
            }
        }
        let left_out =
            |(kind, frames)| format!("Process {pid} sent the unknown message '{kind}' (frames: {frames}): ignored.");
        self.notices.extend(channel.skipped().into_iter().map(left_out));
        Ok(Received::All(sockets))
    }

    /// Whom we take over from: processes that gave us something.
    pub fn pids(&self) -> Vec<u32> {
        self.givers.iter().map(|giver| giver.pid).collect()
    }

    /// The kernel's numbers of sockets that came from another process.
    pub fn socket_numbers(&self) -> HashSet<u64> {
        self.givers.iter().flat_map(|giver| giver.sockets.iter().flatten().copied()).collect()
    }

    /// Tells everybody that we serve, and to end. `unused` are the sockets that we do not use; `takes` is what we take of
    /// connections that move.
    ///
    /// # Errors
    /// A sentence: the old process did not wait and serves on. We must not serve beside it.
    pub async fn ready(self, unused: &Inherited, takes: Takes) -> Result<Concluded, String> {
        let mut concluded = Concluded::default();
        let unused: HashSet<u64> = unused.known().map(|known: &Known| known.identity.socket).collect();
        let mut is_decided = false;
        for Giver { pid, channel, sockets, hearing } in self.givers {
            let is_used = |socket: &Option<u64>| socket.is_some_and(|socket| !unused.contains(&socket));
            let taken = (0..).zip(&sockets).filter(|(_, socket)| is_used(socket)).map(|(at, _)| at).collect();
            let Takes { format: moving, kinds } = if hearing == Hearing::Connections { takes } else { Takes::NONE };
            let ready = Ready { pid: std::process::id(), taken, stop: self.stop, moving, kinds };
            let mut channel = channel.resume().map_err(|error| error.to_string())?;
            match conclude(&mut channel, ready).await {
                Ok(released) => {
                    concluded.notices.push(said(pid, sockets.len(), &released));
                    concluded.reporting.push((pid, channel, hearing));
                }
                Err(Broken::Late(_)) => {
                    concluded
                        .notices
                        .push(format!("Process {pid} did not confirm that it stops accepting; continuing."));
                    concluded.reporting.push((pid, channel, hearing));
                }
                Err(Broken::Closed) if is_gone(pid) => {
                    concluded.notices.push(format!("Process {pid} ended before the handover was complete."));
                }
                Err(error) if is_decided => {
                    concluded.notices.push(format!("Process {pid} keeps serving too: {error}."));
                }
                Err(error) => return Err(format!("process {pid} keeps serving: {error}")),
            }
            is_decided = true;
        }
        let signal = match self.stop {
            Stop::Soft => Signal::SIGUSR1,
            Stop::Now => Signal::SIGTERM,
        };
        concluded.notices.extend(self.strangers.end(signal));
        Ok(concluded)
    }
}

/// What came of asking.
enum Received {
    /// Everything; the kernel's numbers of the sockets that are taken.
    All(Vec<Option<u64>>),
    /// Nothing.
    Refused(Refused),
}

async fn conclude(channel: &mut Channel, ready: Ready) -> Result<Released, Broken> {
    // A giver that gave us up has said so before it closed.
    let _ = channel.send(Message::Ready(ready), &[], ANSWER_WITHIN).await;
    match channel.receive(ANSWER_WITHIN).await? {
        Message::Released(released) => Ok(released),
        other => Err(unexpected(other)),
    }
}

fn said(pid: u32, sockets: usize, released: &Released) -> String {
    let sockets = if sockets == 1 { "1 listening socket".into() } else { format!("{sockets} listening sockets") };
    match released.connections {
        0 => format!("Took over from process {pid}: {sockets}."),
        1 => format!("Took over from process {pid}: {sockets}; it stops gracefully."),
        count => format!("Took over from process {pid}: {sockets}; it stops gracefully, {count} connections are open."),
    }
}

/// Whether we may have as many descriptors as will come, and memory for the state.
fn has_room(welcome: &Welcome) -> Result<(), String> {
    let Welcome { sockets, state_bytes, .. } = *welcome;
    if sockets > SOCKETS_MAX {
        return Err(format!("it has {sockets} listening sockets; the maximum is {SOCKETS_MAX}"));
    }
    if state_bytes > MESSAGE_BYTES_MAX as u64 {
        return Err(format!("its state has {state_bytes} bytes; the maximum is {MESSAGE_BYTES_MAX}"));
    }
    let limit = OpenFiles::now().map_or(u64::MAX, |limit| limit.soft);
    let open = usage::open_descriptors().unwrap_or_default() as u64;
    let needed = u64::from(sockets) * DESCRIPTORS_EACH + DESCRIPTORS_RESERVED;
    let left = limit.saturating_sub(open);
    if left < needed {
        return Err(format!(
            "its {sockets} listening sockets need {needed} descriptors, and {left} of {limit} are free: raise the limit of \
             open files (ulimit -n)"
        ));
    }
    Ok(())
}

fn unexpected(message: Message) -> Broken {
    match message {
        Message::Abort { reason } => Broken::Said(reason),
        other => Broken::Malformed(format!("unexpected: {}", other.name())),
    }
}

/// Connects to a process that is believed.
fn reach(pid: u32, believed: &Believed) -> Result<(StdStream, Belief), Unreachable> {
    let reached = dial(pid)?;
    let belief = believed.judge(reached.peer.uid).map_err(Unreachable::Odd)?;
    Ok((request(pid, reached)?, belief))
}

/// Connects to the address of a process and asks for a handover; from then on messages follow.
pub(super) fn connect(pid: u32) -> Result<StdStream, Unreachable> {
    request(pid, dial(pid)?)
}

/// Connects to the process of that PID, in our network namespace, whoever else listens at names of it.
fn dial(pid: u32) -> Result<Reached, Unreachable> {
    find::reach(pid, Where::Here).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused if is_running(pid) => Unreachable::Stranger,
        io::ErrorKind::ConnectionRefused => Unreachable::Nobody,
        _ => Unreachable::Odd(error.to_string()),
    })
}

fn request(pid: u32, reached: Reached) -> Result<StdStream, Unreachable> {
    let odd = |error: io::Error| Unreachable::Odd(error.to_string());
    let mut line = ask::Line::new(reached.stream, ANSWER_WITHIN);
    // Nothing follows the answer before we say more, so reading ahead loses nothing.
    match line.say(&Request::Handover).and_then(|()| line.hear()) {
        Ok(Reply::Handover) => Ok(line.into_stream()),
        Ok(Reply::Failed { reason }) => Err(Unreachable::Odd(reason)),
        Ok(_) => Err(Unreachable::Odd("it does not support a handover".into())),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::TimedOut => Unreachable::Odd(format!("no reply within {} s", ANSWER_WITHIN.as_secs())),
            io::ErrorKind::InvalidData => Unreachable::Odd("it does not support a handover".into()),
            _ if is_gone(pid) => Unreachable::Ended,
            _ => odd(error),
        }),
    }
}

/// Whether there is such a process, somebody else's included.
fn is_running(pid: u32) -> bool {
    let Ok(number) = i32::try_from(pid) else { return false };
    kill(Pid::from_raw(number), None) != Err(Errno::ESRCH) && !is_zombie(pid)
}

/// Whether a process that does not listen may be a Baton that is about to: one by its name, in our network namespace.
fn is_starting(pid: u32) -> bool {
    let of = |pid: &str, what: &str| std::fs::read_link(format!("/proc/{pid}/{what}")).ok();
    let called = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let pid = pid.to_string();
    let is_ours = called.starts_with("baton") || of(&pid, "exe").is_some_and(|exe| of("self", "exe") == Some(exe));
    is_ours && of(&pid, "ns/net").is_some_and(|net| of("self", "ns/net") == Some(net))
}

/// Whether a process is about to be gone: its program is, as at the end of an exit, and it is no zombie yet.
fn is_leaving(pid: u32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) && is_running(pid)
}

/// Waits for a process that closed its end to be gone; says whether it is.
fn is_gone(pid: u32) -> bool {
    let end = Instant::now() + GONE_WITHIN;
    while is_running(pid) {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(GONE_EVERY);
    }
    true
}

/// A process that has ended and was not waited for: all its descriptors are closed.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}
