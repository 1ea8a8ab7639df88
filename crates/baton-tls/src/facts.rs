//! What was agreed on in a handshake: what sample fetches and log lines say about a connection.

use std::sync::Arc;

use rustls::sign::CertifiedKey;
use rustls::{CommonState, HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use rustls_pki_types::CertificateDer;

use crate::{Hello, Verification};

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
    pub ours: Option<OwnCertificate>,
    /// What is kept of the client's hello (`tune.ssl.capture-buffer-size`); `None`: nothing.
    pub captured: Option<Box<Captured>>,
}

/// A certificate that we showed.
#[derive(Clone, Debug)]
pub enum OwnCertificate {
    /// With its key, which others show too.
    Shared(Arc<CertifiedKey>),
    /// The process that had the key showed it.
    Alone(Arc<CertificateDer<'static>>),
}

impl OwnCertificate {
    /// The certificate itself.
    pub fn der(&self) -> Option<&CertificateDer<'static>> {
        match self {
            OwnCertificate::Shared(key) => key.cert.first(),
            OwnCertificate::Alone(der) => Some(der),
        }
    }
}

/// The cipher suite of this number.
pub fn suite_of(number: u16) -> Option<SupportedCipherSuite> {
    let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
    all.iter().copied().find(|suite| u16::from(suite.suite()) == number)
}

/// Lists of a client's hello, in the order and the bytes in which they came.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Captured {
    /// The version of the message.
    pub version: u16,
    /// Cipher suites, two bytes each.
    pub ciphers: Box<[u8]>,
    /// The XXH64 of the whole list of cipher suites, however much of it is kept.
    pub ciphers_hash: u64,
    /// Numbers of extensions, two bytes each.
    pub extensions: Box<[u8]>,
    /// Groups for the key exchange, two bytes each.
    pub groups: Box<[u8]>,
    /// Formats of points on curves, one byte each.
    pub point_formats: Box<[u8]>,
}

impl Captured {
    /// Of `hello`, `most` bytes together.
    pub fn of(hello: &Hello<'_>, most: usize) -> Captured {
        let mut left = most;
        let mut keep = |bytes: &[u8]| -> Box<[u8]> {
            let kept = &bytes[..bytes.len().min(left)];
            left -= kept.len();
            kept.into()
        };
        let extensions: Vec<u8> = hello.extensions().flat_map(u16::to_be_bytes).collect();
        Captured {
            version: hello.version(),
            ciphers: keep(hello.ciphers()),
            ciphers_hash: twox_hash::XxHash64::oneshot(0, hello.ciphers()),
            extensions: keep(&extensions),
            groups: keep(hello.groups().unwrap_or_default()),
            point_formats: keep(hello.point_formats().unwrap_or_default()),
        }
    }
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
            ours: ours.map(OwnCertificate::Shared),
            captured: None,
        }
    }
}
