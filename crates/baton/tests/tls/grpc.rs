//! gRPC with third-party clients and servers, with changes meanwhile.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_prove::certificates::{Authority, CertificateSpec};
use serde_json::Value;
use tempfile::TempDir;

use crate::http2::{EVERY, times};
use crate::support::{Proxy, free_address, until};
use crate::tool::{Running, Tool};

/// Reloads of the test, unless BATON_GRPC_RELOADS says how many.
const RELOADS: usize = 20;
/// Takeovers of the test, unless BATON_GRPC_TAKEOVERS says how many.
const TAKEOVERS: usize = 6;
/// Seconds that calls may go on.
const SECONDS_MAX: u32 = 600;

#[test]
fn calls_of_all_kinds_pass_and_reloads_cut_none() {
    let (web, server) = (free_address(), free_address());
    let text = |number: u32| {
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\nfrontend web\n bind {web} proto h2\n \
             http-request set-header x-number {number}\n default_backend app\nbackend app\n http-reuse always\n server s {server} proto h2\n"
        )
    };
    let (proxy, is_over) = (Proxy::start(&text(0)), AtomicBool::new(false));
    let (said, reloads) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut python = Tool::new("python3", &["-"]);
            for word in [server.port().to_string(), web.port().to_string(), "1".into()] {
                python.word(word);
            }
            let said = python.input(concat!(include_str!("grpc_server.py"), include_str!("grpc.py"))).run();
            is_over.store(true, Ordering::Relaxed);
            said
        });
        let mut reloads = 0;
        while !is_over.load(Ordering::Relaxed) {
            reloads += 1;
            proxy.change(&text(reloads));
            std::thread::sleep(Duration::from_millis(50));
        }
        (asking.join().expect("it ends"), reloads)
    });
    said.says(&["echo: b'hello'", "fail: NOT_FOUND there is none", "deadline: DEADLINE_EXCEEDED", "down: 3000000"]);
    said.says(&["up: b'3000000'", "chat: True [] {'x-end': '1'}", "calls: 300", "after: b'it'"]);
    assert!(reloads > 3, "{reloads} reloads");
}

#[test]
fn checks_ask_the_health_service() {
    let [web, server, without, tls] = [(); 4].map(|()| free_address());
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (socket, pem) = (folder.path().join("stats.sock"), folder.path().join("server.pem"));
    let authority = Authority::new("one").expect("made");
    let issued = authority.issue(&CertificateSpec::server(["a.example"])).expect("issued");
    std::fs::write(&pem, issued.bundle_pem()).expect("the folder is ours");
    let text = format!(
        "global\n stats socket {}\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n \
         default-server check inter 200ms rise 1 fall 1 init-state down\n\
         frontend web\n bind {web}\n http-request return status 404\n\
         backend app\n option grpc-check\n server whole {server} proto h2\n server without {without} check-proto h2\n \
         server tls {tls} ssl verify none alpn h2,http/1.1\n server http1 {web}\n\
         backend app-good\n option grpc-check service a.Good\n server good {server}\n\
         backend app-bad\n mode tcp\n option grpc-check service a.Bad\n server bad {server}\n\
         backend app-odd\n option grpc-check service a.Odd\n server odd {server}\n\
         backend app-gone\n option grpc-check service a.Gone\n server gone {server}\n\
         backend app-none\n option grpc-check service a.None\n server none {server}\n",
        socket.display()
    );
    let _proxy = Proxy::start(&text);
    let mut python = Tool::new("python3", &["-"]);
    for word in [server, without, tls].map(|address| address.port().to_string()) {
        python.word(word);
    }
    let said = python.word(&pem).word(&socket).input(include_str!("grpc_health.py")).run();
    said.says(&["whole: UP L7OK 0 ", "tls: UP L7OK 0 ", "good: UP L7OK 0 "]);
    said.says(&["bad: DOWN L7STS 0 the service is NOT_SERVING", "odd: DOWN L7STS 0 the service is UNKNOWN"]);
    said.says(&["gone: DOWN L7STS 0 the service is SERVICE_UNKNOWN"]);
    said.says(&[
        "none: DOWN L7STS 5 gRPC status 5 (NOT_FOUND)",
        "without: DOWN L7STS 12 gRPC status 12 (UNIMPLEMENTED)",
    ]);
    said.says(&["http1: DOWN L7STS 404 HTTP status 404"]);
    said.says(&[
        "then good: DOWN L7STS 0 the service is NOT_SERVING",
        "then good: UP L7OK 0 ",
        "then good: DOWN L4CON",
    ]);
}

/// Clients and servers of gRPC on both sides of a proxy, in clear text and over TLS, whose calls of all kinds go on.
struct Calls {
    web: [SocketAddr; 2],
    servers: [SocketAddr; 2],
    folder: TempDir,
}

impl Calls {
    fn new() -> Calls {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let authority = Authority::new("one").expect("made");
        let issued = authority.issue(&CertificateSpec::server(["127.0.0.1"])).expect("issued");
        std::fs::write(folder.path().join("server.pem"), issued.bundle_pem()).expect("the folder is ours");
        std::fs::write(folder.path().join("ca.pem"), authority.root_pem()).expect("the folder is ours");
        let [web, web_tls, clear, tls] = [(); 4].map(|()| free_address());
        Calls { web: [web, web_tls], servers: [clear, tls], folder }
    }

    /// A configuration, which differs in one header.
    fn config(&self, number: usize) -> String {
        let ([web, web_tls], [clear, tls], folder) = (self.web, self.servers, self.folder.path().display());
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             frontend web\n bind {web} proto h2\n bind {web_tls} ssl crt {folder}/server.pem alpn h2\n \
             http-request set-header x-number {number}\n default_backend app\n\
             backend app\n http-reuse always\n server clear {clear} proto h2\n \
             server tls {tls} ssl verify required ca-file {folder}/ca.pem alpn h2\n"
        )
    }

    /// A program that gets the ports of servers and proxy, the authority, and the certificate of servers.
    fn tool(&self, program: &str, words: &[&str]) -> Tool {
        let mut tool = Tool::new(program, words);
        for address in self.servers.iter().chain(&self.web) {
            tool.word(address.port().to_string());
        }
        for file in ["ca.pem", "server.pem"] {
            tool.word(self.folder.path().join(file));
        }
        tool
    }

    fn start(&self) -> Running {
        let script = concat!(include_str!("grpc_server.py"), include_str!("grpc_load.py"));
        let running = self.tool("python3", &["-c", script]).within(SECONDS_MAX).start();
        until("the servers listen", || self.servers.iter().all(|at| std::net::TcpStream::connect(at).is_ok()));
        running
    }
}

/// Every call came to its end.
#[track_caller]
fn assert_clean(changes: usize, calls: Running) {
    let said = calls.finish();
    assert_eq!(said.code, Some(0), "{said:?}");
    let counts: Value = serde_json::from_str(said.out.trim()).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    println!("{changes} changes, {counts}");
    assert!(counts["failed"].is_null() && counts["wrong"].is_null(), "{counts} {}", said.err);
    for kind in ["unary", "server_streaming", "client_streaming", "bidirectional"] {
        assert!(counts[kind].as_u64() > Some(5), "{counts}");
    }
}

#[test]
fn reloads_cut_no_call() {
    let calls = Calls::new();
    let (proxy, running) = (Proxy::start(&calls.config(0)), calls.start());
    let reloads = times("BATON_GRPC_RELOADS", RELOADS);
    for number in 1..=reloads {
        let due = Instant::now() + EVERY;
        proxy.change(&calls.config(number));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    assert_clean(reloads, running);
}

#[test]
fn takeovers_cut_no_call() {
    let calls = Calls::new();
    let (mut now, running) = (Proxy::start(&calls.config(0)), calls.start());
    let takeovers = times("BATON_GRPC_TAKEOVERS", TAKEOVERS);
    let mut before = Vec::new();
    for _ in 0..takeovers {
        let due = Instant::now() + EVERY;
        let next = now.replace(&[]);
        before.push(std::mem::replace(&mut now, next));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    assert_clean(takeovers, running);
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{status}:\n{said}");
    }
}

#[test]
fn node_calls_in_all_kinds() {
    let calls = Calls::new();
    let _proxy = Proxy::start(&calls.config(0));
    let script = calls.folder.path().join("grpc.js");
    std::fs::write(&script, include_str!("grpc.js")).expect("the folder is ours");
    let said = calls.tool("node", &[&script.display().to_string()]).run();
    for name in ["clear", "tls"] {
        let lines =
            ["echo hello", "fail NOT_FOUND there is none", "deadline DEADLINE_EXCEEDED", "down 3000000", "up 3000000"];
        let lines = lines.iter().chain(&["chat 50 [ '1' ]", "calls 300"]);
        said.says(
            &lines
                .map(|line| format!("{name}: {line}"))
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
    }
}
