//! The request path: what one core does with a connection, from `accept` to the log.
//!
//! Folders stand in the order in which a request passes them; `request.rs` is the line itself. This crate never reads a
//! configuration file: it works by a [`Generation`], which the change path prepares and hands to every core.

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
mod captures;
mod client;
pub mod clock;
mod connection;
pub mod core;
mod deadline;
pub mod desk;
mod ended;
mod exchange;
mod facts;
mod flow;
pub mod generation;
mod handshake;
mod header_case;
mod http1;
mod http2;
mod http2_server;
mod live;
mod log;
mod logged;
mod messages;
pub mod moving;
mod names;
mod netscaler;
mod pages;
mod parse;
mod passwords;
mod patience;
mod pipes;
mod plan_figures;
mod pool;
mod preference;
mod progress;
mod proxy_protocol;
mod record;
mod relay;
mod request;
mod respond;
mod route;
mod rules;
mod runner;
mod server_connection;
mod server_exchange;
mod service;
mod session;
mod sink;
mod socks4;
mod spare;
pub mod state;
mod stream;
mod sums;
pub mod supervise;
mod tcp;
pub mod times;
mod transport;
mod upstream;
mod view;
mod websocket;
pub mod workers;

pub use captures::Capture;
pub use generation::{BackendPlan, FrontendPlan, Generation, ListenerPlan, PreparedServers, Refused};
pub use log::{LogWriter, ProcessFacts, Sinks, log_target_is_there};
pub use names::NameRequest;
pub use plan_figures::PlanFigures;
pub use proxy_protocol::{Addresses, Introduction, write_header};
pub use socks4::{SOCKS4_RESPONSE_BYTES, socks4_granted, socks4_request};
pub use state::{
    BackendFigures, Counted, CountedMemory, Counter, CounterBlock, FrontendService, FrontendState, Limit, ListenerId,
    ListenerState, Registry, ServerPlan, read_counted,
};
pub use sums::{ProcessSum, ProcessSums};
pub use upstream::{ServerTlsContext, dialer};
pub use workers::{Command, CoreDoor, Departures, Leaver, LoopLatency, Once, Seat, SessionReader, Workers};
