//! The request path: what happens to a request, in order. Each call is a folder of that name.

use std::rc::Rc;

use crate::attempt::{Attempts, Opened};
use crate::balance::Slot;
use crate::core::Core;
use crate::ended::Ended;
use crate::exchange::Exchange;
use crate::parse::{self, Head};
use crate::record;
use crate::relay::{self, Parked, Passed, in_flight, upgraded};
use crate::respond::{self, Ending, Sent};
use crate::route::{self, Routed};
use crate::service;
use crate::supervise;
use crate::view::BackendView;

/// One request, from its first byte to its log line. What becomes of the client's end is for whoever made the exchange.
pub async fn serve(core: &Rc<Core>, exchange: &mut Exchange<'_>) -> Ending {
    let outcome = forward(core, exchange).await;
    conclude(core, exchange, outcome).await
}

/// A request that was in flight in another process, from where it stands to its log line.
pub async fn resume(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &Rc<BackendView>,
    slot: Slot,
    parked: Parked,
) -> Ending {
    let attempts = Attempts::resumed(backend, slot.server().clone(), exchange.facts.retries, &exchange.settings);
    let outcome = go_on(core, exchange, backend, attempts, (slot, Box::new(parked))).await;
    conclude(core, exchange, outcome).await
}

async fn conclude(core: &Rc<Core>, exchange: &mut Exchange<'_>, outcome: Result<Sent, Ended>) -> Ending {
    if matches!(outcome, Ok(Sent { left: true, .. })) {
        return Ending::Left;
    }
    let (ending, outcome) = respond::finish(core, exchange, outcome).await;
    exchange.progress.leave();
    record::write(core, exchange, outcome);
    ending
}

/// The request's way to a server and back.
async fn forward(core: &Rc<Core>, exchange: &mut Exchange<'_>) -> Result<Sent, Ended> {
    match parse::head(core, exchange).await {
        Ok(Head::Complete) => {}
        Ok(Head::Left) => return Ok(Sent { left: true, ..Sent::default() }),
        Err(ended) => {
            record::unread(core, exchange, ended);
            return Err(ended);
        }
    }
    let (backend, preference) = match route::choose(core, exchange).await? {
        Routed::Backend(backend, preference) => (backend, preference),
        Routed::Answered(answer) => return respond::answer(core, exchange, answer).await,
        // Apart, so that the memory of other requests has no room for it.
        Routed::Served(service) => return Box::pin(service::answer(core, exchange, service)).await,
    };
    exchange.progress.enter(&backend);
    exchange.orders.notes.goes_to(&backend);
    exchange.progress.count_request(core.number);
    supervise::may_panic("request");
    relay::compose(core, exchange, &backend)?;
    let mut attempts = Attempts::new(&backend, preference, &exchange.settings);
    loop {
        let (slot, connection) = match attempts.open(core, exchange).await? {
            Opened::Server(slot, connection) => (slot, connection),
            Opened::Answered(answer) => return respond::answer(core, exchange, answer).await,
        };
        exchange.orders.notes.is_at(slot.server());
        match relay::run(core, exchange, &backend, &slot, connection).await {
            Ok(Passed::Tunnel(server)) => {
                // Apart, as what few requests need.
                return Box::pin(upgraded::run(core, exchange, &backend, slot, server)).await;
            }
            Ok(Passed::Whole(sent)) => {
                exchange.progress.keep(slot);
                return Ok(sent);
            }
            Ok(Passed::Boundary(parked)) => {
                return Box::pin(leave(core, exchange, &backend, attempts, (slot, parked))).await;
            }
            Err(failure) => attempts.again(exchange, slot, failure)?,
        }
    }
}

/// A request in flight leaves for the process that has taken over, or goes on here.
async fn leave(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &Rc<BackendView>,
    attempts: Attempts<'_>,
    (slot, mut parked): (Slot, Box<Parked>),
) -> Result<Sent, Ended> {
    match in_flight::leave(core, exchange, backend, slot, &mut parked) {
        Ok(()) => Ok(Sent { left: true, ..Sent::default() }),
        Err((reason, slot)) => {
            core.holds_request(exchange.orders, reason);
            go_on(core, exchange, backend, attempts, (slot, parked)).await
        }
    }
}

/// Goes on with a request that was sent on.
async fn go_on(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &Rc<BackendView>,
    mut attempts: Attempts<'_>,
    (mut slot, parked): (Slot, Box<Parked>),
) -> Result<Sent, Ended> {
    let mut passed = relay::resume(core, exchange, backend, &slot, *parked).await;
    loop {
        let failure = match passed {
            Ok(Passed::Tunnel(server)) => return upgraded::run(core, exchange, backend, slot, server).await,
            Ok(Passed::Whole(sent)) => {
                exchange.progress.keep(slot);
                return Ok(sent);
            }
            Ok(Passed::Boundary(parked)) => {
                return Box::pin(leave(core, exchange, backend, attempts, (slot, parked))).await;
            }
            Err(failure) => failure,
        };
        attempts.again(exchange, slot, failure)?;
        let connection;
        (slot, connection) = match attempts.open(core, exchange).await? {
            Opened::Server(slot, connection) => (slot, connection),
            Opened::Answered(answer) => return respond::answer(core, exchange, answer).await,
        };
        exchange.orders.notes.is_at(slot.server());
        passed = relay::run(core, exchange, backend, &slot, connection).await;
    }
}
