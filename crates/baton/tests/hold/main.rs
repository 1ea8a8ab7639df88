//! `baton hold` as a whole: what it passes through, what it leaves behind when something is killed, and what clients feel when
//! Debian's haproxy is reloaded under it.
//!
//! Each test has a network namespace and a folder of state of its own. Without the right to one, the tests say so.

mod command;
mod faults;
mod load;
mod machine;
#[path = "../support/mod.rs"]
mod support;
