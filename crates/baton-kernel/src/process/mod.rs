//! This process: who it runs as, what it may open, on which processors, and how it leaves the terminal.

pub mod cpus;
pub mod daemon;
pub mod limits;
pub mod pid_file;
pub mod privileges;
pub mod usage;
pub mod users;

use std::io;

use nix::sys::signal::{SigHandler, Signal, signal};

/// Ignores SIGPIPE: writing to a closed connection is an error value then, not the end of the process. Rust's
/// start-up does so already; a program started in another way says it again.
pub fn ignore_sigpipe() -> io::Result<()> {
    // SAFETY: no handler function is installed, so nothing of ours runs in signal context.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }?;
    Ok(())
}
