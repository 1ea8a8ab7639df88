//! HTTP/2 between the load client and the origins, and of each with another program.

use std::process::{Command, Stdio};
use std::time::Duration;

use baton_prove::failure::FailureKind;
use baton_prove::load::{BodyCheck, LoadResult, StatusCheck};
use baton_prove::origin::pattern;
use baton_prove::{Load, LoadOptions, Origin, OriginHandle, OriginOptions, Request};

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn origin() -> OriginHandle {
    Origin::start(OriginOptions::new("demo")).expect("a free port")
}

/// So many requests, over two connections of eight streams.
async fn load(origin: &OriginHandle, requests: Vec<Request>, count: u64) -> LoadResult {
    let options = LoadOptions {
        requests,
        streams: Some(8),
        concurrency: 16,
        threads: 2,
        count: Some(count),
        ..LoadOptions::new(origin.address())
    };
    Load::start(options).expect("it starts").wait().await
}

#[test]
fn bodies_arrive_whole_on_few_connections() {
    run(async {
        let origin = origin();
        let exactly = |path: &str, len| Request::get(path).expect(BodyCheck::Exactly(pattern(len).into()));
        let echo = Request::post("/echo", pattern(300_000)).expect(BodyCheck::Exactly(pattern(300_000).into()));
        let head = Request { method: "HEAD".to_owned(), ..Request::get("/bytes/5") };
        let requests = vec![
            exactly("/bytes/0", 0),
            exactly("/bytes/200000", 200_000),
            exactly("/chunked/9001", 9001),
            echo,
            head,
            Request::get("/status/204").status(StatusCheck::Exactly(204)),
            Request::get("/bytes/x").status(StatusCheck::Exactly(404)),
        ];
        let result = load(&origin, requests, 280).await;
        assert_eq!((result.counts.completed, &result.failures[..]), (280, &[][..]));
        assert_eq!((result.connections, origin.requests()), (2, 280));
        origin.stop().await.expect("it stops");
    });
}

#[test]
fn failures_of_streams_have_their_kinds_and_leave_the_connection() {
    run(async {
        let origin = origin();
        for (fault, kind) in [
            ("reset", FailureKind::ClosedOnReuse),
            ("close", FailureKind::ClosedOnReuse),
            ("half-body", FailureKind::Truncated),
            ("reset-body", FailureKind::Truncated),
            ("wrong-length", FailureKind::WrongLength),
            ("wrong-body", FailureKind::WrongBody),
            ("wrong-status", FailureKind::WrongStatus),
        ] {
            let right = Request::get("/bytes/1000").expect(BodyCheck::Exactly(pattern(1000).into()));
            let wrong = Request { path: format!("/bytes/1000?fail={fault}"), ..right.clone() };
            let options = LoadOptions {
                requests: vec![wrong, right],
                streams: Some(1),
                count: Some(3),
                ..LoadOptions::new(origin.address())
            };
            let result = Load::start(options).expect("it starts").wait().await;
            let kinds: Vec<_> = result.failures.iter().map(|failure| failure.kind).collect();
            assert_eq!((&kinds[..], result.connections), (&[kind][..], 1), "{fault}");
        }
        origin.stop().await.expect("it stops");
    });
}

#[test]
fn a_server_that_stops_finishes_what_it_has_begun() {
    run(async {
        let origin = origin();
        let options = LoadOptions {
            requests: vec![Request::get("/delay/50ms")],
            streams: Some(16),
            concurrency: 16,
            count: Some(16),
            ..LoadOptions::new(origin.address())
        };
        let load = Load::start(options).expect("it starts");
        let counts = origin.counts();
        let begun = async {
            while counts.requests() < 16 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), begun).await.expect("all are begun");
        origin.stop().await.expect("it stops");
        let result = load.wait().await;
        assert_eq!((result.counts.completed, &result.failures[..]), (16, &[][..]));
    });
}

#[test]
fn curl_and_h2load_are_served() {
    run(async {
        let origin = origin();
        let url = format!("http://{}", origin.address());
        let call = |program: &'static str, arguments: Vec<String>| {
            tokio::task::spawn_blocking(move || {
                let output = Command::new(program).args(arguments).stderr(Stdio::null()).output();
                String::from_utf8_lossy(&output.expect("scripts/setup installs it").stdout).into_owned()
            })
        };
        let curl = ["-s", "-m", "20", "--http2-prior-knowledge", &format!("{url}/a?b=c")].map(str::to_owned);
        let seen = call("curl", curl.to_vec()).await.expect("it ends");
        assert!(seen.contains(r#""method":"GET","path":"/a?b=c","version":"HTTP/2.0""#), "{seen}");
        let h2load = ["-n", "500", "-c", "4", "-m", "20", &format!("{url}/bytes/100")].map(str::to_owned);
        let counts = call("h2load", h2load.to_vec()).await.expect("it ends");
        assert!(counts.contains("500 succeeded, 0 failed"), "{counts}");
        origin.stop().await.expect("it stops");
    });
}

#[test]
fn what_http2_does_not_allow_is_refused() {
    let refuse = |options: LoadOptions, text: &str| {
        let error = Load::start(options).expect_err("it cannot be meant").to_string();
        assert!(error.contains(text), "{error}");
    };
    let address = "127.0.0.1:9".parse::<std::net::SocketAddr>().expect("an address");
    let options = LoadOptions { streams: Some(3), concurrency: 4, ..LoadOptions::new(address) };
    refuse(options, "number of streams");
    let close = Request { headers: vec![("Connection".into(), "close".into())], ..Request::get("/") };
    refuse(
        LoadOptions { streams: Some(1), requests: vec![close], ..LoadOptions::new(address) },
        "about the connection",
    );
}
