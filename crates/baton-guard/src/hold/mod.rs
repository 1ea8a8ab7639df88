//! `baton hold`: new connections to somebody else's server wait while a command runs, such as its reload; established ones are not
//! touched.
//!
//! A reload or a restart closes listening sockets, and what waits in them is reset. What has not come yet cannot be reset. So
//! a [`HoldMethod`] keeps new connections away for the time of the command. Which one is chosen for what is in [`method`]; what is to be
//! held in [`target`].
//!
//! The kernel is changed by a guardian, a process in a session of its own, for the time of one command, and undone by it. It ends
//! the hold when the command has ended, when the process that it guards has ended in whatever way, and at the deadline.

pub mod guardian;
pub mod method;
pub mod plan;
pub mod record;
pub mod run;
pub mod settle;
pub mod target;

mod choose;
mod drop;
mod migrate;
pub mod plug;
mod queue;
mod report;
mod unknown;

pub use method::{Delay, HoldCounts, HoldMethod, HoldOrder, Journal, MethodName, UndoNotes};
pub use plan::Plan;
pub use target::{Target, Targets};
