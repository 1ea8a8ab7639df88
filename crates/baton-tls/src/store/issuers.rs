//! `issuers-chain-path`: a directory of chains. A certificate that comes without its issuers gets the chain whose first
//! certificate issued it, by name and by key identifier (RFC 5280 4.2.1.1).

use std::collections::HashMap;
use std::path::Path;

use super::Note;
use super::files::{Files, Stamps};
use crate::certificate::{Chain, Chains, Parts, X509};

/// The chains of a directory.
#[derive(Debug, Default)]
pub(crate) struct Issuers {
    /// By the subject of the first certificate.
    by_subject: HashMap<Box<[u8]>, Vec<Chain>>,
    /// Differs when the files do.
    pub(crate) fingerprint: u64,
}

impl Issuers {
    /// Reads every file of a directory. One that holds no chain is left out and told.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(crate) fn read(
        directory: &Path,
        files: &dyn Files,
        chains: &Chains,
        notes: &mut Vec<Note>,
    ) -> std::io::Result<Issuers> {
        let mut names: Vec<_> =
            files.list(directory)?.into_iter().filter(|found| found.is_file != Some(false)).collect();
        names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let (mut issuers, mut stamps) = (Issuers::default(), Stamps::new());
        let (mut text, mut parts) = (Vec::new(), Parts::default());
        for name in names {
            let path = directory.join(name.name);
            let read = files.read(&path, &mut text).map_err(|error| error.to_string()).and_then(|stamp| {
                stamps.add(&path, Some(stamp));
                parts.clear();
                parts.read_bundle(&text, chains).map_err(|fault| fault.to_string())
            });
            let first =
                read.and_then(|()| chains.certificate(&parts.leaf).ok_or_else(|| "holds no certificate".to_owned()));
            match first {
                Ok(first) => {
                    let Some(read) = X509::read(&first) else { continue };
                    let same = issuers.by_subject.entry(read.subject.into()).or_default();
                    parts.chain.insert(0, first.clone());
                    same.push(chains.chain(&parts.chain));
                }
                Err(reason) => notes.push(Note { source: None, path, text: format!("{reason}; it is ignored") }),
            }
        }
        issuers.fingerprint = stamps.fingerprint();
        Ok(issuers)
    }

    /// Gives a certificate without issuers those that it has here.
    pub(crate) fn complete(&self, parts: &mut Parts) {
        if self.by_subject.is_empty() || !parts.chain.is_empty() {
            return;
        }
        let Some(leaf) = X509::read(&parts.leaf) else { return };
        let Some(chains) = self.by_subject.get(leaf.issuer) else { return };
        let wanted = leaf.authority_key_id();
        let is_it = |chain: &&Chain| {
            let has = X509::read(&chain[0]).and_then(|issuer| issuer.subject_key_id());
            wanted.is_none() || has.is_none() || wanted == has
        };
        if let Some(chain) = chains.iter().find(is_it) {
            parts.chain.extend(chain.iter().cloned());
        }
    }
}
