//! HAProxy's way of passing listening sockets to its successor, both roles of it.
//!
//! The successor connects to a `stats socket` with `expose-fd listeners` (management manual, `-x`) and sends
//! `_getsocks`. The answer is the number of sockets, 32 bits in the machine's byte order, and then messages with at
//! most [`PER_MESSAGE`] descriptors each. The payload of a message tells of each of its descriptors one length byte
//! and the name of the network namespace, one length byte and the name of the interface, and four zero bytes. The
//! receiver acknowledges each message with 32 bits. Both sides wait [`PATIENCE`] at most for each step. What each
//! descriptor is, `getsockname` tells.
//!
//! Learned by watching HAProxy 2.6: an empty name of a namespace is the giver's own; the giver leaves without waiting
//! for the last acknowledgement; a giver that does not expose its listeners closes without an answer; a stats socket is
//! among the sockets; the descriptors stay the giver's too, who is told to go by a signal, once the successor serves.

mod give;
mod take;

use std::time::Duration;

pub use give::{OfferedSocket, give};
pub use take::{TakeError, Taken, connect, take, take_from};

/// Descriptors in a message.
pub const PER_MESSAGE: usize = 252;

/// The longest wait for one step of the other side.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// What asks for the sockets, a line of the runtime API.
pub const QUESTION: &[u8] = b"_getsocks\n";

/// Zero bytes that follow the two names of each descriptor.
const PADDING: usize = 4;

/// Longest text that tells of one descriptor.
const ENTRY_MAX: usize = 2 * (1 + u8::MAX as usize) + PADDING;

#[cfg(test)]
mod tests;
