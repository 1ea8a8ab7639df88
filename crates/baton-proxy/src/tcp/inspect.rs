//! `tcp-response content` in `mode tcp`: the server's bytes are held back until the rules have decided, at most `tcp-response
//! inspect-delay`. What the client sends goes on meanwhile: the server may wait for it.

use baton_rules::Verdict;

use crate::buffer::Buffer;
use crate::client::Input;
use crate::core::{Core, Interrupt};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::relay::tunnel::{self, FirstBytes, Pump};
use crate::rules;
use crate::stream::Stream;
use crate::transport::Transport;
use crate::view::BackendView;

/// What the rules decided, with the bytes that were held back.
pub enum Inspected {
    /// The connection goes on.
    Accepted(Option<Buffer>),
    /// The server is not heard any more.
    Closed(Option<Buffer>),
}

/// Evaluates the rules as often as there is more to look at.
pub async fn response(
    core: &Core,
    exchange: &mut Exchange<'_, Input>,
    backend: &BackendView,
    server: &Stream,
    up: &mut Pump,
) -> Result<Inspected, Ended> {
    let due = backend.plan.rules.response_inspect_delay.map(|delay| core.now() + delay);
    let mut last_chance = due.is_none();
    let mut held: Option<Buffer> = None;
    loop {
        let bytes = held.as_deref().unwrap_or_default();
        let verdict = rules::stream_response(core, exchange, backend, (server, bytes), last_chance);
        match verdict {
            Verdict::Wait(_) if !last_chance => {}
            Verdict::Reject => {
                exchange.facts.denied();
                exchange.facts.sent(bytes.len() as u64);
                return Err(Ended::refused(Cause::Proxy, Phase::Data, 0));
            }
            Verdict::SilentDrop(ttl) => return Err(rules::forget(exchange, ttl)),
            Verdict::Close => return Ok(Inspected::Closed(held)),
            _ => return Ok(Inspected::Accepted(held)),
        }
        let buffer = held.get_or_insert_with(|| core.buffers.take());
        exchange.deadline.set(due);
        let Exchange { client, orders, deadline, .. } = &mut *exchange;
        let server = (Transport::Connection(server), &mut *buffer);
        last_chance = match tunnel::first_bytes(core, orders, deadline, (*client, up), server).await {
            Ok(FirstBytes::Received(count)) => count == 0 || buffer.is_full(),
            Ok(FirstBytes::Failed(ended)) => return Err(ended),
            Err(Interrupt::Timeout) => true,
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
        };
    }
}
