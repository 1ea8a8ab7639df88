//! Who else holds a socket: sockets that were given to another process may or may not be held by it by now.
//!
//! The kernel counts the holders of a socket, but does not tell; `/proc` shows the descriptors of every process that we
//! may look into. Our parent does not count: a master or a service manager keeps sockets for us and does not accept from
//! them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Descriptors looked at, over all processes.
const LOOKS_MAX: usize = 500_000;

/// How often new processes are looked for.
const ROUNDS_MAX: usize = 16;

/// A socket's number in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode(u64);

impl Inode {
    /// The number of a socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Inode> {
        Ok(Inode(nix::sys::stat::fstat(socket)?.st_ino))
    }
}

/// What was seen of other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders {
    held: HashSet<Inode>,
    is_complete: bool,
}

impl Holders {
    /// Looks which of `sockets` processes besides us and our parent hold, the youngest processes first. A process that
    /// starts another one and ends while we look is no gap: it is looked again until nobody new is there.
    pub fn look(sockets: &[Inode]) -> Holders {
        let mut seen = HashSet::from([std::process::id(), std::os::unix::process::parent_id()]);
        let mut holders = Holders { held: HashSet::new(), is_complete: true };
        for _ in 0..ROUNDS_MAX {
            let Ok(entries) = fs::read_dir("/proc") else { break };
            let pid = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
            let mut pids: Vec<u32> = entries.filter_map(pid).filter(|&pid| seen.insert(pid)).collect();
            if pids.is_empty() {
                return holders;
            }
            pids.sort_unstable_by(|one, other| other.cmp(one));
            let found = Holders::look_at(sockets, &pids);
            holders.held.extend(found.held);
            holders.is_complete &= found.is_complete;
        }
        Holders { is_complete: false, ..holders }
    }

    /// Looks which of `sockets` these processes hold.
    pub fn look_at(sockets: &[Inode], pids: &[u32]) -> Holders {
        let mut holders = Holders { held: HashSet::new(), is_complete: true };
        let wanted: HashSet<Inode> = sockets.iter().copied().collect();
        let mut looks = 0;
        for pid in pids {
            if holders.held.len() == wanted.len() {
                return holders;
            }
            match fs::read_dir(format!("/proc/{pid}/fd")) {
                Ok(entries) => {
                    for entry in entries.flatten() {
                        looks += 1;
                        let found = fs::read_link(entry.path()).ok().and_then(|target| inode(&target));
                        holders.held.extend(found.filter(|inode| wanted.contains(inode)));
                    }
                }
                // It has ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => holders.is_complete = false,
            }
            if looks > LOOKS_MAX {
                holders.is_complete = false;
                return holders;
            }
        }
        holders
    }

    /// Whether another process holds the socket; `None` when that cannot be told, because some processes may not be looked
    /// into.
    pub fn holds(&self, socket: Inode) -> Option<bool> {
        match self.held.contains(&socket) {
            true => Some(true),
            false => self.is_complete.then_some(false),
        }
    }
}

/// The sockets of this network namespace that listen at a port, or more precisely at some of its addresses.
///
/// # Errors
/// When `/proc/net` cannot be read.
pub fn listening_at_port(port: u16) -> io::Result<Vec<Inode>> {
    let mut found = Vec::new();
    // Of this thread: the namespace of the process's first thread may be another one.
    for file in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        match fs::read_to_string(file) {
            Ok(text) => found.extend(text.lines().filter_map(|line| listening_line(line, port))),
            // Without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 5678 …`: state 0A listens, and the tenth
/// word is the inode.
fn listening_line(line: &str, port: u16) -> Option<Inode> {
    let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let (_, found) = words.get(1)?.rsplit_once(':')?;
    if words.get(3) != Some(&"0A") || u16::from_str_radix(found, 16).ok()? != port {
        return None;
    }
    words.get(9)?.parse().ok().map(Inode)
}

/// `socket:[123]`.
fn inode(target: &Path) -> Option<Inode> {
    let number = target.as_os_str().as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok().map(Inode)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn names_of_sockets_are_read() {
        assert_eq!(inode(Path::new("socket:[123]")), Some(Inode(123)));
        for other in ["pipe:[123]", "socket:[]", "socket:[1", "/socket:[1]", ""] {
            assert_eq!(inode(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn who_listens_at_a_port_is_found() {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = four.local_addr().unwrap().port();
        assert!(listening_at_port(port).unwrap().contains(&Inode::of(&four).unwrap()));
        let line = "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 5678 1 x";
        assert_eq!(listening_line(line, 8080), Some(Inode(5678)));
        assert_eq!(listening_line(line, 8081), None);
        assert_eq!(listening_line(&line.replace("0A", "01"), 8080), None);
        assert_eq!(listening_line("sl local_address", 8080), None);
    }

    #[test]
    fn another_holder_is_found_as_long_as_it_lives() {
        let (given, kept) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let inodes = [Inode::of(&given).unwrap(), Inode::of(&kept).unwrap()];
        let mut command = Command::new("cat");
        let copy: std::os::fd::OwnedFd = given.try_clone().unwrap().into();
        let mut other = command.stdin(Stdio::piped()).stdout(copy).spawn().unwrap();
        drop(command);
        let seen = Holders::look(&inodes);
        assert_eq!(seen.holds(inodes[0]), Some(true));
        assert_ne!(seen.holds(inodes[1]), Some(true), "only we hold it");
        drop(other.stdin.take());
        other.wait().unwrap();
        assert_ne!(Holders::look(&inodes).holds(inodes[0]), Some(true));
    }
}
