//! What OpenSSL would call wrong with a chain that webpki refused, by its numbers and at which depth: 0 is the peer's own
//! certificate.

use rustls_pki_types::{CertificateDer, UnixTime};

use super::judge::{Judge, seconds};
use super::{code, purposes};
use crate::certificate::X509;

/// The longest chain that is looked at.
const CHAIN_MAX: usize = 32;

impl Judge {
    /// What OpenSSL would find wrong with a chain that webpki refused for `error`, in the order in which it looks; at least
    /// one thing.
    pub(crate) fn faults(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
        error: &webpki::Error,
    ) -> Vec<VerifyError> {
        let Some((chain, end)) = self.chain(leaf, others) else {
            return vec![VerifyError { depth: 0, code: code::UNSPECIFIED }];
        };
        let last = chain.len() as u32 - 1;
        let mut faults = Vec::new();
        let mut add = |depth: u32, code: u32| faults.push(VerifyError { depth, code });
        match end {
            ChainEnd::Trusted => {}
            ChainEnd::SignsItself if last == 0 => add(0, code::SIGNS_ITSELF),
            ChainEnd::SignsItself => add(last, code::SIGNS_ITSELF_IN_CHAIN),
            ChainEnd::Known => add(last, code::NO_ISSUER),
            ChainEnd::Nobody => add(last, code::NO_LOCAL_ISSUER),
            ChainEnd::TooLong => add(last, code::CHAIN_TOO_LONG),
        }
        let mut before = 0;
        for (depth, read) in (0..).zip(&chain) {
            purposes::faults(read, self.purpose, depth, before).for_each(|fault| add(fault.depth, fault.code));
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
                    Some(first) if now > seconds(first.until()) => add(depth, code::LIST_EXPIRED),
                    Some(_) => {}
                }
                // One that signs itself is its own issuer.
                let issuer = chain.get(depth as usize + 1).or(Some(read).filter(|_| read.subject == read.issuer));
                if issuer.is_some_and(|issuer| lists.iter().any(|list| !list.is_by(&[*issuer], &self.algorithms))) {
                    add(depth, code::LIST_SIGNATURE);
                }
                if lists.iter().any(|list| list.names(read)) {
                    add(depth, code::REVOKED);
                }
            }
        }
        if matches!(end, ChainEnd::Nobody) && last == 0 {
            add(0, code::LEAF_UNVERIFIED);
        }
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        for (depth, read) in (0..last + 1).zip(&chain).collect::<Vec<_>>().into_iter().rev() {
            if depth > 0 && read.key_usage().is_some() && !read.may_sign_certificates() {
                add(depth, code::NOT_FOR_SIGNING);
            }
            if matches!(error, Error::InvalidSignatureForPublicKey) && end == ChainEnd::Trusted && depth == 0 {
                add(depth, code::BAD_SIGNATURE);
            }
            if seconds < read.not_before {
                add(depth, code::NOT_YET);
            } else if seconds > read.not_after {
                add(depth, code::EXPIRED);
            }
        }
        if faults.is_empty() {
            faults.push(VerifyError { depth: 0, code: code::UNSPECIFIED });
        }
        faults
    }

    /// The certificates from a peer's own to where the chain ends, by their names alone.
    fn chain<'c>(&'c self, leaf: &'c [u8], others: &'c [CertificateDer<'_>]) -> Option<(Vec<X509<'c>>, ChainEnd)> {
        let is_ours =
            |der: &[u8]| self.contents.iter().any(|content| content.certificates.iter().any(|ours| **ours == *der));
        let mut chain = vec![X509::read(leaf)?];
        let mut der = leaf;
        loop {
            let read = *chain.last()?;
            if read.subject == read.issuer {
                return Some((chain, if is_ours(der) { ChainEnd::Trusted } else { ChainEnd::SignsItself }));
            }
            if chain.len() == CHAIN_MAX {
                return Some((chain, ChainEnd::TooLong));
            }
            let ours = self.contents.iter().flat_map(|content| &content.certificates).map(|der| &**der);
            let issuer = ours.chain(others.iter().map(|der| &**der)).find_map(|der| {
                let found = X509::read(der)?;
                let is_named = found.subject == read.issuer;
                (is_named && is_key_of(&found, &read)).then_some((der, found))
            });
            let Some((next, found)) = issuer else {
                return Some((chain, if is_ours(der) { ChainEnd::Known } else { ChainEnd::Nobody }));
            };
            der = next;
            chain.push(found);
        }
    }
}

/// Whether the key of `issuer` is the one that signed `read`, as far as both name it.
fn is_key_of(issuer: &X509<'_>, read: &X509<'_>) -> bool {
    match (issuer.subject_key_id(), read.authority_key_id()) {
        (Some(has), Some(wanted)) => has == wanted,
        _ => true,
    }
}

/// One error in a chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct VerifyError {
    pub(crate) depth: u32,
    pub(crate) code: u32,
}

/// How a chain ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ChainEnd {
    /// At one that signs itself and is ours.
    Trusted,
    /// At one that signs itself and is not.
    SignsItself,
    /// At one of ours that somebody else signed.
    Known,
    /// At a peer's one that nobody we know signed.
    Nobody,
    /// Not at all.
    TooLong,
}
