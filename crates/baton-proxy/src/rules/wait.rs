//! Waiting for what a request's rule waits for, before the next rule.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use baton_rules::{AddressWait, RuleWait};

use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::parse;
use crate::rules;
use crate::sink;
use crate::view::BackendView;

/// Waits, so that the next rule can be evaluated.
pub async fn in_request(
    core: &Core,
    exchange: &mut Exchange<'_>,
    backend: Option<&BackendView>,
    wait: RuleWait,
) -> Result<(), Ended> {
    match wait {
        // Only content rules ask for more, and wait for themselves.
        RuleWait::Data => Ok(()),
        RuleWait::Hints(fields) => sink::early_hints(core, exchange, &fields).await,
        RuleWait::Time(time) => hold(core, exchange, time, Phase::Request).await,
        RuleWait::Body(body) => parse::wait_for_body(core, exchange, body).await,
        RuleWait::Address(wait) => {
            if let Some(found) = address(core, exchange, &wait, None).await? {
                rules::with_request(core, exchange, backend, |cx| wait.found(found, cx));
            }
            Ok(())
        }
    }
}

/// The address of a name, from the thread that asks name servers; `None`: it has none, or `due` came before. Without that, the timeouts of the
/// section limit the wait. The client is held meanwhile.
pub async fn address<M>(
    core: &Core,
    exchange: &mut Exchange<'_, M>,
    wait: &AddressWait,
    due: Option<Instant>,
) -> Result<Option<IpAddr>, Ended> {
    let AddressWait { resolvers, name, prefers_v6, .. } = wait;
    let Some(mut reply) = core.registry.names.ask(resolvers, name.clone(), *prefers_v6) else { return Ok(None) };
    exchange.deadline.set(due);
    let Exchange { client, orders, deadline, .. } = exchange;
    let waited = until(core, orders, deadline, |cx| -> Poll<Option<Option<IpAddr>>> {
        if let Poll::Ready(found) = Pin::new(&mut reply).poll(cx) {
            return Poll::Ready(Some(found.unwrap_or(None)));
        }
        client.poll_broken(cx).map(|()| None)
    });
    match waited.await {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(Ended::new(Cause::ClientAborted, Phase::Request)),
        Err(Interrupt::Timeout) => Ok(None),
        Err(Interrupt::Abort) => Err(Ended::aborted(Phase::Request)),
    }
}

/// Holds the client for this time. One that only ends its direction gets its response all the same.
pub async fn hold<M>(core: &Core, exchange: &mut Exchange<'_, M>, time: Duration, phase: Phase) -> Result<(), Ended> {
    exchange.deadline.set(Some(core.now() + time));
    let Exchange { client, orders, deadline, .. } = exchange;
    match until(core, orders, deadline, |cx| -> Poll<()> { client.poll_broken(cx) }).await {
        Ok(()) => Err(Ended::new(Cause::ClientAborted, phase)),
        Err(Interrupt::Timeout) => Ok(()),
        Err(Interrupt::Abort) => Err(Ended::aborted(phase)),
    }
}
