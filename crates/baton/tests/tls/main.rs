//! TLS with clients of other people, and with peers that mean no good: whole processes, real programs, certificates made for the
//! test.
//!
//! `BATON_BIN=/usr/sbin/haproxy` runs what does not need Baton's own words on haproxy, which shows that the tests ask nothing that
//! only Baton does.

mod changes;
mod clients;
mod grpc;
mod hostile;
mod http2;
mod offered;
mod openssl;
mod rustls_client;
#[path = "../support/mod.rs"]
mod support;
mod tool;
mod world;
