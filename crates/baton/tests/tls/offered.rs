//! What is offered and what is not, asked for one by one, as auditing programs do.

use std::collections::BTreeSet;

use baton_prove::certificates::KeyKind;

use crate::openssl::{answered, ask};
use crate::tool::{Said, Tool};
use crate::world::{World, is_baton, usual};

/// What Baton speaks of TLS 1.2; others offer more unless told.
const CIPHERS: &str = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:\
    ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305";

/// Baton as it is; another program with the same ciphers and curves.
fn world(kind: KeyKind) -> World {
    let (global, words) = match is_baton() {
        true => (String::new(), ""),
        false => (format!("ssl-default-bind-ciphers {CIPHERS}"), "curves X25519:P-256:P-384"),
    };
    World::start_with(kind, &format!("crt FOLDER/a.pem {words}"), &global, "")
}

#[test]
fn versions_that_are_broken_are_not_spoken() {
    let mut world = usual();
    for (version, spoken) in [("-tls1", false), ("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)] {
        let said = ask(&world, &[version, "-cipher", "ALL:@SECLEVEL=0"]);
        assert_eq!(answered(&said), spoken, "{version}: {said:?}");
        if !spoken {
            assert!(said.all().contains("alert protocol version"), "{version}: {said:?}");
        }
    }
    world.serves();
}

/// The ciphers among all that openssl knows with which TLS 1.2 comes to be.
fn ciphers(world: &World) -> BTreeSet<String> {
    let known = Tool::new("openssl", &["ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]).run();
    let known: Vec<&str> = known.out.trim().split(':').filter(|name| !name.starts_with("TLS_")).collect();
    assert!(known.len() > 30, "{known:?}");
    let offered = |name: &&str| {
        let said = ask(world, &["-tls1_2", "-cipher", &format!("{name}:@SECLEVEL=0")]);
        answered(&said)
    };
    known.into_iter().filter(offered).map(str::to_owned).collect()
}

fn expected(kind: &str) -> BTreeSet<String> {
    CIPHERS.split(':').filter(|name| name.contains(kind)).map(str::to_owned).collect()
}

#[test]
fn only_ciphers_with_forward_secrecy_and_authenticated_encryption() {
    let mut ecdsa = world(KeyKind::P256);
    assert_eq!(ciphers(&ecdsa), expected("-ECDSA-"));
    ecdsa.serves();
}

#[test]
fn the_same_with_a_key_of_rsa() {
    let mut rsa = world(KeyKind::Rsa2048);
    assert_eq!(ciphers(&rsa), expected("-RSA-"));
    rsa.serves();
}

#[test]
fn all_suites_of_the_newest_version() {
    let world = world(KeyKind::P256);
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"] {
        let said = ask(&world, &["-tls1_3", "-ciphersuites", suite]);
        assert!(answered(&said) && said.out.contains(&format!("New, TLSv1.3, Cipher is {suite}")), "{said:?}");
    }
    let said = ask(&world, &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"]);
    assert!(!answered(&said), "{said:?}");
}

#[test]
fn curves_that_are_strong_enough() {
    // With a key that is on no curve itself.
    let world = world(KeyKind::Rsa2048);
    for version in ["-tls1_2", "-tls1_3"] {
        for (curve, offered) in [("X25519", true), ("P-256", true), ("P-384", true), ("secp256k1", false)] {
            let said = ask(&world, &[version, "-curves", curve]);
            let used = said.out.lines().find(|line| line.starts_with("Server Temp Key:")).unwrap_or_default();
            let wanted = match curve {
                "P-256" => "prime256v1",
                "P-384" => "secp384r1",
                other => other,
            };
            assert_eq!(used.contains(wanted), offered, "{version} {curve}: {said:?}");
        }
    }
}

#[test]
fn what_an_audit_looks_for() {
    let world = usual();
    let said = ask(&world, &["-tls1_2", "-comp", "-status", "-tlsextdebug"]);
    said.says(&[
        "Compression: NONE",
        "Secure Renegotiation IS supported",
        "Extended master secret: yes",
        "OCSP response: no response sent",
        "TLS session ticket lifetime hint:",
    ]);
    assert!(!said.out.contains("heartbeat"), "{said:?}");
    let hint = said.out.split("lifetime hint: ").nth(1).and_then(|rest| rest.split(' ').next());
    let hint: u64 = hint.and_then(|number| number.parse().ok()).expect("a number of seconds");
    // RFC 8446, 4.6.1: at most seven days.
    assert!((1..=604_800).contains(&hint), "{hint}");
}

/// Whether the server's random bytes end as those of a server that speaks TLS 1.3 must when it agrees on TLS 1.2
/// (RFC 8446 4.1.3).
fn has_sentinel(said: &Said) -> bool {
    let (_, hello) = said.out.split_once(", ServerHello\n").expect("it is in the dump");
    let dump = hello.lines().take_while(|line| line.starts_with("    "));
    let bytes: Vec<&str> = dump.flat_map(str::split_ascii_whitespace).collect();
    // Behind type, length and version.
    bytes[6..38].ends_with(&["44", "4f", "57", "4e", "47", "52", "44", "01"])
}

#[test]
fn a_downgrade_is_noticed() {
    let newest = usual();
    // Clients that know TLS 1.3 see by the random bytes that it is spoken here.
    let said = ask(&newest, &["-tls1_2", "-msg"]);
    assert!(answered(&said) && has_sentinel(&said), "{said:?}");
    // Older ones say themselves that they were turned away before (RFC 7507 3).
    let said = ask(&newest, &["-tls1_2", "-fallback_scsv"]);
    assert!(!answered(&said) && said.all().contains("alert inappropriate fallback"), "{said:?}");
    let said = ask(&newest, &["-fallback_scsv"]);
    assert!(answered(&said) && said.out.contains("New, TLSv1.3"), "it offers all: {said:?}");
    let older = World::start(KeyKind::P256, "crt FOLDER/a.pem ssl-max-ver TLSv1.2");
    let said = ask(&older, &["-tls1_2", "-fallback_scsv", "-msg"]);
    assert!(answered(&said) && !has_sentinel(&said), "there is nothing newer: {said:?}");
}

#[test]
fn protocols_within_are_agreed_on() {
    let world = World::start(KeyKind::P256, "crt FOLDER/a.pem alpn http/1.1");
    ask(&world, &["-alpn", "h2,http/1.1"]).says(&["ALPN protocol: http/1.1", "HTTP/1.1 200 "]);
    ask(&world, &[]).says(&["No ALPN negotiated", "HTTP/1.1 200 "]);
}
