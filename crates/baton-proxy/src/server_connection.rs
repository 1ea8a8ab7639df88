//! An established connection to a server, and what it carries of a client.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use baton_model::{Address, Proxy, Server, ServerProtocol, diff};
use socket2::Socket;
use tokio::sync::mpsc;

use crate::balance::ServerState;
use crate::proxy_protocol::Addresses;
use crate::stream::{MovedTls, RecordPool, Stream};
use crate::transport::Http2State;
use crate::upstream::dialer;
use crate::upstream::{Agreed, ServerTlsContext, is_same};

/// An established connection to a server.
#[derive(Debug)]
pub struct ServerConnection {
    /// The socket.
    pub stream: Stream,
    /// Whose it is.
    pub server: Arc<ServerState>,
    /// The settings it was opened with.
    pub config: Arc<Server>,
    /// What is spoken over it, where it was opened for that: otherwise its server's settings say it, or what ALPN has negotiated.
    pub protocol: Option<ServerProtocol>,
    /// TLS over it.
    pub encryption: Option<Agreed>,
    /// The name that was asked for (SNI): requests for another one go elsewhere.
    pub name: Option<Box<str>>,
    /// The client's addresses that it carries: requests with other ones need another connection. `None`: it carries none.
    pub client: Option<Box<Addresses>>,
    /// Requests it carried before the current one.
    pub requests: u32,
    /// It was authenticated for one client.
    pub private: bool,
    /// By what it was opened, in another process, is not known here: after its request it is closed.
    pub is_last: bool,
    /// Since when it is idle.
    pub idle_since: Instant,
}

/// An idle connection to a server that any request may use, on its way to another process.
#[derive(Debug)]
pub struct IdleServer {
    /// What it is.
    pub state: IdleServerState,
    /// Its socket.
    pub socket: OwnedFd,
    /// TLS over it.
    pub tls: Option<Box<MovedTls>>,
    /// What there is to know of HTTP/2; `None`: HTTP/1 is spoken.
    pub http2: Option<Box<Http2State>>,
}

/// Where idle connections to servers go that leave for another process.
#[derive(Clone, Debug)]
pub struct ServerExit {
    way: mpsc::UnboundedSender<IdleServer>,
    /// Those with TLS, too.
    takes_tls: bool,
}

impl ServerExit {
    /// They come out where this way leads to.
    pub fn new(way: mpsc::UnboundedSender<IdleServer>, takes_tls: bool) -> ServerExit {
        ServerExit { way, takes_tls }
    }
}

/// By what a connection to a server was opened, as text: where another process says the same, it may use the connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerTerms {
    /// All but TLS: [`diff::connection_terms`].
    pub server: String,
    /// By what it was encrypted; `None`: without TLS.
    pub tls: Option<Arc<str>>,
}

impl ServerTerms {
    /// By what a connection that was opened by these is encrypted here, where `config` and `encryption` are a server's settings. `None`: it is
    /// not to be used for that server.
    pub fn agreed(
        &self,
        config: &Server,
        encryption: Option<&Arc<ServerTlsContext>>,
        is_secure: bool,
    ) -> Option<Option<Agreed>> {
        if diff::connection_terms(config) != self.server || is_secure != self.tls.is_some() {
            return None;
        }
        match (&self.tls, encryption) {
            (None, None) => Some(None),
            (Some(terms), Some(encryption)) => Agreed::elsewhere(encryption.clone(), terms).map(Some),
            (Some(_), None) | (None, Some(_)) => None,
        }
    }
}

/// An idle connection to a server, as data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IdleServerState {
    /// Its backend.
    pub backend: Arc<str>,
    /// Its server.
    pub server: Arc<str>,
    /// By what it was opened.
    pub terms: ServerTerms,
    /// The name that was asked for.
    pub name: Option<Box<str>>,
    /// Requests that it has carried.
    pub requests: u32,
    /// Since when it is idle.
    pub since: Instant,
}

impl ServerConnection {
    /// Whether a request for `config` may go over it: a reload may have changed where the server is and how it is spoken to, and
    /// a runtime command whom to trust.
    pub fn fits(&self, config: &Arc<Server>, encryption: Option<&Arc<ServerTlsContext>>) -> bool {
        is_same(self.encryption.as_ref(), encryption)
            && (Arc::ptr_eq(&self.config, config) || !diff::reconnects(&self.config, config))
    }

    /// Whether it was encrypted by files that hold the same still.
    pub fn is_current(&self) -> bool {
        self.encryption.as_ref().is_none_or(Agreed::is_current)
    }

    /// One that was idle in another process.
    pub fn arrive(
        IdleServer { state, socket, tls, http2: _ }: IdleServer,
        server: Arc<ServerState>,
        (config, encryption): (Arc<Server>, Option<Agreed>),
        records: &Rc<RecordPool>,
    ) -> ServerConnection {
        ServerConnection {
            stream: Stream::resumed(Socket::from(socket), tls.as_deref(), records),
            server,
            config,
            protocol: None,
            encryption,
            name: state.name,
            client: None,
            requests: state.requests,
            private: false,
            is_last: false,
            idle_since: state.since,
        }
    }

    /// Leaves for another process while it is idle; if it cannot, it is closed as usual.
    pub fn depart(self, exit: &ServerExit) {
        if !self.stream.is_stale() {
            self.leave(exit, (self.requests, self.idle_since), || None);
        }
    }

    /// Sends what another process needs of it off by `exit`, with the requests that it has carried and since when it is idle. From then on
    /// nothing is said here any more. False: it cannot move, and nothing has changed.
    pub fn leave(
        &self,
        exit: &ServerExit,
        (requests, since): (u32, Instant),
        http2: impl FnOnce() -> Option<Box<Http2State>>,
    ) -> bool {
        let is_taken = exit.takes_tls || !self.stream.is_secure();
        let can_move = is_taken && self.is_shareable() && !self.private && self.stream.can_move();
        let parts = || {
            let state = IdleServerState {
                backend: self.server.backend()?.name().clone(),
                server: self.server.name().clone(),
                terms: self.terms()?,
                name: self.name.clone(),
                requests,
                since,
            };
            Some((state, self.stream.socket().try_clone().ok()?.into()))
        };
        let Some((state, socket)) = can_move.then(parts).flatten() else { return false };
        // Where nobody takes it any more, it ends without a word.
        let _ = exit.way.send(IdleServer { state, socket, tls: self.stream.take_tls(), http2: http2() });
        true
    }

    /// By what it was opened, for another process; `None`: only this one can know.
    pub fn terms(&self) -> Option<ServerTerms> {
        if self.protocol.is_some() || self.is_last {
            return None;
        }
        let tls = match &self.encryption {
            None => None,
            Some(agreed) => Some(agreed.terms()?),
        };
        Some(ServerTerms { server: diff::connection_terms(&self.config), tls })
    }

    /// Whether other clients may use it too: it does not carry one client's address.
    pub fn is_shareable(&self) -> bool {
        self.client.is_none()
    }
}

/// What a connection to `server` carries of a client's addresses: in a PROXY header, as its source, or as its destination. `None`:
/// nothing.
pub fn carried(server: &Server, backend: &Proxy, addresses: impl FnOnce() -> Addresses) -> Option<Addresses> {
    let with_port = dialer::source_of(server, backend).and_then(|source| source.use_client);
    let to_destination = server.address.depends_on_client();
    if !server.send_proxy.is_on() && with_port.is_none() && !to_destination {
        return None;
    }
    let Addresses { source, destination } = addresses();
    if server.send_proxy.is_on() {
        return Some(Addresses { source, destination });
    }
    let source = with_port.and_then(|with_port| {
        let port = |source: SocketAddr| if with_port { source.port() } else { 0 };
        source.map(|source| SocketAddr::new(source.ip(), port(source)))
    });
    let place = || server.address.for_client(&|| destination);
    let destination = to_destination.then(place).flatten().and_then(|place| match place {
        Address::Inet(place) => Some(place),
        Address::Unix(_) | Address::Abstract(_) | Address::Fd(_) => None,
    });
    Some(Addresses { source, destination })
}

#[cfg(test)]
mod tests {
    use baton_model::{Role, SendProxy, SourceAddress};

    use super::*;

    #[test]
    fn what_connections_carry_of_their_client() {
        let check = |server: &Server, backend: &Proxy, expect: &str| {
            let address = |text: &str| text.parse().ok();
            let client = Addresses { source: address("192.0.2.1:1000"), destination: address("192.0.2.9:80") };
            let show = |address: Option<SocketAddr>| address.map_or("-".to_owned(), |address| address.to_string());
            let found = carried(server, backend, || client)
                .map(|Addresses { source, destination }| format!("{} {}", show(source), show(destination)));
            assert_eq!(found.as_deref().unwrap_or("nothing"), expect);
        };
        let server = |address: &str| Server::new("s", 1, Address::Inet(address.parse().expect("an address")));
        let uses = |with_port| {
            let ip = std::net::Ipv4Addr::UNSPECIFIED.into();
            Some(SourceAddress { ip, ports: (0, 0), use_client: Some(with_port), interface: None })
        };
        let plain = Proxy::new("b", Role::Backend);
        let mut transparent = Proxy::new("b", Role::Backend);
        transparent.source_address = uses(true);
        check(&server("192.0.2.2:80"), &plain, "nothing");
        check(&server("192.0.2.2:80"), &transparent, "192.0.2.1:1000 -");
        check(&server("192.0.2.2:0"), &plain, "- 192.0.2.2:80");
        let mut own = server("192.0.2.2:80");
        own.source_address = uses(false);
        check(&own, &transparent, "192.0.2.1:0 -");
        own.send_proxy = SendProxy::V1;
        check(&own, &plain, "192.0.2.1:1000 192.0.2.9:80");
    }
}
