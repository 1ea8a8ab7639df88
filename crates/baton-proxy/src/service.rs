//! Requests that Baton answers itself, from live state: the statistics page (`stats …`) and what `http-request use-service` names.
//!
//! The response is made by the thread of the change path ([`desk`](crate::desk)), and its core sends it, piece by piece: it asks for the
//! next piece when the client has the one before, so a slow client holds one piece and delays nobody.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use baton_http::{Framing, Headers, Method, RequestView, Version, write_chunk_header, write_last_chunk};
use baton_rules::{Body, reason};
use tokio::sync::oneshot;

use crate::body::Arrived;
use crate::core::{Core, Interrupt, until};
use crate::desk::{FIELDS, Piece, ServiceBody, ServiceCall, ServiceKind, ServiceRequest, ServiceResponse};
use crate::ended::{Cause, Ended, Phase, Side};
use crate::exchange::Exchange;
use crate::messages::Messages;
use crate::parse;
use crate::respond::{self, Sent};
use crate::rules::OwnResponse;
use crate::sink;

/// How long the change path's thread may take for a piece that is not waited for. It is busy for longer only when the process is stuck.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Gives the request to a service, and its response to the client.
pub async fn answer(core: &Rc<Core>, exchange: &mut Exchange<'_>, service: ServiceKind) -> Result<Sent, Ended> {
    let began = core.now();
    exchange.facts.served_by(service.log_name());
    if exchange.messages.request.method == Method::Post && matches!(service, ServiceKind::Statistics { .. }) {
        let proxy = exchange.progress.proxy().clone();
        parse::body(core, exchange, &proxy).await?;
    }
    let request = request(exchange, service);
    let (reply, answer) = oneshot::channel();
    let call = ServiceCall::Begin(Box::new(request), reply);
    let response = waited(core, exchange, call, answer).await?;
    exchange.facts.response_received(core.now().saturating_duration_since(began));
    respond(core, exchange, response).await
}

/// What the service gets to know of the request.
fn request(exchange: &Exchange<'_>, service: ServiceKind) -> ServiceRequest {
    let Exchange { connection, messages, progress, .. } = exchange;
    let Messages { request, request_chunks, input, body, .. } = &**messages;
    let head = RequestView::new(request, input.pinned());
    let field = |name: &'static str| {
        let value = head.fields().lines(name.as_bytes()).next()?.to_vec();
        Some((name, value))
    };
    let is_whole = body.arrived() == Arrived::Whole;
    ServiceRequest {
        service,
        method: request.method,
        target: head.path_and_query().to_vec(),
        fields: FIELDS.into_iter().filter_map(field).collect(),
        body: match is_whole && request.method == Method::Post {
            true => Body::of(request.framing, input, request_chunks).bytes().into_owned(),
            false => Vec::new(),
        },
        is_whole,
        proxy: progress.proxy().name.clone(),
        client: connection.source(),
    }
}

/// Leaves a call and waits for the answer, as long as there is a client.
async fn waited<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    call: ServiceCall,
    mut answer: oneshot::Receiver<T>,
) -> Result<T, Ended> {
    // A piece of a body may be long in coming: it is one of a stream of events.
    let limit = matches!(call, ServiceCall::Begin(..)).then(|| core.now() + ANSWERED_WITHIN);
    let stopped = Ended::new(Cause::Internal, Phase::Headers);
    let Exchange { client, orders, deadline, .. } = exchange;
    deadline.set(limit);
    let mut leaving = Box::pin(core.registry.desk.call(call));
    let left = until(core, orders, deadline, |cx| leaving.as_mut().poll(cx)).await;
    match left {
        Ok(true) => {}
        Ok(false) | Err(Interrupt::Timeout) => return Err(stopped),
        Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Headers)),
    }
    let heard = until(core, orders, deadline, |cx: &mut Context<'_>| {
        if client.poll_broken(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut answer).poll(cx).map(Some)
    });
    match heard.await {
        Ok(Some(Ok(value))) => Ok(value),
        Ok(None) => Err(Ended::aborted_by(Side::Client, Phase::Data)),
        Ok(Some(Err(_))) | Err(Interrupt::Timeout) => Err(stopped),
        Err(Interrupt::Abort) => Err(Ended::aborted(Phase::Data)),
    }
}

/// Sends the response.
async fn respond(core: &Rc<Core>, exchange: &mut Exchange<'_>, response: ServiceResponse) -> Result<Sent, Ended> {
    let ServiceResponse { status, content_type, fields, body } = response;
    let reason = reason(status);
    let mut page = format!("HTTP/1.1 {status} {reason}\r\ncache-control: no-cache\r\ncontent-type: {content_type}\r\n");
    // Where HAProxy has it.
    if let ServiceBody::Whole(bytes) = &body {
        page.push_str(&format!("content-length: {}\r\n", bytes.len()));
    }
    for (name, value) in &fields {
        page.push_str(&format!("{name}: {value}\r\n"));
    }
    let local = Some(Ended::refused(Cause::Local, Phase::Request, 0));
    let mut cursor = match body {
        ServiceBody::Whole(bytes) => {
            page.push_str("\r\n");
            let page = [page.as_bytes(), &bytes].concat();
            return respond::answer(core, exchange, OwnResponse { page, logged: None, ended: local }).await;
        }
        ServiceBody::Pieces(cursor) => Some(cursor),
    };
    // A client of HTTP/1.0 knows the end by the end of the connection.
    if exchange.messages.request.version >= Version::Http11 {
        page.push_str("transfer-encoding: chunked\r\n");
    }
    page.push_str("\r\n");
    let complete = exchange.messages.has_whole_body();
    let keep = complete && sink::may_keep(core, exchange);
    exchange.messages.down.clear();
    let keep = respond::forward(core, exchange, page.as_bytes(), keep);
    if exchange.messages.request.method == Method::Head || exchange.messages.response.status == 0 {
        // It has no body, or a rule about it failed, and the client gets an error instead.
        cursor = None;
    } else {
        let as_chunks =
            sink::writes_chunks(exchange, Framing::Chunked) && exchange.messages.response.framing == Framing::Chunked;
        while let Some(next) = cursor.take() {
            let (reply, answer) = oneshot::channel();
            exchange.send(core).await?;
            let Piece { bytes, next } = waited(core, exchange, ServiceCall::Go(next, reply), answer).await?;
            cursor = next;
            exchange.facts.sent(bytes.len() as u64);
            let down = &mut exchange.messages.down;
            match as_chunks {
                true if bytes.is_empty() => {}
                true => {
                    write_chunk_header(down, bytes.len());
                    down.extend_from_slice(&bytes);
                    down.extend_from_slice(b"\r\n");
                }
                false => down.extend_from_slice(&bytes),
            }
        }
        if as_chunks {
            write_last_chunk(&mut exchange.messages.down, &[], &Headers::new());
        }
    }
    drop(cursor);
    exchange.send_last(core).await?;
    if keep {
        exchange.messages.skip_body();
    }
    Ok(Sent { keep, unread: !complete, ..Sent::ended(local) })
}
