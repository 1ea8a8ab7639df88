//! Requests in flight that another process goes on with: from the moment they were sent on, what is left is a relay of two messages.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use socket2::Socket;

use crate::balance::Slot;
use crate::buffer::Buffer;
use crate::core::Core;
use crate::exchange::Exchange;
use crate::flow::{Flow, FlowState};
use crate::messages::Messages;
use crate::moving::{
    Activity, InFlightRequest, MovedTls, PumpState, ResponseState, ReusableServer, StayReason, TunnelState,
    read_request_head,
};
use crate::pipes::Splicer;
use crate::progress::{CookieDates, Persistence};
use crate::relay::response::{Download, Parked};
use crate::relay::transfer::Standing;
use crate::relay::{is_long, movable};
use crate::server_connection::ServerConnection;
use crate::server_exchange::ServerExchange;
use crate::stream::Stream;
use crate::view::BackendView;

/// Sends a request off to the process that has taken over. From then on it is none of ours: neither counted, nor logged. It can go on here
/// otherwise, in this place at the server.
pub fn leave(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: Slot,
    parked: &mut Parked,
) -> Result<(), (StayReason, Slot)> {
    if let Some(reason) = reason_to_stay(exchange, &slot, parked) {
        return Err((reason, slot));
    }
    let Some(facts) = exchange.facts.kept() else { return Err((StayReason::Variables, slot)) };
    let Ok(request) = state(exchange, parked) else { return Err((StayReason::InFlight, slot)) };
    let state = TunnelState {
        backend: backend.plan.proxy.name.clone(),
        server: slot.server().name().clone(),
        up: PumpState::default(),
        down: PumpState::default(),
        active: Activity::of(parked.standing.up, parked.standing.down),
        facts,
        request: Some(Box::new(request)),
    };
    movable::send(core, exchange, parked.server.socket(), slot, state)
}

/// Why a request cannot go on in another process; `None`: it can.
fn reason_to_stay(exchange: &Exchange<'_>, slot: &Slot, parked: &Parked) -> Option<StayReason> {
    let ServerExchange::Http1(connection) = &parked.server else { return Some(StayReason::Http2) };
    if connection.private {
        return Some(StayReason::OwnServer);
    }
    if !exchange.progress.stick_keys.is_empty() {
        return Some(StayReason::Tracked);
    }
    movable::reason_to_stay(exchange, &connection.stream, slot)
}

/// A request as data. It can go on all the same.
fn state(exchange: &mut Exchange<'_>, parked: &mut Parked) -> io::Result<InFlightRequest> {
    let Messages {
        input,
        request,
        request_chunks,
        up,
        up_head,
        server_line,
        upload,
        received,
        response_chunks,
        down,
        ..
    } = &mut *exchange.messages;
    let mut head = Vec::new();
    request.write(input.pinned(), &mut head);
    let response = match &mut parked.download {
        None => ResponseState::Awaited(received.to_vec()),
        Some(Download { flow, is_empty, keep, .. }) => {
            // What was sent of the request is not sent again.
            upload.replayable = false;
            let download = FlowState { replayable: false, ..flow.park(received, response_chunks, down)? };
            ResponseState::Passed { download, is_empty: *is_empty, keep: *keep }
        }
    };
    let Persistence { is_wanted, is_ignored, dates } = exchange.progress.persistence;
    let dates = dates.map(|CookieDates { last, first }| (last, first));
    let may_be_used = parked.download.as_ref().is_none_or(|download| download.server_reusable);
    let connection = parked.server.connection();
    let terms = if may_be_used && connection.is_shareable() { connection.terms() } else { None };
    let server = terms.map(|terms| {
        let (name, requests) = (connection.name.clone(), connection.requests);
        ReusableServer { terms, name, requests }
    });
    Ok(InFlightRequest {
        head,
        wants_close: request.connection.close,
        wants_kept: request.connection.keep_alive,
        must_close: request.must_close,
        upload: upload.park(input, request_chunks, up)?,
        up_head: *up_head,
        server_line: (server_line.start, server_line.end),
        began: parked.began,
        is_reused: exchange.progress.is_reused(),
        no_retry: exchange.no_retry,
        persistence: (is_wanted, is_ignored, dates),
        is_given_up: parked.standing.is_given_up,
        server,
        response,
    })
}

/// A request that was in flight elsewhere until now. `None`: what is said of it cannot be.
pub fn arrive(
    core: &Core,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: &Slot,
    (state, active): (InFlightRequest, [Activity; 2]),
    (socket, tls): (OwnedFd, Option<Box<MovedTls>>),
) -> Option<Parked> {
    let (up, down) = Activity::directions(active);
    let standing = Standing { up, down, is_given_up: state.is_given_up };
    let splicers = || exchange.progress.frontend.splicers(&core.pipes, backend);
    let with_splicer = |mut flow: Flow, splicer: Option<Splicer>| {
        flow.splicer = splicer.filter(|_| is_long(core, flow.body)).map(Box::new);
        flow
    };
    let Messages {
        input,
        request,
        request_chunks,
        composed,
        up: up_out,
        up_head,
        server_line,
        upload,
        received,
        response_chunks,
        down: down_out,
        ..
    } = &mut *exchange.messages;
    let size = core.buffers.size(false);
    let unused = std::mem::replace(input, Buffer::holding(size, &state.head, &state.upload.input));
    core.buffers.give(unused);
    if !read_request_head(request, input.pinned()) {
        return None;
    }
    (request.connection.close, request.connection.keep_alive) = (state.wants_close, state.wants_kept);
    request.must_close = state.must_close;
    *upload = with_splicer(state.upload.resume(request_chunks, up_out)?, splicers().0);
    (*up_head, *server_line) = (state.up_head, state.server_line.0..state.server_line.1);
    *composed = true;
    let download = match state.response {
        ResponseState::Awaited(bytes) => {
            *received = Buffer::holding(size, &[], &bytes);
            None
        }
        ResponseState::Passed { download, is_empty, keep } => {
            let is_long = is_long(core, download.body);
            *received = Buffer::holding(core.buffers.size(is_long), &[], &download.input);
            let flow = with_splicer(download.resume(response_chunks, down_out)?, splicers().1);
            Some(Download { flow, is_empty, server_reusable: state.server.is_some(), keep, usual: None })
        }
    };
    let (is_wanted, is_ignored, dates) = state.persistence;
    let dates = dates.map(|(last, first)| CookieDates { last, first });
    exchange.progress.persistence = Persistence { is_wanted, is_ignored, dates };
    exchange.progress.go_over(state.is_reused);
    exchange.no_retry = state.no_retry;
    let known = state.server.and_then(|server| {
        let encryption = server.terms.agreed(slot.config(), slot.encryption(), tls.is_some())?;
        Some((encryption, server.name, server.requests))
    });
    let is_last = known.is_none();
    let (encryption, name, requests) = known.unwrap_or((None, None, 1));
    let connection = ServerConnection {
        stream: Stream::resumed(Socket::from(socket), tls.as_deref(), &core.records),
        server: slot.server().clone(),
        config: slot.config().clone(),
        protocol: None,
        encryption,
        name,
        client: None,
        requests,
        private: false,
        is_last,
        idle_since: core.now(),
    };
    Some(Parked { server: ServerExchange::Http1(Box::new(connection)), began: state.began, standing, download })
}
