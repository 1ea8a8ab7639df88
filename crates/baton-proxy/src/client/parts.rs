//! A client between two requests, taken apart for another process, and put together from what another one was.

use std::cell::OnceCell;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use socket2::Socket;

use crate::buffer::Buffer;
use crate::client::Client;
use crate::connection::{Connection, Membership};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::exchange::Exchange;
use crate::moving::{Arrival, BegunHead, Departure, IdleClient, MovedTunnel, RequestState, StayReason};
use crate::proxy_protocol::HeaderValues;
use crate::session::Session;
use crate::stream::Stream;
use crate::view::FrontendSlot;

/// Why a client cannot go on in another process; `None`: it can.
pub fn reason_to_stay(connection: &Connection, session: &Session) -> Option<StayReason> {
    if !connection.stream.can_move() {
        return Some(StayReason::Tls);
    }
    if session.slot.is_removed() {
        return Some(StayReason::Removed);
    }
    session.reason_to_stay()
}

/// What there is to know of a client, with a second descriptor of its socket, its TLS, and what rules have left in its session: there is
/// nothing any more of that in there.
///
/// # Errors
/// The system gives no descriptor.
pub fn departure(
    core: &Core,
    connection: &Connection,
    session: &Session,
    due: Option<Instant>,
) -> io::Result<Departure> {
    let client = IdleClient {
        frontend: session.view().plan.proxy.name.clone(),
        source: connection.source(),
        destination: connection.destination.get().copied(),
        has_proxy_header: connection.has_proxy_header,
        proxy_values: connection.proxy_values.as_ref().map(|values| values.bytes().to_vec()),
        accepted: connection.accepted,
        handshake_ms: connection.handshake_ms,
        requests: session.requests(),
        rested_ms: session.rested_ms(),
        due,
        http2: None,
        head: None,
    };
    let socket = connection.stream.socket().try_clone()?.into();
    Ok(Departure {
        client,
        socket,
        tls: connection.stream.take_tls(),
        listener: connection.membership.listener().clone(),
        core: core.number,
        counted: core.count_in_transit(),
        on_way: None,
        tunnel: None,
        left: session.take_state(),
    })
}

/// Sends a client off in the middle of an exchange, with what rules have left in that. From then on it is none of ours: neither counted, nor
/// logged. Otherwise all of it is as before, but for the tunnel, which comes back.
pub fn send<M>(
    core: &Core,
    exchange: &mut Exchange<'_, M>,
    mut departure: Departure,
) -> Result<(), Option<Box<MovedTunnel>>> {
    if let Some(request) = exchange.take_state() {
        departure.left.get_or_insert_default().request = Some(request);
    }
    // It begins once more over there.
    departure.client.requests = departure.client.requests.saturating_sub(1);
    let refused = match core.mover() {
        Some(mover) => match mover.send(departure) {
            Ok(()) => return Ok(()),
            Err(refused) => *refused,
        },
        None => departure,
    };
    exchange.connection.stream.put_back(refused.tls.as_deref());
    exchange.session.put_state(core, refused.left);
    if let Some(request) = exchange.session.take_handed_on() {
        exchange.take_over(*request);
    }
    Err(refused.tunnel)
}

/// Sends a client off in the middle of a request's head, of which `input` has come. Otherwise all of it is as before.
///
/// # Errors
/// It stays, for this reason.
pub fn send_begun(core: &Core, exchange: &mut Exchange<'_>) -> Result<(), StayReason> {
    if let Some(reason) = reason_to_stay(exchange.connection, exchange.session) {
        return Err(reason);
    }
    let departure = departure(core, exchange.connection, exchange.session, exchange.deadline.due());
    let Ok(mut departure) = departure else { return Err(StayReason::Descriptors) };
    let input = &exchange.messages.input;
    if !input.is_empty() {
        let head = BegunHead { input: input.to_vec(), began: exchange.facts.began };
        departure.client.head = Some(Box::new(head));
    }
    send(core, exchange, departure).map_err(|_| StayReason::NoReply)
}

impl Client {
    /// Why it cannot go on in another process; `None`: it can.
    pub fn reason_to_stay(&self) -> Option<StayReason> {
        reason_to_stay(&self.connection, &self.session)
    }

    /// What there is to know of it, with a second descriptor of its socket, and its TLS. It must not be read from or written to any more, unless
    /// what was made of it is dropped before, but for its TLS and what rules have left, which are put back.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn depart(&self, core: &Core) -> io::Result<Departure> {
        departure(core, &self.connection, &self.session, self.deadline.due())
    }

    /// A client that was served elsewhere until now.
    pub fn arrive(core: &Rc<Core>, arrival: Arrival, slot: Rc<FrontendSlot>) -> Client {
        let Arrival { client, socket, tls, listener, stays, counted, tunnel: _, left } = arrival;
        let membership = Membership::enter(core, &listener, &slot.view().plan.state);
        drop(counted);
        let destination = client.destination.map_or_else(OnceCell::new, OnceCell::from);
        let stream = Stream::resumed(Socket::from(socket), tls.as_deref(), &core.records);
        let mut connection = Connection::assemble(stream, client.source, destination, client.accepted, membership);
        connection.has_proxy_header = client.has_proxy_header;
        connection.proxy_values = client.proxy_values.map(HeaderValues::of_bytes);
        connection.handshake_ms = client.handshake_ms;
        connection.orders().notes.enters(&slot);
        let mut deadline = Deadline::default();
        deadline.set(client.due);
        if let Some(reason) = stays {
            core.stays(&connection.membership.registered, reason);
        }
        let session = Session::resumed(slot, client.requests, client.rested_ms);
        let mut left = left;
        let input = client.head.map(|head| {
            let request: &mut Option<Box<RequestState>> = &mut left.get_or_insert_default().request;
            request.get_or_insert_default().began = Some(head.began);
            Box::new(Buffer::holding(core.buffers.size(false), &[], &head.input))
        });
        session.put_state(core, left);
        Client { connection, session, input, deadline }
    }
}
