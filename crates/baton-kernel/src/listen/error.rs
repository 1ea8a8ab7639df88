//! Why an address could not be listened on, and what an operator can do about it.

use std::fmt;
use std::io;

use crate::Endpoint;
use crate::namespace::Unreachable;

/// An address that could not be listened on. Nothing is left behind: no socket, no file.
#[derive(Debug)]
pub struct ListenError {
    /// The address asked for.
    pub endpoint: Endpoint,
    /// What failed.
    pub reason: ListenReason,
    /// The system's words, where a system call failed.
    pub source: Option<io::Error>,
}

/// What failed while opening a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenReason {
    /// Another socket listens there.
    InUse,
    /// A port below `net.ipv4.ip_unprivileged_port_start` without the right to it.
    PrivilegedPort(u16),
    /// A directory or a socket file that may not be written.
    PermissionDenied,
    /// The address belongs to no interface of this machine.
    NoSuchAddress,
    /// `interface` names none of this machine's interfaces.
    NoSuchInterface(String),
    /// `namespace` names no network namespace.
    NoSuchNamespace(String),
    /// `namespace` names one that may not be entered.
    NamespaceDenied(String),
    /// The kernel does not tell namespaces apart.
    NamespacesIndistinct,
    /// The kernel has no such address family (IPv6 switched off).
    FamilyUnavailable,
    /// A unix path (with the temporary suffix) or an abstract name that does not fit into a socket address.
    NameTooLong,
    /// The directory of a unix socket does not exist.
    NoDirectory,
    /// The path exists and is something else than a socket; it is left alone.
    NotASocketFile,
    /// `fd@N`: no such descriptor is open.
    BadDescriptor,
    /// `fd@N`: the descriptor is not a socket.
    NotASocket,
    /// `fd@N`: a socket, but not a stream.
    NotAStream,
    /// `fd@N`: a stream socket that cannot listen: connected, or without an address.
    NotListening,
    /// This process, or the machine, has no descriptor or memory left.
    OutOfResources,
    /// The option of that name was refused.
    Option(&'static str),
    /// Mode or owner of a unix socket could not be set.
    Ownership,
    /// `bind` failed in another way.
    Bind,
    /// `listen` failed in another way.
    Listen,
}

impl ListenReason {
    /// What the operator can do, as the end of a sentence.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            ListenReason::InUse => "find the other listener with `ss -ltnp`, or choose another address",
            ListenReason::PrivilegedPort(_) => "start as root or with CAP_NET_BIND_SERVICE",
            ListenReason::PermissionDenied => "check the permissions of the directory and its parents",
            ListenReason::NoSuchAddress => {
                "add the address to an interface, or use `transparent` to bind it before it exists"
            }
            ListenReason::NoSuchInterface(_) => "see `ip link` for the interfaces",
            ListenReason::NoSuchNamespace(_) => "see `ip netns` for the namespaces; create one with `ip netns add`",
            ListenReason::NamespaceDenied(_) => {
                "start as root or with CAP_SYS_ADMIN, and keep that with 'setcap cap_sys_admin' if it is to be opened later"
            }
            ListenReason::NamespacesIndistinct => "`namespace` needs Linux 5.14 or later",
            ListenReason::FamilyUnavailable => "enable it in the kernel, or use an address of another family",
            ListenReason::NameTooLong => "the maximum is 107 bytes, including the suffix `.PID.tmp`",
            ListenReason::NoDirectory => "create the directory first",
            ListenReason::NotASocketFile => "remove it, or choose another path",
            ListenReason::BadDescriptor => "the parent process must pass it on without close-on-exec",
            ListenReason::NotASocket | ListenReason::NotAStream | ListenReason::NotListening => {
                "pass a bound stream socket"
            }
            ListenReason::OutOfResources => "raise the limit of open files (`ulimit -n`, LimitNOFILE=)",
            ListenReason::Option("transparent") | ListenReason::Option("interface") => {
                "start as root or with CAP_NET_ADMIN and CAP_NET_RAW"
            }
            ListenReason::Ownership => "only root may give a file to another user",
            ListenReason::Option(_) | ListenReason::Bind | ListenReason::Listen => return None,
        })
    }
}

impl fmt::Display for ListenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenReason::InUse => write!(f, "address already in use by another socket"),
            ListenReason::PrivilegedPort(port) => write!(f, "port {port} is privileged"),
            ListenReason::PermissionDenied => write!(f, "permission denied"),
            ListenReason::NoSuchAddress => write!(f, "no interface has this address"),
            ListenReason::NoSuchInterface(name) => write!(f, "there is no interface '{name}'"),
            ListenReason::NoSuchNamespace(name) => write!(f, "there is no network namespace '{name}'"),
            ListenReason::NamespaceDenied(name) => {
                write!(f, "entering the network namespace '{name}' is not permitted")
            }
            ListenReason::NamespacesIndistinct => write!(f, "the kernel does not support network namespaces"),
            ListenReason::FamilyUnavailable => write!(f, "the kernel does not offer this address family"),
            ListenReason::NameTooLong => write!(f, "the name is too long"),
            ListenReason::NoDirectory => write!(f, "the directory does not exist"),
            ListenReason::NotASocketFile => write!(f, "the path exists and is not a socket"),
            ListenReason::BadDescriptor => write!(f, "no such descriptor is open"),
            ListenReason::NotASocket => write!(f, "the descriptor is not a socket"),
            ListenReason::NotAStream => write!(f, "the descriptor is not a stream socket"),
            ListenReason::NotListening => write!(f, "the descriptor cannot listen"),
            ListenReason::OutOfResources => write!(f, "out of descriptors or memory"),
            ListenReason::Option(name) => write!(f, "option '{name}' was refused"),
            ListenReason::Ownership => write!(f, "cannot set mode or owner"),
            ListenReason::Bind => write!(f, "bind failed"),
            ListenReason::Listen => write!(f, "listen failed"),
        }
    }
}

impl fmt::Display for ListenError {
    /// `cannot listen on 0.0.0.0:80: port 80 is privileged (Permission denied); start as root or …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.endpoint, self.reason)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        if let Some(remedy) = self.reason.remedy() {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl ListenError {
    pub(crate) fn new(endpoint: &Endpoint, reason: ListenReason, source: impl Into<Option<io::Error>>) -> Self {
        ListenError { endpoint: endpoint.clone(), reason, source: source.into() }
    }

    /// Nothing could be opened in a network namespace.
    pub(crate) fn namespace(endpoint: &Endpoint, name: &str, error: Unreachable) -> Self {
        let (reason, source) = match error {
            Unreachable::Missing(source) => (ListenReason::NoSuchNamespace(name.into()), Some(source)),
            Unreachable::NoRight(source) => (ListenReason::NamespaceDenied(name.into()), Some(source)),
            Unreachable::Indistinct => (ListenReason::NamespacesIndistinct, None),
            Unreachable::Other(source) => (ListenReason::Option("namespace"), Some(source)),
        };
        Self::new(endpoint, reason, source)
    }

    /// `socket` failed.
    pub(crate) fn socket(endpoint: &Endpoint, source: io::Error) -> Self {
        let reason = match source.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => ListenReason::FamilyUnavailable,
            Some(libc::EACCES | libc::EPERM) => ListenReason::PermissionDenied,
            _ => ListenReason::OutOfResources,
        };
        Self::new(endpoint, reason, source)
    }

    /// `bind` failed.
    pub(crate) fn bind(endpoint: &Endpoint, source: io::Error) -> Self {
        let reason = match (source.raw_os_error(), endpoint) {
            (Some(libc::EADDRINUSE), _) => ListenReason::InUse,
            (Some(libc::EACCES), Endpoint::Inet(address)) => ListenReason::PrivilegedPort(address.port()),
            (Some(libc::EACCES | libc::EPERM | libc::EROFS), _) => ListenReason::PermissionDenied,
            (Some(libc::EADDRNOTAVAIL), _) => ListenReason::NoSuchAddress,
            (Some(libc::ENOENT | libc::ENOTDIR), _) => ListenReason::NoDirectory,
            (Some(libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC), _) => ListenReason::OutOfResources,
            _ => ListenReason::Bind,
        };
        Self::new(endpoint, reason, source)
    }

    /// `listen` failed. Two sockets may be bound to one address with `SO_REUSEADDR`; only the first may listen.
    pub(crate) fn listen(endpoint: &Endpoint, source: io::Error) -> Self {
        let reason = match source.raw_os_error() {
            Some(libc::EADDRINUSE) => ListenReason::InUse,
            _ => ListenReason::Listen,
        };
        Self::new(endpoint, reason, source)
    }
}
