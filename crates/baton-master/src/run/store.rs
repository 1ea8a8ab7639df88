//! Listening sockets in systemd's keeping (`FileDescriptorStoreMax=`), so that they outlive the master too: when systemd starts
//! the service again, it finds them in `LISTEN_FDS` by these names, with everybody who waits in their queues.
//!
//! The unit decides: systemd drops what its store has no room for, and has no store unless the unit says so.

use super::Master;

/// How the name of a socket in the store begins; the kernel's number follows, which no other socket ever has.
pub const STORED_AS: &str = "baton-";

impl Master {
    /// Stores all sockets that are held. Not before the first `READY=1`, which has to be the first word.
    pub(super) fn store_all(&self) {
        self.store(&self.held.cookies());
    }

    /// Stores sockets by the kernel's numbers.
    pub(super) fn store(&self, cookies: &[u64]) {
        if !self.is_started {
            return;
        }
        for cookie in cookies {
            let Some(fd) = self.held.get(*cookie) else { continue };
            if let Err(error) = self.setup.manager.store(&format!("{STORED_AS}{cookie}"), &[fd]) {
                let text = format!("systemd does not store listening sockets: {error}");
                return self.messages().warning(&text);
            }
        }
    }

    /// Takes sockets out of the store that are closed.
    pub(super) fn unstore(&self, cookies: &[u64]) {
        for cookie in cookies {
            if let Err(error) = self.setup.manager.unstore(&format!("{STORED_AS}{cookie}")) {
                let text = format!("systemd keeps listening sockets open that are no longer used: {error}");
                return self.messages().warning(&text);
            }
        }
    }
}
