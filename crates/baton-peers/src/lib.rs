//! The peers protocol, by which processes share stick tables: HAProxy's, version 2.1.
//!
//! ```text
//! bytes ──▶ [hello] ──▶ [frame] ──▶ [definition], [update] ──▶ tables      [section] holds the state of all links
//! bytes ◀── [hello] ◀── [frame] ◀── [definition], [update] ◀── [log] ◀── changed entries
//! ```
//!
//! There is no I/O and no clock here: a [`Section`] is given bytes and time, and says what to dial, close and send. What peers send is bounded
//! before it is used: payloads by [`frame::PAYLOAD_MAX`], texts by [`dictionary::TEXTS_MAX`], tables and elements by what this side has.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

pub mod definition;
pub mod dictionary;
pub mod frame;
pub mod hello;
mod link;
pub mod log;
pub mod resync;
pub mod section;
pub mod update;
pub mod varint;

pub use resync::Start;
pub use section::{Effect, INPUT_MAX, LinkId, PeerSettings, Produced, Section, SectionSettings, Shown, TableSettings};
