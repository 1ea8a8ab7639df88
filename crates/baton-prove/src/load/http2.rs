//! One stream of the load at a time: a request over an HTTP/2 connection that several places share.
//!
//! The protocol is the `h2` crate's and not the proxy's own, for the reason for which HTTP/1 is read by `wire` here.

use std::{cell::Cell, future::poll_fn, io, net::IpAddr, rc::Rc, time::Instant};

use bytes::Bytes;
use h2::{
    SendStream,
    client::{ResponseFuture, SendRequest},
};
use tokio::{sync::Mutex, task::spawn_local, time::timeout_at};

use super::{
    Timeouts,
    connection::connect,
    request::{BodyCheck, Prepared, matches},
};
use crate::{
    failure::{FailureKind, RequestFailure},
    stream::ServerEndpoint,
};

/// The window of a stream: enough that the client holds nothing up.
const WINDOW: u32 = 1 << 20;
/// How often a request is sent again that the server has certainly not processed.
const RESENT_MAX: u32 = 3;

/// The connections that some places share: one to each server.
pub(super) struct SharedConnections {
    /// By the servers' places. Who connects holds the lock: others wait for its connection.
    kept: Box<[Mutex<Option<OpenConnection>>]>,
    source: Option<IpAddr>,
    established: Cell<u64>,
    resumed: Cell<u64>,
    closed_idle: Cell<u64>,
    resent: Cell<u64>,
}

/// A connection that carries requests.
#[derive(Clone)]
struct OpenConnection {
    send: SendRequest<Bytes>,
    /// How many answers it has carried.
    answers: Rc<Cell<u64>>,
    /// Whether it has ended.
    ended: Rc<Cell<bool>>,
}

/// A place for one request at a time.
pub(super) struct StreamPlace {
    shared: Rc<SharedConnections>,
    /// How many answers the last request's connection had carried before.
    answers: u64,
    /// Bytes of bodies read here.
    body_bytes: u64,
}

impl SharedConnections {
    pub(super) fn new(servers: usize, source: Option<IpAddr>) -> SharedConnections {
        SharedConnections {
            kept: (0..servers).map(|_| Mutex::new(None)).collect(),
            source,
            established: Cell::new(0),
            resumed: Cell::new(0),
            closed_idle: Cell::new(0),
            resent: Cell::new(0),
        }
    }

    /// Takes what was counted: connections established, those with a resumed session, those found closed, and requests sent again.
    pub(super) fn take_counts(&self) -> (u64, u64, u64, u64) {
        (self.established.take(), self.resumed.take(), self.closed_idle.take(), self.resent.take())
    }

    /// The connection to a server that takes another request, a new one if need be.
    async fn open(
        &self,
        place: usize,
        server: &ServerEndpoint,
        until: Instant,
    ) -> Result<OpenConnection, RequestFailure> {
        let mut kept = match timeout_at(until.into(), self.kept[place].lock()).await {
            Ok(kept) => kept,
            Err(_) => return Err(RequestFailure::new(FailureKind::TimeoutConnect)),
        };
        if let Some(open) = &*kept {
            // A server that has announced the end takes no other request; it may be that it is not known yet.
            let is_open = !open.ended.get() && open.send.clone().ready().await.is_ok();
            if is_open {
                return Ok(open.clone());
            }
            self.closed_idle.set(self.closed_idle.get() + 1);
            *kept = None;
        }
        let stream = connect(server, self.source, until).await?;
        if server.tls.is_some() && !stream.is_http2() {
            let reason = "the server did not select h2 (ALPN)";
            return Err(RequestFailure::new(FailureKind::TlsHandshake).because(reason));
        }
        let resumed = u64::from(stream.resumed());
        let mut builder = h2::client::Builder::new();
        builder.enable_push(false).initial_window_size(WINDOW).initial_connection_window_size(64 * WINDOW);
        let handshake = builder.handshake::<_, Bytes>(stream);
        let (send, connection) = match timeout_at(until.into(), handshake).await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => return Err(failure(&error, false, false)),
            Err(_) => return Err(RequestFailure::new(FailureKind::TimeoutConnect)),
        };
        self.established.set(self.established.get() + 1);
        self.resumed.set(self.resumed.get() + resumed);
        let open = OpenConnection { send, answers: Rc::default(), ended: Rc::default() };
        let ended = open.ended.clone();
        spawn_local(async move {
            // Its requests are told why.
            let _ = connection.await;
            ended.set(true);
        });
        *kept = Some(open.clone());
        Ok(open)
    }
}

impl OpenConnection {
    /// Sends a request's head.
    async fn send(&self, request: &Prepared) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let Some((head, body)) = &request.http2 else { return Err(h2::Reason::INTERNAL_ERROR.into()) };
        let mut send = self.send.clone();
        poll_fn(|cx| send.poll_ready(cx)).await?;
        send.send_request(head.clone(), body.is_empty())
    }
}

impl StreamPlace {
    pub(super) fn new(shared: Rc<SharedConnections>) -> StreamPlace {
        StreamPlace { shared, answers: 0, body_bytes: 0 }
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    pub(super) fn shared(&self) -> &SharedConnections {
        &self.shared
    }

    /// Sends a request, and reads its answer. Gives the instant of the answer's last byte.
    pub(super) async fn ask(
        &mut self,
        server: &ServerEndpoint,
        request: &Prepared,
        timeouts: &Timeouts,
        now: Instant,
    ) -> Result<Instant, RequestFailure> {
        let mut resent = 0;
        loop {
            match self.attempt(server, request, timeouts, now).await {
                Err(Attempted::Unprocessed(_)) if resent < RESENT_MAX => {
                    resent += 1;
                    self.shared.resent.set(self.shared.resent.get() + 1);
                }
                Err(Attempted::Unprocessed(failure) | Attempted::Failed(failure)) => return Err(failure),
                Ok(ended) => return Ok(ended),
            }
        }
    }

    /// Sends a request once.
    async fn attempt(
        &mut self,
        server: &ServerEndpoint,
        request: &Prepared,
        timeouts: &Timeouts,
        now: Instant,
    ) -> Result<Instant, Attempted> {
        self.answers = 0;
        let connected = now + timeouts.connect.min(timeouts.whole);
        let whole = now + timeouts.whole;
        let mut answer = Answer { request, status: None, checked: 0, differs: false, is_unprocessed: false };
        let mut open = self.shared.open(request.server, server, connected).await?;
        let mut sent = open.send(request).await;
        if sent.is_err() && open.answers.get() > 0 {
            // It had announced its end, and nothing was sent on it: like a close that is seen before.
            open.ended.set(true);
            open = self.shared.open(request.server, server, connected).await?;
            sent = open.send(request).await;
        }
        self.answers = open.answers.get();
        let is_reused = self.answers > 0;
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) if is_unprocessed(&error) => {
                open.ended.set(true);
                return Err(Attempted::Unprocessed(failure(&error, false, is_reused)));
            }
            Err(error) => return Err(failure(&error, false, is_reused).into()),
        };
        let exchange = timeout_at(whole.into(), answer.read(sent, is_reused, now + timeouts.first_byte));
        let read = exchange.await.unwrap_or_else(|_| Err(RequestFailure::new(FailureKind::TimeoutWhole)));
        self.body_bytes += answer.checked;
        let ended = Instant::now();
        match read {
            Ok(()) => {
                open.answers.set(open.answers.get() + 1);
                answer.judge().map(|()| ended).map_err(Attempted::Failed)
            }
            Err(failure) if answer.is_unprocessed => Err(Attempted::Unprocessed(failure)),
            Err(failure) => Err(Attempted::Failed(RequestFailure { status: answer.status, ..failure })),
        }
    }
}

/// An answer as far as it was read.
struct Answer<'a> {
    request: &'a Prepared,
    status: Option<u16>,
    /// Bytes of the body that were read and compared.
    checked: u64,
    /// Whether a byte of the body differed from what was expected.
    differs: bool,
    /// The server has certainly not processed the request.
    is_unprocessed: bool,
}

/// How an attempt failed.
enum Attempted {
    /// The server has certainly not processed the request, so that it may be sent again (RFC 9113 8.7).
    Unprocessed(RequestFailure),
    Failed(RequestFailure),
}

impl From<RequestFailure> for Attempted {
    fn from(failure: RequestFailure) -> Attempted {
        Attempted::Failed(failure)
    }
}

impl Answer<'_> {
    async fn read(
        &mut self,
        (response, mut up): (ResponseFuture, SendStream<Bytes>),
        is_reused: bool,
        first: Instant,
    ) -> Result<(), RequestFailure> {
        let body = self.request.http2.as_ref().map(|(_, body)| body.clone()).unwrap_or_default();
        let response = async {
            tokio::pin!(response);
            // A server may answer before it has taken the whole body; then the answer counts, and says more than a body that cannot be sent.
            tokio::select! {
                biased;
                response = &mut response => response,
                _ = send_body(&mut up, body) => response.await,
            }
        };
        let response = match timeout_at(first.into(), response).await {
            Ok(response) => response.map_err(|error| {
                self.is_unprocessed = is_unprocessed(&error);
                failure(&error, false, is_reused)
            })?,
            Err(_) => return Err(RequestFailure::new(FailureKind::TimeoutFirstByte)),
        };
        self.status = Some(response.status().as_u16());
        let mut down = response.into_body();
        while let Some(data) = down.data().await {
            let data = data.map_err(|error| failure(&error, true, is_reused))?;
            if let BodyCheck::Exactly(right) = &self.request.expect {
                self.differs |= !matches(right, self.checked, &data);
            }
            self.checked += data.len() as u64;
            // It fails only on a stream that has ended.
            let _ = down.flow_control().release_capacity(data.len());
        }
        Ok(())
    }

    /// Whether a whole answer is the right one.
    fn judge(&self) -> Result<(), RequestFailure> {
        let status = self.status.unwrap_or(0);
        let kind = if !self.request.status.accepts(status) {
            FailureKind::WrongStatus
        } else if !self.request.bodyless && self.request.right_length(self.checked) != self.checked {
            FailureKind::WrongLength
        } else if self.differs {
            FailureKind::WrongBody
        } else {
            return Ok(());
        };
        Err(RequestFailure { status: self.status, ..RequestFailure::new(kind) })
    }
}

/// Sends a body as the server's windows have room for it.
async fn send_body(up: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        up.reserve_capacity(bytes.len());
        let Some(room) = poll_fn(|cx| up.poll_capacity(cx)).await else { return Ok(()) };
        let piece = bytes.split_to(room?.min(bytes.len()));
        if !piece.is_empty() {
            up.send_data(piece, bytes.is_empty())?;
        }
    }
    Ok(())
}

/// Whether the server says that it has not processed a request: GOAWAY names an earlier stream as the last one, or REFUSED_STREAM.
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// What an error means for a request: `started` if the answer had begun, `is_reused` if its connection had carried another one.
fn failure(error: &h2::Error, started: bool, is_reused: bool) -> RequestFailure {
    let kind = match (started, is_reused) {
        (true, _) => FailureKind::Truncated,
        (false, true) => FailureKind::ClosedOnReuse,
        (false, false) => FailureKind::ResetBeforeFirstByte,
    };
    if let Some(error) = error.get_io() {
        let kind = if error.kind() == io::ErrorKind::TimedOut { FailureKind::TimeoutWhole } else { kind };
        return RequestFailure::io(kind, error).because(error.to_string());
    }
    // What the server did not say, its protocol was wrong in.
    let kind = if error.is_library() { FailureKind::Malformed } else { kind };
    RequestFailure::new(kind).because(error.to_string())
}
