//! The health protocol of gRPC (`grpc.health.v1.Health/Check`): a call over HTTP/2, whose reply says how a service is.

use baton_http::{Method, ResponseTo};

use crate::matching::Finding;
use crate::report::Status;
use crate::response::Response;
use crate::script::{Bytes, Request};

/// Length and flag in front of a message.
const PREFIX_BYTES: usize = 5;

/// The call that asks for `service`; the empty one is the server as a whole.
pub(super) fn call(service: &str) -> Request {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Field 1, of the type with a length.
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend_from_slice(&message);
    let field = |name: &str, value: &str| (name.to_owned(), Bytes::Plain(value.into()));
    Request {
        method: "POST".into(),
        uri: Bytes::Plain(b"/grpc.health.v1.Health/Check".to_vec()),
        version: "HTTP/2.0".into(),
        fields: vec![
            field("te", "trailers"),
            field("content-type", "application/grpc"),
            field("user-agent", "grpc-baton-check"),
        ],
        body: Some(Bytes::Plain(body)),
        to: ResponseTo { method: Method::Post, ..ResponseTo::default() },
    }
}

/// What a response says. `is_over`: nothing more comes.
pub(crate) fn judge(response: &Response, is_over: bool) -> Finding {
    let Some(head) = response.head().filter(|_| is_over) else { return Finding::incomplete(is_over) };
    if head.status != 200 {
        return Finding::Failed(Status::L7Status, head.status.into(), format!("HTTP status {}", head.status));
    }
    // A response that has trailers only has them in its head.
    let fields = || response.trailers().iter().chain(&head.fields);
    let field = |wanted: &str| fields().find(|(name, _)| name == wanted.as_bytes()).map(|(_, value)| &value[..]);
    let Some(status) = field("grpc-status") else {
        return Finding::malformed("no grpc-status: the server does not speak gRPC");
    };
    let Some(status) = std::str::from_utf8(status).ok().and_then(|text| text.parse::<u32>().ok()) else {
        return Finding::malformed("the grpc-status is not a number");
    };
    if status != 0 {
        let mut info = format!("gRPC status {status} ({})", status_name(status));
        if let Some(message) = field("grpc-message").filter(|message| !message.is_empty()) {
            info += &format!(": {}", decoded(message));
        }
        return Finding::Failed(Status::L7Status, status, info);
    }
    match serving_status(response.content()) {
        None => Finding::malformed("the reply is no message of the gRPC health protocol"),
        Some(1) => Finding::Passed("SERVING".into()),
        Some(0) => Finding::Failed(Status::L7Status, 0, "the service is UNKNOWN".into()),
        Some(2) => Finding::Failed(Status::L7Status, 0, "the service is NOT_SERVING".into()),
        Some(3) => Finding::Failed(Status::L7Status, 0, "the service is SERVICE_UNKNOWN".into()),
        Some(odd) => Finding::Failed(Status::L7Status, 0, format!("the service has status {odd}")),
    }
}

fn status_name(status: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    usize::try_from(status).ok().and_then(|status| NAMES.get(status)).copied().unwrap_or("not defined")
}

/// A `grpc-message` without its percent-encoding.
fn decoded(message: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `status` of the message in a body; it is left out where it is 0.
fn serving_status(body: &[u8]) -> Option<u64> {
    let (prefix, message) = body.split_at_checked(PREFIX_BYTES)?;
    let (flag, length) = prefix.split_first()?;
    let length = u32::from_be_bytes(length.try_into().ok()?);
    // We accept no compression.
    if *flag != 0 || usize::try_from(length) != Ok(message.len()) {
        return None;
    }
    let (mut rest, mut status) = (message, 0);
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = varint(&mut rest)?,
            (_, 0) => drop(varint(&mut rest)?),
            (_, 1) => rest = rest.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                rest = rest.get(length..)?;
            }
            (_, 5) => rest = rest.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A reply of these bytes, for fuzz targets.
pub(super) fn judge_bytes(bytes: &[u8]) {
    let _ = (serving_status(bytes), decoded(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_names_the_service() {
        let body = |service: &str| match call(service).body {
            Some(Bytes::Plain(body)) => body,
            odd => panic!("{odd:?}"),
        };
        assert_eq!(body(""), [0, 0, 0, 0, 0]);
        assert_eq!(body("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = body(&"x".repeat(300));
        assert_eq!((&long[..8], long.len()), (&[0, 0, 0, 1, 0x2f, 0x0a, 0xac, 2][..], 5 + 3 + 300));
    }

    #[test]
    fn the_status_of_a_reply() {
        let check = |message: &[u8], expect| {
            let body = [&[0, 0, 0, 0, message.len() as u8], message].concat();
            assert_eq!(serving_status(&body), expect, "{message:?}");
        };
        check(&[], Some(0));
        check(&[8, 1], Some(1));
        check(&[8, 2], Some(2));
        check(&[8, 0x81, 0], Some(1));
        check(&[0x12, 1, 7, 8, 3], Some(3));
        check(&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 8, 1, 0x1d, 0, 0, 0, 0], Some(1));
        for odd in
            [&[8][..], &[0x12, 9, 1], &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &[0x0f]]
        {
            check(odd, None);
        }
        assert_eq!(serving_status(&[1, 0, 0, 0, 2, 8, 1]), None, "compressed");
        assert_eq!(serving_status(&[0, 0, 0, 0, 9, 8, 1]), None, "too short");
        assert_eq!(serving_status(b"<h1>"), None);
    }

    #[test]
    fn a_message_is_decoded() {
        assert_eq!(decoded(b"unknown%20service%"), "unknown service%");
        assert_eq!(decoded(b"%zz%4"), "%zz%4");
    }
}
