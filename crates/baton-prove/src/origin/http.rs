//! One HTTP connection of an origin: head, body, answer, next; requests may come pipelined.

use std::{io, sync::atomic::Ordering, time::Duration};

use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{
    Shared,
    answer::{self, Route},
    socket,
};
use crate::{
    lane::Stop,
    wire::{self, Body, HEAD_MAX, Malformed},
};

/// The largest body that `/echo` sends back, in bytes; others are read to their end and thrown away.
const ECHO_MAX: usize = 16 * 1024 * 1024;

/// Bytes that a chunk of `/chunked` has at most; not a multiple of the pattern's length, so that a lost chunk shows.
const CHUNK: usize = 4000;

/// A connection and the bytes read from it that nobody has used yet.
pub(super) struct Input {
    pub(super) stream: TcpStream,
    pub(super) bytes: Vec<u8>,
}

impl Input {
    /// Reads once; `false` says that the client has closed its side. `bytes` has at most [`HEAD_MAX`] more afterwards.
    /// May be dropped while it waits without losing anything.
    pub(super) async fn more(&mut self) -> io::Result<bool> {
        loop {
            self.stream.readable().await?;
            let before = self.bytes.len();
            self.bytes.resize(before + HEAD_MAX, 0);
            let read = self.stream.try_read(&mut self.bytes[before..]);
            self.bytes.truncate(before + read.as_ref().map_or(0, |length| *length));
            match read {
                Ok(length) => return Ok(length > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Serves the connection to its end. `number` is its number among the origin's.
pub(super) async fn serve(stream: TcpStream, origin: &Shared, number: u64, mut stop: Stop) -> io::Result<()> {
    let mut input = Input { stream, bytes: Vec::new() };
    let mut out = Vec::new();
    loop {
        out.clear();
        let request = match read_request(&input.bytes, origin, number) {
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
                    return input.stream.shutdown().await;
                }
                continue;
            }
            Err(Malformed) => {
                answer::head(400, Some(0), "text/plain", true, &mut out);
                input.stream.write_all(&out).await?;
                return input.stream.shutdown().await;
            }
        };
        input.bytes.drain(..request.head_length);
        if let Some(accept) = &request.websocket {
            return socket::serve(input, accept, stop).await;
        }

        if request.expects_continue && input.bytes.is_empty() && !request.body.is_done() {
            input.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let Some(body) = read_body(&mut input, &request).await? else { return Ok(()) };
        if let Route::Seen { delay_ms, .. } = request.route
            && delay_ms > 0
        {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        let close = !request.keep || stop.is_asked();
        write_answer(&mut input.stream, &request, &body, close, &mut out).await?;
        if close {
            return input.stream.shutdown().await;
        }
    }
}

/// A request, as far as its answer depends on it.
struct Request {
    route: Route,
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

fn read_request(bytes: &[u8], origin: &Shared, number: u64) -> Result<Option<Request>, Malformed> {
    let Some((head, head_length)) = wire::request(bytes)? else { return Ok(None) };
    origin.counts.requests.fetch_add(1, Ordering::Relaxed);
    let route = Route::new(head.target);
    let websocket = match route {
        Route::WebSocket => socket::accept(&head),
        _ => None,
    };
    Ok(Some(Request {
        route,
        head_length,
        body: Body::new(head.framing),
        keep: head.keep,
        expects_continue: head.expects_continue,
        bodyless: head.method == b"HEAD",
        websocket,
        seen: if let Route::Seen { .. } = route { answer::seen(origin, number, &head) } else { Vec::new() },
    }))
}

/// Reads the request's body; gives what `/echo` needs of it, or `None` when the client has gone.
async fn read_body(input: &mut Input, request: &Request) -> io::Result<Option<Vec<u8>>> {
    let (mut body, mut kept) = (request.body, Vec::new());
    loop {
        let read = body.read(&input.bytes, &mut |data| {
            if request.route == Route::Echo && kept.len() <= ECHO_MAX {
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

async fn write_answer(
    stream: &mut TcpStream,
    request: &Request,
    body: &[u8],
    close: bool,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let (status, kind, body): (u16, &str, &[u8]) = match request.route {
        Route::Bytes { length, chunked } => return write_pattern(stream, request, length, chunked, close, out).await,
        Route::Seen { status: status @ (204 | 304), .. } => {
            out.extend_from_slice(format!("HTTP/1.1 {status} Nothing\r\n").as_bytes());
            out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
            return stream.write_all(out).await;
        }
        Route::Seen { status, .. } => (status, "application/json", &request.seen),
        Route::Echo if body.len() > ECHO_MAX => (413, "text/plain", b""),
        Route::Echo => (200, "application/octet-stream", body),
        Route::WebSocket => (426, "text/plain", b"this path speaks WebSocket only\n"),
        Route::Bad => (404, "text/plain", b"the number in the path is none or too large\n"),
    };
    answer::head(status, Some(body.len() as u64), kind, close, out);
    if !request.bodyless {
        out.extend_from_slice(body);
    }
    stream.write_all(out).await
}

async fn write_pattern(
    stream: &mut TcpStream,
    request: &Request,
    length: u64,
    chunked: bool,
    close: bool,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    answer::head(200, (!chunked).then_some(length), "text/plain", close, out);
    if request.bodyless {
        return stream.write_all(out).await;
    }
    let block = answer::pattern_block();
    let (mut at, mut left) = (0, length);
    while left > 0 {
        let most = if chunked { CHUNK } else { block.len() };
        // Never over the end of the block, so that the next piece begins where this one ends.
        let piece = usize::try_from(left).unwrap_or(usize::MAX).min(most).min(block.len() - at);
        if chunked {
            out.extend_from_slice(format!("{piece:x}\r\n").as_bytes());
        }
        out.extend_from_slice(&block[at..at + piece]);
        if chunked {
            out.extend_from_slice(b"\r\n");
        }
        at = (at + piece) % block.len();
        left -= piece as u64;
        if out.len() >= block.len() {
            stream.write_all(out).await?;
            out.clear();
        }
    }
    if chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(out).await
}
