//! Signature algorithms (`sigalgs`, `client-sigalgs`).

use rustls::SignatureScheme;

use super::{NameError, NameList, listed, parts};

/// OpenSSL's and TLS's names, and what they stand for.
const SCHEMES: &[(&[&str], &[SignatureScheme])] = &[
    (&["ECDSA+SHA256", "ecdsa_secp256r1_sha256"], &[SignatureScheme::ECDSA_NISTP256_SHA256]),
    (&["ECDSA+SHA384", "ecdsa_secp384r1_sha384"], &[SignatureScheme::ECDSA_NISTP384_SHA384]),
    (&["ECDSA+SHA512", "ecdsa_secp521r1_sha512"], &[SignatureScheme::ECDSA_NISTP521_SHA512]),
    (&["ed25519"], &[SignatureScheme::ED25519]),
    (&["RSA-PSS+SHA256", "PSS+SHA256", "rsa_pss_rsae_sha256"], &[SignatureScheme::RSA_PSS_SHA256]),
    (&["RSA-PSS+SHA384", "PSS+SHA384", "rsa_pss_rsae_sha384"], &[SignatureScheme::RSA_PSS_SHA384]),
    (&["RSA-PSS+SHA512", "PSS+SHA512", "rsa_pss_rsae_sha512"], &[SignatureScheme::RSA_PSS_SHA512]),
    (&["RSA+SHA256", "rsa_pkcs1_sha256"], &[SignatureScheme::RSA_PKCS1_SHA256]),
    (&["RSA+SHA384", "rsa_pkcs1_sha384"], &[SignatureScheme::RSA_PKCS1_SHA384]),
    (&["RSA+SHA512", "rsa_pkcs1_sha512"], &[SignatureScheme::RSA_PKCS1_SHA512]),
];

/// What OpenSSL knows besides.
#[rustfmt::skip]
const ABSENT: &[&str] = &[
    "ed448", "rsa_pss_pss_sha256", "rsa_pss_pss_sha384", "rsa_pss_pss_sha512", "RSA+SHA1", "rsa_pkcs1_sha1", "RSA+SHA224",
    "rsa_pkcs1_sha224", "ECDSA+SHA1", "ecdsa_sha1", "ECDSA+SHA224", "ecdsa_sha224", "RSA+MD5", "DSA+SHA1", "DSA+SHA224",
    "DSA+SHA256", "DSA+SHA384", "DSA+SHA512", "dsa_sha1", "dsa_sha224", "dsa_sha256", "dsa_sha384", "dsa_sha512",
    "RSA-PSS+SHA1", "PSS+SHA1", "ecdsa_brainpoolP256r1_sha256", "ecdsa_brainpoolP384r1_sha384",
    "ecdsa_brainpoolP512r1_sha512", "mldsa44", "mldsa65", "mldsa87",
];

/// The algorithms of `sigalgs` or `client-sigalgs`, names between colons.
///
/// # Errors
/// An unknown name, or nothing that rustls has.
pub fn signatures(text: &str) -> Result<NameList<SignatureScheme>, NameError> {
    const HINT: &str =
        "use RSA-PSS+SHA256 or rsa_pss_rsae_sha256, ECDSA+SHA256 or ecdsa_secp256r1_sha256, RSA+SHA256, ed25519";
    let mut found = Vec::new();
    let mut absent = Vec::new();
    for part in parts(text, &[':']) {
        let (name, wanted) = part.strip_prefix('?').map_or((part, true), |name| (name, false));
        let is = |known: &&str| known.eq_ignore_ascii_case(name);
        match SCHEMES.iter().find(|(names, _)| names.iter().any(is)) {
            Some((_, schemes)) => {
                for scheme in *schemes {
                    if !found.contains(scheme) {
                        found.push(*scheme);
                    }
                }
            }
            None if !wanted => {}
            None if ABSENT.iter().any(is) => absent.push(name),
            None => return Err(NameError::new(format!("unknown signature algorithm '{name}'")).hint(HINT)),
        }
    }
    let why = || format!("signatures by {} are not supported", listed(&absent));
    if found.is_empty() {
        let message = if absent.is_empty() { "no signature algorithm is given".to_owned() } else { why() };
        return Err(NameError::new(message).hint(HINT));
    }
    let notes = if absent.is_empty() { Vec::new() } else { vec![why()] };
    Ok(NameList { found, notes })
}

#[cfg(test)]
mod tests {
    use super::signatures;

    fn check(text: &str, expect: &str) {
        let got = match signatures(text) {
            Ok(named) => {
                let names: Vec<String> = named.found.iter().map(|scheme| format!("{scheme:?}")).collect();
                [vec![names.join(" ")], named.notes].concat().join("; ")
            }
            Err(fault) => format!("error: {}", fault.message),
        };
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn names_of_both_kinds() {
        check("RSA-PSS+SHA256:ECDSA+SHA256", "RSA_PSS_SHA256 ECDSA_NISTP256_SHA256");
        check("rsa_pss_rsae_sha256:PSS+SHA256:ed25519", "RSA_PSS_SHA256 ED25519");
        check("RSA+SHA256:ecdsa_secp384r1_sha384", "RSA_PKCS1_SHA256 ECDSA_NISTP384_SHA384");
    }

    #[test]
    fn what_rustls_lacks_is_left_out_and_said() {
        check("ed448:RSA+SHA512:RSA+SHA1", "RSA_PKCS1_SHA512; signatures by ed448 and RSA+SHA1 are not supported");
        check("RSA+SHA1", "error: signatures by RSA+SHA1 are not supported");
        check("RSA+SHA257", "error: unknown signature algorithm 'RSA+SHA257'");
        check(":", "error: no signature algorithm is given");
    }
}
