//! Listening sockets: opening them, adopting inherited ones, and changing living ones.
//!
//! Every socket is non-blocking and close-on-exec. A unix socket is bound under a temporary name beside its
//! path and renamed into place once it listens, so that at no instant a connection to the path fails because of
//! us. Closing is the business of [`retire`](crate::retire): what waits in the queue of a listening socket is
//! reset when the socket is closed.

mod error;
mod identity;
mod unix;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use crate::Endpoint;
use crate::namespace;
use crate::passed;
use crate::retire::SynFilter;
use crate::sockopt;
use crate::stream::{self, Keepalive};

pub use error::{ListenError, ListenReason};
pub(crate) use identity::netns_of;
pub use identity::{SocketIdentity, netns_here, v6only_default};
pub use unix::SocketFile;

/// Length of the queue of complete, not yet accepted connections, if the configuration does not say otherwise.
/// The kernel cuts it to `net.core.somaxconn`, 4096 on most machines.
pub const BACKLOG_DEFAULT: u32 = 4096;

/// How to listen. What accepted connections inherit is set once here rather than once per connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Length of the queue of complete connections; cut by the kernel to `net.core.somaxconn`.
    pub backlog: u32,
    /// `SO_REUSEPORT`: several sockets (also of other processes of this user) may share the address.
    pub reuse_port: bool,
    /// Fail with [`ListenReason::InUse`] even when the other socket would share the address with us
    /// (`SO_REUSEPORT`). Without it two programs of one user silently share the connections of an address.
    /// Looked at when binding only; must be off for all but the first socket of a group.
    pub exclusive: bool,
    /// `IPV6_V6ONLY`; `None` leaves the system's default (`net.ipv6.bindv6only`).
    pub v6only: Option<bool>,
    /// `SO_BINDTODEVICE`: only connections arriving by this interface.
    pub interface: Option<String>,
    /// The network namespace to listen in, by its name (see [`namespace`]); `None` is ours.
    pub namespace: Option<String>,
    /// `IP_TRANSPARENT`: addresses this machine does not have, for redirected connections.
    pub transparent: bool,
    /// `TCP_DEFER_ACCEPT`: hand a connection over only when its first data is there. Rounded to whole seconds.
    pub defer_accept: Option<Duration>,
    /// `TCP_FASTOPEN`: length of the queue of connections with data in the SYN.
    pub tfo: Option<u32>,
    /// `TCP_MAXSEG`, bytes.
    pub mss: Option<u32>,
    /// `TCP_USER_TIMEOUT` of accepted connections: how long sent data may stay unacknowledged.
    pub user_timeout: Option<Duration>,
    /// `SO_KEEPALIVE` and its times, inherited by accepted connections.
    pub keepalive: Option<Keepalive>,
    /// `TCP_NODELAY`, inherited by accepted connections.
    pub nodelay: bool,
    /// Permissions of a unix socket's file; `None` leaves what the umask gives.
    pub mode: Option<u32>,
    /// Owner of a unix socket's file.
    pub uid: Option<u32>,
    /// Group of a unix socket's file.
    pub gid: Option<u32>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions {
            backlog: BACKLOG_DEFAULT,
            reuse_port: false,
            exclusive: false,
            v6only: None,
            interface: None,
            namespace: None,
            transparent: false,
            defer_accept: None,
            tfo: None,
            mss: None,
            user_timeout: None,
            keepalive: None,
            nodelay: true,
            mode: None,
            uid: None,
            gid: None,
        }
    }
}

impl ListenOptions {}

/// A listening stream socket. Dropping it closes it, which loses what waits in its queue unless it was
/// [retired](crate::retire) first; the file of a unix socket stays.
#[derive(Debug)]
pub struct Listening {
    fd: OwnedFd,
    endpoint: Endpoint,
    local: Endpoint,
    file: Option<SocketFile>,
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Listening {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Opens a listening socket: [`prepare`] and [`Prepared::publish`] in one.
///
/// # Errors
/// [`ListenReason`] has them; nothing is left behind.
pub fn open(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listening, ListenError> {
    prepare(endpoint, options)?.publish()
}

/// Does everything of [`open`] that may fail, in a way that nobody can connect yet and nobody notices if it is
/// given up: a TCP socket listens behind the filter of [`SynFilter`], a unix socket under its temporary name, an
/// abstract one is bound and does not listen. So a change that fails later resets no client and has not
/// replaced the socket of a living server.
///
/// # Errors
/// [`ListenReason`] has them; nothing is left behind.
pub fn prepare(endpoint: &Endpoint, options: &ListenOptions) -> Result<Prepared, ListenError> {
    match endpoint {
        Endpoint::Inet(address) => {
            let listening = open_inet(endpoint, *address, options, true)?;
            Ok(Prepared { listening, options: options.clone(), hidden: Hidden::Filtered })
        }
        Endpoint::Unix(path) => unix::prepare(endpoint, path, options),
        Endpoint::Abstract(_) => bind_abstract(endpoint, options),
        Endpoint::Fd(number) => {
            let listening = inherited(endpoint, *number, options)?;
            Ok(Prepared { listening, options: options.clone(), hidden: Hidden::Not })
        }
    }
}

/// One more socket of a `SO_REUSEPORT` group, at the address its first socket has, not hidden.
pub(crate) fn join(
    endpoint: &Endpoint,
    address: SocketAddr,
    options: &ListenOptions,
) -> Result<Listening, ListenError> {
    open_inet(endpoint, address, options, false)
}

/// A listening socket that nobody can connect to yet. Dropped, it leaves no trace.
#[derive(Debug)]
pub struct Prepared {
    listening: Listening,
    options: ListenOptions,
    hidden: Hidden,
}

/// What keeps clients from a prepared socket.
#[derive(Debug)]
enum Hidden {
    /// A filter drops their SYNs.
    Filtered,
    /// It has another name.
    Aside(unix::TemporarySocket),
    /// It is bound and does not listen.
    Bound,
    /// Nothing: it was inherited, and clients came before us.
    Not,
}

impl Prepared {
    /// The socket, to look at.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Lets clients in.
    ///
    /// # Errors
    /// When the directory of a unix socket vanished or lost its rights in the meantime, or the kernel has no
    /// memory: practically never.
    pub fn publish(self) -> Result<Listening, ListenError> {
        let Prepared { mut listening, options, hidden } = self;
        let endpoint = listening.endpoint.clone();
        match hidden {
            Hidden::Filtered => SynFilter::detach(&listening)
                .map_err(|e| ListenError::new(&endpoint, ListenReason::Option("SO_DETACH_FILTER"), e))?,
            Hidden::Aside(aside) => {
                listening.file = Some(aside.rename().map_err(|e| ListenError::bind(&endpoint, e))?);
            }
            Hidden::Bound => listening.relisten(options.backlog).map_err(|e| ListenError::listen(&endpoint, e))?,
            Hidden::Not => {}
        }
        Ok(listening)
    }
}

impl Listening {
    /// Takes over a listening socket received from another process, or one that was opened elsewhere. It is
    /// made non-blocking; nothing else about it changes.
    ///
    /// # Errors
    /// When it is not a stream socket that listens or can listen.
    pub fn adopt(fd: OwnedFd) -> Result<Listening, ListenError> {
        adopt(&Endpoint::Fd(fd.as_raw_fd()), fd, BACKLOG_DEFAULT)
    }

    /// The address asked for: with port 0 if it was, `fd@N` if it was inherited.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The address listened on, with the port the system chose.
    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    /// The file of a unix socket, as it was when the socket was opened or adopted.
    pub fn file(&self) -> Option<&SocketFile> {
        self.file.as_ref()
    }

    /// Another descriptor of the same socket: same queue, same options.
    pub fn try_clone(&self) -> io::Result<Listening> {
        Ok(Listening {
            fd: self.fd.try_clone()?,
            endpoint: self.endpoint.clone(),
            local: self.local.clone(),
            file: self.file.clone(),
        })
    }

    /// The bare descriptor, for a runtime's own listener type. A unix socket's file stays.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// One connection, non-blocking and close-on-exec, with its address (`None` on a unix socket); `None` when
    /// hold none) waits.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: nothing was taken from the queue. A connection that its client gave up
    /// while it waited is skipped.
    pub fn accept(&self) -> io::Result<Option<(OwnedFd, Option<SocketAddr>)>> {
        loop {
            match SockRef::from(self).accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
                Ok((socket, address)) => return Ok(Some((socket.into(), address.as_socket()))),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR | libc::ECONNABORTED) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Changes the length of the queue. What waits in it stays, also when it becomes shorter.
    pub fn relisten(&self, backlog: u32) -> io::Result<()> {
        SockRef::from(self).listen(backlog_int(backlog))
    }

    /// Gives a living socket new options; what cannot change on a living socket is left
    /// alone. Connections accepted from now on, and those waiting to be, follow.
    ///
    /// # Errors
    /// The first option refused; those before it are in force.
    pub fn apply(&self, options: &ListenOptions) -> Result<(), ListenError> {
        if matches!(self.local, Endpoint::Inet(_)) {
            set_inherited(&self.endpoint, self, options, Age::Living)?;
        }
        if let Some(file) = &self.file {
            file.own(options).map_err(|e| ListenError::new(&self.endpoint, ListenReason::Ownership, e))?;
        }
        self.relisten(options.backlog).map_err(|e| ListenError::listen(&self.endpoint, e))
    }
}

fn open_inet(
    endpoint: &Endpoint,
    address: SocketAddr,
    options: &ListenOptions,
    is_hidden: bool,
) -> Result<Listening, ListenError> {
    let refused = |name| move |e| ListenError::new(endpoint, ListenReason::Option(name), Some(e));
    let socket = bind(address, options)?;
    set_inherited(endpoint, &socket, options, Age::New)?;
    if is_hidden {
        SynFilter::attach(&socket).map_err(refused("SO_ATTACH_FILTER"))?;
    }
    socket.listen(backlog_int(options.backlog)).map_err(|e| ListenError::listen(endpoint, e))?;
    finish(endpoint, socket.into(), None)
}

/// A TCP socket that has its address and does not listen: nobody can reach it. All of [`open`] that may need rights.
/// [`Listening::adopt`] and [`Listening::apply`] do the rest.
///
/// # Errors
/// [`ListenReason`] has them.
pub fn bind(address: SocketAddr, options: &ListenOptions) -> Result<Socket, ListenError> {
    let endpoint = &Endpoint::Inet(address);
    let refused = |name| move |e| ListenError::new(endpoint, ListenReason::Option(name), Some(e));
    let socket = new_socket(endpoint, Domain::for_address(address), options)?;
    socket.set_reuse_address(true).map_err(refused("SO_REUSEADDR"))?;
    if options.reuse_port && !options.exclusive {
        socket.set_reuse_port(true).map_err(refused("SO_REUSEPORT"))?;
    }
    if let (true, Some(only)) = (address.is_ipv6(), options.v6only) {
        socket.set_only_v6(only).map_err(refused("v6only"))?;
    }
    if options.transparent {
        stream::set_transparent(&socket, address.is_ipv6()).map_err(refused("transparent"))?;
    }
    if let Some(name) = &options.interface {
        socket.bind_device(Some(name.as_bytes())).map_err(|e| match e.raw_os_error() {
            Some(libc::ENODEV) => ListenError::new(endpoint, ListenReason::NoSuchInterface(name.clone()), e),
            _ => refused("interface")(e),
        })?;
    }
    socket.bind(&address.into()).map_err(|e| ListenError::bind(endpoint, e))?;
    if options.reuse_port && options.exclusive {
        // Set after binding, it did not help us past anybody, and lets the rest of the group join.
        socket.set_reuse_port(true).map_err(refused("SO_REUSEPORT"))?;
    }
    Ok(socket)
}

fn bind_abstract(endpoint: &Endpoint, options: &ListenOptions) -> Result<Prepared, ListenError> {
    let address = endpoint.to_sockaddr().map_err(|e| ListenError::new(endpoint, ListenReason::NameTooLong, e))?;
    let socket = new_socket(endpoint, Domain::UNIX, options)?;
    socket.bind(&address).map_err(|e| ListenError::bind(endpoint, e))?;
    let listening = finish(endpoint, socket.into(), None)?;
    Ok(Prepared { listening, options: options.clone(), hidden: Hidden::Bound })
}

/// `fd@N`: a duplicate is used, so that the number stays valid for the next reload.
fn inherited(endpoint: &Endpoint, number: i32, options: &ListenOptions) -> Result<Listening, ListenError> {
    let fd = passed::duplicate(number).map_err(|e| ListenError::new(endpoint, ListenReason::BadDescriptor, Some(e)))?;
    adopt(endpoint, fd, options.backlog)
}

/// Checks that `fd` is a stream socket that listens; one that is bound but does not listen yet is made to, as
/// HAProxy does.
fn adopt(endpoint: &Endpoint, fd: OwnedFd, backlog: u32) -> Result<Listening, ListenError> {
    let socket = SockRef::from(&fd);
    let not_a_socket = |e| ListenError::new(endpoint, ListenReason::NotASocket, Some(e));
    if socket.r#type().map_err(not_a_socket)? != Type::STREAM {
        return Err(ListenError::new(endpoint, ListenReason::NotAStream, None));
    }
    let local = Endpoint::local_of(&fd).map_err(not_a_socket)?;
    let bound = match &local {
        Some(Endpoint::Inet(address)) => address.port() != 0,
        Some(_) => true,
        None => false,
    };
    if !bound {
        return Err(ListenError::new(endpoint, ListenReason::NotListening, None));
    }
    if !socket.is_listener().map_err(not_a_socket)? {
        socket.listen(backlog_int(backlog)).map_err(|e| ListenError::new(endpoint, ListenReason::NotListening, e))?;
    }
    socket.set_nonblocking(true).map_err(not_a_socket)?;
    let file = match &local {
        Some(Endpoint::Unix(path)) => SocketFile::at(path).ok(),
        _ => None,
    };
    finish(endpoint, fd, file)
}

/// A socket is where it was opened: what is done to it later happens in its namespace, not in ours.
fn new_socket(endpoint: &Endpoint, domain: Domain, options: &ListenOptions) -> Result<Socket, ListenError> {
    let opened = match &options.namespace {
        None => Socket::new(domain, Type::STREAM.nonblocking().cloexec(), None),
        Some(name) => namespace::socket(name, domain).map_err(|error| ListenError::namespace(endpoint, name, error))?,
    };
    opened.map_err(|e| ListenError::socket(endpoint, e))
}

fn finish(endpoint: &Endpoint, fd: OwnedFd, file: Option<SocketFile>) -> Result<Listening, ListenError> {
    let local = match endpoint {
        Endpoint::Unix(_) | Endpoint::Abstract(_) => endpoint.clone(),
        // It has what it was bound to.
        Endpoint::Inet(SocketAddr::V4(address)) if address.port() != 0 => endpoint.clone(),
        Endpoint::Inet(_) | Endpoint::Fd(_) => Endpoint::local_of(&fd)
            .map_err(|e| ListenError::new(endpoint, ListenReason::Bind, e))?
            .ok_or_else(|| ListenError::new(endpoint, ListenReason::NotListening, None))?,
    };
    Ok(Listening { fd, endpoint: endpoint.clone(), local, file })
}

/// Whether a socket has all options as the kernel makes them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Age {
    /// It was opened a moment ago: what the kernel gives it need not be said.
    New,
    /// It may have any.
    Living,
}

/// TCP options that may be changed at any time; accepted connections inherit most of them.
fn set_inherited(
    endpoint: &Endpoint,
    socket: &impl AsFd,
    options: &ListenOptions,
    age: Age,
) -> Result<(), ListenError> {
    let says = |is_other: bool| is_other || age == Age::Living;
    let refused = |name| move |e| ListenError::new(endpoint, ListenReason::Option(name), Some(e));
    let tcp = SockRef::from(socket);
    if says(options.nodelay) {
        tcp.set_tcp_nodelay(options.nodelay).map_err(refused("nodelay"))?;
    }
    if says(options.keepalive.is_some()) {
        stream::set_keepalive(socket, options.keepalive.as_ref()).map_err(refused("keepalive"))?;
    }
    if says(options.user_timeout.is_some()) {
        tcp.set_tcp_user_timeout(options.user_timeout.or(Some(Duration::ZERO))).map_err(refused("tcp-ut"))?;
    }
    if says(options.defer_accept.is_some()) {
        let seconds = options.defer_accept.map_or(0, |wait| wait.as_secs().clamp(1, i32::MAX as u64) as i32);
        sockopt::set_int(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
            .map_err(refused("defer-accept"))?;
    }
    if let Some(queue) = options.tfo {
        sockopt::set_int(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, backlog_int(queue)).map_err(refused("tfo"))?;
    }
    if let Some(bytes) = options.mss {
        tcp.set_tcp_mss(bytes).map_err(refused("mss"))?;
    }
    Ok(())
}

fn backlog_int(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
