//! One HTTP exchange over an established server connection: request up, response down, both at the same time where the
//! server answers early.
//!
//! ```text
//! head + body ──▶ Upload ──▶ server      server ──▶ head ──▶ (rules) ──▶ Download ──▶ client
//! ```

use std::io;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use baton_http::Parsed;

use crate::core::{Core, Interrupt, Orders, until};
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase, Side};
use crate::flow::{Active, Flow, FlowEnds, Stopped};
use crate::http2_server::{HeadRoom, StreamFailure};
use crate::messages::Messages;
use crate::moving::HELD_MAX;
use crate::patience::Patience;
use crate::server_exchange::{HeadPart, ServerExchange};
use crate::transport::Transport;

/// The two ends of an exchange and who waits at them.
pub struct Ends<'a> {
    /// The core.
    pub core: &'a Core,
    /// What the exchange is told.
    pub orders: &'a Orders,
    /// Its deadline.
    pub deadline: &'a mut Deadline,
    /// The client.
    pub client: Transport<'a>,
    /// The server.
    pub server: &'a ServerExchange,
    /// How long silence may last.
    pub patience: &'a Patience,
    /// Give up when the client closes before the response (`option abortonclose`).
    pub abort_on_close: bool,
    /// `option accept-invalid-http-response`.
    pub relaxed: bool,
}

impl<'a> Ends<'a> {
    /// Neither option.
    pub fn new(
        core: &'a Core,
        (orders, deadline): (&'a Orders, &'a mut Deadline),
        client: Transport<'a>,
        server: &'a ServerExchange,
        patience: &'a Patience,
    ) -> Ends<'a> {
        Ends { core, orders, deadline, client, server, patience, abort_on_close: false, relaxed: false }
    }
}

/// Where both directions stand besides their bytes.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// When the ends of the request's direction last did something.
    pub up: Active,
    /// When those of the response's did.
    pub down: Active,
    /// The server takes no more of the request.
    pub is_given_up: bool,
}

impl Standing {
    /// Of two directions that begin.
    pub fn begin(now: Instant) -> Standing {
        let start = Active { from: now, to: now };
        Standing { up: start, down: start, is_given_up: false }
    }
}

/// How far a response's body was passed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyEnd {
    /// To its end.
    Whole,
    /// The request is to leave for another process. It can go on all the same.
    Boundary,
}

/// What was found instead of a response.
#[derive(Debug)]
pub enum NoResponse {
    /// The server closed or broke before the first byte.
    Empty,
    /// It reset the stream.
    Reset,
    /// It said that it has not begun with the request.
    Unprocessed,
    /// It broke in the middle of the head.
    Truncated,
    /// The head is none.
    Malformed {
        /// Which byte is at fault.
        at: usize,
    },
    /// No head in time.
    Late,
    /// Something that no other server can mend.
    Ended(Ended),
}

impl NoResponse {
    /// How the exchange ends that has no other attempt.
    pub fn ended(&self) -> Ended {
        match self {
            NoResponse::Empty | NoResponse::Reset | NoResponse::Unprocessed | NoResponse::Truncated => {
                Ended::new(Cause::ServerAborted, Phase::Headers)
            }
            NoResponse::Malformed { .. } => Ended::new(Cause::Proxy, Phase::Headers),
            NoResponse::Late => Ended::new(Cause::ServerTimeout, Phase::Headers),
            NoResponse::Ended(ended) => *ended,
        }
    }
}

impl From<StreamFailure> for NoResponse {
    fn from(failure: StreamFailure) -> NoResponse {
        match failure {
            StreamFailure::Unprocessed => NoResponse::Unprocessed,
            StreamFailure::Reset => NoResponse::Reset,
            StreamFailure::Lost => NoResponse::Empty,
            StreamFailure::Malformed => NoResponse::Malformed { at: 0 },
        }
    }
}

/// Whether the request is to leave for another process, and what is held of it goes along.
#[inline]
fn leaves(core: &Core, orders: &Orders, may_leave: bool, held: impl FnOnce() -> usize) -> bool {
    may_leave && core.request_moves(orders) && held() <= HELD_MAX
}

impl Ends<'_> {
    /// Whether another process could go on with both.
    fn may_leave(&self) -> bool {
        self.client.connection().is_some() && !self.server.is_stream()
    }
}

/// Sends the request (as far as it goes) and reads until the response's head is complete. Its length in the received bytes
/// is returned; they are consumed by the caller. `None`: the request is to leave for another process; it can go on all the same.
pub async fn response_head(
    ends: &mut Ends<'_>,
    messages: &mut Messages,
    standing: &mut Standing,
) -> Result<Option<usize>, NoResponse> {
    let core = ends.core;
    let (head_bytes, relaxed) = (core.buffers.size(false), ends.relaxed);
    let limits = baton_http::Limits { head_bytes, relaxed, ..baton_http::Limits::default() };
    let to = messages.request.response_to();
    let Standing { up, is_given_up: broken, .. } = standing;
    let may_leave = ends.may_leave();
    let mut parsed_all = false;
    loop {
        if !messages.received.is_empty() && !parsed_all {
            parsed_all = true;
            match messages.response.parse(&messages.received, to, &limits) {
                Ok(Parsed::Complete(len)) => return Ok(Some(len)),
                Ok(Parsed::Partial) if !messages.received.is_full() => {}
                Ok(Parsed::Partial) => return Err(NoResponse::Malformed { at: messages.received.len() }),
                Err(error) => return Err(NoResponse::Malformed { at: error.at }),
            }
        }
        let waiting = head_waits(up, messages, *broken);
        ends.deadline.set(waiting.look_at(ends.patience, core.now()));
        let Messages { input, request_chunks, up: out, upload, received, response, .. } = &mut *messages;
        let (client, server, watch, orders) = (ends.client, ends.server, ends.abort_on_close, ends.orders);
        let buffers = &*core.buffers;
        let event = until(core, orders, ends.deadline, |cx| {
            if leaves(core, orders, may_leave, || upload.held(input, out) + input.pinned().len() + received.len()) {
                return Poll::Ready(HeadEvent::Boundary);
            }
            if !upload.finished && !*broken {
                let way =
                    FlowEnds { from: client, to: server.transport(), input, decoder: request_chunks, out, buffers };
                match upload.poll(cx, way, up, core.now()) {
                    // From now on the wait is for the server alone. The deadline set may be the client's: it is looked at anew
                    // when it has passed.
                    Poll::Ready(Ok(())) => up.to = core.now(),
                    // The server may have answered before it stopped reading.
                    Poll::Ready(Err(Stopped::Sink)) => *broken = true,
                    Poll::Ready(Err(stopped)) => return Poll::Ready(HeadEvent::Stopped(stopped)),
                    Poll::Pending => {}
                }
            }
            if let Poll::Ready(part) = server.poll_head(cx, HeadRoom { buffers, received, response }) {
                return Poll::Ready(HeadEvent::Part(part));
            }
            client.poll_gone(cx, watch).map(HeadEvent::ClientGone)
        })
        .await;
        match event {
            Ok(HeadEvent::Part(HeadPart::Whole(len))) => return Ok(Some(len)),
            Ok(HeadEvent::Boundary) => return Ok(None),
            Ok(HeadEvent::Part(HeadPart::Failed(failure))) => return Err(NoResponse::from(failure)),
            Ok(HeadEvent::Part(HeadPart::Bytes(0))) if received.is_empty() => return Err(NoResponse::Empty),
            Ok(HeadEvent::Part(HeadPart::Bytes(0))) => return Err(NoResponse::Truncated),
            Ok(HeadEvent::Part(HeadPart::Bytes(count))) => {
                received.filled(count);
                parsed_all = false;
            }
            Ok(HeadEvent::Stopped(Stopped::Malformed)) => {
                return Err(NoResponse::Ended(Ended::refused(Cause::Proxy, Phase::Headers, 400)));
            }
            Ok(HeadEvent::Stopped(_)) | Ok(HeadEvent::ClientGone(Err(_))) => {
                return Err(NoResponse::Ended(Ended::aborted_by(Side::Client, Phase::Data)));
            }
            Ok(HeadEvent::ClientGone(Ok(()))) => {
                return Err(NoResponse::Ended(Ended::refused(Cause::ClientAborted, Phase::Headers, 400)));
            }
            Err(Interrupt::Abort) => return Err(NoResponse::Ended(Ended::aborted(Phase::Headers))),
            Err(Interrupt::Timeout) => match head_waits(up, messages, *broken).over(ends.patience, core.now()) {
                Some(Side::Client) => return Err(NoResponse::Ended(Ended::timeout(Side::Client, Phase::Headers))),
                Some(Side::Server) => return Err(NoResponse::Late),
                None => {}
            },
        }
    }
}

/// Whom a response's head waits for: the server, and the client that still sends. A client whose bytes the server does not
/// take is not waited for.
fn head_waits(up: &Active, messages: &Messages, broken: bool) -> InactivityWait {
    let upload = &messages.upload;
    if upload.finished || broken {
        return InactivityWait { since: up.to, client: false, server: true };
    }
    InactivityWait {
        since: up.from.max(up.to),
        client: !upload.is_blocked(&messages.input, &messages.up),
        server: true,
    }
}

/// Whose silence counts at the moment, and since when. A side that has nothing to do, because the other one does not take
/// what it sent, is not waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct InactivityWait {
    pub since: Instant,
    pub client: bool,
    pub server: bool,
}

impl InactivityWait {
    /// When to look whether the wait is over. What a side is to do may change without notice, so that even one that is not
    /// waited for is looked at after its limit.
    pub fn look_at(self, patience: &Patience, now: Instant) -> Option<Instant> {
        let at = |limit: Option<Duration>, counts| limit.map(|limit| if counts { self.since } else { now } + limit);
        match (at(patience.client, self.client), at(patience.server, self.server)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The side whose limit has passed.
    pub fn over(self, patience: &Patience, now: Instant) -> Option<Side> {
        let over = |limit: Option<Duration>, counts| counts && limit.is_some_and(|limit| self.since + limit <= now);
        match (over(patience.client, self.client), over(patience.server, self.server)) {
            (true, false) => Some(Side::Client),
            (false, false) => None,
            // Both: the shorter limit passed first.
            (true, true) if patience.client < patience.server => Some(Side::Client),
            (_, true) => Some(Side::Server),
        }
    }
}

enum HeadEvent {
    Part(HeadPart),
    Boundary,
    Stopped(Stopped),
    /// The client ended its direction, or reset the connection.
    ClientGone(io::Result<()>),
}

/// Passes the response on to its end. What is left of the request goes on being sent meanwhile, as far as the server takes
/// it.
pub async fn response_body(
    ends: &mut Ends<'_>,
    messages: &mut Messages,
    download: &mut Flow,
    standing: &mut Standing,
) -> Result<BodyEnd, Ended> {
    let core = ends.core;
    let Standing { up, down, is_given_up: given_up } = standing;
    let may_leave = ends.may_leave();
    loop {
        let since = down.to.max(up.from).max(down.from).max(up.to);
        let waiting = response_waits(since, messages, *given_up, download);
        ends.deadline.set(waiting.look_at(ends.patience, core.now()));
        let Messages { input, request_chunks, up: up_out, upload, received, response_chunks, down: down_out, .. } =
            &mut *messages;
        let (client, server, orders, buffers) = (ends.client, ends.server, ends.orders, &*core.buffers);
        let outcome = until(core, orders, ends.deadline, |cx| {
            let held = || upload.held(input, up_out) + input.pinned().len() + download.held(received, down_out);
            if leaves(core, orders, may_leave, held) {
                return Poll::Ready(Ok(BodyEnd::Boundary));
            }
            if !upload.finished && !*given_up {
                let way = FlowEnds {
                    from: client,
                    to: server.transport(),
                    input,
                    decoder: request_chunks,
                    out: up_out,
                    buffers,
                };
                match upload.poll(cx, way, up, core.now()) {
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                    Poll::Ready(Err(_)) => *given_up = true,
                }
            }
            let way = FlowEnds {
                from: server.transport(),
                to: client,
                input: received,
                decoder: response_chunks,
                out: down_out,
                buffers,
            };
            match download.poll(cx, way, down, core.now()) {
                // A client that resets its stream wants nothing more, whether or not the server has more at the moment.
                Poll::Pending => client.poll_gone(cx, false).map(|_| Err(Stopped::Sink)),
                Poll::Ready(passed) => Poll::Ready(passed.map(|()| BodyEnd::Whole)),
            }
        })
        .await;
        match outcome {
            Ok(Ok(end)) => return Ok(end),
            Ok(Err(Stopped::Source)) => return Err(Ended::aborted_by(Side::Server, Phase::Data)),
            Ok(Err(Stopped::Sink)) => return Err(Ended::aborted_by(Side::Client, Phase::Data)),
            Ok(Err(Stopped::Malformed)) => return Err(Ended::aborted_by(Side::Server, Phase::Data)),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => {
                let since = down.to.max(up.from).max(down.from).max(up.to);
                let waiting = response_waits(since, messages, *given_up, download);
                if let Some(side) = waiting.over(ends.patience, core.now()) {
                    return Err(Ended::timeout(side, Phase::Data));
                }
            }
        }
    }
}

/// Whom a response's body waits for: the client when it does not take it, else the server. A client that has stopped sending
/// its request does not lose the answer for it.
fn response_waits(since: Instant, messages: &Messages, given_up: bool, download: &Flow) -> InactivityWait {
    let upload = &messages.upload;
    let held = download.is_blocked(&messages.received, &messages.down);
    let stuck = !upload.finished && !given_up && upload.is_blocked(&messages.input, &messages.up);
    InactivityWait { since, client: held, server: !held || stuck }
}

/// The response is complete, but the client is still sending: what comes goes on to the server, or nowhere once the server
/// does not take it any more. `Ok`: the request is complete, so that another one can follow; true if the server has all of it. `None`: the
/// request is to leave for another process; it can go on all the same.
pub async fn rest_of_request(
    ends: &mut Ends<'_>,
    messages: &mut Messages,
    standing: &mut Standing,
) -> Result<Option<bool>, Ended> {
    let core = ends.core;
    let (answered, may_leave) = (standing.down.to, ends.may_leave());
    let Standing { up, is_given_up: refused, .. } = standing;
    loop {
        let since = answered.max(up.from).max(up.to);
        ends.deadline.set(ends.patience.client.map(|limit| since + limit));
        let Messages { input, request_chunks, up: out, upload, .. } = &mut *messages;
        let (client, server, buffers) = (ends.client, ends.server, &*core.buffers);
        let orders = ends.orders;
        let outcome = until(core, orders, ends.deadline, |cx| {
            if leaves(core, orders, may_leave, || upload.held(input, out) + input.pinned().len()) {
                return Poll::Ready(Ok(BodyEnd::Boundary));
            }
            if !*refused {
                let way =
                    FlowEnds { from: client, to: server.transport(), input, decoder: request_chunks, out, buffers };
                match ready!(upload.poll(cx, way, up, core.now())) {
                    Err(Stopped::Sink) => *refused = true,
                    other => return Poll::Ready(other.map(|()| BodyEnd::Whole)),
                }
            }
            let way = FlowEnds { from: client, to: server.transport(), input, decoder: request_chunks, out, buffers };
            upload.discard(cx, way, up, core.now()).map_ok(|()| BodyEnd::Whole)
        })
        .await;
        match outcome {
            Ok(Ok(BodyEnd::Whole)) => return Ok(Some(!*refused)),
            Ok(Ok(BodyEnd::Boundary)) => return Ok(None),
            Ok(Err(_)) => return Err(Ended::aborted_by(Side::Client, Phase::Data)),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => {
                let since = answered.max(up.from).max(up.to);
                if ends.patience.client.is_some_and(|limit| since + limit <= core.now()) {
                    return Err(Ended::timeout(Side::Client, Phase::Data));
                }
            }
        }
    }
}
