//! Relaying: a request to a server and its response back, with the attempts that takes; and bytes both ways.

pub mod attempts;
pub mod exchange;
mod splicing;
pub mod tunnel;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use baton_http::{ForClient, Framing, Method, Version};
use baton_model::{ConnectionMode, ProxyProtocol, Reuse};

use crate::accept::Client;
use crate::balance::{Observed, Slot};
use crate::buffer::Buffer;
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::place::{self, Wish};
use crate::record::{self, Entry};
use crate::relay::attempts::Attempts;
use crate::relay::exchange::{Body, Ends, Flow, NoResponse};
use crate::relay::tunnel::{Patience, Pump};
use crate::request::connection_mode;
use crate::respond;
use crate::route;
use crate::state::Counter;
use crate::upstream::{self, ConnectFailed, Connection};
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
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    backend: &Rc<BackendView>,
    wish: &mut Wish,
) -> Result<Sent, Ended> {
    let mode = connection_mode(entry);
    let mut upload = compose_request(work, entry, mode)?;
    if is_long(core, upload.body) {
        upload.splicer = entry.frontend.splicers(core, backend).0.map(Box::new);
    }
    let outcome = attempt(core, client, work, entry, backend, wish, &mut upload).await;
    work.composed = Some(upload.body == Body::Done);
    outcome
}

#[allow(clippy::too_many_arguments, reason = "the request line's state, side by side")]
async fn attempt(
    core: &Rc<Core>,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    backend: &Rc<BackendView>,
    wish: &mut Wish,
    upload: &mut Flow,
) -> Result<Sent, Ended> {
    let mut attempts = Attempts::new(&backend.plan.proxy);
    loop {
        let slot = place::take(core, client, entry, wish).await?;
        chosen(core, entry, backend, &slot);
        route::note_persistence(entry, wish);
        if let Some(prefix) = &slot.config().redir
            && matches!(work.request.method, Method::Get | Method::Head)
        {
            return redirect_to_server(core, client, work, entry, &prefix.clone()).await;
        }
        let connection = match connect(core, client, entry, backend, &slot, attempts.wants_new()).await {
            Ok(connection) => connection,
            Err(ConnectFailed::Final(ended)) => return Err(ended),
            Err(ConnectFailed::Retry(ended)) => {
                slot.server().report(Observed::ConnectFailed);
                attempts.again(core, client, entry, wish, slot, ended).await?;
                continue;
            }
        };
        let reused = connection.requests > 0;
        entry.reused = reused;
        let response = {
            // Pinned before it is passed on: as a value these kilobytes would be copied.
            let response = pin!(respond_from(core, client, work, entry, backend, &slot, connection, upload));
            unless_cut(&slot, response).await
        };
        match response.unwrap_or(Err(Failure::Ended(Ended::down()))) {
            Ok(sent) => {
                entry.slot = Some(slot);
                return Ok(sent);
            }
            Err(Failure::Ended(ended)) => {
                entry.slot = Some(slot);
                return Err(ended);
            }
            Err(Failure::NoResponse(failure)) => {
                slot.server().report(Observed::AnswerFailed);
                let stale = reused && matches!(failure, NoResponse::Empty) && is_repeatable(&work.request.method);
                if !upload.replayable || !(stale || attempts.may_repeat(&failure, client.no_retry)) {
                    entry.slot = Some(slot);
                    return Err(ended_of(&failure));
                }
                upload.restart();
                work.received.clear();
                work.response.clear();
                if stale {
                    attempts.met_stale();
                } else {
                    attempts.again_at_once(entry, wish, slot);
                }
            }
            Err(Failure::Status) => {
                upload.restart();
                work.received.clear();
                work.response.clear();
                attempts.again_at_once(entry, wish, slot);
            }
        }
    }
}

/// `redir`: the client is to ask the server itself.
async fn redirect_to_server(
    core: &Rc<Core>,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    prefix: &str,
) -> Result<Sent, Ended> {
    let target = work.request.path_and_query(work.input.pinned());
    let mut page = b"HTTP/1.1 302 Found\r\ncache-control: no-cache\r\ncontent-length: 0\r\nlocation: ".to_vec();
    page.extend_from_slice(prefix.as_bytes());
    page.extend_from_slice(target);
    page.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    let ended = Some(Ended::refused(Cause::Local, Phase::Connect, 302));
    answer(core, client, work, entry, route::Answer { page, ended }).await
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

/// Why an attempt gave no response to pass on.
enum Failure {
    NoResponse(NoResponse),
    /// `retry-on` wants this status tried again.
    Status,
    Ended(Ended),
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
fn compose_request(work: &mut Work, entry: &Entry, mode: ConnectionMode) -> Result<Flow, Ended> {
    let pretend = entry.backend.as_ref().is_some_and(|backend| backend.plan.proxy.http.pretend_keepalive);
    let keep_alive = mode == ConnectionMode::KeepAlive || pretend;
    let Work { input, request, request_chunks, up, .. } = work;
    request.for_upstream(input.pinned(), baton_http::ForUpstream { keep_alive });
    up.clear();
    request.write(input.pinned(), up);
    let body = Body::of(request.framing);
    Flow::start(body, input, request_chunks, up).map_err(|_| Ended::refused(Cause::Proxy, Phase::Request, 400))
}

/// Notes the server that was chosen.
pub(crate) fn chosen(core: &Core, entry: &mut Entry, backend: &BackendView, slot: &Slot) {
    let server = slot.server();
    if entry.server.as_ref().is_none_or(|known| !Arc::ptr_eq(known, server)) || entry.server_counters.is_none() {
        let name = server.name();
        let counters = core.upstreams.counters(server, core.now(), || backend.plan.figures.server(name));
        entry.server_counters = Some(counters);
        entry.server = Some(server.clone());
    }
    if let Some(counters) = &entry.server_counters {
        counters.add(core.number, Counter::Chosen, 1);
    }
}

/// A connection to the slot's server: the client's own, an idle one as `http-reuse` allows, or a new one, as it has to be
/// with `new`.
async fn connect(
    core: &Rc<Core>,
    client: &mut Client,
    entry: &mut Entry,
    backend: &BackendView,
    slot: &Slot,
    new: bool,
) -> Result<Connection, ConnectFailed> {
    if let Some(own) = client.private.take()
        && !new
        && Arc::ptr_eq(&own.server, slot.server())
        && own.fits(slot.config())
        && !own.stream.is_stale()
    {
        entry.connect_time = Some(std::time::Duration::ZERO);
        return Ok(*own);
    }
    let shareable = slot.config().send_proxy == ProxyProtocol::Off && slot.config().max_reuse != Some(0);
    let idle = match backend.plan.proxy.http.reuse {
        _ if new || !shareable => None,
        Reuse::Never => None,
        Reuse::Safe if client.requests == 0 => None,
        Reuse::Aggressive if client.requests == 0 => core.upstreams.take(slot, true),
        Reuse::Safe | Reuse::Aggressive | Reuse::Always => core.upstreams.take(slot, false),
    };
    if let Some(connection) = idle {
        count(core, entry, Counter::Reuses);
        entry.connect_time = Some(std::time::Duration::ZERO);
        return Ok(connection);
    }
    let began = core.now();
    let Client { deadline, registered, addresses, .. } = client;
    let opened = upstream::open(core, &registered.session, deadline, slot, &backend.plan.proxy, addresses).await?;
    count(core, entry, Counter::Connects);
    slot.server().report(Observed::Connected);
    entry.connect_time = Some(core.now().saturating_duration_since(began));
    Ok(opened)
}

fn count(core: &Core, entry: &Entry, counter: Counter) {
    if let Some(counters) = &entry.server_counters {
        counters.add(core.number, counter, 1);
    }
}

/// Sends the request over `connection`, reads the response and passes it on.
#[allow(clippy::too_many_arguments, reason = "the request line's state, side by side")]
async fn respond_from(
    core: &Rc<Core>,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    backend: &Rc<BackendView>,
    slot: &Slot,
    mut connection: Connection,
    upload: &mut Flow,
) -> Result<Sent, Failure> {
    connection.requests = connection.requests.saturating_add(1);
    let patience = request_patience(entry, backend);
    let began = core.now();
    loop {
        let mut ends = Ends {
            core,
            session: &client.registered.session,
            deadline: &mut client.deadline,
            client: &client.stream,
            server: &connection.stream,
            patience: &patience,
            abort_on_close: backend.plan.proxy.tcp.abort_on_close,
            relaxed: backend.plan.proxy.http.accept_invalid_response,
        };
        let head = exchange::response_head(&mut ends, work, upload).await;
        if matches!(head, Err(NoResponse::Malformed | NoResponse::Late | NoResponse::Ended(_))) {
            // Given up by us: a server that has a part of the request is not to take it for the whole.
            connection.stream.reset_on_close();
        }
        if matches!(head, Err(NoResponse::Malformed)) && work.response.status == 101 && !work.request.upgrade {
            // A 101 that nobody asked for is counted all the same.
            entry.bytes_out += respond::counted_head(&work.response, &work.received);
        }
        let len = head.map_err(|failure| match failure {
            NoResponse::Ended(ended) => Failure::Ended(ended),
            other => Failure::NoResponse(other),
        })?;
        if work.response.is_interim() {
            interim(core, client, work, entry, len).await.map_err(Failure::Ended)?;
            continue;
        }
        entry.response_time = Some(core.now().saturating_duration_since(began));
        if upload.replayable
            && !client.no_retry
            && backend.plan.proxy.retry_on.statuses.contains(&work.response.status)
            && entry.retries < backend.plan.proxy.retries
        {
            let complete = work.response.framing.is_empty() && work.received.len() == len;
            if complete && entry.retries > 0 && upload.finished && work.response.server_reusable() {
                client.private = Some(Box::new(connection));
            }
            return Err(Failure::Status);
        }
        slot.server().report(if observed_bad(work.response.status) { Observed::BadStatus } else { Observed::Answered });
        return pass_on(core, client, work, entry, backend, slot, connection, upload, len)
            .await
            .map_err(Failure::Ended);
    }
}

/// Statuses that `observe layer7` takes for a fault: 100-499, 501 and 505 are good (configuration manual, `observe`).
fn observed_bad(status: u16) -> bool {
    !matches!(status, 100..=499 | 501 | 505)
}

/// 1xx: passed on at once, to clients that know what it is.
async fn interim(
    core: &Core,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    len: usize,
) -> Result<(), Ended> {
    entry.bytes_out += respond::counted_head(&work.response, &work.received);
    work.response.for_client(&work.received, ForClient { keep_alive: true, version: work.request.version });
    work.down.clear();
    if work.request.version == Version::Http11 {
        work.response.write(&work.received, &mut work.down);
    }
    work.received.consume(len);
    respond::send(core, client, work, entry).await
}

/// The response's head is there: rules, head to the client, body, and what becomes of both connections.
#[allow(clippy::too_many_arguments, reason = "the request line's state, side by side")]
async fn pass_on(
    core: &Rc<Core>,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    backend: &Rc<BackendView>,
    slot: &Slot,
    mut connection: Connection,
    upload: &mut Flow,
    len: usize,
) -> Result<Sent, Ended> {
    entry.bytes_out += respond::counted_head(&work.response, &work.received);
    if let Err(ended) = route::response(core, client, work, entry, backend, slot) {
        // A response that a rule holds back is counted, with what came of its body.
        entry.bytes_out += work.received.len().saturating_sub(len) as u64;
        entry.response_time = None;
        return Err(ended);
    }
    let keep_alive = respond::may_keep(core, client, work, entry);
    let server_reusable = work.response.server_reusable();
    let framing = work.response.framing;
    let Work { response, received, down, request, .. } = &mut *work;
    let keep = response.for_client(received, ForClient { keep_alive, version: request.version });
    down.clear();
    response.write(received, down);
    entry.status = response.status;
    connection.private |= is_private(response, received);
    if framing == Framing::Tunnel {
        received.consume(len);
        return tunnel(core, client, work, entry, backend, connection, upload).await;
    }
    received.consume(len);
    if entry.frontend.plan.proxy.logging.asap {
        // Of the body, what came with the head is counted in this line.
        let there = work.received.len() as u64;
        entry.bytes_out += there;
        record::write_early(core, client, entry, &work.line);
        entry.bytes_out -= there;
    }
    let Work { received, down, response_chunks, .. } = &mut *work;
    let body = Body::of(framing);
    let mut download = Flow::start(body, received, response_chunks, down).map_err(|_| {
        entry.status = 0;
        entry.bytes_out = 0;
        entry.response_time = None;
        Ended::new(Cause::Proxy, Phase::Headers)
    })?;
    let patience = request_patience(entry, backend);
    let mut ends = Ends {
        core,
        session: &client.registered.session,
        deadline: &mut client.deadline,
        client: &client.stream,
        server: &connection.stream,
        patience: &patience,
        abort_on_close: false,
        relaxed: false,
    };
    let long = is_long(core, download.body);
    if long {
        download.splicer = entry.frontend.splicers(core, backend).1.map(Box::new);
    }
    let usual =
        (long && work.received.is_empty()).then(|| std::mem::replace(&mut work.received, core.buffers.take_large()));
    let outcome = exchange::response_body(&mut ends, work, upload, &mut download).await;
    let left_over = !work.received.is_empty();
    if let Some(usual) = usual {
        core.buffers.give(std::mem::replace(&mut work.received, usual));
    }
    entry.bytes_out += download.moved;
    entry.bytes_in += upload.moved;
    if outcome.is_err_and(|ended| ended.cause != Cause::ServerAborted) {
        connection.stream.reset_on_close();
    }
    outcome?;
    let rest = if upload.finished || !keep {
        Ok(upload.finished)
    } else {
        let moved = upload.moved;
        let rest = exchange::rest_of_request(&mut ends, work, upload).await;
        entry.bytes_in += upload.moved - moved;
        rest
    };
    let delivered = matches!(rest, Ok(true));
    if server_reusable && delivered && !left_over && connection_mode(entry) == ConnectionMode::KeepAlive {
        connection.idle_since = core.now();
        let exhausted = connection.config.max_reuse.is_some_and(|max| connection.requests > max);
        if exhausted {
            drop(connection);
        } else if backend.plan.proxy.http.reuse == Reuse::Never || connection.private || !connection.is_shareable() {
            client.private = Some(Box::new(connection));
        } else {
            core.upstreams.give(core, connection);
        }
    }
    client.last_server = Some(slot.server().clone());
    Ok(Sent { keep: keep && upload.finished, unread: !upload.finished, ended: rest.err() })
}

/// Whether what is left of a body is worth a large buffer, or a pipe.
fn is_long(core: &Core, body: Body) -> bool {
    match body {
        Body::Length(left) => core.buffers.is_long(left),
        Body::UntilClose => true,
        Body::Chunked | Body::Done => false,
    }
}

/// A response that authenticates the connection itself (NTLM, Negotiate) makes it the client's own.
fn is_private(response: &baton_http::ResponseHead, buf: &[u8]) -> bool {
    if !matches!(response.status, 401 | 407) {
        return false;
    }
    let name: &[u8] = if response.status == 401 { b"www-authenticate" } else { b"proxy-authenticate" };
    response.headers.lines(buf, name).any(|value| {
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    })
}

/// Inactivity limits while a message passes.
fn request_patience(entry: &Entry, backend: &BackendView) -> Patience {
    Patience {
        client: entry.frontend.plan.proxy.timeouts.client,
        server: backend.plan.proxy.timeouts.server,
        ..Patience::default()
    }
}

/// An upgraded connection, or CONNECT: bytes both ways. A server may answer before it has taken the whole request: what is
/// left of it goes first.
async fn tunnel(
    core: &Rc<Core>,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    backend: &BackendView,
    connection: Connection,
    upload: &Flow,
) -> Result<Sent, Ended> {
    let patience = Patience { ends_with_server: true, ..entry.frontend.patience(backend) };
    respond::send(core, client, work, entry).await?;
    // The tunnel may last for days: only bytes that wait keep a buffer.
    work.input.unpin();
    let unsent = work.up.get(upload.sent..).unwrap_or_default();
    let (splice_up, splice_down) = entry.frontend.splicers(core, backend);
    let mut up = Pump::new(Buffer::of(&[unsent, &work.input])).splicing(splice_up);
    up.moved -= unsent.len() as u64;
    let mut down = Pump::new(Buffer::of(&[&work.received])).splicing(splice_down);
    work.lend(core);
    let Client { stream, deadline, registered, .. } = client;
    let ends = ((&*stream, &mut up), (&connection.stream, &mut down));
    let outcome = tunnel::run(core, &registered.session, deadline, ends.0, ends.1, &patience).await;
    entry.bytes_in += up.moved;
    entry.bytes_out += down.moved;
    Ok(Sent { keep: false, unread: false, ended: outcome.err() })
}

/// Sends an answer of our own: a rule's, a redirect, the monitor's.
pub async fn answer(
    core: &Rc<Core>,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    answer: route::Answer,
) -> Result<Sent, Ended> {
    let complete = work.request.framing.is_empty();
    let keep = complete && respond::may_keep(core, client, work, entry);
    work.down.clear();
    let keep = respond::forward(core, client, work, entry, &answer.page, keep);
    respond::send(core, client, work, entry).await?;
    Ok(Sent { keep, unread: !complete, ended: answer.ended })
}
