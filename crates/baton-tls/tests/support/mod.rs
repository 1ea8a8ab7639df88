//! A store over a folder of certificates that are made on the fly.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use baton_model::{BindTls, CrtLine, CrtSource, Source};
use baton_tls::store::{CertificateProblem, Entry, Index, Prepared, SystemFiles, Wanted};
use baton_tls::{Store, Verifies};
use rcgen::{CertificateParams, DnType, KeyPair, SignatureAlgorithm};
use tempfile::TempDir;

/// A certificate for `names` that signs itself, and its key, in PEM.
pub fn issue(names: &[&str]) -> (String, String) {
    issue_with(&rcgen::PKCS_ECDSA_P256_SHA256, None, names)
}

pub fn issue_with(kind: &'static SignatureAlgorithm, common: Option<&str>, names: &[&str]) -> (String, String) {
    let key = if kind == &rcgen::PKCS_ED25519 {
        // OpenSSL 3.0 does not read the newer form that rcgen writes (RFC 5958).
        let made = Command::new("openssl").args(["genpkey", "-algorithm", "ed25519"]).output();
        KeyPair::from_pem(&String::from_utf8(made.expect("openssl is installed by scripts/setup").stdout).unwrap())
            .unwrap()
    } else {
        KeyPair::generate_for(kind).unwrap()
    };
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.remove(DnType::CommonName);
    if let Some(common) = common {
        params.distinguished_name.push(DnType::CommonName, common);
    }
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

pub struct World {
    pub folder: TempDir,
    pub store: Arc<Store>,
}

impl World {
    pub fn new() -> World {
        World { folder: tempfile::tempdir().unwrap(), store: Store::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub fn site(&self, name: &str, names: &[&str]) {
        let (certificate, key) = issue(names);
        self.write(name, certificate + &key);
    }

    pub fn prepare(&self, sources: Vec<CrtSource>) -> Result<Prepared, Vec<CertificateProblem>> {
        self.prepare_with(sources, |_| ())
    }

    pub fn prepare_with<'a>(
        &self,
        sources: Vec<CrtSource>,
        with: impl FnOnce(&mut Wanted<'a>),
    ) -> Result<Prepared, Vec<CertificateProblem>> {
        let tls = Arc::new(BindTls { certificates: sources, ..BindTls::default() });
        let source = Source::default();
        let mut more = Wanted::default();
        with(&mut more);
        let wanted = Wanted { binds: vec![(&tls, &source)], ..more };
        self.store.prepare(&wanted, &SystemFiles::default())
    }

    pub fn crt(&self, name: &str) -> CrtSource {
        CrtSource::Crt { path: self.path(name), default: false }
    }
}

impl World {
    /// The answer to a client that can verify everything: the file's name, and whether it is the default.
    pub fn found(&self, index: &Index, name: Option<&str>) -> (String, bool) {
        self.found_by(index, name, Verifies::ALL)
    }

    pub fn found_by(&self, index: &Index, name: Option<&str>, client: Verifies) -> (String, bool) {
        let Some(found) = index.find(name, client) else { return ("nothing".to_owned(), true) };
        assert!(found.signer().is_ok(), "{name:?}");
        let is_it = |entry: &Arc<Entry>| Arc::ptr_eq(&entry.certificate(), &found.certificate);
        let entry = self.store.entries().into_iter().find(is_it).expect("what is shown is in the store");
        (entry.path().file_name().unwrap().to_str().unwrap().to_owned(), found.by_default)
    }

    /// Prepares and commits.
    pub fn load(&self, sources: Vec<CrtSource>) -> Arc<Index> {
        let prepared = self.prepare(sources).unwrap_or_else(|problems| panic!("{problems:?}"));
        let index = prepared.indexes().remove(0);
        prepared.commit();
        index
    }

    pub fn list(&self, name: &str, lines: &[(&str, &[&str])]) -> CrtSource {
        let line = |(file, filters): &(&str, &[&str])| CrtLine {
            crt: self.path(file),
            filters: filters.iter().map(|filter| (*filter).to_owned()).collect(),
            ..CrtLine::default()
        };
        CrtSource::List { path: self.path(name), lines: lines.iter().map(line).collect() }
    }
}
