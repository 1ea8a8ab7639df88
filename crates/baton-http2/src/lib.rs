#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]
//! HTTP/2 on byte slices: frames (RFC 9113), HPACK (RFC 7541), streams, flow control, and bounds for all of it.
//!
//! A [`Connection`] is one side of a connection, towards a client ([`Role::Server`]) or towards a server ([`Role::Client`]). It does no I/O,
//! and there is no clock. All its state is plain data that `serde` can write down between two calls; another process that reads it can go on.
//! Nothing panics on any input. `docs/http2.md` says why it is written so.
//!
//! # How to drive it
//!
//! - [`Connection::open`] first; what is to be sent is always appended to an `out` that the caller writes to the socket.
//! - Bytes that were read go to [`Connection::receive`], again and again, until it returns no event. It keeps what it needs of incomplete
//!   frames: of a rest that it has not consumed (at most 16 bytes) the caller has to keep the bytes, and nothing else. An [`Event::Data`] lies in
//!   the input; a head lies in [`Connection::head`] until the next call.
//! - **Do not read while much is in `out`** (a peer that floods us with PING does not read the answers), or while
//!   [`Connection::is_crowded`].
//! - Bodies: [`Connection::consumed`] as the consumer takes bytes, not as they arrive. That alone opens the peer's window again, so that no more
//!   than [`Settings::initial_window_size`] bytes of a stream, and [`Config::connection_window`] bytes of all, ever wait.
//! - Sending bodies: [`Connection::send_data`] copies as much as may be sent; [`Connection::data_frame`] only makes the header in front of
//!   bytes that are written from where they are. [`Event::Window`] wakes one whose bytes were not all taken.
//! - A stream exists until [`Connection::release`], whatever happens to it before; call it when its exchange is gone. It resets what has not
//!   ended.
//! - [`Connection::refill`] about once a second while frames arrive.
//! - The end: [`Connection::begin_drain`], later [`Connection::is_drained`]. After an error of `receive`, write `out` and close.
//!
//! ```
//! use baton_http2::{Config, Connection, Event, RequestPseudo, Role};
//!
//! let (mut client, mut server) = (Connection::new(Role::Client, Config::default()), Connection::new(Role::Server, Config::default()));
//! let (mut up, mut down) = (Vec::new(), Vec::new());
//! client.open(&mut up);
//! server.open(&mut down);
//! let pseudo = RequestPseudo { method: b"GET", scheme: b"https", authority: b"example.org", path: b"/", protocol: None };
//! let stream = client.send_request(pseudo, [(&b"accept"[..], &b"*/*"[..])].into_iter(), true, &mut up)?;
//!
//! let mut input = &up[..];
//! loop {
//!     let received = server.receive(input, &mut down)?;
//!     input = &input[received.consumed..];
//!     match received.event {
//!         Some(Event::Head { stream, ends }) => {
//!             assert!(ends);
//!             assert_eq!(server.head().authority(), b"example.org");
//!             server.send_response(stream, 200, [(&b"content-type"[..], &b"text/plain"[..])].into_iter(), false, &mut down);
//!             assert_eq!(server.send_data(stream, b"hello", true, &mut down), 5);
//!             server.release(stream, &mut down);
//!         }
//!         Some(_) => {}
//!         None => break,
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod config;
mod connection;
mod error;
mod frame;
mod head;
pub mod hpack;
mod seam;
mod settings;
mod stream;
mod window;

pub use config::Config;
pub use connection::{Connection, Counts, DataFrame, Event, NotOpened, Received, RequestPseudo, Role};
pub use error::{ErrorCode, Scope, Violation};
pub use frame::{
    FRAME_HEADER_LEN, FRAME_SIZE_MAX, FRAME_SIZE_MIN, FrameHeader, FrameType, MAX_31, PREFACE, flag, write_go_away,
    write_ping, write_reset, write_settings, write_settings_ack, write_window_update,
};
pub use head::{Head, HeadField};
pub use settings::{Setting, Settings};
pub use stream::place_of;
