//! One HTTP connection of an origin: head, body, answer, next; requests may come pipelined. One that begins as HTTP/2 goes on elsewhere.

use std::{io, rc::Rc, sync::atomic::Ordering};

use super::{
    OriginShared,
    answer::{self, Ask, Route},
    fault::InjectedFault,
    http2,
    peer::OriginStream,
    reply::{ConnectionFate, Reply, ReplyBody as AnswerBody},
    socket,
};
use crate::{
    lane::Stop,
    wire::{self, Body, Malformed},
};

/// The largest body that `/echo` sends back, in bytes; others are read to their end and thrown away.
pub(super) const ECHO_MAX: usize = 16 * 1024 * 1024;

/// A connection and the bytes read from it that nobody has used yet.
pub(super) struct Input {
    pub(super) peer: OriginStream,
    pub(super) bytes: Vec<u8>,
}

impl Input {
    /// Reads once; `false` says that the client has closed its side. May be dropped while it waits without losing anything.
    pub(super) async fn more(&mut self) -> io::Result<bool> {
        self.peer.read(&mut self.bytes).await
    }

    /// Reads and throws away until the client closes.
    async fn hold(&mut self) -> io::Result<()> {
        loop {
            self.bytes.clear();
            if !self.more().await? {
                return Ok(());
            }
        }
    }
}

/// Serves the connection to its end. `number` is its number among the origin's.
pub(super) async fn serve(
    peer: OriginStream,
    origin: &Rc<OriginShared>,
    number: u64,
    mut stop: Stop,
) -> io::Result<()> {
    let mut input = Input { peer, bytes: Vec::new() };
    let mut out = Vec::new();
    let mut reused = false;
    loop {
        if !reused && input.bytes.starts_with(http2::PREFACE) {
            return http2::serve(input, origin, number, stop).await;
        }
        // Its first lines could be read as a request's head.
        let may_be_http2 = !reused && !input.bytes.is_empty() && http2::PREFACE.starts_with(&input.bytes);
        let head = if may_be_http2 { &[][..] } else { &input.bytes };
        let request = match read_request(head, origin, number) {
            Ok(Some(request)) => request,
            Ok(None) => {
                // A stop ends a connection between two requests, never within one.
                let idle = input.bytes.is_empty();
                let open = tokio::select! {
                    biased;
                    open = input.more() => open?,
                    () = stop.asked(), if idle => false,
                };
                if !open {
                    return input.peer.shutdown().await;
                }
                continue;
            }
            Err(Malformed) => {
                let answer = text(400, b"this is not an HTTP/1 request\n", true);
                answer.write(&mut input.peer, None, &mut out).await?;
                return input.peer.shutdown().await;
            }
        };
        input.bytes.drain(..request.head_length);
        if request.websocket.is_none() && request.expects_continue && input.bytes.is_empty() && !request.body.is_done()
        {
            input.peer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let Some(body) = read_body(&mut input, &request).await? else { return Ok(()) };
        if !request.ask.delay.is_zero() {
            tokio::time::sleep(request.ask.delay).await;
        }

        let answer = request.answer(&body, !request.keep || stop.is_asked());
        let opens = request.websocket.as_deref();
        // A handshake fails by saying nothing of it, or not at all.
        let can = |fault: InjectedFault| if opens.is_some() { fault.is_instead() } else { answer.can(fault) };
        let fault = origin.fault(request.ask.fault, reused, can);
        if let (Some(accept), None) = (opens, fault) {
            return socket::serve(input, accept, stop).await;
        }
        match answer.write(&mut input.peer, fault, &mut out).await? {
            ConnectionFate::Keep => reused = true,
            ConnectionFate::Close => return input.peer.shutdown().await,
            ConnectionFate::Reset => return input.peer.reset(),
            ConnectionFate::Hold => {
                tokio::select! {
                    held = input.hold() => held?,
                    () = stop.asked() => {}
                }
                return input.peer.shutdown().await;
            }
        }
    }
}

/// A request, as far as its answer depends on it.
struct OriginRequest {
    ask: Ask,
    head_length: usize,
    body: Body,
    keep: bool,
    expects_continue: bool,
    /// The answer to HEAD has no body.
    bodyless: bool,
    /// The accept key, when the request opens a WebSocket.
    websocket: Option<String>,
    /// The JSON of what was seen, when that is the answer.
    seen: Vec<u8>,
}

fn read_request(bytes: &[u8], origin: &OriginShared, number: u64) -> Result<Option<OriginRequest>, Malformed> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let Some((head, head_length)) = wire::request(bytes)? else { return Ok(None) };
    origin.counts.requests.fetch_add(1, Ordering::Relaxed);
    let ask = Ask::new(head.target);
    let websocket = match ask.route {
        Route::WebSocket => socket::accept(&head),
        _ => None,
    };
    Ok(Some(OriginRequest {
        ask,
        head_length,
        body: Body::new(head.framing),
        keep: head.keep,
        expects_continue: head.expects_continue,
        bodyless: head.method == b"HEAD",
        websocket,
        seen: if let Route::Seen { .. } = ask.route { answer::seen(origin, number, &head) } else { Vec::new() },
    }))
}

/// Reads the request's body; gives what `/echo` needs of it, or `None` when the client has gone.
async fn read_body(input: &mut Input, request: &OriginRequest) -> io::Result<Option<Vec<u8>>> {
    let (mut body, mut kept) = (request.body, Vec::new());
    loop {
        let read = body.read(&input.bytes, &mut |data| {
            if request.ask.route == Route::Echo && kept.len() <= ECHO_MAX {
                kept.extend_from_slice(data);
            }
        });
        let Ok(used) = read else { return Ok(None) };
        input.bytes.drain(..used);
        if body.is_done() {
            return Ok(Some(kept));
        }
        if !input.more().await? {
            return Ok(None);
        }
    }
}

impl OriginRequest {
    /// The right answer. `body` is what came with the request.
    fn answer<'a>(&'a self, body: &'a [u8], close: bool) -> Reply<'a> {
        reply(self.ask.route, &self.seen, body, self.bodyless, close)
    }
}

/// The right answer to a request of this kind, `seen` being what was seen of it, and `body` what came with it.
pub(super) fn reply<'a>(route: Route, seen: &'a [u8], body: &'a [u8], bodyless: bool, close: bool) -> Reply<'a> {
    let whole = |status, kind, body| Reply { status, kind, body, bodyless, close };
    let plain = |status, body: &'static [u8]| whole(status, "text/plain", AnswerBody::Bytes(body));
    match route {
        Route::Bytes { length, chunked } => whole(200, "text/plain", AnswerBody::Pattern { length, chunked }),
        Route::Seen { status: status @ (204 | 304) } => whole(status, "", AnswerBody::None),
        Route::Seen { status } => whole(status, "application/json", AnswerBody::Bytes(seen)),
        Route::Echo if body.len() > ECHO_MAX => plain(413, b"a body is echoed up to 16 MiB\n"),
        Route::Echo => whole(200, "application/octet-stream", AnswerBody::Bytes(body)),
        Route::WebSocket => plain(426, b"this path is for WebSocket only\n"),
        Route::Bad(text) => plain(404, text.as_bytes()),
    }
}

fn text(status: u16, body: &'static [u8], close: bool) -> Reply<'static> {
    Reply { status, kind: "text/plain", body: AnswerBody::Bytes(body), bodyless: false, close }
}
