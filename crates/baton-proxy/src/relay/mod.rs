//! Relaying: a request to a server and its response back, with the attempts that takes; and bytes both ways.

pub mod attempts;
pub mod flow;
mod response;
mod splicing;
pub mod transfer;
pub mod tunnel;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use baton_http::Method;
use baton_model::{ConnectionMode, ProxyProtocol, Reuse};

use crate::balance::{Found, Observed, Slot};
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::parse;
use crate::place::{self, Wish};
use crate::progress::Progress;
use crate::relay::attempts::Attempts;
use crate::relay::flow::{Body, Flow};
use crate::relay::response::{Attempt, Failure};
use crate::relay::transfer::NoResponse;
use crate::request::connection_mode;
use crate::respond;
use crate::route;
use crate::state::Counter;
use crate::upstream::{ConnectFailed, Opening, ServerConnection};
use crate::view::BackendView;
use crate::work::Work;

/// A response that went to the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// The client's connection stays for another request.
    pub keep: bool,
    /// The client may still be sending the body of this one.
    pub unread: bool,
    /// How the log says it ended, when not as it should.
    pub ended: Option<Ended>,
}

/// Sends the request to a server of the backend, as often as retries allow, and its response to the client.
pub async fn exchange(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    backend: &Rc<BackendView>,
    wish: &mut Wish,
) -> Result<Sent, Ended> {
    let mode = connection_mode(exchange);
    work.prepare_exchange(&core.buffers);
    let mut upload = compose_request(work, exchange, mode)?;
    if is_long(core, upload.body) {
        upload.splicer = exchange.progress.frontend.splicers(core, backend).0.map(Box::new);
    }
    let outcome = attempts(core, exchange, work, backend, wish, &mut upload).await;
    work.composed = Some(upload.body == Body::Done);
    outcome
}

#[allow(clippy::too_many_arguments, reason = "the request line's state, side by side")]
async fn attempts(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    backend: &Rc<BackendView>,
    wish: &mut Wish,
    upload: &mut Flow,
) -> Result<Sent, Ended> {
    let mut attempts = Attempts::new(&backend.plan.proxy);
    loop {
        let slot = place::take(core, exchange, wish).await?;
        chosen(core, exchange, backend, &slot);
        route::note_persistence(exchange, wish);
        if let Some(prefix) = &slot.config().redir
            && matches!(work.request.method, Method::Get | Method::Head)
        {
            return redirect_to_server(core, exchange, work, &prefix.clone()).await;
        }
        let name = server_name(core, exchange, work, backend, &slot);
        let connection = match connect(core, exchange, backend, &slot, name, attempts.wants_new()).await {
            Ok(connection) => connection,
            Err(ConnectFailed::Final(ended)) => return Err(ended),
            Err(ConnectFailed::WrongName(ended)) => {
                slot.server().report(Observed::ConnectFailed);
                exchange.facts.given_up(backend.plan.proxy.retries);
                return Err(ended);
            }
            Err(ConnectFailed::Retry(ended)) => {
                slot.server().report(Observed::ConnectFailed);
                attempts.again(core, exchange, wish, slot, ended).await?;
                continue;
            }
        };
        let reused = connection.requests > 0;
        exchange.progress.go_over(reused);
        let response = {
            // Pinned before it is passed on: as a value these kilobytes would be copied.
            let attempt = Attempt { core, exchange, work, backend, slot: &slot, upload };
            let response = pin!(attempt.run(connection));
            unless_cut(&slot, response).await
        };
        match response.unwrap_or(Err(Failure::Ended(Ended::down()))) {
            Ok(sent) => {
                exchange.progress.keep(slot);
                return Ok(sent);
            }
            Err(Failure::Ended(ended)) => {
                exchange.progress.keep(slot);
                return Err(ended);
            }
            Err(Failure::NoResponse(failure)) => {
                slot.server().report(Observed::AnswerFailed);
                let stale = reused && matches!(failure, NoResponse::Empty) && is_repeatable(&work.request.method);
                if !upload.replayable || !(stale || attempts.may_repeat(&failure, exchange.no_retry)) {
                    exchange.progress.keep(slot);
                    return Err(ended_of(&failure));
                }
                upload.restart();
                work.received.clear();
                work.response.clear();
                if stale {
                    attempts.met_stale();
                } else {
                    attempts.again_at_once(exchange, wish, slot);
                }
            }
            Err(Failure::Status) => {
                upload.restart();
                work.received.clear();
                work.response.clear();
                attempts.again_at_once(exchange, wish, slot);
            }
        }
    }
}

/// `redir`: the client is to ask the server itself.
async fn redirect_to_server(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    prefix: &str,
) -> Result<Sent, Ended> {
    let target = work.request.path_and_query(work.input.pinned());
    let mut page = b"HTTP/1.1 302 Found\r\ncache-control: no-cache\r\ncontent-length: 0\r\nlocation: ".to_vec();
    page.extend_from_slice(prefix.as_bytes());
    page.extend_from_slice(target);
    page.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    let ended = Some(Ended::refused(Cause::Local, Phase::Connect, 302));
    answer(core, exchange, work, route::Answer { page, ended }).await
}

/// Drives `future` unless the slot's sessions have to end (`on-marked-down shutdown-sessions`): then `None`.
pub(crate) async fn unless_cut<T>(slot: &Slot, future: impl Future<Output = T>) -> Option<T> {
    if !slot.may_be_cut() {
        return Some(future.await);
    }
    let mut cut = pin!(slot.cut());
    let mut future = pin!(future);
    poll_fn(|cx| match cut.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(cx).map(Some),
    })
    .await
}

/// Repeating it does no harm (RFC 9110 9.2.2), so it may be sent again when a kept connection turns out to be closed.
fn is_repeatable(method: &Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace)
}

fn ended_of(failure: &NoResponse) -> Ended {
    match failure {
        NoResponse::Empty | NoResponse::Truncated => Ended::new(Cause::ServerAborted, Phase::Headers),
        NoResponse::Malformed => Ended::new(Cause::Proxy, Phase::Headers),
        NoResponse::Late => Ended::new(Cause::ServerTimeout, Phase::Headers),
        NoResponse::Ended(ended) => *ended,
    }
}

/// Writes the request as the server gets it, with as much of its body as is there.
fn compose_request(work: &mut Work, exchange: &Exchange<'_>, mode: ConnectionMode) -> Result<Flow, Ended> {
    let pretend = exchange.progress.backend().is_some_and(|backend| backend.plan.proxy.http.pretend_keepalive);
    let keep_alive = mode == ConnectionMode::KeepAlive || pretend;
    let Work { input, request, request_chunks, up, .. } = work;
    request.for_upstream(input.pinned(), baton_http::ForUpstream { keep_alive });
    up.clear();
    request.write(input.pinned(), up);
    let body = Body::of(request.framing);
    Flow::start(body, input, request_chunks, up).map_err(|_| Ended::refused(Cause::Proxy, Phase::Request, 400))
}

/// Notes the server that was chosen.
pub(crate) fn chosen(core: &Core, exchange: &mut Exchange<'_>, backend: &BackendView, slot: &Slot) {
    let server = slot.server();
    let counters = || core.upstreams.counters(server, core.now(), || backend.plan.figures.server(server.name()));
    let is_other = exchange.progress.choose(server, counters);
    // A retry is no choice, and neither is a cookie.
    if is_other && slot.found() != Found::Kept {
        count(core, &exchange.progress, Counter::Chosen);
    }
}

/// What the slot's server is to be asked for (`sni`).
fn server_name(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    backend: &BackendView,
    slot: &Slot,
) -> Option<Box<str>> {
    let encryption = slot.encryption().filter(|encryption| encryption.wants_name())?;
    route::evaluate(core, exchange, work, backend, |cx| encryption.name(cx))
}

/// A connection to the slot's server: the client's own, an idle one as `http-reuse` allows, or a new one, as it has to be
/// with `new`.
#[allow(clippy::too_many_arguments, reason = "the request line's state, side by side")]
async fn connect(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: &Slot,
    name: Option<Box<str>>,
    new: bool,
) -> Result<ServerConnection, ConnectFailed> {
    if let Some(own) = exchange.session.take_private()
        && !new
        && Arc::ptr_eq(&own.server, slot.server())
        && own.fits(slot.config(), slot.encryption())
        && own.name == name
        && !own.stream.is_stale()
    {
        exchange.facts.connected(Duration::ZERO);
        return Ok(*own);
    }
    let shareable = slot.config().send_proxy == ProxyProtocol::Off && slot.config().max_reuse != Some(0);
    let idle = match backend.plan.proxy.http.reuse {
        _ if new || !shareable => None,
        Reuse::Never => None,
        Reuse::Safe if exchange.is_first => None,
        Reuse::Aggressive if exchange.is_first => core.upstreams.take(slot, name.as_deref(), true),
        Reuse::Safe | Reuse::Aggressive | Reuse::Always => core.upstreams.take(slot, name.as_deref(), false),
    };
    if let Some(connection) = idle {
        count(core, &exchange.progress, Counter::Reuses);
        exchange.facts.connected(Duration::ZERO);
        return Ok(connection);
    }
    let began = core.now();
    let Exchange { connection, deadline, progress, .. } = &mut *exchange;
    count(core, progress, Counter::Connects);
    let count = &|counter| count(core, progress, counter);
    let proxy = &backend.plan.proxy;
    let opening = Opening {
        core,
        orders: connection.orders(),
        backend: proxy,
        client: &connection.addresses,
        client_stream: &connection.stream,
        listener: connection.listener(),
        slot,
        has_data: true,
        count,
    };
    let opened = opening.open(deadline, name).await?;
    slot.server().report(Observed::Connected);
    exchange.facts.connected(core.now().saturating_duration_since(began));
    Ok(opened)
}

/// Counts at the server and at its backend.
pub(crate) fn count(core: &Core, progress: &Progress, counter: Counter) {
    let backend = progress.backend().map(|backend| &backend.plan.figures.counters);
    let server = progress.server_counters().map(|counters| &**counters);
    for counters in server.into_iter().chain(backend) {
        counters.add(core.number, counter, 1);
    }
}

/// Whether what is left of a body is worth a large buffer, or a pipe.
fn is_long(core: &Core, body: Body) -> bool {
    match body {
        Body::Length(left) => core.buffers.is_long(left),
        Body::UntilClose => true,
        Body::Chunked | Body::Done => false,
    }
}

/// Sends an answer of our own: a rule's, a redirect, the monitor's.
pub async fn answer(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    answer: route::Answer,
) -> Result<Sent, Ended> {
    let complete = work.composed.unwrap_or_else(|| parse::body_complete(work));
    let keep = complete && respond::may_keep(core, exchange, work);
    work.down.clear();
    let keep = respond::forward(core, exchange, work, &answer.page, keep);
    respond::send(core, exchange, work).await?;
    if keep && work.composed.is_none() {
        parse::skip_body(work);
    }
    Ok(Sent { keep, unread: !complete, ended: answer.ended })
}
