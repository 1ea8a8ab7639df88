//! Every kind of failure is committed a known number of times, and the client counts exactly those.

mod support;

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use baton_prove::{
    FailureKind, Load, LoadOptions, LoadResult, Report, Request, Target,
    load::{BodyCheck, StatusCheck},
};
use socket2::{Domain, Socket, Type};
use support::{hold, read_head, reset, run, say, server};

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn load(options: LoadOptions) -> LoadResult {
    let result = run(async { Load::start(options).expect("started").wait().await });
    let counts = result.counts;
    assert_eq!(counts.requests, counts.completed + counts.failed(), "every request has one end");
    assert_eq!(counts.failed(), result.failures.len() as u64, "every failure is kept");
    assert_eq!(counts.completed, result.latency().len(), "every answer is measured");
    assert!(result.failures.iter().all(|failure| failure.begun <= failure.at && failure.at <= result.elapsed));
    assert!(result.errors.is_empty(), "{:?}", result.errors);
    result
}

/// Three requests, a connection each, to a server with this script: all end in `kind` (`None`: none fails).
fn check(kind: Option<FailureKind>, request: Request, script: impl Fn(&mut TcpStream) + Send + 'static) {
    let address = server(move |_, stream| {
        if read_head(stream) {
            script(stream);
        }
    });
    let mut options = LoadOptions::new(address);
    options.requests = vec![request];
    options.keep_alive = false;
    options.count = Some(3);
    let counts = load(options).counts;
    assert_eq!(counts.requests, 3);
    match kind {
        None => assert_eq!(counts.completed, 3, "{counts}"),
        Some(kind) => assert_eq!(counts.count(kind), 3, "{}: {counts}", kind.name()),
    }
}

fn answer(kind: Option<FailureKind>, text: &'static str) {
    check(kind, Request::get("/"), move |stream| say(stream, text));
}

fn answer_and_reset(kind: Option<FailureKind>, text: &'static str) {
    check(kind, Request::get("/"), move |stream| {
        say(stream, text);
        reset(stream);
    });
}

#[test]
fn refused() {
    // Bound and not listening: nobody else can get the port meanwhile.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("bound").as_socket().expect("an internet address");
    let folder = tempfile::tempdir().expect("a folder");
    for (target, rest) in [
        (Target::Tcp(address), Duration::ZERO),
        (Target::Tcp(address), Duration::from_millis(1)),
        (Target::Unix(folder.path().join("nobody")), Duration::ZERO),
    ] {
        let options =
            LoadOptions { count: Some(5), concurrency: 2, rest_after_failure: rest, ..LoadOptions::new(target) };
        let result = load(options);
        assert_eq!(result.counts.count(FailureKind::Refused), 5, "{}", result.counts);
        assert!(result.failures.iter().all(|failure| failure.errno.is_some() && failure.reused == 0));
    }
}

#[test]
fn reset_before_the_first_byte() {
    answer(Some(FailureKind::ResetBeforeFirstByte), "");
    answer_and_reset(Some(FailureKind::ResetBeforeFirstByte), "");
    // At once after accept, before the request was read.
    let address = server(|_, stream| reset(stream));
    let result = load(LoadOptions { count: Some(5), ..LoadOptions::new(address) });
    assert_eq!(result.counts.count(FailureKind::ResetBeforeFirstByte), 5, "{}", result.counts);
}

#[test]
fn truncated() {
    for text in [
        "H",
        "HTTP/1.1 200 OK\r\nContent-",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012345678",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\n",
    ] {
        answer(Some(FailureKind::Truncated), text);
        answer_and_reset(Some(FailureKind::Truncated), text);
    }
    // Only a body that ends with the connection may end so, and only in order.
    answer(None, "HTTP/1.1 200 OK\r\n\r\nabc");
    answer_and_reset(Some(FailureKind::Truncated), "HTTP/1.1 200 OK\r\n\r\nabc");
}

#[test]
fn closed_on_reuse() {
    for abrupt in [false, true] {
        let address = server(move |_, stream| {
            // Two answers, and a close in the face of the third request.
            for _ in 0..2 {
                read_head(stream);
                say(stream, GOOD);
            }
            read_head(stream);
            if abrupt {
                reset(stream);
            }
        });
        let result = load(LoadOptions { count: Some(9), ..LoadOptions::new(address) });
        assert_eq!(
            (result.counts.completed, result.counts.count(FailureKind::ClosedOnReuse)),
            (6, 3),
            "{}",
            result.counts
        );
        assert!(result.failures.iter().all(|failure| failure.reused == 2), "{:?}", result.failures);
        assert_eq!(result.connections, 3);
    }
}

#[test]
fn a_close_seen_before_the_next_request_is_no_failure() {
    let address = server(|_, stream| {
        read_head(stream);
        say(stream, GOOD);
    });
    // The rate leaves time for the close to arrive.
    let result = load(LoadOptions { count: Some(3), rate: Some(5.0), ..LoadOptions::new(address) });
    assert_eq!((result.counts.completed, result.closed_idle, result.connections), (3, 2, 3), "{}", result.counts);
}

#[test]
fn an_announced_close_is_no_failure() {
    let address = server(|_, stream| {
        read_head(stream);
        say(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    });
    let result = load(LoadOptions { count: Some(3), ..LoadOptions::new(address) });
    assert_eq!((result.counts.completed, result.connections, result.closed_idle), (3, 3, 0), "{}", result.counts);
}

#[test]
fn timeouts() {
    let short = Duration::from_millis(50);
    let check = |address: SocketAddr, set: fn(&mut LoadOptions, Duration), kind: FailureKind| {
        let mut options = LoadOptions { count: Some(2), ..LoadOptions::new(address) };
        set(&mut options, short);
        let counts = load(options).counts;
        assert_eq!(counts.count(kind), 2, "{}: {counts}", kind.name());
    };
    let silent = server(|_, stream| hold(stream));
    check(silent, |options, short| options.timeouts.first_byte = short, FailureKind::TimeoutFirstByte);
    check(silent, |options, short| options.timeouts.whole = short, FailureKind::TimeoutWhole);
    let half = server(|_, stream| {
        read_head(stream);
        say(stream, &GOOD[..GOOD.len() - 1]);
        hold(stream);
    });
    check(half, |options, short| options.timeouts.whole = short, FailureKind::TimeoutWhole);

    // A queue that is full drops whoever knocks.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    socket.listen(0).expect("listening");
    let listener: TcpListener = socket.into();
    let full = listener.local_addr().expect("bound");
    let _queued = TcpStream::connect(full).expect("room for one");
    check(full, |options, short| options.timeouts.connect = short, FailureKind::TimeoutConnect);
}

#[test]
fn an_answer_that_began_in_time_may_take_longer() {
    let address = server(|_, stream| {
        while read_head(stream) {
            say(stream, &GOOD[..10]);
            std::thread::sleep(Duration::from_millis(600));
            say(stream, &GOOD[10..]);
        }
    });
    let mut options = LoadOptions { count: Some(1), ..LoadOptions::new(address) };
    options.timeouts.first_byte = Duration::from_millis(500);
    assert_eq!(load(options).counts.completed, 1);
}

#[test]
fn a_fast_answer_after_a_slow_one_is_not_timed_out_by_an_old_deadline() {
    let address = server(|_, stream| {
        while read_head(stream) {
            say(stream, GOOD);
        }
    });
    let mut options = LoadOptions { rate: Some(100.0), count: Some(30), ..LoadOptions::new(address) };
    // The whole run is longer than the time for each request.
    options.timeouts.first_byte = Duration::from_millis(250);
    let result = load(options);
    assert_eq!(result.counts.completed, 30, "{}", result.counts);
}

#[test]
fn answers_that_differ_in_length_from_the_first_right_one() {
    let address = server(|number, stream| {
        read_head(stream);
        // The first two are wrong by their status, so that the third one's body is the measure.
        let status = if number < 2 { "500 No" } else { "200 OK" };
        let body = "x".repeat([9, 9, 3, 3, 4, 3, 0, 3][number]);
        say(stream, format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    });
    let requests = vec![Request::get("/").expect(BodyCheck::SameLength)];
    let result = load(LoadOptions { count: Some(8), requests, ..LoadOptions::new(address) });
    assert_eq!((result.counts.completed, result.counts.count(FailureKind::WrongStatus)), (4, 2), "{}", result.counts);
    assert_eq!(result.counts.count(FailureKind::WrongLength), 2, "{}", result.counts);
}

#[test]
fn wrong_answers() {
    let length = || Request::get("/").expect(BodyCheck::Length(3));
    let exactly = |body: &str| Request::get("/").expect(BodyCheck::Exactly(Arc::from(body.as_bytes())));
    let good = |stream: &mut TcpStream| say(stream, GOOD);
    check(Some(FailureKind::WrongLength), length(), good);
    check(Some(FailureKind::WrongLength), exactly("okay"), good);
    check(Some(FailureKind::WrongLength), exactly("o"), good);
    check(Some(FailureKind::WrongBody), exactly("oK"), good);
    check(None, exactly("ok"), good);
    check(None, exactly("ok"), |stream| {
        say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n");
    });
    check(Some(FailureKind::WrongStatus), Request::get("/").status(StatusCheck::Exactly(204)), good);
    check(None, Request::get("/").status(StatusCheck::Any), |stream| {
        say(stream, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    });
    answer(Some(FailureKind::WrongStatus), "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    answer(
        None,
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
}

#[test]
fn malformed() {
    answer(Some(FailureKind::Malformed), "SSH-2.0-OpenSSH\r\n");
    answer(Some(FailureKind::Malformed), "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n");
    answer(Some(FailureKind::Malformed), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokay");
    answer(Some(FailureKind::Malformed), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
}

#[test]
fn other() {
    let target = Target::Unix("x".repeat(1000).into());
    let result = load(LoadOptions { count: Some(2), ..LoadOptions::new(target) });
    assert_eq!(result.counts.count(FailureKind::Other), 2, "{}", result.counts);
}

#[test]
fn many_kinds_in_one_run_are_told_apart() {
    const TURNS: u64 = 20;
    let address = server(|number, stream| {
        if number % 5 == 0 {
            return reset(stream);
        }
        read_head(stream);
        match number % 5 {
            1 => say(stream, &GOOD[..20]),
            2 => say(stream, "nonsense\r\n"),
            3 => say(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            _ => say(stream, GOOD),
        }
    });
    let options =
        LoadOptions { keep_alive: false, count: Some(5 * TURNS), concurrency: 7, ..LoadOptions::new(address) };
    let result = load(LoadOptions { threads: 2, rest_after_failure: Duration::ZERO, ..options });
    let report = Report::new(&result);
    assert_eq!((report.requests, report.completed, report.failed), (5 * TURNS, TURNS, 4 * TURNS), "{}", result.counts);
    for kind in ["reset_before_first_byte", "truncated", "malformed", "wrong_status"] {
        assert_eq!(report.failures[kind], TURNS, "{kind}: {}", result.counts);
    }
    assert_eq!(report.failures.len(), FailureKind::ALL.len());
    assert!(!report.is_clean());
    assert!(report.to_json().contains("\"closed_on_reuse\": 0"));
    assert!(report.kinds().contains("truncated 20"), "{}", report.kinds());
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let check = |set: fn(&mut LoadOptions)| {
        let mut options = LoadOptions::new(SocketAddr::from(([127, 0, 0, 1], 1)));
        set(&mut options);
        let error = Load::start(options).expect_err("refused");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    };
    check(|options| options.requests.clear());
    check(|options| options.concurrency = 0);
    check(|options| options.threads = 0);
    check(|options| options.rate = Some(0.0));
    check(|options| options.rate = Some(f64::NAN));
    check(|options| options.requests[0].path = "/\r\nX: y".to_owned());
}
