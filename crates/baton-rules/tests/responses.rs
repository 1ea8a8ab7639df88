//! Response rules. What is expected was seen on HAProxy 2.6.12.

mod common;

use common::{GET, OK, response};

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (lines, expected) in cases {
        assert_eq!(response(lines, GET, OK).trim_end().replace("\r\n", "|"), *expected, "{lines}");
    }
}

const FIELDS: &str = "x-one: a, b|x-two: v|x-one: c|content-length: 2";

#[test]
fn headers() {
    check(&[
        (
            "http-response set-header X '%[res.hdr(x-one)]'",
            "HTTP/1.1 200 OK|x-one: a, b|x-two: v|x-one: c|content-length: 2|x: c",
        ),
        (
            "http-response set-header X '%[res.hdr(x-one,1)] %[status] %[res.ver] %[be_name] %[method]'",
            "HTTP/1.1 200 OK|x-one: a, b|x-two: v|x-one: c|content-length: 2|x: a 200 1.1 be GET",
        ),
        ("http-response replace-header x-one ^c d", "HTTP/1.1 200 OK|x-one: a, b|x-two: v|x-one: d|content-length: 2"),
        ("http-response del-header x-one", "HTTP/1.1 200 OK|x-two: v|content-length: 2"),
        ("http-response add-header a b", "HTTP/1.1 200 OK|x-one: a, b|x-two: v|x-one: c|content-length: 2|a: b"),
        (
            "http-after-response set-header X %[status]",
            "HTTP/1.1 200 OK|x-one: a, b|x-two: v|x-one: c|content-length: 2|x: 200",
        ),
    ]);
}

#[test]
fn the_request_as_received_can_still_be_asked_for() {
    check(&[(
        "http-request set-uri /other ; http-response redirect location '%[capture.req.uri]'",
        "HTTP/1.1 302 Found|content-length: 0|location: /a/b?x=1&y=2;z=3&x=4|cache-control: no-cache",
    )]);
}

#[test]
fn status_lines() {
    for (rule, line) in [
        ("set-status 201", "201 Created"),
        ("set-status 599", "599 Server Error"),
        ("set-status 503 reason 'a b'", "503 a b"),
    ] {
        check(&[(&format!("http-response {rule}"), &format!("HTTP/1.1 {line}|{FIELDS}"))]);
    }
}

#[test]
fn verdicts() {
    check(&[
        ("http-response deny", "deny 502"),
        ("http-response deny deny_status 404", "deny 404"),
        ("http-response deny if { res.hdr(x-one) c }", "deny 502"),
        ("http-response deny if { status 200:299 }", "deny 502"),
        (
            "http-response return status 200 content-type a string x",
            "HTTP/1.1 200 OK|content-length: 1|content-type: a||x",
        ),
        (
            "http-response redirect location %[method]",
            "HTTP/1.1 302 Found|content-length: 0|location: GET|cache-control: no-cache",
        ),
    ]);
}

#[test]
fn a_criterion_on_the_request_never_matches() {
    let pass = format!("HTTP/1.1 200 OK|{FIELDS}");
    check(&[
        ("http-response deny if { path /a/b }", &pass),
        ("acl a path /a/b ; http-response deny if a", &pass),
        ("acl a path /a/b ; http-response deny if !a", "deny 502"),
    ]);
}

#[test]
fn request_variables_end_before_the_response() {
    let with = |value: &str| format!("HTTP/1.1 200 OK|{FIELDS}|x-v: [{value}]");
    check(&[
        ("http-request set-var(req.a) path ; http-response set-header X-V [%[var(req.a)]]", &with("")),
        ("http-request set-var(txn.a) path ; http-response set-header X-V [%[var(txn.a)]]", &with("/a/b")),
    ]);
}
