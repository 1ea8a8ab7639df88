//! Stick tables: entries by key, with counters, rates and tags, which rules, commands and peers read and write.
//!
//! This crate keeps what is stored. It does no I/O, reads no clock (callers pass [`Now`]) and knows neither configuration files nor
//! requests. [`Tables`] are all tables of a process; a [`Table`] finds or creates entries; a [`Tracked`] is an entry that somebody holds,
//! which stays until it is dropped; a [`Record`] is an entry as a value.
//!
//! All of a table is in one memory file, which the next process maps as well: both count in the same memory, and there is nothing to
//! transfer. Finding and counting take no lock; creating and removing take that of one of sixteen shards, which the death of a process
//! does not leave locked. Memory follows the number of entries, not `size`.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

mod cells;
mod entries;
mod key;
mod layout;
mod moving;
mod names;
mod now;
mod processes;
mod rate;
mod record;
mod shard;
mod shared;
mod store;
mod table;
mod tables;
mod tracked;

#[cfg(test)]
mod stress;

pub use key::{Key, OwnedKey};
pub use now::{Now, Timeline};
pub use record::{Record, Value};
pub use shared::Table;
pub use table::{Cursor, EntryId, Removed, TableError};
pub use tables::{PreparedTables, Tables};
pub use tracked::Tracked;
