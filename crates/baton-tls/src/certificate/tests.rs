//! The walker over DER and the reader of PEM next to parsers that nobody here wrote.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use x509_parser::asn1_rs::{Any, Class, Tag};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::key::{KeyEncoding, Match, belongs, rebuild};
use super::pem::{self, Blocks};
use super::x509::X509;

/// Certificates and their keys, in DER.
static GOOD: LazyLock<Vec<(Vec<u8>, Vec<u8>)>> = LazyLock::new(|| {
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ED25519];
    let issue = |kind| {
        let key = KeyPair::generate_for(kind).unwrap();
        let names = ["a.example", "*.b.example", "192.0.2.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "cn.example");
        params.distinguished_name.push(DnType::OrganizationName, "Exämple");
        params.not_before = rcgen::date_time_ymd(1970, 1, 1);
        params.not_after = rcgen::date_time_ymd(2060, 2, 29);
        (params.self_signed(&key).unwrap().der().to_vec(), key.serialize_der())
    };
    kinds.map(issue).into()
});

/// What both say of a certificate: serial, names, validity, key.
type CertificateFacts = (Vec<u8>, Vec<Vec<u8>>, (i64, i64), Vec<u8>);

fn ours(der: &[u8]) -> Option<CertificateFacts> {
    // What is wrong inside the key is found when the key is asked for.
    let read = X509::read(der).filter(|read| read.key().is_some())?;
    let names = read.names().map(<[u8]>::to_vec).collect();
    Some((read.serial.to_vec(), names, (read.not_before, read.not_after), read.key_info.to_vec()))
}

fn theirs(der: &[u8]) -> Option<CertificateFacts> {
    let (rest, read) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let mut names = Vec::new();
    // An extension that they cannot read, they leave out.
    if read.extensions().iter().any(|extension| extension.parsed_extension().error().is_some()) {
        return None;
    }
    if let Some(extension) = read.subject_alternative_name().ok()? {
        for name in &extension.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push(name.as_bytes().to_vec());
            }
        }
    }
    // A tag has the number of another one in another class.
    let is_wide = |value: &Any<'_>| {
        value.class() == Class::Universal && [Tag::BmpString, Tag::UniversalString].contains(&value.tag())
    };
    let common = read.subject().iter_common_name().map(|name| name.attr_value());
    names.extend(common.filter(|value| !is_wide(value)).map(|value| value.data.to_vec()));
    let validity = (read.validity().not_before.timestamp(), read.validity().not_after.timestamp());
    Some((read.raw_serial().to_vec(), names, validity, read.tbs_certificate.subject_pki.raw.to_vec()))
}

#[test]
fn whole_certificates_are_read_alike_and_their_keys_belong_to_them() {
    for (at, (certificate, key)) in GOOD.iter().enumerate() {
        let said = ours(certificate);
        assert!(said.is_some());
        assert_eq!(said, theirs(certificate));
        let read = X509::read(certificate).unwrap();
        for (other, (_, another)) in GOOD.iter().enumerate() {
            let public = read.key().unwrap();
            match belongs(KeyEncoding::Pkcs8, another, public) {
                Match::Yes(secret) => {
                    assert_eq!(at, other);
                    let (form, whole) = rebuild(public, secret);
                    assert_eq!(belongs(form, &whole, public), Match::Yes(secret));
                    assert!(any_supported_type(&form.wrap(&whole)).is_ok());
                    assert!(whole.len() > secret.len() && another.len() > secret.len());
                }
                other_match => assert_eq!((other_match, at != other), (Match::No, true)),
            }
        }
        for end in 0..certificate.len() {
            assert!(X509::read(&certificate[..end]).is_none());
        }
        for end in 0..key.len() {
            assert!(!matches!(belongs(KeyEncoding::Pkcs8, &key[..end], read.key().unwrap()), Match::Yes(_)));
        }
    }
}

#[test]
fn a_common_name_with_a_tag_of_another_class_is_read_alike() {
    let mut der = GOOD[1].0.clone();
    let at = der.windows(10).rposition(|text| text == b"cn.example").unwrap() - 2;
    // APPLICATION 28, the number of UniversalString.
    der[at] = 0x5c;
    let said = ours(&der);
    assert!(said.is_some());
    assert_eq!(said, theirs(&der));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn changed_certificates_are_read_alike_or_refused(
        which in 0..3_usize,
        edits in prop::collection::vec((any::<u16>(), any::<u8>(), 0..3_u8), 1..4),
    ) {
        let (mut der, key) = GOOD[which].clone();
        for (at, byte, how) in edits {
            // Near the beginning, where the structure is, more often than anywhere.
            let at = usize::from(at) % if at & 1 == 0 { der.len() } else { 160 };
            match how {
                0 => der[at] = byte,
                1 => drop(der.remove(at)),
                _ => der.insert(at, byte),
            }
        }
        if let (Some(ours), Some(theirs)) = (ours(&der), theirs(&der)) {
            prop_assert_eq!(ours, theirs);
        }
        if let Some(public) = X509::read(&der).and_then(|read| read.key()) {
            belongs(KeyEncoding::Pkcs8, &key, public);
            belongs(KeyEncoding::Pkcs1, &der, public);
            belongs(KeyEncoding::Sec1, &der, public);
        }
    }

    #[test]
    fn base64_is_read_in_lines_of_any_length(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        width in 1..90_usize,
        end in prop::sample::select(vec!["\n", "\r\n", " \n", "\n\n"]),
    ) {
        let lines = STANDARD.encode(&bytes).into_bytes();
        let lines: Vec<_> = lines.chunks(width).map(|line| std::str::from_utf8(line).unwrap().to_owned()).collect();
        let text = format!("-----BEGIN X-----{end}{}{end}-----END X-----{end}", lines.join(end));
        let block = Blocks::new(text.as_bytes()).next().unwrap().unwrap();
        let mut read = Vec::new();
        prop_assert_eq!(pem::decode(block.body, &mut read), Ok(()));
        prop_assert_eq!(read, bytes);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(-----(BEGIN|END) (CERTIFICATE|PRIVATE KEY)-----|[A-Za-z0-9+/=: \n\r-]){0,40}") {
        for block in Blocks::new(text.as_bytes()).flatten() {
            let _ = pem::decode(block.body, &mut Vec::new());
        }
    }

    #[test]
    fn what_is_no_base64_is_refused(text in "[A-Za-z0-9+/= \n]{0,24}") {
        let bare: String = text.split_ascii_whitespace().collect();
        let mut read = Vec::new();
        let ours = pem::decode(text.as_bytes(), &mut read).map(|()| read);
        // Bits that are left over may be anything, as with OpenSSL.
        if let Ok(theirs) = STANDARD.decode(&bare) {
            prop_assert_eq!(ours, Ok(theirs));
        } else if let Ok(ours) = ours {
            prop_assert_eq!(bare.len() % 4, 0);
            prop_assert_eq!(ours.len(), bare.trim_end_matches('=').len() * 3 / 4);
        }
    }
}
