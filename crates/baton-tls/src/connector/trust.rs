//! Whom we believe who a server is: `ca-file` and `crl-file`.

use std::path::{Path, PathBuf};

use rustls::CertificateError;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, Error, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};
use x509_parser::certificate::X509Certificate;

use super::{Problem, read as read_file};
use crate::store::{Files, Found};

/// Where systems keep the certificates that they trust, in one file (`@system-ca`).
const SYSTEM_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The most certificates above a server's own that are looked at; more of them are not sent by anybody who means well.
const CHAIN_MAX: usize = 32;

/// Certificates that are trusted, and what their owners have taken back.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Of authorities that signed themselves: where a chain may end.
    anchors: Vec<TrustAnchor<'static>>,
    /// Their certificates. A server may show one of them as its own.
    roots: Vec<CertificateDer<'static>>,
    /// Further certificates of `ca-file`: links that a server may leave out.
    between: Vec<CertificateDer<'static>>,
    /// As they were read, for comparisons.
    lists: Vec<CertificateRevocationListDer<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
}

impl PartialEq for Trust {
    fn eq(&self, other: &Trust) -> bool {
        self.roots == other.roots && self.between == other.between && self.lists == other.lists
    }
}

impl Trust {
    /// Reads `ca-file` and `crl-file`.
    pub fn read(files: &dyn Files, ca: Option<&Path>, crl: Option<&Path>) -> Result<Trust, Problem> {
        let mut trust = Trust::default();
        for path in ca.map(|path| sources(files, path)).transpose()?.unwrap_or_default() {
            let content = read_file(files, &path).map_err(|error| Problem::unreadable("ca-file", &path, &error))?;
            trust.add(&path, &content)?;
        }
        if let Some(path) = ca.filter(|_| trust.roots.is_empty() && trust.between.is_empty()) {
            return Err(Problem(format!("Couldn't open the ca-file '{}' (no certificate found)", path.display())));
        }
        if let Some(path) = crl {
            let content = read_file(files, path).map_err(|error| Problem::unreadable("crl-file", path, &error))?;
            trust.revoke(path, &content)?;
        }
        Ok(trust)
    }

    fn add(&mut self, path: &Path, content: &[u8]) -> Result<(), Problem> {
        for (number, found) in CertificateDer::pem_slice_iter(content).enumerate() {
            let fault = |why: String| {
                Problem(format!("certificate {} of the ca-file '{}' cannot be used: {why}", number + 1, path.display()))
            };
            let certificate = found.map_err(|error| fault(error.to_string()))?;
            let own = {
                let (_, parsed) =
                    x509_parser::parse_x509_certificate(&certificate).map_err(|error| fault(error.to_string()))?;
                parsed.subject().as_raw() == parsed.issuer().as_raw()
            };
            if !own {
                self.between.push(certificate);
                continue;
            }
            let anchor = webpki::anchor_from_trusted_cert(&certificate).map_err(|error| fault(error.to_string()))?;
            self.anchors.push(anchor.to_owned());
            self.roots.push(certificate);
        }
        Ok(())
    }

    fn revoke(&mut self, path: &Path, content: &[u8]) -> Result<(), Problem> {
        for (number, found) in CertificateRevocationListDer::pem_slice_iter(content).enumerate() {
            let fault = |why: String| {
                Problem(format!("list {} of the crl-file '{}' cannot be used: {why}", number + 1, path.display()))
            };
            let list = found.map_err(|error| fault(error.to_string()))?;
            let owned = OwnedCertRevocationList::from_der(&list).map_err(|error| fault(error.to_string()))?;
            self.revoked.push(owned.into());
            self.lists.push(list);
        }
        match self.lists.is_empty() {
            true => Err(Problem(format!("Couldn't open the crl-file '{}' (no crl found)", path.display()))),
            false => Ok(()),
        }
    }

    /// Whether a server may be who it says it is, whatever its name: a chain leads to one of the authorities, all of it is valid
    /// now and, where lists say so, not taken back.
    pub fn verify(
        &self,
        own: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &[&dyn rustls_pki_types::SignatureVerificationAlgorithm],
    ) -> Result<(), CertificateError> {
        if self.roots.iter().any(|root| **root == **own) {
            let (_, parsed) = x509_parser::parse_x509_certificate(own).map_err(|_| CertificateError::BadEncoding)?;
            return in_time(&parsed, now);
        }
        let entity = EndEntityCert::try_from(own).map_err(certificate_error)?;
        let chain: Vec<_> = sent.iter().take(CHAIN_MAX).chain(&self.between).cloned().collect();
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let usage = KeyUsage::server_auth();
        let path = entity
            .verify_for_usage(algorithms, &self.anchors, &chain, now, usage, revocation, None)
            .map_err(certificate_error)?;
        self.anchor_holds(path.anchor(), now)
    }

    /// Whether an authority's certificate is in its time itself, which webpki does not look at: one of them, where it was made
    /// anew with the same key.
    fn anchor_holds(&self, anchor: &TrustAnchor<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let mut outcome = Ok(());
        for (_, root) in self.anchors.iter().zip(&self.roots).filter(|(known, _)| *known == anchor) {
            let (_, parsed) = x509_parser::parse_x509_certificate(root).map_err(|_| CertificateError::BadEncoding)?;
            outcome = in_time(&parsed, now);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

/// The files that `ca-file` stands for.
fn sources(files: &dyn Files, path: &Path) -> Result<Vec<PathBuf>, Problem> {
    if path == Path::new("@system-ca") {
        return system(files);
    }
    match files.find(path) {
        Ok(Found::Directory) => inside(files, path),
        Ok(_) | Err(_) => Ok(vec![path.to_owned()]),
    }
}

/// The certificates' files of a directory, by name.
fn inside(files: &dyn Files, dir: &Path) -> Result<Vec<PathBuf>, Problem> {
    let listed = files.list(dir).map_err(|error| Problem::unreadable("ca-file", dir, &error))?;
    let mut paths: Vec<PathBuf> =
        listed.into_iter().map(|entry| dir.join(entry.name)).filter(|path| is_wanted(path)).collect();
    paths.sort();
    Ok(paths)
}

/// What of a directory is read, as HAProxy does.
fn is_wanted(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension =
        path.extension().is_some_and(|extension| ["pem", "crt", "cer"].iter().any(|known| extension == *known));
    extension && !hidden
}

fn system(files: &dyn Files) -> Result<Vec<PathBuf>, Problem> {
    if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
        return Ok(vec![file.into()]);
    }
    if let Some(dir) = std::env::var_os("SSL_CERT_DIR") {
        return inside(files, Path::new(&dir));
    }
    let found = SYSTEM_FILES.iter().map(PathBuf::from).find(|path| files.find(path).is_ok());
    found.map(|path| vec![path]).ok_or_else(|| {
        Problem(format!(
            "'ca-file @system-ca' : this system keeps none of {}; name its file, or set SSL_CERT_FILE or SSL_CERT_DIR",
            SYSTEM_FILES.join(", ")
        ))
    })
}

fn in_time(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        Err(CertificateError::NotValidYet)
    } else if now > certificate.validity().not_after.timestamp() {
        Err(CertificateError::Expired)
    } else {
        Ok(())
    }
}

/// What the alert and the log say.
fn certificate_error(error: Error) -> CertificateError {
    match error {
        Error::BadDer | Error::BadDerTime | Error::TrailingData(_) => CertificateError::BadEncoding,
        Error::CertExpired { .. } | Error::InvalidCertValidity => CertificateError::Expired,
        Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        Error::CertRevoked => CertificateError::Revoked,
        Error::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        Error::CrlExpired { .. } => CertificateError::ExpiredRevocationList,
        Error::UnknownIssuer => CertificateError::UnknownIssuer,
        Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        Error::UnsupportedCriticalExtension => CertificateError::UnhandledCriticalExtension,
        other => CertificateError::Other(rustls::OtherError(std::sync::Arc::new(other))),
    }
}
