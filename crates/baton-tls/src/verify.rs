//! Whether a client's certificate is to be accepted (`verify`, `ca-file`, `crl-file`, `ca-ignore-err`, `crt-ignore-err`).
//!
//! The judgement is that of webpki. Where it refuses and errors are to be ignored, the chain is looked at once more for what
//! OpenSSL would call wrong with it, by its numbers and at which depth: 0 is the client's own certificate. Some things are as in
//! OpenSSL and not as in webpki: a chain ends at a certificate that signs itself and is in its time, so that one of a `ca-file`
//! that does not is only a link; and a client's certificate may be of version 1 (see [`old`]), or stand in the `ca-file` itself
//! though it is an authority's.

mod code;
mod old;
mod purposes;

use std::sync::Arc;
use std::time::Duration;

use baton_model::IgnoredErrors;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertRevocationListError, CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError};
use rustls::{PeerMisbehaved, SignatureScheme, server::ParsedCertificate};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};

use crate::authorities::Authority;
use crate::certificate::X509;

use old::{Key, Old};

/// The longest chain that is looked at.
const CHAIN_MAX: usize = 32;

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

/// Checks the clients of one context. It never changes: other files make another one.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    pub(crate) mandatory: bool,
    pub(crate) hints: Vec<DistinguishedName>,
    anchors: Vec<TrustAnchor<'static>>,
    /// Everything in the files, for their certificates and lists.
    contents: Vec<Arc<Authority>>,
    ca_ignored: IgnoredErrors,
    crt_ignored: IgnoredErrors,
    algorithms: WebPkiSupportedAlgorithms,
    schemes: Vec<SignatureScheme>,
    /// A list must say of every certificate that it is not revoked.
    asks_lists: bool,
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
        let asks_lists = lists.is_some();
        let contents: Vec<_> = [named, unnamed, lists].into_iter().flatten().collect();
        let supported = algorithms.supported_schemes();
        let schemes = match schemes {
            Some(wanted) => wanted.into_iter().filter(|scheme| supported.contains(scheme)).collect(),
            None => supported,
        };
        ClientVerifier {
            mandatory,
            hints: hints.unwrap_or_default(),
            anchors: contents.iter().flat_map(|content| content.anchors.iter().cloned()).collect(),
            contents,
            ca_ignored,
            crt_ignored,
            algorithms,
            schemes,
            asks_lists,
        }
    }

    /// Whether a client may have been accepted in spite of an error.
    pub(crate) fn ignores(&self) -> bool {
        self.ca_ignored != IgnoredErrors::None || self.crt_ignored != IgnoredErrors::None
    }

    /// What is wrong with a client that was accepted.
    pub(crate) fn verification(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Verification {
        let Some((leaf, others)) = chain.split_first() else { return Verification::default() };
        let Err(error) = self.check(leaf, others, now) else { return Verification::default() };
        let faults = self.faults(leaf, others, now, &error);
        let at_leaf = faults.iter().find(|fault| fault.depth == 0);
        let above = faults.iter().find(|fault| fault.depth > 0);
        Verification {
            result: faults.last().map_or(0, |fault| fault.code),
            error: at_leaf.map_or(0, |fault| fault.code),
            ca_error: above.map_or(0, |fault| fault.code),
            ca_depth: above.map_or(0, |fault| fault.depth),
        }
    }

    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        if let Some(old) = Old::read(leaf) {
            return self.check_old(&old, leaf, now);
        }
        let certificate = EndEntityCert::try_from(leaf)?;
        let links: Vec<CertificateDer<'_>> = others
            .iter()
            .map(|der| CertificateDer::from(&**der))
            .chain(self.contents.iter().flat_map(|content| &content.between).map(|der| CertificateDer::from(&**der)))
            .collect();
        let lists: Vec<_> = self.contents.iter().flat_map(|content| &content.revoked).collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let revocation = revocation.filter(|_| self.asks_lists);
        let usage = KeyUsage::client_auth();
        let checked =
            certificate.verify_for_usage(self.algorithms.all, &self.anchors, &links, now, usage, revocation, None);
        match checked {
            Ok(path) => {
                let between = path.intermediate_certificates().map(|link| link.der());
                if between.into_iter().any(|der| X509::read(&der).is_none_or(|read| !read.may_sign_certificates())) {
                    return Err(webpki::Error::EndEntityUsedAsCa);
                }
                if X509::read(leaf).is_none_or(|read| !read.may_sign_messages()) {
                    let (required, present) = (KeyUsage::client_auth(), Vec::new());
                    let context = webpki::RequiredEkuNotFoundContext { required, present };
                    return Err(webpki::Error::RequiredEkuNotFoundContext(context));
                }
                self.anchor_holds(path.anchor(), now)
            }
            Err(webpki::Error::CaUsedAsEndEntity) if self.is_anchor(leaf) => in_time(leaf, now),
            Err(error) => Err(error),
        }
    }

    fn old_signature(
        &self,
        old: &Old<'_>,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match old.signed(message, signed.scheme, signed.signature(), &self.algorithms) {
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

    /// Whether an authority's certificate is in its time itself: one of them, where it was made anew with the same key.
    fn anchor_holds(&self, anchor: &TrustAnchor<'_>, now: UnixTime) -> Result<(), webpki::Error> {
        let spans = self.contents.iter().flat_map(|content| &content.spans);
        let mut outcome = Ok(());
        for (_, span) in self.anchors.iter().zip(spans).filter(|(known, _)| *known == anchor) {
            outcome = holds(*span, now);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// What webpki would check of a certificate of version 1, as far as one without extensions has it. Its issuer must sign
    /// itself and be ours.
    fn check_old(&self, old: &Old<'_>, leaf: &[u8], now: UnixTime) -> Result<(), webpki::Error> {
        let read = X509::read(leaf).ok_or(webpki::Error::BadDer)?;
        let ours = || self.contents.iter().flat_map(|content| &content.certificates);
        let issuers = ours().filter_map(|der| X509::read(der));
        let mut issuers = issuers.filter(|it| it.subject == read.issuer && it.issuer == it.subject).peekable();
        if issuers.peek().is_none() {
            return Err(webpki::Error::UnknownIssuer);
        }
        let signed =
            |issuer: &X509<'_>| Key::read(issuer.key_info).is_some_and(|key| old.is_signed_by(key, &self.algorithms));
        let issuer = issuers.find(signed).ok_or(webpki::Error::InvalidSignatureForPublicKey)?;
        holds((issuer.not_before, issuer.not_after), now)?;
        in_time(leaf, now)?;
        if !self.asks_lists {
            return Ok(());
        }
        let lists = self.lists_of(&read, now);
        let Some((_, until)) = lists.first() else { return Err(webpki::Error::UnknownRevocationStatus) };
        if lists.iter().any(|(list, _)| is_in(list, &read)) {
            return Err(webpki::Error::CertRevoked);
        }
        match now > seconds(*until) {
            true => Err(webpki::Error::CrlExpired { time: now, next_update: seconds(*until) }),
            false => Ok(()),
        }
    }

    fn is_anchor(&self, der: &CertificateDer<'_>) -> bool {
        let signs_itself = X509::read(der).is_some_and(|read| read.subject == read.issuer);
        signs_itself && self.contents.iter().any(|content| content.certificates.contains(der))
    }

    fn is_ignored(&self, fault: Fault) -> bool {
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

    /// What OpenSSL would find wrong with a chain that webpki refused for `error`, in the order in which it looks; at least
    /// one thing.
    fn faults(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
        error: &webpki::Error,
    ) -> Vec<Fault> {
        let Some((chain, end)) = self.chain(leaf, others) else {
            return vec![Fault { depth: 0, code: code::UNSPECIFIED }];
        };
        let last = chain.len() as u32 - 1;
        let mut faults = Vec::new();
        let mut add = |depth: u32, code: u32| faults.push(Fault { depth, code });
        match end {
            End::Trusted => {}
            End::SignsItself if last == 0 => add(0, code::SIGNS_ITSELF),
            End::SignsItself => add(last, code::SIGNS_ITSELF_IN_CHAIN),
            End::Known => add(last, code::NO_ISSUER),
            End::Nobody => add(last, code::NO_LOCAL_ISSUER),
            End::TooLong => add(last, code::CHAIN_TOO_LONG),
        }
        let mut before = 0;
        for (depth, read) in (0..).zip(&chain) {
            purposes::faults(read, depth, before).for_each(|fault| add(fault.depth, fault.code));
            before += u32::from(depth > 0 && read.subject != read.issuer);
        }
        use webpki::Error;
        if *error == Error::NameConstraintViolation {
            add(0, code::NOT_PERMITTED);
        }
        if self.asks_lists {
            for (depth, read) in (0..).zip(&chain) {
                let lists = self.lists_of(read, now);
                match lists.first() {
                    None => add(depth, code::NO_LIST),
                    Some((_, until)) if now > seconds(*until) => add(depth, code::LIST_EXPIRED),
                    Some(_) => {}
                }
                if lists.iter().any(|(list, _)| is_in(list, read)) {
                    add(depth, code::REVOKED);
                }
            }
        }
        if matches!(end, End::Nobody) && last == 0 {
            add(0, code::LEAF_UNVERIFIED);
        }
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        for (depth, read) in (0..last + 1).zip(&chain).collect::<Vec<_>>().into_iter().rev() {
            if depth > 0 && read.key_usage().is_some() && !read.may_sign_certificates() {
                add(depth, code::NOT_FOR_SIGNING);
            }
            if matches!(error, Error::InvalidSignatureForPublicKey) && end == End::Trusted && depth == 0 {
                add(depth, code::BAD_SIGNATURE);
            }
            if seconds < read.not_before {
                add(depth, code::NOT_YET);
            } else if seconds > read.not_after {
                add(depth, code::EXPIRED);
            }
        }
        if faults.is_empty() {
            faults.push(Fault { depth: 0, code: code::UNSPECIFIED });
        }
        faults
    }

    /// The certificates from a client's own to where the chain ends, by their names alone.
    fn chain<'c>(&'c self, leaf: &'c [u8], others: &'c [CertificateDer<'_>]) -> Option<(Vec<X509<'c>>, End)> {
        let is_ours =
            |der: &[u8]| self.contents.iter().any(|content| content.certificates.iter().any(|ours| **ours == *der));
        let mut chain = vec![X509::read(leaf)?];
        let mut der = leaf;
        loop {
            let read = *chain.last()?;
            if read.subject == read.issuer {
                return Some((chain, if is_ours(der) { End::Trusted } else { End::SignsItself }));
            }
            if chain.len() == CHAIN_MAX {
                return Some((chain, End::TooLong));
            }
            let ours = self.contents.iter().flat_map(|content| &content.certificates).map(|der| &**der);
            let issuer = ours.chain(others.iter().map(|der| &**der)).find_map(|der| {
                let found = X509::read(der)?;
                let is_named = found.subject == read.issuer;
                (is_named && is_key_of(&found, &read)).then_some((der, found))
            });
            let Some((next, found)) = issuer else {
                return Some((chain, if is_ours(der) { End::Known } else { End::Nobody }));
            };
            der = next;
            chain.push(found);
        }
    }

    /// The lists of who issued a certificate, and until when they hold: those that still do, or else those that did.
    fn lists_of(&self, read: &X509<'_>, now: UnixTime) -> Vec<(&webpki::CertRevocationList<'static>, i64)> {
        let lists = self.contents.iter().flat_map(|content| content.revoked.iter().zip(content.until.iter().copied()));
        let mut lists: Vec<_> = lists.filter(|(list, _)| is_by(read, list.issuer())).collect();
        if lists.iter().any(|(_, until)| now <= seconds(*until)) {
            lists.retain(|(_, until)| now <= seconds(*until));
        }
        lists
    }
}

fn is_in(list: &webpki::CertRevocationList<'_>, read: &X509<'_>) -> bool {
    matches!(list.find_serial(read.serial), Ok(Some(_)))
}

/// Whether the key of `issuer` is the one that signed `read`, as far as both name it.
fn is_key_of(issuer: &X509<'_>, read: &X509<'_>) -> bool {
    match (issuer.subject_key_id(), read.authority_key_id()) {
        (Some(has), Some(wanted)) => has == wanted,
        _ => true,
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Fault {
    depth: u32,
    code: u32,
}

/// How a chain ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// At one that signs itself and is ours.
    Trusted,
    /// At one that signs itself and is not.
    SignsItself,
    /// At one of ours that somebody else signed.
    Known,
    /// At a client's one that nobody we know signed.
    Nobody,
    /// Not at all.
    TooLong,
}

/// Whether a certificate holds now.
fn in_time(der: &[u8], now: UnixTime) -> Result<(), webpki::Error> {
    let read = X509::read(der).ok_or(webpki::Error::BadDer)?;
    holds((read.not_before, read.not_after), now)
}

/// Whether a list is of who issued a certificate: it names its issuer by what is inside of the name's element.
fn is_by(read: &X509<'_>, issuer: &[u8]) -> bool {
    const HEADER_MAX: usize = 6;
    read.issuer.ends_with(issuer) && read.issuer.len() - issuer.len() <= HEADER_MAX
}

fn seconds(since_1970: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(since_1970).unwrap_or(0)))
}

fn holds((not_before, not_after): (i64, i64), now: UnixTime) -> Result<(), webpki::Error> {
    let (not_before, not_after) = (seconds(not_before), seconds(not_after));
    if now < not_before {
        return Err(webpki::Error::CertNotValidYet { time: now, not_before });
    }
    if now > not_after {
        return Err(webpki::Error::CertExpired { time: now, not_after });
    }
    Ok(())
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
        let Err(error) = self.check(leaf, others, now) else { return Ok(ClientCertVerified::assertion()) };
        // What cannot be read cannot be accepted: its key has to check the handshake's signature.
        let readable = Old::read(leaf).is_some() || ParsedCertificate::try_from(leaf).is_ok();
        let accepted = readable
            && self.ignores()
            && self.faults(leaf, others, now, &error).into_iter().all(|fault| self.is_ignored(fault));
        if accepted { Ok(ClientCertVerified::assertion()) } else { Err(told(error)) }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.offered(signed)?;
        if let Some(old) = Old::read(certificate) {
            return self.old_signature(&old, message, signed);
        }
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.offered(signed)?;
        if let Some(old) = Old::read(certificate).filter(|_| old::is_new(signed.scheme)) {
            return self.old_signature(&old, message, signed);
        }
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
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
