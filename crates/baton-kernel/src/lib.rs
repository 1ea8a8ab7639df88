//! The operating system, as a load balancer needs it: listening sockets and how to retire them without
//! losing a connection, options of streams, passing descriptors, users, limits and processors, and netlink for what is no
//! socket.
//!
//! This crate knows addresses and descriptors, never a frontend; it starts no thread but to look into a network
//! namespace for a moment and to write output (`output`), and keeps no state of its own but what its users put into files and the
//! counts of `output` and `panics`, which belong to the process. Where a well-kept crate offers a safe call it is used; this is the only crate in which `unsafe` may
//! appear, always under a `SAFETY` comment.
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![allow(unsafe_code, reason = "system calls without a safe wrapper live here, and only here")]

pub mod borrow;
#[cfg(feature = "bpf")]
pub mod bpf;
pub mod cells;
pub mod connect;
pub mod connections;
pub mod endpoint;
pub mod fault;
pub mod group;
pub mod half_open;
pub mod holders;
pub mod inherit;
pub mod ipset;
pub mod ipvs;
pub mod listen;
pub mod listeners;
pub mod namespace;
pub mod netlink;
pub mod netns;
pub mod nfqueue;
pub mod nftables;
pub mod notify;
pub mod output;
pub mod packet;
pub mod panics;
pub mod passed;
pub mod process;
pub mod qdisc;
pub mod reconnect;
pub mod retire;
pub mod route;
pub mod shared_memory;
pub mod splice;
pub mod state;
pub mod stream;
pub mod surplus;
pub mod transfer;
pub mod watch;

mod sockopt;
#[cfg(test)]
mod testing;

pub use endpoint::Endpoint;
pub use fault::KernelError;
pub use group::{ListenerGroup, PreparedGroup};
pub use listen::{ListenError, ListenOptions, Listening, Prepared};
