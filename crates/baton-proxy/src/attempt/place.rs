//! A place at a server: the balancer's choice, and the wait in its queues (`timeout queue`).

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use crate::balance::{Ask, Granted, Picked, Slot, Wanted};
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase, Side};
use crate::exchange::Exchange;
use crate::view::BackendView;
use crate::wish::Wish;

/// Picks a server of the backend and waits for a slot on it.
pub async fn take(
    core: &Core,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    wish: &mut Wish,
) -> Result<Slot, Ended> {
    let proxy = &backend.plan.proxy;
    let began = core.now();
    let queue = proxy.timeouts.queue.or(proxy.timeouts.connect);
    loop {
        let wanted = match (&wish.again, &wish.server, &wish.cookie) {
            (Some(server), ..) => Some(Wanted::Name(server.name())),
            (None, Some(name), _) => Some(Wanted::Name(name)),
            (None, None, Some(value)) => Some(Wanted::Cookie(value)),
            (None, None, None) => None,
        };
        let ask = Ask {
            key: wish.key,
            wanted: if wish.avoid.is_some() { None } else { wanted },
            force: wish.force || wish.again.is_some(),
            avoid: wish.avoid.as_ref(),
            last: wish.last.as_ref(),
            random: core.random() as u32,
            now: core.now(),
        };
        let waiting = match backend.plan.state.pick(&ask) {
            Picked::Slot(slot) => {
                wish.found.get_or_insert(slot.found());
                exchange.facts.placed();
                return Ok(slot);
            }
            Picked::Queue(waiting) => waiting,
            Picked::Full => return Err(Ended::new(Cause::ServerAborted, Phase::Queue)),
            Picked::None => return Err(Ended::new(Cause::ServerAborted, Phase::Connect)),
        };
        exchange.facts.queued(waiting.server().is_some(), waiting.position());
        waiting.server().into_iter().for_each(|server| exchange.progress.wait_for(server));
        wish.found.get_or_insert(waiting.found());
        exchange.deadline.set(queue.map(|limit| began + limit));
        let watch = proxy.tcp.abort_on_close;
        let granted = wait(core, exchange, waiting, watch).await;
        exchange.facts.waited(core.now().saturating_duration_since(began));
        match granted {
            Ok(Some(Granted::Slot(slot))) => return Ok(slot),
            Ok(Some(Granted::Again)) => {}
            Ok(None) => return Err(Ended::aborted_by(Side::Client, Phase::Queue)),
            Err(Interrupt::Timeout) => return Err(Ended::new(Cause::ServerTimeout, Phase::Queue)),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Queue)),
        }
    }
}

/// Waits for the slot; `Ok(None)` when the client went away first and that matters.
async fn wait(
    core: &Core,
    exchange: &mut Exchange<'_>,
    waiting: impl Future<Output = Granted>,
    watch: bool,
) -> Result<Option<Granted>, Interrupt> {
    let Exchange { connection, deadline, .. } = exchange;
    let mut waiting = pin!(waiting);
    until(core, connection.orders(), deadline, |cx| {
        if let Poll::Ready(granted) = waiting.as_mut().poll(cx) {
            return Poll::Ready(Some(granted));
        }
        if watch && connection.stream.poll_closed(cx).is_ready() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}
