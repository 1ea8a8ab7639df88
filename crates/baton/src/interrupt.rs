//! Ctrl-C and SIGTERM for verbs that run for a while and still have something to say at their end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from its making on.
pub struct Interrupt {
    int: Signal,
    term: Signal,
}

impl Interrupt {
    /// # Errors
    /// When the signals cannot be had.
    pub fn listen() -> io::Result<Interrupt> {
        Ok(Interrupt { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? })
    }

    /// Returns at the next one. May be dropped while it waits.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}
