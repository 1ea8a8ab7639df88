//! A request's body in the input, before it is passed on.

use baton_http::{ChunkDecoder, ChunkStep, Framing, Name, Version};
use baton_model::Proxy;

use crate::core::{Core, Interrupt};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::parse::read;
use crate::respond;
use crate::work::Work;

/// How far a body is in the input.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Progress {
    Partial,
    Complete,
    Malformed,
}

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
    let (mut decoder, mut at) = (work.request_chunks.clone(), 0);
    if work.request.expect_continue
        && work.request.version == Version::Http11
        && progress(work, &mut decoder, &mut at) == Progress::Partial
    {
        work.down.clear();
        work.down.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        exchange.facts.sent(respond::HEAD_OVERHEAD + b"Continue".len() as u64);
        respond::send(core, exchange, work).await?;
        work.request.headers.remove_known(Name::Expect);
        work.request.expect_continue = false;
    }
    let due = proxy.timeouts.http_request.map(|limit| core.now() + limit);
    let silence = exchange.progress.frontend.plan.proxy.timeouts.client;
    loop {
        match progress(work, &mut decoder, &mut at) {
            Progress::Complete => return Ok(()),
            Progress::Malformed => return Err(Ended::new(Cause::Proxy, Phase::Request)),
            Progress::Partial if work.input.is_full() => return Ok(()),
            Progress::Partial => {}
        }
        let silent = silence.map(|limit| core.now() + limit);
        exchange.deadline.set(due.into_iter().chain(silent).min());
        match read(core, exchange, work).await {
            Ok(Ok(0)) | Ok(Err(_)) => return Err(Ended::refused(Cause::ClientAborted, Phase::Request, 0)),
            Ok(Ok(_)) => {}
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => return Err(Ended::new(Cause::ClientTimeout, Phase::Request)),
        }
    }
}

/// How far the body is, of which `decoder` knows the first `at` bytes.
fn progress(work: &Work, decoder: &mut ChunkDecoder, at: &mut usize) -> Progress {
    match work.request.framing {
        Framing::Length(length) if (work.input.len() as u64) < length => Progress::Partial,
        Framing::Chunked => loop {
            match decoder.step(&work.input[*at..]) {
                Ok(ChunkStep::Data { skip, len }) => *at += skip + len,
                Ok(ChunkStep::NeedMore { consumed }) => {
                    *at += consumed;
                    return Progress::Partial;
                }
                Ok(ChunkStep::Done { .. }) => return Progress::Complete,
                Err(_) => return Progress::Malformed,
            }
        },
        Framing::Length(_) | Framing::None | Framing::UntilClose | Framing::Tunnel => Progress::Complete,
    }
}

/// Whether the first chunks of the body, which came with the head, are none: the request is refused before a server sees it.
pub fn is_malformed(work: &Work) -> bool {
    progress_from_start(work) == Progress::Malformed
}

/// Whether the whole body is in the input, so that another request may follow it.
pub fn body_complete(work: &Work) -> bool {
    progress_from_start(work) == Progress::Complete
}

/// Whether more bytes would change nothing: a malformed body is complete in its way, relaying it finds the error.
pub fn body_settled(work: &Work) -> bool {
    progress_from_start(work) != Progress::Partial
}

fn progress_from_start(work: &Work) -> Progress {
    match work.request.framing {
        // The decoder is cloned only where it is needed.
        Framing::Chunked => progress(work, &mut work.request_chunks.clone(), &mut 0),
        Framing::Length(length) if (work.input.len() as u64) < length => Progress::Partial,
        Framing::Length(_) | Framing::None | Framing::UntilClose | Framing::Tunnel => Progress::Complete,
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

/// Drops a body that is complete in the input, for an answer that does not need it.
pub fn skip_body(work: &mut Work) {
    match work.request.framing {
        Framing::Length(length) => work.input.consume(usize::try_from(length).unwrap_or(usize::MAX)),
        Framing::Chunked => loop {
            match work.request_chunks.step(&work.input) {
                Ok(ChunkStep::Data { skip, len }) => work.input.consume(skip + len),
                Ok(ChunkStep::Done { consumed }) => return work.input.consume(consumed),
                Ok(ChunkStep::NeedMore { .. }) | Err(_) => return,
            }
        },
        Framing::None | Framing::UntilClose | Framing::Tunnel => {}
    }
}
