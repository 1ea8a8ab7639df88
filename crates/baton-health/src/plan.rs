//! What a check does, compiled from the model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_model::{Address, CheckConnect, CheckType, Proxy, SendProxy, Server, ServerProtocol, ServerTarget, diff};
use baton_proxy::balance::ServerState;
use baton_proxy::dialer::Dialer;
use baton_rules::Files;
use baton_tls::Connector;

use crate::external::External;
use crate::protocol;
use crate::script::{Script, ScriptKind, Step};
use crate::vip;

/// Everything that a check depends on: as long as this is equal, the check goes on untouched by a reload. Which settings those are,
/// the table of effects says.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    proxy: Arc<Proxy>,
    server: Arc<Server>,
    /// `spread-checks`.
    spread: u32,
    secrets: Secrets,
    vips: Vec<vip::ProbeTarget>,
}

impl PartialEq for Origin {
    fn eq(&self, other: &Origin) -> bool {
        let Origin { proxy, server, spread, secrets, vips } = self;
        let is_same = Arc::ptr_eq(proxy, &other.proxy) && Arc::ptr_eq(server, &other.server);
        (is_same || !diff::restarts_check((proxy, server), (&other.proxy, &other.server)))
            && *spread == other.spread
            && *secrets == other.secrets
            && *vips == other.vips
    }
}

/// The settings of TLS, which are the same as long as they are one: they hold what files held.
#[derive(Clone, Debug)]
struct Secrets(Option<Arc<Connector>>);

impl PartialEq for Secrets {
    fn eq(&self, other: &Secrets) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

/// A check ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Where to; `None` for a server without an address.
    pub(crate) address: Option<Address>,
    /// How: as for traffic.
    pub(crate) dialer: Dialer,
    /// Time to connect.
    pub(crate) connect: Duration,
    /// Time for the answer after that; `None`: all of it has to happen within `connect`.
    pub(crate) read: Option<Duration>,
    /// What is done.
    pub(crate) script: Arc<Script>,
    /// By their index.
    pub(crate) connections: Vec<Connection>,
    /// A program that decides instead.
    pub(crate) external: Option<External>,
    /// Virtual addresses that the server has to have.
    pub(crate) vips: Vec<vip::ProbeTarget>,
}

/// What a connection of a check takes from the server's line.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) send_proxy: SendProxy,
    pub(crate) tls: Option<Tls>,
    /// The SOCKS4 proxy on the way.
    pub(crate) socks4: Option<SocketAddr>,
    /// What HTTP is spoken; `None`: as ALPN has it, otherwise HTTP/1.
    pub(crate) proto: Option<ServerProtocol>,
}

/// TLS of a check's connection.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) connector: Arc<Connector>,
    /// The name to ask for.
    pub(crate) name: Option<String>,
}

impl Origin {
    pub(crate) fn new(
        proxy: &Arc<Proxy>,
        server: &Arc<Server>,
        state: &ServerState,
        spread: u32,
        vips: Vec<vip::ProbeTarget>,
    ) -> Origin {
        let secrets = Secrets(state.encryption().map(|encryption| encryption.connector.clone()));
        Origin { proxy: Arc::clone(proxy), server: Arc::clone(server), spread, secrets, vips }
    }
}

impl Plan {
    pub(crate) fn new(
        proxy: &Proxy,
        server: &Server,
        script: &Arc<Script>,
        connector: Option<Arc<Connector>>,
        vips: Vec<vip::ProbeTarget>,
    ) -> Plan {
        let settings = &server.check;
        let inter = settings.inter;
        let connect = match (proxy.timeouts.check, proxy.timeouts.connect) {
            (Some(_), Some(connect)) => connect.min(inter),
            (Some(_), None) | (None, _) => inter,
        };
        let usual = Usual { send_proxy: proxy_header(server), connector, server };
        Plan {
            address: address(server),
            dialer: Dialer::new(server, proxy, None),
            connect,
            read: proxy.timeouts.check,
            vips,
            connections: script.connections().map(|settings| usual.connection(settings)).collect(),
            external: match &proxy.check.kind {
                CheckType::External(check) => Some(External::new(check, proxy, server)),
                _ => None,
            },
            script: Arc::clone(script),
        }
    }
}

/// The steps of the checks of a backend's servers. `files` is the outside for expressions.
pub(crate) fn script(proxy: &Proxy, files: &dyn Files) -> Script {
    let steps = match &proxy.check.kind {
        CheckType::Connect | CheckType::External(_) => Script::of_steps(ScriptKind::Connect, vec![Step::connect()]),
        CheckType::Http(steps) => Script::of_lines(ScriptKind::Http, steps, files),
        CheckType::Tcp(steps) => Script::of_lines(ScriptKind::Tcp, steps, files),
        CheckType::Protocol(protocol) => Script::of_steps(ScriptKind::Protocol, protocol::steps(protocol)),
    };
    Script { disable_on_404: proxy.check.disable_on_404, sends_state: proxy.check.send_state, ..steps }
}

/// `addr` and `port` win over the server's own.
fn address(server: &Server) -> Option<Address> {
    let settings = &server.check;
    let own = || match &server.address.target {
        ServerTarget::Fixed(address) => Some(address.clone()),
        // No client has a say: the kernel takes the wildcard for this machine, and so does HAProxy.
        ServerTarget::ClientDestination(address) => Some(Address::Inet(*address)),
        ServerTarget::Unresolved { .. } => None,
    };
    let mut address = settings.addr.clone().or_else(own)?;
    if let Address::Inet(inet) = &mut address {
        let port = settings.port.or(Some(inet.port()).filter(|port| *port > 0));
        inet.set_port(port.unwrap_or(server.address.port()));
    }
    Some(address)
}

/// With `check-send-proxy`, or as for traffic when the check goes to the same place.
fn proxy_header(server: &Server) -> SendProxy {
    let elsewhere = server.check.addr.is_some() || server.check.port.is_some();
    match server.check.send_proxy {
        true => server.send_proxy.or_v1(),
        false if !elsewhere => server.send_proxy,
        false => SendProxy::OFF,
    }
}

/// The server's side of connections.
struct Usual<'a> {
    send_proxy: SendProxy,
    connector: Option<Arc<Connector>>,
    server: &'a Server,
}

impl Usual<'_> {
    fn connection(&self, settings: &CheckConnect) -> Connection {
        let send_proxy = match settings.send_proxy {
            true => self.send_proxy.or_v1(),
            false if settings.default => self.send_proxy,
            false => SendProxy::OFF,
        };
        let encrypted = settings.ssl || settings.default && self.server.check.ssl;
        let proto = settings.proto.or(self.server.check.proto.filter(|_| settings.default));
        let tls = if encrypted { self.tls(settings.sni.as_ref(), settings.alpn.as_ref(), proto) } else { None };
        let via_socks4 = settings.via_socks4 || settings.default && self.server.check.via_socks4;
        Connection { send_proxy, tls, socks4: self.server.socks4.filter(|_| via_socks4), proto }
    }

    /// TLS that asks for `name` and offers `alpn`, or what the server's line says.
    fn tls(&self, name: Option<&String>, alpn: Option<&Vec<String>>, proto: Option<ServerProtocol>) -> Option<Tls> {
        let (settings, connector) = (&self.server.check, self.connector.as_ref()?);
        let alpn = alpn.or(settings.alpn.as_ref()).or(connector.settings().alpn.as_ref());
        let mut alpn = alpn.cloned();
        if let (Some(ServerProtocol::H1), Some(names)) = (proto, &mut alpn) {
            // Who has agreed on HTTP/2 does not understand HTTP/1.
            names.retain(|name| name != "h2");
        }
        let connector = Arc::new(connector.with_protocols(alpn.as_deref().filter(|names| !names.is_empty())));
        Some(Tls { connector, name: name.or(settings.sni.as_ref()).cloned() })
    }
}
