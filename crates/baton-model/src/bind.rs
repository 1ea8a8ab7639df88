//! One listening address of a frontend (configuration manual, 5.1 "Bind options").

use std::sync::Arc;

use crate::{Address, BindTls, Source};

/// One address after expansion: a `bind` line with a port range or several addresses becomes several of these.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bind {
    /// Where to listen.
    pub address: Address,
    /// `name`: as shown in statistics.
    pub name: Option<String>,
    /// `id`: numeric socket id, unique in its proxy.
    pub id: Option<u32>,
    /// Everything else on the line.
    pub options: BindOptions,
    /// The `bind` line.
    pub source: Source,
}

/// Address, interface and network namespace: see [`Bind::key`].
pub type BindKey<'b> = (&'b Address, Option<&'b str>, Option<&'b str>);

impl Bind {
    /// What makes two of them the same listening address: the same address, by the same interface if only one is
    /// meant, in the same network namespace.
    pub fn key(&self) -> BindKey<'_> {
        (&self.address, self.options.interface.as_deref(), self.options.namespace.as_deref())
    }

    /// That place, as a configuration names it: `127.0.0.1:80 interface lo namespace blue`.
    pub fn place(&self) -> String {
        let mut place = self.address.to_string();
        for (word, name) in [("interface", &self.options.interface), ("namespace", &self.options.namespace)] {
            if let Some(name) = name {
                place += &format!(" {word} {name}");
            }
        }
        place
    }
}

/// The options of a `bind` line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BindOptions {
    /// `accept-proxy`: a PROXY protocol header (v1 or v2) must come first.
    pub accept_proxy: bool,
    /// `accept-netscaler-cip`: the magic number of the header that must come first, before that of the PROXY protocol.
    pub accept_netscaler: Option<u32>,
    /// `backlog`: length of the kernel's accept queue; `None`: the proxy's `backlog`, else its `maxconn`.
    pub backlog: Option<u32>,
    /// `maxconn`: connections accepted on this address at once; `None` means no limit of its own.
    pub maxconn: Option<u32>,
    /// `mode`, `user`, `uid`, `group`, `gid` of a unix socket.
    pub socket: SocketMode,
    /// `interface`: SO_BINDTODEVICE.
    pub interface: Option<String>,
    /// `namespace`: the network namespace (`ip netns`) to listen in; `None` is the process's own.
    pub namespace: Option<String>,
    /// `transparent`: IP_TRANSPARENT, to bind foreign addresses.
    pub transparent: bool,
    /// `v4v6` (`Some(false)`) or `v6only` (`Some(true)`); `None` is the system's default.
    pub v6only: Option<bool>,
    /// `defer-accept`: TCP_DEFER_ACCEPT.
    pub defer_accept: bool,
    /// `tfo`: TCP fast open.
    pub tfo: bool,
    /// `mss`: maximum segment size in bytes.
    pub mss: Option<u32>,
    /// `tcp-ut`: TCP user timeout in milliseconds.
    pub tcp_user_timeout_ms: Option<u32>,
    /// `shards`: listening sockets for the address; `None` is `by-thread`, one for each worker.
    pub shards: Option<u32>,
    /// `ssl`: TLS with clients, and everything about it.
    pub tls: Option<Arc<BindTls>>,
    /// `proto`: what clients speak; `None`: what ALPN has negotiated, else what they begin with.
    pub proto: Option<BindProtocol>,
}

/// `proto` of a `bind` line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BindProtocol {
    /// `h1`: HTTP/1, whatever a connection begins with.
    H1,
    /// `h2`: HTTP/2, from the first byte.
    H2,
    /// `none`: bytes, in `mode tcp`.
    Bytes,
}

/// Owner and permission bits of a unix socket; `None` leaves what the process and its umask give.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SocketMode {
    /// Permission bits, such as `0o660`.
    pub mode: Option<u32>,
    /// Numeric owner; names are resolved when the file is read.
    pub uid: Option<u32>,
    /// Numeric group.
    pub gid: Option<u32>,
}
