//! Reading a request from the client: its head, and its body where that has to be there before a server is asked.

mod body;

use std::task::{Context, Poll};

use baton_http::Parsed;

use crate::body::Arrived;
use crate::client::Client;
use crate::core::{Core, Interrupt, Order, poll_until, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::work::Work;

pub use body::{body, body_begun, buffer_body};

/// What ended the wait for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// Bytes are there, or the client closed: reading tells.
    Ready,
    /// The wait took too long, or the connection was told to end.
    Over(Interrupt),
}

/// Sets how long the client may take to send something.
pub fn await_request(core: &Core, client: &mut Client) {
    let view = client.session.view();
    let timeouts = &view.plan.proxy.timeouts;
    let (limit, since) = if client.session.requests() == 0 {
        (timeouts.http_request.or(timeouts.client), client.connection.accepted)
    } else {
        (timeouts.http_keep_alive.or(timeouts.http_request).or(timeouts.client), core.now())
    };
    client.deadline.set(limit.map(|limit| since + limit));
}

/// Waits, without any memory, until the client sends something.
pub fn poll_arrival(core: &Core, client: &mut Client, cx: &mut Context<'_>) -> Poll<Arrival> {
    let Client { connection, deadline, .. } = client;
    let event = |cx: &mut Context<'_>| match connection.orders().order() {
        Order::CloseIdle => Poll::Ready(Arrival::Over(Interrupt::Abort)),
        Order::Run | Order::Abort => connection.stream.poll_readable(cx).map(|()| Arrival::Ready),
    };
    poll_until(core, connection.orders(), deadline, cx, event).map(|arrival| arrival.unwrap_or_else(Arrival::Over))
}

/// Reads until the head is complete and judged. On success it is pinned in the input and `work.request` speaks of it.
pub async fn head(core: &Core, exchange: &mut Exchange<'_>, work: &mut Work) -> Result<(), Ended> {
    let view = exchange.progress.frontend.clone();
    let timeouts = &view.plan.proxy.timeouts;
    let limit = timeouts.http_request.or(timeouts.client);
    exchange.deadline.set(limit.map(|limit| exchange.facts.began + limit));
    work.input.compact();
    loop {
        if !work.input.is_empty() {
            match work.request.parse(&work.input, &view.limits) {
                Ok(Parsed::Complete(len)) => {
                    work.input.pin(len);
                    work.body.advance(work.request.framing, &work.input);
                    if work.body.arrived() == Arrived::Malformed {
                        return Err(Ended::new(Cause::Proxy, Phase::Request));
                    }
                    exchange.facts.head_received(len, core.now());
                    if !view.sinks.is_empty() {
                        keep_line(work);
                    }
                    return Ok(());
                }
                Ok(Parsed::Partial) if work.request.is_hopeless(&work.input) => {
                    return Err(Ended::new(Cause::Proxy, Phase::Request));
                }
                Ok(Parsed::Partial) => {}
                Err(error) => return Err(Ended::refused(Cause::Proxy, Phase::Request, error.request_status())),
            }
            if work.input.is_full() {
                return Err(Ended::new(Cause::Proxy, Phase::Request));
            }
        }
        match read(core, exchange, work).await {
            Ok(closed @ (Ok(0) | Err(_))) => {
                let nothing = work.input.len() <= work.request.blank();
                if nothing && (!exchange.is_first || view.plan.proxy.logging.dont_log_null) {
                    exchange.facts.silence();
                }
                let mut ended = Ended::new(Cause::ClientAborted, Phase::Request);
                if closed.is_ok() && !(nothing && (!exchange.is_first || view.plan.proxy.http.ignore_probes)) {
                    ended.status = 400;
                }
                return Err(ended);
            }
            Ok(Ok(_)) => {}
            Err(Interrupt::Abort) => {
                if work.input.is_empty() {
                    exchange.facts.silence();
                }
                return Err(Ended::aborted(Phase::Request));
            }
            Err(Interrupt::Timeout) => return Err(late(exchange, work)),
        }
    }
}

/// Remembers the request line for the log, before rules change it.
fn keep_line(work: &mut Work) {
    let Work { input, line, request, .. } = work;
    let buf = input.pinned();
    line.clear();
    line.extend_from_slice(request.method_text(buf));
    line.push(b' ');
    line.extend_from_slice(request.target(buf));
    line.push(b' ');
    line.extend_from_slice(request.version_text(buf));
}

/// A head that did not come in time. Silence on a connection that was used before is no fault.
fn late(exchange: &mut Exchange<'_>, work: &Work) -> Ended {
    let proxy = &exchange.progress.frontend.plan.proxy;
    let nothing = work.input.is_empty();
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
pub async fn read_body(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
) -> Result<std::io::Result<usize>, Interrupt> {
    let count = read(core, exchange, work).await?;
    work.body.advance(work.request.framing, &work.input);
    Ok(count)
}

/// Reads what the client sends into the input.
async fn read(core: &Core, exchange: &mut Exchange<'_>, work: &mut Work) -> Result<std::io::Result<usize>, Interrupt> {
    let Exchange { connection, deadline, .. } = exchange;
    let input = &mut work.input;
    let count = until(core, connection.orders(), deadline, |cx| connection.stream.poll_read(cx, input.room())).await?;
    if let Ok(count) = count {
        input.filled(count);
    }
    Ok(count)
}
