//! Certificates of version 1, which openssl makes where it is told of no extensions, and which many clients have. webpki reads
//! none: what it would check of them is checked here. They can only be a client's own.

use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::SignatureVerificationAlgorithm;

use crate::certificate::Outline;
use crate::certificate::der::{self, Der};

/// A certificate, and the key in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LegacyCertificate<'a> {
    pub(super) signed: Signed<'a>,
    key: Key<'a>,
}

/// What is signed, and how: a certificate, or a list of revoked ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signed<'a> {
    content: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    /// Reads the three parts of something that is signed.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Signed<'a>> {
        let mut outside = Der::new(bytes);
        let mut whole = outside.enter(der::SEQUENCE)?;
        let content = whole.element(der::SEQUENCE)?.whole;
        let (algorithm, signature) = (whole.take(der::SEQUENCE)?, whole.bits()?);
        (whole.is_empty() && outside.is_empty()).then_some(Signed { content, algorithm, signature })
    }

    /// Whether `issuer` signed it.
    pub(super) fn is_by(&self, issuer: Key<'_>, known: &WebPkiSupportedAlgorithms) -> bool {
        known.all.iter().any(|how| {
            *how.signature_alg_id() == *self.algorithm && verifies(*how, issuer, self.content, self.signature)
        })
    }
}

/// A public key and what is said of its kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    algorithm: &'a [u8],
    bits: &'a [u8],
}

impl<'a> Key<'a> {
    /// Reads a `SubjectPublicKeyInfo`.
    pub(super) fn read(info: &'a [u8]) -> Option<Key<'a>> {
        let mut info = Der::new(info).enter(der::SEQUENCE)?;
        Some(Key { algorithm: info.take(der::SEQUENCE)?, bits: info.bits()? })
    }
}

impl<'a> LegacyCertificate<'a> {
    /// Reads a certificate; `None` for one of another version, which is webpki's.
    pub(super) fn read(bytes: &'a [u8]) -> Option<LegacyCertificate<'a>> {
        let Outline { signed: content, version, algorithm_within, key_info, rest, algorithm, signature, .. } =
            Outline::read(bytes)?;
        let key = Key::read(key_info.whole)?;
        // Version 1 is not said.
        let is_whole = version.is_none() && rest.is_empty() && algorithm_within == algorithm;
        is_whole.then_some(LegacyCertificate { signed: Signed { content, algorithm, signature }, key })
    }

    /// Whether its key signed a message of a handshake.
    pub(super) fn has_signed(
        &self,
        message: &[u8],
        scheme: SignatureScheme,
        signature: &[u8],
        known: &WebPkiSupportedAlgorithms,
    ) -> bool {
        let ways = known.mapping.iter().find(|(other, _)| *other == scheme).map_or(&[][..], |(_, ways)| ways);
        ways.iter().any(|how| verifies(*how, self.key, message, signature))
    }
}

fn verifies(how: &dyn SignatureVerificationAlgorithm, key: Key<'_>, message: &[u8], signature: &[u8]) -> bool {
    *how.public_key_alg_id() == *key.algorithm && how.verify_signature(key.bits, message, signature).is_ok()
}

/// Whether TLS 1.3 has the scheme for handshakes: not those of RSA's old padding.
pub(super) fn is_new(scheme: SignatureScheme) -> bool {
    use SignatureScheme as Is;
    !matches!(scheme, Is::RSA_PKCS1_SHA1 | Is::RSA_PKCS1_SHA256 | Is::RSA_PKCS1_SHA384 | Is::RSA_PKCS1_SHA512)
}
