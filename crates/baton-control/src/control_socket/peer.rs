//! Who is at the other end of a unix socket, as the kernel says.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// The process at the other end: for a client the one that listened, for a server the one that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its PID; `None` when it is in a PID namespace that is not seen from here.
    pub pid: Option<u32>,
    /// Its user, at that moment.
    pub uid: u32,
}

impl Peer {
    /// Of a connected stream.
    ///
    /// # Errors
    /// The system's.
    pub fn of(stream: &impl AsFd) -> io::Result<Peer> {
        let found = getsockopt(stream, PeerCredentials)?;
        Ok(Peer { pid: u32::try_from(found.pid()).ok().filter(|pid| *pid != 0), uid: found.uid() })
    }
}
