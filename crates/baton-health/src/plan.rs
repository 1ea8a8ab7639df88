//! What a check does, compiled from the model.

use std::sync::Arc;
use std::time::Duration;

use baton_http::{Method, ResponseTo};
use baton_model::{Address, CheckStep, CheckType, HttpCheckSend, Proxy, ProxyProtocol, Server, ServerTarget, diff};
use baton_proxy::balance::ServerState;
use baton_proxy::dialer::Dialer;
use baton_tls::Connector;

use crate::expect::Expect;
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
    /// `http-check disable-on-404`.
    pub(crate) disable_on_404: bool,
    /// One after the other.
    pub(crate) connections: Vec<Connection>,
    /// Virtual addresses that the server has to have.
    pub(crate) vips: Vec<vip::ProbeTarget>,
}

/// A connection and what is said over it; nothing: that it opens is enough.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) port: Option<u16>,
    pub(crate) send_proxy: ProxyProtocol,
    pub(crate) tls: Option<Tls>,
    pub(crate) exchanges: Vec<Exchange>,
}

/// TLS of a check's connection.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) connector: Arc<Connector>,
    /// The name to ask for.
    pub(crate) name: Option<String>,
}

/// A request and what its response has to look like.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) to: ResponseTo,
    /// Expectations, or why they cannot be judged.
    pub(crate) expects: Vec<Result<Expect, String>>,
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
            disable_on_404: proxy.check.disable_on_404,
            vips,
            connections: match &proxy.check.kind {
                CheckType::Connect => vec![usual.connection()],
                CheckType::Http(steps) => connections(steps, &usual),
            },
        }
    }
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
fn proxy_header(server: &Server) -> ProxyProtocol {
    let elsewhere = server.check.addr.is_some() || server.check.port.is_some();
    match (server.check.send_proxy, server.send_proxy) {
        (true, ProxyProtocol::Off) => ProxyProtocol::V1,
        (true, version) => version,
        (false, version) if !elsewhere => version,
        (false, _) => ProxyProtocol::Off,
    }
}

/// What a check does that says nothing else.
struct Usual<'a> {
    send_proxy: ProxyProtocol,
    connector: Option<Arc<Connector>>,
    server: &'a Server,
}

impl Usual<'_> {
    fn connection(&self) -> Connection {
        let settings = &self.server.check;
        let tls = if settings.ssl { self.tls(None, None) } else { None };
        Connection { port: None, send_proxy: self.send_proxy, tls, exchanges: Vec::new() }
    }

    /// TLS that asks for `name` and offers `alpn`, or what the server's line says.
    fn tls(&self, name: Option<&String>, alpn: Option<&Vec<String>>) -> Option<Tls> {
        let (settings, connector) = (&self.server.check, self.connector.as_ref()?);
        let alpn = alpn.or(settings.alpn.as_ref()).or(connector.settings().alpn.as_ref());
        let connector = Arc::new(connector.with_protocols(alpn.map(Vec::as_slice)));
        Some(Tls { connector, name: name.or(settings.sni.as_ref()).cloned() })
    }
}

fn connections(steps: &[CheckStep], usual: &Usual<'_>) -> Vec<Connection> {
    let mut connections = vec![usual.connection()];
    for (number, step) in steps.iter().enumerate() {
        let last = connections.last_mut().expect("the list starts with one connection and only grows");
        match step {
            CheckStep::Connect { port, send_proxy: with_header, ssl, sni, alpn, default } => {
                let version = match (*with_header, usual.send_proxy) {
                    (true, ProxyProtocol::Off) => ProxyProtocol::V1,
                    (true, version) => version,
                    (false, version) if *default => version,
                    (false, _) => ProxyProtocol::Off,
                };
                let encrypted = *ssl || *default && usual.server.check.ssl;
                let tls = if encrypted { usual.tls(sni.as_ref(), alpn.as_ref()) } else { None };
                let connection = Connection { port: *port, send_proxy: version, tls, exchanges: Vec::new() };
                if number == 0 {
                    *last = connection;
                } else {
                    connections.push(connection);
                }
            }
            CheckStep::Send(send) => {
                last.exchanges.push(Exchange { request: request(send), to: response_to(send), expects: Vec::new() })
            }
            CheckStep::Expect { negated, kind, pattern } => {
                if last.exchanges.is_empty() {
                    last.exchanges.push(Exchange::usual());
                }
                let exchange = last.exchanges.last_mut().expect("one was put there if there was none");
                exchange.expects.push(Expect::compile(*negated, kind, pattern));
            }
        }
    }
    if connections.iter().all(|connection| connection.exchanges.is_empty())
        && let Some(last) = connections.last_mut()
    {
        last.exchanges.push(Exchange::usual());
    }
    let last = connections.iter_mut().rev().find_map(|connection| connection.exchanges.last_mut());
    if let Some(last) = last.filter(|last| last.expects.is_empty()) {
        last.expects.push(Ok(Expect::usual()));
    }
    connections
}

impl Exchange {
    /// `OPTIONS / HTTP/1.0`.
    fn usual() -> Exchange {
        let send = HttpCheckSend::default();
        Exchange { request: request(&send), to: response_to(&send), expects: Vec::new() }
    }
}

/// What its response is read by.
fn response_to(send: &HttpCheckSend) -> ResponseTo {
    ResponseTo { method: Method::of(send.method.as_bytes()), ..ResponseTo::default() }
}

/// The request's bytes, written as HAProxy does: names in lower case, `content-length` with a body, and
/// `connection: close` from HTTP/1.1 on.
fn request(send: &HttpCheckSend) -> Vec<u8> {
    let mut text = format!("{} {} {}\r\n", send.method, send.uri, send.version);
    for (name, value) in &send.headers {
        // Their framing is ours to write.
        if !["content-length", "transfer-encoding", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
            text += &format!("{}: {value}\r\n", name.to_ascii_lowercase());
        }
    }
    if let Some(body) = &send.body {
        text += &format!("content-length: {}\r\n", body.len());
    }
    if send.version == "HTTP/1.1" {
        text += "connection: close\r\n";
    }
    text += "\r\n";
    text += send.body.as_deref().unwrap_or("");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_haproxys() {
        let check = |send: HttpCheckSend, expect: &str| {
            assert_eq!(String::from_utf8_lossy(&request(&send)), expect);
        };
        check(HttpCheckSend::default(), "OPTIONS / HTTP/1.0\r\n\r\n");
        check(
            HttpCheckSend {
                method: "GET".into(),
                uri: "/x".into(),
                version: "HTTP/1.1".into(),
                headers: vec![("Host".into(), "a.b".into()), ("X-Y".into(), "z".into())],
                body: Some("hello".into()),
            },
            "GET /x HTTP/1.1\r\nhost: a.b\r\nx-y: z\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
        );
    }

    #[test]
    fn steps_become_connections() {
        let expect = |kind: &str, word: &str| CheckStep::Expect {
            negated: false,
            kind: kind.into(),
            pattern: vec![word.into()],
        };
        let count = |steps: &[CheckStep]| -> Vec<Vec<usize>> {
            let server = Server::new("s", 1, None);
            let usual = Usual { send_proxy: ProxyProtocol::Off, connector: None, server: &server };
            let connections = connections(steps, &usual);
            connections
                .iter()
                .map(|one| one.exchanges.iter().map(|exchange| exchange.expects.len()).collect())
                .collect()
        };
        let send = || CheckStep::Send(HttpCheckSend::default());
        let connect =
            |port| CheckStep::Connect { port, send_proxy: false, ssl: false, sni: None, alpn: None, default: false };
        assert_eq!(count(&[]), [[1]]);
        assert_eq!(count(&[send()]), [[1]]);
        assert_eq!(count(&[expect("status", "200")]), [[1]]);
        assert_eq!(count(&[send(), expect("status", "200"), expect("string", "ok")]), [[2]]);
        assert_eq!(count(&[connect(Some(1)), send(), expect("status", "200"), connect(Some(2)), send()]), [[1], [1]]);
    }
}
