//! Addresses a stream socket can listen on or connect to, written as in a configuration.
//!
//! Parsing belongs to the configuration; here an address is only shown and turned into the kernel's form.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use socket2::{SockAddr, SockRef};

/// Length of `sun_path` (unix(7)).
const SUN_PATH: usize = 108;

/// Where to listen, or whom to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// IPv4 or IPv6; port 0 lets the system choose (listening only).
    Inet(SocketAddr),
    /// A unix stream socket in the file system.
    Unix(PathBuf),
    /// A unix stream socket in the abstract namespace (`abns@name`), without the leading NUL.
    ///
    /// HAProxy fills the name with NUL bytes up to the length of `sun_path`, and so do we: names of different
    /// lengths are different names for the kernel, and both programs must find each other.
    Abstract(Vec<u8>),
    /// A descriptor inherited from whoever started us (`fd@N`). Only for listening.
    Fd(i32),
}

impl fmt::Display for Endpoint {
    /// `127.0.0.1:80`, `[::1]:80`, `/run/x.sock`, `abns@name`, `fd@3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Inet(address) => write!(f, "{address}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
            Endpoint::Abstract(name) => write!(f, "abns@{}", String::from_utf8_lossy(name)),
            Endpoint::Fd(number) => write!(f, "fd@{number}"),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Endpoint::Inet(address)
    }
}

impl Endpoint {
    /// The internet address, if it is one.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Endpoint::Inet(address) => Some(*address),
            Endpoint::Unix(_) | Endpoint::Abstract(_) | Endpoint::Fd(_) => None,
        }
    }

    /// The kernel's form. Fails with `InvalidInput` on a path that is too long and on `Fd`.
    pub(crate) fn to_sockaddr(&self) -> io::Result<SockAddr> {
        match self {
            Endpoint::Inet(address) => Ok(SockAddr::from(*address)),
            Endpoint::Unix(path) => SockAddr::unix(path),
            Endpoint::Abstract(name) => {
                if name.len() >= SUN_PATH {
                    return Err(io::Error::from(io::ErrorKind::InvalidInput));
                }
                let mut padded = [0; SUN_PATH];
                padded[1..=name.len()].copy_from_slice(name);
                SockAddr::unix(OsStr::from_bytes(&padded))
            }
            Endpoint::Fd(_) => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }

    /// What `getsockname` says, undoing the temporary name under which a unix socket was bound and the padding
    /// of an abstract one. `None` for a socket without a name and for other families.
    pub fn local_of(socket: &impl AsFd) -> io::Result<Option<Endpoint>> {
        let address = SockRef::from(socket).local_addr()?;
        Ok(Endpoint::from_sockaddr(&address))
    }

    fn from_sockaddr(address: &SockAddr) -> Option<Endpoint> {
        if let Some(inet) = address.as_socket() {
            return Some(Endpoint::Inet(inet));
        }
        if let Some(path) = address.as_pathname() {
            return Some(Endpoint::Unix(strip_temporary(path.as_os_str().as_bytes())));
        }
        let name = address.as_abstract_namespace()?;
        let end = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Some(Endpoint::Abstract(name[..end].to_vec()))
    }
}

/// The name under which a unix socket is bound before it is renamed into place; HAProxy uses the same form, so
/// that each program recognises the other's sockets when they are handed over.
pub(crate) fn temporary_name(path: &std::path::Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    PathBuf::from(name)
}

/// Undoes [`temporary_name`], whatever process bound it: `x.123.tmp` was meant to be `x`.
fn strip_temporary(path: &[u8]) -> PathBuf {
    let meant = path.strip_suffix(b".tmp").and_then(|rest| {
        let dot = rest.iter().rposition(|&byte| byte == b'.')?;
        let digits = &rest[dot + 1..];
        (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then(|| &rest[..dot])
    });
    PathBuf::from(OsStr::from_bytes(meant.unwrap_or(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoint: Endpoint, expect: &str) {
        assert_eq!(endpoint.to_string(), expect);
    }

    #[test]
    fn endpoints_are_written_as_in_a_configuration() {
        check(Endpoint::Inet("127.0.0.1:80".parse().unwrap()), "127.0.0.1:80");
        check(Endpoint::Inet("[::]:443".parse().unwrap()), "[::]:443");
        check(Endpoint::Inet("[::1]:17392".parse().unwrap()), "[::1]:17392");
        check(Endpoint::Unix("/run/a.sock".into()), "/run/a.sock");
        check(Endpoint::Abstract(b"web".to_vec()), "abns@web");
        check(Endpoint::Fd(3), "fd@3");
    }

    #[test]
    fn temporary_names_are_undone() {
        for (bound, meant) in
            [("/a/x.12.tmp", "/a/x"), ("/a/x.tmp", "/a/x.tmp"), ("/a/x..tmp", "/a/x..tmp"), ("/a/x", "/a/x")]
        {
            assert_eq!(strip_temporary(bound.as_bytes()), PathBuf::from(meant), "{bound}");
        }
        let path = std::path::Path::new("/a/x");
        assert_eq!(strip_temporary(temporary_name(path).as_os_str().as_bytes()), path);
    }

    #[test]
    fn abstract_names_survive_the_kernels_form() {
        for name in [&b"web"[..], &[b'a'; 107]] {
            let endpoint = Endpoint::Abstract(name.to_vec());
            let address = endpoint.to_sockaddr().unwrap();
            assert_eq!(address.len(), 110, "padded like HAProxy does");
            assert_eq!(Endpoint::from_sockaddr(&address), Some(endpoint));
        }
        assert!(Endpoint::Abstract(vec![b'a'; 108]).to_sockaddr().is_err());
        assert!(Endpoint::Unix("/x".repeat(54).into()).to_sockaddr().is_err());
    }
}
