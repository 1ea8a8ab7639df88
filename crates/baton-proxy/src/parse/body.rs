//! A request's body in the input, before it is passed on.

use std::time::Instant;

use baton_http::{Name, Version};
use baton_model::Proxy;
use baton_rules::BodyWait;

use crate::body::Arrived;
use crate::core::{Core, Interrupt};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::parse::read_body;
use crate::sink;

/// `option http-buffer-request` of `proxy`: reads the body before its rules, and before a server is asked.
pub async fn buffer_body(core: &Core, exchange: &mut Exchange<'_>, proxy: &Proxy) -> Result<(), Ended> {
    noting_time(core, exchange, async |core, exchange| body(core, exchange, proxy).await).await
}

/// `wait-for-body`: a rule wants so much of the body.
pub async fn wait_for_body(core: &Core, exchange: &mut Exchange<'_>, wait: BodyWait) -> Result<(), Ended> {
    let due = Some(core.now() + wait.time);
    noting_time(core, exchange, async |core, exchange| receive(core, exchange, due, wait.at_least).await).await
}

/// The time until a body was waited for is the request's; there is none if the body is malformed or late.
async fn noting_time(
    core: &Core,
    exchange: &mut Exchange<'_>,
    wait: impl AsyncFnOnce(&Core, &mut Exchange<'_>) -> Result<(), Ended>,
) -> Result<(), Ended> {
    if exchange.messages.request.framing.is_empty() {
        return Ok(());
    }
    let outcome = wait(core, exchange).await;
    let refused = outcome.is_err_and(|ended| ended.cause != Cause::ClientAborted);
    if refused {
        exchange.facts.forget_request_time();
    } else {
        exchange.facts.request_received(core.now());
    }
    outcome
}

/// Waits until the body is complete or the buffer is full, at most `timeout http-request` of `proxy`.
pub async fn body(core: &Core, exchange: &mut Exchange<'_>, proxy: &Proxy) -> Result<(), Ended> {
    let due = proxy.timeouts.http_request.map(|limit| core.now() + limit);
    receive(core, exchange, due, 0).await
}

/// Waits until `at_least` bytes of the body are there (0: all of it) or the buffer is full, until `due`, and `timeout client` for
/// each piece. A client that wants to be told to send it is told so, and its server is not asked.
async fn receive(core: &Core, exchange: &mut Exchange<'_>, due: Option<Instant>, at_least: u64) -> Result<(), Ended> {
    if exchange.messages.request.expect_continue
        && exchange.messages.request.version >= Version::Http11
        && exchange.messages.body.arrived() == Arrived::Partly
    {
        exchange.messages.down.clear();
        exchange.facts.sent_interim("Continue");
        sink::go_on(core, exchange).await?;
        exchange.messages.request.headers.remove_known(Name::Expect);
        exchange.messages.request.expect_continue = false;
    }
    let silence = exchange.client_timeout();
    if exchange.messages.body.arrived() == Arrived::Partly {
        core.buffers.enlarge(&mut exchange.messages.input);
    }
    loop {
        match exchange.messages.body.arrived() {
            Arrived::Whole => return Ok(()),
            Arrived::Malformed => return Err(Ended::new(Cause::Proxy, Phase::Request)),
            Arrived::Partly if exchange.messages.input.is_full() => return Ok(()),
            Arrived::Partly if at_least > 0 && exchange.messages.body_received() >= at_least => return Ok(()),
            Arrived::Partly => {}
        }
        let silent = silence.map(|limit| core.now() + limit);
        exchange.deadline.set(due.into_iter().chain(silent).min());
        match read_body(core, exchange).await {
            Ok(Ok(0)) if exchange.messages.body.arrived() == Arrived::Whole => {}
            Ok(Ok(0)) | Ok(Err(_)) => return Err(Ended::refused(Cause::ClientAborted, Phase::Request, 0)),
            Ok(Ok(_)) => {}
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => return Err(Ended::new(Cause::ClientTimeout, Phase::Request)),
        }
    }
}
