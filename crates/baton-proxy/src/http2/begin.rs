//! Requests that begin: a head that came becomes one like all others, or its end.

use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use baton_http::Limits;
use baton_http2::{Head, Violation};

use super::Http2Client;
use crate::core::Core;
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::{Exchange, Origin};
use crate::messages::Messages;
use crate::record;
use crate::transport::{Http2Stream, Transport};

/// The one protocol of extended CONNECT that servers of HTTP/1 can be asked for (RFC 8441 5).
const WEBSOCKET: &[u8] = b"websocket";

/// A request whose head is that of the protocol.
pub(super) fn request(client: &Rc<Http2Client>, id: u32, ends: bool) {
    let (core, limits) = (&client.core, client.session.view().limits);
    let (messages, head) = client.shared.look(|protocol| {
        let head = protocol.head();
        let mut messages = core.messages(core.buffers.take_for(head.request_len_max()));
        let made = put_together(core, head, &mut messages, &limits);
        (messages, made)
    });
    let stream = Http2Stream::new(id, client.shared.clone(), head, ends);
    client.begin(stream, messages);
}

/// A request whose head is too large. HAProxy's status for that is the one of HTTP/1.
pub(super) fn refused(client: &Rc<Http2Client>, id: u32, ends: bool) {
    let stream = Http2Stream::new(id, client.shared.clone(), Err(400), ends);
    client.begin(stream, client.core.messages(client.core.buffers.take_for(0)));
}

/// The head of a request; or the status of what is none.
fn put_together(core: &Core, head: &Head, messages: &mut Messages, limits: &Limits) -> Result<usize, u16> {
    let key = match head.protocol() {
        None => None,
        Some(protocol) if protocol.eq_ignore_ascii_case(WEBSOCKET) => Some(websocket_key(core)),
        // RFC 9220 3.
        Some(_) => return Err(501),
    };
    let Messages { request, input, .. } = messages;
    let made = head.to_request(input.room(), request, key.as_ref().map(String::as_bytes), limits);
    made.inspect(|len| input.filled(*len)).map_err(|error| error.request_status())
}

/// Sixteen bytes that nobody can know before (RFC 6455 4.1).
fn websocket_key(core: &Core) -> String {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&core.random().to_ne_bytes());
    key[8..].copy_from_slice(&core.random().to_ne_bytes());
    STANDARD.encode(key)
}

/// What was no request is counted and logged like one that HTTP/1 cannot read: the client was told by the protocol.
pub(super) fn malformed(client: &Http2Client, violation: Violation) {
    if !violation.is_about_message() {
        return;
    }
    let core = &client.core;
    let mut deadline = Deadline::default();
    let stream = Http2Stream::new(0, client.shared.clone(), Err(0), true);
    let origin = Origin {
        connection: &client.connection,
        session: &client.session,
        client: Transport::Http2(&stream),
        orders: client.connection.orders(),
        deadline: &mut deadline,
    };
    let mut exchange = Exchange::of_http(core, origin, core.messages(core.buffers.take_for(0)));
    exchange.take_handed_on();
    client.session.rests(client.connection.accepted, core.now());
    let ended = Ended::refused(Cause::Proxy, Phase::Request, 0);
    record::unread(core, &exchange, ended);
    record::write(core, &mut exchange, Err(ended));
    exchange.end(core);
    if let Some(unused) = core.rest(exchange.messages) {
        core.buffers.give(unused);
    }
    if client.streams.borrow().is_empty() {
        client.connection.orders().notes.rests();
    }
}
