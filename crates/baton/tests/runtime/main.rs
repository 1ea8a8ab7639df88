//! The runtime API of a whole process, by real clients: `socat`, and the tools people have for HAProxy. Where HAProxy has an
//! answer to compare with, Debian's is asked the same.

mod conversation;
mod peers;
#[path = "../support/mod.rs"]
mod support;
