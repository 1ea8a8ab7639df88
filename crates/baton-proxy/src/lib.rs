//! The request line: what one core does with a connection, from `accept` to the log.
//!
//! Folders stand in the order in which a request passes them; `request.rs` is the line itself. This crate never reads a
//! configuration file: it works by a [`Generation`], which the change line prepares and hands to every core.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "a test is outside of the event loop and has its own time")
)]

pub mod accept;
mod attempt;
pub mod balance;
mod body;
mod buffer;
mod client;
pub mod clock;
mod connection;
pub mod core;
mod deadline;
mod ended;
mod exchange;
mod facts;
mod flow;
pub mod generation;
mod handshake;
mod log;
mod parse;
mod patience;
mod pipes;
mod pool;
mod progress;
mod proxy_protocol;
mod record;
mod relay;
mod request;
mod respond;
mod route;
mod rules;
mod runner;
mod session;
mod spare;
pub mod state;
mod stream;
pub mod supervise;
mod tcp;
pub mod times;
mod upstream;
mod view;
mod wish;
mod work;
pub mod workers;

pub use generation::{BackendPlan, FrontendPlan, Generation, ListenerId, ListenerPlan, Refused, ServerPlan};
pub use log::{LogWriter, Sinks};
pub use state::{BackendFigures, Counter, CounterBlock, FrontendState, ListenerState, Registry};
pub use upstream::{Encryption, dialer};
pub use workers::{Command, Workers};
