//! `baton keep` with real programs: Debian's haproxy and nginx, and small ones in Python.
//!
//! Everything happens in a network namespace of its own, so that port 80 is nobody else's.

mod faults;
mod machine;
mod serving;
#[path = "../support/mod.rs"]
mod support;
