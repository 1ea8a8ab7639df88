//! Reading a request from the client: its head, and its body where that has to be there before a server is asked.

mod body;

use std::io;
use std::task::{Context, Poll};

use baton_http::{HeadErrorKind, Parsed, Version};
use baton_http2::PREFACE;
use baton_model::Mode;
use baton_rules::CaptureSide;

use crate::body::Arrived;
use crate::buffer::Buffer;
use crate::captures::Capture;
use crate::client::parts;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::messages::Messages;
use crate::state::Counter;
use crate::transport::Transport;
use crate::view::FrontendView;

pub use body::{body, buffer_body, wait_for_body};

/// What came of the wait for a request's head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Head {
    /// The request says what is in it.
    Complete,
    /// The connection has left for another process, with what had come of it.
    Left,
}

/// Reads until the head is complete and judged, or until the connection leaves.
pub async fn head(core: &Core, exchange: &mut Exchange<'_>) -> Result<Head, Ended> {
    let view = exchange.progress.frontend.clone();
    if let Transport::Http2(stream) = exchange.client {
        // It was read, and judged, with the frames that it came in.
        let len = stream.head().map_err(|status| Ended::refused(Cause::Proxy, Phase::Request, status))?;
        complete(core, exchange, &view, len)?;
        // A request that was given up in the same breath begins nothing.
        return if stream.is_given_up() {
            Err(Ended::refused(Cause::ClientAborted, Phase::Request, 0))
        } else {
            Ok(Head::Complete)
        };
    }
    let timeouts = &view.plan.proxy.timeouts;
    let limit = timeouts.http_request.or(timeouts.client);
    exchange.deadline.set(limit.map(|limit| exchange.facts.due_from() + limit));
    exchange.messages.input.compact();
    loop {
        if !exchange.messages.input.is_empty() {
            match exchange.messages.request.parse(&exchange.messages.input, &view.limits) {
                Ok(Parsed::Complete(len)) => {
                    return complete(core, exchange, &view, len).map(|()| Head::Complete);
                }
                Ok(Parsed::Partial) if exchange.messages.request.is_hopeless(&exchange.messages.input) => {
                    capture(core, exchange, &view, 0);
                    return Err(Ended::new(Cause::Proxy, Phase::Request));
                }
                Ok(Parsed::Partial) => {}
                Err(error) if error.kind == HeadErrorKind::Http2Preface && may_be_http2(exchange, &view) => {
                    if exchange.messages.input.starts_with(PREFACE) {
                        exchange.facts.silence();
                        exchange.messages.is_http2 = true;
                        return Err(Ended::refused(Cause::Local, Phase::Request, 0));
                    }
                }
                Err(error) => {
                    capture(core, exchange, &view, error.at);
                    return Err(Ended::refused(Cause::Proxy, Phase::Request, error.request_status()));
                }
            }
            if exchange.messages.input.is_full() {
                capture(core, exchange, &view, exchange.messages.input.len());
                return Err(Ended::new(Cause::Proxy, Phase::Request));
            }
        }
        let read = match read(core, exchange).await {
            Ok(Some(read)) => Ok(read),
            Ok(None) => match parts::send_begun(core, exchange) {
                Ok(()) => return Ok(Head::Left),
                Err(reason) => {
                    let registered = &exchange.connection.membership.registered;
                    registered.core.stays(registered, reason);
                    continue;
                }
            },
            Err(interrupt) => Err(interrupt),
        };
        match read {
            Ok(closed @ (Ok(0) | Err(_))) => {
                let nothing = exchange.messages.input.len() <= exchange.messages.request.blank();
                if nothing && (!exchange.is_first || view.plan.proxy.logging.dont_log_null) {
                    exchange.facts.silence();
                }
                let mut ended = Ended::new(Cause::ClientAborted, Phase::Request);
                if closed.is_ok() && !(nothing && (!exchange.is_first || view.plan.proxy.http.ignore_probes)) {
                    ended.status = 400;
                }
                return Err(of_switched(exchange, ended, nothing && closed.is_ok()));
            }
            Ok(Ok(_)) => {}
            Err(Interrupt::Abort) => {
                if exchange.messages.input.is_empty() {
                    exchange.facts.silence();
                }
                return Err(Ended::aborted(Phase::Request));
            }
            Err(Interrupt::Timeout) => {
                let ended = late(exchange);
                return Err(of_switched(exchange, ended, false));
            }
        }
    }
}

/// Whether a connection that has begun as HTTP/1 may go on as HTTP/2 (`option disable-h2-upgrade`), with the whole preface or with what
/// has come of it. Its first line alone is a malformed request.
#[cold]
fn may_be_http2(exchange: &Exchange<'_>, view: &FrontendView) -> bool {
    let is_free = exchange.connection.listener().bind.options.proto.is_none();
    let input: &[u8] = &exchange.messages.input;
    let begins = input.starts_with(PREFACE) || PREFACE.starts_with(input);
    begins && exchange.is_first && is_free && !view.plan.proxy.http.disable_h2_upgrade
}

/// How a connection ends without a request that came in `mode tcp` and is served as HTTP: as in HAProxy, that is malformed HTTP whoever
/// ended it. `is_empty`: the client closed it and sent nothing, which is nobody's error.
fn of_switched(exchange: &mut Exchange<'_>, ended: Ended, is_empty: bool) -> Ended {
    if exchange.progress.frontend.plan.proxy.mode == Mode::Http || !exchange.is_first {
        return ended;
    }
    if is_empty {
        exchange.facts.silence();
        return Ended { status: 0, ..ended };
    }
    Ended { cause: Cause::Proxy, ..ended }
}

/// Keeps a malformed request for `show errors`.
#[cold]
fn capture(core: &Core, exchange: &Exchange<'_>, view: &FrontendView, position: usize) {
    let (proxy, input) = (&view.plan.proxy, &exchange.messages.input);
    view.plan.state.malformed.keep(Capture {
        number: core.registry.captures.next(),
        at: core.wall(),
        source: exchange.connection.source(),
        frontend: (proxy.name.clone(), proxy.id),
        server: None,
        bytes: Capture::kept(input),
        len: input.len(),
        position,
    });
}

/// The head is complete, in the first `len` bytes, which stay where they are. The log has its line as it is before rules change it.
fn complete(core: &Core, exchange: &mut Exchange<'_>, view: &FrontendView, len: usize) -> Result<(), Ended> {
    let Exchange { client, messages, facts, captures, .. } = exchange;
    messages.input.pin(len);
    messages.request.framing = client.body_framing(&messages.request);
    messages.body.advance(messages.request.framing, &messages.input);
    if messages.body.arrived() == Arrived::Malformed {
        return Err(Ended::new(Cause::Proxy, Phase::Request));
    }
    facts.head_received(counted(messages, len), core.now());
    view.plan.state.counters.add(core.number, Counter::Requests, 1);
    if !view.sinks.is_empty() {
        facts.keep_line(messages.request(), view.logged_line_len);
    }
    if view.plan.rules.has_captures() {
        view.plan.rules.capture(CaptureSide::Request, messages.request().fields(), captures.get_mut());
    }
    Ok(())
}

/// The size of a request's head, which was received in `len` bytes. That of HTTP/2 is compressed, and counted as HAProxy counts it.
fn counted(messages: &Messages, len: usize) -> usize {
    const OVERHEAD: usize = 20 + 1;
    let request = messages.request();
    match request.version() {
        Version::Http10 | Version::Http11 => len,
        Version::Http2 => {
            let line = [request.method_text(), request.target(), request.version_text()];
            OVERHEAD + line.map(<[u8]>::len).iter().sum::<usize>() + request.fields().bytes()
        }
    }
}

/// A head that did not come in time. Silence on a connection that was used before is no fault.
fn late(exchange: &mut Exchange<'_>) -> Ended {
    let proxy = &exchange.progress.frontend.plan.proxy;
    let nothing = exchange.messages.input.is_empty();
    if nothing && (!exchange.is_first || proxy.logging.dont_log_null || proxy.http.ignore_probes) {
        exchange.facts.silence();
    }
    let mut ended = Ended::new(Cause::ClientTimeout, Phase::Request);
    if nothing && (!exchange.is_first || proxy.http.ignore_probes) {
        ended.status = 0;
    }
    ended
}

/// Reads more of the request's body into the input; 0 is the end of what the client sends, or a full buffer. The deadline is the
/// caller's.
pub async fn read_body(core: &Core, exchange: &mut Exchange<'_>) -> Result<io::Result<usize>, Interrupt> {
    let Exchange { client, orders, deadline, messages, .. } = &mut *exchange;
    let (client, input) = (*client, &mut messages.input);
    let read = until(core, orders, deadline, |cx| poll_read(core, client, input, cx)).await?;
    let Messages { body, request, input, .. } = &mut *exchange.messages;
    match read {
        Ok(0) => body.end(request.framing, input),
        Ok(_) | Err(_) => body.advance(request.framing, input),
    }
    Ok(read)
}

/// Reads more of the head into the input. `None`: the connection is to leave for another process.
async fn read(core: &Core, exchange: &mut Exchange<'_>) -> Result<Option<io::Result<usize>>, Interrupt> {
    let Exchange { client, orders, deadline, messages, .. } = exchange;
    let (client, input) = (*client, &mut messages.input);
    until(core, orders, deadline, |cx| match core.head_moves(orders) {
        true => Poll::Ready(None),
        false => poll_read(core, client, input, cx).map(Some),
    })
    .await
}

/// Reads what the client sends into the input.
fn poll_read(core: &Core, client: Transport<'_>, input: &mut Buffer, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    core.buffers.see_to_room(input, client.unread());
    let read = client.poll_read(cx, input.room());
    if let Poll::Ready(Ok(count)) = read {
        input.filled(count);
    }
    read
}
