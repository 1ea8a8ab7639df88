//! Connections on their way to the process that has taken over: what they are as plain data. Nothing in here reads or writes a connection.
//!
//! ```text
//!   a core                             the thread of the change path            a core of the other process
//!   Client ──▶ Departure ──────────▶   offers, and gives or gets back   ─────▶   Arrival ──▶ Client
//!     ◀───────────────────── Arrival ◀──┘ refused: it stays
//! ```

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use baton_http::ChunkPosition;
use baton_http::{Limits, Parsed, RequestHead, Version};
pub use baton_http2::{Config as Http2Config, Connection as Http2Protocol, Role as Http2Role};
use baton_model::Server;
use baton_rules::{Captures, LogLevel, RuleLine, RuleSettings, TrackedCounters, UniqueId, Variables};
use tokio::sync::{Notify, mpsc};

use crate::balance::{ServerState, Slot};
pub use crate::facts::{KeptFacts, KeptHead};
use crate::flow::Active;
pub use crate::flow::{Body, FlowState};
use crate::generation::{BackendPlan, ListenerPlan};
use crate::http2_server::Http2Server;
pub use crate::server_connection::{IdleServer, IdleServerState, ServerTerms};
use crate::server_connection::{ServerConnection, ServerExit};
use crate::state::CounterBlock;
pub use crate::state::{MoveCount, MoveFigures, StayReason};
pub use crate::stream::{MovedBytes, MovedTls};
pub use crate::transport::Http2State;
use crate::upstream::Agreed;
/// Which end of TLS this is.
pub use baton_records::Role as TlsRole;

/// A client's connection as data, between two requests or with a tunnel.
#[derive(Clone, Debug)]
pub struct IdleClient {
    /// The frontend that it came in by.
    pub frontend: Arc<str>,
    /// The client's address, or what a PROXY header says it is; `None` on unix sockets.
    pub source: Option<SocketAddr>,
    /// The address that it connected to, where it is known already, or not that of the socket.
    pub destination: Option<Option<SocketAddr>>,
    /// It began with a PROXY header.
    pub has_proxy_header: bool,
    /// The values with types in that header, as they came.
    pub proxy_values: Option<Vec<u8>>,
    /// When it was accepted, or its handshakes were done.
    pub accepted: Instant,
    /// How long its handshakes took.
    pub handshake_ms: u32,
    /// Requests that were begun.
    pub requests: u32,
    /// When the last one ended, after `accepted`.
    pub rested_ms: u32,
    /// When the next one must have begun.
    pub due: Option<Instant>,
    /// What there is to know of HTTP/2; `None`: it is not spoken.
    pub http2: Option<Box<Http2State>>,
    /// The request whose head has begun to come; `None`: none has.
    pub head: Option<Box<BegunHead>>,
}

/// A part of a request's head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BegunHead {
    /// What has come of it.
    pub input: Vec<u8>,
    /// When it began.
    pub began: Instant,
}

/// A session in `mode tcp`, a tunnel of HTTP, or a request in flight. Its two sockets, and its place at the server, belong to whoever has it.
#[derive(Debug)]
pub struct MovedTunnel {
    /// What is known of it.
    pub state: TunnelState,
    /// The server's socket.
    pub socket: OwnedFd,
    /// TLS with the server.
    pub tls: Option<Box<MovedTls>>,
    /// Its place at the server.
    pub slot: Slot,
}

/// A session in `mode tcp`, a tunnel of HTTP or a request in flight, as data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TunnelState {
    /// Its backend.
    pub backend: Arc<str>,
    /// Its server.
    pub server: Arc<str>,
    /// What the client sends.
    pub up: PumpState,
    /// What the server sends.
    pub down: PumpState,
    /// When the client last did something, and the server.
    pub active: [Activity; 2],
    /// What its log line will have.
    pub facts: KeptFacts,
    /// The request in flight, of which both directions are; `None`: bytes both ways.
    pub request: Option<Box<InFlightRequest>>,
}

/// What rules have left in a session. It belongs to whoever has the connection: entries of stick tables count it as a current one.
#[derive(Debug, Default)]
pub struct SessionState {
    /// Variables of scope `sess`.
    pub variables: Variables,
    /// Entries of stick tables that it tracks until it ends.
    pub tracked: TrackedCounters,
    /// What they have left in its request: in that of its tunnel, or in the first one, which is still to come.
    pub request: Option<Box<RequestState>>,
}

/// What rules have left in a request, or in a connection in `mode tcp`.
#[derive(Debug, Default)]
pub struct RequestState {
    /// Entries of stick tables that are tracked.
    pub tracked: TrackedCounters,
    /// Variables of the scopes `txn`, `req` and `res`.
    pub variables: Variables,
    /// What was captured.
    pub captures: Captures,
    /// Its unique ID, if it was asked for.
    pub unique_id: UniqueId,
    /// What `set-log-level` asked for.
    pub log_level: Option<LogLevel>,
    /// The last rule that ended a rule set.
    pub last_rule: Option<RuleLine>,
    /// What else was set.
    pub settings: RuleSettings,
    /// When its head began to come, in another process.
    pub began: Option<Instant>,
}

impl RequestState {
    /// Whether rules have left nothing.
    pub fn is_empty(&self) -> bool {
        let RequestState { tracked, variables, captures, unique_id, log_level, last_rule, settings, began: _ } = self;
        tracked.is_empty()
            && variables.is_empty()
            && *captures == Captures::default()
            && !unique_id.is_made()
            && log_level.is_none()
            && last_rule.is_none()
            && settings.values().is_none()
    }
}

impl SessionState {
    /// Why it stays where the other process does not take it.
    pub fn reason_to_stay(&self) -> StayReason {
        let is_tracked = !self.tracked.is_empty() || self.request.as_ref().is_some_and(|left| !left.tracked.is_empty());
        if is_tracked { StayReason::Tracked } else { StayReason::Variables }
    }
}

/// Whether the server was wanted by a cookie, whether no cookie is given, and the dates of the one that was followed: the last and the first.
pub type KeptPersistence = (bool, bool, Option<(Option<u32>, Option<u32>)>);

/// A request in flight that was sent on: a relay of two messages, as data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InFlightRequest {
    /// Its head as HTTP/1, as rules have made it.
    pub head: Vec<u8>,
    /// The client wants the end of the connection: `close`.
    pub wants_close: bool,
    /// The client wants the connection kept: `keep-alive`.
    pub wants_kept: bool,
    /// The client must not be kept whatever it wants.
    pub must_close: bool,
    /// It on its way to the server.
    pub upload: FlowState,
    /// Bytes of its head at the front of what is composed.
    pub up_head: usize,
    /// Where the line with the server's name is in that.
    pub server_line: (usize, usize),
    /// When it was sent on.
    pub began: Instant,
    /// It went over a connection that had carried another one.
    pub is_reused: bool,
    /// A rule forbids to send it again.
    pub no_retry: bool,
    /// What the response's cookie depends on: the server was wanted, no cookie is given, and the dates of the one that was followed.
    pub persistence: KeptPersistence,
    /// A direction was given up: the server takes no more of the request.
    pub is_given_up: bool,
    /// What its connection to the server may carry after it; `None`: nothing.
    pub server: Option<ReusableServer>,
    /// Its response.
    pub response: ResponseState,
}

/// What there is to know of a server's connection that may carry other requests after this one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReusableServer {
    /// By what it was opened.
    pub terms: ServerTerms,
    /// The name that was asked for.
    pub name: Option<Box<str>>,
    /// Requests that it has carried before.
    pub requests: u32,
}

/// How far the response to a request is that has moved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ResponseState {
    /// Its head is waited for: so much of it is there.
    Awaited(Vec<u8>),
    /// Its head was sent, or is about to be.
    Passed {
        /// The response on its way to the client.
        download: FlowState,
        /// The head said that there is no body.
        is_empty: bool,
        /// The client's connection stays for another request.
        keep: bool,
    },
}

/// The most bytes that go with a request in flight or a tunnel: a head, and what was read and is not written. One that has more stays until
/// those are written.
pub const HELD_MAX: usize = 512 * 1024;

/// One direction.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PumpState {
    /// What was read and is not written.
    pub held: Vec<u8>,
    /// Bytes so far.
    pub moved: u64,
    /// The sender has ended it.
    pub ended: bool,
    /// The receiver was told so.
    pub shut: bool,
}

/// When one side of a tunnel last did something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Activity {
    /// It sent something, or we began to listen to it.
    pub read: Instant,
    /// It took something, or something began to wait for it.
    pub written: Instant,
}

impl Activity {
    /// Of the client and the server, by the two directions between them.
    pub fn of(up: Active, down: Active) -> [Activity; 2] {
        [Activity { read: up.from, written: down.to }, Activity { read: down.from, written: up.to }]
    }

    /// The two directions.
    pub fn directions([client, server]: [Activity; 2]) -> (Active, Active) {
        (Active { from: client.read, to: server.written }, Active { from: server.read, to: client.written })
    }
}

/// A connection that has left its core.
#[derive(Debug)]
pub struct Departure {
    /// What it is.
    pub client: IdleClient,
    /// Its socket. What has arrived and was not read is in there.
    pub socket: OwnedFd,
    /// TLS with the client.
    pub tls: Option<Box<MovedTls>>,
    /// The listener that accepted it.
    pub listener: Arc<ListenerPlan>,
    /// The core that it has left.
    pub core: usize,
    /// Counts it as open meanwhile.
    pub counted: InTransit,
    /// Counts it among those on their way, since it was sent off.
    pub on_way: Option<OnWay>,
    /// Its session with a server; `None`: it is between two requests.
    pub tunnel: Option<Box<MovedTunnel>>,
    /// What rules have left in it; `None`: nothing.
    pub left: Option<Box<SessionState>>,
}

/// A connection that comes to a core: from another process, or back.
#[derive(Debug)]
pub struct Arrival {
    /// What it is.
    pub client: IdleClient,
    /// Its socket.
    pub socket: OwnedFd,
    /// TLS with the client.
    pub tls: Option<Box<MovedTls>>,
    /// The listener that it belongs to.
    pub listener: Arc<ListenerPlan>,
    /// It comes back, and is to stay.
    pub stays: Option<StayReason>,
    /// Counts it as open until it is one of the core's.
    pub counted: InTransit,
    /// Its session with a server; `None`: it is between two requests.
    pub tunnel: Option<Box<MovedTunnel>>,
    /// What rules have left in it; `None`: nothing.
    pub left: Option<Box<SessionState>>,
}

/// An idle connection to a server that comes to a core, from another process.
#[derive(Debug)]
pub struct ServerArrival {
    /// The connection.
    pub idle: IdleServer,
    /// Its server here.
    pub server: Arc<ServerState>,
    /// Settings of that by which it may be used.
    pub config: Arc<Server>,
    /// TLS of those.
    pub encryption: Option<Agreed>,
    /// Its backend here.
    pub backend: Arc<BackendPlan>,
    /// The server's counters.
    pub counters: Arc<CounterBlock>,
}

/// The version of a response, as it is spelled in a status line.
pub fn version_text(text: &str) -> Option<&'static str> {
    Version::of(text.as_bytes()).map(Version::text)
}

impl TunnelState {
    /// How many bytes wait in both directions.
    pub fn held(&self) -> usize {
        self.up.held.len() + self.down.held.len()
    }
}

impl InFlightRequest {
    /// How many bytes go with it.
    pub fn held(&self) -> usize {
        let of = |flow: &FlowState| flow.input.len() + flow.out.len();
        let response = match &self.response {
            ResponseState::Awaited(bytes) => bytes.len(),
            ResponseState::Passed { download, .. } => of(download),
        };
        self.head.len() + of(&self.upload) + response
    }
}

/// Whether these bytes are the head of a request.
pub fn is_request_head(head: &[u8]) -> bool {
    read_request_head(&mut RequestHead::new(), head)
}

/// Reads the head of a request that has moved, whatever it was accepted by. False: it is none.
pub(crate) fn read_request_head(request: &mut RequestHead, head: &[u8]) -> bool {
    let limits = Limits { head_bytes: head.len().max(1), headers: head.len() + 2, relaxed: true, http10_payload: true };
    matches!(request.parse(head, &limits), Ok(Parsed::Complete(len)) if len == head.len())
}

impl Departure {
    /// How many bytes go with it that were read and are not written.
    pub fn held(&self) -> usize {
        let Some(tunnel) = &self.tunnel else { return 0 };
        tunnel.state.held() + tunnel.state.request.as_ref().map_or(0, |request| request.held())
    }

    /// TLS with the client, and with its server.
    pub fn tls(&self) -> [Option<&MovedTls>; 2] {
        [self.tls.as_deref(), self.tunnel.as_ref().and_then(|tunnel| tunnel.tls.as_deref())]
    }

    /// It goes back.
    pub fn back(self, reason: StayReason) -> Arrival {
        let Departure { client, socket, tls, listener, core: _, counted, on_way: _, tunnel, left } = self;
        Arrival { client, socket, tls, listener, stays: Some(reason), counted, tunnel, left }
    }
}

/// Counts a connection that no core has at the moment among the open ones of a core: no process ends with connections on their way.
#[derive(Debug)]
pub struct InTransit(Arc<AtomicUsize>);

impl InTransit {
    /// One more of those.
    pub fn count(open: &Arc<AtomicUsize>) -> InTransit {
        open.fetch_add(1, Ordering::Relaxed);
        InTransit(open.clone())
    }
}

impl Drop for InTransit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// No more connections of the process leave while so many are on their way: each of them is served by nobody until it has arrived, and the next
/// process gets all of them at once.
pub const ON_WAY_MIN: usize = 8;
/// So many where the way takes long whatever their number is, as the CPUs are busy with something else.
const ON_WAY_MAX: usize = 128;
/// A way that takes so long is long.
const LONG_WAY: Duration = Duration::from_millis(4);

/// The way to the other process.
#[derive(Debug)]
pub struct Way {
    /// How many connections of clients are on it.
    count: AtomicUsize,
    /// How many there may be.
    most: AtomicUsize,
    /// Whoever waits until there are fewer, one at a time.
    fewer: Notify,
}

impl Default for Way {
    fn default() -> Way {
        Way { count: AtomicUsize::new(0), most: AtomicUsize::new(ON_WAY_MIN), fewer: Notify::new() }
    }
}

impl Way {
    /// It took some connections so long. Twice as many go at a time when that is long, and half as many when it is not.
    pub fn took(&self, time: Duration) {
        let most = self.most.load(Ordering::Relaxed);
        let next = if time >= LONG_WAY { (most * 2).min(ON_WAY_MAX) } else { (most / 2).max(ON_WAY_MIN) };
        self.most.store(next, Ordering::Relaxed);
    }

    fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < self.most.load(Ordering::Relaxed)
    }
}

/// Counts a connection among those on their way: sent off, and neither given nor back.
#[derive(Debug)]
pub struct OnWay(Arc<Way>);

impl Drop for OnWay {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        if self.0.has_room() {
            self.0.fewer.notify_one();
        }
    }
}

/// Where connections go that leave their core.
#[derive(Clone, Debug)]
pub struct Mover {
    clients: mpsc::UnboundedSender<Departure>,
    /// `None`: the other process takes no connections to servers.
    servers: Option<ServerExit>,
    takes_http2_servers: bool,
    patience: Option<Duration>,
    takes_http2: bool,
    takes_held: bool,
    takes_heads: bool,
    way: Arc<Way>,
}

/// What leaves, as the other process takes it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MoveTerms {
    /// Requests in flight have so long to end before they leave in the middle; `None`: they do not.
    pub patience: Option<Duration>,
    /// Idle connections to servers leave, too.
    pub with_servers: bool,
    /// Those with HTTP/2, too.
    pub with_http2_servers: bool,
    /// Those with TLS, too.
    pub with_tls: bool,
    /// Connections of clients with HTTP/2 leave, too.
    pub with_http2: bool,
    /// Tunnels leave with bytes that wait in them, too, when the patience is over.
    pub with_held: bool,
    /// Connections leave in the middle of a request's head, too.
    pub with_heads: bool,
}

/// Where connections come out that have left their cores.
#[derive(Debug)]
pub struct Moved {
    /// Those of clients.
    pub clients: mpsc::UnboundedReceiver<Departure>,
    /// Idle ones to servers.
    pub servers: mpsc::UnboundedReceiver<IdleServer>,
    /// How many go at a time.
    pub way: Arc<Way>,
}

impl Mover {
    /// A mover, and where its connections come out.
    pub fn new(terms: MoveTerms) -> (Mover, Moved) {
        let ((clients, departures), (idle, servers)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mover = Mover {
            clients,
            servers: terms.with_servers.then(|| ServerExit::new(idle, terms.with_tls)),
            takes_http2_servers: terms.with_servers && terms.with_http2_servers,
            patience: terms.patience,
            takes_http2: terms.with_http2,
            takes_held: terms.with_held,
            takes_heads: terms.with_heads,
            way: Arc::default(),
        };
        let way = mover.way.clone();
        (mover, Moved { clients: departures, servers, way })
    }

    /// How long requests in flight have to end; `None`: as long as they take.
    pub fn patience(&self) -> Option<Duration> {
        self.patience
    }

    /// Whether connections of clients with HTTP/2 leave.
    pub fn takes_http2(&self) -> bool {
        self.takes_http2
    }

    /// Whether tunnels leave with bytes that wait in them.
    pub fn takes_held(&self) -> bool {
        self.takes_held
    }

    /// Whether connections leave in the middle of a request's head.
    pub fn takes_heads(&self) -> bool {
        self.takes_heads
    }

    /// Waits until few connections of clients are on their way, or nobody takes any (more).
    pub async fn room(&self) {
        while !self.has_room() {
            // One that left the way meanwhile has left a permit.
            self.way.fewer.notified().await;
        }
    }

    /// Whoever waited for [room](Self::room) has sent off what there was: it is the turn of the next one, if there is room still.
    pub fn pass_on(&self) {
        if self.has_room() {
            self.way.fewer.notify_one();
        }
    }

    fn has_room(&self) -> bool {
        self.way.has_room() || self.clients.is_closed()
    }

    /// Whether idle connections to servers leave.
    pub fn takes_servers(&self) -> bool {
        self.servers.is_some()
    }

    /// Sends an idle connection to a server off, if it can go. It is closed when nobody takes it.
    pub fn send_server(&self, connection: ServerConnection) {
        if let Some(exit) = &self.servers {
            connection.depart(exit);
        }
    }

    /// Whether idle connections to servers with HTTP/2 leave.
    pub fn takes_http2_servers(&self) -> bool {
        self.takes_http2_servers
    }

    /// Sends an idle connection to a server with HTTP/2 off, once it has nothing more to say. No request may be sent over it any more.
    pub fn send_http2_server(&self, server: &Http2Server) {
        match &self.servers {
            Some(exit) if self.takes_http2_servers => server.leave_by(exit.clone()),
            _ => server.retire(),
        }
    }

    /// Counts one more connection among those on their way.
    pub(crate) fn begin_way(&self) -> OnWay {
        self.way.count.fetch_add(1, Ordering::Relaxed);
        OnWay(self.way.clone())
    }

    /// Sends a connection off; it comes back at once when nobody takes any (more).
    ///
    /// # Errors
    /// Nobody takes it.
    pub fn send(&self, mut departure: Departure) -> Result<(), Box<Departure>> {
        departure.on_way = Some(self.begin_way());
        self.clients.send(departure).map_err(|refused| Box::new(refused.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_go_at_a_time_where_the_way_is_long() {
        let way = Way::default();
        let check = |times: usize, took: Duration, expect: usize| {
            (0..times).for_each(|_| way.took(took));
            assert_eq!(way.most.load(Ordering::Relaxed), expect);
        };
        check(1, LONG_WAY / 2, ON_WAY_MIN);
        check(2, LONG_WAY, 4 * ON_WAY_MIN);
        check(1, LONG_WAY / 2, 2 * ON_WAY_MIN);
        check(10, 9 * LONG_WAY, ON_WAY_MAX);
        check(10, Duration::ZERO, ON_WAY_MIN);
    }

    #[test]
    fn what_is_on_its_way_is_open() {
        let open = Arc::new(AtomicUsize::new(2));
        let counted = InTransit::count(&open);
        assert_eq!(open.load(Ordering::Relaxed), 3);
        drop(counted);
        assert_eq!(open.load(Ordering::Relaxed), 2);
    }
}
