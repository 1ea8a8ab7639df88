#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]
//! HTTP/1 on byte slices: heads, framing, chunks, limits.
//!
//! [`RequestHead`] and [`ResponseHead`] parse a head from a read buffer into spans, judge it as strictly as RFC 9110,
//! RFC 9112 and HAProxy 2.6 do, let rules edit it, and write it the way HAProxy 2.6 forwards it. [`ChunkDecoder`] walks
//! through a chunked body. `docs/http1.md` lists what was found out by trying, and where we differ.
//!
//! There is no I/O here, no clock and no configuration, and no memory is taken once the reused structs have grown to
//! their working size. Nothing panics on any input; what a peer sends is bounded by [`Limits`] and by the constants of
//! the chunk decoder.
//!
//! ```
//! use baton_http::{ForUpstream, Limits, Parsed, RequestHead};
//!
//! let mut head = RequestHead::new();
//! let buf = b"GET /a?b HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n";
//! assert_eq!(head.parse(&buf[..20], &Limits::default()), Ok(Parsed::Partial));
//! assert_eq!(head.parse(buf, &Limits::default()), Ok(Parsed::Complete(buf.len())));
//! assert_eq!(head.path(buf), b"/a");
//! head.headers.add(b"X-Forwarded-For", b"192.0.2.1");
//! head.for_upstream(buf, ForUpstream { keep_alive: true });
//! let mut out = Vec::new();
//! head.write(buf, &mut out);
//! assert_eq!(out, b"GET /a?b HTTP/1.1\r\nhost: example.org\r\nx-forwarded-for: 192.0.2.1\r\n\r\n");
//! ```

mod assemble;
mod chunk;
mod connection;
mod error;
mod fields;
mod framing;
mod headers;
mod host;
mod method;
mod name;
mod request;
mod response;
mod scan;
mod span;
mod target;
mod upgrade;
mod values;
mod view;

pub use assemble::FieldParts;
pub use chunk::{
    CHUNK_HEADER_MAX, CHUNK_LINE_MAX, ChunkDecoder, ChunkError, ChunkErrorKind, ChunkPosition, ChunkSender, ChunkStep,
    LAST_CHUNK, write_chunk_header, write_last_chunk,
};
pub use connection::{Connection, is_only_ours};
pub use error::{HeadError, HeadErrorKind};
pub use framing::Framing;
pub use headers::{Field, Headers};
pub use method::{Method, Version};
pub use name::Name;
pub use request::{ForUpstream, RequestHead, RequestParts, ResponseTo};
pub use response::{ForClient, ResponseHead};
pub use scan::{Limits, Parsed};
pub use span::{Span, Text};
pub use target::TargetForm;
pub use values::{Values, values};
pub use view::{FieldsMut, FieldsView, RequestMut, RequestView, ResponseMut, ResponseView};
