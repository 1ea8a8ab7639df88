//! TLS: certificates, from their files to the one that answers a name, and the settings of connections that are encrypted.
//!
//! An [`Acceptor`] is what a `bind … ssl` needs for its clients, a [`Connector`] what a `server … ssl` needs for its server.
//! This crate opens no socket and moves no bytes: it gives whoever does a configuration of rustls for each handshake, and tells
//! afterwards what was agreed on: what is known of it ([`Facts`]), and how to go on with records ([`agreed`]).

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

mod acceptor;
pub mod agreed;
pub mod authorities;
mod certificate;
mod connector;
mod facts;
mod hello;
pub mod names;
mod resumable;
mod sessions;
pub mod store;
pub mod tickets;
mod verify;

pub use acceptor::{Acceptor, AcceptorProblem, Acceptors, ChosenConfig, PreparedAcceptors, Unwanted};
pub use certificate::{
    Certificate, CertificateError, Chain, Chains, Description, DistinguishedName, KeyKind, MAX_CHAIN, OcspError,
    OcspResponse, Parts, RevocationList, Staple, Verifies, View, sha1,
};
pub use connector::{Connector, ConnectorError, Connectors, Failure, Target, is_wrong_name, judge_words};
pub use facts::{Captured, Facts, OwnCertificate, suite_of};
pub use hello::{HELLO_MAX, Hello, Incomplete};
pub use sessions::{LIFETIME_S, SESSIONS, Sessions};
pub use store::{Index, Store};
pub use verify::{ERROR_NAMES, ERROR_PREFIX, Refusal, Verification};

/// The rustls that configurations are made for.
pub use rustls;
