//! A server of a backend (configuration manual, 5.2 "Server and default-server options").

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Address, AgentSettings, CheckSettings, Family, Forwarding, Resolution, SendProxy, ServerTls, Source, Written,
};

/// One server, `default-server` settings already applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name, unique in the backend.
    pub name: Arc<str>,
    /// `id`: given, or numbered from 1 in order.
    pub id: u32,
    /// Where it is.
    pub address: ServerAddress,
    /// `resolvers` and its companions: how it is found by DNS at run time.
    pub resolution: Option<Arc<Resolution>>,
    /// `weight`, 0 to 256.
    pub weight: u32,
    /// The weight by an SRV record, which counts instead of `weight`. Not of the files: [`DiscoveredServer`](crate::DiscoveredServer) puts it here.
    pub weight_by_dns: Option<u32>,
    /// Whether an operator set the name of its host. Not of the files: [`Setting::Fqdn`](crate::Setting::Fqdn) puts it here.
    pub named_by_operator: bool,
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
    /// `send-proxy`, `send-proxy-v2`, `proxy-v2-options`.
    pub send_proxy: SendProxy,
    /// `source`.
    pub source_address: Option<SourceAddress>,
    /// `slowstart`.
    pub slowstart: Option<Duration>,
    /// `check` and its companions.
    pub check: CheckSettings,
    /// `agent-check` and its companions; `None`: none of them is given.
    pub agent: Option<Arc<AgentSettings>>,
    /// `socks4`: connections to it are opened through this SOCKS4 proxy.
    pub socks4: Option<SocketAddr>,
    /// `pool-max-conn`: idle connections kept; -1 is no limit, 0 none.
    pub pool_max_conn: i32,
    /// `pool-purge-delay`: how often half of the unneeded idle connections is closed.
    pub pool_purge_delay: Duration,
    /// `max-reuse`: requests over one connection; `None` is no limit.
    pub max_reuse: Option<u32>,
    /// `proto`: what connections to it speak; `None`: what ALPN has negotiated, else HTTP/1.
    pub proto: Option<ServerProtocol>,
    /// `ws`: what connections for WebSockets speak.
    pub websockets: WebSocketProtocol,
    /// `tfo`.
    pub tfo: bool,
    /// `tcp-ut` in milliseconds.
    pub tcp_user_timeout_ms: Option<u32>,
    /// `redir PREFIX`.
    pub redir: Option<String>,
    /// `non-stick`: no stick table binds a key to it.
    pub non_stick: bool,
    /// `init-addr` with `last` before the method that found an address: that of a server state file counts instead.
    pub starts_at_last: bool,
    /// `ssl`: TLS with the server, and everything about it.
    pub tls: Option<Arc<ServerTls>>,
    /// TLS that is off and can be switched on at run time: of `default-server ssl` where the line says `no-ssl`, or switched off at run time.
    pub tls_ready: Option<Arc<ServerTls>>,
    /// `tunnel`, `masquerade`: how packets get there in `mode direct`.
    pub forwarding: Forwarding,
    /// The `server` or `server-template` line.
    pub line: Source,
    /// What stands behind the name in that line, the address first.
    pub written: Written,
}

impl Server {
    /// A server at a literal address (or none yet: nothing is connected to it), with HAProxy's defaults for everything else.
    pub fn new(name: impl Into<Arc<str>>, id: u32, address: impl Into<Option<Address>>) -> Server {
        Server {
            name: name.into(),
            id,
            address: ServerAddress::literal(address.into()),
            resolution: None,
            weight: 1,
            weight_by_dns: None,
            named_by_operator: false,
            backup: false,
            disabled: false,
            maxconn: 0,
            minconn: 0,
            maxqueue: 0,
            cookie: None,
            send_proxy: SendProxy::OFF,
            source_address: None,
            slowstart: None,
            check: CheckSettings::default(),
            agent: None,
            socks4: None,
            pool_max_conn: -1,
            pool_purge_delay: Duration::from_secs(5),
            max_reuse: None,
            proto: None,
            websockets: WebSocketProtocol::Auto,
            tfo: false,
            tcp_user_timeout_ms: None,
            redir: None,
            non_stick: false,
            starts_at_last: false,
            tls: None,
            tls_ready: None,
            forwarding: Forwarding::Direct,
            line: Source::default(),
            written: Written::default(),
        }
    }

    /// The agent that says how it is, if there is one.
    pub fn agent(&self) -> Option<&AgentSettings> {
        self.agent.as_deref().filter(|agent| agent.is_configured)
    }

    /// A server that an operator adds is neither checked nor is its agent asked, until somebody starts that.
    pub fn begin_unasked(&mut self) {
        self.check.enabled = false;
        if let Some(agent) = &mut self.agent {
            Arc::make_mut(agent).enabled = false;
        }
    }

    /// Whether its agent is asked.
    pub fn has_running_agent(&self) -> bool {
        self.agent().is_some_and(|agent| agent.enabled)
    }

    /// The settings of TLS with it, of traffic or of checks alone, or ready to be switched on.
    pub fn any_tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref().or(self.check.tls.as_ref()).or(self.tls_ready.as_ref())
    }
}

/// `proto` of a `server` line, in `mode http`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerProtocol {
    /// `h1`: HTTP/1.
    H1,
    /// `h2`: HTTP/2, from the first byte.
    H2,
}

/// `ws` of a `server` line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WebSocketProtocol {
    /// As all requests; where ALPN decides, and offers it, HTTP/1.
    #[default]
    Auto,
    /// HTTP/1.
    H1,
    /// HTTP/2 (RFC 8441).
    H2,
}

/// Where a server is: the address in use, and the name it came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerAddress {
    /// The host as written, with what it may resolve to; resolved when the file is read, and by DNS at run time.
    pub host: NetAddress,
    /// What to connect to.
    pub target: ServerTarget,
    /// A port that is relative to the client's destination port (`:+10`, `:-10`). `None` with port 0 in `target`: the
    /// destination port itself.
    pub port_offset: Option<i32>,
}

/// What a server's address means when a connection to it is opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ServerTarget {
    /// This address.
    Fixed(Address),
    /// `*`, `0.0.0.0` or `::`, kept here as written, with its port: the IP address that the client connected to.
    ClientDestination(SocketAddr),
    /// A name that did not resolve, with its port. Nothing is connected to it: the server is in maintenance until DNS, if it is asked at run
    /// time, or a reload finds an address.
    Unresolved {
        /// The port as written.
        port: u16,
    },
}

impl ServerAddress {
    /// A literal address; `None` is unresolved.
    pub fn literal(address: Option<Address>) -> ServerAddress {
        let target = address.map_or(ServerTarget::Unresolved { port: 0 }, ServerTarget::from);
        ServerAddress { host: NetAddress::Literal, target, port_offset: None }
    }

    /// The address that is the same for every client; its port may be relative all the same.
    pub fn fixed(&self) -> Option<&Address> {
        match &self.target {
            ServerTarget::Fixed(address) => Some(address),
            ServerTarget::ClientDestination(_) | ServerTarget::Unresolved { .. } => None,
        }
    }

    /// The IP address and port as written, wildcards included. `None`: a path, a descriptor, or unresolved.
    pub fn inet(&self) -> Option<SocketAddr> {
        match &self.target {
            ServerTarget::Fixed(Address::Inet(address)) | ServerTarget::ClientDestination(address) => Some(*address),
            ServerTarget::Fixed(Address::Unix(_) | Address::Abstract(_) | Address::Fd(_))
            | ServerTarget::Unresolved { .. } => None,
        }
    }

    /// The port as written, also of a name that did not resolve; 0 without one.
    pub fn port(&self) -> u16 {
        match self.target {
            ServerTarget::Unresolved { port } => port,
            ServerTarget::Fixed(_) | ServerTarget::ClientDestination(_) => self.inet().map_or(0, |inet| inet.port()),
        }
    }

    /// The number that HAProxy keeps as the port: the offset where it is relative, a negative one in 32 bits without a sign.
    pub fn service_port(&self) -> u32 {
        self.port_offset.map_or(u32::from(self.port()), |offset| offset as u32)
    }

    /// Whether the name did not resolve.
    pub fn is_unresolved(&self) -> bool {
        matches!(self.target, ServerTarget::Unresolved { .. })
    }

    /// Whether clients of different destinations reach different places by it, so that they cannot share a connection.
    pub fn depends_on_client(&self) -> bool {
        match &self.target {
            ServerTarget::Fixed(Address::Inet(address)) => self.port_offset.is_some() || address.port() == 0,
            ServerTarget::Fixed(Address::Unix(_) | Address::Abstract(_) | Address::Fd(_)) => false,
            ServerTarget::ClientDestination(_) => true,
            ServerTarget::Unresolved { .. } => false,
        }
    }

    /// Where to connect to for a client that connected to `destination`; `None` when there is no such place.
    pub fn for_client(&self, destination: &dyn Fn() -> Option<SocketAddr>) -> Option<Address> {
        let inet = match &self.target {
            ServerTarget::Fixed(Address::Inet(address)) => *address,
            ServerTarget::Fixed(address) => return Some(address.clone()),
            ServerTarget::ClientDestination(written) => SocketAddr::new(destination()?.ip(), written.port()),
            ServerTarget::Unresolved { .. } => return None,
        };
        let port = match (self.port_offset, inet.port()) {
            (None, port @ 1..) => port,
            (offset, port) => match (offset, destination()) {
                (Some(offset), Some(destination)) => {
                    u16::try_from(i32::from(destination.port()) + offset).ok().filter(|port| *port > 0)?
                }
                (None, Some(destination)) => destination.port(),
                (_, None) => port,
            },
        };
        Some(Address::Inet(SocketAddr::new(inet.ip(), port)))
    }
}

impl fmt::Display for ServerAddress {
    /// As written: a name, and not what it resolved to.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, &self.target) {
            (NetAddress::Name(name, _), _) => write!(out, "{name}")?,
            (NetAddress::Literal, ServerTarget::Fixed(Address::Inet(inet)) | ServerTarget::ClientDestination(inet)) => {
                // Brackets keep the port apart from an IPv6 address.
                match (inet.ip(), self.port_offset, self.port()) {
                    (IpAddr::V6(ip), Some(_), _) | (IpAddr::V6(ip), None, 1..) => write!(out, "[{ip}]")?,
                    (ip, ..) => write!(out, "{ip}")?,
                }
            }
            (NetAddress::Literal, ServerTarget::Fixed(address)) => return write!(out, "{address}"),
            (NetAddress::Literal, ServerTarget::Unresolved { .. }) => {}
        }
        match (self.port_offset, self.port()) {
            (Some(offset), _) => write!(out, ":{offset:+}"),
            (None, 0) => Ok(()),
            (None, port) => write!(out, ":{port}"),
        }
    }
}

impl From<Address> for ServerTarget {
    fn from(address: Address) -> ServerTarget {
        match address {
            Address::Inet(inet) if inet.ip().is_unspecified() => ServerTarget::ClientDestination(inet),
            address => ServerTarget::Fixed(address),
        }
    }
}

/// A host as it was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NetAddress {
    /// Given literally.
    Literal,
    /// A name, and the family it may resolve to.
    Name(String, Family),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a client that connected to `destination` is sent by a server at `written`, and whether others may share it.
    fn check(written: &str, offset: Option<i32>, destination: &str, expect: &str) {
        let address = Address::Inet(written.parse().expect("an address"));
        let server = ServerAddress { port_offset: offset, ..ServerAddress::literal(Some(address)) };
        let found = server.for_client(&|| destination.parse().ok()).map_or("nowhere".into(), |place| place.to_string());
        let shared = if server.depends_on_client() { "" } else { " shared" };
        assert_eq!(format!("{found}{shared}"), expect, "{written} {offset:?} for {destination}");
    }

    #[test]
    fn where_a_client_is_sent() {
        check("192.0.2.1:80", None, "192.0.2.9:8080", "192.0.2.1:80 shared");
        check("192.0.2.1:0", None, "192.0.2.9:8080", "192.0.2.1:8080");
        check("192.0.2.1:0", Some(2), "192.0.2.9:8080", "192.0.2.1:8082");
        check("192.0.2.1:0", Some(-2), "192.0.2.9:1", "nowhere");
        check("0.0.0.0:0", None, "192.0.2.9:8080", "192.0.2.9:8080");
        check("0.0.0.0:80", None, "192.0.2.9:8080", "192.0.2.9:80");
        check("0.0.0.0:0", Some(1), "192.0.2.9:8080", "192.0.2.9:8081");
        check("[::]:80", None, "192.0.2.9:8080", "192.0.2.9:80");
        // A client on a unix socket connected to no IP address.
        check("0.0.0.0:80", None, "", "nowhere");
        check("192.0.2.1:80", None, "", "192.0.2.1:80 shared");
    }

    #[test]
    fn an_ipv6_address_with_a_port_is_shown_in_brackets() {
        let shown = |written: &str, offset: Option<i32>| {
            let address = Address::Inet(written.parse().expect("an address"));
            ServerAddress { port_offset: offset, ..ServerAddress::literal(Some(address)) }.to_string()
        };
        assert_eq!(shown("192.0.2.1:80", None), "192.0.2.1:80");
        assert_eq!(shown("[2001:db8::1]:80", None), "[2001:db8::1]:80");
        assert_eq!(shown("[2001:db8::1]:0", Some(-2)), "[2001:db8::1]:-2");
        assert_eq!(shown("[2001:db8::1]:0", None), "2001:db8::1");
    }

    #[test]
    fn a_name_that_did_not_resolve_is_nowhere() {
        let server = ServerAddress { target: ServerTarget::Unresolved { port: 80 }, ..ServerAddress::literal(None) };
        assert_eq!(server.for_client(&|| "192.0.2.9:8080".parse().ok()), None);
        assert!(server.is_unresolved() && server.fixed().is_none() && server.inet().is_none());
        assert_eq!((server.port(), server.service_port()), (80, 80));
    }
}
