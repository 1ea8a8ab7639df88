//! The runtime API of a whole process, by real clients: `socat`, and the tools people have for HAProxy. Where HAProxy has an
//! answer to compare with, Debian's is asked the same.

mod agents;
mod browser;
mod certificates;
mod checks;
mod clusters;
mod conversation;
mod counted;
mod dashboards;
mod discovery;
mod growth;
mod hostile;
mod levels;
mod log_lines;
mod mail;
mod metrics;
mod ocsp;
mod output;
mod page;
mod patterns;
mod peers;
mod rings;
mod sessions;
mod sharing;
mod socks;
mod statistics;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod tables;
mod tools;
mod top;
mod tracking;
mod unresolved;
mod words;
