//! The WebSocket side of an origin: accepts, echoes frames as they come, answers pings and closes.

use std::io;

use super::http::Input;
use crate::{
    lane::Stop,
    websocket::{BadFrame, Frame, Opcode, accept_key},
    wire::RequestHead,
};

/// Close codes (RFC 6455 section 7.4.1).
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;

/// The accept key of a request that opens a WebSocket (RFC 6455 section 4.2.1); `None` for any other request.
pub(super) fn accept(head: &RequestHead<'_>) -> Option<String> {
    let has = |name: &str, word: &str| {
        let value = head.headers.value_of(name).unwrap_or_default();
        value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    };
    let opens = head.method == b"GET"
        && head.minor == 1
        && has("Upgrade", "websocket")
        && has("Connection", "upgrade")
        && has("Sec-WebSocket-Version", "13");
    head.headers.value_of("Sec-WebSocket-Key").filter(|_| opens).map(accept_key)
}

/// Serves the connection from the upgrade on.
pub(super) async fn serve(mut input: Input, accept: &str, mut stop: Stop) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    input.peer.write_all(head.as_bytes()).await?;
    let mut out = Vec::new();
    loop {
        out.clear();
        let ended = loop {
            match answer(&mut input.bytes, &mut out) {
                Ok(FrameOutcome::Again) => {}
                Ok(FrameOutcome::More) => break false,
                Ok(FrameOutcome::Closed) => break true,
                Err(BadFrame) => {
                    close(PROTOCOL_ERROR, &mut out);
                    break true;
                }
            }
        };
        input.peer.write_all(&out).await?;
        if ended {
            return input.peer.shutdown().await;
        }
        let idle = input.bytes.is_empty();
        let open = tokio::select! {
            biased;
            open = input.more() => open?,
            () = stop.asked(), if idle => {
                out.clear();
                close(GOING_AWAY, &mut out);
                input.peer.write_all(&out).await?;
                false
            }
        };
        if !open {
            return input.peer.shutdown().await;
        }
    }
}

pub(super) enum FrameOutcome {
    /// A frame was answered; there may be another one.
    Again,
    /// The next frame is not there whole.
    More,
    /// The client has closed the WebSocket, and was answered.
    Closed,
}

/// Takes one frame from `bytes` and appends its answer to `out`.
pub(super) fn answer(bytes: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<FrameOutcome, BadFrame> {
    let Some((frame, head)) = Frame::read(bytes)? else { return Ok(FrameOutcome::More) };
    if frame.mask.is_none() {
        // RFC 6455 section 5.1: what a client sends is masked.
        return Err(BadFrame);
    }
    let end = head + frame.length;
    if bytes.len() < end {
        return Ok(FrameOutcome::More);
    }
    let payload = &mut bytes[head..end];
    frame.unmask(payload);
    let opcode = if frame.opcode == Opcode::Ping { Opcode::Pong } else { frame.opcode };
    if frame.opcode != Opcode::Pong {
        Frame { opcode, mask: None, ..frame }.write(payload, out);
    }
    bytes.drain(..end);
    Ok(if frame.opcode == Opcode::Close { FrameOutcome::Closed } else { FrameOutcome::Again })
}

fn close(code: u16, out: &mut Vec<u8>) {
    Frame { last: true, opcode: Opcode::Close, mask: None, length: 2 }.write(&code.to_be_bytes(), out);
}
