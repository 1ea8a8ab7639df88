//! The request path: what happens to a request, in order. Each call is a folder of that name.

use std::rc::Rc;

use crate::attempt::{Attempts, Opened};
use crate::core::Core;
use crate::ended::Ended;
use crate::exchange::Exchange;
use crate::parse;
use crate::record;
use crate::relay::{self, Passed, upgraded};
use crate::respond::{self, Ending, Sent};
use crate::route::{self, Routed};
use crate::service;
use crate::supervise;

/// One request, from its first byte to its log line. What becomes of the client's end is for whoever made the exchange.
pub async fn serve(core: &Rc<Core>, exchange: &mut Exchange<'_>) -> Ending {
    let outcome = forward(core, exchange).await;
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
    parse::head(core, exchange).await.inspect_err(|ended| record::unread(core, exchange, *ended))?;
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
            Err(failure) => attempts.again(exchange, slot, failure)?,
        }
    }
}
