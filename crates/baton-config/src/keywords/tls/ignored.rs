//! `ca-ignore-err` and `crt-ignore-err`: faults of certificates by OpenSSL's numbers, or by their names as from HAProxy 2.9 on.

use baton_model::IgnoredErrors;
use baton_rules::nearest;

use super::ParameterError;

/// The highest number, as in HAProxy 2.6 with OpenSSL 3.0.
const HIGHEST: u32 = 94;

/// Names of the numbers a verification may end with (OpenSSL's manual, X509_STORE_CTX_get_error), without `X509_V_ERR_`.
const NAMES: [(&str, u32); 38] = [
    ("UNSPECIFIED", 1),
    ("UNABLE_TO_GET_ISSUER_CERT", 2),
    ("UNABLE_TO_GET_CRL", 3),
    ("UNABLE_TO_DECRYPT_CERT_SIGNATURE", 4),
    ("UNABLE_TO_DECRYPT_CRL_SIGNATURE", 5),
    ("UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY", 6),
    ("CERT_SIGNATURE_FAILURE", 7),
    ("CRL_SIGNATURE_FAILURE", 8),
    ("CERT_NOT_YET_VALID", 9),
    ("CERT_HAS_EXPIRED", 10),
    ("CRL_NOT_YET_VALID", 11),
    ("CRL_HAS_EXPIRED", 12),
    ("ERROR_IN_CERT_NOT_BEFORE_FIELD", 13),
    ("ERROR_IN_CERT_NOT_AFTER_FIELD", 14),
    ("ERROR_IN_CRL_LAST_UPDATE_FIELD", 15),
    ("ERROR_IN_CRL_NEXT_UPDATE_FIELD", 16),
    ("OUT_OF_MEM", 17),
    ("DEPTH_ZERO_SELF_SIGNED_CERT", 18),
    ("SELF_SIGNED_CERT_IN_CHAIN", 19),
    ("UNABLE_TO_GET_ISSUER_CERT_LOCALLY", 20),
    ("UNABLE_TO_VERIFY_LEAF_SIGNATURE", 21),
    ("CERT_CHAIN_TOO_LONG", 22),
    ("CERT_REVOKED", 23),
    ("NO_ISSUER_PUBLIC_KEY", 24),
    ("PATH_LENGTH_EXCEEDED", 25),
    ("INVALID_PURPOSE", 26),
    ("CERT_UNTRUSTED", 27),
    ("CERT_REJECTED", 28),
    ("SUBJECT_ISSUER_MISMATCH", 29),
    ("AKID_SKID_MISMATCH", 30),
    ("AKID_ISSUER_SERIAL_MISMATCH", 31),
    ("KEYUSAGE_NO_CERTSIGN", 32),
    ("UNABLE_TO_GET_CRL_ISSUER", 33),
    ("UNHANDLED_CRITICAL_EXTENSION", 34),
    ("EE_KEY_TOO_SMALL", 66),
    ("CA_KEY_TOO_SMALL", 67),
    ("CA_MD_TOO_WEAK", 68),
    ("INVALID_CA", 79),
];

/// What OpenSSL's names begin with.
const PREFIX: &str = "X509_V_ERR_";

/// Reads `all`, or numbers and names with commas between them.
pub(super) fn parse(text: &str) -> Result<IgnoredErrors, ParameterError> {
    if text == "all" {
        return Ok(IgnoredErrors::All);
    }
    let mut list = Vec::new();
    for word in text.split(',') {
        let number = match word.strip_prefix(PREFIX) {
            Some(name) => NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number),
            None => word.parse().ok().filter(|number| (1..=HIGHEST).contains(number)),
        };
        match number {
            Some(number) if list.contains(&number) => {}
            Some(number) => list.push(number),
            None => {
                let message = format!(
                    "'{word}' is neither an error's number (1..{HIGHEST}) nor its name (X509_V_ERR_…) in error IDs list \
                     '{text}'"
                );
                let near = nearest(word.strip_prefix(PREFIX).unwrap_or(word), NAMES.iter().map(|(name, _)| *name));
                let hint = near.map(|near| format!("did you mean '{PREFIX}{near}'?"));
                return Err(ParameterError { message, hint });
            }
        }
    }
    Ok(IgnoredErrors::These(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!(parse("all"), Ok(IgnoredErrors::All));
        assert_eq!(parse("10,18,10"), Ok(IgnoredErrors::These(vec![10, 18])));
        assert_eq!(parse("X509_V_ERR_CERT_HAS_EXPIRED,3"), Ok(IgnoredErrors::These(vec![10, 3])));
        for wrong in ["", "0", "95", "10,", "foo", "X509_V_ERR_FOO", "-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
