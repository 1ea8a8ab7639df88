//! Bounds, editing and the small helpers, case by case.

use baton_http::*;

fn parse(text: &str, limits: &Limits) -> (RequestHead, Result<Parsed, HeadError>) {
    let mut head = RequestHead::new();
    let result = head.parse(text.as_bytes(), limits);
    (head, result)
}

fn kind(result: Result<Parsed, HeadError>) -> Option<HeadErrorKind> {
    result.err().map(|error| error.kind)
}

#[test]
fn a_head_of_exactly_the_limit_passes() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let limits = |head_bytes| Limits { head_bytes, ..Limits::default() };
    assert_eq!(parse(text, &limits(text.len())).1, Ok(Parsed::Complete(text.len())));
    for short in 0..text.len() {
        assert_eq!(kind(parse(text, &limits(short)).1), Some(HeadErrorKind::TooLong), "limit {short}");
    }
}

#[test]
fn an_unfinished_head_is_refused_once_it_cannot_fit() {
    // HAProxy 2.6: 400 as soon as the buffer is full
    let limits = Limits { head_bytes: 100, headers: 101, ..Limits::default() };
    assert_eq!(parse(&"G".repeat(99), &limits).1, Ok(Parsed::Partial));
    assert_eq!(kind(parse(&"G".repeat(100), &limits).1), Some(HeadErrorKind::TooLong));
    assert_eq!(kind(parse(&"\n".repeat(100), &limits).1), Some(HeadErrorKind::TooLong));
}

#[test]
fn a_hundred_fields_pass_and_one_more_does_not() {
    // HAProxy 2.6 with tune.http.maxhdr 101: 100 fields pass, 101 give 400
    let text = |fields: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(fields));
    assert!(parse(&text(100), &Limits::default()).1.is_ok());
    assert_eq!(kind(parse(&text(101), &Limits::default()).1), Some(HeadErrorKind::TooManyHeaders));
}

#[test]
fn errors_say_where() {
    let check = |text: &str, expect: &str| {
        let (_, result) = parse(text, &Limits::default());
        assert_eq!(result.expect_err(text).to_string(), expect, "{text:?}");
    };
    check("G@T / HTTP/1.1\r\n", "invalid method at byte 1");
    check("GET /\x01 HTTP/1.1\r\n", "invalid request target at byte 5");
    check("GET / HTTP/1.x\r\n", "invalid HTTP version at byte 6");
    check("GET / HTTP/1.1\r\nX : y\r\n", "invalid header name at byte 17");
    check("GET / HTTP/1.1\r\nX: \ry\r\n", "carriage return without line feed at byte 19");
    check("GET / HTTP/1.1\r\nX: \0\r\n\r\n", "NUL byte at byte 19");
    check("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "invalid or conflicting Content-Length at byte 16");
    check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 preface on an HTTP/1 connection at byte 0");
}

#[test]
fn one_byte_at_a_time_searches_each_byte_once() {
    // A head of the largest size in single bytes: quadratic work would take minutes in a debug build.
    let text = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(400_000));
    let limits = Limits { head_bytes: 1 << 20, headers: 101, ..Limits::default() };
    let mut head = RequestHead::new();
    for end in 0..text.len() {
        assert_eq!(head.parse(&text.as_bytes()[..end], &limits), Ok(Parsed::Partial));
    }
    assert_eq!(head.parse(text.as_bytes(), &limits), Ok(Parsed::Complete(text.len())));
}

#[test]
fn a_head_is_ready_for_the_next_request_by_itself() {
    let mut head = RequestHead::new();
    let first = b"POST /1 HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    assert!(head.parse(first, &Limits::default()).is_ok());
    assert!(head.expect_continue && !head.keep_alive());
    let second = b"\r\nGET /2 HTTP/1.1\r\n\r\n";
    assert_eq!(head.parse(&second[..2], &Limits::default()), Ok(Parsed::Partial));
    assert_eq!(head.blank(), 2);
    assert_eq!(head.parse(second, &Limits::default()), Ok(Parsed::Complete(second.len())));
    assert_eq!((head.framing, head.expect_continue, head.headers.len()), (Framing::None, false, 0));
    assert!(head.keep_alive());
    assert!(head.parse(b"@", &Limits::default()).is_ok(), "an unfinished line is not judged");
    assert!(head.parse(b"@\n", &Limits::default()).is_err());
    assert!(head.parse(second, &Limits::default()).is_ok(), "after an error too");
}

#[test]
fn targets_have_parts() {
    let check = |target: &str, expect: (&str, &str, Option<&str>)| {
        let (head, result) = parse(&format!("GET {target} HTTP/1.1\r\n\r\n"), &Limits::default());
        assert!(result.is_ok(), "{target}");
        let text = format!("GET {target} HTTP/1.1\r\n\r\n");
        let buf = text.as_bytes();
        let (authority, path, query) = expect;
        assert_eq!(head.authority(buf), authority.as_bytes(), "{target}");
        assert_eq!(head.path(buf), path.as_bytes(), "{target}");
        assert_eq!(head.query(buf), query.map(str::as_bytes), "{target}");
    };
    // HAProxy 2.6: the same `path` and `query`
    check("/a?b?c", ("", "/a", Some("b?c")));
    check("/?", ("", "/", Some("")));
    check("//a/b", ("", "//a/b", None));
    check("http://a", ("a", "", None));
    check("http://a:81/b?c", ("a:81", "/b", Some("c")));
    check("ftp://u@a:81/b?c", ("u@a:81", "/b", Some("c")));
    // HAProxy 2.6 takes `a?x` for the authority
    check("http://a?x", ("a", "/", Some("x")));
    check("http://a?x/y", ("a", "/", Some("x/y")));
    check("http://b?@a/", ("b", "/", Some("@a/")));
    check("*", ("", "", None));
}

#[test]
fn what_is_cut_off_a_target_is_cut_once() {
    let check = |target: &str, expect: &str| {
        let text = format!("GET {target} HTTP/1.1\r\n\r\n");
        let (head, result) = parse(&text, &Limits::default());
        assert!(result.is_ok(), "{target}");
        assert_eq!(head.target(text.as_bytes()), expect.as_bytes());
    };
    check("http://a:80/", "http://a/"); // HAProxy 2.6: the same
    check("http://[::1]:80/", "http://[::1]/"); // HAProxy 2.6: the same
    check("http://[::1]/", "http://[::1]/");
    check("x://a:", "x://a");
}

#[test]
fn hosts_that_can_be_read_in_two_ways_are_refused() {
    let check = |target: &str, host: &str, expect: Result<(), HeadErrorKind>| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let (_, result) = parse(&text, &Limits::default());
        assert_eq!(result.map(|_| ()).map_err(|error| error.kind), expect, "{target} {host}");
    };
    let (target, host) = (Err(HeadErrorKind::Target), Err(HeadErrorKind::Host));
    check("http://b?@a/", "a", host);
    check("http://b?@a/", "b", Ok(()));
    check("http://b#@a/", "a", target);
    check("http://b\\@a/", "a", target);
    check("http://u:p@a/", "a", target);
    check("http://@a/", "a", target);
    check("ftp://u:p@a/", "a", Ok(()));
    check("ftp://u\\@a/", "a", target);
    check("x://a::", "a", target);
    check("http://[::1]/", "[::1]", Ok(()));
    check("/", "", Ok(()));
    for bad in ["a b", "a/", "a@b", "a,b", "a?b", "a\\b", "[::1", ":80", "a:b", "\u{e9}"] {
        check("/", bad, host);
    }
}

#[test]
fn an_absolute_target_is_the_host() {
    let check = |target: &str, expect: &str| {
        let text = format!("{target} HTTP/1.1\r\n\r\n");
        let (head, result) = parse(&text, &Limits::default());
        assert!(result.is_ok(), "{target}");
        assert_eq!(head.host(text.as_bytes()).map(|host| host.escape_ascii().to_string()).as_deref(), Some(expect));
    };
    check("GET http://a/", "a");
    check("GET http://a:80", "a");
    check("GET http://a:81?b", "a:81");
    check("GET ftp://u@a:80/", "a:80");
    check("CONNECT a:443", "a");
    check("CONNECT a:8443", "a:8443");
}

#[test]
fn what_connection_names_is_gone_before_anybody_looks() {
    let check = |fields: &str, expect: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let (mut head, result) = parse(&text, &Limits::default());
        assert!(result.is_ok(), "{fields}");
        head.headers.add(b"x-forwarded-for", b"ours");
        head.for_upstream(text.as_bytes(), ForUpstream { keep_alive: true });
        let mut out = Vec::new();
        head.headers.write(text.as_bytes(), &mut out);
        let expect = format!("host: a\r\n{expect}x-forwarded-for: ours\r\n");
        assert_eq!(out.escape_ascii().to_string(), expect.as_bytes().escape_ascii().to_string(), "{fields}");
    };
    check("X-A: 1\r\nConnection: x-a, x-b\r\n", "");
    check("Connection: x-a\r\nX-A: 1\r\nx-a: 2\r\nX-B: 3\r\n", "x-b: 3\r\n");
    check(
        "Connection: X-Forwarded-For, Cookie, close\r\nCookie: a\r\nX-Forwarded-For: 1\r\n",
        "cookie: a\r\nx-forwarded-for: 1\r\n",
    );
    check("Connection: Host, Content-Length\r\nContent-Length: 0\r\n", "content-length: 0\r\n");
    check("Connection: TE\r\nTE: trailers\r\n", "connection: TE\r\nte: trailers\r\n");
    check("Connection: keep-alive\r\nKeep-Alive: 300\r\n", "");
    check("Keep-Alive: 300\r\n", "keep-alive: 300\r\n");
    check("Connection: Upgrade, X-A\r\nX-A: 1\r\nUpgrade: foo\r\n", "connection: Upgrade\r\nupgrade: foo\r\n");
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n", "a,".repeat(33));
    let (_, result) = parse(&many, &Limits::default());
    assert_eq!(result.map_err(|error| error.kind), Err(HeadErrorKind::Connection));
}

#[test]
fn no_protocol_that_carries_requests_is_asked_for() {
    let check = |fields: &str, upgrades: bool, expect: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let (mut head, result) = parse(&text, &Limits::default());
        assert!(result.is_ok(), "{fields}");
        head.for_upstream(text.as_bytes(), ForUpstream { keep_alive: true });
        let mut out = Vec::new();
        head.headers.write(text.as_bytes(), &mut out);
        let expect = format!("host: a\r\n{expect}");
        assert_eq!(out.escape_ascii().to_string(), expect.as_bytes().escape_ascii().to_string(), "{fields}");
        assert_eq!(head.response_to().upgrade, upgrades, "{fields}");
    };
    let settings = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMA\r\n";
    check(&format!("{settings}Upgrade: h2c\r\n"), false, "");
    check(&format!("{settings}Upgrade: h2c,TLS/1.2 , HTTP/2.0\r\n"), false, "");
    check(&format!("{settings}Upgrade: h2c, foo\r\n"), true, "connection: Upgrade\r\nupgrade: foo\r\n");
    check("Upgrade: foo\r\nUpgrade: h2c\r\nConnection: upgrade\r\n", true, "upgrade: foo\r\nconnection: upgrade\r\n");
    check("Upgrade: h2c\r\nHTTP2-Settings: AAMA\r\n", false, "");
    check("Upgrade: \"a, h2c\r\nConnection: upgrade\r\n", false, "");
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let expect = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nconnection: Upgrade\r\nupgrade: websocket\r\n";
    check(&format!("{key}{settings}Upgrade: h2c, websocket\r\n"), true, expect);
}

#[test]
fn no_server_switches_to_a_protocol_that_carries_requests() {
    let to = ResponseTo { upgrade: true, ..ResponseTo::default() };
    let check = |protocol: &str, expect: bool| {
        let text = format!("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\r\n");
        let result = ResponseHead::new().parse(text.as_bytes(), to, &Limits::default());
        assert_eq!(result.is_ok(), expect, "{protocol}");
    };
    check("foo", true);
    check("h2c", false);
    check("foo, h2c", false);
    check("TLS/1.2, HTTP/1.1", false);
}

#[test]
fn values_are_counted_as_hdr_cnt_does() {
    // HAProxy 2.6: hdr_cnt and hdr(x,N) gave these
    let check = |line: &str, expect: &[&str]| {
        let got: Vec<_> = values(line.as_bytes()).map(|value| value.escape_ascii().to_string()).collect();
        let expect: Vec<_> = expect.iter().map(|value| value.as_bytes().escape_ascii().to_string()).collect();
        assert_eq!(got, expect, "{line}");
    };
    check("a", &["a"]);
    check("", &[""]);
    check("a,,b", &["a", "", "b"]);
    check(",a", &["", "a"]);
    check("a,", &["a", ""]);
    check("a , b", &["a", "b"]);
    check(r#""a,b", c"#, &[r#""a,b""#, "c"]);
    check(r#""a\",b", c"#, &[r#""a\",b""#, "c"]);
    check(r#""a, b"#, &[r#""a, b"#]);
    check(r#"a;b="c,d", e"#, &[r#"a;b="c,d""#, "e"]);
}

#[test]
fn fields_are_edited_in_place() {
    let buf = b"GET / HTTP/1.1\r\nA: 1\r\nCookie: x\r\na: 2, 3\r\nB: 4\r\n\r\n";
    let mut head = RequestHead::new();
    assert!(head.parse(buf, &Limits::default()).is_ok());
    let headers = &mut head.headers;
    let check = |headers: &Headers, expect: &str| {
        let mut out = Vec::new();
        headers.write(buf, &mut out);
        assert_eq!(String::from_utf8_lossy(&out).replace("\r\n", "|"), expect);
    };
    check(headers, "a: 1|cookie: x|a: 2, 3|b: 4|");
    assert_eq!(headers.values(buf, b"A").collect::<Vec<_>>(), [b"1", b"2", b"3"]);
    assert_eq!(headers.lines(buf, b"a").count(), 2);
    assert_eq!(headers.find(buf, b"COOKIE").map(|field| field.value), Some(&b"x"[..]));
    assert_eq!(headers.known(buf, Name::Host), None);
    headers.add(b"X-New", b"n");
    let cookie = headers.known(buf, Name::Cookie).map(|field| field.index).expect("there is a cookie");
    headers.replace_value(cookie, b"y");
    check(headers, "a: 1|cookie: y|a: 2, 3|b: 4|x-new: n|");
    assert_eq!(headers.remove(buf, b"A"), 2);
    headers.set(buf, b"b", b"5");
    headers.remove_at(cookie);
    headers.remove_at(1000);
    check(headers, "x-new: n|b: 5|");
    assert_eq!(headers.len(), 2);
}

#[test]
fn method_target_and_status_can_be_changed() {
    let buf = b"GET /a HTTP/1.1\r\n\r\n";
    let mut head = RequestHead::new();
    assert!(head.parse(buf, &Limits::default()).is_ok());
    assert!(!head.set_target(b"/a b") && !head.set_target(b"a") && head.set_target(b"http://b/c"));
    head.set_method(b"POST");
    let mut out = Vec::new();
    head.write(buf, &mut out);
    assert_eq!(out, b"POST http://b/c HTTP/1.1\r\n\r\n");
    assert_eq!((head.method, head.form(), head.authority(buf)), (Method::Post, TargetForm::Absolute, &b"b"[..]));

    let mut response = ResponseHead::new();
    let buf = b"HTTP/1.1 200 OK\r\n\r\n";
    assert!(response.parse(buf, ResponseTo::default(), &Limits::default()).is_ok());
    response.set_status(404, b"Not Found");
    let mut out = Vec::new();
    response.write(buf, &mut out);
    assert_eq!(out, b"HTTP/1.1 404 Not Found\r\n\r\n");
}

#[test]
fn a_server_connection_is_used_again_only_when_that_is_safe() {
    let check = |text: &str, expect: bool| {
        let mut head = ResponseHead::new();
        assert!(head.parse(text.as_bytes(), ResponseTo::default(), &Limits::default()).is_ok(), "{text}");
        assert_eq!(head.server_reusable(), expect, "{text}");
    };
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true);
    check("HTTP/1.1 204 OK\r\n\r\n", true);
    check("HTTP/1.1 200 OK\r\n\r\n", false);
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n", false);
    check("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", false);
    check("HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\n", true);
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", false);
}

#[test]
fn chunk_bounds_hold() {
    let check = |body: &str, expect: Result<(), ChunkErrorKind>| {
        let mut decoder = ChunkDecoder::new(&Limits::default());
        let result = decoder.step(body.as_bytes()).map(|_| ()).map_err(|error| error.kind);
        assert_eq!(result, expect, "{}", &body[..body.len().min(40)]);
    };
    // HAProxy 2.6: 13 digits pass, 14 give 400
    check("fffffffffffff\r\nx", Ok(()));
    check("10000000000000\r\nx", Err(ChunkErrorKind::TooLarge));
    check("ffffffffffffffffffffffff\r\nx", Err(ChunkErrorKind::TooLarge));
    check(&format!("5;{}\r\nx", "x".repeat(CHUNK_LINE_MAX - 4)), Ok(()));
    check(&format!("5;{}\r\nx", "x".repeat(CHUNK_LINE_MAX - 3)), Err(ChunkErrorKind::LineTooLong));
    check(&format!("{}5\r\nx", "0".repeat(CHUNK_LINE_MAX)), Err(ChunkErrorKind::LineTooLong));
    let too_long = ChunkErrorKind::Trailer(HeadErrorKind::TooLong);
    check(&format!("0\r\nX: {}", "x".repeat(20_000)), Err(too_long));
    let too_many = ChunkErrorKind::Trailer(HeadErrorKind::TooManyHeaders);
    check(&format!("0\r\n{}", "x: y\r\n".repeat(101)), Err(too_many));
}

#[test]
fn lines_of_a_servers_chunks_may_end_in_lf() {
    fn decode(body: &str, decoder: &mut ChunkDecoder) -> Result<String, ChunkErrorKind> {
        let (mut rest, mut data) = (body.as_bytes(), Vec::new());
        loop {
            match decoder.step(rest).map_err(|error| error.kind)? {
                ChunkStep::Data { skip, len } => {
                    data.extend_from_slice(&rest[skip..skip + len]);
                    rest = &rest[skip + len..];
                }
                ChunkStep::NeedMore { .. } => return Ok("unfinished".into()),
                ChunkStep::Done { .. } => return Ok(String::from_utf8_lossy(&data).into()),
            }
        }
    }
    let (mut client, mut server) = (ChunkDecoder::default(), ChunkDecoder::of_server(&Limits::default()));
    let mut check =
        |body: &str, in_request: Result<&str, ChunkErrorKind>, in_response: Result<&str, ChunkErrorKind>| {
            for (decoder, expect) in [(&mut client, in_request), (&mut server, in_response)] {
                // Whatever came before.
                decoder.clear();
                assert_eq!(decode(body, decoder), expect.map(Into::into), "{body:?}");
            }
        };
    let refused = Err(ChunkErrorKind::LineEnd);
    check("5\r\nhello\r\n0\r\n\r\n", Ok("hello"), Ok("hello"));
    check("5\r\nhello\r\n0\r\nX: y\n\n", Ok("hello"), Ok("hello"));
    for body in [
        "5\nhello\n0\n\n",
        "5\nhello\r\n0\r\n\r\n",
        "5 \nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0;a\n\n",
    ] {
        check(body, refused, Ok("hello"));
    }
    for body in
        ["5\rhello\r\n0\r\n\r\n", "5;a\rb\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r0\r\n\r\n", "5\r\nhello\r\r\n0\r\n\r\n"]
    {
        check(body, refused, refused);
    }
    // The data begins after the first LF.
    check("5;a\nb\r\nhello\r\n0\r\n\r\n", refused, refused);
    check("5\n\nhello\r\n0\r\n\r\n", refused, refused);
    for body in ["5\r\nhello\n\n0\r\n\r\n", "\n5\r\nhello\r\n0\r\n\r\n"] {
        check(body, if body.starts_with('5') { refused } else { Err(ChunkErrorKind::Size) }, Err(ChunkErrorKind::Size));
    }
}

#[test]
fn chunk_steps_account_for_every_byte() {
    let mut decoder = ChunkDecoder::new(&Limits::default());
    for _ in 0..2 {
        assert_eq!(decoder.step(b"5;x\r\nhel"), Ok(ChunkStep::Data { skip: 5, len: 3 }));
        assert_eq!(decoder.step(b"lo\r\n0\r\nX: y\r\n\r\nGET"), Ok(ChunkStep::Data { skip: 0, len: 2 }));
        assert_eq!(decoder.step(b"\r\n0\r\nX: y\r"), Ok(ChunkStep::NeedMore { consumed: 10 }));
        assert_eq!(decoder.step(b"\n\r\nGET"), Ok(ChunkStep::Done { consumed: 3 }));
        assert!(decoder.is_done());
        let (trailers, bytes) = decoder.trailers();
        assert_eq!(trailers.find(bytes, b"x").map(|field| field.value), Some(&b"y"[..]));
        decoder.clear();
    }
    for (len, expect) in [(1, "1\r\n"), (10, "A\r\n"), (0x1234, "1234\r\n"), (usize::MAX, "FFFFFFFFFFFFFFFF\r\n")] {
        let mut out = Vec::new();
        write_chunk_header(&mut out, len);
        assert_eq!(String::from_utf8_lossy(&out), expect);
        assert!(out.len() <= CHUNK_HEADER_MAX);
    }
}
