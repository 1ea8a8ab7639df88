//! The asker's end of [`protocol`](crate::protocol): finds the running process and asks it.
//!
//! Whoever answers is known by what the kernel says of him ([`control_socket`](crate::control_socket)), has one deadline for the
//! whole answer, and what he says is escaped before anybody sees it.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;

use crate::control_socket::find::{self, Reached, Running, Where};
use crate::printable;
use crate::protocol::{Envelope, REPLY_BYTES_MAX, Reply, Request, line};

/// How long a process may take to say how it is, when there are several to choose from.
const STATUS_WITHIN: Duration = Duration::from_secs(2);
/// How long it may take for an answer that needs no work.
const QUICK_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take for a change: a new worker alone may take an hour until it serves (`BATON_READY_WITHIN`).
const WORK_WITHIN: Duration = Duration::from_secs(2 * 3600);
/// Bytes that are read at a time.
const READ: usize = 64 * 1024;
/// Processes that are not counted and named in a message.
const NAMED_MAX: usize = 8;

/// Which process to ask.
#[derive(Clone, Copy, Debug, Default)]
pub enum Whom<'a> {
    /// The only one there is.
    #[default]
    Only,
    /// The one of this number.
    Pid(u32),
    /// The one whose number is in this file.
    PidFile(&'a Path),
}

/// Asks and waits for the answer.
///
/// # Errors
/// A sentence: no process found, several found, not allowed, or gone before it answered.
pub fn ask(whom: Whom<'_>, request: Request) -> Result<Reply, String> {
    send(whom, request)?.answer()
}

/// Asks, and leaves the waiting to [`PendingQuery::answer`].
///
/// # Errors
/// As [`ask`].
pub fn send(whom: Whom<'_>, request: Request) -> Result<PendingQuery, String> {
    let pid = find(whom)?;
    let reached = connect(pid)?;
    is_believed(whom, pid, &reached)?;
    let uid = reached.peer.uid;
    let stranger = (uid != 0 && uid != geteuid().as_raw() && !reached.is_vouched).then_some(uid);
    let within = within(&request);
    let mut line = Line::new(reached.stream, within);
    line.say(&request).map_err(|error| format!("process {pid}: {error}"))?;
    Ok(PendingQuery { pid, stranger, line })
}

fn within(request: &Request) -> Duration {
    match request {
        Request::Status | Request::Certificates | Request::Handover => QUICK_WITHIN,
        Request::Reload | Request::Plan { .. } | Request::SyncCertificates | Request::Upgrade => WORK_WITHIN,
    }
}

/// Whether the process is who is meant. A PID file may be older than the process that has its PID by now, so that its user must be
/// one who could have been meant; a PID on the command line says it all.
fn is_believed(whom: Whom<'_>, pid: u32, reached: &Reached) -> Result<(), String> {
    let Whom::PidFile(path) = whom else { return Ok(()) };
    let uid = reached.peer.uid;
    let is_files = || std::fs::metadata(path).is_ok_and(|file| file.uid() == uid);
    if uid == 0 || uid == geteuid().as_raw() || reached.is_vouched || is_files() {
        return Ok(());
    }
    Err(format!(
        "{}: process {pid} belongs to user {uid}, who is neither root nor you nor the owner of the file; if it is the one that is \
         meant, choose it with --pid {pid}",
        path.display()
    ))
}

/// A question whose answer is to come.
#[derive(Debug)]
pub struct PendingQuery {
    pid: u32,
    stranger: Option<u32>,
    line: Line,
}

impl PendingQuery {
    /// The user of the process, when he is neither root nor the one who asks, nor the one of a run directory.
    pub fn stranger(&self) -> Option<u32> {
        self.stranger
    }

    /// The PID that is asked.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// A sentence: gone before it answered, late, or not understood.
    pub fn answer(self) -> Result<Reply, String> {
        let PendingQuery { pid, mut line, .. } = self;
        line.hear().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("process {pid} ended before it answered"),
            io::ErrorKind::TimedOut => format!("process {pid}: no answer within {} s", line.within.as_secs()),
            _ => format!("process {pid}: {error}"),
        })
    }
}

/// The number of the process to ask.
///
/// # Errors
/// A sentence: none, or several without a choice.
pub fn find(whom: Whom<'_>) -> Result<u32, String> {
    match whom {
        Whom::Pid(pid) => Ok(pid),
        Whom::PidFile(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let first = text.lines().next().unwrap_or_default().trim();
            first.parse().map_err(|_| format!("{}: '{}' is no process number", path.display(), printable::line(first)))
        }
        Whom::Only => only(&running()?, is_stopping),
    }
}

/// The only one there is; of several the only one that is not about to end, which another may have taken over from.
fn only(all: &[u32], is_stopping: impl Fn(u32) -> bool) -> Result<u32, String> {
    match all {
        [] => return Err(format!("no running baton found (in this network and PID namespace){}", uncounted())),
        [pid] => return Ok(*pid),
        _ => {}
    }
    let serving: Vec<u32> = all.iter().copied().filter(|pid| !is_stopping(*pid)).collect();
    match serving.as_slice() {
        [pid] => Ok(*pid),
        _ => {
            let list: Vec<String> = all.iter().map(u32::to_string).collect();
            Err(format!("several run: {}; choose one with --pid or -p", list.join(", ")))
        }
    }
}

/// Processes of users who may be anybody, for whoever looks for one of them.
fn uncounted() -> String {
    let others = find::running().into_iter().filter(|running| !is_trusted(running)).take(NAMED_MAX);
    let others: Vec<String> = others.map(|Running { pid, uid, .. }| format!("{pid} (user {uid})")).collect();
    match others.is_empty() {
        true => String::new(),
        false => format!("; not counted are those of other users: {}; choose one with --pid", others.join(", ")),
    }
}

/// Whether a process says that it is about to end; one that does not answer says nothing.
fn is_stopping(pid: u32) -> bool {
    let Ok(reached) = find::reach(pid, Where::Here) else { return false };
    let mut line = Line::new(reached.stream, STATUS_WITHIN);
    let said = line.say(&Request::Status).and_then(|()| line.hear());
    matches!(said, Ok(Reply::Status(status)) if status.stopping)
}

/// All processes of this network and PID namespace that can be asked; of a master and its workers the master. Those of other users
/// are not counted, but for root's, of which nobody counts any who has one of his own.
///
/// # Errors
/// Never so far.
pub fn running() -> Result<Vec<u32>, String> {
    let own = geteuid().as_raw();
    let mut all = find::running();
    all.retain(is_trusted);
    if all.iter().any(|running| running.uid == own) && own != 0 {
        all.retain(|running| running.uid == own);
    }
    let all: Vec<u32> = all.into_iter().map(|running| running.pid).collect();
    let is_worker = |pid: &u32| parent(*pid).is_some_and(|parent| all.contains(&parent));
    Ok(all.iter().copied().filter(|pid| !is_worker(pid)).collect())
}

fn is_trusted(running: &Running) -> bool {
    running.is_vouched || running.uid == 0 || running.uid == geteuid().as_raw()
}

/// Who started a process: the second word after its name in `/proc/PID/stat`.
fn parent(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn connect(pid: u32) -> Result<Reached, String> {
    find::reach(pid, Where::Anywhere).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("process {pid} is not a running baton (in this network and PID namespace)")
        }
        _ => format!("process {pid}: {error}"),
    })
}

/// A connection with one deadline for everything that is said on it.
#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    within: Duration,
    end: Instant,
}

impl Line {
    pub(crate) fn new(stream: UnixStream, within: Duration) -> Line {
        Line { stream, within, end: Instant::now() + within }
    }

    /// Gives the stream back.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Asks. A process that refused before it was asked has closed, and said why.
    pub(crate) fn say(&mut self, request: &Request) -> io::Result<()> {
        let line = line::encode(request)?;
        self.stream.set_write_timeout(Some(self.left()?))?;
        match self.stream.write_all(&line) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            other => other,
        }
    }

    /// Waits for the answer.
    pub(crate) fn hear(&mut self) -> io::Result<Reply> {
        let line = self.read()?;
        let reply: Envelope<Reply> = match printable::is_suspicious(&line) {
            false => serde_json::from_str(&line)?,
            true => {
                let mut value = serde_json::from_str(&line)?;
                printable::value(&mut value);
                serde_json::from_value(value)?
            }
        };
        Ok(reply.body)
    }

    /// One line, however slowly it comes, within the deadline. What follows it is not expected, and lost.
    fn read(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let mut some = vec![0; READ];
        loop {
            self.stream.set_read_timeout(Some(self.left()?))?;
            let length = match self.stream.read(&mut some) {
                Ok(0) if line.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            line.extend_from_slice(&some[..length]);
            if length == 0 || some[..length].contains(&b'\n') {
                return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into());
            }
            if line.len() > REPLY_BYTES_MAX {
                return Err(io::Error::other(format!("an answer of more than {REPLY_BYTES_MAX} bytes")));
            }
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        // A timeout of nothing would be none.
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_one_that_goes_on_is_chosen() {
        let check = |all: &[u32], stopping: &[u32], expect: Result<u32, &str>| {
            let found = only(all, |pid| stopping.contains(&pid));
            match expect {
                Ok(pid) => assert_eq!(found, Ok(pid)),
                Err(text) => assert!(found.as_ref().is_err_and(|found| found.contains(text)), "{found:?}"),
            }
        };
        check(&[], &[], Err("no running baton"));
        check(&[7], &[7], Ok(7));
        check(&[7, 8, 9], &[7, 8], Ok(9));
        check(&[7, 8], &[], Err("several run: 7, 8"));
        check(&[7, 8], &[7, 8], Err("several run"));
    }

    #[test]
    fn a_refusal_that_came_before_the_request_is_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let refusal = Reply::Failed { reason: "user 7 may not".into() };
        theirs.write_all(&line::encode(refusal).unwrap()).unwrap();
        drop(theirs);
        let mut line = Line::new(ours, STATUS_WITHIN);
        line.say(&Request::Status).unwrap();
        let answer = PendingQuery { pid: 1, stranger: None, line }.answer();
        assert!(matches!(&answer, Ok(Reply::Failed { reason }) if reason == "user 7 may not"), "{answer:?}");
    }

    #[test]
    fn a_process_that_ends_without_a_reply_is_reported() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut line = Line::new(ours, STATUS_WITHIN);
        line.say(&Request::Status).unwrap();
        assert_eq!(
            PendingQuery { pid: 1, stranger: None, line }.answer(),
            Err("process 1 ended before it answered".into())
        );
    }

    #[test]
    fn an_answer_has_one_deadline_and_is_escaped() {
        let hear = |within: Duration, speak: fn(UnixStream)| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let speaker = std::thread::spawn(move || speak(theirs));
            let heard = Line::new(ours, within).hear();
            speaker.join().unwrap();
            heard
        };
        let reply = hear(STATUS_WITHIN, |mut stream| {
            let line = "{\"baton\":1,\"answer\":\"failed\",\"reason\":\"\\u001b]0;mine\\u0007\"}\n";
            stream.write_all(line.as_bytes()).unwrap();
        });
        assert_eq!(reply.unwrap(), Reply::Failed { reason: "\\u{1b}]0;mine\\u{7}".into() });
        // A byte now and then goes on for ever, and is heard until the deadline only: then nobody reads any more.
        let late = hear(Duration::from_millis(200), |mut stream| {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(hear(STATUS_WITHIN, drop).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
