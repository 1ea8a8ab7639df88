//! The asker's end of [`protocol`](crate::protocol): finds the running process and asks it.
//!
//! Whoever answers is known by what the kernel says of him ([`control_socket`](crate::control_socket)), has one deadline for the
//! whole answer, and what he says is escaped before anybody sees it.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, geteuid};

use crate::control_socket::find::{self, Reached, Running, Where};
use crate::printable;
use crate::protocol::{Envelope, REPLY_BYTES_MAX, Reply, Request, Status, line};

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
/// Addresses and files of a process that are shown when there are several to choose from.
const SHOWN_MAX: usize = 3;

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
    send(whom, request)?.reply()
}

/// Asks, and leaves the waiting to [`PendingQuery::reply`].
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
        "{}: process {pid} belongs to user {uid}, not to you, root or the owner of the file; if it is the right one, choose \
         it with --pid {pid}",
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
    pub fn reply(self) -> Result<Reply, String> {
        let PendingQuery { pid, mut line, .. } = self;
        line.hear().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("process {pid} ended before it replied"),
            io::ErrorKind::TimedOut => format!("process {pid}: no reply within {} s", line.within.as_secs()),
            _ => format!("process {pid}: {error}"),
        })
    }
}

/// The PID of the process to ask.
///
/// # Errors
/// A sentence: none, or several without a choice.
pub fn find(whom: Whom<'_>) -> Result<u32, String> {
    match whom {
        Whom::Pid(pid) => Ok(pid),
        Whom::PidFile(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let first = text.lines().next().unwrap_or_default().trim();
            first.parse().map_err(|_| format!("{}: '{}' is not a PID", path.display(), printable::line(first)))
        }
        Whom::Only => only(&candidates(), status),
    }
}

/// The only one there is; of several the only one that is not stopping, which another one may have taken over from.
fn only(all: &[Running], status: impl Fn(u32) -> Option<Status>) -> Result<u32, String> {
    match all {
        [] => return Err(format!("no running baton found (in this network and PID namespace){}", uncounted())),
        [running] => return Ok(running.pid),
        _ => {}
    }
    let known: Vec<(&Running, Option<Status>)> = all.iter().map(|running| (running, status(running.pid))).collect();
    let is_stopping = |status: &Option<Status>| status.as_ref().is_some_and(|status| status.stopping);
    let mut serving = known.iter().filter(|(_, status)| !is_stopping(status));
    match (serving.next(), serving.next()) {
        (Some((running, _)), None) => Ok(running.pid),
        _ => Err(format!("several processes run; choose one with --pid PID or --pid-file FILE:\n{}", table(&known))),
    }
}

/// The processes to choose from, a line each.
fn table(known: &[(&Running, Option<Status>)]) -> String {
    let mut rows = vec![["PID", "USER", "STATE", "ADDRESSES", "FILES"].map(str::to_owned)];
    for (Running { pid, uid, .. }, status) in known {
        let user = User::from_uid(Uid::from_raw(*uid)).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        let row = match status {
            Some(status) => [
                if status.stopping { "stopping" } else { "serving" }.to_owned(),
                some_of(status.listeners.iter().map(|(address, _)| address.clone())),
                some_of(status.files.iter().map(|file| file.display().to_string())),
            ],
            None => ["unknown", "-", "-"].map(str::to_owned),
        };
        let [state, addresses, files] = row;
        rows.push([pid.to_string(), user, state, addresses, files]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("  {cell:<width$}"));
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The first few of a list.
fn some_of(all: impl Iterator<Item = String>) -> String {
    let mut all = all.peekable();
    let mut shown: Vec<String> = all.by_ref().take(SHOWN_MAX).collect();
    match all.count() {
        0 if shown.is_empty() => "-".into(),
        0 => shown.join(", "),
        more => {
            shown.push(format!("{more} more"));
            shown.join(", ")
        }
    }
}

/// Processes of users who cannot be trusted, for an operator who looks for one of them.
fn uncounted() -> String {
    let others = find::running().into_iter().filter(|running| !is_trusted(running)).take(NAMED_MAX);
    let others: Vec<String> = others.map(|Running { pid, uid, .. }| format!("{pid} (user {uid})")).collect();
    match others.is_empty() {
        true => String::new(),
        false => format!("; processes of other users are not considered: {}; choose one with --pid", others.join(", ")),
    }
}

/// What a process reports of itself; `None` without a reply, and when it may not be asked.
fn status(pid: u32) -> Option<Status> {
    let reached = find::reach(pid, Where::Here).ok()?;
    let mut line = Line::new(reached.stream, STATUS_WITHIN);
    match line.say(&Request::Status).and_then(|()| line.hear()) {
        Ok(Reply::Status(status)) => Some(*status),
        _ => None,
    }
}

/// All processes of this network and PID namespace that can be asked; of a master and its workers the master. Those of other users
/// are not counted, but for root's, of which nobody counts any who has one of his own.
///
/// # Errors
/// Never so far.
pub fn running() -> Result<Vec<u32>, String> {
    Ok(candidates().into_iter().map(|running| running.pid).collect())
}

/// As [`running`], with their users.
fn candidates() -> Vec<Running> {
    let own = geteuid().as_raw();
    let mut all = find::running();
    all.retain(is_trusted);
    if all.iter().any(|running| running.uid == own) && own != 0 {
        all.retain(|running| running.uid == own);
    }
    let is_worker =
        |running: &Running| parent(running.pid).is_some_and(|parent| all.iter().any(|other| other.pid == parent));
    all.iter().copied().filter(|running| !is_worker(running)).collect()
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
                return Err(io::Error::other(format!("a reply of more than {REPLY_BYTES_MAX} bytes")));
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
            let all: Vec<Running> = all.iter().map(|pid| Running { pid: *pid, uid: 0, is_vouched: true }).collect();
            let status = |pid| Some(Status { pid, stopping: stopping.contains(&pid), ..Status::default() });
            let found = only(&all, status);
            match expect {
                Ok(pid) => assert_eq!(found, Ok(pid)),
                Err(text) => assert!(found.as_ref().is_err_and(|found| found.contains(text)), "{found:?}"),
            }
        };
        check(&[], &[], Err("no running baton"));
        check(&[7], &[7], Ok(7));
        check(&[7, 8, 9], &[7, 8], Ok(9));
        check(&[7, 8], &[], Err("several processes run; choose one with --pid PID"));
        check(&[7, 8], &[7, 8], Err("several processes run"));
    }

    #[test]
    fn processes_to_choose_from_are_a_table() {
        let [one, two] = [7, 4_000_000].map(|pid| Running { pid, uid: 0, is_vouched: true });
        let status = Status {
            files: vec!["/etc/haproxy.cfg".into()],
            listeners: ["127.0.0.1:80", "127.0.0.1:81", "127.0.0.1:82", "127.0.0.1:83", "127.0.0.1:84"]
                .map(|address| (address.to_owned(), 2))
                .to_vec(),
            ..Status::default()
        };
        let stranger = Running { uid: 4_000_000_000, ..two };
        let text = table(&[(&one, Some(status)), (&stranger, None)]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["PID", "USER", "STATE", "ADDRESSES", "FILES"]);
        assert_eq!(rows[1][..3], ["7", "root", "serving"]);
        assert!(text.contains("  127.0.0.1:80, 127.0.0.1:81, 127.0.0.1:82, 2 more  /etc/haproxy.cfg"), "{text}");
        assert_eq!(rows[2], ["4000000", "4000000000", "unknown", "-", "-"]);
    }

    #[test]
    fn a_refusal_that_came_before_the_request_is_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let refusal = Reply::Failed { reason: "user 7 may not".into() };
        theirs.write_all(&line::encode(refusal).unwrap()).unwrap();
        drop(theirs);
        let mut line = Line::new(ours, STATUS_WITHIN);
        line.say(&Request::Status).unwrap();
        let answer = PendingQuery { pid: 1, stranger: None, line }.reply();
        assert!(matches!(&answer, Ok(Reply::Failed { reason }) if reason == "user 7 may not"), "{answer:?}");
    }

    #[test]
    fn a_process_that_ends_without_a_reply_is_reported() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut line = Line::new(ours, STATUS_WITHIN);
        line.say(&Request::Status).unwrap();
        assert_eq!(
            PendingQuery { pid: 1, stranger: None, line }.reply(),
            Err("process 1 ended before it replied".into())
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
            let line = "{\"baton\":1,\"reply\":\"failed\",\"reason\":\"\\u001b]0;mine\\u0007\"}\n";
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
