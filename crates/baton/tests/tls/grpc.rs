//! gRPC by other people's client and server, with reloads meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
