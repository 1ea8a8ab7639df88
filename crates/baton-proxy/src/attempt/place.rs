//! A place at a server: the balancer's choice, and the wait in its queues (`timeout queue`).

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use baton_rules::QueuePriority;

use crate::balance::{Granted, PickCriteria, Picked, Slot, WantedServer};
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase, Side};
use crate::exchange::Exchange;
use crate::preference::Preference;
use crate::view::BackendView;

/// Picks a server of the backend and waits for a slot on it.
pub async fn take<M>(
    core: &Core,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    preference: &mut Preference,
) -> Result<Slot, Ended> {
    let proxy = &backend.plan.proxy;
    let began = core.now();
    let queue = proxy.timeouts.queue.or(proxy.timeouts.connect);
    loop {
        let wanted = match (&preference.again, &preference.server, &preference.stuck, &preference.cookie) {
            (Some(server), ..) => Some(WantedServer::Name(server.name())),
            (None, Some(name), ..) => Some(WantedServer::Name(name)),
            (None, None, Some(server), _) => Some(WantedServer::Name(server.name())),
            (None, None, None, Some(value)) => Some(WantedServer::Cookie(value)),
            (None, None, None, None) => None,
        };
        let ask = PickCriteria {
            key: preference.key,
            wanted: if preference.avoid.is_some() { None } else { wanted },
            force: preference.force || preference.again.is_some(),
            avoid: preference.avoid.as_ref(),
            last: preference.last.as_ref(),
            random: core.random() as u32,
            priority: exchange.settings.values().map_or_else(QueuePriority::default, |set| set.priority),
            now: core.now(),
        };
        let waiting = match backend.plan.state.pick(&ask) {
            Picked::Slot(slot) => {
                preference.found.get_or_insert(slot.affinity());
                preference.picked.get_or_insert(slot.affinity());
                exchange.facts.placed();
                return Ok(slot);
            }
            Picked::Queue(waiting) => waiting,
            Picked::Full => return Err(Ended::new(Cause::ServerAborted, Phase::Queue)),
            Picked::None => return Err(Ended::new(Cause::ServerAborted, Phase::Connect)),
        };
        exchange.facts.queued(waiting.server().is_some(), waiting.position());
        waiting.server().into_iter().for_each(|server| exchange.progress.wait_for(server));
        preference.found.get_or_insert(waiting.affinity());
        preference.picked.get_or_insert(waiting.affinity());
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
async fn wait<M>(
    core: &Core,
    exchange: &mut Exchange<'_, M>,
    waiting: impl Future<Output = Granted>,
    watch: bool,
) -> Result<Option<Granted>, Interrupt> {
    let Exchange { client, orders, deadline, .. } = exchange;
    let mut waiting = pin!(waiting);
    until(core, orders, deadline, |cx| {
        if let Poll::Ready(granted) = waiting.as_mut().poll(cx) {
            return Poll::Ready(Some(granted));
        }
        client.poll_gone(cx, watch).map(|_| None)
    })
    .await
}
