//! What the client's protocol makes of a response: heads, interim responses, the end of a body, and, of HTTP/1, whether the connection
//! stays for another request. Stages of the request path give a response to the sink and do not know how it is written.

use baton_http::{ChunkDecoder, ForClient, Framing, Method, Name, ResponseView, Version};

use crate::core::Core;
use crate::ended::Ended;
use crate::exchange::Exchange;
use crate::header_case;
use crate::messages::Messages;
use crate::transport::Transport;

/// Composes the head of the response, which was read from `page` if it is our own. `may_keep`: what is around it may stay for
/// another request. Returns whether it does.
pub fn head(exchange: &mut Exchange<'_>, page: Option<&[u8]>, may_keep: bool) -> bool {
    let Exchange { client, messages, progress, .. } = exchange;
    let Messages { request, response, received, down, .. } = &mut **messages;
    let buf = page.unwrap_or(received);
    match client {
        Transport::Connection(_) => {
            let keep = response.for_client(buf, ForClient { keep_alive: may_keep, version: request.version });
            let start = down.len();
            response.write(buf, down);
            if let Some(cases) = &progress.frontend.plan.proxy.http.client_cases {
                header_case::adjust(cases, &mut down[start..]);
            }
            keep
        }
        Transport::Http2(stream) => {
            let (status, is_tunnel) = (response.status, response.framing == Framing::Tunnel);
            if is_tunnel {
                // Of HTTP/1: that the stream is a tunnel is all that is to be said (RFC 8441 5).
                response.headers.remove_known(Name::SecWebsocketAccept);
            }
            let ends = response.framing.is_empty() && !response.is_interim();
            let status = if status == 101 { 200 } else { status };
            stream.head_of(status, ResponseView::new(response, buf), ends);
            may_keep
        }
    }
}

/// The response is whole, and its sender has no more to say: a stream is told so, also while its request goes on.
pub fn end(client: Transport<'_>, chunks: &ChunkDecoder) {
    if let Transport::Http2(stream) = client {
        let (trailers, bytes) = chunks.trailers();
        stream.finish(trailers, bytes);
    }
}

/// Composes the head of an interim response (1xx) of the server, for clients that know what it is.
pub fn interim(exchange: &mut Exchange<'_>) {
    if exchange.messages.request.version >= Version::Http11 {
        head(exchange, None, true);
    }
}

/// Tells the client to send its body.
pub async fn go_on(core: &Core, exchange: &mut Exchange<'_>) -> Result<(), Ended> {
    match exchange.client {
        Transport::Connection(_) => exchange.messages.down.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
        Transport::Http2(stream) => stream.interim(100),
    }
    exchange.send(core).await
}

/// Sends a 103 response with these fields, one line each, to clients that know what it is.
pub async fn early_hints(core: &Core, exchange: &mut Exchange<'_>, fields: &[u8]) -> Result<(), Ended> {
    if exchange.messages.request.version < Version::Http11 {
        return Ok(());
    }
    let page = [b"HTTP/1.1 103 Early Hints\r\n", fields, b"\r\n"].concat();
    if exchange.messages.read_page(&page).is_some() {
        exchange.facts.sent_head(ResponseView::new(&exchange.messages.response, &page));
        exchange.messages.down.clear();
        head(exchange, Some(&page), true);
        exchange.messages.response.clear();
    }
    exchange.send(core).await
}

/// Composes a response to what was no request, head and body as HTTP/1 writes them: nothing is decided for it.
pub fn plain(exchange: &mut Exchange<'_>, page: &[u8]) {
    let Exchange { client, messages, .. } = exchange;
    match client {
        Transport::Connection(_) => messages.down.extend_from_slice(page),
        Transport::Http2(stream) => {
            if let Some(len) = messages.read_page(page) {
                let response = &messages.response;
                stream.head_of(response.status, ResponseView::new(response, page), response.framing.is_empty());
                messages.down.extend_from_slice(&page[len..]);
            }
        }
    }
}

/// Whether the protocol has chunks for a body of unknown length.
pub fn writes_chunks(exchange: &Exchange<'_>, framing: Framing) -> bool {
    framing == Framing::Chunked && matches!(exchange.client, Transport::Connection(_))
}

/// Whether the client's end may stay after a request, as far as the request and we are concerned.
pub fn may_keep(core: &Core, exchange: &Exchange<'_>) -> bool {
    // What a refused CONNECT is followed by was meant for the tunnel: it is nobody's next request.
    exchange.messages.request.method != Method::Connect && may_stay(core, exchange)
}

/// Whether the client's connection may stay after a response to CONNECT: only for the second step of an authentication that is
/// bound to the connection (NTLM), and when the client has waited for it.
pub fn may_authenticate(core: &Core, exchange: &Exchange<'_>) -> bool {
    let Messages { request, response, input, .. } = &*exchange.messages;
    let is_asked = request.method == Method::Connect && response.status == 407;
    let waits = || exchange.client.connection().is_some_and(|stream| !stream.is_stale());
    is_asked && input.is_empty() && may_stay(core, exchange) && waits()
}

fn may_stay(core: &Core, exchange: &Exchange<'_>) -> bool {
    use baton_model::ConnectionMode::Close;
    match exchange.client {
        Transport::Connection(_) => {
            exchange.messages.request.keep_alive()
                && (!core.draining.get() || core.moves(exchange.orders))
                && !exchange.session.slot.is_removed()
                && exchange.progress.frontend.plan.proxy.http.connection != Close
        }
        // A stream ends with its response; whether its connection stays is not for one of its exchanges to say.
        Transport::Http2(_) => true,
    }
}
