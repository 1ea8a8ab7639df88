//! What rules' expressions ask about the process, answered for a health check: its backend, the servers of that, and its connection.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use baton_proxy::Registry;
use baton_proxy::balance::{HealthState, ServerState};
use baton_rules::{BackendFigure, Endpoint, ExchangeFigure, Figure, LiveState, ServerFigure};
use baton_tables::{Now, Table};

use crate::sockets::Sockets;

/// Who is checked, as expressions and `send-state` see it.
pub(crate) struct CheckSubject<'a> {
    pub(crate) server: &'a ServerState,
    pub(crate) backend: &'a str,
    pub(crate) backend_id: u32,
    /// The state for `send-state`, such as `UP 1/3`.
    pub(crate) state: &'a str,
    /// `node`.
    pub(crate) node: &'a str,
    /// Knows variables of the process.
    pub(crate) registry: &'a Registry,
    /// `None`: each connection has a socket of its own.
    pub(crate) sockets: Option<&'a Sockets>,
}

/// A check of a server.
pub(crate) struct LiveCheck<'a> {
    pub(crate) server: &'a ServerState,
    /// Ours and theirs, of its connection.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    /// Knows other backends, and stick tables.
    pub(crate) registry: &'a Registry,
}

impl LiveState for LiveCheck<'_> {
    fn figure(&self, figure: Figure<'_>) -> Option<i64> {
        match figure {
            Figure::Backend(name, figure) => {
                let own = self.registry.backend_state(name)?;
                let servers = own.servers();
                let served: u32 = servers.iter().map(|server| server.served()).sum();
                match figure {
                    BackendFigure::Connections => Some(served.into()),
                    BackendFigure::Queued => Some(own.queued().into()),
                    BackendFigure::UsableServers => {
                        Some(i64::try_from(servers.iter().filter(|server| server.is_usable()).count()).unwrap_or(0))
                    }
                    _ => None,
                }
            }
            Figure::Server(backend, name, figure) => {
                let server = self.registry.backend_state(backend)?.server(name)?;
                let config = server.config();
                Some(match figure {
                    ServerFigure::Id => config.id.into(),
                    ServerFigure::Connections => server.served().into(),
                    ServerFigure::ConnectionsFree if config.maxconn == 0 => -1,
                    ServerFigure::ConnectionsFree => i64::from(config.maxconn.saturating_sub(server.served())),
                    ServerFigure::IsUp => {
                        (server.health() != HealthState::Down && !server.admin().in_maintenance()).into()
                    }
                    ServerFigure::Queued => server.queued().into(),
                    ServerFigure::Weight => server.effective_weight().into(),
                    ServerFigure::UserWeight => server.weight().into(),
                    ServerFigure::InitialWeight => config.weight.into(),
                    ServerFigure::SessionRate => return None,
                })
            }
            Figure::Exchange(ExchangeFigure::ServerId) => Some(self.server.config().id.into()),
            _ => None,
        }
    }

    fn address(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        match endpoint {
            Endpoint::ServerSource => self.ends.map(|(ours, _)| ours),
            Endpoint::ServerDestination => self.ends.map(|(_, theirs)| theirs),
            Endpoint::ClientSource | Endpoint::ClientDestination => None,
        }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        baton_kernel::stream::is_local(address)
    }

    // An expression of a check that names a table is refused when the file is read.
    fn table(&self, _: &str) -> Option<Arc<Table>> {
        None
    }

    fn table_now(&self) -> Now {
        Now::default()
    }
}

/// A number for expressions; nothing secret depends on it.
pub(crate) fn random() -> u32 {
    thread_local!(static STATE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) });
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x >> 32) as u32
    })
}
