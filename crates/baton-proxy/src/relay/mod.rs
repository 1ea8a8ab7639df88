//! Relaying: a request to a server and its response back, or bytes both ways.

mod hold;
pub mod in_flight;
pub mod movable;
mod response;
mod transfer;
pub mod tunnel;
pub mod upgraded;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use baton_http::{ForUpstream, Framing};
use baton_model::ConnectionMode;

use crate::balance::Slot;
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::flow::{Body, Flow};
use crate::header_case;
use crate::messages::Messages;
use crate::relay::response::Passage;
use crate::server_exchange::ServerExchange;
use crate::view::BackendView;

pub use response::{Failure, Parked, Passed};
pub use transfer::NoResponse;

/// Writes the request as a server of HTTP/1 gets it, or for HTTP/2 if the server before spoke that, with as much of its body as is there. What is
/// left of the body follows when it is relayed.
pub fn compose(core: &Core, exchange: &mut Exchange<'_>, backend: &BackendView) -> Result<(), Ended> {
    exchange.messages.prepare_exchange();
    let pretend = backend.plan.proxy.http.pretend_keepalive;
    let keep_alive = exchange.progress.connection_mode() == ConnectionMode::KeepAlive || pretend;
    let named = backend.plan.proxy.http.send_name_header.as_ref();
    let client = exchange.client;
    let Messages { input, request, request_chunks, up, up_head, upload, composed, server_line, .. } =
        &mut *exchange.messages;
    request.for_upstream(input.pinned(), ForUpstream { keep_alive });
    if request.framing == Framing::UntilClose {
        // A server connection that is kept has no end to show.
        request.headers.add(b"transfer-encoding", b"chunked");
    }
    if let Some(name) = named {
        request.headers.remove(input.pinned(), name.as_bytes());
    }
    up.clear();
    let cases = backend.plan.proxy.http.server_cases.as_ref();
    let is_for_http2 = backend.speaks_http2.get() && named.is_none();
    if is_for_http2 {
        (*up_head, *server_line) = (0, 0..0);
    } else {
        request.write(input.pinned(), up);
        if let Some(cases) = cases {
            header_case::adjust(cases, up);
        }
        // Before the empty line.
        *server_line = up.len() - 2..up.len() - 2;
        *up_head = up.len();
    }
    let body = Body::of(request.framing);
    let as_chunks = !is_for_http2 && matches!(body, Body::Chunked | Body::UntilClose);
    let flow = Flow::start(body, as_chunks, input, request_chunks, up);
    *upload = flow.map_err(|_| Ended::refused(Cause::Proxy, Phase::Request, 400))?;
    upload.read_ahead(client, input, request_chunks, up);
    *composed = true;
    if is_long(core, upload.body) {
        upload.splicer = exchange.progress.frontend.splicers(&core.pipes, backend).0.map(Box::new);
    }
    Ok(())
}

/// Sends the request to a server, and its response to the client, to the head that makes a tunnel of both connections.
pub async fn run(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &Rc<BackendView>,
    slot: &Slot,
    server: ServerExchange,
) -> Result<Passed, Failure> {
    let passage = Passage { core, exchange, backend, slot };
    // Pinned before it is passed on: as a value these kilobytes would be copied.
    let passed = pin!(passage.run(server));
    unless_cut(slot, passed).await.unwrap_or(Err(Failure::Ended(Ended::down())))
}

/// Goes on with a request that was sent on, as [`run`] does.
pub async fn resume(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &Rc<BackendView>,
    slot: &Slot,
    parked: Parked,
) -> Result<Passed, Failure> {
    let passage = Passage { core, exchange, backend, slot };
    let passed = pin!(passage.resume(parked));
    unless_cut(slot, passed).await.unwrap_or(Err(Failure::Ended(Ended::down())))
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

/// Whether what is left of a body is worth a large buffer, or a pipe.
fn is_long(core: &Core, body: Body) -> bool {
    match body {
        Body::Length(left) => core.buffers.is_long(left),
        Body::UntilClose => true,
        Body::Chunked | Body::Done => false,
    }
}
