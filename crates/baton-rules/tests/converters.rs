//! Converters that Debian's haproxy does not have, and what tells of errors. The others are compared with haproxy: differential cases `90-` and `91-`.

mod common;

use baton_rules::{Expr, RulePosition};
use common::{GET, eval, files};

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (expr, expected) in cases {
        assert_eq!(eval(expr, GET), *expected, "{expr}");
    }
}

#[test]
fn chunks_with_the_lowest_byte_first() {
    check(&[
        ("bin(01020304050607),le2dec(:,2)", "513:1027:1541:7"),
        ("bin(01020304050607),le2dec(-,2,1)", "513-1027-1541"),
        ("bin(7f000001),le2dec(.,1)", "127.0.0.1"),
        ("bin(ffffffffffffffff),le2dec(,8)", "18446744073709551615"),
    ]);
}

#[test]
fn parameters_of_a_text() {
    check(&[
        ("str(a=1&b=2),param(b)", "2"),
        ("str(a=1&b&c=3),param(b)", ""),
        ("str(ab=1&a=2),param(a)", "2"),
        ("str(a=1;b=2),param(b,;)", "2"),
        ("str(a=1),param(c)", "none"),
    ]);
}

#[test]
fn fields_of_forwarded() {
    check(&[
        (r#"str("for=1.2.3.4;proto=https, for=unknown"),rfc7239_is_valid"#, "1"),
        (r#"str("for=1.2.3.4;for=5.6.7.8"),rfc7239_is_valid"#, "0"),
        (r#"str("for=1.2.3.4.5"),rfc7239_is_valid"#, "0"),
        (r#"str("for=1.2.3.4;"),rfc7239_is_valid"#, "0"),
        ("str(),rfc7239_is_valid", "0"),
        (r#"str("For=\"[2001:db8::1]:80\";by=_x"),rfc7239_field(for)"#, "[2001:db8::1]:80"),
        (r#"str("for=unknown, host=a.b"),rfc7239_field(host)"#, "a.b"),
        (r#"str("for=unknown"),rfc7239_field(proto)"#, "none"),
        ("str([2001:db8::1]:80),rfc7239_n2nn", "2001:db8::1"),
        ("str(1.2.3.4:80),rfc7239_n2nn", "1.2.3.4"),
        ("str(1.2.3.4:80),rfc7239_n2np", "80"),
        ("str(_proxy:_port),rfc7239_n2nn", "_proxy"),
        ("str(_proxy:_port),rfc7239_n2np", "_port"),
        ("str(unknown),rfc7239_n2np", "none"),
        ("str(a.b),rfc7239_n2nn", "none"),
    ]);
}

#[test]
fn dates_with_fractions() {
    check(&[
        (r#"int(1700000000123),ms_utime("%H:%M:%S.%N")"#, "22:13:20.123"),
        (r#"int(1700000000000007),us_utime("%s.%N",1)"#, "1700000000.000008"),
        (r#"int(1700000000),utime("%N")"#, "%N"),
    ]);
}

#[test]
fn encryption_needs_the_right_key_and_tag() {
    const KEY: &str = "Zm9vb2Zvb29mb29wZm9vbw==";
    const NONCE: &str = "Zm9vb2Zvb29mb28x";
    check(&[
        (&format!("str(hello),aes_gcm_enc(128,{NONCE},{KEY},txn.raw),length"), "5"),
        (&format!("str(hello),aes_gcm_dec(128,{NONCE},{KEY},AAAAAAAAAAAAAAAAAAAAAA==)"), "none"),
        (&format!("str(hello),aes_gcm_enc(256,{NONCE},{KEY},txn.raw)"), "none"),
    ]);
}

#[test]
fn a_sample_passes_when_a_condition_holds() {
    check(&[
        ("int(7),when(normal)", "7"),
        ("int(7),when(!error)", "7"),
        ("int(7),when(!normal)", "none"),
        ("int(7),when(forwarded)", "none"),
        ("int(7),when(!processed)", "7"),
        ("int(7),when(toapplet)", "none"),
        ("str(a),debug(here),upper", "A"),
    ]);
}

#[track_caller]
fn refused(expr: &str, expected: &str) {
    let fault = Expr::compile(expr, RulePosition::BackendRequest, &files()).expect_err(expr);
    assert!(fault.to_string().contains(expected), "{expr}: {fault}");
}

#[test]
fn arguments_are_checked() {
    refused("str(x),digest(nope)", "does not know the digest 'nope'");
    refused("str(x),digest(md4)", "does not know the digest 'md4'");
    refused("str(x),when(eror)", "does not know the condition 'eror'");
    refused("str(x),when(error,a)", "takes no argument, not 'a'");
    refused("str(x),when(acl)", "needs the name of an ACL");
    refused("str(x),when(acl,a)", "finds no ACL 'a'");
    refused("str(x),hmac(sha256,!)", "the key needs to be Base64");
    refused("str(x),sha2(100)", "unsupported number of bits: 100");
    refused("str(x),be2dec(:,9)", "a number of 9 bytes is not supported");
    refused("str(x),be2hex(:)", "a separator needs the size of the chunks");
    refused("str(x),json(utf9)", "unexpected input code");
    refused("str(x),json_query(\"\")", "must not be empty");
    refused("str(x),json_query($.a,text)", "can only be 'int'");
    refused("str(x),jwt_verify(XX,secret)", "unknown JWT algorithm: XX");
    refused("str(x),aes_gcm_dec(100,a,b,c)", "128, 192 or 256");
    refused("str(x),add_item(:,,)", "needs the name of a variable or a text");
    refused("str(x),fix_tag_value(Foo)", "unknown FIX tag name 'Foo'");
    refused("str(x),mqtt_field_value(publish,flags)", "cannot be read");
    refused("str(x),mqtt_field_value(connack,username)", "has no field 'username'");
    refused("str(x),protobuf(1.)", "is not the number of a field");
    refused("str(x),protobuf(1,string)", "wrong protocol buffers type 'string'");
    refused("str(x),set-var(txn.a,ifbig)", "is no condition of set-var");
    refused("int(1),http_date(0,min)", "'min' is not one of s, ms, us");
    refused("str(x),wt6", "not supported: its function is described in HAProxy's source only");
}

/// As HAProxy 3.0 and newer name them; OpenSSL's numbers.
#[test]
fn names_of_errors_of_certificates() {
    let check = |number: &str, expect: &str| {
        assert_eq!(common::eval(&format!("str({number}),x509_v_err_str"), common::GET), expect, "{number}");
    };
    check("0", "X509_V_OK");
    check("1", "X509_V_ERR_UNSPECIFIED");
    check("10", "X509_V_ERR_CERT_HAS_EXPIRED");
    check("94", "X509_V_ERR_EC_KEY_EXPLICIT_PARAMS");
    check("95", "none");
    check("-1", "none");
}
