//! `-W`, `-Ws`: the master holds the listening sockets and supervises one worker.
//!
//! ```text
//!   master (one thread, no traffic)                worker (a process of its own: `baton --worker …`)
//!   starts it, with the line as standard input ──▶
//!   sockets, input, text, begin                ──▶ takes the sockets its configuration asks for, opens what is missing
//!                                              ◀── hold (duplicates of its sockets), text (what is in use), ready
//!   serve, session (connections), ping         ──▶ answers
//!                                              ◀── hold and release after each change, pong; open and retire without root
//! ```
//!
//! [`supervisor`] decides, without I/O; [`mod@run`] is the loop around it; [`process`] starts workers; the line and its other
//! end are [`baton_control::servant`]; [`held`] keeps the sockets; `conversation` answers
//! `baton reload` and hands other askers on; [`opening`] is what a master does for a worker that gave up root; [`cli`] is the
//! socket of `-S`; [`state`] is what the master keeps when it becomes
//! a new binary.
//!
//! A reload changes nothing but the worker's configuration: the process stays. A worker that dies loses its connections, and
//! nobody who waits in the queue of a socket: the next worker takes the same sockets. It works by the text that was in use,
//! not by the files of that moment, because a crash is no reload.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

pub mod cli;
mod conversation;
pub mod held;
pub mod opening;
pub mod process;
pub mod run;
pub mod state;
pub mod supervisor;

pub use run::{Resumed, STORED_AS, Setup, run};
pub use supervisor::Supervisor;
