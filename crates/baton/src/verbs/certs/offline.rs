//! Certificates in files, judged as the running process judges them.

use std::path::PathBuf;

use baton_control::protocol::{CertificateFacts, RefusedCertificate};
use baton_tls::store::{FileKind, Files, Store, SystemFiles, is_certificate};

/// What was found.
#[derive(Debug, Default)]
pub struct OfflineCheck {
    /// What can be used.
    pub certificates: Vec<CertificateFacts>,
    /// What cannot.
    pub refused: Vec<RefusedCertificate>,
}

/// Reads files, and the certificates of directories.
pub fn judge(paths: &[PathBuf]) -> Result<OfflineCheck, String> {
    let (store, files) = (Store::new(), SystemFiles::default());
    let mut judged = OfflineCheck::default();
    for path in paths {
        let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut names = match files.find(path).map_err(wrong)? {
            FileKind::Directory => {
                let listed = files.list(path).map_err(wrong)?.into_iter();
                let listed = listed.filter(|listed| listed.is_file != Some(false) && is_certificate(&listed.name));
                listed.map(|listed| path.join(listed.name)).collect()
            }
            FileKind::File(_) | FileKind::Other => vec![path.clone()],
        };
        names.sort();
        for name in names {
            match store.judge(&name, &files) {
                Ok(certificate) => judged.certificates.push(CertificateFacts::of(&name, &certificate, None)),
                Err(problem) => judged.refused.push(RefusedCertificate::of(&problem)),
            }
        }
    }
    Ok(judged)
}
