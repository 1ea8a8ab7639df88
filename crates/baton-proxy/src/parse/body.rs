//! A request's body in the input, before it is passed on.

use baton_http::{ChunkStep, Framing, Name, Version};
use baton_model::Proxy;

use crate::body::Arrived;
use crate::core::{Core, Interrupt};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::parse::read_body;
use crate::work::Work;

/// `option http-buffer-request` of `proxy`: reads the body before its rules, and before a server is asked. The time until then
/// is the request's; there is none if the body is malformed or late.
pub async fn buffer_body(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    proxy: &Proxy,
) -> Result<(), Ended> {
    if work.request.framing.is_empty() {
        return Ok(());
    }
    let outcome = body(core, exchange, work, proxy).await;
    let refused = outcome.is_err_and(|ended| ended.cause != Cause::ClientAborted);
    if refused {
        exchange.facts.forget_request_time();
    } else {
        exchange.facts.request_received(core.now());
    }
    outcome
}

/// Waits until the body is complete or the buffer is full, at most `timeout http-request` of `proxy`, and `timeout client` for
/// each piece. A client that wants to be told to send it is told so, and its server is not asked.
pub async fn body(core: &Core, exchange: &mut Exchange<'_>, work: &mut Work, proxy: &Proxy) -> Result<(), Ended> {
    if work.request.expect_continue && work.request.version == Version::Http11 && work.body.arrived() == Arrived::Partly
    {
        work.down.clear();
        work.down.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        exchange.facts.sent_interim("Continue");
        exchange.send(core, work).await?;
        work.request.headers.remove_known(Name::Expect);
        work.request.expect_continue = false;
    }
    let due = proxy.timeouts.http_request.map(|limit| core.now() + limit);
    let silence = exchange.progress.frontend.plan.proxy.timeouts.client;
    loop {
        match work.body.arrived() {
            Arrived::Whole => return Ok(()),
            Arrived::Malformed => return Err(Ended::new(Cause::Proxy, Phase::Request)),
            Arrived::Partly if work.input.is_full() => return Ok(()),
            Arrived::Partly => {}
        }
        let silent = silence.map(|limit| core.now() + limit);
        exchange.deadline.set(due.into_iter().chain(silent).min());
        match read_body(core, exchange, work).await {
            Ok(Ok(0)) | Ok(Err(_)) => return Err(Ended::refused(Cause::ClientAborted, Phase::Request, 0)),
            Ok(Ok(_)) => {}
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => return Err(Ended::new(Cause::ClientTimeout, Phase::Request)),
        }
    }
}

/// The body as far as it is in the input; of a chunked one the first chunk.
pub fn body_begun(work: &Work) -> &[u8] {
    match work.request.framing {
        Framing::Chunked => match work.request_chunks.clone().step(&work.input) {
            Ok(ChunkStep::Data { skip, len }) => &work.input[skip..skip + len],
            Ok(ChunkStep::Done { .. } | ChunkStep::NeedMore { .. }) | Err(_) => &[],
        },
        Framing::Length(length) => &work.input[..usize::try_from(length).unwrap_or(usize::MAX).min(work.input.len())],
        Framing::None | Framing::UntilClose | Framing::Tunnel => &[],
    }
}
