//! Stick tables: entries by key, with counters, rates and tags, which rules, commands and peers read and write.
//!
//! This crate keeps what is stored. It does no I/O, reads no clock (callers pass [`Now`]) and knows neither configuration files nor
//! requests. [`Tables`] are all tables of a process; a [`Table`] finds or creates entries; a [`Tracked`] is an entry that somebody holds,
//! which stays until it is dropped; a [`Record`] is an entry as a value.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

mod key;
mod now;
mod rate;
mod record;
mod table;
mod tables;
mod tracked;

pub use key::{Key, OwnedKey};
pub use now::{Now, Timeline};
pub use record::{Record, Value};
pub use table::{Cursor, EntryId, Removed, Table, TableError};
pub use tables::{PreparedTables, Tables};
pub use tracked::Tracked;
