//! The asker's end of [`protocol`](crate::protocol): finds the running process and asks it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::protocol::{Envelope, REPLY_BYTES_MAX, Reply, Request, socket_name};

/// How long a process may take to say how it is, when there are several to choose from.
const STATUS_WITHIN: Duration = Duration::from_secs(2);

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

/// Asks, and leaves the waiting to [`Asked::answer`].
///
/// # Errors
/// As [`ask`].
pub fn send(whom: Whom<'_>, request: Request) -> Result<Asked, String> {
    let pid = find(whom)?;
    let mut stream = connect(pid)?;
    say(&mut stream, request).map_err(|error| format!("process {pid}: {error}"))?;
    Ok(Asked { pid, stream })
}

/// A question whose answer is to come.
#[derive(Debug)]
pub struct Asked {
    pid: u32,
    stream: UnixStream,
}

impl Asked {
    /// Waits for the answer.
    ///
    /// # Errors
    /// A sentence: gone before it answered, or not understood.
    pub fn answer(self) -> Result<Reply, String> {
        let Asked { pid, stream } = self;
        hear(stream).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("process {pid} ended before it answered"),
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
            first.parse().map_err(|_| format!("{}: '{first}' is no process number", path.display()))
        }
        Whom::Only => only(&running()?, is_stopping),
    }
}

/// The only one there is; of several the only one that is not about to end, which another may have taken over from.
fn only(all: &[u32], is_stopping: impl Fn(u32) -> bool) -> Result<u32, String> {
    match all {
        [] => return Err("no running baton found (in this network namespace)".into()),
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

/// Whether a process says that it is about to end; one that does not answer says nothing.
fn is_stopping(pid: u32) -> bool {
    let Ok(mut stream) = reach(pid) else { return false };
    if stream.set_read_timeout(Some(STATUS_WITHIN)).is_err() || say(&mut stream, Request::Status).is_err() {
        return false;
    }
    matches!(hear(stream), Ok(Reply::Status(status)) if status.stopping)
}

/// All processes of this network namespace that can be asked; of a master and its workers the master.
pub fn running() -> Result<Vec<u32>, String> {
    let text = std::fs::read_to_string("/proc/net/unix").map_err(|error| format!("/proc/net/unix: {error}"))?;
    let all = names(&text);
    let is_worker = |pid: &u32| parent(*pid).is_some_and(|parent| all.contains(&parent));
    Ok(all.iter().copied().filter(|pid| !is_worker(pid)).collect())
}

/// Who started a process: the second word after its name in `/proc/PID/stat`.
fn parent(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A listening abstract socket is a line that ends in `@name`, with the flag 00010000.
fn names(table: &str) -> Vec<u32> {
    let mut pids: Vec<u32> = Vec::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(flags), Some(name)) = (words.get(3), words.get(7)) else { continue };
        if let Some(pid) = name.strip_prefix("@baton-").and_then(|pid| pid.parse().ok())
            && *flags == "00010000"
        {
            pids.push(pid);
        }
    }
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn connect(pid: u32) -> Result<UnixStream, String> {
    reach(pid).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("process {pid} is not a running baton (in this network namespace)"),
        _ => format!("process {pid}: {error}"),
    })
}

/// Connects, and makes sure that the socket is that process's and nobody's who took its name.
///
/// # Errors
/// `ConnectionRefused` when nobody listens there; `Other` when somebody else does.
pub(crate) fn reach(pid: u32) -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(socket_name(pid))?;
    let stream = UnixStream::connect_addr(&address)?;
    let peer = getsockopt(&stream, PeerCredentials)?;
    // 0 is a process of another namespace.
    if peer.pid() != 0 && i64::from(peer.pid()) != i64::from(pid) {
        return Err(io::Error::other(format!("process {} answers at its socket", peer.pid())));
    }
    Ok(stream)
}

/// Sends the request. A process that refuses us replies without reading it and closes: its reply is there to be read all the same.
fn say(stream: &mut UnixStream, request: Request) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Envelope::new(request))?;
    line.push(b'\n');
    match stream.write_all(&line) {
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
        sent => sent,
    }
}

fn hear(stream: UnixStream) -> io::Result<Reply> {
    let mut answer = String::new();
    BufReader::new(stream.take(REPLY_BYTES_MAX as u64)).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let envelope: Envelope<Reply> = serde_json::from_str(&answer)?;
    Ok(envelope.body)
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
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let refusal = Reply::Failed { reason: "user 7 may not".into() };
        theirs.write_all(format!("{}\n", serde_json::to_string(&Envelope::new(refusal)).unwrap()).as_bytes()).unwrap();
        drop(theirs);
        say(&mut ours, Request::Status).unwrap();
        let answer = Asked { pid: 1, stream: ours }.answer();
        assert!(matches!(&answer, Ok(Reply::Failed { reason }) if reason == "user 7 may not"), "{answer:?}");
    }

    #[test]
    fn a_process_that_ends_without_a_reply_is_reported() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        say(&mut ours, Request::Status).unwrap();
        assert_eq!(Asked { pid: 1, stream: ours }.answer(), Err("process 1 ended before it answered".into()));
    }

    #[test]
    fn listening_names_are_found() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff: 00000002 00000000 00010000 0001 01 100 @baton-12\n\
            ffff: 00000003 00000000 00000000 0001 03 101 @baton-13\n\
            ffff: 00000002 00000000 00010000 0001 01 102 /run/baton-14\n\
            ffff: 00000002 00000000 00010000 0001 01 103 @baton-x\n\
            ffff: 00000003 00000000 00000000 0001 03 104\n\
            ffff: 00000002 00000000 00010000 0001 01 105 @baton-7\n";
        assert_eq!(names(table), [7, 12]);
    }
}
