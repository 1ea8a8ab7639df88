//! A server of a backend (configuration manual, 5.2 "Server and default-server options").

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{Address, CheckSettings, Family, Forwarding, ServerTls, Source};

/// One server, `default-server` settings already applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name, unique in the backend.
    pub name: Arc<str>,
    /// `id`: given, or numbered from 1 in order.
    pub id: u32,
    /// Where it is.
    pub address: ServerAddress,
    /// `weight`, 0 to 256.
    pub weight: u32,
    /// `backup`.
    pub backup: bool,
    /// `disabled`: starts in maintenance.
    pub disabled: bool,
    /// `maxconn`: concurrent requests; 0 is no limit.
    pub maxconn: u32,
    /// `minconn`: the dynamic limit's lower end; 0 is none.
    pub minconn: u32,
    /// `maxqueue`: requests that may wait for this server; 0 is no limit.
    pub maxqueue: u32,
    /// `cookie`.
    pub cookie: Option<String>,
    /// `send-proxy`, `send-proxy-v2`.
    pub send_proxy: ProxyProtocol,
    /// `source`.
    pub source_address: Option<SourceAddress>,
    /// `slowstart`.
    pub slowstart: Option<Duration>,
    /// `check` and its companions.
    pub check: CheckSettings,
    /// `pool-max-conn`: idle connections kept; -1 is no limit, 0 none.
    pub pool_max_conn: i32,
    /// `pool-purge-delay`: how often half of the unneeded idle connections is closed.
    pub pool_purge_delay: Duration,
    /// `max-reuse`: requests over one connection; `None` is no limit.
    pub max_reuse: Option<u32>,
    /// `tfo`.
    pub tfo: bool,
    /// `tcp-ut` in milliseconds.
    pub tcp_user_timeout_ms: Option<u32>,
    /// `redir PREFIX`.
    pub redir: Option<String>,
    /// `ssl`: TLS with the server, and everything about it.
    pub tls: Option<Arc<ServerTls>>,
    /// `tunnel`, `masquerade`: how packets get there in `mode direct`.
    pub forwarding: Forwarding,
    /// The `server` or `server-template` line.
    pub line: Source,
}

impl Server {
    /// A server at a literal address (or none yet), with HAProxy's defaults for everything else.
    pub fn new(name: impl Into<Arc<str>>, id: u32, address: impl Into<Option<Address>>) -> Server {
        Server {
            name: name.into(),
            id,
            address: ServerAddress { host: NetAddress::Literal, address: address.into(), port_offset: None },
            weight: 1,
            backup: false,
            disabled: false,
            maxconn: 0,
            minconn: 0,
            maxqueue: 0,
            cookie: None,
            send_proxy: ProxyProtocol::Off,
            source_address: None,
            slowstart: None,
            check: CheckSettings::default(),
            pool_max_conn: -1,
            pool_purge_delay: Duration::from_secs(5),
            max_reuse: None,
            tfo: false,
            tcp_user_timeout_ms: None,
            redir: None,
            tls: None,
            forwarding: Forwarding::Direct,
            line: Source::default(),
        }
    }

    /// The settings of TLS with it, of traffic or of checks alone.
    pub fn any_tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref().or(self.check.tls.as_ref())
    }
}

/// Where a server is: the address in use, and the name it came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerAddress {
    /// The host as written, with what it may resolve to; resolved when the file is read.
    pub host: NetAddress,
    /// The address to connect to. `None`: `0.0.0.0` or `*`, the client's own destination is used (`option transparent`),
    /// or a name that did not resolve and `init-addr none` allows it: the server starts in maintenance.
    pub address: Option<Address>,
    /// A port that is relative to the client's destination port (`:+10`, `:-10`), or absent (`None` in `address`'s place
    /// as port 0: the destination port is used).
    pub port_offset: Option<i32>,
}

/// A host as it was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NetAddress {
    /// Given literally.
    Literal,
    /// A name, and the family it may resolve to.
    Name(String, Family),
}

/// A PROXY protocol header sent first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ProxyProtocol {
    /// None.
    #[default]
    Off,
    /// `send-proxy`: version 1, text.
    V1,
    /// `send-proxy-v2`: version 2, binary.
    V2,
}

/// `source ADDRESS[:PORT] [usesrc …] [interface …]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceAddress {
    /// Address to connect from; unspecified: the kernel's choice.
    pub ip: IpAddr,
    /// First and last port to connect from; (0, 0) is the kernel's choice.
    pub ports: (u16, u16),
    /// `usesrc client|clientip`: spoof the client's address (and port, for `client`).
    pub use_client: Option<bool>,
    /// `interface`.
    pub interface: Option<String>,
}
