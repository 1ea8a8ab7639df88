//! The demo origins answer what they promise, also pipelined, and stop without cutting a request.

mod support;

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use baton_prove::{
    Load, LoadOptions, Origin, OriginHandle, OriginOptions, Request,
    load::{BodyCheck, StatusCheck},
    origin::{Faults, InjectedFault, OriginKind, pattern},
};
use support::run;

fn origin() -> OriginHandle {
    Origin::start(OriginOptions::new("left")).expect("started")
}

/// Sends `text`, closes this side and reads to the end.
fn talk(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(text.as_bytes()).expect("sent");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// What `text` is answered with, `Content-Type` left out.
fn check(text: &str, expect: &str) {
    let answer = talk(origin().address(), text);
    let answer: String = answer.split_inclusive("\r\n").filter(|line| !line.starts_with("Content-Type")).collect();
    assert_eq!(answer, expect, "{text:?}");
}

#[test]
fn paths_give_what_they_say() {
    check(
        "GET /bytes/30 HTTP/1.1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabcdefghijklmnopqrstuvwxyzabcd",
    );
    check(
        "GET /chunked/3 HTTP/1.1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    check("HEAD /bytes/30 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n");
    check("POST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    check(
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi!",
    );
    check("GET /bytes/1 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na");
    check("GET /status/204 HTTP/1.1\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n");
    check(
        "nonsense\r\n\r\n",
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 30\r\nConnection: close\r\n\r\nthis is not an HTTP/1 request\n",
    );
    assert!(talk(origin().address(), "GET /ws HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 426 "));
    assert!(talk(origin().address(), "GET /bytes/x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(talk(origin().address(), "GET /status/503 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let text = "GET /bytes/1 HTTP/1.1\r\n\r\nPOST /bytes/2 HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz\
                POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n!\r\n0\r\n\r\nGET /bytes/3 HTTP/1.1\r\nConnection: close\r\n\r\n\
                GET /bytes/4 HTTP/1.1\r\n\r\n";
    check(
        text,
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab\
         HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    );
}

#[test]
fn the_json_tells_what_was_seen() {
    let origin = origin();
    talk(origin.address(), "GET /first HTTP/1.1\r\n\r\n");
    let answer = talk(
        origin.address(),
        "PUT /a?b=\"c HTTP/1.1\r\nHost: h\r\nX-Two:  1 \r\nx-two: 2\r\nContent-Length: 1\r\n\r\n.",
    );
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    let seen: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let expect = serde_json::json!({
        "name": "left", "port": origin.address().port(), "requests": 2, "connection": 2,
        "method": "PUT", "path": "/a?b=\"c", "version": "HTTP/1.1",
        "headers": [["Host", "h"], ["X-Two", "1"], ["x-two", "2"], ["Content-Length", "1"]],
    });
    assert_eq!(seen, expect);
    assert_eq!((origin.requests(), origin.connections()), (2, 2));
}

#[test]
fn a_client_that_waits_for_continue_gets_it() {
    let origin = origin();
    let mut stream = TcpStream::connect(origin.address()).expect("connected");
    let head = "POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).expect("an interim answer");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hi").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("\r\n\r\nhi"), "{answer}");
}

#[test]
fn large_bodies_come_whole_to_the_load_client() {
    let origin = origin();
    let mut requests = vec![Request::get("/nothing/special"), Request::get("/delay/1")];
    for length in [0, 1, 3999, 4000, 4001, 65_520, 65_521, 1_000_000] {
        let expect = BodyCheck::Exactly(Arc::from(pattern(length)));
        requests.push(Request::get(format!("/bytes/{length}")).expect(expect.clone()));
        requests.push(Request::get(format!("/chunked/{length}")).expect(expect.clone()));
        requests.push(Request::post("/echo", pattern(length)).expect(expect));
        requests.push(Request { method: "HEAD".to_owned(), ..Request::get(format!("/bytes/{length}")) });
    }
    requests.push(Request::get("/status/404").status(StatusCheck::Exactly(404)));
    let count = 3 * requests.len() as u64;
    let (target, requests) = (origin.address(), Arc::new(requests));
    for keep_alive in [true, false] {
        let options =
            LoadOptions { count: Some(count), concurrency: 4, threads: 2, keep_alive, ..LoadOptions::new(target) };
        let options = LoadOptions { requests: requests.to_vec(), ..options };
        let result = run(async { Load::start(options).expect("started").wait().await });
        assert_eq!(result.counts.completed, count, "{} {:?}", result.counts, result.failures);
        assert_eq!(result.connections, if keep_alive { 4 } else { count });
    }
    assert_eq!((origin.requests(), origin.connections()), (2 * count, 4 + count));
}

#[test]
fn a_stop_lets_requests_end_and_closes_idle_connections() {
    run(async {
        let origin = origin();
        let connect = || TcpStream::connect(origin.address()).expect("connected");
        let (mut asking, mut asked, mut fresh) = (connect(), connect(), connect());
        asked.write_all(b"GET /bytes/1 HTTP/1.1\r\n\r\n").expect("sent");
        let mut byte = [0];
        while byte != *b"\n" || asked.peek(&mut [0; 2]).expect("an answer") > 1 {
            asked.read_exact(&mut byte).expect("an answer");
        }
        asking.write_all(b"GET /delay/50 HTTP/1.1\r\n\r\n").expect("sent");
        while origin.requests() < 2 || origin.open() < 3 {
            tokio::task::yield_now().await;
        }
        origin.stop().await.expect("stopped");

        let mut answer = String::new();
        asking.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("\r\nConnection: close\r\n") && answer.ends_with("}\n"), "{answer}");
        let mut rest = Vec::new();
        asked.read_to_end(&mut rest).expect("a close in order");
        assert_eq!((rest.as_slice(), fresh.read(&mut [0]).expect("a close in order")), (&b"a"[..], 0));
    });
}

#[test]
fn the_tcp_echo_echoes() {
    let options = OriginOptions { kind: OriginKind::TcpEcho, ..OriginOptions::new("echo") };
    let origin = Origin::start(options).expect("started");
    assert_eq!(talk(origin.address(), "anything\0at all"), "anything\0at all");
    assert_eq!((origin.connections(), origin.requests()), (1, 0));
    let taken = Origin::start(OriginOptions { address: origin.address(), ..OriginOptions::new("second") });
    assert_eq!(taken.expect_err("the address is taken").kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn a_failure_is_exactly_what_its_name_says() {
    let check = |text: &str, fault: InjectedFault, expect: &str| {
        let origin = origin();
        let mut stream = TcpStream::connect(origin.address()).expect("connected");
        stream.write_all(text.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        let is_reset = matches!(fault, InjectedFault::Reset | InjectedFault::ResetBody | InjectedFault::ResetAfter);
        assert_eq!(ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset), is_reset, "{text}");
        let answer = String::from_utf8(answer).expect("text").replace("Content-Type: text/plain\r\n", "");
        assert_eq!(answer, expect, "{text}");
        assert_eq!((origin.committed(fault).fresh, origin.committed(fault).total()), (1, 1), "{text}");
    };
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef";
    let of = |fault: &str| format!("GET /bytes/6?fail={fault} HTTP/1.1\r\n\r\n");
    let chunked = |fault: &str| format!("GET /chunked/6?fail={fault} HTTP/1.1\r\n\r\n");
    check(&of("reset"), InjectedFault::Reset, "");
    check(&of("close"), InjectedFault::Close, "");
    check(&of("malformed"), InjectedFault::Malformed, "this is not a response\r\n");
    check(&of("half-body"), InjectedFault::HalfBody, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
    check(&of("reset-body"), InjectedFault::ResetBody, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
    check(&of("close-after"), InjectedFault::CloseAfter, whole);
    check(&of("reset-after"), InjectedFault::ResetAfter, whole);
    check(
        "GET /status/204?fail=half-head HTTP/1.1\r\n\r\n",
        InjectedFault::HalfHead,
        &"HTTP/1.1 204 No Content\r\n\r\n"[..13],
    );
    check(
        &chunked("half-body"),
        InjectedFault::HalfBody,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    );
    // The connection goes on after the others; the request that follows closes it.
    let goes_on = |text: String| text.replace(" HTTP/1.1\r\n\r\n", " HTTP/1.1\r\nConnection: close\r\n\r\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n";
    check(&goes_on(of("wrong-body")), InjectedFault::WrongBody, &format!("{head}abceef"));
    check(&goes_on(of("too-long")), InjectedFault::TooLong, &format!("{head}abcdef!"));
    check(&goes_on(of("drip")), InjectedFault::Drip, &format!("{head}abcdef"));
    let short = head.replace(": 6", ": 5");
    check(&goes_on(of("wrong-length")), InjectedFault::WrongLength, &format!("{short}abcde"));
    let wrong = head.replace("200 OK", "500 Internal Server Error");
    check(&goes_on(of("wrong-status")), InjectedFault::WrongStatus, &format!("{wrong}abcdef"));
}

#[test]
fn what_an_answer_cannot_do_is_not_done_and_not_counted() {
    let script =
        vec![Some(InjectedFault::HalfBody), Some(InjectedFault::WrongBody), None, Some(InjectedFault::TooLong)];
    let options = OriginOptions { faults: Faults::Script(script), ..OriginOptions::new("a") };
    let origin = Origin::start(options).expect("started");
    let text = "GET /bytes/0 HTTP/1.1\r\n\r\nHEAD /bytes/9 HTTP/1.1\r\n\r\nGET /bytes/1?fail=wrong-body HTTP/1.1\r\n\r\n\
                GET /bytes/1 HTTP/1.1\r\n\r\n";
    let answer = talk(origin.address(), text).replace("Content-Type: text/plain\r\n", "");
    let head = |length: u64| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    assert_eq!(answer, format!("{}{}{}`{}a!", head(0), head(9), head(1), head(1)));
    assert_eq!(origin.committed(InjectedFault::HalfBody).total(), 0);
    assert_eq!(
        (origin.committed(InjectedFault::WrongBody).reused, origin.committed(InjectedFault::TooLong).reused),
        (1, 1)
    );
}

#[test]
fn a_frozen_origin_answers_nobody_until_it_goes_on() {
    let origin = origin();
    origin.freeze(Duration::from_millis(50));
    talk(origin.address(), "GET /bytes/1 HTTP/1.1\r\n\r\n");
    let answered = Instant::now();
    let freezes = origin.freezes();
    let [freeze] = freezes[..] else { panic!("{freezes:?}") };
    assert!(freeze.ended - freeze.began >= Duration::from_millis(50) && freeze.ended <= answered, "{freeze:?}");
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let options = OriginOptions { unix: Some(path.clone()), ..OriginOptions::new("a") };
        let origin = Origin::start(options.clone()).expect("started");
        let expect = BodyCheck::Exactly(Arc::from(pattern(100_000)));
        let options_of_load = LoadOptions { count: Some(20), concurrency: 2, ..LoadOptions::new(origin.target()) };
        let requests = vec![Request::get("/bytes/100000").expect(expect)];
        let result = Load::start(LoadOptions { requests, ..options_of_load }).expect("started").wait().await;
        assert_eq!((result.counts.completed, origin.requests(), origin.connections()), (20, 20, 2));
        let taken = Origin::start(options);
        assert_eq!(taken.expect_err("somebody listens").kind(), std::io::ErrorKind::AddrInUse);
        origin.stop().await.expect("stopped");
        assert!(!path.exists(), "it is removed at the end");
    });
}
