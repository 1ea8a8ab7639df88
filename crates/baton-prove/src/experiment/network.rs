//! A network of the run's own: an empty network namespace, in which only its loopback interface is up.
//!
//! A namespace belongs to a thread, and what the thread starts (threads, processes) is in it too. It vanishes with its last
//! process, and with it every address, rule and setting: nothing outside can be touched, and nothing has to be undone.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};
use nix::unistd::{Gid, Uid, geteuid, getgid, getuid};

/// The loopback interface is the first one of every namespace.
const LOOPBACK: i32 = 1;
/// A request that sets an interface's flags (rtnetlink(7)).
const RTM_NEWLINK: u16 = 16;
/// The answer, with an error number, 0 for none (netlink(7)).
const NLMSG_ERROR: u16 = 2;
/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const REQUEST_AND_ACK: u16 = 1 | 4;
/// `IFF_UP`.
const UP: u32 = 1;

/// Lets somebody who is not root make networks of their own: this process becomes root in a user namespace, with the rights
/// it had towards everything outside. For a process with one thread; a kernel may be set to forbid it.
///
/// # Errors
/// What the kernel says against it.
pub fn become_root_inside() -> io::Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    map(uid, gid)
}

fn map(uid: Uid, gid: Gid) -> io::Result<()> {
    // Who is not root outside must give up setgroups first (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Puts the calling thread into a new network.
///
/// # Errors
/// What the kernel says against it: mostly that the right is missing.
pub(crate) fn enter() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    raise_loopback()
}

/// One netlink message: `nlmsghdr`, then `ifinfomsg`.
fn raise_loopback() -> io::Result<()> {
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes());

    let route = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, route)?;
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    refusal(&answer[..length])
}

/// The error number behind the header of an answer, as an error; 0 is none.
fn refusal(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let number = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, number) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(number)) => Err(Errno::from_raw(number.wrapping_neg()).into()),
        _ => Err(io::Error::other("unexpected reply of the kernel")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_network_of_its_own_has_a_loopback_and_nothing_else() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: making a network needs root");
            return;
        }
        let outside = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = outside.local_addr().expect("it is bound");
        let inside = std::thread::spawn(move || {
            enter().expect("root may");
            assert!(TcpStream::connect(address).is_err(), "outside is not there");
            let own = TcpListener::bind(address).expect("every port is free");
            TcpStream::connect(own.local_addr().expect("it is bound")).expect("loopback is up");
            std::fs::read_to_string("/proc/thread-self/net/dev").expect("it is there").lines().count()
        });
        assert_eq!(inside.join().expect("it does not panic"), 3, "two lines of heads and the loopback");
    }

    #[test]
    fn a_refusal_is_an_error() {
        let answer = |kind: u16, number: i32| {
            [&20_u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &number.to_ne_bytes()].concat()
        };
        assert!(refusal(&answer(NLMSG_ERROR, 0)).is_ok());
        assert_eq!(refusal(&answer(NLMSG_ERROR, -1)).map_err(|error| error.raw_os_error()), Err(Some(1)));
        assert!(refusal(&answer(3, 0)).is_err() && refusal(&[]).is_err());
    }
}
