//! Addresses as HAProxy writes them (configuration manual, 11 "Address formats").

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Something to listen on or to connect to.
#[derive(Clone, Debug, Eq, PartialEq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// `ipv4@` or `ipv6@`, or neither: an IP address and a port. `*` is the unspecified address.
    Inet(SocketAddr),
    /// `unix@` or a leading `/`: a socket in the file system.
    Unix(PathBuf),
    /// `abns@`: a socket in Linux's abstract namespace.
    Abstract(String),
    /// `fd@`: a descriptor inherited at start, already bound.
    Fd(i32),
}

/// Which family a name may resolve to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Family {
    /// Whatever the resolver answers first.
    #[default]
    Any,
    /// `ipv4@`.
    V4,
    /// `ipv6@`.
    V6,
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(address) => write!(out, "{address}"),
            Address::Unix(path) => write!(out, "unix@{}", path.display()),
            Address::Abstract(name) => write!(out, "abns@{name}"),
            Address::Fd(fd) => write!(out, "fd@{fd}"),
        }
    }
}
