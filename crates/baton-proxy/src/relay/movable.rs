//! Tunnels that another process may go on with: bytes both ways to their end, or to the moment when the session leaves for the process that
//! has taken over.

use std::io;
use std::rc::Rc;

use crate::balance::Slot;
use crate::client::parts;
use crate::core::Core;
use crate::ended::Ended;
use crate::exchange::Exchange;
use crate::moving::{MovedTunnel, StayReason, TunnelState};
use crate::patience::Patience;
use crate::relay::tunnel::{self, Course, Pump, TunnelEnd};
use crate::relay::unless_cut;
use crate::stream::Stream;
use crate::transport::Transport;
use crate::view::BackendView;

/// What became of the bytes of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Relayed {
    /// They were passed on, to the end of both directions.
    ToItsEnd,
    /// The session has left for another process.
    Left,
}

/// Passes bytes both ways to the end of the session, or until it leaves for another process.
pub async fn pass<M>(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    (server, mut slot): (Transport<'_>, Slot),
    (mut up, mut down): (Pump, Pump),
    mut course: Course,
) -> Result<Relayed, Ended> {
    if exchange.client.connection().is_some() && server.connection().is_none() {
        core.bind(exchange.orders, StayReason::Http2);
    }
    // One that began with a request is a tunnel of HTTP.
    let has_request = exchange.facts.has_request;
    let patience = Patience { ends_with_server: has_request, ..exchange.patience(backend) };
    let outcome = loop {
        let Exchange { client, orders, deadline, .. } = &mut *exchange;
        let ends = ((*client, &mut up), (server, &mut down));
        let relayed = tunnel::run(core, orders, deadline, ends.0, ends.1, &patience, &mut course);
        match unless_cut(&slot, relayed).await.unwrap_or(Err(Ended::down())) {
            Ok(TunnelEnd::Over) => break Ok(Relayed::ToItsEnd),
            Ok(TunnelEnd::Boundary) => match leave(core, exchange, backend, server, slot, (&mut up, &mut down), course)
            {
                Ok(()) => return Ok(Relayed::Left),
                Err((reason, kept)) => {
                    core.stays(&exchange.connection.membership.registered, reason);
                    slot = kept;
                }
            },
            Err(ended) => break Err(ended),
        }
    };
    exchange.facts.received(up.moved);
    exchange.facts.sent(down.moved);
    let is_null = !has_request && up.moved == 0 && down.moved == 0;
    if exchange.progress.frontend.plan.proxy.logging.dont_log_null && is_null {
        exchange.facts.silence();
    }
    exchange.progress.keep(slot);
    outcome
}

/// Sends a session off to the process that has taken over. From then on it is none of ours: neither counted, nor logged.
fn leave<M>(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    server: Transport<'_>,
    slot: Slot,
    (up, down): (&mut Pump, &mut Pump),
    course: Course,
) -> Result<(), (StayReason, Slot)> {
    let Some(stream) = server.connection() else { return Err((StayReason::Http2, slot)) };
    if let Some(reason) = reason_to_stay(exchange, stream, &slot) {
        return Err((reason, slot));
    }
    let Some(facts) = exchange.facts.kept() else { return Err((StayReason::Variables, slot)) };
    let (Ok(up), Ok(down)) = (up.park(), down.park()) else { return Err((StayReason::InFlight, slot)) };
    let state = TunnelState {
        backend: backend.plan.proxy.name.clone(),
        server: slot.server().name().clone(),
        up,
        down,
        active: [course.client, course.server],
        facts,
        request: None,
    };
    send(core, exchange, stream, slot, state)
}

/// Sends what `state` describes to the process that has taken over, with both connections. Otherwise all of it is as before, and the slot
/// comes back.
pub(super) fn send<M>(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, M>,
    stream: &Stream,
    slot: Slot,
    state: TunnelState,
) -> Result<(), (StayReason, Slot)> {
    let parts = || {
        let socket = stream.socket().try_clone()?;
        Ok::<_, io::Error>((parts::departure(core, exchange.connection, exchange.session, None)?, socket))
    };
    let Ok((mut departure, socket)) = parts() else { return Err((StayReason::Descriptors, slot)) };
    departure.tunnel = Some(Box::new(MovedTunnel { state, socket: socket.into(), tls: stream.take_tls(), slot }));
    match parts::send(core, exchange, departure) {
        Err(Some(tunnel)) => {
            stream.put_back(tunnel.tls.as_deref());
            Err((StayReason::NoReply, tunnel.slot))
        }
        Err(None) | Ok(()) => Ok(()),
    }
}

/// Why a session, or a request in flight, cannot go on in another process; `None`: it can.
pub(super) fn reason_to_stay<M>(exchange: &Exchange<'_, M>, stream: &Stream, slot: &Slot) -> Option<StayReason> {
    if !stream.can_move() {
        return Some(StayReason::Tls);
    }
    if slot.backend().queued() > 0 {
        return Some(StayReason::Queue);
    }
    parts::reason_to_stay(exchange.connection, exchange.session)
}
