//! Running something in a network namespace of its own: an empty machine with only `lo`, for tests and
//! experiments that need ports, addresses or rules nobody else sees.

use std::io;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Socket, Type};

/// Runs `work` on a thread of its own in a new network namespace whose `lo` is up. The namespace ends with the
/// last socket and thread in it. Threads started by `work` inherit it; `/proc/net` shows the process's first
/// thread's namespace, `/proc/thread-self/net` this one.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN: a test then says aloud that it is skipped.
///
/// # Panics
/// With the panic of `work`.
pub fn in_new<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            loopback_up()?;
            Ok(work())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sets `lo` of the calling thread's namespace up, with 127.0.0.1 and ::1.
fn loopback_up() -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), None)?;
    let flags = libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_UP | libc::IFF_RUNNING) as _ };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: flags };
    request.ifr_name[0] = b'l' as _;
    request.ifr_name[1] = b'o' as _;
    // SAFETY: SIOCSIFFLAGS reads an ifreq with name and flags, both set above; the descriptor is open.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_namespace_has_its_own_ports_and_loopback() {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let inside = in_new(|| TcpListener::bind(address).and_then(|_| TcpListener::bind("[::1]:0")));
        match inside {
            Ok(bound) => drop(bound.expect("the port is free in there, and lo is up")),
            Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
        }
    }
}
