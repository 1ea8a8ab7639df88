//! One connection of the load: send a request, read its answer, say precisely what went wrong.
//!
//! Knows nothing of rates and counts. Does not allocate per request, and asks the kernel for one write and one read in the
//! usual case.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{timeout, timeout_at},
};

use super::{
    Timeouts,
    deadline::Deadline,
    request::{BodyCheck, Prepared, matches},
};
use crate::{
    failure::{FailureKind, RequestFailure},
    stream::{NotConnected, ServerEndpoint, Stream},
    wire::{Body, HEAD_MAX, LastHead, Malformed, ResponseHead},
};

/// How long a server that said it would close has for it, before the client closes.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// A place for one request at a time, with the connections it may go over: one to each server.
pub(super) struct Connection {
    /// By the servers' places.
    kept: Box<[Option<IdleConnection>]>,
    /// How many answers the last request's connection had carried before.
    answers: u64,
    source: Option<IpAddr>,
    /// The last request's connection, when its answer was right and it carries no other one.
    used_up: Option<Stream>,
    /// The beginning of an answer whose head has not come whole; empty nearly always.
    partial: Vec<u8>,
    scratch: Rc<RefCell<Scratch>>,
    deadline: Deadline,
    /// Connections established here.
    pub(super) established: u64,
    /// Those of them on which TLS took up an earlier session.
    pub(super) resumed: u64,
    /// Kept connections that were found closed before a request went out.
    pub(super) closed_idle: u64,
    /// Bytes of bodies read here.
    pub(super) body_bytes: u64,
}

/// What all connections of a thread read with; nothing stays in it from one poll to the next.
pub(super) struct Scratch {
    buffer: Box<[u8]>,
    /// For each entry of the request list.
    heads: Box<[LastHead]>,
}

impl Scratch {
    pub(super) fn new(requests: usize) -> Scratch {
        Scratch { buffer: vec![0; HEAD_MAX].into(), heads: (0..requests).map(|_| LastHead::default()).collect() }
    }
}

/// A connection that may carry another request.
struct IdleConnection {
    stream: Stream,
    /// How many answers it has carried.
    answers: u64,
}

impl Connection {
    pub(super) fn new(
        now: Instant,
        servers: usize,
        source: Option<IpAddr>,
        scratch: Rc<RefCell<Scratch>>,
    ) -> Connection {
        Connection {
            kept: (0..servers).map(|_| None).collect(),
            answers: 0,
            source,
            used_up: None,
            partial: Vec::new(),
            scratch,
            deadline: Deadline::new(now),
            established: 0,
            resumed: 0,
            closed_idle: 0,
            body_bytes: 0,
        }
    }

    /// How many answers the connection had carried when the last request went out.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// The connection of the last request, if it is to be closed; [`await_close`] does that.
    pub(super) fn take_used_up(&mut self) -> Option<Stream> {
        self.used_up.take()
    }

    /// Sends `request` to `server` at `now` and reads its answer, over the kept connection if there is one. Gives the instant
    /// of the answer's last byte. An answer that is whole and not the right one leaves the connection as it is; any other
    /// failure leaves none behind.
    pub(super) async fn ask(
        &mut self,
        server: &ServerEndpoint,
        request: &Prepared,
        timeouts: &Timeouts,
        now: Instant,
        keep: bool,
    ) -> Result<Instant, RequestFailure> {
        let place = request.server;
        let mut kept = match self.usable(place).await {
            Some(kept) => kept,
            None => {
                self.answers = 0;
                let stream = connect(server, self.source, now + timeouts.connect.min(timeouts.whole)).await?;
                self.established += 1;
                self.resumed += u64::from(stream.resumed());
                IdleConnection { stream, answers: 0 }
            }
        };
        self.answers = kept.answers;

        self.deadline.set(now + timeouts.first_byte.min(timeouts.whole));
        let mut exchange = Exchange {
            stream: &mut kept.stream,
            request,
            partial: &mut self.partial,
            deadline: &mut self.deadline,
            whole: now + timeouts.whole,
            first_byte_only: timeouts.first_byte < timeouts.whole,
            reused: kept.answers > 0,
            sent: 0,
            started: false,
            head: None,
            checked: 0,
            differs: false,
        };
        let scratch = &self.scratch;
        let head = poll_fn(|cx| exchange.poll(cx, &mut scratch.borrow_mut())).await;
        exchange.partial.clear();
        self.body_bytes += exchange.checked;
        let ended = Instant::now();
        // An answer that came before the request was sent whole leaves the rest of it on the wire.
        let keep = keep && exchange.sent == request.bytes.len() && head.as_ref().is_ok_and(|head| head.keep);
        let verdict = exchange.judge(head?);
        if keep {
            kept.answers += 1;
            self.kept[place] = Some(kept);
        } else if verdict.is_ok() {
            self.used_up = Some(kept.stream);
        }
        verdict.map(|()| ended)
    }

    /// Takes the connection kept for a server out of its place, if it can carry another request.
    async fn usable(&mut self, place: usize) -> Option<IdleConnection> {
        let mut kept = self.kept[place].take()?;
        if poll_fn(|cx| Poll::Ready(is_closed(&mut kept.stream, cx))).await {
            self.closed_idle += 1;
            return None;
        }
        Some(kept)
    }
}

pub(super) async fn connect(
    server: &ServerEndpoint,
    source: Option<IpAddr>,
    until: Instant,
) -> Result<Stream, RequestFailure> {
    match timeout_at(until.into(), server.connect(source)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(NotConnected::Socket(error))) => Err(RequestFailure::connect(&error)),
        Ok(Err(NotConnected::Tls(error))) => Err(RequestFailure::tls(&error)),
        Err(_) => Err(RequestFailure::new(FailureKind::TimeoutConnect)),
    }
}

/// Whether a kept connection can carry no further request, as far as the client knows by now. Costs no system call when
/// nothing has happened on it. Bytes that nobody asked for (such as a 408 before a close) make it as unusable as a close.
fn is_closed(stream: &mut Stream, cx: &mut Context<'_>) -> bool {
    Pin::new(stream).poll_read(cx, &mut ReadBuf::new(&mut [0; 64])).is_ready()
}

/// Lets the server close first, so that it and not the client keeps the port in TIME_WAIT. The answer is complete: nothing
/// that happens here is a failure.
pub(super) async fn await_close(mut stream: Stream) {
    let closed = poll_fn(|cx| {
        let _ = ready!(Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0; 64])));
        Poll::Ready(())
    });
    let _ = timeout(CLOSE_WAIT, closed).await;
}

/// A request and its answer on one stream.
struct Exchange<'a> {
    stream: &'a mut Stream,
    request: &'a Prepared,
    /// The beginning of a head that has not come whole.
    partial: &'a mut Vec<u8>,
    deadline: &'a mut Deadline,
    /// When the whole answer must be there.
    whole: Instant,
    /// Whether the deadline before the first byte is the first byte's own.
    first_byte_only: bool,
    /// Whether the stream carried an answer before.
    reused: bool,
    /// Bytes of the request that were written; all of them after a failed write, because then only reading can tell more.
    sent: usize,
    /// Whether a byte of the answer was seen.
    started: bool,
    /// The head and the place in the body, once the head was read.
    head: Option<(ResponseHead, Body)>,
    /// Bytes of the body that were read and compared.
    checked: u64,
    /// Whether a byte of the body differed from what was expected.
    differs: bool,
}

impl Exchange<'_> {
    /// Ready with the head of an answer that was read whole.
    fn poll(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<ResponseHead, RequestFailure>> {
        while self.sent < self.request.bytes.len() {
            match Pin::new(&mut *self.stream).poll_write(cx, &self.request.bytes[self.sent..]) {
                Poll::Ready(Ok(written)) if written > 0 => self.sent += written,
                // The server may have answered before it closed: what can be read says what happened.
                Poll::Ready(_) => self.sent = self.request.bytes.len(),
                Poll::Pending => break,
            }
        }
        loop {
            let filled = self.partial.len();
            scratch.buffer[..filled].copy_from_slice(self.partial);
            let mut into = ReadBuf::new(&mut scratch.buffer[filled..]);
            let read = match Pin::new(&mut *self.stream).poll_read(cx, &mut into) {
                Poll::Ready(read) => read,
                Poll::Pending => return self.poll_deadline(cx).map(Err),
            };
            match read.map(|()| into.filled().len()) {
                Ok(0) => return Poll::Ready(self.closed(None)),
                Err(error) => return Poll::Ready(self.closed(Some(&error))),
                Ok(length) => {
                    let last_head = &mut scratch.heads[self.request.place];
                    if let Some(done) = self.read(&scratch.buffer[..filled + length], last_head).transpose() {
                        return Poll::Ready(done);
                    }
                }
            }
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<RequestFailure> {
        ready!(self.deadline.poll(cx));
        let before_first_byte = !self.started && self.first_byte_only;
        Poll::Ready(self.ended(if before_first_byte {
            FailureKind::TimeoutFirstByte
        } else {
            FailureKind::TimeoutWhole
        }))
    }

    /// Takes in what was read, with the beginning of the head before it if there was one; gives the head when the answer is
    /// whole.
    fn read(&mut self, mut bytes: &[u8], last_head: &mut LastHead) -> Result<Option<ResponseHead>, RequestFailure> {
        while self.head.is_none() {
            match last_head.response(bytes, self.request.bodyless) {
                Err(Malformed) => return Err(self.malformed()),
                Ok(None) => {
                    self.partial.clear();
                    self.partial.extend_from_slice(bytes);
                    self.start();
                    return Ok(None);
                }
                Ok(Some((head, used))) => {
                    bytes = &bytes[used..];
                    // Interim answers (RFC 9110 section 15.2) precede the final one; 101 is final.
                    if head.status >= 200 || head.status == 101 {
                        self.head = Some((head, Body::new(head.framing)));
                    }
                }
            }
        }
        self.partial.clear();
        self.read_body(bytes)
    }

    fn read_body(&mut self, bytes: &[u8]) -> Result<Option<ResponseHead>, RequestFailure> {
        let (head, body) = self.head.as_mut().expect("set before the body is read");
        let (checked, differs, expect) = (&mut self.checked, &mut self.differs, &self.request.expect);
        let used = body.read(bytes, &mut |data| {
            if let BodyCheck::Exactly(right) = expect {
                *differs |= !matches(right, *checked, data);
            }
            *checked += data.len() as u64;
        });
        let (head, done) = (*head, body.is_done());
        match used {
            Err(Malformed) => Err(self.malformed()),
            // Bytes after the end were not asked for.
            Ok(used) if done && used < bytes.len() => Err(self.malformed()),
            Ok(_) if done => Ok(Some(head)),
            Ok(_) => {
                self.start();
                Ok(None)
            }
        }
    }

    /// The first byte came, but not the whole answer: from now on the whole answer's deadline holds.
    fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.deadline.set(self.whole);
        }
    }

    /// The stream has ended, orderly (`None`) or by an error.
    fn closed(&mut self, error: Option<&io::Error>) -> Result<ResponseHead, RequestFailure> {
        if let (Some((head, Body::UntilClose)), None) = (self.head, error) {
            return Ok(head);
        }
        if let Some(error) = error
            && is_tls_alert(error)
            && !self.started
            && !self.reused
        {
            // In TLS 1.3 the client is done before the server has judged the client's certificate (RFC 8446 section 4.4.2.4).
            return Err(RequestFailure::tls(error));
        }
        let kind = match (self.started, self.reused, error.map(io::Error::kind)) {
            // The kernel gave up on a peer that does not acknowledge.
            (_, _, Some(io::ErrorKind::TimedOut)) => FailureKind::TimeoutWhole,
            (true, _, _) => FailureKind::Truncated,
            (false, true, _) => FailureKind::ClosedOnReuse,
            (false, false, _) => FailureKind::ResetBeforeFirstByte,
        };
        let ended = RequestFailure { errno: error.and_then(io::Error::raw_os_error), ..self.ended(kind) };
        Err(match error {
            // Not the system's: TLS has more to say.
            Some(error) if error.raw_os_error().is_none() => ended.because(error.to_string()),
            _ => ended,
        })
    }

    fn malformed(&self) -> RequestFailure {
        self.ended(FailureKind::Malformed)
    }

    fn ended(&self, kind: FailureKind) -> RequestFailure {
        RequestFailure { status: self.head.map(|(head, _)| head.status), ..RequestFailure::new(kind) }
    }

    /// Whether a whole answer is the right one.
    fn judge(&self, head: ResponseHead) -> Result<(), RequestFailure> {
        if !self.request.status.accepts(head.status) {
            Err(self.ended(FailureKind::WrongStatus))
        } else if !self.request.bodyless && self.request.right_length(self.checked) != self.checked {
            Err(self.ended(FailureKind::WrongLength))
        } else if self.differs {
            Err(self.ended(FailureKind::WrongBody))
        } else {
            Ok(())
        }
    }
}

/// Whether the server ended TLS by telling a reason.
fn is_tls_alert(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::AlertReceived(_)))
}
