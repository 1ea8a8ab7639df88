//! Balancing in the kernel: clients' packets go to a real server unchanged, and the real server responds directly (direct server return).
//!
//! What shall be there is a list of [`Service`]s, plain data. An [`Engine`] says what is there, and the difference is a [`Plan`] of
//! steps that touches nothing that did not change, so that the connections of what did not change live on. A [`Director`] joins the
//! two, and keeps a record of what is its own. This crate knows addresses and the kernel's objects; it knows neither files of
//! configuration nor health checks: who knows them gives it another list.
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]

pub mod choose;
pub mod director;
pub mod engine;
pub mod ipvs;
pub mod maglev;
pub mod plan;
pub mod probe;
pub mod real_server;
pub mod record;
pub mod service;
pub mod settings;
mod station;
pub mod sysctl;
#[cfg(test)]
mod testing;
pub mod vip;
pub mod who_has;
mod wire;
pub mod xdp;

pub use baton_kernel::KernelError;
pub use choose::{EngineChoice, judge};
pub use director::{Director, DirectorReport, OnExit};
pub use engine::{Counters, DestinationFigures, Engine, Figures, KernelChange, Observed, Tuning};
pub use plan::{Plan, Planned, Refused};
pub use service::{Destination, Forwarding, Persistence, Protocol, Scheduler, Service, ServiceKey, Tunnel};
pub use settings::{DirectorSettings, SyncDaemon, SyncRole, Timeouts, Tune};
