//! Descriptors are scarce: what cannot be had is refused or waited for, and nobody who connects is left alone.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use support::{PATIENCE, Proxy, free_address, until};

/// Cores, and so sockets of an address.
const CORES: usize = 4;
/// Clients of a new address: with this many each of its sockets has one, but for one run in 10^11.
const CLIENTS: usize = 100;

/// A frontend on each address that answers by itself.
fn config(addresses: &[SocketAddr]) -> String {
    let binds: String = addresses.iter().map(|address| format!(" bind {address}\n")).collect();
    format!(
        "global\n nbthread {CORES}\n maxconn 500\ndefaults\n mode http\n timeout client 30s\n timeout connect 5s\n \
         timeout server 5s\nfrontend web\n{binds} http-request return status 200 content-type text/plain string yes\n"
    )
}

/// Changes the limit of open files of a running process.
fn limit(pid: u32, soft: u64) {
    let of = Command::new("prlimit").args([format!("--pid={pid}"), format!("--nofile={soft}:")]).status();
    assert!(of.expect("prlimit is a part of util-linux").success());
}

fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("the kernel takes it");
    stream
}

#[track_caller]
fn assert_answered(mut stream: TcpStream) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, and its end");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
}

#[test]
fn an_address_added_when_descriptors_run_out_is_served_by_all_cores_or_refused() {
    let mut addresses = vec![free_address()];
    let proxy = Proxy::start(&config(&addresses));
    let (mut accepted, mut refused) = (0, 0);
    // With fewer than these, the question to the process has no descriptor itself.
    for spare in 3..24 {
        let before = proxy.status().descriptors as u64;
        let new = free_address();
        addresses.push(new);
        proxy.write(&config(&addresses));
        limit(proxy.pid(), before + spare);
        let outcome = proxy.reload();
        let clients: Vec<_> = if outcome.accepted { (0..CLIENTS).map(|_| ask(new)).collect() } else { Vec::new() };
        limit(proxy.pid(), 1000);
        if outcome.accepted {
            accepted += 1;
        } else {
            refused += 1;
            addresses.pop();
            until("no descriptor is left over", || proxy.status().descriptors as u64 <= before);
        }
        clients.into_iter().for_each(assert_answered);
        addresses.iter().for_each(|address| assert_answered(ask(*address)));
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused: the limit was never in between");
}
