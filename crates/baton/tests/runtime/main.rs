//! The runtime API of a whole process, by real clients: `socat`, and the tools people have for HAProxy. Where HAProxy has an
//! answer to compare with, Debian's is asked the same.

mod browser;
mod certificates;
mod conversation;
mod hostile;
mod ocsp;
mod output;
mod page;
mod peers;
mod statistics;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod tools;
mod top;
mod unresolved;
