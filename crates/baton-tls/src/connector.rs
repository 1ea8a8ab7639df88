//! TLS with a server.

use std::sync::Arc;

use rustls::ClientConfig;

/// What a `server … ssl` needs for a connection. Shared by all cores; sessions to resume are kept in it.
#[derive(Clone, Debug)]
pub struct Connector {
    /// For every connection.
    pub config: Arc<ClientConfig>,
}
