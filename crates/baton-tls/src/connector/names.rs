//! Which names a certificate is for.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// Whether a certificate is for `wanted`: by one of its alternative names or, as HAProxy does whether there are any or not, by
/// its common name. A wildcard stands for exactly one label, the first (RFC 6125 6.4.3).
pub(super) fn is_for(certificate: &X509Certificate<'_>, wanted: &str) -> bool {
    let address: Option<IpAddr> = wanted.parse().ok();
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|extension| &extension.value.general_names).any(|name| match name {
        GeneralName::DNSName(name) => matches(name, wanted),
        GeneralName::IPAddress(bytes) => address.is_some_and(|address| is_address(bytes, address)),
        _ => false,
    });
    alternative
        || certificate
            .subject()
            .iter_common_name()
            .filter_map(|name| name.as_str().ok())
            .any(|name| matches(name, wanted))
}

fn matches(name: &str, wanted: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(rest) => {
            wanted.split_once('.').is_some_and(|(label, parent)| !label.is_empty() && parent.eq_ignore_ascii_case(rest))
        }
        None => name.eq_ignore_ascii_case(wanted),
    }
}

fn is_address(bytes: &[u8], address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => bytes == address.octets(),
        IpAddr::V6(address) => bytes == address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_a_whole() {
        let check =
            |name: &str, wanted: &str, expect: bool| assert_eq!(matches(name, wanted), expect, "{name} {wanted}");
        check("a.example", "a.example", true);
        check("a.example", "A.Example", true);
        check("a.example", "b.a.example", false);
        check("*.a.example", "b.a.example", true);
        check("*.A.example", "b.a.EXAMPLE", true);
        check("*.a.example", "a.example", false);
        check("*.a.example", "c.b.a.example", false);
        check("*.a.example", ".a.example", false);
        check("w*.a.example", "ww.a.example", false);
        check("", "", true);
        check("10.0.0.1", "10.0.0.1", true);
    }

    #[test]
    fn common_names_and_addresses_count() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params =
            rcgen::CertificateParams::new(["san.example".to_string(), "*.wild.example".into(), "10.1.2.3".into()])
                .expect("good names");
        params.distinguished_name.push(rcgen::DnType::CommonName, "cn.example");
        let issued = params.self_signed(&key).expect("signed");
        let (_, certificate) = x509_parser::parse_x509_certificate(issued.der()).expect("a certificate");
        let check = |wanted: &str, expect: bool| assert_eq!(is_for(&certificate, wanted), expect, "{wanted}");
        check("san.example", true);
        check("cn.example", true);
        check("a.wild.example", true);
        check("wild.example", false);
        check("10.1.2.3", true);
        check("10.1.2.4", false);
        check("::", false);
        check("other.example", false);
    }
}
