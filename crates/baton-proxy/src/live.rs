//! Answers what rules ask about proxies, servers and connections as they are now (`baton_rules::LiveState`). Each is looked up when a
//! rule asks, by its name: what a reload changed is seen at once.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_http2::{Connection as Protocol, ErrorCode};
use baton_kernel::stream;
use baton_model::Mode;
use baton_rules::{
    BackendFigure, ConnectionFigure, Endpoint, ExchangeFigure, Figure, FrontendFigure, LiveState, ProcessFigure, Side,
    TcpFigure,
};
use baton_tables::{Now, Table};

use crate::balance::ServerState;
use crate::connection::Connection;
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::plan_figures::{PlanFigures, milliseconds};
use crate::server_exchange::BegunRequest;
use crate::stream::Stream;
use crate::transport::{Http2Stream, PeerAbort, Transport};
use crate::view::{BackendView, FrontendView};

/// What an evaluation is about.
pub struct Live<'a> {
    /// The core that evaluates.
    pub core: &'a Core,
    /// The client's connection.
    pub connection: &'a Connection,
    /// The frontend.
    pub frontend: &'a FrontendView,
    /// The backend, once chosen.
    pub backend: Option<&'a BackendView>,
    /// Rules of the backend decide before the session is counted there: what they see has it.
    pub comes_to_backend: bool,
    /// The server, once chosen.
    pub chosen: Option<&'a Arc<ServerState>>,
    /// The connection to it, while there is one.
    pub server: Option<&'a Stream>,
    /// Whether HTTP/2 is spoken over that, or was spoken when it is gone.
    pub speaks_http2: Option<bool>,
    /// What the exchange is read from; `None` without one.
    pub client: Option<Transport<'a>>,
    /// Requests of the session so far.
    pub requests: u32,
    /// Where the request was begun last at a server; `None`: it was not.
    pub begun: Option<&'a BegunRequest>,
    /// How it ended before its time.
    pub ended: Option<Ended>,
}

impl LiveState for Live<'_> {
    fn figure(&self, figure: Figure<'_>) -> Option<i64> {
        match figure {
            Figure::Frontend(name, figure) => self.of_frontend(name, figure),
            Figure::Backend(name, figure) => Some(self.of_backend(&*self.backend(name)?, figure)),
            Figure::Server(backend, name, figure) => {
                self.figures().of_server(&self.backend(backend)?.plan, name, figure)
            }
            Figure::Process(figure) => Some(self.of_process(figure)),
            Figure::Exchange(figure) => self.of_exchange(figure),
            Figure::Tcp(side, figure) => tcp(self.side(side)?, figure),
            Figure::Connection(side, figure) => self.of_connection(side, figure),
        }
    }

    fn address(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        match endpoint {
            Endpoint::ClientSource => self.connection.stream.socket().peer_addr().ok()?.as_socket(),
            Endpoint::ClientDestination => self.connection.stream.socket().local_addr().ok()?.as_socket(),
            Endpoint::ServerSource => self.server?.socket().local_addr().ok()?.as_socket(),
            Endpoint::ServerDestination => self.server?.socket().peer_addr().ok()?.as_socket(),
        }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        stream::is_local(address)
    }

    fn proxy_header_value(&self, kind: u8) -> Option<&[u8]> {
        self.connection.proxy_values.as_ref()?.value(kind)
    }

    fn default_backend(&self) -> Option<&str> {
        self.frontend.plan.proxy.default_backend.as_deref()
    }

    fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.core.table(name)
    }

    fn table_now(&self) -> Now {
        self.core.table_now()
    }
}

impl Live<'_> {
    /// The backend of that name: the chosen one, which may be gone from the configuration, or one of the configuration.
    fn backend(&self, name: &str) -> Option<Rc<BackendView>> {
        self.frontend.backends.get(name)
    }

    fn side(&self, side: Side) -> Option<&Stream> {
        match side {
            Side::Client => Some(&self.connection.stream),
            Side::Server => self.server,
        }
    }

    fn figures(&self) -> PlanFigures<'_> {
        PlanFigures { registry: &self.core.registry, now: self.core.now() }
    }

    fn of_frontend(&self, name: &str, figure: FrontendFigure) -> Option<i64> {
        let other =
            (*self.frontend.plan.proxy.name != *name).then(|| self.core.frontend(name)).map(|slot| Some(slot?.view()));
        let plan = match &other {
            None => &self.frontend.plan,
            Some(other) => &other.as_ref()?.plan,
        };
        Some(self.figures().of_frontend(plan, figure))
    }

    fn of_backend(&self, backend: &BackendView, figure: BackendFigure) -> i64 {
        let is_coming = |own: &BackendView| self.comes_to_backend && own.plan.proxy.name == backend.plan.proxy.name;
        let coming = u32::from(self.backend.is_some_and(is_coming));
        self.figures().of_backend(&backend.plan, figure, coming)
    }

    fn of_process(&self, figure: ProcessFigure) -> i64 {
        let registry = &self.core.registry;
        match figure {
            ProcessFigure::Thread => self.core.number as i64,
            ProcessFigure::Threads => registry.cores() as i64,
            ProcessFigure::IsStopping => i64::from(self.core.draining.get()),
            ProcessFigure::Connections => registry.open.load(Ordering::Relaxed),
        }
    }

    fn of_exchange(&self, figure: ExchangeFigure) -> Option<i64> {
        let timeouts = self.backend.map(|backend| &backend.plan.proxy.timeouts);
        Some(match figure {
            ExchangeFigure::ListenerConnections => self.connection.listener().state.open.load(Ordering::Relaxed),
            ExchangeFigure::ClientTimeout => milliseconds(self.frontend.plan.proxy.timeouts.client),
            ExchangeFigure::ServerTimeout => milliseconds(timeouts?.server),
            ExchangeFigure::TunnelTimeout => milliseconds(timeouts?.tunnel),
            // Those of requests without rules about them.
            ExchangeFigure::PriorityClass | ExchangeFigure::PriorityOffset => 0,
            ExchangeFigure::ServerId => self.chosen?.config().id.into(),
        })
    }

    /// The stream of HTTP/2 that carries the request on this side, also when it has ended.
    fn stream(&self, side: Side) -> Option<&Http2Stream> {
        match (side, self.client, self.begun) {
            (Side::Client, Some(Transport::Http2(stream)), _) => Some(stream),
            (Side::Server, _, Some(BegunRequest::Http2(begun))) => Some(begun.stream()),
            (Side::Client | Side::Server, ..) => None,
        }
    }

    fn of_connection(&self, side: Side, figure: ConnectionFigure) -> Option<i64> {
        if let Some(stream) = self.stream(side) {
            match figure {
                ConnectionFigure::Stream => return Some(stream.id().into()),
                ConnectionFigure::Glitches => return Some(stream.look_at_connection(Protocol::glitches).into()),
                ConnectionFigure::Streams => return Some(count(stream.look_at_connection(Protocol::streams))),
                ConnectionFigure::StreamsMax => return Some(count(stream.look_at_connection(Protocol::streams_limit))),
                ConnectionFigure::IsAborted => return Some(stream.peer_abort().is_some().into()),
                ConnectionFigure::ResetCode => return reset_code(stream),
                ConnectionFigure::HttpMajor | ConnectionFigure::Error | ConnectionFigure::HasProxyHeader => {}
            }
        }
        // What was noted, also when the connection is gone.
        match (figure, side, self.speaks_http2, self.begun) {
            (ConnectionFigure::HttpMajor, Side::Server, Some(is_http2), _) => {
                return Some(if is_http2 { 2 } else { 1 });
            }
            (ConnectionFigure::Stream, Side::Server, _, Some(BegunRequest::Http1(number))) => {
                return Some((*number).into());
            }
            (ConnectionFigure::IsAborted, ..) => return Some(self.is_aborted(side).into()),
            _ => {}
        }
        self.side(side)?;
        Some(match (figure, side) {
            (ConnectionFigure::Stream, Side::Client) => match self.client {
                Some(_) if self.frontend.plan.proxy.mode == Mode::Http => self.requests.into(),
                Some(_) | None => 0,
            },
            (ConnectionFigure::Stream, Side::Server) => 0,
            (ConnectionFigure::Glitches, _) => 0,
            // Outside of HTTP/2 a connection carries one exchange at a time.
            (ConnectionFigure::Streams, Side::Client) => self.client.is_some().into(),
            (ConnectionFigure::Streams, Side::Server) | (ConnectionFigure::StreamsMax, _) => 1,
            // Rules run on connections without an error.
            (ConnectionFigure::Error, _) => 0,
            (ConnectionFigure::HttpMajor, Side::Client) if self.connection.is_http2 => 2,
            (ConnectionFigure::HttpMajor, _) => 1,
            (ConnectionFigure::HasProxyHeader, Side::Client) => i64::from(self.connection.has_proxy_header),
            (ConnectionFigure::HasProxyHeader, Side::Server)
            | (ConnectionFigure::ResetCode | ConnectionFigure::IsAborted, _) => return None,
        })
    }

    /// Whether this side ended a request before its time, or a session, that is no stream of HTTP/2.
    fn is_aborted(&self, side: Side) -> bool {
        self.ended.is_some_and(|ended| match side {
            Side::Client => ended.cause == Cause::ClientAborted,
            // Earlier, there was no connection that it could have ended.
            Side::Server => ended.cause == Cause::ServerAborted && matches!(ended.phase, Phase::Headers | Phase::Data),
        })
    }
}

/// The code that the peer gave the stream up with.
fn reset_code(stream: &Http2Stream) -> Option<i64> {
    match stream.peer_abort()? {
        PeerAbort::Reset(ErrorCode(code)) => Some(code.into()),
        PeerAbort::Lost => None,
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn tcp(stream: &Stream, figure: TcpFigure) -> Option<i64> {
    let info = stream::tcp_info(stream.socket()).ok()?;
    Some(match figure {
        TcpFigure::Rtt => info.rtt.into(),
        TcpFigure::RttVariance => info.rtt_variance.into(),
        TcpFigure::Unacked => info.unacked.into(),
        TcpFigure::Sacked => info.sacked.into(),
        TcpFigure::Lost => info.lost.into(),
        TcpFigure::Retransmits => info.retransmits.into(),
        TcpFigure::Fackets => info.fackets.into(),
        TcpFigure::Reordering => info.reordering.into(),
    })
}
