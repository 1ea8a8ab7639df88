//! TLS with the clients of a `bind`.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::sign::CertifiedKey;

use crate::Hello;

/// What a `bind … ssl` answers its clients with. Shared by all cores, and asked once for each connection.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
}

/// The answer to one client's hello.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// For the connection.
    pub config: Arc<ServerConfig>,
    /// The certificate that will be shown, for the log and for `ssl_f_*`; `None` where only the handshake can tell.
    pub certificate: Option<Arc<CertifiedKey>>,
}

/// Why a client gets no handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unwanted {
    /// `strict-sni`: no certificate has the name. The alert is unrecognized_name (RFC 6066 3).
    Name,
}

impl Acceptor {
    /// One configuration for whatever a client says.
    pub fn always(config: Arc<ServerConfig>) -> Acceptor {
        Acceptor { config }
    }

    /// What to answer `hello` with.
    ///
    /// # Errors
    /// When the client is to be refused.
    pub fn choose(&self, _hello: &Hello<'_>) -> Result<Chosen, Unwanted> {
        Ok(Chosen { config: self.config.clone(), certificate: None })
    }
}
