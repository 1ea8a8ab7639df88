//! A response that is held back, because one of its rules waits: for a time, or for its body.

use std::task::{Context, Poll};

use baton_http::Framing;
use baton_rules::{BodyWait, RuleWait};

use crate::body::{Arrived, BodyState};
use crate::core::{Interrupt, until};
use crate::ended::{Cause, Ended, Phase, Side};
use crate::flow::{Active, FlowEnds};
use crate::messages::Messages;
use crate::relay::transfer::Ends;

/// What happened while it was held.
enum HoldEvent {
    /// So many bytes came from the server; 0: its end.
    Received(usize),
    /// The client can take nothing any more.
    ClientGone,
}

/// Waits, so that the next rule can be evaluated. The response's head is in the first `len` bytes received. What is left of the request
/// goes on being sent meanwhile.
pub async fn before_next_rule(
    ends: &mut Ends<'_>,
    messages: &mut Messages,
    len: usize,
    wait: RuleWait,
) -> Result<(), Ended> {
    let core = ends.core;
    let (time, wanted) = match wait {
        // Names are looked up for requests alone.
        RuleWait::Data | RuleWait::Hints(_) | RuleWait::Address(_) => return Ok(()),
        RuleWait::Time(time) => (time, None),
        RuleWait::Body(BodyWait { time, at_least }) => (time, Some(at_least)),
    };
    let mut body = BodyState::before(&messages.response_chunks);
    let mut up = Active { from: core.now(), to: core.now() };
    let mut is_given_up = false;
    ends.deadline.set(Some(core.now() + time));
    loop {
        if wanted.is_some_and(|at_least| is_there(messages, len, &mut body, at_least)) {
            return Ok(());
        }
        let Messages { input, request_chunks, up: out, upload, received, .. } = &mut *messages;
        let (client, server, buffers) = (ends.client, ends.server, &*core.buffers);
        let event = until(core, ends.orders, ends.deadline, |cx: &mut Context<'_>| {
            if !upload.finished && !is_given_up {
                let way =
                    FlowEnds { from: client, to: server.transport(), input, decoder: request_chunks, out, buffers };
                // The response is there all the same.
                is_given_up |= matches!(upload.poll(cx, way, &mut up, core.now()), Poll::Ready(Err(_)));
            }
            if wanted.is_some()
                && let Poll::Ready(read) = server.transport().poll_read(cx, received.room())
            {
                return Poll::Ready(HoldEvent::Received(read.unwrap_or(0)));
            }
            client.poll_broken(cx).map(|()| HoldEvent::ClientGone)
        })
        .await;
        match event {
            // Relaying the response finds its end again.
            Ok(HoldEvent::Received(0)) => return Ok(()),
            Ok(HoldEvent::Received(count)) => received.filled(count),
            Ok(HoldEvent::ClientGone) => return Err(Ended::aborted_by(Side::Client, Phase::Headers)),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Headers)),
            Err(Interrupt::Timeout) if wanted.is_none() => return Ok(()),
            // HAProxy logs it as `sR`.
            Err(Interrupt::Timeout) => return Err(Ended::refused(Cause::ServerTimeout, Phase::Request, 504)),
        }
    }
}

/// Whether enough of the response's body is there, or no more can come.
fn is_there(messages: &Messages, len: usize, body: &mut BodyState, at_least: u64) -> bool {
    let Messages { response, received, .. } = messages;
    let input = received.get(len..).unwrap_or_default();
    body.advance(response.framing, input);
    let has_enough = at_least > 0 && body.data_len(response.framing, input) >= at_least;
    response.framing == Framing::Tunnel
        || body.arrived() != Arrived::Partly
        || messages.received.is_full()
        || has_enough
}
