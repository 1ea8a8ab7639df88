//! Every kind of failure is committed a known number of times, and the client counts exactly those.

mod support;

use std::{
    io::Read,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use baton_prove::{
    FailureKind, Load, LoadOptions, LoadResult, Report, Request, ServerEndpoint, Target, TlsOptions,
    load::{BodyCheck, StatusCheck},
    stream::Verify,
};
use socket2::{Domain, SockRef, Socket, Type};
use support::{
    hold, read_head, reset, run, say, server,
    shape::Shape,
    timed::{Freezes, Seen, Timed, in_time},
};

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

/// Requests to a server with this script: all end in `kind`, in whatever shape they are asked (`None`: none fails, with a
/// connection each).
fn check(kind: Option<FailureKind>, request: Request, script: impl Fn(&mut TcpStream) + Send + 'static) {
    // A whole answer keeps its connection, also a wrong one.
    let keeps = matches!(kind, Some(FailureKind::WrongLength | FailureKind::WrongBody | FailureKind::WrongStatus));
    let address = server(move |_, stream| {
        while read_head(stream) {
            script(stream);
            if !keeps {
                break;
            }
        }
    });
    for shape in Shape::all().filter(|shape| kind.is_some() || !shape.keep_alive) {
        let requests = vec![request.clone()];
        let counts = load(shape.of(LoadOptions { requests, count: Some(8), ..LoadOptions::new(address) })).counts;
        let count = kind.map_or(counts.completed, |kind| counts.count(kind));
        assert_eq!((counts.requests, count), (8, 8), "{kind:?}: {counts}, {shape:?}");
    }
}

/// Requests to this server: all end in `kind`, in whatever shape they are asked.
fn check_all(kind: FailureKind, server: impl Into<ServerEndpoint>, set: impl Fn(&mut LoadOptions)) {
    let options = LoadOptions { count: Some(7), ..LoadOptions::new(server) };
    for shape in Shape::all() {
        let mut options = shape.of(options.clone());
        set(&mut options);
        let result = load(options);
        assert_eq!(result.counts.count(kind), 7, "{}: {}, {shape:?}", kind.name(), result.counts);
        assert!(result.failures.iter().all(|failure| failure.reused == 0), "{shape:?}");
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
    for target in [Target::Tcp(address), Target::Unix(folder.path().join("nobody"))] {
        check_all(FailureKind::Refused, target.clone(), |_| {});
        check_all(FailureKind::Refused, target.clone(), |options| {
            options.rest_after_failure = Duration::from_millis(1);
        });
        let result = load(LoadOptions { count: Some(5), ..LoadOptions::new(target) });
        assert!(result.failures.iter().all(|failure| failure.errno.is_some()), "{:?}", result.failures);
    }
}

#[test]
fn reset_before_the_first_byte() {
    answer(Some(FailureKind::ResetBeforeFirstByte), "");
    answer_and_reset(Some(FailureKind::ResetBeforeFirstByte), "");
    // At once after accept, before the request was read.
    let address = server(|_, stream| reset(stream));
    check_all(FailureKind::ResetBeforeFirstByte, address, |_| {});
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
        // The end goes out with the answer, in one segment: who has read the one knows of the other.
        let socket = SockRef::from(&*stream);
        socket.set_tcp_cork(true).expect("a TCP socket");
        say(&mut &*stream, GOOD);
        socket.shutdown(Shutdown::Write).expect("connected");
        hold(stream);
    });
    for rate in [None, Some(50.0)] {
        let result = load(LoadOptions { count: Some(5), rate, ..LoadOptions::new(address) });
        assert_eq!((result.counts.completed, result.closed_idle, result.connections), (5, 4, 5), "{}", result.counts);
    }
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
    // Whatever happens at these servers comes too late: however slow the machine is, only one kind is right.
    let short = Duration::from_millis(30);
    let silent = server(|_, stream| hold(stream));
    check_all(FailureKind::TimeoutFirstByte, silent, |options| options.timeouts.first_byte = short);
    check_all(FailureKind::TimeoutWhole, silent, |options| options.timeouts.whole = short);
    let half = server(|_, stream| {
        read_head(stream);
        say(stream, &GOOD[..GOOD.len() - 1]);
        hold(stream);
    });
    check_all(FailureKind::TimeoutWhole, half, |options| options.timeouts.whole = short);

    // A queue that is full drops whoever knocks.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    socket.listen(0).expect("listening");
    let listener: TcpListener = socket.into();
    let full = listener.local_addr().expect("bound");
    let _queued = TcpStream::connect(full).expect("room for one");
    check_all(FailureKind::TimeoutConnect, full, |options| options.timeouts.connect = short);
}

#[test]
fn tls_that_is_broken_off_is_a_failed_handshake() {
    let tls = TlsOptions { verify: Verify::Nothing, ..TlsOptions::default() }.build().expect("good options");
    let over = |address: SocketAddr| ServerEndpoint { tls: Some(tls.clone()), ..address.into() };
    // A fatal alert (RFC 8446 section 6.2: handshake_failure) instead of the server's hello; a close; a reset.
    let alert = server(|_, stream| {
        let _ = stream.read(&mut [0; 4096]);
        say(stream, [21, 3, 3, 0, 2, 2, 40]);
        hold(stream);
    });
    check_all(FailureKind::TlsHandshake, over(alert), |_| {});
    let closes = server(|_, stream| drop(stream.read(&mut [0; 4096])));
    check_all(FailureKind::TlsHandshake, over(closes), |_| {});
    let resets = server(|_, stream| {
        let _ = stream.read(&mut [0; 4096]);
        reset(stream);
    });
    check_all(FailureKind::TlsHandshake, over(resets), |_| {});
    let silent = server(|_, stream| hold(stream));
    check_all(FailureKind::TimeoutConnect, over(silent), |options| {
        options.timeouts.connect = Duration::from_millis(30);
    });
}

#[test]
fn an_answer_that_began_in_time_may_take_longer() {
    let first_byte = Duration::from_millis(300);
    let completed = in_time(|| {
        let (tell, began) = mpsc::channel();
        let address = server(move |_, stream| {
            while read_head(stream) {
                say(stream, &GOOD[..10]);
                let _ = tell.send(Instant::now());
                std::thread::sleep(first_byte + Duration::from_millis(50));
                say(stream, &GOOD[10..]);
            }
        });
        let mut options = LoadOptions { count: Some(1), ..LoadOptions::new(address) };
        options.timeouts.first_byte = first_byte;
        let result = load(options);
        let began = began.recv().ok()?;
        (began - result.started < first_byte).then_some(result.counts.completed)
    });
    assert_eq!(completed, 1);
}

#[test]
fn a_fast_answer_after_a_slow_one_is_not_timed_out_by_an_old_deadline() {
    let first_byte = Duration::from_millis(250);
    let result = in_time(|| {
        let server = Timed::start(Freezes { before: Vec::new(), time: Duration::ZERO, with: 1 });
        let mut options = LoadOptions { rate: Some(100.0), count: Some(30), ..LoadOptions::new(server.address) };
        // The whole run is longer than the time for each request.
        options.timeouts.first_byte = first_byte;
        let result = load(options);
        let planned = |number: usize| result.started + Duration::from_millis(10) * number as u32;
        let is_in_time = |(number, seen): (usize, &Seen)| seen.sent - planned(number) < first_byte;
        server.seen().iter().enumerate().all(is_in_time).then_some(result)
    });
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
