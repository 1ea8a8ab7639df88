//! Hellos of rustls' own client, and such as nobody should send.

use std::sync::Arc;

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// The records of a client's hello.
fn hello(name: &str, alpn: &[&str], fragment: Option<usize>) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has both versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.max_fragment_size = fragment;
    let name = name.to_owned().try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut records = Vec::new();
    client.write_tls(&mut records).expect("memory can be written");
    records
}

/// The message of some records in records of `length` bytes.
fn split(records: &[u8], length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for part in records[RECORD_HEADER..].chunks(length) {
        out.extend_from_slice(&[22, 3, 1]);
        out.extend_from_slice(&u16::try_from(part.len()).expect("short").to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}

fn check(records: &[u8]) {
    let hello = Hello::read(records).expect("all is there").expect("it is a hello");
    assert_eq!(hello.sni(), Some("a.example"));
    assert_eq!(hello.alpn().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
    assert_eq!((hello.record_version(), hello.version()), (0x0301, 0x0303));
    assert_eq!(hello.versions().collect::<Vec<_>>(), [0x0304, 0x0303]);
    assert!(numbers(hello.ciphers()).any(|suite| suite == 0x1301));
    assert!(numbers(hello.groups().unwrap()).any(|group| group == 29));
    assert_eq!(hello.point_formats(), Some(&[0][..]));
    assert!(hello.signatures().any(|scheme| scheme == SignatureScheme::ECDSA_NISTP256_SHA256));
    assert!(hello.extensions().any(|number| number == extension::ALPN));
    assert_eq!((hello.session_id().len(), hello.ticket()), (32, Some(&[][..])));
}

#[test]
fn a_hello_says_what_it_says_however_it_is_split() {
    let whole = hello("a.example", &["h2", "http/1.1"], None);
    check(&whole);
    assert!(matches!(Hello::read(&whole).unwrap().unwrap().body, Cow::Borrowed(_)), "nothing is copied");
    for length in [1, 2, 3, 4, 5, 50, 100] {
        check(&split(&whole, length));
    }
    check(&hello("a.example", &["h2", "http/1.1"], Some(64)));
    check(&[&whole[..], b"and what comes after it"].concat());
}

#[test]
fn every_start_of_a_hello_is_incomplete() {
    let whole = hello("a.example", &[], None);
    for records in [whole.clone(), split(&whole, 7)] {
        for end in 0..records.len() {
            assert_eq!(Hello::read(&records[..end]).err(), Some(Incomplete), "{end}");
        }
        assert!(Hello::read(&records).unwrap().is_some());
    }
}

#[test]
fn an_address_is_no_name() {
    let records = hello("127.0.0.1", &[], None);
    let hello = Hello::read(&records).unwrap().unwrap();
    assert_eq!((hello.sni(), hello.alpn().count()), (None, 0));
}

#[test]
fn other_things_are_no_hello() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16GET",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x01\x02",
        b"\x80\x2e\x01\x03\x01",
    ] {
        assert!(Hello::read(bytes).unwrap().is_none(), "{bytes:?}");
    }
    assert!(Hello::read(b"\x16\x03\x01\x44\x00\x01").unwrap().is_none(), "a record too long");
    assert!(Hello::read(b"\x16\x03\x01\x40\x00\x01\x01\x00\x00").unwrap().is_none(), "a message too long");
    assert!(Hello::read(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00").unwrap().is_none(), "a message of nothing");
    assert!(Hello::read(b"\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x03\x00\x00\x00").unwrap().is_none(), "nor in two");
    assert!(Hello::read(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00").unwrap().is_none(), "a message too short");
}

proptest! {
    /// Whatever comes, everything can be asked, and the same is read when it is split anew.
    #[test]
    fn nothing_panics(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>(), length in 1_usize..300) {
        let mut records = hello("a.example", &["h2"], None);
        let at = RECORD_HEADER + at.index(records.len() - RECORD_HEADER);
        records[at] = byte;
        let there = &records[..cut.index(records.len() + 1)];
        if let Ok(Some(hello)) = Hello::read(there) {
            let _ = (hello.sni(), hello.version(), hello.ticket(), hello.groups(), hello.point_formats(), hello.bytes());
            let _ = (hello.alpn().count(), hello.versions().count(), hello.signatures().count(), hello.extensions().count());
            let again = split(&records, length);
            let again = Hello::read(&again).expect("all is there").expect("it is the same");
            prop_assert_eq!(again.bytes(), hello.bytes());
            prop_assert_eq!(again.sni(), hello.sni());
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = Hello::read(&bytes);
        let mut framed = vec![22, 3, 1, (bytes.len() >> 8) as u8, bytes.len() as u8];
        framed.extend(&bytes);
        let _ = Hello::read(&framed);
    }
}
