//! What is known of a request (or of a connection in `mode tcp`) for its log line and the counters. The stages of the request
//! path note it where it happens; `record/` prints and counts it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_http::{Name, RequestView, ResponseView};
use baton_model::{Mode, Proxy};

use crate::ended::{Cause, Ended};

/// The facts of one exchange: anybody may read what is known, and note by the methods here what happens.
#[derive(Debug)]
pub struct LogFacts(Known);

/// What is known of one exchange, for the log line and the counters. Times that are `None` do not exist: the log has `-1` for them.
#[derive(Debug)]
pub struct Known {
    /// The accept, behind a handshake; of later requests the end of the one before.
    pub started: Instant,
    /// First byte of the request; in `mode tcp` the accept.
    pub began: Instant,
    /// Whether it is the session's first.
    pub is_first: bool,
    /// `TR`: until the head was complete.
    pub request_time: Option<Duration>,
    /// `Tw`: in queues.
    pub queue_time: Option<Duration>,
    /// `Tc`: until the connection was established.
    pub connect_time: Option<Duration>,
    /// `Tr`: until the response's head was complete.
    pub response_time: Option<Duration>,
    /// Status given to the client; 0 is none.
    pub status: u16,
    /// Status of the server's response, whatever rules made of it; 0 is none.
    pub server_status: u16,
    /// Version of the server's response, as it is spelled in a status line.
    pub response_version: Option<&'static str>,
    /// The address of the server that was tried last.
    pub server_address: Option<SocketAddr>,
    /// The address that it was connected from, where a log line or a rule has it.
    pub source_address: Option<SocketAddr>,
    /// What rules made of the request or of its response.
    pub ruled: Option<Ruled>,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client, counted as HAProxy counts `%B`.
    pub bytes_out: u64,
    /// Connection retries.
    pub retries: u32,
    /// Whether a retry went to another server.
    pub redispatched: bool,
    /// Requests that waited in front in the server's queue.
    pub server_queue: usize,
    /// Requests that waited in front in the backend's queue.
    pub backend_queue: usize,
    /// The persistence letters of the log: what the client's cookie was, what was done to the response's.
    pub cookie: [u8; 2],
    /// The backend that was asked for and cannot be used: it is disabled. Only the log names it.
    pub missing: Option<Arc<str>>,
    /// The server that a denied request has a cookie of. Only the log names it.
    pub denied_before: Option<Arc<str>>,
    /// Whether a request head was understood: its line can be logged.
    pub has_request: bool,
    /// The request line as received, kept only where it is logged.
    pub line: Vec<u8>,
    /// The service of Baton's own that responds: what the log line has in the place of a server.
    pub service: Option<&'static str>,
    /// The line was written already (`option logasap`).
    pub logged: bool,
    /// Nothing to log: an idle connection that closed, a monitor's probe.
    pub silent: bool,
}

/// A verdict of rules that is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ruled {
    /// They denied it.
    Denied,
    /// The frontend answered the request itself.
    Intercepted,
}

/// What is known of a session that goes on in another process, at a server: a part of `Known`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptFacts {
    /// The accept, behind a handshake; of later requests the end of the one before.
    pub started: Instant,
    /// First byte of the request; in `mode tcp` the accept.
    pub began: Instant,
    /// Whether it is the session's first.
    pub is_first: bool,
    /// `TR`: until the head was complete.
    pub request_time: Option<Duration>,
    /// `Tw`: in queues.
    pub queue_time: Option<Duration>,
    /// `Tc`: until the connection was established.
    pub connect_time: Option<Duration>,
    /// The address of the server that was tried last.
    pub server_address: Option<SocketAddr>,
    /// The address that it was connected from, where a log line or a rule has it.
    pub source_address: Option<SocketAddr>,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client, counted as HAProxy counts `%B`.
    pub bytes_out: u64,
    /// Connection retries.
    pub retries: u32,
    /// Whether a retry went to another server.
    pub redispatched: bool,
    /// Requests that waited in front in the server's queue.
    pub server_queue: usize,
    /// Requests that waited in front in the backend's queue.
    pub backend_queue: usize,
    /// The persistence letters of the log: what the client's cookie was, what was done to the response's.
    pub cookie: [u8; 2],
    /// The line was written already (`option logasap`).
    pub logged: bool,
    /// Nothing to log: an idle connection that closed, a monitor's probe.
    pub silent: bool,
    /// The request and the response that it began with; `None`: it is one in `mode tcp`.
    pub head: Option<KeptHead>,
}

/// What is known of the request and the response that a tunnel began with: a part of `Known`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptHead {
    /// The request line as received, kept only where it is logged.
    pub line: Vec<u8>,
    /// `Tr`: until the response's head was complete.
    pub response_time: Option<Duration>,
    /// Status given to the client.
    pub status: u16,
    /// Status of the server's response, whatever rules made of it.
    pub server_status: u16,
    /// Version of the server's response, as it is spelled in a status line.
    pub response_version: Option<&'static str>,
}

impl KeptHead {
    /// Longer lines are for processes that know more of sessions.
    pub const LINE_MAX: usize = 4096;
    /// Longer lines are for the process that has them.
    pub const LINE_BYTES_MAX: usize = 1 << 18;
}

/// What a retry does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// Tries the server once more.
    Again,
    /// Goes to another server.
    Elsewhere,
}

impl LogFacts {
    /// Nothing but the time is known. `line` is room for the request line.
    #[inline(always)]
    pub fn new((started, began): (Instant, Instant), is_first: bool, line: Vec<u8>) -> LogFacts {
        LogFacts(Known {
            started,
            began,
            is_first,
            request_time: None,
            queue_time: None,
            connect_time: None,
            response_time: None,
            status: 0,
            server_status: 0,
            response_version: None,
            server_address: None,
            source_address: None,
            ruled: None,
            bytes_in: 0,
            bytes_out: 0,
            retries: 0,
            redispatched: false,
            server_queue: 0,
            backend_queue: 0,
            cookie: *b"--",
            missing: None,
            denied_before: None,
            has_request: false,
            line,
            service: None,
            logged: false,
            silent: false,
        })
    }

    /// What goes on elsewhere; `None`: more is known, of what rules made of it.
    pub fn kept(&self) -> Option<KeptFacts> {
        let Known {
            started,
            began,
            is_first,
            request_time,
            queue_time,
            connect_time,
            response_time,
            status,
            server_status,
            response_version,
            server_address,
            source_address,
            ruled,
            bytes_in,
            bytes_out,
            retries,
            redispatched,
            server_queue,
            backend_queue,
            cookie,
            missing,
            denied_before,
            has_request,
            line,
            service,
            logged,
            silent,
        } = &self.0;
        let is_ruled = ruled.is_some() || missing.is_some() || denied_before.is_some() || service.is_some();
        if is_ruled || line.len() > KeptHead::LINE_BYTES_MAX {
            return None;
        }
        let head = has_request.then(|| KeptHead {
            line: line.clone(),
            response_time: *response_time,
            status: *status,
            server_status: *server_status,
            response_version: *response_version,
        });
        Some(KeptFacts {
            started: *started,
            began: *began,
            is_first: *is_first,
            request_time: *request_time,
            queue_time: *queue_time,
            connect_time: *connect_time,
            server_address: *server_address,
            source_address: *source_address,
            bytes_in: *bytes_in,
            bytes_out: *bytes_out,
            retries: *retries,
            redispatched: *redispatched,
            server_queue: *server_queue,
            backend_queue: *backend_queue,
            cookie: *cookie,
            logged: *logged,
            silent: *silent,
            head,
        })
    }

    /// Of a session that was served elsewhere until now.
    pub fn resumed(kept: KeptFacts) -> LogFacts {
        let LogFacts(mut known) = LogFacts::new((kept.started, kept.began), kept.is_first, Vec::new());
        if let Some(head) = kept.head {
            known.has_request = true;
            known.line = head.line;
            known.response_time = head.response_time;
            known.status = head.status;
            known.server_status = head.server_status;
            known.response_version = head.response_version;
        }
        LogFacts(Known {
            request_time: kept.request_time,
            queue_time: kept.queue_time,
            connect_time: kept.connect_time,
            server_address: kept.server_address,
            source_address: kept.source_address,
            bytes_in: kept.bytes_in,
            bytes_out: kept.bytes_out,
            retries: kept.retries,
            redispatched: kept.redispatched,
            server_queue: kept.server_queue,
            backend_queue: kept.backend_queue,
            cookie: kept.cookie,
            logged: kept.logged,
            silent: kept.silent,
            ..known
        })
    }

    /// From when a request's head may take its time: the first one is waited for from the accept on.
    pub fn due_from(&self) -> Instant {
        if self.0.is_first { self.0.started } else { self.0.began }
    }

    /// It began then, in another process.
    pub fn has_begun(&mut self, began: Instant) {
        self.0.began = began;
    }

    /// The request's head, of `len` bytes, is complete.
    pub fn head_received(&mut self, len: usize, now: Instant) {
        self.0.has_request = true;
        self.0.bytes_in += len as u64;
        self.request_received(now);
    }

    /// Whether `option dontlog-normal` keeps an exchange that ended like this from the log.
    pub fn is_normal(&self, ended: Ended) -> bool {
        matches!(ended.cause, Cause::None | Cause::Local)
            && self.0.retries == 0
            && !self.0.redispatched
            && self.0.status < 500
    }

    /// Whether no request was understood, which is an error of the connection: content rules may reject one before it is.
    pub fn is_malformed(&self, proxy: &Proxy) -> bool {
        proxy.mode == Mode::Http && !self.0.has_request && self.0.ruled.is_none()
    }

    /// Keeps the request line for the log, in room that may be lent.
    pub fn keep_line(&mut self, request: RequestView<'_>, len_max: usize) {
        self.0.line.clear();
        request.write_line(&mut self.0.line);
        self.0.line.truncate(len_max);
    }

    /// Gives back the room for the request line.
    pub fn take_line(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0.line)
    }

    /// What the request had to wait for is there: its head, or a body that was waited for.
    pub fn request_received(&mut self, now: Instant) {
        self.0.request_time = Some(now.saturating_duration_since(self.0.began));
    }

    /// The request has no time of its own: it was refused before HAProxy would have noted one.
    pub fn forget_request_time(&mut self) {
        self.0.request_time = None;
    }

    /// Content rules rejected the request. In a frontend nothing was read of it yet (`of_backend` is false).
    pub fn rejected_as_content(&mut self, of_backend: bool) {
        self.0.has_request = of_backend;
        self.denied();
    }

    /// A rule denied the request or its response.
    pub fn denied(&mut self) {
        self.0.ruled = Some(Ruled::Denied);
    }

    /// The frontend answered the request itself, by denying it if that was noted before.
    pub fn intercepted(&mut self) {
        self.0.ruled.get_or_insert(Ruled::Intercepted);
    }

    /// A service of Baton's own responds, which the log calls so. It has no queue, and nothing to connect to.
    pub fn served_by(&mut self, name: &'static str) {
        self.0.service = Some(name);
        self.placed();
        self.connected(Duration::ZERO);
    }

    /// What the log has in the place of a server where none was chosen.
    pub fn named_server(&self) -> Option<&str> {
        self.0.service.or(self.0.denied_before.as_deref())
    }

    /// Rules denied the request, which would have gone to this server.
    pub fn denied_before(&mut self, server: Arc<str>) {
        self.0.denied_before = Some(server);
    }

    /// A backend was asked for that cannot be used.
    pub fn backend_missing(&mut self, name: Option<Arc<str>>) {
        self.0.missing = name;
        self.0.request_time = None;
    }

    /// The request was held on purpose. HAProxy counts that time as one in a queue, and none as the request's.
    pub fn held(&mut self, time: Duration) {
        self.0.request_time = None;
        self.0.queue_time = Some(time);
    }

    /// The request waits in a queue behind `position` others: in a server's own, or in the backend's.
    pub fn queued(&mut self, of_server: bool, position: usize) {
        *if of_server { &mut self.0.server_queue } else { &mut self.0.backend_queue } = position + 1;
    }

    /// The time in queues, of the last wait.
    pub fn waited(&mut self, time: Duration) {
        self.0.queue_time = Some(time);
    }

    /// There is a place at a server, without any wait if none was noted.
    pub fn placed(&mut self) {
        self.0.queue_time.get_or_insert_default();
    }

    /// A server at this address is tried.
    pub fn tries(&mut self, server: Option<SocketAddr>) {
        self.0.server_address = server;
    }

    /// It was connected from this address.
    pub fn connected_from(&mut self, source: Option<SocketAddr>) {
        self.0.source_address = source;
    }

    /// A connection to the server is there.
    pub fn connected(&mut self, time: Duration) {
        self.0.connect_time = Some(time);
    }

    /// So many retries were made, the last one as said.
    pub fn retried(&mut self, retries: u32, retry: Retry) {
        self.0.retries = retries;
        self.0.redispatched |= retry == Retry::Elsewhere;
    }

    /// No retry can help: the log has all of them.
    pub fn given_up(&mut self, retries: u32) {
        self.0.retries = retries;
    }

    /// The request went to another server than it wanted.
    pub fn redispatched(&mut self) {
        self.0.redispatched = true;
    }

    /// The first persistence letter: what the client's cookie was. The second says that the response got none, until something is
    /// done to it.
    pub fn client_cookie(&mut self, letter: u8) {
        self.0.cookie = [letter, b'N'];
    }

    /// The second persistence letter: what was done to the response's cookie.
    pub fn response_cookie(&mut self, letter: u8) {
        self.0.cookie[1] = letter;
    }

    /// The response's head is complete.
    pub fn response_received(&mut self, time: Duration) {
        self.0.response_time = Some(time);
    }

    /// The server's response has this status, whatever rules make of it.
    pub fn server_said(&mut self, response: ResponseView<'_>) {
        self.0.server_status = response.status();
        self.0.response_version = Some(response.version().text());
    }

    /// A rule holds the server's response back: its time is none.
    pub fn response_held_back(&mut self) {
        self.0.response_time = None;
    }

    /// The response turned out to be invalid before a byte of it was sent: there is none.
    pub fn response_withdrawn(&mut self) {
        self.0.status = 0;
        self.0.bytes_out = 0;
        self.0.response_time = None;
    }

    /// The client gets a response with this status; 0 is none.
    pub fn responds(&mut self, status: u16) {
        self.0.status = status;
    }

    /// Bytes from the client.
    pub fn received(&mut self, bytes: u64) {
        self.0.bytes_in += bytes;
    }

    /// Bytes to the client.
    pub fn sent(&mut self, bytes: u64) {
        self.0.bytes_out += bytes;
    }

    /// There is nothing to log, whatever follows.
    pub fn silence(&mut self) {
        self.0.silent = true;
    }

    /// The server's response has a head of this size, counted as HAProxy counts it.
    pub fn sent_head(&mut self, head: ResponseView<'_>) {
        self.sent(counted_head(head));
    }

    /// A response of our own that is only a status line with this reason.
    pub fn sent_interim(&mut self, reason: &str) {
        self.sent(HEAD_OVERHEAD + reason.len() as u64);
    }

    /// The line was written before the end (`option logasap`). It had `there` bytes that are not counted yet.
    pub fn logged_early(&mut self, there: u64) {
        self.0.bytes_out -= there;
        self.0.logged = true;
    }
}

impl Deref for LogFacts {
    type Target = Known;

    fn deref(&self) -> &Known {
        &self.0
    }
}

/// Fixed part of HAProxy's size of a response head: the start line's record and the end mark. With it `%B` counts as
/// HAProxy counts it.
const HEAD_OVERHEAD: u64 = 20 + 8 + 3 + 1;

/// The size of a response's head by HAProxy's way of counting.
fn counted_head(head: ResponseView<'_>) -> u64 {
    // What the connection layer takes out or puts in is not counted.
    let ours = head.fields().all_known(Name::Connection).filter(|field| baton_http::is_only_ours(field.value));
    let ours: usize = ours.map(|field| field.name.len() + field.value.len()).sum();
    HEAD_OVERHEAD + (head.reason().len() + head.fields().bytes() - ours + head.dropped()) as u64
}
