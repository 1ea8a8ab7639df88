//! What we show a server that asks who we are: `crt`.

use std::path::{Path, PathBuf};

use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::{Problem, read as read_file};
use crate::store::Files;

/// Reads a certificate, what follows it of its chain, and its key, which may stand in a file of the same name with `.key` behind.
pub(super) fn read(files: &dyn Files, path: &Path) -> Result<CertifiedKey, Problem> {
    let content = read_file(files, path).map_err(|error| Problem::unreadable("certificate", path, &error))?;
    let chain = CertificateDer::pem_slice_iter(&content)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Problem(format!("'{}' is no PEM file ({error})", path.display())))?;
    if chain.is_empty() {
        return Err(Problem(format!("no certificate found in '{}'", path.display())));
    }
    let key = match PrivateKeyDer::from_pem_slice(&content) {
        Ok(key) => key,
        Err(_) => beside(files, path)?,
    };
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| {
        let why = match error {
            rustls::Error::InconsistentKeys(_) => "the private key is not the one of the certificate".to_string(),
            other => other.to_string(),
        };
        Problem(format!("'{}' cannot be used: {why}", path.display()))
    })
}

fn beside(files: &dyn Files, path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let mut name = path.as_os_str().to_owned();
    name.push(".key");
    let name = PathBuf::from(name);
    let missing = || Problem(format!("no private key found in '{}' nor in '{}'", path.display(), name.display()));
    let content = read_file(files, &name).map_err(|_| missing())?;
    PrivateKeyDer::from_pem_slice(&content).map_err(|_| missing())
}
