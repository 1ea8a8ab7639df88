//! `option forwarded`. HAProxy 2.6 has none; the first cases are the examples of its later manuals.

mod common;

use baton_model::Role;
use baton_rules::{NoFiles, compile};
use common::{proxy, with_context};

fn value(option: &str, request: &str) -> String {
    let lines = format!("option forwarded {option}");
    let rules = compile(&proxy(Role::Backend, &lines), &NoFiles).expect("a test's option is valid");
    with_context(request, None, |cx| String::from_utf8(rules.forwarded(cx)).expect("text"))
}

#[track_caller]
fn check(option: &str, expect: &str) {
    let request = "GET / HTTP/1.1\r\nHost: haproxy.org:80\r\nV6: 2001:db8::2\r\nId: a.b-c_d\r\nP: 070\r\n\r\n";
    assert_eq!(value(option, request), expect, "{option}");
}

#[test]
fn the_field_has_the_parameters_of_the_option() {
    check("", "proto=http;for=192.0.2.7");
    check("proto for", "proto=http;for=192.0.2.7");
    check("host for-expr str(000000007F2F367E) for_port", "host=\"haproxy.org:80\";for=\"_000000007F2F367E:1234\"");
    check(
        "host-expr str(host.com) by-expr str(_haproxy) for-expr req.hdr_ip(v6) for_port-expr int(10)",
        "host=\"host.com\";by=_haproxy;for=\"[2001:db8::2]:10\"",
    );
    check("by by_port", "by=\"[2001:db8::1]:80\"");
    check("for_port", "for=\"unknown:1234\"");
    check("for by host proto", "proto=http;host=\"haproxy.org:80\";by=\"[2001:db8::1]\";for=192.0.2.7");
    check("for-expr req.hdr(v6) by-expr req.hdr(id)", "by=_a.b-c_d;for=\"[2001:db8::2]\"");
    check("for for_port-expr req.hdr(p)", "for=\"192.0.2.7:70\"");
    check("for for_port-expr str(port)", "for=\"192.0.2.7:_port\"");
    check("for-expr str(unknown)", "for=unknown");
    check("for-expr req.hdr(none) for_port-expr req.hdr(none)", "for=unknown");
    check("for for_port-expr int(65536) host-expr req.hdr(none)", "for=192.0.2.7");
    check("host-expr req.hdr(none)", "");
}

/// No byte of a client ends the value, a parameter or the line.
#[test]
fn hostile_values_are_left_out() {
    let option = "proto host-expr req.hdr(v),url_dec for-expr req.hdr(v),url_dec for_port-expr req.hdr(v),url_dec \
                  by-expr req.hdr(v),url_dec by_port-expr req.hdr(v),url_dec";
    let hostile =
        ["\r\nx: y", "\n", "a\0b", "\"", "a;for=b", "a,b", "a b", "\\", "\u{e9}", "", " ", "1.2.3.4\r\n", "\t"];
    for text in hostile {
        let request = format!("GET / HTTP/1.1\r\nHost: x\r\nV: {}\r\n\r\n", hex(text));
        assert_eq!(value(option, &request), "proto=http;by=unknown;for=unknown", "{text:?}");
    }
    let request = "GET / HTTP/1.1\r\nHost: x\r\nV: a.b\r\n\r\n";
    assert_eq!(value(option, request), "proto=http;host=\"a.b\";by=\"_a.b:_a.b\";for=\"_a.b:_a.b\"");
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn invalid_options_are_refused() {
    let check = |option: &str, expect: &str, hint: Option<&str>| {
        let lines = format!("option forwarded {option}");
        let problems = compile(&proxy(Role::Backend, &lines), &NoFiles).expect_err("it is invalid");
        assert_eq!((problems[0].message.as_str(), problems[0].hint.as_deref()), (expect, hint), "{option}");
    };
    check("prot", "'option forwarded' has no parameter 'prot'", Some("did you mean 'proto'?"));
    check("proto-expr str(x)", "'option forwarded' has no parameter 'proto-expr'", None);
    check("for-expr", "'for-expr' expects an expression", None);
    check("for-expr nosuch", "unknown sample fetch 'nosuch'", None);
    check(
        "host-expr res.hdr(x)",
        "'res.hdr' cannot be used here: it needs the response's head, which a backend's request rule does not have",
        None,
    );
}
