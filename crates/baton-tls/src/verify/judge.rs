//! The judgement on a chain of certificates, by webpki, with what is as in OpenSSL and not as in webpki: a chain ends at a
//! certificate that signs itself and is in its time, so that one of a `ca-file` that does not is only a link; a peer's certificate
//! may be of version 1 (see [`old`](super::old)), or stand in the `ca-file` itself though it is an authority's.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::old::{Key, LegacyCertificate, Signed};
use crate::authorities::{Authority, RevocationFacts, Serials};
use crate::certificate::X509;

/// What a peer shows its certificate for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    Client,
    Server,
}

impl Purpose {
    fn usage(self) -> KeyUsage {
        match self {
            Purpose::Client => KeyUsage::client_auth(),
            Purpose::Server => KeyUsage::server_auth(),
        }
    }

    /// Whether the certificate's key may be used in such a handshake.
    pub(super) fn may_sign(self, read: &X509<'_>) -> bool {
        match self {
            Purpose::Client => read.may_sign_messages(),
            Purpose::Server => read.may_sign_messages() || read.may_take_keys(),
        }
    }

    /// Whether the certificate says that it is for this; `None`: it says nothing.
    pub(super) fn is_named(self, read: &X509<'_>) -> Option<bool> {
        match self {
            Purpose::Client => read.is_for_clients(),
            Purpose::Server => read.is_for_servers(),
        }
    }
}

/// Whom to trust. It never changes: other files make another one.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(super) purpose: Purpose,
    /// Everything in the files, for their certificates and lists.
    pub(super) contents: Vec<Arc<Authority>>,
    /// Where chains may end, if that is in more than one of the contents.
    merged: Option<Vec<TrustAnchor<'static>>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// A list must say of every certificate that it is not revoked.
    pub(super) asks_lists: bool,
}

impl Judge {
    /// Trusts what is in `authorities`; with `lists` (`crl-file`) every one of them needs a list.
    pub(crate) fn new(
        purpose: Purpose,
        authorities: impl IntoIterator<Item = Arc<Authority>>,
        lists: Option<Arc<Authority>>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Judge {
        let asks_lists = lists.is_some();
        let contents: Vec<_> = authorities.into_iter().chain(lists).collect();
        let with_anchors = contents.iter().filter(|content| !content.anchors.is_empty());
        let merged = (with_anchors.count() > 1)
            .then(|| contents.iter().flat_map(|content| content.anchors.iter().cloned()).collect());
        Judge { purpose, contents, merged, algorithms, asks_lists }
    }

    /// Where chains may end, in the order of the contents.
    fn anchors(&self) -> &[TrustAnchor<'static>] {
        let only = || self.contents.iter().map(|content| &content.anchors[..]).find(|anchors| !anchors.is_empty());
        self.merged.as_deref().or_else(only).unwrap_or_default()
    }

    /// Whether a peer may be who it says it is, whatever its name: a chain leads to one of the authorities, all of it holds now
    /// and, where lists are asked for, none of it was taken back.
    pub(crate) fn check(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        if self.purpose == Purpose::Server && self.is_anchor(leaf) {
            return in_time(leaf, now);
        }
        if let Some(old) = LegacyCertificate::read(leaf) {
            return self.check_old(&old, leaf, now);
        }
        let certificate = EndEntityCert::try_from(leaf)?;
        let links: Vec<CertificateDer<'_>> = others
            .iter()
            .map(|der| CertificateDer::from(&**der))
            .chain(self.contents.iter().flat_map(|content| &content.between).map(|der| CertificateDer::from(&**der)))
            .collect();
        let lists: Vec<_> = self.contents.iter().flat_map(|content| &content.revoked).collect();
        let verify = |unlisted| {
            let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
                let options = options.with_depth(RevocationCheckDepth::Chain).with_status_policy(unlisted);
                options.with_expiration_policy(ExpirationPolicy::Enforce).build()
            });
            let (revocation, usage) = (revocation.filter(|_| self.asks_lists), self.purpose.usage());
            certificate.verify_for_usage(self.algorithms.all, self.anchors(), &links, now, usage, revocation, None)
        };
        // Lists of version 1 are nothing that webpki knows.
        let has_others =
            self.asks_lists && self.contents.iter().any(|content| content.revoked.len() < content.listed.len());
        let checked = match verify(UnknownStatusPolicy::Deny) {
            Err(webpki::Error::UnknownRevocationStatus) if has_others => verify(UnknownStatusPolicy::Allow),
            checked => checked,
        };
        match checked {
            Ok(path) => {
                let between = path.intermediate_certificates().map(|link| link.der());
                if between.into_iter().any(|der| X509::read(&der).is_none_or(|read| !read.may_sign_certificates())) {
                    return Err(webpki::Error::EndEntityUsedAsCa);
                }
                if X509::read(leaf).is_none_or(|read| !self.purpose.may_sign(&read)) {
                    let (required, present) = (self.purpose.usage(), Vec::new());
                    let context = webpki::RequiredEkuNotFoundContext { required, present };
                    return Err(webpki::Error::RequiredEkuNotFoundContext(context));
                }
                if self.asks_lists && (has_others || lists.is_empty()) {
                    let between: Vec<_> = path.intermediate_certificates().map(|link| link.der()).collect();
                    self.none_is_listed(leaf, &between, now)?;
                }
                self.anchor_holds(path.anchor(), now)
            }
            Err(webpki::Error::CaUsedAsEndEntity) if self.is_anchor(leaf) => in_time(leaf, now),
            Err(error) => Err(error),
        }
    }

    /// Whether an authority's certificate is in its time itself: one of them, where it was made anew with the same key.
    fn anchor_holds(&self, anchor: &TrustAnchor<'_>, now: UnixTime) -> Result<(), webpki::Error> {
        let spans = self.contents.iter().flat_map(|content| &content.spans);
        let mut outcome = Ok(());
        for (_, span) in self.anchors().iter().zip(spans).filter(|(known, _)| *known == anchor) {
            outcome = holds(*span, now);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// What webpki would check of a certificate of version 1, as far as one without extensions has it. Its issuer must sign
    /// itself and be ours.
    fn check_old(&self, old: &LegacyCertificate<'_>, leaf: &[u8], now: UnixTime) -> Result<(), webpki::Error> {
        let read = X509::read(leaf).ok_or(webpki::Error::BadDer)?;
        let ours = || self.contents.iter().flat_map(|content| &content.certificates);
        let issuers = ours().filter_map(|der| X509::read(der));
        let mut issuers = issuers.filter(|it| it.subject == read.issuer && it.issuer == it.subject).peekable();
        if issuers.peek().is_none() {
            return Err(webpki::Error::UnknownIssuer);
        }
        let signed =
            |issuer: &X509<'_>| Key::read(issuer.key_info).is_some_and(|key| old.signed.is_by(key, &self.algorithms));
        let issuer = issuers.find(signed).ok_or(webpki::Error::InvalidSignatureForPublicKey)?;
        holds((issuer.not_before, issuer.not_after), now)?;
        in_time(leaf, now)?;
        if self.asks_lists { self.is_not_listed(&read, &[issuer], now) } else { Ok(()) }
    }

    /// Whether lists say of every certificate of a path that webpki found that it was not revoked.
    fn none_is_listed(&self, leaf: &[u8], between: &[CertificateDer<'_>], now: UnixTime) -> Result<(), webpki::Error> {
        let read = |der| X509::read(der).ok_or(webpki::Error::BadDer);
        let path = std::iter::once(leaf).chain(between.iter().map(|der| &**der)).map(read);
        let path = path.collect::<Result<Vec<_>, _>>()?;
        for (at, certificate) in path.iter().enumerate() {
            let ours = self.contents.iter().flat_map(|content| &content.certificates);
            let ours = ours.filter_map(|der| X509::read(der)).filter(|it| it.subject == certificate.issuer);
            let issuers: Vec<_> = match path.get(at + 1) {
                Some(issuer) => vec![*issuer],
                None => ours.collect(),
            };
            self.is_not_listed(certificate, &issuers, now)?;
        }
        Ok(())
    }

    /// Whether a list of one of its issuers says that a certificate was not revoked.
    fn is_not_listed(&self, read: &X509<'_>, issuers: &[X509<'_>], now: UnixTime) -> Result<(), webpki::Error> {
        let lists = self.lists_of(read, now);
        let Some(first) = lists.first() else { return Err(webpki::Error::UnknownRevocationStatus) };
        if lists.iter().any(|list| list.names(read)) {
            return Err(webpki::Error::CertRevoked);
        }
        if now > seconds(first.until()) {
            return Err(webpki::Error::CrlExpired { time: now, next_update: seconds(first.until()) });
        }
        match lists.iter().all(|list| list.is_by(issuers, &self.algorithms)) {
            true => Ok(()),
            false => Err(webpki::Error::InvalidCrlSignatureForPublicKey),
        }
    }

    fn is_anchor(&self, der: &CertificateDer<'_>) -> bool {
        let signs_itself = X509::read(der).is_some_and(|read| read.subject == read.issuer);
        signs_itself && self.contents.iter().any(|content| content.certificates.contains(der))
    }

    /// The lists of who issued a certificate: those that still hold, or else those that did.
    pub(super) fn lists_of(&self, read: &X509<'_>, now: UnixTime) -> Vec<List<'_>> {
        let lists = self.contents.iter().flat_map(|content| {
            let lists = content.listed.iter().zip(&content.lists);
            lists.map(|(listed, der)| List { content, listed, der })
        });
        let mut lists: Vec<_> = lists.filter(|list| *list.listed.issuer == *read.issuer).collect();
        if lists.iter().any(|list| now <= seconds(list.until())) {
            lists.retain(|list| now <= seconds(list.until()));
        }
        lists
    }
}

/// A list of revoked certificates.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    content: &'a Authority,
    listed: &'a RevocationFacts,
    der: &'a [u8],
}

impl List<'_> {
    /// Until when it holds.
    pub(super) fn until(&self) -> i64 {
        self.listed.until
    }

    /// Whether it names a certificate.
    pub(super) fn names(&self, read: &X509<'_>) -> bool {
        match &self.listed.serials {
            Serials::Known(at) => matches!(self.content.revoked[*at].find_serial(read.serial), Ok(Some(_))),
            Serials::Old(serials) => serials.binary_search_by(|serial| (**serial).cmp(read.serial)).is_ok(),
        }
    }

    /// Whether one of these signed it.
    pub(super) fn is_by(&self, issuers: &[X509<'_>], known: &WebPkiSupportedAlgorithms) -> bool {
        let Some(signed) = Signed::read(self.der) else { return false };
        issuers.iter().filter_map(|issuer| Key::read(issuer.key_info)).any(|key| signed.is_by(key, known))
    }
}

/// Whether a certificate holds now.
fn in_time(der: &[u8], now: UnixTime) -> Result<(), webpki::Error> {
    let read = X509::read(der).ok_or(webpki::Error::BadDer)?;
    holds((read.not_before, read.not_after), now)
}

pub(super) fn seconds(since_1970: i64) -> UnixTime {
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
