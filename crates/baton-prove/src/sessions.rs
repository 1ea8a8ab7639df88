//! Sessions held open: WebSockets and plain TCP tunnels to a server that echoes, checked byte for byte.
//!
//! A session is opened once. When it is lost, it stays lost, with its instant and what was lost about it: a client that
//! reconnects would hide what a user with a long-lived connection feels. Sessions either talk at an interval or stay silent
//! until the end; both notice at once when the server closes or says something that nobody asked for.

mod link;
mod tunnel;
mod websocket;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Serialize, Serializer};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep_until, timeout},
};

use crate::{
    failure::micros,
    lane::{Stop, Stopper, WorkerThread},
    sessions::{tunnel::Tunnel, websocket::WebSocket},
    stream::{NotConnected, ServerEndpoint},
    websocket::MESSAGE_MAX,
};

/// The most sessions of one group.
pub const SESSIONS_MAX: usize = 65_536;

/// How long the server may take to close after a session took leave.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// What a session speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// A WebSocket on this path (RFC 6455); a message is one binary message.
    WebSocket {
        /// The request target.
        path: String,
    },
    /// Plain bytes, a running sequence over all messages.
    Tunnel,
}

/// Which sessions to hold open, and how they talk.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The server.
    pub server: ServerEndpoint,
    /// What the sessions speak.
    pub kind: SessionKind,
    /// Headers of a WebSocket's handshake besides its own, as name and value; `Host` among them replaces the server's.
    pub headers: Vec<(String, String)>,
    /// How many sessions.
    pub count: usize,
    /// The time from one message of a session to its next; `None` means that it speaks only at the end.
    pub interval: Option<Duration>,
    /// Bytes of one message, at most [`MESSAGE_MAX`].
    pub message_bytes: usize,
    /// How long opening a session may take, and one message's echo.
    pub timeout: Duration,
}

impl SessionOptions {
    /// One session that sends 64 bytes ten times a second; change the fields from there.
    pub fn new(server: impl Into<ServerEndpoint>, kind: SessionKind) -> SessionOptions {
        SessionOptions {
            server: server.into(),
            kind,
            headers: Vec::new(),
            count: 1,
            interval: Some(Duration::from_millis(100)),
            message_bytes: 64,
            timeout: Duration::from_secs(10),
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        let path = match &self.kind {
            SessionKind::WebSocket { path } => path,
            SessionKind::Tunnel => "/",
        };
        let dirty = |text: &str| text.bytes().any(|byte| byte <= b' ');
        if self.count == 0 || self.count > SESSIONS_MAX {
            return Err("the number of sessions must be between 1 and 65536");
        }
        if self.message_bytes == 0 || self.message_bytes > MESSAGE_MAX {
            return Err("a message must have between 1 and 1048576 bytes");
        }
        if path.is_empty() || dirty(path) || dirty(&self.server.host()) {
            return Err("the path is empty, or the path or the host has a space or a control character in it");
        }
        let broken = |text: &str| text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        if self.headers.iter().any(|(name, value)| name.is_empty() || broken(name) || broken(value)) {
            return Err("a header is empty, or has a line end or a zero byte in it");
        }
        Ok(())
    }
}

/// Why a session was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossKind {
    /// The connection was refused.
    Refused,
    /// TLS did not come to be.
    TlsHandshake,
    /// The server did not agree to the WebSocket, or wrongly.
    Handshake,
    /// The server closed between two messages, a WebSocket also by its close frame, TLS with or without saying so.
    Closed,
    /// The connection was reset between two messages.
    Reset,
    /// The connection was closed or reset in the middle of an echo that had begun.
    Truncated,
    /// Opening or an echo took too long.
    Timeout,
    /// Other bytes came back than were sent, or bytes that nobody asked for.
    WrongEcho,
    /// What came is not the protocol.
    Malformed,
    /// Anything else, mostly a limit of the client's own machine.
    Other,
}

impl LossKind {
    /// The name used in JSON and in tables.
    pub fn name(self) -> &'static str {
        match self {
            LossKind::Refused => "refused",
            LossKind::TlsHandshake => "tls_handshake",
            LossKind::Handshake => "handshake",
            LossKind::Closed => "closed",
            LossKind::Reset => "reset",
            LossKind::Truncated => "truncated",
            LossKind::Timeout => "timeout",
            LossKind::WrongEcho => "wrong_echo",
            LossKind::Malformed => "malformed",
            LossKind::Other => "other",
        }
    }

    fn new(error: &io::Error) -> LossKind {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => LossKind::Refused,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
                LossKind::Reset
            }
            io::ErrorKind::TimedOut => LossKind::Timeout,
            // TLS: the connection has ended without an alert that says so, and what came is not TLS.
            io::ErrorKind::UnexpectedEof => LossKind::Closed,
            io::ErrorKind::InvalidData => LossKind::Malformed,
            _ => LossKind::Other,
        }
    }

    /// The kind of loss when it happens in the middle of an echo.
    fn within_echo(self) -> LossKind {
        match self {
            LossKind::Closed | LossKind::Reset => LossKind::Truncated,
            other => other,
        }
    }
}

impl Serialize for LossKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One lost session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The session's number, from 0.
    pub session: usize,
    /// When, counted from the start of the group (`SessionsResult::started`). JSON: microseconds, `at_us`.
    #[serde(rename = "at_us", serialize_with = "micros")]
    pub at: Duration,
    /// Why.
    pub kind: LossKind,
    /// Messages that had been echoed right before.
    pub messages: u64,
}

/// What became of a group of sessions. `sessions == alive + losses.len()` always holds.
#[derive(Clone, Debug, Serialize)]
pub struct SessionsResult {
    /// When the group started.
    #[serde(skip)]
    pub started: Instant,
    /// Sessions asked for.
    pub sessions: u64,
    /// Sessions that were opened.
    pub opened: u64,
    /// Sessions that lived to the end and had their last message echoed.
    pub alive: u64,
    /// Messages that came back right.
    pub messages: u64,
    /// The lost ones, in the order of their instants.
    pub losses: Vec<Loss>,
}

impl SessionsResult {
    /// Whether no session was lost.
    pub fn is_clean(&self) -> bool {
        self.losses.is_empty()
    }

    /// The losses' kinds that occurred, as `kind count, kind count`; `none` without losses.
    pub fn kinds(&self) -> String {
        let mut counts = BTreeMap::new();
        for loss in &self.losses {
            *counts.entry(loss.kind).or_insert(0_u64) += 1;
        }
        let seen: Vec<String> = counts.iter().map(|(kind, count)| format!("{} {count}", kind.name())).collect();
        if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
    }
}

/// Starts groups of sessions.
#[derive(Debug)]
pub struct Sessions;

impl Sessions {
    /// Opens the sessions on a thread of its own; [`SessionsHandle::ready`] waits until all are open (or lost).
    ///
    /// # Errors
    /// `InvalidInput` for options that cannot be meant (the text says which); otherwise what making the thread says.
    /// A server that is not there is not an error here: its sessions are lost.
    pub fn start(options: SessionOptions) -> io::Result<SessionsHandle> {
        options.validate().map_err(|text| io::Error::new(io::ErrorKind::InvalidInput, text))?;
        let (stopper, stop) = Stopper::new();
        let (settle, settled) = watch::channel(0);
        let count = options.count;
        let live = Arc::new(SessionCounters::default());
        let started = Instant::now();
        let seen = live.clone();
        let lane = WorkerThread::spawn("sessions", move || async move {
            let losses = RefCell::default();
            hold_all(Rc::new(GroupShared { options, live: seen, started, settle, losses }), stop).await
        })?;
        Ok(SessionsHandle { live, settled, count, stopper, lane })
    }
}

/// A group of sessions held open. Dropping it closes them without a result.
#[derive(Debug)]
pub struct SessionsHandle {
    live: Arc<SessionCounters>,
    settled: watch::Receiver<usize>,
    count: usize,
    stopper: Stopper,
    lane: WorkerThread<SessionsResult>,
}

impl SessionsHandle {
    /// Sessions open at this moment.
    pub fn alive(&self) -> u64 {
        self.live.alive.load(Ordering::Relaxed)
    }

    /// Sessions lost so far.
    pub fn lost(&self) -> u64 {
        self.live.lost.load(Ordering::Relaxed)
    }

    /// Messages that came back right so far.
    pub fn messages(&self) -> u64 {
        self.live.messages.load(Ordering::Relaxed)
    }

    /// Waits until every session was opened or lost.
    pub async fn ready(&self) {
        // An error says that the thread has ended, which settles everything.
        let _ = self.settled.clone().wait_for(|settled| *settled >= self.count).await;
    }

    /// Lets each session say one last message, closes them in order and gives the result.
    pub async fn stop(self) -> SessionsResult {
        self.stopper.stop();
        self.lane.join().await
    }
}

/// Counters shown while the sessions live. Written by their thread, read by anybody.
#[derive(Debug, Default)]
struct SessionCounters {
    opened: AtomicU64,
    alive: AtomicU64,
    lost: AtomicU64,
    messages: AtomicU64,
}

/// What the sessions of a group share.
struct GroupShared {
    options: SessionOptions,
    live: Arc<SessionCounters>,
    started: Instant,
    /// How many sessions were opened or lost.
    settle: watch::Sender<usize>,
    losses: RefCell<Vec<Loss>>,
}

async fn hold_all(shared: Rc<GroupShared>, stop: Stop) -> SessionsResult {
    let mut sessions = JoinSet::new();
    for session in 0..shared.options.count {
        sessions.spawn_local(hold(shared.clone(), session, stop.clone()));
    }
    while sessions.join_next().await.is_some() {}

    let mut losses = shared.losses.take();
    losses.sort_by_key(|loss| loss.at);
    let sessions = shared.options.count as u64;
    SessionsResult {
        started: shared.started,
        sessions,
        opened: shared.live.opened.load(Ordering::Relaxed),
        alive: sessions - losses.len() as u64,
        messages: shared.live.messages.load(Ordering::Relaxed),
        losses,
    }
}

/// One session from its opening to its end.
async fn hold(shared: Rc<GroupShared>, session: usize, stop: Stop) {
    let options = &shared.options;
    let mut messages = 0;
    let settled = || shared.settle.send_modify(|settled| *settled += 1);
    let opened =
        timeout(options.timeout, SessionStream::open(options, session as u64)).await.unwrap_or(Err(LossKind::Timeout));
    let outcome = match opened {
        Ok(peer) => {
            shared.live.opened.fetch_add(1, Ordering::Relaxed);
            shared.live.alive.fetch_add(1, Ordering::Relaxed);
            settled();
            let outcome = converse(&shared, session, peer, &mut messages, stop).await;
            shared.live.alive.fetch_sub(1, Ordering::Relaxed);
            outcome
        }
        Err(kind) => {
            settled();
            Err(kind)
        }
    };
    if let Err(kind) = outcome {
        shared.live.lost.fetch_add(1, Ordering::Relaxed);
        shared.losses.borrow_mut().push(Loss { session, at: shared.started.elapsed(), kind, messages });
    }
}

async fn converse(
    shared: &GroupShared,
    session: usize,
    mut peer: SessionStream,
    messages: &mut u64,
    mut stop: Stop,
) -> Result<(), LossKind> {
    let SessionOptions { interval, timeout: limit, count, .. } = shared.options;
    // Spread over the interval, so that they do not all speak at the same moment.
    let mut next = interval.map(|interval| Instant::now() + interval.mul_f64(session as f64 / count as f64));
    loop {
        let time_to_speak = async {
            match next {
                Some(next) => sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        let last = tokio::select! {
            biased;
            lost = peer.watch() => return Err(lost),
            () = stop.asked() => true,
            () = time_to_speak => false,
        };
        timeout(limit, peer.exchange()).await.unwrap_or(Err(LossKind::Timeout))?;
        *messages += 1;
        shared.live.messages.fetch_add(1, Ordering::Relaxed);
        if last {
            // The session is proven to live; how its server takes leave is not judged, except for bytes too many.
            return timeout(CLOSE_WAIT, peer.close()).await.unwrap_or(Ok(()));
        }
        next = next.zip(interval).map(|(next, interval)| (next + interval).max(Instant::now()));
    }
}

/// The two kinds of sessions behind the same four verbs.
enum SessionStream {
    WebSocket(WebSocket),
    Tunnel(Tunnel),
}

impl SessionStream {
    async fn open(options: &SessionOptions, session: u64) -> Result<SessionStream, LossKind> {
        let stream = options.server.connect(None).await.map_err(|error| match error {
            NotConnected::Socket(error) => LossKind::new(&error),
            NotConnected::Tls(_) => LossKind::TlsHandshake,
        })?;
        match &options.kind {
            SessionKind::Tunnel => Ok(SessionStream::Tunnel(Tunnel::new(stream, session, options.message_bytes))),
            SessionKind::WebSocket { path } => {
                let mut fields = String::new();
                if !options.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
                    fields = format!("Host: {}\r\n", options.server.host());
                }
                for (name, value) in &options.headers {
                    fields.extend([name, ": ", value, "\r\n"]);
                }
                Ok(SessionStream::WebSocket(
                    WebSocket::open(stream, path, &fields, session, options.message_bytes).await?,
                ))
            }
        }
    }

    /// Watches a silent session; ends only when it is lost. May be dropped at any time without losing a byte.
    async fn watch(&mut self) -> LossKind {
        match self {
            SessionStream::WebSocket(peer) => peer.watch().await,
            SessionStream::Tunnel(peer) => peer.watch().await,
        }
    }

    /// Sends the next message and checks its echo.
    async fn exchange(&mut self) -> Result<(), LossKind> {
        match self {
            SessionStream::WebSocket(peer) => peer.exchange().await,
            SessionStream::Tunnel(peer) => peer.exchange().await,
        }
    }

    /// Closes in order.
    async fn close(self) -> Result<(), LossKind> {
        match self {
            SessionStream::WebSocket(peer) => peer.close().await,
            SessionStream::Tunnel(peer) => peer.close().await,
        }
    }
}
