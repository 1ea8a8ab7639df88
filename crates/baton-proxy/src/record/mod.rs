//! The end of the request line: counters and the log line. Always runs, also for a request that was no request.

mod date;
mod format;
mod way;
mod writer;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use writer::{LogWriter, Sinks};

use baton_model::Level;
use baton_rules::LogLevel;

use crate::accept::{Client, Malformed};
use crate::balance::{ServerState, Slot};
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::handshake::Failed;
use crate::place::CookieDates;
use crate::state::{CoreCounters, Counter, CounterBlock, enter};
use crate::times::TIMES;
use crate::view::{BackendView, FrontendView};

/// What is remembered of a request (or of a connection in `mode tcp`) until it is logged.
#[derive(Debug)]
pub struct Entry {
    /// The frontend as it was when the request began.
    pub frontend: Rc<FrontendView>,
    /// The backend that was chosen.
    pub backend: Option<Rc<BackendView>>,
    /// Counts it among the backend's sessions until it ends, however it does.
    pub inside: Option<Inside>,
    /// The backend that was asked for and cannot be used: it is disabled. Only the log names it.
    pub missing: Option<Arc<str>>,
    /// The server that was chosen last.
    pub server: Option<Arc<ServerState>>,
    /// The place at the server, given up only after the log line is written.
    pub slot: Option<Slot>,
    /// The server's counters.
    pub server_counters: Option<Arc<CounterBlock>>,
    /// First byte of the request, or the accept.
    pub began: Instant,
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
    /// The server was chosen by the client's cookie.
    pub by_cookie: bool,
    /// The request went over a connection that had carried another one.
    pub reused: bool,
    /// `ignore-persist` applied: no cookie is given.
    pub persist_ignored: bool,
    /// The dates in the client's cookie, when it was followed.
    pub cookie_dates: Option<CookieDates>,
    /// What a response rule answers instead of the server's response.
    pub replacement: Option<Vec<u8>>,
    /// Whether a request head was understood: its line can be logged.
    pub has_request: bool,
    /// The line was written already (`option logasap`).
    pub logged: bool,
    /// Nothing to log: an idle connection that closed, a monitor's probe.
    pub silent: bool,
}

/// A session of a backend, counted as long as it lives.
#[derive(Debug)]
pub struct Inside(Rc<BackendView>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.plan.figures.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entry {
    /// Notes the backend, of which this is a session from now on.
    pub fn enter(&mut self, backend: &Rc<BackendView>) {
        let figures = &backend.plan.figures;
        enter(&figures.open, &figures.open_max);
        self.inside = Some(Inside(backend.clone()));
        self.backend = Some(backend.clone());
    }
}

/// A verdict of rules that is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ruled {
    /// They denied it.
    Denied,
    /// The frontend answered the request itself.
    Intercepted,
}

/// Begins the record of a request. The first one of a connection begins with the connection.
pub fn start(core: &Core, client: &Client) -> Entry {
    Entry {
        frontend: client.view(),
        backend: None,
        inside: None,
        missing: None,
        server: None,
        slot: None,
        server_counters: None,
        began: if client.requests == 0 { client.accepted } else { core.now() },
        request_time: None,
        queue_time: None,
        connect_time: None,
        response_time: None,
        status: 0,
        server_status: 0,
        ruled: None,
        bytes_in: 0,
        bytes_out: 0,
        retries: 0,
        redispatched: false,
        server_queue: 0,
        backend_queue: 0,
        cookie: *b"--",
        by_cookie: false,
        reused: false,
        persist_ignored: false,
        cookie_dates: None,
        replacement: None,
        has_request: false,
        logged: false,
        silent: false,
    }
}

/// Counts the request and writes its log line. `line` is the request line as received, empty in `mode tcp`.
pub fn write(core: &Core, client: &Client, entry: &Entry, outcome: Result<(), Ended>, line: &[u8]) {
    let ended = outcome.err().unwrap_or_default();
    if !entry.silent || entry.has_request {
        count(core, client, entry, ended);
    }
    if entry.silent || entry.logged || entry.frontend.sinks.is_empty() || !entry.frontend.sinks.wants(entry, ended) {
        return;
    }
    log_line(core, client, entry, ended, line);
}

/// `option logasap`: writes the line now, before the data; the end is only counted.
pub fn write_early(core: &Core, client: &Client, entry: &mut Entry, line: &[u8]) {
    if entry.frontend.plan.proxy.logging.asap && !entry.silent && !entry.frontend.sinks.is_empty() {
        log_line(core, client, entry, Ended::default(), line);
        entry.logged = true;
    }
}

fn log_line(core: &Core, client: &Client, entry: &Entry, ended: Ended, line: &[u8]) {
    let level = match client.transaction.log_level {
        Some(LogLevel::Level(level)) => Level(level),
        _ => entry.frontend.sinks.level(ended),
    };
    core.log.line(&entry.frontend.sinks, level, |out| format::line(core, client, entry, ended, line, out));
}

/// The line of a connection in the default format, written at accept.
pub fn connected(core: &Core, client: &Client, frontend: &FrontendView) {
    if frontend.sinks.at_accept() {
        core.log.line(&frontend.sinks, writer::INFO, |out| format::connect_line(client, frontend, out));
    }
}

/// The line of a connection that ended before it was one: its PROXY header did not come.
pub fn refused(core: &Core, client: &Client, fault: Malformed) {
    let frontend = client.view();
    let silent = fault == Malformed::Closed && frontend.plan.proxy.logging.dont_log_null;
    if !silent && !frontend.sinks.is_empty() {
        core.log.line(&frontend.sinks, writer::INFO, |out| format::refusal_line(core, client, fault.text(), out));
    }
}

/// The line of a connection that ended before it was one: there was no agreement on TLS.
pub fn disagreed(core: &Core, client: &Client, failed: Failed) {
    let frontend = client.view();
    let text = failed.text(frontend.plan.proxy.logging.dont_log_null);
    if let Some(text) = text.filter(|_| !frontend.sinks.is_empty()) {
        core.log.line(&frontend.sinks, writer::INFO, |out| format::refusal_line(core, client, text, out));
    }
}

/// A connection or a session that rules rejected: it has no line, but is counted.
pub fn denied(core: &Core, client: &Client, counter: Counter) {
    client.view().plan.state.counters.add(core.number, counter, 1);
    client.listener.state.counters.add(core.number, counter, 1);
}

fn count(core: &Core, client: &Client, entry: &Entry, ended: Ended) {
    let blocks = [
        Some(&entry.frontend.plan.state.counters),
        entry.backend.as_ref().map(|backend| &backend.plan.figures.counters),
        entry.server_counters.as_deref(),
    ];
    let class = |status: u16| match status / 100 {
        1 => Counter::Responses1xx,
        2 => Counter::Responses2xx,
        3 => Counter::Responses3xx,
        4 => Counter::Responses4xx,
        5 => Counter::Responses5xx,
        _ => Counter::ResponsesOther,
    };
    let is_http = entry.frontend.plan.proxy.mode == baton_model::Mode::Http;
    let usual = ended == Ended::default();
    let times = times(core, entry, is_http);
    for (at, block) in blocks.into_iter().flatten().enumerate() {
        let block = block.of(core.number);
        block.add(Counter::Sessions, 1);
        block.add(Counter::BytesIn, entry.bytes_in);
        block.add(Counter::BytesOut, entry.bytes_out);
        if at == 0 && entry.ruled == Some(Ruled::Intercepted) {
            block.add(Counter::Intercepted, 1);
        }
        if is_http {
            // What no server answered is none of its answers; what was answered at all was a request, however bad.
            let status = if at < 2 { entry.status } else { entry.server_status };
            block.add(Counter::Requests, u64::from((at < 2 && entry.has_request) || status > 0));
            // A request that ended without an answer is one with another code, as HAProxy counts it.
            block.add(class(status), u64::from(status > 0 || (at < 2 && entry.has_request)));
        }
        if at > 0 && (entry.retries > 0 || entry.redispatched) {
            block.add(Counter::Retries, u64::from(entry.retries));
            block.add(Counter::Redispatches, u64::from(entry.redispatched));
        }
        if at > 0 {
            block.times().add(times);
        }
        if !usual {
            count_end(block, at == 0, entry, ended);
        }
    }
    if entry.frontend.plan.proxy.tcp.socket_stats {
        let block = client.listener.state.counters.of(core.number);
        block.add(Counter::BytesIn, entry.bytes_in);
        block.add(Counter::BytesOut, entry.bytes_out);
        if !usual {
            count_end(block, true, entry, ended);
        }
    }
}

/// `qtime`, `ctime`, `rtime` and `ttime` of the statistics.
fn times(core: &Core, entry: &Entry, is_http: bool) -> [Duration; TIMES] {
    let response = entry.response_time.filter(|_| is_http);
    let phases = [entry.queue_time, entry.connect_time, response].map(Option::unwrap_or_default);
    let whole = core.now().saturating_duration_since(entry.began);
    [phases[0], phases[1], phases[2], whole]
}

/// Counts how a request ended that did not end as it should. `in_front`: at the frontend.
fn count_end(block: &CoreCounters, in_front: bool, entry: &Entry, ended: Ended) {
    if entry.ruled == Some(Ruled::Denied) {
        let is_response = ended.phase == Phase::Headers;
        return block.add(if is_response { Counter::DeniedResponses } else { Counter::DeniedRequests }, 1);
    }
    match (ended.cause, ended.phase) {
        (Cause::Internal, _) => block.add(Counter::InternalErrors, 1),
        (Cause::Local, Phase::Request) => {}
        (_, Phase::Request) if in_front => block.add(Counter::RequestErrors, 1),
        (Cause::ServerAborted | Cause::ServerTimeout, Phase::Connect) if !in_front => {
            block.add(Counter::ConnectErrors, 1);
        }
        (Cause::ServerAborted | Cause::ServerTimeout | Cause::Proxy, Phase::Headers) if !in_front => {
            block.add(Counter::ResponseErrors, 1);
        }
        (Cause::ServerAborted, Phase::Data) => block.add(Counter::ServerAborts, 1),
        (Cause::ClientAborted | Cause::ClientTimeout, _) => block.add(Counter::ClientAborts, 1),
        _ => {}
    }
}
