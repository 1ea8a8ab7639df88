//! A socket of another process: found by what it listens on, and taken as a descriptor of our own. The other process notices nothing.
//!
//! It takes the right to look into that process (ptrace(2), `PTRACE_MODE_ATTACH_REALCREDS`): root, or the same user where
//! Yama does not forbid it. Linux 5.6.

use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::process::known;

/// Descriptors looked at, over all processes.
const LOOKS_MAX: usize = 500_000;

/// The process that has a socket open, and a descriptor of the socket.
#[derive(Debug)]
pub struct Borrowed {
    /// The process.
    pub pid: u32,
    /// The socket; it lives on in the other process when this is closed, and here when the other one closes it.
    pub fd: OwnedFd,
}

/// Takes the socket with this number in `/proc` from whoever has it, the youngest process first. Ourselves do not count.
///
/// # Errors
/// `NotFound` when nobody has it whom we may look into; `PermissionDenied` when somebody may have it whom we may not.
pub fn socket(inode: u32) -> io::Result<Borrowed> {
    let wanted = format!("socket:[{inode}]");
    let mut is_hidden = false;
    let mut looks = 0;
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid != std::process::id())
        .collect();
    pids.sort_unstable_by(|one, other| other.cmp(one));
    for pid in pids {
        let entries = match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(entries) => entries,
            Err(error) => {
                is_hidden |= error.kind() == io::ErrorKind::PermissionDenied;
                continue;
            }
        };
        for entry in entries.flatten() {
            looks += 1;
            let is_it = fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str().as_bytes() == wanted.as_bytes());
            let number = entry.file_name().to_str().and_then(|number| number.parse().ok());
            let (true, Some(number)) = (is_it, number) else { continue };
            match take(pid as i32, number) {
                // By now the number may lead elsewhere, and the process be another one.
                Ok(fd) if nix::sys::stat::fstat(&fd).is_ok_and(|found| found.st_ino == u64::from(inode)) => {
                    return Ok(Borrowed { pid, fd });
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => is_hidden = true,
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        if looks > LOOKS_MAX {
            break;
        }
    }
    Err(if is_hidden { io::ErrorKind::PermissionDenied } else { io::ErrorKind::NotFound }.into())
}

/// A duplicate of a descriptor of another process, close-on-exec.
fn take(pid: i32, number: RawFd) -> io::Result<OwnedFd> {
    Ok(pidfd_getfd(known::open(pid)?, number, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_socket_is_taken_from_who_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = nix::sys::stat::fstat(&listener).unwrap().st_ino as u32;
        assert_eq!(socket(inode).unwrap_err().kind(), io::ErrorKind::NotFound, "we ourselves do not count");
        let address = listener.local_addr().unwrap();
        let mut command = Command::new("cat");
        let mut other = command.stdin(Stdio::piped()).stdout(OwnedFd::from(listener)).spawn().unwrap();
        drop(command);
        let borrowed = socket(inode).unwrap();
        assert_eq!(borrowed.pid, other.id());
        assert_eq!(TcpListener::from(borrowed.fd).local_addr().unwrap(), address);
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(socket(inode).is_err());
    }
}
