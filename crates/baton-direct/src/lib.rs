//! Balancing in the kernel: clients' packets go to a real server as they are, and the real server answers by itself.
//!
//! What shall be there is a list of [`Service`]s, plain data. An [`Engine`] says what is there, and the difference is a plan of
//! steps that touches nothing that did not change, so that the connections of what did not change live on. This crate knows
//! addresses and the kernel's objects; it knows neither files nor health checks: who knows them gives it another list.
#![forbid(unsafe_code)]

pub mod engine;
pub mod service;
pub mod xdp;

pub use baton_kernel::Fault;
pub use engine::{Counters, Engine, Figures, Step};
pub use service::{Destination, Forwarding, Key, Persistence, Protocol, Scheduler, Service, Tunnel};
