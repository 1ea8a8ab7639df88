//! The store with real files: what is found under a name, what is refused, what a change costs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{BindTls, CrtSource, Source};
use baton_tls::store::{Prepared, Problem, SystemFiles, Wanted};
use baton_tls::{Store, Verifies};
use rcgen::{CertificateParams, DnType, KeyPair};
use tempfile::TempDir;

/// A certificate for `names` that signs itself, and its key, in PEM.
fn issue(names: &[&str]) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.remove(DnType::CommonName);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

struct World {
    folder: TempDir,
    store: Arc<Store>,
}

impl World {
    fn new() -> World {
        World { folder: tempfile::tempdir().unwrap(), store: Store::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn site(&self, name: &str, names: &[&str]) {
        let (certificate, key) = issue(names);
        self.write(name, certificate + &key);
    }

    fn prepare(&self, sources: Vec<CrtSource>) -> Result<Prepared, Vec<Problem>> {
        let tls = Arc::new(BindTls { certificates: sources, ..BindTls::default() });
        let source = Source::default();
        let wanted = Wanted { binds: vec![(&tls, &source)], ..Wanted::default() };
        self.store.prepare(&wanted, &SystemFiles::default())
    }

    fn crt(&self, name: &str) -> CrtSource {
        CrtSource::Crt { path: self.path(name), default: false }
    }
}

#[test]
fn a_directory_is_found_by_name_and_its_first_file_is_the_default() {
    let world = World::new();
    world.site("b.pem", &["b.example", "*.w.example"]);
    world.site("a.pem", &["A.example"]);
    world.write(".hidden", "nothing");
    world.write("a.pem.ocsp", "");
    let prepared = world.prepare(vec![world.crt("")]).unwrap();
    let index = prepared.indexes().remove(0);
    prepared.commit();
    let found = |name: Option<&str>| {
        let found = index.find(name, Verifies::ALL).unwrap();
        let entry =
            world.store.entries().into_iter().find(|entry| Arc::ptr_eq(&entry.certificate(), &found.certificate));
        assert!(found.signer().is_ok());
        (entry.unwrap().path().file_name().unwrap().to_owned().into_string().unwrap(), found.by_default)
    };
    for (name, file, by_default) in [
        (Some("a.example"), "a.pem", false),
        (Some("B.EXAMPLE"), "b.pem", false),
        (Some("x.w.example"), "b.pem", false),
        (Some("y.x.w.example"), "a.pem", true),
        (Some("w.example"), "a.pem", true),
        (None, "a.pem", true),
    ] {
        assert_eq!(found(name), (file.to_owned(), by_default), "{name:?}");
    }
    assert!(world.store.entry(Path::new("/nowhere")).is_none());
    assert_eq!(world.store.figures().certificates, 2);
}

#[test]
fn every_fault_is_told_at_once_and_nothing_is_in_use() {
    let world = World::new();
    world.site("good.pem", &["a.example"]);
    world.write("empty.pem", "");
    world.write("keyless.pem", issue(&["b.example"]).0);
    world.write("other.pem", issue(&["c.example"]).0 + &issue(&["d.example"]).1);
    let sources = ["good.pem", "empty.pem", "keyless.pem", "other.pem", "missing.pem"];
    let problems = world.prepare(sources.map(|name| world.crt(name)).to_vec()).unwrap_err();
    let said: Vec<_> = problems.iter().map(|problem| problem.fault.to_string()).collect();
    let expected = [
        "is empty",
        "has no private key",
        "its private key belongs to another certificate",
        "cannot be read: no such file",
    ];
    assert_eq!(said, expected);
    assert!(world.store.entries().is_empty());
}
