//! WebSockets and CONNECT go to the new process in the middle, and no byte is lost, doubled or out of order; the one line at the end is that
//! of the whole exchange.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_control::handover::record::FORMAT;

use crate::peers::Taker;
use crate::support::{Proxy, free_address, frontend_counter, until};
use crate::tunnels::{all_have_their_place, bulk, connect, exchange, replaced};

/// Takeovers one after the other.
const TAKEOVERS: usize = 4;
/// Threads of clients, and sessions of each.
const THREADS: usize = 3;
const SESSIONS: usize = 20;

pub const WEBSOCKET: &str = "GET /ws?x=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
const CONNECT: &str = "CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n";

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

/// A server that takes every upgrade and every CONNECT, and sends back what follows. It ends with the test.
pub fn upgrading() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut stream = stream;
                let response = if read_head(&mut stream).starts_with("CONNECT ") {
                    "HTTP/1.1 200 OK\r\n\r\n"
                } else {
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\n"
                };
                if stream.write_all(response.as_bytes()).is_err() {
                    return;
                }
                let mut some = [0; 65536];
                while let Ok(count @ 1..) = stream.read(&mut some) {
                    if stream.write_all(&some[..count]).is_err() {
                        return;
                    }
                }
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn config(front: SocketAddr, server: SocketAddr) -> String {
    format!(
        "global\n nbthread 2\n maxconn 2000\n log stderr format raw local0\ndefaults\n mode http\n log global\n option httplog\n \
         timeout connect 5s\n timeout client 60s\n timeout server 60s\n timeout tunnel 70s\nfrontend front\n bind {front}\n \
         default_backend back\nbackend back\n server s0 {server}\n"
    )
}

#[track_caller]
pub fn open(front: SocketAddr, request: &str) -> TcpStream {
    let mut stream = connect(front);
    stream.write_all(request.as_bytes()).expect("it listens");
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 ") || head.starts_with("HTTP/1.1 200 "), "{head}");
    stream
}

/// The lines of tunnels, without what differs from one to the next: ports, dates, times (which there are), numbers of connections.
fn lines(said: &str) -> Vec<String> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let times: Vec<i64> = words[4].split('/').map(|time| time.parse().expect("a time")).collect();
        assert!(times.len() == 5 && times.iter().all(|time| *time >= 0), "{line}");
        let kept = words.iter().enumerate().filter(|(at, _)| ![0, 1, 4, 10].contains(at));
        kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    };
    said.lines().filter(|line| line.contains(" front back/s0 ")).map(line).collect()
}

#[test]
fn tunnels_of_http_go_with_every_takeover_and_no_byte_is_lost() {
    let front = free_address();
    let mut now = Proxy::start(&config(front, upgrading()));
    let is_over = Arc::new(AtomicBool::new(false));
    let numbered = (0..THREADS).map(|_| {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let opened = (0..SESSIONS).map(|at| open(front, if at % 2 == 0 { WEBSOCKET } else { CONNECT }));
            let mut streams: Vec<TcpStream> = opened.collect();
            let (mut bytes, mut number) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                for stream in &mut streams {
                    number += 1;
                    bytes += exchange(stream, number);
                }
            }
            bytes
        })
    });
    let numbered: Vec<_> = numbered.collect();
    let stream = bulk(open(front, WEBSOCKET), is_over.clone());
    let all = THREADS * SESSIONS + 1;
    until("all are there", || now.status().connections == all);
    let before = replaced(&mut now, TAKEOVERS);
    all_have_their_place(&now, all);
    is_over.store(true, Ordering::Relaxed);
    let mut bytes = numbered.into_iter().map(|thread| thread.join().expect("no session was cut off")).sum::<u64>();
    bytes += stream.join().expect("no session was cut off");
    until("all have ended", || now.status().connections == 0);
    let status = now.status();
    let counted = |name: &str| frontend_counter(&status, "front", name);
    assert_eq!(["stot", "conn_tot", "req_tot"].map(counted), [all as u64; 3], "each was counted once");
    assert_eq!(["hrsp_1xx", "hrsp_2xx"].map(counted).iter().sum::<u64>(), all as u64);
    assert!(counted("bin") > bytes && counted("bout") > bytes, "the bytes of all processes, and the heads");
    let (backend, server) = (&status.backends[0], &status.backends[0].servers[0]);
    assert_eq!((backend.counters["req_tot"], server.counters["lbtot"], server.open), (all as u64, all as u64, 0));
    until("all are logged", || lines(&now.said()).len() == all);
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
        assert_eq!(lines(&said), [""; 0], "the last process has the lines");
    }
}

#[test]
fn the_line_of_a_tunnel_that_has_moved_is_that_of_one_that_has_not() {
    let front = free_address();
    let mut now = Proxy::start(&config(front, upgrading()));
    // The first one has the file.
    let mut before = Vec::new();
    for request in [WEBSOCKET, CONNECT] {
        let logged = lines(&now.said()).len();
        let talk = |stream: &mut TcpStream, numbers: [usize; 2]| numbers.map(|number| exchange(stream, number));
        let mut stream = open(front, request);
        talk(&mut stream, [1, 2]);
        talk(&mut stream, [3, 4]);
        drop(stream);
        until("it is logged", || lines(&now.said()).len() == logged + 1);
        let expect = lines(&now.said()).pop();
        let mut stream = open(front, request);
        talk(&mut stream, [1, 2]);
        for _ in 0..2 {
            let next = now.replace(&[]);
            let old = std::mem::replace(&mut now, next);
            until("the old process has ended", || old.has_ended());
            before.push(old);
        }
        talk(&mut stream, [3, 4]);
        drop(stream);
        until("it is logged", || lines(&now.said()).len() == 1);
        assert_eq!(lines(&now.said()).pop(), expect);
    }
}

#[test]
fn the_end_of_the_server_is_the_end_of_a_tunnel_that_has_moved() {
    let front = free_address();
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let old = Proxy::start(&config(front, server.local_addr().expect("bound")));
    let mut client = connect(front);
    client.write_all(CONNECT.as_bytes()).expect("it listens");
    let (mut accepted, _) = server.accept().expect("a tunnel");
    read_head(&mut accepted);
    accepted.write_all(b"HTTP/1.1 200 OK\r\n\r\nfirst ").expect("it is open");
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
    client.read_exact(&mut [0; 6]).expect("it is passed on");
    let new = old.replace(&[]);
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    accepted.write_all(b"second").expect("it is open");
    drop(accepted);
    let mut rest = String::new();
    client.read_to_string(&mut rest).expect("it ends in order");
    assert_eq!(rest, "second");
    // The client has not ended its direction.
    until("it has ended", || new.status().connections == 0);
    drop(client);
}

#[test]
fn a_process_that_knows_sessions_in_mode_tcp_alone_gets_no_others() {
    let front = free_address();
    let old = Proxy::start(&config(front, upgrading()));
    let mut stream = open(front, WEBSOCKET);
    exchange(&mut stream, 1);
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT - 1);
    until("it is said", || old.status().connections_staying == [("unknown".to_owned(), 1)].into());
    exchange(&mut stream, 2);
    drop(stream);
    drop(taker);
    assert!(old.wait().0.success());
}

#[test]
fn tunnels_that_cannot_move_stay_and_it_is_said_why() {
    let (front, inner) = (free_address(), free_address());
    let text = config(front, upgrading()).replace("\nbackend back\n", "\nbackend web\n")
        + &format!(
            "frontend inner\n bind {inner} proto h2\n default_backend web\nbackend back\n server s0 {inner} proto h2\n"
        );
    let text = text.replacen("global\n", "global\n tune.handover.patience 0\n", 1);
    let old = Proxy::start(&text);
    let mut stream = open(front, WEBSOCKET);
    exchange(&mut stream, 1);
    let new = old.replace(&[]);
    // The tunnel is a stream of the other connection.
    let expect = [("http2", 1), ("in-flight", 1)].map(|(reason, count)| (reason.to_owned(), count)).into();
    until("it is said", || new.status().connections_staying == expect);
    exchange(&mut stream, 2);
    drop(stream);
    assert!(old.wait().0.success());
}
