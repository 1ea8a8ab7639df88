//! What outlives a configuration: counters, balancing state, and what operators set, keyed by name.
//!
//! Continuity needs no set-up because nothing here belongs to one configuration: a reload looks the
//! names up and finds what was there. Each core counts for itself, readers add the cores up.

mod blocks;
mod limits;
mod measured;
mod moves;
mod server_plans;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use baton_kernel::cells::CellMemory;
use baton_kernel::process;
use baton_model::{Overrides, Proxy, Server};
use baton_rules::ProcessVariables;
use baton_tables::{Tables, Timeline};
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::balance::BackendState;
use crate::captures::{CaptureCount, LastCapture};
use crate::desk::ServiceDesk;
use crate::names::NameDesk;
use crate::sums::ProcessSums;
use crate::upstream::ServerTlsContext;

pub use self::blocks::{CoreCounters, Counted, CountedMemory, CounterBlock, read_counted};
pub use self::limits::{Limit, ProcessLimits};
pub use self::measured::{MeasuredRate, MeasuredRates};
pub use self::moves::{MoveCount, MoveFigures, StayReason};
pub use self::server_plans::ServerPlans;

/// Things by name. The names are the configuration's, of which nobody makes up such that collide; that a request's word may be
/// looked up adds none.
pub type ByName<T> = HashMap<Arc<str>, T, FxBuildHasher>;

/// A listening address for as long as it is open, whatever frontend it serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// The figures that are counted, in the order of HAProxy's statistics (management manual, 9.1 "CSV format").
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum Counter {
    /// `stot`: sessions.
    Sessions,
    /// `bin`: bytes from the client's side.
    BytesIn,
    /// `bout`: bytes to the client's side.
    BytesOut,
    /// `dreq`: requests denied by a rule.
    DeniedRequests,
    /// `dresp`: responses denied by a rule.
    DeniedResponses,
    /// `dcon`: connections that `tcp-request connection` rejected.
    DeniedConnections,
    /// `dses`: sessions that `tcp-request session` rejected.
    DeniedSessions,
    /// `intercepted`: requests that the frontend answered itself: its rules, redirects, the monitor.
    Intercepted,
    /// `eint`: errors of our own.
    InternalErrors,
    /// `ereq`: bad requests, early aborts, client timeouts before the head was complete.
    RequestErrors,
    /// `econ`: failed connections to servers.
    ConnectErrors,
    /// `eresp`: failed responses.
    ResponseErrors,
    /// `wretr`: retried connections.
    Retries,
    /// `wredis`: redispatches to another server.
    Redispatches,
    /// `wrew`: rewrites by rules that could not be sent.
    FailedRewrites,
    /// `hrsp_1xx`.
    Responses1xx,
    /// `hrsp_2xx`.
    Responses2xx,
    /// `hrsp_3xx`.
    Responses3xx,
    /// `hrsp_4xx`.
    Responses4xx,
    /// `hrsp_5xx`.
    Responses5xx,
    /// `hrsp_other`.
    ResponsesOther,
    /// `req_tot`: HTTP requests.
    Requests,
    /// `cli_abrt`: transfers the client gave up.
    ClientAborts,
    /// `srv_abrt`: transfers the server gave up.
    ServerAborts,
    /// `lbtot`: times a server was chosen by balancing.
    Chosen,
    /// `connect`: connections begun to a server.
    Connects,
    /// `reuse`: requests sent over an idle connection.
    Reuses,
    /// Connections counted at accept.
    Connections,
    /// `ssl_sess`: TLS sessions agreed on with clients.
    TlsSessions,
    /// `ssl_reused_sess`: those of them that went on with what an earlier connection had agreed on.
    TlsResumed,
    /// `ssl_failed_handshake`: clients with which there was no agreement.
    TlsFailures,
    /// `h2_total_connections`: connections that spoke HTTP/2.
    Http2Connections,
    /// `h2_backend_total_streams`: their requests.
    Http2Streams,
    /// `h2_headers_rcvd`: HEADERS frames.
    Http2Headers,
    /// `h2_data_rcvd`: DATA frames.
    Http2Data,
    /// `h2_settings_rcvd`: SETTINGS frames.
    Http2Settings,
    /// `h2_rst_stream_rcvd`: RST_STREAM frames.
    Http2Resets,
    /// `h2_goaway_rcvd`: GOAWAY frames.
    Http2GoAways,
    /// `h2_detected_conn_protocol_errors`: connections that clients ended by violating the protocol.
    Http2ConnectionErrors,
    /// `h2_detected_strm_protocol_errors`: streams that clients ended so.
    Http2StreamErrors,
    /// `h2_rst_stream_resp`: RST_STREAM frames that we sent.
    Http2ResetsSent,
    /// `h2_goaway_resp`: GOAWAY frames that we sent.
    Http2GoAwaysSent,
}

const COUNTERS: usize = Counter::Http2GoAwaysSent as usize + 1;

impl Counter {
    /// All of them, each with the name under which it goes from one process to the next: a name never changes its meaning.
    /// Where HAProxy's CSV has a column, it is that column's name.
    pub const NAMED: [(Counter, &str); COUNTERS] = [
        (Counter::Sessions, "stot"),
        (Counter::BytesIn, "bin"),
        (Counter::BytesOut, "bout"),
        (Counter::DeniedRequests, "dreq"),
        (Counter::DeniedResponses, "dresp"),
        (Counter::DeniedConnections, "dcon"),
        (Counter::DeniedSessions, "dses"),
        (Counter::Intercepted, "intercepted"),
        (Counter::InternalErrors, "eint"),
        (Counter::RequestErrors, "ereq"),
        (Counter::ConnectErrors, "econ"),
        (Counter::ResponseErrors, "eresp"),
        (Counter::Retries, "wretr"),
        (Counter::Redispatches, "wredis"),
        (Counter::FailedRewrites, "wrew"),
        (Counter::Responses1xx, "hrsp_1xx"),
        (Counter::Responses2xx, "hrsp_2xx"),
        (Counter::Responses3xx, "hrsp_3xx"),
        (Counter::Responses4xx, "hrsp_4xx"),
        (Counter::Responses5xx, "hrsp_5xx"),
        (Counter::ResponsesOther, "hrsp_other"),
        (Counter::Requests, "req_tot"),
        (Counter::ClientAborts, "cli_abrt"),
        (Counter::ServerAborts, "srv_abrt"),
        (Counter::Chosen, "lbtot"),
        (Counter::Connects, "connect"),
        (Counter::Reuses, "reuse"),
        (Counter::Connections, "conn_tot"),
        (Counter::TlsSessions, "ssl_sess"),
        (Counter::TlsResumed, "ssl_reused_sess"),
        (Counter::TlsFailures, "ssl_failed_handshake"),
        (Counter::Http2Connections, "h2_total_connections"),
        (Counter::Http2Streams, "h2_backend_total_streams"),
        (Counter::Http2Headers, "h2_headers_rcvd"),
        (Counter::Http2Data, "h2_data_rcvd"),
        (Counter::Http2Settings, "h2_settings_rcvd"),
        (Counter::Http2Resets, "h2_rst_stream_rcvd"),
        (Counter::Http2GoAways, "h2_goaway_rcvd"),
        (Counter::Http2ConnectionErrors, "h2_detected_conn_protocol_errors"),
        (Counter::Http2StreamErrors, "h2_detected_strm_protocol_errors"),
        (Counter::Http2ResetsSent, "h2_rst_stream_resp"),
        (Counter::Http2GoAwaysSent, "h2_goaway_resp"),
    ];

    /// Its name, see [`Counter::NAMED`].
    pub fn name(self) -> &'static str {
        Counter::NAMED[self as usize].1
    }
}

/// A frontend's figures.
#[derive(Debug)]
pub struct FrontendState {
    /// Its name.
    pub name: Arc<str>,
    /// What it counted.
    pub counters: CounterBlock,
    /// Connections open now; written by all cores at accept and close.
    pub open: AtomicI64,
    /// The most that were open at once.
    pub open_max: AtomicI64,
    /// Those of them that speak HTTP/2.
    pub http2_open: AtomicI64,
    /// Streams of these that are in work.
    pub http2_streams: AtomicI64,
    /// Connections accepted in the current second (`rate-limit sessions`).
    pub rate: Rate,
    /// Told when a connection closes: accepting may go on if the frontend was full.
    pub freed: tokio::sync::Notify,
    /// `maxconn` as an operator set it.
    pub maxconn: Limit,
    /// The last malformed request.
    pub malformed: LastCapture,
    /// Log lines written.
    pub lines: LineCount,
    service: AtomicU8,
}

/// Log lines of a frontend (`%lc`). Each core counts its own.
#[derive(Debug)]
pub struct LineCount(Box<[OneCore]>);

/// In a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OneCore(AtomicU64);

impl LineCount {
    fn new(cores: usize) -> LineCount {
        LineCount((0..cores).map(|_| OneCore::default()).collect())
    }

    /// One more, written by this core.
    pub fn add(&self, core: usize) {
        if let Some(OneCore(lines)) = self.0.get(core) {
            // Nobody else writes there.
            lines.store(lines.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Those of all cores.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|OneCore(lines)| lines.load(Ordering::Relaxed)).sum()
    }
}

/// Whether a frontend lets clients in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FrontendService {
    /// It does.
    #[default]
    Open,
    /// An operator has disabled it for a while.
    Paused,
    /// An operator has shut it down until the next reload.
    Stopped,
}

impl FrontendState {
    /// Whether it lets clients in, as operators said.
    pub fn service(&self) -> FrontendService {
        match self.service.load(Ordering::Relaxed) {
            0 => FrontendService::Open,
            1 => FrontendService::Paused,
            _ => FrontendService::Stopped,
        }
    }

    /// Notes it. For the change path, which opens and closes the addresses.
    pub fn set_service(&self, service: FrontendService) {
        self.service.store(service as u8, Ordering::Relaxed);
    }
}

/// A listening address's figures. Counted with `option socket-stats` only, but for the connections that are open.
#[derive(Debug)]
pub struct ListenerState {
    /// Connections accepted on it and still open (`maxconn` of the `bind`).
    pub open: AtomicI64,
    /// The most that were open at once.
    pub open_max: AtomicI64,
    /// What it counted.
    pub counters: CounterBlock,
}

/// Counts events by the second, from all cores.
#[derive(Debug, Default)]
pub struct Rate(AtomicU64);

impl Rate {
    /// How many there were in this second of the process's life.
    pub fn count(&self, second: u64) -> u64 {
        let value = self.0.load(Ordering::Relaxed);
        if value >> 32 == second & 0xffff_ffff { value & 0xffff_ffff } else { 0 }
    }

    /// One more.
    pub fn add(&self, second: u64) {
        let next = |_| Some((second << 32) | (self.count(second) + 1).min(0xffff_ffff));
        // The closure never refuses.
        #[allow(deprecated, reason = "its new name, try_update, is younger than Rust 1.88")]
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// TLS with clients, as `show info` counts it for the whole process. A handshake costs so much more than these that all cores
/// share them.
#[derive(Debug, Default)]
pub struct TlsFigures {
    /// `CurrSslConns`: connections at addresses with TLS now, from their accept on, for `maxsslconn`.
    pub open: AtomicI64,
    /// How many were accepted in this second, counted for `maxsslrate` only.
    pub rate: Rate,
    /// Full handshakes completed, for `SslFrontendKeyRate`.
    pub full: AtomicU64,
    /// Handshakes completed that took an earlier session up again, for `SslFrontendSessionReuse_pct`.
    pub resumed: AtomicU64,
}

/// A server of a generation.
#[derive(Debug)]
pub struct ServerPlan {
    /// What was asked.
    pub server: Arc<Server>,
    /// Traffic figures.
    pub counters: Arc<CounterBlock>,
    /// TLS with it, for traffic or for checks alone.
    pub encryption: Option<Arc<ServerTlsContext>>,
}

/// A backend's and its servers' traffic figures; what the balancer needs is in [`BackendState`].
#[derive(Debug)]
pub struct BackendFigures {
    /// The backend's name.
    pub name: Arc<str>,
    /// What the backend counted.
    pub counters: CounterBlock,
    /// Sessions (requests in `mode http`) of this backend now.
    pub open: AtomicI64,
    /// The most at once.
    pub open_max: AtomicI64,
    /// Connections to its servers that speak HTTP/2.
    pub http2_open: AtomicI64,
    /// Requests in work on them.
    pub http2_streams: AtomicI64,
    /// The last malformed response.
    pub malformed: LastCapture,
    servers: Mutex<Arc<ServerPlans>>,
    memory: Arc<CellMemory>,
    cores: usize,
}

impl BackendFigures {
    /// Sessions that were begun: those that ended were counted, the others are open.
    pub fn begun(&self) -> u64 {
        let open = u64::try_from(self.open.load(Ordering::Relaxed)).unwrap_or_default();
        self.counters.grown(Counter::Sessions).wrapping_add(open)
    }

    /// The counters of the server of that name if it is in use, else new ones that are not registered yet: preparing leaves
    /// no trace.
    pub fn server(&self, name: &str) -> Arc<CounterBlock> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = servers.get(name).map(|server| Arc::clone(&server.counters));
        drop(servers);
        let of = || Counted::Server(Arc::clone(&self.name), name.into());
        found.unwrap_or_else(|| Arc::new(CounterBlock::new(&self.memory, of(), self.cores)))
    }

    /// Registers the counters of these servers and forgets all others, so that names that change with each reload do not pile
    /// up.
    pub(crate) fn keep(&self, servers: &Arc<ServerPlans>) {
        *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(servers);
    }
}

/// Everything that is keyed by name and survives reloads.
#[derive(Debug)]
pub struct Registry {
    cores: usize,
    /// Where everything is counted.
    memory: Arc<CellMemory>,
    /// When the process began.
    pub started: Instant,
    /// Connections of the whole process, for the global `maxconn`.
    pub open: AtomicI64,
    /// Connections accepted in the current second by the whole process, counted for `maxconnrate` only.
    pub rate: Rate,
    /// Pipes of the whole process, for `maxpipes`.
    pub pipes: Arc<AtomicUsize>,
    /// Requests that Baton answers itself, for the change path's thread.
    pub desk: ServiceDesk,
    /// Names whose addresses rules ask for, for the change path's thread.
    pub names: NameDesk,
    /// TLS with clients.
    pub tls: TlsFigures,
    /// Limits of the process as operators set them.
    pub limits: ProcessLimits,
    /// Sessions begun in the current second, counted while there is a limit.
    pub session_rate: Rate,
    /// Malformed messages so far.
    pub captures: CaptureCount,
    /// Connections that came from another process, or went there.
    pub moves: Arc<MoveFigures>,
    /// Sums of the process that no proxy has.
    pub sums: Arc<ProcessSums>,
    /// Stick tables.
    pub tables: Tables,
    /// Their time.
    pub timeline: Timeline,
    /// Variables of the process.
    pub variables: ProcessVariables,
    inner: Mutex<Names>,
    /// What operators set at run time. Written by the change path alone.
    overrides: Mutex<Arc<Overrides>>,
}

#[derive(Debug, Default)]
struct Names {
    frontends: ByName<Arc<FrontendState>>,
    backends: ByName<(Arc<BackendState>, Arc<BackendFigures>)>,
    listeners: HashMap<ListenerId, Arc<ListenerState>>,
}

impl Registry {
    /// An empty registry for a process of `cores` cores, which nobody else reads.
    pub fn new(cores: usize, now: Instant) -> Registry {
        Registry::counting_in(Arc::new(CellMemory::private()), cores, now)
    }

    /// An empty registry that counts in `memory`.
    pub fn counting_in(memory: Arc<CellMemory>, cores: usize, now: Instant) -> Registry {
        let sums = Arc::new(ProcessSums::new(&memory, &blocks::layout()));
        Registry {
            cores,
            moves: Arc::new(MoveFigures::new(sums.clone())),
            sums,
            variables: ProcessVariables::default(),
            memory,
            started: now,
            open: AtomicI64::new(0),
            pipes: Arc::default(),
            desk: ServiceDesk::default(),
            names: NameDesk::default(),
            rate: Rate::default(),
            tls: TlsFigures::default(),
            limits: ProcessLimits::default(),
            session_rate: Rate::default(),
            captures: CaptureCount::default(),
            tables: Tables::new(),
            timeline: Timeline::new(now, process::uptime()),
            inner: Mutex::default(),
            overrides: Mutex::default(),
        }
    }

    /// What operators set at run time, as it is now.
    pub fn overrides(&self) -> Arc<Overrides> {
        self.overrides.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what operators set; for the change path, which puts it in force.
    pub fn change_overrides<T>(&self, change: impl FnOnce(&mut Overrides) -> T) -> T {
        change(Arc::make_mut(&mut self.overrides.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Where everything is counted.
    pub fn memory(&self) -> &Arc<CellMemory> {
        &self.memory
    }

    /// The number of cores each block counts for.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The frontend's state if there is one, else a new one that is not registered yet: preparing leaves no trace.
    pub fn frontend(&self, name: &Arc<str>) -> Arc<FrontendState> {
        self.names().frontends.get(name).cloned().unwrap_or_else(|| {
            Arc::new(FrontendState {
                name: name.clone(),
                counters: CounterBlock::new(&self.memory, Counted::Frontend(name.clone()), self.cores),
                open: AtomicI64::new(0),
                open_max: AtomicI64::new(0),
                http2_open: AtomicI64::new(0),
                http2_streams: AtomicI64::new(0),
                rate: Rate::default(),
                freed: tokio::sync::Notify::new(),
                maxconn: Limit::default(),
                malformed: LastCapture::default(),
                lines: LineCount::new(self.cores),
                service: AtomicU8::default(),
            })
        })
    }

    /// The figures of a listener, kept as long as it is open. It was opened as the one of that number in that frontend.
    pub fn listener(&self, id: ListenerId, frontend: &Arc<str>, number: u64) -> Arc<ListenerState> {
        let new = || {
            let counters = CounterBlock::new(&self.memory, Counted::Socket(frontend.clone(), number), self.cores);
            Arc::new(ListenerState { open: AtomicI64::new(0), open_max: AtomicI64::new(0), counters })
        };
        self.names().listeners.entry(id).or_insert_with(new).clone()
    }

    /// The millisecond of the process's life.
    pub fn millisecond(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    /// The second of the process's life.
    pub fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_secs()
    }

    /// The backend's state and figures if there are, else new ones that are not registered yet.
    pub fn backend(&self, proxy: &Arc<Proxy>, now: Instant) -> (Arc<BackendState>, Arc<BackendFigures>) {
        if let Some(found) = self.names().backends.get(&proxy.name) {
            return found.clone();
        }
        let figures = BackendFigures {
            name: proxy.name.clone(),
            counters: CounterBlock::new(&self.memory, Counted::Backend(proxy.name.clone()), self.cores),
            open: AtomicI64::new(0),
            open_max: AtomicI64::new(0),
            http2_open: AtomicI64::new(0),
            http2_streams: AtomicI64::new(0),
            malformed: LastCapture::default(),
            servers: Mutex::default(),
            memory: self.memory.clone(),
            cores: self.cores,
        };
        (BackendState::new(proxy, now), Arc::new(figures))
    }

    /// The registered backend of that name, for health checks and runtime commands.
    pub fn backend_state(&self, name: &str) -> Option<Arc<BackendState>> {
        self.names().backends.get(name).map(|(state, _)| state.clone())
    }

    /// Registers what a generation uses and forgets what none uses any more. Part of the commit: cannot fail.
    pub fn keep<'a>(
        &self,
        listeners: impl Iterator<Item = ListenerId>,
        frontends: impl Iterator<Item = &'a Arc<FrontendState>>,
        backends: impl Iterator<Item = (&'a Arc<BackendState>, &'a Arc<BackendFigures>)>,
    ) {
        let mut names = self.names();
        let open: FxHashSet<ListenerId> = listeners.collect();
        names.listeners.retain(|id, _| open.contains(id));
        names.frontends = frontends.map(|state| (state.name.clone(), state.clone())).collect();
        names.backends =
            backends.map(|(state, figures)| (figures.name.clone(), (state.clone(), figures.clone()))).collect();
    }

    fn names(&self) -> std::sync::MutexGuard<'_, Names> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one more in a gauge and keeps its maximum.
pub(crate) fn enter(open: &AtomicI64, open_max: &AtomicI64) -> i64 {
    let now = open.fetch_add(1, Ordering::Relaxed) + 1;
    if now > open_max.load(Ordering::Relaxed) {
        open_max.fetch_max(now, Ordering::Relaxed);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn a_rate_begins_anew_each_second() {
        let rate = Rate::default();
        rate.add(7);
        rate.add(7);
        assert_eq!((rate.count(7), rate.count(8)), (2, 0));
        rate.add(8);
        assert_eq!((rate.count(7), rate.count(8)), (0, 1));
    }
}
