//! Many servers that go down and come up at once, again and again, under traffic.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use socket2::{Domain, Socket, Type};

use crate::peers::socat;
use crate::support::{Proxy, free_address, until};

const SERVERS: usize = 400;
const TIMES: usize = 2;

/// Listens on all addresses of this machine: each server has one of its own.
fn everywhere(port: u16) -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("a socket takes it");
    socket.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into()).expect("a free port");
    socket.listen(4096).expect("it is bound");
    socket.into()
}

/// Responds to every request on a connection.
fn serve(mut stream: TcpStream) {
    let mut received = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut part) {
        received.extend_from_slice(&part[..count]);
        while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            received.drain(..end + 4);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

/// Requests, each over a connection of its own, until it is over: how many there were, and how many failed.
fn request(address: SocketAddr, is_over: &AtomicBool, done: &AtomicUsize) -> usize {
    let mut failed = 0;
    while !is_over.load(Ordering::Relaxed) {
        let response = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        });
        let is_good = response.is_ok_and(|text| text.starts_with("HTTP/1.1 200 ") && text.ends_with("ok"));
        failed += usize::from(!is_good);
        done.fetch_add(1, Ordering::Relaxed);
    }
    failed
}

#[test]
fn all_servers_but_one_go_down_and_up_at_once_and_no_request_fails() {
    let traffic = TcpListener::bind("0.0.0.0:0").expect("a port");
    let traffic_port = traffic.local_addr().expect("it is bound").port();
    thread::spawn(move || traffic.incoming().flatten().for_each(|stream| drop(thread::spawn(|| serve(stream)))));
    let check_port = free_address().port();
    let mut checked = Some(everywhere(check_port));
    let address = free_address();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let admin = folder.path().join("admin.sock");
    let mut text = format!(
        "global\n stats socket {} level admin\n log stderr format raw local0\n max-spread-checks 100ms\n\
         defaults\n log global\n mode http\n retries 3\n option redispatch\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         frontend f\n no log\n bind {address}\n default_backend b\nbackend b\n server steady 127.0.0.1:{traffic_port}\n",
        admin.display(),
    );
    for number in 0..SERVERS {
        let own = format!("127.1.{}.{}", number / 250, number % 250 + 1);
        text += &format!(
            " server s{number} {own}:{traffic_port} check port {check_port} inter 1s downinter 100ms fall 1 rise 1\n"
        );
    }
    let proxy = Proxy::start(&text);
    let lines = |what: &str| proxy.said().matches(what).count();
    let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failed = thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(|| request(address, &is_over, &done))).collect();
        for time in 1..=TIMES {
            checked = None;
            until("all are down", || lines(" is DOWN, reason: Layer4 connection problem") >= SERVERS * time);
            // The thread of checks has time for others.
            assert!(socat(&admin, "show info\n").contains("Uptime_sec"));
            let before = done.load(Ordering::Relaxed);
            until("requests are served meanwhile", || done.load(Ordering::Relaxed) > before);
            checked = Some(everywhere(check_port));
            until("all are up", || lines(" is UP, reason: Layer4 check passed") >= SERVERS * time);
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client")).sum::<usize>()
    });
    drop(checked);
    assert_eq!((failed, lines(" is DOWN, "), lines(" is UP, ")), (0, SERVERS * TIMES, SERVERS * TIMES));
}
