//! Issuers' certificates, of which thousands of certificates share the same few: each is kept once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::x509::X509;

/// The issuers that are sent with a certificate, the nearest first.
pub type Chain = Arc<[Arc<[u8]>]>;

/// Where issuers' certificates are kept while somebody uses them.
#[derive(Debug, Default)]
pub struct Chains {
    kept: Mutex<ChainCache>,
    sending: Arc<Sending>,
}

/// What of a chain is sent, for all certificates.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// `ssl-skip-self-issued-ca`.
    skips_roots: AtomicBool,
}

impl Sending {
    /// Those of the issuers that are sent. A client that trusts a root has it; all other clients have no use for it.
    pub(crate) fn of<'c>(&self, chain: &'c [Arc<[u8]>]) -> impl Iterator<Item = &'c Arc<[u8]>> {
        let skips = self.skips_roots.load(Ordering::Acquire);
        let is_root = |der: &[u8]| X509::read(der).is_some_and(|certificate| certificate.is_self_issued());
        chain.iter().filter(move |der| !(skips && is_root(der)))
    }
}

#[derive(Debug, Default)]
struct ChainCache {
    certificates: HashSet<Arc<[u8]>>,
    chains: HashSet<Chain>,
    /// How many there were when it was tidied last.
    tidied: usize,
}

/// So many more than last time are kept before it is tidied automatically.
const UNTIDY: usize = 64;

impl Chains {
    /// Whether roots are sent with the certificates behind them; says whether that is new.
    pub(crate) fn skip_roots(&self, skips: bool) -> bool {
        self.sending.skips_roots.swap(skips, Ordering::AcqRel) != skips
    }

    /// What is sent, as it is said last.
    pub(crate) fn sending(&self) -> Arc<Sending> {
        self.sending.clone()
    }

    /// The certificate in `der`, kept from now on; `None` when it is none.
    pub(crate) fn certificate(&self, der: &[u8]) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.certificates.get(der) {
            return Some(known.clone());
        }
        X509::read(der)?;
        let new: Arc<[u8]> = der.into();
        kept.certificates.insert(new.clone());
        Some(new)
    }

    /// The chain of these certificates.
    pub(crate) fn chain(&self, certificates: &[Arc<[u8]>]) -> Chain {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.chains.get(certificates) {
            return known.clone();
        }
        let new: Chain = certificates.into();
        kept.chains.insert(new.clone());
        new
    }

    /// Forgets what nobody uses any more.
    pub(crate) fn tidy(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).tidy();
    }

    /// Drops unused entries once there are twice as many as last time: after single changes.
    pub(crate) fn tidy_some(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.certificates.len() + kept.chains.len() > 2 * kept.tidied + UNTIDY {
            kept.tidy();
        }
    }

    /// How many different certificates are kept, and the bytes they take.
    pub(crate) fn figures(&self) -> (usize, usize) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.certificates.len(), kept.certificates.iter().map(|certificate| certificate.len()).sum())
    }
}

impl ChainCache {
    fn tidy(&mut self) {
        self.chains.retain(|chain| Arc::strong_count(chain) > 1);
        self.certificates.retain(|certificate| Arc::strong_count(certificate) > 1);
        self.tidied = self.certificates.len() + self.chains.len();
    }
}
