//! Hitless changes for servers that are not Baton: HAProxy, nginx, anything that binds a port, in front of which nobody wants to
//! change anything else.
//!
//! This crate knows addresses, commands and the kernel's objects; it knows nothing of the proxy. Everything that it makes in the
//! kernel bears a name of its own (`baton…`), and is undone by the process that made it, by a guardian when that process was
//! killed, and by hand after a crash of both.
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]

pub mod fault;
pub mod flip;
pub mod hold;
pub mod iptables;
pub mod keep;

pub use fault::KernelError;

/// Where runs and settings are remembered, unless `BATON_RUN_DIR` names another folder.
pub const RUN: &str = "/run/baton-guard";
