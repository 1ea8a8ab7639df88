//! The judgement on a server's certificate, as HAProxy makes it.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use webpki::RawPublicKeyEntity;

use super::names;
use crate::certificate::{Outline, X509};
use crate::verify::{Judge, refused};

/// The name that a certificate has to have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Expected {
    /// The one that the server was asked for.
    Asked,
    /// `verifyhost`.
    This(String),
    /// None: the chain alone counts.
    Any,
}

/// Judges chain and name (`verify required`), or nothing (`verify none`). That a server has the key of what it shows is always
/// verified.
#[derive(Debug)]
pub(super) struct Verifier {
    judge: Option<Arc<Judge>>,
    expected: Expected,
    algorithms: WebPkiSupportedAlgorithms,
    /// What a server may sign with, the preferred first.
    schemes: Vec<SignatureScheme>,
}

impl Verifier {
    /// Without a `judge` every certificate is good; without `schemes` (`sigalgs`) every algorithm that we know.
    pub fn new(
        judge: Option<Arc<Judge>>,
        expected: Expected,
        algorithms: WebPkiSupportedAlgorithms,
        schemes: Option<Vec<SignatureScheme>>,
    ) -> Verifier {
        let schemes = schemes.unwrap_or_else(|| algorithms.supported_schemes());
        Verifier { judge, expected, algorithms, schemes }
    }

    /// Whether the certificate's key signed `message`. Its key alone is looked at, since a certificate that nobody verifies may
    /// be of a kind that verification would refuse.
    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        tls13: bool,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !self.schemes.contains(&signed.scheme) {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        let outline = Outline::read(certificate).ok_or(CertificateError::BadEncoding)?;
        let key = SubjectPublicKeyInfoDer::from(outline.key_info.whole);
        if tls13 {
            return rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms);
        }
        let entity = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
        let known = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let algorithms = known.map_or(&[][..], |(_, algorithms)| algorithms);
        // In TLS 1.2 a scheme does not say which curve the key is on.
        match algorithms
            .iter()
            .any(|algorithm| entity.verify_signature(*algorithm, message, signed.signature()).is_ok())
        {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(judge) = &self.judge else { return Ok(ServerCertVerified::assertion()) };
        if let Err(error) = judge.check(end_entity, intermediates, now) {
            let faults = judge.faults(end_entity, intermediates, now, &error);
            return Err(refused(faults.first().copied(), error));
        }
        let wanted = match &self.expected {
            Expected::Any => return Ok(ServerCertVerified::assertion()),
            Expected::This(name) => name.clone(),
            Expected::Asked => server_name.to_str().into_owned(),
        };
        let certificate = X509::read(end_entity).ok_or(CertificateError::BadEncoding)?;
        match names::is_for(&certificate, &wanted) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
