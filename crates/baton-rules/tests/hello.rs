//! Rules about the ClientHello of a connection in `mode tcp` that is not decrypted.

mod common;

use baton_rules::{Context, RuleCursor, TcpContent, Verdict};
use common::{rules, with_context};

/// A ClientHello in one record, with the extensions given as number and content.
fn hello(version: [u8; 2], extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (number, content) in extensions {
        list.extend(number.to_be_bytes());
        list.extend(length(content.len()));
        list.extend(*content);
    }
    let mut body = [&version[..], &[0; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    body.extend(length(list.len()));
    body.extend(list);
    let message = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[22, 3, 1][..], &length(message.len()), &message].concat()
}

fn length(count: usize) -> [u8; 2] {
    u16::try_from(count).expect("a short hello").to_be_bytes()
}

fn sni(name: &str) -> Vec<u8> {
    [&length(name.len() + 3)[..], &[0], &length(name.len()), name.as_bytes()].concat()
}

/// What `with` gives over these bytes.
fn over<T>(bytes: &[u8], last_chance: bool, with: impl FnOnce(&mut Context<'_>) -> T) -> T {
    // The context takes whatever lives as long as it does, which for a closure of any such context is for ever.
    let bytes: &'static [u8] = bytes.to_vec().leak();
    with_context("GET / HTTP/1.1\r\n\r\n", None, |cx| {
        cx.request = None;
        cx.content = Some(TcpContent { bytes, may_become_http: false });
        cx.last_chance = last_chance;
        with(cx)
    })
}

fn verdict(lines: &str, bytes: &[u8], last_chance: bool) -> &'static str {
    let rules = rules(lines);
    over(bytes, last_chance, |cx| match rules.tcp_content(cx, &mut RuleCursor::default()) {
        Verdict::Wait(_) => "wait",
        Verdict::Reject => "reject",
        Verdict::Continue | Verdict::Allow => "go on",
        _ => "something else",
    })
}

#[test]
fn the_name_chooses_a_backend() {
    let lines = "use_backend a if { req.ssl_sni -i a.example }\nuse_backend b if { req_ssl_sni -m end .b.example }\n\
                 use_backend acme if { req.ssl_alpn acme-tls/1 }\nuse_backend %[req.ssl_sni,lower,field(1,.)] if { req.ssl_sni -m found }";
    let rules = rules(lines);
    let backend = |bytes: &[u8]| over(bytes, true, |cx| rules.backend(cx).map(|name| name.into_owned()));
    let named = |name: &str| hello([3, 3], &[(0, &sni(name))]);
    assert_eq!(backend(&named("A.example")).as_deref(), Some("a"));
    assert_eq!(backend(&named("x.b.example")).as_deref(), Some("b"));
    assert_eq!(backend(&named("C.example")).as_deref(), Some("c"));
    assert_eq!(
        backend(&hello([3, 3], &[(16, b"\0\x0e\x02h2\x0aacme-tls/1")])).as_deref(),
        Some("acme"),
        "one of several"
    );
    assert_eq!(backend(&hello([3, 3], &[])), None);
    assert_eq!(backend(b"GET / HTTP/1.1\r\n"), None);
}

#[test]
fn a_hello_is_waited_for_as_long_as_it_may_be_one() {
    let lines = "tcp-request inspect-delay 5s\ntcp-request content accept if { req.ssl_hello_type 1 }\ntcp-request content reject";
    let whole = hello([3, 3], &[(0, &sni("a.example"))]);
    assert_eq!(verdict(lines, &whole, false), "go on");
    for end in 0..whole.len() {
        assert_eq!(verdict(lines, &whole[..end], false), "wait");
    }
    assert_eq!(verdict(lines, &whole[..20], true), "reject", "the time is over");
    assert_eq!(verdict(lines, b"SSH-2.0-", false), "reject", "this will never be one");
}

#[test]
fn versions_are_written_with_a_point() {
    let check = |pattern: &str, version: [u8; 2], expect: &str| {
        let lines = format!("tcp-request content reject if {{ req.ssl_ver {pattern} }}");
        assert_eq!(verdict(&lines, &hello(version, &[]), true), expect, "{pattern} {version:?}");
    };
    check("3.1", [3, 1], "reject");
    check("3.1", [3, 3], "go on");
    check("lt 3.3", [3, 2], "reject");
    check("3.0:3.2", [3, 2], "reject");
    check("3.0:3.2", [3, 3], "go on");
    check("196611", [3, 3], "reject");
}

#[test]
fn extensions_are_told() {
    let check = |criterion: &str, extensions: &[(u16, &[u8])], expect: &str| {
        let lines = format!("tcp-request content reject if {{ {criterion} }}");
        assert_eq!(verdict(&lines, &hello([3, 3], extensions), true), expect, "{criterion} {extensions:?}");
    };
    check("req.ssl_ec_ext", &[(10, b"\0\x02\0\x1d")], "reject");
    check("req.ssl_ec_ext", &[], "go on");
    check("req.ssl_st_ext 0", &[], "reject");
    check("req.ssl_st_ext 1", &[(35, b"")], "reject");
    check("req.ssl_st_ext 2", &[(35, b"ticket")], "reject");
}
