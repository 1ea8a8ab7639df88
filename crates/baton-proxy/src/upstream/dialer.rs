//! How a connection to a server is begun, for traffic and for health checks alike: from which address, port and interface, and
//! with which options of TCP. A check that connected in another way could pass where traffic fails.

use std::net::SocketAddr;
use std::time::Duration;

use baton_kernel::Endpoint;
use baton_kernel::connect::{self, ConnectError, ConnectOptions, ConnectStep, Started};
use baton_model::{Address, Proxy, Server, SourceAddress};

/// Ports of a `source` with a range that are tried for one connection.
const PORTS_TRIED_MAX: u32 = 256;

/// The address that connections to a server come from: its own `source`, or its backend's.
pub fn source_of<'a>(server: &'a Server, backend: &'a Proxy) -> Option<&'a SourceAddress> {
    server.source_address.as_ref().or(backend.source_address.as_ref())
}

/// What a server's connections have in common besides where they go.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Dialer {
    /// For the kernel.
    pub options: ConnectOptions,
    /// First and last port of a `source` with a range.
    ports: Option<(u16, u16)>,
}

impl Dialer {
    /// As server and backend say. `client` is the address of the client that the connection is for, of which a health check has
    /// none: `usesrc` then has no effect, and the address of `source` itself is used, as in HAProxy.
    pub fn new(server: &Server, backend: &Proxy, client: Option<SocketAddr>) -> Dialer {
        let mut options = ConnectOptions {
            nodelay: true,
            user_timeout: server.tcp_user_timeout_ms.map(|ms| Duration::from_millis(u64::from(ms))),
            keepalive: backend.tcp.server_keepalive.then(Default::default),
            ..ConnectOptions::default()
        };
        let Some(source) = source_of(server, backend) else {
            return Dialer { options, ports: None };
        };
        options.interface = source.interface.clone();
        if let (Some(with_port), Some(client)) = (source.use_client, client) {
            options.source = Some(SocketAddr::new(client.ip(), if with_port { client.port() } else { 0 }));
            options.transparent = true;
            return Dialer { options, ports: None };
        }
        let (first, last) = source.ports;
        options.source = (!source.ip.is_unspecified() || first != 0).then(|| SocketAddr::new(source.ip, first));
        Dialer { options, ports: (first < last).then_some((first, last)) }
    }

    /// The options, when one socket may serve connection after connection: the kernel chooses our address for each.
    pub fn options_of_any(&self) -> Option<&ConnectOptions> {
        let own = &self.options;
        (self.ports.is_none() && own.source.is_none() && !own.transparent && !own.fast_open).then_some(own)
    }

    /// Starts connecting to `peer`. With a range of ports `random` says which one is tried first.
    ///
    /// # Errors
    /// Those of the kernel. Of a range in which no port is free, that of the last one tried.
    pub fn start(&self, peer: &Endpoint, random: u64) -> Result<Started, ConnectError> {
        let (Some((first, last)), Some(source)) = (self.ports, self.options.source) else {
            return connect::start(peer, &self.options);
        };
        let count = u32::from(last - first) + 1;
        let mut options = self.options.clone();
        let mut tried = 0;
        loop {
            let offset = (random.wrapping_add(u64::from(tried)) % u64::from(count)) as u16;
            options.source = Some(SocketAddr::new(source.ip(), first + offset));
            tried += 1;
            match connect::start(peer, &options) {
                Err(error) if is_taken(&error) && tried < count.min(PORTS_TRIED_MAX) => {}
                outcome => return outcome,
            }
        }
    }
}

/// Whether the port is in use, as far as another port may be free.
fn is_taken(error: &ConnectError) -> bool {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable};
    matches!(error.step, ConnectStep::Source | ConnectStep::Connect)
        && matches!(error.source.kind(), AddrInUse | AddrNotAvailable)
}

/// An address in the kernel's form; `None` for a descriptor, to which nothing connects.
pub fn endpoint(address: &Address) -> Option<Endpoint> {
    match address {
        Address::Inet(address) => Some(Endpoint::Inet(*address)),
        Address::Unix(path) => Some(Endpoint::Unix(path.clone())),
        Address::Abstract(name) => Some(Endpoint::Abstract(name.clone().into_bytes())),
        Address::Fd(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use baton_model::{Role, SourceAddress};
    use socket2::SockRef;

    use super::*;

    fn dialer(ports: (u16, u16), use_client: Option<bool>, client: Option<&str>) -> Dialer {
        let mut server = Server::new("s", 1, None);
        let ip = [127, 0, 0, 1].into();
        server.source_address = Some(SourceAddress { ip, ports, use_client, interface: None });
        let backend = Proxy::new("b", Role::Backend);
        Dialer::new(&server, &backend, client.map(|client| client.parse().expect("an address")))
    }

    #[test]
    fn the_source_of_a_connection() {
        let check = |use_client, client, expect: &str| {
            let found = dialer((0, 0), use_client, client).options;
            let transparent = if found.transparent { " transparent" } else { "" };
            let source = found.source.map_or("none".into(), |source| source.to_string());
            assert_eq!(format!("{source}{transparent}"), expect, "{use_client:?} {client:?}");
        };
        check(None, Some("192.0.2.1:5"), "127.0.0.1:0");
        check(Some(true), Some("192.0.2.1:5"), "192.0.2.1:5 transparent");
        check(Some(false), Some("192.0.2.1:5"), "192.0.2.1:0 transparent");
        // A health check, or a client on a unix socket.
        check(Some(true), None, "127.0.0.1:0");
    }

    #[test]
    fn a_range_of_ports_gives_a_port_that_is_free() {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = Endpoint::Inet(listening.local_addr().expect("bound"));
        // Two neighbouring ports, of which the first is in use. Another test may take the second one before it is used here.
        let mut attempts = 0..100;
        let found = attempts.find_map(|_| {
            let busy = TcpListener::bind("127.0.0.1:0").ok()?;
            let free = busy.local_addr().ok()?.port().checked_add(1)?;
            drop(TcpListener::bind(("127.0.0.1", free)).ok()?);
            let dialer = dialer((free - 1, free), None, None);
            let local = |random| {
                let socket = dialer.start(&peer, random).ok()?.into_fd();
                let local = SockRef::from(&socket).local_addr().ok()?.as_socket();
                SockRef::from(&socket).set_linger(Some(Duration::ZERO)).ok()?;
                local.map(|local| local.port())
            };
            Some((free, [local(0)?, local(1)?]))
        });
        let (free, ports) = found.expect("two neighbouring ports");
        assert_eq!(ports, [free, free], "whichever is tried first");
    }
}
