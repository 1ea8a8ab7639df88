//! TLS with servers that nobody here wrote: nginx and OpenSSL's s_server, and servers that are none. What is said to clients, the
//! log and the health of a server is compared with haproxy where both can be asked.

mod exchange;
mod health;
mod kept;
mod live;
mod outcomes;
mod servers;
#[path = "../support/mod.rs"]
mod support;
