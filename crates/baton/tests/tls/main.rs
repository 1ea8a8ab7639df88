//! TLS with third-party clients, and with hostile peers: whole processes, real programs, certificates made for the
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
#[path = "../../../baton-proxy/tests/http2/client.rs"]
#[allow(dead_code, reason = "what the tests of the request path do with it as well")]
mod peer;
mod rustls_client;
mod suites;
#[path = "../support/mod.rs"]
mod support;
mod tool;
#[path = "../../../baton-proxy/tests/http2/wire.rs"]
mod wire;
mod world;
