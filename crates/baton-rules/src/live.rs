//! What rules may ask about the process as it is at that moment: proxies, servers, connections. The crate that serves requests knows
//! it. Nothing is looked up before a rule asks, so that rules without such a question pay nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use baton_tables::{Now, Table};

/// Answers rules. `None`: there is no such proxy, server or connection (any more), or it has no such figure.
pub trait LiveState {
    /// A figure.
    fn figure(&self, figure: Figure<'_>) -> Option<i64>;

    /// An end of a connection, whatever rules made of `src` and `dst`; without a connection there is none.
    fn address(&self, _endpoint: Endpoint) -> Option<SocketAddr> {
        None
    }

    /// Whether this is an address of the system.
    fn is_local(&self, address: IpAddr) -> bool;

    /// The value of this type that came with the PROXY header of the client's connection; without a client there is none.
    fn proxy_header_value(&self, _kind: u8) -> Option<&[u8]> {
        None
    }

    /// The name of the frontend's `default_backend`; without a frontend there is none.
    fn default_backend(&self) -> Option<&str> {
        None
    }

    /// The stick table of that name.
    fn table(&self, name: &str) -> Option<Arc<Table>>;

    /// The time of stick tables.
    fn table_now(&self) -> Now;
}

/// A number, and whose it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Figure<'n> {
    /// Of the frontend of that name.
    Frontend(&'n str, FrontendFigure),
    /// Of the backend of that name.
    Backend(&'n str, BackendFigure),
    /// Of a server: the names of its backend and of itself.
    Server(&'n str, &'n str, ServerFigure),
    /// Of the process.
    Process(ProcessFigure),
    /// Of this request, or of this connection in `mode tcp`.
    Exchange(ExchangeFigure),
    /// What the kernel measured of a TCP connection.
    Tcp(Side, TcpFigure),
    /// Of a connection.
    Connection(Side, ConnectionFigure),
}

/// A figure of a frontend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrontendFigure {
    /// Connections now.
    Connections,
    /// Requests in the last second.
    RequestRate,
    /// Connections that came in the last second.
    SessionRate,
    /// `timeout client`, in milliseconds.
    ClientTimeout,
}

/// A figure of a backend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BackendFigure {
    /// Sessions now.
    Connections,
    /// Connections that its usable servers could still take; -1: one of them has no `maxconn`.
    ConnectionsFree,
    /// Connections and places in queues that are free; -1: a server has no `maxconn` or no `maxqueue`.
    Slots,
    /// Sessions that came in the last second.
    SessionRate,
    /// Requests in its queue and those of its servers.
    Queued,
    /// Servers that requests may be sent to.
    UsableServers,
    /// `timeout server`, in milliseconds.
    ServerTimeout,
    /// `timeout tunnel`, in milliseconds.
    TunnelTimeout,
}

/// A figure of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerFigure {
    /// Its `id`.
    Id,
    /// Connections now.
    Connections,
    /// Connections that it could still take; -1: it has no `maxconn`.
    ConnectionsFree,
    /// 1: it is up and not in maintenance.
    IsUp,
    /// Requests in its queue.
    Queued,
    /// Sessions that came in the last second.
    SessionRate,
    /// Its weight in use, which a slow start lowers.
    Weight,
    /// The weight of the file.
    InitialWeight,
    /// The weight as an operator or an agent set it.
    UserWeight,
}

/// A figure of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProcessFigure {
    /// The thread that evaluates, from 0.
    Thread,
    /// Threads that serve clients.
    Threads,
    /// 1: a graceful stop is under way.
    IsStopping,
    /// Connections of clients now.
    Connections,
}

/// A figure of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExchangeFigure {
    /// Connections of the listening address now.
    ListenerConnections,
    /// `timeout client` in force, in milliseconds.
    ClientTimeout,
    /// `timeout server` in force, in milliseconds.
    ServerTimeout,
    /// `timeout tunnel` in force, in milliseconds.
    TunnelTimeout,
    /// What `set-priority-class` set.
    PriorityClass,
    /// What `set-priority-offset` set.
    PriorityOffset,
    /// The `id` of the chosen server.
    ServerId,
}

/// Which connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The client's.
    Client,
    /// The one to the server.
    Server,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// The client's end of its connection, whatever a PROXY header says.
    ClientSource,
    /// Our end of the client's connection, whatever a PROXY header says.
    ClientDestination,
    /// Our end of the server's connection.
    ServerSource,
    /// The server's end.
    ServerDestination,
}

/// A figure of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionFigure {
    /// The number of the error that ended it (the list is in the manual at `fc_err_str`); 0: none.
    Error,
    /// The major version of HTTP on it.
    HttpMajor,
    /// 1: it began with a PROXY header.
    HasProxyHeader,
    /// Oddities that the peer has sent, as `tune.h2.fe.glitches-threshold` counts them.
    Glitches,
    /// The stream of the exchange in HTTP/2, the number of its request in HTTP/1, 0 without HTTP.
    Stream,
    /// Streams that are open on it; without HTTP/2 1 if there is an exchange.
    Streams,
    /// The most streams that may be open on it, as both sides have announced it; 1 without HTTP/2.
    StreamsMax,
    /// 1: the peer ended the exchange before its time.
    IsAborted,
    /// The code that the peer reset the stream with; none without a reset.
    ResetCode,
}

/// A figure of TCP_INFO.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TcpFigure {
    /// Round-trip time in microseconds.
    Rtt,
    /// Its variance in microseconds.
    RttVariance,
    /// Segments that were not acknowledged yet.
    Unacked,
    /// Segments that were acknowledged selectively.
    Sacked,
    /// Segments that are taken for lost.
    Lost,
    /// Retransmissions of the segment that is waited for.
    Retransmits,
    /// Segments of forward acknowledgement; Linux has not counted them since 4.15.
    Fackets,
    /// By how much segments change their order.
    Reordering,
}
