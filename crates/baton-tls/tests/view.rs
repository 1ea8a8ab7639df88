//! What is told of certificates that openssl makes, next to what openssl says of them.

use std::path::Path;
use std::process::Command;

use baton_tls::View;
use tempfile::TempDir;

/// Runs openssl in a folder; its output.
fn openssl(folder: &Path, args: &[&str]) -> Vec<u8> {
    let run = Command::new("openssl").args(args).current_dir(folder).output();
    let run = run.expect("openssl is installed by scripts/setup");
    assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
    run.stdout
}

/// A certificate in DER, in `a.pem` as well.
fn certificate(folder: &Path, subject: &str, more: &[&str]) -> Vec<u8> {
    let usual = ["req", "-x509", "-utf8", "-nodes", "-keyout", "a.key", "-out", "a.pem", "-subj", subject];
    openssl(folder, &[&usual, more].concat());
    openssl(folder, &["x509", "-in", "a.pem", "-outform", "DER"])
}

/// What openssl says about `a.pem`, behind the `=`.
fn says(folder: &Path, what: &[&str]) -> String {
    let text = openssl(folder, &[&["x509", "-in", "a.pem", "-noout"], what].concat());
    let text = String::from_utf8(text).expect("it is text");
    text.trim_end_matches('\n').split_once('=').map(|(_, value)| value.to_owned()).unwrap_or_default()
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder can be made")
}

#[test]
fn names_are_told_whole_and_by_their_entries() {
    let folder = folder();
    let subject =
        r"/C=FR/ST=Île/O=ACME, Inc./OU=one/OU=two+UID=u1/CN=An\/na #1;/DC=x/emailAddress=a@b.c/SN=Berg/GN=Anna";
    let der = certificate(folder.path(), subject, &["-multivalue-rdn"]);
    let name = View::read(&der).expect("it is a certificate").subject();
    let line = "/C=FR/ST=Île/O=ACME, Inc./OU=one/OU=two/UID=u1/CN=An/na #1;/DC=x/emailAddress=a@b.c/SN=Berg/GN=Anna";
    assert_eq!(String::from_utf8_lossy(&name.one_line()), line);
    assert_eq!(name.rfc2253(), says(folder.path(), &["-subject", "-nameopt", "RFC2253"]));
    let entry = |name_of: &str, occurrence| name.entry(name_of, occurrence).map(String::from_utf8_lossy);
    assert_eq!(entry("CN", 1).as_deref(), Some("An/na #1;"));
    assert_eq!(entry("cn", 1).as_deref(), Some("An/na #1;"));
    assert_eq!(entry("OU", 1).as_deref(), Some("one"));
    assert_eq!(entry("OU", 2).as_deref(), Some("two"));
    assert_eq!(entry("OU", -1).as_deref(), Some("two"));
    assert_eq!(entry("OU", -2).as_deref(), Some("one"));
    for (name, occurrence) in [("OU", 0), ("OU", 3), ("OU", -3), ("OU", i64::MIN), ("OU", i64::MAX), ("X", 1), ("", 1)]
    {
        assert_eq!(entry(name, occurrence), None, "{name} {occurrence}");
    }
}

#[test]
fn values_with_characters_that_mean_something_are_escaped_as_openssl_does() {
    let folder = folder();
    for subject in [r"/CN= a ", r"/CN=#a", r#"/CN=a"b\\c<d>e\+f;g,h"#, "/CN=日本語/O=ü"] {
        let der = certificate(folder.path(), subject, &[]);
        let name = View::read(&der).expect("it is a certificate").subject();
        assert_eq!(name.rfc2253(), says(folder.path(), &["-subject", "-nameopt", "RFC2253"]), "{subject}");
    }
}

#[test]
fn numbers_dates_and_algorithms_are_openssls() {
    let folder = folder();
    let check = |more: &[&str], serial: &str, signed: &str, key: &str| {
        let der = certificate(folder.path(), "/CN=a", &[&["-set_serial", serial], more].concat());
        let view = View::read(&der).expect("it is a certificate");
        let digits = view.serial().iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        assert_eq!(digits, says(folder.path(), &["-serial"]));
        assert_eq!((view.version(), view.signature_algorithm(), view.key_algorithm()), (3, signed, key), "{more:?}");
        let sha1: Vec<String> = baton_tls::sha1(&der).iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(sha1.join(":"), says(folder.path(), &["-fingerprint", "-sha1"]));
        [view.not_before(), view.not_after()].map(|date| String::from_utf8_lossy(date).into_owned())
    };
    check(&["-newkey", "rsa:2048"], "0x00f1", "RSA-SHA256", "rsaEncryption");
    check(&["-newkey", "rsa:2048", "-sha512"], "1", "RSA-SHA512", "rsaEncryption");
    check(&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "0x0102", "ecdsa-with-SHA256", "id-ecPublicKey");
    check(
        &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-sha384"],
        "0x7f",
        "ecdsa-with-SHA384",
        "id-ecPublicKey",
    );
    let dates = check(&["-newkey", "ed25519", "-days", "20000"], "0x80", "ED25519", "ED25519");
    assert!(dates.iter().all(|date| date.len() == 13 && date.ends_with('Z')), "also after 2050: {dates:?}");
}

#[test]
fn what_is_no_certificate_is_not_told() {
    let folder = folder();
    let der = certificate(folder.path(), "/CN=a", &["-newkey", "ed25519"]);
    for end in 0..der.len() {
        assert!(View::read(&der[..end]).is_none());
    }
    for at in 0..der.len() {
        let mut bent = der.clone();
        bent[at] ^= 0x21;
        if let Some(view) = View::read(&bent) {
            let _ = (view.subject().one_line(), view.subject().rfc2253(), view.issuer().entry("CN", -1), view.serial());
            let _ = (view.not_after(), view.signature_algorithm(), view.key_algorithm());
        }
    }
}
