//! `baton flip` between two of Debian's haproxies, under load and against everything that may go wrong.
//!
//! Each test has a network namespace of its own, with a firewall's rules in it that must be the same afterwards.

mod cycle;
mod faults;
mod machine;
mod plan;
mod replace;
#[path = "../support/mod.rs"]
mod support;
mod switch;
