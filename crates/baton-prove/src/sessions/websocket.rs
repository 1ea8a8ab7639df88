//! A WebSocket session: handshake, masked binary messages, and the echo that has to be the same message.

use super::{
    LossKind,
    link::{Link, fill},
};
use crate::{
    stream::Stream,
    websocket::{self, Frame, MESSAGE_MAX, Opcode},
    wire,
};

/// Going away in order (RFC 6455 section 7.4.1).
const NORMAL: u16 = 1000;

pub(super) struct WebSocket {
    link: Link,
    session: u64,
    message_bytes: usize,
    /// Messages that were sent and came back.
    echoed: u64,
    /// The message under way.
    message: Vec<u8>,
    /// What has come of a message so far; it may come in several frames.
    came: Vec<u8>,
    /// Whether a message has begun and not ended.
    begun: bool,
}

/// What came besides the answers that [`WebSocket::event`] gives by itself.
enum Event {
    /// A whole message, in `came`.
    Message,
    Close,
}

impl WebSocket {
    /// Opens the WebSocket (RFC 6455 section 4.1); `fields` are the header lines that do not belong to it.
    pub(super) async fn open(
        stream: Stream,
        path: &str,
        fields: &str,
        session: u64,
        message_bytes: usize,
    ) -> Result<WebSocket, LossKind> {
        let mut link = Link::new(stream);
        let key = websocket::new_key();
        let request = format!(
            "GET {path} HTTP/1.1\r\n{fields}Upgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        link.out.extend_from_slice(request.as_bytes());
        let used = loop {
            link.step().await?;
            match wire::response(&link.input, false).map_err(|_| LossKind::Malformed)? {
                None => {}
                Some((head, used)) if head.status == 101 && agrees(&link.input[..used], &key) => break used,
                Some(_) => return Err(LossKind::Handshake),
            }
        };
        link.input.drain(..used);
        Ok(WebSocket { link, session, message_bytes, echoed: 0, message: Vec::new(), came: Vec::new(), begun: false })
    }

    pub(super) async fn watch(&mut self) -> LossKind {
        match self.event().await {
            // Every message that was sent has come back already.
            Ok(Event::Message) => LossKind::WrongEcho,
            Ok(Event::Close) => LossKind::Closed,
            Err(kind) => kind,
        }
    }

    pub(super) async fn exchange(&mut self) -> Result<(), LossKind> {
        self.message.clear();
        fill(self.session, self.echoed * self.message_bytes as u64, self.message_bytes, &mut self.message);
        let message = std::mem::take(&mut self.message);
        self.send(Opcode::Binary, &message);
        let event = self.event().await;
        self.message = message;
        match event? {
            Event::Close => Err(LossKind::Closed),
            Event::Message if self.came != self.message => Err(LossKind::WrongEcho),
            Event::Message => {
                self.came.clear();
                self.echoed += 1;
                Ok(())
            }
        }
    }

    pub(super) async fn close(mut self) -> Result<(), LossKind> {
        self.send(Opcode::Close, &NORMAL.to_be_bytes());
        match self.event().await {
            Ok(Event::Message) => Err(LossKind::WrongEcho),
            Ok(Event::Close) | Err(_) => Ok(()),
        }
    }

    fn send(&mut self, opcode: Opcode, payload: &[u8]) {
        let frame = Frame { last: true, opcode, mask: Some(websocket::new_mask()), length: payload.len() };
        frame.write(payload, &mut self.link.out);
    }

    /// Waits for a message or a close. Pings are answered, pongs skipped. May be dropped while it waits.
    async fn event(&mut self) -> Result<Event, LossKind> {
        loop {
            let read = Frame::read(&self.link.input).map_err(|_| LossKind::Malformed)?;
            let whole = read.filter(|(frame, head)| self.link.input.len() >= head + frame.length);
            let Some((frame, head)) = whole else {
                let is_within = self.begun || !self.link.input.is_empty();
                self.link.step().await.map_err(|kind| if is_within { kind.within_echo() } else { kind })?;
                continue;
            };
            // RFC 6455 section 5.1: what a server sends is not masked.
            if frame.mask.is_some() || self.came.len() + frame.length > MESSAGE_MAX {
                return Err(LossKind::Malformed);
            }
            let payload: Vec<u8> = self.link.input.drain(..head + frame.length).skip(head).collect();
            match frame.opcode {
                Opcode::Ping => self.send(Opcode::Pong, &payload),
                Opcode::Pong => {}
                Opcode::Close => return Ok(Event::Close),
                // Text instead of binary, or a continuation of nothing, is not what was sent.
                Opcode::Text => return Err(LossKind::WrongEcho),
                Opcode::Binary if self.begun => return Err(LossKind::Malformed),
                Opcode::Continuation if !self.begun => return Err(LossKind::Malformed),
                Opcode::Binary | Opcode::Continuation => {
                    self.came.extend_from_slice(&payload);
                    self.begun = !frame.last;
                    if frame.last {
                        return Ok(Event::Message);
                    }
                }
            }
        }
    }
}

/// Whether the answer's headers agree to the WebSocket asked for with `key` (RFC 6455 section 4.1, the client's checks).
fn agrees(head: &[u8], key: &str) -> bool {
    let headers = wire::headers(head);
    let is = |name: &str, value: &str| {
        headers.value_of(name).is_some_and(|came| came.eq_ignore_ascii_case(value.as_bytes()))
    };
    is("Upgrade", "websocket")
        && is("Connection", "upgrade")
        && headers.value_of("Sec-WebSocket-Accept") == Some(websocket::accept_key(key.as_bytes()).as_bytes())
}
