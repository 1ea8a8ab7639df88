//! Fetches about an encrypted connection, from facts as a handshake leaves them.

mod common;

use baton_rules::{Expr, Format, NoFiles, RulePosition};
use baton_tls::rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use baton_tls::rustls::version::TLS13;
use baton_tls::{Captured, Facts, Verification};
use common::with_context;

fn facts() -> Facts {
    Facts {
        version: Some(TLS13.version),
        suite: Some(TLS13_AES_128_GCM_SHA256),
        alpn: Some(b"http/1.1"[..].into()),
        sni: Some("A.example".into()),
        verification: Verification { result: 21, error: 20, ca_error: 19, ca_depth: 1 },
        captured: Some(Box::new(Captured {
            version: 0x0303,
            ciphers: [0x0a, 0x0a, 0x13, 0x01, 0x00, 0x9c, 0xc0, 0x2f, 0x0a, 0x1a].into(),
            ciphers_hash: u64::MAX - 1,
            extensions: [0xfa, 0xfa, 0, 0, 0, 10].into(),
            groups: [0, 29].into(),
            point_formats: [0].into(),
        })),
        ..Facts::default()
    }
}

/// The text of an expression over these facts of both sides; `None`: no sample.
fn check(facts: Option<&Facts>, text: &str, expect: Option<&str>) {
    let expr =
        Expr::compile(text, RulePosition::FrontendRequest, &NoFiles).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    let facts: Option<&'static Facts> = facts.map(|facts| &*Box::leak(Box::new(facts.clone())));
    with_context("GET / HTTP/1.1\r\n\r\n", None, |cx| {
        (cx.client_tls, cx.server_tls) = (facts, facts);
        let value = expr.eval(cx).map(|sample| String::from_utf8_lossy(&sample.into_text()).into_owned());
        assert_eq!(value.as_deref(), expect, "{text}");
    });
}

#[test]
fn a_handshake_is_told() {
    let facts = facts();
    for (text, expect) in [
        ("ssl_fc", "1"),
        ("ssl_fc_protocol", "TLSv1.3"),
        ("ssl_bc_protocol", "TLSv1.3"),
        ("ssl_fc_cipher", "TLS_AES_128_GCM_SHA256"),
        ("ssl_fc_alg_keysize", "128"),
        ("ssl_bc_use_keysize", "128"),
        ("ssl_fc_alpn", "http/1.1"),
        ("ssl_fc_sni,lower", "a.example"),
        ("ssl_fc_has_sni", "1"),
        ("ssl_fc_has_crt", "0"),
        ("ssl_fc_has_early", "0"),
        ("ssl_fc_is_resumed", "0"),
        ("ssl_fc_err", "0"),
        ("ssl_c_used", "0"),
        ("ssl_c_verify", "21"),
        ("ssl_c_err", "20"),
        ("ssl_c_ca_err", "19"),
        ("ssl_c_ca_err_depth", "1"),
    ] {
        check(Some(&facts), text, Some(expect));
    }
    for text in ["ssl_fc_npn", "ssl_fc_err_str", "ssl_c_der", "ssl_c_s_dn", "ssl_f_sha1,hex", "ssl_s_chain_der"] {
        check(Some(&facts), text, None);
    }
}

#[test]
fn the_hello_is_told_with_and_without_what_means_nothing() {
    let facts = facts();
    for (text, expect) in [
        ("ssl_fc_protocol_hello_id", "771"),
        ("ssl_fc_cipherlist_bin,hex", "0A0A1301009CC02F0A1A"),
        ("ssl_fc_cipherlist_bin(1),hex", "1301009CC02F0A1A"),
        ("ssl_fc_cipherlist_hex(1)", "1301009CC02F0A1A"),
        (
            "ssl_fc_cipherlist_str",
            "UNKNOWN(0a0a),TLS_AES_128_GCM_SHA256,AES128-GCM-SHA256,ECDHE-RSA-AES128-GCM-SHA256,UNKNOWN(0a1a)",
        ),
        ("ssl_fc_extlist_bin(1),hex", "0000000A"),
        ("ssl_fc_eclist_bin,hex", "001D"),
        ("ssl_fc_ecformats_bin,hex", "00"),
    ] {
        check(Some(&facts), text, Some(expect));
        check(Some(&Facts::default()), text, None);
    }
}

#[test]
fn without_encryption_there_is_nothing_to_tell() {
    check(None, "ssl_fc", Some("0"));
    check(None, "ssl_bc", Some("0"));
    check(None, "ssl_fc_has_sni", Some("0"));
    check(None, "ssl_fc_is_resumed", Some("0"));
    for text in ["ssl_fc_protocol", "ssl_c_used", "ssl_fc_has_crt", "ssl_bc_cipher", "ssl_fc_err", "ssl_c_verify"] {
        check(None, text, None);
    }
}

#[test]
fn what_nobody_may_know_is_refused_with_the_reason() {
    for name in ["ssl_fc_session_key", "ssl_fc_client_random", "ssl_fc_unique_id", "ssl_bc_session_id"] {
        let fault = Expr::compile(name, RulePosition::FrontendRequest, &NoFiles).unwrap_err().to_string();
        assert!(fault.contains("is not supported: keys, randoms and session identifiers never leave"), "{fault}");
    }
}

#[test]
fn a_format_tells_version_and_cipher() {
    let format = Format::compile("%sslv %sslc %ft", RulePosition::FrontendRequest, &NoFiles).expect("a format");
    let facts: &'static Facts = Box::leak(Box::new(facts()));
    for (facts, expect) in [(Some(facts), "TLSv1.3 TLS_AES_128_GCM_SHA256 fe~"), (None, "  fe")] {
        with_context("GET / HTTP/1.1\r\n\r\n", None, |cx| {
            cx.client_tls = facts;
            let mut out = Vec::new();
            format.write(cx, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expect);
        });
    }
}
