//! The end of the request line: counters and the log line. Always runs, also for a request that was no request.

mod date;
mod facts;
mod format;
mod way;
mod writer;

use std::time::Duration;

pub use facts::{LogFacts, Retry};
pub use writer::{LogWriter, Sinks};

use baton_model::Level;
use baton_rules::LogLevel;

use crate::accept::{Client, Malformed};
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::handshake::Failed;
use crate::progress::Progress;
use crate::record::facts::Ruled;
use crate::state::{CoreCounters, Counter};
use crate::times::TIMES;
use crate::view::FrontendView;

/// What is remembered of a request (or of a connection in `mode tcp`) until it is logged.
#[derive(Debug)]
pub struct Entry {
    /// What the log line prints.
    pub facts: LogFacts,
    /// What the request line goes by.
    pub progress: Progress,
}

/// Begins the record of a request. The first one of a connection begins with the connection.
pub fn start(core: &Core, client: &Client) -> Entry {
    let began = if client.requests == 0 { client.accepted } else { core.now() };
    Entry { facts: LogFacts::new(began), progress: Progress::new(client.view()) }
}

/// Counts the request and writes its log line. `line` is the request line as received, empty in `mode tcp`.
pub fn write(core: &Core, client: &Client, entry: &Entry, outcome: Result<(), Ended>, line: &[u8]) {
    let ended = outcome.err().unwrap_or_default();
    if !entry.facts.silent || entry.facts.has_request {
        count(core, client, entry, ended);
    }
    if entry.facts.silent
        || entry.facts.logged
        || entry.progress.frontend.sinks.is_empty()
        || !entry.progress.frontend.sinks.wants(&entry.facts, ended)
    {
        return;
    }
    log_line(core, client, entry, ended, line);
}

/// `option logasap`: writes the line now, before the data; the end is only counted. Of the body, `there` bytes came with the head:
/// this line has them, the count does not yet.
pub fn write_early(core: &Core, client: &Client, entry: &mut Entry, line: &[u8], there: usize) {
    let frontend = &entry.progress.frontend;
    if frontend.plan.proxy.logging.asap && !entry.facts.silent && !frontend.sinks.is_empty() {
        entry.facts.bytes_out += there as u64;
        log_line(core, client, entry, Ended::default(), line);
        entry.facts.bytes_out -= there as u64;
        entry.facts.logged = true;
    }
}

fn log_line(core: &Core, client: &Client, entry: &Entry, ended: Ended, line: &[u8]) {
    let level = match client.transaction.log_level {
        Some(LogLevel::Level(level)) => Level(level),
        _ => entry.progress.frontend.sinks.level(ended),
    };
    core.log.line(&entry.progress.frontend.sinks, level, |out| format::line(core, client, entry, ended, line, out));
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
        Some(&entry.progress.frontend.plan.state.counters),
        entry.progress.backend().map(|backend| &backend.plan.figures.counters),
        entry.progress.server_counters().map(|counters| &**counters),
    ];
    let class = |status: u16| match status / 100 {
        1 => Counter::Responses1xx,
        2 => Counter::Responses2xx,
        3 => Counter::Responses3xx,
        4 => Counter::Responses4xx,
        5 => Counter::Responses5xx,
        _ => Counter::ResponsesOther,
    };
    let is_http = entry.progress.frontend.plan.proxy.mode == baton_model::Mode::Http;
    let usual = ended == Ended::default();
    let times = times(core, entry, is_http);
    for (at, block) in blocks.into_iter().flatten().enumerate() {
        let block = block.of(core.number);
        block.add(Counter::Sessions, 1);
        block.add(Counter::BytesIn, entry.facts.bytes_in);
        block.add(Counter::BytesOut, entry.facts.bytes_out);
        if at == 0 && entry.facts.ruled == Some(Ruled::Intercepted) {
            block.add(Counter::Intercepted, 1);
        }
        if is_http {
            // What no server answered is none of its answers; what was answered at all was a request, however bad.
            let status = if at < 2 { entry.facts.status } else { entry.facts.server_status };
            block.add(Counter::Requests, u64::from((at < 2 && entry.facts.has_request) || status > 0));
            // A request that ended without an answer is one with another code, as HAProxy counts it.
            block.add(class(status), u64::from(status > 0 || (at < 2 && entry.facts.has_request)));
        }
        if at > 0 && (entry.facts.retries > 0 || entry.facts.redispatched) {
            block.add(Counter::Retries, u64::from(entry.facts.retries));
            block.add(Counter::Redispatches, u64::from(entry.facts.redispatched));
        }
        if at > 0 {
            block.times().add(times);
        }
        if !usual {
            count_end(block, at == 0, entry, ended);
        }
    }
    if entry.progress.frontend.plan.proxy.tcp.socket_stats {
        let block = client.listener.state.counters.of(core.number);
        block.add(Counter::BytesIn, entry.facts.bytes_in);
        block.add(Counter::BytesOut, entry.facts.bytes_out);
        if !usual {
            count_end(block, true, entry, ended);
        }
    }
}

/// `qtime`, `ctime`, `rtime` and `ttime` of the statistics.
fn times(core: &Core, entry: &Entry, is_http: bool) -> [Duration; TIMES] {
    let response = entry.facts.response_time.filter(|_| is_http);
    let phases = [entry.facts.queue_time, entry.facts.connect_time, response].map(Option::unwrap_or_default);
    let whole = core.now().saturating_duration_since(entry.facts.began);
    [phases[0], phases[1], phases[2], whole]
}

/// Counts how a request ended that did not end as it should. `in_front`: at the frontend.
fn count_end(block: &CoreCounters, in_front: bool, entry: &Entry, ended: Ended) {
    if entry.facts.ruled == Some(Ruled::Denied) {
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
