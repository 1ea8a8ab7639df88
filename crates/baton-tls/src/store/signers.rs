//! Signers of the certificates that are in use: made when a handshake first needs one, and given up again, the least used
//! first, when there are too many.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::sign::CertifiedKey;

use crate::certificate::{Certificate, CertificateError};

/// Most signers kept at once. One of RSA takes some 8 KiB, one of ECDSA 4.
pub const MAX_SIGNERS: usize = 4096;

/// The bound on signers. The signers themselves are with their certificates, so that finding one costs no look-up.
#[derive(Debug)]
pub(crate) struct Signers {
    most: usize,
    /// Those that have a signer, in the order in which they will be asked to give it up.
    line: Mutex<VecDeque<Weak<Certificate>>>,
}

impl Signers {
    /// Keeps up to `most`.
    pub(crate) fn new(most: usize) -> Signers {
        Signers { most, line: Mutex::default() }
    }

    /// The signer of `certificate`.
    pub(crate) fn of(&self, certificate: &Arc<Certificate>) -> Result<Arc<CertifiedKey>, CertificateError> {
        if let Some(made) = certificate.cached_signer() {
            return Ok(made);
        }
        let made = certificate.make_signer()?;
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made one meanwhile.
        if let Some(kept) = certificate.cached_signer() {
            return Ok(kept);
        }
        let made = certificate.keep_signer(made);
        while line.len() >= self.most {
            let Some(first) = line.pop_front() else { break };
            if let Some(kept) = first.upgrade()
                && !kept.forget_signer()
            {
                line.push_back(first);
            }
        }
        line.push_back(Arc::downgrade(certificate));
        Ok(made)
    }

    /// How many are kept, at most.
    pub(crate) fn count(&self) -> usize {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
