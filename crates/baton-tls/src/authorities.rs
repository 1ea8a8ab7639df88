//! Whose certificates are accepted, of clients and of servers, and which of them are revoked: the files of `ca-file`,
//! `ca-verify-file` and `crl-file`, each under the name it has in the configuration. Their content can be replaced at any time;
//! whoever checks a peer looks for the newest.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwap;
use rustls::DistinguishedName;
use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, TrustAnchor};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use crate::certificate::der::{self, Der};
use crate::certificate::x509::time;
use crate::certificate::{X509, reason};
use crate::store::{FileKind, Files};

/// The name of the certificates that the system trusts.
pub const SYSTEM: &str = "@system-ca";

/// Where systems keep the certificates that they trust, in one file, unless `SSL_CERT_FILE` or `SSL_CERT_DIR` say otherwise.
const SYSTEM_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What is looked at in a directory.
const ENDINGS: [&str; 4] = ["pem", "crt", "cer", "crl"];

/// The most certificates and lists of one file or directory.
pub const AUTHORITIES_MAX: usize = 10_000;

/// What a file of authorities holds.
#[derive(Debug, Default)]
pub struct Authority {
    /// The certificates, in DER.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The lists of revoked certificates, in DER.
    pub lists: Vec<Vec<u8>>,
    /// Those of the certificates that sign themselves: where chains end.
    pub(crate) anchors: Vec<TrustAnchor<'static>>,
    /// Those of the certificates that somebody else signed: links of chains.
    pub(crate) between: Vec<CertificateDer<'static>>,
    /// The subjects of all certificates, as a client is told them.
    pub(crate) subjects: Vec<DistinguishedName>,
    /// What webpki reads of `lists`: those of version 2.
    pub(crate) revoked: Vec<CertRevocationList<'static>>,
    /// Until when each of `anchors` holds, and from when on: webpki does not look.
    pub(crate) spans: Vec<(i64, i64)>,
    /// What each of `lists` says.
    pub(crate) listed: Vec<RevocationFacts>,
}

/// What a list of revoked certificates says.
#[derive(Debug)]
pub(crate) struct RevocationFacts {
    /// Its issuer's name, in DER.
    pub(crate) issuer: Box<[u8]>,
    /// Until when it holds, in seconds since 1970.
    pub(crate) until: i64,
    pub(crate) serials: Serials,
}

/// Which certificates a list names.
#[derive(Debug)]
pub(crate) enum Serials {
    /// An index into [`Authority::revoked`].
    Known(usize),
    /// Those of a list of version 1, in order: webpki reads none.
    Old(Vec<Box<[u8]>>),
}

/// A file that cannot be used. Its text is a reason; [`AuthorityError::remedy`] says what to do.
#[derive(Debug)]
pub enum AuthorityError {
    /// It cannot be read.
    Read(io::Error),
    /// A block of it, counted from 1, is not what it says.
    Block(usize, &'static str),
    /// It is no PEM.
    Pem(String),
    /// There is neither a certificate nor a list of revoked ones in it.
    Empty,
    /// It has more than [`AUTHORITIES_MAX`] of them.
    TooMany,
    /// `@system-ca`, and this system keeps no such file where others do.
    NoSystem,
}

impl AuthorityError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            AuthorityError::Read(error) if error.kind() == io::ErrorKind::NotFound => "use an existing file",
            AuthorityError::Read(_) => "make it readable for the user that starts Baton",
            AuthorityError::Block(..) => "check it with `openssl x509` or `openssl crl`, or remove it",
            AuthorityError::Pem(_) => "copy it again: it is truncated or damaged",
            AuthorityError::Empty => "add certificates or revocation lists (CRL) in PEM format",
            AuthorityError::TooMany => "remove those that are not needed",
            AuthorityError::NoSystem => "use a file, or set SSL_CERT_FILE or SSL_CERT_DIR",
        }
    }

    /// The whole sentence about a file that `word` names, with the remedy and without a full stop.
    pub fn about(&self, word: &str, path: &Path) -> String {
        format!("'{word}' : '{}' cannot be used: {self}: {}", path.display(), self.remedy())
    }
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorityError::Read(error) => write!(out, "it cannot be read: {}", reason(error)),
            AuthorityError::Block(at, what) => write!(out, "block {at} is not a valid {what}"),
            AuthorityError::Pem(why) => write!(out, "it is not valid PEM: {why}"),
            AuthorityError::Empty => out.write_str("it has neither a certificate nor a revocation list"),
            AuthorityError::TooMany => {
                write!(out, "it has more than {AUTHORITIES_MAX} certificates or revocation lists")
            }
            AuthorityError::NoSystem => write!(out, "this system has none of {}", SYSTEM_FILES.join(", ")),
        }
    }
}

impl std::error::Error for AuthorityError {}

impl Authority {
    /// Reads PEM text: certificates and lists of revoked ones; other blocks are passed over.
    ///
    /// # Errors
    /// When something in it cannot be read, or there is nothing in it.
    pub fn read(text: &[u8]) -> Result<Authority, AuthorityError> {
        let mut it = Authority::default();
        it.add(text)?;
        it.judged()
    }

    fn add(&mut self, text: &[u8]) -> Result<(), AuthorityError> {
        for (at, block) in <(SectionKind, Vec<u8>)>::pem_slice_iter(text).enumerate() {
            let (kind, der) = block.map_err(|error| AuthorityError::Pem(format!("{error:?}")))?;
            match kind {
                SectionKind::Certificate => self.add_certificate(at + 1, der)?,
                SectionKind::Crl => {
                    let wrong = || AuthorityError::Block(at + 1, "revocation list");
                    let (mut listed, version) = read_list(&der).ok_or_else(wrong)?;
                    if version > 1 {
                        listed.serials = Serials::Known(self.revoked.len());
                        self.revoked.push(OwnedCertRevocationList::from_der(&der).map_err(|_| wrong())?.into());
                    }
                    self.listed.push(listed);
                    self.lists.push(der);
                }
                _ => {}
            }
            if self.certificates.len() + self.lists.len() > AUTHORITIES_MAX {
                return Err(AuthorityError::TooMany);
            }
        }
        Ok(())
    }

    fn add_certificate(&mut self, at: usize, der: Vec<u8>) -> Result<(), AuthorityError> {
        let wrong = || AuthorityError::Block(at, "certificate");
        let (subject, issuer, span) = {
            let read = X509::read(&der).ok_or_else(wrong)?;
            (read.subject.to_vec(), read.issuer.to_vec(), (read.not_before, read.not_after))
        };
        let der = CertificateDer::from(der);
        let signs_itself = subject == issuer;
        if signs_itself {
            self.anchors.push(webpki::anchor_from_trusted_cert(&der).map_err(|_| wrong())?.to_owned());
            self.spans.push(span);
        } else {
            self.between.push(der.clone());
        }
        self.subjects.push(DistinguishedName::from(subject));
        self.certificates.push(der);
        Ok(())
    }

    fn judged(self) -> Result<Authority, AuthorityError> {
        match self.certificates.is_empty() && self.lists.is_empty() {
            true => Err(AuthorityError::Empty),
            false => Ok(self),
        }
    }

    /// Reads what a `ca-file`, `ca-verify-file` or `crl-file` names: a file, the files of a directory, or [`SYSTEM`].
    ///
    /// # Errors
    /// As [`Authority::read`], and when there is no such file.
    pub fn load(path: &Path, files: &dyn Files) -> Result<Authority, AuthorityError> {
        let mut it = Authority::default();
        if path == Path::new(SYSTEM) {
            it.add_system(files)?;
            return it.judged();
        }
        match files.find(path).map_err(AuthorityError::Read)? {
            FileKind::File(_) | FileKind::Other => it.add_file(path, files)?,
            FileKind::Directory => it.add_directory(path, files)?,
        }
        it.judged()
    }

    fn add_file(&mut self, path: &Path, files: &dyn Files) -> Result<(), AuthorityError> {
        let mut text = Vec::new();
        files.read(path, &mut text).map_err(AuthorityError::Read)?;
        self.add(&text)
    }

    fn add_directory(&mut self, path: &Path, files: &dyn Files) -> Result<(), AuthorityError> {
        let listed = files.list(path).map_err(AuthorityError::Read)?;
        let mut names: Vec<_> = listed.into_iter().map(|listed| listed.name).collect();
        names.sort_unstable();
        let is_wanted = |name: &Path| {
            let ending = name.extension().and_then(|ending| ending.to_str());
            let hidden = name.as_os_str().as_encoded_bytes().starts_with(b".");
            !hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending))
        };
        let mut wanted = names.iter().filter(|name| is_wanted(Path::new(name)));
        wanted.try_for_each(|name| self.add_file(&path.join(name), files))
    }

    /// What the system trusts, as OpenSSL finds it: in one file, or in a directory.
    fn add_system(&mut self, files: &dyn Files) -> Result<(), AuthorityError> {
        if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
            return self.add_file(Path::new(&file), files);
        }
        if let Some(directory) = std::env::var_os("SSL_CERT_DIR") {
            return self.add_directory(Path::new(&directory), files);
        }
        let found = SYSTEM_FILES.iter().map(Path::new).find(|path| files.find(path).is_ok());
        self.add_file(found.ok_or(AuthorityError::NoSystem)?, files)
    }
}

/// Reads a list of revoked certificates (RFC 5280 5.1), and of which version it is. Serials are only those of version 1.
fn read_list(list: &[u8]) -> Option<(RevocationFacts, u8)> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let mut inside = Der::new(list).enter(der::SEQUENCE)?.enter(der::SEQUENCE)?;
    let version = inside.optional(der::INTEGER)?.map_or(1, |_| 2);
    inside.take(der::SEQUENCE)?;
    let issuer = inside.element(der::SEQUENCE)?.whole.into();
    time(&mut inside)?;
    // Without one it holds for ever.
    let until = match inside.peek() {
        Some(UTC_TIME | GENERALIZED_TIME) => time(&mut inside)?,
        _ => i64::MAX,
    };
    let mut serials = Vec::new();
    if version == 1 && !inside.is_empty() {
        let mut entries = inside.enter(der::SEQUENCE)?;
        while !entries.is_empty() {
            serials.push(entries.enter(der::SEQUENCE)?.take(der::INTEGER)?.into());
        }
        serials.sort_unstable();
    }
    Some((RevocationFacts { issuer, until, serials: Serials::Old(serials) }, version))
}

/// The place of a file's content: it stays while contents come and go.
#[derive(Debug)]
pub struct AuthorityFile {
    path: PathBuf,
    content: ArcSwap<Authority>,
    /// Counted up with every other content, behind it.
    edition: AtomicU64,
}

impl AuthorityFile {
    /// What the configuration calls it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in use.
    pub fn content(&self) -> Arc<Authority> {
        self.content.load_full()
    }

    /// The number of the content: another one has a higher number. Who reads it first and the content after it never takes
    /// an old content for a new one.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// Uses another content, for every peer from now on.
    pub(crate) fn replace(&self, content: Authority) {
        self.put(Arc::new(content));
    }

    fn new(path: &Path, content: Arc<Authority>) -> AuthorityFile {
        AuthorityFile { path: path.to_owned(), content: ArcSwap::new(content), edition: AtomicU64::default() }
    }

    fn put(&self, content: Arc<Authority>) {
        self.content.store(content);
        self.edition.fetch_add(1, Ordering::Release);
    }
}

type ByPath = BTreeMap<PathBuf, Arc<AuthorityFile>>;

/// All such files of a process, over all of its configurations.
#[derive(Debug, Default)]
pub struct Authorities {
    files: RwLock<ByPath>,
}

/// The files of a configuration that may come into use.
#[derive(Debug, Default)]
pub struct UpcomingAuthorities {
    files: ByPath,
    changed: Vec<Changed>,
}

/// A file that is in use and holds something else now.
#[derive(Debug)]
struct Changed {
    file: Arc<AuthorityFile>,
    /// What was in use when it was read. Where it is not any more at the commit, an operator brought a newer one meanwhile.
    before: Arc<Authority>,
    content: Authority,
}

impl Authorities {
    /// Reads what a configuration names. Nothing is in use before [`Authorities::commit`].
    ///
    /// # Errors
    /// Every file that cannot be used.
    pub fn prepare<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a Path>,
        files: &dyn Files,
    ) -> Result<UpcomingAuthorities, Vec<(PathBuf, AuthorityError)>> {
        let mut upcoming = UpcomingAuthorities::default();
        let mut faults = Vec::new();
        for path in paths {
            if upcoming.files.contains_key(path) || faults.iter().any(|(other, _)| other == path) {
                continue;
            }
            match Authority::load(path, files) {
                Ok(content) => upcoming.add(self.find(path), path, content),
                Err(fault) => faults.push((path.to_owned(), fault)),
            }
        }
        if faults.is_empty() { Ok(upcoming) } else { Err(faults) }
    }

    /// Puts them in use, and forgets those that nobody names any more. What an operator had set before the files were read gives
    /// way to them.
    pub fn commit(&self, upcoming: UpcomingAuthorities) {
        for Changed { file, before, content } in upcoming.changed {
            if Arc::ptr_eq(&file.content(), &before) {
                file.replace(content);
            }
        }
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = upcoming.files;
    }

    /// The file of that name.
    pub fn find(&self, path: &Path) -> Option<Arc<AuthorityFile>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// All files, by name.
    pub fn list(&self) -> Vec<Arc<AuthorityFile>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Adds a file that an operator brings, for `crt-list` lines that name it later; one of that name gets the content.
    pub fn insert(&self, path: &Path, content: Authority) -> Arc<AuthorityFile> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let content = Arc::new(content);
        if let Some(file) = files.get(path) {
            file.put(content);
            return file.clone();
        }
        let file = Arc::new(AuthorityFile::new(path, content));
        files.insert(path.to_owned(), file.clone());
        file
    }

    /// Forgets a file. Who checks peers by it goes on doing so.
    pub fn remove(&self, path: &Path) -> bool {
        self.files.write().unwrap_or_else(PoisonError::into_inner).remove(path).is_some()
    }
}

impl UpcomingAuthorities {
    fn add(&mut self, known: Option<Arc<AuthorityFile>>, path: &Path, content: Authority) {
        let file = match known {
            Some(file) => {
                let before = file.content();
                if before.certificates != content.certificates || before.lists != content.lists {
                    self.changed.push(Changed { file: file.clone(), before, content });
                }
                file
            }
            None => Arc::new(AuthorityFile::new(path, Arc::new(content))),
        };
        self.files.insert(path.to_owned(), file);
    }

    /// The file of that name.
    pub fn find(&self, path: &Path) -> Option<&Arc<AuthorityFile>> {
        self.files.get(path)
    }
}
