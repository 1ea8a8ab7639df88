//! How we know that a program serves.
//!
//! It says so (`READY=1`, sd_notify(3)), or answers when it is asked ([`Probe`]), or is seen to wait for connections at one of the sockets: in `/proc`, its epoll
//! instances name what they watch, and a thread that sleeps in accept(2) names its descriptor.

use std::collections::HashSet;
use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use baton_kernel::process::users;
use nix::sys::socket::{self, AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, sockopt};

use super::probe::Probe;

/// How long a program that neither says that it serves nor is seen to must have been alive to be taken for one that does.
pub const AUTO_AFTER: Duration = Duration::from_secs(10);

/// Datagrams that are read in one turn.
const READS_MAX: usize = 32;

/// Bytes of a datagram that are looked at.
const DATAGRAM_MAX: usize = 4096;

/// Descriptors of one process that are looked at.
const DESCRIPTORS_MAX: usize = 20_000;

/// What says that a program serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It says so, or it waits at one of the sockets, or it has been alive for [`AUTO_AFTER`].
    Auto,
    /// It says so, and nothing else counts.
    Notify,
    /// It has been alive for so long.
    After(Duration),
    /// It is asked, and answers.
    Probe(Probe),
}

/// Where a program says how it is: a socket without a file, which ends with this.
#[derive(Debug)]
pub struct NotifySocket {
    socket: UnixDatagram,
}

impl NotifySocket {
    /// Opens one, with a name that the kernel chooses.
    ///
    /// # Errors
    /// The system's: descriptors ran out.
    pub fn open() -> io::Result<NotifySocket> {
        let fd = socket::socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        socket::setsockopt(&fd, sockopt::PassCred, &true)?;
        socket::bind(fd.as_raw_fd(), &UnixAddr::new_unnamed())?;
        Ok(NotifySocket { socket: fd.into() })
    }

    /// The value of `NOTIFY_SOCKET`.
    pub fn name(&self) -> io::Result<String> {
        let address = self.socket.local_addr()?;
        let name = address.as_abstract_name().map(String::from_utf8_lossy);
        Ok(format!("@{}", name.unwrap_or_default()))
    }

    /// Whether somebody who may has said `READY=1` since the last look: root, our user, or a process of this group.
    pub fn heard_ready(&self, group: i32) -> bool {
        (0..READS_MAX).map_while(|_| self.one()).any(|(sender, text)| {
            let is_known = sender.is_some_and(|(pid, uid)| {
                uid == 0 || uid == nix::unistd::geteuid().as_raw() || group_of(pid) == Some(group)
            });
            is_known && text.lines().any(|line| line == "READY=1")
        })
    }

    /// A datagram, and the process and user it is from; `None` when there is none.
    fn one(&self) -> Option<(Option<(i32, u32)>, String)> {
        let mut bytes = [0; DATAGRAM_MAX];
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!(socket::UnixCredentials);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let got =
            socket::recvmsg::<UnixAddr>(self.socket.as_fd().as_raw_fd(), &mut iov, Some(&mut space), flags).ok()?;
        let credentials = got.cmsgs().ok().into_iter().flatten().find_map(|message| match message {
            ControlMessageOwned::ScmCredentials(from) => Some((from.pid(), from.uid())),
            _ => None,
        });
        let length = got.bytes;
        Some((credentials, String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }
}

/// Whether a process of this group waits for connections at one of these sockets, which are known by their numbers in `/proc`.
pub fn waits(group: i32, sockets: &HashSet<u64>) -> bool {
    members(group).any(|pid| watches(pid, sockets) || accepts(pid, sockets))
}

/// The processes of a group that live.
pub fn members(group: i32) -> impl Iterator<Item = i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |pid| group_of(*pid) == Some(group))
}

/// The process group of a process that lives.
fn group_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; behind it: state, parent, group.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_alive = !matches!(words.next()?, "Z" | "X");
    words.nth(1)?.parse().ok().filter(|_| is_alive)
}

/// Whether one of its epoll instances watches one of the sockets.
fn watches(pid: i32, sockets: &HashSet<u64>) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(DESCRIPTORS_MAX);
    entries
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]"))
        .filter_map(|entry| fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().display())).ok())
        .any(|text| text.lines().filter_map(watched).any(|inode| sockets.contains(&inode)))
}

/// `tfd: 3 events: 2019 data: 3 pos:0 ino:becb329 sdev:9`
fn watched(line: &str) -> Option<u64> {
    let number = line.strip_prefix("tfd:")?.split_ascii_whitespace().find_map(|word| word.strip_prefix("ino:"))?;
    u64::from_str_radix(number, 16).ok()
}

/// Whether one of its threads sleeps in accept(2) or accept4(2) at one of the sockets.
fn accepts(pid: i32, sockets: &HashSet<u64>) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok())
        .filter_map(|text| accepting(&text))
        .filter_map(|number| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok())
        .filter_map(|to| inode(&to))
        .any(|inode| sockets.contains(&inode))
}

/// `43 0x3 0x7ffd… …`: the call's number, and its first argument.
fn accepting(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    if call != libc::SYS_accept && call != libc::SYS_accept4 {
        return None;
    }
    u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

/// `socket:[123]`
fn inode(target: &Path) -> Option<u64> {
    let number = target.as_os_str().as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// A user and a group by `NAME`, `NAME:GROUP`, or numbers.
///
/// # Errors
/// A sentence, when there is no such one.
pub fn account(text: &str) -> Result<(u32, u32, Vec<u32>), String> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let known = match (users::user(user), user.parse::<u32>()) {
        (Ok(Some(account)), _) => Some(account),
        (_, Ok(uid)) => Some(users::Account { name: String::new(), uid, gid: uid }),
        _ => None,
    };
    let account = known.ok_or_else(|| format!("unknown user '{user}'"))?;
    let gid = match group {
        None => account.gid,
        Some(name) => match (users::group(name), name.parse()) {
            (Ok(Some(gid)), _) | (_, Ok(gid)) => gid,
            _ => return Err(format!("unknown group '{name}'")),
        },
    };
    let groups = if account.name.is_empty() { Vec::new() } else { users::groups_of(&account).unwrap_or_default() };
    let others = groups.into_iter().filter(|&other| other != gid);
    Ok((account.uid, gid, std::iter::once(gid).chain(others).collect()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::SocketAddr;

    use super::*;

    #[test]
    fn lines_of_proc_are_read() {
        assert_eq!(
            watched("tfd:        3 events:     2019 data:                3  pos:0 ino:becb329 sdev:9"),
            Some(0xbecb329)
        );
        assert_eq!(watched("pos:\t0"), None);
        let accept = format!("{} 0x5 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f", libc::SYS_accept4);
        assert_eq!(accepting(&accept), Some(5));
        for other in ["running", "-1 0x3", "", "0 0x3"] {
            assert_eq!(accepting(other), None, "{other}");
        }
    }

    #[test]
    fn who_waits_at_a_socket_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = nix::sys::stat::fstat(&listener).unwrap().st_ino;
        let group = nix::unistd::getpgrp().as_raw();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| listener.accept());
            while !waits(group, &HashSet::from([inode])) {
                std::thread::yield_now();
            }
            std::net::TcpStream::connect(address).unwrap();
        });
        assert!(!waits(group, &HashSet::from([inode])));
    }

    #[test]
    fn readiness_is_heard() {
        let ear = NotifySocket::open().unwrap();
        let name = ear.name().unwrap();
        let mouth = UnixDatagram::unbound().unwrap();
        mouth.connect_addr(&SocketAddr::from_abstract_name(&name[1..]).unwrap()).unwrap();
        assert!(!ear.heard_ready(0));
        mouth.send(b"STATUS=READY=1\nX").unwrap();
        assert!(!ear.heard_ready(0));
        mouth.send(b"STATUS=well\nREADY=1\nMAINPID=1").unwrap();
        assert!(ear.heard_ready(0));
        assert!(!ear.heard_ready(0), "it was said once");
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(account("root").unwrap(), (0, 0, vec![0]));
        assert_eq!(account("61237:61238").unwrap(), (61237, 61238, vec![61238]));
        assert!(account("no-such-user-at-all").unwrap_err().contains("unknown user"));
        assert!(account("root:no-such-group").unwrap_err().contains("unknown group"));
    }
}
