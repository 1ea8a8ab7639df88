//! A WebSocket session: handshake, masked binary messages, and the echo that has to be the same message.

use super::{
    LossKind,
    link::{Link, fill},
};
use crate::{
    stream::Stream,
    websocket::{self, BadFrame, Frame, Incoming, MESSAGE_MAX, Opcode, ReceivedFrame},
    wire,
};

/// Bytes that may wait to be written when one more pong is added: a server that pings and does not read gets no further ones.
const UNSENT_MAX: usize = 2 * MESSAGE_MAX;

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
    incoming: Incoming,
}

/// What came besides the replies that [`WebSocket::event`] sends automatically.
enum WebSocketEvent {
    /// A whole message, in `incoming`.
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
        Ok(WebSocket { link, session, message_bytes, echoed: 0, message: Vec::new(), incoming: Incoming::default() })
    }

    pub(super) async fn watch(&mut self) -> LossKind {
        match self.event().await {
            // Every message that was sent has come back already.
            Ok(WebSocketEvent::Message) => LossKind::WrongEcho,
            Ok(WebSocketEvent::Close) => LossKind::Closed,
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
            WebSocketEvent::Close => Err(LossKind::Closed),
            WebSocketEvent::Message if self.incoming.message != self.message => Err(LossKind::WrongEcho),
            WebSocketEvent::Message => {
                self.incoming.message.clear();
                self.echoed += 1;
                Ok(())
            }
        }
    }

    pub(super) async fn close(mut self) -> Result<(), LossKind> {
        self.send(Opcode::Close, &NORMAL.to_be_bytes());
        match self.event().await {
            Ok(WebSocketEvent::Message) => Err(LossKind::WrongEcho),
            Ok(WebSocketEvent::Close) | Err(_) => Ok(()),
        }
    }

    fn send(&mut self, opcode: Opcode, payload: &[u8]) {
        let frame = Frame { last: true, opcode, mask: Some(websocket::new_mask()), length: payload.len() };
        frame.write(payload, &mut self.link.out);
    }

    /// Waits for a message or a close. Pings are answered, pongs skipped. May be dropped while it waits.
    async fn event(&mut self) -> Result<WebSocketEvent, LossKind> {
        loop {
            let came = self.incoming.next(&mut self.link.input).map_err(|BadFrame| LossKind::Malformed)?;
            match came {
                Some(ReceivedFrame::Message) => return Ok(WebSocketEvent::Message),
                Some(ReceivedFrame::Close) => return Ok(WebSocketEvent::Close),
                // Binary was sent.
                Some(ReceivedFrame::Text) => return Err(LossKind::WrongEcho),
                // RFC 6455 section 5.5.3: of several pings, some may go without an answer.
                Some(ReceivedFrame::Ping(payload)) if self.link.out.len() < UNSENT_MAX => {
                    self.send(Opcode::Pong, &payload)
                }
                Some(ReceivedFrame::Ping(_)) => {}
                None => {
                    let is_within = self.incoming.has_begun() || !self.link.input.is_empty();
                    self.link.step().await.map_err(|kind| if is_within { kind.within_echo() } else { kind })?;
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
