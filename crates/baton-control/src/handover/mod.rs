//! Another process takes over: `baton -f FILE -sf PID`.
//!
//! ```text
//!   new process (taker)                                old process (giver), its control socket
//!   reads and judges its files
//!   {"baton":1,"request":"handover"} ────────────────────▶ checks who asks
//!                                ◀──────────────────── {"baton":1,"reply":"handover"}
//!   hello (versions)             ────────────────────▶ one handover at a time, none while it stops
//!                                ◀──────────────────── welcome (version, how many sockets are to come), or refused
//!   from here on both speak that version
//!   checks its limits
//!   send                         ────────────────────▶
//!                                ◀──────────────────── sockets (some descriptors), again and again
//!   received                     ────────────────────▶
//!                                ◀──────────────────── tables (descriptors of stick tables' memory)
//!                                ◀──────────────────── state, in pieces
//!   prepares, commits, serves: both accept from the same queues
//!   ready (sockets it uses)      ────────────────────▶ stops accepting, begins to drain
//!                                ◀──────────────────── released
//!                                ◀──────────────────── report (what was counted since), until its last connection ends
//! ```
//!
//! It is a transaction: up to `ready` the giver serves as if nothing were, and goes on when the taker fails, is killed or is
//! late; a taker whose giver is gone goes on with what it has. Every wait has a deadline ([`channel`]).
//!
//! [`message`] is what is said, [`wire`] what it is as bytes in each version, [`channel`] how those travel; [`taker`] and [`giver`] are
//! the two sides; [`memory`] is all that is remembered of a process, [`state`] makes that of live state and goes on from it, and
//! [`report`] is what follows the handover, with the connections of clients that move ([`moving`], [`record`], [`session_record`],
//! [`in_flight`], [`server_record`], [`tls_record`], [`kinds`]); [`crashed`] is what is
//! known of a worker that ended without one.

pub mod belief;
pub mod channel;
pub mod crashed;
pub mod giver;
pub mod in_flight;
pub mod kinds;
pub mod memory;
pub mod message;
pub mod moving;
mod named;
pub mod record;
pub mod report;
pub mod server_record;
pub mod session_record;
pub mod state;
pub mod strangers;
pub mod succession;
pub mod taker;
pub mod tls_record;
pub(crate) mod totals;
mod wiped;
pub mod wire;
