//! TLS: certificates, from their files to the one that answers a name, and the settings of connections that are encrypted.
//!
//! An [`Acceptor`] is what a `bind … ssl` needs for its clients, a [`Connector`] what a `server … ssl` needs for its server.
//! This crate opens no socket and moves no bytes: it gives whoever does a configuration of rustls for each handshake, and tells
//! afterwards what was agreed on ([`Facts`]).

mod acceptor;
mod connector;
mod facts;
mod hello;
pub mod names;
pub mod tickets;

pub use acceptor::{Acceptor, Chosen, Unwanted};
pub use connector::Connector;
pub use facts::Facts;
pub use hello::{Hello, Incomplete};

/// The rustls that configurations are made for.
pub use rustls;
