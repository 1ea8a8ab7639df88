//! `balance`: which server a request goes to, and the queues in front of servers that are full.
//!
//! [`BackendState`] is what we *observe and remember* of a backend: health, slots in use, positions of the algorithm and
//! who waits. It is shared by all cores, found by name, and outlives any configuration: a reload calls
//! [`BackendState::reconfigure`], and what did not change keeps its place. A request calls [`BackendState::pick`] once and
//! gets a [`Slot`], a place in a queue ([`QueueWait`]) or the reason why there is neither; dropping the slot hands it to the
//! next one who waits.
//!
//! The algorithms are plain structs on indices and weights, one file each, without locks or clocks; [`hash`] and [`keys`]
//! compute what they are asked with. There is no I/O here, no timer, and no statistics but the figures which the
//! algorithms need themselves: the request path counts the rest on its own cores.

mod backend;
mod bits;
mod complaint;
mod criteria;
mod edit;
mod entry;
mod first;
mod group;
pub mod hash;
mod heap;
mod inner;
pub mod keys;
mod layout;
mod least_conn;
mod map;
mod memory;
mod outages;
mod positions;
mod queue;
mod replacement;
mod ring;
mod round_robin;
mod server;
mod shares;
mod slot;
mod words;
mod xxh64;

#[cfg(test)]
mod lives;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use backend::{BackendState, Edition, Transition};
pub use criteria::{Affinity, PickCriteria, Picked, WantedServer};
pub use memory::{BackendMemory, ServerMemory, Turn, Turns};
pub use outages::{OutageMemory, Outages};
pub use queue::{Granted, QUEUE_MAX, QueueWait};
pub use server::{Admin, CheckReport, HealthState, Observed, ServerState};
pub use slot::Slot;
