//! Which names a certificate is for.

use std::net::IpAddr;

use crate::certificate::X509;

/// Whether a certificate is for `wanted`: by one of its alternative names or, as HAProxy does whether there are any or not, by
/// its common name. A wildcard stands for exactly one label, the first (RFC 6125 6.4.3).
pub(super) fn is_for(certificate: &X509<'_>, wanted: &str) -> bool {
    let address: Option<IpAddr> = wanted.parse().ok();
    let is_address = |address| certificate.addresses().any(|bytes| is_address(bytes, address));
    certificate.names().any(|name| matches(name, wanted.as_bytes())) || address.is_some_and(is_address)
}

fn matches(name: &[u8], wanted: &[u8]) -> bool {
    match name.strip_prefix(b"*.") {
        Some(rest) => {
            let dot = wanted.iter().position(|byte| *byte == b'.');
            dot.is_some_and(|dot| dot > 0 && wanted[dot + 1..].eq_ignore_ascii_case(rest))
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
        let check = |name: &str, wanted: &str, expect: bool| {
            assert_eq!(matches(name.as_bytes(), wanted.as_bytes()), expect, "{name} {wanted}")
        };
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
        let certificate = X509::read(issued.der()).expect("a certificate");
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

    #[test]
    fn a_common_name_of_wide_characters_is_not_read_byte_by_byte() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new([]).expect("no names");
        // The bytes `ab.d`, which are two characters here.
        let wide = rcgen::string::BmpString::try_from("\u{6162}\u{2e64}").expect("in the plane");
        params.distinguished_name.push(rcgen::DnType::CommonName, rcgen::DnValue::BmpString(wide));
        let issued = params.self_signed(&key).expect("signed");
        assert!(!is_for(&X509::read(issued.der()).expect("a certificate"), "ab.d"));
    }
}
