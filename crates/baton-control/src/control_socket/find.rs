//! The client's part: reaches a process by its PID, and makes sure that it is that process.
//!
//! What counts is what the kernel says of the other end (`SO_PEERCRED`): the PID must be the one that is meant, as seen from here.
//! A process of a PID namespace that is not seen has none, and is never meant. Whether its user can be believed is for the caller
//! to decide ([`Reached::peer`]).

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use baton_kernel::listen::netns_here;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{ABSTRACT, Peer, directory};

/// How long a full queue of a process is waited for.
const QUEUE_WITHIN: Duration = Duration::from_secs(1);
/// How long the queue of one of many is, and how long looking at all of them takes at most.
const QUICK: Duration = Duration::from_millis(50);
/// How long looking at all of the processes takes at most.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// How often to try.
const EVERY: Duration = Duration::from_millis(2);

/// A connection to the process that was meant.
#[derive(Debug)]
pub struct Reached {
    /// Connected, blocking.
    pub stream: UnixStream,
    /// Who it is.
    pub peer: Peer,
    /// Whether it is the user of a run directory by whom the process was found.
    pub is_vouched: bool,
}

/// Which network namespaces a process may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// This one.
    Here,
    /// Any: a socket file is found from everywhere.
    Anywhere,
}

/// A process that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its PID.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Whether the kernel confirms that it is the process it says ([`Reached::is_vouched`]).
    pub is_vouched: bool,
}

/// Connects to the process of this PID.
///
/// # Errors
/// `ConnectionRefused` when no process of that PID listens at a name that leads to it.
pub fn reach(pid: u32, place: Where) -> io::Result<Reached> {
    let end = Instant::now() + QUEUE_WITHIN;
    let here = netns_here().unwrap_or_default();
    let mut last = io::Error::from(io::ErrorKind::ConnectionRefused);
    for (directory, entry) in files() {
        if entry.pid != pid || place == Where::Here && entry.netns != here {
            continue;
        }
        match connect_file(&directory.at(&entry.name), end) {
            Ok((stream, peer)) if peer.pid == Some(pid) && (peer.uid == directory.owner || peer.uid == 0) => {
                return Ok(Reached { stream, peer, is_vouched: true });
            }
            Ok(_) => {}
            Err(error) => last = sorted(last, error),
        }
    }
    let usual = format!("{ABSTRACT}{pid}");
    match connect_name(&usual, end) {
        Ok((stream, peer)) if peer.pid == Some(pid) => return Ok(Reached { stream, peer, is_vouched: false }),
        Ok(_) => {}
        Err(error) => last = sorted(last, error),
    }
    for name in names().into_iter().filter(|name| name.pid == pid && name.text != usual) {
        if let Ok((stream, peer)) = connect_name(&name.text, Instant::now())
            && peer.pid == Some(pid)
        {
            return Ok(Reached { stream, peer, is_vouched: false });
        }
        if Instant::now() >= end {
            break;
        }
    }
    Err(last)
}

/// Nobody there says less than anything else.
fn sorted(last: io::Error, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => last,
        _ => error,
    }
}

/// All processes of this network and PID namespace, each of which listens at a name of its own PID.
pub fn running() -> Vec<Running> {
    let end = Instant::now() + LOOK_WITHIN;
    let quick = || (Instant::now() + QUICK).min(end);
    let here = netns_here().unwrap_or_default();
    let mut found: Vec<Running> = Vec::new();
    for (directory, entry) in files() {
        if entry.netns == here
            && let Ok((_, peer)) = connect_file(&directory.at(&entry.name), quick())
            && peer.pid == Some(entry.pid)
            && (peer.uid == directory.owner || peer.uid == 0)
        {
            found.push(Running { pid: entry.pid, uid: peer.uid, is_vouched: true });
        }
        if Instant::now() >= end {
            break;
        }
    }
    for name in names() {
        if !found.iter().any(|running| running.pid == name.pid)
            && let Ok((_, peer)) = connect_name(&name.text, quick())
            && peer.pid == Some(name.pid)
        {
            found.push(Running { pid: name.pid, uid: peer.uid, is_vouched: false });
        }
        if Instant::now() >= end {
            break;
        }
    }
    found.sort_unstable_by_key(|running| running.pid);
    found
}

/// Who listens at an abstract name.
pub(super) fn holder(name: &str) -> Option<Peer> {
    connect_name(name, Instant::now()).ok().map(|(_, peer)| peer)
}

/// Whether nobody listens at a file.
pub(super) fn is_dead(path: &Path) -> bool {
    let refused = connect_file(path, Instant::now()).err();
    refused.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn files() -> impl Iterator<Item = (std::rc::Rc<directory::Directory>, directory::Entry)> {
    directory::all().into_iter().map(std::rc::Rc::new).flat_map(|directory| {
        let entries = directory.entries();
        entries.into_iter().map(move |entry| (directory.clone(), entry))
    })
}

/// An abstract socket that claims to be a process's.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    text: String,
    pid: u32,
}

fn names() -> Vec<Name> {
    std::fs::read_to_string("/proc/net/unix").map(|table| listening(&table)).unwrap_or_default()
}

/// `@baton-PID` and `@baton-PID-ID` of a table. A listening socket has the flag 00010000.
fn listening(table: &str) -> Vec<Name> {
    let mut names = Vec::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(&"00010000"), Some(name)) = (words.get(3), words.get(7)) else { continue };
        let Some(text) = name.strip_prefix('@') else { continue };
        let number = text.strip_prefix(ABSTRACT).and_then(|rest| rest.split('-').next());
        if let Some(pid) = number.and_then(|number| number.parse().ok()) {
            names.push(Name { text: text.to_owned(), pid });
        }
    }
    names.sort_unstable_by(|one, other| (one.pid, &one.text).cmp(&(other.pid, &other.text)));
    names.dedup();
    names
}

fn connect_file(path: &Path, end: Instant) -> io::Result<(UnixStream, Peer)> {
    connect(&SockAddr::unix(path)?, end)
}

fn connect_name(name: &str, end: Instant) -> io::Result<(UnixStream, Peer)> {
    // What is wrong with the name is said here.
    SocketAddr::from_abstract_name(name)?;
    connect(&SockAddr::unix(format!("\0{name}"))?, end)
}

/// Connects, and waits in a full queue until then.
fn connect(address: &SockAddr, end: Instant) -> io::Result<(UnixStream, Peer)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
    socket.set_nonblocking(true)?;
    loop {
        match socket.connect(address) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(EVERY)
            }
            Err(error) => return Err(error),
        }
    }
    socket.set_nonblocking(false)?;
    let stream = UnixStream::from(OwnedFd::from(socket));
    let peer = Peer::of(&stream)?;
    Ok((stream, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_names_are_found() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff: 00000002 00000000 00010000 0001 01 100 @baton-12\n\
            ffff: 00000003 00000000 00000000 0001 03 101 @baton-13\n\
            ffff: 00000002 00000000 00010000 0001 01 102 /run/baton-14\n\
            ffff: 00000002 00000000 00010000 0001 01 103 @baton-x\n\
            ffff: 00000003 00000000 00000000 0001 03 104\n\
            ffff: 00000002 00000000 00010000 0001 01 105 @baton-7-00ff\n";
        let found: Vec<(u32, String)> = listening(table).into_iter().map(|name| (name.pid, name.text)).collect();
        assert_eq!(found, [(7, "baton-7-00ff".into()), (12, "baton-12".into())]);
    }
}
