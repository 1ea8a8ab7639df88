//! What follows a response that made a tunnel of both connections: WebSockets, CONNECT.

use std::rc::Rc;

use crate::balance::Slot;
use crate::buffer::Buffer;
use crate::core::Core;
use crate::ended::Ended;
use crate::exchange::Exchange;
use crate::relay::movable::{self, Relayed};
use crate::relay::tunnel::{Course, Pump};
use crate::respond::Sent;
use crate::server_exchange::ServerExchange;
use crate::view::BackendView;

/// Passes bytes both ways to the end, or until the tunnel leaves for another process. A server may have responded before it took the whole
/// request: what is left of it goes first.
pub async fn run(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: Slot,
    server: ServerExchange,
) -> Result<Sent, Ended> {
    let messages = &mut exchange.messages;
    // The tunnel may last for days: only bytes that wait keep a buffer.
    messages.input.unpin();
    let unsent = messages.up.get(messages.upload.sent..).unwrap_or_default();
    let (splice_up, splice_down) = exchange.progress.frontend.splicers(&core.pipes, backend);
    let mut up = Pump::new(Buffer::of(&[unsent, &messages.input])).splicing(splice_up);
    up.moved -= unsent.len() as u64;
    let down = Pump::new(Buffer::of(&[&messages.received])).splicing(splice_down);
    messages.lend(&core.buffers);
    let course = Course::begin(core.now());
    match movable::pass(core, exchange, backend, (server.transport(), slot), (up, down), course).await {
        Ok(Relayed::ToItsEnd) => Ok(Sent::default()),
        Ok(Relayed::Left) => Ok(Sent { left: true, ..Sent::default() }),
        // It was cut in the middle: nobody was told an end.
        Err(ended) if ended == Ended::down() => Err(ended),
        Err(ended) => Ok(Sent::ended(Some(ended))),
    }
}
