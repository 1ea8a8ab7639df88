//! Groups for the key exchange (`curves`, `ecdhe`).

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group;

use super::{NameError, NameList, listed, parts};

type Group = &'static dyn SupportedKxGroup;

/// What OpenSSL and others call a group, and which it is.
const GROUPS: &[(&[&str], Group)] = &[
    (&["X25519"], kx_group::X25519),
    (&["P-256", "prime256v1", "secp256r1"], kx_group::SECP256R1),
    (&["P-384", "secp384r1"], kx_group::SECP384R1),
    (&["X25519MLKEM768"], kx_group::X25519MLKEM768),
    (&["SecP256r1MLKEM768"], kx_group::SECP256R1MLKEM768),
    (&["MLKEM768"], kx_group::MLKEM768),
    (&["MLKEM1024"], kx_group::MLKEM1024),
];

/// What OpenSSL knows besides.
#[rustfmt::skip]
const ABSENT: &[&str] = &[
    "P-521", "secp521r1", "X448", "P-192", "prime192v1", "secp192r1", "P-224", "secp224r1", "secp256k1",
    "brainpoolP256r1", "brainpoolP384r1", "brainpoolP512r1", "brainpoolP256r1tls13", "brainpoolP384r1tls13",
    "brainpoolP512r1tls13", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192", "MLKEM512",
    "SecP384r1MLKEM1024", "sect163k1", "sect163r1", "sect163r2", "sect193r1", "sect193r2", "sect233k1", "sect233r1",
    "sect239k1", "sect283k1", "sect283r1", "sect409k1", "sect409r1", "sect571k1", "sect571r1", "secp160k1",
    "secp160r1", "secp160r2", "secp192k1", "secp224k1", "B-163", "B-233", "B-283", "B-409", "B-571", "K-163", "K-233",
    "K-283", "K-409", "K-571",
];

/// What a server prefers where nothing is configured: X25519, P-256, P-384, as OpenSSL of Debian 12 as far as rustls has it.
pub fn default_curves() -> Vec<Group> {
    vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1]
}

/// The groups of `curves` or `ecdhe`, names in any case between colons.
///
/// # Errors
/// An unknown name, or nothing that rustls has.
pub fn curves(text: &str) -> Result<NameList<Group>, NameError> {
    let mut found: Vec<Group> = Vec::new();
    let mut absent = Vec::new();
    for part in parts(text, &[':']) {
        // `?X` of OpenSSL 3.3: used when it is there.
        let (name, wanted) = part.strip_prefix('?').map_or((part, true), |name| (name, false));
        let is = |known: &&str| known.eq_ignore_ascii_case(name);
        match GROUPS.iter().find(|(names, _)| names.iter().any(is)) {
            Some((_, group)) if found.iter().any(|other| other.name() == group.name()) => {}
            Some(&(_, group)) => found.push(group),
            None if !wanted => {}
            None if ABSENT.iter().any(is) => absent.push(name),
            None => {
                return Err(NameError::new(format!("unknown curve '{name}'"))
                    .hint("use X25519, P-256, P-384 or X25519MLKEM768"));
            }
        }
    }
    let why = || format!("key exchange over {} is not supported", listed(&absent));
    if found.is_empty() {
        let message = if absent.is_empty() { "no curve is given".to_owned() } else { why() };
        return Err(NameError::new(message).hint("use X25519, P-256, P-384 or X25519MLKEM768"));
    }
    let notes = if absent.is_empty() { Vec::new() } else { vec![why()] };
    Ok(NameList { found, notes })
}

#[cfg(test)]
mod tests {
    use super::curves;

    fn check(text: &str, expect: &str) {
        let got = match curves(text) {
            Ok(named) => {
                let names: Vec<String> = named.found.iter().map(|group| format!("{:?}", group.name())).collect();
                [vec![names.join(" ")], named.notes].concat().join("; ")
            }
            Err(fault) => format!("error: {}", fault.message),
        };
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn curves_by_each_of_their_names() {
        check("X25519:P-256", "X25519 secp256r1");
        check("prime256v1:secp384r1:x25519", "secp256r1 secp384r1 X25519");
        check("X25519MLKEM768:X25519:secp256r1:P-256", "X25519MLKEM768 X25519 secp256r1");
    }

    #[test]
    fn what_rustls_lacks_is_left_out_and_said() {
        check("X25519:secp521r1:X448", "X25519; key exchange over secp521r1 and X448 is not supported");
        check("?P-521:?nonsense:P-256", "secp256r1");
        check("P-521", "error: key exchange over P-521 is not supported");
        check("", "error: no curve is given");
        check("X25519:P-265", "error: unknown curve 'P-265'");
    }
}
