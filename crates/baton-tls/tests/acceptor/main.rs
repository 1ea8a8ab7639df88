//! Handshakes in memory: rustls' client on one side, what an acceptor chose on the other.

mod clients;
mod lists;
mod settings;
mod world;
