//! Heads of responses that came in parts instead of lines, as HTTP/2 sends them: they become what a parsed head is, and are judged as
//! strictly.
//!
//! The texts of the fields lie in one buffer, which plays the part of the read buffer. The caller has judged what is the protocol's own
//! (pseudo-header fields, fields about the connection).

use crate::error::{HeadError, HeadErrorKind};
use crate::headers::Headers;
use crate::method::Version;
use crate::name::Name;
use crate::request::ResponseTo;
use crate::response::ResponseHead;
use crate::scan::{Limits, Phase};
use crate::span::{Span, Text};

/// The known name, and where name and value are in the buffer.
pub type FieldParts = (Name, Span, Span);

impl ResponseHead {
    /// Makes the head of a response of its parts. `reason` is what HTTP/1 clients are sent.
    ///
    /// # Errors
    /// What [`parse`](Self::parse) would refuse in the same response, and fields beyond the limits.
    pub fn assemble(
        &mut self,
        buf: &[u8],
        status: u16,
        reason: &[u8],
        fields: impl Iterator<Item = FieldParts>,
        to: ResponseTo,
        limits: &Limits,
    ) -> Result<(), HeadError> {
        self.clear();
        self.scan.phase = Phase::Done;
        if buf.len() > limits.head_bytes {
            return HeadError::new(HeadErrorKind::TooLong, limits.head_bytes);
        }
        self.scan.line = buf.len();
        self.version = Version::Http2;
        self.set_status(status, reason);
        if !(100..1000).contains(&status) || status == 101 {
            return HeadError::new(HeadErrorKind::Status, 0);
        }
        push_fields(&mut self.headers, fields, limits)?;
        // An upgrade is not known there: 101 was refused.
        let to = ResponseTo { upgrade: false, websocket: false, ..to };
        self.judge(buf, to)
    }
}

fn push_fields(
    headers: &mut Headers,
    fields: impl Iterator<Item = FieldParts>,
    limits: &Limits,
) -> Result<(), HeadError> {
    for (id, name, value) in fields {
        if headers.slots() + 1 >= limits.headers {
            return HeadError::new(HeadErrorKind::TooManyHeaders, name.start as usize);
        }
        headers.push(id, Text::Read(name), Text::Read(value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Framing;
    use crate::method::Method;

    #[test]
    fn a_response_has_the_framing_of_its_fields() {
        let buf = b"content-length5";
        let field = (Name::ContentLength, Span::new(0, 14), Span::new(14, 15));
        let check = |status, method, expected| {
            let mut head = ResponseHead::new();
            let to = ResponseTo { method, ..ResponseTo::default() };
            let made = head.assemble(buf, status, b"", [field].into_iter(), to, &Limits::default());
            assert_eq!(made.map(|()| head.framing).map_err(|error| error.kind), expected, "{status}");
        };
        check(200, Method::Get, Ok(Framing::Length(5)));
        check(200, Method::Head, Ok(Framing::None));
        check(200, Method::Connect, Ok(Framing::Tunnel));
        check(103, Method::Get, Ok(Framing::None));
        check(304, Method::Get, Ok(Framing::None));
        check(101, Method::Get, Err(HeadErrorKind::Status));
        check(99, Method::Get, Err(HeadErrorKind::Status));
    }
}
