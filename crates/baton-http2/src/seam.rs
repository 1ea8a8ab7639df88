//! Decoded heads as those of `baton-http`, which rules, routing and relay read, whatever the protocol.
//!
//! The caller copies [`Head::arena`] to a buffer of its own, in which the places of all names and values stay the same.

use baton_http::{FieldParts, HeadError, Headers, Limits, RequestHead, RequestParts, ResponseHead, ResponseTo};

use crate::head::Head;

/// What is in a request line besides method and target: blanks, `://`, the version and the end of the line.
const LINE_OVERHEAD: usize = 2 + 3 + 8 + 2;

impl Head {
    /// Writes the request to `room`, of which it takes so many bytes: they are the buffer of `head`. The version that logs and rules see is
    /// `HTTP/2.0`. Extended CONNECT (RFC 8441) for a WebSocket becomes the GET of HTTP/1 that asks for an upgrade, with this key.
    ///
    /// # Errors
    /// What is no valid request in HTTP/1 either: see [`RequestHead::assemble`].
    pub fn to_request(
        &self,
        room: &mut [u8],
        head: &mut RequestHead,
        websocket_key: Option<&[u8]>,
        limits: &Limits,
    ) -> Result<usize, HeadError> {
        let parts = RequestParts {
            method: self.method(),
            scheme: self.scheme(),
            authority: self.own_authority(),
            path: self.path(),
            websocket_key,
        };
        head.assemble(&parts, self.arena(), self.parts(), room, limits)
    }

    /// Bytes of room that [`to_request`](Self::to_request) takes at most.
    pub fn request_len_max(&self) -> usize {
        let line = [self.method(), self.scheme(), self.own_authority(), self.path()];
        LINE_OVERHEAD + line.map(<[u8]>::len).iter().sum::<usize>() + self.arena().len()
    }

    /// The response, whose texts lie in `buf`, a copy of the arena. `reason` is what HTTP/1 clients are sent.
    ///
    /// # Errors
    /// What is no valid response in HTTP/1 either: see [`ResponseHead::assemble`].
    pub fn to_response(
        &self,
        buf: &[u8],
        reason: &[u8],
        head: &mut ResponseHead,
        to: ResponseTo,
        limits: &Limits,
    ) -> Result<(), HeadError> {
        head.assemble(buf, self.status(), reason, self.parts(), to, limits)
    }

    /// Appends the fields of a trailer section to `trailers`; their bytes are copied.
    pub fn to_trailers(&self, trailers: &mut Headers) {
        for (name, value) in self.pairs() {
            trailers.add(name, value);
        }
    }

    fn parts(&self) -> impl Iterator<Item = FieldParts> + Clone {
        self.fields().iter().map(|field| (field.id, field.name, field.value))
    }
}
