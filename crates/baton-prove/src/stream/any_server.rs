//! A client that accepts every server: what measures one, or tests it, trusts it with nothing.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{self, WebPkiSupportedAlgorithms, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Accepts every certificate, whatever it says.
#[derive(Debug)]
pub struct AnyServer {
    schemes: Vec<SignatureScheme>,
    has_key: bool,
}

impl AnyServer {
    /// It is not even looked whether the server has the certificate's key.
    pub fn new() -> Arc<AnyServer> {
        let schemes = aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes();
        Arc::new(AnyServer { schemes, has_key: false })
    }

    /// The server must have the certificate's key.
    pub fn with_its_key() -> Arc<AnyServer> {
        let schemes = aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes();
        AnyServer::with_a_key_for(&schemes)
    }

    /// … and it signs in one of these ways.
    pub fn with_a_key_for(schemes: &[SignatureScheme]) -> Arc<AnyServer> {
        Arc::new(AnyServer { schemes: schemes.to_vec(), has_key: true })
    }

    /// Checks a signature by the algorithms that are known, if it is to be checked.
    fn check(
        &self,
        verify: impl FnOnce(&WebPkiSupportedAlgorithms) -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.has_key {
            true => verify(&aws_lc_rs::default_provider().signature_verification_algorithms),
            false => Ok(HandshakeSignatureValid::assertion()),
        }
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(|known| crypto::verify_tls12_signature(message, certificate, signed, known))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(|known| crypto::verify_tls13_signature(message, certificate, signed, known))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
