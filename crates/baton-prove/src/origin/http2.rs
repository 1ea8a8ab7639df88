//! One HTTP/2 connection of an origin, by prior knowledge: a task for each stream.
//!
//! The protocol is the `h2` crate's and not the proxy's own, for the reason for which HTTP/1 is read by `wire` here.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    sync::atomic::Ordering,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{Request, Response, header};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::JoinSet,
};

use super::{
    OriginShared,
    answer::{self, Ask, Route},
    fault::{DRIP_EVERY, InjectedFault},
    http::{ECHO_MAX, Input, reply},
    peer::OriginStream,
    reply::{Reply, ReplyBody},
};
use crate::lane::Stop;

/// What a client's connection begins with (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Streams of a connection at a time.
const STREAMS_MAX: u32 = 1000;
/// The window of a stream.
const WINDOW: u32 = 1 << 20;

/// Serves the connection to its end. A stop ends it when its streams have.
pub(super) async fn serve(input: Input, origin: &Rc<OriginShared>, number: u64, mut stop: Stop) -> io::Result<()> {
    let Input { peer, bytes } = input;
    let begun = BegunStream { peer, bytes, read: 0 };
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(STREAMS_MAX).initial_window_size(WINDOW).initial_connection_window_size(16 * WINDOW);
    let mut connection = builder.handshake::<_, Bytes>(begun).await.map_err(io::Error::other)?;
    let mut streams = JoinSet::new();
    let (mut is_stopping, mut is_reused) = (false, false);
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            Some(_) = streams.join_next() => continue,
            () = stop.asked(), if !is_stopping => {
                is_stopping = true;
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(accepted) = accepted else { return Ok(()) };
        let (request, respond) = accepted.map_err(io::Error::other)?;
        streams.spawn_local(converse(request, respond, origin.clone(), number, is_reused, stop.clone()));
        is_reused = true;
    }
}

async fn converse(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    origin: Rc<OriginShared>,
    number: u64,
    is_reused: bool,
    stop: Stop,
) {
    // An error is the client's going away; an origin has nobody to tell.
    let _ = answer_one(request, &mut respond, &origin, number, is_reused, stop).await;
}

async fn answer_one(
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
    origin: &OriginShared,
    number: u64,
    is_reused: bool,
    stop: Stop,
) -> Result<(), h2::Error> {
    origin.counts.requests.fetch_add(1, Ordering::Relaxed);
    let (head, mut body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let ask = Ask::new(target.as_bytes());
    let seen = match ask.route {
        Route::Seen { .. } => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let host = head.uri.authority().map(|authority| ("host".to_owned(), authority.as_str().to_owned()));
            let fields = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())));
            let headers = host.into_iter().chain(fields).collect();
            answer::seen_as(origin, number, head.method.as_str(), target, "HTTP/2.0", headers)
        }
        Route::Bytes { .. } | Route::Echo | Route::WebSocket | Route::Bad(_) => Vec::new(),
    };
    let mut kept = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        if ask.route == Route::Echo && kept.len() <= ECHO_MAX {
            kept.extend_from_slice(&data);
        }
        body.flow_control().release_capacity(data.len())?;
    }
    if !ask.delay.is_zero() {
        tokio::time::sleep(ask.delay).await;
    }
    let reply = reply(ask.route, &seen, &kept, head.method == http::Method::HEAD, false);
    let fault = origin.fault(ask.fault, is_reused, |fault| is_of_stream(fault) && reply.can(fault));
    write(&reply, respond, fault, stop).await
}

/// Whether a stream can fail like this, its connection going on.
fn is_of_stream(fault: InjectedFault) -> bool {
    match fault {
        InjectedFault::Reset
        | InjectedFault::Close
        | InjectedFault::HalfBody
        | InjectedFault::ResetBody
        | InjectedFault::Silence
        | InjectedFault::Stall
        | InjectedFault::Drip
        | InjectedFault::WrongLength
        | InjectedFault::WrongBody
        | InjectedFault::WrongStatus => true,
        InjectedFault::HalfHead
        | InjectedFault::TooLong
        | InjectedFault::Malformed
        | InjectedFault::CloseAfter
        | InjectedFault::ResetAfter => false,
    }
}

async fn write(
    reply: &Reply<'_>,
    respond: &mut SendResponse<Bytes>,
    fault: Option<InjectedFault>,
    stop: Stop,
) -> Result<(), h2::Error> {
    match fault {
        Some(InjectedFault::Reset) => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        }
        Some(InjectedFault::Close) => {
            respond.send_reset(Reason::REFUSED_STREAM);
            return Ok(());
        }
        Some(InjectedFault::Silence) => {
            hold(stop, std::future::poll_fn(|cx| respond.poll_reset(cx))).await;
            return Ok(());
        }
        _ => {}
    }
    let whole = reply.body.length();
    let (promised, sent) = match fault {
        Some(InjectedFault::WrongLength) => (whole - 1, whole - 1),
        Some(InjectedFault::HalfBody | InjectedFault::ResetBody | InjectedFault::Stall) => (whole, whole / 2),
        _ => (whole, whole),
    };
    let status = if fault == Some(InjectedFault::WrongStatus) { 500 } else { reply.status };
    let mut head = Response::builder().status(status);
    match reply.body {
        ReplyBody::None if status == reply.status => {}
        ReplyBody::Pattern { chunked: true, .. } => head = head.header(header::CONTENT_TYPE, reply.kind),
        ReplyBody::None => head = head.header(header::CONTENT_LENGTH, promised),
        ReplyBody::Bytes(_) | ReplyBody::Pattern { .. } => {
            head = head.header(header::CONTENT_TYPE, reply.kind).header(header::CONTENT_LENGTH, promised);
        }
    }
    let Ok(head) = head.body(()) else { return Ok(()) };
    let has_body = !reply.bodyless && whole > 0;
    let mut stream = respond.send_response(head, !has_body)?;
    if !has_body {
        return Ok(());
    }
    let flip = (fault == Some(InjectedFault::WrongBody)).then_some(whole / 2);
    let body = reply.body.without_chunks();
    let mut at = 0;
    while at < sent {
        let mut piece = Vec::new();
        at += body.piece(at, sent, flip, &mut piece);
        let ends = at == promised;
        if fault == Some(InjectedFault::Drip) {
            let last = piece.len() - 1;
            for (place, byte) in piece.into_iter().enumerate() {
                send(&mut stream, vec![byte].into(), ends && place == last).await?;
                tokio::time::sleep(DRIP_EVERY).await;
            }
        } else {
            send(&mut stream, piece.into(), ends).await?;
        }
    }
    if matches!(fault, Some(InjectedFault::HalfBody | InjectedFault::ResetBody)) {
        // A reset overtakes what waits to be sent.
        tokio::time::sleep(DRIP_EVERY).await;
    }
    match fault {
        Some(InjectedFault::HalfBody) => stream.send_reset(Reason::CANCEL),
        Some(InjectedFault::ResetBody) => stream.send_reset(Reason::INTERNAL_ERROR),
        Some(InjectedFault::Stall) => hold(stop, std::future::poll_fn(|cx| stream.poll_reset(cx))).await,
        _ if sent == 0 && promised == 0 => send(&mut stream, Bytes::new(), true).await?,
        _ => {}
    }
    Ok(())
}

/// Sends bytes as the client's windows have room for them.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes, ends: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let Some(room) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        let piece = bytes.split_to(room?.min(bytes.len()));
        if !piece.is_empty() {
            stream.send_data(piece, ends && bytes.is_empty())?;
        }
        if ends && bytes.is_empty() {
            return Ok(());
        }
    }
    if ends { stream.send_data(bytes, true) } else { Ok(()) }
}

/// Says nothing until the client gives up, or the origin stops.
async fn hold<T>(mut stop: Stop, given_up: impl Future<Output = T>) {
    tokio::select! {
        _ = given_up => {}
        () = stop.asked() => {}
    }
}

/// A connection of which some bytes were read.
struct BegunStream {
    peer: OriginStream,
    bytes: Vec<u8>,
    read: usize,
}

impl AsyncRead for BegunStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.read < this.bytes.len() {
            let count = (this.bytes.len() - this.read).min(into.remaining());
            into.put_slice(&this.bytes[this.read..this.read + count]);
            this.read += count;
            return Poll::Ready(Ok(()));
        }
        match &mut this.peer {
            OriginStream::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            OriginStream::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for BegunStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.peer {
            OriginStream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            OriginStream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets have nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.peer {
            OriginStream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            OriginStream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
