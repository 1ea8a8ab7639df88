//! gRPC by other people's client and server, with reloads meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton_prove::certificates::{Authority, CertificateSpec};

use crate::support::{Proxy, free_address};
use crate::tool::Tool;

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
            let said = python.input(include_str!("grpc.py")).run();
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
