//! Why there is no handshake with a server, in words that say what to do.

use std::fmt;

use rustls::{AlertDescription, CertRevocationListError, CertificateError, Error};

use super::is_wrong_name;
use crate::Refusal;
use crate::verify::code;

/// A handshake that failed. Its text is a reason, starting in lower case and without a full stop.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    reason: String,
    remedy: &'static str,
}

impl Failure {
    /// Both sides spoke, and did not agree. `refusal`: why the server's certificate was refused, where the error is about that.
    pub fn of(error: &Error, refusal: Option<Refusal>) -> Failure {
        let failure = |reason: String, remedy| Failure { reason, remedy };
        match error {
            error if is_wrong_name(error) => {
                failure("its certificate is for other names".into(), "name one of them by 'sni' or 'verifyhost'")
            }
            Error::InvalidCertificate(_) | Error::InvalidCertRevocationList(_) => match refusal {
                Some(Refusal { depth, code }) => {
                    let whose = if depth == 0 { "its certificate" } else { "an authority above its certificate" };
                    let text = code::text(code);
                    failure(format!("{whose} was refused: {text} (error {code}, depth {depth})"), remedy(code))
                }
                None => failure(format!("its certificate was refused: {}", plain(error)), "look at the certificate"),
            },
            Error::AlertReceived(alert) => failure(format!("it refused with the alert {alert:?}"), answer(*alert)),
            Error::PeerIncompatible(why) => failure(
                format!("there is nothing that both sides speak ({why:?})"),
                "compare 'ssl-min-ver', 'ssl-max-ver', 'ciphers', 'ciphersuites' and 'curves' with what it speaks",
            ),
            Error::InvalidMessage(_) => failure(
                "what it sent is no TLS".into(),
                "look whether it speaks TLS on this port, and wants 'send-proxy'",
            ),
            Error::NoApplicationProtocol => failure("no protocol of 'alpn' suits it".into(), "look at 'alpn'"),
            error => failure(error.to_string(), "look at the server's log"),
        }
    }

    /// It closed the connection in the middle.
    pub fn closed() -> Failure {
        Failure { reason: "it closed the connection in the middle of it".into(), remedy: "look at the server's log" }
    }

    /// The connection broke in the middle.
    pub fn broken(error: &std::io::Error) -> Failure {
        let reason = format!("the connection broke in the middle of it: {}", crate::certificate::reason(error));
        Failure { reason, remedy: "look at the server's log" }
    }

    /// It did not come to an end in time.
    pub fn late() -> Failure {
        let remedy = "look whether it speaks TLS on this port; if it is only slow, raise 'timeout connect'";
        Failure { reason: "it was not complete within 'timeout connect'".into(), remedy }
    }

    /// What would help.
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

/// What helps against an error of verification, by OpenSSL's numbers.
fn remedy(error: u32) -> &'static str {
    match error {
        code::NO_ISSUER | code::NO_LOCAL_ISSUER | code::LEAF_UNVERIFIED => {
            "put the issuer into 'ca-file', or have the server send its chain"
        }
        code::SIGNS_ITSELF | code::SIGNS_ITSELF_IN_CHAIN => "put it into 'ca-file' if it can be trusted",
        code::NO_LIST | code::LIST_EXPIRED | code::LIST_SIGNATURE => "put a current list of its issuer into 'crl-file'",
        code::EXPIRED => "have it renewed",
        code::NOT_YET => "compare the clocks",
        code::REVOKED => "give the server another certificate",
        code::PURPOSE => "give the server a certificate for servers (serverAuth)",
        _ => "look at the certificate with `openssl s_client -showcerts -connect ADDRESS`",
    }
}

/// What helps against a refusal by the server.
fn answer(alert: AlertDescription) -> &'static str {
    use AlertDescription as Is;
    match alert {
        Is::CertificateRequired
        | Is::NoCertificate
        | Is::BadCertificate
        | Is::UnsupportedCertificate
        | Is::CertificateRevoked
        | Is::CertificateExpired
        | Is::CertificateUnknown
        | Is::UnknownCA
        | Is::AccessDenied => "look at the certificate that 'crt' shows it, and at whom it trusts",
        Is::UnrecognisedName => "look at the name that 'sni' gives",
        Is::NoApplicationProtocol => "look at 'alpn'",
        _ => "compare 'ssl-min-ver', 'ssl-max-ver', 'ciphers', 'ciphersuites' and 'curves' with what it speaks",
    }
}

/// What rustls says, where nothing better is known.
fn plain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::BadEncoding) => "it cannot be read".into(),
        Error::InvalidCertRevocationList(CertRevocationListError::BadSignature) => {
            "the list's signature is wrong".into()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rustls::PeerIncompatible;

    use super::*;

    #[test]
    fn reasons_come_with_a_remedy() {
        let check = |error: Error, refusal: Option<(u32, u32)>, expect: &str| {
            let refusal = refusal.map(|(depth, code)| Refusal { depth, code });
            let failure = Failure::of(&error, refusal);
            assert!(format!("{failure}: {}", failure.remedy()).starts_with(expect), "{failure}: {}", failure.remedy());
        };
        let refused = || Error::InvalidCertificate(CertificateError::Expired);
        check(
            refused(),
            Some((0, 10)),
            "its certificate was refused: it has expired (error 10, depth 0): have it renewed",
        );
        check(
            refused(),
            Some((1, 10)),
            "an authority above its certificate was refused: it has expired (error 10, depth 1)",
        );
        check(refused(), None, "its certificate was refused: ");
        check(CertificateError::NotValidForName.into(), Some((0, 10)), "its certificate is for other names: name one");
        check(Error::AlertReceived(AlertDescription::UnknownCA), None, "it refused with the alert UnknownCA: look at");
        check(PeerIncompatible::NoCipherSuitesInCommon.into(), None, "there is nothing that both sides speak");
    }
}
