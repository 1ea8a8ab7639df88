//! The end of the request path: counters and the log line. Always runs, also for a request that was no request.

mod format;

use std::time::Duration;

use baton_model::{Level, Mode};
use baton_rules::{BYTES_IN, BYTES_OUT, ERRORS, FAILURES, GLITCHES, LogLevel, REQUESTS};

use crate::client::{Client, Introduction};
use crate::connection::Connection;
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::facts::Ruled;
use crate::handshake::HandshakeFailure;
use crate::log::INFO;
use crate::messages::Messages;
use crate::proxy_protocol::Malformed;
use crate::rules;
use crate::state::{CoreCounters, Counter};
use crate::times::TIMES;
use crate::view::FrontendView;

/// How a connection ends that was never served.
const UNSERVED: Ended = Ended { cause: Cause::Proxy, phase: Phase::Request, status: 0, logged: 0 };

/// Counts the request and writes its log line.
pub fn write<M>(core: &Core, exchange: &mut Exchange<'_, M>, outcome: Result<(), Ended>) {
    let ended = outcome.err().unwrap_or_default();
    count_tracked(core, exchange, ended);
    if !exchange.facts.silent || exchange.facts.has_request {
        count(core, exchange, ended);
    }
    if exchange.facts.silent
        || exchange.facts.logged
        || exchange.log_level == Some(LogLevel::Silent)
        || exchange.progress.frontend.sinks.is_empty()
        || !exchange.progress.frontend.sinks.wants(&exchange.facts, ended)
    {
        return;
    }
    log_line(core, exchange, ended);
}

/// Counts a request of which no head could be read in the entries of stick tables that are tracked: a client that ended a connection that
/// was used before has begun none.
pub fn unread(core: &Core, exchange: &Exchange<'_>, ended: Ended) {
    let Messages { input, request, .. } = &*exchange.messages;
    let has_begun = exchange.is_first || input.len() > request.blank();
    match ended.cause {
        Cause::Proxy => [REQUESTS, ERRORS, GLITCHES].into_iter().for_each(|what| exchange.count(core, what, 1)),
        Cause::ClientAborted if has_begun => {
            [REQUESTS, ERRORS].into_iter().for_each(|what| exchange.count(core, what, 1));
        }
        Cause::ClientTimeout if has_begun => exchange.count(core, REQUESTS, 1),
        _ => {}
    }
}

/// Counts the end of an exchange in the entries of stick tables that are tracked: its bytes, a server that failed without a response, and a
/// request that turned out to be malformed behind its head.
fn count_tracked<M>(core: &Core, exchange: &Exchange<'_, M>, ended: Ended) {
    let failed = matches!(ended.cause, Cause::ServerAborted | Cause::ServerTimeout | Cause::Proxy);
    if failed && ended.phase == Phase::Headers && exchange.facts.ruled != Some(Ruled::Denied) {
        exchange.count(core, FAILURES, 1);
    }
    let is_malformed = ended.cause == Cause::Proxy && ended.status == 400;
    if is_malformed && exchange.facts.has_request && exchange.facts.ruled.is_none() {
        exchange.count(core, GLITCHES, 1);
    }
    exchange.count(core, BYTES_IN, exchange.facts.bytes_in);
    exchange.count(core, BYTES_OUT, exchange.facts.bytes_out);
}

/// `option logasap`: writes the line now, before the data; the end is only counted. Of the body, `there` bytes came with the head:
/// this line has them, the count does not yet.
pub fn write_early<M>(core: &Core, exchange: &mut Exchange<'_, M>, there: usize) {
    let frontend = &exchange.progress.frontend;
    let is_silent = exchange.facts.silent || exchange.log_level == Some(LogLevel::Silent);
    if frontend.plan.proxy.logging.asap && !is_silent && !frontend.sinks.is_empty() {
        exchange.facts.sent(there as u64);
        log_line(core, exchange, Ended::default());
        exchange.facts.logged_early(there as u64);
    }
}

fn log_line<M>(core: &Core, exchange: &mut Exchange<'_, M>, ended: Ended) {
    let frontend = exchange.progress.frontend.clone();
    if frontend.sinks.at_accept() {
        return core.log.line(&frontend.sinks, INFO, |out| format::connect_line(exchange.connection, &frontend, out));
    }
    let level = match exchange.log_level {
        Some(LogLevel::Level(level)) => Level(level),
        _ => frontend.sinks.level(exchange.facts.is_normal(ended)),
    };
    let rules = &frontend.plan.rules;
    let error_format = rules.error_log_format().filter(|_| exchange.facts.is_malformed(&frontend.plan.proxy));
    rules::at_end(core, exchange, ended, |cx| match error_format {
        Some(format) => core.log.format_line(&frontend.sinks, level, (format, None), cx),
        None => core.log.traffic_line(&frontend.sinks, level, rules, cx),
    });
    frontend.plan.state.lines.add(core.number);
}

/// The line of a connection in the default format, written at accept.
pub fn connected(core: &Core, connection: &Connection, frontend: &FrontendView) {
    if frontend.sinks.at_accept() {
        core.log.line(&frontend.sinks, INFO, |out| format::connect_line(connection, frontend, out));
    }
}

/// The line of a connection that ended before it was one: its PROXY header did not come.
pub fn refused(core: &Core, client: &Client, frontend: &FrontendView, by: Introduction, fault: Malformed) {
    let silent = fault == Malformed::Closed && frontend.plan.proxy.logging.dont_log_null;
    if !silent {
        error_line(core, client, frontend, by.text(fault));
    }
}

/// The line of a connection that ended before it was one: there was no agreement on TLS.
pub fn disagreed(core: &Core, client: &Client, frontend: &FrontendView, failed: HandshakeFailure) {
    if let Some(text) = failed.text(frontend.plan.proxy.logging.dont_log_null) {
        error_line(core, client, frontend, text);
    }
}

/// In the format of `error-log-format`, or HAProxy's own, which has a text.
fn error_line(core: &Core, client: &Client, frontend: &FrontendView, text: &str) {
    let sinks = &frontend.sinks;
    if sinks.is_empty() {
        return;
    }
    let level = sinks.level(false);
    match frontend.plan.rules.error_log_format() {
        Some(format) => rules::at_error(core, client, frontend, UNSERVED, |cx| {
            core.log.format_line(sinks, level, (format, None), cx);
        }),
        None => core.log.line(sinks, level, |out| format::refusal_line(core, &client.connection, text, out)),
    }
}

/// A connection or a session that rules rejected: it has no line, but is counted.
pub fn denied(core: &Core, connection: &Connection, frontend: &FrontendView, counter: Counter) {
    frontend.plan.state.counters.add(core.number, counter, 1);
    connection.listener().state.counters.add(core.number, counter, 1);
}

fn count<M>(core: &Core, exchange: &Exchange<'_, M>, ended: Ended) {
    let blocks = [
        Some(&exchange.progress.frontend.plan.state.counters),
        exchange.progress.backend().map(|backend| &backend.plan.figures.counters),
        exchange.progress.server_counters().map(|counters| &**counters),
    ];
    let class = |status: u16| match status / 100 {
        1 => Counter::Responses1xx,
        2 => Counter::Responses2xx,
        3 => Counter::Responses3xx,
        4 => Counter::Responses4xx,
        5 => Counter::Responses5xx,
        _ => Counter::ResponsesOther,
    };
    // A frontend in `mode tcp` may have a backend in `mode http`, which counts requests.
    let modes = [
        exchange.progress.frontend.plan.proxy.mode,
        exchange.progress.backend().map_or(Mode::Tcp, |backend| backend.plan.proxy.mode),
    ];
    let usual = ended == Ended::default();
    let times = times(core, exchange, modes[1] == Mode::Http);
    for (at, block) in blocks.into_iter().flatten().enumerate() {
        let block = block.of(core.number);
        block.add(Counter::Sessions, 1);
        block.add(Counter::BytesIn, exchange.facts.bytes_in);
        block.add(Counter::BytesOut, exchange.facts.bytes_out);
        if at == 0 && exchange.facts.ruled == Some(Ruled::Intercepted) {
            block.add(Counter::Intercepted, 1);
        }
        if modes[at.min(1)] == Mode::Http {
            // What no server answered is none of its answers; what was answered at all was a request, however bad.
            let status = if at < 2 { exchange.facts.status } else { exchange.facts.server_status };
            // A request was counted when its head was there, and when it came to its backend.
            let was_counted = match at {
                0 => exchange.facts.has_request,
                1 => exchange.progress.is_request_counted(),
                _ => false,
            };
            let is_request = (at < 2 && exchange.facts.has_request) || status > 0;
            block.add(Counter::Requests, u64::from(!was_counted && is_request));
            // A request that ended without an answer is one with another code, as HAProxy counts it.
            block.add(class(status), u64::from(status > 0 || (at < 2 && exchange.facts.has_request)));
        }
        if at > 0 && (exchange.facts.retries > 0 || exchange.facts.redispatched) {
            block.add(Counter::Retries, u64::from(exchange.facts.retries));
            block.add(Counter::Redispatches, u64::from(exchange.facts.redispatched));
        }
        if at > 0 {
            block.times().add(times);
        }
        if !usual {
            count_end(block, at == 0, exchange, ended);
        }
    }
    if exchange.progress.frontend.plan.proxy.tcp.socket_stats {
        let block = exchange.connection.listener().state.counters.of(core.number);
        block.add(Counter::BytesIn, exchange.facts.bytes_in);
        block.add(Counter::BytesOut, exchange.facts.bytes_out);
        if !usual {
            count_end(block, true, exchange, ended);
        }
    }
}

/// `qtime`, `ctime`, `rtime` and `ttime` of the statistics.
fn times<M>(core: &Core, exchange: &Exchange<'_, M>, is_http: bool) -> [Duration; TIMES] {
    let response = exchange.facts.response_time.filter(|_| is_http);
    let phases = [exchange.facts.queue_time, exchange.facts.connect_time, response].map(Option::unwrap_or_default);
    let whole = core.now().saturating_duration_since(exchange.facts.began);
    [phases[0], phases[1], phases[2], whole]
}

/// Counts how a request ended that did not end as it should. `in_front`: at the frontend.
fn count_end<M>(block: CoreCounters<'_>, in_front: bool, exchange: &Exchange<'_, M>, ended: Ended) {
    if exchange.facts.ruled == Some(Ruled::Denied) {
        // In `Phase::Data`: by `tcp-response content`.
        let is_response = matches!(ended.phase, Phase::Headers | Phase::Data);
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
