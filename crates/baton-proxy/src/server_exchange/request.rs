//! The head of a request as HTTP/2 has it.

use baton_http::{Method, ResponseTo};
use baton_http2::{NotOpened, RequestPseudo};

use crate::flow::Body;
use crate::http2_server::{Http2Request, ServerStream};
use crate::messages::Messages;

/// The scheme of a request that names none, as HAProxy sends it.
const SCHEME_UNKNOWN: &[u8] = b"https";
/// The protocol of extended CONNECT for WebSockets (RFC 8441 5).
const WEBSOCKET: &[u8] = b"websocket";

/// Sends the head of a request over a stream; what is composed is its body then.
///
/// # Errors
/// The server does not take it.
pub fn send_head(messages: &mut Messages, stream: &mut ServerStream) -> Result<(), NotOpened> {
    let server_line = match messages.up_head {
        0 => Vec::new(),
        _ => messages.up[messages.server_line.clone()].to_vec(),
    };
    messages.compose_for_http2();
    let Messages { input, request, request_chunks, up, upload, .. } = messages;
    let buf = input.pinned();
    let is_tunnel = request.method == Method::Connect || request.upgrade && request.websocket;
    let is_websocket = is_tunnel && request.method != Method::Connect;
    let host = request.host(buf).filter(|host| !host.is_empty() && request.method != Method::Connect);
    let authority = host.unwrap_or_else(|| request.authority(buf));
    let path = match (request.path_and_query(buf), request.method) {
        _ if request.method == Method::Connect => &b""[..],
        (b"", Method::Options) => b"*",
        (b"", _) => b"/",
        (path, _) => path,
    };
    let scheme = match request.scheme(buf) {
        _ if request.method == Method::Connect => &b""[..],
        b"" => SCHEME_UNKNOWN,
        scheme => scheme,
    };
    let pseudo = RequestPseudo {
        method: if is_websocket { b"CONNECT" } else { request.method_text(buf) },
        scheme,
        authority,
        path,
        protocol: is_websocket.then_some(WEBSOCKET),
    };
    let is_sent = |name: &[u8]| !(is_websocket && name.eq_ignore_ascii_case(b"sec-websocket-key"));
    let fields = request.headers.iter(buf).map(|field| (field.name, field.value));
    let fields = fields.filter(|(name, _)| is_sent(name)).chain(named(&server_line));
    let ends = !is_tunnel && upload.body == Body::Done && up.is_empty() && !upload.has_trailers(request_chunks);
    // What follows goes through the tunnel: the stream is not ended before it.
    upload.finished = is_tunnel;
    let to = request.response_to();
    let method = if is_websocket { Method::Connect } else { to.method };
    stream.send(Http2Request { pseudo, fields, ends, to: ResponseTo { method, ..to } })
}

/// The field in a line of a head.
fn named(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\r\n")?;
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}
