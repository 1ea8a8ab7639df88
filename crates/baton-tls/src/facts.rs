//! What was agreed on in a handshake: what sample fetches and log lines say about a connection.

use std::sync::Arc;

use rustls::sign::CertifiedKey;
use rustls::{CommonState, HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use rustls_pki_types::CertificateDer;

use crate::Verification;

/// The facts of one connection, taken when its handshake is complete.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The version.
    pub version: Option<ProtocolVersion>,
    /// The cipher suite.
    pub suite: Option<SupportedCipherSuite>,
    /// The protocol of ALPN.
    pub alpn: Option<Box<[u8]>>,
    /// The name the client asked for (or, with a server, the name we asked for).
    pub sni: Option<Box<str>>,
    /// The session was resumed.
    pub resumed: bool,
    /// What the peer showed, its own certificate first; empty: nothing.
    pub peer: Box<[CertificateDer<'static>]>,
    /// What was wrong with it and accepted nevertheless.
    pub verification: Verification,
    /// What we showed.
    pub ours: Option<Arc<CertifiedKey>>,
    /// The start of the client's hello behind its header (`tune.ssl.capture-buffer-size`); `None`: nothing is kept of it.
    pub captured: Option<Box<[u8]>>,
}

impl Facts {
    /// What a connection knows once it is set up.
    pub fn of(connection: &CommonState, sni: Option<&str>, ours: Option<Arc<CertifiedKey>>) -> Facts {
        Facts {
            version: connection.protocol_version(),
            suite: connection.negotiated_cipher_suite(),
            alpn: connection.alpn_protocol().map(Box::from),
            sni: sni.map(Box::from),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            peer: connection
                .peer_certificates()
                .unwrap_or_default()
                .iter()
                .map(|der| der.clone().into_owned())
                .collect(),
            verification: Verification::default(),
            ours,
            captured: None,
        }
    }
}
