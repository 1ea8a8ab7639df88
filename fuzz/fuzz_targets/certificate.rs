//! Certificates, keys and lists of authorities as files: any bytes, and a good bundle with faults. No panic, and what is taken can
//! be described.
#![no_main]

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use baton_prove::certificates::{Authority, CertificateSpec, KeyKind};
use baton_tls::{Chains, Parts, authorities};
use libfuzzer_sys::fuzz_target;

/// The parts of good bundles, in DER: certificate, issuer, key; and a list of revoked ones as PEM.
fn good() -> &'static [[Vec<u8>; 3]] {
    static GOOD: OnceLock<Vec<[Vec<u8>; 3]>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let authority = Authority::new("Fuzz").expect("an authority");
        let issue = |kind| {
            let issued =
                authority.issue(&CertificateSpec::server(["a.example", "*.b.example", "192.0.2.1"]).with_key(kind));
            let issued = issued.expect("a certificate");
            let chain = issued.chain();
            [chain[0].to_vec(), chain[1].to_vec(), issued.key().secret_der().to_vec()]
        };
        [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa2048].map(issue).into()
    })
}

fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(64) {
        text += std::str::from_utf8(line).expect("base64 is text");
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

/// Three bytes are a fault: where it is, relative to the length, and what stands there then.
fn damage(der: &mut Vec<u8>, edits: &[u8]) {
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]]) & 0x3fff);
        match (edit[0] >> 6, at < der.len()) {
            (0 | 1, true) => der[at] = edit[2],
            (2, true) => drop(der.drain(at..(at + 1 + usize::from(edit[2])).min(der.len()))),
            (3, true) => der.insert(at, edit[2]),
            _ => {}
        }
    }
}

fn read(text: &[u8]) {
    let chains = Chains::default();
    let mut parts = Parts::default();
    if parts.read_bundle(text, &chains).is_ok()
        && let Ok(certificate) = parts.build(&chains)
    {
        let description = certificate.describe();
        assert!(!format!("{description:?}").is_empty());
        assert!(certificate.names().len() <= certificate.der().len());
        let _ = certificate.check_signer();
    }
    let _ = parts.read_key(text);
    let _ = parts.read_issuer(text, &chains);
    let _ = authorities::Authority::read(text);
}

fuzz_target!(|input: &[u8]| {
    read(input);
    let Some((choice, edits)) = input.split_first() else { return };
    let all = good();
    let mut parts = all[usize::from(*choice) % all.len()].clone();
    damage(&mut parts[usize::from(*choice >> 2) % 3], edits);
    let [certificate, issuer, key] = parts;
    let bundle = pem("CERTIFICATE", &certificate) + &pem("CERTIFICATE", &issuer) + &pem("PRIVATE KEY", &key);
    read(bundle.as_bytes());
});
