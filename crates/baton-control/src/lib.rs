//! The change line: everything that touches live state goes through [`reload::ChangeLine`].
//!
//! [`control::Control`] is the running process: signals, questions ([`protocol`], [`endpoint`]), commands ([`runtime`]) and
//! time come in.
//! [`plan`] says in words what a change does and whom it disturbs; [`listeners`] keeps addresses open for as long as they are
//! wanted; [`handover`] lets another process take over; [`drain`] and [`retirement`] are the pure cores of stopping. This crate never touches a connection's bytes.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

mod apart;
pub mod ask;
pub mod capacity;
mod certificates;
pub mod control;
pub mod control_socket;
pub mod direct;
pub mod drain;
pub mod early_signals;
pub mod encryption;
pub mod endpoint;
pub mod environment;
pub mod handover;
pub mod health;
pub mod listeners;
mod losses;
pub mod master;
pub mod messages;
pub mod overrides;
pub mod plan;
pub mod printable;
pub mod protocol;
pub mod reload;
pub mod retirement;
pub mod rights;
pub mod runtime;
pub mod service_manager;
mod status;
pub mod tickets;
mod tidy;

pub use capacity::Capacity;
pub use control::{Control, Settings};
pub use environment::Outside;
pub use messages::Messages;
pub use reload::ChangeLine;
pub use service_manager::ServiceManager;
