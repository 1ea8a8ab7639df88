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
use crate::flow::{Active, Flow, Stopped, Way};
use crate::patience::Patience;
use crate::stream::Stream;
use crate::work::Work;

/// The two ends of an exchange and who waits at them.
pub struct Ends<'a> {
    /// The core.
    pub core: &'a Core,
    /// The client's orders.
    pub orders: &'a Orders,
    /// The client's deadline.
    pub deadline: &'a mut Deadline,
    /// The client.
    pub client: &'a Stream,
    /// The server.
    pub server: &'a Stream,
    /// How long silence may last.
    pub patience: &'a Patience,
    /// Give up when the client closes before the response (`option abortonclose`).
    pub abort_on_close: bool,
    /// `option accept-invalid-http-response`.
    pub relaxed: bool,
}

/// What was found instead of a response.
#[derive(Debug)]
pub enum NoResponse {
    /// The server closed or broke before the first byte.
    Empty,
    /// It broke in the middle of the head.
    Truncated,
    /// The head is none.
    Malformed,
    /// No head in time.
    Late,
    /// Something that no other server can mend.
    Ended(Ended),
}

impl NoResponse {
    /// How the exchange ends that has no other attempt.
    pub fn ended(&self) -> Ended {
        match self {
            NoResponse::Empty | NoResponse::Truncated => Ended::new(Cause::ServerAborted, Phase::Headers),
            NoResponse::Malformed => Ended::new(Cause::Proxy, Phase::Headers),
            NoResponse::Late => Ended::new(Cause::ServerTimeout, Phase::Headers),
            NoResponse::Ended(ended) => *ended,
        }
    }
}

/// Sends the request (as far as it goes) and reads until the response's head is complete. Its length in the received bytes
/// is returned; they are consumed by the caller.
pub async fn response_head(ends: &mut Ends<'_>, work: &mut Work) -> Result<usize, NoResponse> {
    let core = ends.core;
    let (head_bytes, relaxed) = (work.received.capacity(), ends.relaxed);
    let limits = baton_http::Limits { head_bytes, relaxed, ..baton_http::Limits::default() };
    let to = work.request.response_to();
    let mut up = Active { from: core.now(), to: core.now() };
    let mut broken = false;
    let mut parsed_all = false;
    loop {
        if !work.received.is_empty() && !parsed_all {
            parsed_all = true;
            match work.response.parse(&work.received, to, &limits) {
                Ok(Parsed::Complete(len)) => return Ok(len),
                Ok(Parsed::Partial) if !work.received.is_full() => {}
                Ok(Parsed::Partial) | Err(_) => return Err(NoResponse::Malformed),
            }
        }
        let waiting = head_waits(&up, work, broken);
        ends.deadline.set(waiting.look_at(ends.patience, core.now()));
        let Work { input, request_chunks, up: out, upload, received, .. } = &mut *work;
        let (client, server, watch) = (ends.client, ends.server, ends.abort_on_close);
        let event = until(core, ends.orders, ends.deadline, |cx| {
            if !upload.finished && !broken {
                let way = Way { from: client, to: server, input, decoder: request_chunks, out };
                match upload.poll(cx, way, &mut up, core.now()) {
                    // From now on the wait is for the server alone. The deadline set may be the client's: it is looked at anew
                    // when it has passed.
                    Poll::Ready(Ok(())) => up.to = core.now(),
                    // The server may have answered before it stopped reading.
                    Poll::Ready(Err(Stopped::Sink)) => broken = true,
                    Poll::Ready(Err(stopped)) => return Poll::Ready(Event::Stopped(stopped)),
                    Poll::Pending => {}
                }
            }
            match server.poll_read(cx, received.room()) {
                Poll::Ready(Ok(count)) => return Poll::Ready(Event::Received(count)),
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Received(0)),
                Poll::Pending => {}
            }
            if watch { client.poll_closed(cx).map(Event::ClientGone) } else { Poll::Pending }
        })
        .await;
        match event {
            Ok(Event::Received(0)) if received.is_empty() => return Err(NoResponse::Empty),
            Ok(Event::Received(0)) => return Err(NoResponse::Truncated),
            Ok(Event::Received(count)) => {
                received.filled(count);
                parsed_all = false;
            }
            Ok(Event::Stopped(Stopped::Malformed)) => {
                return Err(NoResponse::Ended(Ended::refused(Cause::Proxy, Phase::Headers, 400)));
            }
            Ok(Event::Stopped(_)) | Ok(Event::ClientGone(Err(_))) => {
                return Err(NoResponse::Ended(Ended::aborted_by(Side::Client, Phase::Data)));
            }
            Ok(Event::ClientGone(Ok(()))) => {
                return Err(NoResponse::Ended(Ended::refused(Cause::ClientAborted, Phase::Headers, 400)));
            }
            Err(Interrupt::Abort) => return Err(NoResponse::Ended(Ended::aborted(Phase::Headers))),
            Err(Interrupt::Timeout) => match head_waits(&up, work, broken).over(ends.patience, core.now()) {
                Some(Side::Client) => return Err(NoResponse::Ended(Ended::timeout(Side::Client, Phase::Headers))),
                Some(Side::Server) => return Err(NoResponse::Late),
                None => {}
            },
        }
    }
}

/// Whom a response's head waits for: the server, and the client that still sends. A client whose bytes the server does not
/// take is not waited for.
fn head_waits(up: &Active, work: &Work, broken: bool) -> Waiting {
    let upload = &work.upload;
    if upload.finished || broken {
        return Waiting { since: up.to, client: false, server: true };
    }
    Waiting { since: up.from.max(up.to), client: !upload.is_blocked(&work.input, &work.up), server: true }
}

/// Whose silence counts at the moment, and since when. A side that has nothing to do, because the other one does not take
/// what it sent, is not waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub since: Instant,
    pub client: bool,
    pub server: bool,
}

impl Waiting {
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

enum Event {
    Received(usize),
    Stopped(Stopped),
    /// The client ended its direction, or reset the connection.
    ClientGone(io::Result<()>),
}

/// Passes the response on to its end. What is left of the request goes on being sent meanwhile, as far as the server takes
/// it.
pub async fn response_body(ends: &mut Ends<'_>, work: &mut Work, download: &mut Flow) -> Result<(), Ended> {
    let core = ends.core;
    let mut up = Active { from: core.now(), to: core.now() };
    let mut down = up;
    let mut given_up = false;
    loop {
        let since = down.to.max(up.from).max(down.from).max(up.to);
        let waiting = response_waits(since, work, given_up, download);
        ends.deadline.set(waiting.look_at(ends.patience, core.now()));
        let Work { input, request_chunks, up: up_out, upload, received, response_chunks, down: down_out, .. } =
            &mut *work;
        let (client, server) = (ends.client, ends.server);
        let outcome = until(core, ends.orders, ends.deadline, |cx| {
            if !upload.finished && !given_up {
                let way = Way { from: client, to: server, input, decoder: request_chunks, out: up_out };
                match upload.poll(cx, way, &mut up, core.now()) {
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                    Poll::Ready(Err(_)) => given_up = true,
                }
            }
            let way = Way { from: server, to: client, input: received, decoder: response_chunks, out: down_out };
            download.poll(cx, way, &mut down, core.now())
        })
        .await;
        match outcome {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(Stopped::Source)) => return Err(Ended::aborted_by(Side::Server, Phase::Data)),
            Ok(Err(Stopped::Sink)) => return Err(Ended::aborted_by(Side::Client, Phase::Data)),
            Ok(Err(Stopped::Malformed)) => return Err(Ended::aborted_by(Side::Server, Phase::Data)),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => {
                let since = down.to.max(up.from).max(down.from).max(up.to);
                let waiting = response_waits(since, work, given_up, download);
                if let Some(side) = waiting.over(ends.patience, core.now()) {
                    return Err(Ended::timeout(side, Phase::Data));
                }
            }
        }
    }
}

/// Whom a response's body waits for: the client when it does not take it, else the server. A client that has stopped sending
/// its request does not lose the answer for it.
fn response_waits(since: Instant, work: &Work, given_up: bool, download: &Flow) -> Waiting {
    let upload = &work.upload;
    let held = download.is_blocked(&work.received, &work.down);
    let stuck = !upload.finished && !given_up && upload.is_blocked(&work.input, &work.up);
    Waiting { since, client: held, server: !held || stuck }
}

/// The response is complete, but the client is still sending: what comes goes on to the server, or nowhere once the server
/// does not take it any more. `Ok`: the request is
/// complete, so that another one can follow; true if the server has all of it.
pub async fn rest_of_request(ends: &mut Ends<'_>, work: &mut Work) -> Result<bool, Ended> {
    let core = ends.core;
    let mut up = Active { from: core.now(), to: core.now() };
    let mut refused = false;
    loop {
        ends.deadline.set(ends.patience.client.map(|limit| up.from.max(up.to) + limit));
        let Work { input, request_chunks, up: out, upload, .. } = &mut *work;
        let (client, server) = (ends.client, ends.server);
        let outcome = until(core, ends.orders, ends.deadline, |cx| {
            if !refused {
                let way = Way { from: client, to: server, input, decoder: request_chunks, out };
                match ready!(upload.poll(cx, way, &mut up, core.now())) {
                    Err(Stopped::Sink) => refused = true,
                    other => return Poll::Ready(other),
                }
            }
            let way = Way { from: client, to: server, input, decoder: request_chunks, out };
            upload.discard(cx, way, &mut up, core.now())
        })
        .await;
        match outcome {
            Ok(Ok(())) => return Ok(!refused),
            Ok(Err(_)) => return Err(Ended::aborted_by(Side::Client, Phase::Data)),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => {
                if ends.patience.client.is_some_and(|limit| up.from.max(up.to) + limit <= core.now()) {
                    return Err(Ended::timeout(Side::Client, Phase::Data));
                }
            }
        }
    }
}
