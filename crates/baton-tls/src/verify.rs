//! Whether a client's certificate is to be accepted (`verify`, `ca-file`, `crl-file`, `ca-ignore-err`, `crt-ignore-err`).
//!
//! A [`Judge`] says whether a chain is good, here and for servers. Where it refuses, the chain is looked at once more for what
//! OpenSSL would call wrong with it: errors may be ignored, and the log tells what was found at which depth ([`Refusal`]).

pub(crate) mod code;
mod faults;
mod judge;
mod names;
mod old;
mod purposes;

use std::cell::Cell;
use std::sync::Arc;

use baton_model::IgnoredErrors;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertRevocationListError, CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError};
use rustls::{PeerMisbehaved, SignatureScheme, server::ParsedCertificate};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::authorities::Authority;
use faults::VerifyError;
use old::LegacyCertificate;

pub(crate) use judge::{Judge, Purpose};
pub use names::{ERROR_NAMES, ERROR_PREFIX};

/// What was found wrong with a client's certificate and accepted nevertheless; zero: nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verification {
    /// The result for `ssl_c_verify`: the last error.
    pub result: u32,
    /// The first error of the client's own certificate (`ssl_c_err`).
    pub error: u32,
    /// The first error above it (`ssl_c_ca_err`).
    pub ca_error: u32,
    /// At which depth that was (`ssl_c_ca_err_depth`).
    pub ca_depth: u32,
}

/// Why a peer's certificate was refused: the first thing that OpenSSL would not have let pass.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Refusal {
    /// At which certificate of the chain: 0 is the peer's own.
    pub depth: u32,
    /// By OpenSSL's numbers (`X509_V_ERR_…`).
    pub code: u32,
}

impl Refusal {
    /// What it was, in OpenSSL's words.
    pub fn text(self) -> &'static str {
        code::text(self.code)
    }

    /// What the last refusal on this thread was, if `error` is about a certificate, asked once: rustls' errors have no room for the depth. A step of a handshake
    /// stays on its thread, so that whoever asks right behind a step that failed is told of that one.
    pub fn take(error: &Error) -> Option<Refusal> {
        LAST.take().filter(|_| matches!(error, Error::InvalidCertificate(_) | Error::InvalidCertRevocationList(_)))
    }
}

thread_local! {
    static LAST: Cell<Option<Refusal>> = const { Cell::new(None) };
}

/// Notes why, and says it as rustls does.
pub(crate) fn refused(fault: Option<VerifyError>, error: webpki::Error) -> Error {
    LAST.set(fault.map(|fault| Refusal { depth: fault.depth, code: fault.code }));
    told(error)
}

/// Checks the clients of one context. It never changes: other files make another one.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    pub(crate) mandatory: bool,
    pub(crate) hints: Vec<DistinguishedName>,
    judge: Judge,
    ca_ignored: IgnoredErrors,
    crt_ignored: IgnoredErrors,
    schemes: Vec<SignatureScheme>,
}

/// What is to be checked.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    pub(crate) mandatory: bool,
    /// `ca-file`: named to clients.
    pub(crate) named: Option<Arc<Authority>>,
    /// `ca-verify-file`.
    pub(crate) unnamed: Option<Arc<Authority>>,
    /// `crl-file`.
    pub(crate) lists: Option<Arc<Authority>>,
    pub(crate) ca_ignored: IgnoredErrors,
    pub(crate) crt_ignored: IgnoredErrors,
    /// `no-ca-names`.
    pub(crate) names_nobody: bool,
    /// `client-sigalgs`; `None`: all.
    pub(crate) schemes: Option<Vec<SignatureScheme>>,
}

impl ClientVerifier {
    pub(crate) fn new(trust: Trust, algorithms: WebPkiSupportedAlgorithms) -> ClientVerifier {
        let Trust { mandatory, named, unnamed, lists, ca_ignored, crt_ignored, names_nobody, schemes } = trust;
        let hints = named.as_ref().filter(|_| !names_nobody).map(|named| named.subjects.clone());
        let supported = algorithms.supported_schemes();
        let schemes = match schemes {
            Some(wanted) => wanted.into_iter().filter(|scheme| supported.contains(scheme)).collect(),
            None => supported,
        };
        ClientVerifier {
            mandatory,
            hints: hints.unwrap_or_default(),
            judge: Judge::new(Purpose::Client, [named, unnamed].into_iter().flatten(), lists, algorithms),
            ca_ignored,
            crt_ignored,
            schemes,
        }
    }

    /// Whether a client may have been accepted in spite of an error.
    pub(crate) fn ignores(&self) -> bool {
        self.ca_ignored != IgnoredErrors::None || self.crt_ignored != IgnoredErrors::None
    }

    /// What is wrong with a client that was accepted.
    pub(crate) fn verification(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Verification {
        let Some((leaf, others)) = chain.split_first() else { return Verification::default() };
        let Err(error) = self.judge.check(leaf, others, now) else { return Verification::default() };
        let faults = self.judge.faults(leaf, others, now, &error);
        let at_leaf = faults.iter().find(|fault| fault.depth == 0);
        let above = faults.iter().find(|fault| fault.depth > 0);
        Verification {
            result: faults.last().map_or(0, |fault| fault.code),
            error: at_leaf.map_or(0, |fault| fault.code),
            ca_error: above.map_or(0, |fault| fault.code),
            ca_depth: above.map_or(0, |fault| fault.depth),
        }
    }

    fn old_signature(
        &self,
        old: &LegacyCertificate<'_>,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match old.has_signed(message, signed.scheme, signed.signature(), &self.judge.algorithms) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }

    /// A signature of another kind than was asked for is none.
    fn offered(&self, signed: &DigitallySignedStruct) -> Result<(), Error> {
        match self.schemes.contains(&signed.scheme) {
            true => Ok(()),
            false => Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into()),
        }
    }

    fn is_ignored(&self, fault: VerifyError) -> bool {
        // HAProxy accepts no such chain, whatever is ignored.
        if fault.code == code::NOT_FOR_SIGNING {
            return false;
        }
        match if fault.depth == 0 { &self.crt_ignored } else { &self.ca_ignored } {
            IgnoredErrors::None => false,
            IgnoredErrors::All => true,
            IgnoredErrors::These(codes) => codes.contains(&fault.code),
        }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Err(error) = self.judge.check(leaf, others, now) else { return Ok(ClientCertVerified::assertion()) };
        // What cannot be read cannot be accepted: its key has to check the handshake's signature.
        let is_readable = LegacyCertificate::read(leaf).is_some() || ParsedCertificate::try_from(leaf).is_ok();
        let faults = self.judge.faults(leaf, others, now, &error);
        let unignored = faults.iter().find(|fault| !self.is_ignored(**fault));
        match unignored.or_else(|| faults.first().filter(|_| !is_readable)) {
            None => Ok(ClientCertVerified::assertion()),
            fault @ Some(_) => Err(refused(fault.copied(), error)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.offered(signed)?;
        if let Some(old) = LegacyCertificate::read(certificate) {
            return self.old_signature(&old, message, signed);
        }
        verify_tls12_signature(message, certificate, signed, &self.judge.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.offered(signed)?;
        if let Some(old) = LegacyCertificate::read(certificate).filter(|_| old::is_new(signed.scheme)) {
            return self.old_signature(&old, message, signed);
        }
        verify_tls13_signature(message, certificate, signed, &self.judge.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// As rustls says it, so that the client gets the alert that fits.
fn told(error: webpki::Error) -> Error {
    use webpki::Error as Found;
    match error {
        Found::BadDer | Found::BadDerTime | Found::TrailingData(_) => CertificateError::BadEncoding.into(),
        Found::CertNotValidYet { time, not_before } => CertificateError::NotValidYetContext { time, not_before }.into(),
        Found::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after }.into(),
        Found::UnknownIssuer => CertificateError::UnknownIssuer.into(),
        Found::CertRevoked => CertificateError::Revoked.into(),
        Found::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus.into(),
        Found::CrlExpired { time, next_update } => {
            CertificateError::ExpiredRevocationListContext { time, next_update }.into()
        }
        Found::IssuerNotCrlSigner => CertRevocationListError::IssuerInvalidForCrl.into(),
        Found::InvalidCrlSignatureForPublicKey => CertRevocationListError::BadSignature.into(),
        Found::InvalidSignatureForPublicKey => CertificateError::BadSignature.into(),
        Found::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose.into(),
        other => CertificateError::Other(OtherError(Arc::new(other))).into(),
    }
}
