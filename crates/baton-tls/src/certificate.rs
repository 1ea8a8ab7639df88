//! One certificate with its private key, ready to be chosen: what a choice needs was read, everything else waits in the
//! bytes of its files until somebody asks.

mod chain;
pub(crate) mod der;
mod describe;
mod dump;
mod fault;
mod key;
mod ocsp;
mod outline;
mod parts;
mod pem;
mod revocation;
#[cfg(test)]
mod tests;
mod view;
pub(crate) mod x509;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use rustls::sign::CertifiedKey;
use rustls::{SignatureScheme, crypto::aws_lc_rs::sign::any_supported_type};
use rustls_pki_types::CertificateDer;

use chain::Sending;
pub use chain::{Chain, Chains};
pub use describe::Description;
pub use fault::CertificateError;
pub(crate) use fault::reason;
pub use ocsp::{OcspError, OcspResponse, Staple};
pub(crate) use outline::Outline;
pub use parts::Parts;
pub use revocation::RevocationList;
pub use view::{DistinguishedName, View, sha1};
pub(crate) use x509::X509;

use key::{KeyEncoding, Match};
use x509::{Curve, PublicKey};

/// Most certificates behind the first one of a file.
pub const MAX_CHAIN: usize = 32;

/// A certificate that fits its private key. It never changes; another takes its place in its [`Entry`](crate::store::Entry).
#[derive(Debug)]
pub struct Certificate {
    /// The certificate in DER, and behind it what of the private key it does not say.
    bytes: SecretBytes,
    split: u32,
    kind: KeyKind,
    chain: Chain,
    sending: Arc<Sending>,
    not_before: i64,
    not_after: i64,
    extras: Option<Box<Extras>>,
    ocsp: ArcSwapOption<Staple>,
    loaded: SystemTime,
    /// What handshakes use: made when the first one asks, and given up again when many others were used since.
    signer: ArcSwapOption<CertifiedKey>,
    /// It was asked for since the cache of signers last looked.
    used: AtomicBool,
}

/// Parts that few certificates have.
#[derive(Debug, Default)]
struct Extras {
    issuer: Option<Arc<[u8]>>,
    sctl: Option<Vec<u8>>,
}

/// Bytes that are shown to nobody.
struct SecretBytes(Box<[u8]>);

impl std::fmt::Debug for SecretBytes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "({} bytes)", self.0.len())
    }
}

/// What a certificate signs with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum KeyKind {
    /// RSA, of this many bits.
    Rsa(u16),
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// ECDSA on the curve P-384.
    EcdsaP384,
    /// ECDSA on the curve P-521.
    EcdsaP521,
    /// Ed25519.
    Ed25519,
}

impl Certificate {
    fn build(parts: &Parts, chains: &Chains) -> Result<Certificate, CertificateError> {
        let leaf = X509::read(&parts.leaf).ok_or(CertificateError::Certificate(1))?;
        let public = leaf.key().ok_or(CertificateError::Kind)?;
        let kind = KeyKind::of(public);
        if let KeyKind::Rsa(bits) = kind
            && !(2048..=8192).contains(&bits)
        {
            return Err(CertificateError::Size(usize::from(bits)));
        }
        let form = parts.form.ok_or(CertificateError::NoKey)?;
        let secret = match key::belongs(form, &parts.key, public) {
            Match::Yes(secret) => secret,
            Match::Unreadable => return Err(CertificateError::Key),
            Match::No => return Err(CertificateError::Mismatch(owner(parts, form))),
        };
        let extras = Extras { issuer: parts.issuer.clone(), sctl: parts.sctl.clone() };
        let has_extras = extras.issuer.is_some() || extras.sctl.is_some();
        Ok(Certificate {
            bytes: SecretBytes([&parts.leaf[..], secret].concat().into_boxed_slice()),
            split: u32::try_from(parts.leaf.len()).map_err(|_| CertificateError::Certificate(1))?,
            kind,
            chain: chains.chain(&parts.chain),
            sending: chains.sending(),
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            extras: has_extras.then(|| Box::new(extras)),
            ocsp: ArcSwapOption::from_pointee(parts.ocsp.clone().map(Staple::new)),
            loaded: SystemTime::now(),
            signer: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
        })
    }

    /// The certificate, in DER.
    pub fn der(&self) -> &[u8] {
        &self.bytes.0[..self.split as usize]
    }

    /// The private key, whole, and what it is wrapped in.
    fn key_der(&self) -> (KeyEncoding, Vec<u8>) {
        let public = self.x509().key().expect("was read when it was built");
        key::rebuild(public, &self.bytes.0[self.split as usize..])
    }

    fn x509(&self) -> X509<'_> {
        X509::read(self.der()).expect("was read when it was built")
    }

    /// Its issuers, the nearest first, in DER. They are sent with it, but for roots where `ssl-skip-self-issued-ca` is set.
    pub fn chain(&self) -> &[Arc<[u8]>] {
        &self.chain
    }

    /// The issuer's certificate: of the chain, or the one that is known but not sent (`.issuer`).
    pub fn issuer_der(&self) -> Option<&[u8]> {
        let apart = self.extras.as_ref().and_then(|extras| extras.issuer.as_deref());
        self.chain.first().map(|issuer| &**issuer).or(apart)
    }

    /// What it signs with.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Its validity, in seconds since 1970; it holds still in the second one.
    pub fn validity(&self) -> (i64, i64) {
        (self.not_before, self.not_after)
    }

    /// When it was read.
    pub fn loaded(&self) -> SystemTime {
        self.loaded
    }

    /// Names of hosts it is for, as written in it: `subjectAltName`, then the subject's common names. A name may come twice.
    pub fn names(&self) -> Vec<&[u8]> {
        self.x509().names().collect()
    }

    /// The OCSP response that is stapled while it may be relied on, in DER.
    pub fn ocsp(&self) -> Option<Arc<Staple>> {
        self.ocsp.load_full()
    }

    /// Whether its OCSP response, if there is one, is good enough to be stapled at this time (seconds since 1970).
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check_ocsp(&self, now: i64) -> Result<(), OcspError> {
        let Some(staple) = self.ocsp() else { return Ok(()) };
        let response = OcspResponse::read(&staple)?;
        response.check(now)?;
        if response.is_about(self) { Ok(()) } else { Err(OcspError::Foreign) }
    }

    /// What is stapled to a handshake of now.
    fn staple(&self) -> Option<Arc<Staple>> {
        self.ocsp().filter(|staple| staple.is_fresh())
    }

    /// Drops a response that is about another certificate, or not for `now` (seconds since 1970).
    pub fn without_stale_ocsp(self, now: i64) -> Certificate {
        if self.check_ocsp(now).is_err() {
            self.set_ocsp(None);
        }
        self
    }

    /// Staples another response, or none, from the next handshake on.
    pub(crate) fn set_ocsp(&self, response: Option<Vec<u8>>) {
        self.ocsp.store(response.map(|response| Arc::new(Staple::new(response))));
        self.signer.store(None);
    }

    /// The list of signed certificate timestamps; kept for whoever asks: rustls sends none.
    pub fn timestamps(&self) -> Option<&[u8]> {
        self.extras.as_ref()?.sctl.as_deref()
    }

    /// Reads the private key for signing: some tens of microseconds.
    pub(crate) fn make_signer(&self) -> Result<CertifiedKey, CertificateError> {
        let (form, key) = self.key_der();
        let key = any_supported_type(&form.wrap(&key)).map_err(|_| CertificateError::Key)?;
        let mut cert = vec![CertificateDer::from(self.der().to_vec())];
        cert.extend(self.sending.of(&self.chain).map(|der| CertificateDer::from(der.to_vec())));
        let mut made = CertifiedKey::new(cert, key);
        made.ocsp = self.staple().map(|staple| staple.to_vec());
        Ok(made)
    }

    /// Whether both are made of the same bytes.
    pub(crate) fn is_same(&self, other: &Certificate) -> bool {
        let extras = |certificate: &Certificate| {
            let extras = certificate.extras.as_ref();
            extras.map(|extras| (extras.issuer.clone(), extras.sctl.clone()))
        };
        self.bytes.0 == other.bytes.0
            && self.split == other.split
            && self.chain == other.chain
            && extras(self) == extras(other)
            && self.ocsp() == other.ocsp()
    }

    /// Judges the private key as a handshake will: some tens of microseconds that a start cannot give to each of many.
    ///
    /// # Errors
    /// When it cannot sign.
    pub fn check_signer(&self) -> Result<(), CertificateError> {
        self.make_signer().map(drop)
    }

    /// The signer, if it is made; asking keeps it.
    pub(crate) fn cached_signer(&self) -> Option<Arc<CertifiedKey>> {
        let made = self.signer.load_full()?;
        if made.ocsp.is_some() && self.staple().is_none() {
            // The response got too old: made again, without it.
            self.signer.store(None);
            return None;
        }
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(made)
    }

    /// Keeps a signer until [`Certificate::forget_signer`].
    pub(crate) fn keep_signer(&self, made: CertifiedKey) -> Arc<CertifiedKey> {
        let made = Arc::new(made);
        self.signer.store(Some(made.clone()));
        // Another response was stapled while it was made, or more or less of the chain is sent.
        if self.staple().as_ref().map(|staple| &staple[..]) != made.ocsp.as_deref()
            || self.sending.of(&self.chain).count() + 1 != made.cert.len()
        {
            self.signer.store(None);
        }
        made
    }

    /// Gives the signer up, unless it was asked for since this was last called.
    pub(crate) fn forget_signer(&self) -> bool {
        if self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.signer.store(None);
        true
    }

    /// More or less of the chain is sent from now on.
    pub(crate) fn chain_changed(&self) {
        self.signer.store(None);
    }

    /// Bytes of memory it takes, without its chain.
    pub(crate) fn memory(&self) -> usize {
        let ocsp = self.ocsp.load().as_ref().map_or(0, |ocsp| ocsp.len());
        let sctl = self.timestamps().map_or(0, <[u8]>::len);
        size_of::<Certificate>() + self.bytes.0.len() + ocsp + sctl
    }
}

/// The position, counted from 1, of the certificate that the key belongs to.
fn owner(parts: &Parts, form: KeyEncoding) -> Option<usize> {
    let belongs = |der: &Arc<[u8]>| {
        let key = X509::read(der).and_then(|certificate| certificate.key());
        key.is_some_and(|key| matches!(key::belongs(form, &parts.key, key), Match::Yes(_)))
    };
    parts.chain.iter().position(belongs).map(|at| at + 2)
}

impl KeyKind {
    fn of(key: PublicKey<'_>) -> KeyKind {
        match key {
            PublicKey::Rsa { modulus, .. } => {
                let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
                KeyKind::Rsa(u16::try_from(bits).unwrap_or(u16::MAX))
            }
            PublicKey::Ec { curve: Curve::P256, .. } => KeyKind::EcdsaP256,
            PublicKey::Ec { curve: Curve::P384, .. } => KeyKind::EcdsaP384,
            PublicKey::Ec { curve: Curve::P521, .. } => KeyKind::EcdsaP521,
            PublicKey::Ed25519(_) => KeyKind::Ed25519,
        }
    }

    fn flag(self) -> u8 {
        match self {
            KeyKind::Rsa(_) => 1,
            KeyKind::EcdsaP256 => 2,
            KeyKind::EcdsaP384 => 4,
            KeyKind::EcdsaP521 => 8,
            KeyKind::Ed25519 => 16,
        }
    }
}

/// Kinds of key whose signatures a client can verify.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verifies(u8);

impl Verifies {
    /// Every kind: nothing is known of the client.
    pub const ALL: Verifies = Verifies(31);

    /// What a client that offers these schemes (`signature_algorithms`) can verify.
    pub fn of(schemes: &[SignatureScheme]) -> Verifies {
        Verifies(schemes.iter().fold(0, |flags, scheme| {
            flags
                | match scheme {
                    SignatureScheme::RSA_PKCS1_SHA256
                    | SignatureScheme::RSA_PKCS1_SHA384
                    | SignatureScheme::RSA_PKCS1_SHA512
                    | SignatureScheme::RSA_PSS_SHA256
                    | SignatureScheme::RSA_PSS_SHA384
                    | SignatureScheme::RSA_PSS_SHA512 => 1,
                    SignatureScheme::ECDSA_NISTP256_SHA256 => 2,
                    SignatureScheme::ECDSA_NISTP384_SHA384 => 4,
                    SignatureScheme::ECDSA_NISTP521_SHA512 => 8,
                    SignatureScheme::ED25519 => 16,
                    _ => 0,
                }
        }))
    }

    /// Leaves out ECDSA and Ed25519: a client of TLS 1.2 offers no cipher suite with them.
    #[must_use]
    pub fn only_rsa(self) -> Verifies {
        Verifies(self.0 & 1)
    }

    /// Whether it can verify what such a key signs.
    pub fn can(self, kind: KeyKind) -> bool {
        self.0 & kind.flag() != 0
    }
}
