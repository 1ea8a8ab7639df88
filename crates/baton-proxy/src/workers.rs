//! The cores as the change line sees them: threads that take commands.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::generation::{Generation, ListenerId};
use crate::state::Registry;

/// What the change line tells every core. Commands are obeyed in order, between two turns of a core's loop.
#[derive(Clone, Debug)]
pub enum Command {
    /// Work by this generation from the next request on; accept on its listeners. A listener that is not in it goes on
    /// accepting for its last frontend until it is closed by `Close`.
    Apply(Arc<Generation>),
    /// Drop the sockets of a listener: its queue is empty.
    Close(ListenerId),
    /// Soft stop: no keep-alive after the next response; idle connections end within `spread`, or at their own timeout.
    Drain {
        /// `close-spread-time`; `None` leaves idle connections to their timeouts.
        spread: Option<Duration>,
    },
    /// End everything at once.
    Abort,
}

/// All cores.
#[derive(Debug)]
pub struct Workers {
    _private: (),
}

impl Workers {
    /// Starts `count` threads named `baton/1` …, each with its own runtime; they wait for the first `Apply`.
    pub fn start(_count: usize, _registry: Arc<Registry>) -> io::Result<Workers> {
        Ok(Workers { _private: () })
    }

    /// Tells all cores and returns once each has obeyed.
    pub async fn command(&self, _command: Command) {}

    /// Client connections (any mode) open on all cores.
    pub fn open_connections(&self) -> usize {
        0
    }

    /// Waits for all threads to end after `Abort`, or after `Drain` once the last connection is closed.
    pub fn join(self) {}
}
