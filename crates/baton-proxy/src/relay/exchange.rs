//! One HTTP exchange over an established server connection: request up, response down, both at the same time where the
//! server answers early.
//!
//! ```text
//! head + body ──▶ Upload ──▶ server      server ──▶ head ──▶ (rules) ──▶ Download ──▶ client
//! ```

use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use baton_http::{ChunkDecoder, ChunkStep, Framing, Parsed, write_chunk_header, write_last_chunk};

use crate::buffer::Buffer;
use crate::core::{Core, Interrupt, Session, until};
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase, Side};
use crate::pipes::Splicer;
use crate::relay::tunnel::Patience;
use crate::stream::Stream;
use crate::work::Work;

/// Reads and writes of one direction before other connections get their turn.
const ROUNDS_PER_TURN: usize = 16;

/// What is left of a body.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Body {
    /// Nothing.
    #[default]
    Done,
    /// That many bytes.
    Length(u64),
    /// Chunks, to be passed on as chunks.
    Chunked,
    /// All until the connection ends.
    UntilClose,
}

impl Body {
    /// The body a head announces.
    pub fn of(framing: Framing) -> Body {
        match framing {
            Framing::None | Framing::Length(0) | Framing::Tunnel => Body::Done,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked,
            Framing::UntilClose => Body::UntilClose,
        }
    }
}

/// Why a direction stopped early.
#[derive(Debug)]
pub enum Stopped {
    /// The reading side ended or broke.
    Source,
    /// The writing side broke.
    Sink,
    /// The body's framing is wrong.
    Malformed,
}

/// One direction of an exchange.
#[derive(Debug)]
pub struct Flow {
    /// What is left.
    pub body: Body,
    /// How much of the composed bytes is written.
    pub sent: usize,
    /// Body bytes received, counted as HAProxy counts them: the framing left out, one for the end of a chunked body, names
    /// and values of its trailers.
    pub moved: u64,
    /// The composed bytes still hold everything since the head: another attempt can begin again.
    pub replayable: bool,
    /// Everything was written.
    pub finished: bool,
    /// Leave to splice, for a long body.
    pub splicer: Option<Box<Splicer>>,
}

impl Flow {
    /// A direction whose composed bytes begin with a head, followed by what is there of the body.
    pub fn start(
        body: Body,
        input: &mut Buffer,
        decoder: &mut ChunkDecoder,
        out: &mut Vec<u8>,
    ) -> Result<Flow, Stopped> {
        let mut flow = Flow { body, sent: 0, moved: 0, replayable: true, finished: false, splicer: None };
        flow.compose(input, decoder, out)?;
        Ok(flow)
    }

    /// Goes back to the first composed byte. Only for a flow that is replayable.
    pub fn restart(&mut self) {
        debug_assert!(self.replayable);
        self.sent = 0;
        self.finished = false;
    }

    /// Whether bytes wait for the receiver to take them: the sender is not waited for then.
    fn is_blocked(&self, input: &Buffer, out: &[u8]) -> bool {
        let held = || self.splicer.as_ref().is_some_and(|splicer| splicer.held() > 0);
        let waits = self.sent < out.len() || matches!(self.body, Body::Length(_)) && !input.is_empty() || held();
        !self.finished && waits
    }

    /// Moves body bytes from the input to the composed ones, framed for the receiver.
    fn compose(&mut self, input: &mut Buffer, decoder: &mut ChunkDecoder, out: &mut Vec<u8>) -> Result<(), Stopped> {
        loop {
            match self.body {
                Body::Done => return Ok(()),
                Body::Length(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    out.extend_from_slice(&input[..count]);
                    input.consume(count);
                    self.moved += count as u64;
                    let left = left - count as u64;
                    self.body = if left == 0 { Body::Done } else { Body::Length(left) };
                    return Ok(());
                }
                Body::UntilClose => {
                    out.extend_from_slice(input);
                    self.moved += input.len() as u64;
                    input.consume(input.len());
                    return Ok(());
                }
                Body::Chunked => {
                    if input.is_empty() {
                        return Ok(());
                    }
                    match decoder.step(input).map_err(|_| Stopped::Malformed)? {
                        ChunkStep::Data { skip, len } => {
                            let data = &input[skip..skip + len];
                            write_chunk_header(out, len);
                            out.extend_from_slice(data);
                            out.extend_from_slice(b"\r\n");
                            self.moved += len as u64;
                            input.consume(skip + len);
                        }
                        ChunkStep::NeedMore { consumed } => input.consume(consumed),
                        ChunkStep::Done { consumed } => {
                            input.consume(consumed);
                            let (trailers, bytes) = decoder.trailers();
                            write_last_chunk(out, bytes, trailers);
                            let named: usize =
                                trailers.iter(bytes).map(|field| field.name.len() + field.value.len()).sum();
                            self.moved += 1 + named as u64;
                            self.body = Body::Done;
                        }
                    }
                }
            }
        }
    }

    /// Writes what is composed and reads more until the message is passed on whole (`Ready(Ok)`).
    #[allow(clippy::too_many_arguments, reason = "the two ends and the memory between them")]
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &Stream,
        to: &Stream,
        input: &mut Buffer,
        decoder: &mut ChunkDecoder,
        out: &mut Vec<u8>,
        active: &mut Active,
        now: Instant,
    ) -> Poll<Result<(), Stopped>> {
        if self.finished {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS_PER_TURN {
            if self.sent < out.len() {
                let count = ready!(to.poll_write(cx, &out[self.sent..])).map_err(|_| Stopped::Sink)?;
                self.sent += count;
                active.to = now;
                continue;
            }
            if let Some(splicer) = &mut self.splicer
                && splicer.held() > 0
            {
                ready!(splicer.poll_drain(cx, to)).map_err(|_| Stopped::Sink)?;
                active.to = now;
                continue;
            }
            if self.body == Body::Done {
                self.finished = true;
                return Poll::Ready(Ok(()));
            }
            out.clear();
            self.sent = 0;
            self.replayable = false;
            if let Body::Length(left) = self.body
                && !input.is_empty()
            {
                // Plain bytes go out of the buffer they came in.
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let count = ready!(to.poll_write(cx, &input[..most])).map_err(|_| Stopped::Sink)?;
                input.consume(count);
                active.to = now;
                let left = left - count as u64;
                self.body = if left == 0 { Body::Done } else { Body::Length(left) };
                continue;
            }
            if self.splicer.is_some()
                && let Some(count) = ready!(self.splice(cx, from)?)
            {
                active.from = now;
                self.moved += count as u64;
                continue;
            }
            match ready!(from.poll_read(cx, input.room())) {
                Ok(0) if self.body == Body::UntilClose => self.body = Body::Done,
                Ok(0) => return Poll::Ready(Err(Stopped::Source)),
                Ok(count) => {
                    input.filled(count);
                    active.from = now;
                    match self.body {
                        Body::Length(left) => self.moved += left.min(count as u64),
                        _ => self.compose(input, decoder, out)?,
                    }
                }
                Err(_) => return Poll::Ready(Err(Stopped::Source)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Flow {
    /// Reads the rest of the message and drops it.
    #[allow(clippy::too_many_arguments, reason = "the end and the memory behind it")]
    fn discard(
        &mut self,
        cx: &mut Context<'_>,
        from: &Stream,
        input: &mut Buffer,
        decoder: &mut ChunkDecoder,
        out: &mut Vec<u8>,
        active: &mut Active,
        now: Instant,
    ) -> Poll<Result<(), Stopped>> {
        loop {
            out.clear();
            self.compose(input, decoder, out)?;
            if self.body == Body::Done {
                out.clear();
                self.finished = true;
                return Poll::Ready(Ok(()));
            }
            match ready!(from.poll_read(cx, input.room())) {
                Ok(count) if count > 0 => {
                    input.filled(count);
                    active.from = now;
                }
                _ => return Poll::Ready(Err(Stopped::Source)),
            }
        }
    }
}

/// When the two ends of a flow last did something.
#[derive(Clone, Copy, Debug)]
pub struct Active {
    /// The reading end.
    pub from: Instant,
    /// The writing end.
    pub to: Instant,
}

/// The two ends of an exchange and who waits at them.
pub struct Ends<'a> {
    /// The core.
    pub core: &'a Core,
    /// The client's orders.
    pub session: &'a Session,
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

/// Sends the request (as far as it goes) and reads until the response's head is complete. Its length in the received bytes
/// is returned; they are consumed by the caller.
pub async fn response_head(ends: &mut Ends<'_>, work: &mut Work, upload: &mut Flow) -> Result<usize, NoResponse> {
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
        let waiting = head_waits(&up, work, upload, broken);
        ends.deadline.set(waiting.look_at(ends.patience, core.now()));
        let Work { input, request_chunks, up: out, received, .. } = &mut *work;
        let (client, server, watch) = (ends.client, ends.server, ends.abort_on_close);
        let event = until(core, ends.session, ends.deadline, |cx| {
            if !upload.finished && !broken {
                match upload.poll(cx, client, server, input, request_chunks, out, &mut up, core.now()) {
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
            Err(Interrupt::Timeout) => match head_waits(&up, work, upload, broken).over(ends.patience, core.now()) {
                Some(Side::Client) => return Err(NoResponse::Ended(Ended::timeout(Side::Client, Phase::Headers))),
                Some(Side::Server) => return Err(NoResponse::Late),
                None => {}
            },
        }
    }
}

/// Whom a response's head waits for: the server, and the client that still sends. A client whose bytes the server does not
/// take is not waited for.
fn head_waits(up: &Active, work: &Work, upload: &Flow, broken: bool) -> Waiting {
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
pub async fn response_body(
    ends: &mut Ends<'_>,
    work: &mut Work,
    upload: &mut Flow,
    download: &mut Flow,
) -> Result<(), Ended> {
    let core = ends.core;
    let mut up = Active { from: core.now(), to: core.now() };
    let mut down = up;
    let mut given_up = false;
    loop {
        let since = down.to.max(up.from).max(down.from).max(up.to);
        let waiting = response_waits(since, work, upload, given_up, download);
        ends.deadline.set(waiting.look_at(ends.patience, core.now()));
        let Work { input, request_chunks, up: up_out, received, response_chunks, down: down_out, .. } = &mut *work;
        let (client, server) = (ends.client, ends.server);
        let outcome = until(core, ends.session, ends.deadline, |cx| {
            if !upload.finished && !given_up {
                match upload.poll(cx, client, server, input, request_chunks, up_out, &mut up, core.now()) {
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                    Poll::Ready(Err(_)) => given_up = true,
                }
            }
            download.poll(cx, server, client, received, response_chunks, down_out, &mut down, core.now())
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
                let waiting = response_waits(since, work, upload, given_up, download);
                if let Some(side) = waiting.over(ends.patience, core.now()) {
                    return Err(Ended::timeout(side, Phase::Data));
                }
            }
        }
    }
}

/// Whom a response's body waits for: the client when it does not take it, else the server. A client that has stopped sending
/// its request does not lose the answer for it.
fn response_waits(since: Instant, work: &Work, upload: &Flow, given_up: bool, download: &Flow) -> Waiting {
    let held = download.is_blocked(&work.received, &work.down);
    let stuck = !upload.finished && !given_up && upload.is_blocked(&work.input, &work.up);
    Waiting { since, client: held, server: !held || stuck }
}

/// The response is complete, but the client is still sending: what comes goes on to the server, or nowhere once the server
/// does not take it any more. `Ok`: the request is
/// complete, so that another one can follow; true if the server has all of it.
pub async fn rest_of_request(ends: &mut Ends<'_>, work: &mut Work, upload: &mut Flow) -> Result<bool, Ended> {
    let core = ends.core;
    let mut up = Active { from: core.now(), to: core.now() };
    let mut refused = false;
    loop {
        ends.deadline.set(ends.patience.client.map(|limit| up.from.max(up.to) + limit));
        let Work { input, request_chunks, up: out, .. } = &mut *work;
        let (client, server) = (ends.client, ends.server);
        let outcome = until(core, ends.session, ends.deadline, |cx| {
            if !refused {
                match ready!(upload.poll(cx, client, server, input, request_chunks, out, &mut up, core.now())) {
                    Err(Stopped::Sink) => refused = true,
                    other => return Poll::Ready(other),
                }
            }
            upload.discard(cx, client, input, request_chunks, out, &mut up, core.now())
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
