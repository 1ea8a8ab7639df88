//! Waiting for what a request's rule waits for, before the next rule.

use std::task::Poll;
use std::time::Duration;

use baton_rules::RuleWait;

use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::parse;
use crate::sink;

/// Waits, so that the next rule can be evaluated.
pub async fn in_request(core: &Core, exchange: &mut Exchange<'_>, wait: RuleWait) -> Result<(), Ended> {
    match wait {
        // Only content rules ask for more, and wait for themselves.
        RuleWait::Data => Ok(()),
        RuleWait::Hints(fields) => sink::early_hints(core, exchange, &fields).await,
        RuleWait::Time(time) => hold(core, exchange, time, Phase::Request).await,
        RuleWait::Body(body) => parse::wait_for_body(core, exchange, body).await,
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
