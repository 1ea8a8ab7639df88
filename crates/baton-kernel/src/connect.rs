//! Starting a connection without waiting for it.
//!
//! The caller waits until the socket is writable and then asks [`finished`]; timeouts and retries are its own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use socket2::{Protocol, SockRef, Socket, Type};

use crate::stream::{self, Keepalive};
use crate::{Endpoint, sockopt};

/// How to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Our address. With port 0 the port is chosen when connecting, so that one port can serve connections to
    /// many servers (`IP_BIND_ADDRESS_NO_PORT`).
    pub source: Option<SocketAddr>,
    /// The source address is not ours (`usesrc`): `IP_TRANSPARENT`, needs CAP_NET_ADMIN.
    pub transparent: bool,
    /// `SO_BINDTODEVICE`.
    pub interface: Option<String>,
    /// `SO_MARK`.
    pub mark: Option<u32>,
    /// The TOS byte; a socket of another family than IP has none.
    pub tos: Option<u8>,
    /// `TCP_MAXSEG`, bytes.
    pub mss: Option<u32>,
    /// `TCP_USER_TIMEOUT`.
    pub user_timeout: Option<Duration>,
    /// `SO_KEEPALIVE` and its times.
    pub keepalive: Option<Keepalive>,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// `TCP_FASTOPEN_CONNECT`: towards a peer that gave us a cookie, the SYN waits for the first bytes and carries them. Such a
    /// connection counts as [`Started::Connected`] although nothing was sent yet, so that only who sends at once may want this.
    pub fast_open: bool,
}

/// A connection that was started. The socket is non-blocking and close-on-exec.
#[derive(Debug)]
pub enum Started {
    /// Established already (unix sockets, sometimes loopback).
    Connected(OwnedFd),
    /// Under way: wait until it is writable, then ask [`finished`].
    Pending(OwnedFd),
}

impl Started {
    /// The socket, whatever its state.
    pub fn into_fd(self) -> OwnedFd {
        match self {
            Started::Connected(fd) | Started::Pending(fd) => fd,
        }
    }
}

/// A step of connecting, so that a fault of ours can be told from one of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectStep {
    /// No socket: descriptors or memory ran out, or the address family does not exist.
    Socket,
    /// The option of this name was refused.
    Option(&'static str),
    /// The source address could not be used.
    Source,
    /// `connect` itself: the server refused, is unreachable, or (unix) its queue is full (`WouldBlock`), or our
    /// ports ran out (`AddrNotAvailable`).
    Connect,
}

/// A connection that could not be started.
#[derive(Debug)]
pub struct ConnectError {
    /// Where it failed.
    pub step: ConnectStep,
    /// The system's words.
    pub source: io::Error,
}

impl ConnectError {
    /// Whether this option was refused for want of a right.
    pub fn is_without_right(&self, option: &str) -> bool {
        matches!(self.step, ConnectStep::Option(name) if name == option)
            && self.source.kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether this machine rather than the server is to blame: a retry elsewhere meets the same fault.
    pub fn is_ours(&self) -> bool {
        match self.step {
            ConnectStep::Socket | ConnectStep::Option(_) | ConnectStep::Source => true,
            ConnectStep::Connect => {
                matches!(self.source.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE | libc::ENOBUFS))
            }
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            ConnectStep::Socket => write!(f, "no socket: {}", self.source),
            ConnectStep::Option(name) => write!(f, "option '{name}' was refused: {}", self.source),
            ConnectStep::Source => write!(f, "source address: {}", self.source),
            ConnectStep::Connect => write!(f, "connect: {}", self.source),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Starts connecting to `peer`. A unix socket connects at once or not at all.
pub fn start(peer: &Endpoint, options: &ConnectOptions) -> Result<Started, ConnectError> {
    let at = |step| move |source| ConnectError { step, source };
    let address = peer.to_sockaddr().map_err(at(ConnectStep::Connect))?;
    let is_inet = peer.inet().is_some();
    let protocol = is_inet.then_some(Protocol::TCP);
    let socket = Socket::new(address.domain(), Type::STREAM.nonblocking().cloexec(), protocol)
        .map_err(at(ConnectStep::Socket))?;
    if is_inet {
        set_options(&socket, address.is_ipv6(), options)?;
    }
    loop {
        return match socket.connect(&address) {
            Ok(()) => Ok(Started::Connected(socket.into())),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINPROGRESS) => Ok(Started::Pending(socket.into())),
                // A non-blocking unix connect cannot be interrupted half-way; a TCP one continues in the kernel.
                Some(libc::EINTR) if !is_inet => continue,
                Some(libc::EINTR | libc::EALREADY) => Ok(Started::Pending(socket.into())),
                _ => Err(ConnectError { step: ConnectStep::Connect, source: error }),
            },
        };
    }
}

/// How a pending connection ended, once its socket is writable: `Ok(true)` connected, `Ok(false)` still under
/// way (a spurious wake-up).
pub fn finished(fd: &impl AsFd) -> io::Result<bool> {
    let socket = SockRef::from(fd);
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the options on a socket that has no connection yet.
pub(crate) fn set_options(socket: &Socket, is_ipv6: bool, options: &ConnectOptions) -> Result<(), ConnectError> {
    let at = |step| move |source| ConnectError { step, source };
    let refused = |name| at(ConnectStep::Option(name));
    if options.nodelay {
        socket.set_tcp_nodelay(true).map_err(refused("nodelay"))?;
    }
    if let Some(keepalive) = &options.keepalive {
        stream::set_keepalive(socket, Some(keepalive)).map_err(refused("keepalive"))?;
    }
    if options.user_timeout.is_some() {
        stream::set_user_timeout(socket, options.user_timeout).map_err(refused("tcp-ut"))?;
    }
    if options.fast_open {
        sockopt::set_int(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1).map_err(refused("tfo"))?;
    }
    if let Some(bytes) = options.mss {
        socket.set_tcp_mss(bytes).map_err(refused("mss"))?;
    }
    if let Some(mark) = options.mark {
        stream::set_mark(socket, mark).map_err(refused("mark"))?;
    }
    if let Some(tos) = options.tos {
        let set = match is_ipv6 {
            true => socket.set_tclass_v6(tos.into()),
            false => socket.set_tos_v4(tos.into()),
        };
        set.map_err(refused("tos"))?;
    }
    if let Some(name) = &options.interface {
        stream::set_interface(socket, name).map_err(refused("interface"))?;
    }
    if options.transparent {
        stream::set_transparent(socket, is_ipv6).map_err(refused("usesrc"))?;
    }
    if let Some(source) = options.source {
        if source.port() == 0 {
            // An old kernel chooses the port in `bind` instead: fewer connections, nothing worse.
            let _ = setsockopt(socket, IpBindAddressNoPort, &true);
        } else {
            socket.set_reuse_address(true).map_err(refused("SO_REUSEADDR"))?;
        }
        socket.bind(&source.into()).map_err(at(ConnectStep::Source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
