//! Request rules: verdicts, answers and forwarded heads. What is expected was seen on HAProxy 2.6.12.

mod common;

use std::net::IpAddr;
use std::time::Duration;

use baton_model::{Algorithm, Role, Ruleset};
use baton_rules::{
    BodyWait, LogLevel, NoFiles, QueuePriority, ResponseSource, RuleCursor, RulePosition, RuleResponse, RuleWait,
    SettingValues, SocketChanges, TcpContent, Verdict, compile,
};
use common::{GET, proxy, request, rules, with_context};

const SHORT: &str =
    "GET /a/b?x=1 HTTP/1.1\r\nHost: ex.com:80\r\nX-A: one, two\r\nX-A: three\r\nX-B: v w\r\nX-C: 5\r\n\r\n";

/// The forwarded head: line and fields, joined by `|`.
fn head(lines: &str, bytes: &str) -> String {
    request(lines, bytes).trim_end().replace("\r\n", "|")
}

#[track_caller]
fn check_with(bytes: &str, cases: &[(&str, &str)]) {
    for (lines, expected) in cases {
        assert_eq!(head(lines, bytes), *expected, "{lines}");
    }
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    check_with(SHORT, cases);
}

/// Whether `http-request deny if CONDITION` denies.
#[track_caller]
fn denies(bytes: &str, cases: &[(&str, bool)]) {
    for (condition, expected) in cases {
        let denied = request(&format!("http-request deny if {condition}"), bytes) == "deny 403";
        assert_eq!(denied, *expected, "{condition}");
    }
}

#[test]
fn set_header_removes_all_and_appends() {
    check(&[
        ("http-request set-header X-A new", "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-b: v w|x-c: 5|x-a: new"),
        (
            "http-request set-header x-new n ; http-request add-header X-A more",
            "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-a: one, two|x-a: three|x-b: v w|x-c: 5|x-new: n|x-a: more",
        ),
        (
            "http-request set-header X-B %[hdr(x-b)]z",
            "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-a: one, two|x-a: three|x-c: 5|x-b: v wz",
        ),
        (
            "http-request set-header X-B %[hdr(nope)]",
            "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-a: one, two|x-a: three|x-c: 5|x-b:",
        ),
        (
            "http-request set-header X-A a,b ; http-request set-header C %[req.hdr(x-a)]",
            "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-b: v w|x-c: 5|x-a: a,b|c: b",
        ),
        (
            "http-request set-header host z.com",
            "GET /a/b?x=1 HTTP/1.1|x-a: one, two|x-a: three|x-b: v w|x-c: 5|host: z.com",
        ),
    ]);
}

#[test]
fn del_header() {
    check(&[
        ("http-request del-header x-a", "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-b: v w|x-c: 5"),
        ("http-request del-header x- -m beg", "GET /a/b?x=1 HTTP/1.1|host: ex.com:80"),
        ("http-request del-header -A -m end", "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-b: v w|x-c: 5"),
        ("http-request del-header ^x -m reg", "GET /a/b?x=1 HTTP/1.1|host: ex.com:80"),
        (
            "http-request del-header ^X -m reg",
            "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-a: one, two|x-a: three|x-b: v w|x-c: 5",
        ),
        ("http-request del-header -B -m sub", "GET /a/b?x=1 HTTP/1.1|host: ex.com:80|x-a: one, two|x-a: three|x-c: 5"),
    ]);
}

#[test]
fn replace_header_takes_the_line_and_replace_value_each_value() {
    let rest = "|x-b: v w|x-c: 5";
    for (rule, lines) in [
        (r"replace-header X-A (.*) <\\1>", "x-a: <one, two>|x-a: <three>"),
        ("replace-header X-A t Q", "x-a: Q|x-a: Q"),
        (r"replace-header X-A ^(.)(.*) '\1-%[req.hdr(x-a)]'", "x-a: o-three|x-a: t-three"),
        (r"replace-value X-A (.*) <\\1>", "x-a: <one>,<two>|x-a: <three>"),
        ("replace-value X-A t Q", "x-a: one,Q|x-a: Q"),
        (r"replace-value X-A t(.*) Q\\1", "x-a: one,Qwo|x-a: Qhree"),
        ("replace-value X-A ^one Q", "x-a: Q, two|x-a: three"),
        (r"replace-value X-A ^(.)(.)(.*) \\2\\1\\3%[path]", "x-a: noe/a/b,wto/a/b|x-a: htree/a/b"),
    ] {
        let expected = format!("GET /a/b?x=1 HTTP/1.1|host: ex.com:80|{lines}{rest}");
        assert_eq!(head(&format!("http-request {rule}"), SHORT), expected, "{rule}");
    }
}

#[test]
fn the_request_line() {
    let h = "HTTP/1.1|host: h";
    let bytes = "GET /a/b?x=1 HTTP/1.1\r\nHost: h\r\n\r\n";
    for (rule, line) in [
        ("set-path %[path]?a=b", "GET /a/b?a=b?x=1"),
        ("set-path /n", "GET /n?x=1"),
        ("set-query %[path]", "GET /a/b?/a/b"),
        ("set-query '?a'", "GET /a/b??a"),
        ("set-pathq /z?q", "GET /z?q"),
        ("set-uri /u", "GET /u"),
        ("set-uri *", "GET *"),
        ("set-method POST", "POST /a/b?x=1"),
        (r"replace-path (.*) /foo\\1", "GET /foo/a/b?x=1"),
        (r"replace-path /(.) /\\1\\1", "GET /aa?x=1"),
        ("replace-path ^/b /c", "GET /a/b?x=1"),
        (r"replace-pathq ([^?]*)(\\?(.*))? \\1/foo?\\3", "GET /a/b/foo?x=1"),
    ] {
        assert_eq!(head(&format!("http-request {rule}"), bytes), format!("{line} {h}"), "{rule}");
    }
    check_with(
        bytes,
        &[
            ("http-request set-uri http://u/%[path]", "GET http://u//a/b HTTP/1.1|host: u"),
            (r"http-request replace-uri ^/a(.*) http://z\\1", "GET http://z/b?x=1 HTTP/1.1|host: z"),
        ],
    );
    check_with(
        "GET http://h/p?q HTTP/1.1\r\nHost: h\r\n\r\n",
        &[
            ("http-request set-path /n", "GET http://h/n?q HTTP/1.1|host: h"),
            ("http-request set-query n=1", "GET http://h/p?n=1 HTTP/1.1|host: h"),
            ("http-request set-pathq /n?x", "GET http://h/n?x HTTP/1.1|host: h"),
        ],
    );
    check_with(
        "GET http://h HTTP/1.1\r\nHost: h\r\n\r\n",
        &[
            ("http-request set-path /n", "GET http://h/n HTTP/1.1|host: h"),
            ("http-request set-query n=1", "GET http://h/?n=1 HTTP/1.1|host: h"),
        ],
    );
    check_with("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", &[("http-request set-path /n", "OPTIONS /n HTTP/1.1|host: h")]);
}

/// HAProxy 2.6 sends most of them. What a rule was to change must not go on unchanged.
#[test]
fn a_request_line_that_cannot_be_sent_fails() {
    let check = |bytes: &str, rules: &[&str]| {
        for rule in rules {
            assert_eq!(head(&format!("http-request {rule}"), bytes), "failed", "{rule}");
        }
    };
    let bytes = "GET /a?x=%0d%0aB:&s=%20&d=%7f&h=%23&p=a HTTP/1.1\r\nHost: h\r\n\r\n";
    check(
        bytes,
        &["set-method '%[path] x'", "set-method %[url_param(none)]", "set-method 'a(b'", "set-method CONNECT"],
    );
    check(
        bytes,
        &[
            "set-path zz",
            "set-path %[url_param(p)]",
            "set-path '/a b'",
            "set-path /%[url_param(h),url_dec]",
            "set-path *",
        ],
    );
    check(bytes, &["set-pathq '?a b'", "set-pathq zz", "set-query %[url_param(s),url_dec]", "set-query a#b"]);
    check(
        bytes,
        &["set-uri 'a b'", "set-uri %[url_param(none)]", "set-uri a", "set-uri http:///", "set-uri http://u@h/"],
    );
    check(
        bytes,
        &["replace-path .* a", "replace-pathq .* '/ '", r"replace-uri .* /\\x0a", r"replace-path (.*) '\\1 '"],
    );
    check(bytes, &["replace-uri .* 'http://h\\\\i/'"]);
    // What does not begin with a slash must not become a part of the host.
    let absolute = "GET http://h HTTP/1.1\r\nHost: h\r\n\r\n";
    check(absolute, &["set-path .evil.example", "set-path :80/", "set-pathq .evil", "replace-path ^ @evil"]);
    check("GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n", &["set-path .evil", "replace-path / .evil"]);
    check("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", &["set-path /", "set-method GET", "set-query a"]);
    let header = "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\nX: b\r\n\r\n";
    check(header, &[r"replace-header X b a\\x0d\\x0ab:\\x20c", r"replace-value X . \\x00"]);
    check(absolute, &["set-header Host 'a b'", "set-header Host a@b", "replace-header Host h a/b"]);
}

#[test]
fn what_can_be_sent_by_another_spelling_is() {
    check_with(
        "GET /a?x=%c3%a4 HTTP/1.1\r\nHost: h\r\n\r\n",
        &[
            ("http-request set-path /%[url_param(x),url_dec]", "GET /%C3%A4?x=%c3%a4 HTTP/1.1|host: h"),
            ("http-request set-path %[url_param(none)]", "GET /?x=%c3%a4 HTTP/1.1|host: h"),
            ("http-request set-pathq %[url_param(none)]", "GET / HTTP/1.1|host: h"),
            ("http-request set-pathq ?y", "GET /?y HTTP/1.1|host: h"),
            ("http-request set-path %[path,regsub(^/a,)]", "GET /?x=%c3%a4 HTTP/1.1|host: h"),
        ],
    );
}

#[test]
fn strict_mode_says_whether_a_failed_rewrite_ends_the_request() {
    let bytes = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    check_with(
        bytes,
        &[
            ("http-request strict-mode off ; http-request set-path zz", "GET /a HTTP/1.1|host: h"),
            ("http-request strict-mode off if { path /b } ; http-request set-path zz", "failed"),
            ("http-request strict-mode off ; http-request strict-mode on ; http-request set-path zz", "failed"),
            ("http-request set-path zz ; http-request strict-mode off", "failed"),
        ],
    );
    let rules = rules("http-request strict-mode off ; http-request set-path zz ; http-request set-method '('");
    with_context(bytes, None, |cx| {
        assert_eq!(rules.http_request(cx, &mut RuleCursor::default()), Verdict::Continue);
        assert_eq!(cx.failed_rewrites, 2);
    });
}

/// As HAProxy 2.6: a server goes by the target, so a rule about `Host` has to change it too.
#[test]
fn a_new_host_is_also_the_targets() {
    check_with(
        "GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[
            ("http-request set-header Host b", "GET http://b/b HTTP/1.1|host: b"),
            ("http-request replace-header Host .* c:81", "GET http://c:81/b HTTP/1.1|host: c:81"),
            ("http-request replace-value host a d", "GET http://d/b HTTP/1.1|host: d"),
            ("http-request add-header Host b", "GET http://b/b HTTP/1.1|host: a|host: b"),
            ("http-request del-header Host", "GET http://a/b HTTP/1.1"),
        ],
    );
    check(&[(
        "http-request set-header Host 'any thing'",
        "GET /a/b?x=1 HTTP/1.1|x-a: one, two|x-a: three|x-b: v w|x-c: 5|host: any thing",
    )]);
}

#[test]
fn no_value_ends_a_line() {
    let bytes = "GET /?x=%01%09%0a%0d%22%25%20%7f%80 HTTP/1.1\r\nHost: h\r\n\r\n";
    let rules = rules("http-request set-header X '[%[url_param(x),url_dec]]'");
    let mut out = Vec::new();
    with_context(bytes, None, |cx| {
        rules.http_request(cx, &mut RuleCursor::default());
        let request = cx.request.as_ref().expect("there is a request");
        out = request.head.view().fields().find(b"x").expect("it was added").value.to_vec();
    });
    assert_eq!(out, b"[%01\t%0A%0D\"% %7F\x80]");
}

#[test]
fn framing_fields_are_not_for_rules() {
    let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
    for rule in [
        "set-header Content-Length 5",
        "del-header content-length",
        "add-header Transfer-Encoding chunked",
        "del-header ^content -m reg",
        "replace-header content-length 2 3",
    ] {
        let lines = format!("http-request {rule}");
        assert_eq!(head(&lines, post), "POST / HTTP/1.1|host: h|content-length: 2", "{rule}");
    }
    let warned = rules("http-request set-header Content-Length 5").warnings;
    assert_eq!(warned.len(), 1);
}

#[test]
fn formats() {
    let bytes = "GET /a/b?x=1 HTTP/1.1\r\nHost: h\r\n\r\n";
    for (format, value) in [
        ("%ci:%cp:%fi:%fp:%b:%f:%ft", "192.0.2.7:1234:2001:db8::1:80:be:fe:fe"),
        ("%H:%HM:%HP:%HPO:%HQ:%HU:%HV", "vm:GET:/a/b:/a/b:?x=1:/a/b?x=1:HTTP/1.1"),
        ("%%:%s:%ST:%r", "%:s1:-1:GET /a/b?x=1 HTTP/1.1"),
        ("[%sslv%sslc%{+Q}sslv]", "[\"\"]"),
        ("%{+Q}[path]%{+Q}HU%{+Q}ci", "/a/b\"/a/b?x=1\"\"192.0.2.7\""),
        ("%{+X}ci:%{+X}cp:%{+X}[int(255)]", "C0000207:04D2:255"),
        ("%{+Q}o[%HU][%cp][%[path]]", "[\"/a/b?x=1\"][1234][/a/b]"),
        ("\"a b%[str(']'),upper]c\"", "a b]c"),
        (r"a\ b\\n", r"a b\n"),
    ] {
        let expected = format!("GET /a/b?x=1 HTTP/1.1|host: h|x: {value}");
        assert_eq!(head(&format!("http-request set-header X {format}"), bytes), expected, "{format}");
    }
}

#[test]
fn formats_show_the_request_line_as_received() {
    let bytes = "GET /a?x HTTP/1.1\r\nHost: h\r\n\r\n";
    let lines = "http-request set-path /b ; http-request set-method PUT ; http-request set-header Z %HM:%HP:%HU:%[url]";
    assert_eq!(head(lines, bytes), "PUT /b?x HTTP/1.1|host: h|z: GET:/a:/a?x:/b?x");
}

#[test]
fn variables() {
    let h = "GET /a/b?x=1 HTTP/1.1|host: h|x-v: ";
    let bytes = "GET /a/b?x=1 HTTP/1.1\r\nHost: h\r\n\r\n";
    for (rule, value) in [
        ("http-request set-var(txn.a) path", "[/a/b]"),
        ("http-request set-var(req.a) path,upper ; http-request set-var(txn.a) var(req.a)", "[/A/B]"),
        ("http-request set-var-fmt(txn.a) z%[path]z", "[z/a/bz]"),
        ("http-request set-var(txn.a) int(1), add(2)", "[3]"),
        ("http-request set-var(txn.a) path ; http-request unset-var(txn.a)", "[]"),
        ("http-request set-var(txn.a) int(4) ; http-request set-var(txn.a) int(3),add(txn.a)", "[7]"),
        ("http-request set-var(txn.a) path ; http-request set-var(txn.a) hdr(nope)", "[/a/b]"),
    ] {
        let lines = format!("{rule} ; http-request set-header X-V [%[var(txn.a)]]");
        assert_eq!(head(&lines, bytes).trim_end(), format!("{h}{value}"), "{rule}");
    }
}

#[test]
fn deny_and_return() {
    check(&[
        ("http-request deny", "deny 403"),
        ("http-request deny deny_status 429", "deny 429"),
        ("http-request tarpit", "tarpit 500"),
        ("http-request tarpit deny_status 403", "tarpit 403"),
        ("http-request reject", "reject"),
        ("http-request deny status 404", "deny HTTP/1.1 404 Not Found|content-length: 0"),
        ("http-request deny hdr x-b %[path]", "deny HTTP/1.1 403 Forbidden|x-b: /a/b|content-length: 0"),
        (
            "http-request deny deny_status 403 content-type text/x string abc hdr X-C 2",
            "deny HTTP/1.1 403 Forbidden|x-c: 2|content-length: 3|content-type: text/x||abc",
        ),
        ("http-request return", "HTTP/1.1 200 OK|content-length: 0"),
        ("http-request return status 405", "HTTP/1.1 405 Method Not Allowed|content-length: 0"),
        ("http-request return status 204 hdr a b", "HTTP/1.1 204 No Content|a: b|content-length: 0"),
        (
            "http-request return status 299 content-type a string xx",
            "HTTP/1.1 299 Success|content-length: 2|content-type: a||xx",
        ),
        (
            "http-request return status 200 content-type text/plain string 'a b' hdr X %[path] hdr Y 'a b'",
            "HTTP/1.1 200 OK|x: /a/b|y: a b|content-length: 3|content-type: text/plain||a b",
        ),
        (
            "http-request return content-type t lf-string <%[path]>",
            "HTTP/1.1 200 OK|content-length: 6|content-type: t||</a/b>",
        ),
        (
            "http-request return content-type t file page",
            "HTTP/1.1 200 OK|content-length: 14|content-type: t||line 1\nline 2",
        ),
        ("http-request return status 503 default-errorfiles", "503"),
        ("http-request allow ; http-request deny", head("", SHORT).as_str()),
        ("http-request deny if FALSE ; http-request reject", "reject"),
    ]);
}

#[test]
fn redirects() {
    let cached = "|cache-control: no-cache";
    for (rule, status, location, rest) in [
        ("location http://x/", "302 Found", "http://x/", cached),
        ("location http://x/ code 301", "301 Moved Permanently", "http://x/", ""),
        ("location http://x/ code 303", "303 See Other", "http://x/", cached),
        ("location http://x/ code 307", "307 Temporary Redirect", "http://x/", cached),
        ("location http://x/ code 308", "308 Permanent Redirect", "http://x/", ""),
        ("location x%[path]/%[url_param(x)]", "302 Found", "x/a/b/1", cached),
        ("prefix http://y", "302 Found", "http://y/a/b?x=1", cached),
        ("prefix /", "302 Found", "/a/b?x=1", cached),
        ("prefix http://y drop-query", "302 Found", "http://y/a/b", cached),
        ("prefix http://y drop-query append-slash", "302 Found", "http://y/a/b/", cached),
        ("prefix http://y append-slash", "302 Found", "http://y/a/b?x=1/", cached),
        ("scheme https", "302 Found", "https://ex.com:80/a/b?x=1", cached),
        ("scheme https drop-query append-slash", "302 Found", "https://ex.com:80/a/b/", cached),
        ("location /x set-cookie S=1", "302 Found", "/x", "|cache-control: no-cache|set-cookie: S=1; path=/;"),
        (
            "location /x clear-cookie S=",
            "302 Found",
            "/x",
            "|cache-control: no-cache|set-cookie: S=; path=/; Max-Age=0;",
        ),
        ("location %[hdr(nope)]", "302 Found", "", cached),
    ] {
        let expected = format!("HTTP/1.1 {status}|content-length: 0|location: {location}{rest}");
        assert_eq!(head(&format!("http-request redirect {rule}"), SHORT), expected, "{rule}");
        if !rule.contains('%') {
            assert_eq!(head(&format!("redirect {rule} if TRUE"), SHORT), expected, "{rule}");
        }
    }
    // Outside of `http-request` and `http-response` a target is a plain text, as in HAProxy.
    let plain = "HTTP/1.1 302 Found|content-length: 0|location: /%%/%[path]|cache-control: no-cache";
    assert_eq!(head("redirect location /%%/%[path] if TRUE", SHORT), plain);
    check(&[("http-request redirect location %[hdr(nope)] ignore-empty ; http-request reject", "reject")]);
    assert_eq!(
        head("http-request redirect scheme https", "GET / HTTP/1.0\r\n\r\n"),
        "HTTP/1.1 302 Found|content-length: 0|location: https:///|cache-control: no-cache"
    );
}

#[test]
fn conditions() {
    denies(
        SHORT,
        &[
            ("TRUE", true),
            ("FALSE", false),
            ("!FALSE || FALSE", true),
            ("TRUE !TRUE or FALSE", false),
            ("! ! TRUE", true),
            ("!!TRUE", true),
            ("!{ path /x }", true),
            ("! { path /x }", true),
            ("or TRUE", true),
            ("TRUE TRUE or", true),
            ("TRUE or or FALSE", true),
            ("", false),
            ("{ path /a/b /c or FALSE }", true),
            ("{ path /x , }", false),
            ("{ path }", false),
        ],
    );
    check(&[("http-request deny unless FALSE", "deny 403"), ("http-request deny unless TRUE", &head("", SHORT))]);
    check(&[
        ("acl a path /a/b ; acl a path /z ; http-request deny if a", "deny 403"),
        ("acl a path /z ; acl a path /a/b ; http-request deny if a", "deny 403"),
        ("acl TRUE path /zzz ; http-request deny if TRUE", &head("", SHORT)),
    ]);
}

#[test]
fn matching_text() {
    denies(
        SHORT,
        &[
            ("{ hdr(x-a) one }", true),
            ("{ hdr(x-a) two }", true),
            ("{ hdr(x-a) ONE }", false),
            ("{ hdr(x-a) -i ONE }", true),
            ("{ hdr(x-a) -i ZZ THREE a }", true),
            ("{ req.fhdr(x-a) one }", false),
            ("{ hdr(x-a,1) three }", false),
            ("{ hdr(nope) -m len 0 }", false),
            ("{ hdr(nope) -m found }", false),
            ("{ path -m found }", true),
            ("{ path -m found x }", true),
            ("!{ hdr(nope) x }", true),
            ("{ path_dir a }", true),
            ("{ path_dir /a/ }", true),
            ("{ path_dir a/b }", true),
            ("{ path_dir A }", false),
            ("{ path_dir -i A }", true),
            ("{ path_dom b }", true),
            ("{ hdr_dom(host) com }", true),
            ("{ hdr_dom(host) ex.com }", true),
            ("{ hdr_dom(host) x }", false),
            ("{ hdr_dom(host) .ex. }", true),
            ("{ hdr_dir(host) ex.com:80 }", true),
            ("{ path_sub /b }", true),
            ("{ path_end b }", true),
            ("{ path_len 4 }", true),
            ("{ path_len gt 4 }", false),
            ("{ path_reg ^/a }", true),
            ("{ path_reg ^/A }", false),
            ("{ path_reg -i ^/A }", true),
            ("{ path -i -m beg /A }", true),
            ("{ path -m beg -i /A }", true),
            ("{ path -i -- -x /A/b }", true),
            ("{ path_beg -m end b }", true),
            ("{ path,lower /a/b }", true),
            ("{ path_beg,lower /a }", false),
            ("{ path_beg,lower /a/b }", true),
            ("{ path lower /a/b }", true),
            ("{ str(a) a }", true),
            ("{ path -f paths }", true),
            ("{ path_beg -f paths /z }", true),
        ],
    );
    denies(GET, &[("{ cook(a) 1 }", true), ("{ cook(a) 3 }", true), ("{ cook(a) 2 }", false), ("{ urlp(x) 4 }", true)]);
}

#[test]
fn matching_numbers_booleans_addresses_and_methods() {
    denies(
        SHORT,
        &[
            ("{ hdr(x-c) 5 }", true),
            ("{ hdr_val(x-c) gt 4 }", true),
            ("{ hdr_val(x-c) gt 8 4 }", true),
            ("{ hdr_val(x-c) gt 5 }", false),
            ("{ hdr_val(x-c) 1:5 }", true),
            ("{ hdr_val(x-c) 1-5 }", true),
            ("{ hdr_val(x-c) :4 }", false),
            ("{ hdr_val(x-c) eq 1 le 5 }", true),
            ("{ hdr(x-c) -m int 5 }", true),
            ("{ hdr(x-c) -m int -- -4 }", false),
            ("{ hdr(x-c) -m bool }", true),
            ("{ hdr(x-c) -m bool 1 }", true),
            ("{ hdr_val(x-c) -m bool }", true),
            ("{ hdr_val(x-c) -m str 5 }", true),
            ("{ ssl_fc }", false),
            ("{ ssl_fc 0 }", false),
            ("{ ssl_fc false }", false),
            ("{ always_true 1 }", true),
            ("{ hdr_cnt(x-a) }", false),
            ("{ src 192.0.2.0/24 }", true),
            ("{ src 192.0.2.0/255.255.255.0 }", true),
            ("{ src 192.0.3.0/24 ::1 }", false),
            ("{ src -f nets 192.0.2.7 }", true),
            ("{ dst 2001:db8::/32 }", true),
            ("{ method GET }", true),
            ("{ method get }", false),
            ("METH_GET", true),
            ("METH_POST", false),
            ("HTTP_URL_SLASH HTTP HTTP_1.1", true),
            ("HTTP_1.0 or HTTP_URL_ABS or HTTP_URL_STAR", false),
            ("HTTP_CONTENT", false),
            ("LOCALHOST", false),
            ("REQ_CONTENT WAIT_END", true),
        ],
    );
    denies("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", &[("METH_GET", true)]);
    denies(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi",
        &[("HTTP_CONTENT", true), ("{ req.body -m bin 6869 }", true)],
    );
}

#[test]
fn backends_and_servers_by_name() {
    let rules = rules(
        "use_backend no if { path /z } ; use_backend b%[path,field(2,/)]_%[method,lower] if { path_beg /a } ; use_backend last\n\
         use-server s1 if { path_beg /a } ; use-server s2 if TRUE",
    );
    with_context(SHORT, None, |cx| {
        assert_eq!(rules.backend(cx).as_deref(), Some("ba_get"));
        assert_eq!(rules.server(cx, &mut |_| true).as_deref(), Some("s1"));
        assert_eq!(rules.server(cx, &mut |name| name != "s1").as_deref(), Some("s2"));
        assert_eq!(rules.server(cx, &mut |_| false), None);
    });
}

#[test]
fn monitor_persistence_and_connections() {
    let rules = rules(
        "acl a path_beg /a ; monitor fail if a ; force-persist if !a ; ignore-persist unless a ; tcp-request connection accept \
         if { src 10.0.0.0/8 } ; tcp-request connection reject if { src 192.0.2.0/24 } ; tcp-request content reject if a ; \
         tcp-request inspect-delay 5s",
    );
    with_context(SHORT, None, |cx| {
        assert!(rules.monitor_fail(cx));
        assert!(!rules.force_persist(cx));
        assert!(!rules.ignore_persist(cx));
        assert_eq!(rules.tcp_connection(cx), Verdict::Reject);
        assert_eq!(rules.tcp_session(cx), Verdict::Continue);
        assert_eq!(rules.tcp_content(cx, &mut RuleCursor::default()), Verdict::Reject);
    });
    assert_eq!(rules.inspect_delay, Some(std::time::Duration::from_secs(5)));
    let condition = rules.condition(&["if".into(), "a".into()], RulePosition::BackendRequest, &NoFiles);
    let condition = condition.expect("valid").expect("there is one");
    assert!(with_context(SHORT, None, |cx| rules.matches(&condition, cx)));
}

#[test]
fn the_statistics_page_has_rules_of_its_own() {
    let check = |lines: &str, expect: (Verdict, bool)| {
        let rules = rules(lines);
        with_context(SHORT, None, |cx| assert_eq!((rules.stats_request(cx), rules.stats_admin(cx)), expect, "{lines}"));
    };
    let denied = || Verdict::Deny(RuleResponse { status: 403, source: ResponseSource::ErrorPage });
    check("http-request deny", (Verdict::Continue, false));
    check("stats http-request deny", (denied(), false));
    check("stats http-request allow ; stats http-request deny", (Verdict::Allow, false));
    check("stats http-request deny if { path_beg /z } ; stats http-request auth", (Verdict::Auth(None), false));
    check("stats http-request auth realm x", (Verdict::Auth(Some("x".into())), false));
    check("stats admin if FALSE", (Verdict::Continue, false));
    check("stats admin if FALSE ; stats admin unless FALSE", (Verdict::Continue, true));
    for odd in ["stats http-request redirect location /", "stats http-request auth realm", "stats admin TRUE"] {
        assert!(compile(&proxy(Role::Listen, odd), &NoFiles).is_err(), "{odd}");
    }
}

#[test]
fn a_log_level_is_handed_back() {
    let rules = rules("http-request set-log-level silent if { path_beg /a } ; http-request strict-mode on");
    with_context(SHORT, None, |cx| {
        assert_eq!(rules.http_request(cx, &mut RuleCursor::default()), Verdict::Continue);
        assert_eq!(cx.log_level, Some(LogLevel::Silent));
    });
}

#[test]
fn a_proxy_without_rules_says_so() {
    let none = compile(&proxy(Role::Listen, "acl unused path /x"), &NoFiles).expect("valid");
    assert!(none.is_empty() && none.has(Ruleset::Acl) && !none.has(Ruleset::HttpRequest));
    let one = rules("http-request deny if FALSE");
    assert!(!one.is_empty() && one.has(Ruleset::HttpRequest));
}

/// What content rules say in `mode tcp` to `bytes`, now and when no more is waited for.
fn check_content(lines: &str, bytes: &'static str, expect: (Verdict, Verdict)) {
    let rules = rules(lines);
    with_context(SHORT, None, |cx| {
        cx.request = None;
        cx.content = Some(TcpContent { bytes: bytes.as_bytes(), may_become_http: bytes.len() < 4 });
        let now = rules.tcp_content(cx, &mut RuleCursor::default());
        cx.last_chance = true;
        assert_eq!((now, rules.tcp_content(cx, &mut RuleCursor::default())), expect, "{lines} / {bytes:?}");
    });
}

#[test]
fn content_rules_wait_until_they_can_decide() {
    use Verdict::{Allow, Continue, Reject};
    const WAIT: Verdict = Verdict::Wait(RuleWait::Data);
    check_content("tcp-request content accept if WAIT_END ; tcp-request content reject", "", (WAIT, Allow));
    check_content("tcp-request content reject if { req.len lt 5 }", "GET", (Reject, Reject));
    check_content("tcp-request content reject if { req.len gt 5 }", "GET", (WAIT, Continue));
    check_content("tcp-request content reject unless { req.len gt 2 }", "GET", (Continue, Continue));
    check_content("tcp-request content reject unless { req.len gt 5 }", "GET", (WAIT, Reject));
    check_content("tcp-request content reject if !{ req.len gt 5 }", "GET", (WAIT, Reject));
    check_content("tcp-request content reject if { req.len gt 5 } or TRUE", "GET", (Reject, Reject));
    check_content("tcp-request content reject if { req.len gt 5 } FALSE", "GET", (Continue, Continue));
    check_content("tcp-request content accept if HTTP ; tcp-request content reject", "abcdef", (Reject, Reject));
    check_content("tcp-request content accept if HTTP ; tcp-request content reject", "GE", (WAIT, Reject));
}

#[test]
fn a_rule_can_forbid_to_send_a_request_again() {
    with_context(SHORT, None, |cx| {
        rules("http-request disable-l7-retry if { method POST }").http_request(cx, &mut RuleCursor::default());
        assert!(!cx.no_retry);
        rules("http-request disable-l7-retry if { so_name public } { so_id 2 } { nbsrv(be) 3 } { nbsrv 3 }")
            .http_request(cx, &mut RuleCursor::default());
        assert!(cx.no_retry);
    });
}

/// What `balance hash EXPR` hashes of the request.
fn check_balance(expr: &str, expect: Option<&[u8]>) {
    let mut proxy = proxy(Role::Listen, "");
    proxy.balance.algorithm = Algorithm::Hash(expr.into());
    let rules = compile(&proxy, &NoFiles).expect("a test's expression is valid");
    assert!(rules.has_balance_key());
    with_context(SHORT, None, |cx| {
        assert_eq!(rules.balance_key(cx, <[u8]>::to_vec).as_deref(), expect, "{expr}");
    });
}

#[test]
fn balance_hashes_the_bytes_of_a_sample() {
    check_balance("src", Some(&[192, 0, 2, 7]));
    check_balance("int(5)", Some(&[0, 0, 0, 0, 0, 0, 0, 5]));
    check_balance("str(ab),upper", Some(b"AB"));
    check_balance("hdr(nope)", None);
}

#[test]
fn an_evaluation_goes_on_after_the_rule_that_waits() {
    let lines = "http-request set-header X-A 1 ; http-request strict-mode off ; http-request pause 20 ; \
                 http-request pause int(30),add(1) if { path /a } ; http-request pause str(x) ; \
                 http-request wait-for-body at-least 1k time 2s ; http-request set-path a ; http-request deny";
    let rules = rules(lines);
    with_context(SHORT, None, |cx| {
        let mut at = RuleCursor::default();
        let mut next = || rules.http_request(cx, &mut at);
        let pause = |ms| Verdict::Wait(RuleWait::Time(Duration::from_millis(ms)));
        let body = BodyWait { time: Duration::from_secs(2), at_least: 1024 };
        assert_eq!([next(), next()], [pause(20), Verdict::Wait(RuleWait::Body(body))]);
        assert_eq!(
            next(),
            Verdict::Deny(RuleResponse { status: 403, source: ResponseSource::ErrorPage }),
            "the failed rewrite is no error"
        );
    });
    check_problem_of("http-request wait-for-body at-least 1k", "the longest wait is missing");
    check_problem_of("http-request wait-for-body time 1 atleast 1k", "unexpected argument 'atleast'");
    check_problem_of("http-request pause", "a time or an expression is missing");
    check_problem_of("http-request pause 1x", "unknown time unit 'x'");
    check_problem_of("http-after-response pause 1s", "'http-after-response' has no action 'pause'");
}

#[test]
fn a_name_is_looked_up_before_the_next_rule() {
    let address = IpAddr::from([192, 0, 2, 9]);
    let lines = "http-request set-var(txn.a) str(-) ; http-request do-resolve(txn.a,r,ipv4) hdr(host),host_only ; \
                 http-request deny if { var(txn.a) -m ip 192.0.2.9 }";
    let (rules, mut at) = (rules(lines), RuleCursor::default());
    with_context(SHORT, None, |cx| {
        let Verdict::Wait(RuleWait::Address(wait)) = rules.http_request(cx, &mut at) else { panic!("it waits") };
        assert_eq!((&*wait.resolvers, &*wait.name, wait.prefers_v6), ("r", "ex.com", false));
        wait.found(address, cx);
        assert!(matches!(rules.http_request(cx, &mut at), Verdict::Deny(_)));
    });
    let content = common::rules(
        "tcp-request content do-resolve(sess.a,r) hdr(x-b),field(1,\" \") ; tcp-request content reject if { var(sess.a) -m found }",
    );
    at = RuleCursor::default();
    with_context(SHORT, None, |cx| {
        let Verdict::Wait(RuleWait::Address(wait)) = content.tcp_content(cx, &mut at) else { panic!("it waits") };
        assert_eq!((&*wait.name, wait.prefers_v6), ("v", true));
        assert_eq!(content.tcp_content(cx, &mut at), Verdict::Continue, "without an address nothing is set");
        at = RuleCursor::default();
        let Verdict::Wait(RuleWait::Address(wait)) = content.tcp_content(cx, &mut at) else { panic!("it waits") };
        wait.found(address, cx);
        assert_eq!(content.tcp_content(cx, &mut at), Verdict::Reject);
    });
    let long = "a.".repeat(127);
    for (name, is_one) in [
        ("App_1.example.", true),
        ("", false),
        ("a b", false),
        ("a*b", false),
        ("::1", false),
        ("a%0d%0ab", false),
        ("a%00", false),
        ("%ff", false),
        (&long, true),
        (&format!("{long}a"), false),
    ] {
        let lines = format!("http-request do-resolve(txn.a,r) str(\"{name}\"),url_dec");
        with_context(SHORT, None, |cx| {
            let verdict = common::rules(&lines).http_request(cx, &mut RuleCursor::default());
            assert_eq!(matches!(verdict, Verdict::Wait(_)), is_one, "{name}");
        });
    }
    let needs = "'do-resolve' needs a variable and a section of name servers in parentheses";
    check_problem_of("http-request do-resolve(txn.a) src", needs);
    check_problem_of("http-request do-resolve src", needs);
    check_problem_of("http-request do-resolve(,r) src", needs);
    check_problem_of("http-request do-resolve(txn.a,r,ipv4,x) src", needs);
    check_problem_of("http-request do-resolve(txn.a,r,ipv5) src", "unknown option of 'do-resolve' 'ipv5'");
    check_problem_of("http-request do-resolve(foo.a,r) src", "invalid variable name 'foo.a'");
    check_problem_of("http-request do-resolve(txn.a,r)", "an expression is missing");
    check_problem_of("http-response do-resolve(txn.a,r) src", "'http-response' has no action 'do-resolve'");
    check_problem_of("tcp-request session do-resolve(txn.a,r) src", "'tcp-request session' has no action 'do-resolve'");
}

/// The first problem of these rules.
#[track_caller]
fn check_problem_of(lines: &str, expect: &str) {
    let problems = compile(&proxy(Role::Listen, lines), &NoFiles).expect_err("it is wrong");
    assert_eq!(problems[0].message, expect, "{lines}");
}

#[test]
fn settings_of_connections_and_requests() {
    let set = |lines: &str| {
        let rules = rules(lines);
        with_context(SHORT, None, |cx| {
            let verdict = rules.http_request(cx, &mut RuleCursor::default());
            assert_eq!(verdict, Verdict::Continue, "{lines}");
            cx.settings.values().cloned()
        })
    };
    assert_eq!(set("http-request set-priority-class hdr(none) ; http-request set-src hdr(none)"), None, "no value");
    let lines = "http-request set-priority-class int(99999) ; http-request set-priority-offset int(-5) ; \
                 http-request set-tos 0x28 ; http-request set-fc-mark hdr(x-c) ; http-request set-bc-tos 4 ; \
                 http-request set-timeout server 3s ; http-request set-timeout tunnel int(20) ; \
                 http-request set-timeout client int(-1) ; http-request set-retries 7";
    let expect = SettingValues {
        priority: QueuePriority { class: 2047, offset_ms: -5 },
        socket: SocketChanges { tos: Some(0x28), mark: Some(5) },
        server_tos: Some(4),
        server_timeout: Some(Duration::from_secs(3)),
        tunnel_timeout: Some(Duration::from_millis(20)),
        retries: Some(7),
        ..SettingValues::default()
    };
    assert_eq!(set(lines), Some(expect));
    let addresses = set("http-request set-src str(10.0.0.1) ; http-request set-src-port int(7) ; \
                         http-request set-dst src ; http-request set-dst-port src_port");
    let expect = ["10.0.0.1:7", "10.0.0.1:7"].map(|text| text.parse().ok());
    assert_eq!(addresses.map(|set| [set.source, set.destination]), Some(expect));
    for (lines, expect) in [
        ("http-request set-tos 256", "'256' is not a TOS byte from 0 to 255"),
        ("http-request set-mark 0x100000000", "'0x100000000' is not a mark from 0 to 4294967295"),
        ("http-request set-retries 101", "'101' is not a number of retries from 0 to 100"),
        ("http-request set-timeout server 0", "a timeout must be longer than 0"),
        ("http-request set-timeout connect 1s", "unknown timeout 'connect'"),
        ("http-request set-nice 2000", "'2000' is not a nice value from -1024 to 1024"),
        ("http-request set-priority-class", "an expression is missing"),
        ("http-request silent-drop rst-ttl 0", "'0' is not a TTL from 1 to 255"),
        ("http-request normalize-uri path-strip-dot full", "unexpected argument 'full'"),
        ("http-request normalize-uri path-strip", "unknown normalizer 'path-strip'"),
        ("http-request set-var(txn.a,ifnot) path", "unknown condition 'ifnot'"),
        ("tcp-request content switch-mode tcp", "expected 'http', found 'tcp'"),
        ("tcp-request connection expect-proxy layer7", "expected 'layer4', found 'layer7'"),
    ] {
        check_problem_of(lines, expect);
    }
}

#[test]
fn early_hints_stay_lines() {
    let rules = rules(
        "http-request early-hint Link '%[str(%0d%0aX-Evil: y%00),url_dec]' ; http-request early-hint X-B b ; \
         http-request early-hint X-C c if TRUE",
    );
    with_context(SHORT, None, |cx| {
        let mut at = RuleCursor::default();
        let mut next = || match rules.http_request(cx, &mut at) {
            Verdict::Wait(RuleWait::Hints(fields)) => String::from_utf8(fields).expect("text"),
            other => format!("{other:?}"),
        };
        let lines = next();
        let names: Vec<_> = lines.lines().filter_map(|line| line.split(':').next()).collect();
        assert_eq!((names, lines.matches(['\r', '\n', '\0']).count()), (vec!["link", "x-b"], 4), "{lines:?}");
        assert_eq!((next(), next()), ("x-c: c\r\n".to_owned(), "Continue".to_owned()));
    });
}
