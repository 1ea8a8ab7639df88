#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]
//! TLS 1.2 and 1.3 behind the handshake (RFC 5246 6, RFC 8446 5): bytes to records and back, and the few messages that may come between.
//!
//! A [`Layer`] is one end of a connection. It does no I/O, knows no clock, and makes no handshake: rustls does, and what both ends agreed on
//! ([`Keys`]) begins a layer. All of its state is plain data: [`Layer::into_bytes`] takes a layer apart, [`Layer::from_bytes`] makes it again,
//! in another process too. There is no way to have both: a sequence number cannot be used twice. `docs/records.md` lists what holds, and why.
//!
//! Nothing panics on any input. Keys are wiped when they are dropped, and nothing here prints them.
//!
//! # How to drive it
//!
//! - [`Layer::open`] takes the first record of what was received, as often as there is a whole one. What was opened into nothing else than the
//!   input lies there.
//! - [`Layer::seal`] makes records of bytes that are to be sent, in a room of at least [`Layer::sealed_len`]. What it owes the peer goes in
//!   front of them; [`Layer::seal_owed`] makes that alone, for who is about to wait.
//! - The end of our direction: [`Layer::seal_end`]. After an error of `open`: [`Layer::seal_refusal`], and nothing more.

mod direction;
mod layer;
mod snapshot;
#[cfg(test)]
mod tests;
mod violation;

pub use direction::{Cipher, Keys, Protocol, Secret};
pub use layer::{Content, Exhausted, Layer, Opened, PLAIN_MAX, RECORD_MAX, Role};
pub use violation::Violation;
