//! TLS: against haproxy and `openssl s_server`, whose TLS is OpenSSL's, and against servers that break it off on purpose.

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use baton_prove::{
    FailureKind, Load, LoadOptions, LoadResult, Request, ServerEndpoint, Target, TlsOptions,
    load::BodyCheck,
    stream::{ClientCertificate, TlsVersion, Verify},
};
use rustls::{ServerConnection, StreamOwned};
use support::{certificates::Certificates, hold, read_head, reset, run, say, server};

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// haproxy on a unix socket, with these words on its `bind` line. It answers with the name that it was told (SNI), and its TLS
/// version.
struct Haproxy {
    _process: Process,
    socket: PathBuf,
}

impl Haproxy {
    fn start(certificates: &Certificates, words: &str) -> Haproxy {
        let folder = certificates.folder.path();
        let socket = folder.join("socket");
        let text = format!(
            "global\n  stats socket {0}/ready\ndefaults\n  mode http\n  timeout client 10s\nfrontend f\n  \
             bind unix@{0}/socket ssl crt {0}/server.both {words}\n  \
             http-request return status 200 content-type text/plain lf-string \"%[ssl_fc_sni] %[ssl_fc_protocol]\"\n",
            folder.display()
        );
        std::fs::write(folder.join("cfg"), text).expect("written");
        let _ = std::fs::remove_file(&socket);
        let child = Command::new("/usr/sbin/haproxy").args(["-q", "-db", "-f"]).arg(folder.join("cfg")).spawn();
        let mut process = Process(child.expect("haproxy is installed by scripts/setup test"));
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert_eq!(process.0.try_wait().expect("a child"), None, "haproxy has ended");
            std::thread::yield_now();
        }
        Haproxy { _process: process, socket }
    }

    fn load(&self, tls: &TlsOptions, options: LoadOptions) -> LoadResult {
        load(LoadOptions { servers: vec![over(Target::Unix(self.socket.clone()), tls)], ..options })
    }
}

fn over(target: impl Into<ServerEndpoint>, tls: &TlsOptions) -> ServerEndpoint {
    ServerEndpoint { tls: Some(tls.build().expect("good options")), ..target.into() }
}

fn load(options: LoadOptions) -> LoadResult {
    let result = run(async { Load::start(options).expect("started").wait().await });
    assert_eq!(result.counts.requests, result.counts.completed + result.counts.failed(), "every request has one end");
    result
}

/// Ten requests.
fn ten() -> LoadOptions {
    LoadOptions { count: Some(10), ..LoadOptions::new(PathBuf::new()) }
}

/// All failed in the handshake, for a reason with these words.
fn check_refused(result: &LoadResult, words: &str) {
    let failed = result.counts.count(FailureKind::TlsHandshake);
    assert_eq!((result.counts.completed, failed), (0, result.counts.requests), "{}", result.counts);
    for failure in &result.failures {
        let reason = failure.reason.as_deref().unwrap_or_default();
        assert!(reason.contains(words), "{failure:?}");
    }
}

fn check_completed(result: &LoadResult) {
    assert_eq!(result.counts.completed, result.counts.requests, "{}: {:?}", result.counts, result.failures.first());
}

#[test]
fn versions_and_names_are_the_ones_asked_for() {
    let certificates = Certificates::new();
    let haproxy = Haproxy::start(&certificates, "");
    let check = |tls: TlsOptions, says: &str| {
        let requests = vec![Request::get("/").expect(BodyCheck::Exactly(says.as_bytes().into()))];
        let result = haproxy.load(&tls, LoadOptions { requests, ..ten() });
        check_completed(&result);
        assert_eq!((result.counts.completed, result.connections, result.resumed), (10, 1, 0));
    };
    check(certificates.options(), "localhost TLSv1.3");
    check(TlsOptions { newest: TlsVersion::V1_2, ..certificates.options() }, "localhost TLSv1.2");
    check(TlsOptions { oldest: TlsVersion::V1_3, ..certificates.options() }, "localhost TLSv1.3");
    check(TlsOptions { sni: false, ..certificates.options() }, " TLSv1.3");
    check(TlsOptions { name: None, ..certificates.options() }, " TLSv1.3");
    let anybody = Some("anybody.example".to_owned());
    check(TlsOptions { name: anybody, verify: Verify::Nothing, ..certificates.options() }, "anybody.example TLSv1.3");
}

#[test]
fn sessions_are_resumed_unless_told_not_to() {
    let certificates = Certificates::new();
    let haproxy = Haproxy::start(&certificates, "");
    for newest in [TlsVersion::V1_2, TlsVersion::V1_3] {
        for resumption in [false, true] {
            let tls = TlsOptions { newest, resumption, ..certificates.options() };
            let result = haproxy.load(&tls, LoadOptions { keep_alive: false, ..ten() });
            check_completed(&result);
            assert_eq!((result.connections, result.resumed), (10, if resumption { 9 } else { 0 }), "{newest:?}");
        }
    }
}

#[test]
fn many_connections_at_a_time_find_a_session_each() {
    let certificates = Certificates::new();
    let haproxy = Haproxy::start(&certificates, "");
    for newest in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let tls = TlsOptions { newest, ..certificates.options() };
        let options = LoadOptions { keep_alive: false, concurrency: 40, count: Some(400), ..ten() };
        let result = haproxy.load(&tls, options);
        check_completed(&result);
        // Those that begin together have nothing to resume.
        assert!((320..=399).contains(&result.resumed), "{newest:?}: {} resumed", result.resumed);
    }
}

#[test]
fn certificates_that_are_not_accepted_are_failed_handshakes() {
    let certificates = Certificates::new();
    let haproxy = Haproxy::start(&certificates, "");
    let wrong = TlsOptions { name: Some("example.org".to_owned()), ..certificates.options() };
    check_refused(&haproxy.load(&wrong, ten()), "invalid peer certificate: certificate not valid for name");
    let address = TlsOptions { name: Some("127.0.0.2".to_owned()), ..certificates.options() };
    check_refused(&haproxy.load(&address, ten()), "invalid peer certificate: certificate not valid for name");
    let others = Certificates::new();
    check_refused(&haproxy.load(&others.options(), ten()), "invalid peer certificate");
    let system = TlsOptions { verify: Verify::System, ..certificates.options() };
    match system.build() {
        Ok(_) => check_refused(&haproxy.load(&system, ten()), "invalid peer certificate: UnknownIssuer"),
        Err(error) => assert!(error.to_string().contains("ca-certificates"), "{error}"),
    }
}

#[test]
fn a_client_certificate_is_shown_when_asked_for() {
    let certificates = Certificates::new();
    let words = format!("ca-file {}/ca.pem verify required", certificates.folder.path().display());
    let haproxy = Haproxy::start(&certificates, &words);
    for newest in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let without = TlsOptions { newest, ..certificates.options() };
        check_refused(&haproxy.load(&without, ten()), "received fatal alert");
        let with = TlsOptions { certificate: certificates.own(), ..without };
        check_completed(&haproxy.load(&with, LoadOptions { keep_alive: false, ..ten() }));
    }
}

#[test]
fn a_version_that_the_server_does_not_speak_is_a_failed_handshake() {
    let certificates = Certificates::new();
    let haproxy = Haproxy::start(&certificates, "ssl-min-ver TLSv1.3");
    let old = TlsOptions { newest: TlsVersion::V1_2, ..certificates.options() };
    check_refused(&haproxy.load(&old, ten()), "received fatal alert: ProtocolVersion");
    let haproxy = Haproxy::start(&certificates, "ssl-max-ver TLSv1.2");
    let new = TlsOptions { oldest: TlsVersion::V1_3, ..certificates.options() };
    check_refused(&haproxy.load(&new, ten()), "");
}

#[test]
fn openssl_s_server_is_understood() {
    let certificates = Certificates::new();
    let child = Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-cert", "server.pem", "-key", "server.key"])
        .current_dir(certificates.folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut process = Process(child.expect("openssl is installed by scripts/setup test"));
    let said = BufReader::new(process.0.stdout.take().expect("piped"));
    let mut lines = said.lines().map(|line| line.expect("it says where it listens"));
    let address: SocketAddr = lines
        .find_map(|line| line.strip_prefix("ACCEPT ").map(|address| address.parse().expect("an address")))
        .expect("it says where it listens");
    // The name is not given: the address is checked, which is in the certificate too.
    let server = over(address, &TlsOptions { name: None, ..certificates.options() });
    let result = load(LoadOptions { servers: vec![server], ..ten() });
    check_completed(&result);
    assert_eq!(result.connections, 10, "it closes after each answer");
    assert!(result.body_bytes > 0);
}

/// Three connections to a server with this script.
fn three(tls: &TlsOptions, script: impl Fn(&mut TcpStream) + Send + 'static) -> LoadResult {
    let address = server(move |_, stream| script(stream));
    let mut options = LoadOptions { count: Some(3), servers: vec![over(address, tls)], ..ten() };
    options.timeouts.connect = Duration::from_millis(100);
    load(options)
}

/// Waits for the client's first bytes.
fn hello(stream: &mut TcpStream) {
    let _ = std::io::Read::read(stream, &mut [0; 2048]);
}

#[test]
fn a_handshake_can_fail_in_every_way() {
    let tls = TlsOptions { verify: Verify::Nothing, ..TlsOptions::default() };
    // A record of type alert, fatal, with the descriptions handshake_failure and unrecognized_name.
    for (description, words) in [(40, "fatal alert: HandshakeFailure"), (112, "fatal alert: UnrecognisedName")] {
        let alert = three(&tls, move |stream| {
            hello(stream);
            say(stream, [21, 3, 3, 0, 2, 2, description]);
            hold(stream);
        });
        check_refused(&alert, words);
    }
    check_refused(&three(&tls, hello), "closed during the TLS handshake");
    let abrupt = three(&tls, |stream| {
        hello(stream);
        reset(stream);
    });
    check_refused(&abrupt, "reset during the TLS handshake");
    let plain = three(&tls, |stream| {
        say(stream, "HTTP/1.1 400 Bad Request\r\n\r\n");
        hold(stream);
    });
    check_refused(&plain, "corrupt message");

    let silent = three(&tls, hold);
    assert_eq!(silent.counts.count(FailureKind::TimeoutConnect), 3, "{}", silent.counts);
}

/// Three requests, a connection each, to a server that speaks TLS and then does what the script says.
fn after_the_handshake(script: impl Fn(StreamOwned<ServerConnection, &mut TcpStream>) + Send + 'static) -> LoadResult {
    let certificates = Certificates::new();
    let config = certificates.server();
    let address = server(move |_, stream| {
        let tls = ServerConnection::new(config.clone()).expect("a good configuration");
        let mut stream = StreamOwned::new(tls, stream);
        if read_head(&mut stream) {
            script(stream);
        }
    });
    load(LoadOptions { count: Some(3), servers: vec![over(address, &certificates.options())], ..ten() })
}

#[test]
fn only_a_close_notify_ends_a_body_without_a_length() {
    const BEGUN: &str = "HTTP/1.1 200 OK\r\n\r\nabc";
    let whole = after_the_handshake(|mut stream| {
        say(&mut stream, BEGUN);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    check_completed(&whole);
    assert_eq!(whole.body_bytes, 9);
    let cut = after_the_handshake(|mut stream| say(&mut stream, BEGUN));
    assert_eq!(cut.counts.count(FailureKind::Truncated), 3, "{}", cut.counts);
    assert!(
        cut.failures.iter().all(|failure| failure.reason.as_deref().is_some_and(|text| text.contains("close_notify")))
    );
    // A length says by itself that the body is whole.
    let length = after_the_handshake(|mut stream| {
        say(&mut stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
    });
    check_completed(&length);
}

#[test]
fn a_close_before_the_answer_is_told_from_a_failed_handshake() {
    for notify in [false, true] {
        let closed = after_the_handshake(move |mut stream| {
            if notify {
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        });
        assert_eq!(closed.counts.count(FailureKind::ResetBeforeFirstByte), 3, "{}", closed.counts);
    }
}

#[test]
fn large_requests_are_sent_whole() {
    let certificates = Certificates::new();
    let haproxy = Haproxy::start(&certificates, "");
    // More than a socket takes at once, which haproxy reads only after it has answered.
    let requests = vec![Request::post("/", vec![b'x'; 8 << 20])];
    let result = haproxy.load(&certificates.options(), LoadOptions { requests, count: Some(3), ..ten() });
    check_completed(&result);
}

#[test]
fn options_that_cannot_be_meant_say_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("written");
    let check = |options: TlsOptions, words: &str| {
        let error = options.build().map(drop).expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    let missing = |path: &Path| Verify::File(path.into());
    let any = || TlsOptions { verify: Verify::Nothing, ..TlsOptions::default() };
    check(TlsOptions { verify: missing(&empty), ..any() }, "empty.pem: it contains no certificate");
    check(TlsOptions { verify: missing(Path::new("/nowhere.pem")), ..any() }, "/nowhere.pem: ");
    check(TlsOptions { name: Some("a b".to_owned()), ..any() }, "'a b' is neither");
    check(TlsOptions { oldest: TlsVersion::V1_3, newest: TlsVersion::V1_2, ..any() }, "newer than the newest");
    let own = ClientCertificate { chain: empty.clone(), key: empty };
    check(TlsOptions { certificate: Some(own), ..any() }, "empty.pem");
    assert!("1.1".parse::<TlsVersion>().is_err_and(|text| text.contains("RFC 8996")));
}
