//! Fetches from the bytes of a connection in `mode tcp`. What is expected was seen on HAProxy 2.6.12, of a client that had ended its
//! sending; but for the body of a distcc message that is not complete, where HAProxy gives bytes that never came.

mod common;

use baton_rules::{Context, Expr, RulePosition, TcpContent};
use common::{files, with_bytes};

/// What `with` gives over bytes of the client and of the server.
fn over<T>(sent: &[u8], answer: Option<&[u8]>, last_chance: bool, with: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let content = TcpContent { bytes: sent, may_become_http: false };
    with_bytes(b"GET / HTTP/1.1\r\n\r\n", None, Some(content), answer, |cx| {
        cx.request = None;
        cx.last_chance = last_chance;
        with(cx)
    })
}

/// The value in hexadecimal digits or as text; `none`, or `wait` where more bytes may tell.
fn eval(text: &str, sent: &[u8], answer: Option<&[u8]>, last_chance: bool) -> String {
    let place = if text.starts_with("re") && !text.starts_with("req") {
        RulePosition::Response
    } else {
        RulePosition::BackendRequest
    };
    let expr = Expr::compile(text, place, &files()).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    over(sent, answer, last_chance, |cx| match expr.eval(cx) {
        Some(sample) => String::from_utf8_lossy(&sample.into_text()).into_owned(),
        None if cx.undecided.get() => "wait".to_owned(),
        None => "none".to_owned(),
    })
}

#[track_caller]
fn check(sent: &[u8], cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(eval(text, sent, None, true), *expected, "{text} of {}", sent.escape_ascii());
        // Where there was something, it is there before the end as well; what is decided before stays so.
        let early = eval(text, sent, None, false);
        assert!(early == *expected || early == "wait" && *expected == "none", "{text}: {early}");
    }
}

fn error(text: &str) -> String {
    Expr::compile(text, RulePosition::BackendRequest, &files()).expect_err("it is refused").to_string()
}

#[test]
fn blocks_of_bytes() {
    check(b"", &[("req.len", "0"), ("req.payload(0,0),hex", "none"), ("req.payload_lv(0,1),hex", "none")]);
    check(
        b"\x02abcdef",
        &[
            ("req.len", "7"),
            ("req.payload(0,0),hex", "02616263646566"),
            ("req.payload(2,0),hex", "6263646566"),
            ("req.payload(0,4),hex", "02616263"),
            ("req.payload(6,0),hex", "66"),
            ("req.payload(7,0),hex", "none"),
            ("req.payload(4,4),hex", "none"),
            ("req.payload(0,99999),hex", "none"),
            ("payload(0,2),hex", "0261"),
            ("req.payload_lv(0,1),hex", "6162"),
            // HAProxy 2.6 halves an absolute offset; the manual's meaning is given here.
            ("req.payload_lv(0,1,3),hex", "6364"),
            ("req.payload_lv(0,1,+1),hex", "6263"),
            ("req.payload_lv(0,1,-1),hex", "0261"),
            ("req.payload_lv(1,1),hex", "none"),
            ("payload_lv(0,1),hex", "6162"),
        ],
    );
    check(b"\0\x03abcdef", &[("req.payload_lv(0,1),hex", "none"), ("req.payload_lv(0,2),hex", "616263")]);
    check(b"\x01\x02\x03\x04\x05", &[("req.payload_lv(2,1,-1),hex", "030405"), ("req.payload(5,0),hex", "none")]);
    // A length has 32 bits, whatever stands before them.
    check(b"\x01\0\0\0\x02abc", &[("req.payload_lv(0,5),hex", "6162")]);
    check(b"\0\0\0\0\0\0\0\0\x02abcdef", &[("req.payload_lv(0,9),hex", "6162")]);
    check(b"\xff\xff\xff\xff\xff", &[("req.payload_lv(0,4),hex", "none")]);
}

#[test]
fn arguments_of_blocks_are_checked() {
    assert_eq!(error("req.payload_lv(0,0)"), "payload length must be > 0");
    assert_eq!(error("req.payload_lv(-1,1)"), "payload offset1 must be positive");
    assert_eq!(error("req.payload_lv(0,2,x)"), "payload offset2 is not a number");
    assert_eq!(error("req.payload_lv(0,2,-4)"), "payload offset2 too negative");
    assert_eq!(error("req.payload(-1,2)"), "payload offset and length must not be negative");
    assert!(error("req.payload(0)").contains("argument 2"));
    assert_eq!(error("distcc_param(abc)"), "token name must be exactly 4 characters");
}

/// The first message of RDP with this text.
fn rdp(text: &[u8]) -> Vec<u8> {
    let length = u8::try_from(11 + text.len()).expect("a short text");
    [&[3, 0, 0, length, length - 5, 0xe0, 0, 0, 0, 0, 0], text].concat()
}

#[test]
fn cookies_of_rdp() {
    let found = |text: &[u8], any: &str, hash: &str, msts: &str, count: &str| {
        let cases = [
            ("req.rdp_cookie", any),
            ("rdp_cookie(mstshash)", hash),
            ("req_rdp_cookie(MSTS)", msts),
            ("req.rdp_cookie_cnt", count),
        ];
        check(&rdp(text), &cases);
    };
    found(b"Cookie: mstshash=user\r\n", "user", "user", "none", "1");
    found(b"Cookie: msts=36402.15.0\r\n", "36402.15.0", "none", "36402.15.0", "1");
    found(b"cookie:mstshash=user\r\n\x01\0", "user", "user", "none", "1");
    found(b"COOKIE:   MSTSHASH=user\r\n", "user", "user", "none", "1");
    found(b"Cookie: mstshash=user\r", "none", "none", "none", "none");
    found(b"Cookie: mstshash=user", "none", "none", "none", "none");
    found(b"Cookie: mstshash=\r\n", "", "", "none", "1");
    found(b"Cookie: mstshash=a b;c\r\n", "a b;c", "a b;c", "none", "1");
    found(b"Cookie: mstshash user\r\n", "none", "none", "none", "0");
    found(b"Cookie: msts", "none", "none", "none", "none");
    found(b"Cookie", "none", "none", "none", "none");
    found(b"Kookie: mstshash=user\r\n", "none", "none", "none", "0");
    found(b"Cookie: mstshash=user\nx\r\n", "user\nx", "user\nx", "none", "1");
    found(b"Cookie: mstshash=us\rer\r\n", "none", "none", "none", "0");
    found(b"Cookie: =user\r\n", "user", "none", "none", "1");
    found(b"Cookie: a\nb=1\r\n", "none", "none", "none", "0");
    found(b"Cookie: a=b=c\r\n", "b=c", "none", "none", "1");
    found(b"Cookie: msts=1\r\nCookie: mstshash=2\r\n", "1", "none", "1", "1");
    check(&rdp(b"Cookie: mstshash=user"), &[("rdp_cookie_cnt(msts)", "0"), ("rdp_cookie_cnt(mstshash)", "none")]);
    check(b"\x03\0\0", &[("rdp_cookie", "none"), ("rdp_cookie_cnt", "none")]);
}

#[test]
fn messages_of_distcc() {
    check(
        b"DIST00000001ARGC00000002ARGV00000003gccARGV00000002-cDOTI00000005hello",
        &[
            ("distcc_param(DIST)", "1"),
            ("distcc_param(ARGC)", "2"),
            ("distcc_param(ARGV)", "3"),
            ("distcc_param(ARGV,2)", "2"),
            ("distcc_param(ARGV,3)", "none"),
            ("distcc_param(DOTI)", "5"),
            ("distcc_body(ARGV)", "gcc"),
            ("distcc_body(ARGV,0)", "gcc"),
            ("distcc_body(ARGV,-1)", "none"),
            ("distcc_body(ARGV,2)", "-c"),
            ("distcc_body(DOTI)", "hello"),
            ("distcc_body(DIST)", "none"),
            ("distcc_body(ARGC)", "none"),
        ],
    );
    check(b"DIST00000001DOTI00000005hel", &[("distcc_param(DOTI)", "5"), ("distcc_body(DOTI)", "none")]);
    check(
        b"DONE00000001STAT00000007SERR00000003errSOUT00000000DOTO00000002oo",
        &[("distcc_param(STAT)", "7"), ("distcc_body(SERR)", "err"), ("distcc_body(DOTO)", "oo")],
    );
    check(b"XXXX00000003abcARGV00000001x", &[("distcc_body(XXXX)", "abc"), ("distcc_body(ARGV)", "x")]);
    check(b"NFIL00000003ARGV00000001x", &[("distcc_body(ARGV)", "x")]);
    check(b"DIST0000000GARGV00000001x", &[("distcc_param(DIST)", "none"), ("distcc_param(ARGV)", "none")]);
    check(b"DISTFFFFFFFFARGV00000001x", &[("distcc_param(DIST)", "4294967295"), ("distcc_body(ARGV)", "x")]);
    check(b"DIST0000001", &[("distcc_param(DIST)", "none")]);
    check(b"dist00000001", &[("distcc_param(DIST)", "none")]);
}

#[test]
fn bytes_of_the_server() {
    let answered = |text: &str, bytes: &[u8]| eval(text, b"sent", Some(bytes), false);
    assert_eq!(answered("res.payload(1,2)", b"abc"), "bc");
    assert_eq!(answered("res.payload_lv(0,1)", b"\x01bc"), "b");
    assert_eq!(answered("res.len", b"abc"), "3");
    assert_eq!(answered("res.payload(1,3)", b"abc"), "wait");
    let hello = b"\x16\x03\x03\0\x08\x02\0\0\x04abcd";
    assert_eq!(answered("res.ssl_hello_type", hello), "2");
    assert_eq!(answered("rep_ssl_hello_type", &hello[..12]), "wait");
    assert_eq!(answered("res.ssl_hello_type", &hello[..3]), "wait");
    assert_eq!(answered("res.ssl_hello_type", b"HTTP/1.1 200"), "none");
    assert_eq!(answered("res.ssl_hello_type", b"\x16\x03\x03\0\x08\x01\0\0\x04abcd"), "none");
}
