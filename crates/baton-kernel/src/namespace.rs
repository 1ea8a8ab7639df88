//! Named network namespaces (`ip netns`): opening sockets in them.
//!
//! A socket belongs for ever to the namespace of the thread that opened it; its address, its interface and its queue are
//! looked up there, whoever binds it later. So nothing but the very opening happens inside, on a thread that was made for it
//! and ends with it: no other code ever runs in the wrong namespace. Entering one takes CAP_SYS_ADMIN; using a socket
//! of one takes nothing.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::thread;

use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Socket, Type};

use crate::listen::{netns_here, netns_of};

/// Where `ip netns add` puts the names (ip-netns(8)).
pub const FOLDER: &str = "/var/run/netns";
/// Bytes in a name: those of a file's.
pub const NAME_MAX: usize = 255;

/// Why nothing could be done in a namespace.
#[derive(Debug)]
pub enum Unreachable {
    /// None has this name, or what has it is no namespace.
    Missing(io::Error),
    /// It takes CAP_SYS_ADMIN.
    NoRight(io::Error),
    /// The kernel cannot tell namespaces apart (`SO_NETNS_COOKIE`, Linux 5.14): sockets of two could be mistaken for
    /// each other.
    Indistinct,
    /// Another failure: of a thread, of descriptors.
    Other(io::Error),
}

/// Whether a name is one that `ip netns add` would take: a file's name, not a path.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && !name.contains('/') && name != "." && name != ".."
}

/// What the kernel says of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number, as in [`Identity::netns`](crate::listen::SocketIdentity::netns).
    pub netns: Option<u64>,
    /// What `IPV6_V6ONLY` is there if nobody says otherwise; `None` without IPv6.
    pub v6only: Option<bool>,
}

/// Does `work` in the namespace of that name, on a thread of its own; here without a name. For questions to the kernel:
/// whatever else `work` does is done there too.
///
/// # Errors
/// [`Unreachable`] has the reason.
pub fn inside<R: Send>(name: Option<&str>, work: impl FnOnce() -> R + Send) -> Result<R, Unreachable> {
    match name {
        None => Ok(work()),
        Some(name) => within(&named(name)?, work),
    }
}

/// What the kernel says of the namespace of that name, or of ours.
///
/// # Errors
/// [`Unreachable`] has the reason.
pub fn facts(name: Option<&str>) -> Result<Facts, Unreachable> {
    inside(name, || Facts { netns: netns_here(), v6only: crate::listen::v6only_default() })
}

/// A new non-blocking stream socket in the namespace of that name.
///
/// # Errors
/// [`Unreachable`] has the reason; the inner one is that of the socket itself.
pub(crate) fn socket(name: &str, domain: Domain) -> Result<io::Result<Socket>, Unreachable> {
    let opened = within(&named(name)?, || Socket::new(domain, Type::STREAM.nonblocking().cloexec(), None))?;
    match opened {
        Ok(socket) if netns_of(&socket).is_none() => Err(Unreachable::Indistinct),
        opened => Ok(opened),
    }
}

/// Does `work` in the namespace of a socket: here if that is ours, which needs no right and no thread.
///
/// # Errors
/// Without CAP_NET_ADMIN and CAP_SYS_ADMIN for another one.
pub(crate) fn where_it_is<R: Send>(socket: &impl AsFd, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    if netns_of(socket) == netns_here() {
        return Ok(work());
    }
    let namespace = of(socket.as_fd())?;
    within(&namespace, work).map_err(|error| match error {
        Unreachable::Missing(error) | Unreachable::NoRight(error) | Unreachable::Other(error) => error,
        Unreachable::Indistinct => io::ErrorKind::Unsupported.into(),
    })
}

/// The namespace of that name, held open.
fn named(name: &str) -> Result<OwnedFd, Unreachable> {
    if !is_name(name) {
        return Err(Unreachable::Missing(io::ErrorKind::InvalidInput.into()));
    }
    match File::open(Path::new(FOLDER).join(name)) {
        Ok(file) => Ok(file.into()),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound => Unreachable::Missing(error),
            io::ErrorKind::PermissionDenied => Unreachable::NoRight(error),
            _ => Unreachable::Other(error),
        }),
    }
}

/// The namespace of a socket, held open.
fn of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// Linux's request of that name (linux/sockios.h): a descriptor of a socket's network namespace.
    const SIOCGSKNS: libc::Ioctl = 0x894C;
    // SAFETY: the request takes no argument and answers with a number; the descriptor is open.
    let number = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us (close-on-exec); nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Does `work` on a thread in that namespace, which ends with it.
fn within<R: Send>(namespace: &OwnedFd, work: impl FnOnce() -> R + Send) -> Result<R, Unreachable> {
    thread::scope(|scope| {
        let inside = thread::Builder::new().name("netns".into()).spawn_scoped(scope, || {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        let inside = inside.map_err(Unreachable::Other)?;
        let done: nix::Result<R> = inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.map_err(|error| match error {
            nix::Error::EPERM => Unreachable::NoRight(error.into()),
            // A file that is left of a namespace that has gone.
            nix::Error::EINVAL => Unreachable::Missing(error.into()),
            other => Unreachable::Other(other.into()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns;

    #[test]
    fn a_name_is_no_path() {
        let longest = "x".repeat(NAME_MAX);
        for (name, is_one) in [("blue", true), ("*", true), (&longest, true), ("", false), (".", false), ("..", false)]
        {
            assert_eq!(is_name(name), is_one, "{name}");
        }
        assert!(!is_name("../../proc/1/ns/net") && !is_name(&format!("{longest}x")));
    }

    #[test]
    fn what_does_not_exist_is_missing() {
        assert!(matches!(facts(Some("there is no such namespace")), Err(Unreachable::Missing(_))));
        assert!(matches!(facts(Some("../../proc/self/ns/net")), Err(Unreachable::Missing(_))));
    }

    #[test]
    fn work_is_done_where_the_socket_is() {
        let opened = netns::in_new(|| (Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap(), netns_here()));
        match opened {
            Ok((socket, inside)) => {
                assert_ne!(inside, netns_here());
                assert_eq!(where_it_is(&socket, netns_here).unwrap(), inside);
                let ours = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap();
                assert_eq!(where_it_is(&ours, netns_here).unwrap(), netns_here());
            }
            Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
        }
    }
}
