//! The right to use a server for one request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_model::Server;

use super::{Affinity, BackendState, ServerState};
use crate::upstream::ServerTlsContext;

/// One of a server's slots, counted in its sessions until dropped. Dropping it hands it to the next one who waits.
pub struct Slot {
    pub(super) backend: Arc<BackendState>,
    pub(super) server: Arc<ServerState>,
    pub(super) config: Arc<Server>,
    pub(super) encryption: Option<Arc<ServerTlsContext>>,
    pub(super) found: Affinity,
    pub(super) cut: u64,
}

impl Slot {
    /// The server's state.
    pub fn server(&self) -> &Arc<ServerState> {
        &self.server
    }

    /// What the configuration says of the server, as it was when the slot was given.
    pub fn config(&self) -> &Arc<Server> {
        &self.config
    }

    /// TLS of its connections, as it was when the slot was given.
    pub fn encryption(&self) -> Option<&Arc<ServerTlsContext>> {
        self.encryption.as_ref().filter(|_| self.config.tls.is_some())
    }

    /// The backend the slot belongs to.
    pub fn backend(&self) -> &Arc<BackendState> {
        &self.backend
    }

    /// What became of the server that was wanted.
    pub fn affinity(&self) -> Affinity {
        self.found
    }

    /// Whether [`cut`](Slot::cut) can ever end: only then is it worth watching.
    pub fn may_be_cut(&self) -> bool {
        self.server.may_be_cut.load(Ordering::Relaxed)
    }

    /// Whether the session has to end now (`on-marked-down shutdown-sessions`, `on-marked-up shutdown-backup-sessions`).
    pub fn is_cut(&self) -> bool {
        self.server.cuts.load(Ordering::Acquire) != self.cut
    }

    /// Ends when the session has to be shut down; see [`is_cut`](Slot::is_cut).
    pub async fn cut(&self) {
        while !self.is_cut() {
            let mut notified = std::pin::pin!(self.server.cut_notify.notified());
            // Registered before looking again, so that a cut in between is not missed.
            notified.as_mut().enable();
            if self.is_cut() {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.backend.release(&self.server);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Slot({}/{})", self.backend.name(), self.server.name())
    }
}
