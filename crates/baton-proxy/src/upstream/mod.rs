//! What connections to servers need: sockets towards them, and TLS.

pub mod dialer;
mod encryption;

pub use encryption::{Agreed, ServerTlsContext, is_same};
