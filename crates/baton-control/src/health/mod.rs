//! `health`: checks of servers, and what follows from them.
//!
//! Checks run on the control thread only, one task a server, never on a request's path. [`fsm`] is the pure core: it takes
//! verdicts and gives states and pauses, and knows no clock. `probe` speaks to a server once, within its `patience`; [`expect`] judges what came
//! back; [`text`] writes HAProxy's log lines. [`Checker`] holds the tasks and is told of every reload: a check whose
//! settings did not change goes on in its rhythm, with its counters.
//!
//! The state itself is [`ServerState`](baton_proxy::balance::ServerState)'s, which every core reads.

mod checker;
pub mod expect;
pub mod fsm;
mod patience;
mod plan;
mod probe;
mod proxy_header;
mod report;
pub mod text;
mod vip;

#[cfg(test)]
mod tests;

pub use checker::{Checker, Event, Recalled, Severity};
pub use report::{Report, Status};
