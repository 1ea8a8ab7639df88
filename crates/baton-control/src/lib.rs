//! The change path: everything that touches live state goes through [`reload::ChangeLine`].
//!
//! [`control::Control`] is the running process, and its loop is `run`: signals, questions ([`protocol`], [`endpoint`]), commands
//! ([`operators`], [`runtime`]), requests for metrics (`metrics`) and time come in. [`plan`] says in words what a change does and which
//! connections it affects; [`listeners`] keeps addresses open for as long as they are wanted; [`handover`] lets another process take over;
//! [`servant`] is the end of the line to a master; [`drain`] and [`retirement`] are the pure cores of stopping. This crate never touches a
//! connection's bytes. Each module uses those below it only (`tests/order.rs`).

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

pub mod apart;
pub mod ask;
pub mod capacity;
mod certificates;
pub mod control;
pub mod control_socket;
pub mod direct;
pub mod discovery;
pub mod drain;
pub mod early_signals;
pub mod encryption;
pub mod endpoint;
pub mod environment;
pub mod handover;
mod history;
pub mod listeners;
pub mod losses;
pub mod mail;
pub mod messages;
mod metrics;
pub mod operators;
pub mod overrides;
mod peers;
pub mod plan;
pub mod printable;
pub mod protocol;
pub mod reload;
pub mod retirement;
pub mod rights;
mod rings;
mod run;
pub mod runtime;
mod sayings;
pub mod servant;
pub mod service_manager;
mod services;
pub mod start_command;
pub mod state_file;
mod status;
mod table_care;
pub mod tickets;
mod tidy;
pub mod verdict;

pub use capacity::Capacity;
pub use control::{Control, Settings};
pub use environment::Outside;
pub use messages::Messages;
pub use reload::ChangeLine;
pub use service_manager::ServiceManager;
pub use start_command::StartCommand;
