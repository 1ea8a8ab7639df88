//! What is wrong, and where it was asked for.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use baton_model::Source;

use crate::certificate::CertificateError;

/// A certificate that cannot be used.
#[derive(Clone, Debug)]
pub struct CertificateProblem {
    /// Where the configuration names it; `None`: nowhere, somebody brought it while Baton ran.
    pub source: Option<Source>,
    /// The certificate's name: its path, or `@STORE/ALIAS`.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: CertificateError,
    /// When it was found.
    pub at: SystemTime,
}

/// Something about a file that is left out, and does not keep the rest from being used.
#[derive(Clone, Debug)]
pub struct Note {
    /// Where the configuration names the certificate.
    pub source: Option<Source>,
    /// The file.
    pub path: PathBuf,
    /// What is the matter with it.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}': {}", self.path.display(), self.text)
    }
}

impl CertificateProblem {
    /// Found now.
    pub(crate) fn new(source: Option<Source>, path: PathBuf, fault: CertificateError) -> CertificateProblem {
        CertificateProblem { source, path, fault, at: SystemTime::now() }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        self.fault.remedy()
    }
}

impl fmt::Display for CertificateProblem {
    /// Without the place and the remedy: `certificate 'site.pem' has no private key`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.fault.to_string();
        let is_verb = ["is ", "has ", "holds ", "cannot "].iter().any(|verb| fault.starts_with(verb));
        write!(out, "certificate '{}'{} {fault}", self.path.display(), if is_verb { "" } else { ":" })
    }
}
