//! Connections to servers: opening them, and keeping idle ones for the next request.

mod connect;
pub mod dialer;
mod encryption;
mod pool;

use std::sync::Arc;
use std::time::Instant;

use baton_model::{ProxyProtocol, Server};

pub use connect::{ConnectFailed, Opening};
pub use encryption::{Agreed, Encryption};
pub use pool::Upstreams;

use crate::balance::ServerState;
use crate::stream::Stream;

/// An established connection to a server.
#[derive(Debug)]
pub struct ServerConnection {
    /// The socket.
    pub stream: Stream,
    /// Whose it is.
    pub server: Arc<ServerState>,
    /// The settings it was opened with.
    pub config: Arc<Server>,
    /// TLS over it.
    pub encryption: Option<Agreed>,
    /// The name that was asked for (SNI): requests for another one go elsewhere.
    pub name: Option<Box<str>>,
    /// Requests it carried before the current one.
    pub requests: u32,
    /// It was authenticated for one client.
    pub private: bool,
    /// Since when it is idle.
    pub idle_since: Instant,
}

impl ServerConnection {
    /// Whether a request for `config` may go over it: a reload may have changed where the server is and how it is spoken to, and
    /// a runtime command whom to trust.
    pub fn fits(&self, config: &Arc<Server>, encryption: Option<&Arc<Encryption>>) -> bool {
        encryption::is_same(self.encryption.as_ref(), encryption)
            && (Arc::ptr_eq(&self.config, config)
                || (self.config.address == config.address
                    && self.config.send_proxy == config.send_proxy
                    && self.config.source_address == config.source_address))
    }

    /// Whether it was encrypted by files that hold the same still.
    pub fn is_current(&self) -> bool {
        self.encryption.as_ref().is_none_or(Agreed::is_current)
    }

    /// Whether other clients may use it too: it does not carry one client's address.
    pub fn is_shareable(&self) -> bool {
        self.config.send_proxy == ProxyProtocol::Off
            && !self.config.address.depends_on_client()
            && self.config.source_address.as_ref().is_none_or(|source| source.use_client.is_none())
    }
}
