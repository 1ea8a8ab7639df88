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
    /// Looks which of `sockets` processes besides us and our parent hold, the youngest processes first.
    pub fn look(sockets: &[Inode]) -> Holders {
        let mut holders = Holders { held: HashSet::new(), is_complete: true };
        let wanted: HashSet<Inode> = sockets.iter().copied().collect();
        let family = [std::process::id(), std::os::unix::process::parent_id()];
        let Ok(entries) = fs::read_dir("/proc") else { return Holders { is_complete: false, ..holders } };
        let mut pids: Vec<u32> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| !family.contains(pid))
            .collect();
        pids.sort_unstable_by(|one, other| other.cmp(one));
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
