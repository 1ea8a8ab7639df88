//! Why a certificate cannot be used, and what to do about it.

use std::fmt;
use std::io;

use super::pem::PemError;

/// What is wrong with a certificate's files. Its text is a reason; [`CertificateError::remedy`] says what to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CertificateError {
    /// A file cannot be read.
    File {
        /// Its name, if it is not the certificate's own.
        name: Option<String>,
        /// The system's reason.
        reason: String,
        /// There is no such file.
        missing: bool,
    },
    /// There is nothing in the file.
    Empty,
    /// It holds no block that is a certificate.
    NoCertificate,
    /// A block begins on this line and never ends.
    Unended(usize),
    /// The block that begins on this line is no base64.
    Text(usize),
    /// The certificate of this position in the file, counted from 1, cannot be read.
    Certificate(usize),
    /// The certificate's public key is of a kind that TLS is not spoken with here.
    Kind,
    /// RSA keys must have at least 2048 bits and at most 8192: this has another number.
    Size(usize),
    /// No private key came with the certificate.
    NoKey,
    /// The private key asks for a pass phrase.
    Encrypted,
    /// The private key cannot be read.
    Key,
    /// The private key is another's: of the certificate of this position in the file, if it is there.
    Mismatch(Option<usize>),
    /// A name such as `@web/site` that no `crt-store` has.
    Unknown,
    /// There are more parts in the file than [`MAX_CHAIN`](super::MAX_CHAIN).
    Long,
    /// What stands in `.sctl` is no list of signed timestamps.
    Timestamps,
    /// What stands in `.issuer` is no certificate.
    Issuer,
    /// There is an OCSP response or place for one, but the issuer it would be of is not known.
    NoIssuer,
    /// Its file is gone, but it is the default certificate of a `bind`, and serves on.
    Default,
}

impl CertificateError {
    /// A file cannot be read: the certificate's own, or the one called `name`.
    pub(crate) fn file(name: Option<String>, error: &io::Error) -> CertificateError {
        CertificateError::File { name, reason: reason(error), missing: error.kind() == io::ErrorKind::NotFound }
    }

    /// The block of PEM that begins on `line` cannot be read.
    pub(crate) fn pem(line: usize, fault: PemError) -> CertificateError {
        match fault {
            PemError::Unended => CertificateError::Unended(line),
            PemError::Text => CertificateError::Text(line),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            CertificateError::File { missing: true, .. } => "use an existing file",
            CertificateError::File { .. } => "make it readable for the user that starts Baton",
            CertificateError::Empty | CertificateError::NoCertificate => {
                "add the certificate in PEM format (BEGIN CERTIFICATE … END CERTIFICATE)"
            }
            CertificateError::Unended(_) | CertificateError::Text(_) => "copy it again: it is truncated or damaged",
            CertificateError::Certificate(_) => "check it with `openssl x509 -in FILE -noout -text`",
            CertificateError::Kind => "use an RSA, ECDSA (P-256, P-384 or P-521) or Ed25519 key",
            CertificateError::Size(_) => "use an RSA key of 2048 to 8192 bits, or an ECDSA P-256 key",
            CertificateError::NoKey => {
                "append the private key to the file, or put it into a file of the same name with .key appended"
            }
            CertificateError::Encrypted => "remove the passphrase: `openssl pkey -in FILE -out NEW`",
            CertificateError::Key => "check it with `openssl pkey -in FILE -noout -check`",
            CertificateError::Mismatch(Some(_)) => "put the certificate of the key first, followed by its issuers",
            CertificateError::Mismatch(None) => "use the key that the certificate was issued for",
            CertificateError::Unknown => "load it in a `crt-store` section, with `alias` if it is used by an alias",
            CertificateError::Long => "keep only the certificate, its issuers and the key in it",
            CertificateError::Timestamps => "download the list again, or remove the file",
            CertificateError::NoIssuer => {
                "append the issuer's certificate, or put it into a file with .issuer appended; or remove the .ocsp file"
            }
            CertificateError::Default => {
                "restore the file, or declare another default certificate before the \
                                          directory and reload"
            }
            CertificateError::Issuer => "add the issuer's certificate in PEM format, or remove the file",
        }
    }
}

/// The system's words without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            let mut rest = text.chars();
            rest.next().map(|first| first.to_lowercase().chain(rest).collect()).unwrap_or_default()
        }
    }
}

impl fmt::Display for CertificateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateError::File { name: None, reason, .. } => write!(out, "cannot be read: {reason}"),
            CertificateError::File { name: Some(name), reason, .. } => {
                write!(out, "its file {name} cannot be read: {reason}")
            }
            CertificateError::Empty => write!(out, "is empty"),
            CertificateError::NoCertificate => write!(out, "holds no certificate"),
            CertificateError::Unended(line) => write!(out, "the block that begins on line {line} has no END line"),
            CertificateError::Text(line) => write!(out, "the block that begins on line {line} is not valid base64"),
            CertificateError::Certificate(1) => write!(out, "its certificate cannot be read: it is not X.509 in DER"),
            CertificateError::Certificate(at) => {
                write!(out, "certificate {at} in it cannot be read: it is not X.509 in DER")
            }
            CertificateError::Kind => write!(out, "its type of public key is not supported"),
            CertificateError::Size(bits) => write!(out, "its RSA key has {bits} bits"),
            CertificateError::NoKey => write!(out, "has no private key"),
            CertificateError::Encrypted => {
                write!(out, "its private key is encrypted with a passphrase")
            }
            CertificateError::Key => write!(out, "its private key cannot be read"),
            CertificateError::Mismatch(None) => write!(out, "its private key belongs to another certificate"),
            CertificateError::Mismatch(Some(at)) => {
                write!(out, "its private key belongs to certificate {at} in it, not to the first one")
            }
            CertificateError::Unknown => write!(out, "is not loaded by any crt-store"),
            CertificateError::Long => write!(out, "holds more than {} certificates", super::MAX_CHAIN),
            CertificateError::Timestamps => {
                write!(out, "its list of signed certificate timestamps (.sctl) cannot be read")
            }
            CertificateError::NoIssuer => write!(out, "has an OCSP response (.ocsp), but no known issuer"),
            CertificateError::Default => {
                write!(out, "its file was removed, but it is the default certificate of a bind: it stays in use")
            }
            CertificateError::Issuer => write!(out, "its .issuer file has no valid certificate"),
        }
    }
}

impl std::error::Error for CertificateError {}
