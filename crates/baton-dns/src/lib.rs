//! Discovery by DNS: which names are looked up when, what their responses mean, and which server gets which address.
//!
//! Everything here takes times, bytes and responses, and gives back what is to be sent and what changed: there is no socket and no clock.
//! [`Discovery`] is all of it; [`message`] reads and writes packets; `Lookup` is one name with its retries and hold times;
//! `assign` decides which server gets which address.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

mod assign;
mod counters;
mod discovery;
mod lookup;
pub mod message;
mod name;

pub use assign::{Cause, Known, LossReason, ServerChange};
pub use counters::NameServerCounters;
pub use discovery::{Ask, Discovery, Found, Heard, QueryKey, Report};
pub use lookup::{Failure, LookupKey};
pub use message::{Outcome, Query, RecordType};
pub use name::DomainName;
