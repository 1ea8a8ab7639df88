//! Signals that come before anybody listens to them. By their default action they would end a process that has just begun, or
//! stop it; here they wait until the loop runs that answers them.
//!
//! SIGTERM and SIGINT do not wait: what has not begun to serve may be ended by them. The first process of a container is the
//! exception, for the kernel gives it nothing that it does not listen to.

use std::io;

use baton_kernel::process::over_exec::{hold_back, let_in};
use nix::sys::signal::Signal;

/// What operators, masters and successors send.
const ASKED: [Signal; 5] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGHUP, Signal::SIGTTOU, Signal::SIGTTIN];
/// What ends a process that does nothing about it.
const ENDING: [Signal; 2] = [Signal::SIGTERM, Signal::SIGINT];

fn waiting() -> impl Iterator<Item = Signal> {
    let ending = (std::process::id() == 1).then_some(ENDING).into_iter().flatten();
    ASKED.into_iter().chain(ending)
}

/// Lets signals wait from now on: for this thread, for those it starts, and for programs that begin from here.
///
/// # Errors
/// The system's; it has none for these signals.
pub fn wait() -> io::Result<()> {
    hold_back(&waiting().collect::<Vec<_>>())
}

/// Lets in what has waited, and what comes from now on.
///
/// # Errors
/// The system's; it has none for these signals.
pub fn come() -> io::Result<()> {
    let_in(&waiting().collect::<Vec<_>>())
}
