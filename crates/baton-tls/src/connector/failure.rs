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
            error if is_wrong_name(error) => failure(
                "its certificate does not match the name".into(),
                "use a name of the certificate in 'sni' or 'verifyhost'",
            ),
            Error::InvalidCertificate(_) | Error::InvalidCertRevocationList(_) => match refusal {
                Some(Refusal { depth, code }) => {
                    let whose = if depth == 0 { "its certificate" } else { "a CA of its chain" };
                    let text = code::text(code);
                    failure(format!("{whose} was rejected: {text} (error {code}, depth {depth})"), remedy(code))
                }
                None => failure(format!("its certificate was rejected: {}", plain(error)), "check the certificate"),
            },
            Error::AlertReceived(alert) => {
                failure(format!("it rejected the handshake with the alert {alert:?}"), answer(*alert))
            }
            Error::PeerIncompatible(why) => failure(
                format!("no common protocol settings ({why:?})"),
                "compare 'ssl-min-ver', 'ssl-max-ver', 'ciphers', 'ciphersuites' and 'curves' with what the server \
                 supports",
            ),
            Error::InvalidMessage(_) => failure(
                "it did not respond with TLS".into(),
                "check whether it uses TLS on this port, and expects 'send-proxy'",
            ),
            Error::NoApplicationProtocol => failure("it supports no protocol of 'alpn'".into(), "check 'alpn'"),
            error => failure(error.to_string(), "check the server's log"),
        }
    }

    /// It closed the connection in the middle.
    pub fn closed() -> Failure {
        Failure { reason: "it closed the connection during the handshake".into(), remedy: "check the server's log" }
    }

    /// The connection broke in the middle.
    pub fn broken(error: &std::io::Error) -> Failure {
        let reason = format!("the connection failed during the handshake: {}", crate::certificate::reason(error));
        Failure { reason, remedy: "check the server's log" }
    }

    /// It did not come to an end in time.
    pub fn late() -> Failure {
        let remedy = "check whether it uses TLS on this port; if it is only slow, raise 'timeout connect'";
        Failure { reason: "no completed handshake within 'timeout connect'".into(), remedy }
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
            "add the issuer to 'ca-file', or make the server send its chain"
        }
        code::SIGNS_ITSELF | code::SIGNS_ITSELF_IN_CHAIN => "add it to 'ca-file' if it can be trusted",
        code::NO_LIST | code::LIST_EXPIRED | code::LIST_SIGNATURE => {
            "add a current revocation list of its issuer to 'crl-file'"
        }
        code::EXPIRED => "renew it",
        code::NOT_YET => "check the clocks of both machines",
        code::REVOKED => "replace the server's certificate",
        code::PURPOSE => "use a server certificate (serverAuth) on the server",
        _ => "check the certificate with `openssl s_client -showcerts -connect ADDRESS`",
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
        | Is::AccessDenied => "check the client certificate of 'crt', and the CAs that the server trusts",
        Is::UnrecognisedName => "check the name of 'sni'",
        Is::NoApplicationProtocol => "check 'alpn'",
        _ => {
            "compare 'ssl-min-ver', 'ssl-max-ver', 'ciphers', 'ciphersuites' and 'curves' with what the server \
              supports"
        }
    }
}

/// What rustls says, where nothing better is known.
fn plain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::BadEncoding) => "it cannot be read".into(),
        Error::InvalidCertRevocationList(CertRevocationListError::BadSignature) => {
            "the signature of the revocation list is invalid".into()
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
        check(refused(), Some((0, 10)), "its certificate was rejected: it has expired (error 10, depth 0): renew it");
        check(refused(), Some((1, 10)), "a CA of its chain was rejected: it has expired (error 10, depth 1)");
        check(refused(), None, "its certificate was rejected: ");
        check(
            CertificateError::NotValidForName.into(),
            Some((0, 10)),
            "its certificate does not match the name: use a name",
        );
        check(
            Error::AlertReceived(AlertDescription::UnknownCA),
            None,
            "it rejected the handshake with the alert UnknownCA: check",
        );
        check(PeerIncompatible::NoCipherSuitesInCommon.into(), None, "no common protocol settings");
    }
}
