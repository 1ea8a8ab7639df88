//! Descriptors are scarce: what cannot be had is refused or waited for, and nobody who connects is left alone or turned away.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use baton_prove::{Origin, OriginOptions};
use support::{PATIENCE, Proxy, free_address, until};

/// Cores, and so sockets of an address.
const CORES: usize = 4;
/// Clients of a new address: with this many each of its sockets has one, but for one run in 10^11.
const CLIENTS: usize = 100;

/// A frontend on each address that answers by itself.
fn config(addresses: &[SocketAddr]) -> String {
    let binds: String = addresses.iter().map(|address| format!(" bind {address}\n")).collect();
    format!(
        "global\n nbthread {CORES}\n maxconn 500\n ulimit-n 64\n no strict-limits\ndefaults\n mode http\n timeout client 30s\n timeout connect 5s\n \
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

/// Twice as many clients as may be connected, again and again, who send a request, or two, or none, and go away at any time.
#[test]
fn a_flood_never_takes_the_descriptors_of_those_who_are_served() {
    const MAXCONN: usize = 40;
    const ROUNDS: usize = 30;
    let origins = ["o1", "o2", "o3"].map(|name| Origin::start(OriginOptions::new(name)).expect("a free port"));
    let web = free_address();
    let servers: String = origins.iter().map(|origin| format!(" server {0} {0}\n", origin.address())).collect();
    let config = format!(
        "global\n nbthread 2\n maxconn {MAXCONN}\n ulimit-n 64\ndefaults\n mode http\n http-reuse always\n backlog 1000\n timeout client 30s\n \
         timeout connect 5s\n timeout server 5s\nlisten web\n bind {web}\n{servers}"
    );
    let proxy = Proxy::start(&config);
    // What is kept back, two for each client, and a few for idle connections to servers.
    let descriptors = 64 + 10 + 4 + 2 * MAXCONN + 7;
    limit(proxy.pid(), descriptors as u64);
    proxy.change(&config);
    let folder = format!("/proc/{}/fd", proxy.pid());
    let mut most = 0;
    for round in 0..ROUNDS {
        let requests =
            ["GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"];
        let clients: Vec<_> = (0..2 * MAXCONN)
            .map(|number| {
                let mut stream = TcpStream::connect(web).expect("the kernel takes it");
                let text = match (number + round) % 5 {
                    0 => String::new(),
                    1 => requests[0].repeat(2),
                    2 => requests[1].into(),
                    3 => "nonsense\r\n\r\n".into(),
                    _ => requests[0].into(),
                };
                stream.write_all(text.as_bytes()).expect("the kernel takes it");
                stream
            })
            .collect();
        let first = &mut &clients[4 - round % 5];
        first.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
        let mut byte = [0];
        first.read_exact(&mut byte).expect("who was there first is answered");
        most = most.max(std::fs::read_dir(&folder).expect("our child lives").count());
    }
    assert_answered(ask(web));
    assert!(most > MAXCONN, "only {most} descriptors were ever in use");
    let said = proxy.said();
    assert!(!said.contains("accept on") && !said.contains("cannot connect") && !said.contains("os error 24"), "{said}");
    until("nobody is connected", || proxy.status().connections == 0);
}
